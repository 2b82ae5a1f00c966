// Samples, references and errors of the records in ops/pool.cpp.
#include <algorithm>
#include <cmath>

#include "arete/ops/creation.h"
#include "arete/ops/pool_internal.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

// The elements of a window along one dimension: some may lie beside the input.
struct Taps {
  int64_t first, count, step;
};

// Of the output `iy` along spatial dimension d of x. `samples`: where random windows lie, of the
// last dimension first if there are two.
Taps taps_of(const Shape& iy, size_t d, IntList x, const PoolParams& p, const Tensor& samples) {
  const int64_t o = iy[d + 2], n = x[d + 2];
  if (p.output.empty()) return {o * p.stride[d] - p.padding[d], p.kernel[d], p.dilation[d]};
  const int64_t m = p.output[d];
  if (!samples.defined()) {
    const int64_t begin = o * n / m, end = ((o + 1) * n + m - 1) / m;
    return {begin, end - begin, 1};
  }
  const int64_t last = n - p.kernel[d];
  if (o + 1 == m) return {last, p.kernel[d], 1};
  const size_t spatial = p.kernel.size();
  const double step = double(last) / double(m - 1);
  const double u = at(samples, {iy[0], iy[1], int64_t(spatial == 2 ? 1 - d : d)});
  return {int64_t((double(o) + u) * step) - int64_t(u * step), p.kernel[d], 1};
}

// Calls f(index of x, flat position in the plane) for the elements of the window of y's element.
template <class F>
void for_each_in_window(const Shape& iy, IntList x, const PoolParams& p, F f,
                        const Tensor& samples = {}) {
  std::vector<Taps> taps;
  Shape counts;
  for (size_t d = 0; d < p.kernel.size(); ++d) {
    taps.push_back(taps_of(iy, d, x, p, samples));
    counts.push_back(taps.back().count);
  }
  for_each_index(counts, [&](const Shape& k) {
    Shape ix = iy;
    int64_t plane = 0;
    for (size_t d = 0; d < k.size(); ++d) {
      ix[d + 2] = taps[d].first + k[d] * taps[d].step;
      if (ix[d + 2] < 0 || ix[d + 2] >= x[d + 2]) return;
      plane = plane * x[d + 2] + ix[d + 2];
    }
    f(ix, plane);
  });
}

double window_divisor(const Shape& iy, IntList x, const PoolParams& p, bool count_pad,
                      int64_t divisor) {
  if (divisor) return double(divisor);
  int64_t n = 1;
  for (size_t d = 0; d < p.kernel.size(); ++d) {
    const Taps taps = taps_of(iy, d, x, p, {});
    int64_t begin = taps.first;
    int64_t end = std::min(begin + taps.count, x[d + 2] + (count_pad ? p.padding[d] : 0));
    if (!count_pad) begin = std::max<int64_t>(begin, 0);
    n *= end - begin;
  }
  return double(n);
}

std::vector<Tensor> max_reference(const Call& c) {
  const Tensor& x = c.tensor(0);
  const PoolParams p = params_of(c, 1, true);
  const Shape y = result_sizes(c);
  std::vector<double> values, positions;
  for_each_index(y, [&](const Shape& iy) {
    double best = -INFINITY, where = -1;
    for_each_in_window(
        iy, x.sizes(), p,
        [&](const Shape& ix, int64_t plane) {
          if (where >= 0 && !(at(x, ix) > best)) return;
          best = at(x, ix);
          where = double(plane);
        },
        c.has(7) ? c.tensor(7) : Tensor());
    values.push_back(best);
    positions.push_back(where);
  });
  return {from_values(values, y), from_values(positions, y, kInt64)};
}

using L = std::initializer_list<int64_t>;

std::vector<Sample> max_samples(SampleMaker& m) {
  const auto strided = [&](Tensor x, L kernel, L stride, L padding, L dilation, bool ceil,
                           std::string note = "") -> Sample {
    return {{x, kernel, stride, padding, dilation, ceil, L{}, std::nullopt}, std::move(note)};
  };
  const auto adaptive = [&](Tensor x, L output, std::string note) -> Sample {
    const std::vector<int64_t> zeros(output.size(), 0), ones(output.size(), 1);
    return {{x, zeros, ones, zeros, ones, false, output, std::nullopt}, std::move(note)};
  };
  const auto random = [&](Tensor x, L kernel, L output, std::string note) -> Sample {
    const auto spatial = int64_t(output.size());
    const std::vector<int64_t> zeros(output.size(), 0), ones(output.size(), 1);
    return {{x, kernel, ones, zeros, ones, false, output,
             m.make({x.size(0), x.size(1), spatial}, 0, 1).detach()},
            std::move(note)};
  };
  const auto last = [](const Tensor& x) { return x.contiguous(MemoryFormat::channels_last); };
  return {
      strided(m.make_distinct({1, 2, 4, 3}), {2, 2}, {2, 1}, {0, 0}, {1, 1}, false),
      strided(m.make_distinct({2, 1, 3, 3}), {2, 2}, {2, 2}, {1, 1}, {1, 1}, true,
              "padding, ceil_mode"),
      strided(m.make_distinct({1, 2, 7}), {3}, {2}, {1}, {2}, false, "dilated"),
      strided(m.make_distinct({1, 1, 2, 3, 4}), {2, 2, 2}, {1, 1, 2}, {0, 1, 0}, {1, 1, 1}, false),
      strided(m.make_distinct({0, 2, 4, 4}), {2, 2}, {2, 2}, {0, 0}, {1, 1}, false),
      strided(m.make_distinct({2, 2, 3, 2}), {3, 2}, {1, 1}, {0, 0}, {1, 1}, false, "planes"),
      adaptive(m.make_distinct({2, 1, 5, 4}), {3, 2}, "adaptive"),
      adaptive(last(m.make_distinct({1, 3, 3, 5})), {2, 7}, "adaptive, channels last, growing"),
      adaptive(last(m.make_distinct({1, 8, 5, 2})), {2, 1}, "adaptive, vectors of channels"),
      adaptive(m.make_distinct({1, 2, 7}), {4}, "adaptive, one dimension"),
      adaptive(m.make_distinct({1, 1, 2, 3, 3}), {1, 2, 3}, "adaptive, three dimensions"),
      adaptive(m.make_distinct({1, 2, 4, 4}), {0, 2}, "adaptive, no outputs"),
      random(m.make_distinct({2, 2, 5, 6}), {2, 3}, {3, 2}, "random"),
      random(last(m.make_distinct({1, 2, 6, 5})), {2, 2}, {4, 3}, "random, channels last"),
      random(m.make_distinct({1, 2, 3, 4, 5}), {2, 1, 2}, {1, 3, 4}, "random, three dimensions")};
}

std::vector<ErrorSample> max_errors(SampleMaker& m) {
  return {{{m.make({1, 2, 4, 4}), L{2, 2}, L{2, 2}, L{2, 2}, L{1, 1}, false, L{}, std::nullopt},
           ErrorKind::value,
           "pad should be at most half of effective kernel size, but got pad=2, kernel_size=2 and "
           "dilation=1"},
          {{m.make({1, 2, 1, 1}), L{3, 3}, L{1, 1}, L{0, 0}, L{1, 1}, false, L{}, std::nullopt},
           ErrorKind::value,
           "Given input size: (2x1x1). Calculated output size: (2x0x0). Output size is too small"}};
}

const Attached max_pool_op =
    attach("max_pool").samples(max_samples).errors(max_errors).reference(max_reference);
const Attached max_pool_values_op =
    attach("max_pool_values")
        .samples(max_samples)
        .errors(max_errors)
        .reference([](const Call& c) -> std::vector<Tensor> { return {max_reference(c)[0]}; });
const Attached max_pool_backward_op =
    attach("max_pool_backward")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          // Position 1 lies in both windows, as an index must; of those that are not strided 2
          // does.
          const auto place = [&](int64_t i) { return m.make_index({1, 2, 2}, 1).add(Scalar(i)); };
          return {{{m.make({1, 2, 2}), place(1), L{1, 2, 4}, L{3}, L{1}, L{0}, L{1}, false, L{}}},
                  {{m.make({1, 2, 2}), place(2), L{1, 2, 5}, L{0}, L{1}, L{0}, L{1}, false, L{2}},
                   "adaptive"},
                  {{m.make({1, 2, 2}), place(2), L{1, 2, 5}, L{3}, L{1}, L{0}, L{1}, false, L{2}},
                   "random"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const IntList sizes = c.ints(2);
          std::vector<double> out(size_t(numel_of(sizes)), 0.0);
          const int64_t plane = numel_of(sizes.subspan(2));
          for_each_index(c.tensor(0).sizes(), [&](const Shape& i) {
            out[size_t((i[0] * sizes[1] + i[1]) * plane + int64_t(at(c.tensor(1), i)))] +=
                at(c.tensor(0), i);
          });
          return {from_values(out, sizes)};
        });

std::vector<Sample> avg_samples(SampleMaker& m) {
  const auto strided = [](Tensor x, L kernel, L stride, L padding, bool ceil, bool counts,
                          int64_t divisor, std::string note = "") -> Sample {
    return {{x, kernel, stride, padding, ceil, counts, divisor, L{}}, std::move(note)};
  };
  const auto adaptive = [](Tensor x, L output, std::string note) -> Sample {
    const std::vector<int64_t> zeros(output.size(), 0), ones(output.size(), 1);
    return {{x, zeros, ones, zeros, false, true, 0, output}, std::move(note)};
  };
  const auto last = [](const Tensor& x) { return x.contiguous(MemoryFormat::channels_last); };
  return {
      strided(m.make({1, 2, 4, 3}), {2, 2}, {2, 1}, {0, 0}, false, true, 0),
      strided(m.make({2, 1, 3, 3}), {2, 2}, {2, 2}, {1, 1}, true, true, 0, "padding, ceil_mode"),
      strided(m.make_strided({2, 1, 3, 3}), {2, 2}, {2, 2}, {1, 1}, true, false, 0,
              "padding not counted"),
      strided(m.make({1, 2, 5}), {3}, {2}, {1}, false, false, 0),
      strided(m.make({1, 2, 5}), {2}, {2}, {0}, false, true, 3, "divisor"),
      strided(m.make({1, 1, 2, 3, 4}), {2, 2, 2}, {1, 1, 2}, {0, 1, 0}, false, true, 0),
      adaptive(m.make({2, 1, 5, 4}), {3, 2}, "adaptive"),
      adaptive(m.make_strided({1, 2, 3, 4}), {5, 3}, "adaptive, strides"),
      adaptive(last(m.make({1, 3, 3, 5})), {2, 7}, "adaptive, channels last, growing"),
      adaptive(last(m.make({1, 8, 5, 2})), {2, 1}, "adaptive, vectors of channels"),
      adaptive(m.make({1, 2, 7}), {4}, "adaptive, one dimension"),
      adaptive(m.make({1, 1, 2, 3, 3}), {1, 2, 3}, "adaptive, three dimensions"),
      adaptive(m.make({1, 2, 4, 4}), {0, 2}, "adaptive, no outputs")};
}

const Attached avg_pool_op =
    attach("avg_pool")
        .samples(avg_samples)
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make_index({1, 2, 4}, 3), L{2}, L{2}, L{0}, false, true, 0, L{}},
                   ErrorKind::type,
                   "not implemented for 'int64'"},
                  {{m.make({1, 2, 4}), L{0}, L{2}, L{0}, false, true, 0, L{}},
                   ErrorKind::value,
                   "kernel size, stride and dilation should be greater than zero"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const PoolParams p = params_of(c, 1, false);
          return {build_tensor(result_sizes(c), [&](const Shape& iy) {
            double sum = 0;
            for_each_in_window(iy, x.sizes(), p,
                               [&](const Shape& ix, int64_t) { sum += at(x, ix); });
            return sum / window_divisor(iy, x.sizes(), p, c.boolean(5), c.integer(6));
          })};
        });
const Attached avg_pool_backward_op =
    attach("avg_pool_backward")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({1, 2, 2, 4}), L{1, 2, 4, 3}, L{2, 2}, L{2, 1}, L{0, 1}, false, true, 0,
                    L{}}},
                  {{m.make({1, 2, 3}), L{1, 2, 5}, L{3}, L{2}, L{1}, false, false, 0, L{}}},
                  {{m.make({1, 2, 3, 2}), L{1, 2, 5, 3}, L{0, 0}, L{1, 1}, L{0, 0}, false, true, 0,
                    L{3, 2}},
                   "adaptive"},
                  {{m.make({1, 2, 7}), L{1, 2, 3}, L{0}, L{1}, L{0}, false, true, 0, L{7}},
                   "adaptive, growing"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({1, 2, 3}), L{1, 2, 9}, L{3}, L{2}, L{1}, false, false, 0, L{}},
                   ErrorKind::value,
                   "grad and input_size do not fit"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const IntList sizes = c.ints(1);
          const PoolParams p = params_of(c, 2, false);
          std::vector<double> out(size_t(numel_of(sizes)), 0.0);
          for_each_index(c.tensor(0).sizes(), [&](const Shape& iy) {
            const double share =
                at(c.tensor(0), iy) / window_divisor(iy, sizes, p, c.boolean(6), c.integer(7));
            for_each_in_window(iy, sizes, p, [&](const Shape& ix, int64_t) {
              out[size_t(flat_position(sizes, ix))] += share;
            });
          });
          return {from_values(out, sizes)};
        });

}  // namespace
}  // namespace arete::ops
