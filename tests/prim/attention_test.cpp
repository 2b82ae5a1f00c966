// Attention of every kind, forward and backward, against the decomposition in f64 on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "arete/core/matmul_precision.h"
#include "arete/prim/backend.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/test_device.h"
#include "tests/support/tolerance.h"

namespace arete::test {
namespace {

enum class MaskKind { none, boolean, additive };

struct AttentionCase {
  DType dtype = kFloat32;
  int64_t queries = 64, keys = 64, dim = 64, value_dim = 64;
  int64_t batch = 2, heads = 2, group = 1;
  MaskKind mask = MaskKind::none;
  bool mask_broadcasts = true;
  bool causal = false;
  double dropout = 0;
  enum class Order { rows, heads_in_rows, any } order = Order::rows;
  bool rounds = false;     // f32 operands may be
  bool nan_key = false;    // the last one, which nobody sees; forward only
  bool same_bits = false;  // are asked for
};

// The operands of a call, and of the same call in f64.
class Operand {
 public:
  Operand(DType dtype, const Layout& layout) : own(dtype, layout), wide(kFloat64, layout.sizes) {}
  void fill(std::mt19937_64& rng, double deviation = 1) {
    std::normal_distribution<double> normal(0, deviation);
    own.fill([&](IntList) { return normal(rng); });
  }
  void widen() {
    wide.fill([&](IntList i) { return own.get(i); });
  }
  GuardedBuffer own, wide;
};

void expect_near(const char* what, const Operand& o, double reach) {
  EXPECT_TRUE(o.own.guards_intact()) << what;
  const std::vector<double> got = o.own.values(), want = o.wide.values();
  double most = 1;
  for (double w : want)
    if (std::isfinite(w)) most = std::max(most, std::abs(w));
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(got[i] == want[i] || std::abs(got[i] - want[i]) <= reach * most)
        << what << ", element " << i << ": " << got[i] << ", not " << want[i] << " to "
        << reach * most;
}

void check_attention(const AttentionCase& c) {
  SCOPED_TRACE(testing::Message() << name_of(c.dtype) << ", " << c.queries << " queries, " << c.keys
                                  << " keys, heads of " << c.dim << " and " << c.value_dim
                                  << ", mask " << int(c.mask) << (c.causal ? ", causal" : "")
                                  << ", dropout " << c.dropout << ", order " << int(c.order));
  if (too_large_for_reference(8 * c.batch * c.heads * c.queries * c.keys)) return;
  std::mt19937_64 rng(11);
  const auto layout = [&](const Shape& sizes) {
    if (c.order == AttentionCase::Order::any) {
      const auto all = dense_and_strided_layouts(sizes);
      return all[rng() % all.size()];
    }
    Layout l(sizes);
    if (c.order == AttentionCase::Order::heads_in_rows) {
      l.strides[1] = sizes[3];
      l.strides[2] = sizes[1] * sizes[3];
    }
    return l;
  };
  const int64_t kv_heads = c.heads / c.group;
  const Shape of_q{c.batch, c.heads, c.queries, c.dim}, of_k{c.batch, kv_heads, c.keys, c.dim},
      of_v{c.batch, kv_heads, c.keys, c.value_dim},
      of_out{c.batch, c.heads, c.queries, c.value_dim};
  Operand q(c.dtype, layout(of_q)), k(c.dtype, layout(of_k)), v(c.dtype, layout(of_v)),
      out(c.dtype, layout(of_out)), grad(c.dtype, layout(of_out)), grad_q(c.dtype, layout(of_q)),
      grad_k(c.dtype, layout(of_k)), grad_v(c.dtype, layout(of_v)),
      lse(kFloat32, Layout(Shape{c.batch, c.heads, c.queries}));
  for (Operand* o : {&q, &k, &v}) o->fill(rng);
  grad.fill(rng, 1 / std::sqrt(double(c.value_dim)));  // so that gradients of weights are about 1
  if (c.nan_key)
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t h = 0; h < kv_heads; ++h) k.own.set(Shape{b, h, c.keys - 1, 0}, NAN);
  for (Operand* o : {&q, &k, &v, &grad}) o->widen();
  const Shape of_mask{c.mask_broadcasts ? 1 : c.batch, c.heads, c.queries, c.keys};
  Operand mask(c.mask == MaskKind::boolean ? kBool : c.dtype, layout(of_mask));
  std::normal_distribution<double> normal;
  mask.own.fill([&](IntList i) {
    // The second query sees nothing.
    const bool hides = rng() % 4 == 0 || i[2] == 1 || (c.nan_key && i[3] == c.keys - 1);
    if (c.mask == MaskKind::boolean) return hides ? 0.0 : 1.0;
    return hides ? -INFINITY : normal(rng);
  });
  mask.widen();
  GuardedBuffer shown(kBool, of_mask);
  shown.fill([&](IntList i) { return mask.own.get(i); });

  prim::AttentionArgs own{}, wide{};
  for (prim::AttentionArgs* a : {&own, &wide}) {
    a->scale = 2.4 / std::sqrt(double(c.dim));
    a->causal = c.causal;
    a->dropout = c.dropout;
    if (c.rounds) a->context.precision = MatmulPrecision::high;
    a->context.deterministic = a->context.library_deterministic = c.same_bits;
    a->seed = 0x123456789, a->offset = 0xfffffffa;
  }
  own.q = q.own.view(), own.k = k.own.view(), own.v = v.own.view(), own.out = out.own.view();
  own.lse = lse.own.view();
  wide.q = q.wide.view(), wide.k = k.wide.view(), wide.v = v.wide.view();
  wide.out = out.wide.view(), wide.lse = lse.wide.view();
  if (c.mask != MaskKind::none) {
    own.mask = mask.own.view();
    wide.mask = c.mask == MaskKind::boolean ? shown.view() : mask.wide.view();
  }
  prim::Backend& backend = backend_under_test();
  prim::Backend& cpu = prim::backend_for(kCPU);
  backend.attention(own);
  cpu.Primitives::attention(wide);
  // Weights and gradients of scores are rounded between products. tf32 has as many bits as f16.
  const DType rounded = c.rounds ? kFloat16 : c.dtype;
  // f32 in two parts has errors of 2^-22.
  const double reach = 2 * tolerance(rounded, std::max({c.dim, c.value_dim, c.queries, c.keys}), 1);
  expect_near("lse", lse, tolerance(c.rounds ? kFloat16 : kFloat32, c.dim, 1));
  expect_near("out", out, reach);
  if (c.nan_key) return;

  for (prim::AttentionArgs* a : {&own, &wide}) a->backward = true;
  own.grad_out = grad.own.view(), own.grad_q = grad_q.own.view();
  own.grad_k = grad_k.own.view(), own.grad_v = grad_v.own.view();
  wide.grad_out = grad.wide.view(), wide.grad_q = grad_q.wide.view();
  wide.grad_k = grad_k.wide.view(), wide.grad_v = grad_v.wide.view();
  backend.attention(own);
  cpu.Primitives::attention(wide);
  expect_near("grad_q", grad_q, reach);
  expect_near("grad_k", grad_k, reach);
  expect_near("grad_v", grad_v, reach);
  if (!c.same_bits) return;
  const Operand* const gradients[] = {&grad_q, &grad_k, &grad_v};
  std::vector<std::vector<double>> first;
  for (const Operand* o : gradients) first.push_back(o->own.values());
  for (int round = 0; round < 2; ++round) {
    backend.attention(own);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(gradients[i]->own.values(), first[i]) << i;
  }
}

class Attention : public testing::TestWithParam<DType> {};

TEST_P(Attention, Lengths) {
  for (int64_t queries : {1, 63, 64, 65, 257})
    for (int64_t keys : {1, 64, 65, 257})
      for (bool causal : {false, true})
        check_attention({.dtype = GetParam(),
                         .queries = queries,
                         .keys = keys,
                         .dim = 32,
                         .value_dim = 32,
                         .heads = 1,
                         .causal = causal});
}
TEST_P(Attention, HeadSizes) {
  for (int64_t dim : {1, 8, 40, 64, 80, 128, 136})
    for (int64_t value_dim : {dim, int64_t(9), int64_t(128)})
      check_attention({.dtype = GetParam(),
                       .queries = 70,
                       .keys = 65,
                       .dim = dim,
                       .value_dim = value_dim,
                       .heads = 1});
}
TEST_P(Attention, Masks) {
  for (MaskKind mask : {MaskKind::boolean, MaskKind::additive})
    for (bool broadcasts : {false, true})
      for (bool causal : {false, true})
        for (double dropout : {0.0, 0.3})
          for (int64_t queries : {63, 130})
            check_attention({.dtype = GetParam(),
                             .queries = queries,
                             .keys = 97,
                             .mask = mask,
                             .mask_broadcasts = broadcasts,
                             .causal = causal,
                             .dropout = dropout});
}
TEST_P(Attention, WhatNobodySeesDoesNotCount) {
  for (MaskKind mask : {MaskKind::boolean, MaskKind::none})
    check_attention({.dtype = GetParam(),
                     .queries = 64,
                     .keys = 128,
                     .mask = mask,
                     .causal = mask == MaskKind::none,
                     .nan_key = true});
}
TEST_P(Attention, Dropout) {
  for (int64_t keys : {64, 66, 67, 256})
    for (double dropout : {0.1, 0.5, 1.0})
      for (bool causal : {false, true})
        check_attention({.dtype = GetParam(),
                         .queries = 130,
                         .keys = keys,
                         .group = 2,
                         .causal = causal,
                         .dropout = dropout});
}
TEST_P(Attention, MemoryOrders) {
  for (auto order : {AttentionCase::Order::heads_in_rows, AttentionCase::Order::any})
    for (int64_t dim : {64, 37})
      for (int64_t group : {1, 3})
        for (int round = 0; round < 3; ++round)
          check_attention({.dtype = GetParam(),
                           .queries = 65 + round,
                           .keys = 70,
                           .dim = dim,
                           .value_dim = 48,
                           .heads = 6,
                           .group = group,
                           .mask = MaskKind(round),
                           .order = order});
}

TEST_P(Attention, TheSameBitsWhereTheyAreAskedFor) {
  // Four blocks of keys.
  for (int64_t dim : {64, 128})
    check_attention({.dtype = GetParam(),
                     .queries = 200,
                     .keys = 400,
                     .dim = dim,
                     .value_dim = dim,
                     .batch = 1,
                     .mask = dim == 64 ? MaskKind::none : MaskKind::boolean,
                     .dropout = dim == 64 ? 0.2 : 0,
                     .same_bits = true});
}

TEST(AttentionPrecision, OperandsMayBeRoundedWhereThatIsAskedFor) {
  for (int64_t dim : {64, 128})
    check_attention({.queries = 130, .keys = 70, .dim = dim, .value_dim = dim, .rounds = true});
}

INSTANTIATE_TEST_SUITE_P(Types, Attention, testing::Values(kFloat32, kFloat16, kBFloat16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace arete::test
