// Sparse tensors as Python's class SparseTensor reads and makes them: see Note [Sparse tensors].
#include "arete/core/sparse.h"
#include "arete/ops/sparse.h"
#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;

namespace arete::python {

namespace {
const SparseParts& parts_of(const Tensor& t) {
  const SparseParts* const parts = sparse_parts(t);
  if (!parts) type_error("a sparse tensor is expected");
  return *parts;
}
}  // namespace

void bind_sparse(nb::module_& m) {
  m.def("_sparse_tensor", [](const Tensor& indices, const Tensor& values,
                             const std::vector<int64_t>& sizes, bool coalesced) {
    return sparse_tensor({indices, values, coalesced}, sizes);
  });
  m.def("_is_sparse", [](const Tensor& t) { return is_sparse(t); });
  m.def("_sparse_indices", [](const Tensor& t) { return parts_of(t).indices; });
  m.def("_sparse_values", [](const Tensor& t) { return parts_of(t).values; });
  m.def("_sparse_is_coalesced", [](const Tensor& t) { return parts_of(t).coalesced; });
  m.def("_replace_sparse_parts",
        [](const Tensor& t, const Tensor& indices, const Tensor& values, bool coalesced) {
          parts_of(t);
          replace_parts(t, {indices, values, coalesced});
        });
  m.def("_coalesce", [](const Tensor& t) {
    parts_of(t);
    const WithoutGil free;
    return ops::coalesce(t);
  });
}

}  // namespace arete::python
