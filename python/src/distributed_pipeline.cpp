// Schedules of pipelines, behind arete.distributed.pipelining.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "arete/distributed/cost_model.h"
#include "arete/distributed/pipeline_schedule.h"
#include "data_parallel.h"

namespace nb = nanobind;

namespace arete::python {

namespace d = arete::distributed;

void bind_pipeline(nb::module_& m) {
  using Action = d::PipelineAction;
  nb::enum_<Action::Kind>(m, "PipelineStep")
      .value("F", Action::Kind::forward)
      .value("B", Action::Kind::backward)
      .value("I", Action::Kind::backward_input)
      .value("W", Action::Kind::backward_weight)
      .value("SEND_F", Action::Kind::send_forward)
      .value("RECV_F", Action::Kind::recv_forward)
      .value("SEND_B", Action::Kind::send_backward)
      .value("RECV_B", Action::Kind::recv_backward);
  nb::class_<Action>(m, "PipelineAction")
      .def_ro("kind", &Action::kind)
      .def_ro("stage", &Action::stage)
      .def_ro("microbatch", &Action::microbatch)
      .def_prop_ro("computes", &Action::computes)
      .def("__eq__", [](const Action& a, const Action& b) { return a == b; })
      .def("__repr__", [](const Action& a) { return d::to_string(a); });
  nb::class_<d::PipelineSchedule>(m, "PipelineSchedule")
      .def_ro("rank_of_stage", &d::PipelineSchedule::rank_of_stage)
      .def_ro("ranks", &d::PipelineSchedule::ranks);
  m.def("pipeline_schedule", &d::pipeline_schedule);
  m.def("check_schedule", &d::check_schedule);
  // Seconds of a step, and the part of it in which processes wait.
  m.def("simulate_schedule",
        [](const d::PipelineSchedule& s, std::vector<double> forward, std::vector<double> input,
           std::vector<double> weight, double transfer) {
          const d::PipelineTimes t = d::simulate_schedule(
              s, {std::move(forward), std::move(input), std::move(weight), transfer});
          return std::pair(t.total, t.bubble());
        });
  // Latency and bandwidth of what was measured, and what collectives take with them.
  m.def("fit_link", [](const std::vector<std::pair<double, double>>& measured) {
    const d::Link link = d::fit_link(measured);
    return std::pair(link.latency, link.bandwidth);
  });
}

}  // namespace arete::python
