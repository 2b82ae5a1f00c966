// Which engines cuDNN has for a described device: needs the library, but no GPU.
#include <gtest/gtest.h>

#include "arete/backend/cuda/lib/cudnn_convolution.h"
#include "arete/backend/cuda/runtime/context.h"
#include "arete/backend/cuda/runtime/properties.h"

namespace arete::cuda::cudnn {
namespace {

std::string device_json(int version, int multiprocessors) {
  return R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
         R"("regsPerBlock":65536,"multiProcessorCount":)" +
         std::to_string(multiprocessors) +
         R"(,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":166912,)"
         R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
         R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)"
         R"("supportCoopLaunch":1,"totalGlobalMem":80000000000,"smClockRateKHz":1410000,)"
         R"("memClockRateKHz":1215000,"l2CacheSize":41943040,"cudaDeviceId":0,"deviceVer":)" +
         std::to_string(version) + R"(,"driverVer":13000,"deviceName":"described"})";
}

ConvolutionKey network_key(DType dtype, ConvolutionPass pass, Order order) {
  ConvolutionKey k;
  k.x = {4, 32, 14, 14, 0}, k.w = {64, 32, 3, 3, 0}, k.y = {4, 64, 14, 14, 0};
  k.stride = {1, 1, 0}, k.padding = {1, 1, 0}, k.dilation = {1, 1, 0};
  k.dtype = dtype, k.pass = pass, k.order = order;
  return k;
}

class DescribedDevice : public ::testing::TestWithParam<int> {};

TEST_P(DescribedDevice, HasPreciseEnginesThatNeedNoCompiler) {
  if (!problem().empty()) GTEST_SKIP() << problem();
  if (DeviceContext::count() > 0) {
    const DeviceProperties here = query_properties(0);
    // cuDNN 9.14 and 9.19 read from a null pointer then.
    if (GetParam() > here.major * 100 + here.minor * 10) GTEST_SKIP() << "newer than the GPU here";
  }
  const Target target{nullptr, device_json(GetParam(), 108)};
  for (DType dtype : {kFloat32, kFloat16, kBFloat16, kFloat64})
    for (Order order : {Order::channels_first, Order::channels_last})
      for (ConvolutionPass pass : {ConvolutionPass::forward, ConvolutionPass::data_gradient,
                                   ConvolutionPass::weight_gradient})
        for (bool deterministic : {false, true}) {
          ConvolutionKey key = network_key(dtype, pass, order);
          if (deterministic) key.choice = EngineChoice::deterministic;
          key.has_bias = pass == ConvolutionPass::forward;
          const auto plan = make_convolution_plan(key, target, 4);
          ASSERT_FALSE(plan->plans.empty()) << key.to_string() << ": " << refusals().last;
          EXPECT_EQ(plan->adds_bias, bool(key.has_bias)) << key.to_string();
          for (const Plan& p : plan->plans) {
            EXPECT_FALSE(p.notes().compiles) << key.to_string() << ": " << p.to_string();
            EXPECT_FALSE(deterministic && p.notes().nondeterministic) << p.to_string();
            EXPECT_FALSE(dtype == kFloat32 && p.notes().tensor_core) << p.to_string();
          }
        }
}
INSTANTIATE_TEST_SUITE_P(Architectures, DescribedDevice, ::testing::Values(800, 900, 1000));

TEST(CudnnPlans, Tf32IsForThoseWhoAsk) {
  if (!problem().empty()) GTEST_SKIP() << problem();
  ConvolutionKey key = network_key(kFloat32, ConvolutionPass::forward, Order::channels_last);
  key.allow_tf32 = 1;
  const auto plan = make_convolution_plan(key, {nullptr, device_json(900, 132)}, 1);
  ASSERT_FALSE(plan->plans.empty());
  EXPECT_TRUE(plan->plans[0].notes().tensor_core) << plan->plans[0].to_string();
}

TEST(CudnnPlans, WhatIsRefusedSaysWhy) {
  if (!problem().empty()) GTEST_SKIP() << problem();
  ConvolutionKey key = network_key(kFloat32, ConvolutionPass::forward, Order::channels_first);
  key.y[2] = 15;  // does not fit the window
  const int64_t before = refusals().count;
  EXPECT_TRUE(make_convolution_plan(key, {nullptr, device_json(900, 132)}, 1)->plans.empty());
  EXPECT_EQ(refusals().count, before + 1);
  EXPECT_NE(refusals().last.find("CUDNN_STATUS_BAD_PARAM"), std::string::npos) << refusals().last;
}

}  // namespace
}  // namespace arete::cuda::cudnn
