#include "arete/nn/pooling.h"

#include "arete/nn/layer_internal.h"
#include "arete/ops/pool.h"

namespace arete::nn {

namespace {
// As PyTorch prints settings that may be one number or several: "2" or "(2, 3)".
std::string extent_text(const Extent& e) {
  return e.values().size() == 1 ? text_of(e.values()[0]) : tuple_text(e.values());
}
std::string numbered(const char* base, int n) { return base + std::to_string(n) + "d"; }
}  // namespace

template <int N>
Tensor MaxPoolNd<N>::forward(const Tensor& x) {
  const MaxPoolOptions& o = options_;
  if constexpr (N == 1) return max_pool1d(x, kernel_, o.stride, o.padding, o.dilation, o.ceil_mode);
  if constexpr (N == 2) return max_pool2d(x, kernel_, o.stride, o.padding, o.dilation, o.ceil_mode);
  if constexpr (N == 3) return max_pool3d(x, kernel_, o.stride, o.padding, o.dilation, o.ceil_mode);
}
template <int N>
std::string MaxPoolNd<N>::name() const {
  return numbered("MaxPool", N);
}
template <int N>
std::string MaxPoolNd<N>::extra_repr() const {
  return "kernel_size=" + extent_text(kernel_) +
         ", stride=" + extent_text(options_.stride.value_or(kernel_)) +
         ", padding=" + extent_text(options_.padding) +
         ", dilation=" + extent_text(options_.dilation) +
         ", ceil_mode=" + text_of(options_.ceil_mode);
}

template <int N>
AvgPoolNd<N>::AvgPoolNd(const Extent& kernel_size, const AvgPoolOptions& options)
    : kernel_(kernel_size), options_(options) {
  ARETE_CHECK(N > 1 || !options.divisor_override,
              ValueError("AvgPool1d", "divisor_override is for two and three dimensions"));
}
template <int N>
Tensor AvgPoolNd<N>::forward(const Tensor& x) {
  const AvgPoolOptions& o = options_;
  if constexpr (N == 1)
    return avg_pool1d(x, kernel_, o.stride, o.padding, o.ceil_mode, o.count_include_pad);
  if constexpr (N == 2)
    return avg_pool2d(x, kernel_, o.stride, o.padding, o.ceil_mode, o.count_include_pad,
                      o.divisor_override);
  if constexpr (N == 3)
    return avg_pool3d(x, kernel_, o.stride, o.padding, o.ceil_mode, o.count_include_pad,
                      o.divisor_override);
}
template <int N>
std::string AvgPoolNd<N>::name() const {
  return numbered("AvgPool", N);
}
template <int N>
std::string AvgPoolNd<N>::extra_repr() const {
  return "kernel_size=" + extent_text(kernel_) +
         ", stride=" + extent_text(options_.stride.value_or(kernel_)) +
         ", padding=" + extent_text(options_.padding);
}

template <int N>
Tensor AdaptiveAvgPoolNd<N>::forward(const Tensor& x) {
  if constexpr (N == 1) return adaptive_avg_pool1d(x, output_);
  if constexpr (N == 2) return adaptive_avg_pool2d(x, output_);
  if constexpr (N == 3) return adaptive_avg_pool3d(x, output_);
}
template <int N>
std::string AdaptiveAvgPoolNd<N>::name() const {
  return numbered("AdaptiveAvgPool", N);
}
template <int N>
std::string AdaptiveAvgPoolNd<N>::extra_repr() const {
  return "output_size=" + extent_text(output_);
}

template <int N>
Tensor AdaptiveMaxPoolNd<N>::forward(const Tensor& x) {
  if constexpr (N == 1) return adaptive_max_pool1d(x, output_);
  if constexpr (N == 2) return adaptive_max_pool2d(x, output_);
  if constexpr (N == 3) return adaptive_max_pool3d(x, output_);
}
template <int N>
std::string AdaptiveMaxPoolNd<N>::name() const {
  return numbered("AdaptiveMaxPool", N);
}
template <int N>
std::string AdaptiveMaxPoolNd<N>::extra_repr() const {
  return "output_size=" + extent_text(output_);
}

#define ARETE_INSTANTIATE_POOL(N)      \
  template class MaxPoolNd<N>;         \
  template class AvgPoolNd<N>;         \
  template class AdaptiveAvgPoolNd<N>; \
  template class AdaptiveMaxPoolNd<N>;
ARETE_INSTANTIATE_POOL(1)
ARETE_INSTANTIATE_POOL(2)
ARETE_INSTANTIATE_POOL(3)
#undef ARETE_INSTANTIATE_POOL

}  // namespace arete::nn
