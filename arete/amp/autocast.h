// Regions in which operators choose between half types and f32 by themselves.
#pragma once

#include <optional>

#include "arete/core/device.h"
#include "arete/core/dtype.h"

namespace arete::amp {

/// While it lives, operators on tensors of one kind of device compute in the dtype that suits them:
/// products, convolutions and attention in `dtype` (f16 or bf16; default: autocast_dtype(), that is
/// f16 on GPUs and bf16 on CPUs), what needs range or precision (exp, softmax, losses, norms, sums)
/// in f32, everything else in the dtypes that arrive. The classes are those of PyTorch, for GPUs
/// and CPUs each (Note [Classes of autocast] in ops/autocast.h). Parameters stay in f32; casts of
/// them are made once for the outermost region, and gradients flow through them.
/// Where there is no GPU, a region for GPUs is one with enabled = false, and stderr says so once.
/// Regions nest; one with enabled = false is computed as if there were none. Of this thread only.
///   {
///     const amp::Autocast region(kCUDA, kBFloat16);
///     loss = nn::functional::cross_entropy(net(x), target);
///   }
///   loss.backward();
class Autocast {
 public:
  explicit Autocast(Device device, std::optional<DType> dtype = {}, bool enabled = true,
                    std::optional<bool> cache_enabled = {});
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  DeviceType device_;
  bool enabled_before_, cache_before_;
  DType dtype_before_;
};

/// The switches one by one, of this thread. Devices other than CPUs and GPUs are a ValueError,
/// other dtypes than f16 and bf16 a TypeError.
bool is_autocast_enabled(Device device);
void set_autocast_enabled(Device device, bool enabled);
DType autocast_dtype(Device device);
void set_autocast_dtype(Device device, DType dtype);
bool is_autocast_cache_enabled();
void set_autocast_cache_enabled(bool enabled);
/// Drops the casts of parameters that are kept for the current region.
void clear_autocast_cache();
/// How deep in regions: entering gives the new depth; leaving the outermost one drops the casts.
int enter_autocast_region();
int leave_autocast_region();

}  // namespace arete::amp
