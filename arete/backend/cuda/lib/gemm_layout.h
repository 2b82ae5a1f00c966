// How a product of strided views is given to a library that knows column-major matrices, their
// transposes and one batch stride. Pure integer arithmetic: nothing here needs a GPU.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "arete/core/layout.h"
#include "arete/prim/args.h"

namespace arete::cuda {

/// Strides of a matrix, in elements.
struct MatrixStrides {
  int64_t row = 0, column = 0;
};

/// One loop over products: its length and what it adds to the position in each operand.
struct BatchLoop {
  int64_t size = 1, a = 0, b = 0, out = 0, aux = 0;
};

/// A product with its dimensions named. Batch dimensions that only continue the rows of a and out
/// (or the columns of b and out) are part of m (n); the others are merged where all operands walk
/// them in one stride, innermost first.
struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  MatrixStrides a, b, out, aux;
  bool has_aux = false;
  int loops = 0;
  std::array<BatchLoop, kMaxRank> loop;

  int64_t batches() const {
    int64_t count = 1;
    for (int d = 0; d < loops; ++d) count *= loop[size_t(d)].size;
    return count;
  }
};
GemmShape gemm_shape(const prim::GemmArgs& args);

/// A matrix in memory as a library sees it: columns (of the matrix, or of its transpose) without
/// gaps, `ld` elements from one to the next.
struct StoredMatrix {
  bool transposed = false;
  int64_t ld = 0;
};
/// Nothing where neither dimension is contiguous, or elements overlap or run backwards. A single
/// column has no next one: its ld is rounded up, so that it does not look unaligned.
std::optional<StoredMatrix> stored_matrix(int64_t rows, int64_t columns, MatrixStrides strides);

/// One call of the library: D (m x n, column-major) = op(A) op(B). With `swapped` D is out's
/// transpose, that is out row by row, A is the caller's b and B the caller's a.
struct LibraryGemm {
  int64_t m = 0, n = 0, k = 0;
  bool swapped = false, transpose_a = false, transpose_b = false;
  int64_t lda = 0, ldb = 0, ldd = 0;
  int64_t ld_aux = 0;  // 0: no aux, or not in the order of D
  int64_t batch = 1, batch_stride_a = 0, batch_stride_b = 0, batch_stride_d = 0,
          batch_stride_aux = 0;
};

/// The calls for a shape: `call`, once for every step of the outer loops. Or what must be copied
/// first: into contiguous memory, and with `expand` so that it is there for every batch (without,
/// dimensions that are broadcast stay so).
struct LibraryPlan {
  bool copy_a = false, copy_b = false, copy_out = false, expand = false;
  LibraryGemm call;
  int outer_loops = 0;
  std::array<BatchLoop, kMaxRank> outer;  // innermost first

  bool fits() const { return !copy_a && !copy_b && !copy_out; }
  int64_t calls() const {
    int64_t count = 1;
    for (int d = 0; d < outer_loops; ++d) count *= outer[size_t(d)].size;
    return count;
  }
};
/// `by_rows`: the columns of out shall be the rows of D if possible (a bias is added along them).
/// `element_size` in bytes: the time that copies take decides between them and many calls.
/// No size of `shape` is 0.
LibraryPlan plan_library_gemm(const GemmShape& shape, bool by_rows, int64_t element_size);

}  // namespace arete::cuda
