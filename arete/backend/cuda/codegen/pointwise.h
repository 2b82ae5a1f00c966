// Kernels that compute elements independently of each other: programs, and moves of plain bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/expr/program.h"

namespace arete::cuda {

/// What a kernel computes for one element. Operands are the outputs, then the inputs.
struct ElementCode {
  std::string name;
  std::string function;              // the text of the device function `element`
  std::vector<std::string> storage;  // the element type of each operand, in the device's names
  std::vector<int> bytes;            // and its size
  int n_outputs = 0, n_params = 0;
  uint32_t tables = 0;    // bit k: input k is one: `element` takes its address
  bool computes = false;  // `element` takes its inputs as compute types, not as they are stored
  int weight = 1;      // about how many machine instructions one element takes in the kernel's text
  bool heavy = false;  // so many instructions that few threads would leave a GPU waiting for them

  int operands() const { return int(storage.size()); }
  bool is_table(int operand) const {
    return operand >= n_outputs && operand - n_outputs < 32 && tables >> (operand - n_outputs) & 1;
  }
  /// Elements of the vectors by which aligned memory is moved: the widest operand takes 16 bytes.
  int vector() const;
};
ElementCode element_code(const expr::Program& program);
/// output = input for elements of 1, 2, 4, 8 or 16 bytes.
ElementCode move_code(int bytes);
/// output = the bits in two parameters (the second for 16 bytes only).
ElementCode fill_code(int bytes);

// Note [Pointwise kernels]
// linear   all operands are one run of elements, or one element for all (`uniform`). A thread
//          handles `unroll` vectors that are a block's width apart. The elements after the last
//          whole vector are left to the last block's first threads.
// strided  any strides, 32-bit offsets; the caller splits larger spaces. Dimension 0 counts
//          vectors: operands are contiguous there, or `uniform`; with vectors of one element they
//          may have any stride. Two outputs that take turns in memory (`paired`: the parts of
//          complex numbers) are stored together.
// multi    linear (with `uniform` inputs) over many tensors of any sizes; a block finds its tensor
// in a table.
// counts   the program's one result is a place, and is counted instead of stored: see
// device/count.cuh. Inputs are as in linear; the blocks together take all of them in turn.
// taps     the program's results are pairs of a place and a factor: Note [Taps] in device/taps.cuh.
//          tap_lists is for small planes.
// The kernels' only argument is a struct whose layout the functions below describe.
struct PointwiseShape {
  enum class Kind : uint8_t { linear, strided, multi, counts, taps, tap_lists } kind = Kind::linear;
  int vector = 1;           // elements; a power of two
  int unroll = 1;           // vectors of a thread
  int rank = 1;             // strided only
  uint32_t uniform = 0;     // bit k: input k is one element for a whole vector (linear: for all)
  bool long_table = false;  // multi only: see multi_capacity
  bool paired = false;      // strided only: of two outputs of one type
};
/// How many vectors a thread should have in flight.
int unroll_for(const ElementCode& code, const PointwiseShape& shape);
KernelSource pointwise_source(const ElementCode& code, const PointwiseShape& shape);

/// The most threads a block may have.
inline constexpr int kPointwiseThreads = 256;

/// Arguments of linear: void* data[operands]; i64 vectors, n; ParamSlot params[n_params].
///
/// Arguments of counts: those of linear, data[0] unused; then CountTarget.
struct CountTarget {
  uint64_t out, factor;
  int64_t size, step, is_wide;
};
inline constexpr int64_t kMostCounted = 8192;  // places
/// Threads of a block of counts, two of which fit on a multiprocessor.
inline constexpr int kCountThreads = 512;

/// Arguments of taps and tap_lists: void* data[operands], those of outputs unused; ParamSlot
/// params[n_params]; i64 step[inputs][2], in bytes, from one image and from one point to the next;
/// indexing::TapTarget.
///
/// Arguments of strided: void* data[operands]; ParamSlot params[n_params]; u32 total; then for each
/// of the `rank` dimensions u32 size, all magic, all shift; i32 stride[operands][rank], in bytes.
///
/// Arguments of multi: void* data[tensors][operands]; i64 n[tensors]; ParamSlot params[n_params];
/// u32 first[tensors], used, chunk. Tensor t has blocks first[t] to first[t + 1] - 1, each of
/// `chunk` elements; tensors = multi_capacity. A short table keeps to the 4 KB of arguments that
/// every driver takes; a long one needs driver and compiler of CUDA 12.1.
int multi_capacity(int operands, int n_params, bool long_table);

/// x / divisor = (mulhi(x, magic) + x) >> shift for x < 2^31 and 1 <= divisor < 2^31.
struct FastDivisor {
  uint32_t magic, shift;
};
FastDivisor fast_divisor(uint32_t divisor);

}  // namespace arete::cuda
