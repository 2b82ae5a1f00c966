// Factorizations of matrices that fit in the caches, where a library's calls for each column cost
// more than the columns; compiled once per instruction set.
#pragma once

#include <cstdint>

namespace arete::cpu {

/// The largest matrix for which eigen.simd.cpp is faster than LAPACK's divide and conquer.
inline constexpr int64_t kLargestOwnEigen = 192;
/// The most elements for which reflections.simd.cpp is faster than LAPACK's blocks of reflections.
inline constexpr int64_t kMostOwnReflected = 128 * 64;
/// The largest matrix for which elimination.simd.cpp is faster than LAPACK, and the fewest columns
/// of a right-hand side.
inline constexpr int64_t kLargestOwnEliminated = 256, kFewestOwnColumns = 8;
/// How many right-hand sides it is given at a time: it copies them.
inline constexpr int64_t kMostOwnColumns = 512;
/// What its getrf returns, and a is as it was, where what it computed is not all finite.
inline constexpr int kNotFinite = -1;

/// Matrices of doubles if `wide`, else of floats; all as their namesakes in lapack.h.
/// trsm: column j of
/// b begins `leading` elements after the one before. symmetric_eigen: as syevd for finite numbers;
/// returns how many values did not converge.
#define ARETE_SMALL_MATRICES(target)                                                               \
  namespace target {                                                                               \
  int symmetric_eigen(bool wide, bool vectors, bool upper, int64_t n, void* a, void* values);      \
  void geqrf(bool wide, int64_t m, int64_t n, void* a, void* tau);                                 \
  void orgqr(bool wide, int64_t m, int64_t columns, int64_t reflectors, void* a, const void* tau); \
  int getrf(bool wide, int64_t m, int64_t n, void* a, int32_t* pivots);                            \
  void getrs(bool wide, bool transposed, int64_t n, int64_t columns, const void* lu,               \
             const int32_t* pivots, void* b);                                                      \
  void trsm(bool wide, bool left, bool upper, bool transposed, bool unit, int64_t m, int64_t n,    \
            const void* a, void* b, int64_t leading);                                              \
  }
ARETE_SMALL_MATRICES(base)
ARETE_SMALL_MATRICES(avx2)
ARETE_SMALL_MATRICES(avx512)
#undef ARETE_SMALL_MATRICES

}  // namespace arete::cpu
