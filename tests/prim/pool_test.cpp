#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "arete/backend/cpu/pool_kernels.h"
#include "tests/prim/strided_buffer.h"
#include "tests/support/test_device.h"
#include "tests/support/tolerance.h"

namespace arete {
namespace {

using test::backend_under_test;

using prim::PoolArgs;
using test::StridedBuffer;
using test::tolerance;

struct Case {
  PoolArgs::Kind kind;
  DType dtype;
  Shape x, y;
  prim::Window window;
  bool channels_last = false, count_include_pad = true;
  int64_t divisor = 0, gap = 0;
  PoolArgs::Placement placement = PoolArgs::Placement::strided;
  bool values_only = false;       // maxima without their places
  bool few_values = false;        // whole numbers of which many are equal, and NaNs
  std::vector<double> samples{};  // (N, C, spatial), as f32 numbers
};

// The first element and the number of elements of the window of an output that is not strided,
// along dimension d. `plane`: which of N C.
std::array<int64_t, 2> placed(const Case& c, int64_t plane, int d, int64_t out) {
  const int64_t n = c.x[size_t(d) + 2], m = c.y[size_t(d) + 2];
  if (c.placement == PoolArgs::Placement::adaptive)
    return {out * n / m, ((out + 1) * n + m - 1) / m - out * n / m};
  const int64_t k = c.window.kernel[d], last = n - k;
  if (out + 1 == m) return {last, k};
  const float u = float(c.samples[size_t(plane * c.window.spatial + d)]);
  const float step = float(last) / float(m - 1);
  const int64_t first = int64_t((float(out) + u) * step) - int64_t(u * step);
  return {std::clamp<int64_t>(first, 0, last), k};
}

// Calls f(position in the plane) for each tap of the window of output position `out` that falls on
// the input; returns the size of the window including padding (clipped at the padded end).
template <class F>
int64_t for_taps(const Case& c, int64_t plane, const std::array<int64_t, 3>& out, F&& f) {
  const int s = c.window.spatial;
  int64_t padded = 1, taps = 1;
  std::array<int64_t, 3> start{}, count{}, between{};
  for (int d = 0; d < s; ++d) {
    const size_t i = size_t(d);
    if (c.placement == PoolArgs::Placement::strided) {
      start[i] = out[i] * c.window.stride[d] - c.window.padding[d];
      count[i] = c.window.kernel[d], between[i] = c.window.dilation[d];
      padded *= std::min(start[i] + count[i], c.x[i + 2] + c.window.padding[d]) - start[i];
    } else {
      const auto [first, n] = placed(c, plane, d, out[i]);
      start[i] = first, count[i] = n, between[i] = 1;
      padded *= n;
    }
    taps *= count[i];
  }
  for (int64_t t = 0; t < taps; ++t) {
    int64_t rest = t, position = 0, step = 1;
    bool inside = true;
    for (size_t d = size_t(s); d-- > 0;) {
      const int64_t i = start[d] + rest % count[d] * between[d];
      rest /= count[d];
      inside = inside && i >= 0 && i < c.x[d + 2];
      position += i * step, step *= c.x[d + 2];
    }
    if (inside) f(position);
  }
  return padded;
}

void run_case(const Case& c, std::mt19937_64& rng) {
  const int s = c.window.spatial;
  std::vector<int> order(size_t(s) + 2);
  std::iota(order.begin(), order.end(), 0);
  if (c.channels_last) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  StridedBuffer x(c.dtype, c.x, order, c.gap), y(c.dtype, c.y, order, c.gap),
      index(kInt64, c.y, order, c.gap);
  StridedBuffer gx(c.dtype, c.x, order, c.gap), gy(c.dtype, c.y, order);
  x.randomize(rng), gy.randomize(rng);
  std::optional<StridedBuffer> samples;
  if (!c.samples.empty()) samples.emplace(kFloat32, Shape{c.x[0], c.x[1], s}).set(c.samples);
  std::vector<double> vx = x.values();
  if (c.few_values)
    for (double& v : vx) v = rng() % 300 == 0 ? std::nan("") : double(rng() % 4);
  if (c.few_values) x.set(vx);
  if (is_floating(c.dtype) && rng() % 4 == 0) vx[rng() % vx.size()] = std::nan(""), x.set(vx);
  const std::vector<double> vgy = gy.values();
  const bool max = c.kind == PoolArgs::Kind::max;
  int64_t in_plane = 1, out_plane = 1;
  for (int d = 0; d < s; ++d) in_plane *= c.x[d + 2], out_plane *= c.y[d + 2];

  PoolArgs p{};
  p.kind = c.kind, p.window = c.window, p.count_include_pad = c.count_include_pad,
  p.divisor = c.divisor, p.placement = c.placement;
  p.x = x.view(), p.y = y.view();
  if (max && !c.values_only) p.indices = index.view();
  if (samples) p.samples = samples->view();
  backend_under_test().pool(p);
  if (!c.values_only) {
    p.backward = true, p.x = gx.view(), p.y = gy.view();
    backend_under_test().pool(p);
  }

  const std::vector<double> got = y.values(), got_index = index.values(), got_gx = gx.values();
  std::vector<double> want_gx(got_gx.size(), 0.0), magnitude(got_gx.size(), 0.0);
  int64_t taps = 1;
  for (int d = 0; d < s; ++d)
    taps *= c.placement == PoolArgs::Placement::adaptive ? c.x[size_t(d) + 2] : c.window.kernel[d];
  for (int64_t i = 0; i < y.numel(); ++i) {
    const int64_t plane = i / out_plane * in_plane;
    std::array<int64_t, 3> out{};
    for (int64_t d = s - 1, rest = i % out_plane; d >= 0; --d)
      out[size_t(d)] = rest % c.y[size_t(d) + 2], rest /= c.y[size_t(d) + 2];
    double best = -std::numeric_limits<double>::infinity(), sum = 0, size = 0;
    int64_t inside = 0, chosen = -1;
    const int64_t padded = for_taps(c, i / out_plane, out, [&](int64_t at) {
      const double v = vx[size_t(plane + at)];
      if (chosen < 0 || v > best || (std::isnan(v) && !std::isnan(best))) best = v, chosen = at;
      sum += v, size += std::abs(v), ++inside;
    });
    if (max) {
      ASSERT_GE(chosen, 0) << "the case has a window outside the input";
      ASSERT_TRUE(got[size_t(i)] == best || (std::isnan(best) && std::isnan(got[size_t(i)]))) << i;
      if (c.values_only) continue;
      ASSERT_EQ(got_index[size_t(i)], double(chosen)) << i;
      want_gx[size_t(plane + chosen)] += vgy[size_t(i)];
      magnitude[size_t(plane + chosen)] += std::abs(vgy[size_t(i)]);
    } else {
      const double divisor =
          c.divisor ? double(c.divisor) : double(c.count_include_pad ? padded : inside);
      if (std::isnan(sum))
        ASSERT_TRUE(std::isnan(got[size_t(i)]));
      else
        ASSERT_NEAR(got[size_t(i)], sum / divisor, tolerance(c.dtype, taps, size / divisor)) << i;
      for_taps(c, i / out_plane, out, [&](int64_t at) {
        want_gx[size_t(plane + at)] += vgy[size_t(i)] / divisor;
        magnitude[size_t(plane + at)] += std::abs(vgy[size_t(i)] / divisor);
      });
    }
  }
  for (size_t i = 0; i < got_gx.size() && !c.values_only; ++i)
    ASSERT_NEAR(got_gx[i], want_gx[i],
                c.dtype == kInt64 ? 0 : tolerance(c.dtype, taps, magnitude[i]))
        << i;
  for (const StridedBuffer* b : {&x, &y, &index, &gx, &gy}) b->expect_guards_intact();
}

class PoolOfType : public ::testing::TestWithParam<DType> {};

TEST_P(PoolOfType, RandomWindowsAndLayouts) {
  std::mt19937_64 rng(uint64_t(GetParam()) + 1);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + int64_t(rng() % uint64_t(high - low + 1));
  };
  for (int i = 0; i < 150; ++i) {
    Case c{};
    c.kind = i % 2 && GetParam() != kInt64 ? PoolArgs::Kind::avg : PoolArgs::Kind::max;
    c.dtype = GetParam();
    const int s = c.window.spatial = int(pick(1, 3));
    c.x = {pick(1, 3), i % 5 == 0 ? pick(60, 70) : pick(1, 5)};
    c.y = c.x;
    const bool ceil = pick(0, 1);
    for (int d = 0; d < s; ++d) {
      const int64_t k = c.window.kernel[d] = pick(1, 4);
      c.window.stride[d] = pick(1, 3);
      c.window.padding[d] = pick(0, k / 2);
      const int64_t dilation = c.window.dilation[d] =
          c.kind == PoolArgs::Kind::max ? pick(1, 2) : 1;
      const int64_t size = dilation * (k - 1) + 1 + pick(0, 9), p = c.window.padding[d];
      int64_t out = (size + 2 * p - dilation * (k - 1) - 1 + (ceil ? c.window.stride[d] - 1 : 0)) /
                        c.window.stride[d] +
                    1;
      if (ceil && (out - 1) * c.window.stride[d] >= size + p) --out;
      c.x.push_back(size), c.y.push_back(out);
    }
    if (c.kind == PoolArgs::Kind::max &&
        ceil)  // a dilated window may start in the padding and step over the end
      for (int d = 0; d < s; ++d)
        c.window.dilation[d] = 1,
        c.y[size_t(d) + 2] =
            std::min(c.y[size_t(d) + 2],
                     (c.x[size_t(d) + 2] + c.window.padding[d] - 1) / c.window.stride[d] + 1);
    c.channels_last = pick(0, 1), c.gap = pick(0, 2) ? 0 : pick(-2, 3);
    c.count_include_pad = pick(0, 1), c.divisor = pick(0, 2) ? 0 : 3;
    run_case(c, rng);
    if (HasFatalFailure() || HasFailure()) {
      ADD_FAILURE() << "case " << i << " x " << to_string(c.x) << " y " << to_string(c.y);
      return;
    }
  }
}

// Windows wide enough for vectors of their own elements, and far apart; with places and without.
TEST_P(PoolOfType, WideWindows) {
  std::mt19937_64 rng(uint64_t(GetParam()) + 3);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + int64_t(rng() % uint64_t(high - low + 1));
  };
  for (int i = 0; i < 90; ++i) {
    Case c{};
    c.kind = i % 3 == 1 && GetParam() != kInt64 ? PoolArgs::Kind::avg : PoolArgs::Kind::max;
    c.values_only = i % 3 == 2;
    c.dtype = GetParam();
    const int s = c.window.spatial = int(pick(1, 2));
    c.x = {pick(1, 2), pick(1, 5)};
    c.y = c.x;
    for (int d = 0; d < s; ++d) {
      const bool last = d == s - 1;
      const int64_t k = c.window.kernel[d] =
          last ? std::array<int64_t, 4>{4, 8, 17, pick(16, 40)}[rng() % 4] : pick(1, 3);
      const int64_t step = c.window.stride[d] =
          last ? std::array<int64_t, 4>{1, 2, 4, k}[rng() % 4] : pick(1, 2);
      const int64_t p = c.window.padding[d] = pick(0, 2) ? 0 : pick(0, k / 2);
      c.window.dilation[d] = 1;
      const int64_t size = k + pick(0, last ? 70 : 5);
      c.x.push_back(size), c.y.push_back((size + 2 * p - k) / step + 1);
    }
    c.gap = pick(0, 2) ? 0 : pick(-2, 3);
    run_case(c, rng);
    if (HasFatalFailure() || HasFailure()) {
      ADD_FAILURE() << "case " << i << " x " << to_string(c.x) << " y " << to_string(c.y);
      return;
    }
  }
}

TEST_P(PoolOfType, AdaptiveAndRandomWindows) {
  std::mt19937_64 rng(uint64_t(GetParam()) + 2);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + int64_t(rng() % uint64_t(high - low + 1));
  };
  for (int i = 0; i < 120; ++i) {
    Case c{};
    c.dtype = GetParam();
    c.placement = i % 3 ? PoolArgs::Placement::adaptive : PoolArgs::Placement::random;
    c.kind = i % 3 == 1 && GetParam() != kInt64 ? PoolArgs::Kind::avg : PoolArgs::Kind::max;
    const int s = c.window.spatial = int(pick(1, 3));
    c.x = {pick(1, 3), i % 5 == 0 ? pick(60, 70) : i % 5 == 1 ? 8 : pick(1, 5)};
    c.y = c.x;
    for (int d = 0; d < s; ++d) {
      const int64_t n = pick(1, 9), k = c.window.kernel[d] = pick(1, std::min<int64_t>(n, 3));
      c.x.push_back(n);
      c.y.push_back(c.placement == PoolArgs::Placement::adaptive ? pick(1, 9) : pick(1, n - k + 1));
    }
    if (c.placement == PoolArgs::Placement::random)
      for (int64_t n = c.x[0] * c.x[1] * s; n > 0; --n)
        c.samples.push_back(double(rng() % 4096) / 4096 * (i % 7 ? 1 : 3) - (i % 7 ? 0 : 1));
    c.channels_last = pick(0, 1), c.gap = pick(0, 2) ? 0 : pick(-2, 3);
    run_case(c, rng);
    if (HasFatalFailure() || HasFailure()) {
      ADD_FAILURE() << "case " << i << " x " << to_string(c.x) << " y " << to_string(c.y);
      return;
    }
  }
}

// Few windows of hundreds of elements, of every placement.
TEST_P(PoolOfType, LargeWindows) {
  std::mt19937_64 rng(uint64_t(GetParam()) + 4);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + int64_t(rng() % uint64_t(high - low + 1));
  };
  using Placement = PoolArgs::Placement;
  for (int i = 0; i < 24; ++i) {
    Case c{};
    c.dtype = GetParam();
    c.placement = std::array{Placement::adaptive, Placement::strided, Placement::random}[i % 3];
    c.kind =
        i % 2 && i % 3 != 2 && GetParam() != kInt64 ? PoolArgs::Kind::avg : PoolArgs::Kind::max;
    const int s = c.window.spatial = int(pick(1, 3));
    c.x = {pick(1, 2), std::array<int64_t, 3>{1, 3, 8}[rng() % 3]};
    c.y = c.x;
    for (int d = 0; d < s; ++d) {
      const int64_t n = s == 1 ? pick(600, 1300) : s == 2 ? pick(30, 60) : pick(9, 14);
      const int64_t k = c.window.kernel[d] = n - pick(0, n / 2);
      c.window.dilation[d] = 1;
      const int64_t step = c.window.stride[d] = pick(1, k),
                    p = c.window.padding[d] = pick(0, 1) ? pick(0, k / 2) : 0;
      c.x.push_back(n);
      c.y.push_back(c.placement == Placement::adaptive  ? pick(1, 3)
                    : c.placement == Placement::strided ? (n + 2 * p - k) / step + 1
                                                        : pick(1, std::min<int64_t>(n - k + 1, 4)));
    }
    if (c.placement == Placement::random)
      for (int64_t n = c.x[0] * c.x[1] * s; n > 0; --n)
        c.samples.push_back(double(rng() % 4096) / 4096);
    c.channels_last = pick(0, 1), c.gap = pick(0, 2) ? 0 : pick(-2, 3);
    c.count_include_pad = pick(0, 1);
    run_case(c, rng);
    if (HasFatalFailure() || HasFailure()) {
      ADD_FAILURE() << "case " << i << " x " << to_string(c.x) << " y " << to_string(c.y);
      return;
    }
  }
}

// Of equal maxima the first is found, and of NaNs the first, by whichever thread they are met.
TEST(Pool, LargeWindowsFindTheFirst) {
  for (const int64_t width : {40, 700}) {
    const int64_t n = 3 * width;
    StridedBuffer x(kFloat32, {1, 1, 3, width}), y(kFloat32, {1, 1, 1, 1}),
        index(kInt64, y.sizes());
    PoolArgs p{};
    p.kind = PoolArgs::Kind::max, p.placement = PoolArgs::Placement::adaptive;
    p.window.spatial = 2, p.window.kernel = p.window.stride = {1, 1, 1};
    p.x = x.view(), p.y = y.view(), p.indices = index.view();
    const auto found = [&](double rest, double v, std::initializer_list<int64_t> where) {
      std::vector<double> values(size_t(n), rest);
      for (int64_t i : where) values[size_t(i)] = v;
      x.set(values);
      backend_under_test().pool(p);
      return int64_t(index.values()[0]);
    };
    EXPECT_EQ(found(-INFINITY, -INFINITY, {}), 0);
    EXPECT_EQ(found(-INFINITY, -1, {n - 1}), n - 1);
    EXPECT_EQ(found(0, 1, {n - 2, width + 7, 2 * width + 1}), width + 7);
    EXPECT_EQ(found(INFINITY, NAN, {n - 2, width + 7, 2 * width + 1}), width + 7);
    EXPECT_EQ(found(NAN, 1, {0, 1}), 2);
  }
}

// So many windows of short rows that GPUs have teams of few threads for them; the last block has
// fewer windows than others. 16 bytes of channels at a time, too. Others have enough with two
// images.
TEST(Pool, ManyLargeWindowsOfShortRows) {
  std::mt19937_64 rng(11);
  const bool many =
      !test::test_device().is_cpu() && !test::too_large_for_reference(33 * 513 * 9 * 9);
  const int64_t images = many ? 33 : 2;
  for (const DType dtype : {kFloat32, kFloat64})
    for (const PoolArgs::Kind kind : {PoolArgs::Kind::max, PoolArgs::Kind::avg})
      for (const auto& [channels, last] : {std::pair{int64_t(513), false},
                                           {int64_t(513), true},
                                           {int64_t(8000 / size_of(dtype)), true}}) {
        SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(channels));
        Case c{};
        c.kind = kind, c.dtype = dtype, c.channels_last = last, c.few_values = true;
        c.placement = PoolArgs::Placement::adaptive;
        c.window.spatial = 2, c.window.kernel = c.window.stride = {1, 1, 1};
        c.x = {images, channels, 9, 9}, c.y = {images, channels, 1, 1};
        run_case(c, rng);
        if (HasFatalFailure()) return;
      }
}

TEST_P(PoolOfType, TwoByTwoWindows) {
  std::mt19937_64 rng(9);
  for (auto [h, w] : {std::array<int64_t, 2>{28, 28}, {7, 9}, {2, 300}})
    for (bool last : {false, true}) {
      Case c{};
      c.kind = PoolArgs::Kind::max, c.dtype = GetParam(), c.channels_last = last;
      c.x = {3, 5, h, w}, c.y = {3, 5, h / 2, w / 2};
      c.window.kernel = c.window.stride = {2, 2, 1};
      for (int i = 0; i < 4; ++i) run_case(c, rng);
    }
}

// Padding may be half of a dilated window, which then may miss the input altogether.
TEST(Pool, WindowsThatMissTheInput) {
  for (const int64_t rows : {1, 3}) {
    StridedBuffer x(kFloat32, {1, 1, rows, 4}), gradient(kFloat32, {1, 1, rows, 4}),
        y(kFloat32, {1, 1, rows, 1}), index(kInt64, y.sizes());
    std::mt19937_64 rng(3);
    x.randomize(rng), gradient.randomize(rng);
    PoolArgs p{};
    p.kind = PoolArgs::Kind::max;
    p.window.spatial = 2;
    p.window.kernel = {1, 2, 1}, p.window.stride = {1, 3, 1};
    p.window.padding = {0, 5, 0}, p.window.dilation = {1, 10, 1};  // elements -5 and 5
    p.x = x.view(), p.y = y.view(), p.indices = index.view();
    backend_under_test().pool(p);
    for (double v : y.values()) EXPECT_EQ(v, -double(INFINITY));
    for (const StridedBuffer* b : {&x, &y, &index}) b->expect_guards_intact();
    if (!arete::test::test_device().is_cpu()) continue;  // elsewhere such positions are never met
    for (double i : index.values()) EXPECT_TRUE(i >= 0 && i < double(4 * rows)) << i;
    y.randomize(rng);
    p.backward = true, p.x = gradient.view();
    backend_under_test().pool(p);
    for (const StridedBuffer* b : {&gradient, &y, &index}) b->expect_guards_intact();
  }
}

TEST(Pool, RandomWindowsStayInside) {
  for (double u : {double(NAN), double(INFINITY), -double(INFINITY), 1e30, -1e30, -1e9, 3e9}) {
    StridedBuffer x(kFloat32, {1, 1, 6, 7}), y(kFloat32, {1, 1, 3, 4}), index(kInt64, y.sizes()),
        samples(kFloat32, {1, 1, 2});
    std::mt19937_64 rng(3);
    x.randomize(rng), samples.set({u, u});
    PoolArgs p{};
    p.kind = PoolArgs::Kind::max, p.placement = PoolArgs::Placement::random;
    p.window.kernel = {2, 3, 1};
    p.x = x.view(), p.y = y.view(), p.indices = index.view(), p.samples = samples.view();
    backend_under_test().pool(p);
    const std::vector<double> all = x.values(), got = y.values(), where = index.values();
    for (size_t i = 0; i < where.size(); ++i) {
      ASSERT_TRUE(where[i] >= 0 && where[i] < double(all.size())) << u;
      EXPECT_EQ(got[i], all[size_t(where[i])]);
    }
    for (const StridedBuffer* b : {&x, &y, &index, &samples}) b->expect_guards_intact();
  }
}

TEST(Pool, EveryInstructionSetGivesTheSame) {
  ARETE_CPU_ONLY();
  std::vector<void (*)(const PoolArgs&)> versions{cpu::base::pool};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    versions.push_back(cpu::avx2::pool);
#endif
  std::mt19937_64 rng(13);
  for (bool last : {false, true})
    for (int64_t kernel : {2, 3})
      for (DType t : {kFloat32, kFloat64, kBFloat16})
        for (PoolArgs::Kind kind : {PoolArgs::Kind::max, PoolArgs::Kind::avg}) {
          const std::vector<int> order =
              last ? std::vector<int>{0, 2, 3, 1} : std::vector<int>{0, 1, 2, 3};
          StridedBuffer x(t, {2, 5, 28, 31}, order);
          x.randomize(rng);
          PoolArgs p{};
          p.kind = kind, p.x = x.view();
          p.window.kernel = {kernel, kernel, 1}, p.window.stride = {2, 2, 1};
          StridedBuffer want(t, {2, 5, kernel == 2 ? 14 : 13, 15}, order),
              where(kInt64, want.sizes(), order);
          p.y = want.view(), p.indices = where.view();
          backend_under_test().pool(p);
          for (const auto version : versions) {
            StridedBuffer got(t, want.sizes(), order), index(kInt64, want.sizes(), order);
            p.y = got.view(), p.indices = index.view();
            version(p);
            if (kind == PoolArgs::Kind::max) {
              EXPECT_EQ(got.values(), want.values());
              EXPECT_EQ(index.values(), where.values());
            } else {
              const std::vector<double> a = got.values(), b = want.values();
              for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance(t, 9, 1));
            }
            got.expect_guards_intact();
          }
        }
}

INSTANTIATE_TEST_SUITE_P(Types, PoolOfType,
                         ::testing::Values(kFloat32, kFloat64, kFloat16, kBFloat16, kInt64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace arete
