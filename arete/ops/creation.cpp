#include "arete/ops/creation.h"

#include <cmath>

#include "arete/expr/program_cache.h"
#include "arete/expr/value.h"
#include "arete/ops/call.h"
#include "arete/ops/filling.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {
namespace {

DType dtype_or_default(const Arg& a) { return a.is_none() ? default_dtype() : a.dtype(); }
Device device_or_cpu(const Arg& a) { return a.is_none() ? kCPU : a.device(); }

// ---- one value

void fill(prim::Primitives& p, const Tensor& out, const Scalar& value, const char* op) {
  p.fill(filling(view_of(out), value, op));
}

// sizes, dtype, device
void infer_sizes(const Call& c, OutputSpecs& out) {
  numel_of(c.ints(0));
  out.push_back({Shape(c.ints(0)), dtype_or_default(c[1]), {}, device_or_cpu(c[2])});
}
// self, then dtype and device from argument `first` on
template <int kFirst>
void infer_like(const Call& c, OutputSpecs& out) {
  const Tensor& self = c.tensor(0);
  OutputSpec s{Shape(self.sizes()), self.dtype()};
  if (c.has(kFirst)) s.dtype = c[kFirst].dtype();
  if (c.has(kFirst + 1)) s.device = c[kFirst + 1].device();
  s.strides = strides_like(self);
  out.push_back(s);
}
TensorList no_gradient(const GradCall&) { return {}; }
template <int kValue>
void filled(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  fill(p, out[0], Scalar(kValue), c.name());
}

const std::vector<DType> kAllDTypes{kFloat32,   kFloat64,    kBFloat16, kFloat16, kUInt8,
                                    kInt8,      kInt16,      kInt32,    kInt64,   kBool,
                                    kComplex64, kComplex128, kUInt16,   kUInt32,  kUInt64};

const OpRecord& empty_op =
    define("empty(int[] size, *, dtype? dtype=None, device? device=None) -> Tensor")
        .sparse_layout()
        .memory_format()
        .doc("A tensor whose values are not set.")
        .uninitialized()
        .infer(infer_sizes)
        .lower([](const Call&, std::span<const Tensor>, prim::Primitives&) {});

const OpRecord& empty_strided_op =
    define(
        "empty_strided(int[] size, int[] stride, *, dtype? dtype=None, device? device=None) -> "
        "Tensor")
        .doc("A tensor with given strides whose values are not set.")
        .uninitialized()
        .infer([](const Call& c, OutputSpecs& out) {
          ARETE_CHECK(
              c.ints(0).size() == c.ints(1).size(),
              ValueError(c.name(), "dimensionality of sizes (" + std::to_string(c.ints(0).size()) +
                                       ") must match dimensionality of strides (" +
                                       std::to_string(c.ints(1).size()) + ")"));
          for (int64_t s : c.ints(1))
            ARETE_CHECK(s >= 0, ValueError(c.name(), "strides must not be negative")
                                    .argument("stride")
                                    .got(to_string(c.ints(1))));
          numel_of(c.ints(0));
          out.push_back(
              {Shape(c.ints(0)), dtype_or_default(c[2]), Shape(c.ints(1)), device_or_cpu(c[3])});
        })
        .lower([](const Call&, std::span<const Tensor>, prim::Primitives&) {});

const OpRecord& zeros_op =
    define("zeros(int[] size, *, dtype? dtype=None, device? device=None) -> Tensor")
        .sparse_layout()
        .doc("All zeros.")
        .infer(infer_sizes)
        .lower(filled<0>);

const OpRecord& ones_op =
    define("ones(int[] size, *, dtype? dtype=None, device? device=None) -> Tensor")
        .doc("All ones.")
        .infer(infer_sizes)
        .lower(filled<1>);

const OpRecord& full_op =
    define(
        "full(int[] size, Scalar fill_value, *, dtype? dtype=None, device? device=None) -> "
        "Tensor")
        .doc("All fill_value; without a dtype, of the dtype of the number.")
        .infer([](const Call& c, OutputSpecs& out) {
          numel_of(c.ints(0));
          out.push_back({Shape(c.ints(0)),
                         c.has(2) ? c[2].dtype() : c.scalar(1).dtype(),
                         {},
                         device_or_cpu(c[3])});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          fill(p, out[0], c.scalar(1), c.name());
        });

const OpRecord& empty_like_op =
    define("empty_like(Tensor self, *, dtype? dtype=None, device? device=None) -> Tensor")
        .memory_format()
        .doc("Without values, in self's shape and strides.")
        .surface(Surface::function)
        .uninitialized()
        .batched(vmaps::elementwise)
        .infer(infer_like<1>)
        .lower([](const Call&, std::span<const Tensor>, prim::Primitives&) {})
        .grad(no_gradient)
        .no_grad_outputs(1);

const OpRecord& zeros_like_op =
    define("zeros_like(Tensor self, *, dtype? dtype=None, device? device=None) -> Tensor")
        .sparse_layout()
        .memory_format()
        .doc("Zeros in self's shape and strides.")
        .surface(Surface::function)
        .batched(vmaps::elementwise)
        .infer(infer_like<1>)
        .lower(filled<0>)
        .grad(no_gradient)
        .no_grad_outputs(1)
        .dtypes(kAllDTypes);

const OpRecord& ones_like_op =
    define("ones_like(Tensor self, *, dtype? dtype=None, device? device=None) -> Tensor")
        .memory_format()
        .doc("Ones in self's shape and strides.")
        .surface(Surface::function)
        .batched(vmaps::elementwise)
        .infer(infer_like<1>)
        .lower(filled<1>)
        .grad(no_gradient)
        .no_grad_outputs(1)
        .dtypes(kAllDTypes);

const OpRecord& full_like_op =
    define(
        "full_like(Tensor self, Scalar fill_value, *, dtype? dtype=None, device? device=None) -> "
        "Tensor")
        .memory_format()
        .doc("All fill_value in self's shape and strides.")
        .surface(Surface::function)
        .batched(vmaps::elementwise)
        .infer(infer_like<2>)
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          fill(p, out[0], c.scalar(1), c.name());
        })
        .grad(no_gradient)
        .no_grad_outputs(1);

// ---- ranges

struct Range {
  DType dtype;
  int64_t count;
};

Range arange_range(const Call& c) {
  const Scalar start = c.scalar(0), end = c.scalar(1), step = c.scalar(2);
  const bool integers = start.is_integral() && end.is_integral() && step.is_integral();
  const DType dtype = c.has(3) ? c[3].dtype() : integers ? kInt64 : default_dtype();
  ARETE_CHECK(!is_complex(dtype) && dtype != kBool,
              NotImplementedError(c.name(), "\"arange\" not implemented for '" +
                                                std::string(name_of(dtype)) + "'"));
  const auto wrong_sign = [&] {
    return ValueError(c.name(), "upper bound and lower bound inconsistent with step sign")
        .got("start " + start.to_string() + ", end " + end.to_string() + ", step " +
             step.to_string());
  };
  const ValueError zero_step = ValueError(c.name(), "step must be nonzero").argument("step");
  // As in PyTorch: of int64 numbers without their fractions are counted, of others those with them.
  if (is_integer(dtype) && (integers || dtype == kInt64)) {
    const int64_t a = start.to_int64(), b = end.to_int64(), s = step.to_int64();
    ARETE_CHECK(s != 0, zero_step);
    ARETE_CHECK(s > 0 ? b >= a : b <= a, wrong_sign());
    // In unsigned arithmetic, so that no pair of bounds overflows.
    const uint64_t span = s > 0 ? uint64_t(b) - uint64_t(a) : uint64_t(a) - uint64_t(b);
    const uint64_t width = s > 0 ? uint64_t(s) : 0 - uint64_t(s);
    return {dtype, int64_t(span / width + (span % width != 0))};
  }
  const double a = start.to_double(), b = end.to_double(), s = step.to_double();
  ARETE_CHECK(s != 0, zero_step);
  ARETE_CHECK(
      std::isfinite(a) && std::isfinite(b),
      ValueError(c.name(), "unsupported range: " + start.to_string() + " -> " + end.to_string()));
  ARETE_CHECK(s > 0 ? b >= a : b <= a, wrong_sign());
  const double count = std::ceil((b - a) / s);
  ARETE_CHECK(count < 9e18, ValueError(c.name(), "invalid size, possible overflow?"));
  return {dtype, int64_t(count)};
}

const OpRecord& arange_op =
    define(
        "arange.start(Scalar start, Scalar end, Scalar step=1, *, dtype? dtype=None, device? "
        "device=None) -> Tensor")
        .face("arange(Scalar end, *, Scalar start=0, dtype? dtype=None, device? device=None)")
        .doc("start, start + step, ... below end.")
        .keeps_out_shape()
        .infer([](const Call& c, OutputSpecs& out) {
          const Range r = arange_range(c);
          out.push_back({Shape{r.count}, r.dtype, {}, device_or_cpu(c[4])});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Scalar start = c.scalar(0), step = c.scalar(2);
          p.iota({view_of(out[0]), start.to_double(), step.to_double(), start.to_int64(),
                  step.to_int64()});
        });

// start to end by `steps` equal steps into `out`, exact at both ends: the upper half counts down
// from the end.
void lower_linspace(prim::Primitives& p, const prim::View& out, double start, double end) {
  const int64_t n = out.sizes[0];
  const double step = n > 1 ? (end - start) / double(n - 1) : 0;
  const int64_t half = n > 1 ? n / 2 : n;
  const int64_t stride = out.strides.empty() ? 1 : out.strides[0], backward = -stride;
  const int64_t rest = n - half;
  prim::View low = out, high = out;
  low.sizes = IntList(&half, 1);
  p.iota({low, start, step});
  if (rest == 0) return;
  high.data += (n - 1) * stride * int64_t(size_of(out.dtype));
  high.sizes = IntList(&rest, 1);
  high.strides = IntList(&backward, 1);
  p.iota({high, end, -step});
}

// For integers the ends are whole numbers, too.
double end_value(const Scalar& s, DType t) {
  return is_floating(t) ? s.to_double() : std::trunc(s.to_double());
}

void infer_steps(const Call& c, OutputSpecs& out, size_t dtype_position) {
  ARETE_CHECK(c.integer(2) >= 0, ValueError(c.name(), "number of steps must be non-negative")
                                     .argument("steps")
                                     .got(std::to_string(c.integer(2))));
  const DType dtype = dtype_or_default(c[dtype_position]);
  ARETE_CHECK(
      !is_complex(dtype) && dtype != kBool,
      NotImplementedError(c.name(), "\"" + std::string(c.name()) + "\" not implemented for '" +
                                        std::string(name_of(dtype)) + "'"));
  out.push_back({Shape{c.integer(2)}, dtype, {}, device_or_cpu(c[dtype_position + 1])});
}

const OpRecord& linspace_op =
    define(
        "linspace(Scalar start, Scalar end, int steps, *, dtype? dtype=None, device? "
        "device=None) -> Tensor")
        .doc("steps values at equal distances from start to end, both included.")
        .keeps_out_shape()
        .infer([](const Call& c, OutputSpecs& out) { infer_steps(c, out, 3); })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          for (size_t i : {0, 1}) check_holds(out[0].dtype(), c.scalar(i), c.name());
          const double a = end_value(c.scalar(0), out[0].dtype()),
                       b = end_value(c.scalar(1), out[0].dtype());
          if (is_floating(out[0].dtype())) return lower_linspace(p, view_of(out[0]), a, b);
          const prim::ScratchView exact(p, kFloat64, out[0].sizes());
          lower_linspace(p, exact, a, b);
          p.copy({view_of(out[0]), exact});
        });

const OpRecord& logspace_op =
    define(
        "logspace(Scalar start, Scalar end, int steps, float base=10.0, *, dtype? dtype=None, "
        "device? device=None) -> Tensor")
        .doc("base to the power of steps equally distant values from start to end.")
        .keeps_out_shape()
        .infer([](const Call& c, OutputSpecs& out) { infer_steps(c, out, 4); })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const prim::ScratchView exponent(p, kFloat64, out[0].sizes());
          const DType t = out[0].dtype();
          lower_linspace(p, exponent, end_value(c.scalar(0), t), end_value(c.scalar(1), t));
          static auto& cache = *new expr::ProgramCache;
          const expr::Program& program =
              cache.get(uint64_t(t), {kFloat64}, {expr::Type::f64}, {t},
                        [to = expr::compute_type(t)](std::span<const expr::Value> v) {
                          return std::vector{expr::cast(expr::pow(v[1], v[0]), to)};
                        });
          expr::Literal base;
          base.f = c.real(3);
          const prim::View in = exponent, to = view_of(out[0]);
          p.pointwise({&program, {&in, 1}, {&to, 1}, {&base, 1}});
        });

const OpRecord& eye_op =
    define("eye(int n, int? m=None, *, dtype? dtype=None, device? device=None) -> Tensor")
        .doc("Ones on the diagonal, zeros elsewhere.")
        .infer([](const Call& c, OutputSpecs& out) {
          const int64_t n = c.integer(0), m = c.has(1) ? c.integer(1) : n;
          ARETE_CHECK(n >= 0, ValueError(c.name(), "n must be greater or equal to 0, got " +
                                                       std::to_string(n)));
          ARETE_CHECK(m >= 0, ValueError(c.name(), "m must be greater or equal to 0, got " +
                                                       std::to_string(m)));
          numel_of({n, m});
          out.push_back({Shape{n, m}, dtype_or_default(c[2]), {}, device_or_cpu(c[3])});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          fill(p, out[0], Scalar(0), c.name());
          fill(p, alias(out[0], diagonal(out[0].layout(), 0, 0, 1)), Scalar(1), c.name());
        });

}  // namespace
}  // namespace ops

namespace {
Tensor finish(Tensor t, const TensorOptions& o) {
  if (o.requires_grad_) t.requires_grad_(true);
  return t;
}
}  // namespace

Tensor empty(IntList sizes, const TensorOptions& o) {
  return finish(ops::call(ops::empty_op, {sizes, o.dtype_, o.device_}), o);
}
Tensor empty_strided(IntList sizes, IntList strides, const TensorOptions& o) {
  return finish(ops::call(ops::empty_strided_op, {sizes, strides, o.dtype_, o.device_}), o);
}
Tensor zeros(IntList sizes, const TensorOptions& o) {
  return finish(ops::call(ops::zeros_op, {sizes, o.dtype_, o.device_}), o);
}
Tensor ones(IntList sizes, const TensorOptions& o) {
  return finish(ops::call(ops::ones_op, {sizes, o.dtype_, o.device_}), o);
}
Tensor full(IntList sizes, Scalar value, const TensorOptions& o) {
  return finish(ops::call(ops::full_op, {sizes, value, o.dtype_, o.device_}), o);
}
Tensor empty_like(const Tensor& self, std::optional<DType> dtype, std::optional<Device> device) {
  return ops::call(ops::empty_like_op, {self, dtype, device});
}
Tensor zeros_like(const Tensor& self, std::optional<DType> dtype, std::optional<Device> device) {
  return ops::call(ops::zeros_like_op, {self, dtype, device});
}
Tensor ones_like(const Tensor& self, std::optional<DType> dtype, std::optional<Device> device) {
  return ops::call(ops::ones_like_op, {self, dtype, device});
}
Tensor full_like(const Tensor& self, Scalar value, std::optional<DType> dtype,
                 std::optional<Device> device) {
  return ops::call(ops::full_like_op, {self, value, dtype, device});
}
Tensor arange(Scalar end, const TensorOptions& o) { return arange(0, end, 1, o); }
Tensor arange(Scalar start, Scalar end, const TensorOptions& o) { return arange(start, end, 1, o); }
Tensor arange(Scalar start, Scalar end, Scalar step, const TensorOptions& o) {
  return finish(ops::call(ops::arange_op, {start, end, step, o.dtype_, o.device_}), o);
}
Tensor linspace(Scalar start, Scalar end, int64_t steps, const TensorOptions& o) {
  return finish(ops::call(ops::linspace_op, {start, end, steps, o.dtype_, o.device_}), o);
}
Tensor logspace(Scalar start, Scalar end, int64_t steps, double base, const TensorOptions& o) {
  return finish(ops::call(ops::logspace_op, {start, end, steps, base, o.dtype_, o.device_}), o);
}
Tensor eye(int64_t n, const TensorOptions& o) {
  return finish(ops::call(ops::eye_op, {n, std::nullopt, o.dtype_, o.device_}), o);
}
Tensor eye(int64_t n, int64_t m, const TensorOptions& o) {
  return finish(ops::call(ops::eye_op, {n, m, o.dtype_, o.device_}), o);
}

}  // namespace arete

ARETE_FAMILY(creation)
