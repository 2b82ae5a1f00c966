// Memory of the CPU backend: alignment, reuse, limits.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "arete/base/error.h"
#include "arete/prim/backend.h"
#include "tests/support/test_device.h"

namespace arete {
namespace {

prim::Backend& cpu() { return prim::backend_for(kCPU); }

TEST(CpuMemory, aligned_and_writable) {
  ARETE_CPU_ONLY();
  for (size_t bytes : {size_t(1), size_t(63), size_t(64), size_t(65), size_t(4096), size_t(4097),
                       size_t(100000), size_t(5) << 20}) {
    void* p = cpu().allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
    std::memset(p, 1, bytes);
    cpu().deallocate(p, bytes);
  }
  EXPECT_EQ(cpu().allocate(0), nullptr);
  cpu().deallocate(nullptr, 0);
}

TEST(CpuMemory, blocks_in_use_never_overlap) {
  ARETE_CPU_ONLY();
  uint64_t state = 1;
  struct Block {
    unsigned char* data;
    size_t bytes;
    unsigned char mark;
  };
  std::vector<Block> live;
  for (int k = 0; k < 3000; ++k) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t r = state >> 33;
    if (live.size() < 40 && r % 2) {
      const size_t bytes = 1 + r % (r % 5 == 0 ? 300000 : 6000);
      auto* p = static_cast<unsigned char*>(cpu().allocate(bytes));
      std::memset(p, k & 255, bytes);
      live.push_back({p, bytes, static_cast<unsigned char>(k & 255)});
    } else if (!live.empty()) {
      const size_t at = r % live.size();
      const Block b = live[at];
      for (size_t i = 0; i < b.bytes; ++i) ASSERT_EQ(b.data[i], b.mark);
      cpu().deallocate(b.data, b.bytes);
      live.erase(live.begin() + int64_t(at));
    }
  }
  for (const Block& b : live) cpu().deallocate(b.data, b.bytes);
}

TEST(CpuMemory, freed_by_another_thread) {
  ARETE_CPU_ONLY();
  std::vector<void*> blocks;
  for (int k = 0; k < 500; ++k) blocks.push_back(cpu().allocate(1000));
  std::thread([&] {
    for (void* p : blocks) cpu().deallocate(p, 1000);
  }).join();
  void* p = cpu().allocate(1000);
  std::memset(p, 0, 1000);
  cpu().deallocate(p, 1000);
}

TEST(CpuMemory, asking_for_too_much_is_an_error_with_the_size) {
  ARETE_CPU_ONLY();
  for (size_t bytes : {size_t(1) << 60, ~size_t(0)}) {
    try {
      cpu().deallocate(cpu().allocate(bytes), bytes);
      FAIL();
    } catch (const OutOfMemoryError& e) {
      EXPECT_NE(e.got().find(std::to_string(bytes)), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace arete
