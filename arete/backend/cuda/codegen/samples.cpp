#include "arete/backend/cuda/codegen/kernel_source.h"

namespace arete::cuda {

// clang-format off
// One line for each family; the functions stand in the family's file in codegen/.
#define ARETE_CUDA_FAMILIES(X)                                                                    \
  X(pointwise) X(copy) X(random) X(reduce) X(arg_reduce) X(scan) X(fused) X(index) X(compact)     \
  X(sort) X(pool) X(gemm) X(multi_reduce) X(dropout) X(direct_conv) X(recurrence) X(linalg) X(fft)        \
  X(attention) X(peer)
// clang-format on

#define ARETE_DECLARE(name) std::vector<KernelSource> name##_samples();
ARETE_CUDA_FAMILIES(ARETE_DECLARE)
#undef ARETE_DECLARE

const std::vector<SampleFamily>& sample_families() {
#define ARETE_ENTRY(name) {#name, name##_samples},
  static const std::vector<SampleFamily> families{ARETE_CUDA_FAMILIES(ARETE_ENTRY)};
#undef ARETE_ENTRY
  return families;
}

}  // namespace arete::cuda
