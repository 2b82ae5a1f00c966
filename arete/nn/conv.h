// Convolution layers of 1 to 3 spatial dimensions.
#pragma once

#include <string>
#include <string_view>

#include "arete/nn/layer.h"
#include "arete/ops/extent.h"

namespace arete::nn {

struct ConvOptions {
  Extent stride = 1;
  Padding padding = 0;  ///< numbers, "same" or "valid"
  Extent dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  std::string_view padding_mode = "zeros";  ///< or "reflect", "replicate", "circular"
};

struct ConvTransposeOptions {
  Extent stride = 1;
  Extent padding = 0;
  Extent output_padding = 0;
  int64_t groups = 1;
  bool bias = true;
  Extent dilation = 1;
  std::string_view padding_mode = "zeros";  ///< no other
};

/// Cross-correlation over N spatial dimensions: (batch, in, *space) or (in, *space). Parameters:
/// weight (out, in / groups, *kernel) and bias (out), uniform in +-1 / sqrt(in / groups * window).
/// ValueError if groups does not divide the channels.
template <int N>
class ConvNd : public DescribedLayer {
 public:
  ConvNd(int64_t in_channels, int64_t out_channels, const Extent& kernel_size,
         const ConvOptions& options = {});
  Tensor forward(const Tensor& input) override;
  void reset_parameters();

  Parameter weight, bias;

 private:
  Shape stride_, dilation_, edges_;  // edges_: of the input, filled as padding_mode_ says
  Padding padding_;
  int64_t groups_;
  std::string padding_mode_;
};
using Conv1d = ConvNd<1>;
using Conv2d = ConvNd<2>;
using Conv3d = ConvNd<3>;

/// The transpose of a convolution (its gradient used as a layer). Parameters: weight
/// (in, out / groups, *kernel) and bias (out).
template <int N>
class ConvTransposeNd : public DescribedLayer {
 public:
  ConvTransposeNd(int64_t in_channels, int64_t out_channels, const Extent& kernel_size,
                  const ConvTransposeOptions& options = {});
  Tensor forward(const Tensor& input) override { return forward(input, {}); }
  /// With the wanted size of the output, which chooses the output padding.
  Tensor forward(const Tensor& input, IntList output_size);
  void reset_parameters();

  Parameter weight, bias;

 private:
  Shape stride_, padding_, output_padding_, dilation_;
  int64_t groups_;
};
using ConvTranspose1d = ConvTransposeNd<1>;
using ConvTranspose2d = ConvTransposeNd<2>;
using ConvTranspose3d = ConvTransposeNd<3>;

extern template class ConvNd<1>;
extern template class ConvNd<2>;
extern template class ConvNd<3>;
extern template class ConvTransposeNd<1>;
extern template class ConvTransposeNd<2>;
extern template class ConvTransposeNd<3>;

}  // namespace arete::nn
