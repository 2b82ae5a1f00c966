#include "skip_watches.h"

#include <algorithm>

#include "arete/core/history.h"
#include "arete/core/storage.h"
#include "tensor_object.h"

namespace nb = nanobind;

namespace arete::python::skip {

namespace {

// ---- what is written

struct Watched {
  std::weak_ptr<std::string> written;     // "": nothing was
  std::string text;                       // what is written there then
  std::shared_ptr<Watches::Names> names;  // of a dict; null: all keys

  void note(const std::string& what) const {
    if (const auto its = written.lock(); its && its->empty()) *its = what;
  }
};

// Dicts, classes and functions, by address. The GIL guards it.
std::unordered_map<PyObject*, std::vector<Watched>>& watched() {
  static auto* const all = new std::unordered_map<PyObject*, std::vector<Watched>>;
  return *all;
}

void add_watched(nb::handle o, Watched w) {
  std::vector<Watched>& list = watched()[o.ptr()];
  std::erase_if(list, [](const Watched& other) { return other.written.expired(); });
  list.push_back(std::move(w));
}

}  // namespace

// Of other versions it is not known what instructions do (_skip.py).
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000

const bool kCanWatch = true;

namespace {

int dict_watcher = -1, type_watcher = -1, function_watcher = -1;

// Called before the write.
int on_dict(PyDict_WatchEvent event, PyObject* dict, PyObject* key, PyObject* value) {
  const auto found = watched().find(dict);
  if (found == watched().end()) return 0;
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
  for (const Watched& w : found->second) {
    if (has_key && w.names) {
      if (is_interned ? !w.names->contains(key)
                      : is_text && std::ranges::none_of(*w.names, [&](PyObject* name) {
                          return PyUnicode_Compare(name, key) == 0;
                        }))
        continue;
    }
    w.note(w.text + (text ? "'" + std::string(text) + "'" : "something"));
  }
  if (event == PyDict_EVENT_DEALLOCATED) watched().erase(found);
  return 0;
}

int on_object(PyObject* o, bool is_freed) {
  const auto found = watched().find(o);
  if (found == watched().end()) return 0;
  for (const Watched& w : found->second) w.note(w.text);
  if (is_freed) watched().erase(found);
  return 0;
}

int on_type(PyTypeObject* type) { return on_object(reinterpret_cast<PyObject*>(type), false); }

int on_function(PyFunction_WatchEvent event, PyFunctionObject* function, PyObject*) {
  if (event == PyFunction_EVENT_CREATE) return 0;
  return on_object(reinterpret_cast<PyObject*>(function), event == PyFunction_EVENT_DESTROY);
}

}  // namespace

bool start_watching() {
  if (dict_watcher < 0) dict_watcher = PyDict_AddWatcher(on_dict);
  if (type_watcher < 0) type_watcher = PyType_AddWatcher(on_type);
  if (function_watcher < 0) function_watcher = PyFunction_AddWatcher(on_function);
  PyErr_Clear();
  return dict_watcher >= 0 && type_watcher >= 0 && function_watcher >= 0;
}
bool is_traced() {
  const PyThreadState* const state = PyThreadState_Get();
  return state->c_tracefunc || state->c_profilefunc;
}

namespace {
bool watch_dict(PyObject* dict) { return PyDict_Watch(dict_watcher, dict) == 0; }
bool watch_type(PyObject* type) { return PyType_Watch(type_watcher, type) == 0; }
/// The dict of an object's attributes; null: none. It is made where there is only its values.
PyObject* attributes_of(PyObject* o) {
  PyObject** const dict = _PyObject_GetDictPtr(o);
  return dict ? *dict : nullptr;
}
}  // namespace

#else

const bool kCanWatch = false;
bool start_watching() { return false; }
bool is_traced() { return true; }

namespace {
bool watch_dict(PyObject*) { return false; }
bool watch_type(PyObject*) { return false; }
PyObject* attributes_of(PyObject*) { return nullptr; }
}  // namespace

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

bool KnownTensor::is_same() const {
  const TensorImpl& t = *tensor_of(object).impl();
  return &t == impl && t.storage.get() == storage && t.dtype == dtype &&
         requires_grad_itself(t) == requires_grad && t.layout == layout && is_plain(t);
}

// ---- Watches

bool Watches::dict(nb::handle o, const nb::object& names, const std::string& text) {
  Watched its{written_, text, nullptr};
  if (!names.is_none()) {
    auto& known = names_[names.ptr()];
    if (!known) {
      kept_.push_back(Ref::borrow(names.ptr()));  // its address stays its own
      known = std::make_shared<Names>();
      for (nb::handle name : names) {
        PyObject* interned = Py_NewRef(name.ptr());
        PyUnicode_InternInPlace(&interned);
        kept_.emplace_back(interned);
        known->insert(interned);
      }
    }
    its.names = known;
  }
  add_watched(o, std::move(its));
  return watch_dict(o.ptr());
}

bool Watches::type(nb::handle o, const std::string& text) {
  add_watched(o, {written_, text, nullptr});
  return watch_type(o.ptr());
}

void Watches::function(nb::handle o, const std::string& text) {
  add_watched(o, {written_, text, nullptr});
}

nb::tuple Watches::cell(nb::handle o) {
  PyObject* const value = PyCell_GET(o.ptr());
  cells_.emplace_back(o.ptr(), value);
  return value ? nb::make_tuple(nb::handle(value)) : nb::make_tuple();
}

nb::tuple Watches::list(nb::handle o) {
  const auto items = nb::steal<nb::tuple>(checked(PyList_AsTuple(o.ptr())));
  lists_.push_back({o.ptr(), {}});
  for (nb::handle item : items) lists_.back().items.push_back(item.ptr());
  return items;
}

void Watches::instance(nb::handle o) {
  instances_.push_back({o.ptr(), Py_TYPE(o.ptr()), attributes_of(o.ptr())});
}

std::string Watches::tensor(nb::handle o) {
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

bool Watches::are_apart(const std::vector<PyObject*>& tensors) const {
  for (size_t k = 0; k < tensors.size(); ++k) {
    const Storage* const memory = tensor_of(tensors[k]).storage().get();
    for (size_t j = 0; j < k; ++j)
      if (tensor_of(tensors[j]).storage().get() == memory) return false;
    if (memory_.contains(memory)) return false;
  }
  return true;
}

bool Watches::is_unchanged() const {
  if (!written_->empty()) return false;
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

}  // namespace arete::python::skip
