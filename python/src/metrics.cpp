// Metrics, behind arete.metrics.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include "arete/distributed/process_group.h"
#include "arete/metrics/classification.h"
#include "arete/metrics/detection.h"
#include "arete/metrics/regression.h"
#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;

namespace arete::python {

void bind_metrics(nb::module_& m) {
  namespace a = arete::metrics;
  using a::Metric;
  using MetricPtr = std::shared_ptr<Metric>;
  using Pictures = std::vector<std::vector<Tensor>>;
  nb::class_<Metric>(m, "_Metric")
      .def("update", nb::overload_cast<const Tensor&, const Tensor&>(&Metric::update))
      .def("update_boxes",
           [](Metric& metric, const Pictures& preds, const Pictures& target) {
             std::vector<a::Boxes> found, wanted;
             for (const auto& p : preds) found.push_back({p.at(0), p.at(1), p.at(2)});
             for (const auto& t : target) wanted.push_back({t.at(0), t.at(1)});
             dynamic_cast<a::MeanAveragePrecision&>(metric).update(found, wanted);
           })
      .def("compute", &Metric::compute)
      .def("details",
           [](const Metric& metric) {
             return dynamic_cast<const a::MeanAveragePrecision&>(metric).details();
           })
      .def("reset", &Metric::reset)
      .def("to", &Metric::to)
      .def("device", &Metric::device)
      .def("merge", &Metric::merge)
      .def("sync_and_compute",
           [](Metric& metric, std::shared_ptr<distributed::ProcessGroup> group) {
             const nb::gil_scoped_release release;
             return metric.sync_and_compute(group);
           })
      .def("state_dict", &Metric::state_dict)
      .def("load_state_dict", &Metric::load_state_dict);
  m.def("_class_metric",
        [](const std::string& kind, const std::string& task, int64_t classes,
           const std::string& average, double threshold, std::optional<int64_t> ignore_index,
           int64_t top_k, double beta) -> MetricPtr {
          const a::ClassOptions o{a::task_of(task), classes,      a::average_of(average),
                                  threshold,        ignore_index, top_k};
          if (kind == "accuracy") return std::make_shared<a::Accuracy>(o);
          if (kind == "precision") return std::make_shared<a::Precision>(o);
          if (kind == "recall") return std::make_shared<a::Recall>(o);
          if (kind == "fbeta") return std::make_shared<a::FBetaScore>(o, beta);
          if (kind == "confusion") return std::make_shared<a::ConfusionMatrix>(o);
          return std::make_shared<a::AUROC>(o);
        });
  m.def("_perplexity", [](std::optional<int64_t> ignore_index) -> MetricPtr {
    return std::make_shared<a::Perplexity>(ignore_index);
  });
  m.def("_mean_average_precision",
        []() -> MetricPtr { return std::make_shared<a::MeanAveragePrecision>(); });
  m.def("_number_metric", [](const std::string& kind, bool squared, int64_t outputs) -> MetricPtr {
    if (kind == "mean") return std::make_shared<a::MeanMetric>();
    if (kind == "mse") return std::make_shared<a::MeanSquaredError>(squared);
    if (kind == "mae") return std::make_shared<a::MeanAbsoluteError>();
    return std::make_shared<a::R2Score>(outputs);
  });
}

}  // namespace arete::python
