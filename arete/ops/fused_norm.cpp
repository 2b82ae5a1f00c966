#include "arete/ops/fused_norm.h"

#include <cmath>

#include "arete/ops/call.h"
#include "arete/ops/fused_builder.h"
#include "arete/ops/reference_util.h"

namespace arete {
namespace ops {
namespace {

using expr::Value;
using Values = FusedBuilder::Values;
using prim::Monoid;
using prim::ScratchView;
using prim::View;

// Arguments of a call from position `at` on.
template <class C>
NormSpec spec_of(const C& call, size_t at) {
  return {Shape(call.ints(at)), Shape(call.ints(at + 1)), Shape(call.ints(at + 2)),
          call.boolean(at + 3), call.real(at + 4)};
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

// ---- kernels. Parameters: 1 / (elements of a row), eps ----

// Note [Statistics in one pass]
// Rows that stay at hand give their mean first and then their variance from the differences to it.
// Long rows would be read twice for that, so both come from the differences to a pivot p:
//   mean = p + E[x - p],  variance = E[(x - p)^2] - E[x - p]^2.
// The error of the difference is that of the sums times 1 + (mean - p)^2 / variance. As p is the
// middle one of three elements far from each other, that factor is small unless two of them are
// among the same few that lie far from all others; and elements that are not few raise the variance
// themselves.
constexpr int64_t kOnePass = 8192;  // from so many elements of a row on

Value middle(Value a, Value b, Value c) { return max(min(a, b), min(max(a, b), c)); }

// `one_pass`: three more inputs, of which the pivot is taken.
const prim::FusedSpec& forward_spec(DType x, DType weight, DType bias, bool has_w, bool has_b,
                                    bool center, bool one_pass) {
  static SpecCache cache;
  return cache.get(pack_key({int(x), int(weight), int(bias), has_w, has_b, center, one_pass}), [&] {
    const DType work = work_dtype(x);
    std::vector<DType> inputs{x};
    if (has_w) inputs.push_back(weight);
    if (has_b) inputs.push_back(bias);
    const int pivots = int(inputs.size());
    if (one_pass) inputs.insert(inputs.end(), {x, x, x});
    FusedBuilder b(inputs, {x, work, work}, {work_type(x), work_type(x)});
    int mean = 0, rstd = 0;
    if (center && one_pass) {
      const int pivot = b.row({pivots, pivots + 1, pivots + 2},
                              [](Values v) { return std::vector{middle(v[0], v[1], v[2])}; });
      const int sums = b.reduce(Monoid::sum, {0, pivot}, [](Values v) {
        const Value d = v[0] - v[1];
        return std::vector{d, square(d)};
      });
      mean = b.row({pivot, sums, sums - 1}, [](Values v) {
        const Value d = v[1] * v[3];
        return std::vector{v[0] + d, rsqrt(max(v[2] * v[3] - square(d), 0.0) + v[4])};
      });
      rstd = mean - 1;
    } else if (center) {
      const int sum = b.reduce(Monoid::sum, {0}, [](Values v) { return std::vector{v[0]}; });
      mean = b.row({sum}, [](Values v) { return std::vector{v[0] * v[1]}; });
      const int squares = b.reduce(Monoid::sum, {0, mean},
                                   [](Values v) { return std::vector{square(v[0] - v[1])}; });
      rstd = b.row({squares}, [](Values v) { return std::vector{rsqrt(v[0] * v[1] + v[2])}; });
    } else {
      const int squares =
          b.reduce(Monoid::sum, {0}, [](Values v) { return std::vector{square(v[0])}; });
      mean = b.row({squares}, [](Values v) { return std::vector{v[0] * 0.0}; });
      rstd = b.row({squares}, [](Values v) { return std::vector{rsqrt(v[0] * v[1] + v[2])}; });
    }
    const auto plain_store = [](Values v) { return std::vector{(v[0] - v[1]) * v[2]}; };
    const auto weight_store = [](Values v) { return std::vector{(v[0] - v[1]) * v[2] * v[3]}; };
    const auto bias_store = [](Values v) { return std::vector{(v[0] - v[1]) * v[2] + v[3]}; };
    const auto both_store = [](Values v) {
      return std::vector{(v[0] - v[1]) * v[2] * v[3] + v[4]};
    };
    if (has_w && has_b)
      b.store({0, mean, rstd, 1, 2}, 0, 1, both_store);
    else if (has_w)
      b.store({0, mean, rstd, 1}, 0, 1, weight_store);
    else if (has_b)
      b.store({0, mean, rstd, 1}, 0, 1, bias_store);
    else
      b.store({0, mean, rstd}, 0, 1, plain_store);
    b.store_row({mean, rstd}, 1, 2, [](Values v) { return std::vector{v[0], v[1]}; });
    return b.finish();
  });
}

prim::FusedStage column_sum(std::vector<int> reads, const std::vector<DType>& types, DType work,
                            int output, FusedBuilder::Body body) {
  prim::FusedStage stage{};
  stage.kind = prim::FusedStage::Kind::reduce_columns;
  stage.program = expr::trace([body](Values v) { return body(v); }, types, {}, {&work, 1});
  stage.inputs = std::move(reads);
  stage.first_output = output;
  return stage;
}

// Where the gradients of weight and bias come from.
enum class WeightSums : uint8_t { none, rows, columns };

// inputs: grad, x, mean, rstd[, weight]; outputs: dx[, dweight, dbias: row values or sums over
// rows]
const prim::FusedSpec& backward_spec(DType g, DType x, DType weight, bool has_w, bool center,
                                     WeightSums weight_sums) {
  static SpecCache cache;
  return cache.get(pack_key({int(g), int(x), int(weight), has_w, center, int(weight_sums)}), [&] {
    const bool rows = weight_sums == WeightSums::rows;
    const DType work = work_dtype(x);
    std::vector<DType> inputs{g, x, work, work};
    std::vector<DType> outputs{x};
    if (has_w) inputs.push_back(weight);
    if (weight_sums != WeightSums::none) outputs.insert(outputs.end(), {work, work});
    FusedBuilder b(inputs, outputs, {work_type(x)});
    // s1 = sum(g w), s2 = sum(g w xhat); with `rows` w is one number for the row, applied after.
    int sums = 0, means = 0;
    if (has_w && !rows) {
      sums = b.reduce(Monoid::sum, {0, 4, 1, 2, 3}, [](Values v) {
        const Value gw = v[0] * v[1];
        return std::vector{gw, gw * ((v[2] - v[3]) * v[4])};
      });
    } else {
      sums = b.reduce(Monoid::sum, {0, 1, 2, 3}, [](Values v) {
        return std::vector{v[0], v[0] * ((v[1] - v[2]) * v[3])};
      });
    }
    const auto scale = [](Values v) { return std::vector{v[0] * v[2], v[1] * v[2]}; };
    const auto scale_uncentered = [](Values v) { return std::vector{v[0] * 0.0, v[1] * v[2]}; };
    means = center ? b.row({sums, sums - 1}, scale) : b.row({sums, sums - 1}, scale_uncentered);
    if (has_w && !rows) {
      b.store({0, 4, 1, 2, 3, means, means - 1}, 0, 1, [](Values v) {
        const Value xhat = (v[2] - v[3]) * v[4];
        return std::vector{(v[0] * v[1] - v[5] - xhat * v[6]) * v[4]};
      });
    } else if (has_w) {
      b.store({0, 4, 1, 2, 3, means, means - 1}, 0, 1, [](Values v) {
        const Value xhat = (v[2] - v[3]) * v[4];
        return std::vector{(v[0] - v[5] - xhat * v[6]) * (v[4] * v[1])};
      });
    } else {
      b.store({0, 1, 2, 3, means, means - 1}, 0, 1, [](Values v) {
        const Value xhat = (v[1] - v[2]) * v[3];
        return std::vector{(v[0] - v[4] - xhat * v[5]) * v[3]};
      });
    }
    if (rows) b.store_row({sums - 1, sums}, 1, 2, [](Values v) { return std::vector{v[0], v[1]}; });
    std::unique_ptr<prim::FusedSpec> spec = b.finish();
    if (weight_sums == WeightSums::columns) {
      spec->stages.push_back(column_sum({0, 1, 2, 3}, {g, x, work, work}, work, 1, [](Values v) {
        return std::vector{v[0] * ((v[1] - v[2]) * v[3])};
      }));
      spec->stages.push_back(
          column_sum({0}, {g}, work, 2, [](Values v) { return std::vector{v[0]}; }));
    }
    return spec;
  });
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

// A contiguous tensor of the statistics' (or weight's) sizes, ordered and expanded to rank.
struct SeenStat {
  SeenStat(const Tensor& t, const Order& o)
      : layout(permute(t.layout(), o.dims)), value(view_of(t, layout)) {}
  Layout layout;
  View value;
};

// ---- forward: input, weight, bias, shape, dims, weight_shape, center, eps ----

void forward_infer(const Call& call, OutputSpecs& out) {
  const Tensor& x = call.tensor(0);
  ARETE_CHECK(is_floating(x.dtype()),
              TypeError(call.name(), "normalization is not implemented for '" +
                                         std::string(name_of(x.dtype())) + "'"));
  const NormSpec s = spec_of(call, 3);
  ARETE_CHECK(numel_of(s.shape) == x.numel(),
              ValueError(call.name(), "shape does not factorize the input")
                  .got(to_string(s.shape) + " for " + describe(x)));
  for (size_t i = 1; i < 3; ++i)
    ARETE_CHECK(!call.has(i) || call.tensor(i).numel() == numel_of(s.weight_shape),
                ValueError(call.name(), "weight and bias must have one element for each position")
                    .expected(to_string(s.weight_shape))
                    .got(describe(call.tensor(i))));
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
  const NormSpec s = spec_of(call, 3);
  if (numel_of(stat_sizes(s)) == 0) return;
  const Order o = rows_first(s);
  Seen sx(p, x, s.shape, false), sy(p, out[0], s.shape, true);
  SmallVector<View, 6> inputs{sx.ordered(o)};
  std::optional<SeenWeight> sw, sb;
  if (w.defined()) inputs.push_back(sw.emplace(w, s, o).value);
  if (b.defined()) inputs.push_back(sb.emplace(b, s, o).value);
  const SeenStat mean(out[1], o), rstd(out[2], o);
  const View outputs[3] = {sy.ordered(o), mean.value, rstd.value};
  const expr::Literal params[2] = {real_literal(1 / elements_per_row(s)), real_literal(s.eps)};
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
  p.fused({&forward_spec(x.dtype(), w.defined() ? w.dtype() : kFloat32,
                         b.defined() ? b.dtype() : kFloat32, w.defined(), b.defined(), s.center,
                         one_pass),
           space,
           o.outer,
           {inputs.data(), inputs.size()},
           outputs,
           params});
  sy.finish();
}

// ---- backward: grad, input, weight, mean, rstd, shape, dims, weight_shape, center, eps, has_bias
// ----

void backward_infer(const Call& call, OutputSpecs& out) {
  const Tensor& x = call.tensor(1);
  const Device device = common_device(call);
  const DType w = call.has(2) ? call.tensor(2).dtype() : x.dtype();
  std::optional<Shape> strides;
  if (!x.is_contiguous() && x.layout().is_dense()) strides = Shape(x.strides());
  out.push_back({Shape(x.sizes()), x.dtype(), device, strides});
  // Without weight and bias there is nothing to give.
  const Shape sizes = call.has(2) || call.boolean(10) ? Shape(call.ints(7)) : Shape{0};
  out.push_back({sizes, w, device, {}});
  out.push_back({sizes, w, device, {}});
}

void backward_lower(const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
  static ProgramCache weight_programs;
  const Tensor &g = call.tensor(0), &x = call.tensor(1);
  const Tensor w = call.has(2) ? simple(call.tensor(2)) : Tensor();
  const NormSpec s = spec_of(call, 5);
  const bool affine = w.defined() || call.boolean(10);
  const DType work = work_dtype(x.dtype());
  const Order o = rows_first(s);
  Seen sg(p, g, s.shape, false), sx(p, x, s.shape, false), sdx(p, out[0], s.shape, true);
  const SeenStat mean(call.tensor(3), o), rstd(call.tensor(4), o);
  SmallVector<View, 5> inputs{sg.ordered(o), sx.ordered(o), mean.value, rstd.value};
  std::optional<SeenWeight> sw;
  if (w.defined()) inputs.push_back(sw.emplace(w, s, o).value);
  const IntList space = inputs[0].sizes;
  const expr::Literal param = real_literal(1 / elements_per_row(s));
  const bool rows = affine && one_row_per_weight(s);
  const bool columns = affine && !rows && weight_is_a_row(s, o);
  std::optional<ScratchView> row_dw, row_db;
  Shape row_sizes;
  SmallVector<View, 3> outputs{sdx.ordered(o)};
  if (rows) {
    row_sizes = Shape(space);
    for (size_t d = size_t(o.outer); d < row_sizes.size(); ++d) row_sizes[d] = 1;
    outputs.push_back(row_dw.emplace(p, work, row_sizes));
    outputs.push_back(row_db.emplace(p, work, row_sizes));
  }
  // The gradients of weight and bias broadcast to the space, in its order.
  Shape full_weight(s.shape.size() - s.weight_shape.size(), 1);
  full_weight.append(s.weight_shape.begin(), s.weight_shape.end());
  Layout sums[2];
  for (int k = 0; affine && k < 2; ++k) {
    sums[k] = permute(Layout(full_weight), o.dims);
    sums[k].offset = out[size_t(k) + 1].storage_offset();
    if (columns) outputs.push_back(view_of(out[size_t(k) + 1], sums[k]));
  }
  if (x.numel() > 0 || columns)
    p.fused({&backward_spec(g.dtype(), x.dtype(), w.defined() ? w.dtype() : kFloat32, w.defined(),
                            s.center,
                            rows      ? WeightSums::rows
                            : columns ? WeightSums::columns
                                      : WeightSums::none),
             space,
             o.outer,
             {inputs.data(), inputs.size()},
             {outputs.data(), outputs.size()},
             {&param, 1}});
  sdx.finish();
  if (!affine || columns) return;
  if (rows && x.numel() > 0) {  // both are row-major over the channels
    for (const auto& [from, to] : {std::pair{&*row_dw, &out[1]}, {&*row_db, &out[2]}}) {
      View v = from->view();
      const Layout flat(IntList{to->numel()}),
          flat_to(IntList{to->numel()}, IntList{1}, to->storage_offset());
      v.sizes = flat.sizes;
      v.strides = flat.strides;
      p.copy({view_of(*to, flat_to), v});
    }
    return;
  }
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
          {work}, [](Values v) { return std::vector{v[0] * ((v[1] - v[2]) * v[3])}; });
    p.reduce(r);
  }
}

Results fused_norm_backward(const Tensor& g, const Tensor& x, const Tensor& w, const Tensor& mean,
                            const Tensor& rstd, const NormSpec& s, bool has_bias);

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
// mean and r are computed anew from x, so that derivatives of any order exist.
TensorList backward_grad(const GradCall& call) {
  const NormSpec s = spec_of(call, 5);
  const Tensor g = call.input(0).reshape(s.shape), x = call.input(1).reshape(s.shape);
  Tensor w = call.has_input(2) ? call.input(2).reshape(s.weight_shape) : Tensor();
  const DType work = work_dtype(x.dtype());
  const Tensor gw = g.to(work), xw = x.to(work);
  if (w.defined()) w = w.to(work);
  const auto mean = [&](const Tensor& t) { return t.mean(s.dims, true); };
  const Tensor centered = s.center ? xw.sub(mean(xw)) : xw;
  const Tensor r = mean(centered.mul(centered)).add(Scalar(s.eps)).rsqrt();
  const Tensor xhat = centered.mul(r);
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
  TensorList out(5);
  if (for_g.defined()) out[0] = for_g.to(call.input_dtype(0)).reshape(call.input_sizes(0));
  if (for_x.defined()) out[1] = for_x.to(call.input_dtype(1)).reshape(call.input_sizes(1));
  if (for_w.defined())
    out[2] =
        sum_to_size(for_w, s.weight_shape).to(call.input_dtype(2)).reshape(call.input_sizes(2));
  return out;
}

TensorList forward_grad(const GradCall& g) {
  const NormSpec s = spec_of(g, 3);
  TensorList out(3);
  const bool has_w = g.has_input(1), has_b = g.has_input(2);
  const Results r = fused_norm_backward(g.grad(), g.input(0), has_w ? g.input(1) : Tensor(),
                                        g.output(1), g.output(2), s, has_b);
  if (g.needs(0)) out[0] = r[0];
  if (has_w && g.needs(1)) out[1] = r[1].reshape(g.input_sizes(1));
  if (has_b && g.needs(2)) out[2] = r[2].to(g.input_dtype(2)).reshape(g.input_sizes(2));
  return out;
}

using L = std::initializer_list<int64_t>;

std::vector<Sample> norm_samples(SampleMaker& m) {
  const double eps = 1e-3;
  return {
      {{m.make({3, 4}), m.make({4}), m.make({4}), L{3, 4}, L{1}, L{4}, true, eps}, "layer norm"},
      {{m.make_strided({3, 4}), std::nullopt, std::nullopt, L{3, 4}, L{1}, L{4}, true, eps}},
      {{m.make({3, 4}), m.make({4}), std::nullopt, L{3, 4}, L{1}, L{4}, false, eps}, "RMS norm"},
      {{m.make({2, 4, 2}), m.make({4}), m.make({4}), L{2, 2, 2, 2}, L{2, 3}, L{2, 2, 1}, true, eps},
       "group norm"},
      {{m.make({3, 2, 2}), m.make({2}), m.make({2}), L{3, 2, 2}, L{0, 2}, L{2, 1}, true, eps},
       "batch norm"},
      {{m.make({3, 2, 2}), std::nullopt, m.make({2}), L{3, 2, 2}, L{0, 2}, L{2, 1}, true, eps}},
      {{m.make_strided({2, 3, 2}), m.make({3}), m.make({3}), L{2, 3, 2}, L{2}, L{3, 1}, true, eps},
       "instance norm"}};
}

std::vector<Tensor> norm_reference(const Call& c) {
  const Tensor& x = c.tensor(0);
  const NormSpec s = spec_of(c, 3);
  const Shape rows = stat_sizes(s);
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
    y.push_back((xv[k++] - mean[r]) * var[r] * (c.has(1) ? w[p] : 1) + (c.has(2) ? b[p] : 0));
  });
  return {from_values(y, x.sizes()), from_values(mean, rows), from_values(var, rows)};
}

std::vector<Tensor> backward_reference(const Call& c) {
  const NormSpec s = spec_of(c, 5);
  const Shape rows = stat_sizes(s);
  const std::vector<double> g = values_of(c.tensor(0)), x = values_of(c.tensor(1));
  const std::vector<double> w = c.has(2) ? values_of(c.tensor(2)) : std::vector<double>();
  const std::vector<double> mean = values_of(c.tensor(3)), rstd = values_of(c.tensor(4));
  std::vector<double> sum(mean.size(), 0.0), product(mean.size(), 0.0), dx;
  std::vector<double> dw(size_t(numel_of(s.weight_shape)), 0.0), db(dw.size(), 0.0);
  const double n = elements_per_row(s);
  const auto walk = [&](auto f) {
    size_t k = 0;
    for_each_index(s.shape, [&](const Shape& i) {
      const size_t r = size_t(flat_position(rows, i)), p = size_t(flat_position(s.weight_shape, i));
      f(r, p, g[k], (x[k] - mean[r]) * rstd[r], g[k] * (w.empty() ? 1 : w[p]));
      ++k;
    });
  };
  walk([&](size_t r, size_t p, double gv, double xhat, double u) {
    sum[r] += s.center ? u / n : 0;
    product[r] += u * xhat / n;
    dw[p] += gv * xhat;
    db[p] += gv;
  });
  walk([&](size_t r, size_t, double, double xhat, double u) {
    dx.push_back(rstd[r] * (u - sum[r] - xhat * product[r]));
  });
  if (!c.has(2) && !c.boolean(10)) {
    dw.clear();
    db.clear();
  }
  const Shape sizes = dw.empty() ? Shape{0} : s.weight_shape;
  return {from_values(dx, c.tensor(1).sizes()), from_values(dw, sizes), from_values(db, sizes)};
}

const OpRecord& fused_norm_op =
    define(
        "fused_norm(Tensor input, Tensor? weight, Tensor? bias, int[] shape, int[] dims, int[] "
        "weight_shape, "
        "bool center, float eps) -> (Tensor, Tensor, Tensor)")
        .doc("Normalization over `dims` of the input seen as `shape`; also mean and 1 / deviation.")
        .surface(Surface::internal)
        .infer(forward_infer)
        .lower(forward_lower)
        .grad(forward_grad, 0b011, 0b110)
        .no_grad_outputs(0b110)
        .autocast(Autocast::f32)
        .samples(norm_samples)
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3, 4}), m.make({3}), std::nullopt, L{3, 4}, L{1}, L{4}, true, 1e-5},
                   ErrorKind::value,
                   "weight and bias must have one element for each position"}};
        })
        .reference(norm_reference);

const OpRecord& fused_norm_backward_op =
    define(
        "fused_norm_backward(Tensor grad, Tensor input, Tensor? weight, Tensor mean, Tensor rstd, "
        "int[] shape, "
        "int[] dims, int[] weight_shape, bool center, float eps, bool has_bias) -> (Tensor, "
        "Tensor, Tensor)")
        .doc("Gradients of fused_norm with respect to input, weight and bias.")
        .surface(Surface::internal)
        .infer(backward_infer)
        .lower(backward_lower)
        .grad(backward_grad, 0b00111)
        // Its gradient takes mean and rstd as functions of the input, so it is checked as the
        // second derivative of fused_norm.
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> out;
          for (Sample& s : norm_samples(m)) {
            std::vector<Arg> args;
            for (const OwnedArg& a : s.args) args.push_back(a.borrow());
            const Results r = call_all(fused_norm_op, args);
            std::vector<OwnedArg> all{m.make(s.args[0].tensor.sizes()), s.args[0], s.args[1],
                                      r[1].detach(), r[2].detach()};
            all.insert(all.end(), s.args.begin() + 3, s.args.end());
            all.push_back(s.args[2].kind == Arg::Kind::tensor);
            out.push_back({std::move(all), s.note});
          }
          return out;
        })
        .reference(backward_reference);

Results fused_norm_backward(const Tensor& g, const Tensor& x, const Tensor& w, const Tensor& mean,
                            const Tensor& rstd, const NormSpec& s, bool has_bias) {
  return call_all(fused_norm_backward_op, {g, x, w, mean, rstd, s.shape, s.dims, s.weight_shape,
                                           s.center, s.eps, has_bias});
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> fused_norm(const Tensor& input, const Tensor& weight,
                                              const Tensor& bias, const NormSpec& s) {
  Results r = call_all(fused_norm_op,
                       {input, weight, bias, s.shape, s.dims, s.weight_shape, s.center, s.eps});
  return {r[0], r[1], r[2]};
}

}  // namespace ops
}  // namespace arete

ARETE_FAMILY(fused_norm)
