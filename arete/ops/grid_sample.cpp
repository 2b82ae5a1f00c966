// Sampling images at given positions, and the positions of affine maps (declared in nn.h).
#include <array>

#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/matmul.h"
#include "arete/ops/nn.h"
#include "arete/ops/pointwise.h"
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

const OpRecord& grid_sample_op =
    define(
        "grid_sample(Tensor input, Tensor grid, str mode=\"bilinear\", str padding_mode=\"zeros\", "
        "bool? align_corners=None) -> Tensor")
        .autocast(autocast_by_device(Autocast::f32, Autocast::promote))
        .doc("Values of images at the positions of a grid, in [-1, 1] from one side to the other.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results { return {sample(c)}; });

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
