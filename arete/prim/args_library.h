// Argument structs of the primitives that libraries compute: products, convolutions, pools,
// attention, Fourier transforms, linear algebra (Note [Calls that describe themselves] in args.h).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "arete/prim/args_basic.h"

namespace arete::prim {

/// Activations a gemm or convolution may apply on its way out.
enum class Activation : uint8_t { none, relu, gelu, gelu_tanh };

/// What a program makes of the elements of a matrix: its first input; the others broadcast to it.
struct ElementProgram {
  const expr::Program* program = nullptr;  // of one output, without tables
  std::span<const View> inputs{};          // but for the first
  std::span<const expr::Literal> params{};
  std::span<const Slot> slots{};

  explicit operator bool() const { return program != nullptr; }
  static void describe(auto& a, auto&& v) {
    v(a.inputs, Access::read);
    v(a.program, a.params, a.slots);
  }
};

/// out[b] = activation(alpha * a[b] @ b[b] + beta * c + bias). Ranks equal and >= 2; leading
/// dimensions of a and b broadcast to out's. Any strides (transposes are strides). All of one
/// dtype, but out may be f32 for a and b of a half type (with a, b and out only); f16/bf16
/// accumulate in f32. bias: 1-d over columns, or of out's rank a row for each product of a batch,
/// optional. beta != 0: out's old values are `c`. aux (optional, shape of out) receives the value
/// before the activation. With `differentiate` aux is read instead, there is no bias, and the
/// derivative takes the place of the activation: out = activation'(aux) * (alpha * a[b] @ b[b]).
/// a_sum (optional, 1-d over rows): sums of a's rows, a linear layer's bias gradient beside the
/// gradient of its weight; only for products without batch dimensions and activation.
/// a_scale, b_scale (optional, f32, of out's rank, broadcast to it): factors of the operands, read
/// on the device; with neither beta nor a_sum. One number is an alpha that changes.
/// With programs: out = result_program(a_program(a) @ b_program(b)), the operands being what their
/// programs give (real dtypes), the product what the result's takes: as for `out` above, so f32 if
/// it shall not be rounded before. Nothing else then; what the result's reads is not in out.
struct GemmArgs {
  View a, b, out;
  double alpha = 1, beta = 0;
  View bias{}, aux{};
  Activation activation = Activation::none;
  bool differentiate = false;
  View a_sum{};
  View a_scale{}, b_scale{};
  ElementProgram a_program{}, b_program{}, result_program{};
  Context context{};

  bool has_programs() const { return a_program || b_program || result_program; }
  /// The dtypes of the operands and of the product where programs are.
  DType a_dtype() const { return a_program ? a_program.program->outputs()[0].dtype : a.dtype; }
  DType b_dtype() const { return b_program ? b_program.program->outputs()[0].dtype : b.dtype; }
  DType product_dtype() const {
    return result_program ? result_program.program->inputs()[0] : out.dtype;
  }

  static void describe(auto& a, auto&& v) {
    v(a.a, Access::read);
    v(a.b, Access::read);
    v(a.out, a.beta != 0 ? Access::update : Access::write);
    v(a.bias, Access::read);
    v(a.aux, a.differentiate ? Access::read : Access::write);
    v(a.a_sum, Access::write);
    v(a.a_scale, Access::read);
    v(a.b_scale, Access::read);
    for (auto* p : {&a.a_program, &a.b_program, &a.result_program})
      if (p->program) ElementProgram::describe(*p, v);
  }
};

/// Geometry shared by convolutions and pools of 1 to 3 spatial dimensions.
struct Window {
  int spatial = 2;
  std::array<int64_t, 3> kernel{1, 1, 1}, stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
};

/// Convolution (cross-correlation). x (N, Cin, *space), w (Cout, Cin/groups, *kernel),
/// y (N, Cout, *space'). Any strides, channels-last included.
/// forward: y = x * w + bias. dgrad: x = gradient from y and w. wgrad: w = gradient from x and y,
/// and bias (if present) = sum of y. A transposed convolution is dgrad's forward.
struct ConvArgs {
  enum class Pass : uint8_t { forward, dgrad, wgrad } pass;
  View x, w, y, bias{};
  Window window;
  int64_t groups = 1;
  Context context{};

  static void describe(auto& a, auto&& v) {
    const auto of = [&](bool written) { return written ? Access::write : Access::read; };
    v(a.x, of(a.pass == Pass::dgrad));
    v(a.w, of(a.pass == Pass::wgrad));
    v(a.y, of(a.pass == Pass::forward));
    v(a.bias, of(a.pass == Pass::wgrad));
  }
};

/// out = dropout(softmax(mask(scale * q @ k^T))) @ v, per batch and head, never storing all scores.
/// q, out (B, H, Lq, D or Dv); k (B, Hk, Lk, D), v (B, Hk, Lk, Dv); H is a multiple of Hk. Any
/// strides, one floating dtype. lse (B, H, Lq), f32 (f64 for f64): the logarithm of each row's sum,
/// written forward if present, read backward. causal: key j counts for query i if j <= i. mask
/// (optional, four dimensions, of size 1 where it broadcasts): of booleans, key j counts for query
/// i where it is true, or of the dtype, added to the scores. Rows without any key give 0.
/// dropout: with that probability a weight counts 0, else 1 / (1 - dropout) of it: the numbers of
/// RandomArgs with the position in (B, H, Lq, Lk). Backward: from q, k, v, mask, out, lse and
/// grad_out come grad_q, grad_k, grad_v, and grad_mask of an added mask if present.
/// band: how many scores to have in memory at one time; 0: as the backend likes.
struct AttentionArgs {
  bool backward = false;
  View q, k, v, out, lse;
  View grad_out, grad_q, grad_k, grad_v;
  double scale = 1;
  bool causal = false;
  View mask{}, grad_mask{};
  double dropout = 0;
  uint64_t seed = 0, offset = 0;
  View state{};  // as in RandomArgs
  int64_t band = 0;
  Context context{};

  static void describe(auto& a, auto&& v) {
    for (auto* in : {&a.q, &a.k, &a.v, &a.mask, &a.grad_out, &a.state}) v(*in, Access::read);
    for (auto* out : {&a.out, &a.lse}) v(*out, a.backward ? Access::read : Access::write);
    for (auto* out : {&a.grad_q, &a.grad_k, &a.grad_v, &a.grad_mask}) v(*out, Access::write);
  }
};

/// Pooling over windows. max forward writes `indices` (i64, position within the input's flattened
/// spatial plane), backward reads it. avg divides by the window's size, counting padding if
/// count_include_pad, or by `divisor` if not 0. backward: x = gradient from y.
/// Where the windows lie along a dimension of n elements with m outputs:
///   strided   as `window` says
///   adaptive  output o has the elements floor(o n / m) to ceil((o + 1) n / m) - 1
///   random    as many elements as the kernel from floor((o + u) a) - floor(u a) on, computed in
///             the type of `samples`, with a = (n - kernel) / (m - 1), and from n - kernel on for
///             the last output. `samples` (N, C, spatial; f32 or f64) has u for each dimension; it
///             is read by max forward only, and there is no avg.
/// For the latter two the window has no stride, padding or dilation of its own (1, 0, 1), and for
/// adaptive ones a kernel of 1.
struct PoolArgs {
  enum class Kind : uint8_t { max, avg } kind;
  enum class Placement : uint8_t { strided, adaptive, random };
  bool backward = false;
  View x, y, indices, samples{};
  Window window;
  Placement placement = Placement::strided;
  bool count_include_pad = true;
  int64_t divisor = 0;
  Context context{};

  static void describe(auto& a, auto&& v) {
    v(a.x, a.backward ? Access::write : Access::read);
    v(a.y, a.backward ? Access::read : Access::write);
    v(a.indices, a.backward ? Access::read : Access::write);
    v(a.samples, Access::read);
  }
};

/// out = scale * Fourier transform of in over `dims`, f32 or f64, any strides. A side with complex
/// numbers has them as pairs in a last dimension of 2 and stride 1, which `dims` do not count. Of
/// dimension dims[i] the transform has points[i] >= 1: in is cut to them or filled up with zeros,
/// and so is what comes of it to fit out. forward: exponent -2 pi i. The dimensions are different.
/// complex: numbers may be real on one side: imaginary parts are zeros, or dropped.
/// to_half: real numbers to the first n / 2 + 1 of the last of `dims`, of which the others are the
/// conjugates; from_half: the reverse, real numbers from such a half. `weighted` doubles the
/// numbers that stand for two on their way out, or halves them on their way in: what to_half does
/// and what from_half does for the other direction, weighted, are each other's adjoint. window
/// (optional, 1-d, contiguous, as long as that side, and only where `dims` is one): factors for the
/// elements of in along that dimension, or with window_after of out. out may be in where both have
/// the same sizes and strides.
struct FftArgs {
  enum class Kind : uint8_t { complex, to_half, from_half } kind;
  View in, out;
  IntList dims, points;
  bool forward;
  double scale = 1;
  bool weighted = false;
  View window{};
  bool window_after = false;
  Context context{};

  bool real_in() const { return in.rank() < out.rank(); }
  bool real_out() const { return out.rank() < in.rank(); }
  static void describe(auto& a, auto&& v) {
    v(a.in, Access::read);
    v(a.out, Access::write);
    v(a.window, Access::read);
    v(a.dims);
    v(a.points);
  }
};

/// Dense linear algebra on batches of f32 or f64 matrices, as LAPACK defines it. Matrices are
/// column-major without gaps (strides 1 and the number of rows), batches contiguous and of one
/// size; vectors are contiguous. `info` (i32, one for each matrix) receives 0, k > 0 for a failure
/// at step k, or -1 (svd, eigen; results NaN) for numbers that are not finite. The operands:
struct LinalgArgs {
  enum class Op : uint8_t {
    /// a (n, n) becomes its Cholesky factor in the triangle named; the other one is lost.
    cholesky,
    /// a (m, n) = P L U, both factors in a; row i was swapped with row b[i] (i32, from 1) in turn.
    lu,
    /// c (n, columns): X with A X = c, or A^T X = c if transposed; a and b as `lu` left them.
    lu_solve,
    /// b (m, n): X with A X = b (left) or X A = b for triangular A, whose triangle named is read,
    /// or
    /// for A^T if transposed; unit: the diagonal is ones.
    triangular_solve,
    /// a (m, n) = Q R: R in the upper triangle, below it and in b (min(m, n)) the reflectors.
    qr,
    /// a (m, columns), whose first columns hold reflectors as `qr` left them, becomes the first
    /// columns of Q; b their factors.
    qr_vectors,
    /// a (m, n, lost) = c diag(b) d, k = min(m, n) values b, largest first; c (m, k or m) and
    /// d (k or n, n) absent: only the values.
    svd,
    /// Eigenvalues b, smallest first, of the symmetric matrix in a's triangle named; a becomes the
    /// eigenvectors (columns) with `vectors`, else it is lost.
    symmetric_eigen,
    /// Complex eigenvalues b and eigenvectors c (columns; if present) of a, which is lost.
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
  Context context{};

  static void describe(auto& a, auto&& v) {
    // What each operation, in the order of the list, does with a to d.
    static constexpr std::array<std::string_view, 10> kUses{"u",  "uw",   "rru", "ru",  "uw",
                                                            "ur", "uwww", "uw",  "uww", "uuww"};
    static_assert(kUses.size() == size_t(Op::least_squares) + 1);
    View LinalgArgs::*const operands[] = {&LinalgArgs::a, &LinalgArgs::b, &LinalgArgs::c,
                                          &LinalgArgs::d};
    const std::string_view uses = kUses[size_t(a.op)];
    for (size_t i = 0; i < uses.size(); ++i)
      v(a.*operands[i], uses[i] == 'r'   ? Access::read
                        : uses[i] == 'w' ? Access::write
                                         : Access::update);
    v(a.info, Access::write);
  }
};

}  // namespace arete::prim
