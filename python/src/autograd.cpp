// Differentiation: backward, grad, custom functions, the recorded graph.
#include <algorithm>

#include "arete/autograd/engine.h"
#include "arete/autograd/forward_mode.h"
#include "arete/autograd/function.h"
#include "arete/autograd/split_backward.h"
#include "arete/core/history.h"
#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/saved.h"
#include "arete/ops/vmap_internal.h"
#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

namespace {

/// A node of the graph, as grad_fn shows it.
struct GraphNode {
  IntrusivePtr<Node> node;
};

/// Lists the operators that this thread calls between start() and stop().
class CallTrace {
 public:
  void start() { lister_.emplace(calls_); }
  void stop() { lister_.reset(); }
  const std::vector<std::string>& calls() const { return calls_; }

 private:
  class Lister final : public tracing::ThreadListener {
   public:
    explicit Lister(std::vector<std::string>& calls) : calls_(calls) {}
    void end_call(uint64_t, const ops::OpRecord& op, tracing::Items<ops::Arg>,
                  tracing::Items<Tensor> results) noexcept override {
      std::string sizes;
      for (size_t i = 0; i < results.size; ++i)
        if (const Tensor& t = results.data[i]; t.defined())
          sizes += (sizes.empty() ? " -> " : ", ") + ops::describe(t);
      calls_.push_back(op.name + sizes);
    }

   private:
    std::vector<std::string>& calls_;
  };
  std::vector<std::string> calls_;
  std::optional<Lister> lister_;
};

/// A Python object that C++ may drop on any thread.
class SharedObject {
 public:
  explicit SharedObject(nb::object o)
      : object_(std::shared_ptr<PyObject>(o.release().ptr(), [](PyObject* p) {
          if (!Py_IsInitialized()) return;
          const WithGil gil;
          Py_DECREF(p);
        })) {}
  PyObject* get() const { return object_.get(); }

 private:
  std::shared_ptr<PyObject> object_;
};

/// The context of a custom function while one of its halves runs.
struct FunctionContext {
  autograd::Context* context;
};

PyObject* tuple_of(std::span<const Tensor> tensors) {
  PyObject* t = checked(PyTuple_New(Py_ssize_t(tensors.size())));
  for (size_t i = 0; i < tensors.size(); ++i)
    PyTuple_SET_ITEM(t, Py_ssize_t(i), checked(wrap(tensors[i])));
  return t;
}

/// What a Python function returned: a sequence of tensors and Nones.
std::vector<Tensor> tensors_in(PyObject* returned) {
  const Ref items(checked(PySequence_Fast(checked(returned), "expected a sequence of tensors")));
  std::vector<Tensor> all;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    PyObject* e = PySequence_Fast_GET_ITEM(items.get(), i);
    if (e == Py_None)
      all.emplace_back();
    else if (is_tensor(e))
      all.push_back(tensor_of(e));
    else
      type_error("a custom function returned %s where a Tensor was expected", Py_TYPE(e)->tp_name);
  }
  return all;
}

/// Takes what a hook returned for the gradients that it was given: None leaves them.
void replace(TensorList& grads, PyObject* returned) {
  if (returned == Py_None) return;
  const std::vector<Tensor> given =
      is_tensor(returned) ? std::vector{tensor_of(returned)} : tensors_in(returned);
  ARETE_CHECK(given.size() == grads.size(),
              AutogradError("register_hook", "hook has returned an incorrect number of gradients")
                  .expected(std::to_string(grads.size()))
                  .got(std::to_string(given.size())));
  std::copy(given.begin(), given.end(), grads.begin());
}

/// Calls f(context, tuple of tensors), which returns a sequence of tensors and Nones.
std::vector<Tensor> call_half(PyObject* f, autograd::Context& c,
                              const std::vector<Tensor>& tensors) {
  const WithGil gil;
  nb::object context = nb::cast(FunctionContext{&c});
  const Ref arguments(tuple_of(tensors));
  const Ref r(PyObject_CallFunctionObjArgs(f, context.ptr(), arguments.get(), nullptr));
  nb::cast<FunctionContext&>(context).context = nullptr;  // it ends with this call
  return tensors_in(r.get());
}

/// Calls f(tuple of tensors) alike.
std::vector<Tensor> call_with_tensors(PyObject* f, const std::vector<Tensor>& tensors) {
  const WithGil gil;
  const Ref arguments(tuple_of(tensors));
  const Ref r(PyObject_CallOneArg(f, arguments.get()));
  return tensors_in(r.get());
}

/// The level that Python entered on this thread.
thread_local std::unique_ptr<autograd::DualLevel> dual_level;
thread_local std::vector<std::unique_ptr<VmapLevel>> vmap_levels;

VmapLevel& innermost_level() {
  if (vmap_levels.empty()) throw AutogradError("vmap", "there is no level of vmap");
  return *vmap_levels.back();
}
/// Suspends it while a custom function runs.
thread_local std::unique_ptr<autograd::WithoutTangents> without_tangents;

nb::object tensor_or_none(const Tensor& t) {
  return t.defined() ? nb::steal(checked(wrap(t))) : nb::none();
}

autograd::Context& context_of(FunctionContext& c) {
  if (!c.context) throw AutogradError("Function", "the context was used after its call");
  return *c.context;
}

}  // namespace

void bind_autograd(nb::module_& m) {
  nb::class_<GraphNode>(m, "Node")
      .def("name", [](const GraphNode& n) { return tracing::backward_name(n.node->name()); })
      .def_prop_ro("next_functions",
                   [](const GraphNode& n) {
                     nb::list all;
                     for (const Edge& e : n.node->edges)
                       all.append(nb::make_tuple(e.node ? nb::cast(GraphNode{e.node}) : nb::none(),
                                                 int(e.slot)));
                     return nb::tuple(all);
                   })
      .def("__eq__",
           [](const GraphNode& a, nb::handle b) {
             GraphNode* other = nullptr;
             return nb::try_cast(b, other) && other && other->node.get() == a.node.get();
           })
      .def("_register_prehook",
           [](const GraphNode& n, nb::object hook) {
             return autograd::register_hook(
                 *n.node, Node::PreHook([f = SharedObject(std::move(hook))](TensorList& grads) {
                   const WithGil gil;
                   const Ref given(tuple_of(grads));
                   replace(grads, Ref(checked(PyObject_CallOneArg(f.get(), given.get()))).get());
                 }));
           })
      .def("_register_hook",
           [](const GraphNode& n, nb::object hook) {
             return autograd::register_hook(
                 *n.node, Node::PostHook([f = SharedObject(std::move(hook))](
                                             TensorList& inputs, const TensorList& outputs) {
                   const WithGil gil;
                   const Ref in(tuple_of(inputs)), out(tuple_of(outputs));
                   replace(inputs, Ref(checked(PyObject_CallFunctionObjArgs(f.get(), in.get(),
                                                                            out.get(), nullptr)))
                                       .get());
                 }));
           })
      .def("_remove_hook",
           [](const GraphNode& n, uint64_t number) { autograd::remove_hook(*n.node, number); })
      .def("_saved",
           [](const GraphNode& n) {
             nb::list all;
             if (auto* const call = dynamic_cast<ops::CallNode*>(n.node.get()))
               for (const ops::SavedValue& v : call->saved())
                 all.append(nb::make_tuple(v.name, tensor_or_none(v.tensor), v.in_list));
             return all;
           })
      .def("__hash__", [](const GraphNode& n) { return uintptr_t(n.node.get()) >> 4; })
      .def("__repr__", [](const GraphNode& n) { return "<" + n.node->name() + ">"; });
  m.def("_grad_fn", [](const Tensor& t) -> nb::object {
    IntrusivePtr<Node> n = t.grad_fn();
    return n ? nb::cast(GraphNode{std::move(n)}) : nb::none();
  });

  m.def("_gradient_edge", [](const Tensor& t) {
    const Edge e = gradient_edge(t);
    return nb::make_tuple(GraphNode{e.node}, int(e.slot));
  });
  // A tensor without values at which passes begin and end as at what the node made.
  m.def("_at_edge", [](const GraphNode& n, size_t slot) {
    if (slot >= n.node->outputs.size())
      throw IndexError("GradientEdge", n.node->name() + " has no output " + std::to_string(slot));
    const GradMeta& made = n.node->outputs[slot];
    Tensor t = empty_strided(made.sizes, Shape(made.sizes.size(), 0),
                             TensorOptions(made.dtype, made.device));
    set_history(t, n.node, uint32_t(slot));
    return t;
  });

  m.def("_backward", [](const std::vector<Tensor>& tensors, const TensorsOrNone& gradients,
                        bool retain, bool create, const std::vector<Tensor>& inputs) {
    const WithoutGil free;
    autograd::backward(tensors, gradients, retain, create, inputs);
  });
  m.def("_passes_under_way", &autograd::passes_under_way);
  m.def("_at_end_of_pass", [](nb::object f) {
    autograd::at_end_of_pass([held = SharedObject(std::move(f))] {
      const WithGil gil;
      const Ref result(checked(PyObject_CallNoArgs(held.get())));
    });
  });
  m.def("_grad", [](const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                    const TensorsOrNone& gradients, bool retain, bool create, bool allow_unused) {
    TensorList r;
    {
      const WithoutGil free;
      r = autograd::grad(outputs, inputs, gradients, retain, create, allow_unused);
    }
    return std::vector<Tensor>(r.begin(), r.end());
  });

  nb::class_<autograd::SplitBackward>(m, "_SplitBackward")
      .def("__init__",
           [](autograd::SplitBackward* self, const std::vector<Tensor>& tensors,
              const TensorsOrNone& gradients, const std::vector<Tensor>& inputs) {
             const WithoutGil free;
             new (self) autograd::SplitBackward(tensors, gradients, inputs);
           })
      .def("input_gradients",
           [](const autograd::SplitBackward& b) {
             nb::list all;
             for (const Tensor& g : b.input_gradients()) all.append(tensor_or_none(g));
             return all;
           })
      .def("accumulate", [](autograd::SplitBackward& b) {
        const WithoutGil free;
        b.accumulate();
      });

  m.def("_enter_dual_level", [] { dual_level = std::make_unique<autograd::DualLevel>(); });
  m.def("_exit_dual_level", [] {
    if (!dual_level) throw AutogradError("exit_dual_level", "there is no level of forward mode");
    if (dual_level->is_covered())
      throw AutogradError("exit_dual_level",
                          "what began to listen to calls inside the level must end before it");
    dual_level.reset();
  });
  // In a function that runs without tangents there are none to take away and to give back.
  m.def("_has_dual_level", [] { return autograd::has_dual_level() && !without_tangents; });
  m.def("_make_dual", &autograd::make_dual);
  m.def("_primal_of", &autograd::primal_of);
  m.def("_set_tangent", &autograd::set_tangent, "tensor"_a, "tangent"_a.none());
  m.def("_tangent_of", [](const Tensor& t) { return tensor_or_none(autograd::tangent_of(t)); });
  m.def("_suspend_tangents", [] {  // once: a function that runs meanwhile has no dual inputs
    without_tangents = std::make_unique<autograd::WithoutTangents>();
  });
  m.def("_resume_tangents", [] { without_tangents.reset(); });

  m.def("_enter_vmap", [](int64_t batch, const std::string& randomness) {
    const Randomness r = randomness == "same"        ? Randomness::same
                         : randomness == "different" ? Randomness::different
                                                     : Randomness::error;
    vmap_levels.push_back(std::make_unique<VmapLevel>(batch, r));
  });
  m.def("_exit_vmap", [] {
    innermost_level();
    vmap_levels.pop_back();
  });
  // The size of the innermost batch and what it does with random numbers.
  m.def("_vmap_level", [] {
    static constexpr const char* kNames[] = {"error", "different", "same"};
    const VmapLevel& l = innermost_level();
    return nb::make_tuple(l.batch(), kNames[int(l.randomness())]);
  });
  m.def("_all_values", &all_values);
  m.def("_in_vmap", [] { return !vmap_levels.empty(); });
  m.def("_has_outer_history", [](const Tensor& t) { return has_outer_history(t); });
  m.def("_is_differentiated_around", [](const Tensor& t) {
    return ops::vmaps::is_differentiated_around(t, innermost_level().number());
  });
  // Without the history inside of the innermost level alone.
  m.def("_detach_inside",
        [](const Tensor& t) { return is_batched(t) ? Tensor(t.impl()->alias()) : t.detach(); });
  m.def("_is_batched", [](const Tensor& t) { return is_batched(t); });
  // Whether it is one of the innermost level's.
  m.def("_is_own", [](const Tensor& t) {
    return ops::vmaps::level_of({&t, 1}) == innermost_level().number();
  });
  m.def("_batch", [](const Tensor& t, int64_t dim) { return innermost_level().enter(t, dim); });
  m.def("_unbatch", [](const Tensor& t, int64_t dim) { return innermost_level().leave(t, dim); });
  m.def("_share",
        [](const Tensor& t) { return vmap_levels.empty() ? t : innermost_level().share(t); });
  // What all elements share of it, or None.
  m.def("_shared", [](const Tensor& t) {
    return tensor_or_none(innermost_level().shared(t).value_or(Tensor()));
  });

  nb::class_<FunctionContext>(m, "_FunctionContext")
      .def("save", [](FunctionContext& c,
                      TensorsOrNone t) { context_of(c).save_for_backward(std::move(t)); })
      .def("saved", [](FunctionContext& c) { return context_of(c).saved_tensors(); })
      .def("needs", [](FunctionContext& c, size_t i) { return context_of(c).needs_input_grad(i); });
  m.def("_apply_function", [](const std::string& name, const std::vector<Tensor>& inputs,
                              nb::object forward, nb::object backward, bool keeps_outer_history) {
    const SharedObject f(std::move(forward)), b(std::move(backward));
    autograd::FunctionDef def;
    def.name = name;
    def.keeps_outer_history = keeps_outer_history;
    def.materialize_grads = false;  // forward says whether, and Python's half of backward does it
    def.forward = [f](autograd::Context& c, const std::vector<Tensor>& x) {
      return call_half(f.get(), c, x);
    };
    def.backward = [b](autograd::Context& c, const std::vector<Tensor>& g) {
      return call_half(b.get(), c, g);
    };
    return autograd::apply(def, inputs);
  });
  nb::class_<CallTrace>(m, "_CallTrace")
      .def(nb::init<>())
      .def("start", &CallTrace::start)
      .def("stop", &CallTrace::stop)
      .def("calls", &CallTrace::calls);
  m.def("_checkpoint", [](nb::object first, nb::object again, const std::vector<Tensor>& inputs,
                          bool without_inputs) {
    const SharedObject f(std::move(first)), g(std::move(again));
    autograd::Recomputation r;
    r.first = [f](const std::vector<Tensor>& x) { return call_with_tensors(f.get(), x); };
    r.again = [g](const std::vector<Tensor>& x) { return call_with_tensors(g.get(), x); };
    r.without_inputs = without_inputs;
    return autograd::checkpoint(r, inputs);
  });
  m.def("_set_anomaly", [](bool on) {
    modes().word = on ? modes().word | Modes::kAnomaly : modes().word & ~Modes::kAnomaly;
  });
  m.def("_is_anomaly", [] { return (modes().word & Modes::kAnomaly) != 0; });
}

}  // namespace arete::python
