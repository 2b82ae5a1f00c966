#include "arete/nn/conv.h"

#include <algorithm>
#include <cmath>

#include "arete/nn/layer_internal.h"
#include "arete/ops/conv.h"
#include "arete/ops/shape.h"

namespace arete::nn {

namespace {

// One number for each of n spatial dimensions.
Shape spread(const Shape& values, int n, const char* layer, const char* argument) {
  if (values.size() == 1) return Shape(size_t(n), values[0]);
  ARETE_CHECK(int(values.size()) == n,
              ValueError(layer, "there must be one number, or one for each spatial dimension")
                  .argument(argument)
                  .expected(std::to_string(n) + " numbers")
                  .got(to_string(values)));
  return values;
}

void check_channels(const char* layer, int64_t in, int64_t out, int64_t groups) {
  check_sizes(layer, {{"in_channels", in}, {"out_channels", out}, {"groups", groups}});
  ARETE_CHECK(in % groups == 0, ValueError(layer, "in_channels must be divisible by groups")
                                    .got(std::to_string(in) + " and " + std::to_string(groups)));
  ARETE_CHECK(out % groups == 0, ValueError(layer, "out_channels must be divisible by groups")
                                     .got(std::to_string(out) + " and " + std::to_string(groups)));
}

constexpr const char* kConvNames[] = {"", "Conv1d", "Conv2d", "Conv3d"};
constexpr const char* kTransposeNames[] = {"", "ConvTranspose1d", "ConvTranspose2d",
                                           "ConvTranspose3d"};

bool all_equal(const Shape& values, int64_t v) {
  return std::all_of(values.begin(), values.end(), [v](int64_t x) { return x == v; });
}

Shape kernel_of(const Tensor& weight) { return Shape(IntList(weight.sizes().subspan(2))); }

int64_t fan_in_of(const Tensor& weight) { return init::calculate_fan_in_and_fan_out(weight).in; }

}  // namespace

template <int N>
ConvNd<N>::ConvNd(int64_t in_channels, int64_t out_channels, const Extent& kernel_size,
                  const ConvOptions& options)
    : groups_(options.groups), padding_mode_(options.padding_mode) {
  const char* layer = kConvNames[N];
  check_channels(layer, in_channels, out_channels, groups_);
  const Shape kernel = spread(kernel_size.values(), N, layer, "kernel_size");
  for (int64_t k : kernel) check_sizes(layer, {{"kernel_size", k}});
  stride_ = spread(options.stride.values(), N, layer, "stride");
  dilation_ = spread(options.dilation.values(), N, layer, "dilation");
  ARETE_CHECK(padding_mode_ == "zeros" || padding_mode_ == "reflect" ||
                  padding_mode_ == "replicate" || padding_mode_ == "circular",
              ValueError(layer, "padding_mode must be one of zeros, reflect, replicate, circular")
                  .got(padding_mode_));
  padding_text_ = options.padding.mode();
  Shape before, after;
  if (padding_text_ == "same") {
    ARETE_CHECK(all_equal(stride_, 1),
                ValueError(layer, "padding='same' is not supported for strided convolutions"));
    for (int d = 0; d < N; ++d) {
      const int64_t total = dilation_[d] * (kernel[d] - 1);
      before.push_back(total / 2);
      after.push_back(total - total / 2);
    }
  } else if (padding_text_ == "valid") {
    before = after = Shape(size_t(N), 0);
  } else {
    ARETE_CHECK(padding_text_.empty(), ValueError(layer, "Invalid padding string")
                                           .got(padding_text_)
                                           .expected("numbers, same or valid"));
    before = after = spread(options.padding.values(), N, layer, "padding");
  }
  if (padding_mode_ == "zeros" && std::ranges::equal(before, after)) {
    padding_ = before;
  } else {
    padding_ = Shape(size_t(N), 0);
    for (int d = N - 1; d >= 0; --d) {  // pad() counts from the last dimension
      pad_.push_back(before[d]);
      pad_.push_back(after[d]);
    }
  }
  Shape sizes{out_channels, in_channels / groups_};
  for (int64_t k : kernel) sizes.push_back(k);
  weight = register_parameter("weight", empty(sizes));
  bias = register_parameter("bias", options.bias ? empty({out_channels}) : Tensor());
  reset_parameters();
}

template <int N>
void ConvNd<N>::reset_parameters() {
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (bias.defined()) init_uniform(bias, fan_in_of(weight));
}

template <int N>
Tensor ConvNd<N>::forward(const Tensor& input) {
  const Tensor x = pad_.empty()
                       ? input
                       : pad(input, pad_, padding_mode_ == "zeros" ? "constant" : padding_mode_);
  if constexpr (N == 1) return conv1d(x, weight, bias, stride_, padding_, dilation_, groups_);
  if constexpr (N == 2) return conv2d(x, weight, bias, stride_, padding_, dilation_, groups_);
  if constexpr (N == 3) return conv3d(x, weight, bias, stride_, padding_, dilation_, groups_);
}

template <int N>
std::string ConvNd<N>::name() const {
  return kConvNames[N];
}

template <int N>
std::string ConvNd<N>::extra_repr() const {
  std::string text = text_of(weight.size(1) * groups_) + ", " + text_of(weight.size(0)) +
                     ", kernel_size=" + tuple_text(kernel_of(weight)) +
                     ", stride=" + tuple_text(stride_);
  if (!padding_text_.empty())
    text += ", padding=" + padding_text_;
  else if (!pad_.empty() || !all_equal(padding_, 0)) {
    Shape shown = padding_;
    for (int d = 0; d < N && !pad_.empty(); ++d) shown[d] = pad_[2 * (N - 1 - d)];
    text += ", padding=" + tuple_text(shown);
  }
  if (!all_equal(dilation_, 1)) text += ", dilation=" + tuple_text(dilation_);
  if (groups_ != 1) text += ", groups=" + text_of(groups_);
  if (!bias.defined()) text += ", bias=False";
  if (padding_mode_ != "zeros") text += ", padding_mode=" + padding_mode_;
  return text;
}

template <int N>
ConvTransposeNd<N>::ConvTransposeNd(int64_t in_channels, int64_t out_channels,
                                    const Extent& kernel_size, const ConvTransposeOptions& options)
    : groups_(options.groups) {
  const char* layer = kTransposeNames[N];
  check_channels(layer, in_channels, out_channels, groups_);
  const Shape kernel = spread(kernel_size.values(), N, layer, "kernel_size");
  for (int64_t k : kernel) check_sizes(layer, {{"kernel_size", k}});
  stride_ = spread(options.stride.values(), N, layer, "stride");
  padding_ = spread(options.padding.values(), N, layer, "padding");
  output_padding_ = spread(options.output_padding.values(), N, layer, "output_padding");
  dilation_ = spread(options.dilation.values(), N, layer, "dilation");
  Shape sizes{in_channels, out_channels / groups_};
  for (int64_t k : kernel) sizes.push_back(k);
  weight = register_parameter("weight", empty(sizes));
  bias = register_parameter("bias", options.bias ? empty({out_channels}) : Tensor());
  reset_parameters();
}

template <int N>
void ConvTransposeNd<N>::reset_parameters() {
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (bias.defined()) init_uniform(bias, fan_in_of(weight));
}

template <int N>
Tensor ConvTransposeNd<N>::forward(const Tensor& x, IntList output_size) {
  Shape extra = output_padding_;
  if (!output_size.empty()) {
    const Shape wanted = spread(Shape(output_size), N, kTransposeNames[N], "output_size");
    for (int d = 0; d < N; ++d) {
      const int64_t least = (x.size(d - N) - 1) * stride_[d] - 2 * padding_[d] +
                            dilation_[d] * (weight.size(d + 2) - 1) + 1;
      extra[d] = wanted[d] - least;
      ARETE_CHECK(extra[d] >= 0 && extra[d] < std::max(stride_[d], dilation_[d]),
                  ValueError(kTransposeNames[N], "requested an output size that is not possible")
                      .argument("output_size")
                      .got(std::to_string(wanted[d]))
                      .expected(std::to_string(least) + " to " +
                                std::to_string(least + std::max(stride_[d], dilation_[d]) - 1)));
    }
  }
  if constexpr (N == 1)
    return conv_transpose1d(x, weight, bias, stride_, padding_, extra, groups_, dilation_);
  if constexpr (N == 2)
    return conv_transpose2d(x, weight, bias, stride_, padding_, extra, groups_, dilation_);
  if constexpr (N == 3)
    return conv_transpose3d(x, weight, bias, stride_, padding_, extra, groups_, dilation_);
}

template <int N>
std::string ConvTransposeNd<N>::name() const {
  return kTransposeNames[N];
}

template <int N>
std::string ConvTransposeNd<N>::extra_repr() const {
  std::string text = text_of(weight.size(0)) + ", " + text_of(weight.size(1) * groups_) +
                     ", kernel_size=" + tuple_text(kernel_of(weight)) +
                     ", stride=" + tuple_text(stride_);
  if (!all_equal(padding_, 0)) text += ", padding=" + tuple_text(padding_);
  if (!all_equal(dilation_, 1)) text += ", dilation=" + tuple_text(dilation_);
  if (!all_equal(output_padding_, 0)) text += ", output_padding=" + tuple_text(output_padding_);
  if (groups_ != 1) text += ", groups=" + text_of(groups_);
  if (!bias.defined()) text += ", bias=False";
  return text;
}

template class ConvNd<1>;
template class ConvNd<2>;
template class ConvNd<3>;
template class ConvTransposeNd<1>;
template class ConvTransposeNd<2>;
template class ConvTransposeNd<3>;

}  // namespace arete::nn
