// What the files of indexing share.
#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "arete/ops/call.h"
#include "arete/ops/filling.h"
#include "arete/prim/positions.h"

namespace arete::ops {

/// An index tensor as the primitives want it: int64, and contiguous if asked.
class IndexView {
 public:
  IndexView(prim::Primitives& p, const Tensor& t, bool contiguous = false) {
    if (t.dtype() == kInt64 && (!contiguous || t.is_contiguous())) {
      view_ = view_of(t);
      return;
    }
    scratch_.emplace(p, kInt64, t.sizes());
    p.copy({scratch_->view(), view_of(t)});
    view_ = scratch_->view();
  }
  const prim::View& view() const { return view_; }

 private:
  std::optional<prim::ScratchView> scratch_;
  prim::View view_;
};

/// A dense view, of a copy where the tensor is not.
class DenseView {
 public:
  DenseView(prim::Primitives& p, const Tensor& t, DType dtype) : view_(view_of(t)) {
    if (t.is_contiguous() && t.dtype() == dtype) return;
    copy_.emplace(p, dtype, t.sizes());
    p.copy({*copy_, view_});
    view_ = copy_->view();
  }
  const prim::View& view() const { return view_; }

 private:
  std::optional<prim::ScratchView> copy_;
  prim::View view_;
};

/// index_select whose result keeps channels-last order, as what is made of picks does (index_select
/// itself gives row-major results). `once`: no position is named twice.
Tensor ordered_select(const Tensor& self, int64_t dim, const Tensor& index, bool once = false);

/// A number seen as a tensor of any sizes: one that a device keeps, if it does, else filled in.
class NumberView {
 public:
  NumberView(prim::Primitives& p, DType t, IntList sizes, const Scalar& value, const char* op)
      : sizes_(sizes), strides_(sizes.size(), 0), view_(kept(p, t, value), t, sizes_, strides_) {
    if (view_.data) return;
    const prim::View& number = scratch_.emplace(p, t, IntList());
    p.fill(filling(number, value, op));
    view_.data = number.data;
    view_.storage = number.storage;
  }
  NumberView(const NumberView&) = delete;
  NumberView& operator=(const NumberView&) = delete;
  const prim::View& view() const { return view_; }

 private:
  // Zero, but not -0, has the same bytes in all types. On a CPU filling it in is no launch.
  static std::byte* kept(prim::Primitives& p, DType t, const Scalar& value) {
    const bool is_one = t == kInt64 && value == Scalar(1),
               is_zero = value == Scalar(0) && !std::signbit(value.to_double());
    if (p.device().is_cpu() || size_of(t) > sizeof(int64_t) || value.is_complex() ||
        (!is_one && !is_zero))
      return nullptr;
    std::byte* const numbers = prim::kept_numbers(p.device(), kInt64, 2);
    return numbers && is_one ? numbers + sizeof(int64_t) : numbers;
  }

  std::optional<prim::ScratchView> scratch_;
  Shape sizes_, strides_;
  prim::View view_;
};

/// A 1-d index repeated over the other dimensions of a tensor: an index for gather and scatter.
class SpreadIndex {
 public:
  SpreadIndex(const prim::View& index, IntList self_sizes, int dim)
      : sizes_(self_sizes), strides_(self_sizes.size(), 0), view_(index) {
    if (!sizes_.empty()) {
      sizes_[size_t(dim)] = index.numel();
      strides_[size_t(dim)] = index.rank() ? index.strides[0] : 1;
    }
    view_.sizes = sizes_;
    view_.strides = strides_;
  }
  SpreadIndex(const SpreadIndex&) = delete;
  SpreadIndex& operator=(const SpreadIndex&) = delete;
  const prim::View& view() const { return view_; }

 private:
  Shape sizes_, strides_;
  prim::View view_;
};

// 0-d tensors and 1-d ones of one element mix freely, as in PyTorch.
inline prim::View at_least_1d(prim::View v) {
  static constexpr int64_t kOne[] = {1};
  if (v.sizes.empty()) v.sizes = v.strides = IntList(kOne, 1);
  return v;
}
inline Tensor at_least_1d(const Tensor& t) { return t.dim() ? t : t.reshape({1}); }

/// Argument 1, a dimension of argument 0.
inline int dim_argument(const Call& c) {
  return normalize_dim(c.integer(1), int(c.tensor(0).dim()), c.name());
}

/// The output of an operator that changes a copy of self starts as self, unless it is self.
inline void start_from_self(const Call& c, const Tensor& out, prim::Primitives& p) {
  if (!c.in_place()) p.copy({view_of(out), view_of(c.tensor(0))});
}

void check_index_dtype(const Call& c, const Tensor& index);
void check_same_dtype(const Call& c, const Tensor& self, const Tensor& src);
/// Checks and describes (self, dim, index, src or value): scatter and its relatives.
void scatter_infer(const Call& c, OutputSpecs& out);
/// The same for (self, dim, 1-d index, source): index_add and its relatives.
void slices_infer(const Call& c, OutputSpecs& out);
/// The part of a gradient of src's sizes that the index covers is `grad`, the rest zero.
Tensor covered(const GradCall& g, const Tensor& grad);

/// Can `t` stand for the positions of its true elements?
inline bool is_mask(const Tensor& t) { return t.dtype() == kBool || t.dtype() == kUInt8; }
/// In-place index_copy.
Tensor& index_copy_into(Tensor& self, int64_t dim, const Tensor& index, const Tensor& src);

}  // namespace arete::ops
