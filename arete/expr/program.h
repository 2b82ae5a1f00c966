// Scalar expression programs: the one definition of elementwise mathematics.
//
// A Program is a typed list of scalar instructions in static single assignment form with n inputs,
// p run-time scalar parameters and m outputs. The CPU interprets it over blocks, CUDA compiles it,
// autograd differentiates it, compile concatenates several.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arete/base/hash.h"
#include "arete/core/dtype.h"
#include "arete/core/scalar.h"

namespace arete::expr {

/// The types of values inside a program. Storage types narrower than these compute in the wider
/// one: f16, bf16, f8 in f32; u8, i8, u16, i16 in i32; u32 in i64. Outputs round (or wrap) once,
/// when stored.
enum class Type : uint8_t { boolean, i32, i64, u64, f32, f64 };
inline constexpr int kNumTypes = 6;

/// The computation type of a storage type; complex types have none (TypeError).
Type compute_type(DType storage);
/// The storage type with a computation type's own format.
DType storage_type(Type t);
constexpr bool is_float(Type t) { return t == Type::f32 || t == Type::f64; }
constexpr bool is_int(Type t) { return t >= Type::i32 && t <= Type::u64; }

/// What an instruction does. Operands of one instruction have one type unless noted. Operands of
/// type boolean occur only in bit_not, bit_and, bit_or, bit_xor, select, cast and round_to (Builder
/// rewrites arithmetic and comparison of booleans into these). Integer arithmetic wraps.
enum class Op : uint8_t {
  // leaves
  input,     ///< `index`: which input; converted from its storage type
  param,     ///< `index`: which run-time scalar; see Program::params_in_memory
  constant,  ///< `value`
  // unary, any arithmetic type
  neg,
  abs,
  sign,
  // unary, integers and booleans
  bit_not,  ///< logical not for booleans
  // unary, floating
  floor,
  ceil,
  trunc,
  round,  // round: half to even
  sqrt,
  rsqrt,
  reciprocal,
  exp,
  exp2,
  expm1,
  log,
  log2,
  log10,
  log1p,
  sin,
  cos,
  tan,
  asin,
  acos,
  atan,
  sinh,
  cosh,
  tanh,
  asinh,
  acosh,
  atanh,
  erf,
  erfc,
  erfinv,
  lgamma,
  digamma,
  sigmoid,  ///< 1 / (1 + exp(-x)); its gradient reads y only
  is_nan,
  is_inf,  ///< result boolean
  // binary
  add,
  sub,
  mul,
  div,        ///< floating: IEEE; integers: truncating, division by zero gives 0
  floor_div,  ///< rounds to -inf; integers: division by zero gives 0
  fmod,       ///< sign of the dividend (C)
  remainder,  ///< sign of the divisor (Python)
  pow,        ///< integers: by squaring, negative exponents as PyTorch
  atan2,
  copysign,
  nextafter,
  min,
  max,  ///< NaN if either is NaN
  bit_and,
  bit_or,
  bit_xor,
  gcd,  ///< of integers: the greatest common divisor; 0 of zeros
  shl,
  shr,  ///< shifts by < 0 or >= width: 0, or the sign
  eq,
  ne,
  lt,
  le,
  gt,
  ge,  ///< result boolean
  // ternary
  select,   ///< (boolean, t, t)
  mul_add,  ///< floating: a * b + c, rounded once; see Note [Contraction]
  mul_sub,  ///< floating: a * b - c
  sub_mul,  ///< floating: c - a * b
  // conversion
  cast,      ///< to `type`; to boolean: x != 0; float to integer: truncates and saturates
  round_to,  ///< rounds (wraps) to storage type `index` (a DType) and back: fusion's barrier
  // memory
  load,  ///< (table, i64): an element of an input that is a table; see Program::tables
  // a loop, as long as the data say
  polynomial,  ///< (x, degree): an orthogonal polynomial; floating; `index` as in orthogonal.h
};
inline constexpr int kNumOps = int(Op::polynomial) + 1;
/// The printable name, e.g. "log1p".
const char* name_of(Op op);
/// Number of operands.
int arity_of(Op op);

/// A constant's payload: an i64 for integers (of u64 the bits) and booleans, a double for floats.
union Literal {
  int64_t i;
  double f;
};

/// One instruction; operands are positions of earlier instructions, -1 where absent.
struct Instruction {
  Op op;
  Type type;                       // of the result
  std::array<int32_t, 3> operand;  // positions
  int32_t index = 0;               // for input, param, round_to, polynomial
  Literal value{};                 // for constant
};

/// Opaque per-backend compiled form, kept with the program.
class Compiled {
 public:
  virtual ~Compiled() = default;
};

class Program;
using ProgramPtr = std::shared_ptr<const Program>;

/// Where an input of a derivative's program comes from.
struct DerivativeInput {
  enum class From : uint8_t { input, output, grad } from;
  int index;
  bool operator==(const DerivativeInput&) const = default;
};
/// The gradient of a program: outputs are the adjoints of the inputs in `wanted` order; `inputs`
/// says what each of the program's inputs is. Parameters are those of the original, in order.
struct Derivative {
  ProgramPtr program;
  std::vector<DerivativeInput> inputs;
};

/// An immutable program. Equal programs are one object (interned), so pointers compare. Who is
/// given one by reference may keep it: shared_from_this().
class Program : public std::enable_shared_from_this<Program> {
 public:
  struct Output {
    int32_t value;  // position of the instruction
    DType dtype;    // storage type it is rounded to
  };

  std::span<const Instruction> code() const { return code_; }
  std::span<const DType> inputs() const { return inputs_; }
  std::span<const Type> params() const { return params_; }
  /// Bit k: the Literal that is given for parameter k holds in `i` the address of the number, a
  /// double or an i64 in the memory of the device that runs the program.
  uint64_t params_in_memory() const { return params_in_memory_; }
  bool has_in_memory(size_t k) const { return k < 64 && params_in_memory_ >> k & 1; }
  /// Bit k: input k is a table. It does not broadcast: the program is given all of it and loads
  /// what lies i elements after the first in memory, for any i that is there (unchecked).
  uint32_t tables() const { return tables_; }
  bool is_table(size_t k) const { return k < 32 && tables_ >> k & 1; }
  std::span<const Output> outputs() const { return outputs_; }
  const Hash128& hash() const { return hash_; }

  /// Number of arithmetic operations (for costs).
  int flops() const;

  /// A readable listing, one instruction a line: "%3:f32 = mul %0 %2".
  std::string text() const;

  /// The derivative with respect to the inputs with wanted[i] set, for adjoints of all outputs.
  /// Where the derivative contains the value of an output of floating type equal to its
  /// computation type (e.g. exp), it reads the saved output instead of computing it again.
  /// Cached. Inputs that the outputs do not depend on differentiably get the constant zero.
  /// Programs with tables have none (NotImplementedError): it would scatter.
  const Derivative& derivative(uint32_t wanted) const { return derivative(wanted, wanted); }
  /// The part of it that gives the adjoints of `needed`, some of the wanted inputs: the same bits
  /// from some of the same inputs.
  const Derivative& derivative(uint32_t wanted, uint32_t needed) const;

  /// One slot a backend (index: DeviceType) may fill with its compiled form; thread-safe.
  Compiled* compiled(int backend) const {
    return compiled_[backend].load(std::memory_order_acquire);
  }
  /// Installs `form` unless another thread was first; returns the installed one.
  Compiled* install(int backend, std::unique_ptr<Compiled> form) const;

  ~Program();

 private:
  friend class Builder;
  Program() = default;
  /// The living program equal to `program`, or `program` itself, which becomes that one.
  static ProgramPtr intern(std::shared_ptr<Program> program);
  bool same_as(const Program& o) const;
  std::vector<Instruction> code_;
  std::vector<DType> inputs_;
  std::vector<Type> params_;
  uint64_t params_in_memory_ = 0;
  uint32_t tables_ = 0;
  std::vector<Output> outputs_;
  Hash128 hash_;
  mutable std::array<std::atomic<Compiled*>, 4> compiled_{};
  struct Derivatives;
  mutable std::atomic<Derivatives*> derivatives_{nullptr};
};

/// Parameter k, fetched if it is in (the host's) memory.
Literal number_of(const Program& program, std::span<const Literal> params, size_t k);

/// Evaluates the program on one element in plain scalar code: the reference for every backend.
/// `inputs` hold values already converted to double or i64 as Literals of the compute type, and in
/// `i` the address of a table; tables and those of `params` that are in memory are in the host's.
std::vector<Literal> evaluate(const Program& program, std::span<const Literal> inputs,
                              std::span<const Literal> params);

}  // namespace arete::expr
