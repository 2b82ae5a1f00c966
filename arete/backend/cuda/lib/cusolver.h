// cuSOLVER, loaded when the first factorization needs it.
#pragma once

#include <cusolverDn.h>

namespace arete::cuda {

#define ARETE_CUSOLVER_FUNCTIONS(X) \
  X(cusolverDnCreate)               \
  X(cusolverDnSetStream)            \
  X(cusolverDnCreateSyevjInfo)

// Functions of one element type, for which `c` stands: X(name here, name there).
#define ARETE_CUSOLVER_TYPED(X, c)                                    \
  X(potrf_bufferSize, cusolverDn##c##potrf_bufferSize)                \
  X(potrf, cusolverDn##c##potrf)                                      \
  X(potrf_batched, cusolverDn##c##potrfBatched)                       \
  X(getrf_bufferSize, cusolverDn##c##getrf_bufferSize)                \
  X(getrf, cusolverDn##c##getrf)                                      \
  X(getrs, cusolverDn##c##getrs)                                      \
  X(geqrf_bufferSize, cusolverDn##c##geqrf_bufferSize)                \
  X(geqrf, cusolverDn##c##geqrf)                                      \
  X(orgqr_bufferSize, cusolverDn##c##orgqr_bufferSize)                \
  X(orgqr, cusolverDn##c##orgqr)                                      \
  X(ormqr_bufferSize, cusolverDn##c##ormqr_bufferSize)                \
  X(ormqr, cusolverDn##c##ormqr)                                      \
  X(gesvd_bufferSize, cusolverDn##c##gesvd_bufferSize)                \
  X(gesvd, cusolverDn##c##gesvd)                                      \
  X(syevd_bufferSize, cusolverDn##c##syevd_bufferSize)                \
  X(syevd, cusolverDn##c##syevd)                                      \
  X(syevj_batched_bufferSize, cusolverDn##c##syevjBatched_bufferSize) \
  X(syevj_batched, cusolverDn##c##syevjBatched)

/// The functions for float or double, without the type in their names.
template <class T>
struct CuSolverOf;
#define ARETE_CUSOLVER_POINTER(name, symbol) decltype(&::symbol) name = nullptr;
template <>
struct CuSolverOf<float> {
  ARETE_CUSOLVER_TYPED(ARETE_CUSOLVER_POINTER, S)
};
template <>
struct CuSolverOf<double> {
  ARETE_CUSOLVER_TYPED(ARETE_CUSOLVER_POINTER, D)
};
#undef ARETE_CUSOLVER_POINTER

/// Pointers to the library's functions, under their own names.
struct CuSolver {
#define ARETE_CUSOLVER_POINTER(name) decltype(&::name) name = nullptr;
  ARETE_CUSOLVER_FUNCTIONS(ARETE_CUSOLVER_POINTER)
#undef ARETE_CUSOLVER_POINTER
  CuSolverOf<float> f32;
  CuSolverOf<double> f64;
};

/// The library; null where it is not installed or lacks a function. Loads it.
const CuSolver* find_cusolver();
/// DeviceError naming `what` unless the status is success.
void check_cusolver(cusolverStatus_t status, const char* what);

}  // namespace arete::cuda
