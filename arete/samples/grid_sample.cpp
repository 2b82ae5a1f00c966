// Samples, references and errors of the records in ops/grid_sample.cpp.
#include <algorithm>
#include <cmath>
#include <functional>

#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

bool flag(const Call& c, size_t i) { return c.has(i) && c.boolean(i); }

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

// How many elements a position moves when g does, +-1 or 0 times the elements of a unit.
double reference_slope(double x, double scale, int64_t n, std::string_view outside, bool align) {
  constexpr double kStep = 1e-6;
  const double turn = (reference_inside(x + kStep, n, outside, align) -
                       reference_inside(x - kStep, n, outside, align)) /
                      (2 * kStep);
  return std::nearbyint(turn) * scale;
}

// (element, weight) along one dimension; elements may be outside. With `order` the derivatives of
// the weights.
std::vector<std::pair<int64_t, double>> reference_taps(double g, int64_t n, std::string_view mode,
                                                       std::string_view outside, bool align,
                                                       int64_t order) {
  const double scale = (align ? double(n - 1) : double(n)) / 2;
  double x = align ? (g + 1) / 2 * double(n - 1) : ((g + 1) * double(n) - 1) / 2;
  std::vector<std::pair<int64_t, double>> taps;
  if (mode == "bicubic") {
    for (int64_t k = int64_t(std::floor(x)) - 1; k <= int64_t(std::floor(x)) + 2; ++k) {
      const double t = std::fabs(x - double(k)), a = -0.75;
      const double side = x < double(k) ? -scale : scale;
      const double near[] = {(a + 2) * t * t * t - (a + 3) * t * t + 1,
                             (3 * (a + 2) * t * t - 2 * (a + 3) * t) * side,
                             (6 * (a + 2) * t - 2 * (a + 3)) * side * side};
      const double far[] = {a * t * t * t - 5 * a * t * t + 8 * a * t - 4 * a,
                            (3 * a * t * t - 10 * a * t + 8 * a) * side,
                            (6 * a * t - 10 * a) * side * side};
      taps.push_back({int64_t(std::nearbyint(reference_inside(double(k), n, outside, align))),
                      t <= 1 ? near[order] : far[order]});
    }
    return taps;
  }
  const double slope = reference_slope(x, scale, n, outside, align);
  x = reference_inside(x, n, outside, align);
  if (mode == "nearest") return {{int64_t(std::nearbyint(x)), 1.0}};
  const double base = std::floor(x);
  return {{int64_t(base), order ? -slope : 1 - (x - base)},
          {int64_t(base) + 1, order ? slope : x - base}};
}

// visit(element, weight) for all taps of the position at `point` (of the grid without its last
// dimension) in images of the given sizes.
void for_each_tap(IntList sizes, const Tensor& grid, const Shape& point, std::string_view mode,
                  std::string_view outside, bool align, IntList orders,
                  const std::function<void(const Shape&, double)>& visit) {
  const int spatial = int(sizes.size());
  std::vector<std::vector<std::pair<int64_t, double>>> taps;
  Shape counts;
  for (int d = 0; d < spatial; ++d) {
    Shape g = point;
    g.push_back(spatial - 1 - d);
    taps.push_back(reference_taps(at(grid, g), sizes[size_t(d)], mode, outside, align,
                                  orders.empty() ? 0 : orders[size_t(d)]));
    counts.push_back(int64_t(taps.back().size()));
  }
  for_each_index(counts, [&](const Shape& k) {
    double w = 1;
    Shape element;
    for (int d = 0; d < spatial; ++d) {
      const auto [place, weight] = taps[size_t(d)][size_t(k[size_t(d)])];
      if (place < 0 || place >= sizes[size_t(d)]) return;
      element.push_back(place);
      w *= weight;
    }
    visit(element, w);
  });
}

double sample_at(const Tensor& x, int64_t channel, const Tensor& grid, const Shape& point,
                 std::string_view mode, std::string_view outside, bool align, IntList orders) {
  double sum = 0;
  for_each_tap(x.sizes().subspan(2), grid, point, mode, outside, align, orders,
               [&](const Shape& element, double w) {
                 Shape ix{point[0], channel};
                 ix.append(element.begin(), element.end());
                 sum += w * at(x, ix);
               });
  return sum;
}

std::vector<Tensor> sample_reference(const Tensor& x, const Tensor& grid, std::string_view mode,
                                     std::string_view outside, bool align, IntList orders = {}) {
  Shape out{x.size(0), x.size(1)};
  out.append(grid.sizes().begin() + 1, grid.sizes().end() - 1);
  return {build_tensor(out, [&](const Shape& i) {
    Shape point{i[0]};
    point.append(i.begin() + 2, i.end());
    return sample_at(x, i[1], grid, point, mode, outside, align, orders);
  })};
}

const Attached grid_sample_op =
    attach("grid_sample")
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
        .reference([](const Call& c) {
          return sample_reference(c.tensor(0), c.tensor(1), c[2].string(), c[3].string(),
                                  flag(c, 4));
        });
// The same with numbers for the modes.
constexpr const char* kModes[] = {"bilinear", "nearest", "bicubic"};
constexpr const char* kOutside[] = {"zeros", "border", "reflection"};

const Attached sample_grid_op =
    attach("sample_grid")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> out;
          for (int mode = 0; mode < 3; ++mode)
            for (int outside = 0; outside < 3; ++outside)
              for (const bool align : {false, true})
                out.push_back({{m.make({2, 3, 3, 4}),
                                m.make({2, 2, 3, 2}, -2.2, 2.2),
                                {mode == 1 ? 0 : outside % 2, mode / 2},
                                mode,
                                outside,
                                align}});
          out.push_back({{m.make_strided({2, 2, 1, 3, 2}),
                          m.make_strided({2, 2, 1, 2, 3}),
                          {0, 0, 0},
                          0,
                          2,
                          true},
                         "one plane"});
          out.push_back(
              {{m.make({0, 2, 3, 3}), m.make({0, 2, 1, 2}), {0, 0}, 0, 0, true}, "no images"});
          return out;
        })
        .reference([](const Call& c) {
          return sample_reference(c.tensor(0), c.tensor(1), kModes[c.integer(3)],
                                  kOutside[c.integer(4)], c.boolean(5), c.ints(2));
        });
const Attached spread_grid_op =
    attach("spread_grid")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> out;
          for (int mode = 0; mode < 3; ++mode)
            for (int outside = 0; outside < 3; ++outside)
              for (const bool align : {false, true})
                out.push_back({{m.make({2, 3, 2, 3}),
                                m.make({2, 2, 3, 2}, -2.2, 2.2),
                                {3, 4},
                                {mode == 1 ? 0 : outside % 2, mode / 2},
                                mode,
                                outside,
                                align}});
          out.push_back({{m.make_strided({2, 2, 2, 1, 2}),
                          m.make_strided({2, 2, 1, 2, 3}),
                          {1, 3, 2},
                          {0, 1, 1},
                          0,
                          2,
                          true},
                         "one plane"});
          out.push_back({{m.make({1, 2, 0, 1}), m.make({1, 0, 1, 2}), {2, 3}, {0, 0}, 0, 0, true},
                         "no points"});
          return out;
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &values = c.tensor(0), &grid = c.tensor(1);
          Shape sizes{values.size(0), values.size(1)};
          sizes.append(c.ints(2).begin(), c.ints(2).end());
          std::vector<double> out(size_t(numel_of(sizes)), 0.0);
          for_each_index(values.sizes(), [&](const Shape& i) {
            Shape point{i[0]};
            point.append(i.begin() + 2, i.end());
            for_each_tap(c.ints(2), grid, point, kModes[c.integer(4)], kOutside[c.integer(5)],
                         c.boolean(6), c.ints(3), [&](const Shape& element, double w) {
                           Shape to{i[0], i[1]};
                           to.append(element.begin(), element.end());
                           out[size_t(flat_position(sizes, to))] += w * at(values, i);
                         });
          });
          return {from_values(out, sizes)};
        });
const Attached grid_slopes_op =
    attach("grid_slopes")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> out;
          for (int mode = 0; mode < 3; ++mode)
            for (int outside = 0; outside < 3; ++outside)
              for (const bool align : {false, true})
                out.push_back({{m.make({2, 3, 3, 4}),
                                m.make({2, 3, 2, 3}),
                                m.make({2, 2, 3, 2}, -2.2, 2.2),
                                {0, mode == 1 ? 0 : outside % 2},
                                mode,
                                outside,
                                align}});
          out.push_back({{m.make_strided({2, 2, 1, 3, 2}),
                          m.make_strided({2, 2, 2, 1, 2}),
                          m.make_strided({2, 2, 1, 2, 3}),
                          {0, 0, 0},
                          0,
                          2,
                          true},
                         "one plane"});
          out.push_back({{m.make({1, 0, 2, 3}),
                          m.make({1, 0, 1, 2}),
                          m.make({1, 1, 2, 2}),
                          {0, 0},
                          0,
                          0,
                          true},
                         "no channels"});
          return out;
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &x = c.tensor(0), &values = c.tensor(1), &grid = c.tensor(2);
          const int64_t degree = c.integer(4) == 2 ? 3 : c.integer(4) == 0 ? 1 : 0;
          return {build_tensor(grid.sizes(), [&](const Shape& i) {
            Shape orders(c.ints(3));
            int64_t& order = orders[orders.size() - 1 - size_t(i.back())];
            if (++order > degree) return 0.0;
            const Shape point(i.begin(), i.end() - 1);
            double sum = 0;
            for (int64_t channel = 0; channel < x.size(1); ++channel) {
              Shape of_value{i[0], channel};
              of_value.append(i.begin() + 1, i.end() - 1);
              sum += at(values, of_value) * sample_at(x, channel, grid, point, kModes[c.integer(4)],
                                                      kOutside[c.integer(5)], c.boolean(6), orders);
            }
            return sum;
          })};
        });
const Attached affine_grid_op =
    attach("affine_grid")
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
}  // namespace arete::ops
