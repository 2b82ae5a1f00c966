// Tables of vectors looked up by integers.
#pragma once

#include <optional>
#include <string>

#include "arete/nn/module.h"

namespace arete::nn {

struct EmbeddingOptions {
  std::optional<int64_t> padding_idx = {};  ///< this row is 0 at first and gets no gradient
};

/// Integers of any shape (*) -> (*, embedding_dim). Parameter weight (num_embeddings,
/// embedding_dim), normal at first. IndexError for integers outside the table.
class Embedding : public Module {
 public:
  Embedding(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingOptions& options = {});
  /// A table that exists already (trained unless `freeze`).
  static Embedding from_pretrained(const Tensor& table, bool freeze = true,
                                   const EmbeddingOptions& options = {});
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;
  void reset_parameters();

  Parameter weight;

 private:
  Embedding(const Tensor& table, bool trained, const EmbeddingOptions& options);
  std::optional<int64_t> padding_idx_;
};

}  // namespace arete::nn
