// Operators as Python callables: arguments are matched against the signatures of records.
#pragma once

#include <Python.h>

#include "arete/ops/record.h"

namespace arete::python {

/// Adds the classes Operator (a function) and OperatorMethod (a method) to the module:
///
///     Operator(name, [(record, signature or None), ...], in_place=False)
///
/// A signature is a schema without results, "sum(Tensor input, int[]? dim=None, ...)"; its
/// arguments are those of the record by name, in the order and with the defaults of Python's users.
/// Without one the record's own schema holds. Overloads are tried in order.
bool init_operator_types(PyObject* module);

/// a op b for the number protocol: `record` is of two tensors, numbers are taken on either
/// side; NotImplemented for anything else.
PyObject* binary_operator(const ops::OpRecord& record, PyObject* a, PyObject* b,
                          bool in_place = false);

}  // namespace arete::python
