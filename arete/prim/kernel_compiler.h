// Kernels that users write in a device's own language.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace arete::prim {

/// One launch of a user's kernel on the current stream.
struct UserLaunch {
  std::array<unsigned, 3> grid{1, 1, 1}, block{1, 1, 1};
  size_t shared = 0;                    // bytes of dynamic shared memory
  void** arguments;                     // the address of each argument
  std::span<const void* const> memory;  // device memory that the arguments point to
};

/// What a backend that compiles source text is besides.
class KernelCompiler {
 public:
  /// The function `name` of a source, compiled on first use and kept for the process and on disk.
  /// ValueError with the compiler's messages, whose line numbers are the source's own.
  virtual const void* find_user_kernel(const std::string& source, const std::string& name,
                                       const std::vector<std::string>& options) = 0;
  /// ValueError if the launch asks for more than the device has.
  virtual void launch_user_kernel(const void* kernel, const UserLaunch& launch) = 0;

 protected:
  ~KernelCompiler() = default;
};

}  // namespace arete::prim
