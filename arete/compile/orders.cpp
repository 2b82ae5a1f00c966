// Pictures whose channels lie side by side where convolutions want them so.
#include <algorithm>
#include <map>

#include "arete/compile/graph_internal.h"
#include "arete/compile/plan.h"
#include "arete/compile/relayout_internal.h"

namespace arete::compile {
namespace {

using prim::Access;
using prim::Primitive;
using prim::View;

// Kernels for tensor cores take so many channels at a time.
constexpr int64_t kChannels = 8;

Shape channels_last(IntList sizes) {
  Shape strides(sizes.size(), 1);
  int64_t step = sizes[1];
  for (size_t d = sizes.size(); d-- > 2;) {
    strides[d] = step;
    step *= sizes[d];
  }
  strides[0] = step;
  return strides;
}

bool is_channels_last(IntList sizes, const Shape& strides) {
  const Shape wanted = channels_last(sizes);
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] != 1 && strides[d] != wanted[d]) return false;
  return true;
}

/// Whether a call of this kind takes operands of any strides in its stride.
bool takes_any_order(Primitive p) {
  switch (p) {
    case Primitive::fill:
    case Primitive::copy:
    case Primitive::pointwise:
    case Primitive::reduce:
    case Primitive::fused:
    case Primitive::pool:
      return true;
    default:
      return false;
  }
}

}  // namespace

// Note [Order of channels]
// Where a backend convolves quicker with channels side by side, temporaries that convolutions read
// or write, and those that other calls make of them element by element, lie so, weights too. All of
// what uses such a temporary has to be able to see it there.
void Plan::choose_orders(Buffers& buffers) {
  struct Temporary {
    Shape sizes;  // N, C, ...
    std::byte* data;
    DType dtype;
    bool is_weight = false;
  };
  std::map<int, Temporary> chosen;  // by buffer
  const auto is_free = [&](const View& v) {
    const int b = buffers.of(v);
    return b >= 0 && buffers[b].temporary && v.data == buffers[b].storage->data();
  };
  // What convolutions use.
  for (const Step& step : steps_) {
    if (step.call->primitive() != Primitive::conv) continue;
    const auto& conv = *static_cast<const prim::ConvArgs*>(step.call->args());
    if (!prim::backend_for(step.call->device()).wants_channels_last(conv)) continue;
    if (conv.x.sizes[1] % kChannels != 0 && conv.y.sizes[1] % kChannels != 0) continue;
    for (const View* v : {&conv.x, &conv.y, &conv.w})
      if (is_free(*v) && v->is_contiguous() && v->numel() > v->sizes[0] * v->sizes[1])
        chosen.insert({buffers.of(*v), {Shape(v->sizes), v->data, v->dtype, v == &conv.w}});
  }
  if (chosen.empty()) return;
  // What lies as they do in a call that works element by element.
  for (bool more = true; more;) {
    more = false;
    for (const Step& step : steps_) {
      if (!takes_any_order(step.call->primitive())) continue;
      std::vector<View> views;
      step.call->for_each_operand([&](View& v, Access) { views.push_back(v); });
      for (const View& v : views) {
        const auto its = chosen.find(buffers.of(v));
        if (its == chosen.end() || its->second.is_weight || v.data != its->second.data) continue;
        for (const View& o : views)
          if (is_free(o) && std::ranges::equal(o.sizes, v.sizes) &&
              std::ranges::equal(o.strides, v.strides) && o.numel() == numel_of(its->second.sizes))
            more |= chosen.insert({buffers.of(o), {its->second.sizes, o.data, o.dtype}}).second;
      }
    }
  }
  const auto relayout_of = [](const Temporary& t) {
    const Shape from = contiguous_strides(t.sizes), to = channels_last(t.sizes);
    return Relayout(View(t.data, t.dtype, t.sizes, from), View(t.data, t.dtype, t.sizes, to));
  };
  // All who use one have to see it.
  for (auto its = chosen.begin(); its != chosen.end();) {
    const Relayout relayout = relayout_of(its->second);
    bool may = relayout.is_valid();
    for (const Step& step : steps_) {
      const Primitive p = step.call->primitive();
      step.call->for_each_operand([&](View& v, Access) {
        Shape strides;
        if (!may || buffers.of(v) != its->first) return;
        may = relayout.map(v, strides) &&
              (takes_any_order(p) ||
               (p == Primitive::conv && v.rank() == int(its->second.sizes.size()) &&
                is_channels_last(v.sizes, strides)));
      });
    }
    its = may ? std::next(its) : chosen.erase(its);
  }
  for (const auto& [buffer, temporary] : chosen) {
    const Relayout relayout = relayout_of(temporary);
    for (const Step& step : steps_)
      step.call->for_each_operand([&](View& v, Access) {
        if (buffers.of(v) != buffer) return;
        Shape& strides = *strides_.emplace_back(std::make_unique<Shape>());
        v.data = *relayout.map(v, strides);
        v.strides = strides;
      });
  }
}

}  // namespace arete::compile
