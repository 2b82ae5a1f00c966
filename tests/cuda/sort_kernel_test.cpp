// The kernels of sorts, run on the host: what becomes of rows whose keys share digits, and of short
// rows of any length. What they do on a GPU is tested with the primitive.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "arete/backend/cuda/codegen/sort.h"
#include "tests/cuda/emulation.h"

namespace arete::cuda {
namespace sort_device {

#include "tests/cuda/kernel_words.inl"
#define __shared__ static
inline long long __double_as_longlong(double v) { return __builtin_bit_cast(long long, v); }
inline double __longlong_as_double(long long v) { return __builtin_bit_cast(double, v); }
inline int __popc(uint32_t v) { return __builtin_popcount(v); }
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
T atomicCAS(T* p, T seen, T wanted) {
  return std::exchange(*p, *p == seen ? wanted : *p);
}
template <class T>
T __shfl_down_sync(unsigned, T v, int) {
  return v;
}
template <class T>
T __shfl_xor_sync(unsigned, T v, int) {
  return v;
}
alignas(16) unsigned char shared[1 << 17];
#include "arete/backend/cuda/device/radix_sort.cuh"
#include "arete/backend/cuda/device/row_sort.cuh"

}  // namespace sort_device

namespace {

static_assert(sizeof(sort_device::SortHistogramArgs) == sizeof(sorting::SortHistogramArgs) &&
              sizeof(sort_device::SortBasesArgs) == sizeof(sorting::SortBasesArgs) &&
              sizeof(sort_device::SortPassArgs) == sizeof(sorting::SortPassArgs) &&
              sizeof(sort_device::RowSortArgs) == sizeof(sorting::RowSortArgs) &&
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

// Rows of `length` elements with many equal ones, sorted by blocks as launch_row_sort makes them.
template <class T>
void check_short_rows(int64_t rows, int64_t length, bool descending) {
  std::mt19937_64 random(7);
  std::vector<T> in(size_t(rows * length)), values(in.size());
  for (T& v : in) v = T(random() % 3 ? random() % 40 : random());
  std::vector<int64_t> positions(in.size(), -1);
  prim::LoopNest nest;
  nest.rank = 1;
  nest.sizes[0] = rows;
  const size_t sizes[] = {sizeof(T), sizeof(T), 8};
  void* const data[] = {in.data(), values.data(), positions.data()};
  for (size_t k = 0; k < 3; ++k) {
    prim::LoopNest::Operand o{};
    o.data = static_cast<std::byte*>(data[k]);
    o.strides[0] = length * int64_t(sizes[k]);
    nest.operands.push_back(o);
  }
  sorting::RowSortArgs host{};
  host.rows = indexing::make_walk(nest);
  host.in = address_of(in), host.values = address_of(values), host.indices = address_of(positions);
  for (size_t k = 0; k < 3; ++k) host.steps[k] = int64_t(sizes[k]);
  host.length = host.keep = length;
  host.flip = descending ? ~uint64_t(0) : 0;
  host.log2_slots = std::bit_width(uint64_t(length - 1));
  host.log2_rows = std::clamp(10 - host.log2_slots, 0, int(std::bit_width(uint64_t(rows - 1))));
  const int items = 1 << (host.log2_slots + host.log2_rows), threads = std::max(items / 8, 32);
  ASSERT_LE(sorting::row_sort_shared(size_t(items), sizeof(T), false), sizeof sort_device::shared);
  sort_device::RowSortArgs a;
  std::memcpy(&a, &host, sizeof a);
  emulation::Block block(threads);
  sort_device::blockDim.x = unsigned(threads);
  for (int64_t b = 0; b <= (rows - 1) >> host.log2_rows; ++b) {
    emulation::block_index = {unsigned(b), 0, 0};
    block.run([&] { sort_device::row_sort<T, sort_device::i64, false>(a); });
  }
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<int64_t> order(static_cast<size_t>(length));
    std::iota(order.begin(), order.end(), 0);
    const T* const row = in.data() + r * length;
    std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
      return descending ? row[j] < row[i] : row[i] < row[j];
    });
    for (int64_t i = 0; i < length; ++i) {
      const size_t at = size_t(r * length + i);
      ASSERT_EQ(positions[at], order[size_t(i)]) << rows << " of " << length << ", " << i;
      ASSERT_EQ(values[at], row[order[size_t(i)]]);
    }
  }
}

TEST(SortKernels, SortShortRowsOfAnyLength) {
  for (const bool descending : {false, true}) {
    for (const int64_t length : {1, 2, 3, 5, 8, 31, 100, 257, 513}) {
      check_short_rows<uint8_t>(9, length, descending);
      check_short_rows<int16_t>(5, length, descending);
      check_short_rows<sort_device::i64>(4, length, descending);
    }
    check_short_rows<int32_t>(700, 3, descending);
    check_short_rows<int32_t>(2, 1025, descending);
    check_short_rows<sort_device::i64>(1, 4096, descending);
  }
}

}  // namespace
}  // namespace arete::cuda
