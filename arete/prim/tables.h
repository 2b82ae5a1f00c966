// Inputs that programs read as tables, for backends.
#pragma once

#include "arete/base/error.h"
#include "arete/base/small_vector.h"
#include "arete/prim/args.h"

namespace arete::prim {

/// Bit i: input i of a spec is a table. What one stage reads as a table no other reads by element.
inline uint32_t tables_of(const FusedSpec& spec) {
  uint32_t tables = 0, elements = 0;
  for (const FusedStage& s : spec.stages)
    for (size_t k = 0; k < s.inputs.size(); ++k)
      if (s.inputs[k] >= 0 && s.inputs[k] < 32)
        (s.program->is_table(k) ? tables : elements) |= uint32_t{1} << s.inputs[k];
  ARETE_ASSERT((tables & elements) == 0);
  return tables;
}

/// The inputs of a call, its tables as views of their first element: what plans how elements are
/// walked takes them for numbers that are the same for all, and hands on their addresses.
inline SmallVector<View, 8> heads_of_tables(std::span<const View> inputs, uint32_t tables) {
  SmallVector<View, 8> heads;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const View& v = inputs[k];
    heads.push_back(k < 32 && tables >> k & 1 ? View(v.data, v.dtype, {}, {}, v.storage) : v);
  }
  return heads;
}

}  // namespace arete::prim
