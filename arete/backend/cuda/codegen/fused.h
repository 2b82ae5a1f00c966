// Source text of fused kernels (Note [Fused kernels] in prim/args.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/base/hash.h"
#include "arete/prim/args.h"

namespace arete::cuda {

// Note [Rows on the GPU]
// A block works on `rows` rows at a time, each with `threads` threads. Elements are taken in chunks
// of `vector` neighbours, which move as one access; thread t of a row has the chunks t, t +
// threads, and so on, in every stage.
//   rows     neighbouring threads have neighbouring chunks of one row
//   columns  neighbouring threads have neighbouring rows: for data that run fastest from row to
//   row.
//            With `bundles` a thread has `vector` neighbouring rows, whose elements at one place
//            are its chunk; what there is one of for a row is an array then, one element for each.
// Where rows begin at any element of an aligned chunk (`shifted`: rows of an odd length, say),
// chunks are what memory has as aligned ones: a row's first and last chunks have elements of its
// neighbours, too, which count for nothing and are not stored. They lie in memory as the row's own:
// an aligned access crosses no page. Inputs of `shared`, of which several rows read the same, begin
// elsewhere in a chunk than the rows: their elements are read one by one.
// How a row's data stay at hand between stages:
//   resident  in registers: each thread has at most `count` chunks. The inputs of `cached` are read
//             once, and what two stages compute alike the compiler computes once.
//   streamed  `count` chunks at a time; the inputs of `cached` stay in shared memory from the first
//             stage that reads them (all their chunks or, if `partial`, those that it holds), other
//             data are read again by each stage
// Few and long rows are divided among blocks (`phase` >= 0): a launch for each reduce stage, and
// one for what comes after the last. A block leaves its partial results in memory; the blocks of
// the next launches combine these first, all in the same order, and compute the row values anew.
// Every second launch walks its part of the rows backwards: what the launch before read last is
// still in the device's cache.
// Rows whose elements are looked up in what all rows share have one thread each, and many blocks
// their elements where rows are few: one phase then.
// Reductions over rows (reduce_columns) take part where rows are resident in the mapping `rows`: a
// block works on one row after another and its threads combine what they meet in their columns in
// registers; every block leaves its results in memory, and a second launch combines those of all
// blocks, always in the same order. As few blocks are at work there, one of 16-bit elements loads
// its next row before it computes the one at hand (`ahead`). Elsewhere, and where blocks would have
// few long rows each, these stages are reductions of their own.

/// What a fused kernel is specialised on.
struct FusedVariant {
  enum class Mapping : uint8_t { rows, columns } mapping = Mapping::rows;
  bool resident = false;
  bool exact = false;    ///< every thread has exactly `count` chunks, or streams in whole `count`s
  bool wide = false;     ///< 64-bit positions within a row, strides and numbers of rows
  bool partial = false;  ///< streamed: shared memory holds some chunks of `cached` only
  bool columns = false;  ///< with the reduce_columns stages
  bool ahead = false;    ///< columns: a block loads its next row before it works on one
  bool bundles = false;  ///< columns, streamed: chunks lie across rows
  bool shifted = false;  ///< rows: these begin anywhere in a chunk
  int phase = -1;        ///< -1: all stages in one launch
  int threads = 1, rows = 1, vector = 1, count = 1;
  int inner_rank = 1, outer_rank = 0;
  // Bit i: tensor input i ...
  uint32_t uniform = 0;  ///< has one element for a row
  uint32_t single = 0;   ///< has one element for a chunk
  uint32_t cached = 0;   ///< is kept between stages
  uint32_t written = 0;  ///< is also an output
  uint32_t shared = 0;   ///< shifted: has the same elements for several rows

  int block() const { return threads * rows; }
  /// With `columns`: blocks at work on one multiprocessor. Small ones leave a thread more than 64
  /// registers, which it needs.
  int resident_blocks() const { return std::clamp((block() < 512 ? 896 : 1024) / block(), 1, 16); }
};

/// Reduce stages of a spec and their number of results.
struct FusedReductions {
  int stages = 0, results = 0;
};
FusedReductions reductions_of(const prim::FusedSpec& spec);
/// A result of a reduce_columns stage and the tensor output it goes to.
struct FusedColumn {
  prim::Monoid monoid;
  expr::Type type;
  int output;
};
std::vector<FusedColumn> columns_of(const prim::FusedSpec& spec);
/// Bytes that a block's result for a column takes in memory.
size_t column_bytes(const std::vector<FusedColumn>& columns);
/// Whether a phase has stages over elements; whether it has anything to do at all.
bool phase_has_elements(const prim::FusedSpec& spec, int phase);
bool phase_is_empty(const prim::FusedSpec& spec, int phase);
/// The number of parameters that the stages read.
size_t parameters_of(const prim::FusedSpec& spec);

/// The kernel's one argument is a struct of 8-byte members in this order (see fused_plan.cpp):
///   rows (with bundles: bundles); chunks (shifted: elements of a row); splits; span: chunks of one
///   split; partials: address; for each input: its chunks in shared memory, and from which byte on;
///   sizes of the dimensions, inner ones first, in chunks; for each output, then each input:
///   address and byte strides per dimension; parameters.
/// Partial result k of split s of row r (of all, with bundles too) is the 8-byte cell
/// (k * splits + s) * rows + r.
KernelSource fused_source(const prim::FusedSpec& spec, const FusedVariant& variant);

/// Combines what the blocks of a kernel with `columns` have left: of result k and block b, column c
/// is value (b * columns + c) from byte k * blocks * columns * 8 of the partial results on. The
/// argument is a struct of 8-byte members: partials: address; blocks; columns; addresses of the
/// outputs, which are contiguous and have the `dtypes`. Launched with kTotalsBlock threads, for
/// each result (grid's y) a block for each kTotalsColumns columns.
KernelSource fused_totals_source(const prim::FusedSpec& spec, const std::vector<DType>& dtypes);
constexpr int kTotalsBlock = 1024, kTotalsColumns = 32;

/// Equal for equal sources.
Hash128 fused_key(const prim::FusedSpec& spec, const FusedVariant& variant, int device);

std::vector<KernelSource> fused_samples();

}  // namespace arete::cuda
