// What primitives ask of their arguments, for every backend to begin with: a BugError, since
// operators have told users before.
#pragma once

#include "arete/prim/args.h"

namespace arete::prim {

void check(const GemmArgs& args);
void check(const ConvArgs& args);
void check(const PoolArgs& args);

// Whether this is an average of windows with gaps. No operator asks for one, so no backend has a
// kernel of its own: Primitives::pool() gathers the windows.
bool is_dilated_average(const PoolArgs& args);

}  // namespace arete::prim
