// The kernels of attention, run on the host: their index arithmetic, fragments, masks and random
// numbers against the definition. What they do on a GPU is tested with the operator.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "arete/backend/cuda/codegen/attention.h"
#include "arete/prim/philox.h"
#include "tests/cuda/emulation.h"
#include "tests/support/tolerance.h"

namespace arete::cuda {
namespace device {

#include "tests/cuda/kernel_words.inl"
template <class T>
T __shfl_xor_sync(unsigned, T v, int mask) {
  return emulation::exchange(v, mask);
}
using std::memcpy;
#include "arete/backend/cuda/device/dtype.cuh"
using emulation::multiply;
inline void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], float) {
  multiply<1, emulation::tf32_value>(c, a, b);
}
inline void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], f16) {
  multiply<2, emulation::f16_value>(c, a, b);
}
inline void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], bf16) {
  multiply<2, emulation::bf16_value>(c, a, b);
}
inline void ldmatrix(uint32_t (&r)[4], const char* line) {
  emulation::load_matrices(r, line, false);
}
inline void ldmatrix_transposed(uint32_t (&r)[4], const char* line) {
  emulation::load_matrices(r, line, true);
}
using emulation::copy_async;
inline void wait_for_copies() {}
inline void add_atomically(Vec<float, 4>* to, const Vec<float, 4>& v) {
  for (int i = 0; i < 4; ++i) to->v[i] += v.v[i];
}
inline uint32_t round_to_tf32(float v) { return (emulation::as_word(v) + 0x1000u) & 0xffffe000u; }
inline uint32_t pack_pair(float low, float high, f16) {
  return f16_bits(low) | uint32_t(f16_bits(high)) << 16;
}
inline uint32_t pack_pair(float low, float high, bf16) {
  return bf16_bits(low) | uint32_t(bf16_bits(high)) << 16;
}
inline float fast_exp2(float x) { return std::exp2(x); }

#include "arete/backend/cuda/device/attention_backward.cuh"
#include "arete/backend/cuda/device/attention_forward.cuh"

}  // namespace device

namespace {

static_assert(sizeof(device::AttentionArgs) == sizeof(AttentionArguments) &&
              offsetof(device::AttentionArgs, mask) == offsetof(AttentionArguments, mask) &&
              offsetof(device::AttentionArgs, heads) == offsetof(AttentionArguments, heads) &&
              offsetof(device::AttentionArgs, seed) == offsetof(AttentionArguments, seed));

using device::AttentionDropout;
using device::AttentionMask;
using device::f16, device::bf16;

template <class T>
constexpr DType kDType = kFloat32;
template <>
constexpr DType kDType<f16> = kFloat16;
template <>
constexpr DType kDType<bf16> = kBFloat16;

template <class T>
constexpr float kLowest = std::numeric_limits<float>::lowest();
template <>
constexpr float kLowest<bf16> = -0x1.fep127f;

// A tensor (batch, head, row, element) whose rows have gaps, and whose heads lie inside of rows if
// `by_rows`. What is not its own must stay as it is.
template <class T>
struct Matrix {
  Matrix(int batch, int heads, int rows, int width, bool by_rows, int gap)
      : batch(batch), heads(heads), rows(rows), width(width) {
    const int line = width + gap;
    row = by_rows ? heads * line : line;
    head = by_rows ? line : rows * line;
    memory.assign(size_t(batch * heads * rows * line) + 1, device::from_compute<T>(kUntouched));
  }
  static constexpr float kUntouched = -77;
  void fill(std::mt19937& random, double scale = 1) {
    std::normal_distribution<float> normal(0, float(scale));
    each([&](T& v) { v = device::from_compute<T>(normal(random)); });
  }
  template <class F>
  void each(F&& f) {
    for (int b = 0; b < batch; ++b)
      for (int h = 0; h < heads; ++h)
        for (int r = 0; r < rows; ++r)
          for (int d = 0; d < width; ++d) f(at(b, h, r, d));
  }
  T& at(int b, int h, int r, int d) {
    return memory[size_t(b * heads * rows * (head > row ? row : head) + h * head + r * row + d)];
  }
  double operator()(int b, int h, int r, int d) { return device::to_compute(at(b, h, r, d)); }
  device::AttentionMatrix argument() {
    return {memory.data(), int64_t(heads) * rows * std::min(row, head), head, row};
  }
  // How many elements outside of the tensor were written.
  int64_t touched() {
    each([](T& v) { v = device::from_compute<T>(kUntouched); });
    return std::count_if(memory.begin(), memory.end(),
                         [](const T& v) { return float(device::to_compute(v)) != kUntouched; });
  }
  int batch, heads, rows, width;
  int64_t head, row;
  std::vector<T> memory;
};

struct Case {
  int queries = 64, keys = 64, dim = 16, value_dim = 16;
  int batch = 1, heads = 1, group = 1;
  double dropout = 0;
  bool by_rows = false;
  double scale = 0.3;
  double reach = 0;  // of errors, where it is not the dtype's
  int parts = 1;     // of the keys in the forward pass
};

template <class T, int kDim, int kValueDim, int kWarps, int kRowTiles, int kColumns,
          AttentionMask kMask, bool kCausal, AttentionDropout kDropout, bool kVector,
          bool kSplit = std::is_same_v<T, float>>
void check(const Case& c) {
#ifdef ARETE_SANITIZED
  GTEST_SKIP() << "sanitizers do not know of fibers";
#endif
  typedef device::Attention<device::AttentionShape<T, kDim, kValueDim, kWarps, kRowTiles, kColumns,
                                                   kMask, kCausal, kDropout, kVector, kSplit>>
      Kernel;
  std::mt19937 random(5);
  const int gap = kVector ? 16 / int(sizeof(T)) : 1, kv_heads = c.heads / c.group;
  const auto matrix = [&](int heads, int rows, int width) {
    return Matrix<T>(c.batch, heads, rows, width, c.by_rows, gap);
  };
  Matrix<T> q = matrix(c.heads, c.queries, c.dim), k = matrix(kv_heads, c.keys, c.dim),
            v = matrix(kv_heads, c.keys, c.value_dim),
            out = matrix(c.heads, c.queries, c.value_dim), grad = out, grad_q = q, grad_k = k,
            grad_v = v;
  for (Matrix<T>* m : {&q, &k, &v, &grad}) m->fill(random);
  // The mask of a head of the last batch, the same for all of them; query 1 has no key, query 2 has
  // all, from the lowest number on, where logarithms of f32 tell nothing: gradients are 0.
  std::vector<uint8_t> hidden(size_t(c.queries * c.keys));
  Matrix<T> bias(1, 1, c.queries, c.keys, false, 0);
  bias.fill(random);
  for (int i = 0; i < c.queries; ++i)
    for (int j = 0; j < c.keys; ++j) {
      const bool hides = random() % 4 == 0 || i == 1;
      hidden[size_t(i * c.keys + j)] = hides;
      if (hides) bias.at(0, 0, i, j) = device::from_compute<T>(-INFINITY);
      if (kMask == AttentionMask::additive && i == 2)
        bias.at(0, 0, i, j) = device::from_compute<T>(kLowest<T>);
    }
  if (kMask == AttentionMask::additive)
    for (int b = 0; b < c.batch; ++b)
      for (int h = 0; h < c.heads; ++h)
        for (int d = 0; d < c.value_dim; ++d) grad.at(b, h, 2, d) = T{};
  std::vector<uint8_t> shown = hidden;
  for (uint8_t& s : shown) s = !s;

  const size_t rows = size_t(c.batch * c.heads * c.queries);
  std::vector<float> lse(rows, 7);
  std::vector<device::Vec<float, 2>> numbers(rows, {7, 7});
  const uint64_t seed = 0x1234567890, block = 0xffffff00;
  const device::u64 state[2] = {0x500000003, 11};
  device::AttentionArgs a{};
  a.q = q.argument(), a.k = k.argument(), a.v = v.argument(), a.out = out.argument();
  a.grad_out = grad.argument(), a.grad_q = grad_q.argument(), a.grad_k = grad_k.argument(),
  a.grad_v = grad_v.argument();
  a.lse = lse.data(), a.numbers = numbers.data();
  // Sums of grad_q, with a tile beyond the last one.
  const size_t tile = 16 * kDim, tiles = size_t(c.batch * c.heads * ((c.queries + 15) / 16));
  std::vector<device::Vec<float, 4>> sums(tile * (tiles + 1) / 4, {7, 7, 7, 7});
  a.lse_batch = c.heads * c.queries, a.lse_head = c.queries, a.lse_row = 1;
  a.mask = kMask == AttentionMask::boolean ? static_cast<void*>(shown.data()) : bias.memory.data();
  a.mask_query = c.keys, a.mask_key = 1, a.mask_vectors = c.keys % 16 == 0;
  a.block = block, a.state = state;
  a.heads = c.heads, a.group = c.group, a.queries = c.queries, a.keys = c.keys;
  a.dim = c.dim, a.value_dim = c.value_dim;
  a.parts = c.parts;
  a.scale = float(c.scale), a.kept_scale = c.dropout == 1 ? 0 : float(1 / (1 - c.dropout));
  const double bound = std::ceil((1 - c.dropout) * 0x1p32);
  a.any = bound >= 1 ? ~0u : 0, a.last = bound >= 0x1p32 ? ~0u : uint32_t(uint64_t(bound) - 1);
  for (int i = 0; i < 20; i += 2) {
    a.seed[i] = uint32_t(seed) + uint32_t(i / 2) * 0x9E3779B9u;
    a.seed[i + 1] = uint32_t(seed >> 32) + uint32_t(i / 2) * 0xBB67AE85u;
  }

  alignas(16) static char shared[200 << 10];
  emulation::Block threads(Kernel::kThreads);
  const auto run = [&](int row_count, int heads, int bytes, auto&& kernel, int parts = 1) {
    ASSERT_LE(bytes, int(sizeof shared));
    const int tiles = (row_count + Kernel::kRows - 1) / Kernel::kRows;
    for (int b = 0; b < tiles * c.batch * heads * parts; ++b) {
      // What a kernel reads without having written it shows; and what it writes beyond its part.
      std::memset(shared, 0xff, sizeof shared);
      emulation::block_index.x = unsigned(b);
      threads.run([&] { kernel(); });
      const auto written = std::find_if(shared + bytes, std::end(shared),
                                        [](char byte) { return uint8_t(byte) != 0xff; });
      ASSERT_EQ(written, std::end(shared)) << "byte " << written - shared << " of shared memory";
    }
  };
  if (c.parts > 1) {
    std::vector<device::Vec<float, 2>> part_numbers(rows * size_t(c.parts), {NAN, NAN});
    std::vector<float> part_sums(rows * size_t(c.parts) * kValueDim, NAN);
    a.numbers = part_numbers.data(), a.sums = part_sums.data();
    run(
        c.queries, c.heads, Kernel::kForwardShared, [&] { Kernel::forward(a, shared); }, c.parts);
    a.all_heads = c.batch * c.heads;
    for (int b = 0; b * kWarps < a.all_heads * c.queries; ++b) {
      emulation::block_index.x = unsigned(b);
      threads.run([&] { Kernel::combine(a, shared); });
    }
    a.numbers = numbers.data(), a.sums = nullptr;
  } else {
    run(c.queries, c.heads, Kernel::kForwardShared, [&] { Kernel::forward(a, shared); });
  }
  const std::vector<T> out_bits = out.memory;

  // The definition.
  Matrix<float> want_q(c.batch, c.heads, c.queries, c.dim, false, 0),
      want_k(c.batch, kv_heads, c.keys, c.dim, false, 0),
      want_v(c.batch, kv_heads, c.keys, c.value_dim, false, 0);
  for (Matrix<float>* m : {&want_q, &want_k, &want_v}) m->each([](float& x) { x = 0; });
  // An f32 part of scores and sums, and operands that are rounded between products.
  const DType t = kSplit || sizeof(T) == 2 ? kDType<T> : kFloat16;
  const double reach = c.reach > 0 ? c.reach : 3 * test::tolerance(t, std::max(c.keys, c.dim), 1);
  int64_t wrong = 0;
  std::string first;
  const auto expect = [&](const char* what, double got, double want, double scale) {
    if (std::abs(got - want) <= reach * scale || (got == want)) return;
    if (wrong++ == 0)
      first = std::string(what) + ": " + std::to_string(got) + ", not " + std::to_string(want);
  };
  for (int b = 0; b < c.batch; ++b)
    for (int h = 0; h < c.heads; ++h)
      for (int i = 0; i < c.queries; ++i) {
        const int kh = h / c.group;
        std::vector<double> s(size_t(c.keys)), p(size_t(c.keys)), kept(size_t(c.keys), 1);
        double most = -INFINITY, total = 0;
        for (int j = 0; j < c.keys; ++j) {
          double& x = s[size_t(j)];
          x = 0;
          for (int d = 0; d < c.dim; ++d) x += q(b, h, i, d) * k(b, kh, j, d);
          x *= c.scale;
          if (kMask == AttentionMask::additive) x += bias(0, 0, i, j);
          if (kMask == AttentionMask::boolean && hidden[size_t(i * c.keys + j)]) x = -INFINITY;
          if (kCausal && j > i) x = -INFINITY;
          most = std::max(most, x);
          if (kDropout != AttentionDropout::none) {
            const bool moved = kDropout == AttentionDropout::moved;
            const uint64_t at =
                ((uint64_t(b) * c.heads + h) * c.queries + i) * uint64_t(c.keys) + uint64_t(j);
            const prim::PhiloxBlock lanes = prim::philox_block(
                moved ? seed ^ state[0] : seed, block + (moved ? state[1] : 0) + at / 4);
            kept[size_t(j)] = double(lanes.lane[at % 4]) < bound ? 1 / (1 - c.dropout) : 0;
          }
        }
        for (int j = 0; j < c.keys; ++j) {
          p[size_t(j)] = most == -INFINITY ? 0 : std::exp(s[size_t(j)] - most);
          total += p[size_t(j)];
        }
        const double want_lse = most == -INFINITY ? -INFINITY : most + std::log(total);
        expect("lse", lse[size_t((b * c.heads + h) * c.queries + i)], want_lse, 4);
        double sum = 0;
        for (int d = 0; d < c.value_dim; ++d) {
          double x = 0;
          for (int j = 0; j < c.keys; ++j)
            if (total > 0) x += p[size_t(j)] / total * kept[size_t(j)] * v(b, kh, j, d);
          expect("out", out(b, h, i, d), x, 2);
          sum += x * grad(b, h, i, d);
        }
        std::vector<double> gq(size_t(c.dim));
        for (int j = 0; j < c.keys && total > 0; ++j) {
          const double w = p[size_t(j)] / total;
          double g = 0;
          for (int d = 0; d < c.value_dim; ++d) {
            g += grad(b, h, i, d) * v(b, kh, j, d);
            want_v.at(b, kh, j, d) += float(w * kept[size_t(j)] * grad(b, h, i, d));
          }
          g = w * (g * kept[size_t(j)] - sum) * c.scale;
          for (int d = 0; d < c.dim; ++d) {
            gq[size_t(d)] += g * k(b, kh, j, d);
            want_k.at(b, kh, j, d) += float(g * q(b, h, i, d));
          }
        }
        for (int d = 0; d < c.dim; ++d) want_q.at(b, h, i, d) = float(gq[size_t(d)]);
      }
  const auto check_gradients = [&] {
    const auto compare = [&](const char* what, Matrix<T>& got, Matrix<float>& want, double scale) {
      for (int b = 0; b < want.batch; ++b)
        for (int h = 0; h < want.heads; ++h)
          for (int r = 0; r < want.rows; ++r)
            for (int d = 0; d < want.width; ++d)
              expect(what, got(b, h, r, d), want(b, h, r, d), scale);
    };
    compare("grad_q", grad_q, want_q, 3);
    compare("grad_k", grad_k, want_k, 3);
    compare("grad_v", grad_v, want_v, 4);
    EXPECT_EQ(wrong, 0) << first;
    for (Matrix<T>* m : {&grad_q, &grad_k, &grad_v}) EXPECT_EQ(m->touched(), 0);
  };
  const auto prepare = [&] {
    run(c.queries, c.heads, Kernel::kPrepareShared, [&] { Kernel::prepare(a, shared); });
  };
  prepare();
  run(c.queries, c.heads, Kernel::kQueriesShared, [&] { Kernel::queries(a, shared); });
  run(c.keys, kv_heads, Kernel::kKeysShared, [&] { Kernel::keys(a, shared); });
  const auto bits_of = [](const Matrix<T>& m) {
    const char* const p = reinterpret_cast<const char*>(m.memory.data());
    return std::string(p, p + m.memory.size() * sizeof(T));
  };
  const std::string bits_k = bits_of(grad_k), bits_v = bits_of(grad_v);
  check_gradients();
  EXPECT_EQ(out.touched(), 0);

  if constexpr (sizeof(T) == 2 && kWarps * 16 % kColumns == 0) {
    out.memory = out_bits;
    std::fill(numbers.begin(), numbers.end(), device::Vec<float, 2>{7, 7});
    a.sums = sums.data()->v;
    prepare();
    run(c.keys, kv_heads, Kernel::kGradientsShared, [&] { Kernel::gradients(a, shared); });
    run(c.queries, c.heads, Kernel::kFinishShared, [&] { Kernel::finish(a, shared); });
    EXPECT_EQ(bits_of(grad_k), bits_k);
    EXPECT_EQ(bits_of(grad_v), bits_v);
    check_gradients();
    for (size_t i = tile * tiles; i < tile * (tiles + 1); ++i)
      EXPECT_EQ(sums[i / 4].v[i % 4], 7) << "element " << i << " of the sums";
  }
}

constexpr AttentionMask kNone = AttentionMask::none, kBoolean = AttentionMask::boolean,
                        kAdditive = AttentionMask::additive;
constexpr AttentionDropout kWhole = AttentionDropout::none, kFixed = AttentionDropout::fixed,
                           kMoved = AttentionDropout::moved;

TEST(AttentionKernels, F32) {
  check<float, 64, 64, 4, 1, 64, kNone, false, kWhole, true>(
      {.queries = 129, .keys = 130, .dim = 64, .value_dim = 64});
}
TEST(AttentionKernels, F32KeepsItsPrecisionInSmallHeadsAndLongSums) {
  // Scores of up to 10, each of one product, whose errors nothing averages.
  check<float, 16, 16, 4, 2, 32, kNone, false, kWhole, false>(
      {.queries = 130, .keys = 1600, .dim = 1, .value_dim = 3, .scale = 1, .reach = 2e-6});
}
TEST(AttentionKernels, HalfTypes) {
  check<f16, 64, 64, 4, 1, 64, kNone, false, kWhole, true>(
      {.queries = 65, .keys = 130, .dim = 64, .value_dim = 64});
  check<bf16, 32, 32, 4, 2, 64, kNone, true, kWhole, true>(
      {.queries = 150, .keys = 130, .dim = 32, .value_dim = 32});
}
TEST(AttentionKernels, OneKernelForAllGradients) {
  // The layouts of half types, and widths that warps cannot share evenly.
  check<bf16, 64, 64, 4, 2, 32, kNone, true, kWhole, true>(
      {.queries = 150, .keys = 139, .dim = 64, .value_dim = 64, .heads = 4, .group = 2});
  check<f16, 128, 128, 8, 1, 64, kAdditive, false, kFixed, true>(
      {.queries = 100, .keys = 160, .dim = 128, .value_dim = 128, .dropout = 0.2});
  check<f16, 80, 48, 8, 1, 64, kNone, true, kFixed, false>(
      {.queries = 290, .keys = 130, .dim = 77, .value_dim = 41, .dropout = 0.2, .by_rows = true});
  check<bf16, 16, 32, 4, 2, 32, kBoolean, true, kMoved, true>(
      {.queries = 40, .keys = 300, .dim = 16, .value_dim = 32, .batch = 2, .dropout = 0.1});
}
TEST(AttentionKernels, BlocksOfManyRows) {
  check<float, 128, 128, 8, 1, 32, kBoolean, true, kFixed, true>(
      {.queries = 140, .keys = 132, .dim = 120, .value_dim = 128, .dropout = 0.2});
  check<bf16, 64, 64, 4, 2, 64, kAdditive, true, kFixed, true>(
      {.queries = 140, .keys = 128, .dim = 64, .value_dim = 64, .dropout = 0.2});
}
TEST(AttentionKernels, OneProductOfTf32) {
  check<float, 32, 32, 2, 1, 32, kNone, false, kWhole, true, false>(
      {.queries = 33, .keys = 40, .dim = 32, .value_dim = 32});
}
TEST(AttentionKernels, HeadSizesThatAreNoVectors) {
  check<float, 48, 16, 2, 1, 32, kNone, true, kWhole, false>(
      {.queries = 70, .keys = 65, .dim = 37, .value_dim = 9, .heads = 2, .by_rows = true});
  check<f16, 48, 16, 2, 2, 32, kNone, true, kWhole, false>(
      {.queries = 70, .keys = 65, .dim = 37, .value_dim = 9, .heads = 2, .by_rows = true});
  check<float, 16, 16, 2, 1, 16, kNone, false, kWhole, false>(
      {.queries = 1, .keys = 1, .dim = 1, .value_dim = 1});
}
TEST(AttentionKernels, HeadSizesBetween) {
  check<float, 48, 80, 2, 2, 32, kNone, false, kWhole, true>(
      {.queries = 63, .keys = 64, .dim = 40, .value_dim = 80});
  check<bf16, 128, 80, 2, 1, 32, kNone, false, kWhole, true>(
      {.queries = 64, .keys = 63, .dim = 128, .value_dim = 72});
}
TEST(AttentionKernels, CausalWithUnequalLengths) {
  check<float, 16, 16, 4, 1, 32, kNone, true, kWhole, true>({.queries = 257, .keys = 63});
  check<float, 16, 16, 2, 1, 64, kNone, true, kWhole, true>({.queries = 63, .keys = 257});
}
TEST(AttentionKernels, MasksAndRowsWithoutKeys) {
  check<float, 16, 16, 4, 1, 64, kBoolean, false, kWhole, true>({.queries = 65, .keys = 97});
  check<float, 16, 16, 2, 2, 32, kAdditive, true, kWhole, true>({.queries = 65, .keys = 97});
  check<bf16, 16, 16, 4, 1, 64, kAdditive, false, kWhole, true>({.queries = 70, .keys = 97});
  // Read as vectors.
  check<float, 16, 16, 4, 1, 64, kBoolean, true, kWhole, true>({.queries = 65, .keys = 112});
  check<bf16, 16, 16, 2, 2, 32, kBoolean, false, kWhole, true>({.queries = 70, .keys = 80});
  check<bf16, 16, 16, 4, 1, 64, kAdditive, false, kWhole, true>({.queries = 70, .keys = 112});
  check<float, 16, 16, 2, 2, 32, kAdditive, false, kWhole, true>({.queries = 70, .keys = 80});
}
TEST(AttentionKernels, GroupedHeads) {
  check<float, 16, 16, 2, 1, 32, kBoolean, true, kWhole, true>(
      {.queries = 65, .keys = 50, .batch = 2, .heads = 6, .group = 3, .by_rows = true});
}
TEST(AttentionKernels, KeysInParts) {
  // Some parts of the last have no step, some rows no key in a part or in any.
  for (int parts : {2, 3, 7})
    check<float, 16, 16, 2, 1, 32, kNone, true, kWhole, true>(
        {.queries = 70, .keys = 230, .batch = 2, .heads = 2, .parts = parts});
  check<bf16, 48, 80, 4, 1, 64, kBoolean, false, kWhole, true>(
      {.queries = 4, .keys = 300, .dim = 40, .value_dim = 72, .heads = 3, .parts = 4});
  check<f16, 64, 64, 4, 1, 64, kAdditive, false, kMoved, true>({.queries = 5,
                                                                .keys = 260,
                                                                .dim = 64,
                                                                .value_dim = 64,
                                                                .heads = 4,
                                                                .group = 2,
                                                                .dropout = 0.3,
                                                                .by_rows = true,
                                                                .parts = 3});
}
TEST(AttentionKernels, DropoutDrawsTheNumbersOfThePositions) {
  for (int keys : {64, 72, 65, 66, 67})
    check<float, 16, 16, 2, 1, 64, kNone, false, kFixed, true>(
        {.queries = 33, .keys = keys, .batch = 2, .heads = 2, .dropout = 0.3});
  check<f16, 16, 16, 2, 2, 32, kBoolean, true, kMoved, true>(
      {.queries = 70, .keys = 68, .heads = 2, .group = 2, .dropout = 0.5});
  check<f16, 16, 16, 2, 1, 32, kNone, false, kFixed, true>(
      {.queries = 70, .keys = 68, .batch = 2, .dropout = 0.5});
  for (int keys : {69, 70})
    check<bf16, 16, 16, 4, 2, 64, kNone, false, kFixed, true>(
        {.queries = 35, .keys = keys, .heads = 2, .dropout = 0.5});
  check<float, 16, 16, 2, 1, 32, kNone, false, kFixed, true>(
      {.queries = 33, .keys = 34, .dropout = 1});
}

TEST(AttentionKernels, HalfTypesFitIntoTheSharedMemoryOfSmallGpus) {
  typedef AttentionKernel K;
  for (K::Pass pass : {K::Pass::forward, K::Pass::prepare, K::Pass::queries, K::Pass::keys,
                       K::Pass::gradients, K::Pass::finish})
    for (int dim : {16, 64, 80, 128}) {
      const K k{
          .pass = pass, .dtype = kBFloat16, .dim = dim, .value_dim = dim, .most_shared = 99 << 10};
      EXPECT_LE(k.shared_bytes(), k.most_shared) << int(pass) << ", " << dim;
    }
}

}  // namespace
}  // namespace arete::cuda
