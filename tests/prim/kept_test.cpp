// Calls that are kept: what they own, and what they are run under.
#include "arete/prim/kept.h"

#include <gtest/gtest.h>

#include <new>
#include <optional>
#include <string>
#include <vector>

#include "arete/expr/value.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/reference_backend.h"

namespace arete::test {
namespace {

using prim::Context;
using prim::Kept;
using prim::Primitive;

// Notes the calls that it is given, those that others are made of among them.
class Witness final : public prim::Forwarding<ReferencePrimitives, Witness> {
 public:
  struct Seen {
    std::string name;
    Context context;
  };
  std::vector<Seen> seen;

  Device device() const override { return kCPU; }
  std::string description() const override { return "witness"; }
  template <Primitive P, class Args>
  prim::ResultOf<P> pass(const Args& args) {
    seen.push_back({prim::name_of(P), args.context});
#define ARETE_RUN_OWN(name, Its) \
  if constexpr (P == Primitive::name) return ReferencePrimitives::name(args);
    ARETE_PRIMITIVES(ARETE_RUN_OWN)
#undef ARETE_RUN_OWN
  }
  void* allocate(size_t bytes) override { return ::operator new(bytes, std::align_val_t(64)); }
  void deallocate(void* p, size_t) noexcept override { ::operator delete(p, std::align_val_t(64)); }
  void* scratch(size_t bytes) override { return allocate(bytes); }
  void release_scratch(void* p, size_t bytes) noexcept override { deallocate(p, bytes); }
  void synchronize() override {}
  void copy_to_host(void*, const void*, size_t) override {}
  void copy_from_host(void*, const void*, size_t) override {}
};

// A call that was made where the thread asked for the same bits in every run and for few bits of
// products, and is run where nothing is asked for.
template <Primitive P, class Args>
void expect_one_context(Args args) {
  const auto asked = float32_matmul_precision();
  std::optional<Kept<Args>> kept;
  {
    const ModesGuard guard;
    modes().deterministic = true;
    set_float32_matmul_precision("medium");
    args.context = Context();
    kept.emplace(args);
    set_float32_matmul_precision("highest");
  }
  ASSERT_FALSE(modes().deterministic);
  Witness witness;
  kept->template run<P>(witness);
  EXPECT_GT(witness.seen.size(), 1u);
  for (const Witness::Seen& s : witness.seen)
    EXPECT_TRUE(s.context.deterministic && s.context.library_deterministic &&
                s.context.precision == MatmulPrecision::medium)
        << prim::name_of(P) << " is made of " << s.name;
  EXPECT_FALSE(Context().deterministic);
  EXPECT_EQ(Context().precision, asked);
}

TEST(Kept, WhatACallIsMadeOfRunsUnderItsContext) {
  GuardedBuffer q(kFloat32, {1, 2, 3, 4}), k(kFloat32, {1, 1, 5, 4}), v(kFloat32, {1, 1, 5, 2}),
      out(kFloat32, {1, 2, 3, 2});
  expect_one_context<Primitive::attention>(
      prim::AttentionArgs{.q = q.view(), .k = k.view(), .v = v.view(), .out = out.view()});
  GuardedBuffer x(kFloat32, {2, 2, 4, 4}), w(kFloat32, {3, 2, 2, 2}), y(kFloat32, {2, 3, 3, 3});
  expect_one_context<Primitive::conv>(prim::ConvArgs{.pass = prim::ConvArgs::Pass::wgrad,
                                                     .x = x.view(),
                                                     .w = w.view(),
                                                     .y = y.view(),
                                                     .window = {.kernel = {2, 2, 1}}});
  GuardedBuffer rows(kFloat32, {3, 4}), index(kInt64, {2}), more(kFloat32, {2, 4});
  expect_one_context<Primitive::add_rows>(
      prim::AddRowsArgs{.out = rows.view(), .index = index.view(), .src = more.view()});
}

// The numbers of a reduction are those of its prologue, then those of its epilogue.
TEST(Kept, NumbersOfTwoPrograms) {
  const std::vector<DType> f32{kFloat32};
  const std::vector<expr::Type> one{expr::Type::f32}, two{expr::Type::f32, expr::Type::i64};
  const expr::ProgramPtr before = expr::trace(
                             [](std::span<const expr::Value> v) {
                               return std::vector{v[0] * v[1] + expr::cast(v[2], expr::Type::f32)};
                             },
                             f32, two, f32),
                         after = expr::trace(
                             [](std::span<const expr::Value> v) {
                               return std::vector{v[0] + v[1]};
                             },
                             f32, one, f32);
  GuardedBuffer in(kFloat32, {3}), out(kFloat32, {1}), scale(kFloat64, IntList()),
      shift(kFloat64, IntList());
  in.fill([](IntList i) { return double(i[0]); });
  const prim::View input = in.view();
  const expr::Literal params[] = {{.f = 2}, {.i = 1}}, last{.f = 0.5};
  const prim::ReduceArgs args{.monoid = prim::Monoid::sum,
                              .space = in.layout().sizes,
                              .reduced = 1,
                              .inputs = {&input, 1},
                              .out = out.view(),
                              .prologue = before.get(),
                              .params = params,
                              .epilogue = after.get(),
                              .epilogue_params = {&last, 1}};
  Kept<prim::ReduceArgs> kept(args);
  const std::vector<prim::Number> numbers = kept.numbers();
  ASSERT_EQ(numbers.size(), 3u);
  EXPECT_EQ(numbers[0].value.f, 2);
  EXPECT_EQ(numbers[1].dtype, kInt64);
  EXPECT_EQ(numbers[2].value.f, 0.5);

  prim::Backend& cpu = prim::backend_for(kCPU);
  kept.run<Primitive::reduce>(cpu);
  EXPECT_EQ(out.get({0}), 2 * 3 + 3 + 0.5);
  scale.set({}, 4);
  shift.set({}, -1);
  kept.put_in_memory(2, shift.view());
  kept.run<Primitive::reduce>(cpu);
  EXPECT_EQ(out.get({0}), 2 * 3 + 3 - 1);
  kept.put_in_memory(0, scale.view());
  kept.run<Primitive::reduce>(cpu);
  EXPECT_EQ(out.get({0}), 4 * 3 + 3 - 1);
}

}  // namespace
}  // namespace arete::test
