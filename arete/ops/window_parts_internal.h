// What programs over windows, pads and triangles share: complex elements as their parts, and sums
// into a part of a result.
#pragma once

#include "arete/expr/program_cache.h"
#include "arete/ops/call.h"
#include "arete/ops/complex_internal.h"

namespace arete::ops {

/// A view, a complex one as that of its real and imaginary parts; owns sizes and strides.
class PartsView {
 public:
  explicit PartsView(const Tensor& t) : PartsView(t, t.sizes(), t.strides()) {}
  /// With other dimensions of the tensor's memory; strides in its elements.
  PartsView(const Tensor& t, IntList sizes, IntList strides)
      : layout_(sizes, strides), view_(view_of(t)) {
    if (!is_complex(t.dtype())) return;
    layout_ = layout_of_parts(layout_);
    view_.dtype = real_of(t.dtype());
  }
  /// Valid while this object stays where it is.
  prim::View view() const {
    prim::View v = view_;
    v.sizes = layout_.sizes;
    v.strides = layout_.strides;
    return v;
  }

 private:
  Layout layout_;
  prim::View view_;
};

/// to += part, of one shape.
inline void add_into(prim::Primitives& p, const prim::View& to, const prim::View& part) {
  static auto& cache = *new expr::ProgramCache;
  const expr::Program& sum =
      cache.get(pack_key({int(to.dtype), int(part.dtype)}), {to.dtype, part.dtype}, {}, {to.dtype},
                [&](std::span<const expr::Value> v) {
                  return std::vector{to.dtype == kBool ? v[0] | v[1] : v[0] + v[1]};
                });
  const prim::View inputs[] = {to, part};
  p.pointwise({&sum, inputs, {&to, 1}, {}});
}

}  // namespace arete::ops
