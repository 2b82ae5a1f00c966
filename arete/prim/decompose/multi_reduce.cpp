// multi_reduce: one full reduction per tensor.
#include "arete/prim/backend.h"

namespace arete::prim {

void Primitives::multi_reduce(const MultiReduceArgs& a) {
  View result = a.out;
  for (size_t k = 0; k < a.inputs.size(); ++k) {
    const View& in = a.inputs[k];
    const Shape ones(in.sizes.size(), 1);
    result.data = a.out.data + int64_t(k) * int64_t(size_of(a.out.dtype));
    result.sizes = ones;
    result.strides = ones;
    reduce({.monoid = a.monoid,
            .space = in.sizes,
            .reduced = in.rank() < 32 ? (1u << in.rank()) - 1 : ~0u,
            .inputs = {&in, 1},
            .out = result,
            .prologue = a.prologue,
            .params = a.params,
            .slots = a.slots});
  }
}

}  // namespace arete::prim
