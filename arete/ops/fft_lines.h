// Discrete Fourier transforms of many lines in host memory.
#pragma once

#include <cstdint>

namespace arete::ops {

/// out[l][k] = scale * sum_j in[l][j] exp(-+2 pi i j k / n) for `lines` rows of n complex numbers
/// (pairs of real and imaginary part), minus if `forward`. O(n log n) for any n >= 1, in parallel
/// over the lines. `in` and `out` are row-major and may be the same. T: float or double.
template <class T>
void fft_lines(const T* in, T* out, int64_t lines, int64_t n, bool forward, double scale);

}  // namespace arete::ops
