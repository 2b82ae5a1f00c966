// attention: products around a softmax, with the scores in scratch memory.
#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>

#include "arete/expr/program_cache.h"
#include "arete/prim/backend.h"
#include "arete/prim/decompose/layout_view_internal.h"

namespace arete::prim {
namespace {

using expr::Type;
using expr::Value;
using expr::work_dtype, expr::work_type;
using Values = std::span<const Value>;

// A score where the key counts, else -inf. v: score, query position, key position.
Value masked(Values v, Type work, bool causal) {
  const Value score = expr::cast(v[0], work);
  return causal ? expr::where(v[2] <= v[1], score, expr::constant_like(score, -INFINITY)) : score;
}

// What one dtype needs: programs and the softmax.
struct Kernels {
  FusedSpec softmax;                // score, positions -> weights, logarithm of the sum
  expr::ProgramPtr weights;         // score, positions, lse -> weight
  expr::ProgramPtr score_gradient;  // weight, its gradient, row's delta, scale -> gradient
  expr::ProgramPtr product;         // a, b -> a * b
};

FusedStage stage(FusedStage::Kind kind, std::vector<int> reads, std::vector<DType> types,
                 std::vector<DType> outputs, const expr::Definition& body, Monoid monoid,
                 int first) {
  return {kind, expr::trace(body, types, {}, outputs), std::move(reads), monoid, first};
}

const Kernels& kernels(DType t, bool causal) {
  static auto& cache = *new KeyedCache<Kernels>;  // used until exit
  return cache.get(pack_key({int(t), causal}), [&] {
    auto k = std::make_unique<Kernels>();
    const Type work = work_type(t);
    const DType w = work_dtype(t);
    using Kind = FusedStage::Kind;
    const std::vector<DType> score{t, kInt64, kInt64};
    auto with = [&](std::initializer_list<DType> more) {
      std::vector<DType> r = score;
      r.insert(r.end(), more);
      return r;
    };
    FusedSpec& s = k->softmax;
    s.n_inputs = 3;
    s.n_outputs = 2;
    s.stages.push_back(stage(
        Kind::reduce, {0, 1, 2}, score, {w},
        [=](Values v) { return std::vector{masked(v, work, causal)}; }, Monoid::max, 0));
    // A row without any key has weights 0, not NaN.
    s.stages.push_back(stage(
        Kind::row, {~0}, {w}, {w},
        [](Values v) { return std::vector{expr::where(v[0] == -INFINITY, 0.0, v[0])}; },
        Monoid::sum, 0));
    s.stages.push_back(stage(
        Kind::reduce, {0, 1, 2, ~1}, with({w}), {w},
        [=](Values v) { return std::vector{expr::exp(masked(v, work, causal) - v[3])}; },
        Monoid::sum, 0));
    s.stages.push_back(stage(
        Kind::row, {~2}, {w}, {w},
        [](Values v) { return std::vector{expr::where(v[0] == 0.0, 0.0, expr::reciprocal(v[0]))}; },
        Monoid::sum, 0));
    s.stages.push_back(stage(
        Kind::store, {0, 1, 2, ~1, ~3}, with({w, w}), {t},
        [=](Values v) { return std::vector{expr::exp(masked(v, work, causal) - v[3]) * v[4]}; },
        Monoid::sum, 0));
    s.stages.push_back(stage(
        Kind::store_row, {~1, ~2}, {w, w}, {w},
        [](Values v) { return std::vector{v[0] + expr::log(v[1])}; }, Monoid::sum, 1));
    const std::vector<DType> with_lse = with({w}), gradient{t, t, w}, pair{t, t};
    const std::vector<Type> scale{work};
    const std::vector<DType> out{t}, out_work{w};
    k->weights = expr::trace(
        [=](Values v) { return std::vector{expr::exp(masked(v, work, causal) - v[3])}; }, with_lse,
        {}, out);
    k->score_gradient = expr::trace(
        [=](Values v) {
          return std::vector{expr::cast(v[0], work) * (expr::cast(v[1], work) - v[2]) * v[3]};
        },
        gradient, scale, out);
    k->product = expr::trace(
        [=](Values v) { return std::vector{expr::cast(v[0], work) * expr::cast(v[1], work)}; },
        pair, {}, out_work);
    return k;
  });
}

// (B, H, L, D) as (B, heads, H / heads, L, D).
LayoutView grouped(const View& v, int64_t heads) {
  Layout l = layout_of(v);
  const int64_t group = heads ? l.sizes[1] / heads : 1, stride = l.strides[1];
  Shape sizes{l.sizes[0], heads, group}, strides{l.strides[0], stride * group, stride};
  for (size_t d = 2; d < l.sizes.size(); ++d) {
    sizes.push_back(l.sizes[d]);
    strides.push_back(l.strides[d]);
  }
  return LayoutView(v, Layout(sizes, strides, 0));
}

LayoutView transposed(const View& v) {
  Layout l = layout_of(v);
  const size_t n = l.sizes.size();
  std::swap(l.sizes[n - 1], l.sizes[n - 2]);
  std::swap(l.strides[n - 1], l.strides[n - 2]);
  return LayoutView(v, std::move(l));
}

// v (B, H, L) with a last dimension of 1, grouped.
LayoutView as_rows(const View& v, int64_t heads) {
  Layout l = layout_of(v);
  l.sizes.push_back(1);
  l.strides.push_back(1);
  const LayoutView four(v, l);
  return grouped(four, heads);
}

// Positions of queries and keys, to broadcast against scores.
struct Positions {
  Positions(Primitives& p, int64_t queries, int64_t keys)
      : all(p, kInt64, {std::max(queries, keys)}),
        rows(all, Layout(Shape{queries, 1})),
        columns(all, Layout(Shape{1, keys})) {
    p.iota({.out = all});
  }
  ScratchView all;
  LayoutView rows, columns;
};

}  // namespace

void Primitives::attention(const AttentionArgs& a) {
  const DType t = a.q.dtype, w = work_dtype(t);
  const int64_t heads = a.k.sizes[1], queries = a.q.sizes[2], keys = a.k.sizes[2];
  const Kernels& kernel = kernels(t, a.causal);
  const LayoutView q = grouped(a.q, heads), k = grouped(a.k, heads), v = grouped(a.v, heads),
                   out = grouped(a.out, heads);
  const Shape space{a.q.sizes[0], heads, q.view().sizes[2], queries, keys};
  if (out.view().numel() == 0) return;
  const Positions at(*this, queries, keys);
  const ScratchView scores(*this, t, space), weights(*this, t, space);
  const LayoutView kt = transposed(k);
  gemm({.a = q, .b = kt, .out = scores, .alpha = a.scale});

  if (!a.backward) {
    const Shape rows{space[0], space[1], space[2], queries, 1};
    std::optional<ScratchView> own;
    if (!a.lse) own.emplace(*this, w, rows);
    const LayoutView lse = own ? LayoutView(own->view(), Layout(rows)) : as_rows(a.lse, heads);
    const View inputs[]{scores, at.rows, at.columns}, outputs[]{weights, lse};
    fused({.spec = &kernel.softmax,
           .space = space,
           .outer_rank = 4,
           .inputs = inputs,
           .outputs = outputs});
    gemm({.a = weights, .b = v, .out = out});
    return;
  }

  const LayoutView g = grouped(a.grad_out, heads), lse = as_rows(a.lse, heads),
                   gq = grouped(a.grad_q, heads);
  const View weight_inputs[]{scores, at.rows, at.columns, lse};
  pointwise(
      {.program = kernel.weights.get(), .inputs = weight_inputs, .outputs = {&weights.view(), 1}});
  // Of the scores: weight * (its gradient - sum of output * its gradient) * scale.
  const ScratchView delta(*this, w, {space[0], space[1], space[2], queries, 1}),
      gradient(*this, t, space);
  const View delta_inputs[]{g, out};
  reduce({.monoid = Monoid::sum,
          .space = g.view().sizes,
          .reduced = 1u << 4,
          .inputs = delta_inputs,
          .out = delta,
          .prologue = kernel.product.get()});
  const LayoutView vt = transposed(v);
  gemm({.a = g, .b = vt, .out = gradient});
  const View gradient_inputs[]{weights, gradient, delta};
  const expr::Literal scale{.f = a.scale};
  pointwise({.program = kernel.score_gradient.get(),
             .inputs = gradient_inputs,
             .outputs = {&scores.view(), 1},
             .params = {&scale, 1}});
  gemm({.a = scores, .b = k, .out = gq});
  // Keys and values serve a group of query heads each: their gradients are summed over it.
  const auto grouped_product = [&](const View& matrix, const View& b, const View& result) {
    const LayoutView mt = transposed(matrix);
    const LayoutView target = grouped(result, heads);
    if (space[2] == 1) {
      gemm({.a = mt, .b = b, .out = target});
      return;
    }
    const ScratchView all(*this, t, {space[0], heads, space[2], keys, b.sizes[4]});
    gemm({.a = mt, .b = b, .out = all});
    reduce({.monoid = Monoid::sum,
            .space = all.view().sizes,
            .reduced = 1u << 2,
            .inputs = {&all.view(), 1},
            .out = target});
  };
  grouped_product(scores, q, a.grad_k);
  grouped_product(weights, g, a.grad_v);
}

}  // namespace arete::prim
