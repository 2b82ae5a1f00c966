// The decompositions of conv, pool, fused and multi_pointwise, called as the base class has them,
// against loops over indices. (topk, take_rows and add_rows: with their primitives' tests.)
// Operands are small integers, so that sums are exact in every dtype.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "arete/base/error.h"
#include "arete/expr/value.h"
#include "arete/prim/backend.h"
#include "tests/prim/ordering_reference.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/test_device.h"
#include "tests/support/tolerance.h"

namespace arete::test {
namespace {

using expr::Value;
using prim::ConvArgs;
using prim::FusedStage;
using prim::PoolArgs;
using prim::View;
using prim::Window;

Layout some_layout(const Shape& sizes, std::mt19937_64& rng) {
  const auto layouts = dense_and_strided_layouts(sizes);
  return layouts[rng() % layouts.size()];
}

void expect_same(const GuardedBuffer& got, const GuardedBuffer& expected, const char* what) {
  ASSERT_TRUE(got.guards_intact()) << what;
  for (IndexWalk w(expected.layout().sizes); w; ++w)
    ASSERT_TRUE(same_value(got.get(*w), expected.get(*w)))
        << what << " at " << to_string(*w) << ": got " << got.get(*w) << " expected "
        << expected.get(*w);
}

// A random geometry: input space and window.
struct Geometry {
  Window window;
  Shape space, positions;
};
Geometry some_geometry(int spatial, bool pool, std::mt19937_64& rng) {
  Geometry g;
  g.window.spatial = spatial;
  for (int d = 0; d < spatial; ++d) {
    const int64_t k = 1 + int64_t(rng() % 3);
    g.window.kernel[d] = k;
    g.window.stride[d] = 1 + int64_t(rng() % 3);
    g.window.dilation[d] = 1 + int64_t(rng() % 2);
    g.window.padding[d] = pool ? int64_t(rng() % uint64_t(k / 2 + 1)) : int64_t(rng() % 3);
    const int64_t reach = (k - 1) * g.window.dilation[d] + 1;
    const int64_t n = reach + int64_t(rng() % 5);
    g.space.push_back(n);
    int64_t free = n + 2 * g.window.padding[d] - reach;
    int64_t positions = free / g.window.stride[d] + 1;
    // Rounding up, as pools may: one more window if it starts inside.
    if (pool && rng() % 2 && free % g.window.stride[d] != 0 &&
        positions * g.window.stride[d] < n + g.window.padding[d])
      ++positions;
    g.positions.push_back(positions);
  }
  return g;
}

Shape join(std::initializer_list<int64_t> first, const Shape& rest) {
  Shape s(first);
  s.append(rest.begin(), rest.end());
  return s;
}

// Calls f(input index or nothing outside, window index) for every element of a window.
template <class F>
void for_window(const Geometry& g, IntList position, F&& f) {
  for (IndexWalk k(IntList(g.window.kernel.data(), size_t(g.window.spatial))); k; ++k) {
    Shape at;
    bool inside = true, in_padding = true;
    for (int d = 0; d < g.window.spatial; ++d) {
      const int64_t i =
          position[d] * g.window.stride[d] - g.window.padding[d] + (*k)[d] * g.window.dilation[d];
      inside &= i >= 0 && i < g.space[d];
      in_padding &= i < g.space[d] + g.window.padding[d];
      at.push_back(i);
    }
    f(at, *k, inside, in_padding);
  }
}

TEST(ConvDecomposition, AllPassesGroupsAndDimensions) {
  std::mt19937_64 rng(1);
  for (DType dtype : {kFloat64, kFloat32, kBFloat16, kFloat16})
    for (int round = 0; round < 24; ++round) {
      const Geometry g = some_geometry(1 + round % 3, false, rng);
      const int64_t groups = 1 + round % 2, in = groups * int64_t(1 + rng() % 2),
                    out = groups * int64_t(1 + rng() % 3), n = int64_t(rng() % 3);
      Shape kernel(IntList(g.window.kernel.data(), size_t(g.window.spatial)));
      const Shape xs = join({n, in}, g.space), ws = join({out, in / groups}, kernel),
                  ys = join({n, out}, g.positions);
      GuardedBuffer x(dtype, some_layout(xs, rng)), w(dtype, some_layout(ws, rng)),
          y(dtype, some_layout(ys, rng)), bias(dtype, Layout(Shape{out}, Shape{2}));
      x.fill_random(rng, -1, 1);
      w.fill_random(rng, -1, 1);
      bias.fill_random(rng, -3, 3);
      GuardedBuffer want_y(kFloat64, ys), want_x(kFloat64, xs), want_w(kFloat64, ws),
          want_bias(kFloat64, Shape{out});
      const bool with_bias = round % 4 != 0;
      // f(y index, x index, w index) for every product.
      const auto for_products = [&](auto&& f) {
        for (IndexWalk i(ys); i; ++i) {
          const Shape p((*i).begin() + 2, (*i).end());
          const int64_t group = (*i)[1] / (out / groups);
          for (int64_t c = 0; c < in / groups; ++c)
            for_window(g, p, [&](const Shape& at, const Shape& k, bool inside, bool) {
              if (inside)
                f(*i, join({(*i)[0], group * (in / groups) + c}, at), join({(*i)[1], c}, k));
            });
        }
      };
      const ConvArgs args{.pass = ConvArgs::Pass::forward,
                          .x = x.view(),
                          .w = w.view(),
                          .y = y.view(),
                          .bias = with_bias ? bias.view() : View{},
                          .window = g.window,
                          .groups = groups};
      backend_under_test().Primitives::conv(args);
      if (with_bias) want_y.fill([&](IntList i) { return bias.get(Shape{i[1]}); });
      for_products([&](const Shape& i, const Shape& j, const Shape& k) {
        want_y.set(i, want_y.get(i) + x.get(j) * w.get(k));
      });
      expect_same(y, want_y, "forward");

      y.fill_random(rng, -1, 1);
      x.fill_random(rng, -9, 9);  // to be overwritten
      ConvArgs dgrad = args;
      dgrad.pass = ConvArgs::Pass::dgrad;
      dgrad.bias = View{};
      backend_under_test().Primitives::conv(dgrad);
      for_products([&](const Shape& i, const Shape& j, const Shape& k) {
        want_x.set(j, want_x.get(j) + y.get(i) * w.get(k));
      });
      expect_same(x, want_x, "dgrad");

      x.fill_random(rng, -1, 1);
      w.fill_random(rng, -9, 9);
      ConvArgs wgrad = args;
      wgrad.pass = ConvArgs::Pass::wgrad;
      backend_under_test().Primitives::conv(wgrad);
      for_products([&](const Shape& i, const Shape& j, const Shape& k) {
        want_w.set(k, want_w.get(k) + y.get(i) * x.get(j));
      });
      expect_same(w, want_w, "wgrad");
      if (with_bias) {
        for (IndexWalk i(ys); i; ++i)
          want_bias.set(Shape{(*i)[1]}, want_bias.get(Shape{(*i)[1]}) + y.get(*i));
        expect_same(bias, want_bias, "bias gradient");
      }
      if (HasFatalFailure()) return;
    }
}

TEST(PoolDecomposition, MaxForwardAndBackward) {
  std::mt19937_64 rng(2);
  for (DType dtype : {kFloat64, kFloat32, kFloat16, kInt32, kUInt8})
    for (int round = 0; round < 24; ++round) {
      const Geometry g = some_geometry(1 + round % 3, true, rng);
      const Shape xs = join({2, 3}, g.space), ys = join({2, 3}, g.positions);
      GuardedBuffer x(dtype, some_layout(xs, rng)), y(dtype, some_layout(ys, rng)),
          indices(kInt64, some_layout(ys, rng));
      x.fill_random(rng, -20, 20);
      if (is_floating(dtype))
        for (IndexWalk i(xs); i; ++i)
          if (rng() % 4 == 0) x.set(*i, rng() % 8 ? -INFINITY : std::nan(""));
      PoolArgs args{.kind = PoolArgs::Kind::max,
                    .x = x.view(),
                    .y = y.view(),
                    .indices = indices.view(),
                    .window = g.window};
      backend_under_test().Primitives::pool(args);
      GuardedBuffer want(dtype, ys), want_indices(kInt64, ys);
      for (IndexWalk i(ys); i; ++i) {
        double best = 0;
        int64_t best_at = -1;
        for_window(g, IntList((*i).begin() + 2, size_t(g.window.spatial)),
                   [&](const Shape& at, const Shape&, bool inside, bool) {
                     if (!inside || (best_at >= 0 && std::isnan(best))) return;
                     int64_t flat = 0;
                     for (int d = 0; d < g.window.spatial; ++d) flat = flat * g.space[d] + at[d];
                     const double v = x.get(join({(*i)[0], (*i)[1]}, at));
                     if (best_at >= 0 && !(v > best || std::isnan(v))) return;
                     best = v;
                     best_at = flat;
                   });
        want.set(*i, best);
        want_indices.set_at<int64_t>(*i, best_at);
      }
      expect_same(y, want, "max");
      expect_same(indices, want_indices, "positions");
      if (!is_floating(dtype)) continue;

      y.fill_random(rng, -3, 3);
      x.fill_random(rng, -9, 9);
      args.backward = true;
      backend_under_test().Primitives::pool(args);
      GuardedBuffer want_x(kFloat64, xs);
      for (IndexWalk i(ys); i; ++i) {
        int64_t flat = indices.at<int64_t>(*i);
        Shape at(size_t(g.window.spatial));
        for (int d = g.window.spatial - 1; d >= 0; --d) {
          at[d] = flat % g.space[d];
          flat /= g.space[d];
        }
        const Shape to = join({(*i)[0], (*i)[1]}, at);
        want_x.set(to, want_x.get(to) + y.get(*i));
      }
      expect_same(x, want_x, "max backward");
      if (HasFatalFailure()) return;
    }
}

TEST(PoolDecomposition, AvgForwardAndBackward) {
  std::mt19937_64 rng(3);
  for (DType dtype : {kFloat64, kFloat32, kFloat16, kBFloat16})
    for (int round = 0; round < 36; ++round) {
      Geometry g = some_geometry(1 + round % 3, true, rng);
      const Shape xs = join({2, 3}, g.space), ys = join({2, 3}, g.positions);
      GuardedBuffer x(dtype, some_layout(xs, rng)), y(dtype, some_layout(ys, rng));
      x.fill_random(rng, -8, 8);
      const bool include = rng() % 2;
      const int64_t divisor = rng() % 3 == 0 ? 7 : 0;
      PoolArgs args{.kind = PoolArgs::Kind::avg,
                    .x = x.view(),
                    .y = y.view(),
                    .indices = View{},
                    .window = g.window,
                    .count_include_pad = include,
                    .divisor = divisor};
      backend_under_test().Primitives::pool(args);
      const auto count = [&](IntList position) {
        int64_t c = 0;
        for_window(g, position, [&](const Shape&, const Shape&, bool inside, bool in_padding) {
          c += include ? in_padding : inside;
        });
        return divisor ? divisor : c;
      };
      const auto position = [&](const Shape& i) {
        return IntList(i.begin() + 2, size_t(g.window.spatial));
      };
      GuardedBuffer want(dtype, ys);
      for (IndexWalk i(ys); i; ++i) {
        double sum = 0;
        for_window(g, position(*i), [&](const Shape& at, const Shape&, bool inside, bool) {
          if (inside) sum += x.get(join({(*i)[0], (*i)[1]}, at));
        });
        want.set(*i, sum / double(count(position(*i))));
      }
      expect_same(y, want, "avg");  // one division, correctly rounded

      y.fill_random(rng, -8, 8);
      x.fill_random(rng, -9, 9);
      args.backward = true;
      backend_under_test().Primitives::pool(args);
      ASSERT_TRUE(x.guards_intact());
      GuardedBuffer want_x(kFloat64, xs);
      for (IndexWalk i(ys); i; ++i)
        for_window(g, position(*i), [&](const Shape& at, const Shape&, bool inside, bool) {
          if (!inside) return;
          const Shape to = join({(*i)[0], (*i)[1]}, at);
          want_x.set(to, want_x.get(to) + y.get(*i) / double(count(position(*i))));
        });
      for (IndexWalk i(xs); i; ++i)
        ASSERT_NEAR(x.get(*i), want_x.get(*i), tolerance(dtype, 27, 8)) << name_of(dtype);
      if (HasFatalFailure()) return;
    }
}

// max, sum of (x - max) and of 1, then both kinds of store.
TEST(FusedDecomposition, StagesInOrder) {
  std::mt19937_64 rng(4);
  for (DType dtype : {kFloat64, kFloat32, kFloat16})
    for (int outer_rank : {0, 1, 2})
      for (const Shape& space : {Shape{3, 4}, Shape{2, 3, 5}, Shape{1, 6, 1}}) {
        const int rank = int(space.size());
        Shape row = space;
        for (int d = outer_rank; d < rank; ++d) row[d] = 1;
        const DType row_dtype = dtype == kFloat64 ? kFloat64 : kFloat32;
        const expr::Type number = expr::compute_type(dtype);
        const auto program = [&](auto&& f, std::vector<DType> in, std::vector<expr::Type> params,
                                 std::vector<DType> out) {
          return expr::trace([&](std::span<const Value> v) { return f(v); }, in, params, out);
        };
        using Values = std::span<const Value>;
        using Result = std::vector<Value>;
        prim::FusedSpec spec;
        spec.n_inputs = 1;
        spec.n_outputs = 2;
        spec.stages = {
            {.kind = FusedStage::Kind::reduce,
             .program = program([](Values v) { return Result{v[0]}; }, {dtype}, {}, {row_dtype}),
             .inputs = {0},
             .monoid = prim::Monoid::max},
            // Two row values of one stage; the parameter is added.
            {.kind = FusedStage::Kind::reduce,
             .program = program(
                 [](Values v) {
                   return Result{v[0] - v[1] + v[2], v[0] * 0.0 + 1.0};
                 },
                 {dtype, row_dtype}, {number}, {row_dtype, row_dtype}),
             .inputs = {0, ~0},
             .monoid = prim::Monoid::sum},
            {.kind = FusedStage::Kind::row,
             .program = program([](Values v) { return Result{v[0] + v[1]}; },
                                {row_dtype, row_dtype}, {}, {row_dtype}),
             .inputs = {~1, ~2}},
            {.kind = FusedStage::Kind::store,
             .program = program([](Values v) { return Result{v[0] + v[1]}; }, {dtype, row_dtype},
                                {}, {dtype}),
             .inputs = {0, ~3},
             .first_output = 0},
            {.kind = FusedStage::Kind::store_row,
             .program = program([](Values v) { return Result{v[0]}; }, {row_dtype}, {}, {dtype}),
             .inputs = {~3},
             .first_output = 1}};
        GuardedBuffer x(dtype, some_layout(space, rng)), y(dtype, some_layout(space, rng)),
            r(dtype, some_layout(row, rng));
        x.fill_random(rng, -4, 4);
        const View inputs[1] = {x.view()};
        const View outputs[2] = {y.view(), r.view()};
        expr::Literal param;
        param.f = 2;
        backend_under_test().Primitives::fused({.spec = &spec,
                                                .space = space,
                                                .outer_rank = outer_rank,
                                                .inputs = inputs,
                                                .outputs = outputs,
                                                .params = {&param, 1}});
        GuardedBuffer maximum(kFloat64, row), want_r(kFloat64, row), want(kFloat64, space);
        const auto row_of = [&](Shape i) {
          for (int d = outer_rank; d < rank; ++d) i[d] = 0;
          return i;
        };
        maximum.fill([](IntList) { return -100.0; });
        for (IndexWalk i(space); i; ++i)
          maximum.set(row_of(*i), std::max(maximum.get(row_of(*i)), x.get(*i)));
        for (IndexWalk i(space); i; ++i)
          want_r.set(row_of(*i),
                     want_r.get(row_of(*i)) + x.get(*i) - maximum.get(row_of(*i)) + 2 + 1);
        for (IndexWalk i(space); i; ++i) want.set(*i, x.get(*i) + want_r.get(row_of(*i)));
        expect_same(r, want_r, "row output");
        expect_same(y, want, "elements");
      }
}

TEST(MultiPointwiseDecomposition, EveryTensorOfTheLists) {
  std::mt19937_64 rng(5);
  const DType in[2] = {kFloat32, kFloat32}, out[1] = {kFloat32};
  const expr::Type params[1] = {expr::Type::f32};
  const expr::ProgramPtr program =
      expr::trace([](std::span<const Value> v) { return std::vector<Value>{v[0] + v[1] * v[2]}; },
                  in, params, out);
  std::vector<std::unique_ptr<GuardedBuffer>> a, b, c;
  std::vector<View> inputs, outputs;
  for (const Shape& sizes : {Shape{3}, Shape{2, 5}, Shape{0}, Shape{}}) {
    for (auto* list : {&a, &b, &c}) {
      list->push_back(std::make_unique<GuardedBuffer>(kFloat32, some_layout(sizes, rng)));
      list->back()->fill_random(rng, -5, 5);
    }
    inputs.push_back(a.back()->view());
    inputs.push_back(b.back()->view());
    outputs.push_back(c.back()->view());
  }
  expr::Literal factor;
  factor.f = 3;
  backend_under_test().Primitives::multi_pointwise({.program = program.get(),
                                                    .n_tensors = 4,
                                                    .inputs = inputs,
                                                    .outputs = outputs,
                                                    .params = {&factor, 1}});
  for (size_t t = 0; t < a.size(); ++t) {
    ASSERT_TRUE(c[t]->guards_intact());
    for (IndexWalk i(a[t]->layout().sizes); i; ++i)
      EXPECT_EQ(c[t]->get(*i), a[t]->get(*i) + 3 * b[t]->get(*i));
  }
}

TEST(Registry, NamesAndReasons) {
  EXPECT_EQ(prim::find_backend(kCPU), &prim::backend_for(kCPU));
  EXPECT_EQ(prim::unavailable_reason(DeviceType::cpu), "");
  EXPECT_EQ(prim::find_backend(kMeta), nullptr);
  try {
    prim::backend_for(kMeta);
    FAIL();
  } catch (const DeviceError& e) {
    EXPECT_NE(std::string(e.what()).find("meta"), std::string::npos);
  }
  std::set<std::string> names;
  for (int p = 0; p < prim::kNumPrimitives; ++p) names.insert(prim::name_of(prim::Primitive(p)));
  EXPECT_EQ(names.size(), size_t(prim::kNumPrimitives));
  EXPECT_STREQ(prim::name_of(prim::Primitive::gemm), "gemm");
  EXPECT_STREQ(prim::name_of(prim::Primitive::fused), "fused");
}

}  // namespace
}  // namespace arete::test
