// The argument structs of the primitives (docs/architecture.md). Outputs are always allocated by
// the caller; views are valid during the call only.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "arete/expr/program.h"
#include "arete/prim/view.h"

namespace arete::prim {

/// Associative operations with an identity. `all` and `any` work on booleans.
enum class Monoid : uint8_t { sum, prod, min, max, all, any };

/// out[...] = value (converted to the dtype; `value` is an i64 for integers and booleans; `imag`
/// matters for complex outputs only).
struct FillArgs {
  View out;
  expr::Literal value;
  bool value_is_integer = false;
  double imag = 0;
};

/// out = in, any strides and any pair of dtypes; `in` broadcasts to out. Overlap is not allowed.
struct CopyArgs {
  View out, in;
};

/// out[i] = start + i * step over a 1-d view.
struct IotaArgs {
  View out;
  double start = 0, step = 1;
  int64_t istart = 0, istep = 1;  // used instead for integer outputs
};

/// outputs = program(inputs, params) element by element. Outputs have one shape, inputs broadcast
/// to it. An input may be exactly one of the outputs (in place); other overlap is not allowed.
struct PointwiseArgs {
  const expr::Program* program;
  std::span<const View> inputs;
  std::span<const View> outputs;
  std::span<const expr::Literal> params;
};

/// The same program over many independent lists of tensors: element k of each list.
/// inputs and outputs hold n_tensors * (number of program inputs / outputs) views, tensor-major.
struct MultiPointwiseArgs {
  const expr::Program* program;
  int64_t n_tensors;
  std::span<const View> inputs;
  std::span<const View> outputs;
  std::span<const expr::Literal> params;
};

/// out[k] = reduce of prologue(element) over tensor k; out is 1-d and contiguous with n_tensors
/// elements of the prologue's output type. The prologue has one input; params as in ReduceArgs.
struct MultiReduceArgs {
  Monoid monoid;
  const expr::Program* prologue;
  std::span<const View> inputs;  // one per tensor
  View out;
  std::span<const expr::Literal> params;
};

/// out = epilogue(reduce(prologue(inputs))) over the dimensions of `space` where out has size 1
/// and space has not (and where `reduced` has a bit set). `out` has the rank of `space`.
/// prologue: inputs + params -> one value; null means the single input itself. epilogue: one
/// value (+ epilogue_params) -> one value; null means identity. Sums of f32 and narrower
/// accumulate with error no worse than pairwise summation; integers accumulate in i64. Reducing
/// nothing gives the identity (min/max: the caller has checked).
struct ReduceArgs {
  Monoid monoid;
  IntList space;
  uint32_t reduced;  // bit d: dimension d of space is reduced
  std::span<const View> inputs;
  View out;
  const expr::Program* prologue = nullptr;
  std::span<const expr::Literal> params;
  const expr::Program* epilogue = nullptr;
  std::span<const expr::Literal> epilogue_params;
};

/// Position (i64) of the first minimum / maximum along `dim`; NaN wins. out has size 1 there.
/// `values` (same shape as out, dtype of in), if its data is not null, receives the extremum too.
struct ArgReduceArgs {
  View in, out, values;
  int dim;
  bool largest;
};

/// Running monoid along `dim`, inclusive. out has in's shape; reverse walks from the end.
struct ScanArgs {
  Monoid monoid;
  View in, out;
  int dim;
  bool reverse = false;
};

/// Sorted copy along `dim` and the original positions (i64). Stable; NaN is the largest.
/// `indices.data` may be null.
struct SortArgs {
  View in, values, indices;
  int dim;
  bool descending = false;
};

/// The k largest (smallest) along `dim`, sorted, ties by position. values/indices have size k.
struct TopkArgs {
  View in, values, indices;
  int dim;
  bool largest = true;
};

/// out[.., i, ..] = in[.., index[.., i, ..], ..] along `dim`; index (i64) has out's shape, in's
/// other dimensions are at least as long. Negative indices count from the end. An index out of
/// range is an IndexError naming `op`, the index and the size (CUDA: at the next sync).
struct GatherArgs {
  View in, index, out;
  int dim;
  const char* op = "gather";
};

enum class ScatterMode : uint8_t { set, add, mul, min, max };
/// out[.., index[.., i, ..], ..] op= src[.., i, ..]; out holds the initial values. `set` with
/// repeated indices keeps the last one when deterministic.
struct ScatterArgs {
  View out, index, src;
  int dim;
  ScatterMode mode;
  const char* op = "scatter";
};

/// out[i, :] = table[index[i], :]; table (rows, width), index i64 of any shape taken as 1-d
/// contiguous, out (n, width). Index errors as in gather.
struct TakeRowsArgs {
  View table, index, out;
  const char* op = "index_select";
};
/// out[index[i], :] += src[i, :] (in index order: deterministic).
struct AddRowsArgs {
  View out, index, src;
  const char* op = "index_add";
};

/// Positions (flat row-major, ascending) of the true elements of `mask` into `out` (i64,
/// contiguous, capacity mask.numel()). Returns how many: the one data-dependent size.
struct CompactArgs {
  View mask, out;
};

/// Philox4x32-10 numbers: element i (row-major position in `out`) takes lane i % 4 of block
/// (offset + i / 4) under `seed`, the same on every backend; 64-bit results take two lanes.
/// See Note [Random numbers] in prim/philox.h for the exact mapping of each distribution.
struct RandomArgs {
  enum class Distribution : uint8_t {
    uniform,    ///< [a, b)
    normal,     ///< mean a, standard deviation b
    integers,   ///< [ia, ib)
    bernoulli,  ///< 1 with probability a
  } distribution;
  View out;
  uint64_t seed, offset;
  double a = 0, b = 1;
  int64_t ia = 0, ib = 0;
};

/// out[i] = in[i] * scale where number i of the Bernoulli(keep) stream of RandomArgs is 1, else 0;
/// i is the row-major position. Drawing the same numbers again is what the backward pass does
/// instead of keeping a mask. Sizes are equal, strides any, one floating dtype.
struct DropoutArgs {
  View in, out;
  uint64_t seed, offset;
  double keep, scale;
};

/// Activations a gemm or convolution may apply on its way out.
enum class Activation : uint8_t { none, relu, gelu, gelu_tanh };

/// out[b] = activation(alpha * a[b] @ b[b] + beta * c + bias). Ranks equal and >= 2; leading
/// dimensions of a and b broadcast to out's. Any strides (transposes are strides). All of one
/// dtype; f16/bf16 accumulate in f32. bias: 1-d over columns, optional. beta != 0: out's old
/// values are `c`. aux (optional, shape of out) receives the value before the activation.
/// With `differentiate` aux is read instead, there is no bias, and the derivative takes the place
/// of the activation: out = activation'(aux) * (alpha * a[b] @ b[b]).
/// a_sum (optional, 1-d over rows): sums of a's rows, a linear layer's bias gradient beside the
/// gradient of its weight; only for products without batch dimensions and activation.
/// a_scale, b_scale (optional, f32, of out's rank, broadcast to it): factors of the operands, read
/// on the device; with neither beta nor a_sum.
struct GemmArgs {
  View a, b, out;
  double alpha = 1, beta = 0;
  View bias{};  // data null: none
  View aux{};   // data null: none
  Activation activation = Activation::none;
  bool differentiate = false;
  View a_sum{};               // data null: none
  View a_scale{}, b_scale{};  // data null: 1
};

/// Geometry shared by convolutions and pools of 1 to 3 spatial dimensions.
struct Window {
  int spatial = 2;
  std::array<int64_t, 3> kernel{1, 1, 1}, stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
};

/// Convolution (cross-correlation). x (N, Cin, *space), w (Cout, Cin/groups, *kernel),
/// y (N, Cout, *space'). Any strides, channels-last included.
/// forward: y = x * w + bias. dgrad: x = gradient from y and w. wgrad: w = gradient from x and y,
/// and bias (if not null) = sum of y. A transposed convolution is dgrad's forward.
struct ConvArgs {
  enum class Pass : uint8_t { forward, dgrad, wgrad } pass;
  View x, w, y, bias;  // bias.data null: none
  Window window;
  int64_t groups = 1;
};

/// out = softmax(scale * q @ k^T [+ causal mask]) @ v, per batch and head, never storing the
/// scores. q, out (B, H, Lq, D or Dv); k (B, Hk, Lk, D), v (B, Hk, Lk, Dv); H is a multiple of Hk.
/// Any strides, one floating dtype. lse (B, H, Lq), f32 (f64 for f64): the logarithm of each row's
/// sum, written forward (data null: not wanted), read backward. causal: key j counts for query i if
/// j <= i. Backward: from q, k, v, out, lse and grad_out come grad_q, grad_k, grad_v.
struct AttentionArgs {
  bool backward = false;
  View q, k, v, out, lse;
  View grad_out, grad_q, grad_k, grad_v;
  double scale = 1;
  bool causal = false;
};

/// Pooling over windows. max forward writes `indices` (i64, position within the input's flattened
/// spatial plane), backward reads it. avg divides by the window's size, counting padding if
/// count_include_pad, or by `divisor` if not 0. backward: x = gradient from y.
struct PoolArgs {
  enum class Kind : uint8_t { max, avg } kind;
  bool backward = false;
  View x, y, indices;
  Window window;
  bool count_include_pad = true;
  int64_t divisor = 0;
};

/// Fourier transforms of lines of pairs (real, imaginary): in and out (..., n, 2), contiguous, f32
/// or f64; out may be in. forward: exponent -2 pi i. `scale` multiplies the result.
struct FftArgs {
  View in, out;
  bool forward;
  double scale = 1;
};

/// Dense linear algebra on batches of f32 or f64 matrices, as LAPACK defines it. Matrices are
/// column-major without gaps (strides 1 and the number of rows), batches contiguous and of one
/// size; vectors are contiguous. `info` (i32, one for each matrix) receives 0, k > 0 for a failure
/// at step k, or -1 (svd, eigen; results NaN) for numbers that are not finite. The operands:
struct LinalgArgs {
  enum class Op : uint8_t {
    /// a (n, n) becomes its Cholesky factor in the triangle named; the other one stays.
    cholesky,
    /// a (m, n) = P L U, both factors in a; row i was swapped with row b[i] (i32, from 1) in turn.
    lu,
    /// c (n, columns): X with A X = c, or A^T X = c if transposed; a and b as `lu` left them.
    lu_solve,
    /// b (m, n): X with A X = b (left) or X A = b for triangular A; unit: its diagonal is ones.
    triangular_solve,
    /// a (m, n) = Q R: R in the upper triangle, below it and in b (min(m, n)) the reflectors.
    qr,
    /// a (m, columns), whose first columns hold reflectors as `qr` left them, becomes the first
    /// columns of Q; b their factors.
    qr_vectors,
    /// a (m, n, lost) = c diag(b) d, k = min(m, n) values b, largest first; c (m, k or m) and
    /// d (k or n, n) without data: only the values.
    svd,
    /// Eigenvalues b, smallest first, of the symmetric matrix in a's triangle named; a becomes the
    /// eigenvectors (columns) with `vectors`, else it is lost.
    symmetric_eigen,
    /// Complex eigenvalues b and eigenvectors c (columns; without data: none) of a, which is lost.
    eigen,
    /// Least squares solution of A X = B: b (max(m, n), columns) holds B in its first m rows and
    /// becomes X in its first n, with the residual in an orthogonal basis below. c (i64) the ranks,
    /// d the min(m, n) singular values, of the drivers that find them. a is lost.
    least_squares,
  } op;
  View a, b{}, c{}, d{}, info;
  bool upper = false, left = true, unit = false, transposed = false, vectors = true;
  enum class Driver : uint8_t { gels, gelsy, gelsd, gelss } driver = Driver::gels;
  double rcond = 0;
};

// Note [Fused kernels]
// A FusedSpec is one loop nest over rows: the outer dimensions of a space are rows, the inner ones
// the elements of a row. Its stages run in order for each row while the row is in cache:
//   reduce     program(elements, row values) -> new row values, one per output, by `monoid`
//   row        program(row values)           -> new row values
//   store      program(elements, row values) -> elements of outputs
//   store_row  program(row values)           -> outputs with inner sizes 1
//   reduce_columns  program(elements)   -> outputs with outer sizes 1, by `monoid` over all rows
// Where row values are read, so are inputs with one element for a row. A reduce_columns program
// reads tensor inputs only, so that a backend may also run such a stage by itself, before or after
// the others; its results are converted to the dtypes of the outputs.
// Softmax, the norms and cross entropy are such specs, forward and backward.
struct FusedStage {
  enum class Kind : uint8_t { reduce, row, store, store_row, reduce_columns } kind;
  expr::ProgramPtr program;
  /// What each program input reads: >= 0: tensor input of that number; < 0: row value ~k.
  /// Row values are numbered in order of creation and have the dtype of the program output that
  /// made them (use f32, f64, i64 or boolean).
  std::vector<int> inputs;
  Monoid monoid = Monoid::sum;  // reduce and reduce_columns only
  int first_output = 0;         // others: the program's outputs go to tensor outputs from here on
};
struct FusedSpec {
  std::vector<FusedStage> stages;
  int n_inputs = 0, n_outputs = 0;
};

/// Inputs broadcast to `space`; outputs have the sizes of `space`, or 1 in the inner dimensions
/// when written by store_row, or 1 in the outer ones when written by reduce_columns. An output may
/// be exactly one of the inputs only if every stage reading that input precedes or is the store
/// (and no reduce_columns stage reads it). params: shared by all programs, by position (each
/// program declares a prefix).
struct FusedArgs {
  const FusedSpec* spec;
  IntList space;
  int outer_rank;
  std::span<const View> inputs;
  std::span<const View> outputs;
  std::span<const expr::Literal> params;
};

}  // namespace arete::prim
