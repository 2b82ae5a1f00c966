// Compiled functions.
#include "arete/compile/explain.h"
#include "arete/core/modes.h"
#include "arete/prim/recorder.h"
#include "bindings.h"
#include "caster.h"
#include "convert.h"
#include "program_object.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

namespace {

nb::object call(nb::handle function, const nb::tuple& args, const nb::dict& kwargs) {
  PyObject* const result = PyObject_Call(function.ptr(), args.ptr(), kwargs.ptr());
  if (!result) nb::raise_python_error();
  return nb::steal(result);
}

// Of a thread that has released the GIL: where it did so.
thread_local std::string remembered_place;

// The innermost line that is not this package's own.
std::string current_place() {
  if (!Py_IsInitialized()) return "";
  if (!PyGILState_Check()) return remembered_place;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  std::string place;
  static const std::string& folder = *new std::string([] {
    const std::string own = nb::cast<std::string>(nb::module_::import_("arete").attr("__file__"));
    return own.substr(0, own.rfind('/') + 1);
  }());
  PyFrameObject* f = PyEval_GetFrame();
  Py_XINCREF(reinterpret_cast<PyObject*>(f));
  while (f) {
    PyCodeObject* const code = PyFrame_GetCode(f);
    const char* const file = PyUnicode_AsUTF8(code->co_filename);
    const char* const name = PyUnicode_AsUTF8(code->co_name);
    if (file && name && std::string_view(file).substr(0, folder.size()) != folder)
      place = std::string(file) + ":" + std::to_string(PyFrame_GetLineNumber(f)) + " in " + name;
    Py_DECREF(reinterpret_cast<PyObject*>(code));
    PyFrameObject* const back = place.empty() ? PyFrame_GetBack(f) : nullptr;
    Py_DECREF(reinterpret_cast<PyObject*>(f));
    f = back;
  }
  PyErr_Restore(type, value, traceback);
  return place;
}

std::vector<compile::Explanation> explanations_of(
    const std::vector<std::shared_ptr<compile::Program>>& programs) {
  std::vector<compile::Explanation> all;
  for (const auto& p : programs) all.push_back(compile::explanation_of(*p));
  return all;
}

}  // namespace

std::string remember_place() { return std::exchange(remembered_place, current_place()); }
void restore_place(std::string before) noexcept { remembered_place = std::move(before); }

void bind_compile(nb::module_& m) {
  compile::set_place_source(current_place);

  nb::class_<ProgramObject>(m, "_Program")
      .def(
          "call",
          [](const ProgramObject& p, nb::handle function, const nb::tuple& args,
             const nb::dict& kwargs) {
            const std::shared_ptr<compile::Program> mine = p.program;
            compile::note_call(*mine);
            compile::PutOff put_off(*mine);
            nb::object result = call(function, args, kwargs);
            {
              const WithoutGil free;
              put_off.finish();
            }
            return result;
          },
          "function"_a, "args"_a, "kwargs"_a)
      .def("reset", [](const ProgramObject& p) { compile::reset(*p.program); })
      .def("stats",
           [](const ProgramObject& p) {
             const compile::CompileStats s = [&] {
               const WithoutGil free;  // a thread that runs a plan may want it
               return compile::stats_of(*p.program);
             }();
             nb::dict all;
             all["calls"] = s.calls;
             all["breaks"] = s.breaks;
             all["traces"] = s.traces;
             all["plans"] = s.plans;
             all["runs"] = s.runs;
             all["planning"] = s.planning;
             all["launching"] = s.launching;
             all["skipped"] = s.skipped;
             all["at_once"] = s.at_once;
             return all;
           })
      .def("breaks", [](const ProgramObject& p) {
        nb::list all;
        for (const compile::Break& b : compile::breaks_of(*p.program))
          all.append(nb::make_tuple(b.where, b.what, b.count));
        return all;
      });
  m.def(
      "_make_program",
      [](bool exact, bool fullgraph, const std::string& name, std::optional<size_t> band,
         double memory_budget) {
        return ProgramObject{
            compile::make_program({.exact = exact,
                                   .fullgraph = fullgraph,
                                   .band = band.value_or(compile::PlanOptions().band),
                                   .memory_budget = memory_budget,
                                   .name = name})};
      },
      "exact"_a, "fullgraph"_a, "name"_a, "band"_a.none(), "memory_budget"_a);
  m.def(
      "_explain",
      [](const std::vector<ProgramObject*>& objects, const std::string& format) {
        std::vector<std::shared_ptr<compile::Program>> programs;
        for (const ProgramObject* o : objects) {
          if (!o) throw nb::type_error("_explain(): programs of compiled functions, not None");
          programs.push_back(o->program);
        }
        const WithoutGil free;  // a thread that runs a plan may want it
        const std::vector<compile::Explanation> all = explanations_of(programs);
        if (format == "json") return compile::to_json(all);
        if (format == "html") return compile::to_html(all);
        std::string text;
        for (const compile::Explanation& e : all)
          text += (text.empty() ? "" : "\n") + compile::to_text(e);
        return text;
      },
      "programs"_a, "format"_a);
  m.def("_is_compiling", [] { return (modes().word & Modes::kPutOff) != 0; });
  m.def("_graph_break", [] { compile::graph_break(); });
  // Calls at once, whatever is put off around them.
  m.def(
      "_call_eagerly",
      [](nb::handle function, const nb::tuple& args, const nb::dict& kwargs) {
        const compile::MadeAtOnce scope;
        return call(function, args, kwargs);
      },
      "function"_a, "args"_a, "kwargs"_a);
}

}  // namespace arete::python
