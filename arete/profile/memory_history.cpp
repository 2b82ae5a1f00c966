#include "arete/profile/memory_history.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "arete/core/modes.h"

namespace arete::memory {

namespace {

// Note [Recorded stacks]
// An event is recorded under the lock of an allocator, so a stack is kept as numbers: each frame is
// given one when it is first seen, each sequence of frames another. Frames of Python are described
// at once, while they are there; those of C++ only when a snapshot is taken, since finding names is
// slow.
constexpr int kNative = -1;      // in place of the line of a native frame
constexpr int kMostFrames = 64;  // of either kind
constexpr int kOwnFrames = 3;    // of the recorder, innermost

std::atomic<FrameSource*> frame_source{nullptr};

int64_t now_us() {
  return std::chrono::system_clock::now().time_since_epoch() / std::chrono::microseconds(1);
}

uint64_t thread_number() {
  static std::atomic<uint64_t> next{1};
  thread_local constinit uint64_t mine = 0;
  if (mine == 0) mine = next.fetch_add(1, std::memory_order_relaxed);
  return mine;
}

size_t mix(size_t seed, size_t value) {
  return seed ^ (value + 0x9e3779b97f4a7c15u + (seed << 6) + (seed >> 2));
}

struct PlaceHash {
  size_t operator()(const FrameSource::Place& p) const {
    return mix(std::hash<const void*>()(p.code), size_t(p.line));
  }
};
struct StackHash {
  size_t operator()(const std::vector<uint32_t>& v) const {
    size_t h = v.size();
    for (uint32_t i : v) h = mix(h, i);
    return h;
  }
};

Frame describe_native(const void* address) {
  Dl_info info{};
  // The address after a call may belong to what follows it.
  if (!dladdr(static_cast<const char*>(address) - 1, &info))
    return {"", fmt::format("{}", address), 0};
  Frame f;
  f.file = info.dli_fname ? info.dli_fname : "";
  const auto* base = static_cast<const char*>(info.dli_sname ? info.dli_saddr : info.dli_fbase);
  const ptrdiff_t offset = static_cast<const char*>(address) - base;
  if (!info.dli_sname) {
    f.function = fmt::format("{}+{:#x}", f.file.substr(f.file.rfind('/') + 1), offset);
    return f;
  }
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status), std::free);
  f.function = status == 0 ? name.get() : info.dli_sname;
  return f;
}

/// An event as it is kept.
struct Record {
  MemoryEvent event;
  int64_t time_us;
  uint64_t thread;
  const char* operator_name;
  uint32_t scope;
  StackId stack;
};

class Recorder final : public MemoryObserver {
 public:
  void start(const HistoryOptions& o) {
    bool add = false;
    {
      const std::lock_guard lock(mutex_);
      if (o.clear) forget();
      options_ = o;
      context_.store(o.context, std::memory_order_relaxed);
      native_.store(o.native_frames, std::memory_order_relaxed);
      add = !std::exchange(on_, true);
      drop_oldest();
    }
    if (add) add_memory_observer(this);
  }
  void stop() {
    bool remove = false;
    {
      const std::lock_guard lock(mutex_);
      remove = std::exchange(on_, false);
    }
    if (remove) remove_memory_observer(this);
    const std::lock_guard lock(mutex_);
    if (!on_) forget();
  }
  bool is_on() const {
    const std::lock_guard lock(mutex_);
    return on_;
  }

  void on_memory(const MemoryEvent& e) noexcept override {
    try {
      record(e);
    } catch (...) {
      // Out of host memory: the history has a gap, the program goes on.
    }
  }

  Snapshot snapshot() const {
    Snapshot s;
    std::vector<Record> events, live;
    std::vector<std::vector<uint32_t>> stacks;
    std::vector<Known> frames;
    std::vector<std::string> scopes;
    {
      const std::lock_guard lock(mutex_);
      events.assign(events_.begin(), events_.end());
      for (const auto& [key, r] : live_) live.push_back(r);
      stacks = stack_list_;
      frames = frames_;
      scopes = scope_list_;
      s.dropped = dropped_;
    }
    std::vector<std::optional<Frame>> described(frames.size());
    for (const auto& stack : stacks) {
      std::vector<Frame>& out = s.stacks.emplace_back();
      for (uint32_t i : stack) {
        if (!described[i])
          described[i] = frames[i].place.line == kNative ? describe_native(frames[i].place.code)
                                                         : frames[i].text;
        out.push_back(*described[i]);
      }
    }
    const auto entry = [&](const Record& r) {
      return Entry{r.event,         r.time_us, r.thread, r.operator_name ? r.operator_name : "",
                   scopes[r.scope], r.stack};
    };
    for (const Record& r : events) s.events.push_back(entry(r));
    for (const Record& r : live) s.live.push_back(entry(r));
    return s;
  }

 private:
  using Key = std::tuple<DeviceType, int8_t, uintptr_t>;
  struct Known {
    FrameSource::Place place;
    Frame text;  // empty for native ones
  };

  void record(const MemoryEvent& e) {
    using Action = MemoryEvent::Action;
    // Before the lock: what is slow, and what takes locks of others.
    std::vector<FrameSource::Place> places;
    const bool frees = e.action == Action::free;
    const Context context = context_.load(std::memory_order_relaxed);
    if (context == Context::all || (context >= Context::state && !frees)) collect(places);
    const std::lock_guard lock(mutex_);
    if (!on_) return;
    Record r{e, now_us(), thread_number(), modes().current_op, scope_id(), stack_id(places)};
    const Key key{e.device.type, e.device.index, e.address};
    if (e.action == Action::alloc) live_[key] = r;
    if (frees) live_.erase(key);
    if (!options_.events) return;
    if (context < Context::alloc) r.stack = 0;
    if (options_.max_entries == 0) {
      ++dropped_;
      return;
    }
    events_.push_back(r);
    drop_oldest();
  }

  void collect(std::vector<FrameSource::Place>& places) {
    if (FrameSource* const source = frame_source.load(std::memory_order_acquire))
      source->capture(places);
    if (!native_.load(std::memory_order_relaxed)) return;
    void* addresses[kMostFrames + kOwnFrames];
    const int n = backtrace(addresses, kMostFrames + kOwnFrames);
    for (int i = kOwnFrames; i < n; ++i) places.push_back({addresses[i], kNative});
  }

  StackId stack_id(const std::vector<FrameSource::Place>& places) {
    if (places.empty()) return 0;
    std::vector<uint32_t> stack;
    for (const FrameSource::Place& p : places) {
      const auto [it, fresh] = frame_ids_.emplace(p, uint32_t(frames_.size()));
      if (fresh) {
        FrameSource* source = frame_source.load(std::memory_order_acquire);
        frames_.push_back({p, p.line == kNative || !source ? Frame() : source->describe(p)});
      }
      stack.push_back(it->second);
    }
    const auto [it, fresh] = stack_ids_.emplace(stack, StackId(stack_list_.size()));
    if (fresh) stack_list_.push_back(std::move(stack));
    return it->second;
  }

  uint32_t scope_id() {
    const std::string& scope = current_name_scope();
    const auto [it, fresh] = scope_ids_.emplace(scope, uint32_t(scope_list_.size()));
    if (fresh) scope_list_.push_back(scope);
    return it->second;
  }

  void drop_oldest() {
    while (events_.size() > options_.max_entries) {
      events_.pop_front();
      ++dropped_;
    }
  }
  void forget() {
    events_.clear();
    live_.clear();
    dropped_ = 0;
    frame_ids_.clear();
    frames_.clear();
    stack_ids_.clear();
    stack_list_.assign(1, {});
    scope_ids_.clear();
    scope_list_.clear();
  }

  // Of the options, what is read without the lock.
  std::atomic<Context> context_{Context::all};
  std::atomic<bool> native_{true};
  mutable std::mutex mutex_;
  bool on_ = false;
  HistoryOptions options_;
  std::deque<Record> events_;
  std::map<Key, Record> live_;
  size_t dropped_ = 0;
  std::unordered_map<FrameSource::Place, uint32_t, PlaceHash> frame_ids_;
  std::vector<Known> frames_;
  std::unordered_map<std::vector<uint32_t>, StackId, StackHash> stack_ids_;
  std::vector<std::vector<uint32_t>> stack_list_{{}};
  std::unordered_map<std::string, uint32_t> scope_ids_;
  std::vector<std::string> scope_list_;
};

Recorder& recorder() {
  static Recorder* const r = new Recorder;  // static tensors may be freed after static objects
  return *r;
}

}  // namespace

void record_history(const HistoryOptions& options) { recorder().start(options); }
void stop_history() { recorder().stop(); }
bool is_recording_history() noexcept { return recorder().is_on(); }
Snapshot snapshot() { return recorder().snapshot(); }
void set_frame_source(FrameSource* source) noexcept {
  frame_source.store(source, std::memory_order_release);
}

std::vector<Entry> replay(const Snapshot& snapshot) {
  std::map<std::tuple<DeviceType, int8_t, uintptr_t>, const Entry*> live;
  for (const Entry& e : snapshot.events) {
    const std::tuple key{e.event.device.type, e.event.device.index, e.event.address};
    if (e.event.action == MemoryEvent::Action::alloc) live[key] = &e;
    if (e.event.action == MemoryEvent::Action::free) live.erase(key);
  }
  std::vector<Entry> out;
  for (const auto& [key, e] : live) out.push_back(*e);
  return out;
}

}  // namespace arete::memory
