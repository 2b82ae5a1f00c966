// Shared by convolutions and pools: geometry, checks and memory orders.
#pragma once

#include <string>

#include "arete/ops/call.h"

namespace arete::ops {

/// The n numbers of a list that may hold one for all; ValueError naming op and argument.
inline Shape spread(IntList values, int n, const char* op, const char* argument) {
  if (values.size() == 1) return Shape(size_t(n), values[0]);
  ARETE_CHECK(int(values.size()) == n,
              ValueError(op, std::string("expected ") + argument +
                                 " to be a single integer value or a list of " + std::to_string(n) +
                                 " values to match the dimensions")
                  .argument(argument)
                  .got(to_string(values)));
  return Shape(values);
}

inline prim::Window make_window(IntList kernel, IntList stride, IntList padding, IntList dilation) {
  prim::Window w;
  w.spatial = int(kernel.size());
  for (size_t d = 0; d < kernel.size(); ++d) {
    w.kernel[d] = kernel[d];
    w.stride[d] = stride[d];
    w.padding[d] = padding[d];
    w.dilation[d] = dilation[d];
  }
  return w;
}

/// Channels-last strides if `t` is laid out so and not also row-major: results keep the order.
inline std::optional<Shape> strides_like(const Tensor& t, IntList sizes) {
  if (t.layout().is_channels_last() && !t.is_contiguous() &&
      (sizes.size() == 4 || sizes.size() == 5))
    return channels_last_strides(sizes);
  return std::nullopt;
}

}  // namespace arete::ops
