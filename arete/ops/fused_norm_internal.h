// The kernels of fused_norm.
#pragma once

#include "arete/core/dtype.h"
#include "arete/prim/args.h"

namespace arete::ops {

/// From so many elements of a row on, statistics are found in one pass.
inline constexpr int64_t kOnePass = 8192;

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

}  // namespace arete::ops
