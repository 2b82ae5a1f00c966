// Note [Three passes]
// A convolution y = x * w is linear in x and in w. Its forward, the gradient of x from (y, w) and
// the gradient of w from (x, y) are three operators, and the gradients of each are the other two:
//   convolution(x, w)       d/dx: dgrad(h, w)        d/dw: wgrad(x, h)
//   dgrad(g, w)             d/dg: convolution(h, w)  d/dw: wgrad(h, g)
//   wgrad(x, g)             d/dx: dgrad(g, h)        d/dg: convolution(x, h)
// so derivatives of any order exist.
#include "arete/ops/conv.h"

#include "arete/ops/call.h"
#include "arete/ops/complex.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/conv_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {

// ---- for batches (Note [Batching rules])
// What has weights of its own becomes a group.

namespace vmaps {
namespace {
Tensor groups_of(const Tensor& t) {  // (B, N, C, ...) to (N, B * C, ...)
  const Tensor m = t.movedim(0, 1);
  Shape sizes{m.sizes()[0], m.sizes()[1] * m.sizes()[2]};
  for (int64_t s : m.sizes().subspan(3)) sizes.push_back(s);
  return m.reshape(sizes);
}
Tensor from_groups(const Tensor& t, int64_t batch) {
  Shape sizes{t.sizes()[0], batch, t.sizes()[1] / batch};
  for (int64_t s : t.sizes().subspan(2)) sizes.push_back(s);
  return t.reshape(sizes).movedim(1, 0);
}
Shape scaled_size(IntList sizes, size_t d, int64_t factor) {
  Shape all(sizes);
  all[d] *= factor;
  return all;
}
Results convolution_rule(const Rewriting& r) {
  if (r.batch == 0) return one_by_one(r);
  const bool has_bias = r.call.has(2);
  if (!r.is_mapped(1) && !(has_bias && r.is_mapped(2))) return folded_beside(r, 0b110);
  Changed call(r);
  if (!r.is_mapped(1)) {
    call.set(0, fold(r.whole(0)));
    call.clear(2);
    const Tensor made = unfold(call.run()[0], r.batch);
    Shape sizes(size_t(made.dim()), 1);
    sizes[0] = r.batch;
    sizes[2] = r.at(2).physical.size(-1);
    return {made + r.at(2).physical.reshape(sizes)};
  }
  call.set(0, groups_of(r.whole(0)));
  call.set(1, fold(r.whole(1)));
  if (has_bias) call.set(2, r.whole(2).reshape({-1}));
  call.set(6, r.call.integer(6) * r.batch);
  return {from_groups(call.run()[0], r.batch)};
}
Results convolution_dgrad_rule(const Rewriting& r) {
  if (r.batch == 0) return one_by_one(r);
  if (!r.is_mapped(1)) return folded_beside(r, 0b10);
  Changed call(r);
  call.set(0, groups_of(r.whole(0)));
  call.set(1, fold(r.whole(1)));
  call.set(2, scaled_size(r.call.ints(2), 1, r.batch));
  call.set(6, r.call.integer(6) * r.batch);
  return {from_groups(call.run()[0], r.batch)};
}
Results convolution_wgrad_rule(const Rewriting& r) {
  if (r.batch == 0) return one_by_one(r);
  Changed call(r);
  call.set(0, groups_of(r.whole(0)));
  call.set(1, groups_of(r.whole(1)));
  call.set(2, scaled_size(r.call.ints(2), 0, r.batch));
  call.set(6, r.call.integer(6) * r.batch);
  Results results = call.run();
  for (Tensor& t : results) t = unfold(t, r.batch);
  return results;
}
}  // namespace
}  // namespace vmaps

void check_dtypes(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias) {
  ARETE_CHECK(
      x.dtype() == w.dtype(),
      TypeError(op, "Input type (" + std::string(name_of(x.dtype())) + ") and weight type (" +
                        std::string(name_of(w.dtype())) + ") should be the same"));
  ARETE_CHECK(!bias.defined() || bias.dtype() == x.dtype(),
              TypeError(op, "Input type (" + std::string(name_of(x.dtype())) + ") and bias type (" +
                                (bias.defined() ? std::string(name_of(bias.dtype())) : "") +
                                ") should be the same"));
}

namespace {

using Pass = prim::ConvArgs::Pass;

Tensor convolution(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvParams& c);
Tensor convolution_wgrad(const Tensor& x, const Tensor& grad, IntList weight_size,
                         const ConvParams& c, bool channels_last);

Shape output_sizes(const char* op, IntList x, IntList w, const ConvParams& c) {
  Shape out{x[0], w[0]};
  for (size_t d = 0; d < c.stride.size(); ++d) {
    const int64_t span = c.dilation[d] * (w[d + 2] - 1) + 1, room = x[d + 2] + 2 * c.padding[d];
    ARETE_CHECK(
        span <= room,
        ValueError(op, "Calculated padded input size per channel: (" + std::to_string(room) +
                           "). Kernel size: (" + std::to_string(span) +
                           "). Kernel size can't be greater than actual input size")
            .got("input " + to_string(x) + ", weight " + to_string(w)));
    out.push_back((room - span) / c.stride[d] + 1);
  }
  return out;
}

void check_geometry(const char* op, const ConvParams& c, int spatial) {
  for (const auto& [list, name, least] : {std::tuple{&c.stride, "stride", 1},
                                          {&c.padding, "padding", 0},
                                          {&c.dilation, "dilation", 1}}) {
    ARETE_CHECK(int(list->size()) == spatial,
                ValueError(op, "one number for each spatial dimension is needed").argument(name));
    for (int64_t v : *list)
      ARETE_CHECK(v >= least,
                  ValueError(op, least ? std::string("non-positive ") + name + " is not supported"
                                       : std::string("negative ") + name + " is not supported")
                      .argument(name)
                      .got(to_string(*list)));
  }
  ARETE_CHECK(c.groups > 0, ValueError(op, "non-positive groups is not supported")
                                .argument("groups")
                                .got(std::to_string(c.groups)));
}

void check_operands(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const ConvParams& c) {
  const int spatial = int(w.dim()) - 2;
  ARETE_CHECK(spatial >= 1 && spatial <= 3,
              ValueError(op, "weight should have 3 to 5 dimensions").got(describe(w)));
  ARETE_CHECK(x.dim() == w.dim(),
              ValueError(op, "Expected " + std::to_string(spatial + 1) + "D (unbatched) or " +
                                 std::to_string(spatial + 2) + "D (batched) input to conv" +
                                 std::to_string(spatial) +
                                 "d, but got input of size: " + to_string(x.sizes())));
  check_dtypes(op, x, w, bias);
  check_geometry(op, c, spatial);
  const int64_t channels = w.sizes()[1] * c.groups;
  ARETE_CHECK(x.sizes()[1] == channels,
              ValueError(op, "Given groups=" + std::to_string(c.groups) + ", weight of size " +
                                 to_string(w.sizes()) + ", expected input" + to_string(x.sizes()) +
                                 " to have " + std::to_string(channels) + " channels, but got " +
                                 std::to_string(x.sizes()[1]) + " channels instead"));
  ARETE_CHECK(
      w.sizes()[0] % c.groups == 0,
      ValueError(op, "Given groups=" + std::to_string(c.groups) +
                         ", expected weight to be divisible by " + std::to_string(c.groups) +
                         " at dimension 0, but got weight of size " + to_string(w.sizes()) +
                         " instead"));
  ARETE_CHECK(!bias.defined() || (bias.dim() == 1 && bias.sizes()[0] == w.sizes()[0]),
              ValueError(op, "Given weight of size " + to_string(w.sizes()) +
                                 ", expected bias to be 1-dimensional with " +
                                 std::to_string(w.sizes()[0]) + " elements, but got bias of size " +
                                 (bias.defined() ? to_string(bias.sizes()) : "") + " instead"));
}

void run(prim::Primitives& p, Pass pass, const Tensor& x, const Tensor& w, const Tensor& y,
         const Tensor& bias, const ConvParams& c) {
  prim::ConvArgs a{};
  a.pass = pass;
  a.x = view_of(x);
  a.w = view_of(w);
  a.y = view_of(y);
  if (bias.defined()) a.bias = view_of(bias);
  a.window = make_window(w.sizes().subspan(2), c.stride, c.padding, c.dilation);
  a.groups = c.groups;
  p.conv(a);
}

double conv_flops(const Tensor& w, int64_t positions) {
  return 2.0 * double(w.numel()) * double(positions);
}

// ---- references: loops over every product of the sum; f(index of x, index of w, index of y) ----

// Of complex numbers, from the four products of their parts; the bias is added by the caller.
Tensor complex_product(const Call& c) {
  const Results a = parts_of(c.tensor(0)), b = parts_of(c.tensor(1));
  const auto product = [&](const Tensor& x, const Tensor& y) {
    std::vector<Arg> args(c.args().begin(), c.args().end());
    args[0] = Arg(x);
    args[1] = Arg(y);
    if (args[2].kind() == Arg::Kind::tensor) args[2] = Arg();
    return call(c.op, args);
  };
  return complex(product(a[0], b[0]) - product(a[1], b[1]),
                 product(a[0], b[1]) + product(a[1], b[0]));
}

// ---- the three records ----

const OpRecord& convolution_op =
    define(
        "convolution(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] "
        "dilation, "
        "int groups) -> Tensor")
        .doc("Convolution of 1 to 3 spatial dimensions.")
        .batched(vmaps::convolution_rule)
        .infer([](const Call& call, OutputSpecs& out) {
          const Tensor &x = call.tensor(0), &w = call.tensor(1);
          const ConvParams c = params_of(call, 3);
          check_operands(call.name(), x, w, call.has(2) ? call.tensor(2) : Tensor(), c);
          Shape sizes = output_sizes(call.name(), x.sizes(), w.sizes(), c);
          auto strides = strides_like(x, w, sizes);
          out.push_back({std::move(sizes), x.dtype(), std::move(strides)});
        })
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          run(p, Pass::forward, call.tensor(0), call.tensor(1), out[0],
              call.has(2) ? call.tensor(2) : Tensor(), params_of(call, 3));
        })
        .complex([](const Call& c) -> Results {
          check_operands(c.name(), c.tensor(0), c.tensor(1), c.has(2) ? c.tensor(2) : Tensor(),
                         params_of(c, 3));
          const Tensor y = complex_product(c);
          if (!c.has(2)) return {y};
          Shape channel(size_t(y.dim()), 1);
          channel[1] = y.size(1);
          return {y + c.tensor(2).reshape(channel)};
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const ConvParams c = params_of(g, 3);
              const bool bias = g.has_input(2) && g.needs(2);
              // A weight's gradient lies as the weight does, for its optimizer.
              const bool last = g.needs(1) && prefers_channels_last(g.input(1));
              TensorList out(3);
              if (g.needs(0))
                out[0] = convolution_dgrad(g.grad(), g.input(1), g.input_sizes(0), c,
                                           prefers_channels_last(g.input(0)));
              if (g.needs(1) && bias) {
                std::tie(out[1], out[2]) =
                    convolution_wgrad_bias(g.input(0), g.grad(), g.input_sizes(1), c, last);
              } else if (g.needs(1)) {
                out[1] = convolution_wgrad(g.input(0), g.grad(), g.input_sizes(1), c, last);
              } else if (bias) {
                Shape dims{0};
                for (int64_t d = 2; d < g.grad().dim(); ++d) dims.push_back(d);
                out[2] = g.grad().sum(dims);
              }
              return out;
            },
            0b011)
        .autocast(Autocast::lower)
        .flops([](const Call& call) {
          const ConvParams c = params_of(call, 3);
          const Shape y = output_sizes("", call.tensor(0).sizes(), call.tensor(1).sizes(), c);
          return conv_flops(call.tensor(1), numel_of(y) / std::max<int64_t>(y[1], 1));
        });

const OpRecord& convolution_dgrad_op =
    define(
        "convolution_dgrad(Tensor grad, Tensor weight, int[] input_size, int[] stride, int[] "
        "padding, "
        "int[] dilation, int groups, bool channels_last=False) -> Tensor")
        .doc("Gradient of a convolution with respect to its input; a transposed convolution.")
        .surface(Surface::internal)
        .batched(vmaps::convolution_dgrad_rule)
        .infer([](const Call& call, OutputSpecs& out) {
          const Tensor &g = call.tensor(0), &w = call.tensor(1);
          Shape sizes(call.ints(2));
          check_dtypes(call.name(), g, w, Tensor());
          ARETE_CHECK(g.dim() == w.dim() && int64_t(sizes.size()) == w.dim() &&
                          output_sizes(call.name(), sizes, w.sizes(), params_of(call, 3)) ==
                              Shape(g.sizes()),
                      ValueError(call.name(), "grad, weight and input_size do not fit")
                          .got(describe(g) + ", " + describe(w) + ", " + to_string(sizes)));
          auto strides = call.has(7) && call.boolean(7) ? channels_last_strides(sizes)
                                                        : strides_like(g, w, sizes);
          out.push_back({std::move(sizes), g.dtype(), std::move(strides)});
        })
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          run(p, Pass::dgrad, out[0], call.tensor(1), call.tensor(0), Tensor(), params_of(call, 3));
        })
        .complex([](const Call& c) -> Results {
          check_dtypes(c.name(), c.tensor(0), c.tensor(1), Tensor());
          return {complex_product(c)};
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const ConvParams c = params_of(g, 3);
              TensorList out(2);
              if (g.needs(0)) out[0] = convolution(g.grad(), g.input(1), Tensor(), c);
              if (g.needs(1))
                out[1] = convolution_wgrad(g.grad(), g.input(0), g.input_sizes(1), c,
                                           prefers_channels_last(g.input(1)));
              return out;
            },
            0b11)
        .autocast(Autocast::lower)
        .flops([](const Call& call) {
          const Tensor& g = call.tensor(0);
          return conv_flops(call.tensor(1), g.numel() / std::max<int64_t>(g.size(1), 1));
        });

void wgrad_infer(const Call& call, OutputSpecs& out) {
  const Tensor &x = call.tensor(0), &g = call.tensor(1);
  Shape sizes(call.ints(2));
  check_dtypes(call.name(), x, g, Tensor());
  ARETE_CHECK(
      x.dim() == g.dim() && int64_t(sizes.size()) == x.dim() &&
          output_sizes(call.name(), x.sizes(), sizes, params_of(call, 3)) == Shape(g.sizes()),
      ValueError(call.name(), "input, grad and weight_size do not fit")
          .got(describe(x) + ", " + describe(g) + ", " + to_string(sizes)));
  std::optional<Shape> strides;
  if (call.has(7) && call.boolean(7)) strides = channels_last_strides(sizes);
  out.push_back({std::move(sizes), x.dtype(), std::move(strides)});
}
TensorList wgrad_grad(const GradCall& g) {
  const ConvParams c = params_of(g, 3);
  const Tensor &h = g.grad(0), &hb = g.grad(1);
  TensorList out(2);
  if (g.needs(0) && h.defined()) out[0] = convolution_dgrad(g.input(1), h, g.input_sizes(0), c);
  if (g.needs(1)) {
    if (h.defined()) out[1] = convolution(g.input(0), h, Tensor(), c);
    if (hb.defined()) {
      Shape sizes(g.input_sizes(1).size() - 1, 1);
      sizes[0] = hb.size(0);
      const Tensor spread_bias = hb.reshape(sizes).expand(g.input_sizes(1));
      out[1] = out[1].defined() ? out[1].add(spread_bias) : spread_bias;
    }
  }
  return out;
}

double wgrad_flops(const Call& call) {
  const Tensor& g = call.tensor(1);
  return 2.0 * double(numel_of(call.ints(2))) * double(g.numel() / std::max<int64_t>(g.size(1), 1));
}

const OpRecord& convolution_wgrad_op =
    define(
        "convolution_wgrad(Tensor input, Tensor grad, int[] weight_size, int[] stride, int[] "
        "padding, "
        "int[] dilation, int groups, bool channels_last=False) -> Tensor")
        .doc("Gradient of a convolution with respect to its weight.")
        .surface(Surface::internal)
        .batched(vmaps::convolution_wgrad_rule)
        .infer(wgrad_infer)
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          run(p, Pass::wgrad, call.tensor(0), out[0], call.tensor(1), Tensor(), params_of(call, 3));
        })
        .grad(wgrad_grad, 0b11)
        .autocast(Autocast::lower)
        .flops(wgrad_flops);

const OpRecord& convolution_wgrad_bias_op =
    define(
        "convolution_wgrad_bias(Tensor input, Tensor grad, int[] weight_size, int[] stride, int[] "
        "padding, "
        "int[] dilation, int groups, bool channels_last=False) -> (Tensor, Tensor)")
        .doc("Gradients of a convolution with respect to weight and bias in one pass.")
        .surface(Surface::internal)
        .batched(vmaps::convolution_wgrad_rule)
        .infer([](const Call& call, OutputSpecs& out) {
          wgrad_infer(call, out);
          out.push_back({Shape{call.ints(2)[0]}, call.tensor(0).dtype()});
        })
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          run(p, Pass::wgrad, call.tensor(0), out[0], call.tensor(1), out[1], params_of(call, 3));
        })
        .grad(wgrad_grad, 0b11)
        .autocast(Autocast::lower)
        .flops(wgrad_flops);

Tensor convolution(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvParams& c) {
  return call(convolution_op, {x, w, bias, c.stride, c.padding, c.dilation, c.groups});
}
Tensor convolution_wgrad(const Tensor& x, const Tensor& grad, IntList weight_size,
                         const ConvParams& c, bool channels_last) {
  return call(convolution_wgrad_op,
              {x, grad, weight_size, c.stride, c.padding, c.dilation, c.groups, channels_last});
}

}  // namespace

Tensor convolution_forward(const Tensor& x, const Tensor& w, const Tensor& bias,
                           const ConvParams& c) {
  return convolution(x, w, bias, c);
}
Tensor convolution_dgrad(const Tensor& grad, const Tensor& w, IntList input_size,
                         const ConvParams& c, bool channels_last) {
  return call(convolution_dgrad_op,
              {grad, w, input_size, c.stride, c.padding, c.dilation, c.groups, channels_last});
}
std::tuple<Tensor, Tensor> convolution_wgrad_bias(const Tensor& x, const Tensor& grad,
                                                  IntList weight_size, const ConvParams& c,
                                                  bool channels_last) {
  Results r = call_all(convolution_wgrad_bias_op, {x, grad, weight_size, c.stride, c.padding,
                                                   c.dilation, c.groups, channels_last});
  return {r[0], r[1]};
}

}  // namespace ops
}  // namespace arete

ARETE_FAMILY(conv)
