// Views of views: the layout algebra for decompositions.
#pragma once

#include <utility>

#include "arete/core/layout.h"
#include "arete/prim/view.h"

namespace arete::prim {

/// A view's layout with its first element as offset 0.
inline Layout layout_of(const View& v) { return Layout(v.sizes, v.strides); }

/// The memory of a view under another layout, whose offset counts from the view's first element.
/// Owns the sizes and strides that the View it converts to points at.
class LayoutView {
 public:
  LayoutView(const View& base, Layout layout) : layout_(std::move(layout)), view_(base) {
    view_.data += layout_.offset * int64_t(size_of(base.dtype));
    view_.sizes = layout_.sizes;
    view_.strides = layout_.strides;
  }
  LayoutView(const LayoutView&) = delete;
  LayoutView& operator=(const LayoutView&) = delete;
  const View& view() const { return view_; }
  operator const View&() const { return view_; }

 private:
  Layout layout_;
  View view_;
};

}  // namespace arete::prim
