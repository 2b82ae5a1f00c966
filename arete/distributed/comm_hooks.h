// Ways of exchanging the gradients of a bucket.
#pragma once

#include "arete/distributed/reducer.h"

namespace arete::distributed {

/// The mean, as without a hook.
CommHook allreduce_hook(ProcessGroupPtr group);
/// The mean of gradients that travel in another dtype, float16 or bfloat16: half the bytes.
/// TypeError for others.
CommHook compress_hook(ProcessGroupPtr group, DType dtype);

}  // namespace arete::distributed
