// Positions of extrema as CUDA C++ text; the bodies are in device/arg_reduce.cuh and reduce.cuh.
#pragma once

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/backend/cuda/codegen/reduce_plan.h"
#include "arete/core/dtype.h"

namespace arete::cuda {

/// A search for extrema without its sizes. A plan's outputs are the positions and, if wanted, the
/// values.
struct ArgReduceKernel {
  DType in;
  bool largest;
  bool values;
  /// The input holds partial results, partial_size() bytes each, instead of elements of type `in`.
  bool combine = false;

  int64_t partial_size() const;
};

/// Elements that a thread of arg_reduce takes at once, at most: a vector needs registers for the
/// position of each of its elements.
inline constexpr int kMaxArgVector = 8;

KernelSource arg_reduce_source(const ArgReduceKernel& kernel, const ReducePlan& plan);

}  // namespace arete::cuda
