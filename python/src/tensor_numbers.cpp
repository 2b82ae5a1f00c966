// The number protocol of Tensor: arithmetic, comparisons, bool(), int(), float().
#include "arete/ops/call.h"
#include "convert.h"
#include "numpy_data.h"
#include "operator_object.h"
#include "tensor_internal.h"

namespace arete::python {

const ops::OpRecord& record_of(const char* name) {
  const ops::OpRecord* r = ops::find_record(name);
  if (!r) ARETE_BUG((std::string("no record ") + name).c_str());
  return *r;
}

PyObject* compare(PyObject* a, PyObject* b, int op) {
  static const ops::OpRecord* const records[] = {&record_of("lt"), &record_of("le"),
                                                 &record_of("eq"), &record_of("ne"),
                                                 &record_of("gt"), &record_of("ge")};
  PyObject* const result = binary_operator(*records[op], a, b);
  if (result != Py_NotImplemented || !is_numpy_array(b)) return result;
  // NumPy leaves comparisons with a tensor to the tensor (__array_priority__).
  Py_DECREF(result);
  return guarded([&]() -> PyObject* {
    const DType wide = is_floating(tensor_of(a).dtype()) ? kFloat64 : kInt64;
    Ref other;
    try {
      Tensor values = tensor_over_array(b, wide);
      // These would promote with nothing but floating tensors.
      if (values.dtype() >= kUInt16 && values.dtype() != tensor_of(a).dtype())
        values = values.to(wide);
      other = Ref(checked(wrap(values)));
    } catch (const PythonError&) {
      if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw;
      PyErr_Clear();  // an array of no numbers is not equal
      Py_RETURN_NOTIMPLEMENTED;
    }
    return binary_operator(*records[op], a, other.get());
  });
}

Scalar only_item(const Tensor& t) {
  const WithoutGilToLook free(t);
  return t.item();
}

namespace {

#define BINARY(function, name)                            \
  PyObject* function(PyObject* a, PyObject* b) {          \
    static const ops::OpRecord& record = record_of(name); \
    return binary_operator(record, a, b);                 \
  }
#define BINARY_IN_PLACE(function, name)                   \
  PyObject* function(PyObject* a, PyObject* b) {          \
    static const ops::OpRecord& record = record_of(name); \
    return binary_operator(record, a, b, true);           \
  }
PyObject* nb_add(PyObject* a, PyObject* b) {
  // Else bytes would take the tensor's memory for more of them.
  if (PyBytes_Check(a) || PyByteArray_Check(a)) {
    PyErr_Format(PyExc_TypeError, "can't concat Tensor to %s", Py_TYPE(a)->tp_name);
    return nullptr;
  }
  static const ops::OpRecord& record = record_of("add");
  return binary_operator(record, a, b);
}
BINARY(nb_sub, "sub")
BINARY(nb_mul, "mul")
PyObject* nb_div(PyObject* a, PyObject* b) {
  static const ops::OpRecord& record = record_of("div");
  PyObject* const result = binary_operator(record, a, b);
  if (result != Py_NotImplemented || !is_numpy_array(a)) return result;
  // The only operator besides comparisons that PyTorch has for an array on the left.
  Py_DECREF(result);
  return guarded([&] {
    static const ops::OpRecord& reciprocal = record_of("reciprocal");
    const Ref inverse(checked(wrap(ops::call(reciprocal, {tensor_of(b)}))));
    return PyNumber_Multiply(inverse.get(), a);
  });
}
BINARY(nb_floor_div, "floor_divide")
BINARY(nb_mod, "remainder")
BINARY(nb_and, "bitwise_and")
BINARY(nb_or, "bitwise_or")
BINARY(nb_xor, "bitwise_xor")
BINARY(nb_lshift, "bitwise_left_shift")
BINARY(nb_rshift, "bitwise_right_shift")
BINARY_IN_PLACE(nb_iadd, "add")
BINARY_IN_PLACE(nb_isub, "sub")
BINARY_IN_PLACE(nb_imul, "mul")
BINARY_IN_PLACE(nb_idiv, "div")
BINARY_IN_PLACE(nb_ifloor_div, "floor_divide")
BINARY_IN_PLACE(nb_imod, "remainder")
BINARY_IN_PLACE(nb_ilshift, "bitwise_left_shift")
BINARY_IN_PLACE(nb_irshift, "bitwise_right_shift")
BINARY_IN_PLACE(nb_iand, "bitwise_and")
BINARY_IN_PLACE(nb_ior, "bitwise_or")
BINARY_IN_PLACE(nb_ixor, "bitwise_xor")
PyObject* nb_pow(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  static const ops::OpRecord& record = record_of("pow");
  return binary_operator(record, a, b);
}
PyObject* nb_ipow(PyObject* a, PyObject* b, PyObject*) {
  static const ops::OpRecord& record = record_of("pow");
  return binary_operator(record, a, b, true);
}
PyObject* nb_matmul(PyObject* a, PyObject* b) {
  if (!is_tensor(a) || !is_tensor(b)) Py_RETURN_NOTIMPLEMENTED;
  static const ops::OpRecord& record = record_of("matmul");
  return binary_operator(record, a, b);
}
#define UNARY(function, name)                                                \
  PyObject* function(PyObject* a) {                                          \
    static const ops::OpRecord& record = record_of(name);                    \
    return guarded([&] { return wrap(ops::call(record, {tensor_of(a)})); }); \
  }
UNARY(nb_negative, "neg")
UNARY(nb_absolute, "abs")
UNARY(nb_positive, "positive")
PyObject* nb_invert(PyObject* a) {
  const bool logic = tensor_of(a).dtype() == kBool;
  if (logic) {
    static const ops::OpRecord& record = record_of("logical_not");
    return guarded([&] { return wrap(ops::call(record, {tensor_of(a)})); });
  }
  static const ops::OpRecord& record = record_of("bitwise_not");
  return guarded([&] { return wrap(ops::call(record, {tensor_of(a)})); });
}

int nb_bool(PyObject* o) {
  return guarded(-1, [&] {
    const Tensor& t = tensor_of(o);
    if (t.numel() != 1) {
      PyErr_SetString(PyExc_RuntimeError,
                      t.numel() == 0
                          ? "Boolean value of Tensor with no values is ambiguous"
                          : "Boolean value of Tensor with more than one value is ambiguous");
      throw PythonError{};
    }
    return int(only_item(t).to_bool());
  });
}
PyObject* nb_int(PyObject* o) {
  return guarded([&]() -> PyObject* {
    const Scalar s = only_item(tensor_of(o));
    if (s.is_large()) return wrap(s);
    if (s.is_integral()) return PyLong_FromLongLong(s.to_int64());
    return PyLong_FromDouble(s.to_double());
  });
}
PyObject* nb_float(PyObject* o) {
  return guarded([&] { return PyFloat_FromDouble(only_item(tensor_of(o)).to_double()); });
}
PyObject* nb_index(PyObject* o) {
  return guarded([&]() -> PyObject* {
    const Tensor& t = tensor_of(o);
    if (t.numel() != 1 || !is_integral_or_bool(t.dtype()))
      type_error("only integer tensors of a single element can be converted to an index");
    return PyLong_FromLongLong(only_item(t).to_int64());
  });
}

const PyType_Slot kNumberSlots[] = {
    SLOT(Py_tp_richcompare, compare),
    SLOT(Py_nb_add, nb_add),
    SLOT(Py_nb_subtract, nb_sub),
    SLOT(Py_nb_multiply, nb_mul),
    SLOT(Py_nb_true_divide, nb_div),
    SLOT(Py_nb_floor_divide, nb_floor_div),
    SLOT(Py_nb_remainder, nb_mod),
    SLOT(Py_nb_power, nb_pow),
    SLOT(Py_nb_matrix_multiply, nb_matmul),
    SLOT(Py_nb_and, nb_and),
    SLOT(Py_nb_or, nb_or),
    SLOT(Py_nb_xor, nb_xor),
    SLOT(Py_nb_lshift, nb_lshift),
    SLOT(Py_nb_rshift, nb_rshift),
    SLOT(Py_nb_inplace_add, nb_iadd),
    SLOT(Py_nb_inplace_subtract, nb_isub),
    SLOT(Py_nb_inplace_multiply, nb_imul),
    SLOT(Py_nb_inplace_true_divide, nb_idiv),
    SLOT(Py_nb_inplace_floor_divide, nb_ifloor_div),
    SLOT(Py_nb_inplace_remainder, nb_imod),
    SLOT(Py_nb_inplace_power, nb_ipow),
    SLOT(Py_nb_inplace_lshift, nb_ilshift),
    SLOT(Py_nb_inplace_rshift, nb_irshift),
    SLOT(Py_nb_inplace_and, nb_iand),
    SLOT(Py_nb_inplace_or, nb_ior),
    SLOT(Py_nb_inplace_xor, nb_ixor),
    SLOT(Py_nb_negative, nb_negative),
    SLOT(Py_nb_positive, nb_positive),
    SLOT(Py_nb_absolute, nb_absolute),
    SLOT(Py_nb_invert, nb_invert),
    SLOT(Py_nb_bool, nb_bool),
    SLOT(Py_nb_int, nb_int),
    SLOT(Py_nb_float, nb_float),
    SLOT(Py_nb_index, nb_index),
};

}  // namespace

std::span<const PyType_Slot> number_slots() { return kNumberSlots; }

}  // namespace arete::python
