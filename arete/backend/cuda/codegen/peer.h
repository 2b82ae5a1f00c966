// Kernels of exchange between GPUs that reach each other's memory.
#pragma once

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/core/dtype.h"

namespace arete::cuda {

/// Argument: PeerSumArgs of device/peer.cuh. Any grid of blocks of 256 threads.
KernelSource peer_sum_source(DType dtype, int ranks);
/// Argument: PeerMeetArgs. One warp. The kernel after it is not begun while it waits, as others are
/// (Note [Early starts]): its blocks would wait on multiprocessors that others need.
KernelSource peer_meet_source();

}  // namespace arete::cuda
