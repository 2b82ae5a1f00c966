// Tensor as a sequence and a mapping: len(), x[...], x[...] = y, iteration, `in`.
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/pointwise.h"
#include "convert.h"
#include "numpy_data.h"
#include "tensor_data.h"
#include "tensor_internal.h"

namespace arete::python {

namespace {

Py_ssize_t tensor_length(PyObject* o) {
  const Tensor& t = tensor_of(o);
  if (t.dim() == 0) {
    PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
    return -1;
  }
  return Py_ssize_t(t.size(0));
}
PyObject* tensor_subscript(PyObject* o, PyObject* index) {
  return guarded([&]() -> PyObject* {
    const Tensor& t = tensor_of(o);
    if (PyLong_CheckExact(index)) {
      int64_t i = 0;
      to_int(index, i);
      return wrap(t[i]);
    }
    return wrap(t.index(index_from(index, t)));
  });
}
// A tensor, a number or nested lists for elements of t.
Tensor values_for(const Tensor& t, PyObject* value) {
  Scalar s;
  if (is_tensor(value)) {
    const Tensor& v = tensor_of(value);
    return v.to(v.numel() == 1 ? t.device() : v.device(), t.dtype());
  }
  if (to_scalar(value, s)) {
    ARETE_CHECK(is_complex(t.dtype()) || s.imag() == 0,
                ValueError("", "value cannot be converted to type " +
                                   std::string(name_of(t.dtype())) + " without overflow"));
    return full({}, s, TensorOptions(t.dtype(), t.device()));
  }
  return tensor_from(value, t.dtype(), t.device());
}
int tensor_assign(PyObject* o, PyObject* index, PyObject* value) {
  return guarded(-1, [&] {
    if (!value) type_error("Tensor does not support deleting items");
    Tensor& t = tensor_of(o);
    const std::vector<Index> indices = index_from(index, t);
    // A number where a mask holds needs no positions, and so no look at the mask.
    Scalar s;
    if (indices.size() == 1 && !is_tensor(value) && to_scalar(value, s) && !s.is_complex())
      t.index_put_({indices[0]}, s);
    else
      t.index_put_(indices, values_for(t, value));
    return 0;
  });
}
}  // namespace

PyObject* m_put_at(PyObject* o, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *index, *value;
    int accumulate;
    if (!PyArg_ParseTuple(args, "OOp", &index, &value, &accumulate)) return nullptr;
    Tensor& t = tensor_of(o);
    const std::vector<Index> indices = index_from(index, t);
    t.index_put_(indices, values_for(t, value), accumulate);
    Py_RETURN_NONE;
  });
}

namespace {

PyObject* tensor_item_at(PyObject* o, Py_ssize_t i) {
  return guarded([&]() -> PyObject* {
    const Tensor& t = tensor_of(o);
    if (t.dim() == 0) type_error("iteration over a 0-d tensor");
    if (i >= t.size(0)) {
      PyErr_SetString(PyExc_IndexError, "index out of range");
      throw PythonError{};
    }
    return wrap(t.select(0, i));
  });
}
PyObject* tensor_iterate(PyObject* o) {
  return guarded([&]() -> PyObject* {
    const Tensor& t = tensor_of(o);
    if (t.dim() == 0) type_error("iteration over a 0-d tensor");
    const Ref list(checked(PyList_New(t.size(0))));
    static const ops::OpRecord& record = record_of("unbind");
    ops::Results parts = ops::call_all(record, {t, int64_t(0)});
    for (size_t i = 0; i < parts.size(); ++i)
      PyList_SET_ITEM(list.get(), Py_ssize_t(i), checked(wrap(std::move(parts[i]))));
    return PyObject_GetIter(list.get());
  });
}
int tensor_contains(PyObject* o, PyObject* value) {
  const Ref equal(is_numpy_array(value) ? Py_NewRef(Py_NotImplemented) : compare(o, value, Py_EQ));
  if (!equal || equal.get() == Py_NotImplemented) {
    if (equal)
      PyErr_Format(PyExc_RuntimeError,
                   "Tensor.__contains__ only supports Tensor or scalar, but you passed in a %R.",
                   Py_TYPE(value));
    return -1;
  }
  return guarded(-1, [&] { return int(tensor_of(equal.get()).any().item<bool>()); });
}

const PyType_Slot kIndexingSlots[] = {
    SLOT(Py_tp_iter, tensor_iterate),        SLOT(Py_mp_length, tensor_length),
    SLOT(Py_mp_subscript, tensor_subscript), SLOT(Py_mp_ass_subscript, tensor_assign),
    SLOT(Py_sq_item, tensor_item_at),        SLOT(Py_sq_contains, tensor_contains),
};

}  // namespace

std::span<const PyType_Slot> indexing_slots() { return kIndexingSlots; }

}  // namespace arete::python
