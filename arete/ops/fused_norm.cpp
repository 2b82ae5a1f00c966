#include "arete/ops/fused_norm.h"

#include "arete/ops/fused_builder.h"
#include "arete/ops/fused_norm_internal.h"
#include "arete/ops/moments.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {
namespace ops {

// ---- for batches (Note [Batching rules])

namespace vmaps {

Tensor weight_in(const Rewriting& r, const Operand& w, IntList shape, IntList weight_shape) {
  Shape sizes{w.is_mapped ? r.batch : 1};
  for (size_t d = weight_shape.size(); d < shape.size(); ++d) sizes.push_back(1);
  for (int64_t s : weight_shape) sizes.push_back(s);
  return w.physical.reshape(sizes);
}
Shape shifted(IntList dims) {
  Shape all;
  for (int64_t d : dims) all.push_back(d + 1);
  return all;
}

namespace {

// Whether a norm writes statistics of each element; those that all share are written once.
bool has_own_statistics(const Rewriting& r, size_t running, bool once) {
  if (r.is_mapped(running) && r.is_mapped(running + 1)) return true;
  ARETE_CHECK(
      once && !r.is_mapped(running) && !r.is_mapped(running + 1),
      AutogradError(
          "batch_norm",
          "Batch norm got a batched tensor as input while the running_mean or running_var, "
          "which will be updated in place, were not batched.")
          .hint("map over the statistics, too, use a norm without them (GroupNorm), or eval()"));
  return false;
}
Results fused_norm_residual_rule(const Rewriting& r) {
  if (r.call.has(4)) has_own_statistics(r, 4, false);
  return one_by_one(r);
}
Results fused_norm_rule(const Rewriting& r) {
  constexpr size_t kRunning = 3, kShape = 5, kDims = 6, kWeightShape = 7, kRelu = 10;
  const bool tracks = r.call.has(kRunning);
  if (tracks && has_own_statistics(r, kRunning, !r.is_mapped(0))) return one_by_one(r);
  const IntList shape = r.call.ints(kShape), weights = r.call.ints(kWeightShape);
  const bool own_weights = r.is_mapped(1) || r.is_mapped(2);
  Changed call(r);
  if (!tracks) {
    call.set(0, r.whole(0));
    call.set(kShape, with_front(r.batch, shape));
    call.set(kDims, shifted(r.call.ints(kDims)));
  }
  const bool relu = r.call.boolean(kRelu);
  if (!own_weights && !relu) return call.run();
  call.set(kRelu, false);
  call.clear(1);
  call.clear(2);
  Results results = call.run();
  Tensor y = results[0].reshape(with_front(tracks ? 1 : r.batch, shape));
  if (r.call.has(1)) y = y * weight_in(r, r.at(1), shape, weights);
  if (r.call.has(2)) y = y + weight_in(r, r.at(2), shape, weights);
  if (relu) y = arete::relu(y);
  results[0] = y.to(r.specs[0].dtype).reshape(with_front(r.batch, r.specs[0].sizes));
  return results;
}
}  // namespace
}  // namespace vmaps

using L = std::initializer_list<int64_t>;

namespace {

using namespace norms;
using prim::View;

// ---- forward: input, weight, bias[, residual], running_mean, running_var, shape, dims,
// weight_shape, center, eps, relu, momentum ----

bool has_residual_argument(const Call& c) { return c.size() == 13; }

void forward_infer(const Call& call, OutputSpecs& out) {
  const Tensor& x = call.tensor(0);
  ARETE_CHECK(is_floating(x.dtype()),
              TypeError(call.name(), "normalization is not implemented for '" +
                                         std::string(name_of(x.dtype())) + "'"));
  const bool with_residual = has_residual_argument(call);
  const size_t running = with_residual ? 4 : 3;
  const NormSpec s = spec_of(call, running + 2);
  if (with_residual) {
    const Tensor& r = call.tensor(3);
    ARETE_CHECK(Shape(r.sizes()) == Shape(x.sizes()) && r.dtype() == x.dtype(),
                ValueError(call.name(), "residual must be like input")
                    .expected(describe(x))
                    .got(describe(r)));
  }
  const bool affine = call.has(1) || call.has(2);
  ARETE_CHECK(!s.relu || !affine || one_row_per_weight(s),
              ValueError(call.name(), "relu needs statistics for each weight"));
  ARETE_CHECK(numel_of(s.shape) == x.numel(),
              ValueError(call.name(), "shape does not factorize the input")
                  .got(to_string(s.shape) + " for " + describe(x)));
  for (size_t i = 1; i < 3; ++i)
    ARETE_CHECK(!call.has(i) || call.tensor(i).numel() == numel_of(s.weight_shape),
                ValueError(call.name(), "weight and bias must have one element for each position")
                    .expected(to_string(s.weight_shape))
                    .got(describe(call.tensor(i))));
  ARETE_CHECK(call.has(running) == call.has(running + 1),
              ValueError(call.name(), "running_mean and running_var belong together"));
  for (size_t i = running; i < running + 2; ++i)
    ARETE_CHECK(!call.has(i) || (call.tensor(i).dim() == 1 && s.center &&
                                 call.tensor(i).numel() == numel_of(stat_sizes(s)) &&
                                 is_floating(call.tensor(i).dtype()) &&
                                 work_dtype(call.tensor(i).dtype()) == work_dtype(x.dtype()) &&
                                 call.tensor(i).dtype() == call.tensor(running).dtype()),
                ValueError(call.name(), "running statistics must be like the input's")
                    .expected(to_string(stat_sizes(s)))
                    .got(call.has(i) ? describe(call.tensor(i)) : ""));
  std::optional<Shape> strides;
  if (!x.is_contiguous() && x.layout().is_dense()) strides = Shape(x.strides());
  out.push_back({Shape(x.sizes()), x.dtype(), strides});
  out.push_back({stat_sizes(s), work_dtype(x.dtype())});
  out.push_back({stat_sizes(s), work_dtype(x.dtype())});
}

void forward_lower(const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
  const Tensor& x = call.tensor(0);
  const Tensor w = call.has(1) ? simple(call.tensor(1)) : Tensor(),
               b = call.has(2) ? simple(call.tensor(2)) : Tensor();
  const bool with_residual = has_residual_argument(call);
  const size_t running = with_residual ? 4 : 3;
  const bool tracks = call.has(running);
  const NormSpec s = spec_of(call, running + 2);
  if (numel_of(stat_sizes(s)) == 0) return;
  const Order o = rows_first(s);
  Seen sx(p, x, s.shape, false), sy(p, out[0], s.shape, true);
  std::optional<Seen> sr;
  SmallVector<View, 9> inputs{sx.ordered(o)};
  std::optional<SeenWeight> sw, sb;
  if (w.defined()) inputs.push_back(sw.emplace(w, s, o).value);
  if (b.defined()) inputs.push_back(sb.emplace(b, s, o).value);
  if (with_residual) inputs.push_back(sr.emplace(p, call.tensor(3), s.shape, false).ordered(o));
  const SeenStat mean(out[1], o), rstd(out[2], o);
  SmallVector<View, 5> outputs{sy.ordered(o), mean.value, rstd.value};
  const double n = elements_per_row(s);
  const expr::Literal params[4] = {real_literal(1 / n), real_literal(s.eps),
                                   real_literal(call.real(running + 8)), real_literal(n / (n - 1))};
  const IntList space = inputs[0].sizes;
  // Note [Statistics in one pass]
  const bool one_pass = s.center && n >= double(kOnePass);
  Shape one_of_row;
  if (one_pass) append_pivots(inputs, o.outer, one_of_row);
  std::optional<SeenStat> statistics[2];
  for (size_t i = 0; tracks && i < 2; ++i) {
    const Tensor& t = call.tensor(running + i);
    statistics[i].emplace(t, *view(t.layout(), stat_sizes(s)), o);
    inputs.push_back(statistics[i]->value);
    outputs.push_back(statistics[i]->value);
  }
  const NormKernel kernel{x.dtype(),       w.defined(),
                          b.defined(),     with_residual,
                          dtype_or_f32(w), dtype_or_f32(b),
                          s.center,        s.relu,
                          tracks,          tracks ? call.tensor(running).dtype() : kFloat32};
  p.fused({&norm_forward_spec(kernel, one_pass),
           space,
           o.outer,
           {inputs.data(), inputs.size()},
           {outputs.data(), outputs.size()},
           {params, tracks ? size_t(4) : size_t(2)}});
  sy.finish();
}

TensorList grad_of(const GradCall& g, bool with_residual) {
  const NormSpec s = spec_of(g, with_residual ? 6 : 5);
  const bool has_w = g.has_input(1), has_b = g.has_input(2);
  const Results r = fused_norm_backward(g.grad(), g.input(0), has_w ? g.input(1) : Tensor(),
                                        has_b ? g.input(2) : Tensor(), g.output(1), g.output(2),
                                        with_residual ? g.output(0) : Tensor(), s);
  TensorList out(with_residual ? 6 : 5);
  if (g.needs(0)) out[0] = r[0];
  if (has_w && g.needs(1)) out[1] = r[1];
  if (has_b && g.needs(2)) {
    out[2] = r[2].to(g.input_dtype(2));
    if (Shape(out[2].sizes()) != Shape(g.input_sizes(2))) out[2] = out[2].reshape(g.input_sizes(2));
  }
  if (with_residual && g.needs(3)) out[3] = r[3];
  return out;
}

const OpRecord& fused_norm_op =
    define(
        "fused_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? "
        "running_var, int[] shape, int[] dims, int[] weight_shape, bool center, float eps, bool "
        "relu, float momentum) -> (Tensor, Tensor, Tensor)")
        .doc(
            "Normalization over `dims` of the input seen as `shape`; also mean and 1 / deviation. "
            "Moves running statistics.")
        .surface(Surface::internal)
        .batched(vmaps::fused_norm_rule)
        .infer(forward_infer)
        .lower(forward_lower)
        .grad([](const GradCall& g) { return grad_of(g, false); }, 0b111, 0b110)
        .no_grad_outputs(0b110);

// Its relu's derivative needs the output, which fused_norm must not keep.
const OpRecord& fused_norm_residual_op =
    define(
        "fused_norm_residual(Tensor input, Tensor? weight, Tensor? bias, Tensor residual, Tensor? "
        "running_mean, Tensor? running_var, int[] shape, int[] dims, int[] weight_shape, bool "
        "center, float eps, bool relu, float momentum) -> (Tensor, Tensor, Tensor)")
        .doc("fused_norm with a tensor added to the result, before the relu.")
        .surface(Surface::internal)
        .batched(vmaps::fused_norm_residual_rule)
        .infer(forward_infer)
        .lower(forward_lower)
        .grad([](const GradCall& g) { return grad_of(g, true); }, 0b111, 0b111)
        .no_grad_outputs(0b110);

}  // namespace

std::tuple<Tensor, Tensor, Tensor> fused_norm(const Tensor& input, const Tensor& weight,
                                              const Tensor& bias, const NormSpec& s,
                                              const Tensor& residual,
                                              const RunningStatistics& running) {
  Results r = residual.defined()
                  ? call_all(fused_norm_residual_op,
                             {input, weight, bias, residual, running.mean, running.var, s.shape,
                              s.dims, s.weight_shape, s.center, s.eps, s.relu, running.momentum})
                  : call_all(fused_norm_op,
                             {input, weight, bias, running.mean, running.var, s.shape, s.dims,
                              s.weight_shape, s.center, s.eps, s.relu, running.momentum});
  for (const Tensor* t : {&running.mean, &running.var})
    if (t->defined()) t->bump_version();
  return {r[0], r[1], r[2]};
}

}  // namespace ops
}  // namespace arete

ARETE_FAMILY(fused_norm)
