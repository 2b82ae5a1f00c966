// cuBLAS, loaded when the first triangular system or batch of matrices needs it. (Other products
// of matrices are cuBLASLt's.)
#pragma once

#include <cublas_v2.h>

namespace arete::cuda {

#define ARETE_CUBLAS_FUNCTIONS(X)   \
  X(create, cublasCreate_v2)        \
  X(set_stream, cublasSetStream_v2) \
  X(set_workspace, cublasSetWorkspace_v2)

// Functions of one element type, for which `c` stands: X(name here, name there).
#define ARETE_CUBLAS_TYPED(X, c)            \
  X(trsm, cublas##c##trsm_v2)               \
  X(trsm_batched, cublas##c##trsmBatched)   \
  X(getrf_batched, cublas##c##getrfBatched) \
  X(getrs_batched, cublas##c##getrsBatched) \
  X(geqrf_batched, cublas##c##geqrfBatched) \
  X(gemm_strided, cublas##c##gemmStridedBatched)

#define ARETE_CUBLAS_POINTER(name, symbol) decltype(&::symbol) name = nullptr;
/// The functions for float or double.
template <class T>
struct CuBlasOf;
template <>
struct CuBlasOf<float> {
  ARETE_CUBLAS_TYPED(ARETE_CUBLAS_POINTER, S)
};
template <>
struct CuBlasOf<double> {
  ARETE_CUBLAS_TYPED(ARETE_CUBLAS_POINTER, D)
};

/// Pointers to the library's functions.
struct CuBlas {
  ARETE_CUBLAS_FUNCTIONS(ARETE_CUBLAS_POINTER)
  CuBlasOf<float> f32;
  CuBlasOf<double> f64;
};
#undef ARETE_CUBLAS_POINTER

/// The library; null where it is not installed or lacks a function. Loads it.
const CuBlas* find_cublas();

}  // namespace arete::cuda
