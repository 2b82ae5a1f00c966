// Pools over batched inputs, with their gradients. Max pooling's gradient is a scatter by the
// positions it found; that of average pooling is a pass of its own; each is linear, so the gradient
// of the gradient is the gather (the average pool) again.
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/numeric.h"
#include "arete/ops/pool_internal.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {
namespace {

using Kind = prim::PoolArgs::Kind;

std::string by_x(IntList sizes) {
  std::string s = "(";
  for (size_t i = 0; i < sizes.size(); ++i) s += (i ? "x" : "") + std::to_string(sizes[i]);
  return s + ")";
}

Shape pooled_sizes(const char* op, IntList x, const PoolParams& p) {
  const size_t spatial = p.kernel.size();
  ARETE_CHECK(x.size() == spatial + 2 && p.stride.size() == spatial &&
                  p.padding.size() == spatial && p.dilation.size() == spatial,
              ValueError(op, "input, kernel_size, stride, padding and dilation do not fit")
                  .got(to_string(x)));
  Shape out{x[0], x[1]};
  if (!p.output.empty()) {
    ARETE_CHECK(p.output.size() == spatial,
                ValueError(op, "output_size does not fit").got(to_string(p.output)));
    out.append(p.output.begin(), p.output.end());
    return out;
  }
  bool too_small = false;
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t k = p.kernel[d], s = p.stride[d], pad = p.padding[d], dil = p.dilation[d],
                  n = x[d + 2];
    ARETE_CHECK(
        k > 0 && s > 0 && dil > 0,
        ValueError(op, "kernel size, stride and dilation should be greater than zero")
            .got(to_string(p.kernel) + ", " + to_string(p.stride) + ", " + to_string(p.dilation)));
    const int64_t span = dil * (k - 1) + 1;
    ARETE_CHECK(pad >= 0 && pad <= span / 2,
                ValueError(op, "pad should be at most half of effective kernel size, but got pad=" +
                                   std::to_string(pad) + ", kernel_size=" + std::to_string(k) +
                                   " and dilation=" + std::to_string(dil)));
    const int64_t room = n + 2 * pad - span;
    int64_t o = room < 0 ? (p.ceil_mode && room + s > 0 ? 1 : 0)
                         : (room + (p.ceil_mode ? s - 1 : 0)) / s + 1;
    if (p.ceil_mode && o > 0 && (o - 1) * s >= n + pad) --o;  // the last window must begin inside
    too_small = too_small || o <= 0;
    out.push_back(o);
  }
  ARETE_CHECK(!too_small,
              ValueError(op, "Given input size: " + by_x(x.subspan(1)) +
                                 ". Calculated output size: " + by_x(IntList(out).subspan(1)) +
                                 ". Output size is too small"));
  return out;
}

// The maxima of whole planes are those of rows.
bool max_of_planes(prim::Primitives& prims, const Tensor& x, const Tensor& y, const Tensor& indices,
                   const PoolParams& p) {
  const size_t spatial = p.kernel.size(), rank = spatial + 2;
  for (size_t d = 0; d < spatial; ++d) {
    if (y.sizes()[d + 2] != 1 || p.padding[d] != 0) return false;
    const bool adaptive = !p.output.empty();
    if (!adaptive && (p.kernel[d] != x.sizes()[d + 2] || p.dilation[d] != 1)) return false;
  }
  if (x.numel() == 0 || !is_floating(x.dtype())) return false;
  prim::View in = view_of(x), out = view_of(y);
  // One dimension instead of the spatial ones, if one stride leads through them.
  Shape sizes{x.sizes()[0], x.sizes()[1], 1}, strides{x.strides()[0], x.strides()[1], 0};
  for (size_t d = rank - 1; d >= 2; --d) {
    if (x.sizes()[d] == 1) continue;
    if (sizes[2] == 1)
      strides[2] = x.strides()[d];
    else if (x.strides()[d] != strides[2] * sizes[2])
      return false;
    sizes[2] *= x.sizes()[d];
  }
  in.sizes = sizes;
  in.strides = strides;
  const auto of_row = [&](const Tensor& t, Shape& one, Shape& step) {
    prim::View v = view_of(t);
    one = Shape{t.sizes()[0], t.sizes()[1], 1};
    step = Shape{t.strides()[0], t.strides()[1], 1};
    v.sizes = one;
    v.strides = step;
    return v;
  };
  Shape one[2], step[2];
  out = of_row(y, one[0], step[0]);
  if (indices.defined())
    prims.arg_reduce({.in = in,
                      .out = of_row(indices, one[1], step[1]),
                      .values = out,
                      .dim = 2,
                      .largest = true});
  else
    prims.reduce({.monoid = prim::Monoid::max,
                  .space = sizes,
                  .reduced = 1u << 2,
                  .inputs = {&in, 1},
                  .out = out});
  return true;
}

void run(prim::Primitives& prims, Kind kind, bool backward, const Tensor& x, const Tensor& y,
         const Tensor& indices, const PoolParams& p, bool count_include_pad = true,
         int64_t divisor = 0, const Tensor& samples = {}) {
  if (kind == Kind::max && !backward && !samples.defined() &&
      max_of_planes(prims, x, y, indices, p))
    return;
  using Placement = prim::PoolArgs::Placement;
  prim::PoolArgs a{};
  if (!p.output.empty())
    a.placement = kind == Kind::max && p.kernel[0] > 0 ? Placement::random : Placement::adaptive;
  a.kind = kind;
  a.backward = backward;
  a.x = view_of(x);
  a.y = view_of(y);
  if (indices.defined()) a.indices = view_of(indices);
  a.window = make_window(p.kernel, p.stride, p.padding, p.dilation);
  if (a.placement == Placement::adaptive) a.window.kernel = {1, 1, 1};
  std::optional<prim::ScratchView> wide;
  Shape from_last;
  if (samples.defined()) {
    a.samples = view_of(samples);
    if (samples.dtype() != kFloat32 && samples.dtype() != kFloat64) {
      wide.emplace(prims, kFloat32, samples.sizes());
      prims.copy({*wide, a.samples});
      a.samples = *wide;
    }
    if (a.window.spatial == 2) {  // PyTorch's samples of planes are for width and height
      from_last = Shape(a.samples.strides);
      a.samples.data += from_last[2] * int64_t(size_of(a.samples.dtype));
      from_last[2] = -from_last[2];
      a.samples.strides = from_last;
    }
  }
  a.count_include_pad = count_include_pad;
  a.divisor = divisor;
  prims.pool(a);
}

// strides_like(); what has one spatial dimension counts as a plane with one row, as PyTorch has it.
std::optional<Shape> order_like(const Tensor& t, IntList sizes) {
  if (t.dim() != 3) return strides_like(t, sizes);
  const IntList n = t.sizes(), s = t.strides();
  const Layout plane(IntList{n[0], n[1], 1, n[2]}, IntList{s[0], s[1], n[2] * s[2], s[2]});
  if (!prefers_channels_last(plane)) return std::nullopt;
  return strides_in_order({0, 2, 1}, sizes);
}

Tensor max_pool_backward(const Tensor& grad, const Tensor& indices, IntList input_size,
                         const PoolParams& p);
Tensor avg_pool_backward(const Tensor& grad, IntList input_size, const PoolParams& p,
                         bool count_include_pad, int64_t divisor);

// ---- references ----

void max_infer(const Call& call, OutputSpecs& out) {
  const Tensor& x = call.tensor(0);
  const Shape sizes = pooled_sizes(call.name(), x.sizes(), params_of(call, 1, true));
  const auto strides = order_like(x, sizes);
  out.push_back({sizes, x.dtype(), strides});
  if (schema_of(call.op).returns.size() > 1) out.push_back({sizes, kInt64, strides});
}

const OpRecord& max_pool_op =
    define(
        "max_pool(Tensor self, int[] kernel_size, int[] stride, int[] padding, int[] dilation, "
        "bool ceil_mode, int[] output_size=[], Tensor? samples=None) -> (Tensor, Tensor)")
        .doc("Maximum of each window and its position in the plane.")
        .surface(Surface::internal)
        .batched(vmaps::folded)
        .infer(max_infer)
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          run(p, Kind::max, false, call.tensor(0), out[0], out[1], params_of(call, 1, true), true,
              0, call.has(7) ? call.tensor(7) : Tensor());
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              return {
                  max_pool_backward(g.grad(), g.output(1), g.input_sizes(0), params_of(g, 1, true)),
                  Tensor()};
            },
            0, 0b10)
        .no_grad_outputs(0b10);

const OpRecord& max_pool_values_op =
    define(
        "max_pool_values(Tensor self, int[] kernel_size, int[] stride, int[] padding, int[] "
        "dilation, bool ceil_mode, int[] output_size=[], Tensor? samples=None) -> Tensor")
        .doc("Maximum of each window.")
        .surface(Surface::internal)
        .batched(vmaps::folded)
        .infer(max_infer)
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          run(p, Kind::max, false, call.tensor(0), out[0], Tensor(), params_of(call, 1, true), true,
              0, call.has(7) ? call.tensor(7) : Tensor());
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const PoolParams p = params_of(g, 1, true);
              const auto [values, indices] =
                  max_pool(g.input(0).detach(), p, g.has_input(1) ? g.input(1) : Tensor());
              return {max_pool_backward(g.grad(), indices, g.input_sizes(0), p), Tensor()};
            },
            0b11);

const OpRecord& max_pool_backward_op =
    define(
        "max_pool_backward(Tensor grad, Tensor indices, int[] input_size, int[] kernel_size, int[] "
        "stride, int[] padding, int[] dilation, bool ceil_mode, int[] output_size=[]) -> Tensor")
        .doc("Adds each gradient at the position of its window's maximum.")
        .surface(Surface::internal)
        .batched(vmaps::folded)
        .infer([](const Call& call, OutputSpecs& out) {
          const Tensor& g = call.tensor(0);
          ARETE_CHECK(Shape(g.sizes()) == Shape(call.tensor(1).sizes()) &&
                          g.sizes().size() == call.ints(2).size(),
                      ValueError(call.name(), "grad and indices must have one shape"));
          auto strides = order_like(g, call.ints(2));
          out.push_back({Shape(call.ints(2)), g.dtype(), std::move(strides)});
        })
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          run(p, Kind::max, true, out[0], call.tensor(0), call.tensor(1), params_of(call, 3, true));
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor& h = g.grad();
              const Tensor indices = g.input(1);
              const int64_t spatial = h.dim() - 2;
              const Tensor flat = h.flatten(-spatial).gather(-1, indices.flatten(-spatial));
              return {flat.view(indices.sizes()), Tensor()};
            },
            0b10);

const OpRecord& avg_pool_op =
    define(
        "avg_pool(Tensor self, int[] kernel_size, int[] stride, int[] padding, bool ceil_mode, "
        "bool count_include_pad, int divisor, int[] output_size=[]) -> Tensor")
        .doc("Mean of each window; divisor 0 means its size.")
        .surface(Surface::internal)
        .batched(vmaps::folded)
        .infer([](const Call& call, OutputSpecs& out) {
          const Tensor& x = call.tensor(0);
          ARETE_CHECK(is_floating(x.dtype()),
                      TypeError(call.name(), "\"avg_pool_out_frame\" not implemented for '" +
                                                 std::string(name_of(x.dtype())) + "'"));
          Shape sizes = pooled_sizes(call.name(), x.sizes(), params_of(call, 1, false));
          auto strides = order_like(x, sizes);
          out.push_back({std::move(sizes), x.dtype(), std::move(strides)});
        })
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          run(p, Kind::avg, false, call.tensor(0), out[0], Tensor(), params_of(call, 1, false),
              call.boolean(5), call.integer(6));
        })
        .grad([](const GradCall& g) -> TensorList {
          return {avg_pool_backward(g.grad(), g.input_sizes(0), params_of(g, 1, false),
                                    g.boolean(5), g.integer(6))};
        });

const OpRecord& avg_pool_backward_op =
    define(
        "avg_pool_backward(Tensor grad, int[] input_size, int[] kernel_size, int[] stride, int[] "
        "padding, bool ceil_mode, bool count_include_pad, int divisor, int[] output_size=[]) -> "
        "Tensor")
        .doc("Spreads each gradient over its window.")
        .surface(Surface::internal)
        .batched(vmaps::folded)
        .infer([](const Call& call, OutputSpecs& out) {
          const Tensor& g = call.tensor(0);
          auto strides = order_like(g, call.ints(1));
          ARETE_CHECK(pooled_sizes(call.name(), call.ints(1), params_of(call, 2, false)) ==
                          Shape(g.sizes()),
                      ValueError(call.name(), "grad and input_size do not fit"));
          out.push_back({Shape(call.ints(1)), g.dtype(), std::move(strides)});
        })
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          run(p, Kind::avg, true, out[0], call.tensor(0), Tensor(), params_of(call, 2, false),
              call.boolean(6), call.integer(7));
        })
        .grad([](const GradCall& g) -> TensorList {
          return {avg_pool(g.grad(), params_of(g, 2, false), g.boolean(6), g.integer(7))};
        });

Tensor max_pool_backward(const Tensor& grad, const Tensor& indices, IntList input_size,
                         const PoolParams& p) {
  return call(max_pool_backward_op, {grad, indices, input_size, p.kernel, p.stride, p.padding,
                                     p.dilation, p.ceil_mode, p.output});
}
Tensor avg_pool_backward(const Tensor& grad, IntList input_size, const PoolParams& p,
                         bool count_include_pad, int64_t divisor) {
  return call(avg_pool_backward_op, {grad, input_size, p.kernel, p.stride, p.padding, p.ceil_mode,
                                     count_include_pad, divisor, p.output});
}

}  // namespace

std::tuple<Tensor, Tensor> max_pool(const Tensor& x, const PoolParams& p, const Tensor& samples) {
  Results r = call_all(max_pool_op, {x, p.kernel, p.stride, p.padding, p.dilation, p.ceil_mode,
                                     p.output, samples.defined() ? Arg(samples) : Arg()});
  return {r[0], r[1]};
}
Tensor max_pool_values(const Tensor& x, const PoolParams& p, const Tensor& samples) {
  return call(max_pool_values_op, {x, p.kernel, p.stride, p.padding, p.dilation, p.ceil_mode,
                                   p.output, samples.defined() ? Arg(samples) : Arg()});
}
Tensor avg_pool(const Tensor& x, const PoolParams& p, bool count_include_pad, int64_t divisor) {
  if (x.dtype() == kInt64) {
    // Sums in float64, exact up to 2^53, and quotients truncated as those of integers are.
    const Tensor wide = x.to(kFloat64), one = ones(x.sizes(), wide.options());
    const Tensor sum = avg_pool(wide, p, count_include_pad, 1);
    if (divisor) return arete::div(sum, Scalar(divisor), "trunc").to(kInt64);
    // Of ones: how many elements lie in each window, and which part of its divisor they are.
    const Tensor inside = avg_pool(one, p, count_include_pad, 1);
    const Tensor part = avg_pool(one, p, count_include_pad, 0);
    return arete::div(sum, inside.div(part).round(), "trunc").to(kInt64);
  }
  return call(avg_pool_op, {x, p.kernel, p.stride, p.padding, p.ceil_mode, count_include_pad,
                            divisor, p.output});
}

}  // namespace ops
}  // namespace arete

ARETE_FAMILY(pool)
