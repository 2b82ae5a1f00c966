// The inside of Builder: hash-consed instructions. Not a public header.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "arete/expr/value.h"

namespace arete::expr {

/// Equality and hash of instructions by content; constants by their bits, so that -0 is not 0.
struct InstructionEqual {
  bool operator()(const Instruction& a, const Instruction& b) const {
    return a.op == b.op && a.type == b.type && a.operand == b.operand && a.index == b.index &&
           a.value.i == b.value.i;
  }
};
struct InstructionHash {
  size_t operator()(const Instruction& in) const;
};

struct Builder::Impl {
  std::vector<Instruction> code;
  std::vector<DType> inputs;
  std::vector<Type> params;
  uint64_t params_in_memory = 0;
  uint32_t tables = 0;
  std::unordered_map<Instruction, int32_t, InstructionHash, InstructionEqual> known;

  /// Appends `in` or finds its equal.
  int32_t push(const Instruction& in);
  int32_t leaf(Op op, Type type, int32_t index);
  int32_t constant(Type type, double value);
  int32_t constant(Type type, int64_t value);
  int32_t literal(Type type, Literal value);
  /// Promotes operands, folds constants, simplifies.
  int32_t emit(Op op, int32_t a, int32_t b = -1, int32_t c = -1);
  /// A sum or difference with a product in one operation, if it is that: Note [Contraction].
  std::optional<int32_t> contracted(Op op, int32_t a, int32_t b);
  int32_t cast(int32_t a, Type to);
  int32_t round_to(int32_t a, DType storage);
  int32_t polynomial(int32_t x, int32_t degree, int32_t index);

  Type type(int32_t id) const { return code[size_t(id)].type; }
  Op op(int32_t id) const { return code[size_t(id)].op; }
  int32_t operand(int32_t id, int k = 0) const { return code[size_t(id)].operand[k]; }
  bool is_table(int32_t id) const {
    const Instruction& in = code[size_t(id)];
    return tables && in.op == Op::input && in.index < 32 && tables >> in.index & 1;
  }
  bool is_constant(int32_t id) const { return op(id) == Op::constant; }
  /// True for the constant `value`, sign of zero included.
  bool is_number(int32_t id, double value) const;

 private:
  /// `op` on booleans in terms of the bit operations; nothing where it has none.
  std::optional<int32_t> emit_boolean(Op op, int32_t a, int32_t b);
  /// Operands have their final types; folds, simplifies, or appends.
  int32_t emit_typed(Op op, Type result, int32_t a, int32_t b, int32_t c);
  /// An equal value that is already there or cheaper; see Note [Safe simplifications].
  std::optional<int32_t> simplify(Op op, int32_t a, int32_t b, int32_t c);
  std::optional<int32_t> simplify_unary(Op op, int32_t a);
  std::optional<int32_t> simplify_arithmetic(Op op, int32_t a, int32_t b);
  std::optional<int32_t> simplify_pow(int32_t a, int32_t b);
  std::optional<int32_t> simplify_bits(Op op, int32_t a, int32_t b);
  std::optional<int32_t> simplify_select(int32_t c, int32_t a, int32_t b);
  std::optional<int32_t> simplify_contracted(Op op, int32_t a, int32_t b, int32_t c);
};

}  // namespace arete::expr
