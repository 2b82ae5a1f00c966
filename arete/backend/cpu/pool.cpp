// Pooling on the CPU. oneDNN's max pooling keeps positions in a private format relative to the
// window, while ours are public (positions in the plane), so the kernels are our own.
#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/pool_kernels.h"
#include "arete/base/error.h"

namespace arete::cpu {

void CpuBackend::pool(const prim::PoolArgs& p) {
  const int s = p.window.spatial;
  const bool max = p.kind == prim::PoolArgs::Kind::max;
  ARETE_ASSERT(s >= 1 && s <= 3 && p.x.rank() == s + 2 && p.y.rank() == s + 2);
  ARETE_ASSERT(p.x.dtype == p.y.dtype);
  ARETE_ASSERT(p.x.sizes[0] == p.y.sizes[0] && p.x.sizes[1] == p.y.sizes[1]);
  ARETE_ASSERT(!max || !p.indices || (p.indices.dtype == kInt64 && p.indices.rank() == s + 2));
  ARETE_ASSERT(!max || !p.backward || p.indices || p.y.numel() == 0);
  for (int d = 0; d < s; ++d) {
    ARETE_ASSERT(p.window.kernel[d] > 0 && p.window.stride[d] > 0 && p.window.dilation[d] > 0);
    ARETE_ASSERT(max || p.window.dilation[d] == 1);
  }
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
#if defined(__x86_64__)
  static const auto f = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      return avx512::pool;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2::pool;
    return base::pool;
  }();
  f(p);
#else
  base::pool(p);
#endif
}

}  // namespace arete::cpu
