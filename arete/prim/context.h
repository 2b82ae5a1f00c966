// How a call is to run.
#pragma once

#include "arete/core/matmul_precision.h"
#include "arete/core/modes.h"
#include "arete/prim/cudnn_switches.h"

namespace arete::prim {

/// What the thread and the process ask for besides the result, as it was when the call was made: a
/// call that is kept means the same later. Backends read these here only.
struct Context {
  /// The stream of the device it was recorded on; null: the calling thread's current one.
  void* stream = nullptr;
  /// The same bits in every run.
  bool deterministic = modes().deterministic;
  /// The same, asked of the vendor's convolutions and attention alone.
  bool library_deterministic = deterministic || cuda::cudnn_deterministic();
  /// How exactly f32 operands are read by products, and by convolutions.
  MatmulPrecision precision = float32_matmul_precision();
  bool convolution_tf32 = float32_convolution_tf32();
};

}  // namespace arete::prim
