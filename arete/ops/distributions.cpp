// Further distributions, and those whose parameters are tensors.
#include <cmath>
#include <numbers>

#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/random_internal.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

using expr::Value;

void infer_self(const Call& c, OutputSpecs& out) {
  const Tensor& self = c.tensor(0);
  out.push_back({Shape(self.sizes()), self.dtype(), self.device(), {}});
}
void check_floating(const Call& c) {
  ARETE_CHECK(is_floating(c.tensor(0).dtype()),
              TypeError(c.name(), "\"" + std::string(c.name()) + "\" not implemented for '" +
                                      std::string(name_of(c.tensor(0).dtype())) + "'")
                  .expected("a floating dtype"));
}

// ---- a function of one number in f64 for each element

template <class F>
void lower_from(const Tensor& out, const Arg& generator, prim::Primitives& p, F f,
                std::initializer_list<double> params) {
  const prim::ScratchView u(p, kFloat64, out.sizes());
  draw(p, Distribution::uniform, u, 0, 1, generator);
  const prim::View in = u;
  apply(p, f, {&in, 1}, view_of(out), params);
}

const OpRecord& geometric_op =
    define("geometric(Tensor self, float p, *, Generator? generator=None) -> Tensor")
        .doc("How many trials of success p until the first success, in self's shape and dtype.")
        .random()
        .infer([](const Call& c, OutputSpecs& out) {
          ARETE_CHECK(c.real(1) > 0 && c.real(1) < 1,
                      ValueError(c.name(), "geometric_ expects p to be in (0, 1), but got p=" +
                                               Scalar(c.real(1)).to_string()));
          infer_self(c, out);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          lower_from(out[0], c[2], p,
                     [](std::span<const Value> v) {
                       return expr::max(expr::ceil(expr::log(1.0 - v[0]) * v[1]), 1.0);
                     },
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
        .infer([](const Call& c, OutputSpecs& out) {
          check_floating(c);
          ARETE_CHECK(c.real(2) > 0,
                      ValueError(c.name(), "cauchy_ expects sigma > 0.0, but found sigma=" +
                                               Scalar(c.real(2)).to_string()));
          infer_self(c, out);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          lower_from(out[0], c[3], p,
                     [](std::span<const Value> v) {
                       return expr::tan((v[0] - 0.5) * std::numbers::pi) * v[2] + v[1];
                     },
                     {c.real(1), c.real(2)});
        })
        .grad(no_random_gradient)
        .in_place();

const OpRecord& log_normal_op =
    define(
        "log_normal(Tensor self, float mean=1, float std=2, *, Generator? generator=None) -> "
        "Tensor")
        .doc("exp of normal numbers, in self's shape and dtype.")
        .random()
        .infer([](const Call& c, OutputSpecs& out) {
          check_floating(c);
          ARETE_CHECK(c.real(2) > 0,
                      ValueError(c.name(), "log_normal_ expects std > 0.0, but found std=" +
                                               Scalar(c.real(2)).to_string()));
          infer_self(c, out);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const prim::View to = view_of(out[0]);
          const auto raise = [&](const prim::View& normal) {
            draw(p, Distribution::normal, normal, c.real(1), c.real(2), c[3]);
            apply(
                p, [](std::span<const Value> v) { return expr::exp(v[0]); }, {&normal, 1}, to);
          };
          if (expr::storage_type(expr::compute_type(to.dtype)) == to.dtype) return raise(to);
          const prim::ScratchView wide(p, kFloat32, out[0].sizes());
          raise(wide);
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

// ---- parameters that are tensors: no gradient

void check_std(const Call& c, const Tensor& std) {
  if (std.is_meta() || std.numel() == 0 || modes().word & Modes::kCapture) return;
  ARETE_CHECK(!std.is_floating_point() || std.detach().min().item<double>() >= 0,
              ValueError(c.name(), "normal expects all elements of std >= 0.0"));
}

const OpRecord& normal_tensor_tensor_op =
    define("normal.Tensor_Tensor(Tensor mean, Tensor std, *, Generator? generator=None) -> Tensor")
        .doc("Normal numbers with a mean and a standard deviation for each element (broadcast).")
        .random()
        .compose([](const Call& c) -> Results {
          const NoGradGuard guard;
          const Tensor &mean = c.tensor(0), &std = c.tensor(1);
          check_std(c, std);
          const Tensor pair[] = {mean, std};
          const TensorOptions o(result_type(pair), mean.device());
          const Shape sizes = broadcast_shapes(mean.sizes(), std.sizes(), "normal");
          Tensor drawn = randn(sizes, o, c[2].generator());
          return {drawn.mul_(std).add_(mean)};
        });

const OpRecord& normal_tensor_float_op =
    define("normal.Tensor_float(Tensor mean, float std=1, *, Generator? generator=None) -> Tensor")
        .doc("Normal numbers with a mean for each element.")
        .random()
        .compose([](const Call& c) -> Results {
          const NoGradGuard guard;
          const Tensor& mean = c.tensor(0);
          Tensor drawn = normal(0, c.real(1), mean.sizes(), mean.options(), c[2].generator());
          return {drawn.add_(mean)};
        });

const OpRecord& normal_float_tensor_op =
    define("normal.float_Tensor(float mean, Tensor std, *, Generator? generator=None) -> Tensor")
        .doc("Normal numbers with a standard deviation for each element.")
        .random()
        .compose([](const Call& c) -> Results {
          const NoGradGuard guard;
          const Tensor& std = c.tensor(1);
          check_std(c, std);
          Tensor drawn = randn(std.sizes(), std.options(), c[2].generator());
          return {drawn.mul_(std).add_(Scalar(c.real(0)))};
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
// Rates below 10 are inverted: the count is how many partial sums of the probabilities are below
// one uniform number. In f64 nothing is left of them after 64 terms. Larger rates use the
// transformed rejection of W. Hoermann (The transformed rejection method for generating Poisson
// random variables, 1993): a proposal from two uniform numbers is accepted in about 9 of 10 cases,
// and rounds are drawn until all elements have one. That reads from the host in each round.
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

const expr::Program& inversion(DType t) {
  static auto& cache = *new expr::ProgramCache;
  return cache.get(pack_key({int(t)}), {t, kFloat64}, {}, {t}, [t](std::span<const Value> v) {
    const Value rate = expr::min(expr::cast(v[0], expr::Type::f64), kInverted);
    const Value none = expr::exp(-rate);
    const Value count = count_terms(rate * 0.0, v[1], rate, none, none, 1);
    return std::vector{expr::cast(count, expr::compute_type(t))};
  });
}
// 2 for rates below 0, 1 for those that are not inverted.
const expr::Program& rate_kinds(DType t) {
  static auto& cache = *new expr::ProgramCache;
  return cache.get(pack_key({int(t)}), {t}, {}, {kUInt8}, [](std::span<const Value> v) {
    const Value zero = v[0].builder()->constant(expr::Type::i32, 0);
    return std::vector{
        expr::where(v[0] < 0.0, zero + 2, expr::where(v[0] >= kInverted, zero + 1, zero))};
  });
}

// The proposal, or -1 if it is rejected.
expr::ProgramPtr rejection() {
  return expr::trace(
      [](std::span<const Value> in) {
        const Value rate = expr::max(in[0], kInverted), u = in[1] - 0.5, v = in[2];
        const Value root = expr::sqrt(rate);
        const Value b = root * 2.53 + 0.931, a = b * 0.02483 - 0.059;
        const Value inverse_alpha = 1.1328 / (b - 3.4) + 1.1239;
        const Value limit = 0.9277 - 3.6224 / (b - 2.0);
        const Value us = 0.5 - expr::abs(u);
        const Value k = expr::floor((a * 2.0 / us + b) * u + rate + 0.43);
        const Value inside = (us >= 0.07) & (v <= limit);
        const Value outside = (k < 0.0) | ((us < 0.013) & (v > us));
        const Value density = k * expr::log(rate) - rate - expr::lgamma(expr::max(k, 0.0) + 1.0);
        const Value below =
            expr::log(v) + expr::log(inverse_alpha) - expr::log(a / (us * us) + b) <= density;
        return std::vector{expr::where(inside | ((!outside) & below), k, -1.0)};
      },
      std::vector{kFloat64, kFloat64, kFloat64}, {}, std::vector{kFloat64});
}

const OpRecord& poisson_op =
    define("poisson(Tensor self, Generator? generator=None) -> Tensor")
        .doc(
            "Poisson distributed numbers with the rates of self; whether there are large rates is "
            "read on the host.")
        .random()
        .compose([](const Call& c) -> Results {
          check_floating(c);
          const Tensor& self = c.tensor(0);
          if (self.is_meta() || self.numel() == 0) return {empty_like(self.detach())};
          const auto draw_numbers = [&]() -> Tensor {
            const NoGradGuard guard;
            const TensorOptions o(kFloat64, self.device());
            const auto uniform = [&] { return rand(self.sizes(), o, c[1].generator()); };
            const Tensor given[] = {self};
            const auto kind =
                apply_program(rate_kinds(self.dtype()).shared_from_this(), given, {}, "poisson")[0]
                    .max()
                    .item<int>();
            ARETE_CHECK(
                kind < 2,
                ValueError(c.name(), "invalid Poisson rate, expected rate to be non-negative"));
            const Tensor numbers[] = {self, uniform()};
            const Tensor inverted = apply_program(inversion(self.dtype()).shared_from_this(),
                                                  numbers, {}, "poisson")[0];
            if (kind == 0) return inverted;
            static const auto& large = *new expr::ProgramPtr(rejection());
            const Tensor rate = self.to(kFloat64);
            Tensor result = inverted.to(kFloat64), pending = rate.ge(Scalar(kInverted));
            while (pending.any().item<bool>()) {
              const Tensor drawn[] = {rate, uniform(), uniform()};
              const Tensor k = apply_program(large, drawn, {}, "poisson")[0];
              const Tensor take = pending.logical_and(k.ge(Scalar(0)));
              result = where(take, k, result);
              pending = pending.logical_and(take.logical_not());
            }
            return result.to(self.dtype());
          };
          const Tensor result = draw_numbers();
          // The gradient is 0; NaN gives NaN.
          if (!self.requires_grad() || !is_grad_enabled()) return {result};
          return {where(self.detach().isnan(), self, result)};
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
