// Tables of vectors looked up by integers.
#pragma once

#include <optional>
#include <string_view>

#include "arete/nn/layer.h"

namespace arete::nn {

struct EmbeddingOptions {
  std::optional<int64_t> padding_idx = {};  ///< this row is 0 at first and gets no gradient
  std::optional<double> max_norm = {};      ///< longer rows are shortened, in place, when used
  double norm_type = 2;
  bool scale_grad_by_freq = false;  ///< gradients are divided by how often their row is used
  bool sparse = false;              ///< the gradient is a sparse tensor of the rows in use
};

/// Integers of any shape (*) -> (*, embedding_dim). Parameter weight (num_embeddings,
/// embedding_dim), normal at first. IndexError for integers outside the table.
class Embedding : public OperatorLayer {
 public:
  Embedding(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingOptions& options = {});
  /// A table that exists already (trained unless `freeze`).
  static Embedding from_pretrained(const Tensor& table, bool freeze = true,
                                   const EmbeddingOptions& options = {});
  Tensor forward(const Tensor& input) override { return run({input, weight}); }
  void reset_parameters();
  /// Whether the table's gradients are sparse tensors.
  bool is_sparse() const;

  Parameter weight;

 private:
  Embedding(const Tensor& table, bool trained, const EmbeddingOptions& options);
  std::optional<int64_t> padding_idx_;
};

struct EmbeddingBagOptions {
  std::optional<double> max_norm = {};
  double norm_type = 2;
  bool scale_grad_by_freq = false;
  std::string_view mode = "mean";  ///< or "sum", "max"
  bool sparse = false;
  bool include_last_offset = false;
  std::optional<int64_t> padding_idx = {};  ///< this row does not count
};

/// Sums, means or maxima of bags of rows: the rows of `input` (bags, n), or the stretches of a 1-d
/// input that begin at `offsets`. per_sample_weights of input's size scale the rows ("sum" only).
class EmbeddingBag : public OperatorLayer {
 public:
  EmbeddingBag(int64_t num_embeddings, int64_t embedding_dim,
               const EmbeddingBagOptions& options = {});
  Tensor forward(const Tensor& input) override { return forward(input, Tensor()); }
  Tensor forward(const Tensor& input, const Tensor& offsets,
                 const Tensor& per_sample_weights = {}) const {
    return run({input, weight, offsets, per_sample_weights});
  }
  Tensor operator()(const Tensor& input, const Tensor& offsets = {},
                    const Tensor& per_sample_weights = {}) const {
    return forward(input, offsets, per_sample_weights);
  }
  void reset_parameters();
  /// Whether the table's gradients are sparse tensors.
  bool is_sparse() const;

  Parameter weight;

 private:
  std::optional<int64_t> padding_idx_;
};

}  // namespace arete::nn
