// recurrence: a pointwise call and a copy for each step.
#include <algorithm>
#include <utility>

#include "arete/prim/backend.h"
#include "arete/prim/checks.h"
#include "arete/prim/decompose/layout_view_internal.h"
#include "arete/prim/recurrence.h"

namespace arete::prim {

void Primitives::recurrence(const RecurrenceArgs& a) {
  check(a);
  if (a.out.numel() == 0) return;
  const Shape sizes{a.rows, a.states};
  const int64_t most = std::max({a.steps, a.rows, a.states});
  const ScratchView numbers(*this, kInt64, Shape{most}), first(*this, kInt64, Shape{a.rows});
  iota({.out = numbers, .istart = 0, .istep = 1});
  iota({.out = first, .istart = 0, .istep = a.states});
  const DType dtype = a.program->inputs()[0];
  const ScratchView even(*this, dtype, sizes), odd(*this, dtype, sizes);
  View before = even, after = odd;
  if (a.initial)
    copy({before, a.initial});
  else
    fill({.out = before, .value = {.i = 0}, .value_is_integer = true});

  const bool emits = a.program->outputs().size() == 2, every = a.out.sizes[0] == a.steps;
  const auto at_step = [](const View& v, int64_t stride, int64_t t) {
    View moved = v;
    moved.data += stride * t;
    return moved;
  };
  // Operands with the rows and states of one step.
  const auto of_step = [&](const View& v) {
    const std::array<int64_t, 3> s = strides_of(a, v);
    const int64_t bytes = int64_t(size_of(v.dtype));
    return LayoutView(v, Layout(sizes, Shape{s[1] / bytes, s[2] / bytes}));
  };
  const auto along = [&](const View& v, int d) {
    Shape strides{0, 0};
    strides[size_t(d)] = v.rank() && v.sizes[0] != 1 ? v.strides[0] : 0;
    return LayoutView(v, Layout(sizes, strides));
  };
  const LayoutView position = along(numbers, 1), row = along(numbers, 0), begin = along(first, 0);
  const Layout one(sizes, Shape{0, 0});
  const LayoutView step(numbers.view(), one), length = along(a.lengths, 0), out = of_step(a.out);
  std::vector<Shape> strides;
  std::vector<View> inputs(4);
  inputs[1] = position;
  inputs[3] = row;
  strides.reserve(a.inputs.size());
  std::vector<int64_t> steps;
  for (size_t k = 0; k < a.inputs.size(); ++k) {
    inputs.push_back(a.inputs[k]);
    steps.push_back(0);
    if (a.program->is_table(4 + k)) continue;
    const std::array<int64_t, 3> s = strides_of(a, a.inputs[k]);
    const int64_t bytes = int64_t(size_of(a.inputs[k].dtype));
    steps.back() = s[0];
    strides.push_back({s[1] / bytes, s[2] / bytes});
    inputs.back().sizes = sizes;
    inputs.back().strides = strides.back();
  }
  inputs.push_back(begin);
  if (a.lengths) inputs.push_back(length);
  const expr::Program& program = program_of_rows(*a.program, bool(a.lengths));
  for (int64_t k = 0; k < a.steps; ++k) {
    const int64_t t = a.reverse ? a.steps - 1 - k : k;
    std::vector<View> now = inputs;
    now[0] = before;
    now[2] = at_step(step, sizeof(int64_t), t);
    for (size_t i = 0; i < steps.size(); ++i) now[4 + i] = at_step(now[4 + i], steps[i], t);
    const View written = at_step(out, strides_of(a, a.out)[0], t), both[2] = {after, written};
    pointwise({.program = &program,
               .inputs = now,
               .outputs = {both, emits ? size_t(2) : size_t(1)},
               .params = a.params,
               .slots = a.slots});
    std::swap(before, after);
    if (every && !emits) copy({written, before});
  }
  if (!every) copy({out, before});
}

}  // namespace arete::prim
