// Tensors from Python's lists, numbers and buffers.
#pragma once

#include <Python.h>

#include <optional>

#include "arete/core/tensor.h"

namespace arete::python {

/// arete.tensor(): a copy of numbers, nested sequences of them, NumPy's arrays, or tensors.
Tensor tensor_from(PyObject* data, std::optional<DType> dtype, Device device);
/// A tensor over the memory of an object with the buffer protocol, which it keeps alive. Null
/// handle if the object has none (or is text).
Tensor tensor_over_buffer(PyObject* o);
/// Elements of a 1-d buffer: arete.frombuffer().
Tensor tensor_over_bytes(PyObject* o, DType dtype, int64_t count, int64_t offset);
/// tp_as_buffer of Tensor.
int get_buffer(PyObject* o, Py_buffer* view, int flags);
void release_buffer(PyObject* o, Py_buffer* view);
/// Nested lists of Python numbers.
PyObject* to_list(const Tensor& t);

/// x[index] as a list of index entries.
std::vector<Index> index_from(PyObject* o, const Tensor& x);

// DLPack, versions 0 and 1.
PyObject* to_dlpack(const Tensor& t, bool versioned, bool copied);
Tensor from_dlpack(PyObject* capsule);

}  // namespace arete::python
