// Measurements, their texts and tables, and the loops that decide how often something runs.
#include "arete/profile/benchmark.h"

#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

namespace {

using benchmark::Measurement;
using benchmark::TaskSpec;
using Text = std::optional<std::string>;
using State = std::tuple<std::string, std::string, std::string, Text, Text, Text, Text, int>;

State state_of(const TaskSpec& s) {
  return {s.stmt,      s.setup,       s.global_setup, s.label,
          s.sub_label, s.description, s.env,          s.num_threads};
}

TaskSpec spec_of(const State& s) {
  return {std::get<0>(s), std::get<1>(s), std::get<2>(s), std::get<3>(s),
          std::get<4>(s), std::get<5>(s), std::get<6>(s), std::get<7>(s)};
}

/// What of a measurement a runner in Python gives: the task is not known here.
using Times = std::pair<int64_t, std::vector<double>>;
Times times_of(const Measurement& m) { return {m.number_per_run(), m.raw_times()}; }

/// Written, so that the function below is not left out.
volatile int g_callgrind_mark = 0;

}  // namespace

// Valgrind knows functions by the names that a library exports: at each call of this one it writes
// down what ran since the call before, which is how Timer.collect_callgrind tells what to count.
// Without Valgrind it does nothing.
extern "C" [[gnu::noinline, gnu::visibility("default")]] void arete_callgrind_mark() {
  g_callgrind_mark = 1;
}

void bind_benchmark(nb::module_& m) {
  nb::module_ b = m.def_submodule("_benchmark");
  nb::class_<TaskSpec>(b, "TaskSpec")
      .def(
          "__init__",
          [](TaskSpec* p, std::string stmt, std::string setup, std::string global_setup, Text label,
             Text sub_label, Text description, Text env, int num_threads) {
            new (p) TaskSpec{std::move(stmt),  std::move(setup),     std::move(global_setup),
                             std::move(label), std::move(sub_label), std::move(description),
                             std::move(env),   num_threads};
          },
          "stmt"_a, "setup"_a, "global_setup"_a = "", "label"_a = nb::none(),
          "sub_label"_a = nb::none(), "description"_a = nb::none(), "env"_a = nb::none(),
          "num_threads"_a = 1)
      .def_ro("stmt", &TaskSpec::stmt)
      .def_ro("setup", &TaskSpec::setup)
      .def_ro("global_setup", &TaskSpec::global_setup)
      .def_ro("label", &TaskSpec::label)
      .def_ro("sub_label", &TaskSpec::sub_label)
      .def_ro("description", &TaskSpec::description)
      .def_ro("env", &TaskSpec::env)
      .def_ro("num_threads", &TaskSpec::num_threads)
      .def_prop_ro("title", &TaskSpec::title)
      .def("setup_str", &TaskSpec::setup_text)
      .def("summarize", &TaskSpec::summarize)
      .def("__eq__",
           [](const TaskSpec& a, nb::handle o) {
             return nb::isinstance<TaskSpec>(o) && a == nb::cast<const TaskSpec&>(o);
           })
      .def("__hash__", [](const TaskSpec& s) { return nb::hash(nb::cast(state_of(s))); })
      .def("__getstate__", &state_of)
      .def("__setstate__",
           [](TaskSpec& s, const State& state) { new (&s) TaskSpec(spec_of(state)); });
  nb::class_<Measurement>(b, "Measurement")
      .def(nb::init<int64_t, std::vector<double>, TaskSpec>(), "number_per_run"_a, "raw_times"_a,
           "task_spec"_a)
      .def_prop_ro("number_per_run", &Measurement::number_per_run)
      .def_prop_ro("raw_times", &Measurement::raw_times)
      .def_prop_ro("task_spec", &Measurement::spec)
      .def_prop_ro("times", &Measurement::times)
      .def_prop_ro("median", &Measurement::median)
      .def_prop_ro("mean", &Measurement::mean)
      .def_prop_ro("iqr", &Measurement::iqr)
      .def_prop_ro("significant_figures", &Measurement::significant_figures)
      .def_prop_ro("has_warnings", &Measurement::has_warnings)
      .def_prop_ro("as_row_name", &Measurement::row_name)
      .def("meets_confidence", &Measurement::meets_confidence, "threshold"_a = 0.1)
      .def("_text", &Measurement::to_string);
  b.def("now", [] {
    const WithoutGil free;
    return benchmark::now();
  });
  b.def("timeit", [](const benchmark::Runner& run, int64_t n) {
    return times_of(benchmark::timeit(run, n));
  });
  b.def(
      "blocked_autorange",
      [](const benchmark::Runner& run, double min_run_time, const benchmark::Progress& progress) {
        return times_of(benchmark::blocked_autorange(run, min_run_time, {}, progress));
      },
      nb::arg(), nb::arg(), nb::arg().none());
  b.def(
      "adaptive_autorange",
      [](const benchmark::Runner& run, double threshold, double min_run_time, double max_run_time,
         const benchmark::Progress& progress) {
        return times_of(benchmark::adaptive_autorange(run, threshold, min_run_time, max_run_time,
                                                      {}, progress));
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  b.def("device_time", [](const std::function<void()>& run, Device device, int repetitions,
                          bool flush_cache, int threads) {
    TaskSpec spec;
    spec.num_threads = threads;
    return times_of(benchmark::Timer(run, spec).device_time(device, repetitions, flush_cache));
  });
  b.def("callgrind_mark", &arete_callgrind_mark);
  b.def("compare", [](const nb::list& results, bool trim, bool highlight, int colorize) {
    std::vector<Measurement> all;
    for (nb::handle r : results) all.push_back(nb::cast<const Measurement&>(r));
    benchmark::Compare c(std::move(all));
    if (trim) c.trim_significant_figures();
    if (highlight) c.highlight_warnings();
    if (colorize) c.colorize(colorize == 2);
    return c.to_string();
  });
  b.def("select_unit", [](double t) {
    const benchmark::TimeUnit u = benchmark::select_unit(t);
    return std::make_tuple(u.name, u.seconds);
  });
  b.def("trim_sigfig", &benchmark::trim_sigfig);
  b.def("merge", [](const nb::list& results) {
    std::vector<Measurement> all;
    for (nb::handle r : results) all.push_back(nb::cast<const Measurement&>(r));
    return Measurement::merge(all);
  });
}

}  // namespace arete::python
