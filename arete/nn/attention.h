// Multi-head attention.
#pragma once

#include <optional>
#include <string>

#include "arete/nn/linear.h"

namespace arete::nn {

struct MultiheadAttentionOptions {
  double dropout = 0;  ///< of attention weights, in training
  bool bias = true;
  bool add_bias_kv = false;                     ///< a trained extra key and value
  bool add_zero_attn = false;                   ///< an extra key and value of zeros
  std::optional<int64_t> kdim = {}, vdim = {};  ///< features of key and value; default embed_dim
  bool batch_first = false;                     ///< (N, L, E) instead of (L, N, E)
};

/// What a call may say besides query, key and value. Boolean masks forbid where they are true (as
/// in PyTorch's module; scaled_dot_product_attention is the other way round), floating ones are
/// added to the scores.
struct AttentionCall {
  Tensor key_padding_mask = {};  ///< (N, S), or (S) without a batch
  bool need_weights = true;      ///< false is faster: one fused attention
  Tensor attn_mask = {};         ///< (L, S) or (N * heads, L, S)
  bool average_attn_weights = true;
  bool is_causal = false;  ///< position i sees j <= i only
};

struct AttentionResult {
  Tensor output;   ///< as query
  Tensor weights;  ///< (N, L, S), or (N, heads, L, S) if not averaged; undefined if not asked for
};

/// Attention with several heads: query (L, N, E), key (S, N, kdim), value (S, N, vdim), or without
/// N, or with N first (batch_first). Parameters: in_proj_weight (3E, E), or q_proj_weight,
/// k_proj_weight and v_proj_weight where kdim or vdim differ; in_proj_bias (3E); out_proj.weight
/// and out_proj.bias.
class MultiheadAttention : public DescribedLayer {
 public:
  /// ValueError unless num_heads divides embed_dim.
  MultiheadAttention(int64_t embed_dim, int64_t num_heads,
                     const MultiheadAttentionOptions& options = {});
  /// Self-attention without weights.
  Tensor forward(const Tensor& input) override;
  AttentionResult forward(const Tensor& query, const Tensor& key, const Tensor& value,
                          const AttentionCall& call = {}) const;
  using Module::operator();
  AttentionResult operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                             const AttentionCall& call = {}) const {
    return forward(query, key, value, call);
  }
  void reset_parameters();

  Parameter in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, in_proj_bias, bias_k,
      bias_v;

 private:
  int64_t embed_dim_, heads_;
  double dropout_;
  bool batch_first_, add_zero_attn_;

 public:
  Linear out_proj;
};

}  // namespace arete::nn
