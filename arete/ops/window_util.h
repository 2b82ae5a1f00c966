// Shared by convolutions and pools: geometry, checks and memory orders.
#pragma once

#include <algorithm>
#include <span>
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

/// Whether the strides grow in the order channels, last to first spatial dimension, batch: what
/// makes PyTorch lay out results with channels last. A view with gaps may say so, too; where
/// several dimensions have one element the strides that they carry decide.
inline bool prefers_channels_last(const Layout& l) {
  const int rank = l.rank();
  if (rank != 4 && rank != 5) return false;
  const int64_t channel = l.strides[1];
  if (channel == 0) return false;
  int64_t least = 0;
  const auto grows = [&](int d) {
    if (l.sizes[d] == 0 || l.strides[d] < least) return false;
    least = l.strides[d] * l.sizes[d];
    return true;
  };
  if (!grows(1)) return false;
  for (int d = rank - 1; d >= 2; --d)
    if (!grows(d)) return false;
  // All sizes but the batch 1 and all strides equal: as well row-major, and taken so.
  return least != channel && grows(0);
}
inline bool prefers_channels_last(const Tensor& t) {
  return t.dim() >= 4 && prefers_channels_last(t.layout());
}

/// Channels-last strides for `sizes` if `t` asks for them: results keep the order.
inline std::optional<Shape> strides_like(const Tensor& t, IntList sizes) {
  if (prefers_channels_last(t) && sizes.size() == size_t(t.dim()))
    return channels_last_strides(sizes);
  return std::nullopt;
}
/// The same if either asks for them.
inline std::optional<Shape> strides_like(const Tensor& a, const Tensor& b, IntList sizes) {
  auto strides = strides_like(a, sizes);
  return strides ? strides : strides_like(b, sizes);
}
/// The dimensions in the order in which they lie in memory, the outermost first.
inline Shape memory_order(IntList strides) {
  Shape order;
  for (size_t d = 0; d < strides.size(); ++d) order.push_back(int64_t(d));
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return strides[size_t(a)] > strides[size_t(b)]; });
  return order;
}
/// Dense strides of `sizes`; `order`: the dimensions, the outermost first.
inline Shape strides_in_order(IntList order, IntList sizes) {
  Shape strides(sizes);
  int64_t stride = 1;
  for (size_t k = order.size(); k-- > 0;) {
    const size_t d = size_t(order[k]);
    strides[d] = stride;
    stride *= std::max<int64_t>(sizes[d], 1);
  }
  return strides;
}
/// Dense strides for a result of `sizes`, to which the operands broadcast, that keeps the order of
/// their dimensions. Of each two dimensions the first operand decides that has both: a stride of 0
/// (a broadcast dimension) stands for no place in that order. What none decides stays where it is
/// among the others. That is PyTorch's order, pair by pair.
inline Shape strides_like(std::span<const Tensor> operands, IntList sizes) {
  const auto stride = [&](const Tensor& t, size_t d) -> int64_t {
    const size_t missing = sizes.size() - size_t(t.dim());
    if (d < missing || t.sizes()[d - missing] != sizes[d]) return 0;
    return t.strides()[d - missing];
  };
  // Above 0: `inner` belongs inside; below: outside; 0: nobody says.
  const auto compared = [&](size_t outer, size_t inner) {
    for (const Tensor& t : operands) {
      const int64_t a = stride(t, outer), b = stride(t, inner);
      if (a == 0 || b == 0) continue;
      if (a != b) return b < a ? 1 : -1;
      if (sizes[inner] > sizes[outer]) return -1;
    }
    return 0;
  };
  Shape order;  // the outermost dimension first
  for (size_t d = 0; d < sizes.size(); ++d) order.push_back(int64_t(d));
  for (size_t from = order.size(); from-- > 0;)
    for (size_t at = from, k = from + 1; k < order.size(); ++k) {
      const int decision = compared(size_t(order[at]), size_t(order[k]));
      if (decision > 0) break;
      if (decision == 0) continue;
      std::swap(order[at], order[k]);
      at = k;
    }
  return strides_in_order(order, sizes);
}
/// The same for a result of t's own sizes: t's strides where it is dense.
inline Shape strides_like(const Tensor& t) {
  if (t.layout().is_dense()) return Shape(t.strides());
  if (prefers_channels_last(t)) return channels_last_strides(t.sizes());
  return strides_like(std::span(&t, 1), t.sizes());
}
/// `result` in channels-last order if `t` asks for it; itself if it is so or `t` does not.
inline Tensor ordered_like(const Tensor& t, const Tensor& result) {
  return prefers_channels_last(t) ? result.contiguous(MemoryFormat::channels_last) : result;
}

}  // namespace arete::ops
