// Sampling images at given positions, and the positions of affine maps (declared in nn.h).
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "arete/expr/program_cache.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
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

// Note [Sampling and its gradients]
// An output is the sum over some elements, the taps, of x[tap] times the product over dimensions d
// of w_d(tap, position), where each w_d is piecewise a polynomial of the position along d. With
// `orders` o, w_d stands for its derivative of order o_d. Three records are closed under gradients:
//   sample_grid   A_o(x, grid)          = sum over taps of x[tap] w_o
//   spread_grid   B_o(values, grid)     its transpose: adds values * w_o to each tap
//   grid_slopes   C_o(x, values, grid)  component d: sum over channels of values * A_{o + e_d}
// The gradient of A_o is B_o and C_o, that of B_o is A_o and C_o, and that of component d of C_o
// those of values * A_{o + e_d}. Derivatives beyond the degree of a mode are zero and nothing is
// computed for them.

struct Sampling {
  Mode mode;
  Outside outside;
  bool align;
  Shape orders;

  bool is_zero() const {
    const int64_t degree = mode == Mode::bicubic ? 3 : mode == Mode::bilinear ? 1 : 0;
    return std::any_of(orders.begin(), orders.end(), [&](int64_t o) { return o > degree; });
  }
  /// Once more along what component k of positions says: the last belongs to the first dimension.
  Sampling along(size_t k) const {
    Sampling more = *this;
    ++more.orders[orders.size() - 1 - k];
    return more;
  }
  uint64_t key(DType dtype) const {
    int all = 0;
    for (int64_t o : orders) all = 8 * all + int(o);
    return pack_key({int(dtype), int(orders.size()), int(mode), int(outside), align, all / 32,
                     all % 32});
  }
};

struct Moved {
  expr::Value at, slope;
};
// A position moved inside as the padding mode says. `n`: elements of the dimension, in the type of
// computation.
Moved moved_inside(const expr::Value& x, const expr::Value& n, Outside outside, bool align) {
  const expr::Value one = expr::constant_like(x, 1), zero = expr::constant_like(x, 0);
  if (outside == Outside::zeros) return {x, one};
  const expr::Value last = n - 1.0;
  expr::Value y = x, slope = one;
  if (outside == Outside::reflection) {
    const double low = align ? 0 : -0.5;
    const expr::Value span = align ? last : n, from_low = abs(x - low);
    const expr::Value turns = floor(from_low / span), rest = from_low - turns * span;
    const expr::Value even = remainder(turns, expr::constant_like(turns, 2)) == 0.0;
    const expr::Value none = span == 0.0;
    y = where(none, x * 0.0, where(even, rest, span - rest) + low);
    slope = where(none, zero, where(even ^ (x < low), one, -one));
  }
  // At the borders, too, positions have no slope: what lies beyond is not there to be compared
  // with.
  return {min(max(y, zero), last), where((y > 0.0) & (y < last), slope, zero)};
}

// One element beside each position along one dimension: its index, made safe, its weight, and
// whether there is one.
struct Tap {
  expr::Value index, weight, exists;
};

// The derivative of a polynomial, its coefficients from that of x^3 on.
expr::Value polynomial(const expr::Value& x, std::array<double, 4> c, int64_t order) {
  for (; order > 0; --order) c = {0, 3 * c[0], 2 * c[1], c[2]};
  expr::Value sum = expr::constant_like(x, c[0]);
  for (size_t k = 1; k < 4; ++k) sum = sum * x + c[k];
  return sum;
}

std::vector<Tap> taps_of(const expr::Value& position, const expr::Value& n, const Sampling& s,
                         int64_t order) {
  using expr::Type;
  using expr::Value;
  const Value scale = (s.align ? n - 1.0 : n) * 0.5;
  const Value at =
      s.align ? (position + 1.0) * scale : ((position + 1.0) * n - 1.0) * 0.5;
  std::vector<Tap> taps;
  const auto add = [&](const Value& place, Value weight, const Value& slope) {
    const Value last = n - 1.0, zero = expr::constant_like(place, 0);
    for (int64_t k = 0; k < order; ++k) weight = weight * slope;
    // Bounded before it is a whole number: NaN becomes 0.
    const Value index = cast(min(max(where(place == place, place, zero), zero), last), Type::i64);
    taps.push_back({index, weight, (place >= zero) & (place <= last)});
  };
  if (s.mode == Mode::bicubic) {
    // The elements around the position itself; each is then moved inside by itself.
    constexpr double a = -0.75;
    const std::array<double, 4> near{a + 2, -(a + 3), 0, 1}, far{a, -5 * a, 8 * a, -4 * a};
    const Value base = floor(at), t = at - base;
    const Value distances[] = {t + 1.0, t, 1.0 - t, 2.0 - t};
    for (size_t k = 0; k < 4; ++k)
      add(round(moved_inside(base + (double(k) - 1), n, s.outside, s.align).at),
          polynomial(distances[k], k == 0 || k == 3 ? far : near, order), k < 2 ? scale : -scale);
    return taps;
  }
  const auto [inside, turn] = moved_inside(at, n, s.outside, s.align);
  if (s.mode == Mode::nearest) {
    add(round(inside), expr::constant_like(inside, 1), turn);
    return taps;
  }
  const Value base = floor(inside), beyond = inside - base, one = expr::constant_like(inside, 1);
  const Value slope = turn * scale;
  add(base, order ? -one : 1.0 - beyond, slope);
  add(base + 1.0, order ? one : beyond, slope);
  return taps;
}
std::vector<std::vector<Tap>> taps_of(std::span<const expr::Value> positions,
                                      std::span<const expr::Value> sizes, const Sampling& s) {
  std::vector<std::vector<Tap>> taps;
  for (size_t d = 0; d < positions.size(); ++d)
    taps.push_back(taps_of(positions[d], sizes[d], s, s.orders[d]));
  return taps;
}

// The sum over all taps of the elements of `image` from `begin` on.
expr::Value sampled(const expr::Value& image, const expr::Value& begin,
                    std::span<const std::vector<Tap>> taps, std::span<const expr::Value> steps) {
  using expr::Value;
  const size_t per_dim = taps[0].size();
  size_t combinations = 1;
  for (size_t d = 0; d < taps.size(); ++d) combinations *= per_dim;
  Value sum;
  for (size_t k = 0; k < combinations; ++k) {
    Value at = begin, weight, exists;
    size_t rest = k;
    for (size_t d = 0; d < taps.size(); ++d) {
      const Tap& t = taps[d][rest % per_dim];
      rest /= per_dim;
      at = at + t.index * steps[d];
      weight = d ? weight * t.weight : t.weight;
      exists = d ? exists & t.exists : t.exists;
    }
    // Elements that do not exist count nothing, whatever is read in their place.
    const Value product = expr::load(image, at) * weight;
    const Value term = where(exists, product, expr::constant_like(product, 0));
    sum = k ? sum + term : term;
  }
  return sum;
}

// Inputs: the image (a table), where the plane of an output element begins, its position in each
// spatial dimension; `products`: what the result is multiplied with. Parameters: of each dimension
// its size and the elements from one to the next.
const expr::Program& sampling_program(DType dtype, const Sampling& s, bool products) {
  using expr::Type;
  using expr::Value;
  static auto& cache = *new expr::ProgramCache;  // used until exit
  const size_t spatial = s.orders.size();
  std::vector<DType> inputs{dtype, kInt64};
  inputs.insert(inputs.end(), spatial + (products ? 1 : 0), dtype);
  std::vector<Type> params(spatial, expr::work_type(dtype));
  params.insert(params.end(), spatial, Type::i64);
  return cache.get(
      s.key(dtype) << 1 | uint64_t(products), inputs, params,
      {products ? expr::work_dtype(dtype) : dtype},
      [&](std::span<const Value> v) {
        const auto sizes = v.subspan(inputs.size()), steps = sizes.subspan(spatial);
        const auto taps = taps_of(v.subspan(2, spatial), sizes.subspan(0, spatial), s);
        const Value sum = sampled(v[0], v[1], taps, steps);
        return std::vector{products ? sum * v[2 + spatial] : sum};
      },
      0b1);
}

// Inputs: a position in each spatial dimension. Parameters as above, then the number of a tap along
// each dimension. Results: where that tap is in its plane, and its weight, 0 where there is none.
const expr::Program& tap_program(DType dtype, const Sampling& s) {
  using expr::Type;
  using expr::Value;
  static auto& cache = *new expr::ProgramCache;  // used until exit
  const size_t spatial = s.orders.size();
  std::vector<Type> params(spatial, expr::work_type(dtype));
  params.insert(params.end(), 2 * spatial, Type::i64);
  return cache.get(s.key(dtype), std::vector<DType>(spatial, dtype), params,
                   {kInt64, expr::work_dtype(dtype)}, [&](std::span<const Value> v) {
                     const auto sizes = v.subspan(spatial), steps = sizes.subspan(spatial),
                                numbers = steps.subspan(spatial);
                     const auto taps = taps_of(v.subspan(0, spatial), sizes.subspan(0, spatial), s);
                     Value at, weight;
                     for (size_t d = 0; d < spatial; ++d) {
                       Value index, w;
                       for (size_t k = 0; k < taps[d].size(); ++k) {
                         const Tap& t = taps[d][k];
                         const Value here = numbers[d] == double(k);
                         const Value its = where(t.exists, t.weight, 0.0);
                         index = k ? where(here, t.index, index) : t.index;
                         w = k ? where(here, its, w) : its;
                       }
                       at = d ? at + index * steps[d] : index * steps[d];
                       weight = d ? weight * w : w;
                     }
                     return std::vector{at, weight};
                   });
}

// ---- records

Sampling sampling_of(const Call& c, size_t first) {
  return {Mode(c.integer(first + 1)), Outside(c.integer(first + 2)), c.boolean(first + 3),
          Shape(c.ints(first))};
}
Sampling sampling_of(const GradCall& g, size_t first) {
  return {Mode(g.integer(first + 1)), Outside(g.integer(first + 2)), g.boolean(first + 3),
          Shape(g.ints(first))};
}

// A dense view, of a copy where the tensor is not.
class DenseView {
 public:
  DenseView(prim::Primitives& p, const Tensor& t, DType dtype) : view_(view_of(t)) {
    if (t.is_contiguous() && t.dtype() == dtype) return;
    copy_.emplace(p, dtype, t.sizes());
    p.copy({*copy_, view_});
    view_ = copy_->view();
  }
  const prim::View& view() const { return view_; }

 private:
  std::optional<prim::ScratchView> copy_;
  prim::View view_;
};

// Of an image's spatial dimensions: sizes, then the elements from one to the next.
SmallVector<expr::Literal, 16> size_params(IntList spatial) {
  SmallVector<expr::Literal, 16> params;
  for (int64_t n : spatial) params.push_back({.f = double(n)});
  int64_t step = numel_of(spatial);
  for (int64_t n : spatial) params.push_back({.i = step /= n});
  return params;
}
// The components of positions by dimension; with_channels: of size 1 in dimension 1.
SmallVector<Layout, 3> position_layouts(const Tensor& grid, bool with_channels) {
  SmallVector<Layout, 3> layouts;
  for (int64_t k = grid.size(-1); k-- > 0;) {
    Layout l = select(grid.layout(), -1, k);
    layouts.push_back(with_channels ? unsqueeze(l, 1) : l);
  }
  return layouts;
}

// The inputs of sampling_program without products.
class SamplingInputs {
 public:
  SamplingInputs(prim::Primitives& p, const Tensor& x, const Tensor& grid)
      : image_(p, x, x.dtype()),
        first_(p, kInt64, Shape{x.size(0) * x.size(1)}),
        sizes_(grid.sizes().size(), 1),
        strides_(sizes_.size(), 0),
        layouts_(position_layouts(grid, true)) {
    const int64_t planes = x.size(0) * x.size(1);
    p.iota({.out = first_, .istart = 0, .istep = numel_of(x.sizes().subspan(2))});
    sizes_[0] = x.size(0), sizes_[1] = x.size(1);
    strides_[0] = planes / x.size(0), strides_[1] = 1;
    prim::View begin = first_.view();
    begin.sizes = sizes_, begin.strides = strides_;
    views.push_back(image_.view());
    views.push_back(begin);
    for (const Layout& l : layouts_) views.push_back(view_of(grid, l));
  }
  SamplingInputs(const SamplingInputs&) = delete;
  SmallVector<prim::View, 8> views;

 private:
  DenseView image_;
  prim::ScratchView first_;
  Shape sizes_, strides_;
  SmallVector<Layout, 3> layouts_;
};

Tensor sample_grid(const Tensor& x, const Tensor& grid, const Sampling& s);
Tensor spread_grid(const Tensor& values, const Tensor& grid, IntList spatial, const Sampling& s);
Tensor grid_slopes(const Tensor& x, const Tensor& values, const Tensor& grid, const Sampling& s);

const OpRecord& sample_grid_op =
    define(
        "sample_grid(Tensor input, Tensor grid, int[] orders, int mode, int outside, bool "
        "align_corners) -> Tensor")
        .indexed({0})
        .doc("Values of images, or derivatives of them, at the positions of a grid.")
        .surface(Surface::internal)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &x = c.tensor(0), &grid = c.tensor(1);
          Shape sizes{x.size(0), x.size(1)};
          sizes.append(grid.sizes().begin() + 1, grid.sizes().end() - 1);
          out.push_back({std::move(sizes), x.dtype(), common_device(c), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const Tensor& x = c.tensor(0);
          const SamplingInputs inputs(p, x, c.tensor(1));
          const auto params = size_params(x.sizes().subspan(2));
          const prim::View result = view_of(out[0]);
          p.pointwise({.program = &sampling_program(x.dtype(), sampling_of(c, 2), false),
                       .inputs = {inputs.views.data(), inputs.views.size()},
                       .outputs = {&result, 1},
                       .params = {params.data(), params.size()}});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Sampling s = sampling_of(g, 2);
              TensorList out(2);
              if (g.needs(0))
                out[0] = spread_grid(g.grad(), g.input(1), g.input_sizes(0).subspan(2), s);
              if (g.needs(1)) out[1] = grid_slopes(g.input(0), g.grad(), g.input(1), s);
              return out;
            },
            0b11);

const OpRecord& spread_grid_op =
    define(
        "spread_grid(Tensor values, Tensor grid, int[] spatial, int[] orders, int mode, int "
        "outside, bool align_corners) -> Tensor")
        .doc("Adds values to the elements of images that lie around the positions of a grid.")
        .flops([](const Call& c) {
          return double(c.tensor(0).numel()) *
                 std::pow(Mode(c.integer(4)) == Mode::bicubic ? 4 : 2, c.ints(2).size());
        })
        .surface(Surface::internal)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& values = c.tensor(0);
          Shape sizes{values.size(0), values.size(1)};
          sizes.append(c.ints(2).begin(), c.ints(2).end());
          out.push_back({std::move(sizes), values.dtype(), common_device(c), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const Tensor &values = c.tensor(0), &grid = c.tensor(1);
          const IntList spatial = c.ints(2);
          const Sampling s = sampling_of(c, 3);
          const int64_t batch = out[0].size(0), channels = out[0].size(1),
                        plane = numel_of(spatial);
          // Half types are added up in f32.
          const DType work = expr::work_dtype(values.dtype());
          std::optional<prim::ScratchView> wide;
          if (work != values.dtype()) wide.emplace(p, work, Shape{batch, channels, plane});
          const Shape of_sums{batch, channels, plane}, sum_strides{channels * plane, plane, 1};
          prim::View sums = wide ? wide->view() : view_of(out[0]);
          sums.sizes = of_sums, sums.strides = sum_strides;
          p.fill({.out = sums, .value = {.f = 0}});
          if (values.numel() > 0) {
            const int64_t points = numel_of(grid.sizes().subspan(1)) / grid.size(-1);
            const Shape each{batch, channels, points}, strides{channels * points, points, 1},
                same{points, 0, 1};
            const DenseView dense(p, values, work);
            prim::View src = dense.view();
            src.sizes = each, src.strides = strides;
            const Shape of_points(grid.sizes().subspan(0, grid.sizes().size() - 1));
            const prim::ScratchView index(p, kInt64, of_points), weights(p, work, of_points);
            const auto repeated = [&](prim::View v) {
              v.sizes = each, v.strides = same;
              return v;
            };
            const SmallVector<Layout, 3> layouts = position_layouts(grid, false);
            SmallVector<prim::View, 3> positions;
            for (const Layout& l : layouts) positions.push_back(view_of(grid, l));
            const prim::View results[] = {index.view(), weights.view()};
            auto params = size_params(spatial);
            const int64_t per_dim =
                s.mode == Mode::bicubic ? 4 : s.mode == Mode::bilinear ? 2 : 1;
            int64_t combinations = 1;
            for (size_t d = 0; d < spatial.size(); ++d) combinations *= per_dim;
            const size_t numbers = params.size();
            params.resize(numbers + spatial.size());
            for (int64_t k = 0; k < combinations; ++k) {
              int64_t rest = k;
              for (size_t d = spatial.size(); d-- > 0; rest /= per_dim)
                params[numbers + d] = {.i = rest % per_dim};
              p.pointwise({.program = &tap_program(grid.dtype(), s),
                           .inputs = {positions.data(), positions.size()},
                           .outputs = results,
                           .params = {params.data(), params.size()}});
              p.scatter({.out = sums,
                         .index = repeated(index.view()),
                         .src = src,
                         .dim = 2,
                         .mode = prim::ScatterMode::add,
                         .op = "grid_sample",
                         .factors = repeated(weights.view())});
            }
          }
          if (!wide) return;
          sums.sizes = out[0].sizes();
          const Layout rows(out[0].sizes());
          sums.strides = rows.strides;
          p.copy({view_of(out[0]), sums});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Sampling s = sampling_of(g, 3);
              TensorList out(2);
              if (g.needs(0)) out[0] = sample_grid(g.grad(), g.input(1), s);
              if (g.needs(1)) out[1] = grid_slopes(g.grad(), g.input(0), g.input(1), s);
              return out;
            },
            0b11);

const OpRecord& grid_slopes_op =
    define(
        "grid_slopes(Tensor input, Tensor values, Tensor grid, int[] orders, int mode, int "
        "outside, bool align_corners) -> Tensor")
        .indexed({0})
        .doc("Sums over channels of values times the slopes of images at the positions of a grid.")
        .flops([](const Call& c) {
          return double(c.tensor(1).numel()) * double(c.tensor(2).size(-1)) *
                 std::pow(Mode(c.integer(4)) == Mode::bicubic ? 4 : 2, c.ints(3).size());
        })
        .surface(Surface::internal)
        .infer([](const Call& c, OutputSpecs& out) {
          out.push_back(
              {Shape(c.tensor(2).sizes()), c.tensor(2).dtype(), common_device(c), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const Tensor &x = c.tensor(0), &values = c.tensor(1);
          const Sampling s = sampling_of(c, 3);
          std::optional<SamplingInputs> inputs;
          const auto params = size_params(x.sizes().subspan(2));
          for (size_t k = 0; k < s.orders.size(); ++k) {
            const Layout component = unsqueeze(select(out[0].layout(), -1, int64_t(k)), 1);
            const Sampling slope = s.along(k);
            if (slope.is_zero() || values.numel() == 0) {
              p.fill({.out = view_of(out[0], component), .value = {.f = 0}});
              continue;
            }
            if (!inputs) {
              inputs.emplace(p, x, c.tensor(2));
              inputs->views.push_back(view_of(values));
            }
            p.reduce({.monoid = prim::Monoid::sum,
                      .space = values.sizes(),
                      .reduced = 0b10,
                      .inputs = {inputs->views.data(), inputs->views.size()},
                      .out = view_of(out[0], component),
                      .prologue = &sampling_program(x.dtype(), slope, true),
                      .params = {params.data(), params.size()}});
          }
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Sampling s = sampling_of(g, 3);
              const Tensor x = g.input(0), values = g.input(1), grid = g.input(2);
              TensorList out(3);
              const auto add = [&](size_t i, const Tensor& t) {
                out[i] = out[i].defined() ? out[i].add(t) : t;
              };
              for (size_t k = 0; k < s.orders.size(); ++k) {
                const Sampling slope = s.along(k);
                const Tensor seed = g.grad().select(-1, int64_t(k));
                if (slope.is_zero()) continue;
                const Tensor of_channels = seed.unsqueeze(1);
                if (g.needs(0))
                  add(0, spread_grid(of_channels.mul(values), grid, x.sizes().subspan(2), slope));
                if (g.needs(1)) add(1, of_channels.mul(sample_grid(x, grid, slope)));
                if (g.needs(2)) add(2, seed.unsqueeze(-1).mul(grid_slopes(x, values, grid, slope)));
              }
              for (size_t i = 0; i < 3; ++i)
                if (g.needs(i) && !out[i].defined()) out[i] = zeros_like(g.input(i));
              return out;
            },
            0b111);

Tensor sample_grid(const Tensor& x, const Tensor& grid, const Sampling& s) {
  return call(sample_grid_op,
              {x, grid, IntList(s.orders), int64_t(s.mode), int64_t(s.outside), s.align});
}
Tensor spread_grid(const Tensor& values, const Tensor& grid, IntList spatial, const Sampling& s) {
  return call(spread_grid_op, {values, grid, spatial, IntList(s.orders), int64_t(s.mode),
                               int64_t(s.outside), s.align});
}
Tensor grid_slopes(const Tensor& x, const Tensor& values, const Tensor& grid, const Sampling& s) {
  return call(grid_slopes_op, {x, values, grid, IntList(s.orders), int64_t(s.mode),
                               int64_t(s.outside), s.align});
}

Tensor sample(const Call& c) {
  check_sizes(c);
  const Tensor& x = c.tensor(0);
  const size_t spatial = size_t(x.dim()) - 2;
  const Sampling s{mode_of(c), outside_of(c), flag(c, 4), Shape(spatial, 0)};
  ARETE_CHECK(s.mode != Mode::bicubic || spatial == 2,
              ValueError(c.name(), "grid_sampler(): bicubic interpolation only supports 4D input"));
  return sample_grid(x, c.tensor(1), s);
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
