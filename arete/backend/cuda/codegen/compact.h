// The kernel of compact.
#pragma once

#include <cstdint>

#include "arete/backend/cuda/codegen/index.h"
#include "arete/backend/cuda/codegen/kernel_source.h"

namespace arete::cuda::compaction {

/// Mirrors device/compact.cuh.
struct CompactArgs {
  uint64_t mask, out, total, states, next_tile;
  int64_t count, rank, coordinate_step, step, is_wide;
  struct {
    int64_t size;
    indexing::Divisor divisor;
  } dims[16];
};
inline constexpr int64_t kThreads = 512, kTile = 512 * 16;

/// `aligned`: the mask begins at a multiple of 16 bytes.
KernelSource compact_source(bool aligned, bool coordinates);

}  // namespace arete::cuda::compaction
