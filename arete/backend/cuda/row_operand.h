// Operands of what works on rows along one dimension.
#pragma once

#include <optional>

#include "arete/backend/cuda/radix_sort.h"
#include "arete/base/error.h"

namespace arete::cuda {

// From this many bytes on, elements that do not lie along the rows are brought together first.
inline constexpr int64_t kGatherRowsFrom = int64_t(1) << 21;

/// Scratch memory as a view of given sizes in which dimension `dim` is innermost.
class RowsView {
 public:
  RowsView(CudaBackend& backend, DType dtype, IntList sizes, int dim)
      : sizes_(sizes),
        strides_(DenseRows::strides(sizes, dim)),
        memory_(backend, size_t(numel_of(sizes)) * size_of(dtype)),
        view_(memory_.data(), dtype, sizes_, strides_) {}
  RowsView(const RowsView&) = delete;
  const prim::View& view() const { return view_; }

 private:
  Shape sizes_, strides_;
  Scratch memory_;
  prim::View view_;
};

/// An operand as dense rows: itself, or a copy in scratch memory.
class RowOperand {
 public:
  RowOperand(CudaBackend& backend, const prim::View& v, int dim, bool copy_in, bool must_be_dense)
      : backend_(backend), original_(v), view_(v) {
    if (!v || !must_be_dense || DenseRows::holds(v, dim)) return;
    copy_.emplace(backend, v.dtype, v.sizes, dim);
    view_ = copy_->view();
    if (copy_in) backend.copy({.out = view_, .in = v});
  }
  const prim::View& view() const { return view_; }
  uint64_t address() const { return address_of(view_.data); }
  /// For outputs: brings what was computed to where it belongs.
  void finish() {
    if (copy_) backend_.copy({.out = original_, .in = view_});
  }

 private:
  CudaBackend& backend_;
  const prim::View& original_;
  prim::View view_;
  std::optional<RowsView> copy_;
};

/// Bytes from one element of a row to the next.
inline int64_t step_of(const prim::View& v, int dim) {
  return v && v.rank() > 0 ? v.strides[size_t(dim)] * int64_t(size_of(v.dtype)) : 0;
}

/// The loops over `space`, which is that of `views` but along `dim`. `still`, bit k: view k does
/// not move along `dim`.
prim::LoopNest nest_over_rows(IntList space, std::span<const prim::View> views, uint32_t still,
                              int dim);

inline void refuse_complex(DType dtype, const char* op) {
  if (is_complex(dtype))
    throw NotImplementedError(op, "complex numbers have no order").argument("input");
}

/// The k first of rows, where topk_takes_at_once() says so (select.cpp).
bool topk_takes_at_once(DType dtype, int64_t length, int64_t keep);
void topk_at_once(CudaBackend& backend, CUstream stream, const prim::View& in,
                  const prim::View& values, const prim::View& indices, int dim, bool largest);

/// The k first of rows longer than sorting::kRowSortLength, for k up to kMostSelected (select.cpp).
inline constexpr int64_t kCandidates = sorting::kRowSortLength;  // kept of a row, at most
inline constexpr int64_t kMostSelected = kCandidates / 2;
void topk_of_long_rows(CudaBackend& backend, CUstream stream, const prim::View& in,
                       const prim::View& values, const prim::View& indices, int dim, bool largest);

}  // namespace arete::cuda
