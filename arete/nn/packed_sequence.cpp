#include "arete/nn/packed_sequence.h"

#include <algorithm>
#include <numeric>

#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/shape.h"

namespace arete::nn::utils::rnn {

namespace {

// Places (time * sequences + sequence) of what is no padding, time by time.
Tensor cells(const std::vector<int64_t>& batch_sizes, int64_t batch, Device device) {
  std::vector<int64_t> places;
  for (size_t t = 0; t < batch_sizes.size(); ++t)
    for (int64_t n = 0; n < batch_sizes[t]; ++n) places.push_back(int64_t(t) * batch + n);
  return tensor(places, TensorOptions(kInt64, device));
}

Shape with(IntList sizes, size_t skip, std::initializer_list<int64_t> first) {
  Shape all;
  for (const int64_t s : first) all.push_back(s);
  for (size_t d = skip; d < sizes.size(); ++d) all.push_back(sizes[d]);
  return all;
}

}  // namespace

PackedSequence pack_padded_sequence(const Tensor& input, std::span<const int64_t> lengths,
                                    const PackOptions& options) {
  ARETE_CHECK(
      input.dim() >= 2,
      ValueError("pack_padded_sequence", "input must be (T, N, *)").got(to_string(input.sizes())));
  Tensor x = options.batch_first ? input.transpose(0, 1) : input;
  const int64_t steps = x.size(0), batch = x.size(1);
  ARETE_CHECK(int64_t(lengths.size()) == batch,
              ValueError("pack_padded_sequence",
                         "Expected `len(lengths)` to be equal to batch_size, but got " +
                             std::to_string(lengths.size()) +
                             " (batch_size=" + std::to_string(batch) + ")."));
  ARETE_CHECK(batch > 0 && std::ranges::all_of(lengths, [](int64_t n) { return n > 0; }),
              ValueError("pack_padded_sequence",
                         "Length of all samples has to be greater than 0, but found an element in "
                         "'lengths' that is <= 0"));
  PackedSequence packed;
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  if (!options.enforce_sorted) {
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](int64_t i) { return lengths[size_t(i)]; });
    std::vector<int64_t> back(order.size());
    for (size_t i = 0; i < order.size(); ++i) back[size_t(order[i])] = int64_t(i);
    packed.sorted_indices = tensor(order, TensorOptions(kInt64, input.device()));
    packed.unsorted_indices = tensor(back, TensorOptions(kInt64, input.device()));
    x = x.index_select(1, packed.sorted_indices);
  }
  const auto length = [&](size_t i) { return lengths[size_t(order[i])]; };
  for (size_t i = 1; i < order.size(); ++i)
    ARETE_CHECK(length(i) <= length(i - 1),
                ValueError("pack_padded_sequence",
                           "`lengths` array must be sorted in decreasing order when "
                           "`enforce_sorted` is True."));
  ARETE_CHECK(length(0) <= steps,
              ValueError("pack_padded_sequence", "Expected lengths not above the number of steps " +
                                                     std::to_string(steps) + ", but got " +
                                                     std::to_string(length(0))));
  packed.batch_sizes.resize(size_t(length(0)));
  for (size_t i = 0; i < order.size(); ++i)
    for (int64_t t = 0; t < length(i); ++t) ++packed.batch_sizes[size_t(t)];
  packed.data = x.narrow(0, 0, length(0))
                    .reshape(with(x.sizes(), 2, {length(0) * batch}))
                    .index_select(0, cells(packed.batch_sizes, batch, input.device()));
  return packed;
}

Padded pad_packed_sequence(const PackedSequence& sequence, bool batch_first, double padding_value,
                           int64_t total_length) {
  const std::vector<int64_t>& sizes = sequence.batch_sizes;
  ARETE_CHECK(!sizes.empty() && sequence.data.defined() &&
                  std::accumulate(sizes.begin(), sizes.end(), int64_t(0)) == sequence.data.size(0),
              ValueError("pad_packed_sequence", "batch_sizes do not fit the data"));
  const int64_t steps = int64_t(sizes.size()), batch = sizes[0];
  const int64_t total = total_length < 0 ? steps : total_length;
  ARETE_CHECK(total >= steps,
              ValueError("pad_packed_sequence",
                         "Expected total_length to be at least the length of the longest sequence "
                         "in input, but got total_length=" +
                             std::to_string(total) + " and max sequence length being " +
                             std::to_string(steps)));
  const Tensor& data = sequence.data;
  Tensor padded =
      index_copy(full(with(data.sizes(), 1, {total * batch}), padding_value, data.options()), 0,
                 cells(sizes, batch, data.device()), data)
          .reshape(with(data.sizes(), 1, {total, batch}));
  Padded result;
  result.lengths.assign(size_t(batch), 0);
  for (const int64_t n : sizes)
    for (int64_t i = 0; i < n; ++i) ++result.lengths[size_t(i)];
  if (sequence.unsorted_indices.defined()) {
    padded = padded.index_select(1, sequence.unsorted_indices);
    const std::vector<int64_t> sorted = result.lengths;
    const auto back = sequence.unsorted_indices.to_vector<int64_t>();
    for (size_t i = 0; i < back.size(); ++i) result.lengths[i] = sorted.at(size_t(back[i]));
  }
  result.sequences = batch_first ? padded.transpose(0, 1) : padded;
  return result;
}

Tensor pad_sequence(const std::vector<Tensor>& sequences, bool batch_first, double padding_value) {
  ARETE_CHECK(!sequences.empty(),
              ValueError("pad_sequence", "received an empty list of sequences"));
  int64_t longest = 0;
  for (const Tensor& s : sequences) longest = std::max(longest, s.size(0));
  std::vector<Tensor> filled;
  for (const Tensor& s : sequences) {
    const int64_t missing = longest - s.size(0);
    filled.push_back(
        missing ? cat({s, full(with(s.sizes(), 1, {missing}), padding_value, s.options())}) : s);
  }
  return stack(filled, batch_first ? 0 : 1);
}

PackedSequence pack_sequence(const std::vector<Tensor>& sequences, bool enforce_sorted) {
  std::vector<int64_t> lengths;
  for (const Tensor& s : sequences) lengths.push_back(s.size(0));
  return pack_padded_sequence(pad_sequence(sequences), lengths, {.enforce_sorted = enforce_sorted});
}

std::vector<Tensor> unpack_sequence(const PackedSequence& sequence) {
  const Padded padded = pad_packed_sequence(sequence, true);
  std::vector<Tensor> result;
  for (size_t i = 0; i < padded.lengths.size(); ++i)
    result.push_back(padded.sequences[int64_t(i)].narrow(0, 0, padded.lengths[i]));
  return result;
}

}  // namespace arete::nn::utils::rnn
