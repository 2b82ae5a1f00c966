#include "arete/nn/attention.h"

#include <algorithm>
#include <cmath>

#include "arete/nn/layer_internal.h"
#include "arete/ops/matmul.h"
#include "arete/ops/nn.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/softmax.h"

namespace arete::nn {

MultiheadAttention::MultiheadAttention(int64_t embed_dim, int64_t num_heads,
                                       const MultiheadAttentionOptions& o)
    : DescribedLayer("MultiheadAttention", {{"embed_dim", embed_dim},
                                            {"num_heads", num_heads},
                                            {"dropout", o.dropout},
                                            {"bias", o.bias},
                                            {"add_bias_kv", o.add_bias_kv},
                                            {"add_zero_attn", o.add_zero_attn},
                                            {"kdim", o.kdim},
                                            {"vdim", o.vdim},
                                            {"batch_first", o.batch_first}}),
      embed_dim_(embed_dim),
      heads_(num_heads),
      dropout_(o.dropout),
      batch_first_(o.batch_first),
      add_zero_attn_(o.add_zero_attn),
      out_proj(embed_dim, embed_dim, {.bias = o.bias}) {
  const int64_t kdim = o.kdim.value_or(embed_dim), vdim = o.vdim.value_or(embed_dim);
  const bool same = kdim == embed_dim && vdim == embed_dim;
  const auto projection = [&](const char* name, bool wanted, int64_t rows, int64_t features) {
    return register_parameter(name, wanted ? empty({rows, features}) : Tensor());
  };
  q_proj_weight = projection("q_proj_weight", !same, embed_dim, embed_dim);
  k_proj_weight = projection("k_proj_weight", !same, embed_dim, kdim);
  v_proj_weight = projection("v_proj_weight", !same, embed_dim, vdim);
  in_proj_weight = projection("in_proj_weight", same, 3 * embed_dim, embed_dim);
  in_proj_bias = register_parameter("in_proj_bias", o.bias ? empty({3 * embed_dim}) : Tensor());
  child("out_proj", out_proj);
  const auto extra = [&](const char* name) {
    return register_parameter(name, o.add_bias_kv ? empty({1, 1, embed_dim}) : Tensor());
  };
  bias_k = extra("bias_k");
  bias_v = extra("bias_v");
  reset_parameters();
}

void MultiheadAttention::reset_parameters() {
  for (const Tensor& w : {in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight})
    if (w.defined()) init::xavier_uniform_(w);
  if (in_proj_bias.defined()) {
    init::zeros_(in_proj_bias);
    init::zeros_(out_proj.bias);
  }
  for (const Tensor& b : {bias_k, bias_v})
    if (b.defined()) init::xavier_normal_(b);
}

namespace {

// Two masks as one, in scaled_dot_product_attention's sense; either may be undefined.
Tensor join_masks(const Tensor& a, const Tensor& b, DType dtype) {
  if (!a.defined() || !b.defined()) return a.defined() ? a : b;
  if (a.dtype() == kBool && b.dtype() == kBool) return logical_and(a, b);
  const auto added = [&](const Tensor& m) {
    if (m.dtype() != kBool) return m;
    return zeros(m.sizes(), {dtype, m.device()}).masked_fill(logical_not(m), -INFINITY);
  };
  return added(a) + added(b);
}

// The module's masks forbid where true, the function's allow.
Tensor allowing(const Tensor& mask) {
  return mask.defined() && mask.dtype() == kBool ? logical_not(mask) : mask;
}

void check_mask(const char* name, const Tensor& mask, IntList expected,
                const std::string& or_else) {
  if (std::ranges::equal(mask.sizes(), expected)) return;
  throw ValueError("MultiheadAttention", std::string("the shape of ") + name + " is wrong")
      .argument(name)
      .expected(to_string(expected) + or_else)
      .got(to_string(mask.sizes()));
}

}  // namespace

Tensor MultiheadAttention::forward(const Tensor& x) {
  return forward(x, x, x, {.need_weights = false}).output;
}

AttentionResult MultiheadAttention::forward(const Tensor& query, const Tensor& key,
                                            const Tensor& value, const AttentionCall& call) const {
  const bool batched = query.dim() == 3;
  ARETE_CHECK(
      (batched || query.dim() == 2) && key.dim() == query.dim() && value.dim() == query.dim(),
      ValueError("MultiheadAttention",
                 "query, key and value must all have 3 dimensions, "
                 "or all 2 (no batch)")
          .got(text_of(query.sizes()) + ", " + text_of(key.sizes()) + " and " +
               text_of(value.sizes())));
  ARETE_CHECK(query.size(-1) == embed_dim_,
              ValueError("MultiheadAttention", "was expecting embedding dimension of " +
                                                   text_of(embed_dim_) + ", but got " +
                                                   text_of(query.size(-1))));
  // Everything below is batch first: (N, length, features).
  const auto batch_first = [&](const Tensor& t) {
    if (!batched) return t.unsqueeze(0);
    return batch_first_ ? t : t.transpose(0, 1);
  };
  const bool self = query.is_same(key) && key.is_same(value) && in_proj_weight.defined();
  const Tensor x = batch_first(query);
  Tensor q, k, v;
  if (self) {
    const auto parts = linear(x, in_proj_weight, in_proj_bias).chunk(3, -1);
    q = parts[0], k = parts[1], v = parts[2];
  } else {
    std::vector<Tensor> weights{q_proj_weight, k_proj_weight, v_proj_weight};
    if (in_proj_weight.defined()) weights = in_proj_weight.chunk(3, 0);
    std::vector<Tensor> biases(3);
    if (in_proj_bias.defined()) biases = in_proj_bias.chunk(3, 0);
    q = linear(x, weights[0], biases[0]);
    k = linear(batch_first(key), weights[1], biases[1]);
    v = linear(batch_first(value), weights[2], biases[2]);
  }
  const int64_t batch = q.size(0), length = q.size(1), given = k.size(1),
                width = embed_dim_ / heads_;
  ARETE_CHECK(k.size(0) == batch && v.size(0) == batch && v.size(1) == given,
              ValueError("MultiheadAttention",
                         "key and value must have one length, and all three "
                         "one batch size")
                  .got(text_of(query.sizes()) + ", " + text_of(key.sizes()) + " and " +
                       text_of(value.sizes())));
  if (bias_k.defined()) {
    k = cat({k, bias_k.expand({batch, 1, embed_dim_})}, 1);
    v = cat({v, bias_v.expand({batch, 1, embed_dim_})}, 1);
  }
  if (add_zero_attn_) {
    const Tensor zero = zeros({batch, 1, embed_dim_}, k.options());
    k = cat({k, zero}, 1);
    v = cat({v, zero}, 1);
  }
  const int64_t seen = k.size(1), extra = seen - given;

  // Masks, in the sense of scaled_dot_product_attention, broadcast to (N, heads, L, S).
  const auto widen = [&](const Tensor& m) {  // extra keys are visible to all
    return extra ? pad(m.dtype() == kBool ? m.to(kUInt8) : m, {0, extra}, "constant",
                       m.dtype() == kBool ? 1 : 0)
                       .to(m.dtype())
                 : m;
  };
  Tensor mask;
  if (call.attn_mask.defined()) {
    mask = allowing(call.attn_mask);
    if (mask.dim() == 3) {
      check_mask("attn_mask", mask, {batch * heads_, length, given}, "");
      mask = mask.view({batch, heads_, length, given});
    } else {
      check_mask("attn_mask", mask, {length, given},
                 " or " + text_of({batch * heads_, length, given}));
    }
    mask = widen(mask);
  }
  const bool causal_only = call.is_causal && !call.attn_mask.defined();
  if (call.key_padding_mask.defined()) {
    Tensor padding = allowing(call.key_padding_mask);
    if (padding.dim() == 1) padding = padding.unsqueeze(0);
    check_mask("key_padding_mask", padding, {batch, given}, "");
    mask = join_masks(mask, widen(padding).view({batch, 1, 1, seen}), q.dtype());
  }
  const bool fused_causal = causal_only && !mask.defined() && extra == 0 && !call.need_weights;
  if (causal_only && !fused_causal)
    mask = join_masks(mask, widen(ones({length, given}, {kBool, q.device()}).tril()), q.dtype());

  const auto split_heads = [&](const Tensor& t) {
    return t.unflatten(-1, {heads_, width}).transpose(1, 2);
  };
  const double dropout_p = is_training() ? dropout_ : 0;
  AttentionResult result;
  Tensor mixed;
  if (!call.need_weights) {
    mixed = scaled_dot_product_attention(split_heads(q), split_heads(k), split_heads(v), mask,
                                         dropout_p, fused_causal);
  } else {
    const Tensor scores = matmul_scaled(split_heads(q), split_heads(k).transpose(-2, -1),
                                        1 / std::sqrt(double(width)));
    const Tensor weights = dropout(
        mask.defined() ? ops::masked_softmax(scores, mask) : softmax(scores, -1), dropout_p);
    mixed = matmul(weights, split_heads(v));
    result.weights = call.average_attn_weights ? weights.mean(1) : weights;
    if (!batched) result.weights = result.weights.squeeze(0);
  }
  const Tensor y = linear(mixed.transpose(1, 2).flatten(2), out_proj.weight, out_proj.bias);
  result.output = !batched ? y.squeeze(0) : batch_first_ ? y : y.transpose(0, 1);
  return result;
}

}  // namespace arete::nn
