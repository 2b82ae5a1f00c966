// Where a tensor lives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace arete {

/// Kinds of device. `meta` tensors have shapes and dtypes but no data.
enum class DeviceType : uint8_t { cpu, cuda, meta };
inline constexpr int kNumDeviceTypes = 3;

/// The calling thread's current GPU, 0 at first: the ordinal of one that is named without.
/// cuda::set_device() sets it, after a look at how many there are.
int current_ordinal() noexcept;
void set_current_ordinal(int ordinal) noexcept;

/// A device: type and ordinal. cpu and meta have the ordinal 0. A GPU may be named without one
/// (kCUDA, Device("cuda"): index -1): whoever takes such a device takes the current GPU of the
/// thread that calls. The device of a tensor always has its ordinal.
struct Device {
  DeviceType type = DeviceType::cpu;
  int8_t index = 0;

  constexpr Device() = default;
  constexpr Device(DeviceType t) : type(t), index(t == DeviceType::cuda ? -1 : 0) {}
  constexpr Device(DeviceType t, int i) : type(t), index(int8_t(i)) {}
  /// Parses "cpu", "cuda", "cuda:1", "meta"; ValueError naming the text otherwise.
  Device(std::string_view text);
  Device(const char* text) : Device(std::string_view(text)) {}
  bool operator==(const Device&) const = default;
  bool is_cpu() const { return type == DeviceType::cpu; }
  bool is_cuda() const { return type == DeviceType::cuda; }
  bool is_meta() const { return type == DeviceType::meta; }
  /// With its ordinal: the current GPU's where it is named without.
  Device resolved() const { return index >= 0 ? *this : Device(type, current_ordinal()); }
  /// "cpu", "cuda", "cuda:0", "meta".
  std::string to_string() const;
};

inline constexpr Device kCPU{DeviceType::cpu}, kCUDA{DeviceType::cuda}, kMeta{DeviceType::meta};

}  // namespace arete
