// The kernels of exchange between GPUs, run on the host: what is added up where, and who waits for
// whom. What they do on GPUs python/tests/nccl_program.py tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "arete/backend/cuda/lib/peer_exchange.h"
#include "tests/cuda/emulation.h"

namespace arete::cuda {
namespace peer_device {

#include "tests/cuda/kernel_words.inl"
inline emulation::Dim gridDim;
struct [[gnu::may_alias]] alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct [[gnu::may_alias]] alignas(8) uint2 {
  uint32_t x, y;
};
inline void __syncwarp() { emulation::ballot(true); }
// Threads of the emulation take turns: who looks again lets the others write first.
inline void store_release(uint32_t* p, uint32_t v) { *p = v; }
inline uint32_t load_acquire(const uint32_t* p) {
  emulation::Block::pause();
  return *p;
}
#include "arete/backend/cuda/device/peer.cuh"

}  // namespace peer_device

namespace {

static_assert(std::size(peer_device::PeerSumArgs{}.parts) == kMostPeers &&
              std::size(peer_device::PeerMeetArgs{}.flags) == kMostPeers);

// Whole numbers: sums are exact in the type that registers compute in, and are rounded once.
template <class Stored, class T, int R>
void add(int64_t n, bool aligned, bool shares, double scale) {
  using Wide = std::conditional_t<sizeof(T) == 8, double, float>;
  std::minstd_rand random(unsigned(n) + R);
  const int64_t all = n + 32;  // with what nothing may be written to
  const auto memory = [&] {
    return std::vector<std::max_align_t>(size_t(all) * sizeof(T) / sizeof(std::max_align_t) + 2);
  };
  const auto in = [&](std::vector<std::max_align_t>& m) {
    return reinterpret_cast<T*>(m.data()) + (aligned ? 0 : 1);
  };
  std::vector<std::vector<std::max_align_t>> parts(R, memory());
  std::vector<std::max_align_t> out = memory(), shared = memory();
  std::vector<Wide> sums(size_t(n), 0);
  peer_device::PeerSumArgs a{};
  for (int r = 0; r < R; ++r) {
    T* const part = in(parts[size_t(r)]);
    for (int64_t i = 0; i < n; ++i) {
      part[i] = T(Wide(int(random() % 2001) - 1000));
      sums[size_t(i)] += Wide(part[i]) * Wide(scale);
    }
    a.parts[r] = part;
  }
  for (int64_t i = 0; i < all; ++i) in(out)[i] = in(shared)[i] = T(Wide(7));
  a.out = in(out);
  a.shared = shares ? in(shared) : nullptr;
  a.n = n;
  a.scale = scale;
  a.aligned = aligned;
  peer_device::blockDim.x = 64;
  peer_device::gridDim.x = 3;
  for (unsigned b = 0; b < peer_device::gridDim.x; ++b)
    for (unsigned t = 0; t < peer_device::blockDim.x; ++t) {  // who do not wait for each other
      emulation::block_index = {b, 0, 0};
      emulation::thread_index = {t, 0, 0};
      peer_device::add_peers<Stored, R>(a);
    }
  for (int64_t i = 0; i < all; ++i) {
    const Wide expected = Wide(i < n ? T(sums[size_t(i)]) : T(Wide(7)));
    ASSERT_EQ(Wide(in(out)[i]), expected) << R << " " << n << " " << i;
    ASSERT_EQ(Wide(in(shared)[i]), shares ? expected : Wide(7)) << R << " " << n << " " << i;
  }
}

template <class Stored, class T>
void add_all() {
  for (const int64_t n : {1, 7, 8, 33, 1000, 4099})
    for (const bool aligned : {true, false})
      for (const bool shares : {true, false}) {
        add<Stored, T, 2>(n, aligned, shares, 1);
        add<Stored, T, 3>(n, aligned, shares, 0.5);
        add<Stored, T, 8>(n, aligned, shares, 0.125);
      }
}

TEST(PeerKernels, AddPartsOfAnyLengthAndAlignment) {
  add_all<peer_device::f32, float>();
  add_all<peer_device::f64, double>();
  add_all<peer_device::f16, Half>();
  add_all<peer_device::bf16, BFloat16>();
}

// Ranks are warps of one block, so that they take turns.
struct Meeting {
  Meeting(int ranks, uint32_t met)
      : flags(size_t(ranks), std::vector<uint32_t>(kMostPeers, met)), rounds(size_t(ranks), met) {}
  peer_device::PeerMeetArgs of(int rank) {
    peer_device::PeerMeetArgs a{};
    for (size_t r = 0; r < flags.size(); ++r) a.flags[r] = flags[r].data();
    a.round = &rounds[size_t(rank)];
    a.ended = &ended;
    a.rank = rank;
    a.ranks = int(flags.size());
    return a;
  }
  std::vector<std::vector<uint32_t>> flags;
  std::vector<uint32_t> rounds;
  uint32_t ended = 0;
};

TEST(PeerKernels, NobodyLeavesAMeetingThatOthersHaveNotComeTo) {
  constexpr uint32_t kTimes = 6;
  // Also where the number of meetings begins anew, or has its sign's bit changed.
  for (const uint32_t met : {0u, 0xfffffffdu, 0x7ffffffdu})
    for (const int ranks : {2, 3, 8}) {
      Meeting meeting(ranks, met);
      std::vector<uint32_t> come(size_t(ranks), 0);
      bool all_were_there = true;
      emulation::Block block(32 * ranks);
      block.run([&] {
        const unsigned thread = emulation::thread_index.x;
        const int rank = int(thread / 32);
        for (uint32_t time = 1; time <= kTimes; ++time) {
          // Some come late.
          for (uint32_t k = 0; k < (unsigned(rank) * 5 + time * 3) % 7; ++k)
            emulation::Block::pause();
          if (thread % 32 == 0) come[size_t(rank)] = time;
          emulation::ballot(true);
          emulation::thread_index.x = thread % 32;
          peer_device::meet_peers(meeting.of(rank));
          emulation::ballot(true);  // the end of the kernel
          for (const uint32_t c : come) all_were_there &= c == time || c == time + 1;
        }
      });
      EXPECT_TRUE(all_were_there) << ranks << " " << met;
      for (const uint32_t r : meeting.rounds) EXPECT_EQ(r, met + kTimes);
    }
}

TEST(PeerKernels, NobodyWaitsAnyMoreOnceItHasEnded) {
  Meeting meeting(3, 5);
  emulation::Block block(64);
  bool waited = true;
  int left = 0;
  block.run([&] {
    const unsigned thread = emulation::thread_index.x;
    if (thread / 32 == 1) {  // rank 2 does not come, and somebody ends the meeting
      for (int k = 0; k < 600; ++k) emulation::Block::pause();
      waited &= left < 32;
      meeting.ended = 1;
      return;
    }
    emulation::thread_index.x = thread % 32;
    peer_device::meet_peers(meeting.of(0));
    ++left;
  });
  EXPECT_TRUE(waited);
  EXPECT_EQ(left, 32);
}

}  // namespace
}  // namespace arete::cuda
