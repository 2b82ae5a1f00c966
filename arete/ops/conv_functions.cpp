// conv1d ... conv_transpose3d: what users call, in terms of the passes in conv.cpp.
#include <algorithm>
#include <optional>
#include <utility>

#include "arete/ops/call.h"
#include "arete/ops/conv.h"
#include "arete/ops/conv_internal.h"
#include "arete/ops/filling.h"
#include "arete/ops/over.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {

// ---- for batches (Note [Batching rules])

namespace vmaps {
namespace {
Results tap_products_rule(const Rewriting& r) {
  if (r.is_mapped(1) || r.is_mapped(2)) return one_by_one(r);
  Changed call(r);
  call.set(0, fold(r.whole(0), 1));
  return {unfold(call.run()[0], r.batch, 1)};
}
}  // namespace
}  // namespace vmaps

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
  check_dtypes(op, x, w, bias);
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
    y = call_over(std::move(y), "add", {bias.view(b), Scalar(1)});
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

// ---- over the first dimension, with channels last

// Calls f(output step, input step, count) with the steps that tap `tap` leads from one to the
// other.
template <class F>
void for_steps_of(int64_t tap, int64_t steps, int64_t outputs, int64_t pad, F&& f) {
  const int64_t first = std::max<int64_t>(0, pad - tap),
                last = std::min(outputs, steps + pad - tap);
  if (first < last) f(first, first + tap - pad, last - first);
}
// A tensor in row-major order.
class RowMajor {
 public:
  RowMajor(prim::Primitives& p, const Tensor& t) : view_(view_of(t)) {
    if (t.is_contiguous()) return;
    copy_.emplace(p, t.dtype(), t.sizes());
    p.copy({*copy_, view_});
    view_ = *copy_;
  }
  operator const prim::View&() const { return view_; }

 private:
  std::optional<prim::ScratchView> copy_;
  prim::View view_;
};
// Rows [from, from + count) of a row-major `v`, taken as a matrix with its last dimension's
// columns.
class MatrixRows {
 public:
  MatrixRows(const prim::View& v, int64_t from, int64_t count, bool transposed = false)
      : sizes_{count, v.sizes.back()}, strides_{v.sizes.back(), 1}, view_(v) {
    view_.data += from * strides_[0] * int64_t(size_of(v.dtype));
    if (transposed) std::swap(sizes_[0], sizes_[1]), std::swap(strides_[0], strides_[1]);
    view_.sizes = sizes_;
    view_.strides = strides_;
  }
  MatrixRows(const MatrixRows&) = delete;
  operator const prim::View&() const { return view_; }

 private:
  Shape sizes_, strides_;
  prim::View view_;
};

Tensor tap_products(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t pad);
Tensor tap_weights(const Tensor& x, const Tensor& grad, int64_t taps, int64_t pad);
// The gradient of x: each of `steps` steps takes part in the outputs that its taps lead to.
Tensor tap_inputs(const Tensor& grad, const Tensor& weight, int64_t pad) {
  const int64_t turned = weight.size(0) - 1 - pad;
  const Tensor w = weight.flip({0}).transpose(1, 2);
  return turned >= 0 ? tap_products(grad, w, {}, turned)
                     : tap_products(grad.narrow(0, -turned, grad.size(0) + 2 * turned), w, {}, 0);
}

const OpRecord& tap_products_op =
    define("tap_products(Tensor input, Tensor weight, Tensor? bias, int pad) -> Tensor")
        .doc("Sums over taps of products of the steps (T, N, C) with matrices (k, C, O).")
        .surface(Surface::internal)
        .batched(vmaps::tap_products_rule)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &x = c.tensor(0), &w = c.tensor(1);
          ARETE_CHECK(x.dim() == 3 && w.dim() == 3 && x.size(2) == w.size(1),
                      ValueError(c.name(), "input and weight do not fit").got(describe(w)));
          const int64_t outputs = x.size(0) + 2 * c.integer(3) - w.size(0) + 1;
          ARETE_CHECK(outputs > 0, ValueError(c.name(), "more taps than steps").got(describe(x)));
          out.push_back({Shape{outputs, x.size(1), w.size(2)}, x.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const Tensor &x = c.tensor(0), &w = c.tensor(1);
          const prim::View y = view_of(out[0]);
          const RowMajor in(p, x), matrices(p, w);
          if (c.has(2)) {
            prim::View bias = view_of(c.tensor(2));
            const Shape strides{0, 0, bias.strides[0]};
            bias.sizes = y.sizes;
            bias.strides = strides;
            p.copy({y, bias});
          } else {
            p.fill(filling(y, 0, "tap_products"));
          }
          if (x.numel() == 0) return;
          const int64_t batch = x.size(1), channels = x.size(2);
          for (int64_t tap = 0; tap < w.size(0); ++tap)
            for_steps_of(tap, x.size(0), y.sizes[0], c.integer(3),
                         [&](int64_t to, int64_t from, int64_t count) {
                           const MatrixRows a(in, from * batch, count * batch),
                               b(matrices, tap * channels, channels),
                               sum(y, to * batch, count * batch);
                           p.gemm({.a = a, .b = b, .out = sum, .beta = 1});
                         });
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              TensorList r(3);
              const int64_t pad = g.integer(3);
              if (g.needs(0)) r[0] = tap_inputs(g.grad(), g.input(1), pad);
              if (g.needs(1)) r[1] = tap_weights(g.input(0), g.grad(), g.input_sizes(1)[0], pad);
              if (g.has_input(2) && g.needs(2)) r[2] = g.grad().sum({0, 1});
              return r;
            },
            0b11);

const OpRecord& tap_weights_op =
    define("tap_weights(Tensor input, Tensor grad, int taps, int pad) -> Tensor")
        .doc("The gradient of the matrices of tap_products.")
        .surface(Surface::internal)
        .one_by_one("its result sums over the dimension that a batch would be folded into")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &x = c.tensor(0), &g = c.tensor(1);
          ARETE_CHECK(x.dim() == 3 && g.dim() == 3 && x.size(1) == g.size(1) &&
                          g.size(0) == x.size(0) + 2 * c.integer(3) - c.integer(2) + 1,
                      ValueError(c.name(), "input and grad do not fit").got(describe(g)));
          out.push_back({Shape{c.integer(2), x.size(2), g.size(2)}, x.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const Tensor &x = c.tensor(0), &g = c.tensor(1);
          const prim::View w = view_of(out[0]);
          const RowMajor in(p, x), grad(p, g);
          const int64_t batch = x.size(1), channels = x.size(2);
          for (int64_t tap = 0; tap < w.sizes[0]; ++tap) {
            const MatrixRows matrix(w, tap * channels, channels);
            bool any = false;
            for_steps_of(tap, x.size(0), g.size(0), c.integer(3),
                         [&](int64_t to, int64_t from, int64_t count) {
                           if (any = batch > 0; !any) return;
                           const MatrixRows a(in, from * batch, count * batch, true),
                               b(grad, to * batch, count * batch);
                           p.gemm({.a = a, .b = b, .out = matrix});
                         });
            if (!any) p.fill(filling(matrix, 0, "tap_weights"));
          }
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const int64_t pad = g.integer(3);
              return {tap_inputs(g.input(1), g.grad(), pad),
                      tap_products(g.input(0), g.grad(), {}, pad)};
            },
            0b11);

Tensor tap_products(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t pad) {
  return call(tap_products_op, {x, weight, bias.defined() ? Arg(bias) : Arg(), pad});
}
Tensor tap_weights(const Tensor& x, const Tensor& grad, int64_t taps, int64_t pad) {
  return call(tap_weights_op, {x, grad, taps, pad});
}

const OpRecord& conv_tbc_op =
    define("conv_tbc(Tensor input, Tensor weight, Tensor bias, int pad=0) -> Tensor")
        .autocast(Autocast::lower)
        .doc("conv1d of (T, N, Cin) with weight (k, Cin, Cout) -> (T', N, Cout).")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &w = c.tensor(1), &bias = c.tensor(2);
          ARETE_CHECK(x.dim() == 3 && w.dim() == 3 && bias.dim() == 1,
                      ValueError(c.name(),
                                 "Input must have 3 dims: time, batch, in_channel, weight 3: "
                                 "kernel_width, in_channels, out_channels, bias 1")
                          .got(describe(x) + ", " + describe(w) + ", " + describe(bias)));
          ARETE_CHECK(x.size(2) == w.size(1) && w.size(2) == bias.size(0),
                      ValueError(c.name(), "channels of input, weight and bias do not fit")
                          .got(describe(x) + ", " + describe(w) + ", " + describe(bias)));
          // On GPUs products, as precise as those are, not as convolutions are; on a CPU where
          // there will be gradients, which take twice as long as convolutions with many taps.
          const bool one_dtype = w.dtype() == x.dtype() && bias.dtype() == x.dtype();
          const bool recorded = will_record(x) || will_record(w);
          if ((x.device().is_cuda() || recorded) && one_dtype &&
              (x.dtype() == kFloat32 || x.dtype() == kFloat64))
            return {tap_products(x, w, bias, c.integer(3))};
          return {conv1d(x.permute({1, 2, 0}), w.permute({2, 1, 0}), bias, 1, c.integer(3))
                      .permute({2, 0, 1})};
        });

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

Tensor conv_tbc(const Tensor& input, const Tensor& weight, const Tensor& bias, int64_t pad) {
  return ops::call(ops::conv_tbc_op, {input, weight, bias, pad});
}

}  // namespace arete

ARETE_FAMILY(conv_functions)
