// Histories of memory as JSON, as a pickle and as a page.
#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "arete/base/error.h"
#include "arete/base/file.h"
#include "arete/base/text.h"
#include "arete/profile/memory_history.h"
#include "arete/profile/memory_page_internal.h"

namespace arete::memory {

namespace {

using Action = MemoryEvent::Action;

const char* name_of(Action a) {
  switch (a) {
    case Action::alloc:
      return "alloc";
    case Action::free:
      return "free";
    case Action::segment_alloc:
      return "segment_alloc";
    case Action::segment_free:
      return "segment_free";
    case Action::segment_map:
      return "segment_map";
    case Action::segment_unmap:
      return "segment_unmap";
    case Action::out_of_memory:
      return "oom";
  }
  ARETE_BUG("no such action");
}

std::string json_of(const Entry& e) {
  return fmt::format(
      R"({{"action":"{}","device":"{}","pinned":{},"addr":{},"size":{},"requested":{},"stream":{},)"
      R"("time_us":{},"thread":{},"operator":{},"scope":{},"stack":{}}})",
      name_of(e.event.action), e.event.device.to_string(), e.event.pinned, e.event.address,
      e.event.bytes, e.event.requested, uintptr_t(e.event.stream), e.time_us, e.thread,
      io::json_string(e.operator_name), io::json_string(e.scope), e.stack);
}

template <class T, class F>
std::string json_list(const std::vector<T>& all, F&& text) {
  std::string s = "[";
  for (size_t i = 0; i < all.size(); ++i) {
    if (i) s += ",\n";
    s += text(all[i]);
  }
  return s + "]";
}

/// Writes Python's pickle format, protocol 2: numbers, texts, lists and dicts.
class Pickle {
 public:
  Pickle() { out_ = "\x80\x02"; }
  void number(int64_t v) {
    if (v >= INT32_MIN && v <= INT32_MAX) {
      out_ += 'J';
      little_endian(uint64_t(v), 4);
    } else {
      out_ += "\x8a\x08";
      little_endian(uint64_t(v), 8);
    }
  }
  void boolean(bool v) { out_ += v ? '\x88' : '\x89'; }
  void text(std::string_view s) {
    // What is no UTF-8 (a name in a library) would make the whole file unreadable.
    std::string valid;
    for (size_t i = 0; i < s.size();) {
      const size_t n = io::utf8_sequence_length(s.substr(i));
      valid += n ? s.substr(i, n) : std::string_view("?");
      i += std::max<size_t>(n, 1);
    }
    out_ += 'X';
    little_endian(valid.size(), 4);
    out_ += valid;
  }
  void begin_list() { out_ += "]("; }
  void end_list() { out_ += 'e'; }
  void begin_dict() { out_ += "}("; }
  void end_dict() { out_ += 'u'; }
  /// The two of a pair, which must have been written before.
  void close_pair() { out_ += '\x86'; }
  /// Keeps what was written last, to be repeated.
  uint32_t keep() {
    out_ += 'r';
    little_endian(kept_, 4);
    return kept_++;
  }
  void repeat(uint32_t kept) {
    out_ += 'j';
    little_endian(kept, 4);
  }
  void key(std::string_view name, int64_t value) {
    text(name);
    number(value);
  }
  std::string finish() {
    out_ += '.';
    return std::move(out_);
  }

 private:
  void little_endian(uint64_t v, int bytes) {
    for (int i = 0; i < bytes; ++i) out_ += char(v >> (8 * i));
  }
  std::string out_;
  uint32_t kept_ = 0;
};

/// The pickle of one snapshot.
class ViewerFile {
 public:
  explicit ViewerFile(const Snapshot& s) : s_(s), kept_(std::max<size_t>(s.stacks.size(), 1)) {
    for (const auto* list : {&s.events, &s.live})
      for (const Entry& e : *list)
        if (e.event.device.is_cuda()) gpus_ = std::max(gpus_, e.event.device.index + 1);
  }

  std::string write() {
    p_.begin_dict();
    p_.text("segments");
    p_.begin_list();
    segments();
    p_.end_list();
    p_.text("device_traces");
    p_.begin_list();
    for (int d = 0; d <= gpus_; ++d) {
      p_.begin_list();
      for (const Entry& e : s_.events)
        if (number_of(e) == d) event(e);
      p_.end_list();
    }
    p_.end_list();
    p_.text("external_annotations");
    p_.begin_list();
    p_.end_list();
    p_.key("host_device", gpus_);  // ours: which of the devices is the CPU
    p_.text("allocator_settings");
    p_.begin_dict();
    p_.text("expandable_segments");
    p_.boolean(gpus_ > 0);
    p_.end_dict();
    p_.end_dict();
    return p_.finish();
  }

 private:
  /// The CPU is the device after the last GPU.
  int number_of(const Entry& e) const {
    return e.event.device.is_cuda() ? e.event.device.index : gpus_;
  }

  void frames(const Entry& e) {
    p_.text("frames");
    std::optional<uint32_t>& kept = kept_[e.stack];
    if (kept) return p_.repeat(*kept);
    p_.begin_list();
    if (e.stack < s_.stacks.size())
      for (const Frame& f : s_.stacks[e.stack]) {
        p_.begin_dict();
        p_.text("filename");
        p_.text(f.file);
        p_.key("line", f.line);
        p_.text("name");
        p_.text(f.function);
        p_.end_dict();
      }
    p_.end_list();
    kept = p_.keep();
  }

  void step(const char* action, const Entry& e, uintptr_t address, size_t bytes) {
    p_.begin_dict();
    p_.text("action");
    p_.text(action);
    p_.key("addr", int64_t(address));
    p_.key("size", int64_t(bytes));
    p_.key("stream", int64_t(uintptr_t(e.event.stream)));
    p_.key("time_us", e.time_us);
    if (e.event.action == Action::out_of_memory) p_.key("device_free", 0);
    p_.text("compile_context");
    p_.text(e.operator_name);
    p_.text("user_metadata");
    p_.text(e.scope);
    frames(e);
    p_.end_dict();
  }

  void event(const Entry& e) {
    const MemoryEvent& m = e.event;
    const bool host = !m.device.is_cuda();
    switch (m.action) {
      case Action::alloc:
        // The viewer knows blocks as parts of segments; in host memory each is its own.
        if (host) step("segment_alloc", e, m.address, m.bytes);
        return step("alloc", e, m.address, m.bytes);
      case Action::free:
        step("free_requested", e, m.address, m.bytes);
        step("free_completed", e, m.address, m.bytes);
        if (host) step("segment_free", e, m.address, m.bytes);
        return;
      default:
        return step(name_of(m.action), e, m.address, m.bytes);
    }
  }

  /// A run of addresses with memory behind them.
  struct Range {
    int device;
    uintptr_t begin;
    size_t bytes;
    bool expandable;
  };

  /// What events say the allocators hold.
  std::vector<Range> held() const {
    std::map<std::pair<int, uintptr_t>, std::pair<size_t, bool>> chunks;
    for (const Entry& e : s_.events) {
      const std::pair key{number_of(e), e.event.address};
      if (e.event.action == Action::segment_alloc) chunks[key] = {e.event.bytes, false};
      if (e.event.action == Action::segment_free) chunks.erase(key);
      if (e.event.action == Action::segment_map) chunks[key] = {e.event.bytes, true};
      if (e.event.action == Action::segment_unmap) unmap(chunks, key, e.event.bytes);
    }
    std::vector<Range> out;
    for (const auto& [key, value] : chunks) {
      Range* last = out.empty() ? nullptr : &out.back();
      if (last && value.second && last->expandable && last->device == key.first &&
          last->begin + last->bytes == key.second)
        last->bytes += value.first;
      else
        out.push_back({key.first, key.second, value.first, value.second});
    }
    return out;
  }

  template <class Chunks>
  static void unmap(Chunks& chunks, const std::pair<int, uintptr_t>& key, size_t bytes) {
    const uintptr_t begin = key.second, end = begin + bytes;
    // Whole or parts of what was mapped at once.
    for (auto it = chunks.begin(); it != chunks.end();) {
      const auto [at, value] = *it;
      const uintptr_t first = at.second, last = first + value.first;
      if (at.first != key.first || !value.second || last <= begin || first >= end) {
        ++it;
        continue;
      }
      it = chunks.erase(it);
      if (first < begin) chunks[{at.first, first}] = {begin - first, true};
      if (last > end) it = chunks.insert({{at.first, end}, {last - end, true}}).first;
    }
  }

  void segments() {
    std::vector<Range> ranges = held();
    std::vector<std::vector<const Entry*>> inside(ranges.size());
    for (const Entry& e : s_.live) {
      const int d = number_of(e);
      const auto it = std::find_if(ranges.begin(), ranges.end(), [&](const Range& r) {
        return r.device == d && e.event.address >= r.begin && e.event.address < r.begin + r.bytes;
      });
      if (it != ranges.end()) {
        inside[size_t(it - ranges.begin())].push_back(&e);
        continue;
      }
      // In host memory, or in memory that was there before the history began.
      ranges.push_back({d, e.event.address, e.event.bytes, false});
      inside.push_back({&e});
    }
    for (size_t i = 0; i < ranges.size(); ++i) segment(ranges[i], inside[i]);
  }

  void segment(const Range& r, std::vector<const Entry*> blocks) {
    std::sort(blocks.begin(), blocks.end(),
              [](const Entry* a, const Entry* b) { return a->event.address < b->event.address; });
    size_t active = 0, requested = 0;
    for (const Entry* e : blocks) {
      active += e->event.bytes;
      requested += e->event.requested;
    }
    static const Entry nothing;
    const Entry& first = blocks.empty() ? nothing : *blocks[0];
    p_.begin_dict();
    p_.key("device", r.device);
    p_.key("address", int64_t(r.begin));
    p_.key("total_size", int64_t(r.bytes));
    p_.key("allocated_size", int64_t(active));
    p_.key("active_size", int64_t(active));
    p_.key("requested_size", int64_t(requested));
    p_.key("stream", int64_t(uintptr_t(first.event.stream)));
    p_.text("segment_type");
    p_.text("large");
    p_.text("segment_pool_id");
    p_.number(0);
    p_.number(0);
    p_.close_pair();
    p_.text("is_expandable");
    p_.boolean(r.expandable);
    frames(nothing);
    p_.text("blocks");
    p_.begin_list();
    uintptr_t at = r.begin;
    for (const Entry* e : blocks) {
      if (e->event.address > at) block(nothing, at, e->event.address - at, 0, "inactive");
      block(*e, e->event.address, e->event.bytes, e->event.requested, "active_allocated");
      at = e->event.address + e->event.bytes;
    }
    if (at < r.begin + r.bytes) block(nothing, at, r.begin + r.bytes - at, 0, "inactive");
    p_.end_list();
    p_.end_dict();
  }

  void block(const Entry& e, uintptr_t address, size_t bytes, size_t requested, const char* state) {
    p_.begin_dict();
    p_.key("address", int64_t(address));
    p_.key("size", int64_t(bytes));
    p_.key("requested_size", int64_t(requested));
    p_.text("state");
    p_.text(state);
    frames(e);
    p_.end_dict();
  }

  const Snapshot& s_;
  Pickle p_;
  int gpus_ = 0;
  std::vector<std::optional<uint32_t>> kept_;
};

/// The line of the user's program in a stack: the innermost Python frame outside of this package,
/// else the innermost C++ function outside of this library.
std::string place_of(const std::vector<Frame>& stack) {
  const auto has = [](const Frame& f, const char* part) {
    return f.file.find(part) != std::string::npos;
  };
  const auto is_ours = [&](const Frame& f) {
    if (f.line > 0)
      return has(f, "-packages/arete/") || has(f, "python/arete/") || has(f, "<frozen");
    return has(f, "libarete") || has(f, "python") || has(f, "/arete/_C.") || has(f, "libgomp");
  };
  const Frame* native = nullptr;
  for (const Frame& f : stack) {
    if (is_ours(f)) continue;
    if (f.line > 0)
      return f.file.substr(f.file.rfind('/') + 1) + ":" + std::to_string(f.line) + " " + f.function;
    if (!native) native = &f;
  }
  return native ? native->function : "";
}

/// Texts by number, each once.
class Names {
 public:
  size_t of(const std::string& text) {
    const auto [it, fresh] = ids_.emplace(text, list_.size());
    if (fresh) list_.push_back(text);
    return it->second;
  }
  std::string json() const {
    return json_list(list_, [](const std::string& t) { return io::json_string(t); });
  }

 private:
  std::unordered_map<std::string, size_t> ids_;
  std::vector<std::string> list_;
};

}  // namespace

std::string to_json(const Snapshot& s) {
  std::string out = "{\"format\":\"arete memory history\",\"version\":1,\"dropped\":" +
                    std::to_string(s.dropped) + ",\n\"stacks\":";
  out += json_list(s.stacks, [](const std::vector<Frame>& stack) {
    std::string t = "[";
    for (size_t i = 0; i < stack.size(); ++i)
      t += fmt::format(R"({}{{"filename":{},"line":{},"name":{}}})", i ? "," : "",
                       io::json_string(stack[i].file), stack[i].line,
                       io::json_string(stack[i].function));
    return t + "]";
  });
  out += ",\n\"events\":" + json_list(s.events, json_of);
  out += ",\n\"live\":" + json_list(s.live, json_of) + "}\n";
  return out;
}

std::string to_pickle(const Snapshot& s) { return ViewerFile(s).write(); }

std::string to_html(const Snapshot& s, std::string_view word) {
  // One row for each allocation: when, until when, bytes, device and who, and the events' numbers,
  // since many happen in one microsecond.
  struct Life {
    const Entry* entry;
    size_t begin_event;
    int64_t end = -1;
    size_t end_event = 0;
  };
  std::vector<Life> lives;
  std::map<std::tuple<DeviceType, int8_t, uintptr_t>, size_t> open;
  const int64_t start = s.events.empty() ? 0 : s.events.front().time_us;
  int64_t last = 0;
  for (size_t i = 0; i < s.events.size(); ++i) {
    const Entry& e = s.events[i];
    const std::tuple key{e.event.device.type, e.event.device.index, e.event.address};
    last = e.time_us - start;
    if (e.event.action == Action::alloc) {
      open[key] = lives.size();
      lives.push_back({&e, i});
    } else if (const auto it = open.find(key); e.event.action == Action::free && it != open.end()) {
      lives[it->second].end = last;
      lives[it->second].end_event = i;
      open.erase(it);
    }
  }
  Names devices, operators, scopes, places;
  std::vector<std::string> place_of_stack;
  for (const auto& stack : s.stacks) place_of_stack.push_back(place_of(stack));
  std::string rows = json_list(lives, [&](const Life& l) {
    const Entry& e = *l.entry;
    const std::string device = e.event.device.to_string() + (e.event.pinned ? " (pinned)" : "");
    return fmt::format("[{},{},{},{},{},{},{},{},{},{}]", e.time_us - start, l.end, e.event.bytes,
                       devices.of(device), operators.of(e.operator_name), scopes.of(e.scope),
                       places.of(e.stack < place_of_stack.size() ? place_of_stack[e.stack] : ""),
                       e.stack, l.begin_event, l.end_event);
  });
  std::string data = "{\"last\":" + std::to_string(last) + ",\"scope\":" + io::json_string(word) +
                     ",\"dropped\":" + std::to_string(s.dropped) + ",\"rows\":" + rows +
                     ",\"devices\":" + devices.json() + ",\"operators\":" + operators.json() +
                     ",\"scopes\":" + scopes.json() + ",\"places\":" + places.json() +
                     ",\"stacks\":";
  data += json_list(s.stacks, [](const std::vector<Frame>& stack) {
    std::string text;
    for (const Frame& f : stack)
      text += f.function + (f.file.empty() ? "" : "  " + f.file) +
              (f.line > 0 ? ":" + std::to_string(f.line) : "") + "\n";
    return io::json_string(text);
  });
  data += "}";
  // In a script element, "</" would end it wherever it stands.
  std::string safe;
  for (size_t i = 0; i < data.size(); ++i) {
    safe += data[i];
    if (data[i] == '<') safe.replace(safe.size() - 1, 1, "\\u003c");
  }
  return std::string(kMemoryPageHead) + safe + std::string(kMemoryPageTail);
}

void dump_snapshot(const std::string& path) { dump_snapshot(path, snapshot()); }

void dump_snapshot(const std::string& path, const Snapshot& s) {
  const bool html = path.ends_with(".html"), json = path.ends_with(".json");
  ARETE_CHECK(html || json || path.ends_with(".pickle") || path.ends_with(".pkl"),
              ValueError("dump_snapshot", "the name of the file does not say what to write")
                  .argument("path")
                  .expected("a name that ends in .json, .html, .pickle or .pkl")
                  .got(io::quote_text(path)));
  io::AtomicFile file(path);
  file.write(html ? to_html(s) : json ? to_json(s) : to_pickle(s));
  file.commit();
}

}  // namespace arete::memory
