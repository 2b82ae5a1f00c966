// Trace events in JSON: what Perfetto, chrome://tracing and TensorBoard's plug-in read.
//
// Note [Layout of a trace file]
// Times are microseconds since the recording began. The host is the process with its own number,
// each of its threads a track; a GPU is a process with a small number, each stream a track. Arrows:
// "ac2g" from the call that started a piece of GPU work to that work, "fwdbwd" from a forward call
// to its backward function. An arrow binds to the slice that encloses its end on that track.
#include <unistd.h>

#include <cstdio>
#include <map>
#include <set>
#include <variant>

#include "arete/base/cpu_name.h"
#include "arete/base/file.h"
#include "arete/base/gzip.h"
#include "arete/base/text.h"
#include "arete/device/cuda.h"
#include "arete/profile/trace.h"

namespace arete::profile {
namespace {

class Writer {
 public:
  Writer(const Trace& trace, int64_t base_ns) : trace_(trace), base_ns_(base_ns) {}

  std::string run() {
    out_ = "{\n\"schemaVersion\": 1,\n\"displayTimeUnit\": \"ms\",\n\"baseTimeNanoseconds\": " +
           std::to_string(trace_.wall_begin_us * 1000) +
           ",\n\"cpu\": " + io::json_string(cpu_name()) + ",\n\"deviceProperties\": [" + devices() +
           "],\n\"deviceTimes\": \"" +
           (trace_.device_times == DeviceTimes::traced   ? "CUPTI"
            : trace_.device_times == DeviceTimes::events ? "CUDA events"
                                                         : "none") +
           "\"";
    if (!trace_.trace_id.empty()) out_ += ",\n\"trace_id\": " + io::json_string(trace_.trace_id);
    for (const auto& [key, json] : trace_.metadata)
      out_ += ",\n" + io::json_string(key) + ": " + json;
    out_ += ",\n\"traceEvents\": [";
    metadata();
    if (trace_.with_cpu)
      for (const Event& e : trace_.events) event(e);
    for (size_t i = 0; i < trace_.activities.size(); ++i) activity(i);
    if (trace_.with_cpu) forward_to_backward();
    memory();
    return std::move(out_) + "\n]\n}\n";
  }

 private:
  std::string time(int64_t ns) const {
    char text[48];
    std::snprintf(text, sizeof text, "%.3f", double(ns - base_ns_) / 1e3);
    return text;
  }
  static std::string duration(int64_t ns) {
    char text[48];
    std::snprintf(text, sizeof text, "%.3f", double(ns) / 1e3);
    return text;
  }

  void open(const char* phase, const std::string& category, const std::string& name, int64_t pid,
            int64_t tid, int64_t at) {
    out_ += first_ ? "\n" : ",\n";
    first_ = false;
    out_ += std::string("{\"ph\": \"") + phase + "\", \"cat\": \"" + category +
            "\", \"name\": " + io::json_string(name) + ", \"pid\": " + std::to_string(pid) +
            ", \"tid\": " + std::to_string(tid) + ", \"ts\": " + time(at);
  }

  // "" for what is no number.
  static std::string text_of(const Value& v) {
    if (const bool* b = std::get_if<bool>(&v)) return *b ? "True" : "False";
    if (const int64_t* i = std::get_if<int64_t>(&v)) return std::to_string(*i);
    if (const double* d = std::get_if<double>(&v)) return io::json_number(*d);
    std::string text;
    if (const auto* l = std::get_if<std::vector<int64_t>>(&v)) {
      for (const int64_t i : *l) text += (text.empty() ? "[" : ", ") + std::to_string(i);
      return text.empty() ? "[]" : text + "]";
    }
    return text;
  }

  static std::string devices() {
    std::string text;
    if (!cuda::is_available()) return text;
    for (int i = 0; i < cuda::device_count(); ++i) {
      const DeviceProperties p = cuda::get_device_properties(i);
      text += std::string(i ? ", " : "") + "{\"id\": " + std::to_string(i) +
              ", \"name\": " + io::json_string(p.name) +
              ", \"totalGlobalMem\": " + std::to_string(p.total_memory) +
              ", \"computeMajor\": " + std::to_string(p.major) +
              ", \"computeMinor\": " + std::to_string(p.minor) +
              ", \"numSms\": " + std::to_string(p.multi_processor_count) + "}";
    }
    return text;
  }

  void label(const char* what, int64_t pid, int64_t tid, const std::string& name) {
    open("M", "", what, pid, tid, base_ns_);
    out_ += ", \"args\": {\"name\": " + io::json_string(name) + "}}";
  }

  void metadata() {
    label("process_name", pid_, 0, "host");
    for (size_t i = 1; i < trace_.thread_names.size(); ++i)
      if (!trace_.thread_names[i].empty())
        label("thread_name", pid_, int64_t(i), trace_.thread_names[i]);
    std::map<int, std::set<uint32_t>> streams;
    for (const auto& a : trace_.activities) streams[a.device.index].insert(a.stream);
    for (const auto& [device, numbers] : streams) {
      label("process_name", device, 0, "GPU " + std::to_string(device));
      for (const uint32_t s : numbers)
        label("thread_name", device, s, "stream " + std::to_string(s));
    }
  }

  void event(const Event& e) {
    open("X", category_of(e.kind), e.name, pid_, e.thread, e.begin_ns);
    out_ += ", \"dur\": " + duration(e.duration_ns()) +
            ", \"args\": {\"External id\": " + std::to_string(e.id);
    if (e.sequence >= 0) out_ += ", \"Sequence number\": " + std::to_string(e.sequence);
    if (trace_.with_shapes && e.kind == EventKind::call) {
      out_ += ", \"Input Dims\": [";
      for (size_t i = 0; i < e.shapes.size(); ++i) {
        out_ += i ? ", [" : "[";
        for (size_t k = 0; k < e.shapes[i].size(); ++k)
          out_ += (k ? ", " : "") + std::to_string(e.shapes[i][k]);
        out_ += ']';
      }
      out_ += "], \"Input type\": [";
      for (size_t i = 0; i < e.dtypes.size(); ++i) out_ += (i ? ", \"" : "\"") + e.dtypes[i] + "\"";
      out_ += ']';
    }
    if (!e.values.empty()) {
      out_ += ", \"Concrete Inputs\": [";
      for (size_t i = 0; i < e.values.size(); ++i)
        out_ += (i ? ", " : "") + io::json_string(text_of(e.values[i]));
      out_ += ']';
    }
    if (!e.device.is_cpu()) out_ += ", \"Device\": \"" + e.device.to_string() + "\"";
    if (e.flops > 0) out_ += ", \"FLOPs\": " + io::json_number(e.flops);
    if (e.bytes > 0) out_ += ", \"Bytes\": " + std::to_string(e.bytes);
    if (e.kind == EventKind::host) {
      out_ += std::string(", \"What\": \"") + e.host.what +
              "\", \"Transferred bytes\": " + std::to_string(e.host.bytes) +
              ", \"Blocking\": " + (e.host.blocking ? "true" : "false");
    }
    if (e.failed) out_ += ", \"Failed\": true";
    if (!e.stack.empty()) {
      std::string frames;
      for (const std::string& f : e.stack) frames += (frames.empty() ? "" : ";") + f;
      out_ += ", \"Call stack\": " + io::json_string(frames);
    }
    out_ += "}}";
  }

  void activity(size_t i) {
    const prim::DeviceActivity& a = trace_.activities[i];
    using Kind = prim::DeviceActivity::Kind;
    open("X",
         a.kind == Kind::kernel ? "kernel"
         : a.kind == Kind::copy ? "gpu_memcpy"
                                : "gpu_memset",
         a.name, a.device.index, a.stream, a.begin_ns);
    out_ += ", \"dur\": " + duration(a.end_ns - a.begin_ns) +
            ", \"args\": {\"External id\": " + std::to_string(a.range) +
            ", \"correlation\": " + std::to_string(a.correlation) +
            ", \"device\": " + std::to_string(a.device.index) +
            ", \"context\": " + std::to_string(a.context) +
            ", \"stream\": " + std::to_string(a.stream);
    const auto three = [](const std::array<int32_t, 3>& v) {
      return "[" + std::to_string(v[0]) + ", " + std::to_string(v[1]) + ", " +
             std::to_string(v[2]) + "]";
    };
    if (a.kind == Kind::kernel)
      out_ += ", \"grid\": " + three(a.grid) + ", \"block\": " + three(a.block) +
              ", \"registers per thread\": " + std::to_string(a.registers) +
              ", \"shared memory\": " + std::to_string(a.shared_bytes);
    else
      out_ += ", \"bytes\": " + std::to_string(a.bytes) + ", \"memory bandwidth (GB/s)\": " +
              io::json_number(
                  a.end_ns > a.begin_ns ? double(a.bytes) / double(a.end_ns - a.begin_ns) : 0);
    out_ += "}}";
    const int64_t source = trace_.activity_events[i];
    if (source < 0 || !trace_.with_cpu) return;
    const Event& e = trace_.events[size_t(source)];
    // The launch itself, kept within the operator that it belongs to.
    int64_t at = a.call_ns ? a.call_ns : e.begin_ns;
    at = at < e.begin_ns ? e.begin_ns : at > e.end_ns ? e.end_ns : at;
    // The kernels of a graph share one call, but an arrow's number is its own.
    arrow("ac2g", i + 1, pid_, e.thread, at, a.device.index, a.stream, a.begin_ns);
  }

  void arrow(const char* name, uint64_t id, int64_t from_pid, int64_t from_tid, int64_t from,
             int64_t to_pid, int64_t to_tid, int64_t to) {
    open("s", name, name, from_pid, from_tid, from);
    out_ += ", \"id\": " + std::to_string(id) + "}";
    open("f", name, name, to_pid, to_tid, to);
    out_ += ", \"id\": " + std::to_string(id) + ", \"bp\": \"e\"}";
  }

  void forward_to_backward() {
    std::map<int64_t, const Event*> forward;
    for (const Event& e : trace_.events)
      if (e.kind == EventKind::call && e.sequence >= 0) forward.emplace(e.sequence, &e);
    for (const Event& e : trace_.events) {
      if (e.kind != EventKind::backward) continue;
      const auto f = forward.find(e.sequence);
      if (f == forward.end()) continue;
      if (f->second->begin_ns < e.begin_ns)
        arrow("fwdbwd", uint64_t(e.sequence), pid_, f->second->thread, f->second->begin_ns, pid_,
              e.thread, e.begin_ns);
      forward.erase(f);  // a second pass over the same graph has no arrow
    }
  }

  void memory() {
    for (const MemoryChange& c : trace_.memory) {
      const std::string device = c.device.to_string();
      open("i", "cpu_instant_event", "[memory]", pid_, c.thread, c.time_ns);
      out_ += ", \"s\": \"t\", \"args\": {\"Device\": \"" + device +
              "\", \"Addr\": " + std::to_string(c.address) +
              ", \"Bytes\": " + std::to_string(c.bytes) +
              ", \"Total Allocated\": " + std::to_string(c.total) + "}}";
      open("C", "memory", "Memory of " + device, pid_, 0, c.time_ns);
      out_ += ", \"args\": {\"bytes\": " + std::to_string(c.total) + "}}";
    }
  }

  const Trace& trace_;
  const int64_t base_ns_;
  // Numbers of GPUs, which are processes in the trace, too, are far below those of real ones.
  const int64_t pid_ = getpid() > 1000 ? getpid() : 1000 + getpid();
  std::string out_;
  bool first_ = true;
};

}  // namespace

std::string Trace::chrome_trace() const { return Writer(*this, begin_ns).run(); }

void Trace::export_chrome_trace(const std::string& path) const {
  io::write_text(path, chrome_trace());
}

void Trace::export_stacks(const std::string& path, const std::string& metric) const {
  const bool device = metric == "self_cuda_time_total" || metric == "self_device_time_total";
  ARETE_CHECK(device || metric == "self_cpu_time_total",
              ValueError("export_stacks", "unknown metric")
                  .got(metric)
                  .expected("self_cpu_time_total or self_cuda_time_total"));
  ARETE_CHECK(with_stack, ValueError("export_stacks", "the recording has no stacks")
                              .hint("profile with with_stack=True"));
  std::map<std::string, int64_t> folded;
  for (const Event& e : events) {
    if (e.stack.empty()) continue;
    std::string line;
    for (size_t i = e.stack.size(); i-- > 0;) {
      std::string frame = e.stack[i];
      for (char& c : frame)
        if (c == ';' || c == '\n') c = ' ';
      line += frame + ';';
    }
    folded[line + e.name] += (device ? e.self_device_ns : e.self_ns());
  }
  io::AtomicFile file(path);
  for (const auto& [line, ns] : folded)
    if (ns >= 1000) file.write(line + ' ' + std::to_string(ns / 1000) + '\n');
  file.commit();
}

}  // namespace arete::profile
