#include "arete/backend/cuda/lib/cublas.h"

#include <string>

#include "arete/backend/cuda/runtime/dynamic_library.h"

namespace arete::cuda {

const CuBlas* find_cublas() {
  static const CuBlas* const functions = []() -> const CuBlas* {
    static const DynamicLibrary library("cuBLAS, CUDA's library of basic linear algebra",
                                        {"libcublas.so." + std::to_string(CUBLAS_VER_MAJOR),
                                         "libcublas.so.13", "libcublas.so.12", "libcublas.so"});
    auto* const r = new CuBlas;  // kept for the process
    bool complete = true;
#define ARETE_LOOKUP(name, symbol) complete &= library.find(#symbol, r->name);
    ARETE_CUBLAS_FUNCTIONS(ARETE_LOOKUP)
#undef ARETE_LOOKUP
#define ARETE_LOOKUP(name, symbol) complete &= library.find(#symbol, r->f32.name);
    ARETE_CUBLAS_TYPED(ARETE_LOOKUP, S)
#undef ARETE_LOOKUP
#define ARETE_LOOKUP(name, symbol) complete &= library.find(#symbol, r->f64.name);
    ARETE_CUBLAS_TYPED(ARETE_LOOKUP, D)
#undef ARETE_LOOKUP
    return complete ? r : nullptr;
  }();
  return functions;
}

}  // namespace arete::cuda
