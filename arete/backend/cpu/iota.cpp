// Arithmetic progressions.
#include <complex>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/kernels/kernel_table.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/core/complex.h"
#include "arete/expr/program.h"

namespace arete::cpu {

void CpuBackend::iota(const prim::IotaArgs& args) {
  const prim::View& out = args.out;
  ARETE_ASSERT(out.rank() == 1);
  visit_dtype(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const base = out.as<T>();
    const int64_t stride = out.strides[0];
    parallel_for(0, out.sizes[0], grain_for(2), [&](int64_t begin, int64_t end) {
      if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> ||
                    std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t> ||
                    std::is_same_v<T, uint64_t>) {
        const bool whole = std::is_integral_v<T>;
        const void* const start = whole ? static_cast<const void*>(&args.istart) : &args.start;
        const void* const step = whole ? static_cast<const void*>(&args.istep) : &args.step;
        if (stride == 1)
          return kernels::table().progression[int(expr::compute_type(out.dtype))](
              base + begin, start, step, begin, end - begin);
      }
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
