// Samples, references and errors of the records in ops/unique.cpp.
#include <algorithm>

#include "arete/ops/sort.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

std::vector<Tensor> different_reference(const Call& c, size_t dim_arg, bool sorted) {
  const Tensor& x = c.tensor(0);
  std::vector<std::vector<double>> keys;
  size_t d = 0;
  if (c.has(dim_arg)) {
    d = size_t(normalize_dim(c.integer(dim_arg), int(x.dim()), "unique"));
    keys.resize(size_t(x.sizes()[d]));
    for_each_index(x.sizes(), [&](const Shape& i) { keys[size_t(i[d])].push_back(at(x, i)); });
  } else {
    for (double v : values_of(x)) keys.push_back({v});
  }
  std::vector<std::vector<double>> found;
  std::vector<double> inverse, counts;
  if (sorted) {
    found = keys;
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    counts.resize(found.size(), 0);
    for (const auto& k : keys) {
      const auto at = std::lower_bound(found.begin(), found.end(), k) - found.begin();
      inverse.push_back(double(at));
      ++counts[size_t(at)];
    }
  } else {
    for (const auto& k : keys) {
      if (found.empty() || found.back() != k) {
        found.push_back(k);
        counts.push_back(0);
      }
      ++counts.back();
      inverse.push_back(double(found.size() - 1));
    }
  }
  const int64_t n = int64_t(found.size());
  const DType t = x.dtype() == kFloat64 ? kFloat64 : kInt64;
  Tensor values;
  if (c.has(dim_arg)) {
    Shape sizes(x.sizes()), other(x.sizes());
    sizes[d] = n;
    other[d] = 1;
    values = build_tensor(
        sizes,
        [&](Shape i) {
          const size_t which = size_t(i[d]);
          i[d] = 0;
          return found[which][size_t(flat_position(other, i))];
        },
        t);
  } else {
    std::vector<double> flat;
    for (const auto& k : found) flat.push_back(k[0]);
    values = from_values(flat, {n}, t);
  }
  const Shape places = c.has(dim_arg) ? Shape{int64_t(keys.size())} : Shape(x.sizes());
  return {values, from_values(inverse, places, kInt64), from_values(counts, {n}, kInt64)};
}

const Attached unique_op =
    attach("unique")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const Tensor few = m.make({6, 2}, -1, 1).detach().round();
          return {{{m.make({3, 4}).detach().round(), true, true, true, std::nullopt}, "repeated"},
                  {{m.make({0}).detach(), true, true, true, std::nullopt}, "empty"},
                  {{m.make({1}).detach(), true, true, true, std::nullopt}, "one"},
                  {{few, true, true, true, 0}, "rows"},
                  {{few.transpose(0, 1), true, true, true, -1}, "columns"},
                  {{few.reshape({2, 3, 2}), true, true, true, 1}, "middle"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 0}), true, false, false, 0},
                   ErrorKind::value,
                   "There are 0 sized dimensions"}};
        })
        .reference([](const Call& c) { return different_reference(c, 4, true); });
const Attached unique_consecutive_op =
    attach("unique_consecutive")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const Tensor few = m.make({7, 2}, -1, 1).detach().round();
          return {{{few, true, true, std::nullopt}, "flattened"},
                  {{few, true, true, 0}, "rows"},
                  {{few.transpose(0, 1), true, true, 1}, "columns"},
                  {{m.make({0}).detach(), true, true, std::nullopt}, "empty"}};
        })
        .reference([](const Call& c) { return different_reference(c, 3, false); });

const Attached changes_op =
    attach("changes_between_rows")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const Tensor few = m.make({9, 2}, -1, 1).detach().round();
          return {{{few}, "rows"},
                  {{few.select(1, 0)}, "values, strided"},
                  {{few.transpose(0, 1)}, "columns"},
                  {{m.make({1, 3}).detach()}, "one"},
                  {{m.make({0}).detach()}, "none"},
                  {{m.make({3, 0}).detach()}, "rows of nothing"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3, 4})}, ErrorKind::value, "expected values or rows"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          return {build_tensor(
              {x.size(0) + 1},
              [&](const Shape& i) {
                if (i[0] == 0 || i[0] == x.size(0)) return 1.0;
                for (int64_t column = 0; column < (x.dim() > 1 ? x.size(1) : 1); ++column) {
                  Shape here{i[0]}, before{i[0] - 1};
                  if (x.dim() > 1) here.push_back(column), before.push_back(column);
                  if (at(x, here) != at(x, before)) return 1.0;
                }
                return 0.0;
              },
              kBool)};
        });

}  // namespace
}  // namespace arete::ops
