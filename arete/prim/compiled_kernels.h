// Compiling kernels: before they are needed, and what it took.
#pragma once

#include <string>
#include <vector>

#include "arete/core/device.h"

namespace arete::prim {

/// A kernel that a backend compiled; one that was found on disk is none.
struct CompiledKernel {
  std::string name;
  double seconds;
};

/// Called by backends that compile kernels, on the thread that asked for one.
void note_compiled_kernel(std::string name, double seconds);
/// Those that were compiled for this thread so far.
const std::vector<CompiledKernel>& compiled_kernels() noexcept;

/// While it lives, calls on this thread get their kernels ready and launch none: nobody's memory
/// is touched. For devices of a type that heeds it, and the primitives that compute with programs:
/// pointwise, reduce, those of many tensors, and fused.
class Rehearsal {
 public:
  Rehearsal();
  ~Rehearsal();
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;
};
bool is_rehearsing() noexcept;
/// Backends that compile kernels say so once.
void heed_rehearsals(DeviceType type);
bool heeds_rehearsals(DeviceType type);

}  // namespace arete::prim
