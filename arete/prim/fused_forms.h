// pointwise and reduce as the one-stage cases of fused: Note [Fused kernels] in args.h.
#pragma once

#include <optional>
#include <vector>

#include "arete/prim/backend.h"
#include "arete/prim/loop_nest.h"

namespace arete::prim {

/// Whether the program's value is its one input.
inline bool is_identity(const expr::Program& program) {
  return program.inputs().size() == 1 && program.code().size() == 1;
}

/// Runs a spec of one store stage as pointwise, and of one reduction and what is stored of it as
/// reduce: the kernels for these know every order of memory, and results of few elements. False,
/// and nothing happened, for other specs. Slots have been seen to.
bool run_one_stage(Primitives& on, const FusedArgs& args);

/// The same the other way: a call as a fused one, for those who put several together.
class AsFused {
 public:
  explicit AsFused(const PointwiseArgs& args);
  /// Of real numbers.
  explicit AsFused(const ReduceArgs& args);
  AsFused(const AsFused&) = delete;
  AsFused& operator=(const AsFused&) = delete;

  const FusedArgs& args() const { return args_; }

 private:
  FusedSpec spec_;
  std::optional<ReducedLast> order_;
  SmallVector<View, 8> inputs_;
  SmallVector<expr::Literal, 8> params_;
  std::vector<Slot> slots_;
  FusedArgs args_;
};

}  // namespace arete::prim
