// How a reduction is laid out over the threads of a GPU: pure arithmetic on sizes and strides.
#pragma once

#include <cstdint>
#include <span>

#include "arete/prim/loop_nest.h"

namespace arete::cuda {

// Note [Reduction plans]
// The planned nest has the reduced dimensions first, then the kept ones. If the data run fastest
// along a reduced dimension, the form is `rows`: a group of threads walks the elements of one
// result. Else it is `columns`: the kept dimension along which the data run fastest is moved to the
// front, every thread owns `vector` neighbouring results and steps through the reduced elements.
// Where rows of columns begin at any element of a vector (odd widths), a thread's vector is what
// memory has as an aligned one in its rows, which are a multiple of `vector` rows apart: all begin
// alike, at another column than those of its neighbours (`shifted`). What a vector has of other
// rows counts for nothing, and blocks load one vector more than they have columns for. Where each
// of two inputs lies along one kept dimension and not along the other (distances of all rows of two
// matrices), the form is `tiles`: a block has a square of results and keeps the parts of the rows
// that meet there in shared memory. Kept dimensions begin with those of the second and the first
// input. Where there are fewer results than the GPU can work on, each is split: parts are reduced
// to partial results in scratch memory, which a second launch reduces (plan_combine). The split
// depends on sizes, strides, alignment and the GPU only, and partial results are merged in a fixed
// order, so the same call gives the same bits.

/// The numbers at the start of every kernel's arguments; mirrors ReduceArguments in
/// device/reduce.cuh, which says what they are.
struct ReduceHeader {
  int64_t outputs = 0, reduced = 0, splits = 1, blocks = 0, column_blocks = 0, other_blocks = 0;
  void* partials = nullptr;
  int64_t part_step = 0, result_step = 0;
  int32_t log_x = 0, log_y = 0;
};

/// What a plan depends on besides the operands.
struct ReduceLimits {
  int multiprocessors;
  int max_vector = 16;  ///< elements; half as many for columns
  bool tiles = false;   ///< whether kernels of that form can be made
};

/// Operands are the outputs, then the inputs.
struct ReducePlan {
  static constexpr int kColumnThreads = 256, kRowThreads = 512, kTileThreads = 256, kTile = 64;

  prim::LoopNest nest;
  int n_outputs = 1;
  int reduced_rank = 1;
  bool columns = false, tiles = false;
  bool shifted = false;  ///< columns: vectors begin anywhere in a row
  int vector = 1;
  uint32_t uniform = 0;     ///< bit o: operand o is one element for all of a vector
  int main = 0;             ///< rows, shifted: operand whose address vectors are aligned by
  bool wide_index = false;  ///< offsets need 64 bits
  ReduceHeader header;
  unsigned grid = 1, threads = 32;

  /// Partial results that the kernel writes; 0 if it finishes by itself.
  int64_t n_partials() const { return header.splits > 1 ? header.splits * header.outputs : 0; }
};

/// The plan for reducing the dimensions of `space` in `reduced`. `views`: n_outputs outputs, then
/// the inputs; all broadcast to `space`.
ReducePlan plan_reduce(IntList space, uint32_t reduced, std::span<const prim::View> views,
                       int n_outputs, const ReduceLimits& limits);

/// The second launch: reduces the partial results of `first`, `size` bytes each, to its outputs.
/// The nest's last operand is the partial results; their dtype means nothing.
ReducePlan plan_combine(const ReducePlan& first, std::byte* partials, int64_t size,
                        const ReduceLimits& limits);

/// The smallest power of two >= n as its logarithm; n >= 1.
int log2_ceil(int64_t n);

}  // namespace arete::cuda
