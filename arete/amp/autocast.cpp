#include "arete/amp/autocast.h"

#include "arete/base/error.h"
#include "arete/base/warn.h"
#include "arete/device/cuda.h"
#include "arete/ops/autocast.h"

namespace arete::amp {

namespace {
ops::AutocastState::OfDevice& state_of(Device device) {
  ops::AutocastState::OfDevice* s = ops::autocast_state().find(device.type);
  ARETE_CHECK(s, ValueError("autocast", "User specified an unsupported autocast device_type '" +
                                            device.to_string() + "'")
                     .expected("cpu or cuda"));
  return *s;
}
}  // namespace

bool is_autocast_enabled(Device device) { return state_of(device).enabled; }
void set_autocast_enabled(Device device, bool enabled) {
  state_of(device).enabled = enabled;
  ops::apply_autocast_state();
}
DType autocast_dtype(Device device) { return state_of(device).dtype; }
void set_autocast_dtype(Device device, DType dtype) {
  ops::AutocastState::OfDevice& s = state_of(device);
  ARETE_CHECK(dtype == kFloat16 || dtype == kBFloat16,
              TypeError("autocast", "autocast only supports bfloat16 and float16 currently")
                  .got(std::string(name_of(dtype))));
  s.dtype = dtype;
}
bool is_autocast_cache_enabled() { return ops::autocast_state().cache_enabled; }
void set_autocast_cache_enabled(bool enabled) { ops::autocast_state().cache_enabled = enabled; }
void clear_autocast_cache() { ops::clear_autocast_cache(); }

int enter_autocast_region() { return ++ops::autocast_state().depth; }
int leave_autocast_region() {
  ops::AutocastState& s = ops::autocast_state();
  if (s.depth > 0 && --s.depth == 0) ops::clear_autocast_cache();
  return s.depth;
}

Autocast::Autocast(Device device, std::optional<DType> dtype, bool enabled,
                   std::optional<bool> cache_enabled)
    : device_(device.type),
      enabled_before_(is_autocast_enabled(device)),
      cache_before_(is_autocast_cache_enabled()),
      dtype_before_(autocast_dtype(device)) {
  if (dtype) set_autocast_dtype(device, *dtype);
  if (enabled && device.is_cuda() && !cuda::is_available()) {
    enabled = false;
    warn("autocast for GPUs is disabled: " + cuda::unavailable_reason());
  }
  set_autocast_enabled(device, enabled);
  if (cache_enabled) set_autocast_cache_enabled(*cache_enabled);
  enter_autocast_region();
}

Autocast::~Autocast() {
  leave_autocast_region();
  ops::AutocastState& s = ops::autocast_state();
  *s.find(device_) = {enabled_before_, dtype_before_};
  s.cache_enabled = cache_before_;
  ops::apply_autocast_state();
}

}  // namespace arete::amp
