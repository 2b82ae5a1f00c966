#include "arete/ops/sparse.h"

#include <utility>

#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/search.h"
#include "arete/ops/shape.h"
#include "arete/ops/sort.h"

namespace arete::ops {

namespace {

const SparseParts& parts_of(const Tensor& sparse) {
  const SparseParts* const parts = sparse_parts(sparse);
  ARETE_ASSERT(parts);
  return *parts;
}

// The number that each element has in a plain tensor, among those of the sparse dimensions.
Tensor keys_of(const SparseParts& parts, IntList sizes) {
  Tensor keys = parts.indices.select(0, 0);
  for (int64_t d = 1; d < parts.indices.size(0); ++d)
    keys = keys.mul(Scalar(sizes[size_t(d)])).add(parts.indices.select(0, d));
  return keys;
}

// A plain tensor with the sparse dimensions as one.
Tensor flat(const Tensor& dense, const SparseParts& parts) {
  const int64_t n = parts.indices.size(0);
  return n == 1 ? dense : dense.flatten(0, n - 1);
}

}  // namespace

Tensor with_values(const Tensor& sparse, Tensor values) {
  const SparseParts& parts = parts_of(sparse);
  return sparse_tensor({parts.indices, std::move(values), parts.coalesced}, sparse.sizes());
}

Tensor coalesce(const Tensor& sparse) {
  const SparseParts& parts = parts_of(sparse);
  if (parts.coalesced) return sparse;
  const int64_t dims = parts.indices.size(0);
  if (dims == 0)  // one place
    return sparse_tensor({parts.indices.narrow(1, 0, 1), parts.values.sum({0}, true), true},
                         sparse.sizes());
  const IntList sizes = sparse.sizes();
  const auto [keys, places, counts] = unique(keys_of(parts, sizes), true);
  Shape total(parts.values.sizes());
  total[0] = keys.numel();
  const Tensor once =
      index_add(zeros_to_copy(total, parts.values.options()), 0, places, parts.values);
  TensorList rows;
  Tensor rest = keys;
  for (int64_t d = dims; d-- > 1;) {
    const Scalar extent(sizes[size_t(d)]);
    rows.insert(rows.begin(), rest.remainder(extent));
    rest = rest.floor_divide(extent);
  }
  rows.insert(rows.begin(), rest);
  return sparse_tensor(
      {dims == 1 ? rest.unsqueeze(0) : stack({rows.begin(), rows.end()}), once, true}, sizes);
}

Tensor dense_of(const Tensor& t) {
  if (!is_sparse(t)) return t;
  const SparseParts& parts = parts_of(t);
  const Tensor all = zeros_to_copy(Shape(t.sizes()), parts.values.options());
  if (parts.indices.size(0) == 0) return parts.values.sum({0});
  return index_add(flat(all, parts), 0, keys_of(parts, t.sizes()), parts.values).view(t.sizes());
}

Tensor elements_of(const Tensor& t) { return is_sparse(t) ? parts_of(t).values : t; }

Tensor sum_of(const Tensor& a, const Tensor& b) {
  const bool first = is_sparse(a), second = is_sparse(b);
  if (first != second) return first ? b + dense_of(a) : a + dense_of(b);
  if (!first) return a + b;
  const SparseParts &x = parts_of(a), &y = parts_of(b);
  // Unlike ones meet where a program gave a gradient itself.
  if (x.indices.size(0) != y.indices.size(0)) return dense_of(a) + dense_of(b);
  Tensor sum =
      sparse_tensor({cat({x.indices, y.indices}, 1), cat({x.values, y.values}), false}, a.sizes());
  // Sums of many passes take no more memory than each place once. How many places there are has to
  // be looked at, which nothing can while calls are recorded or put off.
  if (modes().word & (Modes::kCapture | Modes::kPutOff)) return sum;
  const IntList places = a.sizes().first(size_t(x.indices.size(0)));
  return x.indices.size(1) + y.indices.size(1) > numel_of(places) ? coalesce(sum) : sum;
}

Tensor rows_gradient(const Tensor& index, const Tensor& values, int64_t rows, int64_t padding) {
  Tensor where = index.detach().to(kInt64).reshape({1, -1});
  Tensor kept = values;
  if (padding >= 0) {
    const Tensor chosen = nonzero(ne(where.select(0, 0), Scalar(padding))).select(1, 0);
    where = where.index_select(1, chosen);
    kept = kept.index_select(0, chosen);
  }
  // The index may be written to before the gradient is read.
  if (where.storage() == index.storage()) where = where.clone();
  return sparse_tensor({std::move(where), kept, false}, {rows, values.size(1)});
}

Tensor at_places(const Tensor& dense, const Tensor& sparse) {
  const SparseParts& parts = parts_of(sparse);
  return flat(dense, parts).index_select(0, keys_of(parts, sparse.sizes()));
}

void add_at_places(Tensor dense, const Tensor& sparse, const Tensor& values, double alpha) {
  const SparseParts& parts = parts_of(sparse);
  const Tensor keys = keys_of(parts, sparse.sizes());
  Tensor view = parts.indices.size(0) == 1 ? dense : dense.view(flat(dense, parts).sizes());
  view.index_add_(0, keys, values, Scalar(alpha));
}

}  // namespace arete::ops
