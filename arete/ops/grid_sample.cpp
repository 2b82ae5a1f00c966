// Sampling images at given positions, and the positions of affine maps (declared in nn.h).
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <optional>
#include <vector>

#include "arete/expr/program_cache.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/fused_builder.h"
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
    return pack_key(
        {int(dtype), int(orders.size()), int(mode), int(outside), align, all / 32, all % 32});
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
  const Value at = s.align ? (position + 1.0) * scale : ((position + 1.0) * n - 1.0) * 0.5;
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

// Note [Taps by points]
// All channels of a point share its taps. Sampling is thus a fused kernel whose rows are points and
// whose elements are channels: a first stage makes row values of the taps along each dimension,
// their places and their weights, and what is done for each channel is only to read and to add up.
// Places of taps that are not there are so far below 0 that no other part makes up for it.
constexpr double kNowhere = -double(int64_t{1} << 60);

class TapRows {
 public:
  /// Of each dimension the places come first, then the weights, then those of its slopes if there
  /// are any (see Sampling::along). `positions` to `steps`: what the first stage reads.
  TapRows(const Sampling& s, bool slopes) : spatial_(s.orders.size()) {
    per_dim_ = s.mode == Mode::bicubic ? 4 : s.mode == Mode::bilinear ? 2 : 1;
    for (size_t d = 0; d < spatial_; ++d)
      has_slopes_[d] = slopes && !s.along(spatial_ - 1 - d).is_zero();
  }
  bool has_slopes(size_t d) const { return has_slopes_[d]; }

  std::vector<expr::Value> make(std::span<const expr::Value> positions,
                                std::span<const expr::Value> sizes,
                                std::span<const expr::Value> steps, const Sampling& s) const {
    std::vector<expr::Value> all;
    for (size_t d = 0; d < spatial_; ++d) {
      const auto taps = taps_of(positions[d], sizes[d], s, s.orders[d]);
      const auto weights = [&](const std::vector<Tap>& of) {
        for (size_t k = 0; k < per_dim_; ++k)
          all.push_back(where(taps[k].exists, of[k].weight, 0.0));
      };
      for (const Tap& t : taps) all.push_back(where(t.exists, t.index * steps[d], kNowhere));
      weights(taps);
      if (has_slopes_[d]) weights(taps_of(positions[d], sizes[d], s, s.orders[d] + 1));
    }
    return all;
  }

  /// The sum over all taps of the elements of `image` from `begin` on, then its slopes along the
  /// dimensions that have any. `rows`: what make() gave.
  std::vector<expr::Value> sums(const expr::Value& image, const expr::Value& begin,
                                std::span<const expr::Value> rows, bool slopes) const {
    std::vector<Row> of(spatial_);
    for (size_t d = 0; d < spatial_; ++d) {
      of[d].places = rows.first(per_dim_);
      of[d].weights = rows.subspan(per_dim_, per_dim_);
      rows = rows.subspan(2 * per_dim_);
      if (!has_slopes_[d]) continue;
      of[d].slopes = rows.first(per_dim_);
      rows = rows.subspan(per_dim_);
    }
    std::vector<expr::Value> all = sums_from(image, begin, of, 0, slopes);
    return all;
  }
  size_t count() const {
    size_t n = 0;
    for (size_t d = 0; d < spatial_; ++d) n += (has_slopes_[d] ? 3 : 2) * per_dim_;
    return n;
  }

 private:
  struct Row {
    std::span<const expr::Value> places, weights, slopes;
  };
  // Of dimension d and those after it: the sum and, for each of them with slopes, its slope.
  std::vector<expr::Value> sums_from(const expr::Value& image, const expr::Value& at,
                                     std::span<const Row> of, size_t d, bool slopes) const {
    using expr::Value;
    if (d == spatial_) {
      const Value there = at >= 0.0;
      const Value x = expr::load(image, where(there, at, 0.0));
      return {where(there, cast(x, of[0].weights[0].type()), 0.0)};
    }
    std::vector<Value> all;
    for (size_t k = 0; k < per_dim_; ++k) {
      const auto parts = sums_from(image, at + of[d].places[k], of, d + 1, slopes);
      std::vector<Value> terms{parts[0] * of[d].weights[k]};
      if (slopes) {
        if (has_slopes_[d]) terms.push_back(parts[0] * of[d].slopes[k]);
        for (size_t i = 1; i < parts.size(); ++i) terms.push_back(parts[i] * of[d].weights[k]);
      }
      if (k == 0)
        all = std::move(terms);
      else
        for (size_t i = 0; i < terms.size(); ++i) all[i] = all[i] + terms[i];
    }
    return all;
  }

  size_t spatial_, per_dim_;
  std::array<bool, 3> has_slopes_{};
};

// Inputs of all specs: the image (a table), where the plane of each image and channel begins, the
// positions in each spatial dimension. Parameters: of each dimension its size and the elements from
// one to the next.
struct SamplingStages {
  TapRows taps;
  std::vector<int> rows;

  SamplingStages(FusedBuilder& b, DType dtype, const Sampling& s, bool slopes) : taps(s, slopes) {
    const size_t spatial = s.orders.size();
    std::vector<int> reads;
    for (size_t d = 0; d < spatial; ++d) reads.push_back(2 + int(d));
    const int first = b.row(reads, [&](FusedBuilder::Values v) {
      std::vector<expr::Value> positions;
      for (size_t d = 0; d < spatial; ++d) positions.push_back(cast(v[d], expr::work_type(dtype)));
      return taps.make(positions, v.subspan(spatial, spatial), v.subspan(2 * spatial), s);
    });
    rows = {0, 1};
    for (int k = 0; k < int(taps.count()); ++k) rows.push_back(first - k);
  }
  static std::vector<expr::Type> params(DType dtype, size_t spatial) {
    std::vector<expr::Type> all(spatial, expr::work_type(dtype));
    all.insert(all.end(), spatial, expr::Type::i64);
    return all;
  }
};

const prim::FusedSpec& sampling_spec(DType dtype, const Sampling& s) {
  static auto& cache = *new SpecCache;  // used until exit
  return cache.get(s.key(dtype), [&] {
    const size_t spatial = s.orders.size();
    std::vector<DType> inputs{dtype, kInt64};
    inputs.insert(inputs.end(), spatial, dtype);
    FusedBuilder b(inputs, {dtype}, SamplingStages::params(dtype, spatial), 0b1);
    const SamplingStages stages(b, dtype, s, false);
    b.store(stages.rows, 0, 1, [&](FusedBuilder::Values v) {
      return stages.taps.sums(v[0], v[1], v.subspan(2, stages.taps.count()), false);
    });
    return b.finish();
  });
}

// One more input, what slopes are multiplied with; outputs: a sum over channels for each spatial
// dimension that has slopes.
const prim::FusedSpec& slopes_spec(DType dtype, const Sampling& s) {
  static auto& cache = *new SpecCache;  // used until exit
  return cache.get(s.key(dtype), [&] {
    const size_t spatial = s.orders.size();
    std::vector<DType> inputs{dtype, kInt64};
    inputs.insert(inputs.end(), spatial + 1, dtype);
    const TapRows taps(s, true);
    std::vector<DType> outputs;
    for (size_t d = 0; d < spatial; ++d)
      if (taps.has_slopes(d)) outputs.push_back(dtype);
    FusedBuilder b(inputs, outputs, SamplingStages::params(dtype, spatial), 0b1);
    SamplingStages stages(b, dtype, s, true);
    stages.rows.push_back(2 + int(spatial));
    const int sums = b.reduce(prim::Monoid::sum, stages.rows, [&](FusedBuilder::Values v) {
      const size_t n = stages.taps.count();
      std::vector<expr::Value> all = stages.taps.sums(v[0], v[1], v.subspan(2, n), true);
      all.erase(all.begin());
      for (expr::Value& x : all) x = x * cast(v[2 + n], x.type());
      return all;
    });
    for (int k = 0; k < int(outputs.size()); ++k)
      b.store_row({sums - k}, k, 1, [](FusedBuilder::Values v) { return std::vector{v[0]}; });
    return b.finish();
  });
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
// The components of positions by dimension.
SmallVector<Layout, 3> position_layouts(const Tensor& grid) {
  SmallVector<Layout, 3> layouts;
  for (int64_t k = grid.size(-1); k-- > 0;) layouts.push_back(select(grid.layout(), -1, k));
  return layouts;
}

// The operands of sampling_spec and slopes_spec: points are rows, channels their elements.
class SamplingCall {
 public:
  SamplingCall(prim::Primitives& p, const Tensor& x, const Tensor& grid)
      : image_(p, x, x.dtype()),
        first_(p, kInt64, Shape{x.size(0) * x.size(1)}),
        space_(grid.sizes().first(size_t(grid.dim()) - 1)),
        params_(size_params(x.sizes().subspan(2))) {
    space_.push_back(x.size(1));
    p.iota({.out = first_, .istart = 0, .istep = numel_of(x.sizes().subspan(2))});
    inputs_.push_back(image_.view());
    first_strides_ = Shape(space_.size(), 0);
    first_strides_[0] = x.size(1), first_strides_.back() = 1;
    prim::View begin = first_.view();
    begin.sizes = space_, begin.strides = first_strides_;
    inputs_.push_back(begin);
    for (const Layout& l : position_layouts(grid))
      inputs_.push_back(view_of(grid, layouts_.emplace_back(expand(unsqueeze(l, -1), space_))));
  }
  SamplingCall(const SamplingCall&) = delete;
  /// A tensor with the channels in dimension 1.
  prim::View by_points(const Tensor& t) {
    return view_of(t, layouts_.emplace_back(dim_last(t.layout(), 1)));
  }
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
  DenseView image_;
  prim::ScratchView first_;
  Shape space_, first_strides_;
  SmallVector<expr::Literal, 16> params_;
  SmallVector<prim::View, 8> inputs_;
  std::deque<Layout> layouts_;  // views refer to them
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
          SamplingCall call(p, x, c.tensor(1));
          const prim::View result = call.by_points(out[0]);
          call.run(p, sampling_spec(x.dtype(), sampling_of(c, 2)), {&result, 1});
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
            const SmallVector<Layout, 3> layouts = position_layouts(grid);
            SmallVector<prim::View, 3> positions;
            for (const Layout& l : layouts) positions.push_back(view_of(grid, l));
            const prim::View results[] = {index.view(), weights.view()};
            auto params = size_params(spatial);
            const int64_t per_dim = s.mode == Mode::bicubic ? 4 : s.mode == Mode::bilinear ? 2 : 1;
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
          out.push_back({Shape(c.tensor(2).sizes()), c.tensor(2).dtype(), common_device(c), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const Tensor &x = c.tensor(0), &values = c.tensor(1);
          const Sampling s = sampling_of(c, 3);
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
          call.run(p, slopes_spec(x.dtype(), s), {sums.data(), sums.size()});
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
  return call(grid_slopes_op,
              {x, values, grid, IntList(s.orders), int64_t(s.mode), int64_t(s.outside), s.align});
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
