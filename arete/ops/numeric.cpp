// Records of further elementwise arithmetic.
#include "arete/ops/numeric.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "arete/expr/program_cache.h"
#include "arete/ops/complex_form.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise_family.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {

using expr::Value;
using Values = std::span<const Value>;
using Result = PointwiseDef::Result;

namespace {

const std::vector<DType> kReal{kFloat32, kFloat64, kBFloat16, kFloat16, kInt32, kInt64};
const std::vector<DType> kIntegers{kInt64, kInt32, kInt16, kInt8};

// ---- arithmetic

const OpRecord& rsub_op = []() -> const OpRecord& {
  PointwiseDef d;
  d.n_inputs = 2;
  d.n_params = 1;
  d.definition = [](Values v) {
    ARETE_CHECK(
        v[0].type() != expr::Type::boolean,
        TypeError("rsub", "Subtraction, the `-` operator, with a bool tensor is not supported.")
            .hint("use the bitwise_xor or logical_xor operator"));
    return std::vector{v[1] - v[0] * v[2]};
  };
  return define("rsub(Tensor self, Tensor other, Scalar alpha=1) -> Tensor")
      .doc("other - alpha * self.")
      .pointwise(std::move(d))
      .complex(of_complex([](Complex a, Complex b, Complex alpha) { return b - a * alpha; }))
      .rounded_numbers(0b10)
      .dtypes(kReal);
}();

const OpRecord& div_trunc_op =
    define("div_trunc(Tensor self, Tensor other) -> Tensor")
        .surface(Surface::internal)
        .doc("Quotient rounded to zero.")
        .binary([](Value a, Value b) { return a.is_floating() ? trunc(a / b) : trunc_div(a, b); });

const OpRecord& div_mode_op =
    define("div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode=None) -> Tensor")
        .doc("Division, rounded to zero (trunc) or downwards (floor).")
        .takes_numbers()
        .compose([](const Call& c) -> Results {
          if (!c.has(2)) return {call(*find_record("div"), {c[0], c[1]})};
          const std::string_view mode = c[2].string();
          if (mode == "trunc") return {call(div_trunc_op, {c[0], c[1]})};
          ARETE_CHECK(mode == "floor",
                      ValueError(c.name(),
                                 "div expected rounding_mode to be one of None, 'trunc', or "
                                 "'floor' but found '" +
                                     std::string(mode) + "'")
                          .argument("rounding_mode"));
          return {call(*find_record("floor_divide"), {c[0], c[1]})};
        })
        .in_place();

const OpRecord& round_decimals_op = []() -> const OpRecord& {
  return define("round.decimals(Tensor self, *, int decimals=0) -> Tensor")
      .doc("Rounded to so many decimals; negative ones are digits before the point.")
      .compose([](const Call& c) -> Results {
        const Tensor& x = c.tensor(0);
        const int64_t n = c.integer(1);
        if (n == 0) return {round(x)};
        ARETE_CHECK(is_floating(x.dtype()),
                    NotImplementedError(c.name(), "\"round_decimals\" not implemented for '" +
                                                      std::string(name_of(x.dtype())) + "'"));
        const Scalar ten(std::pow(10.0, double(std::abs(n))));
        return {n > 0 ? x.mul(ten).round().div(ten) : x.div(ten).round().mul(ten)};
      })
      .dtypes({kFloat32, kFloat64})
      .in_place();
}();

// In float64 or complex128.
Tensor wide_tensor(const Arg& a) {
  return a.tensor().to(is_complex(a.tensor().dtype()) ? kComplex128 : kFloat64);
}
Scalar wide_number(const Arg& a) {
  return a.scalar().is_complex() ? a.scalar() : Scalar(a.scalar().to_double());
}

const OpRecord& float_power_op = define("float_power(Tensor self, Tensor exponent) -> Tensor")
                                     .doc("self to the power exponent, in float64.")
                                     .takes_numbers()
                                     .compose([](const Call& c) -> Results {
                                       const bool base = c[0].kind() == Arg::Kind::tensor,
                                                  top = c[1].kind() == Arg::Kind::tensor;
                                       if (!top) return {pow(wide_tensor(c[0]), wide_number(c[1]))};
                                       if (!base)
                                         return {pow(wide_number(c[0]), wide_tensor(c[1]))};
                                       return {pow(wide_tensor(c[0]), wide_tensor(c[1]))};
                                     });

const OpRecord& ldexp_op =
    define("ldexp(Tensor self, Tensor other) -> Tensor")
        .doc("self * 2^other.")
        .binary([](Value a, Value b) { return a * exp2(b); }, Result::floating)
        .complex(of_complex([](Complex a, Complex b) { return a * exp(b * std::numbers::ln2); }));

// Exact: multiplications by powers of two bring |x| to 1 or more, and then bit by bit of the
// exponent below 2.
const expr::Program& frexp_program(DType t) {
  static expr::ProgramCache cache;
  return cache.get(pack_key({int(t)}), {t}, {}, {t, kInt32}, [](Values v) {
    const Value x = v[0], none = x.builder()->constant(expr::Type::i32, int64_t(0));
    const bool wide = x.type() == expr::Type::f64;
    const Value one = constant_like(x, 1.0);
    Value m = abs(x), e = none + 1.0;
    const auto scale = [&](Value condition, int power) {
      m = m * where(condition, std::ldexp(1.0, -power), one);
      e = e + where(condition, double(power), none);
    };
    // The last of them is for what the smallest subnormal number lacks.
    for (int power : {wide ? 512 : 64, wide ? 512 : 64, wide ? 51 : 22}) scale(m < 1, -power);
    for (int bit = wide ? 9 : 6; bit >= 0; --bit) scale(m >= std::ldexp(1.0, 1 << bit), 1 << bit);
    const Value special = (x == 0) | is_nan(x) | is_inf(x);
    return std::vector{where(special, x, copysign(m * 0.5, x)), where(special, 0.0, e)};
  });
}

const OpRecord& frexp_op =
    define("frexp(Tensor self) -> (Tensor mantissa, Tensor exponent)")
        .doc("Mantissas in [1/2, 1) and powers of two that make up the numbers.")
        .batched(vmaps::elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(is_floating(x.dtype()),
                      TypeError(c.name(), "torch.frexp() only supports floating-point dtypes")
                          .got(name_of(x.dtype())));
          for (DType t : {x.dtype(), kInt32}) out.push_back({Shape(x.sizes()), t, strides_like(x)});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const prim::View in = view_of(c.tensor(0)), to[] = {view_of(out[0]), view_of(out[1])};
          if (in.numel() > 0) p.pointwise({&frexp_program(in.dtype), {&in, 1}, to, {}});
        })
        .grad([](const GradCall& g) -> TensorList { return {ldexp(g.grad(), g.output(1).neg())}; },
              0, 0b10)
        .no_grad_outputs(2);

const OpRecord& logaddexp2_op =
    define("logaddexp2(Tensor self, Tensor other) -> Tensor")
        .doc("log2(2^self + 2^other).")
        .binary(
            [](Value a, Value b) {
              const Value same = a == b;
              return max(a, b) + log1p(exp2(where(same, 0.0, -abs(a - b)))) * std::numbers::log2e;
            },
            Result::floating)
        .gradient([](Values v) { return shares_of_log_sum(v, std::numbers::ln2); });

PointwiseDef flat(int n, expr::Definition f, Result result = Result::promote) {
  PointwiseDef d;
  d.n_inputs = n;
  d.definition = std::move(f);
  d.result = result;
  d.non_differentiable = ~0u;
  return d;
}

const OpRecord& heaviside_op =
    define("heaviside(Tensor self, Tensor values) -> Tensor")
        .doc("0 below 0, values at 0, 1 above; no gradient.")
        .pointwise(flat(2,
                        [](Values v) {
                          const Value above = where(v[0] > 0, 1.0, constant_like(v[1], 0.0));
                          return std::vector{where(v[0] == 0, v[1], above)};
                        }))
        .in_place()
        .dtypes(kReal);

// ---- divisors

void only_integers(Value v, const char* op) {
  ARETE_CHECK(!v.is_floating() && v.type() != expr::Type::boolean,
              NotImplementedError(op, "\"" + std::string(op) + "\" not implemented for '" +
                                          (v.is_floating() ? "Float" : "Bool") + "'"));
}

const OpRecord& gcd_op = define("gcd(Tensor self, Tensor other) -> Tensor")
                             .doc("Greatest common divisor of integers; gcd(0, 0) is 0.")
                             .binary([](Value a, Value b) {
                               only_integers(a, "gcd");
                               return gcd(a, b);
                             })
                             .dtypes(kIntegers);

const OpRecord& lcm_op = define("lcm(Tensor self, Tensor other) -> Tensor")
                             .doc("Least common multiple of integers; 0 if one is 0.")
                             .binary([](Value a, Value b) {
                               only_integers(a, "lcm");
                               return abs(trunc_div(a, gcd(a, b)) * b);
                             })
                             .dtypes(kIntegers);

// ---- tests and parts

const OpRecord& isposinf_op =
    define("isposinf(Tensor self) -> Tensor")
        .doc("True where x is +inf.")
        .unary([](Value x) { return is_inf(x) & (x > 0); }, Result::boolean);

const OpRecord& isneginf_op =
    define("isneginf(Tensor self) -> Tensor")
        .doc("True where x is -inf.")
        .unary([](Value x) { return is_inf(x) & (x < 0); }, Result::boolean);

const OpRecord& angle_op =
    define("angle(Tensor self) -> Tensor")
        .doc("0 for x >= 0, pi below, NaN for NaN.")
        .unary(
            [](Value x) {
              const Value y = where(x < 0, std::numbers::pi, constant_like(x, 0.0));
              return where(is_nan(x), std::numeric_limits<double>::quiet_NaN(), y);
            },
            Result::floating)
        // The derivative is i z / |z|^2, 0 at 0.
        .complex(of_complex([](Complex z) { return angle(z); },
                            [](Values v) {
                              const Complex z = complex_at(v, 0);
                              const Value size = abs(z), zero = size == 0.0;
                              const Value scale = v[3] / where(zero, 1.0, size);
                              return parts(times_i(sgn(z)) * where(zero, 0.0, scale));
                            }));

// ---- PyTorch's optional arguments over the pointwise records

std::optional<Scalar> maybe_scalar(const Call& c, size_t i) {
  return c.has(i) ? std::optional(c.scalar(i)) : std::nullopt;
}
std::optional<double> maybe_real(const Call& c, size_t i) {
  return c.has(i) ? std::optional(c.real(i)) : std::nullopt;
}

const OpRecord& clamp_op =
    define("clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor")
        .face("clamp_min(Tensor self, Scalar min)")
        .face("clamp_max(Tensor self, Scalar max)")
        .doc("Limits to [min, max]; either may be absent.")
        .compose([](const Call& c) -> Results {
          return {clamp(c.tensor(0), maybe_scalar(c, 1), maybe_scalar(c, 2))};
        })
        .in_place([](Tensor& self, const Call& c) {
          self.clamp_(maybe_scalar(c, 1), maybe_scalar(c, 2));
        });

const OpRecord& clamp_tensor_op =
    define("clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor")
        .face("clamp_min.Tensor(Tensor self, Tensor min)")
        .face("clamp_max.Tensor(Tensor self, Tensor max)")
        .doc("Limits to [min, max], which are tensors; either may be absent.")
        .compose([](const Call& c) -> Results {
          return {clamp(c.tensor(0), c.has(1) ? c.tensor(1) : Tensor(),
                        c.has(2) ? c.tensor(2) : Tensor())};
        })
        .in_place([](Tensor& self, const Call& c) {
          ARETE_CHECK(c.has(1) || c.has(2),
                      ValueError("clamp_", "At least one of 'min' or 'max' must not be None"));
          if (!c.has(2))
            call_in_place(self, *find_record("clamp_min_by"), {self, c[1]});
          else if (!c.has(1))
            call_in_place(self, *find_record("clamp_max_by"), {self, c[2]});
          else
            call_in_place(self, *find_record("clamp_by"), {self, c[1], c[2]});
        });

const OpRecord& limited_logit_op = []() -> const OpRecord& {
  PointwiseDef d;
  d.n_params = 1;
  d.result = Result::floating;
  d.definition = [](Values v) {
    const Value low = v[1], high = 1.0 - low;
    const Value x = where(v[0] < low, low, where(v[0] > high, high, v[0]));
    return std::vector{log(x / (1.0 - x))};
  };
  return define("logit.eps(Tensor self, float eps) -> Tensor")
      .doc("log(x / (1 - x)) of x limited to [eps, 1 - eps].")
      .surface(Surface::internal)
      .pointwise(std::move(d))
      .in_place();
}();

const OpRecord& logit_op =
    define("logit(Tensor self, float? eps=None) -> Tensor")
        .doc("log(x / (1 - x)), of x limited to [eps, 1 - eps] if eps is given.")
        .compose([](const Call& c) -> Results {
          if (!c.has(1)) return {logit(c.tensor(0))};
          return {call(limited_logit_op, {c[0], c[1]})};
        })
        .in_place([](Tensor& self, const Call& c) {
          if (c.has(1))
            call_in_place(self, limited_logit_op, {c[0], c[1]});
          else
            self.logit_();
        });

const OpRecord& nan_to_num_op =
    define(
        "nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> "
        "Tensor")
        .doc("NaN, +inf and -inf replaced: by 0 and the dtype's extreme numbers where not given.")
        .compose([](const Call& c) -> Results {
          return {nan_to_num(c.tensor(0), maybe_real(c, 1).value_or(0), maybe_real(c, 2),
                             maybe_real(c, 3))};
        })
        .in_place([](Tensor& self, const Call& c) {
          nan_to_num_(self, maybe_real(c, 1).value_or(0), maybe_real(c, 2), maybe_real(c, 3));
        });

// ---- comparisons of whole tensors

void check_closeness(const Call& c) {
  for (const size_t i : {2, 3}) {
    const char* name = i == 2 ? "rtol" : "atol";
    ARETE_CHECK(c.real(i) >= 0,
                ValueError(c.name(), std::string(name) +
                                         " must be greater than or equal to zero, but got " +
                                         Scalar(c.real(i)).to_string())
                    .argument(name));
  }
}

const OpRecord& isclose_op =
    define(
        "isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool "
        "equal_nan=False) -> Tensor")
        .doc("Whether |self - other| <= atol + rtol * |other|.")
        .compose([](const Call& c) -> Results {
          check_closeness(c);
          return {isclose(c.tensor(0), c.tensor(1), c.real(2), c.real(3), c.boolean(4))};
        })
        .dtypes({kFloat32, kFloat64, kInt64});

const OpRecord& allclose_op =
    define(
        "allclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool "
        "equal_nan=False) -> Tensor")
        .doc("Whether all elements are close; a 0-d bool tensor.")
        .compose([](const Call& c) -> Results {
          check_closeness(c);
          return {isclose(c.tensor(0), c.tensor(1), c.real(2), c.real(3), c.boolean(4)).all()};
        })
        .dtypes({kFloat32, kFloat64, kInt64});

const OpRecord& equal_op = define("equal(Tensor self, Tensor other) -> Tensor")
                               .doc("Whether sizes and all elements are equal; a 0-d bool tensor.")
                               .compose([](const Call& c) -> Results {
                                 if (c.tensor(0).layout().sizes != c.tensor(1).layout().sizes)
                                   return {zeros({}, TensorOptions(kBool, common_device(c)))};
                                 return {c.tensor(0).eq(c.tensor(1)).all()};
                               })
                               .dtypes(kReal);

}  // namespace
}  // namespace ops

Tensor rsub(const Tensor& self, const Tensor& other, Scalar alpha) {
  return ops::call(ops::rsub_op, {self, other, alpha});
}
Tensor rsub(const Tensor& self, Scalar other, Scalar alpha) {
  return ops::call(ops::rsub_op, {self, other, alpha});
}
Tensor div(const Tensor& self, const Tensor& other, std::string_view rounding_mode) {
  return ops::call(ops::div_mode_op, {self, other, rounding_mode});
}
Tensor div(const Tensor& self, Scalar other, std::string_view rounding_mode) {
  return ops::call(ops::div_mode_op, {self, other, rounding_mode});
}
Tensor round(const Tensor& self, int64_t decimals) {
  return ops::call(ops::round_decimals_op, {self, decimals});
}
Tensor float_power(const Tensor& self, const Tensor& exponent) {
  return ops::call(ops::float_power_op, {self, exponent});
}
Tensor float_power(const Tensor& self, Scalar exponent) {
  return ops::call(ops::float_power_op, {self, exponent});
}
Tensor ldexp(const Tensor& self, const Tensor& other) {
  return ops::call(ops::ldexp_op, {self, other});
}
std::tuple<Tensor, Tensor> frexp(const Tensor& self) {
  auto r = ops::call_all(ops::frexp_op, {self});
  return {r[0], r[1]};
}
Tensor logaddexp2(const Tensor& self, const Tensor& other) {
  return ops::call(ops::logaddexp2_op, {self, other});
}
Tensor heaviside(const Tensor& self, const Tensor& values) {
  return ops::call(ops::heaviside_op, {self, values});
}
Tensor gcd(const Tensor& self, const Tensor& other) {
  return ops::call(ops::gcd_op, {self, other});
}
Tensor lcm(const Tensor& self, const Tensor& other) {
  return ops::call(ops::lcm_op, {self, other});
}
Tensor logit(const Tensor& self, double eps) { return ops::call(ops::logit_op, {self, eps}); }
Tensor isposinf(const Tensor& self) { return ops::call(ops::isposinf_op, {self}); }
Tensor isneginf(const Tensor& self) { return ops::call(ops::isneginf_op, {self}); }
Tensor angle(const Tensor& self) { return ops::call(ops::angle_op, {self}); }

}  // namespace arete

ARETE_FAMILY(numeric)
