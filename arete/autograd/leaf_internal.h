// How a leaf and the passes that reach it know its sink.
#pragma once

#include <functional>
#include <memory>

#include "arete/autograd/grad_sink.h"

namespace arete::autograd {

// A sink is the hook of its leaf that runs last. Passes find it among the others, so leaves without
// hooks cost nothing.
struct SinkHook {
  std::weak_ptr<GradSink> sink;
  size_t place;
  void operator()(const Tensor&) const {
    if (const auto held = sink.lock()) held->ready(place);
  }
};
using LeafHook = std::function<void(const Tensor& grad)>;
// Null if it is another hook.
inline const SinkHook* as_sink(const LeafHook& hook) { return hook.target<SinkHook>(); }

}  // namespace arete::autograd
