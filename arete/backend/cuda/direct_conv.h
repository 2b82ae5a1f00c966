// Convolutions with few channels per group.
#pragma once

#include "arete/prim/args.h"

namespace arete::cuda {

class CudaBackend;

/// Computes a convolution or the gradient of its input where a kernel of ours is expected to be
/// faster than the vendor's: large planes and few products per result. False, and nothing is done,
/// for all else. The arguments have been checked.
bool direct_conv(CudaBackend& backend, const prim::ConvArgs& args);

}  // namespace arete::cuda
