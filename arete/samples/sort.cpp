// Samples, references and errors of the records in ops/sort.cpp.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

// Order of a row: NaN is the largest; equal values keep their places.
std::vector<int64_t> order_of(const std::vector<double>& v, bool descending) {
  std::vector<int64_t> order(v.size());
  std::iota(order.begin(), order.end(), int64_t(0));
  const auto less = [](double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    return descending ? less(v[size_t(j)], v[size_t(i)]) : less(v[size_t(i)], v[size_t(j)]);
  });
  return order;
}

// f(row of x along dim) -> (values, positions) of the result's row.
std::vector<Tensor> row_reference(const Tensor& x, int64_t dim, int64_t length, bool descending) {
  if (x.dim() == 0) return {from_values(values_of(x), {}), from_values({0}, {}, kInt64)};
  const size_t d = size_t(normalize_dim(dim, int(x.dim()), "sort"));
  Shape sizes(x.sizes());
  sizes[d] = length;
  const auto row = [&](Shape i) {
    std::vector<double> v;
    for (i[d] = 0; i[d] < x.sizes()[d]; ++i[d]) v.push_back(at(x, i));
    return v;
  };
  return {build_tensor(sizes,
                       [&](const Shape& i) {
                         const auto v = row(i);
                         return v[size_t(order_of(v, descending)[size_t(i[d])])];
                       }),
          build_tensor(
              sizes, [&](const Shape& i) { return order_of(row(i), descending)[size_t(i[d])]; },
              kInt64)};
}

const Attached sort_op =
    attach("sort")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make_distinct({3, 4}), -1, false, true}, "rows"},
              {{m.make_distinct({3, 4}), 0, true, true}, "columns, descending"},
              {{m.make_distinct({2, 3, 2}), 1, false, true}, "middle"},
              {{m.make_distinct({2, 3, 2, 2}).contiguous(MemoryFormat::channels_last), 1, false,
                true},
               "channels last"},
              {{m.make_distinct({}), -1, false, true}, "0-d"},
              {{m.make({0}), 0, false, true}, "empty"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2}), 1, false, true}, ErrorKind::index, "Dimension out of range"}};
        })
        .reference([](const Call& c) {
          const Tensor& x = c.tensor(0);
          return row_reference(x, c.integer(1), x.dim() ? x.size(c.integer(1)) : 1, c.boolean(2));
        });
const Attached topk_op =
    attach("topk")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make_distinct({3, 5}), 2, -1, true, true}, "largest"},
              {{m.make_distinct({4, 3}), 3, 0, false, true}, "smallest of columns"},
              {{m.make_distinct({4}), 4, 0, true, true}, "all"},
              {{m.make_distinct({4}), 0, 0, true, true}, "none"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2}), 3, 0, true, true}, ErrorKind::index, "selected index k out of range"}};
        })
        .reference([](const Call& c) {
          return row_reference(c.tensor(0), c.integer(2), c.integer(1), c.boolean(3));
        });
const Attached argsort_op =
    attach("argsort")
        .no_gradient_test()
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make_distinct({3, 4}), -1, false, false}, "rows"},
                                     {{m.make_distinct({3, 4}), 0, true, false}, "descending"}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{row_reference(
              c.tensor(0), c.integer(1), c.tensor(0).size(c.integer(1)), c.boolean(2))[1]};
        });
std::vector<Sample> sorted_samples(SampleMaker& m) {
  return {{{m.make_distinct({3, 4})}, "columns"}, {{m.make_distinct({5})}, "vector"}};
}
std::vector<Tensor> sorted_reference(const Call& c) {
  const Tensor& x = c.tensor(0);
  return {row_reference(x, 0, x.size(0), false)[0]};
}
const Attached msort_op = attach("msort").samples(sorted_samples).reference(sorted_reference);
const Attached sorted_values_op =
    attach("sorted_values").no_gradient_test().samples(sorted_samples).reference(sorted_reference);

}  // namespace
}  // namespace arete::ops
