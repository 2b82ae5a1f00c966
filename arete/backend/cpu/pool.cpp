// Pooling on the CPU. oneDNN's max pooling keeps positions in a private format relative to the
// window, while ours are public (positions in the plane), so the kernels are our own.
#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/kernels/select_table.h"
#include "arete/backend/cpu/pool_kernels.h"
#include "arete/base/error.h"
#include "arete/prim/checks.h"

namespace arete::cpu {

void CpuBackend::pool(const prim::PoolArgs& p) {
  prim::check(p);
  if (prim::is_dilated_average(p)) return Primitives::pool(p);
  switch (p.x.dtype) {
    case DType::f32:
    case DType::f64:
    case DType::f16:
    case DType::bf16:
    case DType::i64:
      break;
    default:
      return Primitives::pool(p);
  }
  static const auto pool_in_simd = ARETE_SELECT(::arete::cpu, pool);
  pool_in_simd(p);
}

}  // namespace arete::cpu
