#include "arete/compile/relayout_internal.h"

#include <algorithm>

namespace arete::compile {

using prim::View;

Relayout::Relayout(const View& from, const View& to)
    : from_(from.data), to_(to.data), size_(int64_t(size_of(from.dtype))) {
  for (size_t d = 0; d < from.sizes.size(); ++d)
    if (from.sizes[d] != 1) dims_.push_back({from.sizes[d], from.strides[d], to.strides[d]});
  std::ranges::sort(dims_, [](const Dim& a, const Dim& b) { return a.stride > b.stride; });
  // Neighbours that are one run on both sides are one dimension.
  for (size_t d = dims_.size(); d-- > 1;) {
    Dim &outer = dims_[d - 1], &inner = dims_[d];
    if (outer.stride != inner.size * inner.stride || outer.to != inner.size * inner.to) continue;
    outer = {outer.size * inner.size, inner.stride, inner.to};
    dims_.erase(dims_.begin() + std::ptrdiff_t(d));
  }
  // Each position has one way to be written as a sum of steps.
  for (size_t d = 0; d < dims_.size(); ++d)
    is_valid_ = is_valid_ && dims_[d].stride > 0 && dims_[d].to > 0 &&
                (d == 0 || dims_[d - 1].stride >= dims_[d].size * dims_[d].stride);
}

std::optional<std::byte*> Relayout::map(const View& v, Shape& strides) const {
  int64_t rest = (v.data - from_) / size_, to = 0;
  if (rest < 0 || (v.data - from_) % size_ != 0 || int64_t(size_of(v.dtype)) != size_)
    return std::nullopt;
  SmallVector<int64_t, 8> first;  // position in each dimension
  for (const Dim& d : dims_) {
    first.push_back(rest / d.stride);
    rest %= d.stride;
    to += first.back() * d.to;
    if (first.back() >= d.size) return std::nullopt;
  }
  if (rest != 0) return std::nullopt;
  strides = Shape(v.strides);
  for (size_t d = 0; d < v.sizes.size(); ++d) {
    if (v.sizes[d] == 1 || v.strides[d] == 0) continue;
    size_t k = 0;
    while (k < dims_.size() && (v.strides[d] % dims_[k].stride != 0 || v.strides[d] < 0)) ++k;
    if (k == dims_.size()) return std::nullopt;
    const int64_t step = v.strides[d] / dims_[k].stride;
    first[k] += step * (v.sizes[d] - 1);
    if (first[k] >= dims_[k].size) return std::nullopt;
    strides[d] = step * dims_[k].to;
  }
  return to_ + to * size_;
}

}  // namespace arete::compile
