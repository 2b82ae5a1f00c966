// Pointwise records of two inputs.
#include <cmath>

#include "arete/expr/program_cache.h"
#include "arete/ops/autocast.h"
#include "arete/ops/complex_form.h"
#include "arete/ops/fft.h"
#include "arete/ops/pointwise_family.h"

namespace arete::ops {

using expr::Value;
using Values = std::span<const Value>;
using Result = PointwiseDef::Result;

namespace {

const std::vector<DType> kAllReal{kFloat32, kFloat64, kBFloat16, kFloat16, kInt32, kInt64};
const std::vector<DType> kIntegers{kInt64, kInt32, kInt16, kInt8};

// Whole small exponents are products, which pow() of expressions sees; halves are roots, as in
// PyTorch: faster and more exact than the general power.
Value power(Value a, Value b) {
  if (a.is_floating() && b.builder()->is_number(b, 0.5)) return sqrt(a);
  if (a.is_floating() && b.builder()->is_number(b, -0.5)) return rsqrt(a);
  return pow(a, b);
}

// Works for integers, too, where nothing is NaN.
Value is_nan_of(Value x) { return x != x; }

void no_bool(Value x, const char* op) {
  ARETE_CHECK(
      x.type() != expr::Type::boolean,
      TypeError(op, "Subtraction, the `-` operator, with two bool tensors is not supported.")
          .hint("use the bitwise_xor or logical_xor operator"));
}

Value as_bool(Value x) { return x.type() == expr::Type::boolean ? x : x != 0.0; }

// nextafter() of halves, whose neighbours f32 has many numbers away: a step of more than half and
// less than one and a half of the gap to the neighbour leads to a sum that is rounded to it.
std::vector<Value> next_half(Values v, DType half) {
  ARETE_CHECK(half == kFloat16 || half == kBFloat16,
              NotImplementedError("nextafter", "\"nextafter\" not implemented for '" +
                                                   std::string(name_of(half)) + "'"));
  const Value a = v[0], b = v[1];
  const int digits = half == kFloat16 ? 10 : 7;  // behind the point
  const double smallest = std::ldexp(1.0, (half == kFloat16 ? -14 : -126) - digits);
  const double largest =
      half == kFloat16 ? 65504.0 : std::ldexp(2.0 - std::ldexp(1.0, -digits), 127);
  // 0.64 of the gap above a power of two, of which the gap below has half, and 1.28 at the next
  // one.
  const Value step = max(abs(a) * std::ldexp(0.64, -digits), 0.75 * smallest);
  const Value moved = a.builder()->round_to(where(b > a, a + step, a - step), half);
  const Value next = where(is_inf(a), copysign(constant_like(a, largest), a),
                           where(a == 0.0, copysign(constant_like(a, smallest), b), moved));
  return {where(is_nan(a) | is_nan(b), a + b, where(a == b, b, next))};
}

// self +- alpha * other.
PointwiseDef scaled(Value (*combine)(Value, Value)) {
  PointwiseDef d;
  d.n_inputs = 2;
  d.n_params = 1;
  d.definition = [combine](std::span<const Value> v) {
    // A boolean alpha of 1 must not turn a logical or into a product.
    return std::vector{
        combine(v[0], v[1].type() == expr::Type::boolean ? v[1] & v[2] : v[1] * v[2])};
  };
  return d;
}

const OpRecord& add_op =
    define("add(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor")
        .face("add_(Tensor self, Tensor other, *, Scalar alpha=1)")
        .face("add_.alpha(Tensor self, Scalar alpha, Tensor other)")  // of old programs
        .doc("self + alpha * other.")
        .pointwise(scaled(
            [](Value a, Value b) { return a.type() == expr::Type::boolean ? a | b : a + b; }))
        .complex(of_complex([](Complex a, Complex b, Complex alpha) { return a + b * alpha; }, {},
                            by_parts))
        .rounded_numbers(0b11)  // as rsub
        .in_place()
        .dtypes(kAllReal);

const OpRecord& sub_op =
    define("sub(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor")
        .face("sub_(Tensor self, Tensor other, *, Scalar alpha=1)")
        .face("sub_.alpha(Tensor self, Scalar alpha, Tensor other)")  // of old programs
        .doc("self - alpha * other.")
        .pointwise(scaled([](Value a, Value b) {
          no_bool(a, "sub");
          return a - b;
        }))
        .complex(of_complex([](Complex a, Complex b, Complex alpha) { return a - b * alpha; }, {},
                            by_parts))
        .rounded_numbers(0b11)  // as rsub
        .in_place()
        .dtypes(kAllReal);

const OpRecord& mul_op =
    define("mul(Tensor self, Tensor other) -> Tensor")
        .doc("Product.")
        .binary([](Value a, Value b) { return a.type() == expr::Type::boolean ? a & b : a * b; },
                Result::promote)
        .complex(of_complex([](Complex a, Complex b) { return a * b; }))
        .dtypes(kAllReal);

const OpRecord& div_op = define("div(Tensor self, Tensor other) -> Tensor")
                             .doc("True division.")
                             .binary([](Value a, Value b) { return a / b; }, Result::floating)
                             .complex(of_complex([](Complex a, Complex b) { return a / b; },
                                                 [](Values v) {
                                                   const Complex b = complex_at(v, 1),
                                                                 y = complex_at(v, 2);
                                                   const Complex da = complex_at(v, 3) / conj(b);
                                                   return parts(da, -(conj(y) * da));
                                                 }));

const OpRecord& atan2_op =
    define("atan2(Tensor self, Tensor other) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::promote))
        .doc("Angle of the point (b, a).")
        .binary([](Value a, Value b) { return atan2(a, b); }, Result::floating);

const OpRecord& copysign_op =
    define("copysign(Tensor self, Tensor other) -> Tensor")
        .doc("The size of self with the sign of other.")
        .binary([](Value a, Value b) { return copysign(a, b); }, Result::floating);

const OpRecord& fmod_op = define("fmod(Tensor self, Tensor other) -> Tensor")
                              .doc("Remainder with the sign of self.")
                              .binary([](Value a, Value b) { return fmod(a, b); }, Result::promote)
                              .rounded_numbers(0b11);

const OpRecord& remainder_op =
    define("remainder(Tensor self, Tensor other) -> Tensor")
        .doc("Remainder with the sign of other.")
        .binary([](Value a, Value b) { return remainder(a, b); }, Result::promote)
        .rounded_numbers(0b11);

const OpRecord& floor_divide_op =
    define("floor_divide(Tensor self, Tensor other) -> Tensor")
        .doc("Quotient rounded to -inf.")
        .binary([](Value a, Value b) { return floor_div(a, b); }, Result::promote);

const OpRecord& maximum_op =
    define("maximum(Tensor self, Tensor other) -> Tensor")
        .face("max.other(Tensor self, Tensor other)")
        .doc("The larger element; NaN wins.")
        .binary([](Value a, Value b) { return max(a, b); }, Result::promote)
        .dtypes(kAllReal);

const OpRecord& minimum_op =
    define("minimum(Tensor self, Tensor other) -> Tensor")
        .face("min.other(Tensor self, Tensor other)")
        .doc("The smaller element; NaN wins.")
        .binary([](Value a, Value b) { return min(a, b); }, Result::promote)
        .dtypes(kAllReal);

const OpRecord& fmax_op =
    define("fmax(Tensor self, Tensor other) -> Tensor")
        .doc("The larger element; NaN loses.")
        .binary([](Value a,
                   Value b) { return where(is_nan_of(a), b, where(is_nan_of(b), a, max(a, b))); },
                Result::promote)
        .gradient([](std::span<const Value> v) {
          // As in PyTorch self has the gradient where both are equal.
          const Value own = (v[0] >= v[1]) | is_nan_of(v[1]);
          return std::vector{where(own, v[3], 0.0), where(own, 0.0, v[3])};
        });

const OpRecord& fmin_op =
    define("fmin(Tensor self, Tensor other) -> Tensor")
        .doc("The smaller element; NaN loses.")
        .binary([](Value a,
                   Value b) { return where(is_nan_of(a), b, where(is_nan_of(b), a, min(a, b))); },
                Result::promote)
        .gradient([](std::span<const Value> v) {
          // As in PyTorch self has the gradient where both are equal.
          const Value own = (v[0] <= v[1]) | is_nan_of(v[1]);
          return std::vector{where(own, v[3], 0.0), where(own, 0.0, v[3])};
        });

const OpRecord& logaddexp_op = define("logaddexp(Tensor self, Tensor other) -> Tensor")
                                   .doc("log(exp(self) + exp(other)).")
                                   .binary(
                                       [](Value a, Value b) {
                                         const Value m = max(a, b);
                                         const Value same = a == b;
                                         const Value gap = where(same, 0.0, -abs(a - b));
                                         return m + log1p(exp(gap));
                                       },
                                       Result::floating)
                                   .gradient([](Values v) { return shares_of_log_sum(v, 1); });

const OpRecord& xlogy_op =
    define("xlogy(Tensor self, Tensor other) -> Tensor")
        .doc("self * log(other), 0 where self is 0.")
        .binary(
            [](Value a, Value b) {
              return where(a == 0.0,
                           where(is_nan(to_float(b)), to_float(b), constant_like(to_float(b), 0.0)),
                           a * log(where(a == 0.0, 1.0, b)));
            },
            Result::floating)
        .gradient([](std::span<const Value> v) {
          // self's slope is log(other) where self is 0, too.
          const Value none = (v[0] == 0.0) & (v[1] <= 0.0);
          return std::vector{v[3] * where(none, 0.0, log(where(none, 1.0, v[1]))),
                             v[3] * v[0] / v[1]};
        });

const OpRecord& eq_op = define("eq(Tensor self, Tensor other) -> Tensor")
                            .doc("Equal.")
                            .binary([](Value a, Value b) { return a == b; }, Result::boolean)
                            .complex(of_complex([](Complex a, Complex b) { return a == b; }))
                            .dtypes(kAllReal);

const OpRecord& ne_op = define("ne(Tensor self, Tensor other) -> Tensor")
                            .doc("Not equal.")
                            .binary([](Value a, Value b) { return a != b; }, Result::boolean)
                            .complex(of_complex([](Complex a, Complex b) { return !(a == b); }))
                            .dtypes(kAllReal);

const OpRecord& lt_op = define("lt(Tensor self, Tensor other) -> Tensor")
                            .doc("Less.")
                            .binary([](Value a, Value b) { return a < b; }, Result::boolean)
                            .dtypes(kAllReal);

const OpRecord& le_op = define("le(Tensor self, Tensor other) -> Tensor")
                            .doc("Less or equal.")
                            .binary([](Value a, Value b) { return a <= b; }, Result::boolean)
                            .dtypes(kAllReal);

const OpRecord& gt_op = define("gt(Tensor self, Tensor other) -> Tensor")
                            .doc("Greater.")
                            .binary([](Value a, Value b) { return a > b; }, Result::boolean)
                            .dtypes(kAllReal);

const OpRecord& ge_op = define("ge(Tensor self, Tensor other) -> Tensor")
                            .doc("Greater or equal.")
                            .binary([](Value a, Value b) { return a >= b; }, Result::boolean)
                            .dtypes(kAllReal);

const OpRecord& logical_and_op =
    define("logical_and(Tensor self, Tensor other) -> Tensor")
        .doc("Both are not zero.")
        .binary([](Value a, Value b) { return as_bool(a) & as_bool(b); }, Result::boolean)
        .complex(of_complex([](Complex a, Complex b) { return !(is_zero(a) | is_zero(b)); }))
        .dtypes(kAllReal);

const OpRecord& logical_or_op =
    define("logical_or(Tensor self, Tensor other) -> Tensor")
        .doc("One is not zero.")
        .binary([](Value a, Value b) { return as_bool(a) | as_bool(b); }, Result::boolean)
        .complex(of_complex([](Complex a, Complex b) { return !(is_zero(a) & is_zero(b)); }))
        .dtypes(kAllReal);

const OpRecord& logical_xor_op =
    define("logical_xor(Tensor self, Tensor other) -> Tensor")
        .doc("Exactly one is not zero.")
        .binary([](Value a, Value b) { return as_bool(a) ^ as_bool(b); }, Result::boolean)
        .complex(of_complex([](Complex a, Complex b) { return is_zero(a) ^ is_zero(b); }))
        .dtypes(kAllReal);

const OpRecord& bitwise_and_op = define("bitwise_and(Tensor self, Tensor other) -> Tensor")
                                     .doc("Bits set in both.")
                                     .binary([](Value a, Value b) { return a & b; })
                                     .dtypes(kIntegers);

const OpRecord& bitwise_or_op = define("bitwise_or(Tensor self, Tensor other) -> Tensor")
                                    .doc("Bits set in either.")
                                    .binary([](Value a, Value b) { return a | b; })
                                    .dtypes(kIntegers);

const OpRecord& bitwise_xor_op = define("bitwise_xor(Tensor self, Tensor other) -> Tensor")
                                     .doc("Bits set in one.")
                                     .binary([](Value a, Value b) { return a ^ b; })
                                     .dtypes(kIntegers);

const OpRecord& bitwise_left_shift_op =
    define("bitwise_left_shift(Tensor self, Tensor other) -> Tensor")
        .doc("self shifted left.")
        .binary([](Value a, Value b) { return a << b; })
        .dtypes(kIntegers);

const OpRecord& bitwise_right_shift_op =
    define("bitwise_right_shift(Tensor self, Tensor other) -> Tensor")
        .doc("self shifted right, keeping the sign.")
        .binary([](Value a, Value b) { return a >> b; })
        .dtypes(kIntegers);

const OpRecord& pow_op =
    define("pow(Tensor self, Tensor exponent) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("self to the power exponent.")
        .binary(power)
        .exact_numbers(0b10)
        .rounded_numbers(0b11)
        .constant_number(1)
        .refuses([](const Call& c) {
          ARETE_CHECK(
              !(c[0].kind() == Arg::Kind::tensor && is_integral_or_bool(c[0].tensor().dtype()) &&
                c[1].kind() != Arg::Kind::tensor && c[1].scalar().is_integral() &&
                c[1].scalar().to_double() < 0),
              ValueError("pow", "Integers to negative integer powers are not allowed."));
        })
        .complex(of_complex(
            [](Complex a, Complex b) { return pow(a, b); },
            [](Values v) {
              const Complex a = complex_at(v, 0), b = complex_at(v, 1), y = complex_at(v, 2);
              const Complex g = complex_at(v, 3);
              const Complex zero = constant_like(a.re, 0, 0), one = constant_like(a.re, 1, 0);
              const Complex slope = where(is_zero(b), zero, b * pow(a, b - one));
              const Complex base = where(is_zero(a), one, a);
              return parts(g * conj(slope), g * conj(where(is_zero(a), zero, y * log(base))));
            },
            // A square is faster and more exact as a product than as exp(2 log(a)).
            [](const Call& c, DType promoted) -> Results {
              if (c[0].kind() == Arg::Kind::tensor && c.tensor(0).dtype() == promoted &&
                  c[1].kind() == Arg::Kind::scalar && c.scalar(1) == Scalar(2))
                return {mul(c.tensor(0), c.tensor(0))};
              return {};
            }));

const OpRecord& hypot_op =
    define("hypot(Tensor self, Tensor other) -> Tensor")
        .doc("sqrt(self^2 + other^2) without overflow.")
        .binary(
            [](Value a, Value b) {
              // Infinity wins over NaN.
              const Value infinite = is_inf(a) | is_inf(b);
              if (a.type() == expr::Type::f32) {  // whose squares f64 holds
                const Value x = cast(a, expr::Type::f64), y = cast(b, expr::Type::f64);
                return where(infinite, HUGE_VAL, cast(sqrt(x * x + y * y), expr::Type::f32));
              }
              const Value x = abs(a), y = abs(b);
              const Value big = max(x, y), small = min(x, y);
              const Value zero = big == 0.0;
              const Value ratio = small / where(zero | is_inf(big), 1.0, big);
              const Value root = where(zero | is_inf(big), big, big * sqrt(ratio * ratio + 1.0));
              return where(infinite, HUGE_VAL, root);
            },
            Result::floating)
        .gradient([](std::span<const Value> v) {
          const Value inverse = where(v[2] == 0.0, 0.0, v[3] / where(v[2] == 0.0, 1.0, v[2]));
          return std::vector{v[0] * inverse, v[1] * inverse};
        });

const OpRecord& nextafter_op =
    define("nextafter(Tensor self, Tensor other) -> Tensor")
        .doc("The next number after self in the direction of other.")
        .binary(
            [](Value a, Value b) {
              ARETE_CHECK(
                  a.is_floating(),
                  NotImplementedError("nextafter", "\"nextafter\" not implemented for integers"));
              return nextafter(a, b);
            },
            Result::promote)
        .rounded_numbers(0b11)
        .of_halves(next_half)
        .dtypes({kFloat16, kBFloat16, kFloat32, kFloat64})
        .no_derivative(0b11, "nextafter");

}  // namespace
}  // namespace arete::ops

ARETE_DEFINE_BINARY(mul)
ARETE_DEFINE_BINARY(div)
ARETE_DEFINE_BINARY(fmod)
ARETE_DEFINE_BINARY(remainder)
ARETE_DEFINE_BINARY(floor_divide)
ARETE_DEFINE_BINARY(atan2)
ARETE_DEFINE_BINARY(copysign)
ARETE_DEFINE_BINARY(nextafter)
ARETE_DEFINE_BINARY(hypot)
ARETE_DEFINE_BINARY(logaddexp)
ARETE_DEFINE_BINARY(xlogy)
ARETE_DEFINE_BINARY(eq)
ARETE_DEFINE_BINARY(ne)
ARETE_DEFINE_BINARY(lt)
ARETE_DEFINE_BINARY(le)
ARETE_DEFINE_BINARY(gt)
ARETE_DEFINE_BINARY(ge)
ARETE_DEFINE_BINARY(logical_and)
ARETE_DEFINE_BINARY(logical_or)
ARETE_DEFINE_BINARY(logical_xor)
ARETE_DEFINE_BINARY(bitwise_and)
ARETE_DEFINE_BINARY(bitwise_or)
ARETE_DEFINE_BINARY(bitwise_xor)
ARETE_DEFINE_BINARY(bitwise_left_shift)
ARETE_DEFINE_BINARY(bitwise_right_shift)

namespace arete {

#define ARETE_DEFINE_SCALED(name)                                            \
  Tensor name(const Tensor& self, const Tensor& other, Scalar alpha) {       \
    return ops::call(ops::name##_op, {self, other, alpha});                  \
  }                                                                          \
  Tensor name(const Tensor& self, Scalar other, Scalar alpha) {              \
    return ops::call(ops::name##_op, {self, other, alpha});                  \
  }                                                                          \
  Tensor Tensor::name(const Tensor& other, Scalar alpha) const {             \
    return ops::call(ops::name##_op, {*this, other, alpha});                 \
  }                                                                          \
  Tensor Tensor::name(Scalar other, Scalar alpha) const {                    \
    return ops::call(ops::name##_op, {*this, other, alpha});                 \
  }                                                                          \
  Tensor& Tensor::name##_(const Tensor& other, Scalar alpha) {               \
    return ops::call_in_place(*this, ops::name##_op, {*this, other, alpha}); \
  }                                                                          \
  Tensor& Tensor::name##_(Scalar other, Scalar alpha) {                      \
    return ops::call_in_place(*this, ops::name##_op, {*this, other, alpha}); \
  }
ARETE_DEFINE_SCALED(add)
ARETE_DEFINE_SCALED(sub)
#undef ARETE_DEFINE_SCALED

#define ARETE_DEFINE_EXTREME(name)                       \
  Tensor name(const Tensor& self, const Tensor& other) { \
    return ops::call(ops::name##_op, {self, other});     \
  }                                                      \
  Tensor Tensor::name(const Tensor& other) const { return arete::name(*this, other); }
ARETE_DEFINE_EXTREME(maximum)
ARETE_DEFINE_EXTREME(minimum)
ARETE_DEFINE_EXTREME(fmax)
ARETE_DEFINE_EXTREME(fmin)
#undef ARETE_DEFINE_EXTREME

Tensor pow(const Tensor& self, Scalar exponent) { return ops::call(ops::pow_op, {self, exponent}); }
Tensor pow(const Tensor& self, const Tensor& other) {
  return ops::call(ops::pow_op, {self, other});
}
Tensor pow(Scalar self, const Tensor& other) { return ops::call(ops::pow_op, {self, other}); }
Tensor Tensor::pow(const Tensor& other) const { return arete::pow(*this, other); }
Tensor Tensor::pow(Scalar other) const { return arete::pow(*this, other); }
Tensor& Tensor::pow_(const Tensor& other) {
  return ops::call_in_place(*this, ops::pow_op, {*this, other});
}
Tensor& Tensor::pow_(Scalar other) {
  return ops::call_in_place(*this, ops::pow_op, {*this, other});
}

Tensor& Tensor::operator+=(const Tensor& o) { return add_(o); }
Tensor& Tensor::operator+=(Scalar o) { return add_(o); }
Tensor& Tensor::operator-=(const Tensor& o) { return sub_(o); }
Tensor& Tensor::operator-=(Scalar o) { return sub_(o); }
Tensor& Tensor::operator*=(const Tensor& o) { return mul_(o); }
Tensor& Tensor::operator*=(Scalar o) { return mul_(o); }
Tensor& Tensor::operator/=(const Tensor& o) { return div_(o); }
Tensor& Tensor::operator/=(Scalar o) { return div_(o); }

Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  const DType common = promote_types(a.dtype(), b.dtype());
  if (!is_complex(common) && a.device() == b.device()) {
    // Differences of whole numbers are computed in f64.
    const expr::Type type =
        common == kFloat64 || is_integral_or_bool(common) ? expr::Type::f64 : expr::Type::f32;
    static auto* const cache = new expr::ProgramCache;
    const expr::Program& program = cache->get(
        pack_key({int(a.dtype()), int(b.dtype()), equal_nan}), {a.dtype(), b.dtype()}, {type, type},
        {kBool}, [&](std::span<const expr::Value> v) {
          const expr::Type compared = expr::compute_type(common);
          const expr::Value x = cast(v[0], type), y = cast(v[1], type);
          // Infinite values are close only to themselves.
          const expr::Value near = (abs(x - y) <= abs(y) * v[2] + v[3]) & !is_inf(x) & !is_inf(y);
          expr::Value close = (cast(v[0], compared) == cast(v[1], compared)) | near;
          if (equal_nan) close = close | (is_nan(x) & is_nan(y));
          return std::vector{close};
        });
    const Scalar numbers[] = {Scalar(rtol), Scalar(atol)};
    return ops::apply_program(program.shared_from_this(), {{a, b}}, numbers, "isclose")[0];
  }
  const Tensor near = (a - b).abs() <= b.abs() * rtol + atol;
  Tensor close = (a == b) | (near & a.isfinite() & b.isfinite());
  if (equal_nan) close = close | (a.isnan() & b.isnan());
  return close;
}
bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  return isclose(a, b, rtol, atol, equal_nan).all().item<bool>();
}
bool equal(const Tensor& a, const Tensor& b) {
  return a.layout().sizes == b.layout().sizes && (a == b).all().item<bool>();
}

}  // namespace arete

ARETE_FAMILY(binary)
