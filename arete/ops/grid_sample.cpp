// Sampling images at given positions, and the positions of affine maps (declared in nn.h).
#include <array>
#include <optional>
#include <vector>

#include "arete/core/modes.h"
#include "arete/expr/program_cache.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/matmul.h"
#include "arete/ops/nn.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/target.h"

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
  // At the borders, too, positions have no slope: what lies beyond is not there to be compared
  // with.
  const Tensor within = gt(y, Scalar(0)).logical_and(lt(y, Scalar(n - 1)));
  return where(within, y, y.detach().clamp(Scalar(0), Scalar(n - 1)));
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

// ---- without history: one kernel, which looks the elements up

// moved_inside() and taps_of() on values. `n`: elements of the dimension, in the type of
// computation.
expr::Value moved_inside(const expr::Value& x, const expr::Value& n, Outside outside, bool align) {
  if (outside == Outside::zeros) return x;
  const expr::Value last = n - 1.0;
  expr::Value y = x;
  if (outside == Outside::reflection) {
    const double low = align ? 0 : -0.5;
    const expr::Value span = align ? last : n, from_low = abs(x - low);
    const expr::Value turns = floor(from_low / span), rest = from_low - turns * span;
    y = where(remainder(turns, expr::constant_like(turns, 2)) == 0.0, rest, span - rest) + low;
    y = where(span == 0.0, x * 0.0, y);
  }
  return min(max(y, expr::constant_like(y, 0)), last);
}

struct ValueTap {
  expr::Value index, weight, exists;
};

std::vector<ValueTap> taps_of(const expr::Value& position, const expr::Value& n, Mode mode,
                              Outside outside, bool align) {
  using expr::Type;
  using expr::Value;
  const Value at =
      align ? (position + 1.0) * ((n - 1.0) * 0.5) : ((position + 1.0) * n - 1.0) * 0.5;
  std::vector<ValueTap> taps;
  const auto add = [&](const Value& place, const Value& weight) {
    const Value last = n - 1.0, zero = expr::constant_like(place, 0);
    // Bounded before it is a whole number: NaN becomes 0.
    const Value index = cast(min(max(where(place == place, place, zero), zero), last), Type::i64);
    taps.push_back({index, weight, (place >= zero) & (place <= last)});
  };
  if (mode == Mode::bicubic) {
    constexpr double a = -0.75;
    const auto near = [&](const Value& d) { return (d * (a + 2) - (a + 3)) * d * d + 1.0; };
    const auto far = [&](const Value& d) { return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a; };
    const Value base = floor(at), t = at - base;
    const Value weights[] = {far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)};
    for (int k = 0; k < 4; ++k)
      add(round(moved_inside(base + double(k - 1), n, outside, align)), weights[k]);
    return taps;
  }
  const Value inside = moved_inside(at, n, outside, align);
  if (mode == Mode::nearest) {
    add(round(inside), expr::constant_like(inside, 1));
    return taps;
  }
  const Value base = floor(inside), beyond = inside - base;
  add(base, 1.0 - beyond);
  add(base + 1.0, beyond);
  return taps;
}

// Inputs: the image (a table), where the plane of an output element begins, its position in each
// spatial dimension. Parameters: of each of these its size and the elements from one to the next.
const expr::Program& sampling_program(DType dtype, int spatial, Mode mode, Outside outside,
                                      bool align) {
  using expr::Type;
  using expr::Value;
  static auto& cache = *new expr::ProgramCache;  // used until exit
  const Type work = expr::work_type(dtype);
  std::vector<DType> inputs{dtype, kInt64};
  std::vector<Type> params;
  for (int d = 0; d < spatial; ++d) inputs.push_back(dtype), params.push_back(work);
  params.insert(params.end(), size_t(spatial), Type::i64);
  return cache.get(
      pack_key({int(dtype), spatial, int(mode), int(outside), align}), inputs, params, {dtype},
      [&](std::span<const Value> v) {
        const auto sizes = v.subspan(2 + size_t(spatial)), steps = sizes.subspan(size_t(spatial));
        std::vector<std::vector<ValueTap>> taps;
        for (size_t d = 0; d < size_t(spatial); ++d)
          taps.push_back(taps_of(v[2 + d], sizes[d], mode, outside, align));
        const size_t per_dim = taps[0].size();
        size_t combinations = 1;
        for (int d = 0; d < spatial; ++d) combinations *= per_dim;
        std::optional<Value> sum;
        for (size_t k = 0; k < combinations; ++k) {
          Value at = v[1];
          std::optional<Value> weight, exists;
          size_t rest = k;
          for (size_t d = 0; d < size_t(spatial); ++d) {
            const ValueTap& t = taps[d][rest % per_dim];
            rest /= per_dim;
            at = at + t.index * steps[d];
            weight = weight ? *weight * t.weight : t.weight;
            exists = exists ? *exists & t.exists : t.exists;
          }
          // Elements that do not exist count nothing, whatever is read in their place.
          const Value product = expr::load(v[0], at) * *weight;
          const Value term = where(*exists, product, expr::constant_like(product, 0));
          sum = sum ? *sum + term : term;
        }
        return std::vector{*sum};
      },
      0b1);
}

const OpRecord& sample_grid_op =
    define(
        "sample_grid(Tensor input, Tensor grid, int mode, int outside, bool align_corners) -> "
        "Tensor")
        .indexed({0})
        .doc("Values of images at the positions of a grid.")
        .surface(Surface::internal)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &x = c.tensor(0), &grid = c.tensor(1);
          Shape sizes{x.size(0), x.size(1)};
          sizes.append(grid.sizes().begin() + 1, grid.sizes().end() - 1);
          out.push_back({std::move(sizes), x.dtype(), common_device(c), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const Tensor &x = c.tensor(0), &grid = c.tensor(1);
          const size_t spatial = size_t(x.dim()) - 2;
          std::optional<prim::ScratchView> dense;
          prim::View image = view_of(x);
          if (!x.is_contiguous()) {
            dense.emplace(p, x.dtype(), x.sizes());
            p.copy({*dense, image});
            image = dense->view();
          }
          const int64_t planes = x.size(0) * x.size(1), plane = numel_of(x.sizes().subspan(2));
          const prim::ScratchView first(p, kInt64, Shape{planes});
          p.iota({.out = first, .istart = 0, .istep = plane});
          Layout of_planes(out[0].sizes(), Shape(out[0].sizes().size(), 0));
          of_planes.strides[0] = x.size(1), of_planes.strides[1] = 1;
          prim::View begin = first.view();
          begin.sizes = of_planes.sizes, begin.strides = of_planes.strides;

          SmallVector<prim::View, 8> inputs{image, begin};
          SmallVector<Layout, 3> layouts;
          layouts.reserve(spatial);
          for (size_t d = 0; d < spatial; ++d) {
            // The last component of a position belongs to the first spatial dimension.
            Layout l = unsqueeze(select(grid.layout(), -1, int64_t(spatial - 1 - d)), 1);
            layouts.push_back(std::move(l));
            inputs.push_back(view_of(grid, layouts.back()));
          }
          SmallVector<expr::Literal, 8> params;
          for (size_t d = 0; d < spatial; ++d)
            params.push_back({.f = double(x.size(int64_t(d) + 2))});
          int64_t step = plane;
          for (size_t d = 0; d < spatial; ++d)
            params.push_back({.i = step /= x.size(int64_t(d) + 2)});
          const prim::View result = view_of(out[0]);
          p.pointwise({.program = &sampling_program(x.dtype(), int(spatial), Mode(c.integer(2)),
                                                    Outside(c.integer(3)), c.boolean(4)),
                       .inputs = {inputs.data(), inputs.size()},
                       .outputs = {&result, 1},
                       .params = {params.data(), params.size()}});
        });

// ---- with history: of operators that have gradients

Tensor sample(const Call& c) {
  check_sizes(c);
  const Tensor& x = c.tensor(0);
  const Mode mode = mode_of(c);
  const Outside outside = outside_of(c);
  const bool align = flag(c, 4);
  const int spatial = int(x.dim()) - 2;
  ARETE_CHECK(mode != Mode::bicubic || spatial == 2,
              ValueError(c.name(), "grid_sampler(): bicubic interpolation only supports 4D input"));
  if (!is_grad_enabled() || !(x.requires_grad() || c.tensor(1).requires_grad()))
    return call(sample_grid_op, {x, c.tensor(1), int64_t(mode), int64_t(outside), align});
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

// ---- what users call

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
