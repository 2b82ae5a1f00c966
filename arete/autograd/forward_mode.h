// Forward-mode differentiation: tensors that carry a derivative along with their values.
#pragma once

#include <memory>

#include "arete/core/tensor.h"

namespace arete::autograd {

/// While it lives, tensors of this thread may be dual: have a tangent, which every operator, view
/// and write gives to its results, whether history is recorded or not. There is one such level at a
/// time: AutogradError for a second. Tangents end with it, and until then it keeps what has one as
/// long as anybody could look at it.
///
/// Note [Forward mode]
/// There are no formulas of forward mode. A listener of the thread's calls makes a call with a dual
/// argument once more, with variables in the place of the arguments that have tangents, and takes
/// the product of the small graph's Jacobian with them: of a pointwise operator the gradient with
/// the tangent as cotangent, of any other the gradient of the gradient with respect to the
/// cotangent. Views are made of the tangent as they were made of the tensor, so that they share its
/// memory as the tensors share theirs, and writes through the one are seen by the other.
/// A tangent belongs to the body of a tensor; handles that the library makes itself (what a node
/// saved, what a checkpoint gives its function) are known by their memory. What detach() gives is
/// noted as having none.
class DualLevel {
 public:
  DualLevel();
  /// Listeners of the thread that began later must have ended.
  ~DualLevel();
  DualLevel(const DualLevel&) = delete;
  DualLevel& operator=(const DualLevel&) = delete;
  /// Whether another listener to calls began after it and has not ended.
  bool is_covered() const;

 private:
  class Tangents;
  friend class WithoutTangents;
  friend bool has_dual_level() noexcept;
  friend Tensor make_dual(const Tensor&, const Tensor&);
  friend Tensor tangent_of(const Tensor&);
  friend Tensor primal_of(const Tensor&);
  friend void set_tangent(const Tensor&, const Tensor&);
  static Tangents& current();
  const std::unique_ptr<Tangents> tangents_;
};

/// Whether the thread has a level.
bool has_dual_level() noexcept;
/// A view of `primal` with the tangent: floating point or complex, of its sizes, dual neither of
/// them. It keeps the memory of `tangent` where that lies as the tensor does. AutogradError without
/// a level.
Tensor make_dual(const Tensor& primal, const Tensor& tangent);
/// Undefined of what has none, or without a level.
Tensor tangent_of(const Tensor& t);
/// A view of the tensor without its tangent.
Tensor primal_of(const Tensor& t);
/// Says what the tangent of a custom function's result is; undefined: none.
void set_tangent(const Tensor& t, const Tensor& tangent);

/// While it lives, calls give no tangents to their results: of a function that says itself what
/// they are.
class WithoutTangents {
 public:
  WithoutTangents();
  ~WithoutTangents();
  WithoutTangents(const WithoutTangents&) = delete;
  WithoutTangents& operator=(const WithoutTangents&) = delete;
};

}  // namespace arete::autograd
