// Views by their layout.
#pragma once

#include "arete/core/tensor.h"

namespace arete::ops {
struct OpRecord;
/// What a record of a view gives where no history is recorded: `self` in another layout of the
/// same memory.
Tensor make_one_view(const Tensor& self, Layout&& layout, const OpRecord& op);
}  // namespace arete::ops
