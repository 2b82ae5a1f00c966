// What the operators of fused_norm and of its gradient share: how they see their tensors, and their
// kernels.
#pragma once

#include <optional>
#include <vector>

#include "arete/core/dtype.h"
#include "arete/ops/call.h"
#include "arete/ops/fused_norm.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/prim/args.h"

namespace arete::ops {

/// What a norm's kernel computes: dtypes matter where the operand is there.
struct NormKernel {
  DType x;
  bool has_weight = false, has_bias = false, has_residual = false;
  DType weight = kFloat32, bias = kFloat32;
  bool center = true, relu = false;
  bool tracks = false;  ///< running statistics, forward only
  DType running = kFloat32;
};

/// Inputs: x [, weight] [, bias] [, residual] [, with one_pass: three elements of each row, of
/// which the pivot is taken] [, running mean and variance]; outputs: y, mean, rstd [, running mean
/// and variance]. Parameters: 1 / (elements of a row), eps [, momentum, n / (n - 1) of the n
/// elements of a row].
const prim::FusedSpec& norm_forward_spec(const NormKernel& kernel, bool one_pass);

/// Where the gradients of weight and bias come from.
enum class WeightSums : uint8_t { none, rows, columns };

/// Inputs: grad (of dtype g), x, mean, rstd [, weight] [, with relu: y if there was a residual,
/// else bias]; outputs: dx [, dresidual] [, dweight, dbias: row values or sums over rows].
/// Parameter: 1 / (elements of a row). The values that relu was applied to are y, or are computed
/// again.
const prim::FusedSpec& norm_backward_spec(const NormKernel& kernel, DType g, WeightSums sums);

namespace vmaps {

/// For rules of batches: what a weight of a norm is in its space, and the space's dimensions behind
/// the batch.
Tensor weight_in(const Rewriting& r, const Operand& w, IntList shape, IntList weight_shape);
Shape shifted(IntList dims);

}  // namespace vmaps

namespace norms {

/// Arguments of a call from position `at` on.
template <class C>
NormSpec spec_of(const C& call, size_t at) {
  return {Shape(call.ints(at)), Shape(call.ints(at + 1)), Shape(call.ints(at + 2)),
          call.boolean(at + 3), call.real(at + 4),        call.boolean(at + 5)};
}

/// The sizes of mean and deviation.
Shape stat_sizes(const NormSpec& s);
double elements_per_row(const NormSpec& s);
/// Each weight belongs to exactly one row (batch norm): its gradient is a row value.
bool one_row_per_weight(const NormSpec& s);

/// The order of dimensions in which those not normalized come first.
struct Order {
  Shape dims;
  int outer;
};
Order rows_first(const NormSpec& s);

/// Weights lie along the elements of a row, the same for all rows (layer norm): their gradients are
/// sums of columns.
bool weight_is_a_row(const NormSpec& s, const Order& o);

/// A tensor seen as `shape`; where its strides do not allow that, a row-major copy.
class Seen {
 public:
  Seen(prim::Primitives& p, const Tensor& t, IntList shape, bool is_output);
  Seen(const Seen&) = delete;
  /// In the order of `o`.
  prim::View ordered(const Order& o);
  /// For outputs: brings the values home.
  void finish();

 private:
  prim::Primitives& p_;
  prim::View target_, view_;
  Layout layout_, permuted_;
  std::optional<prim::ScratchView> scratch_;
  bool copied_ = false;
};

/// A weight broadcast to the space, in the order of `o`.
struct SeenWeight {
  SeenWeight(const Tensor& w, const NormSpec& s, const Order& o);
  Layout layout;
  prim::View value;
};

/// A tensor of the statistics' sizes, ordered; or one that `seen` gives these sizes.
struct SeenStat {
  SeenStat(const Tensor& t, const Order& o) : SeenStat(t, t.layout(), o) {}
  SeenStat(const Tensor& t, const Layout& seen, const Order& o);
  Layout layout;
  prim::View value;
};

/// Weights of more than one dimension are needed row-major.
Tensor simple(const Tensor& w);
DType dtype_or_f32(const Tensor& t);
expr::Literal real_literal(double v);

}  // namespace norms

/// The gradients of input, weight, bias and residual; `output` is that of a norm with a residual.
Results fused_norm_backward(const Tensor& g, const Tensor& x, const Tensor& w, const Tensor& b,
                            const Tensor& mean, const Tensor& rstd, const Tensor& output,
                            const NormSpec& s);

}  // namespace arete::ops
