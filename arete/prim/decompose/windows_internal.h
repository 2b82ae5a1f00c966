// Windows over padded planes, as views: what the decompositions of conv and pool share.
#pragma once

#include "arete/prim/backend.h"
#include "arete/prim/decompose/layout_view_internal.h"

namespace arete::prim {

/// The geometry of windows over tensors (A, B, *space) giving (A, B, *positions).
class Windows {
 public:
  Windows(const Window& window, IntList input_sizes, IntList output_sizes);

  int spatial() const { return w_.spatial; }
  /// Number of elements of one window, and of positions of the window.
  int64_t window_numel() const;
  int64_t positions() const;
  IntList space() const { return space_; }
  IntList positions_sizes() const { return positions_; }
  IntList kernel() const { return {w_.kernel.data(), size_t(w_.spatial)}; }

  /// (a, b, *padded space): large enough for every window, also where rounding up makes the last
  /// one reach beyond the padding.
  Shape padded_sizes(int64_t a, int64_t b) const;
  /// The part of a padded layout that holds the input.
  Layout interior(const Layout& padded) const;
  /// The part that holds the input and its padding, without what rounding up added.
  Layout with_padding(const Layout& padded) const;
  /// (A, B, *kernel, *positions): all windows of a padded layout.
  Layout windows(const Layout& padded) const;
  /// The sum of every window: out (A, B, *positions) from a padded view.
  void sum(Primitives& p, const View& padded, const View& out) const;
  /// (A, B, *positions): the element of number `k` (row-major in the kernel) of every window.
  Layout window_element(const Layout& padded, int64_t k) const;

 private:
  Window w_;
  Shape space_, positions_;
};

/// f32 for narrower floating types: what sums over windows accumulate in.
DType accumulation_dtype(DType t);

/// The input with its padding set to `padding`, in scratch memory.
class PaddedCopy {
 public:
  PaddedCopy(Primitives& p, const Windows& windows, const View& input, expr::Literal padding);
  const View& view() const { return scratch_; }

 private:
  ScratchView scratch_;
};

/// input = for each of its elements the sum of the elements of windows that lie on it. `elements`:
/// (A, B, *kernel, *positions) as Windows::windows gives. The adjoint of taking windows.
void add_windows(Primitives& p, const Windows& windows, const View& elements, const View& input);

}  // namespace arete::prim
