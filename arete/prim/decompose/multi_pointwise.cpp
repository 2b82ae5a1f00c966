// multi_pointwise: one pointwise call per tensor.
#include "arete/prim/backend.h"

namespace arete::prim {

void Primitives::multi_pointwise(const MultiPointwiseArgs& a) {
  const size_t n_in = a.program->inputs().size(), n_out = a.program->outputs().size();
  for (size_t t = 0; t < size_t(a.n_tensors); ++t)
    pointwise({.program = a.program,
               .inputs = a.inputs.subspan(t * n_in, n_in),
               .outputs = a.outputs.subspan(t * n_out, n_out),
               .params = a.params,
               .slots = a.slots});
}

}  // namespace arete::prim
