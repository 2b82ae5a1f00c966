#include "arete/ops/softmax.h"

#include <algorithm>
#include <cmath>

#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/fused_builder.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/prim/positions.h"

namespace arete {
namespace ops {
namespace {

using expr::Value;
using Values = FusedBuilder::Values;
using prim::Monoid;

void check_floating(const Call& call, DType t) {
  ARETE_CHECK(is_floating(t),
              TypeError(call.name(), "\"softmax_lastdim_kernel_impl\" not implemented for '" +
                                         std::string(name_of(t)) + "'")
                  .expected("a floating dtype")
                  .got(name_of(t))
                  .hint("pass dtype=float32 or convert the input"));
}

// Runs a spec whose rows run along `dim`.
void run_rows(prim::Primitives& p, const prim::FusedSpec& spec, int64_t dim,
              std::initializer_list<const Tensor*> inputs, const Tensor& out) {
  if (out.numel() == 0) return;
  SmallVector<Layout, 4> layouts;
  layouts.reserve(inputs.size() + 1);
  SmallVector<prim::View, 4> views;
  for (const Tensor* t : inputs) {
    layouts.push_back(dim_last(t->layout(), dim));
    views.push_back(view_of(*t, layouts.back()));
  }
  layouts.push_back(dim_last(out.layout(), dim));
  const prim::View ov = view_of(out, layouts.back());
  p.fused({&spec, ov.sizes, ov.rank() - 1, {views.data(), views.size()}, {&ov, 1}, {}});
}

int64_t dim_of(const Call& call, size_t i, const Tensor& t) {
  return normalize_dim(call.integer(i), int(t.dim()), call.name());
}

// ---- forward: (input, dim, dtype) ----

const prim::FusedSpec& softmax_spec(DType in, DType out) {
  static SpecCache cache;
  return cache.get(pack_key({int(in), int(out), out == kFloat64}), [&] {
    FusedBuilder b({in}, {out});
    if (out == kFloat64) {
      const int m = b.reduce(Monoid::max, {0},
                             [](Values v) { return std::vector{cast(v[0], expr::Type::f64)}; });
      const int s =
          b.reduce(Monoid::sum, {0, m}, [](Values v) { return std::vector{exp(v[0] - v[1])}; });
      const int r = b.row({s}, [](Values v) { return std::vector{reciprocal(v[0])}; });
      b.store({0, m, r}, 0, 1, [](Values v) { return std::vector{exp(v[0] - v[1]) * v[2]}; });
    } else {
      const int m = b.reduce(Monoid::max, {0},
                             [](Values v) { return std::vector{cast(v[0], expr::Type::f32)}; });
      const int s = b.reduce(Monoid::sum, {0, m}, [](Values v) {
        return std::vector{exp(cast(v[0], expr::Type::f32) - v[1])};
      });
      const int r = b.row({s}, [](Values v) { return std::vector{reciprocal(v[0])}; });
      b.store({0, m, r}, 0, 1,
              [](Values v) { return std::vector{exp(cast(v[0], expr::Type::f32) - v[1]) * v[2]}; });
    }
    return b.finish();
  });
}

const prim::FusedSpec& log_softmax_spec(DType in, DType out) {
  static SpecCache cache;
  return cache.get(pack_key({int(in), int(out)}), [&] {
    FusedBuilder b({in}, {out});
    if (out == kFloat64) {
      const int m = b.reduce(Monoid::max, {0},
                             [](Values v) { return std::vector{cast(v[0], expr::Type::f64)}; });
      const int s =
          b.reduce(Monoid::sum, {0, m}, [](Values v) { return std::vector{exp(v[0] - v[1])}; });
      const int r = b.row({s}, [](Values v) { return std::vector{log(v[0])}; });
      b.store({0, m, r}, 0, 1, [](Values v) { return std::vector{(v[0] - v[1]) - v[2]}; });
    } else {
      const int m = b.reduce(Monoid::max, {0},
                             [](Values v) { return std::vector{cast(v[0], expr::Type::f32)}; });
      const int s = b.reduce(Monoid::sum, {0, m}, [](Values v) {
        return std::vector{exp(cast(v[0], expr::Type::f32) - v[1])};
      });
      const int r = b.row({s}, [](Values v) { return std::vector{log(v[0])}; });
      b.store({0, m, r}, 0, 1,
              [](Values v) { return std::vector{(cast(v[0], expr::Type::f32) - v[1]) - v[2]}; });
    }
    return b.finish();
  });
}

void softmax_infer(const Call& call, OutputSpecs& out) {
  const Tensor& x = call.tensor(0);
  dim_of(call, 1, x);
  const DType t = call.has(2) ? call[2].dtype() : x.dtype();
  check_floating(call, t);
  ARETE_CHECK(!is_complex(x.dtype()),
              TypeError(call.name(), "softmax is not defined for complex numbers"));
  out.push_back({Shape(x.sizes()), t});
}

template <const prim::FusedSpec& (*spec)(DType, DType)>
void softmax_lower(const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
  const Tensor& x = call.tensor(0);
  run_rows(p, spec(x.dtype(), out[0].dtype()), dim_of(call, 1, x), {&x}, out[0]);
}

// ---- backward: (grad, output, dim) ----

const prim::FusedSpec& softmax_backward_spec(DType grad, DType out) {
  static SpecCache cache;
  return cache.get(pack_key({int(grad), int(out)}), [&] {
    FusedBuilder b({grad, out}, {out});
    const int s = b.reduce(Monoid::sum, {0, 1}, [](Values v) { return std::vector{v[0] * v[1]}; });
    b.store({0, 1, s}, 0, 1, [](Values v) { return std::vector{v[1] * (v[0] - v[2])}; });
    return b.finish();
  });
}
const prim::FusedSpec& log_softmax_backward_spec(DType grad, DType out) {
  static SpecCache cache;
  return cache.get(pack_key({int(grad), int(out)}), [&] {
    FusedBuilder b({grad, out}, {out});
    const int s = b.reduce(Monoid::sum, {0}, [](Values v) { return std::vector{v[0]}; });
    b.store({0, 1, s}, 0, 1, [](Values v) { return std::vector{v[0] - exp(v[1]) * v[2]}; });
    return b.finish();
  });
}

void backward_infer(const Call& call, OutputSpecs& out) {
  const Tensor &g = call.tensor(0), &y = call.tensor(1);
  dim_of(call, 2, y);
  ARETE_CHECK(Shape(g.sizes()) == Shape(y.sizes()),
              ValueError(call.name(), "grad and output must have one shape")
                  .got(describe(g) + ", " + describe(y)));
  out.push_back({Shape(y.sizes()), y.dtype()});
}

template <const prim::FusedSpec& (*spec)(DType, DType)>
void backward_lower(const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
  const Tensor &g = call.tensor(0), &y = call.tensor(1);
  run_rows(p, spec(g.dtype(), y.dtype()), dim_of(call, 2, y), {&g, &y}, out[0]);
}

// ---- records ----

Tensor grad_to(const GradCall& g, Tensor t) {
  return t.dtype() == g.input_dtype(0) ? t : t.to(g.input_dtype(0));
}

const OpRecord& softmax_op =
    define("softmax(Tensor input, int dim, dtype? dtype=None) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("exp(x) / sum(exp(x)) along a dimension.")
        .infer(softmax_infer)
        .lower(softmax_lower<softmax_spec>)
        .grad(
            [](const GradCall& g) -> TensorList {
              return {grad_to(g, softmax_backward(g.grad(), g.output(), g.integer(1)))};
            },
            0, 1);

const OpRecord& log_softmax_op =
    define("log_softmax(Tensor input, int dim, dtype? dtype=None) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("log(softmax(x)) along a dimension.")
        .infer(softmax_infer)
        .lower(softmax_lower<log_softmax_spec>)
        .grad(
            [](const GradCall& g) -> TensorList {
              return {grad_to(g, log_softmax_backward(g.grad(), g.output(), g.integer(1)))};
            },
            0, 1);

Tensor row_sum(const Tensor& t, int64_t dim) { return t.dim() == 0 ? t : t.sum(dim, true); }

const OpRecord& softmax_backward_op =
    define("softmax_backward(Tensor grad, Tensor output, int dim) -> Tensor")
        .doc("Gradient of softmax from its output: y * (g - sum(g * y)).")
        .surface(Surface::internal)
        .infer(backward_infer)
        .lower(backward_lower<softmax_backward_spec>)
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor &h = g.grad(), grad = g.input(0), y = g.input(1);
              const int64_t dim = g.integer(2);
              TensorList out(2);
              if (g.needs(0)) out[0] = softmax_backward(h, y, dim);
              if (g.needs(1))
                out[1] = h.mul(grad.sub(row_sum(grad.mul(y), dim)))
                             .sub(grad.mul(row_sum(h.mul(y), dim)));
              return out;
            },
            0b11);

const OpRecord& log_softmax_backward_op =
    define("log_softmax_backward(Tensor grad, Tensor output, int dim) -> Tensor")
        .doc("Gradient of log_softmax from its output: g - exp(y) * sum(g).")
        .surface(Surface::internal)
        .infer(backward_infer)
        .lower(backward_lower<log_softmax_backward_spec>)
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor &h = g.grad(), grad = g.input(0), y = g.input(1);
              const int64_t dim = g.integer(2);
              const Tensor p = y.exp();
              TensorList out(2);
              if (g.needs(0)) out[0] = h.sub(row_sum(h.mul(p), dim));
              if (g.needs(1)) out[1] = h.mul(p).mul(row_sum(grad, dim)).neg();
              return out;
            },
            0b11);

const OpRecord& softmin_op =
    define("softmin(Tensor input, int dim, *, dtype? dtype=None) -> Tensor")
        .doc("softmax(-x).")
        .compose([](const Call& c) -> Results {
          return {call(softmax_op, {c.tensor(0).neg(), c[1], c[2]})};
        });

// ---- under a mask ----

// A masked-out element counts as -inf. A row of nothing but -inf has no maximum to subtract and no
// sum to divide by: both are replaced, and the row becomes 0.
Value masked_score(Values v) {
  const Value x = to_float(v[0]);
  return v[1].type() == expr::Type::boolean ? where(v[1], x, -INFINITY) : x + v[1];
}

// softmax of scores that a program makes of all inputs.
std::unique_ptr<prim::FusedSpec> softmax_of(const std::vector<DType>& inputs,
                                            Value (*score)(Values)) {
  FusedBuilder b(inputs, {inputs[0]});
  const size_t n = inputs.size();
  std::vector<int> reads;
  for (size_t i = 0; i < n; ++i) reads.push_back(int(i));
  const auto with = [&](std::initializer_list<int> rows) {
    std::vector<int> all = reads;
    all.insert(all.end(), rows);
    return all;
  };
  const int m = b.reduce(Monoid::max, reads, [=](Values v) { return std::vector{score(v)}; });
  const int safe =
      b.row({m}, [](Values v) { return std::vector{where(v[0] == -INFINITY, 0.0, v[0])}; });
  const int s = b.reduce(Monoid::sum, with({safe}),
                         [=](Values v) { return std::vector{exp(score(v) - v[n])}; });
  const int r =
      b.row({s}, [](Values v) { return std::vector{where(v[0] == 0.0, 0.0, reciprocal(v[0]))}; });
  b.store(with({safe, r}), 0, 1,
          [=](Values v) { return std::vector{exp(score(v) - v[n]) * v[n + 1]}; });
  return b.finish();
}

const prim::FusedSpec& masked_softmax_spec(DType in, DType mask) {
  static SpecCache cache;
  return cache.get(pack_key({int(in), int(mask)}), [&] {
    return softmax_of({in, mask}, masked_score);
  });
}

const OpRecord& masked_softmax_op =
    define("masked_softmax(Tensor scores, Tensor mask) -> Tensor")
        .doc("softmax along the last dimension of scores under a boolean or additive mask.")
        .surface(Surface::internal)
        .batched(vmaps::elementwise)
        .infer([](const Call& call, OutputSpecs& out) {
          const Tensor &x = call.tensor(0), &mask = call.tensor(1);
          check_floating(call, x.dtype());
          ARETE_CHECK(x.dim() > 0,
                      ValueError(call.name(), "scores must have at least one dimension"));
          ARETE_CHECK(
              mask.dtype() == kBool || mask.dtype() == x.dtype(),
              TypeError(call.name(),
                        "Expected attn_mask dtype to be bool or to match query dtype, but got " +
                            std::string(name_of(mask.dtype())) + " and " +
                            std::string(name_of(x.dtype()))));
          expand(mask.layout(), x.sizes());
          out.push_back({Shape(x.sizes()), x.dtype()});
        })
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor &x = call.tensor(0), &mask = call.tensor(1);
          if (out[0].numel() == 0) return;
          const Layout full = expand(mask.layout(), x.sizes());
          const prim::View inputs[2] = {view_of(x), view_of(mask, full)}, o = view_of(out[0]);
          p.fused({&masked_softmax_spec(x.dtype(), mask.dtype()),
                   o.sizes,
                   o.rank() - 1,
                   inputs,
                   {&o, 1},
                   {}});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor gx = softmax_backward(g.grad(), g.output(), -1);
              TensorList out(2);
              if (g.needs(0)) out[0] = gx;
              if (g.needs(1)) out[1] = sum_to_size(gx, g.input_sizes(1));
              return out;
            },
            0, 1)
        .autocast(Autocast::f32);

// Positions in place of a mask: of row and column.
const prim::FusedSpec& causal_softmax_spec(DType in, DType position) {
  static SpecCache cache;
  return cache.get(pack_key({int(in), int(position)}), [&] {
    return softmax_of({in, position, position},
                      [](Values v) { return where(v[2] <= v[1], to_float(v[0]), -INFINITY); });
  });
}

const OpRecord& causal_softmax_op =
    define("causal_softmax(Tensor scores) -> Tensor")
        .doc(
            "softmax along the last dimension of matrices of scores, of which row i has weights at "
            "columns up to i only.")
        .surface(Surface::internal)
        .batched(vmaps::leading)
        .infer([](const Call& call, OutputSpecs& out) {
          const Tensor& x = call.tensor(0);
          check_floating(call, x.dtype());
          ARETE_CHECK(x.dim() > 1,
                      ValueError(call.name(), "scores must have at least two dimensions"));
          out.push_back({Shape(x.sizes()), x.dtype()});
        })
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& x = call.tensor(0);
          if (out[0].numel() == 0) return;
          const size_t rank = x.sizes().size();
          const int64_t most = std::max(x.size(-2), x.size(-1));
          prim::Positions numbers(p, prim::position_dtype(most), most);
          const prim::View inputs[3] = {view_of(x), numbers.along(x.sizes(), rank - 2, rank - 2),
                                        numbers.along(x.sizes(), rank - 1, rank - 1)},
                           o = view_of(out[0]);
          p.fused({&causal_softmax_spec(x.dtype(), inputs[1].dtype),
                   o.sizes,
                   o.rank() - 1,
                   inputs,
                   {&o, 1},
                   {}});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              return {softmax_backward(g.grad(), g.output(), -1)};
            },
            0, 1)
        .autocast(Autocast::f32);

}  // namespace

Tensor softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim) {
  return call(softmax_backward_op, {grad, output, dim});
}
Tensor log_softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim) {
  return call(log_softmax_backward_op, {grad, output, dim});
}
Tensor causal_softmax(const Tensor& scores) { return call(causal_softmax_op, {scores}); }
Tensor masked_softmax(const Tensor& scores, const Tensor& mask) {
  if (!mask.defined()) return softmax(scores, -1);
  return call(masked_softmax_op, {scores, mask});
}

}  // namespace ops

Tensor softmax(const Tensor& input, int64_t dim, std::optional<DType> dtype) {
  return ops::call(ops::softmax_op, {input, dim, dtype});
}
Tensor log_softmax(const Tensor& input, int64_t dim, std::optional<DType> dtype) {
  return ops::call(ops::log_softmax_op, {input, dim, dtype});
}
Tensor softmin(const Tensor& input, int64_t dim, std::optional<DType> dtype) {
  return ops::call(ops::softmin_op, {input, dim, dtype});
}
Tensor Tensor::softmax(int64_t dim) const { return arete::softmax(*this, dim); }
Tensor Tensor::log_softmax(int64_t dim) const { return arete::log_softmax(*this, dim); }

}  // namespace arete

ARETE_FAMILY(softmax)
