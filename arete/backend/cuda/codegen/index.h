// Kernels that read and write at computed positions: gather, scatter, take_rows, add_rows.
#pragma once

#include <cstdint>

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/core/dtype.h"
#include "arete/prim/args.h"
#include "arete/prim/loop_nest.h"

namespace arete::cuda::indexing {

// The structs mirror device/index.cuh, device/scatter.cuh, device/taps.cuh and device/add_rows.cuh;
// addresses are numbers of 64 bits.
struct Divisor {
  uint32_t value = 1, magic = 1, shift = 0, unused = 0;
};
/// For dividends below 2^31; `value` in [1, 2^31).
Divisor make_divisor(int64_t value);

struct WalkDim {
  int64_t size;
  int64_t strides[3];
  Divisor divisor;
};
struct Walk {
  int64_t count, rank;
  WalkDim dims[kMaxRank];
};
/// Of a nest with at most three operands.
Walk make_walk(const prim::LoopNest& nest);

// Note [Strips]
// Where elements of a row have indices of their own along an outer dimension, neighbours go to rows
// that lie apart, and of each sector of 32 bytes that is moved one element is used: the others'
// turns come when other rows are walked, after the cache has lost it. So long rows are walked in
// strips of columns, each through all rows, as wide as a strip of what is indexed fits in the cache
// beside those of other blocks.

/// How many columns a strip has where a walk of gather or scatter, whose operand 2 is what is
/// indexed along a dimension of `size` positions, is to be made in strips; else 0.
int64_t strip_width(const prim::LoopNest& nest, int64_t size, int64_t l2_bytes);
/// All strips as one walk, and what columns are left over, with a strip if they are no more than a
/// quarter of one.
SmallVector<prim::LoopNest, 2> strips_of(const prim::LoopNest& nest, int64_t width);

struct ErrorSink {
  uint64_t record, op;
  int64_t dim;
};
struct GatherArgs {
  Walk walk;
  uint64_t out, index, in;
  int64_t size, step;
  int64_t leaves_out, left_out;
  ErrorSink error;
};
struct TakeRowsArgs {
  uint64_t table, out, index;
  int64_t count, pieces, rows, table_stride, out_stride;
  Divisor divisor;
  ErrorSink error;
};
struct ScatterArgs {
  Walk walk;
  uint64_t src, index, out, factors;
  int64_t size, step;
  ErrorSink error;
};
struct ScatterKeysArgs {
  Walk walk;
  uint64_t index, keys;
  int64_t length, inner, size, destinations;
  ErrorSink error;
};
struct ScatterSortedArgs {
  Walk walk;
  uint64_t src, out, factors, keys, positions;
  int64_t inner, size, step, destinations;
};
struct AddRowsKeysArgs {
  uint64_t index, keys;
  int64_t count, rows;
  ErrorSink error;
};
struct AddRowsArgs {
  uint64_t out, src, keys, positions, partial;
  int64_t count, rows, width, out_stride, src_stride, out_step, src_step, slices;
  uint64_t source, factors;
  int64_t src_rows, left_out;
  ErrorSink error;
  uint64_t begins;
  int64_t run;
  int32_t mean;
  uint64_t counts, top, piece_tops;
};

struct TapTarget {
  uint64_t src, out;
  int64_t images, channels, points, plane, share, group;
  Divisor of_points, of_plane, of_channels;
};
/// Threads of a block that adds at taps, and the most of one that sums them up in lists.
inline constexpr int kTapThreads = 256, kTapListThreads = 512;
/// Points for which a block with lists pays: images of fewer share one.
inline constexpr int64_t kTapListPoints = 128;
/// Shared memory of a block with lists: the elements of its planes, and its taps.
int64_t tap_lists_bytes(int64_t elements, int64_t taps, DType dtype);

/// Elements that a block of gather, scatter or take_rows handles, and its threads.
inline constexpr int64_t kThreads = 256, kElementsPerBlock = 1024;
/// Shared memory of scatter_few.
inline constexpr int64_t kFewBytes = 16384;
/// Entries after which add_rows cuts a sum (Note [Pieces of long runs] in device/add_rows.cuh).
inline constexpr int64_t kPiece = 256;

// Where a parameter says `wide`, offsets, keys and positions have 64 bits instead of 32.
// `bytes`: of an element, 1 to 16.
KernelSource gather_source(size_t bytes, bool wide);
KernelSource take_rows_source(size_t bytes, bool wide);
/// Modes other than set, for dtypes that has_atomic() names. `factors`: of add, f32 and f64 only.
KernelSource scatter_source(prim::ScatterMode mode, DType dtype, bool wide, bool factors = false);
KernelSource scatter_set_source(size_t bytes, bool wide);
/// Additions to a vector of few elements (has_few): i32, i64, f32 or f64. `equal`: all add one
/// number, i32 or i64, and each block handles less than 2^31 of them.
KernelSource scatter_few_source(DType dtype, bool wide, bool equal);
bool has_few(DType dtype, int64_t size);
bool has_atomic(prim::ScatterMode mode, DType dtype);
KernelSource scatter_keys_source(bool wide);
KernelSource scatter_sorted_source(prim::ScatterMode mode, DType dtype, bool wide,
                                   bool factors = false);
KernelSource scatter_sorted_set_source(size_t bytes, bool wide);
KernelSource add_rows_keys_source(bool wide);
/// Columns that a lane has of a row: 16 bytes side by side, or, `spread`, with any step between
/// them, each of which its neighbours have the next of.
constexpr int add_rows_columns(DType dtype, bool spread) {
  const int columns = int(16 / size_of(dtype));
  return spread && columns > 8 ? 8 : columns;
}
/// `routed`: with sources and factors, for dtypes of floating numbers.
KernelSource add_rows_source(DType dtype, bool spread, bool wide, bool routed = false);
KernelSource add_row_pieces_source(DType dtype, bool spread, bool wide);
/// For dtypes of floating numbers; maxima in place of sums for real ones.
KernelSource add_runs_source(DType dtype, bool spread, bool maxima = false);
KernelSource add_run_pieces_source(DType dtype, bool spread, bool maxima = false);

/// Bytes of what sums of a dtype are formed in.
size_t sum_bytes(DType dtype);

}  // namespace arete::cuda::indexing
