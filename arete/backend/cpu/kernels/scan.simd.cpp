#include "arete/backend/cpu/kernels/scan_table.h"

namespace arete::cpu::kernels::ARETE_SIMD_TARGET {
namespace {

template <class T>
double fold(const T* in, int64_t n) {
  constexpr int kLanes = 32;
  double acc[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int k = 0; k < kLanes; ++k) acc[k] += double(in[i + k]);
  for (int64_t k = 0; i + k < n; ++k) acc[k] += double(in[i + k]);
  for (int step = kLanes / 2; step > 0; step /= 2)
    for (int k = 0; k < step; ++k) acc[k] += acc[k + step];
  return acc[0];
}

// Sixteen at a time: the prefix of four columns of four, so that only one addition in sixteen
// elements waits for the one before.
template <class T>
double run(const T* in, T* out, int64_t n, double carry) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    double x[4][4];
    for (int g = 0; g < 4; ++g)
      for (int k = 0; k < 4; ++k) x[k][g] = double(in[i + 4 * g + k]);
    for (int k = 1; k < 4; ++k)
      for (int g = 0; g < 4; ++g) x[k][g] += x[k - 1][g];
    const double t0 = x[3][0], t1 = t0 + x[3][1], t2 = t1 + x[3][2], t3 = t2 + x[3][3];
    const double start[4] = {carry, carry + t0, carry + t1, carry + t2};
    for (int g = 0; g < 4; ++g)
      for (int k = 0; k < 4; ++k) out[i + 4 * g + k] = T(start[g] + x[k][g]);
    carry += t3;
  }
  for (; i < n; ++i) {
    carry += double(in[i]);
    out[i] = T(carry);
  }
  return carry;
}

template <class T>
void columns(const T* in, T* out, int64_t rows, int64_t columns, int64_t in_stride,
             int64_t out_stride) {
  constexpr int kTile = 64;
  double acc[kTile];
  for (int64_t c = 0; c < columns; c += kTile) {
    const int64_t width = columns - c < kTile ? columns - c : kTile;
    for (int k = 0; k < kTile; ++k) acc[k] = 0;
    const T* from = in + c;
    T* to = out + c;
    for (int64_t r = 0; r < rows; ++r, from += in_stride, to += out_stride) {
      if (width == kTile) {
        for (int k = 0; k < kTile; ++k) acc[k] += double(from[k]);
        for (int k = 0; k < kTile; ++k) to[k] = T(acc[k]);
      } else {
        for (int64_t k = 0; k < width; ++k) acc[k] += double(from[k]);
        for (int64_t k = 0; k < width; ++k) to[k] = T(acc[k]);
      }
    }
  }
}

}  // namespace

extern const ScanTable scan_table;
const ScanTable scan_table = {{fold<float>, run<float>, columns<float>},
                              {fold<double>, run<double>, columns<double>}};

}  // namespace arete::cpu::kernels::ARETE_SIMD_TARGET
