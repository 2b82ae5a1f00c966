// Copies of any strides, between any dtypes.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "arete/backend/cuda/codegen/copy.h"
#include "arete/backend/cuda/kernel_memo.h"
#include "arete/backend/cuda/raw_elements.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/base/error.h"
#include "arete/expr/value.h"
#include "arete/prim/compiled_kernels.h"
#include "arete/prim/complex_parts.h"

namespace arete::cuda {

using prim::LoopNest;
using prim::View;

namespace {

// Mirrors device/copy.cuh.
struct TransposeArgs {
  const std::byte* in;
  std::byte* out;
  int64_t in_stride, out_stride;
  uint32_t rows, columns;
  uint32_t tiles[2], magic[2], shift[2];
  uint32_t batch_rank;
  uint32_t batch_size[14];
  int64_t batch_in[14], batch_out[14];
};

// The kernel of an element size and a vector length on one device.
const Kernel& transpose_kernel(CudaBackend& backend, int bytes, int vector) {
  static KernelTable<5 * 5> kernels;  // by the logarithms of the two, at most 16 each
  const int number = std::countr_zero(unsigned(bytes)) * 5 + std::countr_zero(unsigned(vector));
  return kernels.get(backend, size_t(number), [&] { return transpose_source(bytes, vector); });
}

// Copies through tiles if the operands are contiguous along two different dimensions, both long.
bool launch_transpose(CudaBackend& backend, const LoopNest& nest, CUstream stream) {
  constexpr int64_t kShort = 16;
  const LoopNest::Operand &out = nest.operands[0], &in = nest.operands[1];
  const int64_t bytes = int64_t(size_of(out.dtype));
  if (nest.rank < 2 || nest.rank > 16 || out.strides[0] != bytes || nest.sizes[0] < kShort)
    return false;
  size_t column = 0;
  for (size_t d = 1; d < size_t(nest.rank); ++d)
    if (in.strides[d] == bytes && nest.sizes[d] >= kShort) column = d;
  if (column == 0) return false;

  TransposeArgs a{};
  a.in = in.data;
  a.out = out.data;
  a.in_stride = in.strides[0];
  a.out_stride = out.strides[column];
  const int64_t rows = nest.sizes[0], columns = nest.sizes[column];
  if (rows > INT32_MAX || columns > INT32_MAX) return false;
  a.rows = uint32_t(rows);
  a.columns = uint32_t(columns);
  // Everything that must consist of whole vectors, in bytes.
  uint64_t bits = uint64_t(reinterpret_cast<uintptr_t>(in.data)) |
                  uint64_t(reinterpret_cast<uintptr_t>(out.data)) | uint64_t(a.in_stride) |
                  uint64_t(a.out_stride);
  int64_t batches = 1;
  for (size_t d = 1; d < size_t(nest.rank); ++d) {
    if (d == column) continue;
    const size_t k = a.batch_rank++;
    if (nest.sizes[d] > INT32_MAX) return false;
    a.batch_size[k] = uint32_t(nest.sizes[d]);
    a.batch_in[k] = in.strides[d];
    a.batch_out[k] = out.strides[d];
    bits |= uint64_t(in.strides[d]) | uint64_t(out.strides[d]);
    batches *= nest.sizes[d];
  }
  if (bits % uint64_t(bytes) != 0) return false;
  bits |= uint64_t((rows | columns) * bytes);
  int vector = transpose_vector(int(bytes));
  while (bits % uint64_t(vector * bytes) != 0) vector /= 2;
  // Tiles much longer than the matrix would leave most threads without work.
  while (vector > 2 && transpose_tile(int(bytes), vector / 2) >= std::min(rows, columns))
    vector /= 2;
  const int64_t tile = transpose_tile(int(bytes), vector);
  const int64_t row_tiles = (rows + tile - 1) / tile, column_tiles = (columns + tile - 1) / tile;
  const int64_t tiles = row_tiles * column_tiles;
  if (tiles > INT32_MAX || batches > INT32_MAX / tiles) return false;
  for (int k = 0; k < 2; ++k) {
    a.tiles[k] = uint32_t(k == 0 ? column_tiles : row_tiles);
    const FastDivisor divisor = fast_divisor(a.tiles[k]);
    a.magic[k] = divisor.magic;
    a.shift[k] = divisor.shift;
  }
  backend.launch(transpose_kernel(backend, int(bytes), vector), Dim3{unsigned(tiles * batches)},
                 Dim3{256}, 0, stream, a);
  return true;
}

// Mirror device/copy_pieces.cuh.
struct CopyPiece {
  const std::byte* in;
  std::byte* out;
  int64_t in_stride[3], out_stride[3];
  uint32_t size[2], magic[2], shift[2];
  uint32_t total, width, first, row_bytes;
};
struct CopyPieces {
  CopyPiece pieces[kMostPieces];
  uint32_t used;
};

// Bytes below which the driver copies.
constexpr int64_t kSmallCopy = int64_t(1) << 20;
constexpr int64_t kLongestRow = INT32_MAX / 2;

/// The bytes of a row where whole words pay (Note [Copies of rows at any address]), or 0. `width`:
/// of the elements of `nest`, which its addresses, strides and rows allow.
int64_t bytes_of_odd_rows(const LoopNest& nest, int64_t width) {
  const int64_t bytes = nest.sizes[0] * width;
  const bool side_by_side =
      nest.operands[0].strides[0] == width && nest.operands[1].strides[0] == width;
  return side_by_side && width < 8 && bytes >= 32 * width && bytes <= kLongestRow ? bytes : 0;
}

/// Copies of one launch.
class Pieces {
 public:
  /// Adds a copy, unless a piece cannot be of its sizes. `nest`: with elements of `width` bytes.
  /// `row_bytes`: see bytes_of_odd_rows().
  bool add(LoopNest nest, int64_t width, int64_t row_bytes) {
    // The words that a row may touch, wherever it begins.
    if (row_bytes > 0) nest.sizes[0] = (row_bytes + 30) / 16;
    if (nest.rank > 3 || nest.numel() > INT32_MAX) return false;
    has_rows_ |= row_bytes > 0;
    CopyPiece& p = a_.pieces[a_.used++];
    p = {};
    p.in = nest.operands[1].data;
    p.out = nest.operands[0].data;
    p.total = uint32_t(nest.numel());
    p.width = uint32_t(width);
    p.row_bytes = uint32_t(row_bytes);
    p.first = blocks_;
    for (int d = 0; d < 3; ++d) {
      const auto e = size_t(d);
      const bool there = d < nest.rank;
      p.in_stride[d] = there ? nest.operands[1].strides[e] : 0;
      p.out_stride[d] = there ? nest.operands[0].strides[e] : 0;
      if (d == 2) break;
      p.size[d] = there ? uint32_t(nest.sizes[e]) : 1;
      const FastDivisor divisor = fast_divisor(p.size[d]);
      p.magic[d] = divisor.magic;
      p.shift[d] = divisor.shift;
    }
    blocks_ += (p.total + 1023) / 1024;
    return true;
  }
  void launch(CudaBackend& backend, CUstream stream) const {
    if (a_.used == 0) return;
    static KernelTable<2> kernels;
    backend.launch(kernels.get(backend, has_rows_, [&] { return pieces_source(has_rows_); }),
                   Dim3{blocks_}, Dim3{256}, 0, stream, a_);
  }

 private:
  CopyPieces a_{.used = 0};
  unsigned blocks_ = 0;
  bool has_rows_ = false;
};

}  // namespace

void CudaBackend::copy_pieces(const prim::MultiPointwiseArgs& args) {
  ARETE_ASSERT(args.inputs.size() <= kMostPieces);
  const CUstream stream = enter(args);
  Pieces pieces;
  for (size_t k = 0; k < args.inputs.size(); ++k) {
    const View &out = args.outputs[k], &in = args.inputs[k];
    if (out.numel() == 0) continue;
    const View views[] = {out, in};
    LoopNest nest = LoopNest::plan(out.sizes, views);
    const int64_t element = int64_t(size_of(out.dtype)), bytes = nest.numel() * element;
    const bool turns = nest.operands[1].strides[0] != element && nest.rank > 1;
    const int64_t width = widen_elements(nest), row_bytes = bytes_of_odd_rows(nest, width);
    // What is large by itself, and has a better kernel.
    const bool is_apart = bytes >= kSmallCopy && (turns || (width < 4 && row_bytes == 0));
    if (is_apart || !pieces.add(nest, width, row_bytes)) copy({out, in});
  }
  pieces.launch(*this, stream);
}

void CudaBackend::copy(const prim::CopyArgs& args) {
  const View &out = args.out, &in = args.in;
  if (out.numel() == 0) return;
  if (out.dtype == in.dtype) {
    const CUstream stream = enter(args);
    const View views[] = {out, in};
    LoopNest nest = LoopNest::plan(out.sizes, views);
    const int64_t run = nest.is_linear() && nest.operands[1].strides[0] != 0
                            ? nest.sizes[0] * int64_t(size_of(out.dtype))
                            : 0;
    if (run == 0 && launch_transpose(*this, nest, stream)) return;
    const int width = widen_elements(nest);
    // Large copies are faster by our own vectors (4.3 against 3.6 TB/s on an H200).
    if (run > 0 && (run < kSmallCopy || (run > kLongestRow && width < 16))) {
      if (prim::is_rehearsing()) return;
      ARETE_CU(cuMemcpyDtoDAsync, CUdeviceptr(reinterpret_cast<uintptr_t>(out.data)),
               CUdeviceptr(reinterpret_cast<uintptr_t>(in.data)), size_t(run), stream);
      return;
    }
    if (const int64_t row_bytes = bytes_of_odd_rows(nest, width); row_bytes > 0)
      if (Pieces piece; piece.add(nest, width, row_bytes)) return piece.launch(*this, stream);
    launch_nest(*this, move_kernels(width), nest, {}, stream);
    return;
  }
  if (prim::copy_by_parts(*this, args)) return;
  pointwise({expr::conversion(in.dtype, out.dtype).get(), {&in, 1}, {&out, 1}, {}});
}

}  // namespace arete::cuda
