// Sampling images at given positions, and the positions of affine maps (declared in nn.h).
#include <algorithm>
#include <array>
#include <cmath>

#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/matmul.h"
#include "arete/ops/nn.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reference_util.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

enum class Mode : uint8_t { bilinear, nearest, bicubic };
enum class Outside : uint8_t { zeros, border, reflection };

Mode mode_of(const Call& c) {
  const std::string_view m = c[2].string();
  ARETE_CHECK(m == "bilinear" || m == "nearest" || m == "bicubic",
              ValueError(c.name(),
                         "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' "
                         "or 'bicubic', but got: '" +
                             std::string(m) + "'"));
  return m == "nearest" ? Mode::nearest : m == "bicubic" ? Mode::bicubic : Mode::bilinear;
}
Outside outside_of(const Call& c) {
  const std::string_view m = c[3].string();
  ARETE_CHECK(m == "zeros" || m == "border" || m == "reflection",
              ValueError(c.name(),
                         "nn.functional.grid_sample(): expected padding_mode to be 'zeros', "
                         "'border', or 'reflection', but got: '" +
                             std::string(m) + "'"));
  return m == "border" ? Outside::border : m == "reflection" ? Outside::reflection : Outside::zeros;
}
bool flag(const Call& c, size_t i) { return c.has(i) && c.boolean(i); }

// Positions in elements of a dimension of n from those in [-1, 1].
Tensor in_elements(const Tensor& x, int64_t n, bool align) {
  return align ? x.add(Scalar(1)).mul(Scalar(double(n - 1) / 2))
               : x.add(Scalar(1)).mul(Scalar(double(n))).sub(Scalar(1)).mul(Scalar(0.5));
}
// Positions moved inside as the padding mode says.
Tensor moved_inside(const Tensor& x, int64_t n, Outside outside, bool align) {
  if (outside == Outside::zeros) return x;
  Tensor y = x;
  if (outside == Outside::reflection) {
    const double low = align ? 0 : -0.5, span = align ? double(n - 1) : double(n);
    if (span == 0) {
      y = x.mul(Scalar(0.0));
    } else {
      const Tensor from_low = x.sub(Scalar(low)).abs();
      const Tensor turns = from_low.detach().div(Scalar(span)).floor();
      const Tensor rest = from_low.sub(turns.mul(Scalar(span)));
      y = where(eq(turns.remainder(Scalar(2)), Scalar(0)), rest, rest.neg().add(Scalar(span)))
              .add(Scalar(low));
    }
  }
  return y.clamp(Scalar(0), Scalar(n - 1));
}

// One element beside each position along one dimension: its index, made safe, and its weight,
// 0 for elements that do not exist.
struct Tap {
  Tensor index, weight;
};
// The tap at `place`, whole numbers.
Tap tap_at(const Tensor& place, const Tensor& weight, int64_t n) {
  const Tensor p = place.detach();
  const Tensor exists = ge(p, Scalar(0)).logical_and(le(p, Scalar(n - 1)));
  return {p.to(kInt64).clamp(Scalar(0), Scalar(n - 1)), where(exists, weight, Scalar(0.0))};
}

// The weights of the four elements around a position, `t` beyond the second.
std::array<Tensor, 4> cubic_weights(const Tensor& t) {
  constexpr double a = -0.75;
  const auto near = [&](const Tensor& d) {
    return d.mul(Scalar(a + 2)).sub(Scalar(a + 3)).mul(d).mul(d).add(Scalar(1));
  };
  const auto far = [&](const Tensor& d) {
    return d.mul(Scalar(a)).sub(Scalar(5 * a)).mul(d).add(Scalar(8 * a)).mul(d).sub(Scalar(4 * a));
  };
  const Tensor one_more = t.add(Scalar(1)), rest = t.neg().add(Scalar(1)),
               rest_more = t.neg().add(Scalar(2));
  return {far(one_more), near(t), near(rest), far(rest_more)};
}

std::vector<Tap> taps_of(const Tensor& x, int64_t n, Mode mode, Outside outside, bool align) {
  const Tensor at = in_elements(x, n, align);
  std::vector<Tap> taps;
  if (mode == Mode::bicubic) {
    // The elements around the position itself; each is then moved inside by itself.
    const Tensor base = at.detach().floor();
    const std::array<Tensor, 4> weights = cubic_weights(at.sub(base));
    for (int k = 0; k < 4; ++k) {
      const Tensor place = base.add(Scalar(k - 1));
      taps.push_back(tap_at(moved_inside(place, n, outside, align).round(), weights[size_t(k)], n));
    }
    return taps;
  }
  const Tensor inside = moved_inside(at, n, outside, align);
  if (mode == Mode::nearest) {
    const Tensor place = inside.detach().round();
    // The slope of positions is zero, which is not none.
    return {tap_at(
        place, inside.requires_grad() ? inside.sub(inside).add(Scalar(1)) : ones_like(place), n)};
  }
  const Tensor base = inside.detach().floor();
  const Tensor beyond = inside.sub(base);
  taps.push_back(tap_at(base, beyond.neg().add(Scalar(1)), n));
  taps.push_back(tap_at(base.add(Scalar(1)), beyond, n));
  return taps;
}

void check_sizes(const Call& c) {
  const Tensor &x = c.tensor(0), &grid = c.tensor(1);
  ARETE_CHECK(
      (x.dim() == 4 || x.dim() == 5) && x.dim() == grid.dim(),
      ValueError(c.name(),
                 "grid_sampler(): expected 4D or 5D input and grid with same number of "
                 "dimensions, but got input with sizes " +
                     to_string(x.sizes()) + " and grid with sizes " + to_string(grid.sizes())));
  ARETE_CHECK(
      x.size(0) == grid.size(0),
      ValueError(c.name(),
                 "grid_sampler(): expected grid and input to have same batch size, but got "
                 "input with sizes " +
                     to_string(x.sizes()) + " and grid with sizes " + to_string(grid.sizes())));
  ARETE_CHECK(
      grid.size(-1) == x.dim() - 2,
      ValueError(c.name(),
                 "grid_sampler(): expected grid to have size " + std::to_string(x.dim() - 2) +
                     " in last dimension, but got grid with sizes " + to_string(grid.sizes())));
  for (int64_t d = 2; d < x.dim(); ++d)
    ARETE_CHECK(x.size(d) > 0, ValueError(c.name(),
                                          "grid_sampler(): expected input to have non-empty "
                                          "spatial dimensions, but input has sizes " +
                                              to_string(x.sizes())));
  ARETE_CHECK(is_floating(x.dtype()) && x.dtype() == grid.dtype(),
              TypeError(c.name(),
                        "grid_sampler(): expected input and grid to have same dtype, but input "
                        "has " +
                            std::string(name_of(x.dtype())) + " and grid has " +
                            std::string(name_of(grid.dtype()))));
}

Tensor sample(const Call& c) {
  check_sizes(c);
  const Tensor& x = c.tensor(0);
  const Mode mode = mode_of(c);
  const Outside outside = outside_of(c);
  const bool align = flag(c, 4);
  const int spatial = int(x.dim()) - 2;
  ARETE_CHECK(mode != Mode::bicubic || spatial == 2,
              ValueError(c.name(), "grid_sampler(): bicubic interpolation only supports 4D input"));
  // Positions need more digits than half types have.
  const bool half = size_of(x.dtype()) < 4;
  const Tensor grid = half ? c.tensor(1).to(kFloat32) : c.tensor(1);
  const int64_t batch = x.size(0), channels = x.size(1);
  Shape out{batch, channels};
  out.append(grid.sizes().begin() + 1, grid.sizes().end() - 1);
  const int64_t points = numel_of(IntList(out).subspan(2));

  // The last component of a position belongs to the first spatial dimension.
  std::vector<std::vector<Tap>> taps;
  for (int d = 0; d < spatial; ++d)
    taps.push_back(taps_of(grid.select(-1, spatial - 1 - d).reshape({batch, points}), x.size(d + 2),
                           mode, outside, align));

  const Tensor planes = x.reshape({batch, channels, numel_of(x.sizes().subspan(2))});
  const size_t per_dim = taps[0].size();
  size_t combinations = 1;
  for (int d = 0; d < spatial; ++d) combinations *= per_dim;
  Tensor sum;
  for (size_t k = 0; k < combinations; ++k) {
    Tensor index, weight;
    size_t rest = k;
    for (int d = 0; d < spatial; ++d) {
      const Tap& t = taps[size_t(d)][rest % per_dim];
      rest /= per_dim;
      index = d ? index.mul(Scalar(x.size(d + 2))).add(t.index) : t.index;
      weight = d ? weight.mul(t.weight) : t.weight;
    }
    Tensor value = planes.gather(2, index.unsqueeze(1).expand({batch, channels, points}));
    if (half) value = value.to(kFloat32);
    const Tensor w = weight.unsqueeze(1);
    sum = sum.defined() ? addcmul(sum, value, w) : value.mul(w);
  }
  return (half ? sum.to(x.dtype()) : sum).reshape(out);
}

// ---- the reference: each output element by the definition ----

double reflected(double x, double low, double span) {
  if (span == 0) return 0;
  const double d = std::fabs(x - low), turns = std::floor(d / span), rest = d - turns * span;
  return low + (std::fmod(turns, 2) == 0 ? rest : span - rest);
}
double reference_inside(double x, int64_t n, std::string_view outside, bool align) {
  if (outside == "zeros") return x;
  if (outside == "reflection")
    x = align ? reflected(x, 0, double(n - 1)) : reflected(x, -0.5, double(n));
  return std::clamp(x, 0.0, double(n - 1));
}
// (element, weight) along one dimension; elements may be outside.
std::vector<std::pair<int64_t, double>> reference_taps(double g, int64_t n, const Call& c) {
  const std::string_view mode = c[2].string(), outside = c[3].string();
  const bool align = flag(c, 4);
  double x = align ? (g + 1) / 2 * double(n - 1) : ((g + 1) * double(n) - 1) / 2;
  std::vector<std::pair<int64_t, double>> taps;
  if (mode == "bicubic") {
    for (int64_t k = int64_t(std::floor(x)) - 1; k <= int64_t(std::floor(x)) + 2; ++k) {
      const double t = std::fabs(x - double(k)), a = -0.75;
      const double w = t <= 1 ? (a + 2) * t * t * t - (a + 3) * t * t + 1
                              : a * t * t * t - 5 * a * t * t + 8 * a * t - 4 * a;
      taps.push_back({int64_t(std::nearbyint(reference_inside(double(k), n, outside, align))), w});
    }
    return taps;
  }
  x = reference_inside(x, n, outside, align);
  if (mode == "nearest") return {{int64_t(std::nearbyint(x)), 1.0}};
  const double base = std::floor(x);
  return {{int64_t(base), 1 - (x - base)}, {int64_t(base) + 1, x - base}};
}

std::vector<Tensor> sample_reference(const Call& c) {
  const Tensor &x = c.tensor(0), &grid = c.tensor(1);
  const int spatial = int(x.dim()) - 2;
  Shape out{x.size(0), x.size(1)};
  out.append(grid.sizes().begin() + 1, grid.sizes().end() - 1);
  return {build_tensor(out, [&](const Shape& i) {
    std::vector<std::vector<std::pair<int64_t, double>>> taps;
    Shape counts;
    for (int d = 0; d < spatial; ++d) {
      Shape g{i[0]};
      g.append(i.begin() + 2, i.end());
      g.push_back(spatial - 1 - d);
      taps.push_back(reference_taps(at(grid, g), x.size(d + 2), c));
      counts.push_back(int64_t(taps.back().size()));
    }
    double sum = 0;
    for_each_index(counts, [&](const Shape& k) {
      double w = 1;
      Shape ix{i[0], i[1]};
      for (int d = 0; d < spatial; ++d) {
        const auto [element, weight] = taps[size_t(d)][size_t(k[size_t(d)])];
        if (element < 0 || element >= x.size(d + 2)) return;
        ix.push_back(element);
        w *= weight;
      }
      sum += w * at(x, ix);
    });
    return sum;
  })};
}

const OpRecord& grid_sample_op =
    define(
        "grid_sample(Tensor input, Tensor grid, str mode=\"bilinear\", str padding_mode=\"zeros\", "
        "bool? align_corners=None) -> Tensor")
        .autocast(autocast_by_device(Autocast::f32, Autocast::promote))
        .doc("Values of images at the positions of a grid, in [-1, 1] from one side to the other.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results { return {sample(c)}; })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> out;
          for (const char* mode : {"bilinear", "nearest", "bicubic"})
            for (const char* outside : {"zeros", "border", "reflection"})
              for (const bool align : {false, true})
                out.push_back({{m.make({2, 2, 3, 4}), m.make({2, 2, 3, 2}, -1.6, 1.6), mode,
                                outside, align}});
          for (const char* outside : {"zeros", "border", "reflection"})
            out.push_back({{m.make({1, 2, 2, 3, 2}), m.make({1, 2, 1, 2, 3}, -1.6, 1.6), "bilinear",
                            outside, outside[0] == 'b'}});
          out.push_back({{m.make_strided({1, 1, 2, 3, 2}), m.make_strided({1, 2, 1, 2, 3}, -1, 1),
                          "nearest", "zeros", std::nullopt}});
          return out;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({1, 2, 3, 3}), m.make({1, 2, 3, 3}), "bilinear", "zeros", false},
                   ErrorKind::value,
                   "grid_sampler(): expected grid to have size 2 in last dimension"},
                  {{m.make({1, 2, 3, 3}), m.make({1, 2, 3, 2}), "linear", "zeros", false},
                   ErrorKind::value,
                   "expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: 'linear'"},
                  {{m.make({1, 2, 3, 3}), m.make({1, 2, 3, 2}), "nearest", "wrap", false},
                   ErrorKind::value,
                   "expected padding_mode to be 'zeros', 'border', or 'reflection'"}};
        })
        .reference(sample_reference);

// Positions of the centres of n elements in [-1, 1].
Tensor centres(int64_t n, bool align, const TensorOptions& o) {
  if (n <= 1) return zeros({n}, o);
  const double end = align ? 1 : double(n - 1) / double(n);
  return linspace(Scalar(-end), Scalar(end), n, o);
}

const OpRecord& affine_grid_op =
    define("affine_grid(Tensor theta, int[] size, bool? align_corners=None) -> Tensor")
        .doc("The positions to which affine maps take the elements of an image of a given size.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          const Tensor& theta = c.tensor(0);
          const IntList size = c.ints(1);
          ARETE_CHECK(is_floating(theta.dtype()),
                      TypeError(c.name(), "Expected theta to have floating point type, but got " +
                                              std::string(name_of(theta.dtype()))));
          ARETE_CHECK(size.size() == 4 || size.size() == 5,
                      NotImplementedError(c.name(),
                                          "affine_grid only supports 4D and 5D sizes, for 2D and "
                                          "3D affine transforms, respectively. Got size " +
                                              to_string(size)));
          const int64_t spatial = int64_t(size.size()) - 2;
          ARETE_CHECK(theta.dim() == 3 && theta.size(0) == size[0] && theta.size(1) == spatial &&
                          theta.size(2) == spatial + 1,
                      ValueError(c.name(),
                                 "Expected a batch of " + std::to_string(spatial) +
                                     "D affine matrices of shape Nx" + std::to_string(spatial) +
                                     "x" + std::to_string(spatial + 1) + " for size " +
                                     to_string(size) + ". Got " + to_string(theta.sizes()) + "."));
          for (int64_t s : size)
            ARETE_CHECK(s > 0,
                        ValueError(c.name(), "Expected non-zero, positive output size. Got " +
                                                 to_string(size)));
          const Shape image(size.subspan(2));
          Shape out{size[0]};
          out.append(image.begin(), image.end());
          out.push_back(spatial);
          // Columns (x, y[, z], 1): the last spatial dimension is x.
          std::vector<Tensor> columns;
          for (int64_t d = spatial - 1; d >= 0; --d) {
            Shape along(image.size(), 1);
            along[size_t(d)] = image[size_t(d)];
            columns.push_back(centres(image[size_t(d)], flag(c, 2), theta.options())
                                  .view(along)
                                  .expand(image)
                                  .reshape({numel_of(image)}));
          }
          columns.push_back(ones({numel_of(image)}, theta.options()));
          return {matmul(stack(columns, 1), theta.transpose(1, 2)).reshape(out)};
        })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 2, 3}), {2, 1, 3, 2}, false}},
                  {{m.make_strided({1, 2, 3}), {1, 2, 1, 4}, true}},
                  {{m.make({2, 3, 4}), {2, 1, 2, 3, 2}, std::nullopt}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3, 3}), {2, 1, 3, 2}, false},
                   ErrorKind::value,
                   "Expected a batch of 2D affine matrices of shape Nx2x3 for size"},
                  {{m.make({2, 2, 3}), {2, 1, 3}, false},
                   ErrorKind::not_implemented,
                   "affine_grid only supports 4D and 5D sizes"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const IntList size = c.ints(1);
          const size_t spatial = size.size() - 2;
          Shape out{size[0]};
          out.append(size.begin() + 2, size.end());
          out.push_back(int64_t(spatial));
          return {build_tensor(out, [&](const Shape& i) {
            double sum = at(c.tensor(0), {i[0], i.back(), int64_t(spatial)});
            for (size_t k = 0; k < spatial; ++k) {
              const size_t d = spatial - 1 - k;
              const double n = double(size[d + 2]), p = double(i[d + 1]);
              const double x = n == 1 ? 0 : flag(c, 2) ? -1 + 2 * p / (n - 1) : (2 * p + 1) / n - 1;
              sum += at(c.tensor(0), {i[0], i.back(), int64_t(k)}) * x;
            }
            return sum;
          })};
        });

}  // namespace
}  // namespace ops

Tensor grid_sample(const Tensor& input, const Tensor& grid, std::string_view mode,
                   std::string_view padding_mode, bool align_corners) {
  return ops::call(ops::grid_sample_op, {input, grid, mode, padding_mode, align_corners});
}
Tensor affine_grid(const Tensor& theta, IntList size, bool align_corners) {
  return ops::call(ops::affine_grid_op, {theta, size, align_corners});
}

}  // namespace arete

ARETE_FAMILY(grid_sample)
