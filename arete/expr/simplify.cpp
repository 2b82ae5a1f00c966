// Note [Safe simplifications]
// A rewrite is made only if the result is the same for every value of the operands: NaN stays NaN,
// infinities and the sign of zero survive, roundings are the same. So x + 0 stays for floats (it
// turns -0 into 0) but x - 0 and x + -0 go; x * 0 and x - x stay for floats (NaN, infinity) and go
// for integers; x / 4 becomes x * 0.25 (both are the rounding of one real number) but x / 3 stays.
#include <cmath>
#include <limits>

#include "arete/base/error.h"
#include "arete/expr/builder_impl.h"

namespace arete::expr {

namespace {
bool is_rounding(Op op) {
  return op == Op::floor || op == Op::ceil || op == Op::trunc || op == Op::round;
}

// Whether x / c equals x * (1 / c) for every x: c is a power of two with a normal reciprocal.
bool has_exact_reciprocal(double c, Type t) {
  int exponent = 0;
  if (std::fabs(std::frexp(c, &exponent)) != 0.5) return false;
  return t == Type::f32 ? exponent > -120 && exponent < 120 : exponent > -1000 && exponent < 1000;
}
}  // namespace

bool Builder::Impl::is_number(int32_t id, double value) const {
  const Instruction& in = code[size_t(id)];
  if (in.op != Op::constant) return false;
  if (is_float(in.type))
    return in.value.f == value && std::signbit(in.value.f) == std::signbit(value);
  return double(in.value.i) == value && !(value == 0 && std::signbit(value));
}

std::optional<int32_t> Builder::Impl::simplify(Op op, int32_t a, int32_t b, int32_t c) {
  if (op == Op::select) return simplify_select(a, b, c);
  if (arity_of(op) == 3) return simplify_contracted(op, a, b, c);
  if (arity_of(op) == 1) return simplify_unary(op, a);
  if (op == Op::pow) return simplify_pow(a, b);
  if (op == Op::bit_and || op == Op::bit_or || op == Op::bit_xor || op == Op::shl || op == Op::shr)
    return simplify_bits(op, a, b);
  if (op == Op::min || op == Op::max) {
    if (a == b) return a;
    return std::nullopt;
  }
  if (op >= Op::eq && op <= Op::ge) {
    if (a == b && is_int(type(a)))
      return constant(Type::boolean, int64_t(op == Op::eq || op == Op::le || op == Op::ge));
    return std::nullopt;
  }
  return simplify_arithmetic(op, a, b);
}

std::optional<int32_t> Builder::Impl::simplify_unary(Op op, int32_t a) {
  const Op inner = this->op(a);
  switch (op) {
    case Op::neg:
      if (inner == Op::neg) return operand(a);
      break;
    case Op::abs:
      if (inner == Op::abs) return a;
      if (inner == Op::neg && type(a) != Type::u64) return emit(Op::abs, operand(a));
      break;
    case Op::sign:
      if (inner == Op::sign) return a;
      break;
    case Op::bit_not:
      if (inner == Op::bit_not) return operand(a);
      if (inner == Op::eq) return emit(Op::ne, operand(a, 0), operand(a, 1));
      if (inner == Op::ne) return emit(Op::eq, operand(a, 0), operand(a, 1));
      break;
    case Op::floor:
    case Op::ceil:
    case Op::trunc:
    case Op::round:
      if (is_rounding(inner)) return a;
      break;
    default:
      break;
  }
  return std::nullopt;
}

std::optional<int32_t> Builder::Impl::simplify_arithmetic(Op op, int32_t a, int32_t b) {
  const Type t = type(a);
  const bool whole = is_int(t);
  switch (op) {
    case Op::add:
      if (is_number(b, whole ? 0.0 : -0.0)) return a;
      if (is_number(a, whole ? 0.0 : -0.0)) return b;
      if (this->op(b) == Op::neg) return emit(Op::sub, a, operand(b));
      if (this->op(a) == Op::neg) return emit(Op::sub, b, operand(a));
      break;
    case Op::sub:
      if (is_number(b, 0.0)) return a;
      if (whole && a == b) return constant(t, int64_t{0});
      if (this->op(b) == Op::neg) return emit(Op::add, a, operand(b));
      break;
    case Op::mul:
      if (is_number(b, 1)) return a;
      if (is_number(a, 1)) return b;
      if (is_number(b, -1)) return emit(Op::neg, a);
      if (is_number(a, -1)) return emit(Op::neg, b);
      if (whole && (is_number(a, 0.0) || is_number(b, 0.0))) return constant(t, int64_t{0});
      break;
    case Op::div:
      if (is_number(b, 1)) return a;
      if (whole) break;
      if (is_number(a, 1)) return emit(Op::reciprocal, b);
      if (is_constant(b) && has_exact_reciprocal(code[size_t(b)].value.f, t))
        return emit(Op::mul, a, constant(t, 1 / code[size_t(b)].value.f));
      break;
    case Op::floor_div:
      if (whole && is_number(b, 1)) return a;
      break;
    default:
      break;
  }
  return std::nullopt;
}

std::optional<int32_t> Builder::Impl::simplify_contracted(Op op, int32_t a, int32_t b, int32_t c) {
  if (this->op(c) == Op::neg && op != Op::sub_mul)
    return emit(op == Op::mul_add ? Op::mul_sub : Op::mul_add, a, b, operand(c));
  if (is_number(c, op == Op::mul_add ? -0.0 : 0.0) && op != Op::sub_mul) return emit(Op::mul, a, b);
  for (int side = 0; side < 2; ++side, std::swap(a, b)) {
    if (this->op(a) == Op::neg && op != Op::mul_sub)
      return emit(op == Op::mul_add ? Op::sub_mul : Op::mul_add, operand(a), b, c);
    if (!is_number(a, 1) && !is_number(a, -1)) continue;
    const int32_t product = emit(Op::mul, a, b);  // which is exact
    return op == Op::sub_mul ? emit(Op::sub, c, product)
                             : emit(op == Op::mul_add ? Op::add : Op::sub, product, c);
  }
  return std::nullopt;
}

std::optional<int32_t> Builder::Impl::simplify_pow(int32_t a, int32_t b) {
  const Type t = type(a);
  // C and IEEE 754 agree: pow(x, 0) and pow(1, x) are 1 even for NaN.
  if (is_number(b, 0.0) || is_number(b, -0.0) || is_number(a, 1)) return constant(t, 1.0);
  if (is_number(b, 1)) return a;
  if (is_number(b, 2)) return emit(Op::mul, a, a);
  if (is_number(b, 3)) return emit(Op::mul, emit(Op::mul, a, a), a);
  if (is_number(b, -1) && is_float(t)) return emit(Op::reciprocal, a);
  return std::nullopt;
}

std::optional<int32_t> Builder::Impl::simplify_bits(Op op, int32_t a, int32_t b) {
  const Type t = type(a);
  const double ones = t == Type::boolean ? 1 : -1;
  if (op == Op::shl || op == Op::shr) {
    if (is_number(b, 0.0)) return a;
    return std::nullopt;
  }
  if (a == b) return op == Op::bit_xor ? constant(t, int64_t{0}) : a;
  if (is_constant(a)) std::swap(a, b);
  if (is_number(b, 0.0)) return op == Op::bit_and ? b : a;
  if (is_number(b, ones))
    return op == Op::bit_and ? a : op == Op::bit_or ? b : emit(Op::bit_not, a);
  if (this->op(a) == Op::bit_not && operand(a) == b) std::swap(a, b);
  if (this->op(b) == Op::bit_not && operand(b) == a)
    return op == Op::bit_and ? constant(t, int64_t{0}) : constant(t, int64_t(ones));
  return std::nullopt;
}

std::optional<int32_t> Builder::Impl::simplify_select(int32_t c, int32_t a, int32_t b) {
  if (is_constant(c)) return code[size_t(c)].value.i ? a : b;
  if (a == b) return a;
  if (op(c) == Op::bit_not) return emit(Op::select, operand(c), b, a);
  if (type(a) == Type::boolean && is_constant(a) && is_constant(b))
    return code[size_t(a)].value.i ? c : emit(Op::bit_not, c);
  // A branch that asks the same question again has only one answer left.
  if (op(a) == Op::select && operand(a, 0) == c) return emit(Op::select, c, operand(a, 1), b);
  if (op(b) == Op::select && operand(b, 0) == c) return emit(Op::select, c, a, operand(b, 2));
  return std::nullopt;
}

}  // namespace arete::expr
