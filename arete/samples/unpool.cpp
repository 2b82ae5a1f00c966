// Samples, references and errors of the records in ops/unpool.cpp.
#include <cmath>

#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

using L = std::initializer_list<int64_t>;

// Sizes (lead..., first, ..., first, last).
Shape sizes_of(int spatial, L lead, int64_t first, int64_t last) {
  Shape s(lead.begin(), lead.end());
  for (int d = 0; d < spatial; ++d) s.push_back(d + 1 == spatial ? last : first);
  return s;
}

template <int spatial>
void attach_lp_pool(std::string_view name) {
  attach(name)
      .samples([](SampleMaker& m) -> std::vector<Sample> {
        return {{{m.make(sizes_of(spatial, {1, 2}, 2, 4), 0.5, 2), 2.0, L{2}, std::nullopt, false}},
                {{m.make_strided(sizes_of(spatial, {2}, 2, 5), 0.5, 2), 3.0, L{2}, L{1}, false},
                 "no batch"},
                {{m.make(sizes_of(spatial, {1, 1}, 3, 5), 0.5, 2), 1.5, L{2}, L{2}, true},
                 "ceil_mode"}};
      })
      .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
        return {{{m.make({2}), 2.0, L{2}, std::nullopt, false},
                 ErrorKind::value,
                 "D input to avg_pool"},
                {{m.make(sizes_of(spatial, {1, 2}, 2, 4)), 0.0, L{2}, std::nullopt, false},
                 ErrorKind::value,
                 "norm_type must not be 0"}};
      })
      .reference([](const Call& c) -> std::vector<Tensor> {
        const Tensor& x = c.tensor(0);
        const int64_t k = c.ints(2)[0], s = c.has(3) ? c.ints(3)[0] : k;
        const size_t lead = x.sizes().size() - size_t(spatial);
        Shape out(x.sizes().first(lead));
        for (size_t d = lead; d < x.sizes().size(); ++d) {
          const int64_t n = x.sizes()[d];
          int64_t o = (n - k + (c.boolean(4) ? s - 1 : 0)) / s + 1;
          if ((o - 1) * s >= n) --o;
          out.push_back(o);
        }
        return {build_tensor(out, [&](const Shape& i) {
          double sum = 0;
          int64_t inside = 0;
          for_each_index(Shape(size_t(spatial), k), [&](const Shape& w) {
            Shape ix = i;
            for (size_t d = 0; d < size_t(spatial); ++d) {
              ix[lead + d] = i[lead + d] * s + w[d];
              if (ix[lead + d] >= x.sizes()[lead + d]) return;
            }
            ++inside;
            sum += std::pow(at(x, ix), c.real(1));
          });
          // The average counts what is inside; the root is taken of that times the whole window.
          return std::pow(sum / double(inside) * std::pow(double(k), spatial), 1 / c.real(1));
        })};
      });
}

template <int spatial>
void attach_unpool(std::string_view name) {
  attach(name)
      .samples([](SampleMaker& m) -> std::vector<Sample> {
        // Each window of 2 has its maximum at one of its places.
        const auto places = [&](IntList sizes, Shape plane) {
          return build_tensor(
                     sizes,
                     [&](const Shape& i) {
                       int64_t flat = 0;
                       for (size_t d = 0; d < size_t(spatial); ++d)
                         flat = flat * plane[d] + i[i.size() - size_t(spatial) + d] * 2 +
                                int64_t(d + i[0]) % 2;
                       return flat;
                     },
                     kInt64)
              .to(m.device);
        };
        const Shape a = sizes_of(spatial, {2, 1}, 2, 3), b = sizes_of(spatial, {2}, 1, 2),
                    odd = sizes_of(spatial, {}, 3, 5);
        return {{{m.make(a), places(a, sizes_of(spatial, {}, 4, 6)), L{2}, std::nullopt, L{0},
                  std::nullopt}},
                {{m.make_strided(b), places(b, odd), L{2}, L{2}, L{0},
                  std::vector<int64_t>(odd.begin(), odd.end())},
                 "no batch"}};
      })
      .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
        const Shape a = sizes_of(spatial, {1, 1}, 2, 2), b = sizes_of(spatial, {1, 1}, 2, 3);
        return {{{m.make(a), m.make_index(b, 2), L{2}, std::nullopt, L{0}, std::nullopt},
                 ErrorKind::value,
                 "Expected shape of indices to be same"},
                {{m.make(a), m.make_index(a, 2), L{2}, std::nullopt, L{0},
                  std::vector<int64_t>(size_t(spatial), 9)},
                 ErrorKind::value,
                 "invalid output_size"}};
      })
      .reference([](const Call& c) -> std::vector<Tensor> {
        const Tensor& x = c.tensor(0);
        const size_t lead = x.sizes().size() - size_t(spatial);
        Shape out(x.sizes().first(lead));
        for (size_t d = 0; d < size_t(spatial); ++d)
          out.push_back(c.has(5) ? c.ints(5)[d] : x.sizes()[lead + d] * 2);
        const int64_t plane = numel_of(IntList(out).subspan(lead));
        std::vector<double> values(size_t(numel_of(out)), 0.0);
        for_each_index(x.sizes(), [&](const Shape& i) {
          const int64_t p = flat_position(x.sizes().first(lead), IntList(i).first(lead));
          values[size_t(p * plane + int64_t(at(c.tensor(1), i)))] = at(x, i);
        });
        return {from_values(values, out)};
      });
}

// Which component of a random sample shifts spatial dimension d: planes count from the last.
int64_t sample_of(int spatial, int d) { return spatial == 2 ? 1 - d : d; }

template <int spatial, bool indices>
void attach_fractional(std::string_view name) {
  attach(name)
      .samples([](SampleMaker& m) -> std::vector<Sample> {
        const auto samples = [&](int64_t n) { return m.make({n, 2, spatial}, 0, 1).detach(); };
        return {{{m.make_distinct(sizes_of(spatial, {1, 2}, 4, 6)), L{2}, L{2}, std::nullopt,
                  samples(1)}},
                {{m.make_distinct(sizes_of(spatial, {2}, 3, 5)), L{1}, std::nullopt,
                  std::vector<double>{0.7}, samples(1)},
                 "ratio, no batch"},
                {{m.make_distinct(sizes_of(spatial, {1, 2}, 3, 4)), L{2}, L{1}, std::nullopt,
                  samples(1)}}};
      })
      .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
        const Shape a = sizes_of(spatial, {1, 2}, 3, 3);
        return {{{m.make(a), L{2}, std::nullopt, std::nullopt, std::nullopt},
                 ErrorKind::value,
                 "requires specifying either an output_size or an output_ratio"},
                {{m.make(a), L{2}, L{3}, std::nullopt, std::nullopt},
                 ErrorKind::value,
                 "too large relative to input size"}};
      })
      .reference([](const Call& c) -> std::vector<Tensor> {
        const Tensor &x = c.tensor(0), &samples = c.tensor(4);
        const int64_t k = c.ints(1)[0];
        const size_t lead = x.sizes().size() - size_t(spatial);
        Shape out(x.sizes().first(lead));
        for (size_t d = 0; d < size_t(spatial); ++d)
          out.push_back(c.has(2) ? c.ints(2)[0]
                                 : int64_t(double(x.sizes()[lead + d]) * c.reals(3)[0]));
        const auto begin = [&](const Shape& i, size_t d) -> int64_t {
          const int64_t o = out[lead + d], last = x.sizes()[lead + d] - k, w = i[lead + d];
          if (w + 1 == o) return last;
          const double u =
              at(samples, {lead == 2 ? i[0] : 0, i[lead - 1], sample_of(spatial, int(d))});
          const double step = double(last) / double(o - 1);
          return int64_t((double(w) + u) * step) - int64_t(u * step);
        };
        std::vector<double> best, places;
        for_each_index(out, [&](const Shape& i) {
          double top = -INFINITY, place = 0;
          for_each_index(Shape(size_t(spatial), k), [&](const Shape& w) {
            Shape ix = i;
            int64_t flat = 0;
            for (size_t d = 0; d < size_t(spatial); ++d) {
              ix[lead + d] = begin(i, d) + w[d];
              flat = flat * x.sizes()[lead + d] + ix[lead + d];
            }
            if (at(x, ix) > top) top = at(x, ix), place = double(flat);
          });
          best.push_back(top);
          places.push_back(place);
        });
        std::vector<Tensor> r{from_values(best, out)};
        if (indices) r.push_back(from_values(places, out, kInt64));
        return r;
      });
}

const bool unpool_attached = [] {
  attach_lp_pool<1>("lp_pool1d");
  attach_lp_pool<2>("lp_pool2d");
  attach_lp_pool<3>("lp_pool3d");
  attach_unpool<1>("max_unpool1d");
  attach_unpool<2>("max_unpool2d");
  attach_unpool<3>("max_unpool3d");
  attach_fractional<2, false>("fractional_max_pool2d");
  attach_fractional<3, false>("fractional_max_pool3d");
  attach_fractional<2, true>("fractional_max_pool2d_with_indices");
  attach_fractional<3, true>("fractional_max_pool3d_with_indices");
  return true;
}();

}  // namespace
}  // namespace arete::ops
