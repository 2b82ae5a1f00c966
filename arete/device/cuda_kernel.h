// Kernels written in CUDA C++ by users of the library.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "arete/core/tensor.h"
#include "arete/prim/user_kernel.h"

namespace arete::cuda {

/// An argument of a kernel: a tensor (the address of its first element), a plain value of at most
/// 16 bytes, or the bytes of a struct; its type must be exactly the parameter's, and is not checked
/// on a GPU.
class KernelArgument {
 public:
  KernelArgument(const Tensor& t);
  template <class T>
  requires(std::is_trivially_copyable_v<T> && sizeof(T) <= 16 && !std::is_base_of_v<Tensor, T>)
      KernelArgument(T value)
      : size_(sizeof(T)), is_whole_(std::is_integral_v<T>) {
    std::memcpy(bytes_.data(), &value, sizeof(T));
  }
  /// Memory whose elements the kernel alone knows.
  static KernelArgument of_memory(const Tensor& bytes) {
    KernelArgument a(bytes);
    a.is_plain_ = true;
    return a;
  }
  static KernelArgument of_bytes(const void* data, size_t size) {
    KernelArgument a(uint8_t{0});
    a.size_ = size;
    a.is_whole_ = false;
    a.many_.assign(static_cast<const std::byte*>(data), static_cast<const std::byte*>(data) + size);
    return a;
  }
  const Tensor& tensor() const { return tensor_; }
  void* address() { return many_.empty() ? bytes_.data() : many_.data(); }
  /// Of a plain value.
  size_t size() const { return size_; }
  bool is_whole() const { return is_whole_; }
  bool is_plain() const { return is_plain_; }

 private:
  size_t size_ = 0;
  bool is_whole_ = false, is_plain_ = false;
  alignas(16) std::array<std::byte, 16> bytes_{};
  std::vector<std::byte> many_;  // of a struct
  Tensor tensor_;
};

/// Blocks or threads along x, y and z.
using Dim = std::array<unsigned, 3>;

/// A `extern "C" __global__` function in CUDA C++ source:
///
///     cuda::RawKernel scale(R"(extern "C" __global__ void scale(float* x, float a, int n) {
///       int i = blockIdx.x * blockDim.x + threadIdx.x;
///       if (i < n) x[i] *= a;
///     })", "scale");
///     scale({(n + 255) / 256, 1, 1}, {256, 1, 1}, {x, 2.0f, n});
///
/// It is compiled for the GPU at its first launch there and kept, also on disk; a launch goes to
/// the current stream and is asynchronous. What it does to memory is not checked, and writes are
/// not seen by the version counters of tensors. Errors: ValueError with the compiler's messages
/// (line numbers are those of `source`), or for a launch beyond the GPU's limits; DeviceError for
/// tensors that are not on one device.
///
/// With tensors of the CPU, or none where there is no GPU, the launch runs there and is done when
/// it returns (Note [Lanes]): what is C in the source, with threads, blocks, shared memory,
/// barriers, atomics and shuffles. Each access is checked there: IndexError names the line. What
/// only a GPU's compiler understands is a NotImplementedError that says so.
class RawKernel {
 public:
  /// `options` go to the compiler (NVRTC): "-DWIDTH=3", "-I/path".
  RawKernel(std::string source, std::string name, std::vector<std::string> options = {});
  /// Launches on the GPU of the tensors, or on the current one if there are none.
  void operator()(Dim grid, Dim block, std::vector<KernelArgument> arguments,
                  size_t shared_bytes = 0) const;
  /// Compiles now, for the current GPU.
  void compile() const;
  /// Of the kernel as it is compiled for the current GPU: its facts, how many of its blocks a
  /// multiprocessor holds, a variable of its source, and CUDA's handle.
  /// Where there is no GPU the variable is the CPU's, and the others are NotImplementedErrors.
  int64_t fact(prim::KernelFact which) const;
  /// max_dynamic_shared_size_bytes and preferred_shared_memory_carveout.
  void set(prim::KernelFact which, int value) const;
  int resident_blocks(int threads, size_t shared_bytes = 0) const;
  prim::KernelVariable variable(const std::string& name) const;
  void* native_handle() const;
  const std::string& name() const { return name_; }

 private:
  struct Found;
  const prim::UserKernel& on_current_gpu(const char* wanted) const;
  std::string source_, name_;
  std::vector<std::string> options_;
  std::shared_ptr<Found> found_;  // by device: the key of a kernel is a hash of all its text
};

}  // namespace arete::cuda
