// interpolate (declared in nn.h): one dimension after the other, each as a weighted sum of a few
// picks of its elements.
#include <algorithm>
#include <cmath>

#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index_util.h"
#include "arete/ops/nn.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/pool.h"
#include "arete/ops/resample_filter.h"

namespace arete {
namespace ops {
namespace {

enum class Mode : uint8_t { nearest, nearest_exact, linear, cubic, area };

struct ModeInfo {
  std::string_view name;
  Mode mode;
  int spatial;  // 0: any
};
constexpr ModeInfo kModes[] = {
    {"nearest", Mode::nearest, 0},  {"nearest-exact", Mode::nearest_exact, 0},
    {"linear", Mode::linear, 1},    {"bilinear", Mode::linear, 2},
    {"trilinear", Mode::linear, 3}, {"bicubic", Mode::cubic, 2},
    {"area", Mode::area, 0}};

ModeInfo mode_of(const char* op, std::string_view name) {
  for (const ModeInfo& m : kModes)
    if (m.name == name) return m;
  throw ValueError(op, "mode '" + std::string(name) + "' is not known")
      .argument("mode")
      .expected("nearest, nearest-exact, linear, bilinear, trilinear, bicubic or area");
}

// Where the elements of one output dimension come from: `taps` picks each, with weights.
struct Taps {
  std::vector<std::vector<int64_t>> index;  // by tap
  std::vector<std::vector<double>> weight;
};

// `scale`: input elements per output element.
Taps make_taps(Mode mode, int64_t n, int64_t out, double scale, bool align) {
  Taps t;
  const int taps = mode == Mode::cubic ? 4 : mode == Mode::linear ? 2 : 1;
  t.index.resize(size_t(taps));
  t.weight.resize(size_t(taps));
  if (align) scale = out > 1 ? double(n - 1) / double(out - 1) : 0;
  for (int64_t i = 0; i < out; ++i) {
    if (taps == 1) {
      const double x = mode == Mode::nearest ? double(i) * scale : (double(i) + 0.5) * scale;
      // A quotient that should be whole may come out just below it.
      t.index[0].push_back(std::clamp<int64_t>(int64_t(std::floor(x + 1e-9)), 0, n - 1));
      t.weight[0].push_back(1);
      continue;
    }
    double x = align ? double(i) * scale : (double(i) + 0.5) * scale - 0.5;
    if (mode == Mode::linear) x = std::max(x, 0.0);
    const int64_t base = int64_t(std::floor(x)) - (mode == Mode::cubic ? 1 : 0);
    for (int k = 0; k < taps; ++k) {
      const double distance = x - double(base + k);
      t.index[size_t(k)].push_back(std::clamp<int64_t>(base + k, 0, n - 1));
      t.weight[size_t(k)].push_back(mode == Mode::cubic ? cubic_weight(distance, -0.75)
                                                        : 1 - std::fabs(distance));
    }
  }
  return t;
}

// The same for antialias.
Taps make_wide_taps(Mode mode, int64_t n, int64_t out, double scale, bool align) {
  if (align) scale = out > 1 ? double(n - 1) / double(out - 1) : 0;
  const ResampleFilter f = make_resample_filter(
      mode == Mode::cubic ? FilterShape::cubic : FilterShape::triangle, n, out, scale);
  const auto taps = size_t(f.taps);
  Taps t{std::vector(taps, std::vector<int64_t>(size_t(out))),
         std::vector(taps, std::vector<double>(size_t(out)))};
  for (size_t i = 0; i < size_t(out); ++i)
    for (size_t k = 0; k < taps; ++k) {
      t.index[k][i] = std::min(f.begin[i] + int64_t(k), n - 1);
      t.weight[k][i] = f.weights[i * taps + k];
    }
  return t;
}

Tensor resample(const Tensor& x, int64_t dim, const Taps& taps) {
  const int64_t out = int64_t(taps.index[0].size());
  Shape along(size_t(x.dim() - dim), 1);
  along[0] = out;
  Tensor sum;
  for (size_t k = 0; k < taps.index.size(); ++k) {
    const Tensor index =
        tensor_from_host(taps.index[k].data(), kInt64, {out}, TensorOptions(kInt64, x.device()));
    const Tensor picked = ordered_select(x, dim, index);
    if (taps.index.size() == 1) return picked;
    const Tensor w = tensor_from_host(taps.weight[k].data(), kFloat64, {out},
                                      TensorOptions(x.dtype(), x.device()))
                         .view(along);
    sum = sum.defined() ? addcmul(sum, picked, w) : picked.mul(w);
  }
  return sum;
}

struct Plan {
  ModeInfo mode;
  Shape sizes;
  std::vector<double> scales;  // input elements per output element
};

Plan plan_of(const char* op, const Tensor& x, std::optional<IntList> size,
             std::span<const double> factors, std::string_view mode_name, bool align,
             bool recompute, bool antialias) {
  Plan p{mode_of(op, mode_name), {}, {}};
  const int spatial = int(x.dim()) - 2;
  ARETE_CHECK(
      spatial >= 1 && spatial <= 3,
      NotImplementedError(op, "Input Error: Only 3D, 4D and 5D input Tensors supported (got " +
                                  std::to_string(x.dim()) +
                                  "D) for the modes: nearest | linear | bilinear | "
                                  "bicubic | trilinear | area | nearest-exact (got " +
                                  std::string(mode_name) + ")"));
  ARETE_CHECK(p.mode.spatial == 0 || p.mode.spatial == spatial,
              NotImplementedError(op, "Got " + std::to_string(x.dim()) + "D input, but " +
                                          std::string(mode_name) + " mode needs " +
                                          std::to_string(p.mode.spatial + 2) + "D input"));
  ARETE_CHECK(
      !align || p.mode.mode == Mode::linear || p.mode.mode == Mode::cubic,
      ValueError(
          op,
          "align_corners option can only be set with the interpolating modes: linear | bilinear | "
          "bicubic | trilinear"));
  ARETE_CHECK(
      !antialias || (spatial == 2 && (p.mode.mode == Mode::linear || p.mode.mode == Mode::cubic)),
      ValueError(op,
                 "Anti-alias option is restricted to bilinear and bicubic modes and "
                 "requires a 4-D tensor as input")
          .argument("antialias"));
  ARETE_CHECK(!(size && !factors.empty()),
              ValueError(op, "only one of size or scale_factor should be defined"));
  ARETE_CHECK(size || !factors.empty(),
              ValueError(op, "either size or scale_factor should be defined"));
  ARETE_CHECK(
      is_floating(x.dtype()) || p.mode.mode == Mode::nearest || p.mode.mode == Mode::nearest_exact,
      TypeError(op, "interpolating modes need a floating dtype").got(describe(x)));
  for (int d = 0; d < spatial; ++d) {
    const int64_t n = x.size(d + 2);
    ARETE_CHECK(n > 0,
                ValueError(op, "Input and output sizes should be greater than 0").got(describe(x)));
    if (size) {
      ARETE_CHECK(size->size() == 1 || int(size->size()) == spatial,
                  ValueError(op,
                             "Input and output must have the same number of spatial dimensions, "
                             "but got input with "
                             "spatial dimensions of " +
                                 to_string(x.sizes().subspan(2)) + " and output size of " +
                                 to_string(*size)));
      p.sizes.push_back((*size)[size->size() == 1 ? 0 : size_t(d)]);
      p.scales.push_back(double(n) / double(std::max<int64_t>(p.sizes.back(), 1)));
    } else {
      ARETE_CHECK(
          factors.size() == 1 || int(factors.size()) == spatial,
          ValueError(op, "scale_factor needs one number, or one for each spatial dimension"));
      const double f = factors[factors.size() == 1 ? 0 : size_t(d)];
      ARETE_CHECK(f > 0, ValueError(op, "scale_factor must be positive").got(std::to_string(f)));
      p.sizes.push_back(int64_t(std::floor(double(n) * f)));
      p.scales.push_back(recompute ? double(n) / double(std::max<int64_t>(p.sizes.back(), 1))
                                   : 1 / f);
    }
    ARETE_CHECK(
        p.sizes.back() > 0,
        ValueError(op, "Input and output sizes should be greater than 0, but got input " +
                           to_string(x.sizes().subspan(2)) + " and output " + to_string(p.sizes)));
  }
  return p;
}

Tensor run_plan(const Tensor& x, const Plan& p, bool align, bool antialias) {
  const int spatial = int(p.sizes.size());
  if (p.mode.mode == Mode::area) {
    if (spatial == 1) return adaptive_avg_pool1d(x, p.sizes);
    return spatial == 2 ? adaptive_avg_pool2d(x, p.sizes) : adaptive_avg_pool3d(x, p.sizes);
  }
  Tensor y = x;
  for (int d = 0; d < spatial; ++d) {
    const int64_t n = x.size(d + 2), out = p.sizes[size_t(d)];
    if (n == out && (align || p.scales[size_t(d)] == 1)) continue;
    const auto make = antialias ? make_wide_taps : make_taps;
    y = resample(y, d + 2, make(p.mode.mode, n, out, p.scales[size_t(d)], align));
  }
  return y;
}

bool flag(const Call& c, size_t i) { return c.has(i) && c.boolean(i); }
// Arguments 1 and 2 of a call: size and scale_factor.
Tensor resized(const Call& c, std::string_view mode, bool align, bool recompute,
               bool antialias = false) {
  const Plan p =
      plan_of(c.name(), c.tensor(0), c.has(1) ? std::optional(c.ints(1)) : std::nullopt,
              c.has(2) ? c.reals(2) : std::span<const double>(), mode, align, recompute, antialias);
  return run_plan(c.tensor(0), p, align, antialias);
}

const OpRecord& interpolate_op =
    define(
        "interpolate(Tensor input, int[]? size=None, float[]? scale_factor=None, str "
        "mode=\"nearest\", bool? align_corners=None, bool? recompute_scale_factor=None, bool "
        "antialias=False) -> Tensor")
        .autocast(autocast_by_device(Autocast::as_is, Autocast::f32))
        .doc("Resizes the spatial dimensions to a size or by factors.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          ARETE_CHECK(!(flag(c, 5) && c.has(1)),
                      ValueError(c.name(),
                                 "recompute_scale_factor is not meaningful with an "
                                 "explicit size."));
          return {resized(c, c[3].string(), flag(c, 4), flag(c, 5), c.boolean(6))};
        });

// The names of old.
template <bool bilinear>
const OpRecord& define_upsample(const char* schema) {
  return define(schema)
      .autocast(autocast_by_device(Autocast::as_is, Autocast::f32))
      .doc(bilinear ? "interpolate with mode \"bilinear\" and align_corners."
                    : "interpolate with mode \"nearest\".")
      .surface(Surface::functional)
      .compose([](const Call& c) -> Results {
        return {resized(c, bilinear ? "bilinear" : "nearest", bilinear, false)};
      });
}
const OpRecord* const upsample_ops[] = {
    &define_upsample<false>(
        "upsample_nearest(Tensor input, int[]? size=None, float[]? scale_factor=None) -> Tensor"),
    &define_upsample<true>(
        "upsample_bilinear(Tensor input, int[]? size=None, float[]? scale_factor=None) -> Tensor")};

}  // namespace
}  // namespace ops

Tensor interpolate(const Tensor& input, std::optional<Extent> size,
                   const std::vector<double>& scale_factor, std::string_view mode,
                   bool align_corners, bool antialias) {
  const std::optional<IntList> sizes = size ? std::optional<IntList>(IntList(*size)) : std::nullopt;
  return ops::call(ops::interpolate_op,
                   {input, sizes, scale_factor.empty() ? ops::Arg() : ops::Arg(scale_factor), mode,
                    align_corners, std::nullopt, antialias});
}

}  // namespace arete

ARETE_FAMILY(interpolate)
