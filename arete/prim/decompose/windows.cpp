#include "arete/prim/decompose/windows_internal.h"

#include <algorithm>

#include "arete/base/error.h"
#include "arete/expr/value.h"

namespace arete::prim {

Windows::Windows(const Window& window, IntList input_sizes, IntList output_sizes) : w_(window) {
  ARETE_ASSERT(int(input_sizes.size()) == 2 + w_.spatial &&
               output_sizes.size() == input_sizes.size());
  for (int d = 0; d < w_.spatial; ++d) {
    space_.push_back(input_sizes[2 + d]);
    positions_.push_back(output_sizes[2 + d]);
  }
}

int64_t Windows::window_numel() const { return numel_of(kernel()); }
int64_t Windows::positions() const { return numel_of(positions_); }

Shape Windows::padded_sizes(int64_t a, int64_t b) const {
  Shape sizes{a, b};
  for (int d = 0; d < w_.spatial; ++d) {
    const int64_t reach =
        (positions_[d] - 1) * w_.stride[d] + (w_.kernel[d] - 1) * w_.dilation[d] + 1;
    sizes.push_back(std::max(space_[d] + 2 * w_.padding[d], reach));
  }
  return sizes;
}

Layout Windows::interior(const Layout& padded) const {
  Layout l = padded;
  for (int d = 0; d < w_.spatial; ++d) l = narrow(l, 2 + d, w_.padding[d], space_[d]);
  return l;
}

Layout Windows::with_padding(const Layout& padded) const {
  Layout l = padded;
  for (int d = 0; d < w_.spatial; ++d) l = narrow(l, 2 + d, 0, space_[d] + 2 * w_.padding[d]);
  return l;
}

Layout Windows::windows(const Layout& padded) const {
  Layout l;
  l.offset = padded.offset;
  const auto add = [&](int64_t size, int64_t stride) {
    l.sizes.push_back(size);
    l.strides.push_back(stride);
  };
  for (int d = 0; d < 2; ++d) add(padded.sizes[d], padded.strides[d]);
  for (int d = 0; d < w_.spatial; ++d) add(w_.kernel[d], padded.strides[2 + d] * w_.dilation[d]);
  for (int d = 0; d < w_.spatial; ++d) add(positions_[d], padded.strides[2 + d] * w_.stride[d]);
  return l;
}

Layout Windows::window_element(const Layout& padded, int64_t k) const {
  Layout l = windows(padded);
  for (int d = w_.spatial - 1; d >= 0; --d) {
    l = select(l, 2 + d, k % w_.kernel[d]);
    k /= w_.kernel[d];
  }
  return l;
}

void Windows::sum(Primitives& p, const View& padded, const View& out) const {
  const LayoutView elements(padded, windows(layout_of(padded)));
  Layout with_kernel = layout_of(out);  // (A, B, 1..., *positions)
  uint32_t reduced = 0;
  for (int d = 2; d < 2 + w_.spatial; ++d) {
    with_kernel = unsqueeze(with_kernel, 2);
    reduced |= 1u << d;
  }
  p.reduce({.monoid = Monoid::sum,
            .space = elements.view().sizes,
            .reduced = reduced,
            .inputs = {&elements.view(), 1},
            .out = LayoutView(out, with_kernel)});
}

DType accumulation_dtype(DType t) { return is_reduced_float(t) ? kFloat32 : t; }

PaddedCopy::PaddedCopy(Primitives& p, const Windows& windows, const View& input,
                       expr::Literal padding)
    : scratch_(p, input.dtype, windows.padded_sizes(input.sizes[0], input.sizes[1])) {
  p.fill({.out = scratch_, .value = padding, .value_is_integer = is_integral_or_bool(input.dtype)});
  p.copy({.out = LayoutView(scratch_, windows.interior(layout_of(scratch_))), .in = input});
}

void add_windows(Primitives& p, const Windows& windows, const View& elements, const View& input) {
  const DType accumulate = accumulation_dtype(input.dtype);
  const ScratchView padded(p, accumulate, windows.padded_sizes(input.sizes[0], input.sizes[1]));
  p.fill({.out = padded, .value = {.i = 0}, .value_is_integer = is_integral_or_bool(accumulate)});

  const DType dtypes[2] = {accumulate, elements.dtype};
  const expr::ProgramPtr add = expr::trace(
      [](std::span<const expr::Value> v) { return std::vector<expr::Value>{v[0] + v[1]}; }, dtypes,
      {}, {dtypes, 1});
  for (int64_t k = 0; k < windows.window_numel(); ++k) {
    const LayoutView to(padded, windows.window_element(layout_of(padded), k));
    Layout from = layout_of(elements);  // (A, B, *kernel, *positions)
    int64_t rest = k;
    for (int d = windows.spatial() - 1; d >= 0; --d) {
      from = select(from, 2 + d, rest % windows.kernel()[d]);
      rest /= windows.kernel()[d];
    }
    const LayoutView element(elements, from);
    const View inputs[2] = {to, element};
    p.pointwise({.program = add.get(), .inputs = inputs, .outputs = {inputs, 1}});
  }
  p.copy({.out = input, .in = LayoutView(padded, windows.interior(layout_of(padded)))});
}

}  // namespace arete::prim
