#include "arete/base/warn.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>

namespace arete {

namespace {
std::atomic<void (*)(std::string_view)> g_handler{nullptr};
}

void set_warning_handler(void (*handler)(std::string_view)) noexcept { g_handler = handler; }

void warn(std::string_view text) {
  if (auto* const handler = g_handler.load()) return handler(text);
  static std::mutex mutex;
  static std::set<std::string, std::less<>> told;
  const std::lock_guard lock(mutex);
  if (told.emplace(text).second)
    std::fprintf(stderr, "arete: warning: %.*s\n", int(text.size()), text.data());
}

}  // namespace arete
