// Profilers and what they have recorded.
#include "arete/profile/profiler.h"

#include <Python.h>
#include <frameobject.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <type_traits>
#include <variant>

#include "arete/profile/ceilings.h"
#include "arete/profile/memory_timeline.h"
#include "arete/profile/roofline.h"
#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

namespace {

using namespace profile;
using TracePtr = std::shared_ptr<const Trace>;

/// One event of a trace, which it keeps alive, or one piece of GPU work.
struct EventView {
  TracePtr trace;
  int64_t index;                        // among events, or activities
  std::shared_ptr<const Event> kernel;  // GPU work as an event; null for those of the host
  const Event& operator*() const { return kernel ? *kernel : trace->events[size_t(index)]; }
  const Event* operator->() const { return &**this; }

  double host_time() const { return kernel ? 0 : double((*this)->duration_ns()) / 1e3; }
  double self_host_time() const { return kernel ? 0 : double((*this)->self_ns()) / 1e3; }
  double device_time() const { return double((*this)->device_ns) / 1e3; }
  double self_device_time() const { return double((*this)->self_device_ns) / 1e3; }
  Average row() const {
    return kernel ? trace->row_of(trace->activities[size_t(index)]) : trace->row_of(**this);
  }
  std::string category() const {
    if (!kernel) return category_of((*this)->kind);
    using Kind = prim::DeviceActivity::Kind;
    const Kind k = trace->activities[size_t(index)].kind;
    return k == Kind::kernel ? "kernel" : k == Kind::copy ? "gpu_memcpy" : "gpu_memset";
  }
  /// The thread of the forward call, of a backward function; else 0.
  int forward_thread() const {
    if (kernel || (*this)->kind != EventKind::backward || (*this)->sequence < 0) return 0;
    for (const Event& e : trace->events)
      if (e.kind == EventKind::call && e.sequence == (*this)->sequence) return e.thread;
    return 0;
  }
};

// Events of the host and GPU work, by begin.
std::vector<EventView> views_of(const TracePtr& t) {
  std::vector<EventView> all;
  if (!t->hides_host())
    for (size_t i = 0; i < t->events.size(); ++i) all.push_back({t, int64_t(i), nullptr});
  if (t->activities.empty()) return all;
  for (size_t i = 0; i < t->activities.size(); ++i)
    all.push_back({t, int64_t(i), std::make_shared<Event>(Trace::event_of(t->activities[i]))});
  std::stable_sort(all.begin(), all.end(), [](const EventView& a, const EventView& b) {
    return a->begin_ns < b->begin_ns;
  });
  return all;
}

// torch's numbers of at::RecordScope: forward, backward, a user's range.
int scope_of(EventKind kind) {
  return kind == EventKind::backward                               ? 1
         : kind == EventKind::user || kind == EventKind::optimizer ? 7
                                                                   : 0;
}

nb::list values_of(const std::vector<Value>& values) {
  nb::list all;
  for (const Value& v : values)
    std::visit(
        [&](const auto& x) {
          if constexpr (std::is_same_v<std::decay_t<decltype(x)>, std::monostate>)
            all.append(nb::none());
          else
            all.append(nb::cast(x));
        },
        v);
  return all;
}

std::string text_of(const EventView& e) {
  std::string children, shapes;
  if (!e.kernel)
    for (size_t i = size_t(e.index) + 1; i < e.trace->events.size(); ++i)
      if (e.trace->events[i].parent == e.index)
        children += (children.empty() ? "" : ", ") + std::to_string(e.trace->events[i].id);
  for (const auto& s : e->shapes) {
    shapes += shapes.empty() ? "[" : ", [";
    for (size_t i = 0; i < s.size(); ++i) shapes += (i ? ", " : "") + std::to_string(s[i]);
    shapes += ']';
  }
  const auto microseconds = [&](int64_t ns) {
    char text[48];
    std::snprintf(text, sizeof text, "%.3f", double(ns - e.trace->begin_ns) / 1e3);
    return std::string(text);
  };
  return "<FunctionEvent id=" + std::to_string(e->id) + " name=" + e->key() +
         " device_type=DeviceType." + (e.kernel ? "CUDA" : "CPU") +
         " cpu_time=" + format_time(e.host_time()) + " start_us=" + microseconds(e->begin_ns) +
         " end_us=" + microseconds(e->end_ns) + " cpu_children=[" + children +
         "] cuda_time=" + format_time(e.device_time()) + " thread=" + std::to_string(e->thread) +
         " input_shapes=[" + shapes + "] cpu_memory_usage=" + std::to_string(e->cpu_memory) +
         " cuda_memory_usage=" + std::to_string(e->device_memory) +
         " seq_nr=" + std::to_string(e->sequence) + ">";
}

std::string text_of(PyObject* unicode) {
  Py_ssize_t size = 0;
  const char* text = unicode ? PyUnicode_AsUTF8AndSize(unicode, &size) : nullptr;
  if (!text) PyErr_Clear();
  return text ? std::string(text, size_t(size)) : "?";
}

// The folder of the package, whose own frames tell users nothing.
std::string& package_folder() {
  static std::string folder;
  return folder;
}

// The running Python program's frames, innermost first. Nothing on threads that Python has not
// seen.
std::vector<std::string> python_stack(int limit) {
  std::vector<std::string> frames;
  if (!Py_IsInitialized() || !PyGILState_GetThisThreadState()) return frames;
  const WithGil gil;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame && int(frames.size()) < limit) {
    PyCodeObject* const code = PyFrame_GetCode(frame);
    const std::string file = text_of(code->co_filename);
    if (!frames.empty() || package_folder().empty() ||
        file.compare(0, package_folder().size(), package_folder()) != 0)
      frames.push_back(file + "(" + std::to_string(PyFrame_GetLineNumber(frame)) +
                       "): " + text_of(code->co_name));
    Py_DECREF(code);
    PyFrameObject* const outer = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
  }
  Py_XDECREF(frame);
  return frames;
}

nb::list shapes_of(const std::vector<std::vector<int64_t>>& shapes) {
  nb::list all;
  for (const auto& s : shapes) all.append(nb::cast(s));
  return all;
}

void bind_events(nb::module_& p) {
  nb::class_<EventView>(p, "FunctionEvent")
      .def_prop_ro("name", [](const EventView& e) { return e->key(); })
      .def_prop_ro("key", [](const EventView& e) { return e->key(); })
      .def_prop_ro("trace_name", [](const EventView& e) { return e->name; })
      .def_prop_ro("id", [](const EventView& e) { return e->id; })
      .def_prop_ro("thread", [](const EventView& e) { return e->thread; })
      .def_prop_ro("count", [](const EventView&) { return 1; })
      .def_prop_ro("sequence_nr", [](const EventView& e) { return e->sequence; })
      .def_prop_ro("category", &EventView::category)
      .def_prop_ro("is_user_annotation",
                   [](const EventView& e) { return e->kind == EventKind::user; })
      .def_prop_ro("failed", [](const EventView& e) { return e->failed; })
      .def_prop_ro("_time_range",
                   [](const EventView& e) {
                     return std::pair(double(e->begin_ns - e.trace->begin_ns) / 1e3,
                                      double(e->end_ns - e.trace->begin_ns) / 1e3);
                   })
      .def_prop_ro("cpu_time_total", &EventView::host_time)
      .def_prop_ro("cpu_time", &EventView::host_time)
      .def_prop_ro("self_cpu_time_total", &EventView::self_host_time)
      .def_prop_ro("device_time_total", &EventView::device_time)
      .def_prop_ro("device_time", &EventView::device_time)
      .def_prop_ro("self_device_time_total", &EventView::self_device_time)
      .def_prop_ro("_on_device", [](const EventView& e) { return e.kernel != nullptr; })
      .def_prop_ro("_has_device_times",
                   [](const EventView& e) { return e.trace->device_times != DeviceTimes::none; })
      .def_prop_ro("_row", &EventView::row)
      .def_prop_ro("device_index",
                   [](const EventView& e) { return e.kernel ? e->device.index : 0; })
      .def_prop_ro("device_resource_id", [](const EventView& e) { return e->thread; })
      .def_prop_ro("fwd_thread", &EventView::forward_thread)
      .def_prop_ro("scope", [](const EventView& e) { return scope_of(e->kind); })
      .def_prop_ro("concrete_inputs", [](const EventView& e) { return values_of(e->values); })
      .def("__repr__", [](const EventView& e) { return text_of(e); })
      .def_prop_ro("cpu_memory_usage", [](const EventView& e) { return e->cpu_memory; })
      .def_prop_ro("self_cpu_memory_usage", [](const EventView& e) { return e->self_cpu_memory; })
      .def_prop_ro("device_memory_usage", [](const EventView& e) { return e->device_memory; })
      .def_prop_ro("self_device_memory_usage",
                   [](const EventView& e) { return e->self_device_memory; })
      .def_prop_ro("flops", [](const EventView& e) { return e->flops; })
      .def_prop_ro("bytes", [](const EventView& e) { return e->bytes; })
      .def_prop_ro("input_shapes", [](const EventView& e) { return shapes_of(e->shapes); })
      .def_prop_ro("input_dtypes", [](const EventView& e) { return e->dtypes; })
      .def_prop_ro("stack", [](const EventView& e) { return e->stack; })
      .def_prop_ro("device", [](const EventView& e) { return e->device; })
      .def_prop_ro("stream", [](const EventView& e) { return e->stream; })
      .def_prop_ro("cpu_parent",
                   [](const EventView& e) -> std::optional<EventView> {
                     if (e.kernel || e->parent < 0) return std::nullopt;
                     return EventView{e.trace, e->parent, nullptr};
                   })
      .def_prop_ro("cpu_children",
                   [](const EventView& e) {
                     std::vector<EventView> all;
                     if (e.kernel) return all;
                     for (size_t i = size_t(e.index) + 1; i < e.trace->events.size(); ++i)
                       if (e.trace->events[i].parent == e.index)
                         all.push_back({e.trace, int64_t(i), nullptr});
                     return all;
                   })
      .def_prop_ro("kernels", [](const EventView& e) {
        std::vector<std::pair<std::string, double>> all;
        if (e.kernel) return all;
        for (size_t i = 0; i < e.trace->activities.size(); ++i) {
          const auto& a = e.trace->activities[i];
          if (e.trace->activity_events[i] == e.index)
            all.emplace_back(a.name, double(a.end_ns - a.begin_ns) / 1e3);
        }
        return all;
      });

  nb::class_<Average>(p, "FunctionEventAvg")
      .def_ro("key", &Average::key)
      .def_ro("count", &Average::count)
      .def_ro("is_user_annotation", &Average::user)
      .def_ro("on_device", &Average::on_device)
      .def_ro("_on_device", &Average::on_device)
      .def_prop_ro("_has_device_times", [](const Average& a) { return a.device_time_total > 0; })
      .def_prop_ro("scope", [](const Average& a) { return scope_of(a.kind); })
      .def_ro("cpu_time_total", &Average::cpu_time_total)
      .def_ro("self_cpu_time_total", &Average::self_cpu_time_total)
      .def_ro("device_time_total", &Average::device_time_total)
      .def_ro("self_device_time_total", &Average::self_device_time_total)
      .def_prop_ro("cpu_time", &Average::cpu_time)
      .def_prop_ro("device_time", &Average::device_time)
      .def_ro("cpu_memory_usage", &Average::cpu_memory_usage)
      .def_ro("self_cpu_memory_usage", &Average::self_cpu_memory_usage)
      .def_ro("device_memory_usage", &Average::device_memory_usage)
      .def_ro("self_device_memory_usage", &Average::self_device_memory_usage)
      .def_ro("flops", &Average::flops)
      .def_ro("bytes", &Average::bytes)
      .def_ro("stack", &Average::stack)
      .def_prop_ro("input_shapes", [](const Average& a) { return shapes_of(a.shapes); })
      .def("__repr__", [](const Average& a) {
        return "<FunctionEventAvg key=" + a.key +
               " self_cpu_time=" + format_time(a.self_cpu_time_total) +
               " cpu_time=" + format_time(a.cpu_time()) +
               " self_cuda_time=" + format_time(a.self_device_time_total) +
               " cuda_time=" + format_time(a.device_time()) + " count=" + std::to_string(a.count) +
               ">";
      });

  nb::class_<Synchronization>(p, "Synchronization")
      .def_ro("what", &Synchronization::what)
      .def_ro("kind", &Synchronization::kind)
      .def_ro("device", &Synchronization::device)
      .def_ro("bytes", &Synchronization::bytes)
      .def_ro("blocking", &Synchronization::blocking)
      .def_ro("host_time", &Synchronization::host_time)
      .def_ro("operator", &Synchronization::operator_name)
      .def_ro("source", &Synchronization::source);

  nb::class_<OperatorRate>(p, "OperatorRate")
      .def_ro("name", &OperatorRate::name)
      .def_ro("dtype", &OperatorRate::dtype)
      .def_ro("device", &OperatorRate::device)
      .def_ro("count", &OperatorRate::count)
      .def_ro("seconds", &OperatorRate::seconds)
      .def_ro("flops", &OperatorRate::flops)
      .def_ro("bytes", &OperatorRate::bytes)
      .def_prop_ro("flops_per_second", &OperatorRate::flops_per_second)
      .def_prop_ro("bytes_per_second", &OperatorRate::bytes_per_second)
      .def_prop_ro("intensity", &OperatorRate::intensity)
      .def_ro("attained", &OperatorRate::attained)
      .def_prop_ro("regime", [](const OperatorRate& r) { return std::string(name_of(r.regime)); });
}

}  // namespace

void bind_profiler(nb::module_& m) {
  nb::module_ p = m.def_submodule("_profile");
  bind_events(p);

  // Not an enum of nanobind's, which takes no number: the Python side has an IntEnum.
  nb::class_<Trace>(p, "Trace")
      .def("events", [](const std::shared_ptr<Trace>& t) { return views_of(t); })
      .def("key_averages", &Trace::key_averages, "by_shape"_a = false, "stack"_a = 0)
      .def("total_average", &Trace::total_average)
      .def(
          "table",
          [](const Trace& t, const std::vector<Average>& averages, const std::string& sort_by,
             int64_t row_limit, int max_src, int max_name, int max_shapes,
             const std::string& header, bool top_level) {
            return t.table(averages,
                           {sort_by, row_limit, max_src, max_name, max_shapes, header, top_level});
          },
          "averages"_a, "sort_by"_a, "row_limit"_a, "max_src_column_width"_a,
          "max_name_column_width"_a, "max_shapes_column_width"_a, "header"_a,
          "top_level_events_only"_a)
      .def("export_chrome_trace", &Trace::export_chrome_trace, "path"_a)
      .def("export_stacks", &Trace::export_stacks, "path"_a, "metric"_a)
      .def("synchronizations", &Trace::synchronizations)
      .def("synchronization_table", &Trace::synchronization_table)
      .def("rates",
           [](const Trace& t) {
             const WithoutGil free;
             return operator_rates(t);
           })
      .def("rate_table",
           [](const Trace& t) {
             const WithoutGil free;
             return rate_table(t);
           })
      .def(
          "export_roofline",
          [](const Trace& t, const std::string& path) {
            const WithoutGil free;
            export_roofline(t, path);
          },
          "path"_a)
      .def(
          "export_memory_timeline",
          [](const Trace& t, const std::string& path, const std::string& device) {
            export_memory_timeline(t, path, Device(device));
          },
          "path"_a, "device"_a)
      .def_prop_ro("device_times", [](const Trace& t) {
        return std::string(t.device_times == DeviceTimes::traced   ? "CUPTI"
                           : t.device_times == DeviceTimes::events ? "CUDA events"
                                                                   : "none");
      });

  nb::class_<Profiler>(p, "Profiler")
      .def(
          "__init__",
          [](Profiler* self, bool cpu, bool cuda, bool record_shapes, bool profile_memory,
             bool with_stack, bool with_flops, std::optional<std::function<int(int64_t)>> schedule,
             std::optional<std::function<void()>> on_trace_ready,
             std::optional<std::function<std::string()>> trace_id) {
            std::function<Action(int64_t)> s;
            if (schedule)
              s = [schedule = *schedule](int64_t step) {
                const int action = schedule(step);
                ARETE_CHECK(action >= 0 && action <= int(Action::record_and_save),
                            ValueError("schedule", "expected a ProfilerAction")
                                .got(std::to_string(action)));
                return Action(action);
              };
            Profiler::Handler handler;
            if (on_trace_ready) handler = [f = *on_trace_ready](Profiler&) { f(); };
            new (self) Profiler({cpu, cuda, record_shapes, profile_memory, with_stack, with_flops},
                                std::move(s), std::move(handler));
            if (trace_id) self->set_trace_id(*trace_id);
          },
          nb::kw_only(), "cpu"_a, "cuda"_a, "record_shapes"_a, "profile_memory"_a, "with_stack"_a,
          "with_flops"_a, "schedule"_a.none(), "on_trace_ready"_a.none(),
          "trace_id"_a.none() = nb::none())
      .def("start", &Profiler::start)
      .def("stop", &Profiler::stop)
      .def("step", &Profiler::step)
      .def("prepare_trace", &Profiler::prepare_trace)
      .def("start_trace", &Profiler::start_trace)
      .def("stop_trace", &Profiler::stop_trace)
      .def("toggle", &Profiler::toggle, "on"_a, "cpu"_a, "cuda"_a)
      .def("add_metadata", &Profiler::add_metadata, "key"_a, "text"_a)
      .def("add_metadata_json", &Profiler::add_metadata_json, "key"_a, "value"_a)
      .def_prop_ro("trace_id", &Profiler::trace_id)
      .def_prop_ro("action", [](const Profiler& self) { return int(self.action()); })
      .def_prop_ro("step_num", &Profiler::step_num)
      .def_prop_ro("is_running", &Profiler::is_running)
      .def_prop_ro("has_trace", &Profiler::has_trace)
      .def("trace", [](const Profiler& self) {
        return std::const_pointer_cast<Trace>(self.shared_trace());
      });

  nb::class_<RecordFunction>(p, "RecordFunction")
      .def("__init__",
           [](RecordFunction* self, const std::string& name) { new (self) RecordFunction(name); })
      .def("end", &RecordFunction::end);
  nb::class_<EmitNvtx>(p, "EmitNvtx").def(nb::init<bool>(), "record_shapes"_a = false);
  p.def(
      "schedule",
      [](int64_t wait, int64_t warmup, int64_t active, int64_t repeat, int64_t skip_first,
         bool skip_first_wait) {
        return nb::cpp_function(
            [s = profile::schedule(wait, warmup, active, repeat, skip_first, skip_first_wait)](
                int64_t step) { return int(s(step)); });
      },
      "wait"_a, "warmup"_a, "active"_a, "repeat"_a, "skip_first"_a, "skip_first_wait"_a);
  p.def("write_tensorboard_trace", [](const Profiler& self, const std::string& folder,
                                      const std::string& worker, bool use_gzip) {
    tensorboard_trace_handler(folder, worker, use_gzip)(const_cast<Profiler&>(self));
  });
  p.def(
      "ceilings",
      [](const std::string& device, bool again) {
        Ceilings c;
        {
          const WithoutGil free;
          c = ceilings(Device(device), again);
        }
        nb::dict d;
        d["device"] = c.device;
        d["bandwidth"] = c.bandwidth;
        d["launch_overhead"] = c.launch_overhead;
        d["gemm"] = nb::cast(c.gemm);
        d["cache"] = c.cache;
        d["date"] = c.date;
        d["spread"] = c.spread;
        d["load"] = c.load;
        d["doubts"] = doubts_about(c);
        return d;
      },
      "device"_a, "again"_a = false);
  p.def("is_recording", [] { return tracing::listener() || has_memory_observers(); });
  p.def("format_time", &format_time, "microseconds"_a);
  p.def("install_stack_source", [](const std::string& folder) {
    package_folder() = folder;
    set_stack_source(python_stack);
  });
}

}  // namespace arete::python
