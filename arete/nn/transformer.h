// Transformer layers ("Attention is all you need"), with PyTorch's names and options.
#pragma once

#include <concepts>
#include <functional>
#include <string>
#include <string_view>

#include "arete/nn/attention.h"
#include "arete/nn/container.h"
#include "arete/nn/dropout.h"
#include "arete/nn/linear.h"
#include "arete/nn/norm.h"

namespace arete::nn {

/// "relu", "gelu", or any function of a tensor.
class TransformerActivation {
 public:
  TransformerActivation(const char* name) : TransformerActivation(std::string_view(name)) {}
  /// ValueError for other names.
  TransformerActivation(std::string_view name);
  template <class F>
  requires std::invocable<const F&, const Tensor&> TransformerActivation(F f)
      : function_(std::move(f)) {}
  Tensor operator()(const Tensor& x) const { return function_(x); }
  /// Empty for a function.
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::function<Tensor(const Tensor&)> function_;
};

struct TransformerLayerOptions {
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  TransformerActivation activation = "relu";
  double layer_norm_eps = 1e-5;
  bool batch_first = false;
  bool norm_first = false;  ///< normalize before attention and feed-forward instead of after
  bool bias = true;
};

/// Masks of an encoder's call; meanings as in AttentionCall.
struct EncoderCall {
  Tensor mask = {};
  Tensor src_key_padding_mask = {};
  bool is_causal = false;
};

/// Self-attention and a feed-forward network, each with a residual connection and a layer norm.
class TransformerEncoderLayer : public Module {
 public:
  TransformerEncoderLayer(int64_t d_model, int64_t nhead,
                          const TransformerLayerOptions& options = {});
  Tensor forward(const Tensor& src) override { return forward(src, EncoderCall{}); }
  Tensor forward(const Tensor& src, const EncoderCall& call);
  using Module::operator();
  Tensor operator()(const Tensor& src, const EncoderCall& call) { return forward(src, call); }

  MultiheadAttention self_attn;
  Linear linear1;
  Dropout dropout;
  Linear linear2;
  LayerNorm norm1, norm2;
  Dropout dropout1, dropout2;

 private:
  TransformerActivation activation_;
  bool norm_first_;
};

/// Several layers, made as copies of one (as in PyTorch all start with the same weights).
class TransformerEncoder : public Module {
 public:
  TransformerEncoder(const TransformerEncoderLayer& layer, int64_t num_layers);
  /// With a norm after the last layer.
  TransformerEncoder(const TransformerEncoderLayer& layer, int64_t num_layers,
                     const LayerNorm& norm);
  Tensor forward(const Tensor& src) override { return forward(src, EncoderCall{}); }
  Tensor forward(const Tensor& src, const EncoderCall& call);
  using Module::operator();
  Tensor operator()(const Tensor& src, const EncoderCall& call) { return forward(src, call); }

 private:
  ModuleList layers_;
  std::optional<LayerNorm> norm_;
};

/// Masks of a decoder's call; meanings as in AttentionCall.
struct DecoderCall {
  Tensor tgt_mask = {}, memory_mask = {};
  Tensor tgt_key_padding_mask = {}, memory_key_padding_mask = {};
  bool tgt_is_causal = false, memory_is_causal = false;
};

/// Self-attention, attention to an encoder's output (memory), and a feed-forward network.
class TransformerDecoderLayer : public Module {
 public:
  TransformerDecoderLayer(int64_t d_model, int64_t nhead,
                          const TransformerLayerOptions& options = {});
  using Module::forward;
  Tensor forward(const Tensor& tgt, const Tensor& memory, const DecoderCall& call = {});
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const DecoderCall& call = {}) {
    return forward(tgt, memory, call);
  }

  MultiheadAttention self_attn, multihead_attn;
  Linear linear1;
  Dropout dropout;
  Linear linear2;
  LayerNorm norm1, norm2, norm3;
  Dropout dropout1, dropout2, dropout3;

 private:
  TransformerActivation activation_;
  bool norm_first_;
};

/// Several decoder layers, made as copies of one.
class TransformerDecoder : public Module {
 public:
  TransformerDecoder(const TransformerDecoderLayer& layer, int64_t num_layers);
  TransformerDecoder(const TransformerDecoderLayer& layer, int64_t num_layers,
                     const LayerNorm& norm);
  using Module::forward;
  Tensor forward(const Tensor& tgt, const Tensor& memory, const DecoderCall& call = {});
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const DecoderCall& call = {}) {
    return forward(tgt, memory, call);
  }

 private:
  ModuleList layers_;
  std::optional<LayerNorm> norm_;
};

struct TransformerOptions {
  int64_t d_model = 512, nhead = 8, num_encoder_layers = 6, num_decoder_layers = 6;
  TransformerLayerOptions layer = {};
};

/// Masks of a transformer's call; meanings as in AttentionCall.
struct TransformerCall {
  Tensor src_mask = {}, tgt_mask = {}, memory_mask = {};
  Tensor src_key_padding_mask = {}, tgt_key_padding_mask = {}, memory_key_padding_mask = {};
  bool src_is_causal = false, tgt_is_causal = false, memory_is_causal = false;
};

/// An encoder and a decoder: src (S, N, E), tgt (T, N, E) -> (T, N, E); with batch_first the batch
/// is in front. Matrices are xavier_uniform at first. ValueError for other batches or features.
class Transformer : public Module {
 public:
  explicit Transformer(const TransformerOptions& options = {});
  using Module::forward;
  Tensor forward(const Tensor& src, const Tensor& tgt, const TransformerCall& call = {});
  Tensor operator()(const Tensor& src, const Tensor& tgt, const TransformerCall& call = {}) {
    return forward(src, tgt, call);
  }

  TransformerEncoder encoder;
  TransformerDecoder decoder;

 private:
  int64_t d_model_;
  bool batch_first_;
};

/// (size, size): 0 on and below the diagonal, -inf above.
Tensor generate_square_subsequent_mask(int64_t size, const TensorOptions& options = {});

}  // namespace arete::nn
