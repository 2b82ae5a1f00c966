// Which fused kernel runs for which arguments, and how it is launched. Pure: needs no GPU.
#pragma once

#include <cstdint>

#include "arete/backend/cuda/codegen/fused.h"
#include "arete/base/small_vector.h"
#include "arete/prim/args.h"

namespace arete::cuda {

/// What the choice depends on besides the arguments.
struct FusedLimits {
  int multiprocessors = 0;
  int shared_per_block = 0, shared_per_multiprocessor = 0;  // bytes
  // Of rows' data in the registers of one thread; 0: never keep them there.
  int data_registers = 32;
  // Few rows of these lengths (in the mappings `rows` and `columns`) are divided among blocks.
  int64_t long_row = 65536, long_column = 2048;
};

struct FusedPlan {
  enum class Kind : uint8_t {
    nothing,     ///< no rows
    decompose,   ///< beyond what one kernel can take: stage by stage with other primitives
    one_launch,  ///< with `variant`
    phases,      ///< a launch for each phase, with `variant` of that phase
  } kind = Kind::nothing;
  FusedVariant variant;
  unsigned grid = 1;    ///< blocks along the rows
  unsigned splits = 1;  ///< blocks for one row (grid's y) in phases over elements
  size_t shared = 0;    ///< dynamic shared memory, bytes
  size_t partials = 0;  ///< bytes of partial results (of phases, or of variant.columns)
  size_t columns = 0;   ///< variant.columns: elements of a row
  /// The kernel's argument; the address of the partial results goes into its member kPartials.
  static constexpr size_t kPartials = 4;
  SmallVector<uint64_t, 64> arguments;
};

FusedPlan plan_fused(const prim::FusedArgs& args, const FusedLimits& limits);

}  // namespace arete::cuda
