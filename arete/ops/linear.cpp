// linear and bilinear: the products with parameters of layers.
#include <algorithm>
#include <tuple>

#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/complex.h"
#include "arete/ops/matmul.h"
#include "arete/ops/matmul_internal.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {
namespace ops {

// ---- for batches (Note [Batching rules])

namespace vmaps {
namespace {
Operand transposed(const Operand& o) {
  return rank_of(o) < 2 ? o : Operand{o.physical.mT(), o.is_mapped};
}
Results linear_rule(const Rewriting& r) {
  const bool has_bias = r.call.has(2);
  if (!r.is_mapped(1) && !(has_bias && r.is_mapped(2))) {
    Changed call(r);
    return call.run();
  }
  Tensor made = product(r.at(0), transposed(r.at(1)));
  const int64_t rank = int64_t(r.specs[0].sizes.size());
  if (has_bias) made = made + raised(r.at(2), rank);
  return {made};
}
}  // namespace
}  // namespace vmaps
namespace {

void linear_infer(const Call& call, OutputSpecs& out) {
  const Tensor &x = call.tensor(0), &w = call.tensor(1);
  ARETE_CHECK(w.dim() == 1 || w.dim() == 2,
              ValueError(call.name(), "linear(): weight must have 1 or 2 dimensions")
                  .argument("weight")
                  .got(describe(w)));
  ARETE_CHECK(x.dim() > 0, ValueError(call.name(), "linear(): input must have at least 1 dimension")
                               .argument("input")
                               .got(describe(x)));
  ARETE_CHECK(x.dtype() == w.dtype(),
              TypeError(call.name(), "mat1 and mat2 must have the same dtype, but got " +
                                         std::string(name_of(x.dtype())) + " and " +
                                         std::string(name_of(w.dtype())))
                  .hint("convert input or weight with .to(dtype)"));
  const int64_t in = w.sizes().back();
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < x.dim(); ++d) rows *= x.sizes()[size_t(d)];
  ARETE_CHECK(x.sizes().back() == in,
              ValueError(call.name(), "mat1 and mat2 shapes cannot be multiplied (" +
                                          shape_text(Shape{rows, x.sizes().back()}) + " and " +
                                          (w.dim() == 2 ? shape_text(Shape{in, w.sizes()[0]})
                                                        : shape_text(Shape{in})) +
                                          ")")
                  .argument("input")
                  .expected("a last dimension of " + std::to_string(in))
                  .got(describe(x)));
  Shape sizes(x.sizes().first(x.sizes().size() - 1));
  if (w.dim() == 2) sizes.push_back(w.sizes()[0]);
  if (call.has(2)) {
    const Tensor& b = call.tensor(2);
    const bool fits = w.dim() == 2 ? b.dim() == 1 && b.sizes()[0] == w.sizes()[0]
                                   : b.numel() == 1 && b.dim() <= 1;
    ARETE_CHECK(fits, ValueError(call.name(), "linear(): bias does not fit weight")
                          .argument("bias")
                          .expected(w.dim() == 2 ? "[" + std::to_string(w.sizes()[0]) + "]" : "[]")
                          .got(describe(b)));
    ARETE_CHECK(b.dtype() == x.dtype(),
                TypeError(call.name(), "linear(): bias must have the dtype of input")
                    .argument("bias")
                    .expected(name_of(x.dtype()))
                    .got(name_of(b.dtype())));
  }
  out.push_back({std::move(sizes), x.dtype()});
}

// Whether rows lie so that they are not those of one matrix, but of many with few each: as many
// products, which are slower than one of a copy.
bool has_scattered_rows(const Tensor& x) {
  if (x.dim() < 3 || x.stride(-1) != 1 || x.size(-2) >= 256) return false;
  int64_t next = x.stride(-2) * x.size(-2);
  for (int64_t d = x.dim() - 3; d >= 0; --d) {
    if (x.size(d) == 1) continue;
    if (x.stride(d) != next) return true;
    next *= x.size(d);
  }
  return false;
}

void linear_lower(const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
  const Tensor& w = call.tensor(1);
  Tensor x = call.tensor(0);
  if (has_scattered_rows(x)) {
    const Tensor rows = empty_tensor(x.sizes(), x.dtype(), x.device());
    p.copy({view_of(rows), view_of(x)});
    x = rows;
  }
  Tensor bias = call.has(2) ? call.tensor(2) : Tensor();
  if (w.dim() == 2) return run_product(x, w, out[0], p, bias, true);
  if (bias.defined()) bias = alias(bias, Layout(IntList{1}, IntList{1}, bias.storage_offset()));
  run_product(x, w, out[0], p, bias, false);
}

Tensor conjugated(const Tensor& t) { return is_complex(t.dtype()) ? conj(t) : t; }

TensorList linear_grad(const GradCall& g) {
  const Tensor& grad = g.grad();
  const IntList xs = g.input_sizes(0);
  const bool vector = g.input_sizes(1).size() == 1;
  const int64_t in = xs.back(), features = vector ? 1 : g.input_sizes(1)[0];
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < xs.size(); ++d) rows *= xs[d];
  const bool flat = grad.dim() == 2 && xs.size() == 2 && !vector;
  const Tensor g2 = flat ? grad : grad.reshape({rows, features});
  TensorList out(3);
  if (g.needs(0)) {
    const Tensor w = conjugated(g.input(1));
    const Tensor gx = mm(g2, vector ? w.unsqueeze(0) : w);
    out[0] = flat ? gx : gx.view(xs);
  }
  const bool bias = g.has_input(2) && g.needs(2);
  Tensor gw, gb;
  if (g.needs(1)) {
    const Tensor x = g.input(0), x2 = x.dim() == 2 ? x : x.reshape({rows, in});
    if (bias && is_floating(x.dtype()))
      std::tie(gw, gb) = linear_weight_grad(g2, x2);
    else
      gw = mm(g2.t(), conjugated(x2));
    out[1] = vector ? gw.squeeze(0) : gw;
  }
  if (bias) {
    if (!gb.defined()) gb = g2.sum(0);
    out[2] = g.input_sizes(2).empty() ? gb.squeeze(0) : gb;
  }
  return out;
}

const OpRecord& linear_op =
    define("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor")
        .doc("input @ weight^T + bias.")
        .surface(Surface::functional)
        .batched(vmaps::linear_rule)
        .infer(linear_infer)
        .lower(linear_lower)
        .grad(linear_grad, 0b011)
        .autocast(Autocast::lower)
        .flops([](const Call& c) {
          return 2.0 * double(c.tensor(0).numel()) *
                 (c.tensor(1).dim() == 2 ? double(c.tensor(1).sizes()[0]) : 1.0);
        });

const OpRecord& bilinear_op =
    define("bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor")
        .functional()
        .autocast(autocast_by_device(Autocast::as_is, Autocast::promote))
        .doc("x1^T A x2 + bias for each pair of rows.")
        .surface(Surface::function)
        .compose([](const Call& call) -> Results {
          const Tensor &x1 = call.tensor(0), &x2 = call.tensor(1), &w = call.tensor(2);
          ARETE_CHECK(w.dim() == 3 && x1.dim() > 0 && x1.dim() == x2.dim(),
                      ValueError(call.name(), "bilinear(): input dimensions do not match")
                          .got(describe(x1) + ", " + describe(x2) + ", " + describe(w)));
          for (int64_t d = 0; d + 1 < x1.dim(); ++d)
            ARETE_CHECK(
                x1.size(d) == x2.size(d),
                ValueError(call.name(), "bilinear(): input batch dimensions do not match at dim " +
                                            std::to_string(d))
                    .got(describe(x1) + ", " + describe(x2)));
          ARETE_CHECK(x1.size(-1) == w.size(1) && x2.size(-1) == w.size(2),
                      ValueError(call.name(), "bilinear(): input1 size does not match weight size")
                          .got(describe(x1) + ", " + describe(x2) + ", " + describe(w)));
          Shape sizes(x1.sizes().first(x1.sizes().size() - 1));
          const int64_t rows = numel_of(sizes), n = w.size(1), m = w.size(2), out = w.size(0);
          // (rows, n) @ (n, out * m), then the dot products with x2: of as many rows at a time as
          // make a product of bounded size, unless history keeps it anyway.
          const Tensor matrix = w.permute({1, 0, 2}).reshape({n, out * m}),
                       a = x1.reshape({rows, n}), b = x2.reshape({rows, m, 1});
          const auto some = [&](int64_t from, int64_t count) {
            const Tensor left = arete::mm(a.narrow(0, from, count), matrix);
            return arete::bmm(left.view({count, out, m}), b.narrow(0, from, count));
          };
          const bool recorded = will_record(x1) || will_record(x2) || will_record(w);
          const int64_t most = x1.device().is_cpu() ? 1 << 17 : 1 << 22;  // elements
          const int64_t step = std::max<int64_t>(1, most / std::max<int64_t>(1, out * m));
          Tensor y;
          if (recorded || rows <= step) {
            y = some(0, rows);
          } else {
            std::vector<Tensor> parts;
            for (int64_t from = 0; from < rows; from += step)
              parts.push_back(some(from, std::min(step, rows - from)));
            y = cat(parts, 0);
          }
          sizes.push_back(out);
          y = y.view(sizes);
          return {call.has(3) ? y.add(call.tensor(3)) : y};
        });

}  // namespace
}  // namespace ops

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  return ops::call(ops::linear_op, {input, weight, bias});
}
Tensor bilinear(const Tensor& input1, const Tensor& input2, const Tensor& weight,
                const Tensor& bias) {
  return ops::call(ops::bilinear_op, {input1, input2, weight, bias});
}

}  // namespace arete

ARETE_FAMILY(linear)
