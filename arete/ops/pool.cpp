// Pools over batched inputs, with their gradients. Max pooling's gradient is a scatter by the
// positions it found; that of average pooling is a pass of its own; each is linear, so the gradient
// of the gradient is the gather (the average pool) again.
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/numeric.h"
#include "arete/ops/pool_internal.h"
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

void run(prim::Primitives& prims, Kind kind, bool backward, const Tensor& x, const Tensor& y,
         const Tensor& indices, const PoolParams& p, bool count_include_pad = true,
         int64_t divisor = 0) {
  prim::PoolArgs a{};
  a.kind = kind;
  a.backward = backward;
  a.x = view_of(x);
  a.y = view_of(y);
  if (indices.defined()) a.indices = view_of(indices);
  a.window = make_window(p.kernel, p.stride, p.padding, p.dilation);
  a.count_include_pad = count_include_pad;
  a.divisor = divisor;
  prims.pool(a);
}

Tensor max_pool_backward(const Tensor& grad, const Tensor& indices, IntList input_size,
                         const PoolParams& p);
Tensor avg_pool_backward(const Tensor& grad, IntList input_size, const PoolParams& p,
                         bool count_include_pad, int64_t divisor);

// ---- references ----

void max_infer(const Call& call, OutputSpecs& out) {
  const Tensor& x = call.tensor(0);
  const Shape sizes = pooled_sizes(call.name(), x.sizes(), params_of(call, 1, true));
  const auto strides = strides_like(x, sizes);
  out.push_back({sizes, x.dtype(), x.device(), strides});
  if (schema_of(call.op).returns.size() > 1) out.push_back({sizes, kInt64, x.device(), strides});
}

const OpRecord& max_pool_op =
    define(
        "max_pool(Tensor self, int[] kernel_size, int[] stride, int[] padding, int[] dilation, "
        "bool ceil_mode) "
        "-> (Tensor, Tensor)")
        .doc("Maximum of each window and its position in the plane.")
        .surface(Surface::internal)
        .infer(max_infer)
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          run(p, Kind::max, false, call.tensor(0), out[0], out[1], params_of(call, 1, true));
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              return {max_pool_backward(g.grad(), g.output(1), g.input_sizes(0),
                                        params_of(g, 1, true))};
            },
            0, 0b10)
        .no_grad_outputs(0b10);

const OpRecord& max_pool_values_op =
    define(
        "max_pool_values(Tensor self, int[] kernel_size, int[] stride, int[] padding, int[] "
        "dilation, "
        "bool ceil_mode) -> Tensor")
        .doc("Maximum of each window.")
        .surface(Surface::internal)
        .infer(max_infer)
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          run(p, Kind::max, false, call.tensor(0), out[0], Tensor(), params_of(call, 1, true));
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const PoolParams p = params_of(g, 1, true);
              const auto [values, indices] = max_pool(g.input(0).detach(), p);
              return {max_pool_backward(g.grad(), indices, g.input_sizes(0), p)};
            },
            1);

const OpRecord& max_pool_backward_op =
    define(
        "max_pool_backward(Tensor grad, Tensor indices, int[] input_size, int[] kernel_size, int[] "
        "stride, "
        "int[] padding, int[] dilation, bool ceil_mode) -> Tensor")
        .doc("Adds each gradient at the position of its window's maximum.")
        .surface(Surface::internal)
        .infer([](const Call& call, OutputSpecs& out) {
          const Tensor& g = call.tensor(0);
          ARETE_CHECK(Shape(g.sizes()) == Shape(call.tensor(1).sizes()) &&
                          g.sizes().size() == call.ints(2).size(),
                      ValueError(call.name(), "grad and indices must have one shape"));
          auto strides = strides_like(g, call.ints(2));
          out.push_back({Shape(call.ints(2)), g.dtype(), common_device(call), std::move(strides)});
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
        "bool count_include_pad, int divisor) -> Tensor")
        .doc("Mean of each window; divisor 0 means its size.")
        .surface(Surface::internal)
        .infer([](const Call& call, OutputSpecs& out) {
          const Tensor& x = call.tensor(0);
          ARETE_CHECK(is_floating(x.dtype()),
                      TypeError(call.name(), "\"avg_pool_out_frame\" not implemented for '" +
                                                 std::string(name_of(x.dtype())) + "'"));
          Shape sizes = pooled_sizes(call.name(), x.sizes(), params_of(call, 1, false));
          auto strides = strides_like(x, sizes);
          out.push_back({std::move(sizes), x.dtype(), x.device(), std::move(strides)});
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
        "padding, "
        "bool ceil_mode, bool count_include_pad, int divisor) -> Tensor")
        .doc("Spreads each gradient over its window.")
        .surface(Surface::internal)
        .infer([](const Call& call, OutputSpecs& out) {
          const Tensor& g = call.tensor(0);
          auto strides = strides_like(g, call.ints(1));
          ARETE_CHECK(pooled_sizes(call.name(), call.ints(1), params_of(call, 2, false)) ==
                          Shape(g.sizes()),
                      ValueError(call.name(), "grad and input_size do not fit"));
          out.push_back({Shape(call.ints(1)), g.dtype(), g.device(), std::move(strides)});
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
  return call(max_pool_backward_op,
              {grad, indices, input_size, p.kernel, p.stride, p.padding, p.dilation, p.ceil_mode});
}
Tensor avg_pool_backward(const Tensor& grad, IntList input_size, const PoolParams& p,
                         bool count_include_pad, int64_t divisor) {
  return call(avg_pool_backward_op, {grad, input_size, p.kernel, p.stride, p.padding, p.ceil_mode,
                                     count_include_pad, divisor});
}

}  // namespace

std::tuple<Tensor, Tensor> max_pool(const Tensor& x, const PoolParams& p) {
  Results r = call_all(max_pool_op, {x, p.kernel, p.stride, p.padding, p.dilation, p.ceil_mode});
  return {r[0], r[1]};
}
Tensor max_pool_values(const Tensor& x, const PoolParams& p) {
  return call(max_pool_values_op, {x, p.kernel, p.stride, p.padding, p.dilation, p.ceil_mode});
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
  return call(avg_pool_op,
              {x, p.kernel, p.stride, p.padding, p.ceil_mode, count_include_pad, divisor});
}

}  // namespace ops
}  // namespace arete

ARETE_FAMILY(pool)
