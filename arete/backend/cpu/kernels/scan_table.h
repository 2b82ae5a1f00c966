// Vector kernels of running sums of floating numbers. They accumulate in f64.
#pragma once

#include <cstdint>

namespace arete::cpu::kernels {

template <class T>
struct ScanFunctions {
  /// The sum of n elements.
  double (*fold)(const T* in, int64_t n);
  /// out[i] = carry + in[0] + ... + in[i]; returns the last sum. out may be in.
  double (*run)(const T* in, T* out, int64_t n, double carry);
  /// Running sums down each of `columns` neighbouring columns. out may be in.
  void (*columns)(const T* in, T* out, int64_t rows, int64_t columns, int64_t in_stride,
                  int64_t out_stride);
};
struct ScanTable {
  ScanFunctions<float> f32;
  ScanFunctions<double> f64;
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
