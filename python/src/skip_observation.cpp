#include "skip_observation.h"

#include <algorithm>
#include <string>

#include "arete/core/history.h"
#include "arete/core/saved_tensor_hooks.h"
#include "arete/core/tracing.h"
#include "caster.h"

namespace nb = nanobind;

namespace arete::python {

namespace {
thread_local CallWatcher* watcher_of_thread = nullptr;
}  // namespace

CallWatcher* CallWatcher::of_thread() noexcept { return watcher_of_thread; }

namespace skip {

namespace {

struct Refused {
  std::string reason;
  bool for_good = true;
};

bool begin_alike(const ops::AutocastState& autocast, const ops::AutocastState& now) {
  return now.cpu.dtype == autocast.cpu.dtype && now.cuda.dtype == autocast.cuda.dtype &&
         now.cache_enabled == autocast.cache_enabled;
}

}  // namespace

Tensor MadeTensor::make(const StoragePtr& storage) const {
  Tensor t(IntrusivePtr<TensorImpl>(new TensorImpl(storage, layout, dtype)));
  t.impl()->inference = inference;
  t.impl()->no_grad_view = no_grad_view;
  if (base) t.impl()->base = IntrusivePtr<TensorImpl>(base->make(storage).impl());
  t.impl()->made_by = made_by;
  t.impl()->view_version = view_version;
  for (uint64_t k = storage->version(); k < version; ++k) storage->bump_version();
  if (node) set_history(t, node, slot);
  return t;
}

bool Surroundings::are_same() const {
  const prim::Context now;
  return modes().word == word && modes().grad_enabled == grad_enabled &&
         now.deterministic == context.deterministic &&
         now.library_deterministic == context.library_deterministic &&
         now.precision == context.precision && now.convolution_tf32 == context.convolution_tf32 &&
         default_dtype() == dtype && default_device == device && current_ordinal() == ordinal &&
         begin_alike(autocast, ops::autocast_state());
}

bool Surroundings::are_plain() {
  return !(modes().word & ~uint32_t(Modes::kInference)) && !modes().capture &&
         !modes().destination && !tracing::listener() && !SavedTensorHooksGuard::has_hooks();
}

HostPart Observation::part(PyObject* params) {
  HostPart p;
  const Ref list(checked(PySequence_List(params)));
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(list.get()); ++k)
    if (PyObject* const o = PyList_GET_ITEM(list.get(), k); is_tensor(o) && tensor_of(o).defined())
      p.params.push_back(keep(o));
    else
      throw Refused{"it forgets gradients of what is no tensor"};
  return p;
}

HostPart Observation::part(PyObject* optimizer, PyObject* native, Stepper& stepper) {
  keep(native);
  return {.optimizer = keep(optimizer), .stepper = &stepper};
}

nb::list Observation::take_objects() {
  nb::list all;
  for (const Ref& o : kept_) all.append(nb::handle(o.get()));
  kept_.clear();
  for (PyObject* o : arguments.objects()) all.append(nb::handle(o));
  return all;
}

bool Observation::agrees(const Observation& o) const {
  if (calls.trace != o.calls.trace || calls.calls != o.calls.calls ||
      calls.numbers != o.calls.numbers || sources != o.sources || before != o.before ||
      after != o.after || grads.size() != o.grads.size() || made.size() != o.made.size() ||
      !returned.is_like(o.returned))
    return false;
  for (size_t k = 0; k < sources.size(); ++k)
    if (sources[k] < 0 && calls.memory[k].origin != o.calls.memory[k].origin) return false;
  for (size_t k = 0; k < grads.size(); ++k)
    if (grads[k].first != o.grads[k].first || !grads[k].second.is_like(o.grads[k].second))
      return false;
  for (size_t k = 0; k < made.size(); ++k)
    if (!made[k].is_like(o.made[k])) return false;
  return true;
}

namespace {

/// Sees what a call does.
class Observer final : public CallWatcher, tracing::ThreadListener {
 public:
  Observer(const Watches& watches, PyObject* args, PyObject* kwargs)
      : watches_(watches), seen_(std::make_unique<Observation>(args, kwargs)) {
    for (const KnownTensor& t : watches.tensors()) all_.push_back(tensor_of(t.object));
    for (PyObject* o : seen_->arguments.tensors()) all_.push_back(tensor_of(o));
    for (const Tensor& t : all_) {
      const Tensor* const grad = grad_of(t);
      first_grads_.push_back(grad ? *grad : Tensor());
      versions_.push_back(t.version());
      memory_.push_back(t.storage().get());
      layouts_.push_back(t.layout());
      seen_->has_grad.push_back(grad);
    }
    watcher_of_thread = this;
  }
  ~Observer() override { watcher_of_thread = nullptr; }

  void zero_grad(PyObject* params, bool set_to_none) noexcept override {
    if (!set_to_none) return refuse("zero_grad(set_to_none=False) writes gradients");
    if (prefix_) return add_part(seen_->after, params);
    for (size_t k = 0; k < all_.size(); ++k)
      if (grad_now(k) != first_grads_[k].impl() && grad_now(k))
        return refuse("it forgets gradients that it made");
    add_part(seen_->before, params);
  }
  void backward(const Tensor& root, bool plain) noexcept override {
    if (!plain) return refuse("a backward pass keeps the history, or is for some leaves");
    if (prefix_) return refuse("there is a backward pass after an optimizer's step");
    if (const auto node = root.grad_fn()) passed_.push_back(node);
  }
  void begin_step(PyObject* owner, PyObject* native, Stepper& stepper,
                  bool plain) noexcept override {
    if (!native) return refuse("it is not known whose an optimizer is");
    if (!plain) return refuse("a GradScaler steps");
    if (!prefix_)
      end_prefix();
    else
      check_no_other_calls();
    seen_->after.push_back(seen_->part(owner, native, stepper));
    in_step_ = true;
  }
  void end_step() noexcept override {
    in_step_ = false;
    count_ = compile::count_put_off();
  }

  /// When the function has returned, while its calls are put off still.
  std::unique_ptr<Observation> finish(PyObject* result) {
    if (!prefix_) end_prefix();
    const std::optional<compile::PutOffCalls> all = compile::calls_put_off();
    if (!all) throw Refused{"a value is read, or its calls are not known yet", false};
    check_no_other_calls();
    if (!reason_.empty()) throw Refused{reason_};
    Observation& o = *seen_;
    for (size_t k = 0; k < all_.size(); ++k)
      if (all_[k].storage().get() != memory_[k] || all_[k].layout() != layouts_[k])
        throw Refused{"it changes the shape, or the memory, of a tensor that was there before"};
    o.returned = describe(result, 0);
    std::vector<bool> explained(o.calls.memory.size());
    for (const MadeTensor& t : o.made) explained[t.memory] = true;
    for (const auto& [k, t] : o.grads) explained[t.memory] = true;
    for (size_t b = 0; b < explained.size(); ++b) {
      if (!o.calls.memory[b].is_new || explained[b]) continue;
      if (all->memory[b].is_wanted) throw Refused{"it keeps a tensor that it does not return"};
      o.sources[b] = Observation::kTemporary;
    }
    for (size_t k = 0; k < all_.size(); ++k) {
      const auto made = std::ranges::find(o.grads, k, [](const auto& g) { return g.first; });
      const TensorImpl* const expected =
          made != o.grads.end() ? made->second.seen : grads_after_prefix_[k];
      if (grad_now(k) != expected && (grad_now(k) || o.after.empty()))
        throw Refused{"gradients change after an optimizer's step"};
    }
    return std::move(seen_);
  }

 private:
  void refuse(const char* reason) noexcept {
    if (reason_.empty()) reason_ = reason;
  }
  void add_part(std::vector<HostPart>& parts, PyObject* params) noexcept {
    try {
      parts.push_back(seen_->part(params));
    } catch (const Refused& r) {
      refuse(r.reason.c_str());
    } catch (...) {
      PyErr_Clear();
      refuse("it forgets gradients of what is no list");
    }
  }
  void read(const Tensor&, bool address) override {
    if (!in_step_) refuse(address ? "it asks for an address of memory" : "it reads a value");
  }
  void hooked(const Tensor&) override {
    refuse("it puts a hook on a gradient, or makes a sparse tensor");
  }

  const TensorImpl* grad_now(size_t k) const {
    const Tensor* const grad = grad_of(all_[k]);
    return grad ? grad->impl() : nullptr;
  }
  void check_no_other_calls() noexcept {
    if (compile::count_put_off() != count_) refuse("it calls operators after an optimizer's step");
  }

  // From here on only optimizers call.
  void end_prefix() noexcept {
    prefix_ = true;
    count_ = compile::count_put_off();
    std::optional<compile::PutOffCalls> calls = compile::calls_put_off();
    if (!calls) return;  // finish() says why
    if (calls->draws) return refuse("it draws random numbers");
    if (calls->looks) return refuse("an operator looks at values on the host");
    Observation& o = *seen_;
    o.calls = std::move(*calls);
    const size_t known = watches_.tensors().size();
    for (size_t b = 0; b < o.calls.memory.size(); ++b) {
      const compile::PutOffCalls::Memory& its = o.calls.memory[b];
      const auto owner = std::ranges::find_if(
          all_, [&](const Tensor& t) { return t.storage().get() == its.storage; });
      if (its.is_new) {
        o.sources.push_back(Observation::kNew);
      } else if (owner == all_.end()) {
        return refuse("it uses memory that no argument has, nor a tensor that it is known to read");
      } else if (its.is_written) {
        return refuse("it writes to a tensor that was there before");
      } else {
        const size_t k = size_t(owner - all_.begin());
        o.sources.push_back(k < known ? ~int(k) : int(k - known));
      }
    }
    for (size_t k = 0; k < all_.size(); ++k) {
      if (all_[k].version() != versions_[k])
        return refuse("it writes to a tensor that was there before");
      grads_after_prefix_.push_back(grad_now(k));
      if (grad_now(k) == first_grads_[k].impl()) continue;
      if (!grad_now(k)) {
        if (o.before.empty()) return refuse("it sets a gradient");
        continue;
      }
      if (k >= known) return refuse("an argument gets a gradient");
      MadeTensor made;
      if (!describe_made(*grad_of(all_[k]), made) || made.node || made.base)
        return refuse("a gradient is none that a plain backward pass makes");
      o.grads.emplace_back(k, std::move(made));
    }
  }

  bool describe_made(const Tensor& t, MadeTensor& made) const {
    const TensorImpl& impl = *t.impl();
    const auto memory = std::ranges::find(seen_->calls.memory, impl.storage.get(),
                                          &compile::PutOffCalls::Memory::storage);
    if (memory == seen_->calls.memory.end() || !memory->is_new || impl.own_version ||
        impl.multi_output)
      return false;
    made = {.memory = size_t(memory - seen_->calls.memory.begin()),
            .layout = impl.layout,
            .dtype = impl.dtype,
            .inference = impl.inference,
            .no_grad_view = impl.no_grad_view,
            .version = impl.storage->version(),
            .seen = &impl,
            .made_by = impl.made_by,
            .view_version = impl.view_version};
    if (impl.base) {
      made.base = std::make_shared<MadeTensor>();
      if (impl.base->storage != impl.storage || !describe_made(Tensor(impl.base), *made.base))
        return false;
    }
    if (!impl.autograd) return true;
    if (impl.autograd->requires_grad || has_hooks(*impl.autograd)) return false;
    made.node = impl.autograd->grad_fn.node;
    made.slot = impl.autograd->grad_fn.slot;
    return !made.node || !made.node->hooks;
  }

  Returned describe(PyObject* o, int depth) {
    if (depth > 8) throw Refused{"what it returns is nested deeply"};
    const auto& given = seen_->arguments.tensors();
    if (const auto same = std::ranges::find(given, o); same != given.end())
      return {Kind::tensor, size_t(same - given.begin()), true};
    if (is_tensor(o)) {
      MadeTensor made;
      if (Py_TYPE(o) != tensor_type || has_attributes(o) || !describe_made(tensor_of(o), made))
        throw Refused{"it returns a tensor that is not simply a new one"};
      if (made.node && std::ranges::find(passed_, made.node) == passed_.end())
        throw Refused{"it returns a tensor with a history"};
      for (size_t k = 0; k < seen_->made.size(); ++k)
        if (seen_->made[k].seen == made.seen) return {Kind::tensor, k};
      for (const MadeTensor& other : seen_->made)
        if ((made.base && (made.base->seen == other.seen ||
                           (other.base && other.base->seen == made.base->seen))) ||
            (other.base && other.base->seen == made.seen))
          throw Refused{"it returns views of one tensor"};
      for (const auto& [k, grad] : seen_->grads)
        if (grad.seen == made.seen && grad.memory == made.memory)
          throw Refused{"it returns a gradient"};
      seen_->made.push_back(std::move(made));
      return {Kind::tensor, seen_->made.size() - 1};
    }
    if (is_constant(o)) return {.kind = Kind::constant, .constant = Ref::borrow(o)};
    Returned r{Kind::tuple};
    if (PyTuple_CheckExact(o) || PyList_CheckExact(o)) {
      if (PyList_CheckExact(o)) r.kind = Kind::list;
      // A list that somebody else has is not made anew.
      if (PyList_CheckExact(o) && Py_REFCNT(o) > 1)
        throw Refused{"it returns a list that it keeps"};
      for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
        r.items.push_back(describe(PySequence_Fast_GET_ITEM(o, k), depth + 1));
      return r;
    }
    if (PyDict_CheckExact(o)) {
      if (Py_REFCNT(o) > 1) throw Refused{"it returns a dict that it keeps"};
      r.kind = Kind::dict;
      PyObject *key, *value;
      for (Py_ssize_t at = 0; PyDict_Next(o, &at, &key, &value);) {
        if (!is_constant(key)) throw Refused{"it returns a dict whose keys are objects"};
        r.items.push_back(describe(key, depth + 1));
        r.items.push_back(describe(value, depth + 1));
      }
      return r;
    }
    throw Refused{"it returns an object of class " + std::string(Py_TYPE(o)->tp_name)};
  }

  const Watches& watches_;
  std::unique_ptr<Observation> seen_;
  std::vector<IntrusivePtr<Node>> passed_;  // where backward passes began
  std::vector<Tensor> all_;                 // known ones, and arguments
  std::vector<Tensor> first_grads_;
  std::vector<uint64_t> versions_;
  std::vector<const Storage*> memory_;
  std::vector<Layout> layouts_;
  std::vector<const TensorImpl*> grads_after_prefix_;
  bool prefix_ = false, in_step_ = false;
  size_t count_ = 0;
  std::string reason_;
};

}  // namespace

/// for good)).
nb::object observe(const ProgramObject& program, nb::handle function, const nb::tuple& args,
                   const nb::dict& kwargs, const Watches& watches) {
  const std::shared_ptr<compile::Program> mine = program.program;
  compile::note_call(*mine);
  nb::object result, seen;
  const auto refused = [&](const std::string& reason, bool for_good) {
    seen = nb::make_tuple(reason, for_good);
  };
  const bool plain = Surroundings::are_plain();
  if (!plain) refused("a mode is on, or somebody listens", false);
  {
    const Surroundings surroundings;
    compile::PutOff put_off(*mine);
    {
      std::optional<Observer> observer;
      if (plain) observer.emplace(watches, args.ptr(), kwargs.ptr());
      result = nb::steal(PyObject_Call(function.ptr(), args.ptr(), kwargs.ptr()));
      if (!result.is_valid()) nb::raise_python_error();
      if (plain) try {
          std::unique_ptr<Observation> o = observer->finish(result.ptr());
          o->surroundings = surroundings;
          seen = nb::cast(std::move(o));
        } catch (const Refused& r) {
          refused(r.reason, r.for_good);
        } catch (...) {
          PyErr_Clear();
          refused("to look at what it does failed", true);
        }
    }
    const WithoutGil free;
    put_off.finish();
  }
  if (plain && !nb::isinstance<nb::tuple>(seen)) {
    const Observation& o = nb::cast<const Observation&>(seen);
    std::vector<PyObject*> tensors;
    if (!o.surroundings.are_same())
      refused("it changes a mode", true);
    else if (!o.arguments.fit(args.ptr(), kwargs.ptr(), tensors))
      refused("it changes its arguments", true);
  }
  return nb::make_tuple(result, seen);
}

}  // namespace skip
}  // namespace arete::python
