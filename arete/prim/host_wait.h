// How long the host waits for devices, for those who explain where time goes.
#pragma once

#include <chrono>

namespace arete::prim {

/// While it lives the host may wait for a device to hand over values. If the thread puts calls off,
/// who takes them is told of it afterwards: Capture::waited().
class HostWait {
 public:
  HostWait();
  ~HostWait();
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;

 private:
  std::chrono::steady_clock::time_point begun_;
  bool is_told_;
};

}  // namespace arete::prim
