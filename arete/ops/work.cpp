#include "arete/ops/work.h"

namespace arete::ops {

double no_flops(const Call&) { return 0; }

double operations_per_element(const expr::Program& program) { return program.flops(); }

int64_t bytes_under(const prim::View& view) {
  int64_t elements = 1;
  for (int d = 0; d < view.rank(); ++d)
    if (view.strides[size_t(d)] != 0 || view.sizes[size_t(d)] == 0)
      elements *= view.sizes[size_t(d)];
  return elements * int64_t(size_of(view.dtype));
}

}  // namespace arete::ops
