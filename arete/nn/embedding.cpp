#include "arete/nn/embedding.h"

#include "arete/core/modes.h"
#include "arete/nn/layer_internal.h"
#include "arete/ops/nn.h"

namespace arete::nn {

Embedding::Embedding(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingOptions& options)
    : Embedding((check_sizes("Embedding", {{"num_embeddings", num_embeddings},
                                           {"embedding_dim", embedding_dim}}),
                 empty({num_embeddings, embedding_dim})),
                true, options) {
  reset_parameters();
}

Embedding::Embedding(const Tensor& table, bool trained, const EmbeddingOptions& options)
    : padding_idx_(options.padding_idx) {
  ARETE_CHECK(
      table.dim() == 2,
      ValueError("Embedding", "the table must have two dimensions").got(text_of(table.sizes())));
  if (padding_idx_) {
    const int64_t rows = table.size(0);
    ARETE_CHECK(*padding_idx_ >= -rows && *padding_idx_ < rows,
                IndexError("Embedding", "padding_idx must be within num_embeddings")
                    .got(text_of(*padding_idx_)));
    if (*padding_idx_ < 0) *padding_idx_ += rows;
  }
  weight = register_parameter("weight", table, trained);
}

Embedding Embedding::from_pretrained(const Tensor& table, bool freeze,
                                     const EmbeddingOptions& options) {
  return Embedding(table.detach(), !freeze, options);
}

void Embedding::reset_parameters() {
  init::normal_(weight);
  if (!padding_idx_) return;
  const NoGradGuard no_grad;
  weight.select(0, *padding_idx_).zero_();
}

Tensor Embedding::forward(const Tensor& input) { return embedding(input, weight, padding_idx_); }

std::string Embedding::extra_repr() const {
  std::string text = text_of(weight.size(0)) + ", " + text_of(weight.size(1));
  if (padding_idx_) text += ", padding_idx=" + text_of(*padding_idx_);
  return text;
}

}  // namespace arete::nn
