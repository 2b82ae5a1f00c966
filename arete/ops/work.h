// What programs compute and move, for profilers.
#pragma once

#include <span>

#include "arete/core/tracing.h"
#include "arete/expr/program.h"
#include "arete/prim/view.h"

namespace arete::ops {

/// Arithmetic of a program for one element: its instructions but for leaves and conversions.
double operations_per_element(const expr::Program& program);
/// Bytes that lie under a view: what expand() repeats counts once.
int64_t bytes_under(const prim::View& view);
/// A run of a program over these operands, each element of which is read or written once.
tracing::Work work_of(const expr::Program& program, std::span<const prim::View> inputs,
                      std::span<const prim::View> outputs, Device device);

}  // namespace arete::ops
