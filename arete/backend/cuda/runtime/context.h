// One device: its context, properties, current stream and error record.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "arete/backend/cuda/runtime/device_error.h"
#include "arete/backend/cuda/runtime/kernel_store.h"

namespace arete::cuda {

/// What kernels and plans are chosen by.
struct DeviceLimits {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int shared_per_block = 0;  // bytes, the most a kernel may ask for
  int shared_per_multiprocessor = 0;
  int threads_per_multiprocessor = 0;
  int l2_bytes = 0;
  size_t total_bytes = 0;
  int clock_khz = 0, memory_clock_khz = 0, memory_bus_bits = 0;
  int arch() const { return 10 * major + minor; }
};

/// The primary context of a device. Objects live for the rest of the process.
class DeviceContext {
 public:
  static DeviceContext& get(int ordinal);
  /// One that has been made already, or that of device 0.
  static DeviceContext& any();
  static int count();

  int ordinal() const { return ordinal_; }
  CUdevice device() const { return device_; }
  CUcontext handle() const { return context_; }
  const DeviceLimits& limits() const { return limits_; }
  /// Makes the context the calling thread's; cheap if it is already.
  void make_current() {
    if (current_ordinal_ != ordinal_) [[unlikely]]
      switch_to();
  }
  /// Forgets what this thread's context is (other libraries may have changed it).
  static void forget_current() noexcept { current_ordinal_ = -1; }

  /// The stream that work of the calling thread goes to: the device's default one unless
  /// set_stream chose another. The default stream is not CUDA's legacy stream and does not
  /// synchronize with it.
  CUstream stream() const { return stream_device_ == ordinal_ ? stream_ : other_stream(); }
  CUstream default_stream() const { return default_stream_; }
  void set_stream(CUstream stream);

  /// Streams are made once and used again: a handle stays valid for good, whatever still refers to
  /// it.
  CUstream take_stream(int priority);
  void give_stream(CUstream stream) noexcept;
  /// Events without timing, pooled.
  CUevent take_event();
  void give_event(CUevent event) noexcept;

  /// True while `stream` is captured into a graph.
  bool is_capturing(CUstream stream) const {
    return captures_.load(std::memory_order_relaxed) > 0 && stream_is_capturing(stream);
  }
  /// DeviceError naming `what` while a stream (the current one) is captured: nothing may be waited
  /// for then.
  void check_not_capturing(const char* what) const { check_not_capturing(stream(), what); }
  void check_not_capturing(CUstream stream, const char* what) const {
    if (is_capturing(stream)) [[unlikely]]
      throw_capturing(what);
  }
  /// Counts the captures under way on this device.
  void add_capture(int change) { captures_.fetch_add(change, std::memory_order_relaxed); }
  bool has_captures() const { return captures_.load(std::memory_order_relaxed) > 0; }

  /// Lets this device reach the other's memory directly, where the hardware can. Copies work all
  /// the same where it cannot.
  void enable_peer_access(DeviceContext& peer);

  /// Where kernels report; a device address and the same memory on the host.
  CUdeviceptr error_address() const { return error_address_; }
  /// Throws what kernels recorded since the last call, if anything. Call after a synchronization.
  void raise_device_errors() {
    if (reinterpret_cast<std::atomic<uint32_t>*>(&errors_->kind)->load(std::memory_order_acquire))
        [[unlikely]]
      throw_device_error();
  }
  /// Work that other processes take part in was given up: the next wait raises it. From any thread.
  void break_work(const std::string& why);
  /// Waits for one stream, or for all, and raises what kernels recorded.
  void synchronize(CUstream stream);
  void synchronize_all();
  /// For all, and raises nothing that they recorded.
  void wait_for_all();

  const KernelStore& store() const { return store_; }

 private:
  explicit DeviceContext(int ordinal);
  void switch_to();
  CUstream other_stream() const;
  void throw_device_error();
  bool stream_is_capturing(CUstream stream) const;
  [[noreturn]] void throw_capturing(const char* what) const;

  static thread_local constinit int current_ordinal_;
  // The calling thread's choice for one device (the last one chosen); other devices' choices are
  // kept aside in context.cpp.
  static thread_local constinit int stream_device_;
  static thread_local constinit CUstream stream_;

  int ordinal_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream default_stream_ = nullptr;
  DeviceLimits limits_;
  DeviceErrorRecord* errors_ = nullptr;
  CUdeviceptr error_address_ = 0;
  std::mutex broken_mutex_;
  std::string broken_;
  KernelStore store_;
  std::atomic<int> captures_{0};

  struct PooledStream {
    CUstream stream;
    int priority;
    bool in_use;
  };
  std::mutex pool_mutex_;
  std::vector<PooledStream> streams_;
  std::vector<CUevent> events_;
  std::atomic<uint64_t> peers_{0};  // bit i: enable_peer_access has seen to device i
};

/// True with CUDA_LAUNCH_BLOCKING=1.
bool launch_blocking();

}  // namespace arete::cuda
