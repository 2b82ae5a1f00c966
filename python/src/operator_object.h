// Operators as Python callables: arguments are matched against the signatures of records.
#pragma once

#include <Python.h>

#include "arete/ops/record.h"

namespace arete::python {

/// Adds the classes Operator (a function) and OperatorMethod (a method) to the module:
///
///     Operator(name, in_place=False, functional=False)
///
/// with the overloads that the records have under this name (operator_names.h), in nn.functional if
/// `functional`. KeyError if there is none.
bool init_operator_types(PyObject* module);

/// a op b for the number protocol: `record` is of two tensors, numbers are taken on either
/// side; NotImplemented for anything else.
PyObject* binary_operator(const ops::OpRecord& record, PyObject* a, PyObject* b,
                          bool in_place = false);

}  // namespace arete::python
