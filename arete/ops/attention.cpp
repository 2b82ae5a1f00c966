// scaled_dot_product_attention (declared in nn.h): two products around a masked softmax.
#include "arete/ops/attention.h"

#include <atomic>
#include <cmath>

#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/nn.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/softmax.h"

namespace arete {

namespace {
constinit std::atomic<unsigned> allowed_backends{0b1111};
}

AttentionBackends attention_backends() noexcept {
  const unsigned b = allowed_backends.load(std::memory_order_relaxed);
  return {(b & 1) != 0, (b & 2) != 0, (b & 4) != 0, (b & 8) != 0};
}
void set_attention_backends(const AttentionBackends& b) noexcept {
  allowed_backends.store(unsigned(b.flash) | unsigned(b.mem_efficient) << 1 |
                             unsigned(b.cudnn) << 2 | unsigned(b.math) << 3,
                         std::memory_order_relaxed);
}

namespace ops {
namespace {

Tensor causal_mask(int64_t rows, int64_t columns, Device device) {
  const TensorOptions o(kInt32, device);
  return ge(arange(Scalar(rows), o).unsqueeze(1), arange(Scalar(columns), o));
}

// ---- without storing the scores ----

// The memory order of `like`, if it has the same sizes and no gaps.
OutputSpec spec_like(const Tensor& like, Shape sizes) {
  OutputSpec spec{std::move(sizes), like.dtype(), like.device(), {}};
  if (like.layout().sizes == spec.sizes && like.layout().is_dense())
    spec.strides = Shape(like.strides());
  return spec;
}

const OpRecord& fused_attention_backward_op =
    define(
        "fused_attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor "
        "output, Tensor lse, float scale, bool is_causal) -> (Tensor, Tensor, Tensor)")
        .doc("Gradients of fused_attention with respect to query, key and value.")
        .surface(Surface::internal)
        .infer([](const Call& c, OutputSpecs& out) {
          for (size_t i : {1, 2, 3})
            out.push_back(spec_like(c.tensor(i), Shape(c.tensor(i).sizes())));
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          p.attention({.backward = true,
                       .q = view_of(c.tensor(1)),
                       .k = view_of(c.tensor(2)),
                       .v = view_of(c.tensor(3)),
                       .out = view_of(c.tensor(4)),
                       .lse = view_of(c.tensor(5)),
                       .grad_out = view_of(c.tensor(0)),
                       .grad_q = view_of(out[0]),
                       .grad_k = view_of(out[1]),
                       .grad_v = view_of(out[2]),
                       .scale = c.real(6),
                       .causal = c.boolean(7)});
        });

const OpRecord& fused_attention_op =
    define(
        "fused_attention(Tensor query, Tensor key, Tensor value, float scale, bool is_causal) -> "
        "(Tensor, Tensor)")
        .doc(
            "scaled_dot_product_attention of (B, H, L, D) tensors without storing the scores, and "
            "the logarithm of each row's sum of exponentials. Differentiable once.")
        .surface(Surface::internal)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &q = c.tensor(0), &k = c.tensor(1), &v = c.tensor(2);
          ARETE_CHECK(q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && q.size(0) == k.size(0) &&
                          q.size(3) == k.size(3) && k.size(0) == v.size(0) &&
                          k.size(1) == v.size(1) && k.size(2) == v.size(2) && k.size(1) > 0 &&
                          q.size(1) % k.size(1) == 0,
                      ValueError(c.name(), "query, key and value do not fit together")
                          .expected("(B, H, Lq, D), (B, Hk, Lk, D) and (B, Hk, Lk, Dv)")
                          .got(describe(q) + ", " + describe(k) + ", " + describe(v)));
          Shape sizes(q.sizes());
          sizes[3] = v.size(3);
          out.push_back(spec_like(q, sizes));
          sizes.pop_back();
          out.push_back({sizes, q.dtype() == kFloat64 ? kFloat64 : kFloat32, common_device(c), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          p.attention({.q = view_of(c.tensor(0)),
                       .k = view_of(c.tensor(1)),
                       .v = view_of(c.tensor(2)),
                       .out = view_of(out[0]),
                       .lse = view_of(out[1]),
                       .scale = c.real(3),
                       .causal = c.boolean(4)});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              Results r = call_all(fused_attention_backward_op,
                                   {g.grad(), g.input(0), g.input(1), g.input(2), g.output(0),
                                    g.output(1), g.real(3), g.boolean(4)});
              return {r[0], r[1], r[2]};
            },
            0b111, 0b11)
        .no_grad_outputs(0b10)
        .once_differentiable()
        // The logarithms are f32 where the scores may have been rounded to half: tested with those
        // through scaled_dot_product_attention.
        .dtypes({kFloat32, kFloat64})
        .autocast(Autocast::lower)
        .flops([](const Call& c) {
          const Tensor& q = c.tensor(0);
          const double all = 2.0 * double(q.numel()) * double(c.tensor(1).size(2)) *
                             (1 + double(c.tensor(2).size(3)) / double(q.size(3)));
          return c.boolean(4) ? all / 2 : all;
        });

// Whether the device has a kernel for this call, not only the composition below.
bool runs_fused(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (q.dim() != 4 || k.dim() != 4 || v.dim() != 4 || q.is_meta() || q.size(0) != k.size(0) ||
      k.size(0) != v.size(0) || k.size(1) != v.size(1) || q.size(1) != k.size(1) ||
      q.device() != k.device() || q.device() != v.device())
    return false;
  const prim::Backend* backend = prim::find_backend(q.device());
  return backend && backend->has_own(prim::Primitive::attention, q.dtype());
}

// query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
Tensor attention(const Call& c) {
  const char* op = c.name();
  const Tensor& q = c.tensor(0);
  Tensor k = c.tensor(1), v = c.tensor(2), mask = c.has(3) ? c.tensor(3) : Tensor();
  const bool causal = c.boolean(5);
  ARETE_CHECK(
      q.dim() >= 2 && k.dim() >= 2 && v.dim() >= 2,
      ValueError(
          op,
          "scaled_dot_product_attention: Expected query, key, and value to all be at least 2 "
          "dimensional, but got " +
              std::to_string(q.dim()) + ", " + std::to_string(k.dim()) + " and " +
              std::to_string(v.dim()) + " dimensions"));
  ARETE_CHECK(
      q.dtype() == k.dtype() && q.dtype() == v.dtype(),
      TypeError(op, "Expected query, key, and value to have the same dtype, but got query.dtype: " +
                        std::string(name_of(q.dtype())) +
                        " key.dtype: " + std::string(name_of(k.dtype())) +
                        " and value.dtype: " + std::string(name_of(v.dtype())) + " instead."));
  ARETE_CHECK(!causal || !mask.defined(),
              ValueError(op,
                         "scaled_dot_product_attention: Explicit attn_mask should not be set when "
                         "is_causal=True"));
  ARETE_CHECK(
      q.size(-1) == k.size(-1) && k.size(-2) == v.size(-2),
      ValueError(
          op,
          "scaled_dot_product_attention: query and key must have one last size, key and value one "
          "length")
          .got(describe(q) + ", " + describe(k) + ", " + describe(v)));
  if (c.boolean(7)) {
    ARETE_CHECK(
        q.dim() >= 3 && k.dim() >= 3 && v.dim() >= 3 && k.size(-3) > 0 &&
            q.size(-3) % k.size(-3) == 0 && k.size(-3) == v.size(-3),
        ValueError(op, "Number of heads in key and value must divide the number of heads in query")
            .got(describe(q) + ", " + describe(k) + ", " + describe(v)));
    const int64_t repeats = q.size(-3) / k.size(-3);
    if (repeats > 1) {
      k = k.repeat_interleave(repeats, k.dim() - 3);
      v = v.repeat_interleave(repeats, v.dim() - 3);
    }
  }
  const double scale = c.has(6) ? c.real(6) : 1 / std::sqrt(double(q.size(-1)));
  const AttentionBackends allowed = attention_backends();
  ARETE_CHECK(allowed.fused() || allowed.math,
              DeviceError(op,
                          "No viable backend for scaled_dot_product_attention was found. This is "
                          "likely due to turning off both the math kernel and the fused kernels."));
  if (allowed.fused() && !mask.defined() && c.real(4) == 0 && runs_fused(q, k, v))
    return call_all(fused_attention_op, {q, k, v, scale, causal})[0];
  ARETE_CHECK(allowed.math || !q.device().is_cuda(),
              DeviceError(op, "No available kernel. Aborting execution.")
                  .got(describe(q))
                  .expected("float16 or bfloat16 in four dimensions, as many heads in query as in "
                            "key, no mask, no dropout")
                  .hint("the math backend, which is turned off, can do it"));
  if (causal) mask = causal_mask(q.size(-2), k.size(-2), q.device());
  const Tensor scores = matmul_scaled(q, k.mT(), scale);
  if (mask.defined() && mask.dtype() != kBool && is_floating(mask.dtype()))
    mask = mask.to(scores.dtype());
  const Tensor weights = masked_softmax(scores, mask);
  return matmul(dropout(weights, c.real(4), c.real(4) > 0), v);
}

const OpRecord& attention_op =
    define(
        "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? "
        "attn_mask=None, "
        "float dropout_p=0.0, bool is_causal=False, *, float? scale=None, bool enable_gqa=False) "
        "-> Tensor")
        .autocast(Autocast::lower)
        .doc("softmax(scale * query @ key^T + mask) @ value.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results { return {attention(c)}; });

}  // namespace
}  // namespace ops

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale, bool enable_gqa) {
  return ops::call(ops::attention_op,
                   {query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa});
}

}  // namespace arete

ARETE_FAMILY(attention)
