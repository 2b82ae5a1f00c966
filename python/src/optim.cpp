// The optimizers; arete/optim/ gives them torch's faces. Groups and state are Python's: see Note
// [State that Python owns].
#include "arete/core/history.h"
#include "arete/device/cuda.h"
#include "arete/nn/utils.h"
#include "arete/ops/creation.h"
#include "arete/optim/adafactor.h"
#include "arete/optim/adam.h"
#include "arete/optim/adam_relatives.h"
#include "arete/optim/adaptive.h"
#include "arete/optim/asgd.h"
#include "arete/optim/lbfgs.h"
#include "arete/optim/muon.h"
#include "arete/optim/rprop.h"
#include "arete/optim/sgd.h"
#include "arete/optim/sparse_adam.h"
#include "bindings.h"
#include "caster.h"
#include "skip.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

namespace {

using optim::Check;
using optim::Member;
using optim::Setting;

// ---- options

PyObject* item_of(PyObject* dict, const char* key) {
  const Ref name(checked(PyUnicode_InternFromString(key)));
  PyObject* const value = PyDict_GetItemWithError(dict, name.get());
  if (!value && PyErr_Occurred()) throw PythonError{};
  return value;
}

Setting to_setting(const std::string& name, PyObject* o) {
  if (is_tensor(o)) {
    ARETE_CHECK(tensor_of(o).numel() == 1,
                ValueError("optim", "Tensor " + name + " must be 1-element"));
    return tensor_of(o);
  }
  Scalar s;
  if (!to_scalar(o, s) || s.is_complex())
    type_error("the setting '%s' must be a number or a tensor with one element, not %s",
               name.c_str(), Py_TYPE(o)->tp_name);
  if (s.is_integral()) return s.to_int64();
  return s.to_double();
}

/// Reads options out of a group. What is not there stays as it is.
class GroupReader {
 public:
  explicit GroupReader(PyObject* group) : group_(group) {}
  void operator()(const char* name, Setting& place, Check = optim::any_number) {
    if (PyObject* o = item_of(group_, name)) place = to_setting(name, o);
  }
  void operator()(const char* name, std::optional<double>& place, Check = optim::any_number) {
    if (PyObject* o = item_of(group_, name)) read(name, o, place);
  }
  void operator()(const char* name, bool& place) {
    if (PyObject* o = item_of(group_, name)) place = truth(o);
  }
  template <class... T>
  void tuple(const char* name, const Member<T>&... members) {
    PyObject* const o = item_of(group_, name);
    if (!o) return;
    const Ref items(PySequence_Fast(o, "a tuple of settings must be a sequence"));
    checked(items.get());
    if (PySequence_Fast_GET_SIZE(items.get()) != Py_ssize_t(sizeof...(members)))
      type_error("the setting '%s' must have %d numbers", name, int(sizeof...(members)));
    Py_ssize_t i = 0;
    const auto next = [&](auto& place) {
      read(name + ("[" + std::to_string(i) + "]"), PySequence_Fast_GET_ITEM(items.get(), i), place);
      ++i;
    };
    (next(members.place), ...);
  }
  template <class T, size_t N>
  void choice(const char* name, T& place, const std::array<const char*, N>& texts) {
    PyObject* const o = item_of(group_, name);
    if (!o) return;
    place = T(0);
    if (o == Py_None) return;
    std::string all = "None";
    for (size_t i = 0; i < N; ++i) {
      if (PyUnicode_Check(o) && PyUnicode_CompareWithASCIIString(o, texts[i]) == 0) {
        place = T(i + std::is_same_v<T, bool>);
        return;
      }
      all += std::string(", '") + texts[i] + "'";
    }
    const Ref text(checked(PyObject_Repr(o)));
    throw ValueError("optim",
                     std::string(name) + " " + PyUnicode_AsUTF8(text.get()) + " is not supported")
        .expected("one of: " + all);
  }
  void fixed(const char*, bool) {}
  void own(const char* name, bool& place) { (*this)(name, place); }
  void python(const char*) {}
  void keywords() {}

 private:
  static void read(const std::string& name, PyObject* o, Setting& place) {
    place = to_setting(name, o);
  }
  static void read(const std::string& name, PyObject* o, std::optional<double>& place) {
    place.reset();
    if (o != Py_None) place = to_setting(name, o).value();
  }
  PyObject* group_;
};

/// Lists options as (name, default, kind): "argument", "own", "fixed", "python", or "*" where
/// arguments by name begin.
class Describer {
 public:
  nb::list all;
  void operator()(const char* name, const Setting& place, Check = optim::any_number) {
    add(name, object(place), "argument");
  }
  void operator()(const char* name, const std::optional<double>& place, Check = {}) {
    add(name, object(place), "argument");
  }
  void operator()(const char* name, bool place) { add(name, nb::bool_(place), "argument"); }
  template <class... T>
  void tuple(const char* name, const Member<T>&... members) {
    add(name, nb::make_tuple(object(members.place)...), "argument");
  }
  template <class T, size_t N>
  void choice(const char* name, const T&, const std::array<const char*, N>&) {
    add(name, nb::none(), "argument");
  }
  void fixed(const char* name, bool value) { add(name, nb::bool_(value), "fixed"); }
  void own(const char* name, bool place) { add(name, nb::bool_(place), "own"); }
  void python(const char* name) { add(name, nb::none(), "python"); }
  void keywords() { add("*", nb::none(), "*"); }

 private:
  static nb::object object(const Setting& s) {
    if (s.is_whole()) return nb::int_(int64_t(s.value()));
    return nb::float_(s.value());
  }
  static nb::object object(const std::optional<double>& v) {
    if (v) return nb::float_(*v);
    return nb::none();
  }
  void add(const char* name, nb::object value, const char* kind) {
    all.append(nb::make_tuple(name, std::move(value), kind));
  }
};

/// What Python knows of an optimizer.
struct OptimizerKind {
  const char* name;
  std::unique_ptr<optim::Optimizer> (*make)();
  optim::Settings (*read)(PyObject* group, bool checks);
  void (*check_parameter)(const Tensor& param);
  nb::list (*describe)();
};

// Counts of groups with fused=True are where the parameters are, as torch's.
template <class Options>
optim::Settings read_settings(PyObject* group, bool checks) {
  Options options;
  GroupReader reader(group);
  Options::fields(reader, options);
  optim::Settings settings = optim::settings_of(options, checks);
  PyObject* const fused = item_of(group, "fused");
  settings.emplace_back("fused", Setting::fixed(int(fused && truth(fused))));
  return settings;
}

template <class O>
constexpr OptimizerKind kind() {
  using Options = typename O::Options;
  return {Options::kOptimizer,
          []() -> std::unique_ptr<optim::Optimizer> {
            return std::make_unique<O>(std::vector<optim::Group<Options>>{});
          },
          &read_settings<Options>,
          [](const Tensor& param) {
            if constexpr (requires { Options::check_parameter(param); })
              Options::check_parameter(param);
          },
          [] {
            Describer d;
            const Options defaults;
            Options::fields(d, defaults);
            return d.all;
          }};
}

constexpr OptimizerKind kKinds[] = {
    kind<optim::Adadelta>(),   kind<optim::Adafactor>(), kind<optim::Adagrad>(),
    kind<optim::Adam>(),       kind<optim::AdamW>(),     kind<optim::Adamax>(),
    kind<optim::ASGD>(),       kind<optim::LBFGS>(),     kind<optim::Lion>(),
    kind<optim::Muon>(),       kind<optim::NAdam>(),     kind<optim::RAdam>(),
    kind<optim::RMSprop>(),    kind<optim::Rprop>(),     kind<optim::SGD>(),
    kind<optim::SparseAdam>(),
};

const OptimizerKind& kind_of(const std::string& name) {
  for (const OptimizerKind& k : kKinds)
    if (name == k.name) return k;
  throw ValueError("optim", "there is no optimizer called " + name);
}

// ---- state

// Note [State that Python owns]
// param_groups and state are plain lists and dicts, which programs read and change as they like. So
// they decide, and the C++ optimizer is a cache of them: before a step it takes over what differs,
// which is found by comparing addresses (of parameters, of values of settings, of tensors of the
// state), and after it the tensors that are new are put into the dicts. In between nobody looks.

/// The C++ optimizer behind a Python one.
class Native final : public Stepper {
 public:
  explicit Native(const std::string& name) : kind_(kind_of(name)), optimizer_(kind_.make()) {
    for (nb::handle field : kind_.describe())
      if (nb::cast<std::string>(field[0]) != "*")
        keys_.push_back(Ref::borrow(nb::object(field[0]).ptr()));
    for (const optim::StateKey& key : optimizer_->state_keys())
      names_.emplace_back(checked(PyUnicode_InternFromString(std::string(key.name).c_str())));
  }

  void step(nb::handle owner, const Tensor& found_inf, const Tensor& inverse_scale) {
    CallWatcher* const watcher = CallWatcher::of_thread();
    if (watcher)
      watcher->begin_step(owner.ptr(), nb::find(*this).ptr(), *this, !found_inf.defined());
    step_and_publish(owner, [&] {
      const WithoutGil free;
      optimizer_->step_scaled(found_inf, inverse_scale);
    });
    if (watcher) watcher->end_step();
  }
  // Its calls are put off: nobody waits long for the GIL.
  void step_again(PyObject* owner) override {
    step_and_publish(owner, [&] { optimizer_->step_scaled({}, {}); });
  }

  Tensor step_with(nb::handle owner, const nb::callable& closure) {
    sync(owner, false);
    return optimizer_->step([&] { return nb::cast<Tensor>(closure()); });
  }

  void make_state(nb::handle owner) {
    sync(owner, true);
    optimizer_->make_state();
    put_new_state(owner);
  }

  optim::LBFGS& lbfgs() { return dynamic_cast<optim::LBFGS&>(*optimizer_); }

  /// Takes over groups and state; `all`: also that of parameters without gradients.
  void sync(nb::handle owner, bool all) {
    const nb::object groups = owner.attr("param_groups"), state = owner.attr("state");
    if (!PyList_Check(groups.ptr())) type_error("param_groups must be a list");
    if (!PyDict_Check(state.ptr())) type_error("the state of an optimizer must be a dict");
    const Py_ssize_t n = PyList_GET_SIZE(groups.ptr());
    for (Py_ssize_t i = 0; i < n; ++i) sync_group(size_t(i), PyList_GET_ITEM(groups.ptr(), i));
    optimizer_->drop_groups(size_t(n));
    seen_.resize(size_t(n));
    for (Py_ssize_t i = 0; i < n; ++i)
      sync_state(size_t(i), PyList_GET_ITEM(groups.ptr(), i), state.ptr(), all);
  }

 private:
  template <class F>
  void step_and_publish(nb::handle owner, const F& step) {
    sync(owner, false);
    optim::Optimizer& o = *optimizer_;
    recorded_ = false;
    o.on_record = [this, owner](cuda::GraphCapture& capture) { record(capture, owner); };
    const auto publish = [&] {
      o.on_record = nullptr;
      put_new_state(owner);
    };
    try {
      step();
    } catch (...) {
      publish();
      throw;
    }
    publish();
  }

  /// Values of settings that the C++ group has been given.
  struct Seen {
    std::vector<Ref> values;
  };

  static bool has_grad(const Tensor& t) {
    const AutogradMeta* const meta = t.impl()->autograd.get();
    return meta && meta->accumulator && meta->accumulator->grad.defined();
  }

  static PyObject* params_of(PyObject* group) {
    if (!PyDict_Check(group)) type_error("a parameter group must be a dict");
    PyObject* const params = item_of(group, "params");
    if (!params || !PyList_Check(params)) type_error("the 'params' of a group must be a list");
    return params;
  }

  void sync_group(size_t i, PyObject* group) {
    PyObject* const params = params_of(group);
    const size_t n = size_t(PyList_GET_SIZE(params));
    const bool known = i < optimizer_->param_groups().size();
    bool same = known && optimizer_->param_groups()[i].params.size() == n;
    for (size_t p = 0; same && p < n; ++p) {
      PyObject* const o = PyList_GET_ITEM(params, Py_ssize_t(p));
      same = is_tensor(o) && tensor_of(o).impl() == optimizer_->param_groups()[i].params[p].impl();
    }
    if (seen_.size() <= i) seen_.resize(i + 1);
    std::vector<Ref>& seen = seen_[i].values;
    bool changed = seen.empty();
    seen.resize(keys_.size());
    for (size_t k = 0; k < keys_.size(); ++k) {
      PyObject* const v = PyDict_GetItemWithError(group, keys_[k].get());
      // A list may have other items than before.
      if (v == seen[k].get() && !(v && PyList_Check(v))) continue;
      seen[k] = Ref::borrow(v);
      changed = true;
    }
    if (same && !changed) return;
    try {
      optim::Settings settings = kind_.read(group, false);
      if (same) {
        for (auto& [name, value] : settings)
          optimizer_->param_groups()[i].replace(name, std::move(value));
        return;
      }
      std::vector<Tensor> tensors;
      if (!to_tensors(params, tensors)) type_error("the 'params' of a group must be tensors");
      optimizer_->put_group(i, std::move(tensors), std::move(settings));
    } catch (...) {
      seen.clear();
      throw;
    }
  }

  void sync_state(size_t i, PyObject* group, PyObject* state, bool all) {
    optim::Optimizer& o = *optimizer_;
    PyObject* const params = params_of(group);
    const std::vector<Tensor>& tensors = o.param_groups()[i].params;
    const uint32_t of_group = o.state_in_use(i);
    for (size_t p = 0; p < tensors.size(); ++p) {
      if (!all && !has_grad(tensors[p])) continue;
      PyObject* const of_param =
          PyDict_GetItemWithError(state, PyList_GET_ITEM(params, Py_ssize_t(p)));
      if (of_param && !PyDict_Check(of_param))
        type_error("the state of a parameter must be a dict");
      for (size_t key = 0; key < names_.size(); ++key) {
        if (!(of_group >> key & 1) || !o.state_keys()[key].shown) continue;
        PyObject* v = of_param ? PyDict_GetItemWithError(of_param, names_[key].get()) : nullptr;
        if (v == Py_None) v = nullptr;
        if (v && !is_tensor(v)) {
          PyErr_SetString(PyExc_RuntimeError,
                          "`state_steps` argument must contain a list of singleton tensors");
          throw PythonError{};
        }
        const TensorImpl* const impl = v ? tensor_of(v).impl() : nullptr;
        if (impl != o.state(i, p, key).impl()) o.put_state(i, p, key, v ? tensor_of(v) : Tensor());
      }
    }
  }

  void put_new_state(nb::handle owner) {
    optim::Optimizer& o = *optimizer_;
    const auto fresh = o.take_new_state();
    if (fresh.empty()) return;
    const nb::object groups = owner.attr("param_groups"), state = owner.attr("state");
    for (const auto& [i, p] : fresh) {
      PyObject* const params = params_of(PyList_GET_ITEM(groups.ptr(), Py_ssize_t(i)));
      PyObject* const param = PyList_GET_ITEM(params, Py_ssize_t(p));
      PyObject* of_param = PyDict_GetItemWithError(state.ptr(), param);
      if (!of_param) {
        const Ref made(checked(PyDict_New()));
        if (PyDict_SetItem(state.ptr(), param, made.get()) < 0) throw PythonError{};
        of_param = PyDict_GetItemWithError(state.ptr(), param);
      }
      for (size_t key = 0; key < names_.size(); ++key) {
        const Tensor& t = o.state(i, p, key);
        if (!t.defined() || !o.state_keys()[key].shown) continue;
        const Ref value(checked(wrap(t)));
        if (PyDict_SetItem(of_param, names_[key].get(), value.get()) < 0) throw PythonError{};
      }
    }
  }

  // The graph keeps the Python optimizer, and asks it for its settings before each replay.
  void record(cuda::GraphCapture& capture, nb::handle owner) {
    if (recorded_) return;
    recorded_ = true;
    const WithGil held;
    const std::shared_ptr<PyObject> kept(Py_NewRef(owner.ptr()), [](PyObject* o) {
      const WithGil held;
      Py_DECREF(o);
    });
    capture.before_replay([kept] {
      const WithGil held;
      const nb::handle o(kept.get());
      nb::cast<Native&>(o.attr("_impl")).sync(o, false);
    });
  }

  const OptimizerKind& kind_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<Ref> keys_;   // of groups
  std::vector<Ref> names_;  // of the state
  std::vector<Seen> seen_;
  bool recorded_ = false;  // this step, already
};

// ---- L-BFGS, whose state is of all parameters together and of other kinds

nb::dict memory_of(Native& native) {
  const optim::LBFGS::Memory& m = native.lbfgs().memory();
  nb::dict d;
  d["func_evals"] = m.evaluations;
  d["n_iter"] = m.iterations;
  if (m.iterations == 0) return d;
  nb::list changes, steps, inverses;
  for (const optim::LBFGS::Pair& p : m.pairs) {
    changes.append(p.change);
    steps.append(p.step);
    inverses.append(p.inverse);
  }
  d["d"] = m.direction;
  d["t"] = m.t;
  d["old_dirs"] = changes;
  d["old_stps"] = steps;
  d["ro"] = inverses;
  d["H_diag"] = m.curvature;
  d["prev_flat_grad"] = m.gradient;
  d["prev_loss"] = m.loss;
  return d;
}

void put_memory(Native& native, const nb::dict& d) {
  optim::LBFGS::Memory m;
  const auto has = [&](const char* name) { return d.contains(name) && !d[name].is_none(); };
  const auto number = [&](const char* name) {
    return has(name) ? optim::Setting(to_setting(name, nb::object(d[name]).ptr())).value() : 0;
  };
  m.evaluations = int64_t(number("func_evals"));
  m.iterations = int64_t(number("n_iter"));
  if (m.iterations > 0) {
    m.t = number("t");
    m.loss = number("prev_loss");
    const auto tensor = [&](const char* name) {
      return has(name) ? nb::cast<Tensor>(d[name]) : Tensor();
    };
    m.direction = tensor("d");
    m.gradient = tensor("prev_flat_grad");
    if (has("H_diag"))  // torch begins with the number 1
      m.curvature = is_tensor(nb::object(d["H_diag"]).ptr())
                        ? tensor("H_diag")
                        : full({}, number("H_diag"), {m.gradient.dtype(), m.gradient.device()});
    if (has("old_dirs")) {
      const auto changes = nb::cast<std::vector<Tensor>>(d["old_dirs"]),
                 steps = nb::cast<std::vector<Tensor>>(d["old_stps"]),
                 inverses = nb::cast<std::vector<Tensor>>(d["ro"]);
      if (changes.size() != steps.size() || changes.size() != inverses.size())
        type_error("the lists of an LBFGS state must have one length");
      for (size_t i = 0; i < changes.size(); ++i)
        m.pairs.push_back({changes[i], steps[i], inverses[i]});
    }
  }
  native.lbfgs().put_memory(std::move(m));
}

}  // namespace

void bind_optim(nb::module_& m) {
  nb::class_<Native>(m, "_Optimizer")
      .def(nb::init<const std::string&>())
      .def("step", &Native::step, "owner"_a, "found_inf"_a.none() = nb::none(),
           "inverse_scale"_a.none() = nb::none())
      .def("step_with", &Native::step_with)
      .def("make_state", &Native::make_state)
      .def("memory", &memory_of)
      .def("sync_memory", [](Native& n, nb::handle owner, const nb::dict& state) {
        n.sync(owner, false);
        put_memory(n, state);
      });
  m.def("_optimizer_names", [] {
    nb::list names;
    for (const OptimizerKind& k : kKinds) names.append(k.name);
    return names;
  });
  m.def("_optimizer_fields", [](const std::string& name) { return kind_of(name).describe(); });
  m.def("_check_optimizer_group", [](const std::string& name, const nb::dict& group) {
    const OptimizerKind& kind = kind_of(name);
    std::vector<Tensor> params;
    if (!to_tensors(nb::object(group["params"]).ptr(), params))
      type_error("the 'params' of a group must be tensors");
    for (const Tensor& p : params) kind.check_parameter(p);
    kind.read(group.ptr(), true);
  });
  m.def("_zero_grad", [](nb::handle params, bool set_to_none) {
    const auto tensors = nb::cast<std::vector<Tensor>>(params);
    if (CallWatcher* const watcher = CallWatcher::of_thread())
      watcher->zero_grad(params.ptr(), set_to_none);
    const WithoutGil free;
    optim::zero_grad(tensors, set_to_none);
  });
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
