// Counters, histories and offloading of GPU memory; zeros and names without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "arete/arete.h"
#include "tests/support/errors.h"
#include "tests/support/gpu.h"

namespace arete {
namespace {

std::map<std::string, int64_t> named_stats() {
  const auto list = cuda::memory_stats_by_name();
  return {list.begin(), list.end()};
}

TEST(CudaMemory, NamesAreSortedAndComplete) {
  const auto list = cuda::memory_stats_by_name();
  EXPECT_TRUE(std::is_sorted(list.begin(), list.end()));
  EXPECT_EQ(named_stats().size(), list.size());
  EXPECT_EQ(named_stats().count("allocated_bytes.all.peak"), 1u);
  EXPECT_EQ(named_stats().count("segment.small_pool.freed"), 1u);
  cuda::reset_accumulated_memory_stats();
  if (cuda::is_available()) return;
  for (const auto& [name, value] : list)
    EXPECT_EQ(value, name == "max_split_size" ? -1 : 0) << name;
}

TEST(CudaMemory, AccumulatedCounts) {
  NEEDS_GPU();
  const Tensor before = ones({10}, kCUDA);
  cuda::reset_accumulated_memory_stats();
  EXPECT_EQ(named_stats()["allocated_bytes.all.allocated"], 0);
  EXPECT_EQ(cuda::memory_stats().allocations, 0);
  {
    const Tensor x = empty({1 << 20}, TensorOptions(kFloat32, kCUDA));
    EXPECT_EQ(named_stats()["allocated_bytes.all.allocated"], 4 << 20);
    EXPECT_EQ(named_stats()["allocated_bytes.all.freed"], 0);
  }
  auto stats = named_stats();
  EXPECT_EQ(stats["allocated_bytes.all.freed"], 4 << 20);
  EXPECT_EQ(stats["allocation.all.allocated"], 1);
  EXPECT_EQ(stats["allocation.all.freed"], 1);
  EXPECT_EQ(stats["allocated_bytes.all.current"], int64_t(cuda::memory_allocated()));
  EXPECT_EQ(stats["reserved_bytes.all.current"], int64_t(cuda::memory_reserved()));
}

TEST(CudaMemory, HistoryReplaysToTheLiveSet) {
  NEEDS_GPU();
  memory::record_history();
  std::map<uintptr_t, size_t> held;
  std::vector<Tensor> kept;
  for (int i = 1; i < 60; ++i) {
    const NameScope scope("loop");
    const Tensor x = randn({i * 1000}, TensorOptions(kFloat32, kCUDA));
    if (i % 3 == 0) {
      kept.push_back(x.exp());
      held[uintptr_t(kept.back().data_ptr())] = kept.back().nbytes();
    }
  }
  const memory::Snapshot s = memory::snapshot();
  memory::stop_history();
  std::map<uintptr_t, size_t> live, replayed;
  for (const memory::Entry& e : s.live)
    if (e.event.device == ones({1}, kCUDA).device()) live[e.event.address] = e.event.requested;
  for (const memory::Entry& e : memory::replay(s))
    if (e.event.device == ones({1}, kCUDA).device()) replayed[e.event.address] = e.event.requested;
  EXPECT_EQ(live, replayed);
  for (const auto& [address, bytes] : held) EXPECT_EQ(live[address], bytes);
  EXPECT_NE(memory::to_json(s).find("\"operator\":\"exp\",\"scope\":\"loop\""), std::string::npos);
}

TEST(CudaMemory, ActivationsInHostMemory) {
  NEEDS_GPU();
  const Tensor x = randn({1 << 20}, TensorOptions(kFloat32, kCUDA)).requires_grad_();
  const auto deep = [&] {
    Tensor t = x;
    for (int i = 0; i < 10; ++i) t = t.sin();
    return t;
  };
  GPUMemoryTracker plain;
  Tensor y = deep();
  plain.stop();
  const Tensor expected = autograd::grad(y.sum(), x)[0];
  y = Tensor();
  for (const bool pin : {false, true}) {
    GPUMemoryTracker less;
    {
      const autograd::SaveOnCpuGuard guard(pin);
      y = deep();
    }
    cuda::synchronize();  // pinned copies keep what they read until they are done
    less.stop();
    EXPECT_LT(less.delta(), plain.delta() / 4);
    EXPECT_EQ(autograd::grad(y.sum(), x)[0].to_vector<float>(), expected.to_vector<float>());
  }
}

TEST(CudaMemory, TimesBetweenEvents) {
  NEEDS_GPU();
  const Tensor a = ones({1 << 24}, kCUDA);
  const benchmark::Timer timer([&] { benchmark::keep(a.exp()); });
  const benchmark::Measurement warm = timer.device_time(kCUDA, 20),
                               cold = timer.device_time(kCUDA, 20, true);
  EXPECT_GT(warm.median(), 1e-6);
  EXPECT_LT(warm.median(), 0.01);
  EXPECT_GT(cold.median(), 0.5 * warm.median());
}

TEST(CudaMemory, MemoryCounters) {
  NEEDS_GPU();
  cuda::synchronize();
  const size_t before = cuda::memory_allocated();
  cuda::reset_peak_memory_stats();
  {
    const Tensor x = empty({1 << 20}, TensorOptions(kFloat32, kCUDA));
    EXPECT_GE(cuda::memory_allocated(), before + (size_t(4) << 20));
  }
  EXPECT_EQ(cuda::memory_allocated(), before);
  EXPECT_GE(cuda::max_memory_allocated(), before + (size_t(4) << 20));
  EXPECT_GE(cuda::memory_reserved(), cuda::memory_allocated());
  EXPECT_GE(cuda::max_memory_reserved(), cuda::memory_reserved());
  EXPECT_FALSE(cuda::memory_summary().empty());
  cuda::empty_cache();
  EXPECT_ERROR(empty({int64_t(1) << 45}, TensorOptions(kFloat32, kCUDA)), "memory");
  EXPECT_EQ(ones({2}, TensorOptions(kFloat32, kCUDA)).sum().item<float>(), 2);
}

}  // namespace
}  // namespace arete
