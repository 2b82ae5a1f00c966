// take_rows and add_rows: gather and scatter with an index that is the same along a row.
#include "arete/base/error.h"
#include "arete/prim/backend.h"
#include "arete/prim/decompose/layout_view_internal.h"

namespace arete::prim {
namespace {

// (n, width), every column the same.
Layout repeated_along_rows(int64_t n, int64_t width) {
  return Layout(Shape{n, width}, Shape{1, 0});
}

}  // namespace

void Primitives::take_rows(const TakeRowsArgs& a) {
  ARETE_ASSERT(a.index.is_contiguous());
  const LayoutView index(a.index, repeated_along_rows(a.index.numel(), a.out.sizes[1]));
  gather({.in = a.table, .index = index, .out = a.out, .dim = 0, .op = a.op});
}

void Primitives::add_rows(const AddRowsArgs& a) {
  ARETE_ASSERT(a.index.is_contiguous());
  const LayoutView index(a.index, repeated_along_rows(a.index.numel(), a.src.sizes[1]));
  scatter(
      {.out = a.out, .index = index, .src = a.src, .dim = 0, .mode = ScatterMode::add, .op = a.op});
}

}  // namespace arete::prim
