// Accumulators: what reductions and fused kernels share.
#pragma once

#include <cstdint>

#include "arete/backend/cpu/interpreter.h"
#include "arete/backend/cpu/kernels/kernel_table.h"
#include "arete/prim/args.h"

namespace arete::cpu {

/// One kind of accumulation: a monoid over values of a computation type.
struct Accumulation {
  Accumulation(prim::Monoid monoid, expr::Type value_type);

  kernels::ReduceKernel rows, cols;  ///< of values
  kernels::ReduceKernel combine;     ///< columns of accumulators
  DType dtype;                       ///< of an accumulator
  size_t size;                       ///< of an accumulator, in bytes

  /// Sets n accumulators to the monoid's identity.
  void clear(void* acc, int64_t n) const;

 private:
  uint64_t identity_;
  kernels::Kernel splat_;
};

}  // namespace arete::cpu
