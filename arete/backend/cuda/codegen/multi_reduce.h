// Kernels of multi_reduce: many tensors, each reduced to one number, in two launches.
#pragma once

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/expr/program.h"
#include "arete/prim/args.h"

namespace arete::cuda {

/// Tensors that one launch takes (with arguments of 4 and of 32 KB), elements that one block
/// reduces, its threads, and parameters that a prologue may have.
inline constexpr int kMultiReduceTensors = 120, kMultiReduceLong = 1600,
                     kMultiReduceChunk = 1 << 16, kMultiReduceThreads = 256, kMultiReduceParams = 4;

/// multi_reduce_chunks(MultiReduceTable, Slots, W* partials): block b reduces chunk b of the
/// launch. `vectorized`: all tensors start at multiples of 16 bytes; `tensors`: the table's
/// capacity.
KernelSource multi_reduce_chunks(prim::Monoid monoid, const expr::Program& prologue,
                                 bool vectorized, int tensors);
/// multi_reduce_finish(MultiReduceTable, const W* partials, W* out): block k combines the chunks of
/// tensor k.
KernelSource multi_reduce_finish(prim::Monoid monoid, expr::Type type, DType out, int tensors);

}  // namespace arete::cuda
