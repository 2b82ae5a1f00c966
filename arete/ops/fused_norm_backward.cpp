// The gradient of fused_norm, and the gradient of that.
#include "arete/ops/fused_builder.h"
#include "arete/ops/fused_norm_internal.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {
namespace ops {

// ---- for batches (Note [Batching rules])

namespace vmaps {
namespace {
Results fused_norm_backward_rule(const Rewriting& r) {
  constexpr size_t kOutput = 6, kShape = 7, kDims = 8, kWeightShape = 9, kCenter = 10, kEps = 11,
                   kRelu = 12;
  if (r.call.boolean(kRelu) || r.call.has(kOutput)) return one_by_one(r);
  const Shape shape = with_front(r.batch, r.call.ints(kShape));
  const IntList weights = r.call.ints(kWeightShape);
  const Tensor x = r.whole(1), mean = r.whole(4).detach(), rstd = r.whole(5).detach();
  Tensor g = r.whole(0).reshape(shape);
  Changed call(r);
  Results results{Tensor(), Tensor(), Tensor(), Tensor()};
  Shape sums{r.batch};  // of the weights' gradients
  for (size_t d = weights.size() + 1; d < shape.size(); ++d) sums.push_back(1);
  for (int64_t s : weights) sums.push_back(s);
  const DType work = mean.dtype();
  if (numel_of(r.specs[1].sizes) > 0) {
    // Mean and deviation have no history: where there is one, they are computed again with it.
    Tensor normal;
    if (will_record(x)) {
      normal = std::get<0>(fused_norm(x, {}, {},
                                      {shape, shifted(r.call.ints(kDims)), Shape(weights),
                                       r.call.boolean(kCenter), r.call.real(kEps)}));
      normal = normal.reshape(shape).to(work);
    } else {
      normal = x.reshape(shape).to(work);
      if (r.call.boolean(kCenter))
        normal = normal - mean.reshape(with_front(r.batch, r.call.tensor(4).sizes()));
      normal = normal * rstd.reshape(with_front(r.batch, r.call.tensor(5).sizes()));
    }
    results[1] = sum_to_size(g.to(work) * normal, sums).to(r.specs[1].dtype);
  }
  if (numel_of(r.specs[2].sizes) > 0)
    results[2] = sum_to_size(g.to(work), sums).to(r.specs[2].dtype);
  if (r.call.has(2))
    g = (g.to(work) * weight_in(r, r.at(2), r.call.ints(kShape), weights)).to(g.dtype());
  call.set(0, g.reshape(x.sizes()));
  call.set(1, x);
  call.clear(2);
  call.clear(3);
  call.set(4, mean);
  call.set(5, rstd);
  call.set(kShape, shape);
  call.set(kDims, shifted(r.call.ints(kDims)));
  const Results of_input = call.run();
  results[0] = of_input[0];
  for (size_t i = 1; i < results.size(); ++i)
    if (!results[i].defined())
      results[i] = zeros(with_front(r.batch, r.specs[i].sizes),
                         TensorOptions(r.specs[i].dtype, *r.specs[i].device));
  return results;
}
}  // namespace
}  // namespace vmaps
namespace {

using namespace norms;
using prim::Monoid;
using prim::View;

// Arguments of the record: grad, input, weight, bias, mean, rstd, output (where a residual was
// added), shape, dims, weight_shape, center, eps, relu.

// Those of weight or bias, so that their gradients need not be seen differently.
Shape gradient_sizes(const Call& call) {
  for (size_t i : {2, 3})
    if (call.has(i)) return Shape(call.tensor(i).sizes());
  return {0};
}

void backward_infer(const Call& call, OutputSpecs& out) {
  const Tensor& x = call.tensor(1);
  const DType w = call.has(2) ? call.tensor(2).dtype() : x.dtype();
  std::optional<Shape> strides;
  if (!x.is_contiguous() && x.layout().is_dense()) strides = Shape(x.strides());
  out.push_back({Shape(x.sizes()), x.dtype(), strides});
  // Without weight and bias, or a residual, there is nothing to give.
  const Shape sizes = gradient_sizes(call);
  out.push_back({sizes, w});
  out.push_back({sizes, w});
  if (call.has(6))
    out.push_back({Shape(x.sizes()), x.dtype(), strides});
  else
    out.push_back({{0}, x.dtype()});
}

void backward_lower(const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
  static ProgramCache weight_programs;
  const Tensor &g = call.tensor(0), &x = call.tensor(1);
  const Tensor w = call.has(2) ? simple(call.tensor(2)) : Tensor(),
               b = call.has(3) ? simple(call.tensor(3)) : Tensor();
  const NormSpec s = spec_of(call, 7);
  const bool affine = w.defined() || b.defined(), with_residual = call.has(6);
  const DType work = work_dtype(x.dtype());
  const Order o = rows_first(s);
  Seen sg(p, g, s.shape, false), sx(p, x, s.shape, false), sdx(p, out[0], s.shape, true);
  std::optional<Seen> sy, sdr;
  const SeenStat mean(call.tensor(4), o), rstd(call.tensor(5), o);
  SmallVector<View, 6> inputs{sg.ordered(o), sx.ordered(o), mean.value, rstd.value};
  std::optional<SeenWeight> sw, sb;
  if (w.defined()) inputs.push_back(sw.emplace(w, s, o).value);
  if (s.relu && with_residual)
    inputs.push_back(sy.emplace(p, call.tensor(6), s.shape, false).ordered(o));
  else if (s.relu && b.defined())
    inputs.push_back(sb.emplace(b, s, o).value);
  const IntList space = inputs[0].sizes;
  const expr::Literal param = real_literal(1 / elements_per_row(s));
  const bool rows = affine && one_row_per_weight(s);
  const bool columns = affine && !rows && weight_is_a_row(s, o);
  SmallVector<View, 4> outputs{sdx.ordered(o)};
  if (with_residual) outputs.push_back(sdr.emplace(p, out[3], s.shape, true).ordered(o));
  // The gradients of weight and bias broadcast to the space, in its order.
  Shape full_weight(s.shape.size() - s.weight_shape.size(), 1);
  full_weight.append(s.weight_shape.begin(), s.weight_shape.end());
  Layout sums[2];
  for (int k = 0; affine && k < 2; ++k) {
    sums[k] = permute(Layout(full_weight), o.dims);
    sums[k].offset = out[size_t(k) + 1].storage_offset();
    if (rows || columns) outputs.push_back(view_of(out[size_t(k) + 1], sums[k]));
  }
  if (x.numel() > 0 || columns)
    p.fused({&norm_backward_spec({x.dtype(), w.defined(), b.defined(), with_residual,
                                  dtype_or_f32(w), dtype_or_f32(b), s.center, s.relu},
                                 g.dtype(),
                                 rows      ? WeightSums::rows
                                 : columns ? WeightSums::columns
                                           : WeightSums::none),
             space,
             o.outer,
             {inputs.data(), inputs.size()},
             {outputs.data(), outputs.size()},
             {&param, 1}});
  sdx.finish();
  if (sdr) sdr->finish();
  if (!affine || columns || (rows && x.numel() > 0)) return;
  // Column sums over everything that shares a weight.
  uint32_t reduced = 0;
  for (size_t d = 0; d < o.dims.size(); ++d)
    if (full_weight[size_t(o.dims[d])] == 1) reduced |= 1u << d;
  for (int k = 0; k < 2; ++k) {
    prim::ReduceArgs r{};
    r.monoid = Monoid::sum;
    r.space = space;
    r.reduced = reduced;
    r.out = view_of(out[size_t(k) + 1], sums[k]);
    r.inputs = {inputs.data(), size_t(k == 0 ? 4 : 1)};
    if (k == 0)
      r.prologue = &weight_programs.get(
          pack_key({int(g.dtype()), int(x.dtype())}), {g.dtype(), x.dtype(), work, work}, {},
          {work},
          [](FusedBuilder::Values v) { return std::vector{v[0] * ((v[1] - v[2]) * v[3])}; });
    p.reduce(r);
  }
}

// Note [Gradient of a norm's gradient]
// Of one row, with n elements, xhat = (x - mean) r and P(u) = u - mean(u) - xhat mean(u xhat) (RMS
// norm: without mean(u)), which is symmetric:
//   dx = r P(g w)            dw = sum over rows of g xhat           db = sum over rows of g
// Let hx, hw, hb be the gradients arriving for these. Then
//   for g:  w r P(hx) + hw xhat + hb
//   for w:  sum over rows of g r P(hx)
//   for x:  dx reaches x through xhat and through r (dr/dx = -r^2 xhat / n):
//           r P(A) - r^2 xhat T,    with u = g w and
//           A = hw g - r (hx mean(u xhat) + u mean(hx xhat)),
//           T = mean(hx u) - mean(hx) mean(u) - mean(hx xhat) mean(u xhat).
// mean and r are computed anew from x, so that derivatives of any order exist. With relu, g above
// is the gradient behind it, and what arrives for it passes through the relu again.
TensorList backward_grad(const GradCall& call) {
  const NormSpec s = spec_of(call, 7);
  const Tensor g = call.input(0).reshape(s.shape), x = call.input(1).reshape(s.shape);
  Tensor w = call.has_input(2) ? call.input(2).reshape(s.weight_shape) : Tensor();
  const DType work = work_dtype(x.dtype());
  const Tensor xw = x.to(work);
  if (w.defined()) w = w.to(work);
  const auto mean = [&](const Tensor& t) { return t.mean(s.dims, true); };
  const Tensor centered = s.center ? xw.sub(mean(xw)) : xw;
  const Tensor r = mean(centered.mul(centered)).add(Scalar(s.eps)).rsqrt();
  const Tensor xhat = centered.mul(r);
  Tensor passes;  // where the relu lets gradients through
  if (s.relu && call.has_input(6)) {
    passes = call.input(6).reshape(s.shape).gt(Scalar(0)).to(work);
  } else if (s.relu) {
    Tensor y = w.defined() ? xhat.mul(w) : xhat;
    if (call.has_input(3)) y = y.add(call.input(3).reshape(s.weight_shape).to(work));
    passes = y.gt(Scalar(0)).to(work);
  }
  const Tensor gw = passes.defined() ? g.to(work).mul(passes) : g.to(work);
  const auto project = [&](const Tensor& u) {
    Tensor t = u.sub(xhat.mul(mean(u.mul(xhat))));
    return s.center ? t.sub(mean(u)) : t;
  };
  const auto weight_like = [&](const Tensor& t) { return t.to(work).reshape(s.weight_shape); };
  const Tensor u = w.defined() ? gw.mul(w) : gw;
  Tensor hx = call.grad(0), hw = call.grad(1), hb = call.grad(2);
  Tensor for_g, for_x, for_w;
  if (hx.defined()) {
    hx = hx.reshape(s.shape).to(work);
    const Tensor rp = r.mul(project(hx));
    if (call.needs(0)) for_g = w.defined() ? rp.mul(w) : rp;
    if (call.has_input(2) && call.needs(2)) for_w = gw.mul(rp);
    if (call.needs(1)) {
      const Tensor m_ux = mean(u.mul(xhat)), m_hx = mean(hx.mul(xhat));
      Tensor a = hx.mul(m_ux).add(u.mul(m_hx)).mul(r).neg();
      if (hw.defined()) a = a.add(gw.mul(weight_like(hw)));
      Tensor t = mean(hx.mul(u)).sub(m_hx.mul(m_ux));
      if (s.center) t = t.sub(mean(hx).mul(mean(u)));
      for_x = r.mul(project(a)).sub(r.mul(r).mul(xhat).mul(t));
    }
  } else if (hw.defined() && call.needs(1)) {
    for_x = r.mul(project(gw.mul(weight_like(hw))));
  }
  if (call.needs(0)) {
    if (hw.defined()) {
      const Tensor t = xhat.mul(weight_like(hw));
      for_g = for_g.defined() ? for_g.add(t) : t;
    }
    if (hb.defined()) {
      const Tensor t = weight_like(hb).expand(s.shape);
      for_g = for_g.defined() ? for_g.add(t) : t;
    }
  }
  if (call.needs(0)) {
    if (const Tensor hr = call.grad(3); hr.defined() && call.has_input(6)) {
      const Tensor t = hr.reshape(s.shape).to(work);
      for_g = for_g.defined() ? for_g.add(t) : t;
    }
    if (for_g.defined() && passes.defined()) for_g = for_g.mul(passes);
  }
  TensorList out(7);
  if (for_g.defined()) out[0] = for_g.to(call.input_dtype(0)).reshape(call.input_sizes(0));
  if (for_x.defined()) out[1] = for_x.to(call.input_dtype(1)).reshape(call.input_sizes(1));
  if (for_w.defined())
    out[2] =
        sum_to_size(for_w, s.weight_shape).to(call.input_dtype(2)).reshape(call.input_sizes(2));
  return out;
}

const OpRecord& fused_norm_backward_op =
    define(
        "fused_norm_backward(Tensor grad, Tensor input, Tensor? weight, Tensor? bias, Tensor mean, "
        "Tensor rstd, Tensor? output, int[] shape, int[] dims, int[] weight_shape, bool center, "
        "float eps, bool relu) -> (Tensor, Tensor, Tensor, Tensor)")
        .doc("Gradients of fused_norm with respect to input, weight, bias and residual.")
        .surface(Surface::internal)
        .batched(vmaps::fused_norm_backward_rule)
        .infer(backward_infer)
        .lower(backward_lower)
        .grad(backward_grad, 0b1001111);

}  // namespace

Results fused_norm_backward(const Tensor& g, const Tensor& x, const Tensor& w, const Tensor& b,
                            const Tensor& mean, const Tensor& rstd, const Tensor& output,
                            const NormSpec& s) {
  return call_all(fused_norm_backward_op, {g, x, w, b, mean, rstd, output, s.shape, s.dims,
                                           s.weight_shape, s.center, s.eps, s.relu});
}

}  // namespace ops
}  // namespace arete

ARETE_FAMILY(fused_norm_backward)
