#include "arete/backend/cuda/runtime/event.h"

#include "arete/backend/cuda/runtime/context.h"
#include "arete/backend/cuda/runtime/driver.h"

namespace arete::cuda {

RecordedEvent::RecordedEvent(DeviceContext& device, CUstream stream)
    : device_(device), stream_(stream), event_(device.take_event()) {
  if (const CUresult result = driver().cuEventRecord(event_, stream); result != CUDA_SUCCESS) {
    device_.give_event(event_);
    throw_cuda_error(result, "cuEventRecord");
  }
}

RecordedEvent::~RecordedEvent() { device_.give_event(event_); }

bool RecordedEvent::is_done() const noexcept {
  try {
    device_.make_current();
    return driver().cuEventQuery(event_) != CUDA_ERROR_NOT_READY;
  } catch (...) {
    return true;
  }
}

Device RecordedEvent::device() const noexcept { return {DeviceType::cuda, device_.ordinal()}; }

void RecordedEvent::wait() {
  device_.make_current();
  ARETE_CU(cuEventSynchronize, event_);
  device_.raise_device_errors();
}

}  // namespace arete::cuda
