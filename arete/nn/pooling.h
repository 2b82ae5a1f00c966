// Pooling layers of 1 to 3 spatial dimensions; (batch, channels, *space) or (channels, *space).
#pragma once

#include <optional>
#include <string>

#include "arete/nn/module.h"
#include "arete/ops/extent.h"

namespace arete::nn {

struct MaxPoolOptions {
  std::optional<Extent> stride = {};  ///< the kernel's size if left out
  Extent padding = 0;
  Extent dilation = 1;
  bool ceil_mode = false;
};

/// The maximum of each window.
template <int N>
class MaxPoolNd : public Module {
 public:
  explicit MaxPoolNd(const Extent& kernel_size, const MaxPoolOptions& options = {})
      : kernel_(kernel_size), options_(options) {}
  Tensor forward(const Tensor& input) override;
  std::string name() const override;
  std::string extra_repr() const override;

 private:
  Extent kernel_;
  MaxPoolOptions options_;
};
using MaxPool1d = MaxPoolNd<1>;
using MaxPool2d = MaxPoolNd<2>;
using MaxPool3d = MaxPoolNd<3>;

struct AvgPoolOptions {
  std::optional<Extent> stride = {};  ///< the kernel's size if left out
  Extent padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::optional<int64_t> divisor_override = {};  ///< not for AvgPool1d
};

/// The mean of each window.
template <int N>
class AvgPoolNd : public Module {
 public:
  explicit AvgPoolNd(const Extent& kernel_size, const AvgPoolOptions& options = {});
  Tensor forward(const Tensor& input) override;
  std::string name() const override;
  std::string extra_repr() const override;

 private:
  Extent kernel_;
  AvgPoolOptions options_;
};
using AvgPool1d = AvgPoolNd<1>;
using AvgPool2d = AvgPoolNd<2>;
using AvgPool3d = AvgPoolNd<3>;

/// The mean over as many windows as the output has places; -1 keeps a size.
template <int N>
class AdaptiveAvgPoolNd : public Module {
 public:
  explicit AdaptiveAvgPoolNd(const Extent& output_size) : output_(output_size) {}
  Tensor forward(const Tensor& input) override;
  std::string name() const override;
  std::string extra_repr() const override;

 private:
  Extent output_;
};
using AdaptiveAvgPool1d = AdaptiveAvgPoolNd<1>;
using AdaptiveAvgPool2d = AdaptiveAvgPoolNd<2>;
using AdaptiveAvgPool3d = AdaptiveAvgPoolNd<3>;

/// The same with maxima.
template <int N>
class AdaptiveMaxPoolNd : public Module {
 public:
  explicit AdaptiveMaxPoolNd(const Extent& output_size) : output_(output_size) {}
  Tensor forward(const Tensor& input) override;
  std::string name() const override;
  std::string extra_repr() const override;

 private:
  Extent output_;
};
using AdaptiveMaxPool1d = AdaptiveMaxPoolNd<1>;
using AdaptiveMaxPool2d = AdaptiveMaxPoolNd<2>;
using AdaptiveMaxPool3d = AdaptiveMaxPoolNd<3>;

#define ARETE_EXTERN_POOL(N)                  \
  extern template class MaxPoolNd<N>;         \
  extern template class AvgPoolNd<N>;         \
  extern template class AdaptiveAvgPoolNd<N>; \
  extern template class AdaptiveMaxPoolNd<N>;
ARETE_EXTERN_POOL(1)
ARETE_EXTERN_POOL(2)
ARETE_EXTERN_POOL(3)
#undef ARETE_EXTERN_POOL

}  // namespace arete::nn
