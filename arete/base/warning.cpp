#include "arete/base/warning.h"

#include <atomic>
#include <cstdio>

namespace arete {
namespace {

void print(const std::string& text) { std::fprintf(stderr, "Warning: %s\n", text.c_str()); }

std::atomic<WarningHandler> current{&print};

}  // namespace

void warn(const std::string& text) { current.load(std::memory_order_acquire)(text); }

WarningHandler set_warning_handler(WarningHandler handler) noexcept {
  return current.exchange(handler ? handler : &print, std::memory_order_acq_rel);
}

}  // namespace arete
