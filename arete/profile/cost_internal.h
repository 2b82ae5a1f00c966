// What one call of an operator costs by its record and its tensors.
#pragma once

#include <span>

#include "arete/ops/record.h"

namespace arete::profile {

struct Cost {
  double flops = 0;
  int64_t bytes = 0;
};
Cost cost_of(const ops::OpRecord& op, std::span<const ops::Arg> args,
             std::span<const Tensor> results, bool in_place) noexcept;

}  // namespace arete::profile
