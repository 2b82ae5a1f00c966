// The optimizers; arete/optim/__init__.py gives them torch's faces.
#include "arete/nn/utils.h"
#include "arete/optim/adam.h"
#include "arete/optim/adam_relatives.h"
#include "arete/optim/adaptive.h"
#include "arete/optim/asgd.h"
#include "arete/optim/lbfgs.h"
#include "arete/optim/rprop.h"
#include "arete/optim/sgd.h"
#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

namespace {

using Numbers = std::map<std::string, double>;
using Groups = std::vector<std::pair<std::vector<Tensor>, Numbers>>;

/// Takes numbers out of a group by name.
class Reader {
 public:
  explicit Reader(const Numbers& n) : numbers_(n) {}
  ~Reader() = default;
  Reader& operator()(const char* name, double& to) {
    if (const auto it = numbers_.find(name); it != numbers_.end()) to = it->second;
    return *this;
  }
  Reader& operator()(const char* name, int64_t& to) {
    if (const auto it = numbers_.find(name); it != numbers_.end()) to = int64_t(it->second);
    return *this;
  }
  Reader& operator()(const char* name, bool& to) {
    if (const auto it = numbers_.find(name); it != numbers_.end()) to = it->second != 0;
    return *this;
  }

 private:
  const Numbers& numbers_;
};

optim::SGDOptions read(const Numbers& n, optim::SGDOptions o) {
  Reader{n}("lr", o.lr)("momentum", o.momentum)("dampening", o.dampening)(
      "weight_decay", o.weight_decay)("nesterov", o.nesterov)("maximize", o.maximize)(
      "master_weights", o.master_weights);
  return o;
}
template <class Options>
Options read_adam(const Numbers& n, Options o) {
  Reader{n}("lr", o.lr)("beta1", o.betas.beta1)("beta2", o.betas.beta2)("eps", o.eps)(
      "weight_decay", o.weight_decay)("amsgrad", o.amsgrad)("maximize", o.maximize)(
      "master_weights", o.master_weights);
  return o;
}
optim::AdamOptions read(const Numbers& n, optim::AdamOptions o) { return read_adam(n, o); }
optim::AdamWOptions read(const Numbers& n, optim::AdamWOptions o) { return read_adam(n, o); }
optim::LionOptions read(const Numbers& n, optim::LionOptions o) {
  Reader{n}("lr", o.lr)("beta1", o.betas.beta1)("beta2", o.betas.beta2)(
      "weight_decay", o.weight_decay)("maximize", o.maximize);
  return o;
}
optim::RMSpropOptions read(const Numbers& n, optim::RMSpropOptions o) {
  Reader{n}("lr", o.lr)("alpha", o.alpha)("eps", o.eps)("weight_decay", o.weight_decay)(
      "momentum", o.momentum)("centered", o.centered)("maximize", o.maximize);
  return o;
}
optim::AdagradOptions read(const Numbers& n, optim::AdagradOptions o) {
  Reader{n}("lr", o.lr)("lr_decay", o.lr_decay)("weight_decay", o.weight_decay)(
      "initial_accumulator_value", o.initial_accumulator_value)("eps", o.eps)("maximize",
                                                                              o.maximize);
  return o;
}
optim::AdadeltaOptions read(const Numbers& n, optim::AdadeltaOptions o) {
  Reader{n}("lr", o.lr)("rho", o.rho)("eps", o.eps)("weight_decay", o.weight_decay)("maximize",
                                                                                    o.maximize);
  return o;
}
optim::NAdamOptions read(const Numbers& n, optim::NAdamOptions o) {
  Reader{n}("lr", o.lr)("beta1", o.betas.beta1)("beta2", o.betas.beta2)("eps", o.eps)(
      "weight_decay", o.weight_decay)("momentum_decay", o.momentum_decay)(
      "decoupled_weight_decay", o.decoupled_weight_decay)("maximize", o.maximize);
  return o;
}
optim::RAdamOptions read(const Numbers& n, optim::RAdamOptions o) {
  Reader{n}("lr", o.lr)("beta1", o.betas.beta1)("beta2", o.betas.beta2)("eps", o.eps)(
      "weight_decay", o.weight_decay)("decoupled_weight_decay", o.decoupled_weight_decay)(
      "maximize", o.maximize);
  return o;
}
optim::AdamaxOptions read(const Numbers& n, optim::AdamaxOptions o) {
  Reader{n}("lr", o.lr)("beta1", o.betas.beta1)("beta2", o.betas.beta2)("eps", o.eps)(
      "weight_decay", o.weight_decay)("maximize", o.maximize);
  return o;
}
optim::RpropOptions read(const Numbers& n, optim::RpropOptions o) {
  Reader{n}("lr", o.lr)("eta_minus", o.eta_minus)("eta_plus", o.eta_plus)("step_min", o.step_min)(
      "step_max", o.step_max)("maximize", o.maximize);
  return o;
}
optim::ASGDOptions read(const Numbers& n, optim::ASGDOptions o) {
  Reader{n}("lr", o.lr)("lambd", o.lambd)("alpha", o.alpha)("t0", o.t0)(
      "weight_decay", o.weight_decay)("maximize", o.maximize);
  return o;
}
optim::LBFGSOptions read(const Numbers& n, optim::LBFGSOptions o) {
  Reader{n}("lr", o.lr)("max_iter", o.max_iter)("max_eval", o.max_eval)(
      "tolerance_grad", o.tolerance_grad)("tolerance_change", o.tolerance_change)(
      "history_size", o.history_size)("strong_wolfe", o.strong_wolfe);
  return o;
}

std::unique_ptr<optim::Optimizer> make_lbfgs(const Groups& groups) {
  ARETE_CHECK(groups.size() == 1,
              ValueError("LBFGS", "LBFGS doesn't support per-parameter options (parameter groups)")
                  .got(std::to_string(groups.size()) + " groups"));
  return std::make_unique<optim::LBFGS>(groups[0].first,
                                        read(groups[0].second, optim::LBFGSOptions{}));
}

template <class O, class Options>
std::unique_ptr<optim::Optimizer> make(const Groups& groups) {
  std::vector<optim::Group<Options>> typed;
  for (const auto& [params, numbers] : groups) typed.push_back({params, read(numbers, Options{})});
  return std::make_unique<O>(std::move(typed));
}

std::unique_ptr<optim::Optimizer> make_optimizer(const std::string& kind, const Groups& groups) {
  if (kind == "SGD") return make<optim::SGD, optim::SGDOptions>(groups);
  if (kind == "Adam") return make<optim::Adam, optim::AdamOptions>(groups);
  if (kind == "AdamW") return make<optim::AdamW, optim::AdamWOptions>(groups);
  if (kind == "Lion") return make<optim::Lion, optim::LionOptions>(groups);
  if (kind == "RMSprop") return make<optim::RMSprop, optim::RMSpropOptions>(groups);
  if (kind == "Adagrad") return make<optim::Adagrad, optim::AdagradOptions>(groups);
  if (kind == "Adadelta") return make<optim::Adadelta, optim::AdadeltaOptions>(groups);
  if (kind == "NAdam") return make<optim::NAdam, optim::NAdamOptions>(groups);
  if (kind == "RAdam") return make<optim::RAdam, optim::RAdamOptions>(groups);
  if (kind == "Adamax") return make<optim::Adamax, optim::AdamaxOptions>(groups);
  if (kind == "Rprop") return make<optim::Rprop, optim::RpropOptions>(groups);
  if (kind == "ASGD") return make<optim::ASGD, optim::ASGDOptions>(groups);
  if (kind == "LBFGS") return make_lbfgs(groups);
  throw ValueError("optim", "there is no optimizer called " + kind);
}

}  // namespace

void bind_optim(nb::module_& m) {
  nb::class_<optim::Optimizer>(m, "_Optimizer")
      .def("__init__",
           [](optim::Optimizer*, const std::string&) {
             throw TypeError("_Optimizer", "made by _make_optimizer() only");
           })
      .def("step",
           [](optim::Optimizer& o) {
             const WithoutGil free;
             o.step();
           })
      .def("step_with",
           [](optim::Optimizer& o, const nb::callable& closure) {
             return o.step([&] { return nb::cast<Tensor>(closure()); });
           })
      .def(
          "step_scaled",
          [](optim::Optimizer& o, const Tensor& found_inf, const Tensor& inverse_scale) {
            const WithoutGil free;
            o.step_scaled(found_inf, inverse_scale);
          },
          "found_inf"_a, "inverse_scale"_a.none())
      .def("get", [](const optim::Optimizer& o, size_t group,
                     const std::string& name) { return o.param_groups().at(group).get(name); })
      .def("set", [](optim::Optimizer& o, size_t group, const std::string& name,
                     double v) { o.param_groups().at(group).set(name, v); })
      .def("settings", [](const optim::Optimizer& o,
                          size_t group) { return o.param_groups().at(group).settings(); })
      .def("state",
           [](const optim::Optimizer& o) {
             const optim::State s = o.state_dict();
             return std::pair(s.tensors, s.numbers);
           })
      .def("load", [](optim::Optimizer& o, std::map<std::string, Tensor> tensors,
                      std::map<std::string, double> numbers) {
        o.load_state_dict({std::move(tensors), std::move(numbers)});
      });
  m.def("_make_optimizer", &make_optimizer);
  m.def("_total_norm", [](const std::vector<Tensor>& tensors, double order) {
    const WithoutGil free;
    return nn::utils::get_total_norm(tensors, order);
  });
  m.def("_clip_grads_with_norm",
        [](const std::vector<Tensor>& parameters, double max_norm, const Tensor& total_norm) {
          const WithoutGil free;
          nn::utils::clip_grads_with_norm_(parameters, max_norm, total_norm);
        });
  m.def("_clip_grad_value", [](const std::vector<Tensor>& parameters, double value) {
    const WithoutGil free;
    nn::utils::clip_grad_value_(parameters, value);
  });
}

}  // namespace arete::python
