#include "arete/prim/host_wait.h"

#include "arete/core/modes.h"
#include "arete/prim/recorder.h"

namespace arete::prim {

HostWait::HostWait() : is_told_(modes().word & Modes::kPutOff) {
  if (is_told_) begun_ = std::chrono::steady_clock::now();
}

HostWait::~HostWait() {
  if (!is_told_ || !modes().capture) return;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun_;
  modes().capture->waited(took.count());
}

}  // namespace arete::prim
