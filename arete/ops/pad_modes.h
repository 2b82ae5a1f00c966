// Padding with what lies inside: reflections, repetitions, cycles.
#pragma once

#include "arete/core/tensor.h"

namespace arete::ops {

enum class PadMode : int { reflect, replicate, circular };

/// `pad` as that of the public operator. Of a reflection at most one element less than there are,
/// of a cycle at most as many; only repetitions may be negative.
Tensor pad_by(const Tensor& x, IntList pad, PadMode mode);

}  // namespace arete::ops
