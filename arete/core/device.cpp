#include "arete/core/device.h"

#include <charconv>

#include "arete/base/error.h"

namespace arete {
namespace {
constexpr std::string_view kNames[kNumDeviceTypes] = {"cpu", "cuda", "meta"};
thread_local constinit int this_thread_ordinal = 0;
}  // namespace

int current_ordinal() noexcept { return this_thread_ordinal; }
void set_current_ordinal(int ordinal) noexcept { this_thread_ordinal = ordinal; }

Device::Device(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  int found = -1;
  for (int t = 0; t < kNumDeviceTypes; ++t)
    if (name == kNames[t]) found = t;
  const std::string quoted = "'" + std::string(text) + "'";
  ARETE_CHECK(found >= 0, ValueError("",
                                     "Expected one of cpu, cuda, meta device type at start of "
                                     "device string: " +
                                         std::string(text))
                              .argument("device"));
  *this = Device(DeviceType(found));
  if (colon == std::string_view::npos) return;
  const std::string_view digits = text.substr(colon + 1);
  int value = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  ARETE_CHECK(
      error == std::errc() && end == digits.data() + digits.size() && value >= 0 && value < 128,
      ValueError("", "Invalid device string: " + quoted)
          .argument("device")
          .expected("a number from 0 to 127 after the colon"));
  ARETE_CHECK(value == 0 || type == DeviceType::cuda,
              ValueError("", "Invalid device string: " + quoted)
                  .argument("device")
                  .hint("there is one " + std::string(name) + " device, of index 0"));
  index = int8_t(value);
}

std::string Device::to_string() const {
  std::string s(kNames[int(type)]);
  if (type == DeviceType::cuda && index >= 0) s += ":" + std::to_string(int(index));
  return s;
}

}  // namespace arete
