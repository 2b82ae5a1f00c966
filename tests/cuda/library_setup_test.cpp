// Handles and plans of vendor libraries are ready when they are handed out.
#include <gtest/gtest.h>

#include "arete/backend/cuda/lib/cublaslt.h"
#include "arete/backend/cuda/lib/cufft.h"
#include "arete/backend/cuda/lib/library_setup.h"
#include "arete/base/error.h"

namespace arete::cuda {
namespace {

class LibrarySetup : public testing::Test {
 protected:
  static DeviceContext& device() { return DeviceContext::get(0); }
  void SetUp() override {
    if (!driver_problem().empty()) GTEST_SKIP() << driver_problem();
    if (!has_cufft()) GTEST_SKIP() << "there is no cuFFT";
    device().make_current();
  }
  static CUstream new_stream() {
    CUstream stream = nullptr;
    ARETE_CU(cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING, 0);
    return stream;
  }
  static FftGeometry of_points(int64_t n) {
    FftGeometry g;
    g.n[0] = n;
    g.in.embed[0] = g.out.embed[0] = n;
    g.in.distance = g.out.distance = n;
    return g;
  }
};

TEST_F(LibrarySetup, APlanOfCufftIsReadyForEveryStream) {
  // Milliseconds of work before what the library does in the legacy stream.
  constexpr size_t kBytes = size_t(256) << 20;
  constexpr int kTimes = 100;
  CUdeviceptr memory = 0;
  ARETE_CU(cuMemAlloc, &memory, kBytes);
  for (const int64_t n : {2, 5, 4099}) {
    for (int i = 0; i < kTimes; ++i) ARETE_CU(cuMemsetD8Async, memory, 0, kBytes, CU_STREAM_LEGACY);
    const std::shared_ptr<FftPlan> plan = find_fft_plan(device(), of_points(n));
    EXPECT_EQ(driver().cuStreamQuery(CU_STREAM_LEGACY), CUDA_SUCCESS) << n << " points";
  }
  ARETE_CU(cuMemFree, memory);
}

// The first product and the first transform of a program may be inside of a capture.
TEST_F(LibrarySetup, HandlesAndPlansAreMadeWhileACaptureIsOpen) {
  const CUstream stream = new_stream();
  CUdeviceptr memory = 0;
  ARETE_CU(cuMemAlloc, &memory, 256);
  ARETE_CU(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  ARETE_CU(cuMemsetD8Async, memory, 1, 256, stream);
  EXPECT_NO_THROW((void)cublaslt_handle(device()));
  EXPECT_NO_THROW(finish_setup(device()));  // where the handle was there before
  const FftGeometry g = of_points(1025);    // which no other test transforms
  EXPECT_NO_THROW((void)find_fft_plan(device(), g));
  CUgraph graph = nullptr;
  EXPECT_EQ(driver().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_NE(graph, nullptr);
  if (graph) ARETE_CU(cuGraphDestroy, graph);
  ARETE_CU(cuMemFree, memory);
  ARETE_CU(cuStreamDestroy, stream);
}

// Tables of transforms with a large prime factor are computed on the device, and some versions of
// cuFFT wait for the device then, which is an error during a capture and ends it.
TEST_F(LibrarySetup, APlanThatACaptureForbidsSaysSoAndCanBeMadeAfterwards) {
  const CUstream stream = new_stream();
  const FftGeometry g = of_points(4111);  // which no other test transforms
  ARETE_CU(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  device().add_capture(1);
  bool refused = false;
  try {
    EXPECT_NE(find_fft_plan(device(), g), nullptr);
  } catch (const DeviceError& e) {
    refused = true;
    EXPECT_NE(e.message().find("failed with status"), std::string::npos) << e.what();
    EXPECT_NE(e.hint().find("before the capture"), std::string::npos) << e.what();
  }
  device().add_capture(-1);
  CUgraph graph = nullptr;
  EXPECT_TRUE(driver().cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS || refused);
  if (graph) ARETE_CU(cuGraphDestroy, graph);
  EXPECT_NO_THROW((void)find_fft_plan(device(), g));
  ARETE_CU(cuStreamDestroy, stream);
}

}  // namespace
}  // namespace arete::cuda
