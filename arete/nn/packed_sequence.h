// Sequences of several lengths: padded, and packed without padding (torch.nn.utils.rnn).
#pragma once

#include <span>
#include <vector>

#include "arete/core/tensor.h"

namespace arete::nn {

/// The elements of all sequences at time 0, at time 1, ...: batch_sizes says how many sequences
/// reach each time. They are sorted by length; the indices map from and to the caller's order
/// (undefined: the same). pack_padded_sequence() and pack_sequence() make such objects.
struct PackedSequence {
  Tensor data;  ///< (sum of batch_sizes, *)
  std::vector<int64_t> batch_sizes;
  Tensor sorted_indices = {}, unsorted_indices = {};
};

namespace utils::rnn {

struct PackOptions {
  bool batch_first = false;    ///< (N, T, *) instead of (T, N, *)
  bool enforce_sorted = true;  ///< lengths that do not fall are a ValueError
};
/// Packs padded sequences. ValueError for lengths that are not positive, not sorted, above T, or of
/// another number than N.
PackedSequence pack_padded_sequence(const Tensor& input, std::span<const int64_t> lengths,
                                    const PackOptions& options = {});

struct Padded {
  Tensor sequences;  ///< (T, N, *), or (N, T, *) with batch_first
  std::vector<int64_t> lengths;
};
/// The reverse. ValueError for a total_length (-1: the longest) below the longest sequence.
Padded pad_packed_sequence(const PackedSequence& sequence, bool batch_first = false,
                           double padding_value = 0, int64_t total_length = -1);

/// Stacks tensors (L_i, *) to (T, N, *), or (N, T, *), filled up with padding_value.
Tensor pad_sequence(const std::vector<Tensor>& sequences, bool batch_first = false,
                    double padding_value = 0);
/// Packs tensors (L_i, *).
PackedSequence pack_sequence(const std::vector<Tensor>& sequences, bool enforce_sorted = true);
/// The sequences of a packed one.
std::vector<Tensor> unpack_sequence(const PackedSequence& sequence);

}  // namespace utils::rnn
}  // namespace arete::nn
