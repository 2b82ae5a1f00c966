// The kernels of taps, run on the host: which threads add what where, and the order by place. What
// they do on a GPU is tested with the primitive.
#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "arete/backend/cuda/codegen/index.h"
#include "tests/cuda/emulation.h"

namespace arete::cuda {
namespace taps_device {

#include "tests/cuda/kernel_words.inl"
// Threads of the emulation take turns, so that plain accesses are atomic.
template <class T>
T atomicAdd(T* p, T v) {
  return std::exchange(*p, *p + v);
}
template <class T>
T atomicCAS(T* p, T seen, T wanted) {
  return std::exchange(*p, *p == seen ? wanted : *p);
}
template <class T>
T __shfl_up_sync(unsigned, T v, int by) {
  return emulation::shuffle_up(v, by);
}
// Of what is not run here.
template <class T>
T __shfl_down_sync(unsigned, T v, int) {
  return v;
}
template <class T>
T __shfl_sync(unsigned, T v, int) {
  return v;
}
#include "arete/backend/cuda/device/taps.cuh"

}  // namespace taps_device

namespace {

using taps_device::i64;

static_assert(taps_device::kTapThreads == indexing::kTapThreads &&
              sizeof(taps_device::TapTarget) == sizeof(indexing::TapTarget));

struct Case {
  int64_t images, channels, points, plane, share;
  int threads;  // of a block with lists
  int64_t group = 1;
};

// out[b, c, place of tap] += src[b, c, point] * factor of tap, by both kernels.
template <class T, int kTaps>
void check(const Case& c) {
  std::mt19937 random(7);
  const size_t points = size_t(c.images * c.points);
  std::vector<T> src(points * size_t(c.channels)), factors(points * kTaps);
  std::vector<int64_t> places(points * kTaps);
  for (T& v : src) v = T(int(random() % 9) - 4);
  for (T& v : factors) v = T(random() % 4);
  // Many of one place, too.
  for (int64_t& k : places) k = int64_t(random() % (random() % 4 ? uint64_t(c.plane) : 1));
  std::vector<T> expected(size_t(c.images * c.channels * c.plane), T(3));
  const std::vector<T> before = expected;
  for (int64_t i = 0; i < c.images; ++i)
    for (int64_t k = 0; k < c.channels; ++k)
      for (int64_t p = 0; p < c.points; ++p)
        for (int t = 0; t < kTaps; ++t) {
          const size_t tap = size_t((i * c.points + p) * kTaps + t);
          expected[size_t((i * c.channels + k) * c.plane + places[tap])] +=
              src[size_t((i * c.channels + k) * c.points + p)] * factors[tap];
        }
  const auto find = [&](i64 image, i64 point, i64(&place)[kTaps], T(&factor)[kTaps]) {
    ASSERT_TRUE(image >= 0 && image < c.images && point >= 0 && point < c.points);
    for (int t = 0; t < kTaps; ++t) {
      const size_t tap = size_t((image * c.points + point) * kTaps + t);
      place[t] = places[tap], factor[t] = factors[tap];
    }
  };
  indexing::TapTarget a{};
  a.src = reinterpret_cast<uint64_t>(src.data());
  a.images = c.images, a.channels = c.channels, a.points = c.points, a.plane = c.plane;
  a.share = c.share, a.group = c.group;
  a.of_plane = indexing::make_divisor(c.plane);
  a.of_channels = indexing::make_divisor(c.channels);
  const unsigned parts = unsigned((c.channels + c.share - 1) / c.share);
  for (const bool wide : {false, true}) {
    std::vector<T> out = before;
    a.out = reinterpret_cast<uint64_t>(out.data());
    a.of_points = indexing::make_divisor(c.points);
    if (wide) a.of_points.value = 0;
    const auto& given = reinterpret_cast<const taps_device::TapTarget&>(a);
    emulation::Block block(int(indexing::kTapThreads));
    for (unsigned y = 0; y < parts; ++y)
      for (unsigned x = 0; x * indexing::kTapThreads < points; ++x) {
        emulation::block_index = {x, y, 0};
        block.run([&] { taps_device::add_at_taps<T, kTaps>(given, find); });
      }
    EXPECT_EQ(out, expected) << c.images << " " << c.channels << " " << c.points;
  }
  std::vector<T> out = before;
  a.out = reinterpret_cast<uint64_t>(out.data());
  a.of_points = indexing::make_divisor(c.points);
  const size_t bytes =
      size_t(indexing::tap_lists_bytes(c.group * c.plane, c.group * c.points * kTaps, dtype_of<T>));
  std::vector<std::max_align_t> shared(bytes / sizeof(std::max_align_t) + 1);
  const auto& given = reinterpret_cast<const taps_device::TapTarget&>(a);
  taps_device::blockDim.x = unsigned(c.threads);
  emulation::Block block(c.threads);
  for (unsigned y = 0; y < parts; ++y)
    for (unsigned x = 0; x * c.group < c.images; ++x) {
      emulation::block_index = {x, y, 0};
      block.run([&] {
        taps_device::sum_at_taps<T, kTaps>(given, find, reinterpret_cast<char*>(shared.data()));
      });
    }
  EXPECT_EQ(out, expected) << c.images << " " << c.channels << " " << c.points << " in lists";
}

TEST(TapKernels, AddWhatTheDefinitionSays) {
  for (const Case& c :
       {Case{1, 1, 1, 1, 1, 64}, Case{2, 3, 130, 100, 3, 160}, Case{3, 11, 64, 64, 4, 64},
        Case{2, 5, 300, 33, 2, 96}, Case{1, 9, 7, 900, 9, 64}, Case{2, 2, 700, 1000, 2, 512},
        Case{85, 2, 3, 12, 2, 128, 42}, Case{12, 7, 5, 9, 7, 64, 4}}) {
    check<float, 1>(c);
    check<float, 4>(c);
    check<double, 8>(c);
  }
}

// Offsets of several elements of a walk are those of each by its digits.
template <class I>
void check_offsets(const std::vector<int64_t>& sizes) {
  indexing::Walk walk{};
  walk.rank = int64_t(sizes.size());
  walk.count = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    walk.dims[d] = {sizes[d],
                    {walk.count * 4, int64_t(d) * 24 - 8, d % 2 ? 0 : -walk.count},
                    indexing::make_divisor(sizes[d])};
    walk.count *= sizes[d];
  }
  const auto& given = reinterpret_cast<const taps_device::Walk&>(walk);
  for (int64_t first = 0; first < walk.count; first += std::max<int64_t>(walk.count / 50, 1)) {
    I elements[3];
    for (int64_t j = 0; j < 3; ++j) elements[j] = I((first + j * j * 7) % walk.count);
    int64_t expected[3][3] = {};
    for (int j = 0; j < 3; ++j) {
      int64_t rest = int64_t(elements[j]);
      for (size_t d = 0; d < sizes.size(); rest /= sizes[d], ++d)
        for (int k = 0; k < 3; ++k) expected[j][k] += rest % sizes[d] * walk.dims[d].strides[k];
    }
    taps_device::Offsets<I> found[3];
    taps_device::offsets_of(given, elements, found);
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 3; ++k) EXPECT_EQ(int64_t(found[j].at[k]), expected[j][k]);
  }
}

TEST(WalkKernels, OffsetsOfSeveralElements) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{1}, {977}, {5, 1, 7}, {33, 100, 3, 20}, {2, 3, 5, 7, 11, 13}}) {
    check_offsets<taps_device::u32>(sizes);
    check_offsets<taps_device::u64>(sizes);
  }
}

}  // namespace
}  // namespace arete::cuda
