// Sort of contiguous rows of any length (Note [Radix sort in one pass for each digit] in
// device/radix_sort.cuh).
#pragma once

#include "arete/backend/cuda/codegen/sort.h"
#include "arete/backend/cuda/index_common.h"

namespace arete::cuda {

/// Memory is the caller's; addresses are of the device.
struct RadixSort {
  sorting::SortForm form;
  int64_t rows, length;  // `in` is (rows, length), contiguous
  uint64_t in;
  int passes;  // over digits of 8 bits, from the lowest
  bool descending = false;
  /// Two buffers of keys and, in pairs, positions, u32 or with wide u64. Elements that have one
  /// digit need neither, those of an even number may use (the beginning of) their outputs as the
  /// second.
  uint64_t keys[2], positions[2];
  /// Where elements and i64 positions (if not 0) go. 0: keys and positions stay in a buffer.
  uint64_t values = 0, indices = 0;
};
/// Positions of 32 bits do for rows of this length.
constexpr bool radix_sort_is_narrow(int64_t length) { return length < (int64_t(1) << 30); }
/// Returns the number of the buffer that holds the result, where there are no `values`.
size_t radix_sort(CudaBackend& backend, CUstream stream, const RadixSort& sort);

/// Sort of rows of up to sorting::kRowSortLength elements, for each index of `nest`, whose operands
/// are in, values and indices (the last may be absent) without the sorted dimension.
struct RowSort {
  sorting::Element element;
  const prim::LoopNest* nest;
  int64_t steps[3];  // of the operands along the dimension, in bytes
  int64_t length, keep;
  bool descending = false;
};
void row_sort(CudaBackend& backend, CUstream stream, const RowSort& sort);
/// Launches the kernel of row_sort for rows of at most `longest` elements.
void launch_row_sort(CudaBackend& backend, CUstream stream, sorting::Element element,
                     bool candidates, int64_t longest, sorting::RowSortArgs& args);

/// Exclusive or on keys that makes ascending order the wanted one.
constexpr uint64_t flip_for(bool descending) { return descending ? ~uint64_t(0) : 0; }

/// A view's memory as (.., length) rows: `dim` moved to the end, without gaps.
class DenseRows {
 public:
  /// Strides of a dense tensor of these sizes whose dimension `dim` is innermost.
  static Shape strides(IntList sizes, int dim);
  static bool holds(const prim::View& v, int dim);
};

}  // namespace arete::cuda
