#include "arete/backend/cuda/lib/cusolver.h"

#include <string>

#include "arete/backend/cuda/runtime/dynamic_library.h"
#include "arete/base/error.h"

namespace arete::cuda {

const CuSolver* find_cusolver() {
  static const CuSolver* const functions = []() -> const CuSolver* {
    static const DynamicLibrary library(
        "cuSOLVER, CUDA's library of linear algebra",
        {"libcusolver.so." + std::to_string(CUSOLVER_VER_MAJOR), "libcusolver.so.12",
         "libcusolver.so.11", "libcusolver.so"});
    auto* const r = new CuSolver;  // kept for the process
    bool complete = true;
#define ARETE_LOOKUP(name) complete &= library.find(#name, r->name);
    ARETE_CUSOLVER_FUNCTIONS(ARETE_LOOKUP)
#undef ARETE_LOOKUP
#define ARETE_LOOKUP(name, symbol) complete &= library.find(#symbol, r->f32.name);
    ARETE_CUSOLVER_TYPED(ARETE_LOOKUP, S)
#undef ARETE_LOOKUP
#define ARETE_LOOKUP(name, symbol) complete &= library.find(#symbol, r->f64.name);
    ARETE_CUSOLVER_TYPED(ARETE_LOOKUP, D)
#undef ARETE_LOOKUP
    return complete ? r : nullptr;
  }();
  return functions;
}

void check_cusolver(cusolverStatus_t status, const char* what) {
  if (status == CUSOLVER_STATUS_SUCCESS) [[likely]]
    return;
  throw DeviceError("linalg", std::string("cuSOLVER's ") + what + " failed with status " +
                                  std::to_string(int(status)));
}

}  // namespace arete::cuda
