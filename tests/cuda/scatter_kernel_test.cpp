// Kernels of scatter, run on the host: their index arithmetic against the definition. What they do
// on a GPU is tested with the primitive.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "arete/backend/cuda/codegen/index.h"
#include "tests/cuda/emulation.h"

namespace arete::cuda {
namespace scatter_device {

// What the sources find on a GPU.
#define ARETE_EMULATED
#define __device__
#define __noinline__
#define __forceinline__ inline
#define __shared__ static
#define threadIdx emulation::thread_index
#define blockIdx emulation::block_index
inline emulation::Dim blockDim, gridDim;
inline float __uint_as_float(uint32_t v) { return emulation::as_float(v); }
inline uint32_t __float_as_uint(float v) { return emulation::as_word(v); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return uint32_t(uint64_t(a) * b >> 32); }
inline void __threadfence_system() {}
inline void __syncthreads() { emulation::Block::barrier(); }
// Threads of the emulation take turns, so that plain accesses are atomic.
template <class T>
T atomicAdd(T* p, T v) {
  return std::exchange(*p, *p + v);
}
template <class T>
T atomicMin(T* p, T v) {
  return std::exchange(*p, std::min(*p, v));
}
template <class T>
T atomicMax(T* p, T v) {
  return std::exchange(*p, std::max(*p, v));
}
template <class T>
T atomicCAS(T* p, T seen, T wanted) {
  return std::exchange(*p, *p == seen ? wanted : *p);
}
// Of kernels that are not run here.
template <class T>
T __shfl_sync(unsigned, T v, int) {
  return v;
}
template <class T>
T __shfl_up_sync(unsigned, T v, int) {
  return v;
}
template <class T>
T __shfl_down_sync(unsigned, T v, int) {
  return v;
}
inline unsigned __ballot_sync(unsigned, bool) { return 0; }
inline float f16_value(uint16_t bits) { return emulation::f16_value(bits, 0); }
inline uint16_t f16_bits(float v) { return Half(v).bits; }
inline uint16_t bf16_bits(float v) { return BFloat16(v).bits; }
#include "arete/backend/cuda/device/scatter.cuh"

}  // namespace scatter_device

namespace {

static_assert(scatter_device::kGatherThreads == indexing::kThreads &&
              scatter_device::kRepeatedItems == indexing::kRepeated &&
              sizeof(scatter_device::ScatterRepeatedArgs) == sizeof(indexing::ScatterRepeatedArgs));

using scatter_device::i64, scatter_device::u32, scatter_device::u64;

// out[b, c, index[b, i]] += src[b, c, i] * factors[b, i].
struct Case {
  int64_t batch, channels, points, places;
};

template <class T, class I>
void check(const Case& c) {
  std::mt19937 random(7);
  const size_t outs = size_t(c.batch * c.channels * c.places),
               sources = size_t(c.batch * c.channels * c.points),
               indices = size_t(c.batch * c.points);
  std::vector<T> out(outs, T(3)), src(sources), factors(indices);
  std::vector<int64_t> index(indices);
  for (T& v : src) v = T(int(random() % 9) - 4);
  for (T& v : factors) v = T(random() % 4);
  for (int64_t& i : index) i = int64_t(random() % uint64_t(2 * c.places)) - c.places;
  std::vector<T> expected = out;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t k = 0; k < c.channels; ++k)
      for (int64_t i = 0; i < c.points; ++i) {
        const size_t at = size_t(b * c.points + i), row = size_t(b * c.channels + k);
        const int64_t to = index[at] < 0 ? index[at] + c.places : index[at];
        expected[row * size_t(c.places) + size_t(to)] +=
            src[row * size_t(c.points) + size_t(i)] * factors[at];
      }

  const DType type = sizeof(T) == 4 ? kFloat32 : kFloat64;
  const Shape sizes{c.batch, c.channels, c.points}, dense = contiguous_strides(sizes),
                                                    same{c.points, 0, 1},
                                                    base{c.channels * c.places, c.places, 0};
  const auto bytes = [](auto& v) { return reinterpret_cast<std::byte*>(v.data()); };
  const std::array views{prim::View{bytes(src), type, sizes, dense},
                         prim::View{bytes(index), kInt64, sizes, same},
                         prim::View{bytes(out), type, sizes, base}};
  const prim::LoopNest nest = prim::LoopNest::plan(sizes, views);
  const size_t dim = indexing::repeated_dim(nest);
  ASSERT_EQ(dim, 1u);
  ASSERT_EQ(nest.sizes[dim], c.channels);
  indexing::ScatterRepeatedArgs a{};
  a.scatter.walk = indexing::make_walk(indexing::without_dim(nest, dim));
  ASSERT_EQ(a.scatter.walk.count, c.batch * c.points);
  a.scatter.src = reinterpret_cast<uint64_t>(src.data());
  a.scatter.index = reinterpret_cast<uint64_t>(index.data());
  a.scatter.out = reinterpret_cast<uint64_t>(out.data());
  a.scatter.factors = reinterpret_cast<uint64_t>(factors.data());
  a.scatter.size = c.places;
  a.scatter.step = sizeof(T);
  a.count = c.channels;
  a.src_step = nest.operands[0].strides[dim];
  a.out_step = nest.operands[2].strides[dim];
  const auto& given = reinterpret_cast<const scatter_device::ScatterRepeatedArgs&>(a);
  emulation::Block block(int(indexing::kThreads));
  const auto blocks = [](int64_t n, int64_t each) { return unsigned((n + each - 1) / each); };
  for (unsigned y = 0; y < blocks(c.channels, indexing::kRepeated); ++y)
    for (unsigned x = 0; x < blocks(a.scatter.walk.count, indexing::kThreads); ++x) {
      emulation::block_index = {x, y, 0};
      block.run([&] { scatter_device::scatter_repeated<T, I>(given); });
    }
  EXPECT_EQ(out, expected) << c.batch << " " << c.channels << " " << c.points;
}

TEST(ScatterKernels, ProductsOfRepeatedIndices) {
  for (const Case& c :
       {Case{1, 2, 5, 7}, Case{2, 3, 300, 20}, Case{3, 8, 40, 9}, Case{2, 21, 260, 50}}) {
    check<float, u32>(c);
    check<float, u64>(c);
    check<double, u32>(c);
  }
}

TEST(ScatterKernels, WhatIsRepeated) {
  std::vector<std::byte> memory(1 << 16);
  const auto dim = [&](const Shape& sizes, const Shape& index) {
    const Shape dense = contiguous_strides(sizes);
    Shape base = dense;
    base.back() = 0;
    const std::array views{prim::View{memory.data(), kFloat32, sizes, dense},
                           prim::View{memory.data(), kInt64, sizes, index},
                           prim::View{memory.data(), kFloat32, sizes, base}};
    return indexing::repeated_dim(prim::LoopNest::plan(sizes, views));
  };
  EXPECT_EQ(dim({2, 3, 5}, {5, 0, 1}), 1u);
  EXPECT_EQ(dim({4, 3, 5}, {0, 5, 1}), 2u) << "outer ones, too";
  EXPECT_EQ(dim({2, 3, 5}, {15, 5, 1}), 0u) << "each its own";
  EXPECT_EQ(dim({7, 5}, {1, 0}), 0u) << "neighbours share it";
}

}  // namespace
}  // namespace arete::cuda
