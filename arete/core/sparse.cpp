#include "arete/core/sparse.h"

#include <memory>
#include <utility>

#include "arete/base/error.h"
#include "arete/core/tracing.h"

namespace arete {

namespace {
SparseParts* parts_in(const Tensor& t) {
  const Storage& s = *t.storage();
  // Memory of others is exported from the start.
  return s.device().is_meta() && s.bytes() == 0 && !s.is_exported()
             ? reinterpret_cast<SparseParts*>(s.data())
             : nullptr;
}
void check(const SparseParts& parts, IntList sizes) {
  const Tensor &indices = parts.indices, &values = parts.values;
  ARETE_CHECK(indices.dim() == 2 && values.dim() > 0 && indices.sizes()[1] == values.sizes()[0] &&
                  indices.sizes()[0] + values.dim() - 1 == int64_t(sizes.size()),
              ValueError("sparse_tensor", "indices, values and sizes do not go together")
                  .got("indices " + to_string(indices.sizes()) + ", values " +
                       to_string(values.sizes()) + ", sizes " + to_string(sizes)));
}
}  // namespace

Tensor sparse_tensor(SparseParts parts, IntList sizes) {
  check(parts, sizes);
  parts.coalesced = parts.coalesced || parts.indices.sizes()[1] < 2;
  const DType dtype = parts.values.dtype();
  auto owned = std::make_unique<SparseParts>(std::move(parts));
  SparseParts* const address = owned.get();
  std::shared_ptr<SparseParts> kept(std::move(owned));
  StoragePtr storage = Storage::adopt(kMeta, address, 0, [kept = std::move(kept)] {});
  Tensor t{IntrusivePtr<TensorImpl>(new TensorImpl(std::move(storage), Layout(sizes), dtype))};
  tracing::note_hook(t);
  return t;
}

const SparseParts* sparse_parts(const Tensor& t) { return parts_in(t); }

void replace_parts(const Tensor& sparse, SparseParts parts) {
  SparseParts* const old = parts_in(sparse);
  ARETE_ASSERT(old);
  check(parts, sparse.sizes());
  parts.coalesced = parts.coalesced || parts.indices.sizes()[1] < 2;
  *old = std::move(parts);
  sparse.bump_version();
}

void check_not_sparse(const char* op, const Tensor& t) {
  ARETE_CHECK(!is_sparse(t), NotImplementedError(op, std::string(op ? op : "this operator") +
                                                         "() has no form for sparse tensors")
                                 .hint("make it dense"));
}

Device device_of_elements(const Tensor& t) {
  const SparseParts* const parts = t.is_meta() ? sparse_parts(t) : nullptr;
  return parts ? parts->values.device() : t.device();
}

}  // namespace arete
