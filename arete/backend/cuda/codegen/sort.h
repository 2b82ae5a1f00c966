// Kernels of sort, topk and select.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "arete/backend/cuda/codegen/index.h"
#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/core/dtype.h"

namespace arete::cuda::sorting {

// The structs mirror device/radix_sort.cuh, device/row_sort.cuh, device/topk.cuh,
// device/place.cuh and device/select.cuh.
struct SortHistogramArgs {
  uint64_t in, counts;
  int64_t rows, length, parts, part_length;
  uint64_t flip;
  int64_t passes;
};
struct SortBasesArgs {
  uint64_t counts, idle;
  int64_t rows, length;
};
struct SortPassArgs {
  uint64_t in, keys[2], positions[2], values, indices, bases, states, next_tile, idle;
  int64_t length, tiles;
  uint64_t flip;
  int32_t pass, passes;
};
struct RowSortArgs {
  indexing::Walk rows;
  uint64_t in, values, indices;
  int64_t steps[3];
  int64_t length, keep;
  int32_t log2_slots, log2_rows;
  uint64_t flip;
  uint64_t candidate_keys, candidate_positions, candidate_counts;
  int64_t capacity, first_row;
};
struct TopkState {
  uint64_t key_prefix, position_prefix;
  uint32_t below, ticket;
  int32_t key_shift, position_shift;
  uint32_t by_position, done;
  uint32_t nans, unused;
};
struct Place {
  int32_t kind, unused;
  int64_t rank;
  indexing::Walk walk;
  uint64_t ranks;
  indexing::ErrorSink error;
};
struct TopkArgs {
  indexing::Walk rows;
  uint64_t in;
  int64_t step, length, keep, parts, part_length;
  uint64_t flip;
  uint64_t states, histograms, candidate_counts, candidate_keys, candidate_positions;
  int64_t capacity, first_row;
  int32_t on_positions, shift, width, is_first, bound_rank, unused;
  int64_t filter_capacity;
  uint64_t bounds, filter_counts, filter_keys, filter_positions;
  Place place;
};
struct SelectArgs {
  indexing::Walk rows;
  uint64_t in, values, indices;
  int64_t step, length;
  Place place;
  uint64_t states, candidate_keys, candidate_positions, candidate_counts;
  int64_t capacity, first_row;
};

/// What is sorted: a dtype, or the keys that this backend itself sorts.
struct Element {
  enum Kind : uint8_t { kDtype, kKey32, kKey64 } kind = kDtype;
  DType dtype = kUInt8;
  static Element of(DType t) { return {kDtype, t}; }
  static Element key32() { return {kKey32, kUInt8}; }
  static Element key64() { return {kKey64, kUInt8}; }
  size_t bytes() const { return kind == kDtype ? size_of(dtype) : kind == kKey32 ? 4 : 8; }
  const char* storage() const;
  /// A number of its own for every kind of element.
  size_t number() const { return kind == kDtype ? size_t(dtype) : size_t(kNumDTypes - 1 + kind); }
  static constexpr size_t kNumbers = kNumDTypes + 2;
};

inline constexpr int kDigits = 256, kSortThreads = 384;
inline constexpr int kHistogramThreads = 512, kHistogramItems = 4;
/// How rows are sorted: with positions of the elements, of 64 bits where rows are long, or without.
struct SortForm {
  Element element;
  bool wide = false, pairs = true;
  /// Bytes of a key with its position.
  size_t item() const { return element.bytes() + (pairs ? wide ? 8 : 4 : 0); }
  size_t number() const { return (element.number() * 2 + wide) * 2 + pairs; }
  static constexpr size_t kNumbers = 4 * Element::kNumbers;
};
/// Keys of a tile, and the bytes of shared memory for a block.
inline int sort_tile(const SortForm& f) {
  return kSortThreads * (f.item() <= 8 ? 16 : f.item() <= 12 ? 12 : 8);
}
inline size_t sort_shared(const SortForm& f) {
  const size_t tile = size_t(sort_tile(f)) * f.item(),
               counts = size_t(kSortThreads / 32 * kDigits) * 4;
  return (tile > counts ? tile : counts) + kDigits * (f.wide ? 12 : 8) + 64;
}
/// The longest rows that row_sort takes, and the shared memory for so many items.
inline constexpr int64_t kRowSortLength = 4096;
constexpr size_t row_sort_shared(size_t items, size_t key_bytes, bool candidates) {
  const size_t item = key_bytes == 8 ? 16 : key_bytes == 4 || candidates ? 8 : 4;
  return (items + items / (128 / item)) * item;
}
inline constexpr int kTopkThreads = 512, kTopkItems = 8, kTopkBins = 2048, kTopkDigitBits = 11,
                     kTopkSamples = 64;

/// The longest rows that a warp selects from, and those that a block does.
inline constexpr int64_t kSelectInWarp = 1024;
constexpr int64_t longest_select(size_t key_bytes) { return key_bytes == 8 ? 16384 : 32768; }
/// How many threads hold a row, and elements in each (Note [Selection by bisection]).
struct SelectShape {
  int group, items;
  /// Of a block, which has several rows where a warp is enough for one.
  int threads() const { return group <= 32 ? 512 : group; }
  size_t number() const {
    return size_t(std::bit_width(unsigned(group)) - 1) * 6 +
           size_t(std::bit_width(unsigned(items)) - 1);
  }
  static constexpr size_t kNumbers = 11 * 6;
};
/// For rows of `length`, up to 32768. `apart`: elements of a row do not lie side by side, those of
/// neighbouring rows may.
SelectShape select_shape(int64_t length, bool apart);

KernelSource sort_histogram_source(const SortForm& form);
KernelSource sort_bases_source(bool wide);
KernelSource sort_pass_source(const SortForm& form);
/// Elements of key32() give positions of 32 bits, all others i64.
KernelSource row_sort_source(Element element, bool candidates);
/// `selects`: for select.
KernelSource topk_count_source(DType dtype, bool selects);
KernelSource topk_collect_source(DType dtype, bool selects);
KernelSource topk_bound_source(DType dtype);
KernelSource topk_filter_source(DType dtype);
KernelSource select_source(DType dtype, SelectShape shape, bool candidates);
/// For rows longer than kSelectInWarp that select takes at once. Shared memory: row_sort_shared for
/// 2^log2_slots items.
KernelSource topk_rows_source(DType dtype, SelectShape shape);

}  // namespace arete::cuda::sorting
