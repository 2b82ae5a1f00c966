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

/// For records of operators that only move what they are given.
double no_flops(const Call& call);

}  // namespace arete::ops
