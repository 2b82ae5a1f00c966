// Further distributions, and those whose parameters are tensors.
#include <cmath>
#include <numbers>

#include "arete/core/modes.h"
#include "arete/expr/special.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/random_internal.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {
namespace ops {
namespace {

using expr::Value;

void infer_self(const Call& c, OutputSpecs& out) {
  const Tensor& self = c.tensor(0);
  out.push_back({Shape(self.sizes()), self.dtype()});
}
void check_floating(const Call& c) {
  ARETE_CHECK(is_floating(c.tensor(0).dtype()),
              TypeError(c.name(), "\"" + std::string(c.name()) + "\" not implemented for '" +
                                      std::string(name_of(c.tensor(0).dtype())) + "'")
                  .expected("a floating dtype"));
}

// ---- a function of one number for each element

const OpRecord& geometric_op =
    define("geometric(Tensor self, float p, *, Generator? generator=None) -> Tensor")
        .doc("How many trials of success p until the first success, in self's shape and dtype.")
        .random()
        .batched(vmaps::random_elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          ARETE_CHECK(c.real(1) > 0 && c.real(1) < 1,
                      ValueError(c.name(), "geometric_ expects p to be in (0, 1), but got p=" +
                                               Scalar(c.real(1)).to_string()));
          infer_self(c, out);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          draw_through(p,
                       [](std::span<const Value> v) {
                         return expr::max(expr::ceil(expr::log(1.0 - v[0]) * v[1]), 1.0);
                       },
                       Distribution::uniform, 0, 1, c[2], view_of(out[0]),
                       {1 / std::log1p(-c.real(1))});
        })
        .grad(no_random_gradient)
        .in_place()
        .dtypes({kFloat32, kFloat64, kBFloat16, kFloat16, kInt32, kInt64});

const OpRecord& cauchy_op =
    define(
        "cauchy(Tensor self, float median=0, float sigma=1, *, Generator? generator=None) -> "
        "Tensor")
        .doc("Cauchy distributed numbers in self's shape and dtype.")
        .random()
        .batched(vmaps::random_elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          check_floating(c);
          ARETE_CHECK(c.real(2) > 0,
                      ValueError(c.name(), "cauchy_ expects sigma > 0.0, but found sigma=" +
                                               Scalar(c.real(2)).to_string()));
          infer_self(c, out);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          // tan(pi (u - 1/2)), beyond a quarter by the distance to the pole: both are exact.
          draw_through(
              p,
              [](std::span<const Value> v) {
                const Value side = v[0] - 0.5, size = expr::abs(side);
                const Value far = size > 0.25;
                const Value tangent = expr::tan(
                    expr::where(far, expr::max(0.5 - size, v[3]), size) * std::numbers::pi);
                return expr::copysign(expr::where(far, 1.0 / tangent, tangent), side) * v[2] + v[1];
              },
              Distribution::uniform, 0, 1, c[3], view_of(out[0]),
              {c.real(1), c.real(2), half_a_step(out[0].dtype())});
        })
        .grad(no_random_gradient)
        .in_place();

const OpRecord& log_normal_op =
    define(
        "log_normal(Tensor self, float mean=1, float std=2, *, Generator? generator=None) -> "
        "Tensor")
        .doc("exp of normal numbers, in self's shape and dtype.")
        .random()
        .batched(vmaps::random_elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          check_floating(c);
          ARETE_CHECK(c.real(2) > 0,
                      ValueError(c.name(), "log_normal_ expects std > 0.0, but found std=" +
                                               Scalar(c.real(2)).to_string()));
          infer_self(c, out);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          draw_through(
              p, [](std::span<const Value> v) { return expr::exp(v[0]); }, Distribution::normal,
              c.real(1), c.real(2), c[3], view_of(out[0]));
        })
        .grad(no_random_gradient)
        .in_place();

// ---- whole numbers like a tensor

const OpRecord& randint_like_op =
    define(
        "randint_like(Tensor self, int low, int? high=None, *, dtype? dtype=None, device? "
        "device=None, Generator? generator=None) -> Tensor")
        .memory_format()
        .doc("Uniform whole numbers in [low, high) in self's shape; one bound alone is high.")
        .random()
        .compose([](const Call& c) -> Results {
          const Tensor& self = c.tensor(0);
          const int64_t low = c.has(2) ? c.integer(1) : 0,
                        high = c.has(2) ? c.integer(2) : c.integer(1);
          std::optional<DType> dtype;
          std::optional<Device> device;
          if (c.has(3)) dtype = c[3].dtype();
          if (c.has(4)) device = c[4].device();
          Tensor out = empty_like(self, dtype, device);
          const NoGradGuard guard;
          random_(out, low, high, c.has(5) ? c[5].generator() : nullptr);
          return {out};
        })
        .dtypes({kFloat32, kFloat64, kBFloat16, kFloat16, kUInt8, kInt8, kInt16, kInt32, kInt64});

// ---- parameters that are tensors

void check_std(const Call& c, const Tensor& std) {
  if (std.is_meta() || std.numel() == 0 || modes().word & Modes::kCapture) return;
  ARETE_CHECK(!std.is_floating_point() || all_values(std).min().item<double>() >= 0,
              ValueError(c.name(), "normal expects all elements of std >= 0.0"));
}

const OpRecord& normal_numbers_op =
    define(
        "normal_numbers(Tensor? mean, Tensor? std, float location, float scale, *, Generator? "
        "generator=None) -> Tensor")
        .doc("Normal numbers times std and scale, plus mean and location.")
        .surface(Surface::internal)
        .random()
        .batched(vmaps::random_elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& first = c.tensor(c.has(0) ? 0 : 1);
          OutputSpec spec{Shape(first.sizes()), first.dtype()};
          if (c.has(0) && c.has(1)) {
            const Tensor pair[] = {c.tensor(0), c.tensor(1)};
            spec.dtype = result_type(pair);
            spec.sizes = broadcast_shapes(pair[0].sizes(), pair[1].sizes(), "normal");
          }
          ARETE_CHECK(is_floating(spec.dtype),
                      TypeError("normal", "\"normal\" not implemented for '" +
                                              std::string(name_of(spec.dtype)) + "'")
                          .expected("a floating dtype"));
          out.push_back(std::move(spec));
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const prim::View to = view_of(out[0]);
          const auto drawn = [&](auto f, std::initializer_list<prim::View> inputs) {
            draw_through(p, f, Distribution::normal, c.real(2), c.real(3), c[4], to, {}, inputs);
          };
          const auto from = [&](size_t i) { return view_of(c.tensor(i)); };
          if (!c.has(1))
            drawn([](std::span<const Value> v) { return v[0] + v[1]; }, {from(0)});
          else if (c.has(0))
            drawn([](std::span<const Value> v) { return v[0] * v[2] + v[1]; }, {from(0), from(1)});
          else
            draw_through(p, [](std::span<const Value> v) { return v[0] * v[1] + v[2]; },
                         Distribution::normal, 0, c.real(3), c[4], to, {c.real(2)}, {from(1)});
        })
        .grad(zero_gradients);

const OpRecord& normal_tensor_tensor_op =
    define("normal.Tensor_Tensor(Tensor mean, Tensor std, *, Generator? generator=None) -> Tensor")
        .doc("Normal numbers with a mean and a standard deviation for each element (broadcast).")
        .random()
        .compose([](const Call& c) -> Results {
          check_std(c, c.tensor(1));
          return {call(normal_numbers_op, {c[0], c[1], 0.0, 1.0, c[2]})};
        });

const OpRecord& normal_tensor_float_op =
    define("normal.Tensor_float(Tensor mean, float std=1, *, Generator? generator=None) -> Tensor")
        .doc("Normal numbers with a mean for each element.")
        .random()
        .compose([](const Call& c) -> Results {
          ARETE_CHECK(c.real(1) >= 0,
                      ValueError(c.name(), "normal expects std >= 0.0, but found std " +
                                               Scalar(c.real(1)).to_string()));
          return {call(normal_numbers_op, {c[0], std::nullopt, 0.0, c[1], c[2]})};
        });

const OpRecord& normal_float_tensor_op =
    define("normal.float_Tensor(float mean, Tensor std, *, Generator? generator=None) -> Tensor")
        .doc("Normal numbers with a standard deviation for each element.")
        .random()
        .compose([](const Call& c) -> Results {
          check_std(c, c.tensor(1));
          return {call(normal_numbers_op, {std::nullopt, c[1], c[0], 1.0, c[2]})};
        });

const OpRecord& bernoulli_tensor_op =
    define("bernoulli.Tensor(Tensor self, Tensor p, *, Generator? generator=None) -> Tensor")
        .doc("1 with the probability that p (broadcast to self) gives, in self's dtype.")
        .random()
        .compose([](const Call& c) -> Results {
          const NoGradGuard guard;
          const Tensor &self = c.tensor(0), &p = c.tensor(1);
          return {bernoulli(p.expand(self.sizes()), c[2].generator()).to(self.dtype())};
        })
        .in_place();

// ---- Poisson

// Note [Poisson numbers]
// The result is the least count whose distribution function is no less than one uniform number. For
// rates below 10 that is how many partial sums of the probabilities are below the number; in f64
// nothing is left of them after 64 terms. For larger rates the expansion of Cornish and Fisher is
// less than 1 away from it, and the distribution function, an incomplete gamma function, says where
// it is. So each element takes one number, whatever its rate, and nobody waits for the device.
constexpr double kInverted = 10;

constexpr int kTerms = 64, kTermsAtOnce = 8;  // where few are enough the others are left out

// The count so far and those of what comes after k - 1 terms, of which `term` is the last.
Value count_terms(Value count, Value u, Value rate, Value term, Value sum, int k) {
  if (k > kTerms) return count;
  for (const int end = k + kTermsAtOnce; k < end; ++k) {
    count = count + expr::cast(u > sum, expr::Type::f64);
    term = term * (rate * (1.0 / k));
    sum = sum + term;
  }
  return expr::where(u > sum, count_terms(count, u, rate, term, sum, k), count);
}

Value large_count(Value u, Value rate) {
  const expr::SinglePrecision digits(true);
  const Value w = expr::ndtri(expr::min(expr::max(u, 0x1p-54), 1 - 0x1p-53));
  const Value root = expr::sqrt(rate), square = w * w;
  const Value guess =
      rate + root * w + (square - 1.0) * (1.0 / 6) + w * (1.0 - square) / (root * 72.0);
  const Value k = expr::max(expr::floor(guess), 0.0);
  const expr::IncompleteGamma g = expr::incomplete_gamma(k + 1.0, rate);
  const Value here = g.density / rate, below = g.upper - here;  // P(X = k), P(X < k)
  const Value more = expr::where(u > g.upper + here * rate / (k + 1.0), k + 2.0, k + 1.0);
  const Value less = expr::where(u > below - here * k / rate, k - 1.0, k - 2.0);
  return expr::max(expr::where(u > g.upper, more, expr::where(u > below, k, less)), 0.0);
}

Value poisson_count(std::span<const Value> v) {
  const Value u = v[0], rate = expr::cast(v[1], expr::Type::f64);
  const Value low = expr::min(rate, kInverted), none = expr::exp(-low);
  const Value count = expr::where(rate < kInverted, count_terms(low * 0.0, u, low, none, none, 1),
                                  large_count(u, expr::max(rate, kInverted)));
  return expr::where(rate < 0.0, std::nan(""), count);
}

const OpRecord& poisson_numbers_op =
    define("poisson_numbers(Tensor self, *, Generator? generator=None) -> Tensor")
        .doc("poisson; NaN for negative rates.")
        .surface(Surface::internal)
        .random()
        .batched(vmaps::random_elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          check_floating(c);
          infer_self(c, out);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          draw_through(p, [](std::span<const Value> v) { return poisson_count(v); }, kFloat64,
                       Distribution::uniform, 0, 1, c[1], view_of(out[0]), {},
                       {view_of(c.tensor(0))});
        })
        .grad(zero_gradients);

const OpRecord& poisson_op =
    define("poisson(Tensor self, Generator? generator=None) -> Tensor")
        .doc(
            "Poisson distributed numbers with the rates of self. Negative rates are an error; on a "
            "GPU, where finding them would mean to wait, they give NaN.")
        .random()
        .compose([](const Call& c) -> Results {
          check_floating(c);
          const Tensor& self = c.tensor(0);
          const bool readable = !self.is_meta() && !self.is_cuda() && self.numel() > 0 &&
                                !(modes().word & Modes::kCapture);
          ARETE_CHECK(
              !readable || !all_values(self).lt(Scalar(0)).any().item<bool>(),
              ValueError(c.name(), "invalid Poisson rate, expected rate to be non-negative"));
          return {call(poisson_numbers_op, {self, c[1]})};
        });

}  // namespace
}  // namespace ops

Tensor normal(const Tensor& mean, const Tensor& std, Generator* g) {
  return ops::call(ops::normal_tensor_tensor_op, {mean, std, g});
}
Tensor normal(const Tensor& mean, double std, Generator* g) {
  return ops::call(ops::normal_tensor_float_op, {mean, std, g});
}
Tensor normal(double mean, const Tensor& std, Generator* g) {
  return ops::call(ops::normal_float_tensor_op, {mean, std, g});
}
Tensor poisson(const Tensor& self, Generator* g) { return ops::call(ops::poisson_op, {self, g}); }
Tensor randint_like(const Tensor& self, int64_t low, int64_t high, std::optional<DType> dtype,
                    std::optional<Device> device, Generator* g) {
  return ops::call(ops::randint_like_op, {self, low, high, dtype, device, g});
}
Tensor& geometric_(Tensor& self, double p, Generator* g) {
  return ops::call_in_place(self, ops::geometric_op, {self, p, g});
}
Tensor& cauchy_(Tensor& self, double median, double sigma, Generator* g) {
  return ops::call_in_place(self, ops::cauchy_op, {self, median, sigma, g});
}
Tensor& log_normal_(Tensor& self, double mean, double std, Generator* g) {
  return ops::call_in_place(self, ops::log_normal_op, {self, mean, std, g});
}

}  // namespace arete

ARETE_FAMILY(distributions)
