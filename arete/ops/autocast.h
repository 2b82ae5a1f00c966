// What autocast does to a call: the dtype each operator computes in, and the casts that are kept.
// The public face is amp/autocast.h.
#pragma once

#include <optional>

#include "arete/core/modes.h"
#include "arete/ops/record.h"

namespace arete::ops {

// Note [Classes of autocast]
// PyTorch has lists of operators for GPUs and others for CPUs, on which f32 is not as slow in
// comparison and many operators had no kernels for half types. A record names its class by
// .autocast(): one of Autocast, or autocast_by_device() where the lists differ.
//   lower    floating arguments are cast to the region's dtype
//   f32      floating arguments are cast to f32; where the operator has an argument "dtype", that
//   is
//            set to f32 instead (unless given), which saves the memory of the cast
//   promote  all are cast to f32 if one is f32
//   banned   an error: the operator has no meaning in half types that would be safe
// f64 is never cast, neither are tensors of devices whose autocast is off. What an operator with a
// class calls while it runs is not cast again: its parts are its own business. Autocast::as_is
// says only that.

/// One class on CPUs, another one on GPUs.
constexpr Autocast autocast_by_device(Autocast cpu, Autocast cuda) {
  static_assert(int(Autocast::as_is) < 8, "a class has three bits");
  return Autocast(0x80 | int(cpu) << 3 | int(cuda));
}
/// As in PyTorch's lists for GPUs (CPUs) only.
constexpr Autocast autocast_on_cuda(Autocast c) { return autocast_by_device(Autocast::none, c); }
constexpr Autocast autocast_on_cpu(Autocast c) { return autocast_by_device(c, Autocast::none); }
/// The class of a record on one kind of device.
constexpr Autocast autocast_class(Autocast of_record, DeviceType device) {
  if (!(int(of_record) & 0x80)) return of_record;
  return Autocast((device == DeviceType::cpu ? int(of_record) >> 3 : int(of_record)) & 7);
}

/// How autocast is set on this thread. Modes::kAutocast is set while it is on for some device.
struct AutocastState {
  struct OfDevice {
    bool enabled = false;
    DType dtype;
  };
  OfDevice cpu{false, kBFloat16}, cuda{false, kFloat16};
  bool cache_enabled = true;
  int depth = 0;  // of regions; the kept casts are dropped at the end of the outermost one

  /// Meta tensors and the like have none: null.
  OfDevice* find(DeviceType device) {
    return device == DeviceType::cpu ? &cpu : device == DeviceType::cuda ? &cuda : nullptr;
  }
};
AutocastState& autocast_state();
/// Sets Modes::kAutocast to what the state says.
void apply_autocast_state();
/// Drops the casts that this thread keeps.
void clear_autocast_cache();

/// The dtype to which an operator of class `lower` would cast this tensor; none: not at all.
std::optional<DType> autocast_lower_dtype(const Tensor& t);
/// `t` in another dtype, for the length of the region from the cache if it is a parameter.
Tensor autocast_cast(const Tensor& t, DType to);

/// Inside, nothing is cast.
class WithoutAutocast : ModesGuard {
 public:
  WithoutAutocast() { modes().word &= ~uint32_t(Modes::kAutocast); }
};

/// The arguments of a call as autocast wants them. Keeps what it casts.
class AutocastArgs {
 public:
  /// Casts are made here. ValueError for a banned operator.
  AutocastArgs(const OpRecord& op, std::span<const Arg> args);
  AutocastArgs(const AutocastArgs&) = delete;
  AutocastArgs& operator=(const AutocastArgs&) = delete;
  std::span<const Arg> get() const { return args_; }
  /// The operator has a class on this call's device, so that its parts are not cast.
  bool has_class() const { return has_class_; }

 private:
  void cast_all(std::span<const Arg> args, DeviceType device, DType to);
  void ask_for_f32(std::span<const Arg> args, DeviceType device, size_t dtype);

  std::span<const Arg> args_;
  bool has_class_ = false;
  SmallVector<Arg, 8> new_args_;
  std::vector<Tensor> casted_;
  std::vector<std::vector<Tensor>> lists_;
};

}  // namespace arete::ops
