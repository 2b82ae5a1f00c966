// GPUs for tests of what programs say about devices, on machines that have none or one.
#pragma once

#include "arete/prim/backend.h"

namespace arete::test {

/// A provider of `count` GPUs whose memory is the host's and whose work the CPU does, at once. They
/// have streams, which differ and do nothing.
prim::DeviceProvider& fake_gpus(int count);

}  // namespace arete::test
