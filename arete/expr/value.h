// Symbolic scalars: C++ arithmetic on Values writes a Program.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "arete/expr/program.h"

namespace arete::expr {

class Builder;

/// A symbolic scalar inside a Builder. Arithmetic between values of different types promotes as
/// boolean < i32 < i64 < f32 < f64; numbers adapt to the value they meet (a fractional number
/// turns an integer value into f32).
class Value {
 public:
  Value() = default;
  Value(Builder* builder, int32_t id) : builder_(builder), id_(id) {}
  Builder* builder() const { return builder_; }
  int32_t id() const { return id_; }
  Type type() const;
  bool is_floating() const { return is_float(type()); }
  explicit operator bool() const = delete;

 private:
  Builder* builder_ = nullptr;
  int32_t id_ = -1;
};

/// Builds programs: folds constants, shares equal subexpressions, drops dead code.
///
/// Note [Contraction]
/// A program says itself which products are added without a rounding in between: where add or sub
/// is emitted for a product of floats, mul_add, mul_sub or sub_mul takes its place (of two products
/// the first is taken, of a sum the older one, so that sums commute). Backends contract nothing
/// else. Code that is inlined keeps the instructions that it has: what was rounded stays so,
/// however programs are put together, and the bits of a program do not depend on what else is in a
/// kernel.
class Builder {
 public:
  Builder();
  ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  Value input(DType storage);
  /// An input that load() reads at any position, and nothing else does: Program::tables.
  Value table(DType storage);
  Value param(Type type, bool in_memory = false);
  /// An input, or a table, for each of the program's.
  std::vector<Value> inputs_of(const Program& program);
  /// A parameter for each of the program's; those of the bits of `in_memory`, too, are in memory.
  std::vector<Value> params_of(const Program& program, uint64_t in_memory = 0);
  Value constant(Type type, double value);
  Value constant(Type type, int64_t value);
  Value constant(Type type, int value) { return constant(type, int64_t{value}); }
  Value emit(Op op, Value a);
  Value emit(Op op, Value a, Value b);
  Value emit(Op op, Value a, Value b, Value c);
  Value cast(Value a, Type to);
  Value round_to(Value a, DType storage);
  /// The value as it is read again after it was stored: rounded, and what is computed from it is
  /// not computed in one with it (backends have forms of 1 + erf(x) and its like).
  Value stored(Value a, DType storage);
  /// An orthogonal polynomial of degrees that are data (see orthogonal.h), or one of its first
  /// derivatives in x. It has no derivative in the degree.
  Value polynomial(Value x, Value degree, int family, int order = 0);
  /// Copies `program` in, reading `inputs` and `params`; returns its outputs, each rounded to its
  /// storage type. This is how programs concatenate.
  std::vector<Value> inline_program(const Program& program, std::span<const Value> inputs,
                                    std::span<const Value> params);
  /// The same without the roundings at the outputs; returns the values of all instructions.
  /// Where `live` is given, instructions with live[i] == 0 are left out; where `loads` is given
  /// and loads[i] is a value, it stands for instruction i.
  std::vector<Value> inline_code(const Program& program, std::span<const Value> inputs,
                                 std::span<const Value> params, std::span<const char> live = {},
                                 std::span<const Value> loads = {});
  /// Finishes; the builder can be used on. Inputs and parameters all stay, used or not.
  ProgramPtr build(std::span<const Value> outputs, std::span<const DType> dtypes);

  Type type_of(int32_t id) const;
  /// Whether `v` is the constant `number`; -0 is not 0.
  bool is_number(Value v, double number) const;

 private:
  friend class Program;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Arithmetic. `/` on integers gives f32 (true division), as tensors do; use `div` on integers for
// truncation through Op::div.
Value operator-(Value a);
Value operator!(Value a);
Value operator~(Value a);
#define ARETE_VALUE_BINARY(fn) \
  Value fn(Value a, Value b);  \
  Value fn(Value a, double b); \
  Value fn(double a, Value b);
ARETE_VALUE_BINARY(operator+)
ARETE_VALUE_BINARY(operator-)
ARETE_VALUE_BINARY(operator*)
ARETE_VALUE_BINARY(operator/)
ARETE_VALUE_BINARY(operator<)
ARETE_VALUE_BINARY(operator<=)
ARETE_VALUE_BINARY(operator>)
ARETE_VALUE_BINARY(operator>=)
ARETE_VALUE_BINARY(operator==)
ARETE_VALUE_BINARY(operator!=)
ARETE_VALUE_BINARY(pow)
ARETE_VALUE_BINARY(min)
ARETE_VALUE_BINARY(max)
ARETE_VALUE_BINARY(atan2)
ARETE_VALUE_BINARY(copysign)
ARETE_VALUE_BINARY(fmod)
ARETE_VALUE_BINARY(remainder)
ARETE_VALUE_BINARY(floor_div)
#undef ARETE_VALUE_BINARY
Value operator&(Value a, Value b);
Value operator|(Value a, Value b);
Value operator^(Value a, Value b);
Value operator<<(Value a, Value b);
Value operator>>(Value a, Value b);
Value nextafter(Value a, Value b);
Value gcd(Value a, Value b);
Value trunc_div(Value a, Value b);

// Functions of one floating value; integer arguments are cast to f32 first (abs, sign, floor,
// ceil, trunc and round keep integers).
#define ARETE_VALUE_UNARY(fn) Value fn(Value a);
// clang-format off
ARETE_VALUE_UNARY(abs) ARETE_VALUE_UNARY(sign) ARETE_VALUE_UNARY(floor) ARETE_VALUE_UNARY(ceil)
ARETE_VALUE_UNARY(trunc) ARETE_VALUE_UNARY(round) ARETE_VALUE_UNARY(sqrt)
ARETE_VALUE_UNARY(rsqrt) ARETE_VALUE_UNARY(reciprocal) ARETE_VALUE_UNARY(exp)
ARETE_VALUE_UNARY(exp2) ARETE_VALUE_UNARY(expm1) ARETE_VALUE_UNARY(log) ARETE_VALUE_UNARY(log2)
ARETE_VALUE_UNARY(log10) ARETE_VALUE_UNARY(log1p) ARETE_VALUE_UNARY(sin) ARETE_VALUE_UNARY(cos)
ARETE_VALUE_UNARY(tan) ARETE_VALUE_UNARY(asin) ARETE_VALUE_UNARY(acos) ARETE_VALUE_UNARY(atan)
ARETE_VALUE_UNARY(sinh) ARETE_VALUE_UNARY(cosh) ARETE_VALUE_UNARY(tanh) ARETE_VALUE_UNARY(asinh)
ARETE_VALUE_UNARY(acosh) ARETE_VALUE_UNARY(atanh) ARETE_VALUE_UNARY(erf) ARETE_VALUE_UNARY(erfc)
ARETE_VALUE_UNARY(erfinv) ARETE_VALUE_UNARY(lgamma) ARETE_VALUE_UNARY(digamma)
ARETE_VALUE_UNARY(is_nan) ARETE_VALUE_UNARY(is_inf) ARETE_VALUE_UNARY(sigmoid)
ARETE_VALUE_UNARY(square)
// clang-format on
#undef ARETE_VALUE_UNARY

    /// `condition` (boolean; numbers are compared with zero) chooses between two values.
    Value where(Value condition, Value a, Value b);
Value where(Value condition, double a, Value b);
Value where(Value condition, Value a, double b);
/// Element number `position` (an integer) of a table.
Value load(Value table, Value position);
/// Conversion, and a number as a value beside `like` (its builder and type).
Value cast(Value a, Type to);
Value constant_like(Value like, double value);
/// Cast of booleans and integers to f32; floating values stay.
Value to_float(Value a);

/// What pointwise definitions are: values in (inputs, then parameters), values out.
using Definition = std::function<std::vector<Value>(std::span<const Value>)>;

/// Runs `definition` on inputs of the given storage types and parameters of the given types and
/// builds the program. `out_dtypes`: storage types of the outputs; where empty, output k has the
/// storage type of its computation type. `tables`: bit k: input k is one.
ProgramPtr trace(const Definition& definition, std::span<const DType> inputs,
                 std::span<const Type> params, std::span<const DType> out_dtypes,
                 uint32_t tables = 0);

/// The program that only converts: one input of type `from`, one output of type `to`. Not for
/// complex types. Kept for the process: there are no more than pairs of types.
const ProgramPtr& conversion(DType from, DType to);

}  // namespace arete::expr
