// The radix sort's kernels, run on the host: what becomes of rows whose keys share digits. What
// they do on a GPU is tested with the primitive.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "arete/backend/cuda/codegen/sort.h"
#include "tests/cuda/emulation.h"

namespace arete::cuda {
namespace sort_device {

// What the sources find on a GPU.
#define ARETE_EMULATED
#define __device__
#define __shared__ static
#define __noinline__
#define __forceinline__ inline
#define threadIdx emulation::thread_index
#define blockIdx emulation::block_index
inline emulation::Dim blockDim;
inline float __uint_as_float(uint32_t v) { return emulation::as_float(v); }
inline uint32_t __float_as_uint(float v) { return emulation::as_word(v); }
inline long long __double_as_longlong(double v) { return __builtin_bit_cast(long long, v); }
inline double __longlong_as_double(long long v) { return __builtin_bit_cast(double, v); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline int __popc(uint32_t v) { return __builtin_popcount(v); }
inline void __syncthreads() { emulation::Block::barrier(); }
inline void __syncwarp() { emulation::ballot(true); }
inline uint32_t __ballot_sync(unsigned, bool v) { return emulation::ballot(v); }
inline bool __all_sync(unsigned, bool v) { return emulation::ballot(v) == 0xffffffffu; }
template <class T, class U>
T atomicAdd(T* p, U v) {
  return std::exchange(*p, T(*p + v));
}
template <class T>
T __shfl_up_sync(unsigned, T v, int by) {
  return emulation::shuffle_up(v, by);
}
template <class T>
T __shfl_sync(unsigned, T v, int lane) {
  return emulation::broadcast(v, lane);
}
// Of what is not run here.
template <class T>
T __shfl_down_sync(unsigned, T v, int) {
  return v;
}
template <class T>
T __shfl_xor_sync(unsigned, T v, int) {
  return v;
}
using std::max, std::min;
inline float f16_value(uint16_t bits) { return emulation::f16_value(bits, 0); }
inline uint16_t f16_bits(float v) { return Half(v).bits; }
inline uint16_t bf16_bits(float v) { return BFloat16(v).bits; }
alignas(16) unsigned char shared[1 << 17];
#include "arete/backend/cuda/device/radix_sort.cuh"

}  // namespace sort_device

namespace {

static_assert(sizeof(sort_device::SortHistogramArgs) == sizeof(sorting::SortHistogramArgs) &&
              sizeof(sort_device::SortBasesArgs) == sizeof(sorting::SortBasesArgs) &&
              sizeof(sort_device::SortPassArgs) == sizeof(sorting::SortPassArgs) &&
              sort_device::kSortThreads == sorting::kSortThreads);

template <class T>
uint64_t address_of(std::vector<T>& v) {
  return reinterpret_cast<uint64_t>(v.data());
}

// Sorts rows as radix_sort does, elements or keys of them; which passes moved something.
template <class T, bool kPairs>
std::vector<int> sort_rows(std::vector<T> in, int64_t rows, bool elements, std::vector<T>& values,
                           std::vector<int64_t>& positions) {
  using P = uint32_t;
  const int64_t length = int64_t(in.size()) / rows, passes = int64_t(sizeof(T));
  constexpr int64_t kItem = sizeof(T) + (kPairs ? sizeof(P) : 0);
  const int64_t tile = sort_device::kSortThreads * sort_device::sort_items(int(kItem)),
                tiles = (length + tile - 1) / tile, table = rows * sorting::kDigits;
  std::vector<P> counts(size_t(passes * table)), states(size_t(passes * tiles * table));
  std::vector<uint32_t> next_tile(size_t(passes), 0), idle(size_t(rows), 0);
  sort_device::SortHistogramArgs h{};
  h.in = address_of(in), h.counts = address_of(counts);
  h.rows = rows, h.length = length, h.parts = 1, h.part_length = length, h.passes = passes;
  emulation::Block many(sort_device::kHistogramThreads);
  for (int64_t row = 0; row < rows; ++row) {
    emulation::block_index = {unsigned(row), 0, 0};
    many.run([&] { sort_device::sort_histogram<T, P, kPairs>(h); });
  }
  sort_device::SortBasesArgs b{};
  b.counts = h.counts, b.idle = idle.data(), b.rows = rows, b.length = length;
  emulation::Block digits(sort_device::kDigits);
  for (int64_t k = 0; k < rows * passes; ++k) {
    emulation::block_index = {unsigned(k), 0, 0};
    digits.run([&] { sort_device::sort_bases<P>(b); });
  }
  std::vector<T> keys(in.size()), second(in.size());
  std::vector<P> places(in.size()), second_places(in.size());
  values.assign(in.size(), T(0));
  positions.assign(in.size(), -1);
  sort_device::SortPassArgs a{};
  a.in = h.in;
  a.keys[0] = address_of(keys), a.keys[1] = elements ? address_of(values) : address_of(second);
  a.positions[0] = address_of(places);
  a.positions[1] = elements ? address_of(positions) : address_of(second_places);
  if (elements) a.values = address_of(values), a.indices = kPairs ? address_of(positions) : 0;
  a.idle = idle.data();
  a.length = length, a.tiles = tiles, a.passes = int32_t(passes);
  std::vector<int> moved;
  emulation::Block block(sort_device::kSortThreads);
  for (int64_t p = 0; p < passes; ++p) {
    a.bases = h.counts + uint64_t(p * table) * sizeof(P);
    a.states = address_of(states) + uint64_t(p * tiles * table) * sizeof(P);
    a.next_tile = &next_tile[size_t(p)];
    a.pass = int32_t(p);
    const std::vector<P> states_before = states;
    for (int64_t k = 0; k < rows * tiles; ++k) {
      emulation::block_index = {unsigned(k), 0, 0};
      block.run([&] { sort_device::sort_pass<T, P, kPairs>(a); });
    }
    if (states != states_before) moved.push_back(int(p));
  }
  if (!elements) {
    const bool in_second = (passes - 1) % 2;
    const std::vector<T>& result = in_second ? second : keys;
    values = result;
    const std::vector<P>& at = in_second ? second_places : places;
    positions.assign(at.begin(), at.end());
  }
  return moved;
}

template <class T, bool kPairs>
void check(int64_t rows, int64_t length, const std::vector<uint64_t>& digits, bool elements,
           const std::vector<int>& moved, T offset = 0) {
  std::mt19937_64 random(5);
  std::vector<T> in(size_t(rows * length));
  for (T& v : in) {
    uint64_t word = 0;
    for (size_t d = 0; d < sizeof(T); ++d)
      if (d < digits.size() && digits[d] > 0) word |= random() % digits[d] << (8 * d);
    v = T(T(word) + offset);
  }
  std::vector<T> values, expected(in);
  std::vector<int64_t> positions, order(in.size());
  EXPECT_EQ((sort_rows<T, kPairs>(in, rows, elements, values, positions)), moved);
  for (int64_t r = 0; r < rows; ++r) {
    const auto begin = order.begin() + r * length;
    std::iota(begin, begin + length, 0);
    std::stable_sort(begin, begin + length, [&](int64_t i, int64_t j) {
      return in[size_t(r * length + i)] < in[size_t(r * length + j)];
    });
    for (int64_t i = 0; i < length; ++i)
      expected[size_t(r * length + i)] = in[size_t(r * length + begin[i])];
  }
  EXPECT_TRUE(values == expected) << rows << " of " << length;
  if (kPairs) {
    EXPECT_TRUE(positions == order) << rows << " of " << length;
  }
}

TEST(SortKernels, LeaveOutDigitsThatAreTheSame) {
  using u64 = sort_device::u64;
  using i64 = sort_device::i64;
  using u32 = sort_device::u32;
  check<i64, false>(1, 7000, {256, 4}, true, {0, 1});
  check<i64, true>(1, 700, {256, 256, 16}, true, {0, 1, 2, 3}, 7 << 20);
  check<i64, true>(2, 600, {0, 0, 3}, true, {0, 2});
  check<i64, true>(1, 500, {}, true, {0, 1}, -5);
  check<i64, false>(1, 500, {256, 256, 256, 256, 256, 256, 256, 256}, true,
                    {0, 1, 2, 3, 4, 5, 6, 7});
  check<u64, true>(1, 5000, {0, 200, 0, 9}, false, {1, 3});
  check<u32, true>(1, 700, {256, 256, 2}, false, {0, 1, 2, 3});
  check<u32, true>(3, 700, {0, 17}, false, {0, 1});
  check<u32, true>(1, 500, {}, false, {0, 1});
}

}  // namespace
}  // namespace arete::cuda
