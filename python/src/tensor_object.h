// The Python class Tensor: an object with an arete::Tensor inside.
#pragma once

#include <Python.h>

#include "arete/core/tensor.h"

namespace arete::python {

struct TensorObject {
  PyObject_HEAD Tensor tensor;
  PyObject* dict;
  PyObject* weak_references;
  PyObject* hooks;  // those that run after accumulation, by number; null if there are none
};

/// arete.Tensor; made by init_tensor_type().
extern PyTypeObject* tensor_type;
/// Makes the class and adds it to the module. False with a Python error set.
bool init_tensor_type(PyObject* module);

inline bool is_tensor(PyObject* o) {
  return Py_TYPE(o) == tensor_type || PyType_IsSubtype(Py_TYPE(o), tensor_type);
}
inline Tensor& tensor_of(PyObject* o) { return reinterpret_cast<TensorObject*>(o)->tensor; }

/// The Python object of a tensor: the one that shows it already, or a new one; None for an
/// undefined tensor. A new reference.
PyObject* wrap(Tensor t);
/// A new object of a subclass.
PyObject* wrap_as(PyTypeObject* type, Tensor t);
/// Lets the object show another tensor (`x.data = y`).
void rebind(PyObject* o, Tensor t);
/// Each object shows the other's tensor, with its hooks, from now on.
void swap_shown(PyObject* a, PyObject* b);

}  // namespace arete::python
