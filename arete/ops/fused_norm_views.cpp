#include "arete/ops/fused_norm_internal.h"

namespace arete::ops::norms {

using prim::View;

Shape stat_sizes(const NormSpec& s) {
  Shape r = s.shape;
  for (int64_t d : s.dims) r[size_t(d)] = 1;
  return r;
}

double elements_per_row(const NormSpec& s) {
  double n = 1;
  for (int64_t d : s.dims) n *= double(s.shape[size_t(d)]);
  return n;
}

bool one_row_per_weight(const NormSpec& s) {
  const size_t skip = s.shape.size() - s.weight_shape.size();
  for (int64_t d : s.dims)
    if (size_t(d) >= skip && s.weight_shape[size_t(d) - skip] != 1) return false;
  return numel_of(stat_sizes(s)) == numel_of(s.weight_shape);
}

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

bool weight_is_a_row(const NormSpec& s, const Order& o) {
  const size_t skip = s.shape.size() - s.weight_shape.size();
  for (size_t k = 0; k < o.dims.size(); ++k) {
    const size_t d = size_t(o.dims[k]);
    const int64_t size = d < skip ? 1 : s.weight_shape[d - skip];
    if (size != (int(k) < o.outer ? 1 : s.shape[d])) return false;
  }
  return true;
}

Seen::Seen(prim::Primitives& p, const Tensor& t, IntList shape, bool is_output)
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

View Seen::ordered(const Order& o) {
  permuted_ = permute(Layout(layout_.sizes, layout_.strides), o.dims);
  View v = view_;
  v.sizes = permuted_.sizes;
  v.strides = permuted_.strides;
  return v;
}

void Seen::finish() {
  if (copied_) p_.copy({target_, scratch_->view()});
}

namespace {
// Row-major strides of a weight, which may be a vector with a stride of its own.
Layout weight_layout(const Tensor& w, const NormSpec& s) {
  Shape strides = contiguous_strides(s.weight_shape);
  const int64_t step = w.dim() == 1 ? w.stride(0) : 1;
  for (int64_t& v : strides) v *= step;
  return Layout(s.weight_shape, strides, w.storage_offset());
}
}  // namespace

SeenWeight::SeenWeight(const Tensor& w, const NormSpec& s, const Order& o)
    : layout(permute(expand(weight_layout(w, s), s.shape), o.dims)), value(view_of(w, layout)) {}

SeenStat::SeenStat(const Tensor& t, const Layout& seen, const Order& o)
    : layout(permute(seen, o.dims)), value(view_of(t, layout)) {}

Tensor simple(const Tensor& w) { return w.defined() && w.dim() != 1 ? plain(w, w.dtype()) : w; }

DType dtype_or_f32(const Tensor& t) { return t.defined() ? t.dtype() : kFloat32; }

expr::Literal real_literal(double v) {
  expr::Literal l;
  l.f = v;
  return l;
}

}  // namespace arete::ops::norms
