// What programs compute and move, for profilers.
#pragma once

#include "arete/expr/program.h"
#include "arete/ops/record.h"
#include "arete/prim/view.h"

namespace arete::ops {

/// Arithmetic of a program for one element: its instructions but for leaves and conversions.
double operations_per_element(const expr::Program& program);
/// Bytes that lie under a view: what expand() repeats counts once.
int64_t bytes_under(const prim::View& view);

/// Of an operator that touches a tensor only where indices say: nobody moves a table to look three
/// rows up.
struct IndexedAccess {
  size_t argument = 0;  ///< of the tensor
  /// It is written there: that holds for the in-place form, the other one copies the whole tensor.
  bool writes = false;
  /// How many of its elements are touched; null: one for each element of the result.
  int64_t (*places)(const Call&) = nullptr;
};
/// Said of a record once, in its file, while static objects are made. Returns true.
bool touches_at_indices(const OpRecord& op, IndexedAccess access);
/// What was said; null if nothing.
const IndexedAccess* indexed_access(const OpRecord& op);
/// For records of operators that only move what they are given.
double no_flops(const Call& call);

}  // namespace arete::ops
