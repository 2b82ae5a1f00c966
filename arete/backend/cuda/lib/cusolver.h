// cuSOLVER, loaded when the first factorization needs it.
#pragma once

#include <cusolverDn.h>

namespace arete::cuda {

#define ARETE_CUSOLVER_FUNCTIONS(X) \
  X(cusolverDnCreate)               \
  X(cusolverDnSetStream)            \
  X(cusolverDnSpotrf_bufferSize)    \
  X(cusolverDnDpotrf_bufferSize)    \
  X(cusolverDnSpotrf)               \
  X(cusolverDnDpotrf)               \
  X(cusolverDnSgetrf_bufferSize)    \
  X(cusolverDnDgetrf_bufferSize)    \
  X(cusolverDnSgetrf)               \
  X(cusolverDnDgetrf)               \
  X(cusolverDnSsyevd_bufferSize)    \
  X(cusolverDnDsyevd_bufferSize)    \
  X(cusolverDnSsyevd)               \
  X(cusolverDnDsyevd)

/// Pointers to the library's functions, under their own names.
struct CuSolver {
#define ARETE_CUSOLVER_POINTER(name) decltype(&::name) name = nullptr;
  ARETE_CUSOLVER_FUNCTIONS(ARETE_CUSOLVER_POINTER)
#undef ARETE_CUSOLVER_POINTER
};

/// The loaded library. DeviceError with the reason if there is none.
const CuSolver& cusolver();
/// DeviceError naming `what` unless the status is success.
void check_cusolver(cusolverStatus_t status, const char* what);

}  // namespace arete::cuda
