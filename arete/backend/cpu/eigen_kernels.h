// Eigenvalues of symmetric matrices that fit in the caches, compiled once per instruction set
// (eigen.simd.cpp).
#pragma once

#include <cstdint>

namespace arete::cpu {

/// The largest matrix for which eigen.simd.cpp is faster than LAPACK's divide and conquer.
inline constexpr int64_t kLargestOwnEigen = 192;

/// As lapack::syevd for finite numbers; matrices of doubles if `wide`, else of floats. Returns how
/// many values did not converge.
#define ARETE_EIGEN_KERNELS(target)                                                           \
  namespace target {                                                                          \
  int symmetric_eigen(bool wide, bool vectors, bool upper, int64_t n, void* a, void* values); \
  }
ARETE_EIGEN_KERNELS(base)
ARETE_EIGEN_KERNELS(avx2)
ARETE_EIGEN_KERNELS(avx512)
#undef ARETE_EIGEN_KERNELS

}  // namespace arete::cpu
