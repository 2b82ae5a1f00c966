#include "arete/nn/transformer.h"

#include <cmath>

#include "arete/nn/init.h"
#include "arete/nn/layer_internal.h"
#include "arete/ops/activation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"

namespace arete::nn {

TransformerActivation::TransformerActivation(std::string_view name) : name_(name) {
  ARETE_CHECK(
      name == "relu" || name == "gelu",
      ValueError("Transformer", "activation should be relu/gelu, not " + std::string(name)));
  if (name == "relu")
    function_ = [](const Tensor& x) { return relu(x); };
  else
    function_ = [](const Tensor& x) { return gelu(x); };
}

namespace {

MultiheadAttention attention(int64_t d_model, int64_t nhead, const TransformerLayerOptions& o) {
  return MultiheadAttention(d_model, nhead,
                            {.dropout = o.dropout, .bias = o.bias, .batch_first = o.batch_first});
}

// linear2(dropout(activation(linear1(x)))), as one operator where nothing has to happen in between.
Tensor run_feed_forward(const Tensor& x, Linear& linear1, Dropout& dropout, Linear& linear2,
                        const TransformerActivation& activation) {
  const bool drops = dropout.is_training() && dropout.p() > 0;
  if (activation.name().empty() || drops || linear1.has_hooks() || dropout.has_hooks() ||
      linear2.has_hooks())
    return linear2(dropout(activation(linear1(x))));
  return feed_forward(x, linear1.weight, linear1.bias, linear2.weight, linear2.bias,
                      activation.name());
}

LayerNorm norm(int64_t d_model, const TransformerLayerOptions& o) {
  return LayerNorm(d_model, {.eps = o.layer_norm_eps, .bias = o.bias});
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(int64_t d_model, int64_t nhead,
                                                 const TransformerLayerOptions& o)
    : self_attn(child("self_attn", attention(d_model, nhead, o))),
      linear1(child("linear1", Linear(d_model, o.dim_feedforward, {.bias = o.bias}))),
      dropout(child("dropout", Dropout(o.dropout))),
      linear2(child("linear2", Linear(o.dim_feedforward, d_model, {.bias = o.bias}))),
      norm1(child("norm1", norm(d_model, o))),
      norm2(child("norm2", norm(d_model, o))),
      dropout1(child("dropout1", Dropout(o.dropout))),
      dropout2(child("dropout2", Dropout(o.dropout))),
      activation_(o.activation),
      norm_first_(o.norm_first) {}

Tensor TransformerEncoderLayer::forward(const Tensor& src, const EncoderCall& call) {
  const auto attend = [&](const Tensor& x) {
    return dropout1(self_attn(x, x, x,
                              {.key_padding_mask = call.src_key_padding_mask,
                               .need_weights = false,
                               .attn_mask = call.mask,
                               .is_causal = call.is_causal})
                        .output);
  };
  const auto feed_forward = [&](const Tensor& x) {
    return dropout2(run_feed_forward(x, linear1, dropout, linear2, activation_));
  };
  if (norm_first_) {
    const Tensor x = src + attend(norm1(src));
    return x + feed_forward(norm2(x));
  }
  const Tensor x = norm1(src + attend(src));
  return norm2(x + feed_forward(x));
}

TransformerEncoder::TransformerEncoder(const TransformerEncoderLayer& layer, int64_t num_layers)
    : layers_(child("layers", ModuleList())) {
  for (int64_t i = 0; i < num_layers; ++i) layers_.append(clone(layer));
}

TransformerEncoder::TransformerEncoder(const TransformerEncoderLayer& layer, int64_t num_layers,
                                       const LayerNorm& norm)
    : TransformerEncoder(layer, num_layers) {
  norm_ = child("norm", norm);
}

Tensor TransformerEncoder::forward(const Tensor& src, const EncoderCall& call) {
  Tensor x = src;
  for (Module& layer : layers_) x = static_cast<TransformerEncoderLayer&>(layer)(x, call);
  return norm_ ? (*norm_)(x) : x;
}

TransformerDecoderLayer::TransformerDecoderLayer(int64_t d_model, int64_t nhead,
                                                 const TransformerLayerOptions& o)
    : self_attn(child("self_attn", attention(d_model, nhead, o))),
      multihead_attn(child("multihead_attn", attention(d_model, nhead, o))),
      linear1(child("linear1", Linear(d_model, o.dim_feedforward, {.bias = o.bias}))),
      dropout(child("dropout", Dropout(o.dropout))),
      linear2(child("linear2", Linear(o.dim_feedforward, d_model, {.bias = o.bias}))),
      norm1(child("norm1", norm(d_model, o))),
      norm2(child("norm2", norm(d_model, o))),
      norm3(child("norm3", norm(d_model, o))),
      dropout1(child("dropout1", Dropout(o.dropout))),
      dropout2(child("dropout2", Dropout(o.dropout))),
      dropout3(child("dropout3", Dropout(o.dropout))),
      activation_(o.activation),
      norm_first_(o.norm_first) {}

Tensor TransformerDecoderLayer::forward(const Tensor& tgt, const Tensor& memory,
                                        const DecoderCall& call) {
  const auto attend_self = [&](const Tensor& x) {
    return dropout1(self_attn(x, x, x,
                              {.key_padding_mask = call.tgt_key_padding_mask,
                               .need_weights = false,
                               .attn_mask = call.tgt_mask,
                               .is_causal = call.tgt_is_causal})
                        .output);
  };
  const auto attend_memory = [&](const Tensor& x) {
    return dropout2(multihead_attn(x, memory, memory,
                                   {.key_padding_mask = call.memory_key_padding_mask,
                                    .need_weights = false,
                                    .attn_mask = call.memory_mask,
                                    .is_causal = call.memory_is_causal})
                        .output);
  };
  const auto feed_forward = [&](const Tensor& x) {
    return dropout3(run_feed_forward(x, linear1, dropout, linear2, activation_));
  };
  Tensor x = tgt;
  if (norm_first_) {
    x = x + attend_self(norm1(x));
    x = x + attend_memory(norm2(x));
    return x + feed_forward(norm3(x));
  }
  x = norm1(x + attend_self(x));
  x = norm2(x + attend_memory(x));
  return norm3(x + feed_forward(x));
}

TransformerDecoder::TransformerDecoder(const TransformerDecoderLayer& layer, int64_t num_layers)
    : layers_(child("layers", ModuleList())) {
  for (int64_t i = 0; i < num_layers; ++i) layers_.append(clone(layer));
}

TransformerDecoder::TransformerDecoder(const TransformerDecoderLayer& layer, int64_t num_layers,
                                       const LayerNorm& norm)
    : TransformerDecoder(layer, num_layers) {
  norm_ = child("norm", norm);
}

Tensor TransformerDecoder::forward(const Tensor& tgt, const Tensor& memory,
                                   const DecoderCall& call) {
  Tensor x = tgt;
  for (Module& layer : layers_) x = static_cast<TransformerDecoderLayer&>(layer)(x, memory, call);
  return norm_ ? (*norm_)(x) : x;
}

Transformer::Transformer(const TransformerOptions& o)
    : encoder(
          child("encoder", TransformerEncoder(TransformerEncoderLayer(o.d_model, o.nhead, o.layer),
                                              o.num_encoder_layers, norm(o.d_model, o.layer)))),
      decoder(
          child("decoder", TransformerDecoder(TransformerDecoderLayer(o.d_model, o.nhead, o.layer),
                                              o.num_decoder_layers, norm(o.d_model, o.layer)))),
      d_model_(o.d_model),
      batch_first_(o.layer.batch_first) {
  for (const Tensor& p : parameters())
    if (p.dim() > 1) init::xavier_uniform_(p);
}

Tensor Transformer::forward(const Tensor& src, const Tensor& tgt, const TransformerCall& c) {
  const int64_t batch = batch_first_ ? 0 : 1;
  ARETE_CHECK(src.dim() == tgt.dim() && (src.dim() != 3 || src.size(batch) == tgt.size(batch)),
              ValueError("Transformer", "the batch number of src and tgt must be equal"));
  ARETE_CHECK(
      src.size(-1) == d_model_ && tgt.size(-1) == d_model_,
      ValueError("Transformer", "the feature number of src and tgt must be equal to d_model"));
  const Tensor memory = encoder(src, {c.src_mask, c.src_key_padding_mask, c.src_is_causal});
  return decoder(tgt, memory,
                 {c.tgt_mask, c.memory_mask, c.tgt_key_padding_mask, c.memory_key_padding_mask,
                  c.tgt_is_causal, c.memory_is_causal});
}

Tensor generate_square_subsequent_mask(int64_t size, const TensorOptions& options) {
  return full({size, size}, -INFINITY, options.dtype(options.dtype_.value_or(default_dtype())))
      .triu(1);
}

}  // namespace arete::nn
