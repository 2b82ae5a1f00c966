// Histories of memory with frames of Python, and trackers.
#include <mutex>
#include <unordered_map>

#include "arete/profile/memory_history.h"
#include "arete/profile/memory_tracker.h"
#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

namespace {

// Note [Frames without the GIL]
// Long calls release the GIL, and memory is allocated in them while other threads may hold it: to
// wait for it there, perhaps under a lock of an allocator, could be a deadlock. The frames of a
// thread do not change meanwhile, so they are remembered when it releases the GIL. Their names are
// looked up at that time, too.

/// The frames of the interpreter.
class PythonFrames final : public memory::FrameSource {
 public:
  void capture(std::vector<Place>& places) noexcept override {
    if (!Py_IsInitialized()) return;
    if (PyGILState_Check())
      walk(places);
    else if (!remembered.empty())
      places.insert(places.end(), remembered.back().begin(), remembered.back().end());
  }

  memory::Frame describe(const Place& place) override {
    const std::lock_guard lock(mutex_);
    const auto it = known_.find(place.code);
    if (it == known_.end()) return {};
    return {it->second.file, it->second.function, place.line};
  }

  void remember() noexcept {
    remembered.emplace_back();
    walk(remembered.back());
  }
  void forget() noexcept { remembered.pop_back(); }

 private:
  // With the GIL.
  void walk(std::vector<Place>& places) noexcept {
    // Frame objects are made here, and a collection that they set off could free tensors.
    const int collects = PyGC_Disable();
    constexpr int kMost = 64;
    PyFrameObject* f = PyEval_GetFrame();
    Py_XINCREF(reinterpret_cast<PyObject*>(f));
    for (int i = 0; f && i < kMost; ++i) {
      PyCodeObject* const code = PyFrame_GetCode(f);
      know(code);
      places.push_back({code, PyFrame_GetLineNumber(f)});
      Py_DECREF(reinterpret_cast<PyObject*>(code));
      PyFrameObject* const back = PyFrame_GetBack(f);
      Py_DECREF(reinterpret_cast<PyObject*>(f));
      f = back;
    }
    Py_XDECREF(reinterpret_cast<PyObject*>(f));
    if (collects) PyGC_Enable();
  }

  void know(PyCodeObject* code) {
    const std::lock_guard lock(mutex_);
    const auto [it, fresh] = known_.try_emplace(code);
    if (!fresh) return;
    // Kept for good: another code object at its address would be taken for it.
    Py_INCREF(reinterpret_cast<PyObject*>(code));
    const auto text = [](PyObject* o) -> std::string {
      const char* s = PyUnicode_AsUTF8(o);
      if (!s) PyErr_Clear();
      return s ? s : "";
    };
    it->second = {text(code->co_filename), text(code->co_name), 0};
  }

  // One list for each time that this thread has released the GIL.
  static thread_local std::vector<std::vector<Place>> remembered;
  std::mutex mutex_;
  std::unordered_map<const void*, memory::Frame> known_;
};
thread_local std::vector<std::vector<memory::FrameSource::Place>> PythonFrames::remembered;

PythonFrames& python_frames() {
  static PythonFrames* const f = new PythonFrames;
  return *f;
}

}  // namespace

std::atomic<bool> remembers_frames{false};
void remember_frames() noexcept { python_frames().remember(); }
void forget_frames() noexcept { python_frames().forget(); }

void bind_memory(nb::module_& m) {
  memory::set_frame_source(&python_frames());
  nb::module_ c = m.def_submodule("_memory");
  c.def(
      "record",
      [](bool events, const std::string& context, bool native, size_t max_entries, bool clear) {
        memory::HistoryOptions o;
        o.events = events;
        o.context = context == "all"     ? memory::Context::all
                    : context == "alloc" ? memory::Context::alloc
                    : context == "state" ? memory::Context::state
                                         : memory::Context::none;
        o.native_frames = native;
        o.max_entries = max_entries;
        o.clear = clear;
        memory::record_history(o);
        remembers_frames = o.context != memory::Context::none;
      },
      "events"_a, "context"_a, "native"_a, "max_entries"_a, "clear"_a);
  c.def("stop", [] {
    remembers_frames = false;
    memory::stop_history();
  });
  c.def("is_recording", &memory::is_recording_history);
  // At exit: frames must not be asked for any more.
  c.def("shut_down", [] {
    remembers_frames = false;
    memory::stop_history();
    memory::set_frame_source(nullptr);
  });
  c.def("json", [] {
    const WithoutGil free;
    return memory::to_json(memory::snapshot());
  });
  c.def("pickle", [] {
    std::string s;
    {
      const WithoutGil free;
      s = memory::to_pickle(memory::snapshot());
    }
    return nb::bytes(s.data(), s.size());
  });
  c.def("html", [] {
    const WithoutGil free;
    return memory::to_html(memory::snapshot());
  });
  // The page of events that were recorded elsewhere, on one device: (is it an allocation, address,
  // bytes, microseconds, operator, scope, number of its stack), and stacks of (file, function,
  // line).
  using Event = std::tuple<bool, uint64_t, uint64_t, int64_t, std::string, std::string, uint32_t>;
  using Place = std::tuple<std::string, std::string, int>;
  c.def("page", [](const std::string& device, const std::vector<Event>& events,
                   const std::vector<std::vector<Place>>& stacks) {
    memory::Snapshot s;
    for (const auto& [begins, address, bytes, time_us, op, scope, stack] : events) {
      memory::Entry e;
      e.event = {begins ? MemoryEvent::Action::alloc : MemoryEvent::Action::free,
                 Device(device),
                 false,
                 uintptr_t(address),
                 size_t(bytes),
                 size_t(bytes)};
      e.time_us = time_us;
      e.operator_name = op;
      e.scope = scope;
      e.stack = stack;
      s.events.push_back(std::move(e));
    }
    for (const auto& stack : stacks) {
      s.stacks.emplace_back();
      for (const auto& [file, function, line] : stack)
        s.stacks.back().push_back({file, function, line});
    }
    return memory::to_html(s);
  });
  c.def("dump", [](const std::string& path) {
    const WithoutGil free;
    memory::dump_snapshot(path);
  });
  c.def("replayed", [] {
    std::vector<std::pair<uint64_t, uint64_t>> live;
    for (const memory::Entry& e : memory::replay(memory::snapshot()))
      live.emplace_back(e.event.address, e.event.bytes);
    return live;
  });
  c.def("push_scope", [](const std::string& name) { push_name_scope(name); });
  c.def("pop_scope", &pop_name_scope);
  c.def("scope", &current_name_scope);

  nb::class_<GPUMemoryTracker>(c, "GPUMemoryTracker")
      .def(nb::init<Device>(), "device"_a)
      .def("stop", &GPUMemoryTracker::stop)
      .def_prop_ro("device", &GPUMemoryTracker::device)
      .def_prop_ro("before", &GPUMemoryTracker::before)
      .def_prop_ro("delta", &GPUMemoryTracker::delta)
      .def_prop_ro("peak", &GPUMemoryTracker::peak)
      .def_prop_ro("allocated", &GPUMemoryTracker::allocated)
      .def_prop_ro("allocations", &GPUMemoryTracker::allocations)
      .def("report", &GPUMemoryTracker::report);
}

}  // namespace arete::python
