// Where the program is, for events with stacks.
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "arete/profile/recorder_internal.h"

namespace arete::profile {
namespace {

std::atomic<StackSource> installed{nullptr};

std::string demangled(const char* symbol) {
  int status = 0;
  char* text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  std::string name = status == 0 && text ? text : symbol;
  std::free(text);
  return name;
}

// Function and file of an address, without lines: "program(function+0x12)".
std::vector<std::string> native_stack(int limit) {
  constexpr int kDeepest = 96;
  void* addresses[kDeepest];
  const int n = backtrace(addresses, kDeepest);
  std::vector<std::string> frames;
  Dl_info here{};
  dladdr(reinterpret_cast<const void*>(&capture_stack), &here);
  for (int i = 1; i < n && int(frames.size()) < limit; ++i) {
    Dl_info info{};
    if (!dladdr(addresses[i], &info) || !info.dli_fname) continue;
    const std::string name = info.dli_sname ? demangled(info.dli_sname) : "";
    // The library's own innermost frames say nothing that the event does not.
    const bool ours = info.dli_fbase == here.dli_fbase &&
                      (name.empty() || name.find("arete::") != std::string::npos);
    if (ours && frames.empty()) continue;
    const std::string file = info.dli_fname;
    char offset[32];
    const void* base = info.dli_saddr ? info.dli_saddr : info.dli_fbase;
    std::snprintf(offset, sizeof offset, "+0x%zx",
                  size_t(static_cast<char*>(addresses[i]) - static_cast<const char*>(base)));
    frames.push_back(file.substr(file.rfind('/') + 1) + "(" + name + offset + ")");
  }
  return frames;
}

}  // namespace

void set_stack_source(StackSource source) noexcept {
  installed.store(source, std::memory_order_release);
}

std::vector<std::string> capture_stack(int limit) {
  if (const StackSource source = installed.load(std::memory_order_acquire)) {
    std::vector<std::string> frames = source(limit);
    if (!frames.empty()) return frames;
  }
  return native_stack(limit);
}

}  // namespace arete::profile
