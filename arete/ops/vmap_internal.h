// Where calls turn off for batched tensors (Note [Batched tensors] in ops/vmap.h).
#pragma once

#include "arete/core/modes.h"
#include "arete/ops/program_node.h"
#include "arete/ops/record.h"
#include "arete/ops/vmap.h"

namespace arete::ops::vmaps {

/// Whether there can be batched tensors on this thread: one test for all calls without them.
inline bool may_be() noexcept { return modes().word & Modes::kObserve; }

/// The level by whose rules a call runs: the innermost of its tensors, or the thread's innermost if
/// it draws random numbers. 0: it is an ordinary call.
uint64_t level_of(const Call& call);
uint64_t level_of(std::span<const Tensor> tensors);
/// Whether a call at that level records history on batched tensors: for what is of lower levels the
/// physical call does.
bool needs_history(const Call& call, uint64_t level);
bool is_recorded_at(uint64_t level, std::span<const Tensor> tensors);
/// Whether what is differentiated around that level leads to a tensor: a node of a call on the
/// level could not have its edges.
bool is_differentiated_around(const Tensor& t, uint64_t level);

/// A call of a record with infer and lower: its results, batched.
Results run(const Call& call, const OutputSpecs& specs, uint64_t level);
/// A call of a composition that is called for each element.
Results run_composition(const Call& call, uint64_t level);
/// A call of a record with infer and lower into argument 0. AutogradError, before anything is
/// written, if it is not batched and what is written is.
void run_in_place(const Call& call, const OutputSpecs& specs, uint64_t level);
/// A program on its way to tensors; a call of a pointwise record brings itself.
Results run_program(const Application& a, uint64_t level);
/// The same of what broadcasts: f gets the operands with the batch in front where they have it and
/// equal ranks behind it, and whether any has.
Results run_physical(std::span<const Tensor> inputs, uint64_t level,
                     const std::function<Results(std::span<const Tensor>, bool)>& f);
/// A call of a pointwise record into `self`.
void run_pointwise_in_place(Tensor& self, const Application& a, uint64_t level);
// What a composition, or the formula of a gradient, makes and fills itself may turn out to need a
// batch; what it was given may not. While it lives, a composition runs with these arguments.
class Making {
 public:
  explicit Making(std::span<const Arg> given);
  ~Making();
  Making(const Making&) = delete;
  bool was_given(const Tensor& t) const;
  static const Making* innermost();

 private:
  std::span<const Arg> given_;
  const Making* outer_;
};

/// A view: `self` in another layout of its elements.
Tensor run_view(const Call& call, const Layout& layout, uint64_t level);
Results run_views(const Call& call, uint64_t level);
/// Of a tensor without a batch dimension, made where one element is seen: one for each.
Tensor one_for_each(const Tensor& t, uint64_t level);

// ---- for rules

/// A tensor as a level has it.
struct Operand {
  Tensor physical;  // with the batch as dimension 0 if it is mapped
  bool is_mapped = false;
};

/// A call as rules see it.
struct Rewriting {
  const Call& call;
  const OutputSpecs& specs;
  int64_t batch;
  Randomness randomness;
  std::vector<std::vector<Operand>> tensors;  // by argument; one, or those of a list

  const Operand& at(size_t arg) const { return tensors[arg][0]; }
  bool is_mapped(size_t arg) const;
  /// With the batch as dimension 0, expanded if all elements share it; undefined if it is absent.
  Tensor whole(size_t arg) const;
  Tensor whole(const Operand& o) const;
};

/// Sizes with so many dimensions of 1 behind the batch.
inline Shape with_ones(IntList sizes, int64_t count) {
  Shape all(sizes.first(1));
  for (int64_t i = 0; i < count; ++i) all.push_back(1);
  for (int64_t s : sizes.subspan(1)) all.push_back(s);
  return all;
}

/// The results of a call with the batch as dimension 0.
Results rewritten(const Rewriting& r);

}  // namespace arete::ops::vmaps
