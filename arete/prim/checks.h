// What primitives ask of their arguments, for every backend to begin with: a BugError, since
// operators have told users before.
#pragma once

#include "arete/prim/args.h"

namespace arete::prim {

void check(const GemmArgs& args);
void check(const ConvArgs& args);
void check(const PoolArgs& args);

}  // namespace arete::prim
