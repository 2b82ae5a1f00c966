#include "skip_arguments.h"

#include <cstring>

#include "skip_watches.h"
#include "tensor_object.h"

namespace arete::python::skip {

namespace {

constexpr int kDeepest = 16;

bool is_tensor_of(const Argument& a, PyObject* o) {
  if (Py_TYPE(o) != a.type || !tensor_of(o).defined() || has_attributes(o)) return false;
  const TensorImpl& t = *tensor_of(o).impl();
  return t.dtype == a.dtype && t.layout.sizes == a.layout.sizes &&
         t.layout.strides == a.layout.strides && t.storage->device() == a.device &&
         t.storage->bytes() == a.bytes && requires_grad_itself(t) == a.requires_grad &&
         t.inference == a.inference && bool(t.base) == a.is_view && is_plain(t);
}

}  // namespace

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

bool Arguments::fit(PyObject* args, PyObject* kwargs, std::vector<PyObject*>& tensors) const {
  size_t at = 0;
  tensors.clear();
  return fits(args, at, tensors) && fits(kwargs, at, tensors);
}

void Arguments::add(PyObject* o, int depth) {
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

bool Arguments::fits(PyObject* o, size_t& at, std::vector<PyObject*>& tensors) const {
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

}  // namespace arete::python::skip
