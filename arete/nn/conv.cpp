#include "arete/nn/conv.h"

#include <cmath>

#include "arete/nn/layer_internal.h"
#include "arete/nn/layer_record_internal.h"
#include "arete/ops/conv.h"
#include "arete/ops/conv_internal.h"
#include "arete/ops/shape.h"

namespace arete::nn {

namespace {
Shape channels_and(int64_t first, int64_t second, IntList kernel) {
  Shape sizes{first, second};
  for (int64_t k : kernel) sizes.push_back(k);
  return sizes;
}

void start_values(const Tensor& weight, const Tensor& bias) {
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (bias.defined()) init_uniform(bias, init::calculate_fan_in_and_fan_out(weight).in);
}
}  // namespace

template <int N>
ConvNd<N>::ConvNd(int64_t in_channels, int64_t out_channels, const Extent& kernel_size,
                  const ConvOptions& o)
    : DescribedLayer(numbered("Conv", N), {{"in_channels", in_channels},
                                           {"out_channels", out_channels},
                                           {"kernel_size", kernel_size},
                                           {"stride", o.stride},
                                           {"padding", o.padding},
                                           {"dilation", o.dilation},
                                           {"groups", o.groups},
                                           {"bias", o.bias},
                                           {"padding_mode", o.padding_mode}}),
      stride_(options().shape("stride")),
      dilation_(options().shape("dilation")),
      padding_(0),
      groups_(o.groups),
      padding_mode_(o.padding_mode) {
  const Shape kernel = options().shape("kernel_size");
  padding_ = o.padding.mode() == "same"    ? Padding("same")
             : o.padding.mode() == "valid" ? Padding(0)
                                           : Padding(options().shape("padding"));
  if (padding_mode_ != "zeros") edges_ = ops::explicit_padding(padding_, kernel, dilation_);
  weight = register_parameter("weight",
                              empty(channels_and(out_channels, in_channels / groups_, kernel)));
  bias = register_parameter("bias", o.bias ? empty({out_channels}) : Tensor());
  reset_parameters();
}

template <int N>
void ConvNd<N>::reset_parameters() {
  start_values(weight, bias);
}

template <int N>
Tensor ConvNd<N>::forward(const Tensor& input) {
  const bool zeros = edges_.empty();
  const Tensor x = zeros ? input : pad(input, edges_, padding_mode_);
  constexpr auto conv = N == 1 ? conv1d : N == 2 ? conv2d : conv3d;
  return conv(x, weight, bias, stride_, zeros ? padding_ : Padding(0), dilation_, groups_);
}

template <int N>
ConvTransposeNd<N>::ConvTransposeNd(int64_t in_channels, int64_t out_channels,
                                    const Extent& kernel_size, const ConvTransposeOptions& o)
    : DescribedLayer(numbered("ConvTranspose", N), {{"in_channels", in_channels},
                                                    {"out_channels", out_channels},
                                                    {"kernel_size", kernel_size},
                                                    {"stride", o.stride},
                                                    {"padding", o.padding},
                                                    {"output_padding", o.output_padding},
                                                    {"groups", o.groups},
                                                    {"bias", o.bias},
                                                    {"dilation", o.dilation},
                                                    {"padding_mode", o.padding_mode}}),
      stride_(options().shape("stride")),
      padding_(options().shape("padding")),
      output_padding_(options().shape("output_padding")),
      dilation_(options().shape("dilation")),
      groups_(o.groups) {
  weight = register_parameter("weight", empty(channels_and(in_channels, out_channels / groups_,
                                                           options().shape("kernel_size"))));
  bias = register_parameter("bias", o.bias ? empty({out_channels}) : Tensor());
  reset_parameters();
}

template <int N>
void ConvTransposeNd<N>::reset_parameters() {
  start_values(weight, bias);
}

template <int N>
Tensor ConvTransposeNd<N>::forward(const Tensor& x, IntList output_size) {
  const Shape extra = output_size.empty()
                          ? output_padding_
                          : ops::output_padding_for(x.sizes(), output_size, stride_, padding_,
                                                    weight.sizes().subspan(2), dilation_);
  constexpr auto conv = N == 1 ? conv_transpose1d : N == 2 ? conv_transpose2d : conv_transpose3d;
  return conv(x, weight, bias, stride_, padding_, extra, groups_, dilation_);
}

template class ConvNd<1>;
template class ConvNd<2>;
template class ConvNd<3>;
template class ConvTransposeNd<1>;
template class ConvTransposeNd<2>;
template class ConvTransposeNd<3>;

}  // namespace arete::nn
