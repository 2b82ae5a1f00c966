// What NumPy's objects hold. NumPy itself is never loaded from here: an object of its classes is
// there only if somebody has.
#pragma once

#include <Python.h>

#include <optional>

#include "arete/core/tensor.h"

namespace arete::python {

/// Arrays (subclasses included), and single elements such as numpy.float32(1).
bool is_numpy_array(PyObject* o);
bool is_numpy_scalar(PyObject* o);

/// The dtype of an array or a single element. Types that Arete lacks are a TypeError; those of them
/// that are numbers (longdouble) are not if `wanted` says what is made of them:
/// then the dtype to read them as.
DType numpy_dtype(PyObject* o, std::optional<DType> wanted);

/// A tensor over the memory of an array. With `wanted` an array of numbers that Arete lacks is
/// converted by NumPy, and the tensor shows the copy.
Tensor tensor_over_array(PyObject* array, std::optional<DType> wanted = {});

}  // namespace arete::python
