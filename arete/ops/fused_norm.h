// One operator behind all normalizations.
#pragma once

#include <tuple>

#include "arete/core/tensor.h"

namespace arete::ops {

// Note [One norm]
// Layer, RMS, group, batch and instance norm differ only in which elements share statistics and
// which share a weight. The input, seen with the sizes `shape` (a factorization of its own), is
// normalized over the dimensions `dims`; weight and bias are seen with the sizes `weight_shape`,
// which broadcasts to `shape`:
//   layer norm   shape (rows, n)        dims {1}     weight (n)
//   group norm   shape (N, G, C/G, S)   dims {2, 3}  weight (G, C/G, 1)
//   batch norm   shape (N, C, S)        dims {0, 2}  weight (C, 1)
struct NormSpec {
  Shape shape, dims, weight_shape;
  bool center = true;  ///< subtract the mean (all but RMS norm)
  double eps = 1e-5;
  /// The negative elements of the result become 0. Only where each weight belongs to one row of
  /// statistics, or there is none (batch norm).
  bool relu = false;
};

/// Statistics of all inputs so far, one element for each row of statistics: they move towards mean
/// and unbiased variance of the present input, by `momentum` of the difference.
struct RunningStatistics {
  Tensor mean, var;  ///< both or neither; of a dtype in which fused_norm works with the input's
  double momentum = 0;
};

/// The normalized input, and mean and reciprocal standard deviation (f32 or f64, of `shape` with
/// `dims` of size 1; without gradient).
/// `residual` (optional, of input's sizes and dtype) is added before the relu.
std::tuple<Tensor, Tensor, Tensor> fused_norm(const Tensor& input, const Tensor& weight,
                                              const Tensor& bias, const NormSpec& spec,
                                              const Tensor& residual = {},
                                              const RunningStatistics& running = {});

}  // namespace arete::ops
