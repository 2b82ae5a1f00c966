#include "arete/prim/host_wait.h"

#include <atomic>

#include "arete/core/modes.h"

namespace arete::prim {
namespace {
std::atomic<void (*)(double)> listener{nullptr};
}

HostWait::HostWait() : is_told_(modes().word & Modes::kPutOff) {
  if (is_told_) begun_ = std::chrono::steady_clock::now();
}

HostWait::~HostWait() {
  if (!is_told_) return;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun_;
  if (auto* const tell = listener.load()) tell(took.count());
}

void set_wait_listener(void (*f)(double)) noexcept { listener = f; }

}  // namespace arete::prim
