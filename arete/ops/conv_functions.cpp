// conv1d ... conv_transpose3d: what users call, in terms of the passes in conv.cpp.
#include <algorithm>

#include "arete/ops/call.h"
#include "arete/ops/conv.h"
#include "arete/ops/conv_internal.h"
#include "arete/ops/shape.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {

Shape explicit_padding(const Padding& padding, IntList kernel, IntList dilation) {
  Shape edges;
  ARETE_CHECK(!padding.mode().empty() || padding.values().size() == kernel.size(),
              ValueError("conv", "there must be one number, or one for each spatial dimension")
                  .argument("padding")
                  .expected(std::to_string(kernel.size()) + " numbers")
                  .got(to_string(padding.values())));
  for (size_t d = kernel.size(); d-- > 0;) {
    const int64_t total = padding.mode() == "same"    ? dilation[d] * (kernel[d] - 1)
                          : padding.mode() == "valid" ? 0
                                                      : 2 * padding.values()[d];
    edges.push_back(total / 2);
    edges.push_back(total - total / 2);
  }
  return edges;
}

Shape output_padding_for(IntList input_size, IntList output_size, IntList stride, IntList padding,
                         IntList kernel, IntList dilation) {
  const size_t spatial = kernel.size(), lead = input_size.size() - spatial;
  const std::string n = std::to_string(spatial), rank = std::to_string(input_size.size());
  const char* op = "conv_transpose";
  ARETE_CHECK(output_size.size() == spatial || output_size.size() == input_size.size(),
              ValueError(op, "ConvTranspose" + n + "D: for " + rank +
                                 "D input, output_size must have " + n + " or " + rank +
                                 " elements (got " + std::to_string(output_size.size()) + ")"));
  const IntList wanted = output_size.subspan(output_size.size() - spatial);
  Shape least, most, extra;
  bool possible = true;
  for (size_t d = 0; d < spatial; ++d) {
    least.push_back((input_size[lead + d] - 1) * stride[d] - 2 * padding[d] +
                    dilation[d] * (kernel[d] - 1) + 1);
    most.push_back(least[d] + stride[d] - 1);
    extra.push_back(wanted[d] - least[d]);
    possible = possible && wanted[d] >= least[d] && wanted[d] <= most[d];
  }
  ARETE_CHECK(possible, ValueError(op, "requested an output size of " + to_string(wanted) +
                                           ", but valid sizes range from " + to_string(least) +
                                           " to " + to_string(most) + " (for an input of " +
                                           to_string(input_size.subspan(2)) + ")"));
  return extra;
}

namespace {

std::string conv_name(const char* prefix, int spatial) {
  return prefix + std::to_string(spatial) + "d";
}

// The batched form of an input that may lack its batch dimension.
Tensor batched(const Tensor& x, int spatial, const char* op) {
  ARETE_CHECK(x.dim() == spatial + 2 || x.dim() == spatial + 1,
              ValueError(op, "Expected " + std::to_string(spatial + 1) + "D (unbatched) or " +
                                 std::to_string(spatial + 2) + "D (batched) input to " + op +
                                 ", but got input of size: " + to_string(x.sizes())));
  return x.dim() == spatial + 1 ? x.unsqueeze(0) : x;
}

void check_weight(const Tensor& w, int spatial, const char* op) {
  ARETE_CHECK(w.dim() == spatial + 2,
              ValueError(op, "weight should have " + std::to_string(spatial + 2) + " dimensions")
                  .argument("weight")
                  .got(describe(w)));
}

Tensor conv_any(int spatial, const Tensor& input, const Tensor& w, const Tensor& bias,
                IntList stride, const Padding& padding, IntList dilation, int64_t groups) {
  const std::string name = conv_name("conv", spatial);
  const char* op = name.c_str();
  check_weight(w, spatial, op);
  const Tensor x = batched(input, spatial, op);
  ConvParams c{
      spread(stride, spatial, op, "stride"), {}, spread(dilation, spatial, op, "dilation"), groups};
  const std::string_view mode = padding.mode();
  ARETE_CHECK(mode.empty() || mode == "same" || mode == "valid",
              ValueError(op, "Invalid padding string: '" + std::string(mode) + "'")
                  .expected("\"same\", \"valid\" or integers"));
  ARETE_CHECK(mode != "same" || std::ranges::all_of(c.stride, [](int64_t s) { return s == 1; }),
              ValueError(op, "padding='same' is not supported for strided convolutions"));
  const Shape edges = explicit_padding(
      mode.empty() ? Padding(spread(padding.values(), spatial, op, "padding")) : padding,
      w.sizes().subspan(2), c.dilation);
  Shape more(edges.size(), 0);  // after the last element, where that is padded by more
  bool uneven = false;
  for (size_t i = edges.size(); i > 0; i -= 2) {
    c.padding.push_back(edges[i - 2]);
    more[i - 1] = edges[i - 1] - edges[i - 2];
    uneven = uneven || more[i - 1] != 0;
  }
  const Tensor y = convolution_forward(uneven ? pad(x, more) : x, w, bias, c);
  return x.is_same(input) ? y : y.squeeze(0);
}

Tensor conv_transpose_any(int spatial, const Tensor& input, const Tensor& w, const Tensor& bias,
                          IntList stride, IntList padding, IntList output_padding, int64_t groups,
                          IntList dilation) {
  const std::string name = conv_name("conv_transpose", spatial);
  const char* op = name.c_str();
  check_weight(w, spatial, op);
  const Tensor x = batched(input, spatial, op);
  const ConvParams c{spread(stride, spatial, op, "stride"), spread(padding, spatial, op, "padding"),
                     spread(dilation, spatial, op, "dilation"), groups};
  const Shape extra = spread(output_padding, spatial, op, "output_padding");
  ARETE_CHECK(groups > 0, ValueError(op, "non-positive groups is not supported"));
  ARETE_CHECK(x.size(1) == w.size(0) && w.size(0) % groups == 0,
              ValueError(op, "Given transposed=1, weight of size " + to_string(w.sizes()) +
                                 ", expected input" + to_string(x.sizes()) + " to have " +
                                 std::to_string(w.size(0)) + " channels, but got " +
                                 std::to_string(x.size(1)) + " channels instead"));
  const int64_t channels = w.size(1) * groups;
  ARETE_CHECK(!bias.defined() || (bias.dim() == 1 && bias.numel() == channels),
              ValueError(op, "Given transposed=1, weight of size " + to_string(w.sizes()) +
                                 ", expected bias to be 1-dimensional with " +
                                 std::to_string(channels) + " elements")
                  .got(describe(bias)));
  Shape sizes{x.size(0), channels};
  for (int d = 0; d < spatial; ++d) {
    const size_t i = size_t(d);
    ARETE_CHECK(c.stride[i] > 0 && c.dilation[i] > 0 && c.padding[i] >= 0,
                ValueError(op, "stride and dilation must be positive and padding not negative"));
    ARETE_CHECK(extra[i] >= 0 && extra[i] < std::max(c.stride[i], c.dilation[i]),
                ValueError(op,
                           "output padding must be smaller than either stride or dilation, but got "
                           "output_padding " +
                               to_string(extra)));
    sizes.push_back((x.size(d + 2) - 1) * c.stride[i] - 2 * c.padding[i] +
                    c.dilation[i] * (w.size(d + 2) - 1) + extra[i] + 1);
    ARETE_CHECK(
        sizes.back() > 0,
        ValueError(op, "Given input size per channel: " + to_string(x.sizes().subspan(2)) +
                           ". Calculated output size per channel: " +
                           to_string(IntList(sizes).subspan(2)) + ". Output size is too small"));
  }
  bool beyond = false;  // more output padding than a convolution's remainder
  for (int d = 0; d < spatial; ++d) beyond = beyond || extra[size_t(d)] >= c.stride[size_t(d)];
  Tensor y;
  if (beyond) {
    // Everything that the input reaches, cut or filled up to the sizes asked for.
    ConvParams whole = c;
    whole.padding = Shape(size_t(spatial), 0);
    Shape all{sizes[0], sizes[1]}, edges(size_t(2 * spatial), 0);
    for (int d = 0; d < spatial; ++d) {
      const size_t i = size_t(d), edge = size_t(2 * (spatial - 1 - d));
      all.push_back((x.size(d + 2) - 1) * c.stride[i] + c.dilation[i] * (w.size(d + 2) - 1) + 1);
      edges[edge] = -c.padding[i];
      edges[edge + 1] = sizes[i + 2] + c.padding[i] - all.back();
    }
    y = pad(convolution_dgrad(x, w, all, whole), edges);
  } else {
    y = convolution_dgrad(x, w, sizes, c);
  }
  if (bias.defined()) {
    Shape b(size_t(spatial + 1), 1);
    b[0] = channels;
    y = y.add(bias.view(b));
  }
  return x.is_same(input) ? y : y.squeeze(0);
}

template <int spatial>
const OpRecord& define_conv(const char* schema) {
  return define(schema)
      .functional()
      .autocast(Autocast::lower)
      .doc("Convolution over spatial dimensions, with or without a batch dimension.")
      .surface(Surface::function)
      .compose([](const Call& c) -> Results {
        return {conv_any(spatial, c.tensor(0), c.tensor(1), c.has(2) ? c.tensor(2) : Tensor(),
                         c.ints(3), Padding(c.ints(4)), c.ints(5), c.integer(6))};
      });
}

template <int spatial>
const OpRecord& define_conv_mode(const char* schema) {
  return define(schema)
      .functional()
      .autocast(Autocast::lower)
      .doc("Convolution with padding \"same\" or \"valid\".")
      .compose([](const Call& c) -> Results {
        return {conv_any(spatial, c.tensor(0), c.tensor(1), c.has(2) ? c.tensor(2) : Tensor(),
                         c.ints(3), Padding(c[4].string()), c.ints(5), c.integer(6))};
      });
}

template <int spatial>
const OpRecord& define_conv_transpose(const char* schema) {
  return define(schema)
      .functional()
      .autocast(Autocast::lower)
      .doc("Transposed convolution, with or without a batch dimension.")
      .surface(Surface::function)
      .compose([](const Call& c) -> Results {
        return {conv_transpose_any(spatial, c.tensor(0), c.tensor(1),
                                   c.has(2) ? c.tensor(2) : Tensor(), c.ints(3), c.ints(4),
                                   c.ints(5), c.integer(6), c.ints(7))};
      });
}

#define ARETE_CONV_ARGS(padding)                                              \
  "(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, " padding \
  ", int[] dilation=1, int groups=1) -> Tensor"
#define ARETE_CONV_TRANSPOSE_ARGS                                                      \
  "(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0, " \
  "int[] output_padding=0, int groups=1, int[] dilation=1) -> Tensor"
const OpRecord* const conv_ops[3] = {&define_conv<1>("conv1d" ARETE_CONV_ARGS("int[] padding=0")),
                                     &define_conv<2>("conv2d" ARETE_CONV_ARGS("int[] padding=0")),
                                     &define_conv<3>("conv3d" ARETE_CONV_ARGS("int[] padding=0"))};
const OpRecord* const conv_mode_ops[3] = {
    &define_conv_mode<1>("conv1d.padding" ARETE_CONV_ARGS("str padding=\"valid\"")),
    &define_conv_mode<2>("conv2d.padding" ARETE_CONV_ARGS("str padding=\"valid\"")),
    &define_conv_mode<3>("conv3d.padding" ARETE_CONV_ARGS("str padding=\"valid\""))};
const OpRecord* const conv_transpose_ops[3] = {
    &define_conv_transpose<1>("conv_transpose1d" ARETE_CONV_TRANSPOSE_ARGS),
    &define_conv_transpose<2>("conv_transpose2d" ARETE_CONV_TRANSPOSE_ARGS),
    &define_conv_transpose<3>("conv_transpose3d" ARETE_CONV_TRANSPOSE_ARGS)};
#undef ARETE_CONV_ARGS
#undef ARETE_CONV_TRANSPOSE_ARGS

Tensor call_conv(int spatial, const Tensor& input, const Tensor& weight, const Tensor& bias,
                 const Extent& stride, const Padding& padding, const Extent& dilation,
                 int64_t groups) {
  const IntList s = stride, d = dilation;
  if (padding.mode().empty())
    return call(*conv_ops[spatial - 1], {input, weight, bias, s, padding.values(), d, groups});
  return call(*conv_mode_ops[spatial - 1], {input, weight, bias, s, padding.mode(), d, groups});
}
Tensor call_transpose(int spatial, const Tensor& input, const Tensor& weight, const Tensor& bias,
                      const Extent& stride, const Extent& padding, const Extent& output_padding,
                      int64_t groups, const Extent& dilation) {
  return call(*conv_transpose_ops[spatial - 1],
              {input, weight, bias, IntList(stride), IntList(padding), IntList(output_padding),
               groups, IntList(dilation)});
}

}  // namespace
}  // namespace ops

#define ARETE_CONV(n)                                                                           \
  Tensor conv##n##d(const Tensor& input, const Tensor& weight, const Tensor& bias,              \
                    const Extent& stride, const Padding& padding, const Extent& dilation,       \
                    int64_t groups) {                                                           \
    return ops::call_conv(n, input, weight, bias, stride, padding, dilation, groups);           \
  }                                                                                             \
  Tensor conv_transpose##n##d(const Tensor& input, const Tensor& weight, const Tensor& bias,    \
                              const Extent& stride, const Extent& padding,                      \
                              const Extent& output_padding, int64_t groups,                     \
                              const Extent& dilation) {                                         \
    return ops::call_transpose(n, input, weight, bias, stride, padding, output_padding, groups, \
                               dilation);                                                       \
  }
ARETE_CONV(1)
ARETE_CONV(2)
ARETE_CONV(3)
#undef ARETE_CONV

}  // namespace arete

ARETE_FAMILY(conv_functions)
