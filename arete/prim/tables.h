// Inputs that programs read as tables, for backends.
#pragma once

#include "arete/base/small_vector.h"
#include "arete/prim/args.h"

namespace arete::prim {

/// The inputs of a call, its tables as views of their first element: what plans how elements are
/// walked takes them for numbers that are the same for all, and hands on their addresses.
inline SmallVector<View, 8> heads_of_tables(const PointwiseArgs& args) {
  SmallVector<View, 8> inputs;
  for (size_t k = 0; k < args.inputs.size(); ++k) {
    const View& v = args.inputs[k];
    inputs.push_back(args.program->is_table(k) ? View(v.data, v.dtype, {}, {}, v.storage) : v);
  }
  return inputs;
}

}  // namespace arete::prim
