// Tensors that become parts of a message.
#pragma once

#include <span>

#include "arete/core/tensor.h"

namespace arete::distributed {

/// to[k] = from[k] * scale, in one launch. All `from` have one dtype, all `to` one, and the sizes
/// of each pair are the same; all are on one device. No history.
void pack_scaled(std::span<const Tensor> from, std::span<const Tensor> to, double scale);

}  // namespace arete::distributed
