// The passes of a convolution as operators (see Note [Three passes] in conv.cpp).
#pragma once

#include <tuple>

#include "arete/core/tensor.h"
#include "arete/ops/extent.h"

namespace arete::ops {

/// A padding as pad() takes it: (before, after) of each spatial dimension, from the last on. "same"
/// puts the odd one after.
Shape explicit_padding(const Padding& padding, IntList kernel, IntList dilation);
/// The output padding with which a transposed convolution of an input of `input_size`
/// gives `output_size`, which may leave out batch and channels; ValueError where none does.
Shape output_padding_for(IntList input_size, IntList output_size, IntList stride, IntList padding,
                         IntList kernel, IntList dilation);

/// Geometry: one number for each spatial dimension.
struct ConvParams {
  Shape stride, padding, dilation;
  int64_t groups = 1;
};

/// Arguments of a call, or of a gradient's, from position `at` on.
template <class C>
ConvParams params_of(const C& call, size_t at) {
  return {Shape(call.ints(at)), Shape(call.ints(at + 1)), Shape(call.ints(at + 2)),
          call.integer(at + 3)};
}

/// TypeError unless input, weight and bias (if there is one) have one dtype.
void check_dtypes(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias);

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
