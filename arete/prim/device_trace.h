// What a device did and when, as its vendor's tracing library tells it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "arete/core/device.h"

namespace arete::prim {

/// One piece of work that a device has done. Times are those of the steady clock, in nanoseconds.
struct DeviceActivity {
  enum class Kind : uint8_t { kernel, copy, set };
  Kind kind = Kind::kernel;
  std::string name;  ///< of the kernel, or "Memcpy HtoD (Pinned -> Device)"
  int64_t begin_ns = 0, end_ns = 0;
  Device device;
  uint32_t context = 0, stream = 0;
  uint32_t correlation = 0;  ///< the vendor's number of the call that started it
  uint64_t range = 0;        ///< what push_range() was given when that call was made; 0: nothing
  int64_t call_ns = 0;       ///< when that call began on the host; 0: not known
  std::array<int32_t, 3> grid{}, block{};
  int32_t registers = 0, shared_bytes = 0;
  uint64_t bytes = 0;  ///< of copies and sets
};

/// A vendor's tracing library. One recording at a time.
class DeviceTrace {
 public:
  virtual ~DeviceTrace() = default;
  /// Why it cannot be used; "" if it can. Loads the library.
  virtual std::string problem() = 0;
  virtual void start() = 0;
  /// Waits until everything given to the devices before is in the result; in the order of its
  /// begin.
  virtual std::vector<DeviceActivity> stop() = 0;
  /// Work that the calling thread starts from now on belongs to this range, until pop_range().
  virtual void push_range(uint64_t id) noexcept = 0;
  virtual void pop_range() noexcept = 0;
};

/// Null if no plug-in has brought one; loads none.
DeviceTrace* find_device_trace() noexcept;
/// Called by plug-ins when they load; the object lives for the rest of the process.
void register_device_trace(DeviceTrace* trace) noexcept;

}  // namespace arete::prim
