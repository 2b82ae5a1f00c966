// What primitives ask of their arguments, for every backend to begin with: a BugError, since
// operators have told users before.
#pragma once

#include "arete/base/error.h"
#include "arete/prim/args.h"

namespace arete::prim {

void check(const GemmArgs& args);
void check(const ConvArgs& args);
void check(const PoolArgs& args);
void check(const RecurrenceArgs& args);

/// Whether the operands are what the program reads: elements of another dtype would be misread.
inline void check(const PointwiseArgs& a) {
  ARETE_ASSERT(a.outputs.size() == a.program->outputs().size() &&
               a.params.size() == a.program->params().size());
  const std::span<const DType> inputs = a.program->inputs();
  bool same = a.inputs.size() == inputs.size();
  for (size_t k = 0; same && k < inputs.size(); ++k) same = a.inputs[k].dtype == inputs[k];
  ARETE_ASSERT(same);
}

// Whether this is an average of windows with gaps. No operator asks for one, so no backend has a
// kernel of its own: Primitives::pool() gathers the windows.
bool is_dilated_average(const PoolArgs& args);

}  // namespace arete::prim
