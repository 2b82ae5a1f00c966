// The public interface of GPUs: devices, streams, events, errors. Without a GPU: clear reasons and
// zeros.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "arete/arete.h"
#include "arete/prim/backend.h"
#include "tests/support/errors.h"
#include "tests/support/gpu.h"

namespace arete {
namespace {

TEST(CudaApi, AvailabilityAndReasonAgree) {
  EXPECT_EQ(cuda::is_available(), cuda::unavailable_reason().empty());
  EXPECT_EQ(cuda::is_available(), cuda::device_count() > 0);
  EXPECT_EQ(cuda::current_device(), 0);
}

TEST(CudaApi, WithoutGpuCountersAreZero) {
  NEEDS_NO_GPU();
  EXPECT_EQ(cuda::device_count(), 0);
  EXPECT_EQ(cuda::memory_allocated(), 0u);
  EXPECT_EQ(cuda::max_memory_allocated(), 0u);
  EXPECT_EQ(cuda::memory_reserved(), 0u);
  EXPECT_EQ(cuda::max_memory_reserved(), 0u);
  EXPECT_EQ(cuda::memory_stats().allocations, 0);
  EXPECT_FALSE(cuda::memory_summary().empty());
  EXPECT_TRUE(cuda::versions().empty());
  EXPECT_FALSE(cuda::is_current_stream_capturing());
  cuda::reset_peak_memory_stats();
  cuda::empty_cache();
  const cuda::nvtx::RangeGuard range("nothing");
}

TEST(CudaApi, WithoutGpuErrorsSayWhy) {
  NEEDS_NO_GPU();
  const std::string reason = cuda::unavailable_reason();
  ASSERT_FALSE(reason.empty());
  EXPECT_ERROR(zeros({2}, kCUDA), reason);
  EXPECT_ERROR(zeros({2}, kCUDA), "cuda:0 is not available");
  EXPECT_ERROR(zeros({2}).to(kCUDA), reason);
  EXPECT_ERROR(zeros({2}).pin_memory(), reason);
  EXPECT_ERROR(cuda::synchronize(), reason);
  EXPECT_ERROR(cuda::set_device(0), reason);
  EXPECT_ERROR(cuda::get_device_properties(), reason);
  EXPECT_ERROR(cuda::Stream(), reason);
  EXPECT_ERROR(cuda::current_stream(), reason);
  EXPECT_ERROR(cuda::mem_get_info(), reason);
  EXPECT_ERROR(cuda::MemPool(), reason);
  cuda::Event event;  // holds nothing until it is recorded
  EXPECT_TRUE(event.query());
  EXPECT_ERROR(event.record(), reason);
  cuda::Graph graph;
  EXPECT_FALSE(graph.is_ready());
  EXPECT_ERROR(graph.replay(), "the graph holds nothing");
}

TEST(CudaApi, HostTensorsAreNotPinned) {
  const Tensor t = zeros({3});
  EXPECT_FALSE(t.is_pinned());
  EXPECT_FALSE(t.storage()->has_pending_copies());
}

TEST(CudaGpu, Properties) {
  NEEDS_GPU();
  const DeviceProperties p = cuda::get_device_properties();
  EXPECT_FALSE(p.name.empty());
  EXPECT_GE(p.major, 8);
  EXPECT_GT(p.total_memory, size_t(1) << 30);
  EXPECT_GT(p.multi_processor_count, 0);
  EXPECT_FALSE(cuda::versions().empty());
  const MemoryInfo m = cuda::mem_get_info();
  EXPECT_LE(m.free, m.total);
  EXPECT_ERROR(cuda::get_device_properties(100), "CUDA error: invalid device ordinal");
  EXPECT_ERROR(zeros({1}, Device(DeviceType::cuda, 100)), "CUDA error: invalid device ordinal");
  EXPECT_ERROR(cuda::set_device(-2), "CUDA error: invalid device ordinal");
  EXPECT_EQ(cuda::current_device(), 0);
  EXPECT_FALSE(prim::backend_for(kCUDA).description().empty());
}

TEST(CudaGpu, StreamsAndEvents) {
  NEEDS_GPU();
  const cuda::Stream s, high(-1);
  EXPECT_EQ(s.device(), 0);
  EXPECT_FALSE(s == high);
  EXPECT_FALSE(s == cuda::default_stream());
  EXPECT_TRUE(cuda::current_stream() == cuda::default_stream());
  cuda::Event begin(true), end(true);
  {
    const cuda::StreamGuard guard(s);
    EXPECT_TRUE(cuda::current_stream() == s);
    begin.record();
    Tensor x = ones({1 << 20}, TensorOptions(kFloat32, kCUDA));
    for (int i = 0; i < 20; ++i) x = x + 1;
    end.record();
    EXPECT_EQ(x[5].item<float>(), 21);
  }
  EXPECT_TRUE(cuda::current_stream() == cuda::default_stream());
  EXPECT_GT(begin.elapsed_time(end), 0);
  EXPECT_TRUE(end.query());
  s.synchronize();
  EXPECT_TRUE(s.query());
  EXPECT_ERROR(cuda::Event().elapsed_time(end), "enable_timing");
  std::thread([&] { EXPECT_TRUE(cuda::current_stream() == cuda::default_stream()); }).join();
}

TEST(CudaGpu, TensorsCrossStreamsWithoutCallsOfTheUser) {
  NEEDS_GPU();
  const cuda::Stream side;
  const TensorOptions o(kFloat32, kCUDA);
  const int64_t n = 1 << 20;
  for (int round = 0; round < 50; ++round) {
    Tensor a = full({n}, float(round), o);
    side.wait_stream(cuda::current_stream());
    Tensor b;
    {
      const cuda::StreamGuard guard(side);
      b = a + 1;
      b = b * a;
    }
    a = Tensor();                                 // freed while the side stream may still read it
    const Tensor other = full({n}, -1000.0f, o);  // must not get its memory before that
    cuda::current_stream().wait_stream(side);
    const float want = float(round + 1) * float(round);
    EXPECT_EQ(b[0].item<float>(), want);
    EXPECT_EQ(b[n - 1].item<float>(), want);
    EXPECT_EQ(other[n - 1].item<float>(), -1000.0f);
  }
}

TEST(CudaGpu, IndexErrorsAreRaisedAtTheNextWait) {
  NEEDS_GPU();
  const Tensor table = arange(12, TensorOptions(kFloat32, kCUDA)).reshape({3, 4});
  const Tensor index = tensor(std::vector<int64_t>{1, 7}).to(kCUDA);
  const Tensor rows = table.index_select(0, index);
  EXPECT_ERROR(cuda::synchronize(), "index 7 is out of bounds for dimension 0 with size 3");
  cuda::synchronize();  // once
  EXPECT_EQ(table.sum().item<float>(), 66);
  EXPECT_EQ(table.index_select(0, tensor(std::vector<int64_t>{2}).to(kCUDA))[0][3].item<float>(),
            11);
}

TEST(CudaGpu, WithoutANumberItIsTheCurrentOne) {
  NEEDS_GPU();
  if (cuda::device_count() < 2) GTEST_SKIP() << "one GPU";
  const Device first(DeviceType::cuda, 0), second(DeviceType::cuda, 1);
  const Tensor host = tensor({1.0f, 2.0f, 3.0f});
  EXPECT_EQ(host.cuda().device(), first);
  const cuda::DeviceGuard guard(1);
  const size_t before = cuda::memory_allocated();
  const Tensor x = host.cuda(), y = full({3}, 2, TensorOptions(kFloat32, kCUDA));
  EXPECT_EQ(x.device(), second);
  EXPECT_EQ((x * y).to_vector<float>(), (std::vector<float>{2, 4, 6}));
  EXPECT_GT(cuda::memory_allocated(), before);
  EXPECT_EQ(host.cuda(0).to(kCUDA).device(), second);
  EXPECT_EQ(cuda::current_stream().device(), 1);
  cuda::Graph graph;
  Tensor z;
  {
    cuda::GraphCapture capture(graph);
    z = x + y;
    capture.end();
  }
  graph.replay();
  EXPECT_EQ(z.device(), second);
  EXPECT_EQ(z.to_vector<float>(), (std::vector<float>{3, 4, 5}));
}

TEST(CudaGpu, TensorsOnTwoDevicesDoNotMix) {
  NEEDS_GPU();
  EXPECT_ERROR(ones({2}) + ones({2}, TensorOptions(kFloat32, kCUDA)),
               "Expected all tensors to be on the same device");
}

}  // namespace
}  // namespace arete
