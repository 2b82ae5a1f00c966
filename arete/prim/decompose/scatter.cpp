#include <algorithm>

#include "arete/base/error.h"
#include "arete/base/small_vector.h"
#include "arete/prim/decompose/scatter_internal.h"

namespace arete::prim {

void scatter_to_stored_places(Primitives& on, const ScatterArgs& a) {
  ARETE_ASSERT(a.places && !a.index && !a.factors && a.mode == ScatterMode::add);
  ARETE_ASSERT(a.out.rank() == 1 && a.src.rank() == 1);
  const int64_t count = a.src.sizes[0];
  // As many as a cache holds, or as fill a GPU.
  const int64_t most = std::min<int64_t>(count, on.device().is_cpu() ? 1 << 16 : 1 << 22);
  if (count == 0) return;
  const ScratchView places(on, kInt64, Shape{most});
  for (int64_t from = 0; from < count; from += most) {
    const int64_t sizes[] = {std::min(most, count - from)};
    const auto part = [&](View v) {
      v.data += from * v.strides[0] * int64_t(size_of(v.dtype));
      v.sizes = sizes;
      return v;
    };
    View to = places.view();
    to.sizes = sizes;
    SmallVector<View, 4> inputs;
    for (size_t k = 0; k < a.inputs.size(); ++k)
      inputs.push_back(a.places->is_table(k) ? a.inputs[k] : part(a.inputs[k]));
    on.pointwise({.program = a.places,
                  .inputs = {inputs.data(), inputs.size()},
                  .outputs = {&to, 1},
                  .params = a.params,
                  .slots = a.slots,
                  .context = a.context});
    on.scatter({.out = a.out,
                .index = to,
                .src = part(a.src),
                .dim = 0,
                .mode = a.mode,
                .op = a.op,
                .context = a.context});
  }
}

}  // namespace arete::prim
