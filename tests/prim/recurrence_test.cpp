// Recurrences against plain loops, as backends and as the base class have them.
#include <gtest/gtest.h>

#include <optional>

#include "arete/expr/value.h"
#include "arete/prim/backend.h"
#include "arete/prim/recurrence.h"
#include "tests/prim/ordering_reference.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using expr::Value;

// new state = (state somewhere else + x + table[row + step] + position) mod 7 * factor: small whole
// numbers, exact in every dtype. Shown, if anything is: twice the state before, + step.
constexpr int64_t kTableSize = 11;

expr::ProgramPtr recurrence_program(DType dtype, bool shows) {
  const DType in[] = {dtype, kInt64, kInt64, kInt64, dtype, kInt32};
  const expr::Type params[] = {expr::Type::i64, expr::Type::f32};
  std::vector<DType> out{dtype};
  if (shows) out.push_back(kFloat32);
  return expr::trace(
      [&](std::span<const Value> v) {
        const Value position = v[1], step = v[2], row = v[3], states = v[6];
        const Value other = expr::load(v[0], expr::remainder(position * 3.0 + step, states));
        const Value seen = expr::load(
            v[5], expr::remainder(row + step, expr::constant_like(row, double(kTableSize))));
        const Value sum = expr::cast(other, expr::Type::i64) + expr::cast(v[4], expr::Type::i64) +
                          expr::cast(seen, expr::Type::i64) + position;
        std::vector<Value> results{expr::remainder(sum, expr::constant_like(sum, 7)) * v[7]};
        if (shows) results.push_back(expr::load(v[0], position) * 2.0 + step);
        return results;
      },
      in, params, out, 0b100001);
}

struct RecurrenceCase {
  int64_t steps, rows, states;
  DType dtype;
  bool shows, every, initial, lengths, reverse, fixed;
};

void check_recurrence(const RecurrenceCase& c, bool decomposed, std::mt19937_64& rng) {
  const auto layout = [&](const Shape& sizes) {
    const auto all = dense_and_strided_layouts(sizes);
    return all[rng() % all.size()];
  };
  const expr::ProgramPtr program = recurrence_program(c.dtype, c.shows);
  GuardedBuffer x(c.dtype, layout({c.fixed ? 1 : c.steps, c.rows, c.states}));
  GuardedBuffer table(kInt32, IntList{kTableSize}), initial(c.dtype, layout({c.rows, c.states})),
      lengths(kInt64, layout({c.rows}));
  GuardedBuffer out(c.shows ? kFloat32 : c.dtype,
                    layout({c.every ? c.steps : 1, c.rows, c.states}));
  for (GuardedBuffer* b : {&x, &table, &initial}) b->fill_random(rng, 0, 6);
  lengths.fill_random(rng, 0, double(c.steps));
  const prim::View inputs[] = {x.view(), table.view()};
  expr::Literal params[2];
  params[0].i = c.states;
  params[1].f = 2;
  const prim::RecurrenceArgs args{.program = program.get(),
                                  .steps = c.steps,
                                  .rows = c.rows,
                                  .states = c.states,
                                  .initial = c.initial ? initial.view() : prim::View(),
                                  .lengths = c.lengths ? lengths.view() : prim::View(),
                                  .inputs = inputs,
                                  .out = out.view(),
                                  .reverse = c.reverse,
                                  .params = params};
  prim::Backend& backend = backend_under_test();
  decomposed ? backend.Primitives::recurrence(args) : backend.recurrence(args);

  ASSERT_TRUE(out.guards_intact());
  for (int64_t r = 0; r < c.rows; ++r) {
    std::vector<int64_t> now(static_cast<size_t>(c.states)), next = now;
    for (int64_t j = 0; j < c.states; ++j)
      now[size_t(j)] = c.initial ? int64_t(initial.get(Shape{r, j})) : 0;
    for (int64_t k = 0; k < c.steps; ++k) {
      const int64_t t = c.reverse ? c.steps - 1 - k : k;
      const bool live = !c.lengths || t < int64_t(lengths.get(Shape{r}));
      for (int64_t j = 0; j < c.states; ++j) {
        const int64_t sum = now[size_t((j * 3 + t) % c.states)] +
                            int64_t(x.get(Shape{c.fixed ? 0 : t, r, j})) +
                            int64_t(table.get(Shape{(r + t) % kTableSize})) + j;
        next[size_t(j)] = live ? sum % 7 * 2 : now[size_t(j)];
        const int64_t shown = !c.shows ? next[size_t(j)] : live ? now[size_t(j)] * 2 + t : 0;
        if (c.every) {
          ASSERT_EQ(out.get(Shape{t, r, j}), double(shown)) << t << " " << r << " " << j;
        }
      }
      now.swap(next);
    }
    for (int64_t j = 0; !c.every && j < c.states; ++j)
      ASSERT_EQ(out.get(Shape{0, r, j}), double(now[size_t(j)])) << r << " " << j;
  }
}

TEST(Recurrence, PlainLoops) {
  std::mt19937_64 rng(11);
  for (const int64_t states : {1, 2, 7, 32, 33, 130, 1500, 9000})
    for (const int64_t rows : {1, 3, 50})
      for (const int64_t steps : {0, 1, 2, 5}) {
        if (states * rows > 10000 || too_large_for_reference(states * rows * steps)) continue;
        for (int k = 0; k < 4; ++k) {
          const uint64_t bits = rng();
          RecurrenceCase c{steps, rows, states,
                           std::array{kFloat32, kInt64, kBFloat16, kFloat64}[bits & 3]};
          c.shows = bits & 4;
          c.every = c.shows || (bits & 8);
          c.initial = bits & 16;
          c.lengths = bits & 32;
          c.reverse = bits & 64;
          c.fixed = bits & 128;
          for (const bool decomposed : {false, true}) {
            SCOPED_TRACE(std::string(name_of(c.dtype)) + " steps " + std::to_string(steps) +
                         " rows " + std::to_string(rows) + " states " + std::to_string(states) +
                         " bits " + std::to_string(bits & 255) + (decomposed ? " decomposed" : ""));
            check_recurrence(c, decomposed, rng);
            if (::testing::Test::HasFatalFailure()) return;
          }
        }
      }
}

// What the parts of a program compute together is what it computes.
TEST(Recurrence, ProgramsInTwoParts) {
  const expr::ProgramPtr program = recurrence_program(kFloat32, true);
  const prim::SplitProgram parts = prim::split_by_state(*program);
  const float states[] = {3, 1, 4, 1, 5};
  const int32_t table[kTableSize] = {2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4};
  const expr::Literal params[] = {{.i = 5}, {.f = 2}};
  for (int64_t position = 0; position < 5; ++position) {
    std::vector<expr::Literal> in(6);
    in[0].i = int64_t(reinterpret_cast<intptr_t>(states));
    in[1].i = position;
    in[2].i = 3;
    in[3].i = 1;
    in[4].f = 6;
    in[5].i = int64_t(reinterpret_cast<intptr_t>(table));
    const std::vector<expr::Literal> whole = expr::evaluate(*program, in, params);
    std::vector<expr::Literal> rest(in.begin(), in.begin() + 4);
    rest.push_back(in[5]);
    for (const expr::Literal& known : expr::evaluate(*parts.ahead, in, params))
      rest.push_back(known);
    const std::vector<expr::Literal> both = expr::evaluate(*parts.rest, rest, params);
    ASSERT_EQ(whole.size(), both.size());
    for (size_t k = 0; k < whole.size(); ++k) EXPECT_EQ(whole[k].f, both[k].f);
  }
  for (const expr::Instruction& in : parts.ahead->code())
    EXPECT_FALSE(in.op == expr::Op::load && parts.ahead->code()[size_t(in.operand[0])].index == 0);
}

}  // namespace
}  // namespace arete::test
