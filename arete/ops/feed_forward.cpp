// feed_forward and the gradient of a linear layer's parameters: products whose epilogues do what
// passes of their own would.
#include <cmath>

#include "arete/core/modes.h"
#include "arete/ops/activation.h"
#include "arete/ops/call.h"
#include "arete/ops/matmul.h"
#include "arete/ops/matmul_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/target.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {
namespace ops {

// ---- for batches (Note [Batching rules])

namespace vmaps {
namespace {
Results feed_forward_rule(const Rewriting& r) {
  for (size_t i = 1; i < 5; ++i)
    if (r.is_mapped(i)) return one_by_one(r);
  return Changed(r).run();
}
Results linear_weight_grad_rule(const Rewriting& r) {
  const Tensor g = r.whole(0), x = r.whole(1);
  const Tensor rows = g.reshape({r.batch, -1, g.size(-1)}),
               inputs = x.reshape({r.batch, rows.size(1), x.size(-1)});
  return {matmul(rows.mT(), inputs), rows.sum({1})};
}
}  // namespace
}  // namespace vmaps
namespace {

using prim::Activation;
using prim::GemmArgs;

// The rows of a tensor as a matrix.
Tensor as_rows(const Tensor& t) {
  if (t.dim() == 2) return t;
  const int64_t n = t.size(-1);
  return t.reshape({n > 0 ? t.numel() / n : numel_of(t.sizes().first(size_t(t.dim() - 1))), n});
}

// ---- linear_weight_grad ----

const OpRecord& linear_weight_grad_op =
    define("linear_weight_grad(Tensor grad, Tensor input) -> (Tensor weight, Tensor bias)")
        .doc("grad^T @ input and the sums of grad's columns: grad (rows, out), input (rows, in).")
        .surface(Surface::internal)
        .batched(vmaps::linear_weight_grad_rule)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &g = c.tensor(0), &x = c.tensor(1);
          ARETE_CHECK(g.dim() == 2 && x.dim() == 2 && g.size(0) == x.size(0),
                      ValueError(c.name(), "expected two matrices with the same number of rows")
                          .got(describe(g) + " and " + describe(x)));
          out.push_back({{g.size(1), x.size(1)}, x.dtype()});
          out.push_back({{g.size(1)}, x.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor &g = c.tensor(0), &x = c.tensor(1);
          const Layout columns = transpose(g.layout(), 0, 1);
          GemmArgs args;
          args.a = view_of(g, columns), args.b = view_of(x), args.out = view_of(out[0]);
          args.a_sum = view_of(out[1]);
          p.gemm(args);
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor gw = g.grad(0), gb = g.grad(1);
              TensorList all(2);
              if (g.needs(0)) {
                if (gw.defined())
                  all[0] = linear(g.input(1), gw, gb);
                else
                  all[0] = gb.expand(g.input_sizes(0));
              }
              if (g.needs(1) && gw.defined()) all[1] = mm(g.input(0), gw);
              return all;
            },
            0b11)
        .flops([](const Call& c) {
          return 2.0 * double(c.tensor(0).numel()) * double(c.tensor(1).size(-1));
        });

// ---- mm_activation_grad ----

Activation activation_of(const char* op, std::string_view name) {
  if (name == "relu") return Activation::relu;
  if (name == "gelu") return Activation::gelu;
  ARETE_CHECK(name == "gelu_tanh", ValueError(op, "unknown activation")
                                       .argument("activation")
                                       .expected("relu, gelu or gelu_tanh")
                                       .got(std::string(name)));
  return Activation::gelu_tanh;
}

const OpRecord& mm_activation_grad_op =
    define("mm_activation_grad(Tensor grad, Tensor mat2, Tensor pre, str activation) -> Tensor")
        .doc("(grad @ mat2) times the activation's derivative at pre. Has no gradient itself.")
        .surface(Surface::internal)
        .batched([](const vmaps::Rewriting& r) { return vmaps::folded_beside(r, 0b10); })
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &g = c.tensor(0), &w = c.tensor(1), &pre = c.tensor(2);
          activation_of(c.name(), c[3].string());
          ARETE_CHECK(g.dim() == 2 && w.dim() == 2 && g.size(1) == w.size(0) && pre.dim() == 2 &&
                          pre.size(0) == g.size(0) && pre.size(1) == w.size(1),
                      ValueError(c.name(), "shapes do not fit")
                          .got(describe(g) + ", " + describe(w) + " and " + describe(pre)));
          out.push_back({Shape(pre.sizes()), g.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          GemmArgs args;
          args.a = view_of(c.tensor(0)), args.b = view_of(c.tensor(1)), args.out = view_of(out[0]);
          args.aux = view_of(c.tensor(2));
          args.activation = activation_of(c.name(), c[3].string());
          args.differentiate = true;
          p.gemm(args);
        })
        .flops([](const Call& c) {
          return 2.0 * double(c.tensor(0).numel()) * double(c.tensor(1).size(-1));
        });

// ---- feed_forward: input, weight1, bias1, weight2, bias2, activation ----

// Outputs: the result, the hidden values (rows, hidden), and what they were before the activation
// (nothing for relu, whose derivative the hidden values tell).
void feed_forward_infer(const Call& c, OutputSpecs& out) {
  const Tensor &x = c.tensor(0), &w1 = c.tensor(1), &w2 = c.tensor(3);
  const bool is_relu = activation_of(c.name(), c[5].string()) == Activation::relu;
  ARETE_CHECK(is_floating(x.dtype()) && w1.dtype() == x.dtype() && w2.dtype() == x.dtype(),
              TypeError(c.name(), "input and weights must have one floating dtype")
                  .got(std::string(name_of(x.dtype())) + ", " + std::string(name_of(w1.dtype())) +
                       " and " + std::string(name_of(w2.dtype()))));
  ARETE_CHECK(x.dim() >= 1 && w1.dim() == 2 && w2.dim() == 2 && w1.size(1) == x.size(-1) &&
                  w2.size(1) == w1.size(0),
              ValueError(c.name(), "shapes do not fit")
                  .expected("input (*, in), weight1 (hidden, in), weight2 (out, hidden)")
                  .got(describe(x) + ", " + describe(w1) + " and " + describe(w2)));
  for (const auto& [i, n] : {std::pair{size_t(2), w1.size(0)}, {size_t(4), w2.size(0)}})
    ARETE_CHECK(!c.has(i) || (c.tensor(i).dim() == 1 && c.tensor(i).size(0) == n &&
                              c.tensor(i).dtype() == x.dtype()),
                ValueError(c.name(), "a bias does not fit its weight").got(describe(c.tensor(i))));
  Shape sizes(x.sizes());
  sizes.back() = w2.size(0);
  const int64_t rows = numel_of(x.sizes().first(size_t(x.dim() - 1)));
  out.push_back({std::move(sizes), x.dtype()});
  out.push_back({{rows, w1.size(0)}, x.dtype()});
  out.push_back({is_relu ? Shape{0} : Shape{rows, w1.size(0)}, x.dtype()});
}

void feed_forward_lower(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  const Tensor x = as_rows(c.tensor(0)), &w1 = c.tensor(1), &w2 = c.tensor(3);
  const Layout w1t = transpose(w1.layout(), 0, 1), w2t = transpose(w2.layout(), 0, 1);
  const int64_t rows = x.size(0);
  GemmArgs first;
  first.a = view_of(x), first.b = view_of(w1, w1t), first.out = view_of(out[1]);
  if (c.has(2)) first.bias = view_of(c.tensor(2));
  first.activation = activation_of(c.name(), c[5].string());
  if (first.activation != Activation::relu) first.aux = view_of(out[2]);
  p.gemm(first);
  const Layout flat = Layout(Shape{rows, w2.size(0)});
  GemmArgs second;
  second.a = view_of(out[1]), second.b = view_of(w2, w2t), second.out = view_of(out[0], flat);
  if (c.has(4)) second.bias = view_of(c.tensor(4));
  p.gemm(second);
}

// The activation's derivative in operators.
Tensor slope_of(Activation act, const Tensor& x) {
  if (act == Activation::relu) return x.le(Scalar(0)).logical_not().to(x.dtype());
  if (act == Activation::gelu) {
    const Tensor cdf = erf(x.mul(Scalar(M_SQRT1_2))).add(Scalar(1)).mul(Scalar(0.5));
    const Tensor density = exp(x.square().mul(Scalar(-0.5))).mul(Scalar(1 / std::sqrt(2 * M_PI)));
    return cdf.add(x.mul(density));
  }
  const double c = std::sqrt(2 / M_PI), cubic = 0.044715;
  const Tensor t = tanh(x.add(x.pow(Scalar(3)).mul(Scalar(cubic))).mul(Scalar(c)));
  const Tensor inner = x.square().mul(Scalar(3 * cubic * c)).add(Scalar(c));
  return t.add(Scalar(1)).add(x.mul(t.square().neg().add(Scalar(1))).mul(inner)).mul(Scalar(0.5));
}

Tensor activated(Activation act, const Tensor& x) {
  return act == Activation::relu ? relu(x) : gelu(x, act == Activation::gelu ? "none" : "tanh");
}

TensorList feed_forward_grad(const GradCall& g) {
  const Activation act = activation_of("feed_forward", g.arg(5).string());
  const Tensor x = as_rows(g.input(0)), w1 = g.input(1), w2 = g.input(3);
  const Tensor b1 = g.has_input(2) ? g.input(2) : Tensor();
  const Tensor gy = as_rows(g.grad());
  Tensor hidden = g.output(1), gp;
  if (modes().grad_enabled) {
    // To be differentiated again: what the forward pass kept has no history.
    const Tensor pre = linear(x, w1, b1);
    hidden = activated(act, pre);
    gp = mm(gy, w2).mul(slope_of(act, pre));
  } else {
    gp = call(mm_activation_grad_op,
              {gy, w2, act == Activation::relu ? hidden : g.output(2), g.arg(5).string()});
  }
  TensorList out(5);
  const auto weights = [&](const Tensor& grad, const Tensor& input, size_t weight, size_t bias) {
    if (g.needs(weight)) {
      Results r = call_all(linear_weight_grad_op, {grad, input});
      out[weight] = r[0];
      if (g.has_input(bias) && g.needs(bias)) out[bias] = r[1];
    } else if (g.has_input(bias) && g.needs(bias)) {
      out[bias] = grad.sum(0);
    }
  };
  weights(gy, hidden, 3, 4);
  weights(gp, x, 1, 2);
  if (g.needs(0)) out[0] = mm(gp, w1).reshape(g.input_sizes(0));
  return out;
}

const OpRecord& feed_forward_op =
    define(
        "feed_forward(Tensor input, Tensor weight1, Tensor? bias1, Tensor weight2, Tensor? bias2, "
        "str activation=\"relu\") -> (Tensor output, Tensor hidden, Tensor pre)")
        .doc("Two linear layers with an activation between them: relu, gelu or gelu_tanh.")
        .surface(Surface::internal)
        .for_files()
        .batched(vmaps::feed_forward_rule)
        .infer(feed_forward_infer)
        .lower(feed_forward_lower)
        .grad(feed_forward_grad, 0b01111, 0b110)
        .no_grad_outputs(0b110)
        .autocast(Autocast::lower)
        .flops([](const Call& c) {
          const double rows =
              double(c.tensor(0).numel()) / double(std::max<int64_t>(c.tensor(0).size(-1), 1));
          return 2 * rows * double(c.tensor(1).numel() + c.tensor(3).numel());
        });

}  // namespace

std::pair<Tensor, Tensor> linear_weight_grad(const Tensor& grad, const Tensor& input) {
  Results r = call_all(linear_weight_grad_op, {grad, input});
  return {r[0], r[1]};
}

}  // namespace ops

Tensor feed_forward(const Tensor& input, const Tensor& weight1, const Tensor& bias1,
                    const Tensor& weight2, const Tensor& bias2, std::string_view activation) {
  return ops::call_all(ops::feed_forward_op,
                       {input, weight1, bias1, weight2, bias2, activation})[0];
}

}  // namespace arete

ARETE_FAMILY(feed_forward)
