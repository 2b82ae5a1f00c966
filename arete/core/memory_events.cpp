#include "arete/core/memory_events.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <shared_mutex>
#include <vector>

namespace arete {

namespace detail {
constinit std::atomic<int> memory_observers{0};
}

namespace {

struct Observers {
  std::shared_mutex mutex;
  std::vector<MemoryObserver*> list;
};
Observers& observers() {
  static Observers* const o = new Observers;  // static tensors may be freed after static objects
  return *o;
}

/// Tensors of a thread may be freed after this is gone.
thread_local bool scopes_gone = false;
struct Scopes {
  std::string path;
  std::vector<size_t> ends;
  ~Scopes() { scopes_gone = true; }
};
thread_local Scopes scopes;

}  // namespace

void add_memory_observer(MemoryObserver* observer) {
  const std::unique_lock lock(observers().mutex);
  observers().list.push_back(observer);
  detail::memory_observers.fetch_add(1);
}

void remove_memory_observer(MemoryObserver* observer) noexcept {
  const std::unique_lock lock(observers().mutex);
  const auto it = std::find(observers().list.begin(), observers().list.end(), observer);
  if (it == observers().list.end()) return;
  observers().list.erase(it);
  detail::memory_observers.fetch_sub(1);
}

void detail::notify_memory(const MemoryEvent& event) noexcept {
  const std::shared_lock lock(observers().mutex);
  for (MemoryObserver* o : observers().list) o->on_memory(event);
}

MemoryTotals& memory_totals(int device) noexcept {
  static std::array<MemoryTotals, 128> totals;
  return totals[size_t(device) & 127];
}

const std::string& current_name_scope() noexcept {
  static const std::string* const none = new std::string;
  return scopes_gone ? *none : scopes.path;
}

void push_name_scope(std::string_view name) {
  scopes.ends.push_back(scopes.path.size());
  if (!scopes.path.empty()) scopes.path += '/';
  scopes.path += name;
}
void pop_name_scope() noexcept {
  if (scopes.ends.empty()) return;
  scopes.path.resize(scopes.ends.back());
  scopes.ends.pop_back();
}

NameScope::NameScope(std::string_view name) : outer_(scopes.ends.size()) { push_name_scope(name); }
NameScope::~NameScope() {
  while (scopes.ends.size() > outer_) pop_name_scope();
}

}  // namespace arete
