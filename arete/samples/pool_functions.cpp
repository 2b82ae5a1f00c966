// Samples, references and errors of the records in ops/pool_functions.cpp.
#include <algorithm>
#include <cmath>

#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/pool_internal.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

using L = std::initializer_list<int64_t>;

// Sizes (lead..., 2, ..., 2, last).
Shape spatial_sizes(int spatial, L lead, int64_t first, int64_t last) {
  Shape s(lead.begin(), lead.end());
  for (int d = 0; d < spatial; ++d) s.push_back(d + 1 == spatial ? last : first);
  return s;
}

// The maximum and its place in the plane for windows [begin, end) chosen by `window(d, i)`.
template <class W>
std::vector<Tensor> windows_reference(const Tensor& x, int spatial, IntList out_spatial,
                                      bool maximum, W window) {
  const size_t lead = size_t(x.dim() - spatial);
  Shape out(x.sizes().first(lead));
  for (int64_t s : out_spatial) out.push_back(s);
  std::vector<double> values, places;
  for_each_index(out, [&](const Shape& i) {
    Shape counts;
    for (int d = 0; d < spatial; ++d) {
      const auto [begin, end] = window(d, i[lead + size_t(d)]);
      counts.push_back(end - begin);
    }
    double best = -INFINITY, place = -1, sum = 0, n = 0;
    for_each_index(counts, [&](const Shape& k) {
      Shape ix = i;
      int64_t plane = 0;
      for (int d = 0; d < spatial; ++d) {
        const int64_t v = window(d, i[lead + size_t(d)]).first + k[size_t(d)];
        ix[lead + size_t(d)] = v;
        plane = plane * x.sizes()[lead + size_t(d)] + v;
      }
      const double v = at(x, ix);
      sum += v;
      n += 1;
      if (place < 0 || v > best) best = v, place = double(plane);
    });
    values.push_back(maximum ? best : sum / n);
    places.push_back(place);
  });
  return {from_values(values, out), from_values(places, out, kInt64)};
}

template <int spatial, bool indices>
void attach_max(std::string_view name) {
  attach(name)
      .samples([](SampleMaker& m) -> std::vector<Sample> {
        return {
            {{m.make_distinct(spatial_sizes(spatial, {1, 2}, 2, 4)), L{2}, L{}, L{0}, L{1}, false}},
            {{m.make_distinct(spatial_sizes(spatial, {2}, 2, 5)), L{2}, L{1}, L{1}, L{1}, true},
             "no batch"}};
      })
      .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
        return {
            {{m.make({2}), L{2}, L{}, L{0}, L{1}, false},
             ErrorKind::value,
             "Expected " + std::to_string(spatial + 1) + "D or " + std::to_string(spatial + 2) +
                 "D input to"},
            {{m.make(spatial_sizes(spatial, {1, 2}, 4, 4)), L{2, 2, 2, 2}, L{}, L{0}, L{1}, false},
             ErrorKind::value,
             "expected kernel_size to be a single integer value or a list of"}};
      })
      .reference([](const Call& c) -> std::vector<Tensor> {
        const Tensor& x = c.tensor(0);
        const PoolParams p = pool_params(c, spatial, true);  // the samples' dilation is 1
        const size_t lead = size_t(x.dim() - spatial);
        Shape out;
        for (size_t d = 0; d < size_t(spatial); ++d) {
          const int64_t n = x.sizes()[lead + d], k = p.kernel[d], s = p.stride[d],
                        pad = p.padding[d];
          int64_t o = (n + 2 * pad - k + (p.ceil_mode ? s - 1 : 0)) / s + 1;
          if (p.ceil_mode && (o - 1) * s >= n + pad) --o;
          out.push_back(o);
        }
        auto r = windows_reference(x, spatial, out, true, [&](int d, int64_t i) {
          const int64_t begin = i * p.stride[size_t(d)] - p.padding[size_t(d)];
          return std::pair{std::max<int64_t>(begin, 0),
                           std::min(begin + p.kernel[size_t(d)], x.sizes()[lead + size_t(d)])};
        });
        if (!indices) r.pop_back();
        return r;
      });
}

template <int spatial>
void attach_avg(std::string_view name) {
  attach(name)
      .samples([](SampleMaker& m) -> std::vector<Sample> {
        std::vector<Sample> out{
            {{m.make(spatial_sizes(spatial, {1, 2}, 2, 4)), L{2}, L{}, L{0}, false, true}},
            {{m.make(spatial_sizes(spatial, {2}, 2, 5)), L{2}, L{1}, L{1}, false, false},
             "no batch"}};
        if (spatial > 1)
          for (size_t i = 0; i < out.size(); ++i)
            out[i].args.push_back(i ? OwnedArg(3) : OwnedArg());
        return out;
      })
      .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
        std::vector<OwnedArg> args{m.make({2}), L{2}, L{}, L{0}, false, true};
        if (spatial > 1) args.push_back(OwnedArg());
        return {{args, ErrorKind::value, "Expected " + std::to_string(spatial + 1) + "D or"}};
      })
      .reference([](const Call& c) -> std::vector<Tensor> {
        const Tensor& x = c.tensor(0);
        const PoolParams p = pool_params(c, spatial, false);
        const size_t lead = size_t(x.dim() - spatial);
        Shape out(x.sizes().first(lead));
        for (size_t d = 0; d < size_t(spatial); ++d)
          out.push_back((x.sizes()[lead + d] + 2 * p.padding[d] - p.kernel[d]) / p.stride[d] + 1);
        return {build_tensor(out, [&](const Shape& i) {
          double sum = 0, all = 0, inside = 0;
          for_each_index(p.kernel, [&](const Shape& k) {
            Shape ix = i;
            all += 1;
            for (size_t d = 0; d < size_t(spatial); ++d) {
              int64_t& v = ix[lead + d];
              v = v * p.stride[d] - p.padding[d] + k[d];
              if (v < 0 || v >= x.sizes()[lead + d]) return;
            }
            inside += 1;
            sum += at(x, ix);
          });
          return sum / (spatial > 1 && c.has(6) ? double(c.integer(6))
                        : c.boolean(5)          ? all
                                                : inside);
        })};
      });
}

template <int spatial>
std::vector<Sample> adaptive_samples(SampleMaker& m) {
  return {{{m.make_distinct(spatial_sizes(spatial, {1, 2}, 2, 4)), L{2}}, "even"},
          {{m.make_distinct(spatial_sizes(spatial, {2}, 3, 5)), L{2}}, "uneven, no batch"},
          {{m.make_distinct(spatial_sizes(spatial, {1, 2}, 2, 3)), L{1}}, "global"},
          {{m.make_distinct(spatial_sizes(spatial, {1, 1}, 2, 3)), L{-1}}, "unchanged"}};
}

template <int spatial>
std::vector<ErrorSample> adaptive_errors(SampleMaker& m) {
  return {
      {{m.make({2}), L{2}}, ErrorKind::value, "Expected " + std::to_string(spatial + 1) + "D or"},
      {{m.make(spatial_sizes(spatial, {1, 2}, 2, 4)), L{-2}},
       ErrorKind::value,
       "elements of output_size must be greater than or equal to 0"}};
}

template <int spatial>
std::vector<Tensor> adaptive_reference(const Call& c, bool maximum) {
  const Tensor& x = c.tensor(0);
  const size_t lead = size_t(x.dim() - spatial);
  Shape out;
  for (size_t d = 0; d < size_t(spatial); ++d) {
    const int64_t o = c.ints(1).size() == 1 ? c.ints(1)[0] : c.ints(1)[d];
    out.push_back(o == -1 ? x.sizes()[lead + d] : o);
  }
  return windows_reference(x, spatial, out, maximum, [&](int d, int64_t i) {
    const int64_t n = x.sizes()[lead + size_t(d)], o = out[size_t(d)];
    return std::pair{int64_t(std::floor(double(i * n) / double(o))),
                     int64_t(std::ceil(double((i + 1) * n) / double(o)))};
  });
}

template <int spatial>
void attach_adaptive_avg(std::string_view name) {
  attach(name)
      .samples(adaptive_samples<spatial>)
      .errors(adaptive_errors<spatial>)
      .reference([](const Call& c) -> std::vector<Tensor> {
        return {adaptive_reference<spatial>(c, false)[0]};
      });
}

template <int spatial, bool indices>
void attach_adaptive_max(std::string_view name) {
  attach(name)
      .samples(adaptive_samples<spatial>)
      .errors(adaptive_errors<spatial>)
      .reference([](const Call& c) {
        auto r = adaptive_reference<spatial>(c, true);
        if (!indices) r.pop_back();
        return r;
      });
}

const bool pool_functions_attached = [] {
  attach_max<1, false>("max_pool1d");
  attach_max<1, true>("max_pool1d_with_indices");
  attach_avg<1>("avg_pool1d");
  attach_adaptive_avg<1>("adaptive_avg_pool1d");
  attach_adaptive_max<1, false>("adaptive_max_pool1d");
  attach_adaptive_max<1, true>("adaptive_max_pool1d_with_indices");
  attach_max<2, false>("max_pool2d");
  attach_max<2, true>("max_pool2d_with_indices");
  attach_avg<2>("avg_pool2d");
  attach_adaptive_avg<2>("adaptive_avg_pool2d");
  attach_adaptive_max<2, false>("adaptive_max_pool2d");
  attach_adaptive_max<2, true>("adaptive_max_pool2d_with_indices");
  attach_max<3, false>("max_pool3d");
  attach_max<3, true>("max_pool3d_with_indices");
  attach_avg<3>("avg_pool3d");
  attach_adaptive_avg<3>("adaptive_avg_pool3d");
  attach_adaptive_max<3, false>("adaptive_max_pool3d");
  attach_adaptive_max<3, true>("adaptive_max_pool3d_with_indices");
  return true;
}();

}  // namespace
}  // namespace arete::ops
