// Where a tensor lives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace arete {

/// Kinds of device. `meta` tensors have shapes and dtypes but no data.
enum class DeviceType : uint8_t { cpu, cuda, meta };
inline constexpr int kNumDeviceTypes = 3;

/// A device: type and ordinal (0 for cpu and meta).
struct Device {
  DeviceType type = DeviceType::cpu;
  int8_t index = 0;

  constexpr Device() = default;
  constexpr Device(DeviceType t, int i = 0) : type(t), index(int8_t(i)) {}
  /// Parses "cpu", "cuda", "cuda:1", "meta"; ValueError naming the text otherwise.
  Device(std::string_view text);
  Device(const char* text) : Device(std::string_view(text)) {}
  bool operator==(const Device&) const = default;
  bool is_cpu() const { return type == DeviceType::cpu; }
  bool is_cuda() const { return type == DeviceType::cuda; }
  bool is_meta() const { return type == DeviceType::meta; }
  /// "cpu", "cuda:0", "meta".
  std::string to_string() const;
};

inline constexpr Device kCPU{DeviceType::cpu}, kCUDA{DeviceType::cuda}, kMeta{DeviceType::meta};

}  // namespace arete
