// Vector kernels of running sums, products and extrema. Sums and products of floats accumulate in
// f64, those of integers wrap.
#pragma once

#include <cstdint>

namespace arete::cpu::kernels {

template <class T, class Acc>
struct ScanFunctions {
  /// The sum (product, extremum) of n elements.
  Acc (*fold)(const T* in, int64_t n);
  /// out[i] = carry + in[0] + ... + in[i]; returns the last sum. out may be in.
  Acc (*run)(const T* in, T* out, int64_t n, Acc carry);
  /// Running sums down each of `columns` neighbouring columns. out may be in.
  void (*columns)(const T* in, T* out, int64_t rows, int64_t columns, int64_t in_stride,
                  int64_t out_stride);
};
template <class T, class Acc = T>
struct ScanPair {
  ScanFunctions<T, Acc> first, second;
};
struct ScanTable {
  ScanPair<float, double> sum_prod_f32;
  ScanPair<double> sum_prod_f64;
  ScanPair<int64_t, uint64_t> sum_prod_i64;
  ScanPair<float> min_max_f32;
  ScanPair<double> min_max_f64;
  ScanPair<int64_t> min_max_i64;
};

namespace base {
extern const ScanTable scan_table;
}
#if defined(__x86_64__)
namespace avx2 {
extern const ScanTable scan_table;
}
namespace avx512 {
extern const ScanTable scan_table;
}
#endif

}  // namespace arete::cpu::kernels
