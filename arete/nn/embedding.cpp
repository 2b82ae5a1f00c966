#include "arete/nn/embedding.h"

#include "arete/core/modes.h"
#include "arete/nn/layer_internal.h"

namespace arete::nn {

namespace {

// Counted from the first row; what is outside of the table stays so.
std::optional<int64_t> row_of(std::optional<int64_t> padding_idx, int64_t rows) {
  const bool from_end = padding_idx && *padding_idx < 0 && *padding_idx >= -rows;
  return from_end ? *padding_idx + rows : padding_idx;
}

void start_values(const Tensor& weight, std::optional<int64_t> padding_idx) {
  init::normal_(weight);
  if (!padding_idx) return;
  const NoGradGuard no_grad;
  weight.select(0, *padding_idx).zero_();
}

int64_t size_of(const Tensor& table, int dim) {
  ARETE_CHECK(table.dim() == 2,
              ValueError("Embedding", "Embeddings parameter is expected to be 2-dimensional")
                  .got(text_of(table.sizes())));
  return table.size(dim);
}

}  // namespace

Embedding::Embedding(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingOptions& options)
    : Embedding(empty({num_embeddings, embedding_dim}), true, options) {
  reset_parameters();
}

Embedding::Embedding(const Tensor& table, bool trained, const EmbeddingOptions& o)
    : OperatorLayer("Embedding", {{"num_embeddings", size_of(table, 0)},
                                  {"embedding_dim", size_of(table, 1)},
                                  {"padding_idx", row_of(o.padding_idx, table.size(0))},
                                  {"max_norm", o.max_norm},
                                  {"norm_type", o.norm_type},
                                  {"scale_grad_by_freq", o.scale_grad_by_freq},
                                  {"sparse", o.sparse}}),
      padding_idx_(row_of(o.padding_idx, table.size(0))) {
  weight = register_parameter("weight", table, trained);
}

Embedding Embedding::from_pretrained(const Tensor& table, bool freeze,
                                     const EmbeddingOptions& options) {
  return Embedding(table.detach(), !freeze, options);
}

void Embedding::reset_parameters() { start_values(weight, padding_idx_); }
bool Embedding::is_sparse() const { return options().get<bool>("sparse"); }

EmbeddingBag::EmbeddingBag(int64_t num_embeddings, int64_t embedding_dim,
                           const EmbeddingBagOptions& o)
    : OperatorLayer("EmbeddingBag", {{"num_embeddings", num_embeddings},
                                     {"embedding_dim", embedding_dim},
                                     {"max_norm", o.max_norm},
                                     {"norm_type", o.norm_type},
                                     {"scale_grad_by_freq", o.scale_grad_by_freq},
                                     {"mode", o.mode},
                                     {"sparse", o.sparse},
                                     {"include_last_offset", o.include_last_offset},
                                     {"padding_idx", row_of(o.padding_idx, num_embeddings)}}),
      padding_idx_(row_of(o.padding_idx, num_embeddings)) {
  weight = register_parameter("weight", empty({num_embeddings, embedding_dim}));
  reset_parameters();
}

void EmbeddingBag::reset_parameters() { start_values(weight, padding_idx_); }
bool EmbeddingBag::is_sparse() const { return options().get<bool>("sparse"); }

}  // namespace arete::nn
