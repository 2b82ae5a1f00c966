#include "arete/profile/trace.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>

namespace arete::profile {

const char* category_of(EventKind kind) {
  switch (kind) {
    case EventKind::user:
      return "user_annotation";
    case EventKind::host:
      return "host_sync";
    default:
      return "cpu_op";
  }
}

std::string format_time(double microseconds) {
  char text[48];
  if (std::abs(microseconds) >= 1e6)
    std::snprintf(text, sizeof text, "%.3fs", microseconds / 1e6);
  else if (std::abs(microseconds) >= 1e3)
    std::snprintf(text, sizeof text, "%.3fms", microseconds / 1e3);
  else
    std::snprintf(text, sizeof text, "%.3fus", microseconds);
  return text;
}

std::string format_memory(int64_t bytes) {
  const double size = std::abs(double(bytes));
  char text[48];
  if (size >= double(1 << 30))
    std::snprintf(text, sizeof text, "%.2f GB", double(bytes) / (1 << 30));
  else if (size >= double(1 << 20))
    std::snprintf(text, sizeof text, "%.2f MB", double(bytes) / (1 << 20));
  else if (size >= 1024)
    std::snprintf(text, sizeof text, "%.2f KB", double(bytes) / 1024);
  else
    std::snprintf(text, sizeof text, "%lld B", static_cast<long long>(bytes));
  return text;
}

// ---- the tree

namespace {

// Adds what each event has of its own to the events around it. Parents come before their children.
void add_up(std::vector<Event>& events) {
  for (Event& e : events) {
    e.cpu_memory = e.self_cpu_memory;
    e.device_memory = e.self_device_memory;
    e.device_ns = e.self_device_ns;
    e.child_ns = 0;
  }
  for (size_t i = events.size(); i-- > 0;) {
    const Event& e = events[i];
    if (e.parent < 0) continue;
    Event& p = events[size_t(e.parent)];
    p.child_ns += e.duration_ns();
    p.cpu_memory += e.cpu_memory;
    p.device_memory += e.device_memory;
    p.device_ns += e.device_ns;
  }
}

}  // namespace

void Trace::finish() {
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tie(a.begin_ns, a.id) < std::tie(b.begin_ns, b.id);
  });
  std::unordered_map<uint64_t, int64_t> index;
  index.reserve(events.size());
  // Within a thread ids grow, so that a parent, which began before or at the same nanosecond, has
  // been seen. One that is still open was not recorded: its children have no parent.
  for (size_t i = 0; i < events.size(); ++i) {
    index.emplace(events[i].id, int64_t(i));
    const auto outer = index.find(uint64_t(events[i].parent));
    events[i].parent = outer == index.end() ? -1 : outer->second;
  }
  const auto find = [&](uint64_t id) {
    const auto it = index.find(id);
    return it == index.end() ? int64_t(-1) : it->second;
  };
  if (device_times == DeviceTimes::events) {
    // Events around an operator span those of the operators it runs.
    std::vector<int64_t> inner(events.size(), 0);
    for (const Event& e : events)
      if (e.parent >= 0) inner[size_t(e.parent)] += e.self_device_ns;
    for (size_t i = 0; i < events.size(); ++i)
      if (events[i].self_device_ns)
        events[i].self_device_ns = std::max<int64_t>(0, events[i].self_device_ns - inner[i]);
  }
  activity_events.clear();
  for (const prim::DeviceActivity& a : activities) {
    const int64_t at = find(a.range);
    activity_events.push_back(at);
    if (at >= 0) events[size_t(at)].self_device_ns += a.end_ns - a.begin_ns;
  }
  std::sort(memory.begin(), memory.end(),
            [](const MemoryChange& a, const MemoryChange& b) { return a.time_ns < b.time_ns; });
  std::map<std::pair<DeviceType, int>, int64_t> totals;
  for (const auto& [device, bytes] : memory_before) totals[{device.type, device.index}] = bytes;
  for (MemoryChange& c : memory) {
    int64_t& total = totals[{c.device.type, c.device.index}];
    total += c.bytes;
    c.total = total;
    c.event = find(uint64_t(c.event));
    if (c.event < 0) continue;
    Event& e = events[size_t(c.event)];
    (c.device.is_cpu() ? e.self_cpu_memory : e.self_device_memory) += c.bytes;
  }
  add_up(events);
}

// ---- averages

std::string Event::key() const {
  return kind == EventKind::user && name.starts_with("ProfilerStep#") ? "ProfilerStep*" : name;
}

namespace {

void add(Average& a, const Event& e) {
  ++a.count;
  a.cpu_time_total += double(e.duration_ns()) / 1e3;
  a.self_cpu_time_total += double(e.self_ns()) / 1e3;
  a.device_time_total += double(e.device_ns) / 1e3;
  a.self_device_time_total += double(e.self_device_ns) / 1e3;
  a.cpu_memory_usage += e.cpu_memory;
  a.self_cpu_memory_usage += e.self_cpu_memory;
  a.device_memory_usage += e.device_memory;
  a.self_device_memory_usage += e.self_device_memory;
  a.flops += e.flops;
  a.bytes += e.bytes;
}

void add(Average& a, const prim::DeviceActivity& d) {
  ++a.count;
  a.device_time_total += double(d.end_ns - d.begin_ns) / 1e3;
  a.self_device_time_total += double(d.end_ns - d.begin_ns) / 1e3;
}

// Nothing added up yet.
Average average_like(const Event& e) {
  Average a;
  a.key = e.key();
  a.kind = e.kind;
  a.user = e.kind == EventKind::user;
  return a;
}

Average average_like(const prim::DeviceActivity& d) {
  Average a;
  a.key = d.name;
  a.on_device = true;
  return a;
}

}  // namespace

Average Trace::row_of(const Event& e) const {
  Average a = average_like(e);
  a.shapes = e.shapes;
  a.stack = e.stack;
  add(a, e);
  if (e.parent < 0) a.outermost = std::make_shared<Average>(a);
  return a;
}

Average Trace::row_of(const prim::DeviceActivity& d) const {
  Average a = average_like(d);
  add(a, d);
  return a;
}

Event Trace::event_of(const prim::DeviceActivity& d) {
  Event e;
  e.name = d.name;
  e.id = d.correlation;
  e.thread = int(d.stream);
  e.begin_ns = d.begin_ns;
  e.end_ns = d.end_ns;
  e.device = d.device;
  e.device_ns = e.self_device_ns = d.end_ns - d.begin_ns;
  if (d.kind != prim::DeviceActivity::Kind::kernel) e.bytes = int64_t(d.bytes);
  return e;
}

std::vector<Average> Trace::key_averages(bool by_shape, int stack) const {
  std::vector<Average> all;
  std::vector<std::shared_ptr<Average>> outermost;  // beside `all`
  std::map<std::string, size_t> where;
  const auto find = [&](const std::string& key) -> std::pair<size_t, bool> {
    const auto [it, fresh] = where.try_emplace(key, all.size());
    if (fresh) {
      all.emplace_back();
      outermost.emplace_back();
    }
    return {it->second, fresh};
  };
  for (const Event& e : events) {
    if (hides_host()) break;
    std::string key = e.key();
    key += e.kind == EventKind::user ? '\1' : '\2';
    if (by_shape)
      for (const auto& s : e.shapes) {
        key += '[';
        for (int64_t n : s) key += std::to_string(n) + ',';
        key += ']';
      }
    const size_t frames = std::min(e.stack.size(), size_t(std::max(stack, 0)));
    for (size_t i = 0; i < frames; ++i) key += '\n' + e.stack[i];
    const auto start = [&](Average& a) {
      a = average_like(e);
      if (by_shape) a.shapes = e.shapes;
      a.stack.assign(e.stack.begin(), e.stack.begin() + std::ptrdiff_t(frames));
    };
    const auto [at, fresh] = find(key);
    if (fresh) start(all[at]);
    add(all[at], e);
    if (e.parent >= 0) continue;
    if (!outermost[at]) {
      outermost[at] = std::make_shared<Average>();
      start(*outermost[at]);
    }
    add(*outermost[at], e);
  }
  for (size_t i = 0; i < all.size(); ++i) all[i].outermost = outermost[i];
  for (const prim::DeviceActivity& d : activities) {
    const auto [at, fresh] = find(d.name + '\3');
    if (fresh) all[at] = average_like(d);
    add(all[at], d);
  }
  int64_t outside_cpu = 0, outside_device = 0, outside = 0;
  for (const MemoryChange& c : memory) {
    if (c.event >= 0) continue;
    ++outside;
    (c.device.is_cpu() ? outside_cpu : outside_device) += c.bytes;
  }
  if (outside > 0) {
    Average& a = all[find("[memory]\3").first];
    a.key = "[memory]";
    a.count = outside;
    a.cpu_memory_usage = a.self_cpu_memory_usage = outside_cpu;
    a.device_memory_usage = a.self_device_memory_usage = outside_device;
    a.outermost = std::make_shared<Average>(a);
  }
  return all;
}

Average Trace::total_average() const {
  Average t;
  t.key = "Total";
  for (const Average& a : key_averages()) {
    t.count += a.count;
    t.self_cpu_time_total += a.self_cpu_time_total;
    t.cpu_time_total += a.cpu_time_total;
    // What a kernel took stands in its operator's row already.
    const bool again = a.on_device && !hides_host();
    t.device_time_total += again ? 0 : a.device_time_total;
    t.self_device_time_total += again ? 0 : a.self_device_time_total;
    t.cpu_memory_usage += a.cpu_memory_usage;
    t.self_cpu_memory_usage += a.self_cpu_memory_usage;
    t.device_memory_usage += a.device_memory_usage;
    t.self_device_memory_usage += a.self_device_memory_usage;
    t.flops += a.flops;
    t.bytes += a.bytes;
  }
  return t;
}

// ---- waits and copies

std::vector<Synchronization> Trace::synchronizations() const {
  std::vector<Synchronization> all;
  for (const Event& e : events) {
    if (e.kind != EventKind::host) continue;
    Synchronization s;
    s.what = e.host.what;
    using Kind = tracing::HostEvent::Kind;
    s.kind = e.host.kind == Kind::synchronize ? "wait"
             : e.host.kind == Kind::to_host   ? "to host"
             : e.host.kind == Kind::from_host ? "from host"
                                              : "peer";
    s.device = e.host.device.to_string();
    s.bytes = e.host.bytes;
    s.blocking = e.host.blocking;
    s.begin_ns = e.begin_ns;
    s.host_time = double(e.duration_ns()) / 1e3;
    for (int64_t p = e.parent; p >= 0 && s.operator_name.empty(); p = events[size_t(p)].parent)
      if (events[size_t(p)].kind != EventKind::host) s.operator_name = events[size_t(p)].name;
    if (!e.stack.empty()) s.source = e.stack.front();
    all.push_back(std::move(s));
  }
  return all;
}

}  // namespace arete::profile
