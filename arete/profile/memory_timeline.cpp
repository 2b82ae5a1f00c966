#include "arete/profile/memory_timeline.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <unordered_map>

#include "arete/base/error.h"
#include "arete/base/gzip.h"
#include "arete/base/text.h"
#include "arete/device/cuda.h"

namespace arete::profile {
namespace {

/// Tells categories. See Note [Categories of memory].
class Judge {
 public:
  explicit Judge(const Trace& trace) : events_(trace.events), pass_end_(trace.events.size(), -1) {
    find_passes();
  }

  MemoryCategory category(const MemoryLife& life) const {
    if (life.event < 0) return MemoryCategory::unknown;
    // From the innermost event outwards, up to what decides.
    int64_t call = -1;
    bool remembered = false;
    for (int64_t i = life.event; i >= 0; i = events_[size_t(i)].parent) {
      const Event& e = events_[size_t(i)];
      if (e.kind == EventKind::call) {
        call = i;
        remembered = remembered || e.sequence >= 0;
      } else if (e.kind == EventKind::backward) {
        if (call >= 0 && !outlives(life, events_[size_t(call)].end_ns))
          return MemoryCategory::temporary;
        return outlives(life, pass_end_[size_t(i)]) ? MemoryCategory::gradient
                                                    : MemoryCategory::autograd_detail;
      } else if (e.kind == EventKind::optimizer && !remembered) {
        return outlives(life, e.end_ns) ? MemoryCategory::optimizer_state
                                        : MemoryCategory::temporary;
      }
    }
    if (call < 0) return MemoryCategory::unknown;
    if (!outlives(life, events_[size_t(call)].end_ns)) return MemoryCategory::temporary;
    return remembered ? MemoryCategory::activation : MemoryCategory::unknown;
  }

 private:
  static bool outlives(const MemoryLife& life, int64_t ns) {
    return life.end_ns < 0 || life.end_ns > ns;
  }

  // Of each backward function when its pass ended.
  void find_passes() {
    std::vector<bool> inside(events_.size());  // of a backward function, or one itself
    std::map<int, std::vector<size_t>> open;   // by thread: the functions of the present pass
    const auto close = [&](std::vector<size_t>& pass) {
      int64_t end = -1;
      for (size_t i : pass) end = std::max(end, events_[i].end_ns);
      for (size_t i : pass) pass_end_[i] = end;
      pass.clear();
    };
    for (size_t i = 0; i < events_.size(); ++i) {
      const Event& e = events_[i];
      const bool within = e.parent >= 0 && inside[size_t(e.parent)];
      inside[i] = within || e.kind == EventKind::backward;
      if (e.kind == EventKind::backward)
        open[e.thread].push_back(i);
      else if (!within && (e.kind == EventKind::optimizer || e.sequence >= 0))
        close(open[e.thread]);
    }
    for (auto& [thread, pass] : open) close(pass);
  }

  const std::vector<Event>& events_;
  std::vector<int64_t> pass_end_;
};

/// A change of what is held, in the order of time.
struct Step {
  int64_t ns;  // -1: before the recording
  int64_t bytes;
  const MemoryLife* life;
};

std::vector<Step> steps_of(const std::vector<MemoryLife>& lives, Device device) {
  std::vector<Step> steps;
  for (const MemoryLife& l : lives) {
    if (l.device != device) continue;
    steps.push_back({l.begin_ns, l.bytes, &l});
    if (l.end_ns >= 0) steps.push_back({l.end_ns, -l.bytes, &l});
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step& a, const Step& b) { return a.ns < b.ns; });
  return steps;
}

constexpr size_t kCategories = 8;

template <class T>
std::string json_list(const T& numbers) {
  std::string s = "[";
  for (int64_t n : numbers) s += (s.size() > 1 ? ", " : "") + std::to_string(n);
  return s + "]";
}

std::string sizes_json(const std::vector<Step>& steps, int64_t to_1970_ns) {
  std::string times = "[", sizes = "[";
  std::array<int64_t, kCategories + 1> held{};  // the first one stays 0: where the lowest begins
  int64_t first = -1;
  for (const Step& s : steps)
    if (s.ns >= 0 && first < 0) first = (s.ns + to_1970_ns) / 1000;
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto time = [&](const Step& s) { return s.ns < 0 ? -1 : (s.ns + to_1970_ns) / 1000; };
    held[size_t(steps[i].life->category) + 1] += steps[i].bytes;
    if (i + 1 < steps.size() && time(steps[i + 1]) == time(steps[i])) continue;
    times += (times.size() > 1 ? ", " : "") +
             std::to_string(time(steps[i]) < 0 ? std::max<int64_t>(first, 0) : time(steps[i]));
    sizes += (sizes.size() > 1 ? ", " : "") + json_list(held);
  }
  return "[" + times + "], " + sizes + "]]";
}

std::string raw_json(const std::vector<Step>& steps, int64_t to_1970_ns) {
  constexpr int64_t kWasThere = 1, kTaken = 2, kGivenBack = 4;
  std::string s = "[";
  for (const Step& step : steps) {
    const int64_t action = step.bytes < 0 ? kGivenBack : step.ns < 0 ? kWasThere : kTaken;
    s += (s.size() > 1 ? ", " : "") +
         json_list(std::array{step.ns < 0 ? -1 : step.ns + to_1970_ns, action, step.bytes,
                              int64_t(step.life->category)});
  }
  return s + "]";
}

std::string page(const Trace& trace, const std::vector<Step>& steps, int64_t to_1970_ns) {
  memory::Snapshot snapshot;
  snapshot.stacks.resize(1);
  // The page tells pieces of memory by their addresses; what was there before has none.
  std::unordered_map<const MemoryLife*, uintptr_t> places;
  for (const Step& s : steps) {
    const MemoryLife& l = *s.life;
    memory::Entry& e = snapshot.events.emplace_back();
    e.event.action = s.bytes > 0 ? MemoryEvent::Action::alloc : MemoryEvent::Action::free;
    e.event.device = l.device;
    e.event.address = places.try_emplace(&l, places.size() + 1).first->second;
    e.event.bytes = e.event.requested = size_t(l.bytes);
    e.time_us = ((s.ns < 0 ? trace.begin_ns : s.ns) + to_1970_ns) / 1000;
    e.thread = uint64_t(l.thread);
    if (l.event >= 0) e.operator_name = trace.events[size_t(l.event)].name;
    e.scope = name_of(l.category);
  }
  return memory::to_html(snapshot, "category");
}

}  // namespace

const char* name_of(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::optimizer_state:
      return "OPTIMIZER_STATE";
    case MemoryCategory::temporary:
      return "TEMPORARY";
    case MemoryCategory::activation:
      return "ACTIVATION";
    case MemoryCategory::gradient:
      return "GRADIENT";
    case MemoryCategory::autograd_detail:
      return "AUTOGRAD_DETAIL";
    case MemoryCategory::unknown:
      return "unknown";
  }
  ARETE_BUG("no such category");
}

std::vector<MemoryLife> memory_lives(const Trace& trace) {
  ARETE_CHECK(trace.with_memory, ValueError("memory_timeline", "the recording has no memory")
                                     .hint("profile with profile_memory=True"));
  using Key = std::tuple<DeviceType, int, uint64_t>;
  std::vector<MemoryLife> lives;
  std::map<Key, size_t> open;
  std::map<std::pair<DeviceType, int>, int64_t> before;
  for (const auto& [device, bytes] : trace.memory_before)
    before[{device.type, device.index}] = bytes;
  for (const MemoryChange& c : trace.memory) {
    const Key key{c.device.type, c.device.index, c.address};
    const auto it = open.find(key);
    if (c.bytes > 0) {
      open[key] = lives.size();
      lives.push_back({c.device, c.address, c.bytes, c.time_ns, -1, c.event, c.thread});
    } else if (it != open.end()) {
      lives[it->second].end_ns = c.time_ns;
      open.erase(it);
    } else {
      lives.push_back({c.device, c.address, -c.bytes, -1, c.time_ns});
      before[{c.device.type, c.device.index}] += c.bytes;
    }
  }
  for (const auto& [device, bytes] : before)
    if (bytes > 0) lives.push_back({Device(device.first, device.second), 0, bytes});
  std::stable_sort(lives.begin(), lives.end(), [](const MemoryLife& a, const MemoryLife& b) {
    return a.begin_ns < b.begin_ns;
  });
  const Judge judge(trace);
  for (MemoryLife& l : lives) l.category = judge.category(l);
  return lives;
}

void export_memory_timeline(const Trace& trace, const std::string& path, Device device) {
  const bool html = path.ends_with(".html"), raw = path.ends_with(".raw.json.gz");
  ARETE_CHECK(html || path.ends_with(".json.gz") || path.ends_with(".json"),
              ValueError("export_memory_timeline", "the file's name does not say what to write")
                  .argument("path")
                  .expected("a name that ends in .html, .json, .json.gz or .raw.json.gz")
                  .got(io::quote_text(path)));
  device = device.resolved();
  const bool is_known = std::any_of(trace.memory.begin(), trace.memory.end(),
                                    [&](const MemoryChange& c) { return c.device == device; });
  ARETE_CHECK(
      !device.is_cuda() || is_known || cuda::is_available(),
      DeviceError("export_memory_timeline", "there is no GPU: " + cuda::unavailable_reason())
          .argument("device")
          .got(device.to_string()));
  const std::vector<MemoryLife> lives = memory_lives(trace);
  const std::vector<Step> steps = steps_of(lives, device);
  const int64_t to_1970_ns = trace.wall_begin_us * 1000 - trace.begin_ns;
  const std::string text = html  ? page(trace, steps, to_1970_ns)
                           : raw ? raw_json(steps, to_1970_ns)
                                 : sizes_json(steps, to_1970_ns);
  io::write_text(path, text);
}

}  // namespace arete::profile
