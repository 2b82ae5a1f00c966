// Samples, references and errors of the records in ops/interpolate.cpp.
#include <algorithm>
#include <cmath>

#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

using L = std::initializer_list<int64_t>;

bool flag(const Call& c, size_t i) { return c.has(i) && c.boolean(i); }

std::vector<Tensor> resized_reference(const Call& c, std::string_view mode, bool align,
                                      bool recompute, bool antialias = false);
const Attached repeat_elements_op =
    attach("repeat_elements")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 1, 3}), L{2}}},
                  {{m.make_strided({1, 2, 2, 3}), L{3, 1}}},
                  {{m.make({1, 3, 2, 2}).contiguous(MemoryFormat::channels_last), L{2, 2}},
                   "channels last"},
                  {{m.make({1, 2, 1, 2, 2}), L{2, 1, 3}}},
                  {{m.make({0, 2, 3}), L{2}}}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          Shape sizes(x.sizes());
          for (size_t d = 2; d < sizes.size(); ++d) sizes[d] *= c.ints(1)[d - 2];
          return {build_tensor(sizes, [&](Shape i) {
            for (size_t d = 2; d < i.size(); ++d) i[d] /= c.ints(1)[d - 2];
            return at(x, i);
          })};
        });
const Attached interpolate_op =
    attach("interpolate")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const std::nullopt_t none = std::nullopt;
          const auto by = [](std::vector<double> f) { return f; };
          return {{{m.make({1, 2, 3}), L{5}, none, "nearest", none, none, false}},
                  {{m.make({1, 1, 2, 3}), L{3, 5}, none, "nearest-exact", none, none, false}},
                  {{m.make({1, 2, 2, 3}), none, by({2.0, 3.0}), "nearest", none, none, false}},
                  {{m.make({1, 2, 4}), none, by({1.5}), "linear", false, none, false}},
                  {{m.make({1, 2, 4}), none, by({1.6}), "linear", false, true, false}},
                  {{m.make({1, 2, 4}), L{7}, none, "linear", true, none, false}},
                  {{m.make_strided({1, 2, 3, 2}), L{5, 3}, none, "bilinear", false, none, false}},
                  {{m.make({1, 1, 3, 4}), L{2, 2}, none, "bilinear", true, none, false}},
                  {{m.make({1, 1, 3, 4}), none, by({2.0, 0.5}), "bicubic", false, none, false}},
                  {{m.make({1, 1, 3, 3}), L{4, 2}, none, "bicubic", true, none, false}},
                  {{m.make({1, 1, 2, 2, 3}), L{3, 2, 4}, none, "trilinear", false, none, false}},
                  {{m.make({1, 1, 3, 4}), L{2, 2}, none, "area", none, none, false}},
                  {{m.make({1, 2, 3, 2}), L{6, 2}, none, "area", none, none, false}},
                  {{m.make({1, 1, 7, 5}), L{3, 8}, none, "bilinear", none, none, true}},
                  {{m.make({1, 1, 5, 6}), L{2, 3}, none, "bilinear", true, none, true}},
                  {{m.make({1, 2, 9, 3}), none, by({0.4, 1.5}), "bicubic", none, none, true}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const std::nullopt_t none = std::nullopt;
          const std::vector<double> one{1.0};
          return {{{m.make({1, 2, 3}), none, none, "nearest", none, none, false},
                   ErrorKind::value,
                   "either size or scale_factor should be defined"},
                  {{m.make({1, 2, 3}), L{3}, one, "nearest", none, none, false},
                   ErrorKind::value,
                   "only one of size or scale_factor"},
                  {{m.make({1, 2, 3}), L{3}, none, "bilinear", none, none, false},
                   ErrorKind::not_implemented,
                   "Got 3D input, but bilinear mode needs 4D input"},
                  {{m.make({1, 2, 3}), L{3}, none, "nearest", true, none, false},
                   ErrorKind::value,
                   "align_corners option can only be set"},
                  {{m.make({1, 2, 3}), L{3}, none, "lanczos", none, none, false},
                   ErrorKind::value,
                   "mode 'lanczos' is not known"},
                  {{m.make({1, 2, 3, 3}), L{3}, none, "nearest", none, none, true},
                   ErrorKind::value,
                   "Anti-alias option is restricted to bilinear and bicubic modes"},
                  {{m.make({1, 2, 3}), L{3}, none, "nearest", none, true, false},
                   ErrorKind::value,
                   "recompute_scale_factor is not meaningful"}};
        })
        .reference([](const Call& c) {
          return resized_reference(c, c[3].string(), flag(c, 4), flag(c, 5), c.boolean(6));
        });

// Choices of elements by a table; the sums are tested through interpolate.
const Attached resample_op =
    attach("resample")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto table = [&](std::vector<int64_t> v) {
            return tensor(v, TensorOptions(kInt64, m.device));
          };
          const int64_t nearest = 0;
          const std::vector<double> scales{4.0 / 3, 1};
          return {{{m.make({1, 2, 4, 3}), table({0, 1, 2, 3, 0, 1, 2}), L{3, 3}, L{0, -1}, scales,
                    nearest, false, false, false}}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{c.tensor(0).narrow(2, 0, 3).contiguous()};
        });

template <bool bilinear>
void attach_upsample(std::string_view name) {
  attach(name)
      .samples([](SampleMaker& m) -> std::vector<Sample> {
        return {{{m.make({1, 2, 2, 3}), L{3, 5}, std::nullopt}},
                {{m.make_strided({1, 1, 3, 2}), std::nullopt, std::vector<double>{2.0}}}};
      })
      .reference([](const Call& c) {
        return resized_reference(c, bilinear ? "bilinear" : "nearest", bilinear, false);
      });
}

std::vector<Tensor> resized_reference(const Call& c, std::string_view mode, bool align,
                                      bool recompute, bool antialias) {
  // Every output element as the sum over all input elements of the products of weights that
  // the definition of the mode gives for each dimension.
  const Tensor& x = c.tensor(0);
  const int spatial = int(x.dim()) - 2;
  Shape out{x.size(0), x.size(1)};
  std::vector<double> scale;
  for (int d = 0; d < spatial; ++d) {
    const int64_t n = x.size(d + 2);
    if (c.has(1)) {
      out.push_back(c.ints(1)[c.ints(1).size() == 1 ? 0 : size_t(d)]);
      scale.push_back(double(n) / double(out.back()));
    } else {
      const double f = c.reals(2)[c.reals(2).size() == 1 ? 0 : size_t(d)];
      out.push_back(int64_t(double(n) * f));
      scale.push_back(recompute ? double(n) / double(out.back()) : 1 / f);
    }
    if (align) scale.back() = out.back() > 1 ? double(n - 1) / double(out.back() - 1) : 0;
  }
  // Antialiased: the filter of output i at input k before division by the sum over all inputs.
  const auto wide = [&](int d, int64_t i, int64_t k) {
    const double s = scale[size_t(d)], center = s * (double(i) + 0.5), width = std::max(s, 1.0);
    const double t = std::fabs(double(k) + 0.5 - center) / width;
    if (mode == "bilinear") return std::max(0.0, 1 - t);
    const double reach = 2 * width;
    if (k < int64_t(center - reach + 0.5) || k >= int64_t(center + reach + 0.5)) return 0.0;
    return t <= 1  ? 1.5 * t * t * t - 2.5 * t * t + 1
           : t < 2 ? -0.5 * t * t * t + 2.5 * t * t - 4 * t + 2
                   : 0.0;
  };
  const auto weight = [&](int d, int64_t i, int64_t k) -> double {
    if (antialias) {
      double sum = 0;
      for (int64_t q = 0; q < x.size(d + 2); ++q) sum += wide(d, i, q);
      return wide(d, i, k) / sum;
    }
    const int64_t n = x.size(d + 2), o = out[size_t(d) + 2];
    const double s = scale[size_t(d)];
    if (mode == "area") {
      const int64_t begin = i * n / o, end = ((i + 1) * n + o - 1) / o;
      return k >= begin && k < end ? 1.0 / double(end - begin) : 0;
    }
    if (mode == "nearest") return k == std::min(int64_t(double(i) * s + 1e-9), n - 1);
    if (mode == "nearest-exact") return k == std::min(int64_t((double(i) + 0.5) * s + 1e-9), n - 1);
    double at_x = align ? double(i) * s : (double(i) + 0.5) * s - 0.5;
    if (mode != "bicubic") {
      at_x = std::min(std::max(at_x, 0.0), double(n - 1));
      return std::max(0.0, 1 - std::fabs(at_x - double(k)));
    }
    double sum = 0;  // positions outside count for the border
    for (int64_t q = -3; q < n + 3; ++q)
      if (std::clamp<int64_t>(q, 0, n - 1) == k) {
        const double t = std::fabs(at_x - double(q)), a = -0.75;
        if (t <= 1)
          sum += (a + 2) * t * t * t - (a + 3) * t * t + 1;
        else if (t < 2)
          sum += a * t * t * t - 5 * a * t * t + 8 * a * t - 4 * a;
      }
    return sum;
  };
  return {build_tensor(out, [&](const Shape& i) {
    double sum = 0;
    for_each_index(x.sizes().subspan(2), [&](const Shape& k) {
      double w = 1;
      Shape ix{i[0], i[1]};
      for (int d = 0; d < spatial; ++d) {
        w *= weight(d, i[size_t(d) + 2], k[size_t(d)]);
        ix.push_back(k[size_t(d)]);
      }
      sum += w * at(x, ix);
    });
    return sum;
  })};
}

const bool interpolate_attached = [] {
  attach_upsample<false>("upsample_nearest");
  attach_upsample<true>("upsample_bilinear");
  return true;
}();

}  // namespace
}  // namespace arete::ops
