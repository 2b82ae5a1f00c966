#include "arete/ops/fused_norm.h"

#include <cmath>

#include "arete/ops/call.h"
#include "arete/ops/fused_builder.h"
#include "arete/ops/fused_norm_internal.h"
#include "arete/ops/reference_util.h"

namespace arete {
namespace ops {
namespace {

using prim::Monoid;
using prim::ScratchView;
using prim::View;

// Arguments of a call from position `at` on.
template <class C>
NormSpec spec_of(const C& call, size_t at) {
  return {Shape(call.ints(at)), Shape(call.ints(at + 1)), Shape(call.ints(at + 2)),
          call.boolean(at + 3), call.real(at + 4),        call.boolean(at + 5)};
}

Shape stat_sizes(const NormSpec& s) {
  Shape r = s.shape;
  for (int64_t d : s.dims) r[size_t(d)] = 1;
  return r;
}

// The order of dimensions in which those not normalized come first.
struct Order {
  Shape dims;
  int outer;
};
Order rows_first(const NormSpec& s) {
  Order o;
  uint32_t inner = 0;
  for (int64_t d : s.dims) inner |= 1u << d;
  for (size_t d = 0; d < s.shape.size(); ++d)
    if (!(inner >> d & 1)) o.dims.push_back(int64_t(d));
  o.outer = int(o.dims.size());
  for (size_t d = 0; d < s.shape.size(); ++d)
    if (inner >> d & 1) o.dims.push_back(int64_t(d));
  return o;
}

// A tensor seen as `shape`; where its strides do not allow that, a row-major copy.
class Seen {
 public:
  Seen(prim::Primitives& p, const Tensor& t, IntList shape, bool is_output)
      : p_(p), target_(view_of(t)) {
    if (auto l = view(t.layout(), shape)) {
      layout_ = *l;
      view_ = view_of(t, layout_);
      return;
    }
    scratch_.emplace(p, t.dtype(), t.sizes());
    copied_ = is_output;
    if (!is_output) p.copy({scratch_->view(), target_});
    layout_ = Layout(shape);
    view_ = scratch_->view();
    view_.sizes = layout_.sizes;
    view_.strides = layout_.strides;
  }
  Seen(const Seen&) = delete;
  /// In the order of `o`.
  View ordered(const Order& o) {
    permuted_ = permute(Layout(layout_.sizes, layout_.strides), o.dims);
    View v = view_;
    v.sizes = permuted_.sizes;
    v.strides = permuted_.strides;
    return v;
  }
  /// For outputs: brings the values home.
  void finish() {
    if (copied_) p_.copy({target_, scratch_->view()});
  }

 private:
  prim::Primitives& p_;
  View target_, view_;
  Layout layout_, permuted_;
  std::optional<ScratchView> scratch_;
  bool copied_ = false;
};

// A weight broadcast to the space, in the order of `o`.
struct SeenWeight {
  SeenWeight(const Tensor& w, const NormSpec& s, const Order& o)
      : layout(permute(expand(Layout(
                                  s.weight_shape,
                                  [&] {
                                    Shape strides = contiguous_strides(s.weight_shape);
                                    const int64_t step = w.dim() == 1 ? w.stride(0) : 1;
                                    for (int64_t& v : strides) v *= step;
                                    return strides;
                                  }(),
                                  w.storage_offset()),
                              s.shape),
                       o.dims)),
        value(view_of(w, layout)) {}
  Layout layout;
  View value;
};

// Weights of more than one dimension are needed row-major.
Tensor simple(const Tensor& w) { return w.defined() && w.dim() != 1 ? plain(w, w.dtype()) : w; }

bool weight_varies_by_row_only(const NormSpec& s) {
  const size_t skip = s.shape.size() - s.weight_shape.size();
  for (int64_t d : s.dims)
    if (size_t(d) >= skip && s.weight_shape[size_t(d) - skip] != 1) return false;
  return true;
}
// Each weight belongs to exactly one row (batch norm): its gradient is a row value.
bool one_row_per_weight(const NormSpec& s) {
  const Shape rows = stat_sizes(s);
  return weight_varies_by_row_only(s) && numel_of(rows) == numel_of(s.weight_shape);
}

// Weights lie along the elements of a row, the same for all rows (layer norm): their gradients are
// sums of columns.
bool weight_is_a_row(const NormSpec& s, const Order& o) {
  const size_t skip = s.shape.size() - s.weight_shape.size();
  for (size_t k = 0; k < o.dims.size(); ++k) {
    const size_t d = size_t(o.dims[k]);
    const int64_t size = d < skip ? 1 : s.weight_shape[d - skip];
    if (size != (int(k) < o.outer ? 1 : s.shape[d])) return false;
  }
  return true;
}

expr::Literal real_literal(double v) {
  expr::Literal l;
  l.f = v;
  return l;
}

double elements_per_row(const NormSpec& s) {
  double n = 1;
  for (int64_t d : s.dims) n *= double(s.shape[size_t(d)]);
  return n;
}

// A tensor of the statistics' sizes, ordered; or one that `seen` gives these sizes.
struct SeenStat {
  SeenStat(const Tensor& t, const Order& o) : SeenStat(t, t.layout(), o) {}
  SeenStat(const Tensor& t, const Layout& seen, const Order& o)
      : layout(permute(seen, o.dims)), value(view_of(t, layout)) {}
  Layout layout;
  View value;
};

DType dtype_or_f32(const Tensor& t) { return t.defined() ? t.dtype() : kFloat32; }

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
  const Device device = common_device(call);
  std::optional<Shape> strides;
  if (!x.is_contiguous() && x.layout().is_dense()) strides = Shape(x.strides());
  out.push_back({Shape(x.sizes()), x.dtype(), device, strides});
  out.push_back({stat_sizes(s), work_dtype(x.dtype()), device, {}});
  out.push_back({stat_sizes(s), work_dtype(x.dtype()), device, {}});
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
  const bool one_pass = s.center && elements_per_row(s) >= double(kOnePass);
  Shape one_of_row(space);
  for (size_t d = size_t(o.outer); d < one_of_row.size(); ++d) one_of_row[d] = 1;
  for (int64_t quarter = 1; one_pass && quarter < 4; ++quarter) {
    View v = inputs[0];
    for (size_t d = size_t(o.outer); d < space.size(); ++d)
      v.data += space[d] * quarter / 4 * v.strides[d] * int64_t(size_of(v.dtype));
    v.sizes = one_of_row;
    inputs.push_back(v);
  }
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

// ---- backward: grad, input, weight, bias, mean, rstd, output (where a residual was added), shape,
// dims, weight_shape, center, eps, relu ----

// Those of weight or bias, so that their gradients need not be seen differently.
Shape gradient_sizes(const Call& call) {
  for (size_t i : {2, 3})
    if (call.has(i)) return Shape(call.tensor(i).sizes());
  return {0};
}

void backward_infer(const Call& call, OutputSpecs& out) {
  const Tensor& x = call.tensor(1);
  const Device device = common_device(call);
  const DType w = call.has(2) ? call.tensor(2).dtype() : x.dtype();
  std::optional<Shape> strides;
  if (!x.is_contiguous() && x.layout().is_dense()) strides = Shape(x.strides());
  out.push_back({Shape(x.sizes()), x.dtype(), device, strides});
  // Without weight and bias, or a residual, there is nothing to give.
  const Shape sizes = gradient_sizes(call);
  out.push_back({sizes, w, device, {}});
  out.push_back({sizes, w, device, {}});
  if (call.has(6))
    out.push_back({Shape(x.sizes()), x.dtype(), device, strides});
  else
    out.push_back({{0}, x.dtype(), device, {}});
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

Results fused_norm_backward(const Tensor& g, const Tensor& x, const Tensor& w, const Tensor& b,
                            const Tensor& mean, const Tensor& rstd, const Tensor& output,
                            const NormSpec& s);

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

using L = std::initializer_list<int64_t>;

// Without running statistics.
std::vector<Sample> norm_samples(SampleMaker& m) {
  const double eps = 1e-3;
  std::vector<Sample> all{
      {{m.make({3, 4}), m.make({4}), m.make({4}), L{3, 4}, L{1}, L{4}, true, eps, false},
       "layer norm"},
      {{m.make_strided({3, 4}), std::nullopt, std::nullopt, L{3, 4}, L{1}, L{4}, true, eps, false}},
      {{m.make({3, 4}), m.make({4}), std::nullopt, L{3, 4}, L{1}, L{4}, false, eps, false},
       "RMS norm"},
      {{m.make({2, 4, 2}), m.make({4}), m.make({4}), L{2, 2, 2, 2}, L{2, 3}, L{2, 2, 1}, true, eps,
        false},
       "group norm"},
      {{m.make({3, 2, 2}), m.make({2}), m.make({2}), L{3, 2, 2}, L{0, 2}, L{2, 1}, true, eps,
        false},
       "batch norm"},
      {{m.make({3, 2, 2}), std::nullopt, m.make({2}), L{3, 2, 2}, L{0, 2}, L{2, 1}, true, eps,
        false}},
      {{m.make_strided({2, 3, 2}), m.make({3}), m.make({3}), L{2, 3, 2}, L{2}, L{3, 1}, true, eps,
        false},
       "instance norm"},
      {{m.make({3, 2, 2}), m.make({2}), m.make({2}), L{3, 2, 2}, L{0, 2}, L{2, 1}, true, eps, true},
       "batch norm with relu"},
      {{m.make_strided({3, 2, 2}), std::nullopt, std::nullopt, L{3, 2, 2}, L{0, 2}, L{2, 1}, true,
        eps, true},
       "batch norm with relu"}};
  for (Sample& s : all) {
    s.args.insert(s.args.begin() + 3, 2, OwnedArg());
    s.args.push_back(OwnedArg(0.0));
  }
  return all;
}

// The same with a residual.
std::vector<Sample> residual_samples(SampleMaker& m) {
  std::vector<Sample> all = norm_samples(m);
  for (Sample& s : all)
    s.args.insert(s.args.begin() + 3, OwnedArg(m.make(s.args[0].tensor.sizes())));
  return all;
}

std::vector<Tensor> norm_reference(const Call& c) {
  const Tensor& x = c.tensor(0);
  const bool with_residual = has_residual_argument(c);
  const NormSpec s = spec_of(c, with_residual ? 6 : 5);
  const Shape rows = stat_sizes(s);
  const std::vector<double> residual =
      with_residual ? values_of(c.tensor(3)) : std::vector<double>();
  const std::vector<double> xv = values_of(x);
  std::vector<double> mean(size_t(numel_of(rows)), 0.0), var(mean.size(), 0.0), y;
  const double n = elements_per_row(s);
  size_t k = 0;
  for_each_index(s.shape, [&](const Shape& i) {
    mean[size_t(flat_position(rows, i))] += s.center ? xv[k] / n : 0;
    ++k;
  });
  k = 0;
  for_each_index(s.shape, [&](const Shape& i) {
    const size_t r = size_t(flat_position(rows, i));
    var[r] += (xv[k] - mean[r]) * (xv[k] - mean[r]) / n;
    ++k;
  });
  for (double& v : var) v = 1 / std::sqrt(v + s.eps);
  k = 0;
  const std::vector<double> w = c.has(1) ? values_of(c.tensor(1)) : std::vector<double>();
  const std::vector<double> b = c.has(2) ? values_of(c.tensor(2)) : std::vector<double>();
  for_each_index(s.shape, [&](const Shape& i) {
    const size_t r = size_t(flat_position(rows, i)), p = size_t(flat_position(s.weight_shape, i));
    double v = (xv[k] - mean[r]) * var[r] * (c.has(1) ? w[p] : 1) + (c.has(2) ? b[p] : 0);
    if (with_residual) v += residual[k];
    y.push_back(s.relu ? std::max(v, 0.0) : v);
    ++k;
  });
  return {from_values(y, x.sizes()), from_values(mean, rows), from_values(var, rows)};
}

std::vector<Tensor> backward_reference(const Call& c) {
  const NormSpec s = spec_of(c, 7);
  const Shape rows = stat_sizes(s);
  const Tensor& xt = c.tensor(1);
  std::vector<double> g = values_of(c.tensor(0));
  const std::vector<double> x = values_of(xt);
  const std::vector<double> w = c.has(2) ? values_of(c.tensor(2)) : std::vector<double>();
  const std::vector<double> b = c.has(3) ? values_of(c.tensor(3)) : std::vector<double>();
  const std::vector<double> y = c.has(6) ? values_of(c.tensor(6)) : std::vector<double>();
  const std::vector<double> mean = values_of(c.tensor(4)), rstd = values_of(c.tensor(5));
  std::vector<double> sum(mean.size(), 0.0), product(mean.size(), 0.0), dx;
  std::vector<double> dw(size_t(numel_of(s.weight_shape)), 0.0), db(dw.size(), 0.0);
  const double n = elements_per_row(s);
  const auto walk = [&](auto f) {
    size_t k = 0;
    for_each_index(s.shape, [&](const Shape& i) {
      const size_t r = size_t(flat_position(rows, i)), p = size_t(flat_position(s.weight_shape, i));
      f(r, p, k, (x[k] - mean[r]) * rstd[r]);
      ++k;
    });
  };
  const auto weight = [&](size_t p) { return w.empty() ? 1 : w[p]; };
  if (s.relu)
    walk([&](size_t, size_t p, size_t k, double xhat) {
      if ((y.empty() ? xhat * weight(p) + (b.empty() ? 0 : b[p]) : y[k]) <= 0) g[k] = 0;
    });
  walk([&](size_t r, size_t p, size_t k, double xhat) {
    const double u = g[k] * weight(p);
    sum[r] += s.center ? u / n : 0;
    product[r] += u * xhat / n;
    dw[p] += g[k] * xhat;
    db[p] += g[k];
  });
  walk([&](size_t r, size_t p, size_t k, double xhat) {
    dx.push_back(rstd[r] * (g[k] * weight(p) - sum[r] - xhat * product[r]));
  });
  if (!c.has(2) && !c.has(3)) {
    dw.clear();
    db.clear();
  }
  const Shape sizes = gradient_sizes(c);
  return {from_values(dx, xt.sizes()), from_values(dw, sizes), from_values(db, sizes),
          c.has(6) ? from_values(g, xt.sizes()) : from_values({}, Shape{0})};
}

std::vector<ErrorSample> norm_errors(SampleMaker& m, bool with_residual) {
  std::vector<ErrorSample> all{{{m.make({3, 4}), m.make({3}), std::nullopt, std::nullopt,
                                 std::nullopt, L{3, 4}, L{1}, L{4}, true, 1e-5, false, 0.0},
                                ErrorKind::value,
                                "weight and bias must have one element for each position"},
                               {{m.make({3, 4}), m.make({4}), std::nullopt, std::nullopt,
                                 std::nullopt, L{3, 4}, L{1}, L{4}, true, 1e-5, true, 0.0},
                                ErrorKind::value,
                                "relu needs statistics for each weight"},
                               {{m.make({3, 4}), std::nullopt, std::nullopt, m.make({4}),
                                 std::nullopt, L{3, 4}, L{0}, L{4}, true, 1e-5, false, 0.1},
                                ErrorKind::value,
                                "running_mean and running_var belong together"},
                               {{m.make({3, 4}), std::nullopt, std::nullopt, m.make({4}),
                                 m.make({3}), L{3, 4}, L{0}, L{4}, true, 1e-5, false, 0.1},
                                ErrorKind::value,
                                "running statistics must be like the input's"}};
  for (ErrorSample& e : all)
    if (with_residual) e.args.insert(e.args.begin() + 3, OwnedArg(m.make({3, 4})));
  return all;
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
        .infer(forward_infer)
        .lower(forward_lower)
        .grad([](const GradCall& g) { return grad_of(g, false); }, 0b111, 0b110)
        .no_grad_outputs(0b110)
        .samples(norm_samples)
        .errors([](SampleMaker& m) { return norm_errors(m, false); })
        .reference(norm_reference);

// Its relu's derivative needs the output, which fused_norm must not keep.
const OpRecord& fused_norm_residual_op =
    define(
        "fused_norm_residual(Tensor input, Tensor? weight, Tensor? bias, Tensor residual, Tensor? "
        "running_mean, Tensor? running_var, int[] shape, int[] dims, int[] weight_shape, bool "
        "center, float eps, bool relu, float momentum) -> (Tensor, Tensor, Tensor)")
        .doc("fused_norm with a tensor added to the result, before the relu.")
        .surface(Surface::internal)
        .infer(forward_infer)
        .lower(forward_lower)
        .grad([](const GradCall& g) { return grad_of(g, true); }, 0b111, 0b111)
        .no_grad_outputs(0b110)
        .samples(residual_samples)
        .errors([](SampleMaker& m) { return norm_errors(m, true); })
        .reference(norm_reference);

const OpRecord& fused_norm_backward_op =
    define(
        "fused_norm_backward(Tensor grad, Tensor input, Tensor? weight, Tensor? bias, Tensor mean, "
        "Tensor rstd, Tensor? output, int[] shape, int[] dims, int[] weight_shape, bool center, "
        "float eps, bool relu) -> (Tensor, Tensor, Tensor, Tensor)")
        .doc("Gradients of fused_norm with respect to input, weight, bias and residual.")
        .surface(Surface::internal)
        .infer(backward_infer)
        .lower(backward_lower)
        .grad(backward_grad, 0b1001111)
        // Its gradient takes mean and rstd as functions of the input, so it is checked as the
        // second derivative of fused_norm.
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> out;
          for (bool with_residual : {false, true})
            for (Sample& s : with_residual ? residual_samples(m) : norm_samples(m)) {
              std::vector<Arg> args;
              for (const OwnedArg& a : s.args) args.push_back(a.borrow());
              const Results r =
                  call_all(with_residual ? fused_norm_residual_op : fused_norm_op, args);
              std::vector<OwnedArg> all{m.make(s.args[0].tensor.sizes()),
                                        s.args[0],
                                        s.args[1],
                                        s.args[2],
                                        r[1].detach(),
                                        r[2].detach()};
              all.push_back(with_residual ? OwnedArg(r[0].detach()) : OwnedArg());
              all.insert(all.end(), s.args.begin() + (with_residual ? 6 : 5), s.args.end() - 1);
              out.push_back({std::move(all), s.note});
            }
          return out;
        })
        .reference(backward_reference);

Results fused_norm_backward(const Tensor& g, const Tensor& x, const Tensor& w, const Tensor& b,
                            const Tensor& mean, const Tensor& rstd, const Tensor& output,
                            const NormSpec& s) {
  return call_all(fused_norm_backward_op, {g, x, w, b, mean, rstd, output, s.shape, s.dims,
                                           s.weight_shape, s.center, s.eps, s.relu});
}

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
    if (t->defined()) t->storage()->bump_version();
  return {r[0], r[1], r[2]};
}

}  // namespace ops
}  // namespace arete

ARETE_FAMILY(fused_norm)
