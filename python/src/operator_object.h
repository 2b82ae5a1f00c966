// Operators as Python callables: arguments are matched against the signatures of records.
#pragma once

#include <Python.h>

#include <functional>

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

/// The call of a record, letting other threads run where it is a long one. One that takes an alpha
/// gets 1.
Tensor call_one_operand(const ops::OpRecord& record, const Tensor& a);
Tensor call_two_operands(const ops::OpRecord& record, const ops::Arg& a, const ops::Arg& b);
/// The form in place.
void change_by(Tensor& target, const ops::OpRecord& record, const ops::Arg& b);
/// f(), letting other threads run meanwhile where so many elements are at stake.
Tensor run_freely(int64_t elements, const std::function<Tensor()>& f);

}  // namespace arete::python
