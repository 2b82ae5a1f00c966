#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "arete/backend/cpu/onednn.h"
#include "tests/prim/strided_buffer.h"
#include "tests/support/concurrently.h"
#include "tests/support/test_device.h"
#include "tests/support/tolerance.h"

namespace arete {
namespace {

using test::backend_under_test;

using prim::ConvArgs;
using test::StridedBuffer;
using test::tolerance;

struct Case {
  DType dtype;
  int64_t batch, in_per_group, out_per_group, groups;
  std::vector<int64_t> size;  // of the input, per spatial dimension
  prim::Window window;
  bool bias = true;
  bool x_last = false, w_last = false, y_last = false;  // channels last
  int64_t x_gap = 0, w_gap = 0, y_gap = 0;
};

std::string describe(const Case& c) {
  std::string s(name_of(c.dtype));
  for (int64_t v : {c.batch, c.in_per_group, c.out_per_group, c.groups})
    s += " " + std::to_string(v);
  for (int d = 0; d < c.window.spatial; ++d) {
    s += " | " + std::to_string(c.size[size_t(d)]);
    for (int64_t v :
         {c.window.kernel[d], c.window.stride[d], c.window.padding[d], c.window.dilation[d]})
      s += " " + std::to_string(v);
  }
  for (bool b : {c.bias, c.x_last, c.w_last, c.y_last}) s += b ? " 1" : " 0";
  for (int64_t v : {c.x_gap, c.w_gap, c.y_gap}) s += " " + std::to_string(v);
  return s;
}

// Values and the sums of absolute terms, which scale the tolerance.
struct Sums {
  std::vector<double> value, magnitude;
  explicit Sums(int64_t n) : value(size_t(n), 0.0), magnitude(size_t(n), 0.0) {}
  void add(int64_t i, double v) { value[size_t(i)] += v, magnitude[size_t(i)] += std::abs(v); }
};

void expect_close(const StridedBuffer& got, const Sums& want, int64_t length,
                  const std::string& what) {
  const std::vector<double> v = got.values();
  ASSERT_EQ(v.size(), want.value.size());
  for (size_t i = 0; i < v.size(); ++i) {
    const double bound = tolerance(got.dtype(), length, want.magnitude[i]);
    if (!(std::abs(v[i] - want.value[i]) <= bound)) {
      ADD_FAILURE() << what << ": element " << i << " is " << v[i] << ", expected " << want.value[i]
                    << " within " << bound;
      return;
    }
  }
  got.expect_guards_intact();
}

void run_case(const Case& c, std::mt19937_64& rng) {
  const int s = c.window.spatial;
  Shape xs{c.batch, c.in_per_group * c.groups}, ws{c.out_per_group * c.groups, c.in_per_group},
      ys{c.batch, c.out_per_group * c.groups};
  int64_t in_plane = 1, taps = 1, out_plane = 1;
  for (int d = 0; d < s; ++d) {
    const auto& w = c.window;
    const int64_t out =
        (c.size[size_t(d)] + 2 * w.padding[d] - w.dilation[d] * (w.kernel[d] - 1) - 1) /
            w.stride[d] +
        1;
    xs.push_back(c.size[size_t(d)]), ws.push_back(w.kernel[d]), ys.push_back(out);
    in_plane *= c.size[size_t(d)], taps *= w.kernel[d], out_plane *= out;
  }
  const auto order = [&](bool last) {
    std::vector<int> o(size_t(s) + 2);
    std::iota(o.begin(), o.end(), 0);
    if (last) std::rotate(o.begin() + 1, o.begin() + 2, o.end());
    return o;
  };
  StridedBuffer x(c.dtype, xs, order(c.x_last), c.x_gap), gx(c.dtype, xs, order(c.x_last), c.x_gap);
  StridedBuffer w(c.dtype, ws, order(c.w_last), c.w_gap), gw(c.dtype, ws, order(c.w_last), c.w_gap);
  StridedBuffer y(c.dtype, ys, order(c.y_last), c.y_gap), gy(c.dtype, ys, order(c.y_last), c.y_gap);
  StridedBuffer bias(c.dtype, {ws[0]}), gbias(c.dtype, {ws[0]}, {}, c.w_gap);
  for (StridedBuffer* b : {&x, &w, &gy, &bias}) b->randomize(rng);
  const std::vector<double> vx = x.values(), vw = w.values(), vgy = gy.values(), vb = bias.values();

  Sums want_y(y.numel()), want_gx(x.numel()), want_gw(w.numel()), want_gb(ws[0]);
  for (int64_t n = 0; n < c.batch; ++n)
    for (int64_t co = 0; co < ws[0]; ++co)
      for (int64_t o = 0; o < out_plane; ++o) {
        const int64_t iy = (n * ws[0] + co) * out_plane + o;
        if (c.bias) want_y.add(iy, vb[size_t(co)]);
        want_gb.add(co, vgy[size_t(iy)]);
        for (int64_t t = 0; t < taps; ++t) {
          int64_t rest_o = o, rest_t = t, position = 0, step = 1;
          bool inside = true;
          for (int d = s - 1; d >= 0; --d) {
            const int64_t i = rest_o % ys[size_t(d) + 2] * c.window.stride[d] -
                              c.window.padding[d] +
                              rest_t % c.window.kernel[d] * c.window.dilation[d];
            rest_o /= ys[size_t(d) + 2], rest_t /= c.window.kernel[d];
            inside = inside && i >= 0 && i < xs[size_t(d) + 2];
            position += i * step, step *= xs[size_t(d) + 2];
          }
          if (!inside) continue;
          for (int64_t ci = 0; ci < c.in_per_group; ++ci) {
            const int64_t ix =
                (n * xs[1] + co / c.out_per_group * c.in_per_group + ci) * in_plane + position;
            const int64_t iw = (co * c.in_per_group + ci) * taps + t;
            want_y.add(iy, vx[size_t(ix)] * vw[size_t(iw)]);
            want_gx.add(ix, vgy[size_t(iy)] * vw[size_t(iw)]);
            want_gw.add(iw, vgy[size_t(iy)] * vx[size_t(ix)]);
          }
        }
      }

  ConvArgs a{};
  a.window = c.window, a.groups = c.groups;
  auto& backend = backend_under_test();
  a.pass = ConvArgs::Pass::forward;
  a.x = x.view(), a.w = w.view(), a.y = y.view();
  if (c.bias) a.bias = bias.view();
  backend.conv(a);
  expect_close(y, want_y, c.in_per_group * taps + 1, describe(c) + " forward");
  a.pass = ConvArgs::Pass::dgrad;
  a.x = gx.view(), a.y = gy.view(), a.bias = {};
  backend.conv(a);
  expect_close(gx, want_gx, c.out_per_group * taps, describe(c) + " dgrad");
  a.pass = ConvArgs::Pass::wgrad;
  a.x = x.view(), a.w = gw.view();
  if (c.bias) a.bias = gbias.view();
  backend.conv(a);
  expect_close(gw, want_gw, c.batch * out_plane, describe(c) + " wgrad");
  if (c.bias) expect_close(gbias, want_gb, c.batch * out_plane, describe(c) + " bias gradient");
}

class ConvOfType : public ::testing::TestWithParam<DType> {};

TEST_P(ConvOfType, RandomShapesWindowsAndLayouts) {
  std::mt19937_64 rng(uint64_t(GetParam()) + 21);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + int64_t(rng() % uint64_t(high - low + 1));
  };
  for (int i = 0; i < 60; ++i) {
    Case c{};
    c.dtype = GetParam();
    const int s = c.window.spatial = int(pick(1, 3));
    c.batch = pick(1, 3), c.groups = pick(0, 2) ? 1 : pick(2, 3);
    c.in_per_group = pick(1, 5), c.out_per_group = pick(1, 5);
    if (i % 8 == 0) c.in_per_group = pick(15, 17), c.out_per_group = pick(15, 33);
    if (i % 9 == 0) c.groups = 16, c.in_per_group = c.out_per_group = 1;  // depthwise
    for (int d = 0; d < s; ++d) {
      c.window.kernel[d] = pick(1, 3), c.window.stride[d] = pick(1, 3);
      c.window.dilation[d] = pick(0, 2) ? 1 : 2, c.window.padding[d] = pick(0, 2);
      c.size.push_back(c.window.dilation[d] * (c.window.kernel[d] - 1) + 1 +
                       pick(0, s == 3 ? 3 : 8));
    }
    c.bias = pick(0, 1);
    const int64_t layout = pick(0, 3);  // both alike, or mixed
    c.x_last = layout & 1, c.y_last = layout == 3 ? !c.x_last : c.x_last, c.w_last = pick(0, 1);
    const auto gap = [&] { return pick(0, 3) ? 0 : pick(-2, 3); };
    c.x_gap = gap(), c.w_gap = gap(), c.y_gap = gap();
    run_case(c, rng);
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Types, ConvOfType,
                         ::testing::Values(kFloat32, kBFloat16, kFloat64, kFloat16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

Case network_case(int64_t batch, int64_t in, int64_t size, int64_t out) {
  Case c{};
  c.dtype = kFloat32, c.batch = batch, c.in_per_group = in, c.out_per_group = out, c.groups = 1;
  c.size = {size, size};
  c.window.kernel = {3, 3, 1}, c.window.padding = {1, 1, 0};
  return c;
}

TEST(Conv, LayersOfASmallNetwork) {
  std::mt19937_64 rng(31);
  for (bool last : {false, true})
    for (Case c :
         {network_case(5, 1, 28, 32), network_case(3, 32, 14, 64), network_case(2, 3, 33, 20)}) {
      c.x_last = c.y_last = last;
      run_case(c, rng);
    }
}

TEST(Conv, PlansAreReused) {
  ARETE_CPU_ONLY();
  std::mt19937_64 rng(32);
  const Case c = network_case(2, 7, 11, 9);
  run_case(c, rng);
  const auto before = cpu::onednn::conv_plan_statistics();
  run_case(c, rng);
  const auto after = cpu::onednn::conv_plan_statistics();
  EXPECT_GE(after.hits, before.hits + 3);
  EXPECT_EQ(after.misses, before.misses);
  EXPECT_LE(after.size, after.capacity);
}

TEST(Conv, SeveralThreadsAndRegionsAtOnce) {
  test::concurrently([](uint64_t seed) {
    std::mt19937_64 rng(seed);
    run_case(network_case(2, 1, 12, 16), rng);
    run_case(network_case(4, 16, 9, 32), rng);
  });
}

// Few channels per group and large planes: some devices have kernels of their own for these.
TEST(Conv, ThinOnesOfLargePlanes) {
  std::mt19937_64 rng(33);
  const auto run = [&](DType dtype, std::array<int64_t, 4> counts, std::vector<int64_t> size,
                       prim::Window window) {
    if (test::too_large_for_reference(numel_of(counts) * numel_of(size) * numel_of(window.kernel)))
      return;
    Case c{};
    c.dtype = dtype, c.batch = counts[0], c.in_per_group = counts[1];
    c.out_per_group = counts[2], c.groups = counts[3];
    c.size = std::move(size), c.window = window;
    c.bias = counts[0] > 1;
    run_case(c, rng);
  };
  for (DType t : {kFloat32, kFloat16, kBFloat16, kFloat64}) {
    run(t, {1, 1, 1, 1}, {257, 256}, {2, {5, 5, 1}, {1, 1, 1}, {2, 2, 0}, {1, 1, 1}});
    run(t, {2, 1, 1, 12}, {57, 55}, {2, {3, 3, 1}, {1, 1, 1}, {1, 1, 0}, {1, 1, 1}});
    run(t, {3, 1, 1, 7}, {3301}, {1, {5, 1, 1}, {1, 1, 1}, {2, 0, 0}, {1, 1, 1}});
    run(t, {2, 1, 1, 12}, {57, 55}, {2, {3, 3, 1}, {2, 2, 1}, {1, 1, 0}, {1, 1, 1}});
    run(t, {2, 1, 1, 12}, {56, 64}, {2, {5, 5, 1}, {2, 1, 1}, {2, 2, 0}, {1, 2, 1}});
    run(t, {3, 1, 1, 7}, {3301}, {1, {4, 1, 1}, {2, 1, 1}, {1, 0, 0}, {1, 1, 1}});
  }
  run(kFloat32, {1, 1, 1, 1}, {70001}, {1, {11, 1, 1}, {1, 1, 1}, {0, 0, 0}, {2, 1, 1}});
  run(kFloat32, {2, 3, 4, 1}, {92, 100}, {2, {4, 3, 1}, {1, 1, 1}, {1, 0, 0}, {1, 2, 1}});
  run(kFloat32, {1, 1, 2, 40}, {61, 64}, {2, {7, 7, 1}, {2, 2, 1}, {3, 3, 0}, {1, 1, 1}});
  run(kFloat32, {400, 1, 1, 4}, {7, 7}, {2, {3, 3, 1}, {1, 1, 1}, {4, 1, 0}, {2, 1, 1}});
  // More channels, in groups.
  for (DType t : {kFloat32, kFloat64}) {
    run(t, {2, 16, 16, 3}, {23, 40}, {2, {3, 3, 1}, {1, 1, 1}, {1, 1, 0}, {1, 1, 1}});
    run(t, {3, 7, 11, 3}, {28, 61}, {2, {3, 9, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}});
    run(t, {2, 33, 11, 2}, {45, 57}, {2, {3, 3, 1}, {1, 1, 1}, {1, 1, 0}, {1, 1, 1}});
    run(t, {9, 13, 5, 4}, {41, 43}, {2, {3, 2, 1}, {2, 2, 1}, {1, 1, 0}, {2, 1, 1}});
    run(t, {2, 9, 6, 8}, {1501}, {1, {7, 1, 1}, {1, 1, 1}, {3, 0, 0}, {1, 1, 1}});
  }
  // Volumes that are images.
  run(kFloat32, {2, 3, 3, 3}, {61, 1, 64}, {3, {3, 1, 9}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}});
  run(kFloat32, {2, 1, 2, 12}, {1, 57, 55}, {3, {1, 3, 5}, {3, 1, 2}, {0, 1, 2}, {1, 1, 1}});
  run(kFloat32, {2, 12, 9, 2}, {20, 30, 1}, {3, {3, 5, 1}, {2, 1, 1}, {1, 0, 0}, {1, 2, 1}});
}

}  // namespace
}  // namespace arete
