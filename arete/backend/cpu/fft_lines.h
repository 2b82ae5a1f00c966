// Fourier transforms of lines of complex numbers, Note [FFT] in fft.cpp.
#pragma once

#include <cstdlib>

#include "arete/backend/cpu/fft_kernels.h"

namespace arete::cpu {

/// Whether lines of this length go by passes of their own, without a chirp.
bool has_small_factors(int64_t n);

/// Lines that the vectors of this processor have beside each other; f32 or f64.
template <class T>
int64_t width_of();

/// Whether lines that are so far apart, in real numbers, are neighbours in memory.
inline bool are_neighbours(int64_t stride) {
  return std::abs(stride) == 1 || std::abs(stride) == 2;
}

/// Fills in the steps and runs the lines, of n complex numbers; f32 or f64.
template <class T>
void transform_lines(FftLines<T>& lines, int64_t n);

}  // namespace arete::cpu
