// Different values, and different slices along a dimension.
#include <algorithm>
#include <map>

#include "arete/ops/reduce_family.h"
#include "arete/ops/sort.h"

namespace arete {
namespace ops {
namespace {

// The order of the rows of a matrix by their first column, then the second, ...: stable sorts from
// the last column to the first.
Tensor lexicographic_order(const Tensor& rows) {
  Tensor order = arange(Scalar(rows.size(0)), TensorOptions(kInt64, rows.device()));
  for (int64_t column = rows.size(1) - 1; column >= 0; --column) {
    const Tensor key = rows.select(1, column).index_select(0, order);
    order = order.index_select(0, argsort(key, 0, false, true));
  }
  return order;
}

// Groups of equal neighbours among values (1-d) or rows: their first members, each member's group,
// and their sizes.
struct Groups {
  Tensor first, number, counts;
};
Groups group(const Tensor& values) {
  const int64_t n = values.size(0);
  Tensor starts = ones({n}, TensorOptions(kBool, values.device()));
  if (n > 1) {
    Tensor changes = values.narrow(0, 1, n - 1).ne(values.narrow(0, 0, n - 1));
    if (changes.dim() > 1) changes = changes.any({1});
    starts = cat({starts.narrow(0, 0, 1), changes});
  }
  const TensorOptions o(kInt64, values.device());
  const Tensor first = starts.nonzero().reshape({-1});
  const Tensor number = starts.cumsum(0).sub(Scalar(1));
  return {first, number, zeros({first.numel()}, o).scatter_add(0, number, ones({n}, o))};
}

// (self, ..., dim) with the dim as argument `dim_arg`.
Results different(const Call& c, size_t dim_arg, bool sorted) {
  const Tensor x = c.tensor(0).detach();
  ARETE_CHECK(
      !x.is_meta(),
      DeviceError(c.name(), "the result's size depends on data, and meta tensors have none"));
  const bool whole = !c.has(dim_arg);
  Tensor rows, moved;
  int d = 0;
  if (whole) {
    rows = x.reshape({-1});
  } else {
    ARETE_CHECK(x.dim() > 0, IndexError(c.name(), "Dimension specified as " +
                                                      std::to_string(c.integer(dim_arg)) +
                                                      " but tensor has no dimensions"));
    d = normalize_dim(c.integer(dim_arg), int(x.dim()), c.name());
    for (int64_t k = 0; k < x.dim(); ++k)
      ARETE_CHECK(k == d || x.size(k) > 0 || x.size(d) == 0,
                  ValueError(c.name(),
                             "There are 0 sized dimensions, and they aren't selected by `dim`, so "
                             "unique cannot be applied"));
    moved = x.movedim(d, 0);
    rows = moved.reshape({x.size(d), x.size(d) ? x.numel() / x.size(d) : 1});
  }
  Tensor order;
  if (sorted) {
    order = whole ? argsort(rows, 0, false, true) : lexicographic_order(rows);
    rows = rows.index_select(0, order);
  }
  const Groups g = group(rows);
  Tensor inverse = g.number;
  if (sorted) inverse = zeros(g.number.sizes(), g.number.options()).scatter(0, order, g.number);
  if (whole) return {rows.index_select(0, g.first), inverse.reshape(x.sizes()), g.counts};
  const Tensor first = sorted ? order.index_select(0, g.first) : g.first;
  return {x.index_select(d, first), inverse, g.counts};
}

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

const std::vector<DType> kTypes{kFloat32, kFloat64, kBFloat16, kFloat16, kInt32, kInt64};

const OpRecord& unique_op =
    define(
        "unique(Tensor self, bool sorted=True, bool return_inverse=False, bool "
        "return_counts=False, int? dim=None) -> (Tensor output, Tensor inverse_indices, Tensor "
        "counts)")
        .doc(
            "The different values in ascending order (or slices along dim), each one's place among "
            "them, and counts; all three always.")
        .compose([](const Call& c) { return different(c, 4, true); })
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
        .reference([](const Call& c) { return different_reference(c, 4, true); })
        .dtypes(kTypes);

const OpRecord& unique_consecutive_op =
    define(
        "unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? "
        "dim=None) -> (Tensor output, Tensor inverse_indices, Tensor counts)")
        .doc("The first of each group of equal neighbours, each one's group, and group sizes.")
        .compose([](const Call& c) { return different(c, 3, false); })
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const Tensor few = m.make({7, 2}, -1, 1).detach().round();
          return {{{few, true, true, std::nullopt}, "flattened"},
                  {{few, true, true, 0}, "rows"},
                  {{few.transpose(0, 1), true, true, 1}, "columns"},
                  {{m.make({0}).detach(), true, true, std::nullopt}, "empty"}};
        })
        .reference([](const Call& c) { return different_reference(c, 3, false); })
        .dtypes(kTypes);

}  // namespace
}  // namespace ops

std::tuple<Tensor, Tensor, Tensor> unique(const Tensor& self, bool return_inverse,
                                          bool return_counts, std::optional<int64_t> dim) {
  auto r = ops::call_all(ops::unique_op, {self, true, return_inverse, return_counts, dim});
  return {r[0], return_inverse ? r[1] : Tensor(), return_counts ? r[2] : Tensor()};
}
std::tuple<Tensor, Tensor, Tensor> unique_consecutive(const Tensor& self, bool return_inverse,
                                                      bool return_counts,
                                                      std::optional<int64_t> dim) {
  auto r = ops::call_all(ops::unique_consecutive_op, {self, return_inverse, return_counts, dim});
  return {r[0], return_inverse ? r[1] : Tensor(), return_counts ? r[2] : Tensor()};
}

}  // namespace arete

ARETE_FAMILY(unique)
