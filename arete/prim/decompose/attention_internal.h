// Attention in bands, part by part: for backends that run the parts side by side.
#pragma once

#include "arete/prim/backend.h"

namespace arete::prim {

/// Numbers of scores at one time that suit the backend, or those that the call asks for.
int64_t scores_at_a_time(const Primitives& p, const AttentionArgs& args);

/// What a call gives for the heads of k that have the numbers [first, last) among all heads of the
/// batch, and for the heads of q that they serve. Parts of a call are independent of each other,
/// but for grad_mask where the mask broadcasts: then there is one part.
void attention_of_heads(Primitives& p, const AttentionArgs& args, int64_t first, int64_t last);
bool has_independent_heads(const AttentionArgs& args);

}  // namespace arete::prim
