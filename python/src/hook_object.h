// Python's functions that C++ calls in passes backward.
#pragma once

#include <memory>

#include "convert.h"

namespace arete::python {

/// A Python object that C++ may drop on any thread.
class HookObject {
 public:
  explicit HookObject(nanobind::object o)
      : object_(std::shared_ptr<PyObject>(o.release().ptr(), [](PyObject* p) {
          if (!Py_IsInitialized()) return;
          const WithGil gil;
          Py_DECREF(p);
        })) {}
  nanobind::object get() const { return nanobind::borrow(object_.get()); }

 private:
  std::shared_ptr<PyObject> object_;
};

/// Calls `callable` as long as another keeps it: an object's attribute, where the collector of
/// garbage sees it, so that one which refers to its owner's module is freed with it.
inline HookObject kept_elsewhere(nanobind::handle callable) {
  PyObject* weak = PyWeakref_NewProxy(callable.ptr(), nullptr);
  if (!weak) throw nanobind::python_error();
  return HookObject(nanobind::steal(weak));
}

/// Errors of Python go through the pass as those of other hooks.
template <class F>
auto in_python(F&& f) {
  const WithGil gil;
  try {
    return f();
  } catch (nanobind::python_error& e) {
    e.restore();
    throw PythonError{};
  }
}

}  // namespace arete::python
