#include "arete/expr/value.h"

#include <array>
#include <atomic>
#include <cmath>
#include <limits>

#include "arete/base/error.h"

namespace arete::expr {

namespace {

Builder& builder_of(Value v) {
  ARETE_CHECK(
      v.builder() != nullptr,
      ValueError("", "an empty symbolic scalar is used").hint("values come from a Builder"));
  return *v.builder();
}

Value unary(Op op, Value a) { return builder_of(a).emit(op, a); }
Value binary(Op op, Value a, Value b) { return builder_of(a).emit(op, a, b); }

// The number `v` beside a value of type `t`: floats take it, integers take whole numbers.
Type number_type(Type t, double v) {
  if (is_float(t)) return t;
  if (v != std::trunc(v) || std::isinf(v)) return Type::f32;
  if (t == Type::i64 || t == Type::u64) return t;
  constexpr double kMin = std::numeric_limits<int32_t>::min();
  constexpr double kMax = std::numeric_limits<int32_t>::max();
  return v >= kMin && v <= kMax ? Type::i32 : Type::i64;
}
Value number(Value like, double v) {
  return builder_of(like).constant(number_type(like.type(), v), v);
}

Value true_div(Value a, Value b) { return binary(Op::div, to_float(a), to_float(b)); }

}  // namespace

Type Value::type() const {
  ARETE_CHECK(
      builder_ != nullptr,
      ValueError("", "an empty symbolic scalar is used").hint("values come from a Builder"));
  return builder_->type_of(id_);
}

Value operator-(Value a) { return unary(Op::neg, a); }
Value operator!(Value a) { return unary(Op::bit_not, cast(a, Type::boolean)); }
Value operator~(Value a) { return unary(Op::bit_not, a); }

#define ARETE_VALUE_BINARY(fn, call)                          \
  Value fn(Value a, Value b) { return call; }                 \
  Value fn(Value a, double b) { return fn(a, number(a, b)); } \
  Value fn(double a, Value b) { return fn(number(b, a), b); }
ARETE_VALUE_BINARY(operator+, binary(Op::add, a, b))
ARETE_VALUE_BINARY(operator-, binary(Op::sub, a, b))
ARETE_VALUE_BINARY(operator*, binary(Op::mul, a, b))
ARETE_VALUE_BINARY(operator/, true_div(a, b))
ARETE_VALUE_BINARY(operator<, binary(Op::lt, a, b))
ARETE_VALUE_BINARY(operator<=, binary(Op::le, a, b))
ARETE_VALUE_BINARY(operator>, binary(Op::gt, a, b))
ARETE_VALUE_BINARY(operator>=, binary(Op::ge, a, b))
ARETE_VALUE_BINARY(operator==, binary(Op::eq, a, b))
ARETE_VALUE_BINARY(operator!=, binary(Op::ne, a, b))
ARETE_VALUE_BINARY(pow, binary(Op::pow, a, b))
ARETE_VALUE_BINARY(min, binary(Op::min, a, b))
ARETE_VALUE_BINARY(max, binary(Op::max, a, b))
ARETE_VALUE_BINARY(atan2, binary(Op::atan2, a, b))
ARETE_VALUE_BINARY(copysign, binary(Op::copysign, a, b))
ARETE_VALUE_BINARY(fmod, binary(Op::fmod, a, b))
ARETE_VALUE_BINARY(remainder, binary(Op::remainder, a, b))
ARETE_VALUE_BINARY(floor_div, binary(Op::floor_div, a, b))
#undef ARETE_VALUE_BINARY

Value operator&(Value a, Value b) { return binary(Op::bit_and, a, b); }
Value operator|(Value a, Value b) { return binary(Op::bit_or, a, b); }
Value operator^(Value a, Value b) { return binary(Op::bit_xor, a, b); }
Value operator<<(Value a, Value b) { return binary(Op::shl, a, b); }
Value operator>>(Value a, Value b) { return binary(Op::shr, a, b); }
Value nextafter(Value a, Value b) { return binary(Op::nextafter, a, b); }
Value gcd(Value a, Value b) { return binary(Op::gcd, a, b); }
Value trunc_div(Value a, Value b) { return trunc(binary(Op::div, a, b)); }

#define ARETE_VALUE_UNARY(fn) \
  Value fn(Value a) { return unary(Op::fn, a); }
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
// clang-format on
#undef ARETE_VALUE_UNARY

                                                    Value square(Value a) {
  return a * a;
}

Value where(Value condition, Value a, Value b) {
  return builder_of(condition).emit(Op::select, condition, a, b);
}
Value where(Value condition, double a, Value b) { return where(condition, constant_like(b, a), b); }
Value where(Value condition, Value a, double b) { return where(condition, a, constant_like(a, b)); }

Value load(Value table, Value position) { return binary(Op::load, table, position); }

Value cast(Value a, Type to) { return builder_of(a).cast(a, to); }

Value constant_like(Value like, double value) {
  if (like.type() == Type::boolean && (value == 0 || value == 1))
    return builder_of(like).constant(Type::boolean, value);
  return number(like, value);
}

Value to_float(Value a) { return a.is_floating() ? a : cast(a, Type::f32); }

ProgramPtr trace(const Definition& definition, std::span<const DType> inputs,
                 std::span<const Type> params, std::span<const DType> out_dtypes, uint32_t tables) {
  Builder builder;
  std::vector<Value> arguments;
  for (DType t : inputs)
    arguments.push_back(tables >> arguments.size() & 1 ? builder.table(t) : builder.input(t));
  for (Type t : params) arguments.push_back(builder.param(t));
  const std::vector<Value> outputs = definition(arguments);
  std::vector<DType> dtypes(out_dtypes.begin(), out_dtypes.end());
  if (dtypes.empty())
    for (const Value& v : outputs) dtypes.push_back(storage_type(v.type()));
  return builder.build(outputs, dtypes);
}

const ProgramPtr& conversion(DType from, DType to) {
  static std::array<std::array<std::atomic<const ProgramPtr*>, kNumDTypes>, kNumDTypes> all;
  std::atomic<const ProgramPtr*>& entry = all[size_t(from)][size_t(to)];
  const ProgramPtr* program = entry.load(std::memory_order_acquire);
  if (!program) {
    Builder b;
    const Value y = b.cast(b.input(from), compute_type(to));
    const auto* const made = new ProgramPtr(b.build({&y, 1}, {&to, 1}));
    if (entry.compare_exchange_strong(program, made, std::memory_order_acq_rel))
      program = made;
    else
      delete made;
  }
  return *program;
}

}  // namespace arete::expr
