// Sampling images at given positions, and the positions of affine maps (declared in nn.h).
#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <vector>

#include "arete/expr/program_cache.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/grid_sampling.h"
#include "arete/ops/index_util.h"
#include "arete/ops/matmul.h"
#include "arete/ops/nn.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/prim/positions.h"

namespace arete {
namespace ops {
namespace {

GridMode grid_mode_of(const Call& c) {
  const std::string_view m = c[2].string();
  ARETE_CHECK(m == "bilinear" || m == "nearest" || m == "bicubic",
              ValueError(c.name(),
                         "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' "
                         "or 'bicubic', but got: '" +
                             std::string(m) + "'"));
  return m == "nearest"   ? GridMode::nearest
         : m == "bicubic" ? GridMode::bicubic
                          : GridMode::bilinear;
}
GridOutside outside_of(const Call& c) {
  const std::string_view m = c[3].string();
  ARETE_CHECK(m == "zeros" || m == "border" || m == "reflection",
              ValueError(c.name(),
                         "nn.functional.grid_sample(): expected padding_mode to be 'zeros', "
                         "'border', or 'reflection', but got: '" +
                             std::string(m) + "'"));
  return m == "border"       ? GridOutside::border
         : m == "reflection" ? GridOutside::reflection
                             : GridOutside::zeros;
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

GridSampling sampling_of(const Call& c, size_t first) {
  return {GridMode(c.integer(first + 1)), GridOutside(c.integer(first + 2)), c.boolean(first + 3),
          Shape(c.ints(first))};
}
GridSampling sampling_of(const GradCall& g, size_t first) {
  return {GridMode(g.integer(first + 1)), GridOutside(g.integer(first + 2)), g.boolean(first + 3),
          Shape(g.ints(first))};
}

// Of an image's spatial dimensions: sizes, then the elements from one to the next.
SmallVector<expr::Literal, 16> size_params(IntList spatial, IntList steps) {
  SmallVector<expr::Literal, 16> params;
  for (int64_t n : spatial) params.push_back({.f = double(n)});
  for (int64_t step : steps) params.push_back({.i = step});
  return params;
}

// Images as a table: where they are if they leave no gaps, else a copy.
class ImageTable {
 public:
  ImageTable(prim::Primitives& p, const Tensor& x)
      : dense_(x.layout().is_dense()),
        strides_(dense_ ? Shape(x.strides()) : contiguous_strides(x.sizes())) {
    view_ = view_of(x);
    if (dense_) return;
    const prim::ScratchView& copy = copy_.emplace(p, x.dtype(), x.sizes());
    p.copy({copy, view_});
    view_ = copy;
  }
  const prim::View& view() const { return view_; }
  // From an element to the next along each spatial dimension, to that of the next image and of the
  // next channel.
  Shape steps() const {
    Shape all(IntList(strides_).subspan(2));
    all.push_back(strides_[0]);
    all.push_back(strides_[1]);
    return all;
  }

 private:
  bool dense_;
  Shape strides_;
  std::optional<prim::ScratchView> copy_;
  prim::View view_;
};
// The components of positions by dimension.
SmallVector<Layout, 3> position_layouts(const Tensor& grid) {
  SmallVector<Layout, 3> layouts;
  for (int64_t k = grid.size(-1); k-- > 0;) layouts.push_back(select(grid.layout(), -1, k));
  return layouts;
}

// The same as (images, points): of a copy where the points of a grid are not equally far apart.
class PointRows {
 public:
  PointRows(prim::Primitives& p, const Tensor& grid, int64_t points)
      : sizes_{grid.size(0), points} {
    prim::View all = view_of(grid);
    const size_t last = size_t(grid.dim()) - 1;
    int64_t step = 0;  // between points; of dimensions of one element strides say nothing
    int64_t inner = 1;
    bool even = true;
    for (size_t d = last; d-- > 1;) {
      if (grid.size(int64_t(d)) == 1) continue;
      if (inner == 1) step = all.strides[d];
      even &= all.strides[d] == step * inner;
      inner *= grid.size(int64_t(d));
    }
    if (!even)
      all = dense_.emplace(p, grid, grid.dtype()).view(), step = all.strides[last] * grid.size(-1);
    strides_ = {all.strides[0], step};
    for (int64_t k = grid.size(-1); k-- > 0;) {
      prim::View& v = views_.emplace_back(all);
      v.data += k * all.strides[last] * int64_t(size_of(all.dtype));
      v.sizes = sizes_, v.strides = strides_;
    }
  }
  PointRows(const PointRows&) = delete;
  std::span<const prim::View> views() const { return {views_.data(), views_.size()}; }

 private:
  Shape sizes_, strides_;
  std::optional<DenseView> dense_;
  SmallVector<prim::View, 3> views_;
};

// The operands of sampling_spec and slopes_spec: points are rows, channels their elements.
class SamplingCall {
 public:
  SamplingCall(prim::Primitives& p, const Tensor& x, const Tensor& grid)
      : image_(p, x),
        numbers_(p, positions_of_image(x.numel()), std::max(x.size(0), x.size(1))),
        space_(grid.sizes().first(size_t(grid.dim()) - 1)),
        params_(size_params(x.sizes().subspan(2), image_.steps())) {
    space_.push_back(x.size(1));
    const size_t channels = space_.size() - 1;
    inputs_.push_back(image_.view());
    inputs_.push_back(numbers_.along(space_, 0, 0));
    inputs_.push_back(numbers_.along(space_, channels, channels));
    for (const Layout& l : position_layouts(grid))
      inputs_.push_back(view_of(grid, layouts_.emplace_back(expand(unsqueeze(l, -1), space_))));
  }
  SamplingCall(const SamplingCall&) = delete;
  /// A tensor with the channels in dimension 1.
  prim::View by_points(const Tensor& t) {
    return view_of(t, layouts_.emplace_back(dim_last(t.layout(), 1)));
  }
  DType positions() const { return numbers_.all().dtype; }
  void add_input(const prim::View& v) { inputs_.push_back(v); }
  void run(prim::Primitives& p, const prim::FusedSpec& spec,
           std::span<const prim::View> outputs) const {
    p.fused({.spec = &spec,
             .space = space_,
             .outer_rank = int(space_.size()) - 1,
             .inputs = {inputs_.data(), inputs_.size()},
             .outputs = outputs,
             .params = {params_.data(), params_.size()}});
  }

 private:
  ImageTable image_;
  prim::Positions numbers_;
  Shape space_;
  SmallVector<expr::Literal, 16> params_;
  SmallVector<prim::View, 8> inputs_;
  std::deque<Layout> layouts_;  // views refer to them
};

Tensor sample_grid(const Tensor& x, const Tensor& grid, const GridSampling& s);
Tensor spread_grid(const Tensor& values, const Tensor& grid, IntList spatial,
                   const GridSampling& s);
Tensor grid_slopes(const Tensor& x, const Tensor& values, const Tensor& grid,
                   const GridSampling& s);

const OpRecord& sample_grid_op =
    define(
        "sample_grid(Tensor input, Tensor grid, int[] orders, int mode, int outside, bool "
        "align_corners) -> Tensor")
        .indexed({0})
        .doc("Values of images, or derivatives of them, at the positions of a grid.")
        .surface(Surface::internal)
        .batched(vmaps::folded)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &x = c.tensor(0), &grid = c.tensor(1);
          Shape sizes{x.size(0), x.size(1)};
          sizes.append(grid.sizes().begin() + 1, grid.sizes().end() - 1);
          out.push_back({std::move(sizes), x.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const Tensor& x = c.tensor(0);
          SamplingCall call(p, x, c.tensor(1));
          const prim::View result = call.by_points(out[0]);
          call.run(p, sampling_spec(x.dtype(), call.positions(), sampling_of(c, 2)), {&result, 1});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const GridSampling s = sampling_of(g, 2);
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
                 std::pow(GridMode(c.integer(4)) == GridMode::bicubic ? 4 : 2, c.ints(2).size());
        })
        .surface(Surface::internal)
        .batched(vmaps::folded)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& values = c.tensor(0);
          Shape sizes{values.size(0), values.size(1)};
          sizes.append(c.ints(2).begin(), c.ints(2).end());
          out.push_back({std::move(sizes), values.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const Tensor &values = c.tensor(0), &grid = c.tensor(1);
          const IntList spatial = c.ints(2);
          const GridSampling s = sampling_of(c, 3);
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
            const Shape of_values{batch, channels, points}, strides{channels * points, points, 1};
            const DenseView dense(p, values, work);
            prim::View src = dense.view();
            src.sizes = of_values, src.strides = strides;
            const PointRows positions(p, grid, points);
            const DType places = positions_of_image(plane);
            auto params = size_params(spatial, contiguous_strides(spatial));
            const expr::Program& taps = taps_program(grid.dtype(), places, s);
            const bool by_number = taps.params().size() > params.size();
            if (by_number) params.push_back({.i = 0});
            for (int64_t k = 0; k < (by_number ? s.taps_per_dim() : 1); ++k) {
              if (by_number) params.back() = {.i = k};
              p.scatter({.out = sums,
                         .src = src,
                         .dim = 2,
                         .mode = prim::ScatterMode::add,
                         .op = "grid_sample",
                         .places = &taps,
                         .inputs = positions.views(),
                         .params = {params.data(), params.size()}});
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
              const GridSampling s = sampling_of(g, 3);
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
                 std::pow(GridMode(c.integer(4)) == GridMode::bicubic ? 4 : 2, c.ints(3).size());
        })
        .surface(Surface::internal)
        .batched(vmaps::folded)
        .infer([](const Call& c, OutputSpecs& out) {
          out.push_back({Shape(c.tensor(2).sizes()), c.tensor(2).dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const Tensor &x = c.tensor(0), &values = c.tensor(1);
          const GridSampling s = sampling_of(c, 3);
          SmallVector<Layout, 3> layouts;
          SmallVector<prim::View, 3> sums;
          for (size_t k = s.orders.size(); k-- > 0;) {
            const Layout component = select(out[0].layout(), -1, int64_t(k));
            if (s.along(k).is_zero() || values.numel() == 0)
              p.fill({.out = view_of(out[0], component), .value = {.f = 0}});
            else
              sums.push_back(view_of(out[0], layouts.emplace_back(unsqueeze(component, -1))));
          }
          if (sums.empty()) return;
          SamplingCall call(p, x, c.tensor(2));
          call.add_input(call.by_points(values));
          call.run(p, slopes_spec(x.dtype(), call.positions(), s), {sums.data(), sums.size()});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const GridSampling s = sampling_of(g, 3);
              const Tensor x = g.input(0), values = g.input(1), grid = g.input(2);
              TensorList out(3);
              const auto add = [&](size_t i, const Tensor& t) {
                out[i] = out[i].defined() ? out[i].add(t) : t;
              };
              for (size_t k = 0; k < s.orders.size(); ++k) {
                const GridSampling slope = s.along(k);
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

Tensor sample_grid(const Tensor& x, const Tensor& grid, const GridSampling& s) {
  return call(sample_grid_op,
              {x, grid, IntList(s.orders), int64_t(s.mode), int64_t(s.outside), s.align});
}
Tensor spread_grid(const Tensor& values, const Tensor& grid, IntList spatial,
                   const GridSampling& s) {
  return call(spread_grid_op, {values, grid, spatial, IntList(s.orders), int64_t(s.mode),
                               int64_t(s.outside), s.align});
}
Tensor grid_slopes(const Tensor& x, const Tensor& values, const Tensor& grid,
                   const GridSampling& s) {
  return call(grid_slopes_op,
              {x, values, grid, IntList(s.orders), int64_t(s.mode), int64_t(s.outside), s.align});
}

Tensor sample(const Call& c) {
  check_sizes(c);
  const Tensor& x = c.tensor(0);
  const size_t spatial = size_t(x.dim()) - 2;
  const GridSampling s{grid_mode_of(c), outside_of(c), flag(c, 4), Shape(spatial, 0)};
  ARETE_CHECK(s.mode != GridMode::bicubic || spatial == 2,
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
