#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <tuple>

#include "arete/backend/cpu/gemm_blocked.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "tests/prim/strided_buffer.h"
#include "tests/support/concurrently.h"
#include "tests/support/test_device.h"
#include "tests/support/tolerance.h"

namespace arete {
namespace {

using test::backend_under_test;

using prim::Activation;
using prim::GemmArgs;
using test::StridedBuffer;
using test::tolerance;

double activate(Activation act, double x) {
  switch (act) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x < 0 ? 0 : x;
    case Activation::gelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  return 0;
}

struct Reference {
  std::vector<double> out, aux, magnitude;
};

// Row-major values of 3-d operands; a batch of 1 broadcasts.
Reference reference(const std::vector<double>& a, const std::vector<double>& b,
                    const std::vector<double>& c, const std::vector<double>& bias, int64_t batch,
                    int64_t a_batch, int64_t b_batch, int64_t m, int64_t n, int64_t k,
                    const GemmArgs& g) {
  Reference r;
  for (int64_t i = 0; i < batch * m * n; ++i) {
    const int64_t z = i / (m * n), row = i / n % m, col = i % n;
    double sum = 0, magnitude = 0;
    for (int64_t p = 0; p < k; ++p) {
      const double x = a[size_t(((a_batch == 1 ? 0 : z) * m + row) * k + p)] *
                       b[size_t(((b_batch == 1 ? 0 : z) * k + p) * n + col)];
      sum += x, magnitude += std::abs(x);
    }
    double v = g.alpha * sum;
    magnitude *= std::abs(g.alpha);
    if (g.beta != 0) v += g.beta * c[size_t(i)], magnitude += std::abs(g.beta * c[size_t(i)]);
    if (!bias.empty()) v += bias[size_t(col)], magnitude += std::abs(bias[size_t(col)]);
    r.aux.push_back(v);
    r.out.push_back(activate(g.activation, v));
    r.magnitude.push_back(magnitude);
  }
  return r;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& want,
                  const std::vector<double>& magnitude, DType dtype, int64_t k,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double bound = is_integer(dtype) ? 0 : tolerance(dtype, k, magnitude[i]);
    if (!(std::abs(got[i] - want[i]) <= bound)) {
      ADD_FAILURE() << what << ": element " << i << " is " << got[i] << ", expected " << want[i]
                    << " within " << bound;
      return;
    }
  }
}

struct Case {
  DType dtype;
  int64_t batch, m, n, k;
  bool a_broadcast = false, b_broadcast = false;
  std::vector<int> a_order = {}, b_order = {}, out_order = {};
  int64_t a_gap = 0, b_gap = 0, out_gap = 0;
  bool a_reversed = false;
  double alpha = 1, beta = 0;
  bool bias = false, aux = false;
  Activation activation = Activation::none;
};

std::string describe(const Case& c) {
  std::string s(name_of(c.dtype));
  for (int64_t v : {c.batch, c.m, c.n, c.k}) s += " " + std::to_string(v);
  const auto order = [](const std::vector<int>& o) {
    std::string t = "/";
    for (int d : o) t += char('0' + d);
    return t;
  };
  s += order(c.a_order) + order(c.b_order) + order(c.out_order) + " gaps " +
       std::to_string(c.a_gap) + "," + std::to_string(c.b_gap) + "," + std::to_string(c.out_gap);
  return s + " alpha " + std::to_string(c.alpha) + " beta " + std::to_string(c.beta) +
         (c.bias ? " bias" : "") + (c.aux ? " aux" : "") + " act " +
         std::to_string(int(c.activation)) + (c.a_broadcast ? " a*" : "") +
         (c.b_broadcast ? " b*" : "") + (c.a_reversed ? " rev" : "");
}

void run_case(const Case& c, std::mt19937_64& rng) {
  const int64_t ab = c.a_broadcast ? 1 : c.batch, bb = c.b_broadcast ? 1 : c.batch;
  StridedBuffer a(c.dtype, {ab, c.m, c.k}, c.a_order, c.a_gap, c.a_reversed);
  StridedBuffer b(c.dtype, {bb, c.k, c.n}, c.b_order, c.b_gap);
  StridedBuffer out(c.dtype, {c.batch, c.m, c.n}, c.out_order, c.out_gap);
  StridedBuffer aux(c.dtype, {c.batch, c.m, c.n}, c.out_order, c.out_gap);
  StridedBuffer bias(c.dtype, {c.n}, {}, c.b_gap);
  for (StridedBuffer* t : {&a, &b, &out, &bias}) t->randomize(rng);
  const std::vector<double> old = out.values();
  if (c.beta == 0 && is_floating(c.dtype))  // must not be read
    out.set(std::vector<double>(old.size(), std::numeric_limits<double>::quiet_NaN()));
  GemmArgs g;
  g.a = a.view(), g.b = b.view(), g.out = out.view();
  g.alpha = c.alpha, g.beta = c.beta, g.activation = c.activation;
  if (c.bias) g.bias = bias.view();
  if (c.aux) g.aux = aux.view();
  const Reference r =
      reference(a.values(), b.values(), old, c.bias ? bias.values() : std::vector<double>{},
                c.batch, ab, bb, c.m, c.n, c.k, g);
  backend_under_test().gemm(g);
  expect_close(out.values(), r.out, r.magnitude, c.dtype, c.k, describe(c));
  if (c.aux) expect_close(aux.values(), r.aux, r.magnitude, c.dtype, c.k, describe(c) + " aux");
  for (const StridedBuffer* t : {&a, &b, &out, &aux, &bias}) t->expect_guards_intact();
}

class GemmOfType : public ::testing::TestWithParam<DType> {};

TEST_P(GemmOfType, RandomShapesStridesAndEpilogues) {
  std::mt19937_64 rng(uint64_t(GetParam()) + 7);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + int64_t(rng() % uint64_t(high - low + 1));
  };
  const std::vector<std::vector<int>> orders = {
      {0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {2, 1, 0}, {1, 2, 0}};
  const bool floating = is_floating(GetParam());
  for (int i = 0; i < 150; ++i) {
    Case c{GetParam(), pick(1, 4) == 1 ? pick(1, 9) : 1, pick(1, 40), pick(1, 40), pick(1, 40)};
    if (i % 10 == 9) c.m = pick(60, 130), c.n = pick(60, 130), c.k = pick(190, 260), c.batch = 1;
    if (i % 7 == 0) c.m = 1;
    if (i % 11 == 0) c.n = 1;
    if (i % 13 == 0) c.k = 1;
    c.a_order = orders[rng() % 5], c.b_order = orders[rng() % 5];
    c.out_order = orders[pick(0, 1) ? 0 : rng() % 5];
    const auto gap = [&] { return pick(0, 2) ? 0 : pick(-3, 5); };
    c.a_gap = gap(), c.b_gap = gap(), c.out_gap = gap();
    c.a_broadcast = pick(0, 3) == 0, c.b_broadcast = pick(0, 2) == 0;
    c.a_reversed = pick(0, 9) == 0;
    if (pick(0, 2) == 0) c.alpha = floating ? -0.75 : 3;
    if (pick(0, 2) == 0) c.beta = floating ? 0.5 : 2;
    c.bias = pick(0, 1), c.aux = pick(0, 2) == 0;
    if (floating) c.activation = Activation(rng() % 4);
    if (c.dtype == kUInt8) c.alpha = std::abs(c.alpha);
    if (size_of(c.dtype) == 1) c.k = std::min<int64_t>(c.k, 1), c.alpha = 1;  // sums stay in range
    run_case(c, rng);
    if (HasFailure()) return;
  }
}

TEST_P(GemmOfType, EmptyInnerDimensionGivesBetaCPlusBias) {
  std::mt19937_64 rng(3);
  for (double beta : {0.0, 1.0, 2.0}) {
    Case c{GetParam(), 2, 3, 5, 0};
    c.beta = beta, c.bias = true;
    run_case(c, rng);
  }
}

TEST_P(GemmOfType, EmptyOutputsAreFine) {
  std::mt19937_64 rng(4);
  run_case(Case{GetParam(), 2, 0, 5, 3}, rng);
  run_case(Case{GetParam(), 2, 5, 0, 3}, rng);
  run_case(Case{GetParam(), 0, 5, 2, 3}, rng);
}

INSTANTIATE_TEST_SUITE_P(Types, GemmOfType,
                         ::testing::Values(kFloat32, kFloat64, kFloat16, kBFloat16, kInt8, kInt16,
                                           kInt32, kInt64, kUInt8),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(Gemm, LargeBlocksMatchReference) {
  std::mt19937_64 rng(5);
  for (DType t : {kFloat32, kFloat64, kInt32}) {
    run_case(Case{t, 1, 203, 389, 401}, rng);
    run_case(Case{t, 1, 2, 1700, 30}, rng);
    run_case(Case{t, 1, 1000, 3, 200}, rng);
  }
}

// k is divided among the threads that the batch leaves.
TEST(Gemm, BatchesOfFewerProductsThanThreads) {
  const int before = num_threads();
  set_num_threads(8);
  std::mt19937_64 rng(7);
  for (bool transposed : {false, true}) {
    const int64_t batch = 2, m = 30, n = 4, k = 4096;
    StridedBuffer a(kFloat32, transposed ? Shape{batch, k, m} : Shape{batch, m, k}),
        b(kFloat32, {batch, k, n}), out(kFloat32, {batch, m, n});
    a.randomize(rng), b.randomize(rng);
    const int64_t sizes[] = {batch, m, k}, strides[] = {k * m, 1, m};
    GemmArgs g;
    g.a = a.view(), g.b = b.view(), g.out = out.view();
    if (transposed) g.a.sizes = sizes, g.a.strides = strides;
    backend_under_test().gemm(g);
    const auto va = a.values(), vb = b.values(), got = out.values();
    for (int64_t i = 0; i < out.numel(); ++i) {
      const int64_t z = i / (m * n), row = i / n % m, column = i % n;
      double sum = 0;
      for (int64_t p = 0; p < k; ++p)
        sum += va[size_t((z * k * m) + (transposed ? p * m + row : row * k + p))] *
               vb[size_t((z * k + p) * n + column)];
      ASSERT_NEAR(got[size_t(i)], sum, tolerance(kFloat32, k, 5)) << (transposed ? "turned" : "");
    }
  }
  set_num_threads(before);
}

TEST(Gemm, LeadingDimensionsFoldAndBroadcast) {
  // (2, 3, 4, 5) @ (1, 3, 5, 6): rank above 3, broadcast over the first dimension only.
  std::mt19937_64 rng(6);
  for (DType t : {kFloat32, kFloat64, kBFloat16}) {
    StridedBuffer a(t, {2, 3, 4, 5}), b(t, {1, 3, 5, 6}), out(t, {2, 3, 4, 6});
    a.randomize(rng), b.randomize(rng);
    GemmArgs g;
    g.a = a.view(), g.b = b.view(), g.out = out.view();
    backend_under_test().gemm(g);
    const auto va = a.values(), vb = b.values(), got = out.values();
    for (int64_t i = 0; i < out.numel(); ++i) {
      const int64_t z = i / 24, row = i / 6 % 4, col = i % 6;
      double sum = 0;
      for (int64_t p = 0; p < 5; ++p)
        sum += va[size_t((z * 4 + row) * 5 + p)] * vb[size_t((z % 3 * 5 + p) * 6 + col)];
      EXPECT_NEAR(got[size_t(i)], sum, tolerance(t, 5, 5));
    }
  }
}

TEST(Gemm, IntegersWrapAround) {
  StridedBuffer a(kInt8, {2, 100}), b(kInt8, {100, 2}), out(kInt8, {2, 2});
  a.set(std::vector<double>(200, 100)), b.set(std::vector<double>(200, 3));
  GemmArgs g;
  g.a = a.view(), g.b = b.view(), g.out = out.view();
  backend_under_test().gemm(g);
  for (double v : out.values()) EXPECT_EQ(v, double(int8_t(30000)));
  StridedBuffer c(kInt64, {1, 2}), d(kInt64, {2, 1}), e(kInt64, {1, 1});
  c.set({0x1p62, 0x1p62}), d.set({2, 2});
  g.a = c.view(), g.b = d.view(), g.out = e.view();
  backend_under_test().gemm(g);
  EXPECT_EQ(e.values()[0], 0);
}

TEST(Gemm, NanAndInfinityPropagate) {
  const double inf = std::numeric_limits<double>::infinity();
  for (DType t : {kFloat32, kFloat64, kBFloat16, kFloat16})
    for (int64_t n : {3, 40})
      for (Activation act : {Activation::none, Activation::relu}) {
        StridedBuffer a(t, {2, n}), b(t, {n, n}), out(t, {2, n});
        std::vector<double> va(size_t(2 * n), 1), vb(size_t(n * n), 0);
        va[0] = std::nan("");
        va[size_t(n + 1)] = inf;
        vb[size_t(n)] = 1;  // row 1, column 0
        a.set(va), b.set(vb);
        GemmArgs g;
        g.a = a.view(), g.b = b.view(), g.out = out.view(), g.activation = act;
        backend_under_test().gemm(g);
        const auto got = out.values();
        for (int64_t j = 0; j < n; ++j) EXPECT_TRUE(std::isnan(got[size_t(j)])) << name_of(t) << n;
        EXPECT_EQ(got[size_t(n)], inf);               // inf * 1
        EXPECT_TRUE(std::isnan(got[size_t(n + 1)]));  // inf * 0
      }
}

TEST(Gemm, ComplexProducts) {
  std::mt19937_64 rng(8);
  for (int i = 0; i < 12; ++i) {
    const int64_t m = 3, n = 4, k = 5;
    StridedBuffer a(kComplex64, {m, k}, i % 2 ? std::vector<int>{1, 0} : std::vector<int>{0, 1},
                    i % 3);
    StridedBuffer b(kComplex64, {k, n}, i % 4 > 1 ? std::vector<int>{1, 0} : std::vector<int>{0, 1},
                    -(i % 3) - 1);
    StridedBuffer out(kComplex64, {m, n},
                      i % 5 > 2 ? std::vector<int>{1, 0} : std::vector<int>{0, 1});
    a.randomize(rng), b.randomize(rng);
    using C = std::complex<float>;
    a.view().as<C>()[0] = C(2, 3);
    b.view().as<C>()[0] = C(-1, 4);
    GemmArgs g;
    g.a = a.view(), g.b = b.view(), g.out = out.view();
    backend_under_test().gemm(g);
    const auto at = [](const prim::View& v, int64_t r, int64_t c) {
      return v.as<C>()[r * v.strides[0] + c * v.strides[1]];
    };
    for (int64_t r = 0; r < m; ++r)
      for (int64_t c = 0; c < n; ++c) {
        std::complex<double> sum = 0;
        for (int64_t p = 0; p < k; ++p)
          sum += std::complex<double>(at(g.a, r, p)) * std::complex<double>(at(g.b, p, c));
        EXPECT_LE(std::abs(sum - std::complex<double>(at(g.out, r, c))),
                  tolerance(kFloat32, k, 20));
      }
  }
}

TEST(Gemm, BlockedProductOfEveryInstructionSet) {
  ARETE_CPU_ONLY();
  std::vector<void (*)(const cpu::BlockedGemm&)> versions{cpu::base::gemm_blocked};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    versions.push_back(cpu::avx2::gemm_blocked);
  if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw"))
    versions.push_back(cpu::avx512::gemm_blocked);
#endif
  std::mt19937_64 rng(12);
  for (DType t : {kFloat64, kInt8, kInt32, kInt64})
    for (const auto& [m, n, depth, turned] :
         {std::tuple(37, 53, 411, false), std::tuple(37, 53, 411, true),
          std::tuple(5, 1600, 411, true), std::tuple(1, 700, 411, false),
          std::tuple(1, 700, 411, true), std::tuple(70, 1, 9001, false),
          std::tuple(70, 1, 9001, true), std::tuple(1, 1, 9001, false)})
      for (const auto version : versions) {
        const int64_t k = t == kInt8 ? 3 : depth;
        const std::vector<int> along{1, 0}, across{0, 1};
        StridedBuffer a(t, {m, k}, turned ? across : along), b(t, {k, n}, turned ? along : across),
            out(t, {m, n});
        a.randomize(rng), b.randomize(rng), out.randomize(rng);
        const std::vector<double> va = a.values(), vb = b.values(), old = out.values();
        const prim::View x = a.view(), y = b.view(), z = out.view();
        version({t,
                 m,
                 n,
                 k,
                 {x.data, x.strides[0], x.strides[1]},
                 {y.data, y.strides[0], y.strides[1]},
                 {z.data, z.strides[0], z.strides[1]},
                 2,
                 1});
        const std::vector<double> got = out.values();
        for (int64_t i = 0; i < m * n; ++i) {
          double sum = old[size_t(i)], size = std::abs(sum);
          for (int64_t p = 0; p < k; ++p) {
            const double v = 2 * va[size_t(i / n * k + p)] * vb[size_t(p * n + i % n)];
            sum += v, size += std::abs(v);
          }
          ASSERT_NEAR(got[size_t(i)], sum, tolerance(t, k, size)) << name_of(t) << " " << i;
        }
      }
}

// Long sums are added up in parts: of numbers of one sign each error counts.
// Sums of 65,536 elements, of which a few roundings show; of one running sum more would.
TEST(Gemm, LongSumsAreAddedInParts) {
  ARETE_CPU_ONLY();
  std::mt19937_64 rng(13);
  std::uniform_real_distribution<double> number(0, 1);
  const int64_t m = 70, k = 65536;
  for (int64_t n : {1, 8})
    for (const std::vector<int>& order : {std::vector<int>{0, 1}, std::vector<int>{1, 0}}) {
      StridedBuffer a(kFloat64, {m, k}, order), b(kFloat64, {k, n}), out(kFloat64, {m, n});
      std::vector<double> va(size_t(m * k)), vb(size_t(k * n));
      for (std::vector<double>* v : {&va, &vb})
        for (double& x : *v) x = number(rng);
      a.set(va), b.set(vb);
      GemmArgs g;
      g.a = a.view(), g.b = b.view(), g.out = out.view();
      backend_under_test().gemm(g);
      const std::vector<double> got = out.values();
      double worst = 0;
      for (int64_t i = 0; i < m * n; ++i) {
        long double sum = 0;
        for (int64_t p = 0; p < k; ++p)
          sum += (long double)va[size_t(i / n * k + p)] * vb[size_t(p * n + i % n)];
        worst = std::max(worst, double(std::abs(got[size_t(i)] - sum) / sum));
      }
      EXPECT_LE(worst, (n == 1 ? 4 : 8) * std::numeric_limits<double>::epsilon())
          << n << " columns, order " << order[0];
    }
}

TEST(Gemm, BooleanIsATypeError) {
  StridedBuffer a(kBool, {2, 2}), out(kBool, {2, 2});
  GemmArgs g;
  g.a = a.view(), g.b = a.view(), g.out = out.view();
  EXPECT_THROW(backend_under_test().gemm(g), TypeError);
}

TEST(Gemm, SeveralThreadsAndRegionsAtOnce) {
  test::concurrently([](uint64_t seed) {
    std::mt19937_64 rng(seed);
    for (DType t : {kFloat32, kBFloat16, kFloat64}) {
      run_case(Case{t, 1, 70, 80, 90}, rng);
      run_case(Case{t, 5, 7, 30, 20}, rng);
    }
  });
}

}  // namespace
}  // namespace arete
