#include "arete/expr/evaluate.h"

#include <cmath>
#include <cstring>

#include "arete/base/error.h"
#include "arete/base/small_vector.h"
#include "arete/core/complex.h"
#include "arete/expr/scalar_math.h"

namespace arete::expr {

namespace {

Literal from_int(int64_t v) {
  Literal l;
  l.i = v;
  return l;
}
Literal from_float(double v) {
  Literal l;
  l.f = v;
  return l;
}

bool compare(Op op, auto a, auto b) {
  switch (op) {
    case Op::eq:
      return a == b;
    case Op::ne:
      return a != b;
    case Op::lt:
      return a < b;
    case Op::le:
      return a <= b;
    case Op::gt:
      return a > b;
    case Op::ge:
      return a >= b;
    default:
      ARETE_BUG("not a comparison");
  }
}

bool is_comparison(Op op) { return op >= Op::eq && op <= Op::ge; }

bool apply_bool(Op op, bool a, bool b) {
  switch (op) {
    case Op::bit_not:
      return !a;
    case Op::bit_and:
      return a && b;
    case Op::bit_or:
      return a || b;
    case Op::bit_xor:
      return a != b;
    default:
      ARETE_BUG("an operation that booleans do not have");
  }
}

template <class I>
I apply_int(Op op, I a, I b) {
  using namespace scalar;
  switch (op) {
    case Op::neg:
      return neg(a);
    case Op::abs:
      return abs(a);
    case Op::sign:
      return sign(a);
    case Op::bit_not:
      return I(~a);
    case Op::add:
      return add(a, b);
    case Op::sub:
      return sub(a, b);
    case Op::mul:
      return mul(a, b);
    case Op::div:
      return div(a, b);
    case Op::floor_div:
      return floor_div(a, b);
    case Op::fmod:
      return fmod(a, b);
    case Op::remainder:
      return remainder(a, b);
    case Op::pow:
      return pow_int(a, b);
    case Op::min:
      return min(a, b);
    case Op::max:
      return max(a, b);
    case Op::bit_and:
      return I(a & b);
    case Op::bit_or:
      return I(a | b);
    case Op::bit_xor:
      return I(a ^ b);
    case Op::gcd:
      return gcd(a, b);
    case Op::shl:
      return shl(a, b);
    case Op::shr:
      return shr(a, b);
    default:
      ARETE_BUG("an operation that integers do not have");
  }
}

// Arithmetic is done in F; transcendental functions in double, then rounded.
template <class F>
F apply_float(Op op, F a, F b, F c) {
  const double x = a, y = b;
  switch (op) {
    case Op::neg:
      return -a;
    case Op::abs:
      return std::fabs(a);
    case Op::sign:
      return scalar::sign(a);
    case Op::floor:
      return std::floor(a);
    case Op::ceil:
      return std::ceil(a);
    case Op::trunc:
      return std::trunc(a);
    case Op::round:
      return scalar::round_even(a);
    case Op::sqrt:
      return std::sqrt(a);
    case Op::rsqrt:
      return F(1 / std::sqrt(x));
    case Op::reciprocal:
      return F(1) / a;
    case Op::exp:
      return F(std::exp(x));
    case Op::exp2:
      return F(std::exp2(x));
    case Op::expm1:
      return F(std::expm1(x));
    case Op::log:
      return F(std::log(x));
    case Op::log2:
      return F(std::log2(x));
    case Op::log10:
      return F(std::log10(x));
    case Op::log1p:
      return F(std::log1p(x));
    case Op::sin:
      return F(std::sin(x));
    case Op::cos:
      return F(std::cos(x));
    case Op::tan:
      return F(std::tan(x));
    case Op::asin:
      return F(std::asin(x));
    case Op::acos:
      return F(std::acos(x));
    case Op::atan:
      return F(std::atan(x));
    case Op::sinh:
      return F(std::sinh(x));
    case Op::cosh:
      return F(std::cosh(x));
    case Op::tanh:
      return F(std::tanh(x));
    case Op::asinh:
      return F(std::asinh(x));
    case Op::acosh:
      return F(std::acosh(x));
    case Op::atanh:
      return F(std::atanh(x));
    case Op::erf:
      return F(std::erf(x));
    case Op::erfc:
      return F(std::erfc(x));
    case Op::erfinv:
      return F(scalar::erfinv(x));
    case Op::lgamma:
      return F(scalar::lgamma(x));
    case Op::digamma:
      return F(scalar::digamma(x));
    case Op::sigmoid:
      return F(scalar::sigmoid(x));
    case Op::add:
      return a + b;
    case Op::sub:
      return a - b;
    case Op::mul:
      return a * b;
    case Op::div:
      return a / b;
    case Op::floor_div:
      return scalar::floor_div(a, b);
    case Op::fmod:
      return std::fmod(a, b);
    case Op::remainder:
      return scalar::remainder(a, b);
    case Op::pow:
      return F(std::pow(x, y));
    case Op::atan2:
      return F(std::atan2(x, y));
    case Op::copysign:
      return std::copysign(a, b);
    case Op::nextafter:
      return std::nextafter(a, b);
    case Op::min:
      return scalar::min(a, b);
    case Op::max:
      return scalar::max(a, b);
    case Op::mul_add:
      return std::fma(a, b, c);
    case Op::mul_sub:
      return std::fma(a, b, -c);
    case Op::sub_mul:
      return std::fma(-a, b, c);
    default:
      ARETE_BUG("an operation that floating numbers do not have");
  }
}

}  // namespace

Literal convert(Literal v, Type from, Type to) {
  if (is_float(from)) {
    switch (to) {
      case Type::boolean:
        return from_int(v.f != 0);
      case Type::i32:
        return from_int(scalar::to_int<int32_t>(v.f));
      case Type::i64:
        return from_int(scalar::to_int<int64_t>(v.f));
      case Type::u64:
        return from_int(int64_t(scalar::to_int<uint64_t>(v.f)));
      case Type::f32:
        return from_float(float(v.f));
      case Type::f64:
        return v;
    }
  }
  switch (to) {
    case Type::boolean:
      return from_int(v.i != 0);
    case Type::i32:
      return from_int(int32_t(v.i));
    case Type::i64:
    case Type::u64:
      return v;
    case Type::f32:
      return from_float(from == Type::u64 ? float(uint64_t(v.i)) : float(v.i));
    case Type::f64:
      return from_float(from == Type::u64 ? double(uint64_t(v.i)) : double(v.i));
  }
  __builtin_unreachable();
}

Literal round_literal(Literal v, DType storage) {
  switch (storage) {
    case DType::boolean:
      return from_int(v.i != 0);
    case DType::u8:
      return from_int(uint8_t(v.i));
    case DType::i8:
      return from_int(int8_t(v.i));
    case DType::i16:
      return from_int(int16_t(v.i));
    case DType::i32:
      return from_int(int32_t(v.i));
    case DType::u16:
      return from_int(uint16_t(v.i));
    case DType::u32:
      return from_int(uint32_t(v.i));
    case DType::i64:
    case DType::u64:
      return v;
    case DType::f16:
      return from_float(float(Half(float(v.f))));
    case DType::bf16:
      return from_float(float(BFloat16(float(v.f))));
    case DType::f8e4m3:
      return from_float(float(Float8E4M3(float(v.f))));
    case DType::f8e5m2:
      return from_float(float(Float8E5M2(float(v.f))));
    case DType::f32:
      return from_float(float(v.f));
    case DType::f64:
      return v;
    case DType::c64:
    case DType::c128:
      break;
  }
  ARETE_BUG("complex numbers in a program");
}

Literal read_element(DType storage, const std::byte* at) {
  if (storage == kBool) return from_int(*at != std::byte{0});
  return visit_dtype(storage, [&](auto tag) -> Literal {
    using T = typename decltype(tag)::type;
    if constexpr (is_complex(dtype_of<T>)) {
      ARETE_BUG("complex numbers in a program");
    } else {
      T x;
      std::memcpy(&x, at, sizeof x);
      if constexpr (is_reduced_float(dtype_of<T>))
        return from_float(double(float(x)));
      else if constexpr (is_floating(dtype_of<T>))
        return from_float(double(x));
      else
        return from_int(int64_t(x));
    }
  });
}

Literal apply(Op op, Type operand, Type result, int32_t index, Literal a, Literal b, Literal c) {
  switch (op) {
    case Op::select:
      return a.i ? b : c;
    case Op::cast:
      return convert(a, operand, result);
    case Op::round_to:
      return round_literal(a, DType(index));
    case Op::polynomial:
      return from_float(operand == Type::f32
                            ? double(scalar::polynomial(index, float(a.f), float(b.f)))
                            : scalar::polynomial(index, a.f, b.f));
    case Op::is_nan:
      return from_int(std::isnan(a.f));
    case Op::is_inf:
      return from_int(std::isinf(a.f));
    default:
      break;
  }
  if (is_comparison(op))
    return from_int(is_float(operand)      ? compare(op, a.f, b.f)
                    : operand == Type::u64 ? compare(op, uint64_t(a.i), uint64_t(b.i))
                                           : compare(op, a.i, b.i));
  switch (operand) {
    case Type::boolean:
      return from_int(apply_bool(op, a.i, b.i));
    case Type::i32:
      return from_int(apply_int(op, int32_t(a.i), int32_t(b.i)));
    case Type::i64:
      return from_int(apply_int(op, a.i, b.i));
    case Type::u64:
      return from_int(int64_t(apply_int(op, uint64_t(a.i), uint64_t(b.i))));
    case Type::f32:
      return from_float(apply_float(op, float(a.f), float(b.f), float(c.f)));
    case Type::f64:
      return from_float(apply_float(op, a.f, b.f, c.f));
  }
  __builtin_unreachable();
}

Literal number_of(const Program& program, std::span<const Literal> params, size_t k) {
  return program.has_in_memory(k) ? *reinterpret_cast<const Literal*>(params[k].i) : params[k];
}

std::vector<Literal> evaluate(const Program& program, std::span<const Literal> inputs,
                              std::span<const Literal> params) {
  ARETE_CHECK(inputs.size() == program.inputs().size(),
              ValueError("evaluate", "wrong number of inputs")
                  .expected(std::to_string(program.inputs().size()))
                  .got(std::to_string(inputs.size())));
  ARETE_CHECK(params.size() == program.params().size(),
              ValueError("evaluate", "wrong number of parameters")
                  .expected(std::to_string(program.params().size()))
                  .got(std::to_string(params.size())));
  const auto code = program.code();
  SmallVector<Literal, 64> values;
  values.resize(code.size(), Literal{});
  for (size_t i = 0; i < code.size(); ++i) {
    const Instruction& in = code[i];
    switch (in.op) {
      case Op::input:
        values[i] = inputs[size_t(in.index)];
        if (!program.is_table(size_t(in.index))) values[i] = convert(values[i], in.type, in.type);
        break;
      case Op::param:
        values[i] = convert(number_of(program, params, size_t(in.index)), in.type, in.type);
        break;
      case Op::constant:
        values[i] = in.value;
        break;
      case Op::load: {
        const DType storage = program.inputs()[size_t(code[size_t(in.operand[0])].index)];
        values[i] = read_element(
            storage, reinterpret_cast<const std::byte*>(values[size_t(in.operand[0])].i) +
                         values[size_t(in.operand[1])].i * int64_t(size_of(storage)));
        break;
      }
      default: {
        auto value = [&](int k) { return in.operand[k] < 0 ? Literal{} : values[in.operand[k]]; };
        const int typed = in.operand[in.op == Op::select ? 1 : 0];
        values[i] = apply(in.op, code[typed].type, in.type, in.index, value(0), value(1), value(2));
      }
    }
  }
  std::vector<Literal> out;
  for (const Program::Output& o : program.outputs())
    out.push_back(round_literal(values[o.value], o.dtype));
  return out;
}

}  // namespace arete::expr
