// A shared library opened while the program runs, so that nothing of CUDA is needed until it is
// used.
#pragma once

#include <string>
#include <vector>

namespace arete::cuda {

/// Opened on first need and kept for the rest of the process.
class DynamicLibrary {
 public:
  /// Tries the names in order. Those without a slash are looked for in the folders that
  /// $ARETE_CUDA_LIBRARY_PATH names, then as dlopen does, then in the folder of libarete_cuda.so,
  /// in $CUDA_HOME/lib64 and /usr/local/cuda/lib64. `what` is for the error.
  DynamicLibrary(std::string what, std::vector<std::string> names);
  /// Null if there is no such symbol.
  void* find(const char* symbol) const noexcept;
  /// Sets `function` to that symbol; whether there is one.
  template <class F>
  bool find(const char* symbol, F*& function) const noexcept {
    function = reinterpret_cast<F*>(find(symbol));
    return function != nullptr;
  }
  /// DeviceError naming library and symbol if there is no such symbol.
  void* get(const char* symbol) const;
  /// Sets `function` to the symbol; if there is none, `problem` says so unless it says something.
  template <class F>
  void look_up(F*& function, const char* symbol, std::string& problem) const {
    function = reinterpret_cast<F*>(find(symbol));
    if (!function && problem.empty()) problem = missing(symbol);
  }
  bool is_open() const noexcept { return handle_ != nullptr; }
  /// Why it is not open: the names tried and what the loader said.
  const std::string& problem() const noexcept { return problem_; }
  /// The path it was loaded from.
  const std::string& path() const noexcept { return path_; }

 private:
  std::string missing(const char* symbol) const;
  std::string what_, problem_, path_;
  void* handle_ = nullptr;
};

/// The path of the file that a library's plain name ("libnvrtc.so") stands for, without opening it:
/// with that name, or with a version behind it, in the folders where DynamicLibrary and the loader
/// look. "" if there is none.
std::string find_library_file(const std::string& name);

}  // namespace arete::cuda
