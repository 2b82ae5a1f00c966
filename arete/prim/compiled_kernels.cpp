#include "arete/prim/compiled_kernels.h"

#include <atomic>
#include <memory>
#include <utility>

namespace arete::prim {

// Behind a pointer: Note [Thread-local memory].
static thread_local std::unique_ptr<std::vector<CompiledKernel>> kernels;
static thread_local int rehearsals = 0;
static std::atomic<uint64_t> heeding{0};  // bits of device types

void note_compiled_kernel(std::string name, double seconds) {
  if (!kernels) kernels = std::make_unique<std::vector<CompiledKernel>>();
  kernels->push_back({std::move(name), seconds});
}
const std::vector<CompiledKernel>& compiled_kernels() noexcept {
  static const auto* const none = new std::vector<CompiledKernel>;
  return kernels ? *kernels : *none;
}

Rehearsal::Rehearsal() { ++rehearsals; }
Rehearsal::~Rehearsal() { --rehearsals; }
bool is_rehearsing() noexcept { return rehearsals > 0; }
void heed_rehearsals(DeviceType type) { heeding |= uint64_t{1} << int(type); }
bool heeds_rehearsals(DeviceType type) { return heeding >> int(type) & 1; }

}  // namespace arete::prim
