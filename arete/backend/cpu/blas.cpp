#include "arete/backend/cpu/blas.h"

#include <cstdlib>
#include <cstring>
#include <mutex>

// OpenBLAS built for several CPUs exports these; other builds and other BLAS libraries do not.
extern "C" {
__attribute__((weak)) extern void* gotoblas;
__attribute__((weak)) void gotoblas_dynamic_init(void);
__attribute__((weak)) char* openblas_get_corename(void);
__attribute__((weak)) char* openblas_get_config(void);
}

namespace arete::cpu {

void prepare_blas() {
  static std::once_flag once;
  std::call_once(once, [] {
#if defined(__x86_64__)
    if (&gotoblas == nullptr || gotoblas_dynamic_init == nullptr ||
        openblas_get_corename == nullptr || std::getenv("OPENBLAS_CORETYPE") != nullptr)
      return;
    // The last resort of its detection; no CPU with AVX2 is rightly called so.
    if (std::strcmp(openblas_get_corename(), "Prescott") != 0) return;
    __builtin_cpu_init();
    const char* type = __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                               __builtin_cpu_supports("avx512bw")
                           ? "SkylakeX"
                       : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? "Haswell"
                                                                                         : nullptr;
    if (type == nullptr) return;
    void* const previous = gotoblas;
    setenv("OPENBLAS_CORETYPE", type, 1);
    gotoblas = nullptr;
    gotoblas_dynamic_init();
    unsetenv("OPENBLAS_CORETYPE");
    if (gotoblas == nullptr) gotoblas = previous;
#endif
  });
}

std::string blas_version() {
  if (openblas_get_config == nullptr) return "BLAS";
  prepare_blas();
  // "OpenBLAS 0.3.21 DYNAMIC_ARCH ...": name and number.
  const std::string config = openblas_get_config();
  std::string text = config.substr(0, config.find(' ', config.find(' ') + 1));
  if (openblas_get_corename != nullptr) text += std::string(" (") + openblas_get_corename() + ")";
  return text;
}

}  // namespace arete::cpu
