// Samples, references and errors of the records in ops/pool.cpp.
#include <algorithm>
#include <cmath>

#include "arete/ops/creation.h"
#include "arete/ops/pool_internal.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

// Calls f(index of x, flat position in the plane) for the elements of the window of y's element.
template <class F>
void for_each_in_window(const Shape& iy, IntList x, const PoolParams& p, F f) {
  for_each_index(p.kernel, [&](const Shape& k) {
    Shape ix = iy;
    int64_t plane = 0;
    for (size_t d = 0; d < k.size(); ++d) {
      ix[d + 2] = iy[d + 2] * p.stride[d] - p.padding[d] + k[d] * p.dilation[d];
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
    int64_t begin = iy[d + 2] * p.stride[d] - p.padding[d];
    int64_t end = std::min(begin + p.kernel[d], x[d + 2] + (count_pad ? p.padding[d] : 0));
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
    for_each_in_window(iy, x.sizes(), p, [&](const Shape& ix, int64_t plane) {
      if (where >= 0 && !(at(x, ix) > best)) return;
      best = at(x, ix);
      where = double(plane);
    });
    values.push_back(best);
    positions.push_back(where);
  });
  return {from_values(values, y), from_values(positions, y, kInt64)};
}

using L = std::initializer_list<int64_t>;

std::vector<Sample> max_samples(SampleMaker& m) {
  return {
      {{m.make_distinct({1, 2, 4, 3}), L{2, 2}, L{2, 1}, L{0, 0}, L{1, 1}, false}},
      {{m.make_distinct({2, 1, 3, 3}), L{2, 2}, L{2, 2}, L{1, 1}, L{1, 1}, true},
       "padding, ceil_mode"},
      {{m.make_distinct({1, 2, 7}), L{3}, L{2}, L{1}, L{2}, false}, "dilated"},
      {{m.make_distinct({1, 1, 2, 3, 4}), L{2, 2, 2}, L{1, 1, 2}, L{0, 1, 0}, L{1, 1, 1}, false}},
      {{m.make_distinct({0, 2, 4, 4}), L{2, 2}, L{2, 2}, L{0, 0}, L{1, 1}, false}}};
}

std::vector<ErrorSample> max_errors(SampleMaker& m) {
  return {{{m.make({1, 2, 4, 4}), L{2, 2}, L{2, 2}, L{2, 2}, L{1, 1}, false},
           ErrorKind::value,
           "pad should be at most half of effective kernel size, but got pad=2, kernel_size=2 and "
           "dilation=1"},
          {{m.make({1, 2, 1, 1}), L{3, 3}, L{1, 1}, L{0, 0}, L{1, 1}, false},
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
          // Position 1 lies in both windows, as an index must.
          return {{{m.make({1, 2, 2}), m.make_index({1, 2, 2}, 1).add(Scalar(1)), L{1, 2, 4}, L{3},
                    L{1}, L{0}, L{1}, false}}};
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
  return {{{m.make({1, 2, 4, 3}), L{2, 2}, L{2, 1}, L{0, 0}, false, true, 0}},
          {{m.make({2, 1, 3, 3}), L{2, 2}, L{2, 2}, L{1, 1}, true, true, 0}, "padding, ceil_mode"},
          {{m.make_strided({2, 1, 3, 3}), L{2, 2}, L{2, 2}, L{1, 1}, true, false, 0},
           "padding not counted"},
          {{m.make({1, 2, 5}), L{3}, L{2}, L{1}, false, false, 0}},
          {{m.make({1, 2, 5}), L{2}, L{2}, L{0}, false, true, 3}, "divisor"},
          {{m.make({1, 1, 2, 3, 4}), L{2, 2, 2}, L{1, 1, 2}, L{0, 1, 0}, false, true, 0}}};
}

const Attached avg_pool_op =
    attach("avg_pool")
        .samples(avg_samples)
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make_index({1, 2, 4}, 3), L{2}, L{2}, L{0}, false, true, 0},
                   ErrorKind::type,
                   "not implemented for 'int64'"},
                  {{m.make({1, 2, 4}), L{0}, L{2}, L{0}, false, true, 0},
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
          return {
              {{m.make({1, 2, 2, 4}), L{1, 2, 4, 3}, L{2, 2}, L{2, 1}, L{0, 1}, false, true, 0}},
              {{m.make({1, 2, 3}), L{1, 2, 5}, L{3}, L{2}, L{1}, false, false, 0}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({1, 2, 3}), L{1, 2, 9}, L{3}, L{2}, L{1}, false, false, 0},
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
