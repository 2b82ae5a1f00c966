// GPUs for tests of what programs say about devices, on machines that have none or one.
#pragma once

#include "arete/prim/backend.h"
#include "arete/prim/communicator.h"

namespace arete::test {

/// A provider of `count` GPUs whose memory is the host's and whose work the CPU does, at once. They
/// have streams, which differ and do nothing, and graphs, which are lists of calls; they count the
/// memory that tensors and calls hold, have pools for scopes, and share memory by files without
/// names.
prim::DeviceProvider& fake_gpus(int count);

/// What stands for NCCL on them: Gloo does the work; in the group's own stream only a while later,
/// so that who does not wait for it sees the old values.
prim::StreamLibrary fake_nccl();

}  // namespace arete::test
