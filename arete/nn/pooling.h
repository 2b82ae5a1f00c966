// Pooling layers of 1 to 3 spatial dimensions; (batch, channels, *space) or (channels, *space).
#pragma once

#include <optional>
#include <vector>

#include "arete/nn/layer.h"

namespace arete::nn {

struct MaxPoolOptions {
  std::optional<Extent> stride = {};  ///< the kernel's size if left out
  Extent padding = 0;
  Extent dilation = 1;
  bool ceil_mode = false;
};

/// The maximum of each window.
template <int N>
class MaxPoolNd : public OperatorLayer {
 public:
  explicit MaxPoolNd(const Extent& kernel_size, const MaxPoolOptions& o = {})
      : OperatorLayer(numbered("MaxPool", N), {{"kernel_size", kernel_size},
                                               {"stride", o.stride},
                                               {"padding", o.padding},
                                               {"dilation", o.dilation},
                                               {"ceil_mode", o.ceil_mode}}) {}
};
using MaxPool1d = MaxPoolNd<1>;
using MaxPool2d = MaxPoolNd<2>;
using MaxPool3d = MaxPoolNd<3>;

struct MaxUnpoolOptions {
  std::optional<Extent> stride = {};  ///< the kernel's size if left out
  Extent padding = 0;
};
/// Puts maxima back to where max_pool with indices found them; zero elsewhere.
template <int N>
class MaxUnpoolNd : public PairLayer {
 public:
  explicit MaxUnpoolNd(const Extent& kernel_size, const MaxUnpoolOptions& o = {})
      : PairLayer(numbered("MaxUnpool", N),
                  {{"kernel_size", kernel_size}, {"stride", o.stride}, {"padding", o.padding}}) {}
};
using MaxUnpool1d = MaxUnpoolNd<1>;
using MaxUnpool2d = MaxUnpoolNd<2>;
using MaxUnpool3d = MaxUnpoolNd<3>;

struct AvgPool1dOptions {
  std::optional<Extent> stride = {};  ///< the kernel's size if left out
  Extent padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
};

/// The mean of each window.
class AvgPool1d : public OperatorLayer {
 public:
  explicit AvgPool1d(const Extent& kernel_size, const AvgPool1dOptions& o = {})
      : OperatorLayer("AvgPool1d", {{"kernel_size", kernel_size},
                                    {"stride", o.stride},
                                    {"padding", o.padding},
                                    {"ceil_mode", o.ceil_mode},
                                    {"count_include_pad", o.count_include_pad}}) {}
};

struct AvgPoolOptions {
  std::optional<Extent> stride = {};  ///< the kernel's size if left out
  Extent padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::optional<int64_t> divisor_override = {};
};

/// The mean of each window.
template <int N>
class AvgPoolNd : public OperatorLayer {
 public:
  explicit AvgPoolNd(const Extent& kernel_size, const AvgPoolOptions& o = {})
      : OperatorLayer(numbered("AvgPool", N), {{"kernel_size", kernel_size},
                                               {"stride", o.stride},
                                               {"padding", o.padding},
                                               {"ceil_mode", o.ceil_mode},
                                               {"count_include_pad", o.count_include_pad},
                                               {"divisor_override", o.divisor_override}}) {}
};
using AvgPool2d = AvgPoolNd<2>;
using AvgPool3d = AvgPoolNd<3>;

struct LPPoolOptions {
  std::optional<Extent> stride = {};  ///< the kernel's size if left out
  bool ceil_mode = false;
};

/// (The sum of x^p in each window)^(1 / p), where p is norm_type.
template <int N>
class LPPoolNd : public OperatorLayer {
 public:
  LPPoolNd(double norm_type, const Extent& kernel_size, const LPPoolOptions& o = {})
      : OperatorLayer(numbered("LPPool", N), {{"norm_type", norm_type},
                                              {"kernel_size", kernel_size},
                                              {"stride", o.stride},
                                              {"ceil_mode", o.ceil_mode}}) {}
};
using LPPool1d = LPPoolNd<1>;
using LPPool2d = LPPoolNd<2>;
using LPPool3d = LPPoolNd<3>;

struct FractionalMaxPoolOptions {
  /// How many windows there are, or their share of the input's size: one of the two.
  std::optional<Extent> output_size = {};
  std::optional<std::vector<double>> output_ratio = {};
  /// (N, C, dimensions) in [0, 1): where windows are. Undefined: drawn for each input.
  Tensor random_samples = {};
};

/// The maximum of each of windows at random places.
template <int N>
class FractionalMaxPoolNd : public OperatorLayer {
 public:
  FractionalMaxPoolNd(const Extent& kernel_size, const FractionalMaxPoolOptions& o)
      : OperatorLayer(numbered("FractionalMaxPool", N), {{"kernel_size", kernel_size},
                                                         {"output_size", o.output_size},
                                                         {"output_ratio", o.output_ratio}}),
        random_samples_(o.random_samples) {}
  Tensor forward(const Tensor& input) override { return run({input, random_samples_}); }

 private:
  Tensor random_samples_;
};
using FractionalMaxPool2d = FractionalMaxPoolNd<2>;
using FractionalMaxPool3d = FractionalMaxPoolNd<3>;

/// The mean over as many windows as the output has places; -1 keeps a size.
template <int N>
class AdaptiveAvgPoolNd : public OperatorLayer {
 public:
  explicit AdaptiveAvgPoolNd(const Extent& output_size)
      : OperatorLayer(numbered("AdaptiveAvgPool", N), {{"output_size", output_size}}) {}
};
using AdaptiveAvgPool1d = AdaptiveAvgPoolNd<1>;
using AdaptiveAvgPool2d = AdaptiveAvgPoolNd<2>;
using AdaptiveAvgPool3d = AdaptiveAvgPoolNd<3>;

/// The same with maxima.
template <int N>
class AdaptiveMaxPoolNd : public OperatorLayer {
 public:
  explicit AdaptiveMaxPoolNd(const Extent& output_size)
      : OperatorLayer(numbered("AdaptiveMaxPool", N), {{"output_size", output_size}}) {}
};
using AdaptiveMaxPool1d = AdaptiveMaxPoolNd<1>;
using AdaptiveMaxPool2d = AdaptiveMaxPoolNd<2>;
using AdaptiveMaxPool3d = AdaptiveMaxPoolNd<3>;

}  // namespace arete::nn
