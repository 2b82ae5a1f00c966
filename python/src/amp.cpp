// Mixed precision; arete/amp/ gives it torch's faces.
#include "arete/amp/autocast.h"
#include "arete/amp/grad_scaler.h"
#include "arete/ops/autocast.h"
#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;

namespace arete::python {

namespace {

/// An optimizer that lives in Python, by two callables.
class PythonOptimizer final : public amp::Scalable {
 public:
  PythonOptimizer(nb::object parameters, nb::object step, bool may_unscale_half, bool may_step_half)
      : parameters_(std::move(parameters)),
        step_(std::move(step)),
        may_unscale_half_(may_unscale_half),
        may_step_half_(may_step_half) {}
  std::vector<Tensor> scaled_parameters() const override {
    return nb::cast<std::vector<Tensor>>(parameters_());
  }
  void step_scaled(const Tensor& found_inf, const Tensor& inverse_scale) override {
    step_(found_inf, inverse_scale);
  }
  bool may_unscale_half() const override { return may_unscale_half_; }
  bool may_step_half() const override { return may_step_half_; }

 private:
  nb::object parameters_, step_;
  bool may_unscale_half_, may_step_half_;
};

}  // namespace

void bind_amp(nb::module_& m) {
  m.def("_is_autocast_enabled", [](Device d) { return amp::is_autocast_enabled(d); });
  m.def("_autocast_dtype", [](Device d) { return amp::autocast_dtype(d); });
  m.def("_set_autocast", [](Device d, bool enabled, DType dtype, bool cache) {
    amp::set_autocast_dtype(d, dtype);
    amp::set_autocast_enabled(d, enabled);
    amp::set_autocast_cache_enabled(cache);
  });
  m.def("_autocast_cache", [](std::optional<bool> on) {
    if (on) amp::set_autocast_cache_enabled(*on);
    return amp::is_autocast_cache_enabled();
  });
  m.def("_clear_autocast_cache", &amp::clear_autocast_cache);
  m.def("_enter_autocast_region", &amp::enter_autocast_region);
  m.def("_leave_autocast_region", &amp::leave_autocast_region);
  // The class of an operator on a kind of device, for tests.
  m.def("_autocast_class", [](const std::string& name, Device d) {
    const ops::OpRecord* op = ops::find_record(name);
    if (!op) throw ValueError("_autocast_class", "there is no operator " + name);
    static const char* names[] = {"none", "lower", "f32", "promote", "banned", "as_is"};
    return std::string(names[int(ops::autocast_class(op->autocast, d.type))]);
  });

  nb::class_<amp::Scalable>(m, "_AnyScalable");
  nb::class_<PythonOptimizer, amp::Scalable>(m, "_Scalable")
      .def(nb::init<nb::object, nb::object, bool, bool>());
  nb::class_<amp::GradScaler>(m, "_GradScaler")
      .def("__init__",
           [](amp::GradScaler* self, double scale, double growth, double backoff, int64_t interval,
              double floor, bool enabled) {
             new (self) amp::GradScaler({.init_scale = scale,
                                         .growth_factor = growth,
                                         .backoff_factor = backoff,
                                         .growth_interval = interval,
                                         .min_scale = floor,
                                         .enabled = enabled});
           })
      .def("scale", [](amp::GradScaler& s, const Tensor& t) { return s.scale(t); })
      .def("unscale_", [](amp::GradScaler& s, amp::Scalable& o) { s.unscale_(o); })
      .def("step", [](amp::GradScaler& s, amp::Scalable& o) { s.step(o); })
      .def(
          "update", [](amp::GradScaler& s, std::optional<double> scale) { s.update(scale); },
          nb::arg("scale") = nb::none())
      .def("update_to", [](amp::GradScaler& s, const Tensor& scale) { s.update(scale); })
      .def("is_ready", [](const amp::GradScaler& s,
                          const amp::Scalable& o) { return !s.found_inf(o).defined(); })
      .def("found_inf",
           [](const amp::GradScaler& s, const amp::Scalable& o) { return s.found_inf(o); })
      .def("is_enabled", &amp::GradScaler::is_enabled)
      .def("get_scale", &amp::GradScaler::get_scale)
      .def("scale_tensor", &amp::GradScaler::scale_tensor)
      .def("num_skipped", &amp::GradScaler::num_skipped)
      .def("set_growth_factor", &amp::GradScaler::set_growth_factor)
      .def("set_backoff_factor", &amp::GradScaler::set_backoff_factor)
      .def("set_growth_interval", &amp::GradScaler::set_growth_interval)
      .def("state",
           [](const amp::GradScaler& s) {
             const amp::GradScalerState v = s.state();
             return std::tuple(v.scale, v.growth_factor, v.backoff_factor, v.growth_interval,
                               v.growth_tracker);
           })
      .def("load_state",
           [](amp::GradScaler& s, double scale, double growth, double backoff, int64_t interval,
              int64_t tracker) {
             s.load_state({scale, growth, backoff, interval, tracker});
           })
      .def("report",
           [](const amp::GradScaler& s, const std::vector<std::pair<std::string, Tensor>>& names) {
             return s.report(names);
           });
}

}  // namespace arete::python
