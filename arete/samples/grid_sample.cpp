// Samples, references and errors of the records in ops/grid_sample.cpp.
#include <algorithm>
#include <cmath>

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

// (element, weight) along one dimension; elements may be outside.
std::vector<std::pair<int64_t, double>> reference_taps(double g, int64_t n, std::string_view mode,
                                                       std::string_view outside, bool align) {
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

std::vector<Tensor> sample_reference(const Tensor& x, const Tensor& grid, std::string_view mode,
                                     std::string_view outside, bool align) {
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
      taps.push_back(reference_taps(at(grid, g), x.size(d + 2), mode, outside, align));
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
                out.push_back({{m.make({2, 3, 3, 4}).detach(),
                                m.make({2, 2, 3, 2}, -2.2, 2.2).detach(), mode, outside, align}});
          out.push_back({{m.make_strided({2, 2, 1, 3, 2}).detach(),
                          m.make_strided({2, 2, 1, 2, 3}).detach(), 0, 2, true},
                         "one plane"});
          out.push_back({{m.make({0, 2, 3, 3}).detach(), m.make({0, 2, 1, 2}).detach(), 0, 0, true},
                         "no images"});
          return out;
        })
        .reference([](const Call& c) {
          return sample_reference(c.tensor(0), c.tensor(1), kModes[c.integer(2)],
                                  kOutside[c.integer(3)], c.boolean(4));
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
