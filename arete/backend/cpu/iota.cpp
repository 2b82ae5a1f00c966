// Arithmetic progressions.
#include <complex>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"

namespace arete::cpu {

void CpuBackend::iota(const prim::IotaArgs& args) {
  const prim::View& out = args.out;
  ARETE_ASSERT(out.rank() == 1);
  visit_dtype(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const base = out.as<T>();
    const int64_t stride = out.strides[0];
    parallel_for(0, out.sizes[0], 65536, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if constexpr (is_integral_or_bool(dtype_of<T>)) {
          // Unsigned: overflow wraps.
          const int64_t v = int64_t(uint64_t(args.istart) + uint64_t(i) * uint64_t(args.istep));
          base[i * stride] = T(v);
        } else {
          const double v = args.start + double(i) * args.step;
          using Wide =
              std::conditional_t<(sizeof(T) >= 8) && !std::is_same_v<T, std::complex<float>>,
                                 double, float>;
          base[i * stride] = T(Wide(v));
        }
      }
    });
  });
}

}  // namespace arete::cpu
