// Discrete Fourier transforms: torch.fft's functions in terms of the transform of fft_core.cpp.
#include "arete/ops/fft.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "arete/expr/program_cache.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/count_positions.h"
#include "arete/ops/creation.h"
#include "arete/ops/fft_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

// Real or complex on either side: the real sides of "half" transforms have n points and their
// complex sides n / 2 + 1.
enum class Kind : uint8_t { complex, to_half, from_half };

std::string_view norm_of(const Call& c, size_t i) {
  const std::string_view norm = c.has(i) ? c[i].string() : "backward";
  ARETE_CHECK(norm == "backward" || norm == "forward" || norm == "ortho",
              ValueError(c.name(), "Invalid normalization mode: \"" + std::string(norm) + "\"")
                  .argument("norm")
                  .expected("\"backward\", \"ortho\" or \"forward\""));
  return norm;
}
double scale_of(std::string_view norm, bool forward, double points) {
  if (norm == "ortho") return 1 / std::sqrt(points);
  return (norm == "forward") == forward ? 1 / points : 1;
}

// Over which dimensions, in order, and how many points each has.
struct Axes {
  Shape dims, points;
  double all_points() const { return double(numel_of(points)); }
};
int64_t points_of(const Call& c, std::optional<int64_t> wanted, int64_t size) {
  const int64_t n = wanted && *wanted != -1 ? *wanted : size;
  ARETE_CHECK(n >= 1, ValueError(c.name(), "Invalid number of data points (" + std::to_string(n) +
                                               ") specified"));
  return n;
}
// `kind` says how the size of the last dimension counts.
int64_t default_points(const Tensor& x, int64_t dim, bool last, Kind kind) {
  const int64_t n = x.size(dim);
  return last && kind == Kind::from_half ? 2 * (n - 1) : n;
}

// Arguments (self, int? n, int dim, str? norm).
Axes one_axis(const Call& c, Kind kind) {
  const Tensor& x = c.tensor(0);
  ARETE_CHECK(x.dim() > 0,
              IndexError(c.name(), "Dimension specified as " + std::to_string(c.integer(2)) +
                                       " but tensor has no dimensions"));
  const int64_t dim = normalize_dim(c.integer(2), int(x.dim()), c.name());
  const int64_t n = points_of(c, c.has(1) ? std::optional(c.integer(1)) : std::nullopt,
                              default_points(x, dim, true, kind));
  ARETE_CHECK(c.integer(1) != -1 || !c.has(1),
              ValueError(c.name(), "Invalid number of data points (-1) specified"));
  return {{dim}, {n}};
}
// Arguments (self, int[]? s, int[]? dim, str? norm).
Axes many_axes(const Call& c, Kind kind) {
  const Tensor& x = c.tensor(0);
  Axes a;
  const bool has_s = c.has(1), has_dim = c.has(2);
  if (has_dim) {
    for (int64_t d : c.ints(2)) a.dims.push_back(normalize_dim(d, int(x.dim()), c.name()));
    for (size_t i = 0; i < a.dims.size(); ++i)
      ARETE_CHECK(std::find(a.dims.begin(), a.dims.begin() + i, a.dims[i]) == a.dims.begin() + i,
                  ValueError(c.name(), "FFT dims must be unique").got(to_string(c.ints(2))));
    ARETE_CHECK(
        !has_s || c.ints(1).size() == a.dims.size(),
        ValueError(c.name(), "When given, dim and shape arguments must have the same length")
            .got(to_string(c.ints(1)) + " and " + to_string(c.ints(2))));
  } else {
    const int64_t count = has_s ? int64_t(c.ints(1).size()) : x.dim();
    ARETE_CHECK(count <= x.dim(),
                ValueError(c.name(), "Got shape with " + std::to_string(count) +
                                         " values but input tensor only has " +
                                         std::to_string(x.dim()) + " dimensions."));
    for (int64_t d = x.dim() - count; d < x.dim(); ++d) a.dims.push_back(d);
  }
  ARETE_CHECK(kind == Kind::complex || !a.dims.empty(),
              ValueError(c.name(), std::string(c.name()) + " must transform at least one axis"));
  for (size_t i = 0; i < a.dims.size(); ++i)
    a.points.push_back(points_of(c, has_s ? std::optional(c.ints(1)[i]) : std::nullopt,
                                 default_points(x, a.dims[i], i + 1 == a.dims.size(), kind)));
  return a;
}

Tensor run(const Call& c, Kind kind, bool forward, const Axes& axes) {
  const double scale = scale_of(norm_of(c, 3), forward, axes.all_points());
  Tensor x = c.tensor(0);
  ARETE_CHECK(x.dtype() == kFloat32 || x.dtype() == kFloat64 || is_complex(x.dtype()) ||
                  is_integral_or_bool(x.dtype()),
              TypeError(c.name(), "Unsupported dtype " + std::string(name_of(x.dtype())))
                  .expected("float32, float64, complex or integers"));
  const std::string name(std::string_view(c.name()).substr(4));  // without "fft_"
  ARETE_CHECK(kind != Kind::to_half || !is_complex(x.dtype()),
              TypeError(c.name(), name + " expects a real input tensor, but got " +
                                      std::string(name_of(x.dtype()))));
  if (is_integral_or_bool(x.dtype())) x = x.to(default_dtype());
  if (axes.dims.empty()) return is_complex(x.dtype()) ? x.clone() : x.to(complex_of(x.dtype()));
  FourierKind which = FourierKind::complex;
  if (kind == Kind::to_half) {
    which = FourierKind::to_half;
  } else if (kind == Kind::from_half) {
    which = FourierKind::from_half;
    if (!is_complex(x.dtype())) {
      // No more of it becomes complex than is read.
      for (size_t i = 0; i < axes.dims.size(); ++i) {
        const int64_t n = axes.points[i], read = i + 1 < axes.dims.size() ? n : n / 2 + 1;
        if (read < x.size(axes.dims[i])) x = x.narrow(axes.dims[i], 0, read);
      }
      x = x.to(complex_of(x.dtype()));
    }
  } else if (!is_complex(x.dtype())) {
    which = FourierKind::from_real;
  }
  return fourier_transform(x, which, axes.dims, axes.points, forward, scale);
}

// ---- records ----

std::vector<DType> dtypes_of(Kind kind) {
  if (kind == Kind::to_half) return {kFloat32, kFloat64};
  return {kFloat32, kFloat64, kComplex64, kComplex128};
}

template <Kind kind, bool forward>
const OpRecord& define_one(const char* schema, const char* doc) {
  return define(schema)
      .autocast(autocast_on_cpu(Autocast::f32))
      .doc(doc)
      .compose([](const Call& c) -> Results { return {run(c, kind, forward, one_axis(c, kind))}; })
      .dtypes(dtypes_of(kind));
}

template <Kind kind, bool forward>
const OpRecord& define_many(const char* schema, const char* doc) {
  return define(schema)
      .autocast(autocast_on_cpu(Autocast::f32))
      .doc(doc)
      .compose([](const Call& c) -> Results { return {run(c, kind, forward, many_axes(c, kind))}; })
      .dtypes(dtypes_of(kind));
}

// One function in its three forms.
struct Forms {
  const OpRecord &one, &two, &many;
};
#define ARETE_FFT(name, kind, forward, doc)                                                       \
  const Forms name##_ops{                                                                         \
      define_one<kind, forward>("fft_" #name                                                      \
                                "(Tensor self, int? n=None, int dim=-1, str? norm=None)"          \
                                " -> Tensor",                                                     \
                                doc "."),                                                         \
      define_many<kind, forward>("fft_" #name                                                     \
                                 "2(Tensor self, int[]? s=None, int[]? dim=[-2,-1], str? "        \
                                 "norm=None) -> Tensor",                                          \
                                 doc ", over two dimensions."),                                   \
      define_many<kind, forward>("fft_" #name                                                     \
                                 "n(Tensor self, int[]? s=None, int[]? dim=None, str? norm=None)" \
                                 " -> Tensor",                                                    \
                                 doc ", over several dimensions.")};
ARETE_FFT(fft, Kind::complex, true, "Fourier transform")
ARETE_FFT(ifft, Kind::complex, false, "Inverse Fourier transform")
ARETE_FFT(rfft, Kind::to_half, true, "First half of the Fourier transform of real numbers")
ARETE_FFT(irfft, Kind::from_half, false, "Inverse of rfft, real")
ARETE_FFT(hfft, Kind::from_half, true,
          "Fourier transform, real, of the first half of a conjugate symmetric signal")
ARETE_FFT(ihfft, Kind::to_half, false, "Inverse of hfft")
#undef ARETE_FFT

// ---- frequencies and shifts ----

// Arguments from 0: n, d, dtype, device.
template <bool half>
void infer_frequencies(const Call& c, OutputSpecs& out) {
  const int64_t n = c.integer(0);
  ARETE_CHECK(n > 0 || (n == 0 && !half),
              ValueError(c.name(), "expected a positive number of samples")
                  .argument("n")
                  .got(std::to_string(n)));
  const DType dtype = c.has(2) ? c[2].dtype() : default_dtype();
  ARETE_CHECK(is_floating(dtype),
              TypeError(c.name(), std::string(c.name()) + " requires a floating point dtype")
                  .got(std::string(name_of(dtype))));
  out.push_back({Shape{half ? n / 2 + 1 : n}, dtype, {}, c.has(3) ? c[3].device() : kCPU});
}
template <bool half>
void lower_frequencies(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  const prim::View y = view_of(out[0]);
  const int64_t n = c.integer(0), all = out[0].numel(), positive = half ? all : (n + 1) / 2;
  if (all == 0) return;
  static auto& cache = *new expr::ProgramCache;
  // 0, 1, ..., positive - 1, and then those below zero, -1 being the last.
  const expr::Literal params[] = {
      {.f = double(positive)}, {.f = double(all)}, {.f = 1 / (double(n) * c.real(1))}};
  const expr::Program& program =
      cache.get(uint64_t(y.dtype), {kCountedDType, kCountedDType}, std::vector(3, expr::Type::f64),
                {y.dtype}, [](std::span<const expr::Value> v) {
                  const expr::Value k = counted_position(v, expr::Type::f64);
                  return std::vector{where(k < v[2], k, k - v[3]) * v[4]};
                });
  count_positions(p, all, [&](std::span<const prim::View> at, Stretch& stretch) {
    const prim::View part = stretch.of(y);
    p.pointwise({.program = &program, .inputs = at, .outputs = {&part, 1}, .params = params});
  });
}

const OpRecord& fftfreq_op =
    define("fft_fftfreq(int n, float d=1.0, *, dtype? dtype=None, device? device=None) -> Tensor")
        .doc("The frequencies of the results of fft for samples at distance d.")
        .infer(infer_frequencies<false>)
        .lower(lower_frequencies<false>);
const OpRecord& rfftfreq_op =
    define("fft_rfftfreq(int n, float d=1.0, *, dtype? dtype=None, device? device=None) -> Tensor")
        .doc("The frequencies of the results of rfft for samples at distance d.")
        .infer(infer_frequencies<true>)
        .lower(lower_frequencies<true>);

// By half of each dimension, rounded down (back: up).
int64_t shift_of(int64_t n, bool back) { return back ? (n + 1) / 2 : n / 2; }
Shape shifted_dims(const Call& c) {
  const Tensor& x = c.tensor(0);
  Shape dims;
  if (c.has(1))
    for (int64_t d : c.ints(1)) dims.push_back(normalize_dim(d, int(x.dim()), c.name()));
  else
    for (int64_t d = 0; d < x.dim(); ++d) dims.push_back(d);
  return dims;
}
template <bool back>
const OpRecord& define_shift(const char* schema) {
  return define(schema)
      .doc(back ? "Undoes fftshift." : "Moves the frequency 0 to the middle.")
      .compose([](const Call& c) -> Results {
        const Tensor& x = c.tensor(0);
        const Shape dims = shifted_dims(c);
        if (dims.empty()) return {x.clone()};
        Shape shifts;
        for (int64_t d : dims) shifts.push_back(shift_of(x.size(d), back));
        return {x.roll(shifts, dims)};
      })
      .dtypes({kFloat32, kFloat64, kInt64, kComplex64});
}
const OpRecord& fftshift_op =
    define_shift<false>("fft_fftshift(Tensor self, int[]? dim=None) -> Tensor");
const OpRecord& ifftshift_op =
    define_shift<true>("fft_ifftshift(Tensor self, int[]? dim=None) -> Tensor");

Tensor call_many(const OpRecord& op, const Tensor& self, const fft::Lengths& s,
                 const fft::Lengths& dim, std::optional<std::string_view> norm) {
  return call(op, {self, s ? Arg(IntList(*s)) : Arg(), dim ? Arg(IntList(*dim)) : Arg(), norm});
}

}  // namespace
}  // namespace ops

namespace fft {

#define ARETE_FFT(name)                                                    \
  Tensor name(const Tensor& self, std::optional<int64_t> n, int64_t dim,   \
              std::optional<std::string_view> norm) {                      \
    return ops::call(ops::name##_ops.one, {self, n, dim, norm});           \
  }                                                                        \
  Tensor name##2(const Tensor& self, const Lengths& s, const Lengths& dim, \
                 std::optional<std::string_view> norm) {                   \
    return ops::call_many(ops::name##_ops.two, self, s, dim, norm);        \
  }                                                                        \
  Tensor name##n(const Tensor& self, const Lengths& s, const Lengths& dim, \
                 std::optional<std::string_view> norm) {                   \
    return ops::call_many(ops::name##_ops.many, self, s, dim, norm);       \
  }
ARETE_FFT(fft)
ARETE_FFT(ifft)
ARETE_FFT(rfft)
ARETE_FFT(irfft)
ARETE_FFT(hfft)
ARETE_FFT(ihfft)
#undef ARETE_FFT

Tensor fftfreq(int64_t n, double d, const TensorOptions& options) {
  const Tensor t = ops::call(ops::fftfreq_op, {n, d, options.dtype_, options.device_});
  if (options.requires_grad_) Tensor(t).requires_grad_();
  return t;
}
Tensor rfftfreq(int64_t n, double d, const TensorOptions& options) {
  const Tensor t = ops::call(ops::rfftfreq_op, {n, d, options.dtype_, options.device_});
  if (options.requires_grad_) Tensor(t).requires_grad_();
  return t;
}
Tensor fftshift(const Tensor& self, const Lengths& dim) {
  return ops::call(ops::fftshift_op, {self, dim ? ops::Arg(IntList(*dim)) : ops::Arg()});
}
Tensor ifftshift(const Tensor& self, const Lengths& dim) {
  return ops::call(ops::ifftshift_op, {self, dim ? ops::Arg(IntList(*dim)) : ops::Arg()});
}

}  // namespace fft
}  // namespace arete

ARETE_FAMILY(fft)
