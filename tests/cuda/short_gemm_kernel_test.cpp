// The kernel of short products, run on the host: all layouts, tiles and ends of lines. What it does
// on a GPU is tested with the primitive.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "arete/backend/cuda/codegen/gemm.h"
#include "tests/cuda/emulation.h"

namespace arete::cuda {
namespace {

// Copies are made when their thread waits for their group: what is read before is not there.
struct PendingCopies {
  std::vector<std::function<void()>> open;
  std::deque<std::vector<std::function<void()>>> groups;

  void commit() { groups.push_back(std::exchange(open, {})); }
  void wait(size_t pending) {
    for (; groups.size() > pending; groups.pop_front())
      for (const auto& copy : groups.front()) copy();
  }
  bool is_empty() const {
    return open.empty() && std::ranges::all_of(groups, [](const auto& g) { return g.empty(); });
  }
};
std::array<PendingCopies, arete::cuda::kShortGemmThreads> pending_copies;
PendingCopies& mine() { return pending_copies[size_t(emulation::thread_index.x)]; }

}  // namespace

namespace short_gemm_device {

#include "tests/cuda/kernel_words.inl"
template <int kBytes>
void copy_async(void* to, const void* from, int bytes = kBytes) {
  mine().open.push_back([=] { emulation::copy_async<kBytes>(to, from, bytes); });
}
inline void copy_commit() { mine().commit(); }
template <int kPending>
void copy_wait() {
  mine().wait(kPending);
}
#include "arete/backend/cuda/device/short_gemm.cuh"

}  // namespace short_gemm_device

namespace {

static_assert(sizeof(short_gemm_device::ShortGemm) == sizeof(ShortGemm) &&
              short_gemm_device::kShortGemmThreads == kShortGemmThreads &&
              short_gemm_device::kShortGemmStages == kShortGemmStages);

struct Case {
  int m, n, k;
  int gap;  // behind each line of an operand, in elements: with 1 lines begin anywhere
  bool bias, relu, sums;
  float alpha = 1, beta = 0;
  int most_shared = 99 << 10;
};

// Shared memory of a launch, with something behind it that has to stay. What nobody wrote is NaN.
class Shared {
 public:
  explicit Shared(int bytes) : lines_(size_t(bytes) / 16 + 1, Line{kNaN, kNaN, kNaN, kNaN}) {
    EXPECT_EQ(bytes % 16, 0);
    lines_.back() = {1, 2, 3, 4};
  }
  float* data() { return lines_[0].v; }
  bool is_whole() const { return lines_.back().v[0] == 1 && lines_.back().v[3] == 4; }

 private:
  static constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  struct alignas(16) Line {
    float v[4];
  };
  std::vector<Line> lines_;
};

// Nothing else may be read: there is NaN.
struct Operand {
  Operand(int lines, int length, int gap, std::mt19937& random)
      : by_line(length + gap),
        values(size_t(lines) * size_t(by_line) + 16, std::numeric_limits<float>::quiet_NaN()) {
    while (reinterpret_cast<uintptr_t>(&values[first]) % 16 != 0) ++first;
    for (int l = 0; l < lines; ++l)
      for (int i = 0; i < length; ++i)
        values[first + size_t(l * by_line + i)] = float(int(random() % 17) - 8);
  }
  float at(int line, int i) const { return values[first + size_t(line * by_line + i)]; }
  int64_t by_line;
  std::vector<float> values;
  size_t first = 0;
};

template <bool a_along_k, bool b_along_k, int tile>
void check(const Case& c) {
  std::mt19937 random(unsigned(c.m * 7 + c.k));
  const Operand a(a_along_k ? c.m : c.k, a_along_k ? c.k : c.m, c.gap, random),
      b(b_along_k ? c.n : c.k, b_along_k ? c.k : c.n, c.gap, random);
  std::vector<float> bias(size_t(c.n), 3), out(size_t(c.m * c.n), 2), sums(size_t(c.m), -1);
  ShortGemm g{};
  g.a = &a.values[a.first], g.b = &b.values[b.first], g.out = out.data();
  g.bias = c.bias ? bias.data() : nullptr, g.a_sum = c.sums ? sums.data() : nullptr;
  g.a_row = a_along_k ? a.by_line : 1, g.a_column = a_along_k ? 1 : a.by_line;
  g.b_row = b_along_k ? 1 : b.by_line, g.b_column = b_along_k ? b.by_line : 1;
  g.out_row = c.n, g.out_column = 1, g.bias_stride = 1, g.sum_stride = 1;
  g.alpha = c.alpha, g.beta = c.beta, g.m = c.m, g.n = c.n, g.k = c.k, g.relu = c.relu;
  g.a_lines = a.by_line % 4 == 0, g.b_lines = b.by_line % 4 == 0;
  const int bytes = plan_short_gemm(g, a_along_k, b_along_k, tile, c.most_shared);
  ASSERT_LE(bytes, c.most_shared);
  const auto& given = reinterpret_cast<const short_gemm_device::ShortGemm&>(g);
  emulation::Block block(kShortGemmThreads);
  for (unsigned y = 0; int(y) * tile < c.m; ++y)
    for (unsigned x = 0; int(x) * tile < c.n; ++x) {
      emulation::block_index = {x, y, 0};
      Shared shared(bytes);
      block.run(
          [&] { short_gemm_device::short_gemm<a_along_k, b_along_k, tile>(given, shared.data()); });
      ASSERT_TRUE(shared.is_whole());
      ASSERT_TRUE(std::ranges::all_of(pending_copies, &PendingCopies::is_empty));
      pending_copies = {};
    }
  // Whole numbers: sums in any order are the same.
  for (int i = 0; i < c.m; ++i) {
    float all = 0;
    for (int j = 0; j < c.n; ++j) {
      float v = 0;
      for (int k = 0; k < c.k; ++k)
        v += (a_along_k ? a.at(i, k) : a.at(k, i)) * (b_along_k ? b.at(j, k) : b.at(k, j));
      v = c.alpha * v + c.beta * 2 + (c.bias ? 3 : 0);
      ASSERT_EQ(out[size_t(i * c.n + j)], c.relu && v < 0 ? 0 : v)
          << c.m << " x " << c.n << " of " << c.k << ", tile " << tile << ": " << i << ", " << j;
    }
    for (int k = 0; k < c.k; ++k) all += a_along_k ? a.at(i, k) : a.at(k, i);
    ASSERT_EQ(sums[size_t(i)], c.sums ? all : -1);
  }
}

template <int tile>
void check_layouts(const Case& c) {
  check<false, false, tile>(c);
  check<false, true, tile>(c);
  check<true, false, tile>(c);
  check<true, true, tile>(c);
}

TEST(ShortProducts, are_products_whatever_the_layouts) {
  for (const Case& c :
       {Case{64, 10, 256, 0, true, false, false}, Case{10, 72, 64, 0, false, false, true},
        Case{64, 48, 196, 0, true, true, false, 0.5f},
        Case{66, 37, 50, 2, false, true, true, 2, 0.5f}, Case{17, 9, 3, 1, true, false, true},
        Case{8, 8, 1, 3, false, false, true},
        // Sums in several passes, in one of all stages.
        Case{40, 24, 700, 0, true, false, true, 1, 0, 48 << 10},
        Case{20, 33, 1023, 1, false, true, true, 1, 1, 48 << 10},
        Case{16, 16, 784, 0, true, true, true, 1, 0, 227 << 10}}) {
    check_layouts<16>(c);
    check_layouts<32>(c);
    check_layouts<64>(c);
  }
}

TEST(ShortProducts, keep_what_is_no_number) {
  std::vector<float> a(64, std::numeric_limits<float>::quiet_NaN()), b(64, -1), out(64);
  ShortGemm g{};
  g.a = a.data(), g.b = b.data(), g.out = out.data();
  g.a_row = 8, g.a_column = 1, g.b_row = 8, g.b_column = 1, g.out_row = 8, g.out_column = 1;
  g.alpha = 1, g.m = g.n = g.k = 8, g.relu = 1;
  Shared shared(plan_short_gemm(g, true, false, 16, 48 << 10));
  emulation::block_index = {0, 0, 0};
  emulation::Block(kShortGemmThreads).run([&] {
    short_gemm_device::short_gemm<true, false, 16>(
        reinterpret_cast<const short_gemm_device::ShortGemm&>(g), shared.data());
  });
  for (const float v : out) EXPECT_TRUE(std::isnan(v));
}

}  // namespace
}  // namespace arete::cuda
