// The places of the fields of CUPTI's records, against CUPTI's own header where there is one.
#include "arete/backend/cuda/lib/cupti_records.h"

#include <gtest/gtest.h>

#include "arete/backend/cuda/lib/cupti.h"
#include "arete/base/error.h"
#include "arete/device/cuda.h"

namespace arete::cuda {

// The library may be there, but without a driver it starts nothing; a profiler goes on without it.
TEST(Cupti, WithoutAGpuItSaysSo) {
  if (is_available()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THROW(
      {
        cupti_trace().start();
        cupti_trace().stop();
      },
      DeviceError);
}

}  // namespace arete::cuda

#if __has_include(<cupti_activity.h>)
#include <cupti.h>

#if CUPTI_API_VERSION >= 18  // that of CUDA 12
namespace arete::cuda::cupti {
namespace {

#define ARETE_SAME_PLACE(ours, field, theirs, their_field)                         \
  EXPECT_EQ(offsetof(ours, field), offsetof(theirs, their_field)) << #their_field; \
  EXPECT_EQ(sizeof(ours::field), sizeof(theirs::their_field)) << #their_field

TEST(Cupti, RecordsLieAsInItsHeader) {
  using Kernel = CUpti_ActivityKernel9;
  ARETE_SAME_PLACE(KernelRecord, kind, Kernel, kind);
  ARETE_SAME_PLACE(KernelRecord, registers_per_thread, Kernel, registersPerThread);
  ARETE_SAME_PLACE(KernelRecord, start, Kernel, start);
  ARETE_SAME_PLACE(KernelRecord, end, Kernel, end);
  ARETE_SAME_PLACE(KernelRecord, device, Kernel, deviceId);
  ARETE_SAME_PLACE(KernelRecord, stream, Kernel, streamId);
  EXPECT_EQ(offsetof(KernelRecord, grid), offsetof(Kernel, gridX));
  EXPECT_EQ(offsetof(KernelRecord, block), offsetof(Kernel, blockX));
  ARETE_SAME_PLACE(KernelRecord, static_shared, Kernel, staticSharedMemory);
  ARETE_SAME_PLACE(KernelRecord, dynamic_shared, Kernel, dynamicSharedMemory);
  ARETE_SAME_PLACE(KernelRecord, correlation, Kernel, correlationId);
  ARETE_SAME_PLACE(KernelRecord, name, Kernel, name);
  using Call = CUpti_CallbackData;
  ARETE_SAME_PLACE(CallbackData, site, Call, callbackSite);
  ARETE_SAME_PLACE(CallbackData, correlation, Call, correlationId);
  using Copy = CUpti_ActivityMemcpy5;
  ARETE_SAME_PLACE(MemcpyRecord, copy_kind, Copy, copyKind);
  ARETE_SAME_PLACE(MemcpyRecord, bytes, Copy, bytes);
  ARETE_SAME_PLACE(MemcpyRecord, start, Copy, start);
  ARETE_SAME_PLACE(MemcpyRecord, correlation, Copy, correlationId);
  using Set = CUpti_ActivityMemset4;
  ARETE_SAME_PLACE(MemsetRecord, bytes, Set, bytes);
  ARETE_SAME_PLACE(MemsetRecord, start, Set, start);
  ARETE_SAME_PLACE(MemsetRecord, correlation, Set, correlationId);
  using Api = CUpti_ActivityAPI;
  ARETE_SAME_PLACE(ApiRecord, start, Api, start);
  ARETE_SAME_PLACE(ApiRecord, thread, Api, threadId);
  ARETE_SAME_PLACE(ApiRecord, correlation, Api, correlationId);
  using External = CUpti_ActivityExternalCorrelation;
  ARETE_SAME_PLACE(ExternalRecord, external_kind, External, externalKind);
  ARETE_SAME_PLACE(ExternalRecord, id, External, externalId);
  ARETE_SAME_PLACE(ExternalRecord, correlation, External, correlationId);
}

TEST(Cupti, NumbersAreThoseOfItsHeader) {
  EXPECT_EQ(kMemcpy, CUPTI_ACTIVITY_KIND_MEMCPY);
  EXPECT_EQ(kMemset, CUPTI_ACTIVITY_KIND_MEMSET);
  EXPECT_EQ(kKernel, CUPTI_ACTIVITY_KIND_KERNEL);
  EXPECT_EQ(kDriver, CUPTI_ACTIVITY_KIND_DRIVER);
  EXPECT_EQ(kRuntime, CUPTI_ACTIVITY_KIND_RUNTIME);
  EXPECT_EQ(kConcurrentKernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  EXPECT_EQ(kExternalCorrelation, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
  EXPECT_EQ(kCustomIds, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);
  EXPECT_EQ(kDriverCalls, CUPTI_CB_DOMAIN_DRIVER_API);
  EXPECT_EQ(kCallBegins, CUPTI_API_ENTER);
  EXPECT_EQ(kFlushForced, uint32_t(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
}

}  // namespace
}  // namespace arete::cuda::cupti
#endif
#endif
