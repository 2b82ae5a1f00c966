// What is known of calls of groups when they do not end: records, reports, places in programs.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "arete/distributed/diagnosis.h"
#include "arete/distributed/monitor.h"

namespace nb = nanobind;

namespace arete::python {
namespace {

namespace d = arete::distributed;

std::string folder_of(const char* module) {
  const std::string file = nb::cast<std::string>(nb::module_::import_(module).attr("__file__"));
  return file.substr(0, file.rfind('/') + 1);
}

// Whether a file is of this package or of Python's library.
bool is_of_library(const std::string& file) {
  static const std::string& own = *new std::string(folder_of("arete"));
  static const std::string& library = *new std::string(folder_of("os"));
  return file.starts_with(own) || file.starts_with("<frozen ") ||
         (file.starts_with(library) && file.find("-packages/") == std::string::npos);
}

std::string relative(const std::string& file) {
  const std::string here = nb::cast<std::string>(nb::module_::import_("os").attr("getcwd")()) + "/";
  return file.starts_with(here) ? file.substr(here.size()) : file;
}

// The line of the program that a thread is in, and the function in a library that it calls there:
// "DataLoader.__next__, train.py:88 in main".
std::string place_of(nb::handle frame) {
  std::string called;
  for (nb::object f = nb::borrow(frame); !f.is_none(); f = f.attr("f_back")) {
    const nb::object code = f.attr("f_code");
    const auto file = nb::cast<std::string>(code.attr("co_filename"));
    const auto name =
        nb::cast<std::string>(nb::getattr(code, "co_qualname", nb::object(code.attr("co_name"))));
    if (is_of_library(file)) {
      if (called.empty() && file.find("/arete/distributed/") == std::string::npos) called = name;
      continue;
    }
    const nb::object line = f.attr("f_lineno");
    return (called.empty() ? "" : called + ", ") + relative(file) + ":" +
           std::string(nb::str(line).c_str()) + (name == "<module>" ? "" : " in " + name);
  }
  return called;
}

// Called by a thread of its own, which may wait for ever.
std::string place_of_thread(uint64_t thread) {
  if (!Py_IsInitialized() || _Py_IsFinalizing()) return "";
  const nb::gil_scoped_acquire gil;
  try {
    const nb::object frames = nb::module_::import_("sys").attr("_current_frames")();
    nb::object key = nb::cast(thread);
    if (!PyDict_Contains(frames.ptr(), key.ptr()))
      key = nb::module_::import_("threading").attr("main_thread")().attr("ident");
    return place_of(frames[key]);
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace

void bind_distributed_monitor(nb::module_& m);

void bind_distributed_monitor(nb::module_& m) {
  using Released = nb::call_guard<nb::gil_scoped_release>;
  d::set_place_reader(&place_of_thread);
  m.def(
      "flight_record", [](size_t recent) { return d::flight_record({.recent = recent}); },
      Released());
  m.def("write_flight_record", &d::write_flight_record, Released());
  m.def("diagnose_folder", &d::diagnose_folder, Released());
  m.def("last_report", &d::last_report, Released());
}

}  // namespace arete::python
