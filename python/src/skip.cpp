// Calls of compiled functions without running them.
#include "skip.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <variant>

#include "arete/compile/compile.h"
#include "arete/core/history.h"
#include "arete/core/saved_tensor_hooks.h"
#include "arete/core/tracing.h"
#include "arete/ops/autocast.h"
#include "arete/optim/optimizer.h"
#include "arete/prim/backend.h"
#include "bindings.h"
#include "caster.h"
#include "program_object.h"
#include "tensor_data.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

// Note [Skipped functions]
// Python of a compiled function need not run where it is known what it would do. arete/_skip.py
// shows that for some functions: it watches a few calls, and finds all that their Python may have
// read. What can be watched for writes is (Watches: dicts, classes, functions); the rest (cells,
// lists, tensors, arguments) is compared before each call. An Observation is what such a call did:
// which calls it put off (Note [Calls put off again]), which gradients these made, which optimizers
// stepped after them, and what it returned. If two observations agree, and nothing was written or
// differs, a Skip does the same: it puts the calls off again, hands out the gradients, lets the
// optimizers make their steps (which are not repeated but made: counts, settings and state are read
// as they are), and gives new tensors. What cannot be done exactly so is refused, with the reason.
//
// A result with history, after a backward pass through it, has a node without saved tensors: all
// such results of skipped calls have the node of the last call that ran.

namespace {

thread_local CallWatcher* watcher_of_thread = nullptr;

// ---- what may be written

struct Suspicion {
  std::string what;  // "": nothing was written
};

struct WatchedDict {
  std::weak_ptr<Suspicion> suspicion;
  std::shared_ptr<std::unordered_set<PyObject*>> names;  // interned; null: all keys
  std::string text;
};
struct WatchedObject {
  std::weak_ptr<Suspicion> suspicion;
  std::string text;
};

// By address. The GIL guards them.
std::unordered_map<PyObject*, std::vector<WatchedDict>>& watched_dicts() {
  static auto* const all = new std::unordered_map<PyObject*, std::vector<WatchedDict>>;
  return *all;
}
std::unordered_map<PyObject*, std::vector<WatchedObject>>& watched_objects() {
  static auto* const all = new std::unordered_map<PyObject*, std::vector<WatchedObject>>;
  return *all;
}

template <class Watched>
void add_watched(std::vector<Watched>& list, Watched watched) {
  std::erase_if(list, [](const Watched& w) { return w.suspicion.expired(); });
  list.push_back(std::move(watched));
}

void suspect(const std::weak_ptr<Suspicion>& suspicion, const std::string& what) {
  if (const auto its = suspicion.lock(); its && its->what.empty()) its->what = what;
}

// Of other versions it is not known what instructions do (_skip.py).
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000

#define ARETE_CAN_SKIP 1

int dict_watcher = -1, type_watcher = -1, function_watcher = -1;

// Called before the write.
int on_dict(PyDict_WatchEvent event, PyObject* dict, PyObject* key, PyObject* value) {
  const auto found = watched_dicts().find(dict);
  if (found == watched_dicts().end()) return 0;
  const bool has_key = event == PyDict_EVENT_ADDED || event == PyDict_EVENT_MODIFIED ||
                       event == PyDict_EVENT_DELETED;
  const bool is_text = has_key && PyUnicode_CheckExact(key);
  // An error may be under way, as of who frees the dict.
  struct SavedError {
    PyObject* error = PyErr_GetRaisedException();
    ~SavedError() { PyErr_SetRaisedException(error); }
  } const saved;
  if (event == PyDict_EVENT_MODIFIED && is_text && PyDict_GetItemWithError(dict, key) == value)
    return 0;
  const bool is_interned = is_text && PyUnicode_CHECK_INTERNED(key);
  const char* text = is_text ? PyUnicode_AsUTF8(key) : nullptr;
  for (const WatchedDict& w : found->second) {
    if (has_key && w.names) {
      if (is_interned ? !w.names->contains(key)
                      : is_text && std::ranges::none_of(*w.names, [&](PyObject* name) {
                          return PyUnicode_Compare(name, key) == 0;
                        }))
        continue;
    }
    suspect(w.suspicion, w.text + (text ? "'" + std::string(text) + "'" : "something"));
  }
  if (event == PyDict_EVENT_DEALLOCATED) watched_dicts().erase(found);
  return 0;
}

int on_type(PyTypeObject* type) {
  const auto found = watched_objects().find(reinterpret_cast<PyObject*>(type));
  if (found != watched_objects().end())
    for (const WatchedObject& w : found->second) suspect(w.suspicion, w.text);
  return 0;
}

int on_function(PyFunction_WatchEvent event, PyFunctionObject* function, PyObject*) {
  if (event == PyFunction_EVENT_CREATE) return 0;
  const auto found = watched_objects().find(reinterpret_cast<PyObject*>(function));
  if (found == watched_objects().end()) return 0;
  for (const WatchedObject& w : found->second) suspect(w.suspicion, w.text);
  if (event == PyFunction_EVENT_DESTROY) watched_objects().erase(found);
  return 0;
}

bool start_watching() {
  if (dict_watcher < 0) dict_watcher = PyDict_AddWatcher(on_dict);
  if (type_watcher < 0) type_watcher = PyType_AddWatcher(on_type);
  if (function_watcher < 0) function_watcher = PyFunction_AddWatcher(on_function);
  PyErr_Clear();
  return dict_watcher >= 0 && type_watcher >= 0 && function_watcher >= 0;
}
bool watch_dict(PyObject* dict) { return PyDict_Watch(dict_watcher, dict) == 0; }
bool watch_type(PyObject* type) { return PyType_Watch(type_watcher, type) == 0; }
/// The dict of an object's attributes; null: none. It is made where there is only its values.
PyObject* attributes_of(PyObject* o) {
  PyObject** const dict = _PyObject_GetDictPtr(o);
  return dict ? *dict : nullptr;
}
bool is_traced() {
  const PyThreadState* const state = PyThreadState_Get();
  return state->c_tracefunc || state->c_profilefunc;
}

#else

#define ARETE_CAN_SKIP 0
bool start_watching() { return false; }
bool watch_dict(PyObject*) { return false; }
bool watch_type(PyObject*) { return false; }
PyObject* attributes_of(PyObject*) { return nullptr; }
bool is_traced() { return true; }

#endif

// ---- tensors

bool has_hooks(const AutogradMeta& meta) {
  return meta.retains_grad || (meta.accumulator && (meta.accumulator->hooks ||
                                                    !meta.accumulator->post_accumulate.empty()));
}

bool has_attributes(PyObject* o) {
  const auto* const t = reinterpret_cast<TensorObject*>(o);
  return t->hooks || (t->dict && PyDict_GET_SIZE(t->dict) > 0);
}

bool requires_grad_itself(const TensorImpl& t) { return t.autograd && t.autograd->requires_grad; }

/// A leaf that nothing hangs on, in memory that others do not see.
bool is_plain(const TensorImpl& t) {
  const Storage& memory = *t.storage;
  return !(t.autograd && (t.autograd->grad_fn || has_hooks(*t.autograd))) && !memory.promiser() &&
         !memory.has_pending_copies() && !memory.is_exported() && !memory.is_shared();
}

const Tensor* grad_of(const Tensor& t) {
  const AutogradMeta* const meta = t.impl()->autograd.get();
  return meta && meta->accumulator && meta->accumulator->grad.defined() ? &meta->accumulator->grad
                                                                        : nullptr;
}

/// A tensor that Python reads, which stays what it is.
struct KnownTensor {
  PyObject* object;
  const TensorImpl* impl;
  const Storage* storage;
  Layout layout;
  DType dtype;
  bool requires_grad;
  bool is_same() const {
    const TensorImpl& t = *tensor_of(object).impl();
    return &t == impl && t.storage.get() == storage && t.dtype == dtype &&
           requires_grad_itself(t) == requires_grad && t.layout == layout && is_plain(t);
  }
};

/// All that the Python of a function may read, but for its arguments. Borrows: who has it keeps the
/// objects alive.
class Watches {
 public:
  Watches() = default;
  Watches(const Watches&) = delete;
  Watches& operator=(const Watches&) = delete;
  bool dict(nb::handle o, const nb::object& names, const std::string& text) {
    WatchedDict its{suspicion_, nullptr, text};
    if (!names.is_none()) {
      auto& known = names_[names.ptr()];
      if (!known) {
        kept_.push_back(Ref::borrow(names.ptr()));  // its address stays its own
        known = std::make_shared<std::unordered_set<PyObject*>>();
        for (nb::handle name : names) {
          PyObject* interned = Py_NewRef(name.ptr());
          PyUnicode_InternInPlace(&interned);
          kept_.emplace_back(interned);
          known->insert(interned);
        }
      }
      its.names = known;
    }
    add_watched(watched_dicts()[o.ptr()], std::move(its));
    return watch_dict(o.ptr());
  }
  bool type(nb::handle o, const std::string& text) {
    add_watched(watched_objects()[o.ptr()], {suspicion_, text});
    return watch_type(o.ptr());
  }
  void function(nb::handle o, const std::string& text) {
    add_watched(watched_objects()[o.ptr()], {suspicion_, text});
  }
  /// What is in it, which has to be kept.
  nb::tuple cell(nb::handle o) {
    PyObject* const value = PyCell_GET(o.ptr());
    cells_.emplace_back(o.ptr(), value);
    return value ? nb::make_tuple(nb::handle(value)) : nb::make_tuple();
  }
  nb::tuple list(nb::handle o) {
    const auto items = nb::steal<nb::tuple>(checked(PyList_AsTuple(o.ptr())));
    lists_.push_back({o.ptr(), {}});
    for (nb::handle item : items) lists_.back().items.push_back(item.ptr());
    return items;
  }
  /// Its class and its dict stay the same ones.
  void instance(nb::handle o) {
    instances_.push_back({o.ptr(), Py_TYPE(o.ptr()), attributes_of(o.ptr())});
  }
  /// "" or why it cannot be.
  std::string tensor(nb::handle o) {
    if (!is_tensor(o.ptr()) || !tensor_of(o.ptr()).defined()) return "is none";
    const Tensor& t = tensor_of(o.ptr());
    if (has_attributes(o.ptr())) return "has attributes or hooks";
    if (t.impl()->autograd && t.impl()->autograd->grad_fn) return "has a history";
    if (!is_plain(*t.impl())) return "has hooks, or is in memory that others see";
    tensors_.push_back({o.ptr(), t.impl(), t.storage().get(), t.layout(), t.dtype(),
                        requires_grad_itself(*t.impl())});
    memory_.insert(t.storage().get());
    return "";
  }
  const std::string& what() const { return suspicion_->what; }

  const std::vector<KnownTensor>& tensors() const { return tensors_; }
  /// Whether these tensors share memory neither with known ones nor with each other.
  bool are_apart(const std::vector<PyObject*>& tensors) const {
    for (size_t k = 0; k < tensors.size(); ++k) {
      const Storage* const memory = tensor_of(tensors[k]).storage().get();
      for (size_t j = 0; j < k; ++j)
        if (tensor_of(tensors[j]).storage().get() == memory) return false;
      if (memory_.contains(memory)) return false;
    }
    return true;
  }
  bool is_unchanged() const {
    if (!suspicion_->what.empty()) return false;
    for (const Instance& i : instances_)
      if (Py_TYPE(i.object) != i.type || attributes_of(i.object) != i.attributes) return false;
    for (const auto& [cell, value] : cells_)
      if (PyCell_GET(cell) != value) return false;
    for (const List& l : lists_) {
      if (size_t(PyList_GET_SIZE(l.object)) != l.items.size()) return false;
      for (size_t k = 0; k < l.items.size(); ++k)
        if (PyList_GET_ITEM(l.object, Py_ssize_t(k)) != l.items[k]) return false;
    }
    for (const KnownTensor& t : tensors_)
      if (!t.is_same() || has_attributes(t.object)) return false;
    return true;
  }

 private:
  struct Instance {
    PyObject* object;
    PyTypeObject* type;
    PyObject* attributes;
  };
  struct List {
    PyObject* object;
    std::vector<PyObject*> items;
  };
  std::shared_ptr<Suspicion> suspicion_ = std::make_shared<Suspicion>();
  std::unordered_map<PyObject*, std::shared_ptr<std::unordered_set<PyObject*>>> names_;
  std::vector<Ref> kept_;  // names, and sets of them
  std::vector<Instance> instances_;
  std::vector<std::pair<PyObject*, PyObject*>> cells_;
  std::vector<List> lists_;
  std::vector<KnownTensor> tensors_;
  std::unordered_set<const Storage*> memory_;  // of them
};

// ---- arguments and results

enum class Kind : uint8_t { tensor, constant, object, tuple, list, dict };

constexpr int kDeepest = 16;

bool is_constant(PyObject* o) {
  return o == Py_None || o == Py_Ellipsis || PyBool_Check(o) || PyLong_CheckExact(o) ||
         PyFloat_CheckExact(o) || PyUnicode_CheckExact(o) || is_dtype(o) || is_device(o);
}
bool is_equal_constant(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_CheckExact(a)) {
    const double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
    return x == x && std::memcmp(&x, &y, sizeof(x)) == 0;  // a list finds a NaN by its address
  }
  if (!PyLong_CheckExact(a) && !PyUnicode_CheckExact(a) && !is_dtype(a) && !is_device(a))
    return false;
  const int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal == 1;
}

struct Argument {
  Kind kind;
  PyTypeObject* type = nullptr;  // of a tensor
  Ref constant{};                // or a key of a dict
  PyObject* object = nullptr;    // borrowed
  size_t size = 0;
  // Of a tensor:
  Layout layout{};
  DType dtype = kFloat32;
  Device device{};
  size_t bytes = 0;  // of its memory
  bool requires_grad = false, inference = false, is_view = false;
};

/// What a function was called with: its tensors may be others of their kind. Borrows objects.
class Arguments {
 public:
  Arguments(PyObject* args, PyObject* kwargs) {
    add(args, 0);
    add(kwargs, 0);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
  const std::vector<PyObject*>& tensors() const { return tensors_; }
  const std::vector<Argument>& all() const { return all_; }
  /// Those that have to be the same ones.
  const std::vector<PyObject*>& objects() const { return objects_; }
  /// "" or why calls with such are not skipped.
  const char* why() const { return why_; }
  /// Whether a call with these does the same; `tensors` are then theirs.
  bool fit(PyObject* args, PyObject* kwargs, std::vector<PyObject*>& tensors) const {
    size_t at = 0;
    tensors.clear();
    return fits(args, at, tensors) && fits(kwargs, at, tensors);
  }
  static bool is_tensor_of(const Argument& a, PyObject* o) {
    if (Py_TYPE(o) != a.type || !tensor_of(o).defined() || has_attributes(o)) return false;
    const TensorImpl& t = *tensor_of(o).impl();
    return t.dtype == a.dtype && t.layout.sizes == a.layout.sizes &&
           t.layout.strides == a.layout.strides && t.storage->device() == a.device &&
           t.storage->bytes() == a.bytes && requires_grad_itself(t) == a.requires_grad &&
           t.inference == a.inference && bool(t.base) == a.is_view && is_plain(t);
  }

 private:
  void add(PyObject* o, int depth) {
    Argument& a = all_.emplace_back();
    if (is_tensor(o) && tensor_of(o).defined()) {
      const TensorImpl& t = *tensor_of(o).impl();
      a = {.kind = Kind::tensor,
           .type = Py_TYPE(o),
           .layout = t.layout,
           .dtype = t.dtype,
           .device = t.storage->device(),
           .bytes = t.storage->bytes(),
           .requires_grad = requires_grad_itself(t),
           .inference = t.inference,
           .is_view = bool(t.base)};
      tensors_.push_back(o);
    } else if (is_constant(o)) {
      a.kind = Kind::constant;
      a.constant = Ref::borrow(o);
    } else if (PyTuple_CheckExact(o) && depth < kDeepest) {
      a.kind = Kind::tuple;
      const size_t n = a.size = size_t(PyTuple_GET_SIZE(o));
      for (size_t k = 0; k < n; ++k) add(PyTuple_GET_ITEM(o, Py_ssize_t(k)), depth + 1);
    } else if (PyDict_CheckExact(o) && depth == 0) {  // the keywords
      a.kind = Kind::dict;
      a.size = size_t(PyDict_GET_SIZE(o));
      PyObject *key, *value;
      for (Py_ssize_t at = 0; PyDict_Next(o, &at, &key, &value);) {
        add(key, 1);
        add(value, 1);
      }
    } else {
      // What the function writes to them nobody hears.
      if (PyList_Check(o) || PyDict_Check(o) || PyAnySet_Check(o) || PyByteArray_Check(o))
        why_ = "an argument is, or has in it, a list, a dict or a set";
      else if (PyTuple_CheckExact(o))
        why_ = "an argument is nested deeply";
      else if (is_tensor(o))
        why_ = "an argument is a tensor that is none";
      a.kind = Kind::object;
      a.object = o;
      objects_.push_back(o);
    }
  }
  bool fits(PyObject* o, size_t& at, std::vector<PyObject*>& tensors) const {
    const Argument& a = all_[at++];
    switch (a.kind) {
      case Kind::tensor:
        tensors.push_back(o);
        return is_tensor_of(a, o);
      case Kind::constant:
        return is_equal_constant(a.constant.get(), o);
      case Kind::object:
        return a.object == o;
      case Kind::list:
        return false;
      case Kind::tuple: {
        if (!PyTuple_CheckExact(o) || size_t(PyTuple_GET_SIZE(o)) != a.size) return false;
        for (size_t k = 0; k < a.size; ++k)
          if (!fits(PyTuple_GET_ITEM(o, Py_ssize_t(k)), at, tensors)) return false;
        return true;
      }
      case Kind::dict: {
        if (!PyDict_CheckExact(o) || size_t(PyDict_GET_SIZE(o)) != a.size) return false;
        PyObject *key, *value;
        for (Py_ssize_t p = 0; PyDict_Next(o, &p, &key, &value);)
          if (!fits(key, at, tensors) || !fits(value, at, tensors)) return false;
        return true;
      }
    }
    return false;
  }
  const char* why_ = "";
  std::vector<Argument> all_;
  std::vector<PyObject*> tensors_, objects_;
};

/// A tensor that the calls make.
struct MadeTensor {
  size_t memory = 0;
  Layout layout{};
  DType dtype = kFloat32;
  bool inference = false, no_grad_view = false;
  uint64_t version = 0;
  const TensorImpl* seen = nullptr;  // as it was observed
  IntrusivePtr<Node> node{};
  uint32_t slot = 0;
  // Of a view:
  std::shared_ptr<MadeTensor> base{};
  const char* made_by = nullptr;
  uint64_t view_version = 0;

  bool is_like(const MadeTensor& o) const {
    return memory == o.memory && layout == o.layout && dtype == o.dtype &&
           inference == o.inference && no_grad_view == o.no_grad_view && version == o.version &&
           bool(node) == bool(o.node) && slot == o.slot && made_by == o.made_by &&
           view_version == o.view_version && bool(base) == bool(o.base) &&
           (!base || base->is_like(*o.base));
  }
  Tensor make(const StoragePtr& storage) const {
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
};

// What a function returns.
struct Returned {
  Kind kind;
  size_t number = 0;  // of a tensor that was made; or, `is_argument`, of an argument
  bool is_argument = false;
  Ref constant{};
  std::vector<Returned> items{};

  bool is_like(const Returned& o) const {
    if (kind != o.kind || number != o.number || is_argument != o.is_argument ||
        items.size() != o.items.size())
      return false;
    if (kind == Kind::constant && !is_equal_constant(constant.get(), o.constant.get()))
      return false;
    for (size_t k = 0; k < items.size(); ++k)
      if (!items[k].is_like(o.items[k])) return false;
    return true;
  }
};

// ---- one call

struct Refused {
  std::string reason;
  bool for_good = true;
};

// What was asked for besides the function's arguments.
struct Surroundings {
  uint32_t word = modes().word;
  bool grad_enabled = modes().grad_enabled;
  prim::Context context{};
  DType dtype = default_dtype();
  std::optional<Device> device = default_device;
  int ordinal = current_ordinal();                      // of the current GPU
  ops::AutocastState autocast = ops::autocast_state();  // what regions inside begin with

  bool are_same() const {
    const prim::Context now;
    return modes().word == word && modes().grad_enabled == grad_enabled &&
           now.deterministic == context.deterministic &&
           now.library_deterministic == context.library_deterministic &&
           now.precision == context.precision && now.convolution_tf32 == context.convolution_tf32 &&
           default_dtype() == dtype && default_device == device && current_ordinal() == ordinal &&
           begins_alike(ops::autocast_state());
  }
  /// No mode but inference is on, and nobody looks.
  static bool are_plain() {
    return !(modes().word & ~uint32_t(Modes::kInference)) && !modes().capture &&
           !modes().destination && !tracing::listener() && !SavedTensorHooksGuard::has_hooks();
  }

 private:
  bool begins_alike(const ops::AutocastState& now) const {
    return now.cpu.dtype == autocast.cpu.dtype && now.cuda.dtype == autocast.cuda.dtype &&
           now.cache_enabled == autocast.cache_enabled;
  }
};

/// What a call does beside calling operators. Borrows.
struct HostPart {
  std::vector<PyObject*> params{};  // whose gradients are forgotten, or
  PyObject* optimizer = nullptr;    // the one that makes a step
  Stepper* stepper = nullptr;
  bool operator==(const HostPart&) const = default;
};

class Observation {
 public:
  Observation(PyObject* args, PyObject* kwargs) : arguments(args, kwargs) {}
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;
  Arguments arguments;
  Surroundings surroundings;
  compile::PutOffCalls calls;
  // Of each memory: kNew, kTemporary where nobody has it after the calls, the number of an
  // argument, or ~ that of a known tensor.
  static constexpr int kNew = INT_MAX, kTemporary = INT_MAX - 1;
  std::vector<int> sources;
  std::vector<HostPart> before, after;
  std::vector<std::pair<size_t, MadeTensor>> grads;  // of known tensors
  std::vector<MadeTensor> made;
  std::vector<bool> has_grad;  // known tensors, and arguments, before it
  Returned returned{Kind::constant};

  HostPart part(PyObject* params) {
    HostPart p;
    const Ref list(checked(PySequence_List(params)));
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(list.get()); ++k)
      if (PyObject* const o = PyList_GET_ITEM(list.get(), k);
          is_tensor(o) && tensor_of(o).defined())
        p.params.push_back(keep(o));
      else
        throw Refused{"it forgets gradients of what is no tensor"};
    return p;
  }
  HostPart part(PyObject* optimizer, PyObject* native, Stepper& stepper) {
    keep(native);
    return {.optimizer = keep(optimizer), .stepper = &stepper};
  }
  /// Hands over what it borrows, and has kept so far.
  nb::list take_objects() {
    nb::list all;
    for (const Ref& o : kept_) all.append(nb::handle(o.get()));
    kept_.clear();
    for (PyObject* o : arguments.objects()) all.append(nb::handle(o));
    return all;
  }

  bool agrees(const Observation& o) const {
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

 private:
  PyObject* keep(PyObject* o) { return kept_.emplace_back(Ref::borrow(o)).get(); }
  std::vector<Ref> kept_;
};

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

/// Runs the function as ever, and sees what it does: (result, Observation), or (result, (reason,
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

/// Does what an observed call did.
class Skip {
 public:
  Skip(const ProgramObject& program, nb::object watches, nb::object observation)
      : program_(program.program),
        its_watches_(std::move(watches)),
        its_observation_(std::move(observation)),
        watches_(nb::cast<const Watches&>(its_watches_)),
        seen_(nb::cast<const Observation&>(its_observation_)) {
    for (const Argument& a : seen_.arguments.all())
      if (a.kind == Kind::tensor) given_.push_back(&a);
  }
  Skip(const Skip&) = delete;
  Skip& operator=(const Skip&) = delete;

  /// Its result; NotImplemented: the function has to run.
  nb::object run(const nb::tuple& args, const nb::dict& kwargs) {
    std::vector<PyObject*> tensors;  // of the arguments
    if (count_ >= next_sample_ || !may_skip(args, kwargs, tensors))
      return nb::borrow(Py_NotImplemented);
    for (const MadeTensor& t : seen_.made)
      for (const MadeTensor* its = &t; its; its = its->base.get())
        if (its->node && its->node->hooks) return nb::borrow(Py_NotImplemented);
    // What comes now a call that follows would do first, too.
    for (const HostPart& part : seen_.before) forget_gradients(part.params);
    for (const auto& [k, made] : seen_.grads)
      if (grad_of(tensor_of(watches_.tensors()[k].object))) return nb::borrow(Py_NotImplemented);
    ++count_;
    compile::note_skipped(*program_);
    return nb::steal(make(tensors));
  }
  bool is_sample_due() const { return count_ >= next_sample_; }
  /// Whether a call that ran did what a skipped one would have done: then on with it.
  bool agrees(const Observation& o) {
    // Now and then, and less and less often.
    interval_ = std::min<int64_t>(2 * interval_, kMostSkipped);
    next_sample_ = count_ + interval_;
    return seen_.agrees(o);
  }

 private:
  static constexpr int64_t kFirstSkipped = 64, kMostSkipped = 4096;

  static void forget_gradients(const std::vector<PyObject*>& params) {
    for (PyObject* p : params) tensor_of(p).set_grad(Tensor());
  }

  bool may_skip(const nb::tuple& args, const nb::dict& kwargs,
                std::vector<PyObject*>& tensors) const {
    if (!Surroundings::are_plain() || !seen_.surroundings.are_same() || is_traced() ||
        !watches_.is_unchanged() || !seen_.arguments.fit(args.ptr(), kwargs.ptr(), tensors))
      return false;
    // It may have asked who has a gradient.
    const size_t known = watches_.tensors().size();
    for (size_t k = 0; k < seen_.has_grad.size(); ++k)
      if (bool(grad_of(tensor_of(k < known ? watches_.tensors()[k].object : tensors[k - known]))) !=
          seen_.has_grad[k])
        return false;
    // What shares memory did not when it was seen: the calls name it once.
    if (!watches_.are_apart(tensors)) return false;
    std::optional<Device> asked;  // usually all are of one device
    for (const compile::PutOffCalls::Memory& m : seen_.calls.memory) {
      if (m.device.is_cpu() || m.device == asked) continue;
      if (prim::backend_for(m.device).is_capturing()) return false;
      asked = m.device;
    }
    return true;
  }

  PyObject* make(const std::vector<PyObject*>& tensors) {
    compile::PutOff put_off(*program_);
    std::vector<Tensor> made;
    {
      std::vector<StoragePtr> memory;
      std::vector<int64_t> origins;
      memory.reserve(seen_.sources.size());
      origins.reserve(seen_.sources.size());
      for (size_t b = 0; b < seen_.sources.size(); ++b) {
        const compile::PutOffCalls::Memory& its = seen_.calls.memory[b];
        const int source = seen_.sources[b];
        if (source == Observation::kTemporary) {
          memory.emplace_back();
          origins.push_back(its.origin);
        } else if (source == Observation::kNew) {
          memory.push_back(compile::new_promise(its.bytes, its.device));
          origins.push_back(its.origin);
        } else if (source < 0) {
          memory.push_back(tensor_of(watches_.tensors()[size_t(~source)].object).storage());
          origins.push_back(its.origin);
        } else {
          const Tensor& t = tensor_of(tensors[size_t(source)]);
          const Argument& was = *given_[size_t(source)];
          memory.push_back(t.storage());
          origins.push_back(its.origin +
                            (t.layout().offset - was.layout.offset) * int64_t(size_of(was.dtype)));
        }
      }
      compile::put_off_again(seen_.calls, memory, origins);
      for (const MadeTensor& t : seen_.made) made.push_back(t.make(memory[t.memory]));
      for (const auto& [k, t] : seen_.grads)
        tensor_of(watches_.tensors()[k].object).set_grad(t.make(memory[t.memory]));
    }
    for (const HostPart& part : seen_.after)
      if (part.stepper)
        part.stepper->step_again(part.optimizer);
      else
        forget_gradients(part.params);
    std::vector<Ref> objects;
    for (Tensor& t : made) objects.emplace_back(checked(wrap(std::move(t))));
    made.clear();
    Ref result(checked(returned(seen_.returned, objects, tensors)));
    objects.clear();
    const ReleasedGil free;
    put_off.finish();
    return result.release();
  }

  // Nothing of it asks where the program is.
  struct ReleasedGil {
    PyThreadState* state = PyEval_SaveThread();
    ~ReleasedGil() { PyEval_RestoreThread(state); }
  };

  static PyObject* returned(const Returned& r, const std::vector<Ref>& objects,
                            const std::vector<PyObject*>& tensors) {
    switch (r.kind) {
      case Kind::tensor:
        return Py_NewRef(r.is_argument ? tensors[r.number] : objects[r.number].get());
      case Kind::tuple:
      case Kind::list: {
        const auto n = Py_ssize_t(r.items.size());
        Ref all(checked(r.kind == Kind::tuple ? PyTuple_New(n) : PyList_New(n)));
        for (Py_ssize_t k = 0; k < n; ++k) {
          PyObject* const item = checked(returned(r.items[size_t(k)], objects, tensors));
          if (r.kind == Kind::tuple)
            PyTuple_SET_ITEM(all.get(), k, item);
          else
            PyList_SET_ITEM(all.get(), k, item);
        }
        return all.release();
      }
      case Kind::dict: {
        Ref all(checked(PyDict_New()));
        for (size_t k = 0; k < r.items.size(); k += 2) {
          const Ref key(checked(returned(r.items[k], objects, tensors))),
              value(checked(returned(r.items[k + 1], objects, tensors)));
          if (PyDict_SetItem(all.get(), key.get(), value.get()) < 0) throw PythonError{};
        }
        return all.release();
      }
      default:
        return Py_NewRef(r.constant.get());
    }
  }

  std::shared_ptr<compile::Program> program_;
  nb::object its_watches_, its_observation_;
  const Watches& watches_;
  const Observation& seen_;
  std::vector<const Argument*> given_;  // tensors
  int64_t count_ = 0, interval_ = kFirstSkipped, next_sample_ = kFirstSkipped;
};

}  // namespace

CallWatcher* CallWatcher::of_thread() noexcept { return watcher_of_thread; }

void bind_skip(nb::module_& m) {
  m.attr("_can_skip") = bool(ARETE_CAN_SKIP);
  m.def("_start_watching", &start_watching);
  nb::class_<Watches>(m, "_Watches")
      .def(nb::init<>())
      .def("dict", &Watches::dict, "dict"_a, "names"_a.none(), "text"_a)
      .def("type", &Watches::type)
      .def("function", &Watches::function)
      .def("cell", &Watches::cell)
      .def("list", &Watches::list)
      .def("instance", &Watches::instance)
      .def("tensor", &Watches::tensor)
      .def("is_unchanged", &Watches::is_unchanged)
      .def("are_apart",
           [](const Watches& w, const Arguments& a, const nb::tuple& args, const nb::dict& kwargs) {
             std::vector<PyObject*> tensors;
             return a.fit(args.ptr(), kwargs.ptr(), tensors) && w.are_apart(tensors);
           })
      .def("what", &Watches::what);
  nb::class_<Observation>(m, "_Observation")
      .def("agrees", &Observation::agrees)
      .def("fits",
           [](const Observation& o, const nb::tuple& args, const nb::dict& kwargs) {
             std::vector<PyObject*> tensors;
             return o.arguments.fit(args.ptr(), kwargs.ptr(), tensors);
           })
      .def("take_objects", &Observation::take_objects);
  nb::class_<Arguments>(m, "_Arguments")
      .def("__init__", [](Arguments* a, const nb::tuple& args,
                          const nb::dict& kwargs) { new (a) Arguments(args.ptr(), kwargs.ptr()); })
      .def("fit",
           [](const Arguments& a, const nb::tuple& args, const nb::dict& kwargs) {
             std::vector<PyObject*> tensors;
             return a.fit(args.ptr(), kwargs.ptr(), tensors);
           })
      .def("why", &Arguments::why)
      .def("objects",
           [](const Arguments& a) {
             nb::list all;
             for (PyObject* p : a.objects()) all.append(nb::handle(p));
             return all;
           })
      .def("classes", [](const Arguments& a) {
        nb::list all;
        for (const Argument& x : a.all())
          if (x.type) all.append(nb::handle(reinterpret_cast<PyObject*>(x.type)));
        return all;
      });
  nb::class_<Skip>(m, "_Skip")
      .def(nb::init<const ProgramObject&, nb::object, nb::object>())
      .def("run", &Skip::run)
      .def("agrees", &Skip::agrees)
      .def("is_sample_due", &Skip::is_sample_due);
  m.def("_observe", &observe);
  m.def("_note_skipping", [](const ProgramObject& p, std::string text) {
    compile::note_skipping(*p.program, std::move(text));
  });
}

}  // namespace arete::python
