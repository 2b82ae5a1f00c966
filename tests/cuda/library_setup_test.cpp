// Handles and plans of vendor libraries are ready when they are handed out.
#include <gtest/gtest.h>

#include "arete/backend/cuda/lib/cufft.h"
#include "arete/backend/cuda/lib/library_setup.h"

namespace arete::cuda {
namespace {

TEST(LibrarySetup, APlanOfCufftIsReadyForEveryStream) {
  if (!driver_problem().empty()) GTEST_SKIP() << driver_problem();
  if (!has_cufft()) GTEST_SKIP() << "there is no cuFFT";
  DeviceContext& device = DeviceContext::get(0);
  device.make_current();
  // Milliseconds of work before what the library does in the legacy stream.
  constexpr size_t kBytes = size_t(256) << 20;
  constexpr int kTimes = 100;
  CUdeviceptr memory = 0;
  ARETE_CU(cuMemAlloc, &memory, kBytes);
  for (const int64_t n : {2, 5, 4099}) {
    FftGeometry g;
    g.n[0] = n;
    g.in.embed[0] = g.out.embed[0] = n;
    g.in.distance = g.out.distance = n;
    for (int i = 0; i < kTimes; ++i) ARETE_CU(cuMemsetD8Async, memory, 0, kBytes, CU_STREAM_LEGACY);
    const std::shared_ptr<FftPlan> plan = find_fft_plan(device, g);
    EXPECT_EQ(driver().cuStreamQuery(CU_STREAM_LEGACY), CUDA_SUCCESS) << n << " points";
  }
  ARETE_CU(cuMemFree, memory);
}

}  // namespace
}  // namespace arete::cuda
