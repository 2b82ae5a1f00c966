// Saved programs: what arete/_program.py is made of.
#include "arete/program/program.h"

#include "arete/program/body_internal.h"
#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

namespace {

using program::Program;
using program::RecordOptions;
using program::StateKind;

thread_local int recording = 0;

using Function = std::function<std::vector<Tensor>(std::vector<Tensor>)>;
// Name, input, dimension, least, most (None: without bound), factor, offset.
using Dynamic =
    std::tuple<std::string, size_t, int64_t, int64_t, std::optional<int64_t>, int64_t, int64_t>;
// Name, tensor, whether it is a parameter, whether it is persistent.
using StateEntry = std::tuple<std::string, Tensor, bool, bool>;

Program record(const Function& f, const std::vector<Tensor>& inputs,
               std::vector<std::string> input_names, const std::vector<Dynamic>& dynamic,
               std::vector<std::pair<size_t, int64_t>> maybe_dynamic,
               const std::vector<StateEntry>& state,
               const std::optional<std::vector<std::string>>& whole) {
  RecordOptions options;
  if (whole) options.whole.emplace(whole->begin(), whole->end());
  options.input_names = std::move(input_names);
  options.maybe_dynamic = std::move(maybe_dynamic);
  for (const auto& [name, input, dim, min, max, factor, offset] : dynamic)
    options.dynamic.push_back(
        {name, input, dim, min, max.value_or(std::numeric_limits<int64_t>::max()), factor, offset});
  for (const auto& [name, tensor, is_parameter, persistent] : state)
    options.state.push_back(
        {name, tensor, is_parameter ? StateKind::parameter : StateKind::buffer, persistent});
  struct Count {
    Count() { ++recording; }
    ~Count() { --recording; }
  } const count;
  return Program::record([&](const std::vector<Tensor>& x) { return f(x); }, inputs, options);
}

}  // namespace

void bind_program(nb::module_& m) {
  program::set_between_rounds([] {
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
  });
  m.def("_is_recording_program", [] { return recording > 0; });
  m.def("_cond", &program::cond, "pred"_a, "if_true"_a, "if_false"_a);
  m.def("_while_loop", &program::while_loop, "condition"_a, "body"_a, "carried"_a);
  nb::class_<Program>(m, "_SavedProgram")
      .def_static("record", &record, "function"_a, "inputs"_a, "input_names"_a, "dynamic"_a,
                  "maybe_dynamic"_a, "state"_a, "whole"_a.none() = nb::none())
      .def_static(
          "load",
          [](const std::string& path, std::optional<Device> device) {
            return Program::load(path, device);
          },
          "path"_a, "device"_a.none())
      .def_static(
          "parse",
          [](const nb::bytes& data, const std::string& name, std::optional<Device> device) {
            return Program::parse({static_cast<const std::byte*>(data.data()), data.size()}, name,
                                  device);
          },
          "data"_a, "name"_a, "device"_a.none())
      .def("save", [](const Program& p, const std::string& path) { p.save(path); })
      .def("__call__",
           [](const Program& p, const std::vector<Tensor>& inputs) {
             std::vector<Tensor> outputs;
             {
               const WithoutGil free;
               outputs = p(inputs);
             }
             return outputs;
           })
      .def("__str__", &Program::to_string)
      .def("inputs",
           [](const Program& p) {
             nb::list all;
             for (const program::InputInfo& i : p.inputs())
               all.append(nb::make_tuple(i.name, i.dtype, i.sizes));
             return all;
           })
      .def("sizes",
           [](const Program& p) {
             nb::list all;
             for (const program::SizeInfo& s : p.sizes()) {
               const bool bound = s.max != std::numeric_limits<int64_t>::max();
               all.append(
                   nb::make_tuple(s.name, s.min, bound ? nb::object(nb::int_(s.max)) : nb::none()));
             }
             return all;
           })
      .def("state",
           [](const Program& p) {
             static constexpr const char* kKinds[] = {"parameter", "buffer", "constant"};
             nb::list all;
             for (const program::State& s : p.state())
               all.append(nb::make_tuple(s.name, s.tensor, kKinds[int(s.kind)], s.persistent));
             return all;
           })
      .def("set_state", &Program::set_state)
      .def("output_count", &Program::output_count)
      .def("written", &Program::written)
      .def("device", &Program::device)
      .def("to", [](Program& p, Device device) { p.to(device); })
      .def("fits", &Program::fits)
      .def("freeze", &Program::freeze)
      .def("clone", &Program::clone)
      .def("operators", &Program::operators)
      .def("metadata", [](const Program& p) { return p.metadata(); })
      .def("set_metadata", &Program::set_metadata)
      .def(
          "text",
          [](const Program& p, bool for_file) { return program::write_json(p.body(), for_file); },
          "for_file"_a = true);
}

}  // namespace arete::python
