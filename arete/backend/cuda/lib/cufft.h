// cuFFT, loaded when the first Fourier transform needs it.
#pragma once

#include <cufft.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "arete/core/dtype.h"

namespace arete::cuda {

/// A transform of lines of one length, for one device; usable by one thread at a time (`mutex`).
class FftPlan {
 public:
  /// DeviceError if cuFFT, which must be there, refuses.
  FftPlan(DType dtype, int64_t lines, int64_t n);
  ~FftPlan();
  FftPlan(const FftPlan&) = delete;
  FftPlan& operator=(const FftPlan&) = delete;

  size_t work_bytes() const { return work_bytes_; }
  /// `work` holds work_bytes(); `stream` is a CUstream.
  void run(const void* in, void* out, bool forward, void* work, void* stream);
  std::mutex mutex;

 private:
  cufftHandle plan_ = 0;
  size_t work_bytes_ = 0;
  bool doubles_;
};

/// Whether the library is installed with all its functions. Loads it.
bool has_cufft();
/// The plan of a device, from a bounded cache.
std::shared_ptr<FftPlan> find_fft_plan(int ordinal, DType dtype, int64_t lines, int64_t n);

}  // namespace arete::cuda
