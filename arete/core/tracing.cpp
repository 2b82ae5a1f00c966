#include "arete/core/tracing.h"

#include <cctype>
#include <mutex>

namespace arete::tracing {

namespace detail {
constinit std::atomic<Listener*> current{nullptr};
constinit std::atomic<uint32_t> plain_word{0};
}  // namespace detail

Listener* set_listener(Listener* listener) noexcept {
  static constexpr uint32_t kOfNoThread = ~0u;
  static std::mutex mutex;  // of two that set one the word must be the last one's, too
  const std::lock_guard lock(mutex);
  Listener* const before = detail::current.exchange(listener, std::memory_order_acq_rel);
  detail::plain_word.store(listener ? kOfNoThread : 0, std::memory_order_release);
  return before;
}

ThreadListener::ThreadListener()
    : outer_(modes().word & Modes::kObserve ? modes().listener : nullptr) {
  modes().listener = this;
  modes().word |= Modes::kObserve;
}

ThreadListener::~ThreadListener() {
  modes().listener = outer_;
  if (!outer_) modes().word &= ~uint32_t(Modes::kObserve);
}

void note_read(const Tensor& t, bool address) {
  if (!(modes().word & Modes::kObserve)) [[likely]]
    return;
  for (ThreadListener* l = modes().listener; l; l = l->outer_) l->read(t, address);
}

void note_hook(const Tensor& t) {
  if (!(modes().word & Modes::kObserve)) [[likely]]
    return;
  for (ThreadListener* l = modes().listener; l; l = l->outer_) l->hooked(t);
}

void note_detached(const Tensor& from, const Tensor& to) {
  if (!(modes().word & Modes::kObserve)) [[likely]]
    return;
  for (ThreadListener* l = modes().listener; l; l = l->outer_) l->detached(from, to);
}

bool is_written_down() noexcept {
  if (!(modes().word & Modes::kObserve)) [[likely]]
    return false;
  for (const ThreadListener* l = modes().listener; l; l = l->outer_)
    if (l->writes_down()) return true;
  return false;
}

std::string backward_name(std::string node_name) {
  if (node_name.empty() || node_name == "AccumulateGrad") return node_name;
  node_name[0] = char(std::toupper(static_cast<unsigned char>(node_name[0])));
  return node_name + "Backward0";
}

}  // namespace arete::tracing
