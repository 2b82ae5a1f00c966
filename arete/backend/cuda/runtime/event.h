// Events that the runtime itself records: pooled, without timing.
#pragma once

#include <cuda.h>

#include <memory>

#include "arete/core/device_copy.h"

namespace arete::cuda {

class DeviceContext;

/// The end of a stream as it was when this was made.
class RecordedEvent final : public DeviceCopy {
 public:
  RecordedEvent(DeviceContext& device, CUstream stream);
  ~RecordedEvent() override;
  RecordedEvent(const RecordedEvent&) = delete;
  RecordedEvent& operator=(const RecordedEvent&) = delete;
  /// A broken context counts as done: nothing will come any more.
  bool is_done() const noexcept override;
  void wait() override;
  const void* queue() const noexcept override { return stream_; }
  Device device() const noexcept override;
  CUevent handle() const { return event_; }

 private:
  DeviceContext& device_;
  CUstream stream_;
  CUevent event_;
};

inline std::shared_ptr<RecordedEvent> record_event(DeviceContext& device, CUstream stream) {
  return std::make_shared<RecordedEvent>(device, stream);
}

}  // namespace arete::cuda
