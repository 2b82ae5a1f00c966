#include "arete/ops/random.h"

#include <cmath>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random_internal.h"
#include "arete/ops/reduce.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {
namespace {

void check_floating(const Call& c, DType t, bool complex_too = false) {
  ARETE_CHECK(is_floating(t) || (complex_too && is_complex(t)),
              TypeError(c.name(), "\"" + std::string(c.name()) + "\" not implemented for '" +
                                      std::string(name_of(t)) + "'")
                  .expected("a floating dtype"));
}
void check_probability(const Call& c, double p) {
  ARETE_CHECK(p >= 0 && p <= 1,
              ValueError(c.name(), "bernoulli expects p to be in [0, 1], but got p=" +
                                       Scalar(p).to_string()));
}
// Where looking at them waits for nothing: elsewhere what is above 1 counts as 1, and what is below
// 0, or no number, as 0.
void check_probabilities(const char* op, const Tensor& p) {
  if (!p.device().is_cpu() || p.numel() == 0 || modes().word & (Modes::kCapture | Modes::kPutOff))
    return;
  const NoGradGuard no_grad;
  const Tensor values = all_values(p);
  ARETE_CHECK(amin(values).item<double>() >= 0 && amax(values).item<double>() <= 1,
              ValueError(op, "Expected p_in >= 0 && p_in <= 1 to be true, but got false")
                  .expected("probabilities from 0 to 1"));
}
void check_std(const Call& c, double std) {
  ARETE_CHECK(std >= 0, ValueError(c.name(), "normal expects std >= 0.0, but found std " +
                                                 Scalar(std).to_string()));
}

// sizes, dtype and device from argument `first` on
template <int kSizes, int kFirst, bool kFloating>
void infer_sizes(const Call& c, OutputSpecs& out) {
  numel_of(c.ints(kSizes));
  const DType otherwise = kFloating ? default_dtype() : kInt64;
  OutputSpec s{Shape(c.ints(kSizes)),
               c.has(kFirst) ? c[kFirst].dtype() : otherwise,
               {},
               c.has(kFirst + 1) ? c[kFirst + 1].device() : kCPU};
  if (kFloating) check_floating(c, s.dtype, true);
  out.push_back(s);
}
void infer_like(const Call& c, OutputSpecs& out) {
  const Tensor& self = c.tensor(0);
  OutputSpec s{Shape(self.sizes()),
               c.has(1) ? c[1].dtype() : self.dtype(),
               {},
               c.has(2) ? c[2].device() : self.device()};
  check_floating(c, s.dtype, true);
  s.strides = strides_like(self);
  out.push_back(s);
}
// Draws into a new tensor. Both parts of a complex one are drawn, normal ones with half of the
// variance each.
void draw_all(prim::Primitives& p, Distribution d, const Tensor& out, double a, double b,
              const Arg& generator) {
  if (!is_complex(out.dtype())) return draw(p, d, view_of(out), a, b, generator);
  const Tensor parts = parts_in(out);
  draw(p, d, view_of(parts), a, d == Distribution::normal ? b * std::sqrt(0.5) : b, generator);
}
// Argument 3 is the generator.
template <Distribution kDistribution>
void standard(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  draw_all(p, kDistribution, out[0], 0, 1, c[3]);
}
void infer_self(const Call& c, OutputSpecs& out) {
  const Tensor& self = c.tensor(0);
  out.push_back({Shape(self.sizes()), self.dtype()});
}

const OpRecord& rand_op =
    define(
        "rand(int[] size, *, dtype? dtype=None, device? device=None, Generator? generator=None) "
        "-> Tensor")
        .doc("Uniform in [0, 1).")
        .random()
        .batched(vmaps::random_of_size)
        .infer(infer_sizes<0, 1, true>)
        .lower(standard<Distribution::uniform>);

const OpRecord& randn_op =
    define(
        "randn(int[] size, *, dtype? dtype=None, device? device=None, Generator? "
        "generator=None) -> Tensor")
        .doc("Normal with mean 0 and standard deviation 1.")
        .random()
        .batched(vmaps::random_of_size)
        .infer(infer_sizes<0, 1, true>)
        .lower(standard<Distribution::normal>);

const OpRecord& normal_sized_op =
    define(
        "normal.float_float(float mean, float std, int[] size, *, dtype? dtype=None, device? "
        "device=None, "
        "Generator? generator=None) -> Tensor")
        .doc("Normal numbers of one mean and standard deviation.")
        .random()
        .batched(vmaps::random_of_size)
        .infer([](const Call& c, OutputSpecs& out) {
          check_std(c, c.real(1));
          infer_sizes<2, 3, true>(c, out);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          draw(p, Distribution::normal, view_of(out[0]), c.real(0), c.real(1), c[5]);
        });

const OpRecord& rand_like_op =
    define(
        "rand_like(Tensor self, *, dtype? dtype=None, device? device=None, Generator? "
        "generator=None) -> Tensor")
        .memory_format()
        .doc("Uniform in [0, 1) in self's shape.")
        .surface(Surface::function)
        .random()
        .batched(vmaps::random_elementwise)
        .infer(infer_like)
        .lower(standard<Distribution::uniform>)
        .grad(no_random_gradient)
        .no_grad_outputs(1);

const OpRecord& randn_like_op =
    define(
        "randn_like(Tensor self, *, dtype? dtype=None, device? device=None, Generator? "
        "generator=None) -> Tensor")
        .memory_format()
        .doc("Normal numbers in self's shape.")
        .surface(Surface::function)
        .random()
        .batched(vmaps::random_elementwise)
        .infer(infer_like)
        .lower(standard<Distribution::normal>)
        .grad(no_random_gradient)
        .no_grad_outputs(1);

void check_range(const Call& c, int64_t low, int64_t high, DType dtype) {
  ARETE_CHECK(low < high, ValueError(c.name(),
                                     "random_ expects 'from' to be less than 'to', but got "
                                     "from=" +
                                         std::to_string(low) + " >= to=" + std::to_string(high)));
  ARETE_CHECK(!is_complex(dtype),
              TypeError(c.name(), "complex numbers have no order to draw from"));
  if (is_floating(dtype) || dtype == kInt64) return;
  const double lowest = dtype == kBool ? 0 : lowest_of(dtype),
               most = dtype == kBool ? 1 : max_of(dtype);
  ARETE_CHECK(
      double(low) >= lowest && double(high) - 1 <= most,
      ValueError(c.name(), "from and to - 1 are out of bounds for " + std::string(name_of(dtype)))
          .got("from=" + std::to_string(low) + ", to=" + std::to_string(high)));
}

const OpRecord& randint_op =
    define(
        "randint.low(int low, int high, int[] size, *, dtype? dtype=None, device? device=None, "
        "Generator? generator=None) -> Tensor")
        .face(
            "randint(int high, int[] size, *, int low=0, dtype? dtype=None, device? "
            "device=None, Generator? generator=None)")
        .doc("Uniform whole numbers in [low, high).")
        .random()
        .batched(vmaps::random_of_size)
        .infer([](const Call& c, OutputSpecs& out) {
          infer_sizes<2, 3, false>(c, out);
          check_range(c, c.integer(0), c.integer(1), out[0].dtype);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          draw(p, {Distribution::integers, view_of(out[0]), 0, 0, 0, 1, c.integer(0), c.integer(1)},
               c[5]);
        });

const OpRecord& randperm_op =
    define(
        "randperm(int n, *, dtype? dtype=None, device? device=None, Generator? generator=None) "
        "-> Tensor")
        .doc("0 to n - 1 in random order.")
        .random()
        .one_by_one("it draws one permutation")
        .infer([](const Call& c, OutputSpecs& out) {
          ARETE_CHECK(c.integer(0) >= 0, ValueError(c.name(), "n must be non-negative, got " +
                                                                  std::to_string(c.integer(0))));
          out.push_back({Shape{c.integer(0)},
                         c.has(1) ? c[1].dtype() : kInt64,
                         {},
                         c.has(2) ? c[2].device() : kCPU});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          // The order that sorts random keys. Equal ones keep their order, which of few elements
          // 32 bits, of any number 63 bits make too rare to be noticed.
          constexpr int64_t kFew = 1 << 16;
          const bool few = out[0].numel() <= kFew;
          const prim::ScratchView keys(p, few ? kInt32 : kInt64, out[0].sizes());
          draw(p,
               {Distribution::integers, keys, 0, 0, 0, 1, few ? INT32_MIN : 0,
                few ? int64_t{INT32_MAX} + 1 : INT64_MAX},
               c[3]);
          if (out[0].dtype() == kInt64) return p.sort({keys, {}, view_of(out[0]), 0});
          const prim::ScratchView order(p, kInt64, out[0].sizes());
          p.sort({keys, {}, order, 0});
          p.copy({view_of(out[0]), order});
        });

const OpRecord& bernoulli_op =
    define("bernoulli(Tensor self, float? p=None, *, Generator? generator=None) -> Tensor")
        .doc("1 with probability self (or p), else 0.")
        .random()
        .batched(vmaps::random_elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          if (c.has(1)) check_probability(c, c.real(1));
          if (!c.has(1)) check_floating(c, c.tensor(0).dtype());
          infer_self(c, out);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const prim::View to = view_of(out[0]);
          if (c.has(1)) return draw(p, Distribution::bernoulli, to, c.real(1), 1, c[2]);
          check_probabilities(c.name(), c.tensor(0));
          draw_through(p, [](std::span<const expr::Value> v) { return v[0] < v[1]; },
                       Distribution::uniform, 0, 1, c[2], to, {}, {view_of(c.tensor(0))});
        })
        .grad(no_random_gradient)
        .in_place();

// ---- in place

const OpRecord& uniform_op =
    define("uniform(Tensor self, float from=0, float to=1, *, Generator? generator=None) -> Tensor")
        .doc("Uniform in [from, to), in self's shape and dtype.")
        .random()
        .batched(vmaps::random_elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          check_floating(c, c.tensor(0).dtype(), true);
          ARETE_CHECK(c.real(1) <= c.real(2),
                      ValueError(c.name(),
                                 "uniform_ expects to return a [from, to) range, but found "
                                 "from=" +
                                     Scalar(c.real(1)).to_string() +
                                     " > to=" + Scalar(c.real(2)).to_string()));
          infer_self(c, out);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          draw_all(p, Distribution::uniform, out[0], c.real(1), c.real(2), c[3]);
        })
        .grad(no_random_gradient)
        .in_place();

const OpRecord& normal_op =
    define(
        "normal_functional(Tensor self, float mean=0, float std=1, *, Generator? generator=None) "
        "-> "
        "Tensor")
        .surface(Surface::internal)
        .face("normal_(Tensor self, float mean=0, float std=1, *, Generator? generator=None)")
        .doc("Normal numbers in self's shape and dtype.")
        .random()
        .batched(vmaps::random_elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          check_floating(c, c.tensor(0).dtype(), true);
          check_std(c, c.real(2));
          infer_self(c, out);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          draw_all(p, Distribution::normal, out[0], c.real(1), c.real(2), c[3]);
        })
        .grad(no_random_gradient)
        .in_place();

// From 0 to the largest whole number up to which the dtype holds all of them.
int64_t end_of(DType t) {
  if (t == kBool) return 2;
  if (t == kInt64 || t == kUInt64) return INT64_MAX;
  if (is_integer(t)) return int64_t(max_of(t)) + 1;
  return (int64_t(1) << (t == kFloat64 ? 53 : t == kFloat32 ? 24 : t == kFloat16 ? 11 : 8)) + 1;
}
std::pair<int64_t, int64_t> bounds(const Call& c) {
  if (c.has(2)) return {c.has(1) ? c.integer(1) : 0, c.integer(2)};
  return {0, c.has(1) ? c.integer(1) : end_of(c.tensor(0).dtype())};
}

const OpRecord& random_op =
    define(
        "random_functional(Tensor self, int? from=None, int? to=None, *, Generator? "
        "generator=None) -> Tensor")
        .surface(Surface::internal)
        .face("random_(Tensor self, int? from=None, int? to=None, *, Generator? generator=None)")
        .doc(
            "Whole numbers in [from, to), in self's shape and dtype. One bound alone is `to`; "
            "none: "
            "all numbers from 0 on that the dtype holds exactly.")
        .random()
        .batched(vmaps::random_elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          const auto [from, to] = bounds(c);
          check_range(c, from, to, c.tensor(0).dtype());
          infer_self(c, out);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const auto [from, to] = bounds(c);
          draw(p, {Distribution::integers, view_of(out[0]), 0, 0, 0, 1, from, to}, c[3]);
        })
        .grad(no_random_gradient)
        .in_place()
        .dtypes({kFloat32, kFloat64, kBFloat16, kFloat16, kUInt8, kInt8, kInt16, kInt32, kInt64});

const OpRecord& exponential_op =
    define("exponential(Tensor self, float lambd=1, *, Generator? generator=None) -> Tensor")
        .doc("Exponentially distributed numbers in self's shape and dtype.")
        .random()
        .batched(vmaps::random_elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          check_floating(c, c.tensor(0).dtype());
          ARETE_CHECK(c.real(1) > 0, ValueError(c.name(),
                                                "exponential_ expects lambda > 0.0, but found "
                                                "lambda=" +
                                                    Scalar(c.real(1)).to_string()));
          infer_self(c, out);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          // -log(1 - u): 1 - u is exact, and where it is 1 half a step stands for the result.
          draw_through(p,
                       [](std::span<const expr::Value> v) {
                         return expr::max(-expr::log(1.0 - v[0]), v[1]) * v[2];
                       },
                       Distribution::uniform, 0, 1, c[2], view_of(out[0]),
                       {half_a_step(out[0].dtype()), 1 / c.real(1)});
        })
        .grad(no_random_gradient)
        .in_place();

Tensor finish(Tensor t, const TensorOptions& o) {
  if (o.requires_grad_) t.requires_grad_(true);
  return t;
}

}  // namespace
}  // namespace ops

using ops::call;
using ops::call_in_place;

Tensor rand(IntList sizes, const TensorOptions& o, Generator* g) {
  return ops::finish(call(ops::rand_op, {sizes, o.dtype_, o.device_, g}), o);
}
Tensor randn(IntList sizes, const TensorOptions& o, Generator* g) {
  return ops::finish(call(ops::randn_op, {sizes, o.dtype_, o.device_, g}), o);
}
Tensor randint(int64_t low, int64_t high, IntList sizes, const TensorOptions& o, Generator* g) {
  return ops::finish(call(ops::randint_op, {low, high, sizes, o.dtype_, o.device_, g}), o);
}
Tensor randint(int64_t high, IntList sizes, const TensorOptions& o, Generator* g) {
  return randint(0, high, sizes, o, g);
}
Tensor randperm(int64_t n, const TensorOptions& o, Generator* g) {
  return ops::finish(call(ops::randperm_op, {n, o.dtype_, o.device_, g}), o);
}
Tensor rand_like(const Tensor& self, std::optional<DType> dtype, std::optional<Device> device,
                 Generator* g) {
  return call(ops::rand_like_op, {self, dtype, device, g});
}
Tensor randn_like(const Tensor& self, std::optional<DType> dtype, std::optional<Device> device,
                  Generator* g) {
  return call(ops::randn_like_op, {self, dtype, device, g});
}
Tensor bernoulli(const Tensor& self, Generator* g) {
  return call(ops::bernoulli_op, {self, std::nullopt, g});
}
Tensor bernoulli(const Tensor& self, double p, Generator* g) {
  return call(ops::bernoulli_op, {self, p, g});
}
Tensor normal(double mean, double std, IntList sizes, const TensorOptions& o, Generator* g) {
  return ops::finish(call(ops::normal_sized_op, {mean, std, sizes, o.dtype_, o.device_, g}), o);
}
Tensor& uniform_(Tensor& self, double from, double to, Generator* g) {
  return call_in_place(self, ops::uniform_op, {self, from, to, g});
}
Tensor& normal_(Tensor& self, double mean, double std, Generator* g) {
  return call_in_place(self, ops::normal_op, {self, mean, std, g});
}
Tensor& random_(Tensor& self, int64_t from, int64_t to, Generator* g) {
  return call_in_place(self, ops::random_op, {self, from, to, g});
}
Tensor& bernoulli_(Tensor& self, double p, Generator* g) {
  return call_in_place(self, ops::bernoulli_op, {self, p, g});
}
Tensor& exponential_(Tensor& self, double lambda, Generator* g) {
  return call_in_place(self, ops::exponential_op, {self, lambda, g});
}
Tensor& Tensor::uniform_(double from, double to) {
  return arete::uniform_(*this, from, to, nullptr);
}
Tensor& Tensor::normal_(double mean, double std) {
  return arete::normal_(*this, mean, std, nullptr);
}
Tensor& Tensor::random_(int64_t from, int64_t to) {
  return arete::random_(*this, from, to, nullptr);
}
Tensor& Tensor::bernoulli_(double p) { return arete::bernoulli_(*this, p, nullptr); }
Tensor& Tensor::exponential_(double lambda) { return arete::exponential_(*this, lambda, nullptr); }

}  // namespace arete

ARETE_FAMILY(random)
