// What the parts of the class Tensor share: each part hands its slots or methods to the type.
#pragma once

#include <Python.h>

#include <span>

#include "arete/core/scalar.h"
#include "arete/ops/record.h"
#include "tensor_object.h"

namespace arete::python {

/// An entry of a table of slots.
#define SLOT(id, f) \
  { id, reinterpret_cast<void*>(f) }

/// The number protocol and comparisons.
std::span<const PyType_Slot> number_slots();
/// Length, indexing, iteration, `in`.
std::span<const PyType_Slot> indexing_slots();
/// _put_at(index, values, accumulate): self[index] = values or += (what repeats adds up).
PyObject* m_put_at(PyObject* self, PyObject* args);
/// Methods that are no operators; ends with an empty entry.
extern PyMethodDef tensor_methods[];

/// The record of that name, which must be there.
const ops::OpRecord& record_of(const char* name);
/// a < b and so on: tp_richcompare.
PyObject* compare(PyObject* a, PyObject* b, int op);
/// item(), letting other threads run while it waits for a device.
Scalar only_item(const Tensor& t);

}  // namespace arete::python
