// Layers that rearrange, pad or resample.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "arete/nn/layer.h"

namespace arete::nn {

/// Joins dimensions start_dim to end_dim; by default everything but the batch.
class Flatten : public OperatorLayer {
 public:
  explicit Flatten(int64_t start_dim = 1, int64_t end_dim = -1)
      : OperatorLayer("Flatten", {{"start_dim", start_dim}, {"end_dim", end_dim}}) {}
};

/// Splits a dimension into `sizes` (one may be -1).
class Unflatten : public OperatorLayer {
 public:
  Unflatten(int64_t dim, IntList sizes)
      : OperatorLayer("Unflatten", {{"dim", dim}, {"unflattened_size", Extent(sizes)}}) {}
};

struct UpsampleOptions {
  std::vector<int64_t> size = {};         ///< of the output; or
  std::vector<double> scale_factor = {};  ///< one number, or one for each spatial dimension
  std::string_view mode = "nearest";      ///< or "linear", "bilinear", "bicubic", "trilinear"
  std::optional<bool> align_corners = {};
  std::optional<bool> recompute_scale_factor = {};
};
/// Resizes the spatial dimensions: Upsample({.scale_factor = {2}, .mode = "bilinear"}).
class Upsample : public OperatorLayer {
 public:
  explicit Upsample(const UpsampleOptions& o)
      : OperatorLayer("Upsample",
                      {{"size", o.size.empty() ? Option() : Option(o.size)},
                       {"scale_factor", o.scale_factor.empty() ? Option() : Option(o.scale_factor)},
                       {"mode", o.mode},
                       {"align_corners", o.align_corners},
                       {"recompute_scale_factor", o.recompute_scale_factor}}) {}
};

/// (*, C r^2, H, W) -> (*, C, H r, W r).
class PixelShuffle : public OperatorLayer {
 public:
  explicit PixelShuffle(int64_t upscale_factor)
      : OperatorLayer("PixelShuffle", {{"upscale_factor", upscale_factor}}) {}
};

/// (*, C, H r, W r) -> (*, C r^2, H, W).
class PixelUnshuffle : public OperatorLayer {
 public:
  explicit PixelUnshuffle(int64_t downscale_factor)
      : OperatorLayer("PixelUnshuffle", {{"downscale_factor", downscale_factor}}) {}
};

/// Interleaves the channels of groups of them.
class ChannelShuffle : public OperatorLayer {
 public:
  explicit ChannelShuffle(int64_t groups) : OperatorLayer("ChannelShuffle", {{"groups", groups}}) {}
};

/// Padding of N dimensions: one number, or (before, after) from the last dimension on.
#define ARETE_PAD(Name)                                                \
  template <int N>                                                     \
  class Name##Nd : public OperatorLayer {                              \
   public:                                                             \
    explicit Name##Nd(const Extent& padding)                           \
        : OperatorLayer(numbered(#Name, N), {{"padding", padding}}) {} \
  };                                                                   \
  using Name##1d = Name##Nd<1>;                                        \
  using Name##2d = Name##Nd<2>;                                        \
  using Name##3d = Name##Nd<3>;
ARETE_PAD(ZeroPad)
ARETE_PAD(ReflectionPad)
ARETE_PAD(ReplicationPad)
ARETE_PAD(CircularPad)
#undef ARETE_PAD

template <int N>
class ConstantPadNd : public OperatorLayer {
 public:
  ConstantPadNd(const Extent& padding, double value)
      : OperatorLayer(numbered("ConstantPad", N), {{"padding", padding}, {"value", value}}) {}
};
using ConstantPad1d = ConstantPadNd<1>;
using ConstantPad2d = ConstantPadNd<2>;
using ConstantPad3d = ConstantPadNd<3>;

struct FoldOptions {
  Extent dilation = 1;
  Extent padding = 0;
  Extent stride = 1;
};
/// Sums columns (N, C kh kw, windows) into images (N, C, *output_size).
class Fold : public OperatorLayer {
 public:
  Fold(const Extent& output_size, const Extent& kernel_size, const FoldOptions& o = {})
      : OperatorLayer("Fold", {{"output_size", output_size},
                               {"kernel_size", kernel_size},
                               {"dilation", o.dilation},
                               {"padding", o.padding},
                               {"stride", o.stride}}) {}
};
/// The windows of images (N, C, H, W) as columns (N, C kh kw, windows).
class Unfold : public OperatorLayer {
 public:
  explicit Unfold(const Extent& kernel_size, const FoldOptions& o = {})
      : OperatorLayer("Unfold", {{"kernel_size", kernel_size},
                                 {"dilation", o.dilation},
                                 {"padding", o.padding},
                                 {"stride", o.stride}}) {}
};

}  // namespace arete::nn
