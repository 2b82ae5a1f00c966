// What anomaly mode looks for.
#pragma once

#include "arete/core/tensor.h"

namespace arete::ops {
/// Whether a floating tensor with data holds a NaN. Runs outside all modes; reads on the host.
bool holds_nan(const Tensor& t);
}  // namespace arete::ops
