#include "arete/backend/cuda/lib/cusolver.h"

#include <memory>
#include <string>

#include "arete/backend/cuda/runtime/dynamic_library.h"
#include "arete/base/error.h"

namespace arete::cuda {

const CuSolver& cusolver() {
  static const CuSolver& functions = []() -> const CuSolver& {
    static const DynamicLibrary library(
        "cuSOLVER, CUDA's library of linear algebra",
        {"libcusolver.so." + std::to_string(CUSOLVER_VER_MAJOR), "libcusolver.so.12",
         "libcusolver.so.11", "libcusolver.so"});
    auto r = std::make_unique<CuSolver>();
#define ARETE_LOOKUP(name) r->name = reinterpret_cast<decltype(r->name)>(library.get(#name));
    ARETE_CUSOLVER_FUNCTIONS(ARETE_LOOKUP)
#undef ARETE_LOOKUP
    return *r.release();  // kept for the process
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
