// The passes of a convolution as operators (see Note [Three passes] in conv.cpp).
#pragma once

#include <tuple>

#include "arete/core/tensor.h"

namespace arete::ops {

/// Geometry: one number for each spatial dimension.
struct ConvParams {
  Shape stride, padding, dilation;
  int64_t groups = 1;
};

Tensor convolution_forward(const Tensor& x, const Tensor& w, const Tensor& bias,
                           const ConvParams& c);
/// The gradient of x, of sizes input_size, from that of y; in channels-last order if asked for, or
/// if an operand lies so.
Tensor convolution_dgrad(const Tensor& grad, const Tensor& w, IntList input_size,
                         const ConvParams& c, bool channels_last = false);
/// The gradients of weight and bias; that of the weight in channels-last order if asked for.
std::tuple<Tensor, Tensor> convolution_wgrad_bias(const Tensor& x, const Tensor& grad,
                                                  IntList weight_size, const ConvParams& c,
                                                  bool channels_last = false);

}  // namespace arete::ops
