// Who works on gradients of leaves while the pass that makes them goes on.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "arete/core/tensor.h"

namespace arete::autograd {

/// Takes part in the passes that accumulate gradients in its leaves, each of which has a place of
/// its own: a data-parallel reducer. grad(), and with it the second run of a checkpoint,
/// accumulates nothing and is not heard of.
class GradSink {
 public:
  virtual ~GradSink() = default;
  /// A pass begins. Gradients may reach the leaves at these places, and no others. What is thrown
  /// ends the pass before it has done anything.
  virtual void begin(std::span<const size_t> places, bool create_graph) = 0;
  /// The leaf's grad() is complete and its hooks have run, unless they are kept, while the rest of
  /// the pass is still to come. Not called if no operator has a gradient for the leaf after all.
  virtual void ready(size_t place) = 0;
  /// Whether hooks for a leaf's accumulated gradient wait in the pass under way until the sink has
  /// made that gradient, and calls call_post_accumulate_hooks().
  virtual bool keeps_hooks(size_t /*place*/) const { return false; }
  /// Another sink has taken a leaf over.
  virtual void replaced(size_t place) = 0;
};

/// Makes `sink` that of a leaf, in the place of another. The leaf does not keep it alive.
/// AutogradError for what is no leaf, or needs no gradient.
void set_grad_sink(const Tensor& leaf, const std::shared_ptr<GradSink>& sink, size_t place);
/// Calls the hooks that wait for the leaf's accumulated gradient with what it has now.
void call_post_accumulate_hooks(const Tensor& leaf);
/// Does nothing if the leaf has another sink.
void remove_grad_sink(const Tensor& leaf, const GradSink* sink);

}  // namespace arete::autograd
