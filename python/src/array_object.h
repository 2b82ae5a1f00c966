// What arete.numpy.ndarray is in C++: Note [Arrays and their short ways] in array_object.cpp.
#pragma once

#include <Python.h>

#include <optional>
#include <span>

#include "arete/core/scalar.h"
#include "arete/core/tensor.h"

namespace arete::python {

/// Either a tensor (in `shown` once Python has asked for it, else in `tensor`), or a number.
struct ArrayObject {
  PyObject_HEAD PyObject* weak_references;
  PyObject* shown;
  Tensor tensor;
  Scalar value;
  DType dtype;               // of a number
  bool is_number;            // as NumPy's scalars are: nothing changes it
  bool has_tensor;           // else there is only the value
  uint32_t reversed;         // axes in the opposite order, of reversed_array_type
  const TensorImpl* viewed;  // its tensor, when a view of it was made
};

/// The class of plain arrays, that of those that are not written, and that of views with axes in
/// the opposite order, whose tensor has them in order; null until arete.numpy names them.
extern PyTypeObject *array_type, *read_only_array_type, *reversed_array_type;
/// Where new arrays are.
extern Device array_device;

inline ArrayObject* array_in(PyObject* o) { return reinterpret_cast<ArrayObject*>(o); }
inline bool is_plain_array(PyObject* o) { return array_type && Py_TYPE(o) == array_type; }
inline bool is_readable_array(PyObject* o) {
  return is_plain_array(o) || (array_type && Py_TYPE(o) == read_only_array_type);
}
/// What an array shows; a number becomes a tensor by it.
const Tensor& array_tensor(PyObject* o);

/// The tensor to read an array by; undefined for what is none of those three classes.
Tensor tensor_to_read(PyObject* o);

/// Whether calls of the thread are nothing special and record no history of the tensor.
bool is_plain(const Tensor& t);
/// Whether elements may be read and written without a call.
inline bool is_at_hand(const Tensor& t) { return t.device().is_cpu() && is_plain(t); }

/// The value of a number, where it is at hand.
inline const Scalar* value_in(PyObject* o) {
  return is_plain_array(o) && !array_in(o)->has_tensor ? &array_in(o)->value : nullptr;
}

/// Lets `view.base` be this array, of which the caller makes a view.
void note_view_of(PyObject* o);

/// A view of the array, whose tensor is_plain().
PyObject* wrap_view_of(PyObject* o, Layout&& layout);
/// A new array; what is not written here has the dimensions that it has.
PyObject* wrap_array(Tensor t);
/// A number of the CPU as such, anything else as wrap_array(). For results of functions.
PyObject* wrap_result(Tensor t);
PyObject* wrap_number(Scalar value, DType dtype);

/// The dtype that two have in common, in NumPy's rules; none: not known yet.
std::optional<DType> common_dtype(DType a, DType b);
/// The dtype that one of NumPy's names, classes or objects stands for, where that is known by a
/// lookup.
std::optional<DType> known_dtype(PyObject* o);

/// Runs what may throw; null without an error where it did, so that the long way is taken.
template <class F>
PyObject* try_short(F&& f) noexcept {
  try {
    return f();
  } catch (...) {
    PyErr_Clear();
    return nullptr;
  }
}

// ---- few_elements.cpp
/// Note [Few elements]: undefined, or null, for what is not at hand, is more, or needs more care.
bool is_few(const Tensor& t);
/// One side of few_results(): a tensor, or a number.
struct FewOperand {
  const Tensor* tensor;
  Scalar value;
};
/// In the order of ufunc_set's kNames.
struct Arithmetic {
  enum {
    add,
    subtract,
    multiply,
    divide,
    power,
    floor_divide,
    remainder,
    less,
    less_equal,
    equal,
    not_equal,
    greater,
    greater_equal,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    left_shift,
    right_shift
  };
};
/// An operator of two operands of the same sizes, or of a number and a tensor, computed in `dtype`.
Tensor few_results(int operation, const FewOperand& a, const FewOperand& b, DType dtype);
/// Of float64.
Tensor few_equal(IntList sizes, double value);
Tensor few_copied(const Tensor& t);
Tensor few_converted(const Tensor& t, DType dtype);
Tensor few_joined(std::span<const Tensor> parts);
Tensor few_counted(int64_t start, int64_t step, int64_t n);
/// The elements that a mask or whole numbers in a vector name.
Tensor few_picked(const Tensor& t, const Tensor& at);
/// The position of an extreme, or of the first NaN; -1: see above.
int64_t few_position(const Tensor& t, bool largest);
/// The positions of the true elements of a vector.
Tensor few_true(const Tensor& mask);
/// The different elements, in order.
Tensor few_different(const Tensor& t);

// ---- array_functions.cpp
/// The number protocol and comparisons.
std::span<const PyType_Slot> array_number_slots();
bool init_array_functions(PyObject* module);
// ---- array_short_functions.cpp
/// The class _ShortFunction(function, name): a Python function with the short way of that name.
bool init_short_functions(PyObject* module);
/// Adds the class _ArrayBase and what arete.numpy sets it up with.
bool init_array_type(PyObject* module);

}  // namespace arete::python
