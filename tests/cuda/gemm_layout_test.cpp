// The mapping of strided products to calls of a library, checked by doing what the calls say.
#include "arete/backend/cuda/lib/gemm_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace arete::cuda {
namespace {

// Integers in memory with room on both sides, and a view of them.
struct Operand {
  std::vector<int64_t> memory;
  int64_t start = 0;
  Shape sizes, strides;

  prim::View view() {
    return {reinterpret_cast<std::byte*>(memory.data() + start), kInt64, sizes, strides};
  }
  int64_t& at(const Shape& index) {
    int64_t offset = start;
    for (size_t d = 0; d < index.size(); ++d) offset += (sizes[d] == 1 ? 0 : index[d]) * strides[d];
    return memory.at(size_t(offset));
  }
};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t pick(int64_t low, int64_t high) {
    return low + int64_t(engine_() % uint64_t(high - low + 1));
  }
  bool chance(int64_t one_in) { return pick(1, one_in) == 1; }

  // Any order of dimensions, gaps, broadcast (not for outputs) and reversed dimensions.
  Operand operand(Shape sizes, bool output) {
    const int rank = int(sizes.size());
    std::vector<int> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    if (chance(2)) std::swap(order[size_t(rank - 1)], order[size_t(rank - 2)]);
    if (chance(3)) std::shuffle(order.begin(), order.end(), engine_);
    Operand o;
    o.sizes = sizes, o.strides = Shape(sizes.size());
    int64_t step = chance(8) ? 2 : 1, last = 0, before = 0;
    for (int i = rank - 1; i >= 0; --i) {
      const size_t d = size_t(order[size_t(i)]);
      o.strides[d] = step;
      if (!output && chance(12)) {
        o.strides[d] = 0;
      } else {
        last += (sizes[d] - 1) * step;
        step = step * sizes[d] + (chance(5) ? pick(1, 3) : 0);
        if (chance(20)) {
          before += (sizes[d] - 1) * o.strides[d];
          last -= (sizes[d] - 1) * o.strides[d];
          o.strides[d] = -o.strides[d];
        }
      }
      if (sizes[d] == 1 && chance(2)) o.strides[d] = pick(-3, 40);  // must not matter
    }
    o.start = before;
    o.memory.resize(size_t(before + last + 1));
    for (int64_t& v : o.memory) v = pick(-9, 9);
    return o;
  }

 private:
  std::mt19937_64 engine_;
};

template <class F>
void for_each_index(const Shape& sizes, F&& f) {
  Shape index(sizes.size(), 0);
  for (int64_t n = numel_of(sizes), i = 0; i < n; ++i) {
    f(index);
    for (int d = int(sizes.size()) - 1; d >= 0 && ++index[size_t(d)] == sizes[size_t(d)]; --d)
      index[size_t(d)] = 0;
  }
}

Operand contiguous_copy(Operand& from, const Shape& sizes) {
  Operand to;
  to.sizes = sizes, to.strides = contiguous_strides(sizes);
  to.memory.resize(size_t(numel_of(sizes)));
  for_each_index(sizes, [&](const Shape& i) { to.at(i) = from.at(i); });
  return to;
}

void expect_valid(const LibraryGemm& c) {
  EXPECT_GE(c.lda, c.transpose_a ? c.k : c.m);
  EXPECT_GE(c.ldb, c.transpose_b ? c.n : c.k);
  EXPECT_GE(c.ldd, c.m);
  EXPECT_GE(c.batch_stride_a, 0);
  EXPECT_GE(c.batch_stride_b, 0);
  EXPECT_TRUE(c.batch == 1 || c.batch_stride_d > 0);
  EXPECT_TRUE(c.ld_aux == 0 || c.ld_aux >= c.m);
}

// What the library does with a plan; D = op(A) op(B) in memory of elements.
void run_calls(const GemmShape& s, const LibraryPlan& plan, Operand& a, Operand& b, Operand& out,
               Operand& aux) {
  const LibraryGemm& c = plan.call;
  expect_valid(c);
  for (int64_t i = 0; i < plan.calls(); ++i) {
    int64_t rest = i, pa = a.start, pb = b.start, pd = out.start, px = aux.start;
    for (int d = 0; d < plan.outer_loops; ++d) {
      const BatchLoop& loop = plan.outer[size_t(d)];
      const int64_t at = rest % loop.size;
      rest /= loop.size;
      pa += at * loop.a, pb += at * loop.b, pd += at * loop.out, px += at * loop.aux;
    }
    const std::vector<int64_t>&left = c.swapped ? b.memory : a.memory,
          &right = c.swapped ? a.memory : b.memory;
    if (c.swapped) std::swap(pa, pb);
    for (int64_t z = 0; z < c.batch; ++z)
      for (int64_t col = 0; col < c.n; ++col)
        for (int64_t row = 0; row < c.m; ++row) {
          int64_t sum = 0;
          for (int64_t p = 0; p < c.k; ++p) {
            const int64_t at_a = c.transpose_a ? p + row * c.lda : row + p * c.lda;
            const int64_t at_b = c.transpose_b ? col + p * c.ldb : p + col * c.ldb;
            sum += left.at(size_t(pa + z * c.batch_stride_a + at_a)) *
                   right.at(size_t(pb + z * c.batch_stride_b + at_b));
          }
          out.memory.at(size_t(pd + z * c.batch_stride_d + row + col * c.ldd)) = sum;
          if (s.has_aux && c.ld_aux != 0)
            aux.memory.at(size_t(px + z * c.batch_stride_aux + row + col * c.ld_aux)) = sum;
        }
  }
}

// As the backend does: copies until the plan fits. Returns how often operands were copied.
int run(prim::GemmArgs& g, Operand& a, Operand& b, Operand& out, Operand& aux, bool by_rows,
        int depth = 0) {
  g.a = a.view(), g.b = b.view(), g.out = out.view();
  if (g.aux) g.aux = aux.view();
  const GemmShape s = gemm_shape(g);
  const LibraryPlan plan = plan_library_gemm(s, by_rows, 2);
  if (plan.fits()) {
    run_calls(s, plan, a, b, out, aux);
    return 0;
  }
  EXPECT_LT(depth, 4);
  if (depth >= 4) return 0;
  const auto sizes_of = [&](const Operand& o) {
    Shape sizes = o.sizes;
    for (size_t d = 0; d + 2 < sizes.size(); ++d) {
      if (plan.expand) sizes[d] = out.sizes[d];
      if (!plan.expand && o.strides[d] == 0) sizes[d] = 1;
    }
    return sizes;
  };
  Operand ca = plan.copy_a ? contiguous_copy(a, sizes_of(a)) : a;
  Operand cb = plan.copy_b ? contiguous_copy(b, sizes_of(b)) : b;
  Operand co = plan.copy_out ? contiguous_copy(out, out.sizes) : out;
  const int copies = 1 + run(g, ca, cb, co, aux, by_rows, depth + 1);
  if (plan.copy_out)
    for_each_index(out.sizes, [&](const Shape& i) { out.at(i) = co.at(i); });
  else
    out = co;
  return copies;
}

TEST(GemmLayout, CallsComputeWhatTheViewsSay) {
  Random random(1);
  int direct = 0, copied = 0, swapped = 0, batched = 0, looped = 0, with_aux = 0;
  for (int round = 0; round < 6000; ++round) {
    const int batch_dims = int(random.pick(0, 3));
    Shape sa, sb, so;
    for (int d = 0; d < batch_dims; ++d) {
      const int64_t n = random.chance(40) ? 0 : random.pick(1, 4);
      so.push_back(n);
      sa.push_back(random.chance(4) ? 1 : n);
      sb.push_back(random.chance(3) ? 1 : n);
    }
    const auto extent = [&] { return random.chance(5) ? 1 : random.pick(1, 6); };
    const int64_t m = extent(), n = extent(), k = extent();
    sa.push_back(m), sa.push_back(k), sb.push_back(k), sb.push_back(n);
    so.push_back(m), so.push_back(n);
    if (numel_of(so) == 0) continue;
    Operand a = random.operand(sa, false), b = random.operand(sb, false),
            out = random.operand(so, true), aux = random.operand(so, true);
    if (random.chance(2)) aux.strides = out.strides, aux.start = out.start, aux.memory = out.memory;
    prim::GemmArgs g;
    const bool has_aux = random.chance(3);
    if (has_aux) g.aux = aux.view();
    int64_t bias = 0;
    const Shape bias_sizes{n}, bias_strides{1};
    const bool by_rows = random.chance(2);
    if (by_rows)
      g.bias = {reinterpret_cast<std::byte*>(&bias), kBFloat16, bias_sizes, bias_strides};
    const std::vector<int64_t> before = out.memory, aux_before = aux.memory;
    g.a = a.view(), g.b = b.view(), g.out = out.view();
    const GemmShape s = gemm_shape(g);
    EXPECT_EQ(s.m * s.n * s.batches(), numel_of(so));
    EXPECT_TRUE(!by_rows || s.n == n);
    const LibraryPlan plan = plan_library_gemm(s, by_rows, 2);
    if (plan.fits()) {
      ++direct;
      swapped += plan.call.swapped, batched += plan.call.batch > 1, looped += plan.calls() > 1;
      with_aux += plan.call.ld_aux != 0;
      const bool has_rows = (n == 1 || s.out.column == 1) && (s.m == 1 || s.out.row >= n);
      EXPECT_TRUE(!by_rows || plan.call.swapped == has_rows);
    }
    copied += run(g, a, b, out, aux, by_rows) > 0;

    std::vector<bool> written(out.memory.size(), false);
    for_each_index(so, [&](const Shape& i) {
      int64_t sum = 0;
      for (int64_t p = 0; p < k; ++p) {
        Shape ia = i, ib = i;
        ia[ia.size() - 1] = p, ib[ib.size() - 2] = p;
        sum += a.at(ia) * b.at(ib);
      }
      ASSERT_EQ(out.at(i), sum) << "round " << round;
      if (plan.fits() && has_aux && plan.call.ld_aux != 0) {
        ASSERT_EQ(aux.at(i), sum) << "round " << round;
      }
      written[size_t(&out.at(i) - out.memory.data())] = true;
    });
    for (size_t i = 0; i < before.size(); ++i)
      ASSERT_TRUE(written[i] || out.memory[i] == before[i]) << "round " << round;
  }
  // Every kind of plan has occurred.
  for (int count : {direct, copied, swapped, direct - swapped, batched, looped, with_aux})
    EXPECT_GT(count, 100);
}

prim::View view_of(Shape& sizes, Shape& strides) {
  static std::byte memory[8];
  return {memory, kBFloat16, sizes, strides};
}

TEST(GemmLayout, BatchTimesMatrixIsOneProduct) {
  Shape as{8, 16, 32}, at{512, 32, 1}, bs{8, 32, 64}, bt{0, 1, 32}, os{8, 16, 64}, ot{1024, 64, 1};
  prim::GemmArgs g;
  g.a = view_of(as, at), g.b = view_of(bs, bt), g.out = view_of(os, ot);
  const GemmShape s = gemm_shape(g);
  EXPECT_EQ(s.m, 128);
  EXPECT_EQ(s.loops, 0);
  const LibraryPlan plan = plan_library_gemm(s, true, 2);
  ASSERT_TRUE(plan.fits());
  EXPECT_TRUE(plan.call.swapped);
  EXPECT_EQ(plan.call.m, 64);
  EXPECT_EQ(plan.call.n, 128);
  EXPECT_TRUE(plan.call.transpose_a);  // b is the transpose of a row-major weight
  EXPECT_FALSE(plan.call.transpose_b);
}

TEST(GemmLayout, HeadsOfAttentionLoopOrCopyByWhatIsFaster) {
  // q, k: (batch, heads, sequence, width) seen in memory of (batch, sequence, heads, width).
  const auto plan_of = [](int64_t batch, int64_t heads, int64_t length) {
    const int64_t width = 64;
    Shape qs{batch, heads, length, width}, qt{length * heads * width, width, heads * width, 1};
    Shape ks{batch, heads, width, length}, kt{length * heads * width, width, 1, heads * width};
    Shape os{batch, heads, length, length}, ot = contiguous_strides(os);
    prim::GemmArgs g;
    g.a = view_of(qs, qt), g.b = view_of(ks, kt), g.out = view_of(os, ot);
    return plan_library_gemm(gemm_shape(g), false, 2);
  };
  const LibraryPlan large = plan_of(4, 16, 4096);
  ASSERT_TRUE(large.fits());
  EXPECT_EQ(large.call.batch, 16);
  EXPECT_EQ(large.calls(), 4);
  const LibraryPlan small = plan_of(64, 4, 16);
  EXPECT_TRUE(small.copy_a && small.copy_b && !small.copy_out && small.expand);
}

TEST(GemmLayout, OddStridesNeedACopy) {
  EXPECT_FALSE(stored_matrix(3, 4, {8, 2}));   // no contiguous dimension
  EXPECT_FALSE(stored_matrix(3, 4, {0, 1}));   // rows expanded
  EXPECT_FALSE(stored_matrix(3, 4, {2, 1}));   // rows overlap
  EXPECT_FALSE(stored_matrix(3, 4, {-4, 1}));  // backwards
  const auto vector = stored_matrix(1, 7, {100, 1});
  ASSERT_TRUE(vector);
  EXPECT_TRUE(vector->transposed);
  EXPECT_EQ(vector->ld, 16);
  const auto sparse = stored_matrix(1, 7, {100, 3});
  ASSERT_TRUE(sparse);
  EXPECT_FALSE(sparse->transposed);
  EXPECT_EQ(sparse->ld, 3);
}

}  // namespace
}  // namespace arete::cuda
