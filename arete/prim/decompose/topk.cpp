// topk: a full sort, of which the first k are kept.
#include "arete/base/error.h"
#include "arete/prim/backend.h"
#include "arete/prim/decompose/layout_view_internal.h"

namespace arete::prim {

void Primitives::topk(const TopkArgs& a) {
  ScratchView values(*this, a.in.dtype, a.in.sizes);
  ScratchView indices(*this, kInt64, a.in.sizes);
  sort({.in = a.in, .values = values, .indices = indices, .dim = a.dim, .descending = a.largest});
  Layout first = layout_of(values);
  if (first.rank() > 0) first = narrow(first, a.dim, 0, a.values.sizes[a.dim]);
  copy({.out = a.values, .in = LayoutView(values, first)});
  copy({.out = a.indices, .in = LayoutView(indices, first)});
}

}  // namespace arete::prim
