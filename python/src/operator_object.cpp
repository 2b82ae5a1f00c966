#include "operator_object.h"

#include <structmember.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "arete/core/modes.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/record.h"
#include "convert.h"
#include "memory_format.h"
#include "operator_face.h"
#include "operator_match.h"
#include "operator_names.h"
#include "operator_signature.h"
#include "tensor_object.h"

namespace arete::python {

using ops::Arg;
using ops::OpRecord;
using Kind = Arg::Kind;

namespace {

// Below this number of elements a call is too short to let other threads run meanwhile.
constexpr int64_t kLongCall = 1 << 15;

struct OperatorObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* name;
  PyObject* dict;
  std::vector<Overload>* overloads;
  bool in_place;
  bool functional;
};

OperatorObject* operator_in(PyObject* o) { return reinterpret_cast<OperatorObject*>(o); }

// ---- the call

bool is_long(std::span<const Arg> args) {
  for (const Arg& a : args) {
    if (a.kind() == Kind::tensor && a.tensor().numel() >= kLongCall) return true;
    if (a.kind() == Kind::tensors) return true;
  }
  return false;
}

PyObject* wrap_results(const Overload& o, ops::Results results) {
  if (results.size() == 1 && !o.returns_list) return wrap(std::move(results[0]));
  PyObject* r =
      o.result_type ? PyStructSequence_New(o.result_type) : PyTuple_New(Py_ssize_t(results.size()));
  if (!r) return nullptr;
  for (size_t i = 0; i < results.size(); ++i) {
    PyObject* t = wrap(std::move(results[i]));
    if (!t) {
      Py_DECREF(r);
      return nullptr;
    }
    if (o.result_type)
      PyStructSequence_SET_ITEM(r, Py_ssize_t(i), t);
    else
      PyTuple_SET_ITEM(r, Py_ssize_t(i), t);
  }
  return r;
}

/// The tensors of out=: one, or a sequence.
SmallVector<Tensor*, 3> outputs_in(PyObject* out) {
  SmallVector<Tensor*, 3> outs;
  if (is_tensor(out)) {
    outs.push_back(&tensor_of(out));
  } else if (PyTuple_Check(out) || PyList_Check(out)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(out); ++i) {
      PyObject* e = PySequence_Fast_GET_ITEM(out, i);
      if (!is_tensor(e)) type_error("out must be a tuple of Tensors");
      outs.push_back(&tensor_of(e));
    }
  } else {
    type_error("argument 'out' must be Tensor, not %s", Py_TYPE(out)->tp_name);
  }
  return outs;
}

PyObject* finish(const Overload& o, ops::Results results, const Extras& extras) {
  if (results.empty()) return wrap_results(o, std::move(results));  // parts of nothing
  if (extras.pin_memory) results[0] = results[0].pin_memory();
  if (extras.requires_grad) results[0].requires_grad_();
  return wrap_results(o, std::move(results));
}

/// memory_format=: the call of a record that makes a tensor, whose arguments are changed so that it
/// does so in that order. Gives the record to call instead.
const OpRecord& in_format(const OpRecord& record, Arg* args, const Extras& extras, Tensor& model,
                          Shape& strides, Arg* others) {
  const char* const name = record.name.c_str();
  const bool like = args[0].kind() == Kind::tensor;
  const Format format = format_from(extras.memory_format,
                                    like ? MemoryFormat::preserve : MemoryFormat::contiguous, name);
  if (extras.out) {
    PyErr_SetString(PyExc_RuntimeError,
                    "'memory_format' argument is incompatible with 'out' tensor argument");
    throw PythonError{};
  }
  if (!like) {
    ARETE_CHECK(format.order != MemoryFormat::preserve,
                ValueError(name, "unsupported memory format Preserve").argument("memory_format"));
    check_rank(format, int64_t(args[0].ints().size()), name);
    if (format.rank == 0) return record;
    static const OpRecord& strided = *ops::find_record("empty_strided");
    strides = channels_last_strides(args[0].ints());
    others[0] = args[0];
    others[1] = Arg(IntList(strides));
    others[2] = args[1];
    others[3] = args[2];
    return strided;
  }
  const Tensor& self = args[0].tensor();
  check_rank(format, self.dim(), name);
  if (format.order == MemoryFormat::preserve) return record;
  // Such records look at what self is, never at its elements: one that lies as wanted stands in.
  Layout l = format.rank == 0 ? Layout(self.sizes())
                              : Layout(self.sizes(), channels_last_strides(self.sizes()));
  model =
      Tensor(IntrusivePtr<TensorImpl>(new TensorImpl(self.storage(), std::move(l), self.dtype())));
  args[0] = Arg(model);
  return record;
}

PyObject* call_record(const Overload& o, const OpRecord& record, std::span<const Arg> all,
                      const Extras& extras) {
  if (extras.out) {
    const std::vector<std::string>& returns = ops::schema_of(record).returns;
    if (returns.size() == 1 && returns[0] == "Tensor" && !is_tensor(extras.out))
      type_error("%s(): argument 'out' must be Tensor, not %s", record.name.c_str(),
                 Py_TYPE(extras.out)->tp_name);
    const SmallVector<Tensor*, 3> outs = outputs_in(extras.out);
    const auto write = [&] { ops::call_into({outs.data(), outs.size()}, record, all); };
    if (is_long(all)) {
      const WithoutGil free;
      write();
    } else {
      write();
    }
    if (extras.requires_grad) outs[0]->requires_grad_();
    return Py_NewRef(extras.out);
  }
  if (!is_long(all)) return finish(o, ops::call_all(record, all), extras);
  ops::Results results;
  {
    const WithoutGil free;
    results = ops::call_all(record, all);
  }
  return finish(o, std::move(results), extras);
}

PyObject* call_in_place(const OpRecord& record, Tensor& target, std::span<const Arg> all) {
  if (is_long(all)) {
    const WithoutGil free;
    ops::call_in_place(target, record, all);
  } else {
    ops::call_in_place(target, record, all);
  }
  return checked(wrap(target));
}

PyObject* call_face(const Overload& o, const Arg* bound, Extras extras) {
  FaceCall call;
  bind_face(o, bound, call);
  Tensor target = call.args[0].tensor();
  if (call.idle) return checked(wrap(target));
  const std::span<const Arg> all(call.args, call.count);
  if (call.in_place) return call_in_place(*call.record, target, all);
  Ref out;
  if (call.out.defined()) {
    out = Ref(checked(wrap(call.out)));
    extras.out = out.get();
  }
  return call_record(o, *call.record, all, extras);
}

/// layout=: a tensor of a sparse layout, which has no elements. The record tells size and dtype, on
/// the device meta.
PyObject* call_sparse(const Overload& o, Arg* args, const Extras& extras) {
  const std::string& name = o.record->name;
  if (!o.record->takes_sparse_layout || extras.out || extras.pin_memory || extras.memory_format) {
    PyErr_Format(PyExc_RuntimeError, "%s(...) is not implemented for sparse layout", name.c_str());
    throw PythonError{};
  }
  Arg& device = args[o.device_option_at];
  const Device where = !device.is_none()                ? device.device()
                       : args[0].kind() == Kind::tensor ? args[0].tensor().device()
                                                        : Device(kCPU);
  device = Arg(Device(kMeta));
  const std::span<const Arg> all(args, o.defaults.size());
  const Ref like(checked(wrap(ops::call_all(*o.record, all)[0])));
  const Ref there(checked(wrap(where)));
  const Ref module(checked(PyImport_ImportModule("arete._operators._sparse_functions")));
  return checked(PyObject_CallMethod(module.get(), "without_elements", "OOOi", like.get(),
                                     extras.layout, there.get(), int(extras.requires_grad)));
}

PyObject* call_bound(OperatorObject* self, const Overload& o, Arg* args, const Extras& extras,
                     PyObject* first) {
  if (o.face) return call_face(o, args, extras);
  if (extras.layout) [[unlikely]]
    return call_sparse(o, args, extras);
  const std::span<const Arg> all(args, o.defaults.size());
  if (extras.memory_format) [[unlikely]] {
    Tensor model;
    Shape strides;
    Arg others[4];
    const OpRecord& record = in_format(*o.record, args, extras, model, strides, others);
    return finish(
        o, ops::call_all(record, &record == o.record ? all : std::span<const Arg>(others)), extras);
  }
  if (self->in_place) return call_in_place(*o.record, tensor_of(first), all);
  return call_record(o, *o.record, all, extras);
}

// ---- subclasses that say for themselves what operators do with them (__torch_function__)

// Python's half: called with an operator, a tuple and a dict; null until there is such a subclass.
PyObject* override_handler = nullptr;
std::vector<PyTypeObject*>& overriding_types() {
  static std::vector<PyTypeObject*> types;  // kept for good: few, and types seldom end
  return types;
}
thread_local bool overrides_off = false;
// Whether a mode of Python's (overrides.TorchFunctionMode) wants to see every call of this thread.
thread_local bool mode_looks = false;

bool overrides(PyObject* o) {
  PyTypeObject* const type = Py_TYPE(o);
  if (type == tensor_type || !(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) return false;
  const std::vector<PyTypeObject*>& types = overriding_types();
  return std::find(types.begin(), types.end(), type) != types.end();
}
bool any_overrides(PyObject* const* args, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (overrides(args[i])) return true;
    if (!PyTuple_Check(args[i]) && !PyList_Check(args[i])) continue;
    PyObject** const items = PySequence_Fast_ITEMS(args[i]);
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(args[i]); ++k)
      if (overrides(items[k])) return true;
  }
  return false;
}
// A class beside tensors may have the protocol, too: asked for when an argument fits nowhere.
bool any_has_protocol(PyObject* const* args, size_t n) {
  const auto has_it = [](PyObject* o) {
    return !is_tensor(o) &&
           PyObject_HasAttrString(reinterpret_cast<PyObject*>(Py_TYPE(o)), "__torch_function__");
  };
  for (size_t i = 0; i < n; ++i) {
    if (has_it(args[i])) return true;
    if (!PyTuple_Check(args[i]) && !PyList_Check(args[i])) continue;
    PyObject** const items = PySequence_Fast_ITEMS(args[i]);
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(args[i]); ++k)
      if (has_it(items[k])) return true;
  }
  return false;
}
PyObject* call_override(PyObject* callable, PyObject* const* args, size_t n, PyObject* kwnames) {
  const Ref given(checked(PyTuple_New(Py_ssize_t(n))));
  for (size_t i = 0; i < n; ++i) PyTuple_SET_ITEM(given.get(), Py_ssize_t(i), Py_NewRef(args[i]));
  const Ref named(checked(PyDict_New()));
  for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); ++k)
    if (PyDict_SetItem(named.get(), PyTuple_GET_ITEM(kwnames, k), args[n + size_t(k)]) < 0)
      throw PythonError{};
  return PyObject_CallFunctionObjArgs(override_handler, callable, given.get(), named.get(),
                                      nullptr);
}

PyObject* operator_vectorcall(PyObject* callable, PyObject* const* args, size_t nargsf,
                              PyObject* kwnames);

/// Calls a form in place whose tensor was given by its name, with the tensor in the first place.
/// Null without an error: it was not given so.
PyObject* call_with_input_first(PyObject* callable, PyObject* const* args, PyObject* kwnames) {
  const Py_ssize_t count = PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), "input") != 0) continue;
    std::vector<PyObject*> moved(args, args + count);
    std::rotate(moved.begin(), moved.begin() + i, moved.begin() + i + 1);
    const Ref before(checked(PyTuple_GetSlice(kwnames, 0, i))),
        after(checked(PyTuple_GetSlice(kwnames, i + 1, count)));
    const Ref names(checked(PySequence_Concat(before.get(), after.get())));
    return operator_vectorcall(callable, moved.data(), 1, names.get());
  }
  return nullptr;
}

PyObject* operator_vectorcall(PyObject* callable, PyObject* const* args, size_t nargsf,
                              PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    OperatorObject* const self = operator_in(callable);
    const size_t n = size_t(PyVectorcall_NARGS(nargsf));
    const size_t all = n + (kwnames ? size_t(PyTuple_GET_SIZE(kwnames)) : 0);
    if (mode_looks || (!overriding_types().empty() && !overrides_off && any_overrides(args, all)))
      return call_override(callable, args, n, kwnames);
    if (self->in_place && n == 0 && kwnames) {
      PyObject* const result = call_with_input_first(callable, args, kwnames);
      if (result || PyErr_Occurred()) return result;
    }
    if (self->in_place && (n == 0 || !is_tensor(args[0]))) {
      if (override_handler && any_has_protocol(args, all))
        return call_override(callable, args, n, kwnames);
      type_error("%U(): the first argument must be Tensor", self->name);
    }
    std::string reasons;
    const bool one = self->overloads->size() == 1;
    for (const bool strict : {true, false}) {
      if (one && strict) continue;
      reasons.clear();
      for (const Overload& o : *self->overloads) {
        ArgStorage storage;
        Extras extras;
        Mismatch why;
        Arg bound[kMostParameters];
        if (match_arguments(o, strict, self->name, self->in_place, args, n, kwnames, storage, bound,
                            extras, why))
          return call_bound(self, o, bound, extras, n > 0 ? args[0] : nullptr);
        if (PyErr_Occurred()) return nullptr;
        reasons += (one ? "" : "\n * " + o.text + "\n      ") + why.text;
      }
    }
    if (override_handler && any_has_protocol(args, all))
      return call_override(callable, args, n, kwnames);
    const std::string text =
        one ? reasons
            : to_text(self->name) +
                  "() received an invalid combination of arguments. It takes:" + reasons;
    PyErr_SetString(PyExc_TypeError, text.c_str());
    return nullptr;
  });
}

// ---- the classes

PyTypeObject* function_type;
PyTypeObject* method_type;

PyObject* operator_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"name", "in_place", "functional", nullptr};
    PyObject* name = nullptr;
    int in_place = 0, functional = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "U|pp", const_cast<char**>(names), &name,
                                     &in_place, &functional))
      return nullptr;
    const std::string text = to_text(name);
    auto overloads = std::make_unique<std::vector<Overload>>();
    for (const Shown& s : functional ? functional_overloads(text) : overloads_of(text, in_place))
      overloads->push_back(functional && !in_place ? make_face(*s.record, s.signature)
                                                   : make_overload(*s.record, s.signature, text));
    if (overloads->empty()) {
      PyErr_Format(PyExc_KeyError, "there is no operator '%U'", name);
      return nullptr;
    }
    separate(*overloads);
    if (functional)  // which takes words
      for (Overload& v : *overloads)
        for (Parameter& p : v.parameters) p.reduction = false;
    PyObject* o = checked(type->tp_alloc(type, 0));
    operator_in(o)->vectorcall = operator_vectorcall;
    operator_in(o)->name = Py_NewRef(name);
    operator_in(o)->dict = nullptr;
    operator_in(o)->overloads = overloads.release();
    operator_in(o)->in_place = in_place;
    operator_in(o)->functional = functional;
    return o;
  });
}
void operator_dealloc(PyObject* o) {
  PyTypeObject* const type = Py_TYPE(o);
  Py_XDECREF(operator_in(o)->name);
  Py_XDECREF(operator_in(o)->dict);
  delete operator_in(o)->overloads;
  type->tp_free(o);
  Py_DECREF(type);
}
PyObject* operator_repr(PyObject* o) {
  return PyUnicode_FromFormat("<operator %U>", operator_in(o)->name);
}
PyObject* method_get(PyObject* o, PyObject* instance, PyObject*) {
  if (!instance || instance == Py_None) return Py_NewRef(o);
  return PyMethod_New(o, instance);
}
PyObject* operator_name(PyObject* o, void*) { return Py_NewRef(operator_in(o)->name); }
// Where its name is to be found, as pickle looks for it.
PyObject* operator_module(PyObject* o, void*) {
  return PyUnicode_FromString(operator_in(o)->functional ? "arete.nn.functional" : "arete");
}
// Made when somebody asks, as inspect.signature() does.
PyObject* operator_python_signature(PyObject* o, void*) {
  return guarded([&]() -> PyObject* {
    const Ref docs(checked(PyImport_ImportModule("arete._docs")));
    return PyObject_CallMethod(docs.get(), "signature", "O", o);
  });
}
// Made from the records when somebody asks (arete/_docs.py).
PyObject* operator_doc(PyObject* o, void*) {
  return guarded([&]() -> PyObject* {
    const Ref docs(checked(PyImport_ImportModule("arete._docs")));
    return PyObject_CallMethod(docs.get(), "describe", "O", o);
  });
}
PyObject* operator_records(PyObject* o, void*) {
  PyObject* list = PyList_New(0);
  for (const Overload& v : *operator_in(o)->overloads) {
    const Ref pair(Py_BuildValue("(ss)", v.record->full_name().c_str(), v.text.c_str()));
    if (!list || !pair || PyList_Append(list, pair.get()) < 0) return nullptr;
  }
  return list;
}
// Pickled as a name of the module, as functions are.
PyObject* operator_reduce(PyObject* o, PyObject*) { return Py_NewRef(operator_in(o)->name); }

PyMethodDef operator_methods[] = {{"__reduce__", operator_reduce, METH_NOARGS, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};
PyGetSetDef operator_getset[] = {
    {"__name__", operator_name, nullptr, nullptr, nullptr},
    {"__qualname__", operator_name, nullptr, nullptr, nullptr},
    {"__module__", operator_module, nullptr, nullptr, nullptr},
    {"__doc__", operator_doc, nullptr, nullptr, nullptr},
    {"_records", operator_records, nullptr, nullptr, nullptr},
    {"__signature__", operator_python_signature, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef operator_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(OperatorObject, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(OperatorObject, dict), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
#define OPERATOR_SLOTS                                                                       \
  {Py_tp_new, reinterpret_cast<void*>(operator_new)},                                        \
      {Py_tp_dealloc, reinterpret_cast<void*>(operator_dealloc)},                            \
      {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},                              \
      {Py_tp_repr, reinterpret_cast<void*>(operator_repr)}, {Py_tp_getset, operator_getset}, \
      {Py_tp_members, operator_members}, {                                                   \
    Py_tp_methods, operator_methods                                                          \
  }
PyType_Slot function_slots[] = {OPERATOR_SLOTS, {0, nullptr}};
PyType_Slot method_slots[] = {
    OPERATOR_SLOTS, {Py_tp_descr_get, reinterpret_cast<void*>(method_get)}, {0, nullptr}};
#undef OPERATOR_SLOTS
PyType_Spec function_spec{"arete.Operator", sizeof(OperatorObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, function_slots};
PyType_Spec method_spec{
    "arete.OperatorMethod", sizeof(OperatorObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR, method_slots};

}  // namespace

namespace {
PyObject* set_override_handler(PyObject*, PyObject* handler) {
  if (!PyCallable_Check(handler))
    return PyErr_Format(PyExc_TypeError, "the handler of overrides must be callable");
  Py_XSETREF(override_handler, Py_NewRef(handler));
  Py_RETURN_NONE;
}
PyObject* add_overriding_type(PyObject*, PyObject* type) {
  if (!PyType_Check(type) || !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type), tensor_type))
    return PyErr_Format(PyExc_TypeError, "the class must be a subclass of Tensor");
  overriding_types().push_back(reinterpret_cast<PyTypeObject*>(Py_NewRef(type)));
  Py_RETURN_NONE;
}
PyObject* switch_overrides_off(PyObject*, PyObject* off) {
  const int on = PyObject_IsTrue(off);
  if (on < 0) return nullptr;
  return PyBool_FromLong(std::exchange(overrides_off, on == 1));
}
PyObject* let_mode_look(PyObject*, PyObject* looks) {
  const int on = PyObject_IsTrue(looks);
  if (on < 0) return nullptr;
  return PyBool_FromLong(std::exchange(mode_looks, on == 1));
}
PyObject* are_overrides_off(PyObject*, PyObject*) { return PyBool_FromLong(overrides_off); }
PyMethodDef override_functions[] = {
    {"_set_override_handler", set_override_handler, METH_O, nullptr},
    {"_add_overriding_type", add_overriding_type, METH_O, nullptr},
    {"_switch_overrides_off", switch_overrides_off, METH_O, nullptr},
    {"_let_mode_look", let_mode_look, METH_O, nullptr},
    {"_are_overrides_off", are_overrides_off, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};
}  // namespace

bool init_operator_types(PyObject* module) {
  function_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&function_spec));
  method_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&method_spec));
  return function_type && method_type && PyModule_AddFunctions(module, override_functions) == 0 &&
         PyModule_AddObjectRef(module, "_return_types", return_types) == 0 &&
         PyModule_AddObjectRef(module, "Operator", reinterpret_cast<PyObject*>(function_type)) ==
             0 &&
         PyModule_AddObjectRef(module, "OperatorMethod",
                               reinterpret_cast<PyObject*>(method_type)) == 0;
}

Tensor run_freely(int64_t elements, const std::function<Tensor()>& f) {
  if (elements < kLongCall) return f();
  const WithoutGil free;
  return f();
}
namespace {
/// Two operands, and the alpha of records that have one.
struct Operands {
  Operands(const OpRecord& record, const Arg& a, const Arg& b) : args{a, b} {
    static const Scalar one(1);
    if (record.pointwise && record.pointwise->n_params == 1) args[n++] = Arg(one);
  }
  std::span<const Arg> all() const { return {args, n}; }
  Arg args[3];
  size_t n = 2;
};
}  // namespace
Tensor call_one_operand(const OpRecord& record, const Tensor& a) {
  return run_freely(a.numel(), [&] { return ops::call(record, {a}); });
}
Tensor call_two_operands(const OpRecord& record, const Arg& a, const Arg& b) {
  const Operands operands(record, a, b);
  return run_freely(is_long(operands.all()) ? kLongCall : 0,
                    [&] { return ops::call(record, operands.all()); });
}
void change_by(Tensor& target, const OpRecord& record, const Arg& b) {
  const Arg self(target);
  const Operands operands(record, self, b);
  run_freely(is_long(operands.all()) ? kLongCall : 0,
             [&] { return ops::call_in_place(target, record, operands.all()); });
}

PyObject* binary_operator(const OpRecord& record, PyObject* a, PyObject* b, bool in_place) {
  return guarded([&]() -> PyObject* {
    Scalar sa, sb;
    Arg args[2];
    if (is_tensor(a))
      args[0] = Arg(tensor_of(a));
    else if (to_scalar(a, sa))
      args[0] = Arg(sa);
    else
      return Py_NewRef(Py_NotImplemented);
    if (is_tensor(b))
      args[1] = Arg(tensor_of(b));
    else if (to_scalar(b, sb))
      args[1] = Arg(sb);
    else
      return Py_NewRef(Py_NotImplemented);
    // Python itself asks the type of b first where there is no tensor to change.
    if (mode_looks || (in_place && !overriding_types().empty() && !overrides_off && overrides(b))) {
      const std::string name = std::string(record.name) + (in_place ? "_" : "");
      return PyObject_CallFunction(override_handler, "s(OO){}", name.c_str(), a, b);
    }
    if (in_place) {
      change_by(tensor_of(a), record, args[1]);
      return Py_NewRef(a);
    }
    return wrap(call_two_operands(record, args[0], args[1]));
  });
}

}  // namespace arete::python
