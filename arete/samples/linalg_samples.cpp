#include "arete/samples/linalg_samples.h"

#include <algorithm>

#include "arete/ops/creation.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"

namespace arete::ops {

Tensor make_invertible(SampleMaker& m, IntList sizes) {
  const Tensor t = m.make(sizes, -0.4, 0.4);
  const int64_t n = std::min(t.size(-1), t.size(-2));
  t.detach().diagonal(0, -2, -1).add_(arange(Scalar(0), Scalar(n), TensorOptions(m.device))
                                          .mul(Scalar(0.5))
                                          .add(Scalar(1.5))
                                          .to(m.dtype));
  return t;
}

Tensor make_symmetric(SampleMaker& m, IntList sizes) {
  const Tensor t = make_invertible(m, sizes);
  Tensor data = t.detach();
  data.copy_((data + adjoint(data)) * Scalar(0.5));
  return t;
}

}  // namespace arete::ops
