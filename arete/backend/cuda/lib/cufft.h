// cuFFT, loaded when the first Fourier transform needs it.
#pragma once

#include <cufft.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace arete::cuda {

class DeviceContext;

/// Where the numbers of one side lie: the innermost of the dimensions has `stride`, each of the
/// others is embed[d + 1] times as far apart as the next one, transforms are `distance` apart.
/// All in numbers (real or complex).
struct FftLayout {
  std::array<int64_t, 3> embed{};
  int64_t stride = 1, distance = 0;
};

/// What a plan is for: `batch` transforms over `rank` dimensions, innermost last.
struct FftGeometry {
  std::array<int64_t, 3> n{};
  FftLayout in, out;
  int64_t batch = 1;
  int32_t rank = 1, type = CUFFT_C2C;
};

/// One kind of transforms on one device; usable by one thread at a time (`mutex`).
class FftPlan {
 public:
  /// DeviceError if cuFFT, which must be there, refuses.
  explicit FftPlan(const FftGeometry& g);
  ~FftPlan();
  FftPlan(const FftPlan&) = delete;
  FftPlan& operator=(const FftPlan&) = delete;

  size_t work_bytes() const { return work_bytes_; }
  /// `work` holds work_bytes(); `stream` is a CUstream. Reals to complex numbers go forward, the
  /// reverse goes back, and may destroy `in`.
  void run(void* in, void* out, bool forward, void* work, void* stream);
  std::mutex mutex;
  bool is_kept = false;  // by keep_if_captured()

 private:
  cufftHandle plan_ = 0;
  size_t work_bytes_ = 0;
  int32_t type_;
};

/// Whether the library is installed with all its functions. Loads it.
bool has_cufft();
/// The plan of a device, from a bounded cache; ready for work on any stream. During a capture a
/// DeviceError for lengths whose tables cuFFT waits for.
std::shared_ptr<FftPlan> find_fft_plan(DeviceContext& device, const FftGeometry& g);

}  // namespace arete::cuda
