// Philox: known answers, the mapping of Note [Random numbers], and the distributions.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>

#include "arete/backend/cpu/kernels/kernel_table.h"
#include "arete/backend/cpu/kernels/random_table.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/expr/value.h"
#include "arete/prim/backend.h"
#include "arete/prim/philox.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/test_device.h"
#include "tests/support/tolerance.h"

namespace arete::test {
namespace {

using prim::RandomArgs;
__extension__ typedef unsigned __int128 Wide;
using Distribution = RandomArgs::Distribution;

RandomArgs uniform(const GuardedBuffer& out, double a, double b, uint64_t offset = 0) {
  return {.distribution = Distribution::uniform,
          .out = out.view(),
          .seed = 42,
          .offset = offset,
          .a = a,
          .b = b};
}
RandomArgs normal(const GuardedBuffer& out, double mean, double deviation, uint64_t offset = 0) {
  return {.distribution = Distribution::normal,
          .out = out.view(),
          .seed = 42,
          .offset = offset,
          .a = mean,
          .b = deviation};
}
RandomArgs integers(const GuardedBuffer& out, int64_t low, int64_t high, uint64_t seed = 42) {
  return {.distribution = Distribution::integers,
          .out = out.view(),
          .seed = seed,
          .offset = 0,
          .ia = low,
          .ib = high};
}
RandomArgs bernoulli(const GuardedBuffer& out, double p, uint64_t seed = 42) {
  return {.distribution = Distribution::bernoulli,
          .out = out.view(),
          .seed = seed,
          .offset = 0,
          .a = p};
}

// The answers published with the generator.
TEST(Philox, KnownAnswers) {
  const auto expect = [](prim::PhiloxBlock b, std::array<uint32_t, 4> lanes) {
    for (int k = 0; k < 4; ++k) EXPECT_EQ(b.lane[k], lanes[size_t(k)]);
  };
  expect(prim::philox4x32_10({{0, 0, 0, 0}}, 0, 0),
         {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  expect(prim::philox4x32_10({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u),
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  expect(prim::philox4x32_10({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822,
                             0x299f31d0),
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(Philox, MultiplyHigh) {
  std::mt19937_64 rng(1);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t a = rng(), b = rng() >> (rng() % 64);
    EXPECT_EQ(prim::random_mul_high(a, b), uint64_t(Wide(a) * b >> 64));
  }
}

// Straight from the note, one element at a time.
TEST(Random, MappingOfUniformAndIntegersAndBernoulli) {
  const uint64_t seed = 0x123456789abcdef0u, offset = 0xfffffffeu;  // the counter's low half wraps
  const int64_t n = 1027;
  GuardedBuffer f(kFloat32, Shape{n}), d(kFloat64, Shape{n}), i32(kInt64, Shape{n}),
      i64(kInt64, Shape{n}), b(kBool, Shape{n});
  const auto run = [&](Distribution kind, const GuardedBuffer& out, double a, double bb, int64_t ia,
                       int64_t ib) {
    backend_under_test().random({.distribution = kind,
                                 .out = out.view(),
                                 .seed = seed,
                                 .offset = offset,
                                 .a = a,
                                 .b = bb,
                                 .ia = ia,
                                 .ib = ib});
    EXPECT_TRUE(out.guards_intact());
  };
  run(Distribution::uniform, f, 0, 1, 0, 0);
  run(Distribution::uniform, d, 0, 1, 0, 0);
  run(Distribution::integers, i32, 0, 0, -7, 100);
  run(Distribution::integers, i64, 0, 0, INT64_MIN, INT64_MAX);
  run(Distribution::bernoulli, b, 0.3, 0, 0, 0);
  for (int64_t i = 0; i < n; ++i) {
    const auto quad = prim::philox_block(seed, offset + uint64_t(i) / 4);
    const uint32_t lane = quad.lane[i % 4];
    const auto pair = prim::philox_block(seed, offset + uint64_t(i) / 2);
    const uint64_t lanes = uint64_t(pair.lane[2 * (i % 2) + 1]) << 32 | pair.lane[2 * (i % 2)];
    EXPECT_EQ(f.at<float>(Shape{i}), float(lane >> 8) / 16777216.0f);
    EXPECT_EQ(d.at<double>(Shape{i}), double(lanes >> 11) / 9007199254740992.0);
    EXPECT_EQ(i32.at<int64_t>(Shape{i}), -7 + int64_t(uint64_t(lane) * 107 >> 32));
    EXPECT_EQ(uint64_t(i64.at<int64_t>(Shape{i})),
              uint64_t(INT64_MIN) + uint64_t(Wide(lanes) * UINT64_MAX >> 64));
    EXPECT_EQ(b.get(Shape{i}), double(double(lane) / 4294967296.0 < 0.3));
  }
}

// Box-Muller with the C library's functions gives the same numbers up to its rounding.
TEST(Random, MappingOfNormal) {
  const int64_t n = 20002;
  GuardedBuffer f(kFloat32, Shape{n}), d(kFloat64, Shape{n});
  backend_under_test().random(normal(f, 0, 1, 5));
  backend_under_test().random(normal(d, 0, 1, 5));
  // About sixteen roundings of values below r.
  const auto bound = [](DType t, double r) { return tolerance(t, 16, std::max(r, 1.0)); };
  for (int64_t i = 0; i < n; ++i) {
    const auto q = prim::philox_block(42, 5 + uint64_t(i) / 4);
    const uint32_t l0 = q.lane[i % 4 / 2 * 2], l1 = q.lane[i % 4 / 2 * 2 + 1];
    const double u1 = double(float(double(l0) * 0x1p-32) + 0x1p-33f),
                 r = std::sqrt(-2 * std::log(u1));
    const double angle =
        (double(l1 >> 30) + (double(l1 >> 8 & 0x3fffff) + 0.5) * 0x1p-22 - 0.5) * M_PI / 2;
    EXPECT_NEAR(f.get(Shape{i}), r * (i % 2 ? std::sin(angle) : std::cos(angle)),
                bound(kFloat32, r));
    const auto p = prim::philox_block(42, 5 + uint64_t(i) / 2);
    const double v1 = double((uint64_t(p.lane[1]) << 32 | p.lane[0]) >> 11) * 0x1p-53 + 0x1p-53;
    const double s = std::sqrt(-2 * std::log(v1));
    const uint64_t k = (uint64_t(p.lane[3]) << 32 | p.lane[2]) >> 11;
    const double turn =
        (double(k >> 51) + (double(k & 0x7ffffffffffffu) + 0.5) * 0x1p-51 - 0.5) * M_PI / 2;
    EXPECT_NEAR(d.get(Shape{i}), s * (i % 2 ? std::sin(turn) : std::cos(turn)), bound(kFloat64, s));
  }
}

TEST(Random, StridedOutputsAndOffsetsGiveTheSameNumbers) {
  for (DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16})
    for (Distribution kind : {Distribution::uniform, Distribution::normal}) {
      const Shape sizes{9, 31, 5};
      GuardedBuffer plain(dtype, sizes);
      RandomArgs args =
          kind == Distribution::uniform ? uniform(plain, -1, 1, 7) : normal(plain, 1, 2, 7);
      backend_under_test().random(args);
      for (const Layout& layout : dense_and_strided_layouts(sizes)) {
        GuardedBuffer out(dtype, layout);
        args.out = out.view();
        backend_under_test().random(args);
        EXPECT_TRUE(out.guards_intact());
        EXPECT_EQ(out.values(), plain.values());
      }
      // A later offset continues the stream.
      const int64_t skip = 8;
      GuardedBuffer rest(dtype, Shape{9 * 31 * 5 - skip});
      args.out = rest.view();
      args.offset += uint64_t(skip / prim::random_elements_per_block(args));
      backend_under_test().random(args);
      const std::vector<double> all = plain.values();
      EXPECT_EQ(rest.values(), std::vector<double>(all.begin() + skip, all.end()));
    }
}

// The numbers of a call without the program, through the program.
TEST(Random, Programs) {
  const Shape sizes{9, 31, 5};
  for (const DType drawn : {kFloat32, kFloat64})
    for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kInt64}) {
      const DType types[] = {drawn, kFloat32};
      const expr::ProgramPtr program = expr::trace(
          [&](std::span<const expr::Value> v) {
            const expr::Value x = cast(v[1], v[0].type());
            return std::vector{cast(floor(v[0] * v[2]) + x, expr::compute_type(dtype))};
          },
          types, std::array{expr::compute_type(drawn)}, {{dtype}});
      const expr::Literal eight{.f = 8};
      GuardedBuffer numbers(drawn, sizes);
      RandomArgs args = normal(numbers, 1, 2, 7);
      backend_under_test().random(args);
      std::mt19937_64 rng(3);
      GuardedBuffer whole(kFloat32, sizes), last(kFloat32, Shape{5}), want(dtype, sizes);
      whole.fill_random(rng, -9, 9);
      last.fill_random(rng, -9, 9);
      args.program = program.get();
      args.params = {&eight, 1};
      for (const GuardedBuffer* input : {&whole, &last}) {
        const prim::View in = input->view();
        args.inputs = {&in, 1};
        want.fill([&](IntList i) {
          const double x = input == &whole ? input->get(i) : input->get({i.back()});
          return std::floor(numbers.get(i) * 8) + x;
        });
        for (const Layout& layout : dense_and_strided_layouts(sizes)) {
          GuardedBuffer out(dtype, layout);
          args.out = out.view();
          backend_under_test().random(args);
          EXPECT_TRUE(out.guards_intact());
          EXPECT_EQ(out.values(), want.values());
        }
      }
      // An input may be the output.
      if (dtype != kFloat32) continue;
      const prim::View self = whole.view();
      want.fill([&](IntList i) { return std::floor(numbers.get(i) * 8) + whole.get(i); });
      args.out = self;
      args.inputs = {&self, 1};
      backend_under_test().random(args);
      EXPECT_EQ(whole.values(), want.values());
    }
}

TEST(Random, SameBitsForAnyNumberOfThreads) {
  GuardedBuffer one(kFloat32, Shape{100003}), many(kFloat32, Shape{100003});
  const int before = num_threads();
  set_num_threads(1);
  backend_under_test().random(normal(one, 0, 1));
  set_num_threads(3);
  backend_under_test().random(normal(many, 0, 1));
  set_num_threads(before);
  EXPECT_EQ(one.values(), many.values());
}

#if defined(__x86_64__)
template <class T>
void expect_equal_bits(const std::vector<T>& a, const std::vector<T>& b) {
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(T)), 0);
}
TEST(Random, EveryInstructionSetGivesTheSameBits) {
  namespace k = cpu::kernels;
  constexpr int64_t kBlocks = 4096;
  const auto compare = [&](const k::RandomTable& t) {
    const k::RandomTable& base = k::base::random_table;
    std::vector<float> f(kBlocks * 4), g(kBlocks * 4);
    std::vector<double> d(kBlocks * 2), e(kBlocks * 2);
    std::vector<uint32_t> l(kBlocks * 4), m(kBlocks * 4);
    base.lanes(l.data(), 1, 2, kBlocks), t.lanes(m.data(), 1, 2, kBlocks);
    expect_equal_bits(l, m);
    base.normal_f32(f.data(), 1, 2, kBlocks, 0.1f, 3),
        t.normal_f32(g.data(), 1, 2, kBlocks, 0.1f, 3);
    expect_equal_bits(f, g);
    base.normal_f64(d.data(), 1, 2, kBlocks, 0.1, 3), t.normal_f64(e.data(), 1, 2, kBlocks, 0.1, 3);
    expect_equal_bits(d, e);
    const std::vector<float> in = f;
    base.dropout_f32(f.data(), in.data(), 1, 2, kBlocks, 3u << 30, 1.25f),
        t.dropout_f32(g.data(), in.data(), 1, 2, kBlocks, 3u << 30, 1.25f);
    expect_equal_bits(f, g);
    base.uniform_f32(f.data(), 1, 2, kBlocks, 0.1f, 3, 0, 2),
        t.uniform_f32(g.data(), 1, 2, kBlocks, 0.1f, 3, 0, 2);
    expect_equal_bits(f, g);
    base.uniform_f64(d.data(), 1, 2, kBlocks, 0.1, 3, 0, 2),
        t.uniform_f64(e.data(), 1, 2, kBlocks, 0.1, 3, 0, 2);
    expect_equal_bits(d, e);
    base.bernoulli_f32(f.data(), 1, 2, kBlocks, 77777),
        t.bernoulli_f32(g.data(), 1, 2, kBlocks, 77777);
    expect_equal_bits(f, g);
    std::unique_ptr<bool[]> y(new bool[kBlocks * 4]), z(new bool[kBlocks * 4]);
    base.bernoulli_bool(y.get(), 1, 2, kBlocks, 77777),
        t.bernoulli_bool(z.get(), 1, 2, kBlocks, 77777);
    EXPECT_EQ(std::memcmp(y.get(), z.get(), kBlocks * 4), 0);
  };
  if (k::table_named("avx2")) compare(k::avx2::random_table);
  if (k::table_named("avx512")) compare(k::avx512::random_table);
}
#endif

TEST(Random, UniformStaysBelowItsBound) {
  for (DType dtype : {kFloat16, kBFloat16, kFloat32, kFloat64, kFloat8E4M3, kFloat8E5M2})
    for (const auto& [a, b] :
         {std::pair{0.0, 1.0}, {-1.0, 0.0}, {0.1, 0.2}, {1.0, 1.0}, {-3.0, 7.0}}) {
      GuardedBuffer out(dtype, Shape{200000});
      backend_under_test().random(uniform(out, a, b));
      double low = INFINITY, high = -INFINITY;
      for (double v : out.values()) low = std::min(low, v), high = std::max(high, v);
      if (a == b) {
        EXPECT_EQ(low, high);
        continue;
      }
      EXPECT_GE(low, a) << name_of(dtype);
      EXPECT_LT(high, b) << name_of(dtype);
    }
}

TEST(Random, LimitsAreNeighbours) {
  const auto half = prim::uniform_limits(kFloat16, 0, 1);
  EXPECT_EQ(half.low, 0);
  EXPECT_EQ(half.high, 1 - 0x1p-11);
  EXPECT_EQ(prim::uniform_limits(kBFloat16, 0, 1).high, 1 - 0x1p-8);
  EXPECT_EQ(prim::uniform_limits(kBFloat16, -1, 0).high, -9.183549615799121e-41);
  EXPECT_EQ(prim::uniform_limits(kFloat32, -2, -1).high, -1 - 0x1p-23);
  EXPECT_THROW(prim::uniform_limits(kInt32, 0, 1), TypeError);
}

// Five standard errors of each estimate: by chance in one of a million seeds, and the seed is
// fixed.
TEST(Random, Moments) {
  const int64_t n = 400000;
  const double root = std::sqrt(double(n));
  for (DType dtype : {kFloat32, kFloat64}) {
    GuardedBuffer z(dtype, Shape{n}), u(dtype, Shape{n});
    backend_under_test().random(normal(z, 0, 1));
    backend_under_test().random(uniform(u, 0, 1));
    double m[5] = {}, um = 0, uv = 0, pairs = 0;
    const std::vector<double> v = z.values();
    for (size_t i = 0; i < v.size(); ++i) {
      for (int k = 1; k <= 4; ++k) m[k] += std::pow(v[i], k) / double(n);
      if (i % 2) pairs += v[i] * v[i - 1] / double(n / 2);
    }
    for (double x : u.values()) um += x / double(n), uv += (x - 0.5) * (x - 0.5) / double(n);
    EXPECT_LT(std::abs(m[1]), 5 / root);
    EXPECT_LT(std::abs(m[2] - 1), 5 * std::sqrt(2.0) / root);
    EXPECT_LT(std::abs(m[3]), 5 * std::sqrt(15.0) / root);
    EXPECT_LT(std::abs(m[4] - 3), 5 * std::sqrt(96.0) / root);
    EXPECT_LT(std::abs(pairs), 5 / std::sqrt(double(n / 2)));
    EXPECT_LT(std::abs(um - 0.5), 5 * std::sqrt(1.0 / 12) / root);
    EXPECT_LT(std::abs(uv - 1.0 / 12), 5 * std::sqrt(1.0 / 180) / root);
  }
}

// Kolmogorov-Smirnov against the distribution functions, at the 1e-6 quantile of its limit law.
TEST(Random, DistributionFunctions) {
  const int64_t n = 200000;
  const double limit = std::sqrt(-0.5 * std::log(1e-6 / 2)) / std::sqrt(double(n));
  const auto distance = [&](std::vector<double> v, auto&& cdf) {
    std::sort(v.begin(), v.end());
    double d = 0;
    for (size_t i = 0; i < v.size(); ++i) {
      const double p = cdf(v[i]);
      d = std::max(
          {d, std::abs(p - double(i) / double(n)), std::abs(p - double(i + 1) / double(n))});
    }
    return d;
  };
  GuardedBuffer z(kFloat32, Shape{n}), u(kFloat32, Shape{n});
  backend_under_test().random(normal(z, 3, 2));
  backend_under_test().random(uniform(u, -2, 5));
  EXPECT_LT(
      distance(z.values(), [](double x) { return 0.5 * std::erfc(-(x - 3) / 2 / std::sqrt(2.0)); }),
      limit);
  EXPECT_LT(distance(u.values(), [](double x) { return (x + 2) / 7; }), limit);
}

TEST(Random, IntegersCoverTheirRange) {
  for (int t = 0; t < kNumDTypes; ++t) {
    if (DType(t) == kBool) continue;
    GuardedBuffer out(DType(t), Shape{20000});
    backend_under_test().random(integers(out, 0, 8));
    std::array<int64_t, 8> count{};
    for (double v : out.values()) ++count[size_t(v)];
    for (int64_t c : count) EXPECT_LT(std::abs(double(c) - 2500), 5 * std::sqrt(2500.0)) << t;
  }
  GuardedBuffer one(kInt64, Shape{100});
  backend_under_test().random(integers(one, 5, 6));
  for (double v : one.values()) EXPECT_EQ(v, 5);
}

TEST(Random, BernoulliAtTheEdges) {
  for (DType dtype : {kFloat32, kBool, kInt64, kFloat16, kComplex64}) {
    GuardedBuffer out(dtype, Shape{5000});
    const auto ones = [&](double p) {
      backend_under_test().random(bernoulli(out, p));
      double sum = 0;
      for (double v : out.values()) sum += v;
      return sum;
    };
    EXPECT_EQ(ones(0), 0);
    EXPECT_EQ(ones(1), 5000);
    EXPECT_EQ(ones(-1), 0);
    EXPECT_EQ(ones(NAN), 0);
    EXPECT_LT(std::abs(ones(0.25) - 1250), 5 * std::sqrt(5000 * 0.25 * 0.75));
  }
}

TEST(Random, UniformNeedsAFloatingDtype) {
  GuardedBuffer out(kInt32, Shape{4});
  EXPECT_THROW(backend_under_test().random(uniform(out, 0, 1)), TypeError);
}

}  // namespace
}  // namespace arete::test
