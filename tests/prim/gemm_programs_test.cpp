// Products whose operands and result go through programs, against doubles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "arete/expr/value.h"
#include "arete/prim/backend.h"
#include "tests/prim/strided_buffer.h"
#include "tests/support/test_device.h"
#include "tests/support/tolerance.h"

namespace arete::test {
namespace {

using expr::Literal;
using expr::Type;
using expr::Value;
using prim::GemmArgs;
using prim::View;
using Values = std::span<const Value>;

struct Case {
  Shape batch;
  int64_t m, n, k;
};

const std::vector<Case> kCases{{{}, 1, 1, 1},     {{}, 1, 70, 33},  {{}, 65, 1, 130},
                               {{}, 3, 40, 300},  {{}, 200, 4, 64}, {{}, 40, 33, 20},
                               {{}, 1, 5, 5000},  {{3}, 1, 6, 40},  {{2, 2}, 5, 7, 9},
                               {{3}, 64, 32, 16}, {{}, 300, 24, 16}};

Shape with(const Shape& batch, int64_t a, int64_t b) {
  Shape s = batch;
  s.push_back(a);
  s.push_back(b);
  return s;
}

// int8 * scale[row] as a, (b - shift[column]) * factor as b, max(product + bias[column], floor)
// out.
TEST(GemmPrograms, DequantizeShiftAndClamp) {
  std::mt19937_64 rng(1);
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16})
    for (const DType out_dtype : {dtype, kFloat32})
      for (const Case& c : kCases)
        for (const bool turned : {false, true}) {
          SCOPED_TRACE(std::string(name_of(dtype)) + " " + to_string(with(c.batch, c.m, c.n)) +
                       " k " + std::to_string(c.k) + (turned ? " turned" : ""));
          std::vector<int> order;
          const int rank = int(c.batch.size()) + 2;
          for (int d = 0; d < rank; ++d) order.push_back(d);
          if (turned) std::swap(order[size_t(rank) - 1], order[size_t(rank) - 2]);
          StridedBuffer a(kInt8, with(c.batch, c.m, c.k), turned ? std::vector<int>{} : order),
              b(dtype, with(c.batch, c.k, c.n), order), out(out_dtype, with(c.batch, c.m, c.n)),
              scale(kFloat32, {c.m, 1}), shift(dtype, {c.n}), bias(dtype, {1, c.n});
          for (StridedBuffer* t : {&a, &b, &out, &scale, &shift, &bias}) t->randomize(rng);
          const auto left =
              expr::trace([](Values v) { return std::vector{expr::to_float(v[0]) * v[1]}; },
                          {{kInt8, kFloat32}}, {}, {{dtype}});
          const auto right = expr::trace([](Values v) { return std::vector{(v[0] - v[1]) * v[2]}; },
                                         {{dtype, dtype}}, {{Type::f64}}, {{dtype}});
          const auto last =
              expr::trace([](Values v) { return std::vector{max(v[0] + v[1], v[2])}; },
                          {{dtype, dtype}}, {{Type::f64}}, {{out_dtype}});
          const Literal factor{.f = 0.5}, floor{.f = -0.25};
          const View of_left[] = {scale.view()}, of_right[] = {shift.view()},
                     of_last[] = {bias.view()};
          GemmArgs g;
          g.a = a.view(), g.b = b.view(), g.out = out.view();
          g.a_program = {left.get(), of_left, {}, {}};
          g.b_program = {right.get(), of_right, {&factor, 1}, {}};
          g.result_program = {last.get(), of_last, {&floor, 1}, {}};
          backend_under_test().gemm(g);

          const auto rounded = [&](double v) {
            StridedBuffer one(dtype, {1});
            one.set({v});
            return one.get(Shape{0});
          };
          for (IndexWalk w(out.sizes()); w; ++w) {
            const Shape& at = *w;
            const int64_t i = at[at.size() - 2], j = at[at.size() - 1];
            double sum = 0, magnitude = 0;
            for (int64_t p = 0; p < c.k; ++p) {
              Shape ia = at, ib = at;
              ia[ia.size() - 1] = p;
              ib[ib.size() - 2] = p;
              // Its first program computes in f32.
              const double x = rounded(float(a.get(ia)) * float(scale.get(Shape{i, 0}))) *
                               rounded((b.get(ib) - shift.get(Shape{j})) * 0.5);
              sum += x, magnitude += std::abs(x);
            }
            const double b_j = bias.get(Shape{0, j});
            ASSERT_NEAR(out.get(at), std::max(sum + b_j, -0.25),
                        2 * tolerance(dtype, c.k, magnitude + std::abs(b_j)) +
                            tolerance(out_dtype, 1, std::abs(sum + b_j)))
                << to_string(at);
          }
          for (const StridedBuffer* t : {&a, &b, &out, &scale, &shift, &bias})
            t->expect_guards_intact();
        }
}

// Every combination of programs that are there, of one operand, two, and the result.
TEST(GemmPrograms, EachAlone) {
  std::mt19937_64 rng(2);
  const auto twice = expr::trace([](Values v) { return std::vector{v[0] + v[0]}; }, {{kFloat32}},
                                 {}, {{kFloat32}});
  const auto positive =
      expr::trace([](Values v) { return std::vector{v[0] > 0.0}; }, {{kFloat32}}, {}, {{kBool}});
  for (const Case& c : kCases)
    for (int which = 1; which < 8; ++which) {
      const DType out_dtype = which & 4 ? kBool : kFloat32;
      StridedBuffer a(kFloat32, with(c.batch, c.m, c.k)), b(kFloat32, with(c.batch, c.k, c.n)),
          out(out_dtype, with(c.batch, c.m, c.n)), plain(kFloat32, with(c.batch, c.m, c.n));
      // Whole numbers, whose products are exact in any order.
      for (StridedBuffer* t : {&a, &b})
        t->fill([&](IntList) { return double(int64_t(rng() % 7)) - 3; });
      GemmArgs g;
      g.a = a.view(), g.b = b.view(), g.out = plain.view();
      backend_under_test().gemm(g);
      g.out = out.view();
      if (which & 1) g.a_program.program = twice.get();
      if (which & 2) g.b_program.program = twice.get();
      if (which & 4) g.result_program.program = positive.get();
      backend_under_test().gemm(g);
      const double factor = (which & 1 ? 2 : 1) * (which & 2 ? 2 : 1);
      for (IndexWalk w(out.sizes()); w; ++w) {
        const double want = factor * plain.get(*w);
        ASSERT_EQ(out.get(*w), which & 4 ? double(want > 0) : want)
            << which << " at " << to_string(*w);
      }
    }
}

// Integers have products, too, and sums of nothing are 0.
TEST(GemmPrograms, IntegersAndEmptySums) {
  const auto narrow =
      expr::trace([](Values v) { return std::vector{v[0] * 3}; }, {{kInt8}}, {}, {{kInt32}});
  for (const int64_t n : {1, 9}) {
    StridedBuffer a(kInt8, {5, 4}), b(kInt32, {4, n}), out(kInt32, {5, n});
    a.fill([](IntList i) { return double(i[0] - i[1]); });
    b.fill([](IntList i) { return double(i[0] + i[1]); });
    GemmArgs g;
    g.a = a.view(), g.b = b.view(), g.out = out.view();
    g.a_program.program = narrow.get();
    backend_under_test().gemm(g);
    for (IndexWalk w(out.sizes()); w; ++w) {
      double want = 0;
      for (int64_t p = 0; p < 4; ++p) want += 3.0 * double((*w)[0] - p) * double(p + (*w)[1]);
      ASSERT_EQ(out.get(*w), want);
    }
  }
  const auto next =
      expr::trace([](Values v) { return std::vector{v[0] + 1.0}; }, {{kFloat32}}, {}, {{kFloat32}});
  for (const int64_t n : {1, 9}) {
    StridedBuffer a(kFloat32, {5, 0}), b(kFloat32, {0, n}), out(kFloat32, {5, n});
    GemmArgs g;
    g.a = a.view(), g.b = b.view(), g.out = out.view();
    g.result_program.program = next.get();
    backend_under_test().gemm(g);
    for (IndexWalk w(out.sizes()); w; ++w) ASSERT_EQ(out.get(*w), 1.0);
  }
}

// The numbers of all three programs may be in memory: the same bits as with numbers in the call.
TEST(GemmPrograms, NumbersInMemory) {
  std::mt19937_64 rng(3);
  const auto scaled = expr::trace([](Values v) { return std::vector{v[0] * v[1] + v[2]}; },
                                  {{kFloat32}}, {{Type::f32, Type::f32}}, {{kFloat32}});
  for (const Case& c : kCases) {
    StridedBuffer a(kFloat32, with(c.batch, c.m, c.k)), b(kFloat32, with(c.batch, c.k, c.n)),
        out(kFloat32, with(c.batch, c.m, c.n)), same(kFloat32, with(c.batch, c.m, c.n));
    StridedBuffer numbers(kFloat64, {6});
    for (StridedBuffer* t : {&a, &b, &numbers}) t->randomize(rng);
    std::vector<Literal> params;
    std::vector<StridedBuffer> memory;
    for (int64_t i = 0; i < 6; ++i) {
      params.push_back({.f = numbers.get(Shape{i})});
      memory.emplace_back(kFloat64, Shape{}).set({numbers.get(Shape{i})});
    }
    std::vector<prim::Slot> slots;
    for (int i = 0; i < 6; ++i) slots.push_back({i % 2, memory[size_t(i)].view()});
    const auto call = [&](const View& to, bool in_memory) {
      GemmArgs g;
      g.a = a.view(), g.b = b.view(), g.out = to;
      prim::ElementProgram* const parts[] = {&g.a_program, &g.b_program, &g.result_program};
      const std::vector<Literal> none(2);
      for (size_t p = 0; p < 3; ++p) {
        *parts[p] = {scaled.get(), {}, {params.data() + 2 * p, 2}, {}};
        if (in_memory) parts[p]->params = none, parts[p]->slots = {slots.data() + 2 * p, 2};
      }
      backend_under_test().gemm(g);
    };
    call(out.view(), false);
    call(same.view(), true);
    for (IndexWalk w(out.sizes()); w; ++w) ASSERT_EQ(out.get(*w), same.get(*w)) << to_string(*w);
  }
}

}  // namespace
}  // namespace arete::test
