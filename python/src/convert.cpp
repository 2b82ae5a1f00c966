#include "convert.h"

#include <complex>
#include <vector>

#include <cmath>
#include <cstdarg>

#include "arete/autograd/forward_mode.h"
#include "arete/base/distributed_error.h"
#include "arete/base/error.h"
#include "tensor_object.h"

namespace arete::python {

constinit thread_local std::optional<Device> default_device;

void type_error(const char* format, ...) {
  va_list list;
  va_start(list, format);
  PyErr_FormatV(PyExc_TypeError, format, list);
  va_end(list);
  throw PythonError{};
}

// ---- errors

namespace {

PyObject* argument_error;  // RuntimeError and ValueError: PyTorch raises the one or the other
PyObject* dtype_error;     // TypeError and RuntimeError, for the same reason
PyObject* autograd_error;
PyObject* device_error;
PyObject* out_of_memory_error;
PyObject* bug_error;
PyObject* distributed_errors[4];  // by DistributedError::Failure

PyObject* new_error(PyObject* module, const char* name, const char* doc,
                    std::initializer_list<PyObject*> bases) {
  Ref tuple(PyTuple_New(Py_ssize_t(bases.size())));
  if (!tuple) return nullptr;
  Py_ssize_t i = 0;
  for (PyObject* base : bases) PyTuple_SET_ITEM(tuple.get(), i++, Py_NewRef(base));
  PyObject* e =
      PyErr_NewExceptionWithDoc((std::string("arete.") + name).c_str(), doc, tuple.get(), nullptr);
  if (e && PyModule_AddObjectRef(module, name, e) < 0) return nullptr;
  return e;
}

}  // namespace

PyObject* class_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::value:
      return argument_error;
    case ErrorKind::type:
      return dtype_error;
    case ErrorKind::index:
      return PyExc_IndexError;
    case ErrorKind::device:
      return device_error;
    case ErrorKind::autograd:
      return autograd_error;
    case ErrorKind::io:
      return PyExc_OSError;
    case ErrorKind::not_implemented:
      return PyExc_NotImplementedError;
    case ErrorKind::out_of_memory:
      return out_of_memory_error;
    case ErrorKind::bug:
      break;
  }
  return bug_error;
}

bool init_errors(PyObject* module) {
  argument_error = new_error(module, "ArgumentError", "An argument has a wrong value or shape.",
                             {PyExc_RuntimeError, PyExc_ValueError, PyExc_AssertionError});
  dtype_error = new_error(module, "DTypeError", "An operator does not take tensors of this dtype.",
                          {PyExc_TypeError, PyExc_RuntimeError});
  autograd_error = new_error(module, "AutogradError", "A rule of differentiation is broken.",
                             {PyExc_RuntimeError});
  device_error = new_error(module, "DeviceError",
                           "Tensors on different devices, or a device that is not there.",
                           {PyExc_RuntimeError});
  out_of_memory_error = new_error(module, "OutOfMemoryError", "An allocation failed.",
                                  {PyExc_RuntimeError, PyExc_MemoryError});
  bug_error = new_error(module, "BugError", "An internal inconsistency: please report it.",
                        {PyExc_RuntimeError});
  PyObject* const dist_error =
      new_error(module, "DistError", "Processes that work together failed.", {PyExc_RuntimeError});
  if (!dist_error) return false;
  distributed_errors[0] =
      new_error(module, "DistStoreError",
                "A store is not what it should be, or a key did not come in time.", {dist_error});
  distributed_errors[1] = new_error(module, "DistNetworkError",
                                    "There is no connection to another process.", {dist_error});
  distributed_errors[2] =
      new_error(module, "DistBackendError", "Tensors could not be exchanged.", {dist_error});
  if (!distributed_errors[0]) return false;
  distributed_errors[3] =
      new_error(module, "QueueEmptyError", "A queue of a store is empty.", {distributed_errors[0]});
  return argument_error && dtype_error && autograd_error && device_error && out_of_memory_error &&
         bug_error && distributed_errors[1] && distributed_errors[2] && distributed_errors[3];
}

void set_python_error() noexcept {
  try {
    throw;
  } catch (const PythonError&) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "an error without a description");
  } catch (const DistributedError& e) {
    PyErr_SetString(distributed_errors[int(e.failure())], e.what());
  } catch (const Error& e) {
    PyErr_SetString(class_of(e.kind()), e.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an unknown C++ exception");
  }
}

// ---- dtype

namespace {

struct DTypeObject {
  PyObject_HEAD DType dtype;
};
PyTypeObject* dtype_type;
PyObject* dtype_objects[kNumDTypes];

DType dtype_in(PyObject* o) { return reinterpret_cast<DTypeObject*>(o)->dtype; }

PyObject* dtype_repr(PyObject* o) {
  const Ref module(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(o)), "__module__"));
  if (!module) return nullptr;
  return PyUnicode_FromFormat("%S.%s", module.get(), std::string(name_of(dtype_in(o))).c_str());
}
#define DTYPE_GETTER(name, value) \
  PyObject* dtype_##name(PyObject* o, void*) { return value; }
DTYPE_GETTER(is_floating_point, PyBool_FromLong(is_floating(dtype_in(o))))
DTYPE_GETTER(is_complex, PyBool_FromLong(arete::is_complex(dtype_in(o))))
DTYPE_GETTER(is_signed, PyBool_FromLong(!is_unsigned(dtype_in(o)) && dtype_in(o) != kBool))
DTYPE_GETTER(itemsize, PyLong_FromSize_t(size_of(dtype_in(o))))
DTYPE_GETTER(name, PyUnicode_FromString(std::string(name_of(dtype_in(o))).c_str()))
// For arete.finfo and iinfo.
DTYPE_GETTER(eps, PyFloat_FromDouble(epsilon_of(dtype_in(o))))
DTYPE_GETTER(highest, PyFloat_FromDouble(max_of(dtype_in(o))))
DTYPE_GETTER(lowest, PyFloat_FromDouble(lowest_of(dtype_in(o))))
#undef DTYPE_GETTER
PyObject* dtype_to_real(PyObject* o, PyObject*) {
  const DType t = dtype_in(o);
  return wrap(t == kComplex64 ? kFloat32 : t == kComplex128 ? kFloat64 : t);
}
PyObject* dtype_to_complex(PyObject* o, PyObject*) {
  return wrap(dtype_in(o) == kFloat64 || dtype_in(o) == kComplex128 ? kComplex128 : kComplex64);
}

PyGetSetDef dtype_getset[] = {
    {"is_floating_point", dtype_is_floating_point, nullptr, nullptr, nullptr},
    {"is_complex", dtype_is_complex, nullptr, nullptr, nullptr},
    {"is_signed", dtype_is_signed, nullptr, nullptr, nullptr},
    {"itemsize", dtype_itemsize, nullptr, "Bytes of an element.", nullptr},
    {"_name", dtype_name, nullptr, nullptr, nullptr},
    {"_eps", dtype_eps, nullptr, nullptr, nullptr},
    {"_max", dtype_highest, nullptr, nullptr, nullptr},
    {"_min", dtype_lowest, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef dtype_methods[] = {{"to_real", dtype_to_real, METH_NOARGS, nullptr},
                               {"to_complex", dtype_to_complex, METH_NOARGS, nullptr},
                               {nullptr, nullptr, 0, nullptr}};
PyType_Slot dtype_slots[] = {
    {Py_tp_repr, reinterpret_cast<void*>(dtype_repr)},
    {Py_tp_getset, dtype_getset},
    {Py_tp_methods, dtype_methods},
    {Py_tp_doc, const_cast<char*>(R"(The type of a tensor's elements: arete.float32, ...

>>> arete.ones(2).dtype.itemsize
4
)")},
    {0, nullptr}};
PyType_Spec dtype_spec{"arete.dtype", sizeof(DTypeObject), 0,
                       Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, dtype_slots};

// ---- device

// Kinds of devices that PyTorch has names for and Arete no backend: programs compare with them.
constexpr const char* kAbsentDevices[] = {"mps",    "xpu", "hpu",  "privateuseone", "mtia",  "xla",
                                          "vulkan", "ipu", "lazy", "opengl",        "ideep", "hip",
                                          "opencl", "ve",  "maia", "fpga",          "mkldnn"};

struct DeviceObject {
  PyObject_HEAD Device device;  // of an absent kind only the index counts
  bool indexed;                 // "cuda:0" is not "cuda", nor "cpu:0" quite "cpu"
  const char* absent;           // one of kAbsentDevices, or null
};
PyTypeObject* device_type;

DeviceObject* device_in(PyObject* o) { return reinterpret_cast<DeviceObject*>(o); }
const char* type_name(PyObject* o) {
  if (device_in(o)->absent) return device_in(o)->absent;
  const Device d = device_in(o)->device;
  return d.is_cuda() ? "cuda" : d.is_meta() ? "meta" : "cpu";
}

const char* absent_kind(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(':'));
  for (const char* kind : kAbsentDevices)
    if (name == kind) return kind;
  return nullptr;
}
[[noreturn]] void refuse_absent(const char* kind) {
  throw DeviceError("", std::string("there are no devices of the kind '") + kind +
                            "': Arete computes on 'cpu' and 'cuda'");
}

PyObject* new_device(Device d, bool indexed, const char* absent = nullptr) {
  PyObject* o = device_type->tp_alloc(device_type, 0);
  if (!o) return nullptr;
  device_in(o)->device = d;
  device_in(o)->indexed = indexed;
  device_in(o)->absent = absent;
  return o;
}
PyObject* device_new(PyTypeObject*, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"device", "index", "type", nullptr};
    PyObject *what = nullptr, *index = Py_None, *type = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOO", const_cast<char**>(names), &what, &index,
                                     &type))
      return nullptr;
    if (!what == !type) type_error("device(): a device, or a type and an index, are wanted");
    if (!what) what = type;
    if (index != Py_None) {
      int64_t i = 0;
      if (!PyUnicode_Check(what) || !to_int(index, i))
        type_error("device(): expected a type such as 'cuda' and an index");
      const char* const absent = absent_kind(to_text(what));
      const DeviceType t = absent ? DeviceType::cuda : Device(std::string_view(to_text(what))).type;
      if (i < 0 || i > 127) {
        PyErr_SetString(PyExc_RuntimeError, "device(): Device index must not be negative");
        return nullptr;
      }
      return new_device(Device(t, int(i)), true, absent);
    }
    if (is_device(what)) return Py_NewRef(what);
    if (PyUnicode_Check(what)) {
      const std::string text = to_text(what);
      if (const char* const absent = absent_kind(text)) {
        const std::string index_text = text.substr(std::string_view(absent).size());
        Device d(DeviceType::cuda);
        try {
          d = Device("cuda" + index_text);
        } catch (const ValueError&) {
          throw ValueError("", "Invalid device string: '" + text + "'").argument("device");
        }
        return new_device(d, !index_text.empty(), absent);
      }
    }
    Device d;
    if (!to_device(what, d))
      type_error("device(): argument must be a device, a string or an int, not %s",
                 Py_TYPE(what)->tp_name);
    const bool indexed = !PyUnicode_Check(what) || to_text(what).find(':') != std::string::npos;
    return new_device(d, indexed);
  });
}
PyObject* device_repr(PyObject* o) {
  const Device d = device_in(o)->device;
  return device_in(o)->indexed
             ? PyUnicode_FromFormat("device(type='%s', index=%d)", type_name(o), int(d.index))
             : PyUnicode_FromFormat("device(type='%s')", type_name(o));
}
PyObject* device_str(PyObject* o) {
  const Device d = device_in(o)->device;
  if (device_in(o)->indexed) return PyUnicode_FromFormat("%s:%d", type_name(o), int(d.index));
  return PyUnicode_FromString(type_name(o));
}
PyObject* device_compare(PyObject* a, PyObject* b, int op) {
  if (!is_device(a) || !is_device(b) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  const bool same = device_in(a)->device == device_in(b)->device &&
                    device_in(a)->indexed == device_in(b)->indexed &&
                    device_in(a)->absent == device_in(b)->absent;
  return PyBool_FromLong(same == (op == Py_EQ));
}
Py_hash_t device_hash(PyObject* o) {
  const Device d = device_in(o)->device;
  const auto kind = reinterpret_cast<uintptr_t>(device_in(o)->absent);
  return Py_hash_t(1 + int(d.type) * 1000 + d.index) + Py_hash_t(kind >> 1);
}
PyObject* device_get_type(PyObject* o, void*) { return PyUnicode_FromString(type_name(o)); }
PyObject* device_get_index(PyObject* o, void*) {
  if (!device_in(o)->indexed) Py_RETURN_NONE;
  return PyLong_FromLong(device_in(o)->device.index);
}
// with device: what is made inside without a device is made there.
thread_local std::vector<std::optional<Device>> outer_devices;
PyObject* device_enter(PyObject* o, PyObject*) {
  return guarded([&]() -> PyObject* {
    Device d;
    to_device(o, d);
    outer_devices.push_back(default_device);
    default_device = d;
    return Py_NewRef(o);
  });
}
PyObject* device_exit(PyObject*, PyObject*) {
  if (!outer_devices.empty()) {
    default_device = outer_devices.back();
    outer_devices.pop_back();
  }
  Py_RETURN_NONE;
}
PyObject* device_reduce(PyObject* o, PyObject*) {
  return Py_BuildValue("(O(N))", reinterpret_cast<PyObject*>(device_type), device_str(o));
}
PyGetSetDef device_getset[] = {{"type", device_get_type, nullptr, nullptr, nullptr},
                               {"index", device_get_index, nullptr, nullptr, nullptr},
                               {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef device_methods[] = {{"__reduce__", device_reduce, METH_NOARGS, nullptr},
                                {"__enter__", device_enter, METH_NOARGS, nullptr},
                                {"__exit__", device_exit, METH_VARARGS, nullptr},
                                {nullptr, nullptr, 0, nullptr}};
PyType_Slot device_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(device_new)},
    {Py_tp_repr, reinterpret_cast<void*>(device_repr)},
    {Py_tp_str, reinterpret_cast<void*>(device_str)},
    {Py_tp_richcompare, reinterpret_cast<void*>(device_compare)},
    {Py_tp_hash, reinterpret_cast<void*>(device_hash)},
    {Py_tp_getset, device_getset},
    {Py_tp_methods, device_methods},
    {Py_tp_doc, const_cast<char*>(R"(Where a tensor lives: device('cpu'), device('cuda', 1).

In a with-statement: where this thread makes tensors that are given no device. Kinds that PyTorch knows and Arete has not ("mps", "xpu",
...) are names to compare with; to make tensors there is a DeviceError.

>>> arete.device("cuda", 1).index
1
>>> with arete.device("meta"):
...     arete.ones(2).device
device(type='meta')
)")},
    {0, nullptr}};
PyType_Spec device_spec{"arete.device", sizeof(DeviceObject), 0, Py_TPFLAGS_DEFAULT, device_slots};

// ---- Size

PyTypeObject* size_type;

PyObject* size_repr(PyObject* o) {
  const Ref list(PySequence_List(o));
  const Ref module(PyObject_GetAttrString(reinterpret_cast<PyObject*>(size_type), "__module__"));
  if (!list || !module) return nullptr;
  return PyUnicode_FromFormat("%S.Size(%R)", module.get(), list.get());
}
PyObject* size_numel(PyObject* o, PyObject*) {
  int64_t n = 1;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
    n *= PyLong_AsLongLong(PyTuple_GET_ITEM(o, i));
  return PyLong_FromLongLong(n);
}
PyObject* as_size(PyObject* tuple) {
  if (!tuple || !PyTuple_Check(tuple)) return tuple;
  const Ref owned(tuple);
  PyObject* args = PyTuple_Pack(1, tuple);
  const Ref packed(args);
  return PyTuple_Type.tp_new(size_type, args, nullptr);
}
PyObject* size_subscript(PyObject* o, PyObject* index) {
  PyObject* r = PyTuple_Type.tp_as_mapping->mp_subscript(o, index);
  return PySlice_Check(index) ? as_size(r) : r;
}
PyObject* size_concat(PyObject* a, PyObject* b) {
  return as_size(PyTuple_Type.tp_as_sequence->sq_concat(a, b));
}
PyObject* size_repeat(PyObject* o, Py_ssize_t n) {
  return as_size(PyTuple_Type.tp_as_sequence->sq_repeat(o, n));
}
PyMethodDef size_methods[] = {{"numel", size_numel, METH_NOARGS, "The product."},
                              {nullptr, nullptr, 0, nullptr}};
PyType_Slot size_slots[] = {{Py_tp_repr, reinterpret_cast<void*>(size_repr)},
                            {Py_mp_subscript, reinterpret_cast<void*>(size_subscript)},
                            {Py_sq_concat, reinterpret_cast<void*>(size_concat)},
                            {Py_sq_repeat, reinterpret_cast<void*>(size_repeat)},
                            {Py_tp_methods, size_methods},
                            {Py_tp_doc, const_cast<char*>(R"(The sizes of a tensor, a tuple.

>>> arete.zeros(2, 3).shape.numel()
6
)")},
                            {0, nullptr}};
PyType_Spec size_spec{"arete.Size", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, size_slots};

PyTypeObject* new_type(PyObject* module, PyType_Spec& spec, const char* name,
                       PyObject* base = nullptr) {
  PyObject* type = base ? PyType_FromSpecWithBases(&spec, base) : PyType_FromSpec(&spec);
  if (!type || PyModule_AddObjectRef(module, name, type) < 0) return nullptr;
  return reinterpret_cast<PyTypeObject*>(type);
}

}  // namespace

bool init_value_types(PyObject* module) {
  dtype_type = new_type(module, dtype_spec, "dtype");
  device_type = new_type(module, device_spec, "device");
  size_type = new_type(module, size_spec, "Size", reinterpret_cast<PyObject*>(&PyTuple_Type));
  if (!dtype_type || !device_type || !size_type) return false;
  for (int i = 0; i < kNumDTypes; ++i) {
    PyObject* o = dtype_type->tp_alloc(dtype_type, 0);
    if (!o) return false;
    reinterpret_cast<DTypeObject*>(o)->dtype = DType(i);
    dtype_objects[i] = o;
    if (PyModule_AddObjectRef(module, std::string(name_of(DType(i))).c_str(), o) < 0) return false;
  }
  return init_generator_type(module);
}

PyObject* wrap(DType t) { return Py_NewRef(dtype_objects[int(t)]); }
PyObject* wrap(Device d) { return new_device(d, d.is_cuda() && d.index >= 0); }

bool is_size(PyObject* o) { return Py_TYPE(o) == size_type; }
PyObject* wrap_size(IntList sizes) {
  PyObject* o = size_type->tp_alloc(size_type, Py_ssize_t(sizes.size()));
  if (!o) return nullptr;
  for (size_t i = 0; i < sizes.size(); ++i)
    PyTuple_SET_ITEM(o, Py_ssize_t(i), PyLong_FromLongLong(sizes[i]));
  return o;
}

PyObject* wrap(const Scalar& s) {
  switch (s.kind()) {
    case Scalar::Kind::boolean:
      return PyBool_FromLong(s.to_bool());
    case Scalar::Kind::integer:
      return s.is_large() ? PyLong_FromUnsignedLongLong(s.to_bits())
                          : PyLong_FromLongLong(s.to_int64());
    case Scalar::Kind::floating:
      return PyFloat_FromDouble(s.to_double());
    case Scalar::Kind::complex:
      break;
  }
  return PyComplex_FromDoubles(s.real(), s.imag());
}

bool is_dtype(PyObject* o) { return Py_TYPE(o) == dtype_type; }
bool is_device(PyObject* o) { return Py_TYPE(o) == device_type; }

bool to_dtype(PyObject* o, DType& t) {
  if (is_dtype(o))
    t = dtype_in(o);
  else if (o == reinterpret_cast<PyObject*>(&PyFloat_Type))
    t = kFloat64;
  else if (o == reinterpret_cast<PyObject*>(&PyLong_Type))
    t = kInt64;
  else if (o == reinterpret_cast<PyObject*>(&PyBool_Type))
    t = kBool;
  else if (o == reinterpret_cast<PyObject*>(&PyComplex_Type))
    t = kComplex128;
  else
    return false;
  return true;
}

bool to_device(PyObject* o, Device& d) {
  if (is_device(o)) {
    if (const char* const absent = device_in(o)->absent) refuse_absent(absent);
    d = device_in(o)->device;
  } else if (PyUnicode_Check(o)) {
    const std::string text = to_text(o);
    if (const char* const absent = absent_kind(text)) refuse_absent(absent);
    d = Device(std::string_view(text));
  } else if (PyLong_Check(o) && !PyBool_Check(o)) {
    const long i = PyLong_AsLong(o);
    if (i < 0 || i > 127) {
      PyErr_Clear();
      PyErr_Format(PyExc_RuntimeError, "Device index must not be negative, got %R", o);
      throw PythonError{};
    }
    d = Device(DeviceType::cuda, int(i));
  } else {
    return false;
  }
  return true;
}

bool to_int(PyObject* o, int64_t& v) {
  if (PyLong_CheckExact(o)) {
    int overflow = 0;
    v = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow) {
      PyErr_Format(PyExc_RuntimeError, "Overflow when unpacking long long: %R", o);
      throw PythonError{};
    }
    return true;
  }
  if (PyBool_Check(o) || PyFloat_Check(o)) return false;
  if (is_tensor(o)) {
    const Tensor& t = tensor_of(o);
    if (!is_integer(t.dtype()) || t.numel() != 1) return false;
    v = t.item<int64_t>();
    return true;
  }
  if (!PyIndex_Check(o)) return false;
  const Ref index(PyNumber_Index(o));
  if (!index) {
    PyErr_Clear();
    return false;
  }
  return to_int(index.get(), v);
}

bool to_scalar(PyObject* o, Scalar& s) {
  if (PyFloat_Check(o)) {
    s = Scalar(PyFloat_AS_DOUBLE(o));
    return true;
  }
  if (PyBool_Check(o)) {
    s = Scalar(o == Py_True);
    return true;
  }
  if (PyLong_Check(o)) {
    int overflow = 0;
    const long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (!overflow) {
      s = Scalar(int64_t(v));
      return true;
    }
    const unsigned long long large = overflow > 0 ? PyLong_AsUnsignedLongLong(o) : 0;
    if (overflow < 0 || PyErr_Occurred()) {
      PyErr_Format(PyExc_OverflowError, "the number %R is too large for 64 bits", o);
      throw PythonError{};
    }
    s = Scalar(uint64_t(large));
    return true;
  }
  // numpy.complex64 is not derived from complex, as numpy.complex128 is.
  if (PyComplex_Check(o) || std::string_view(Py_TYPE(o)->tp_name).starts_with("numpy.c")) {
    const Py_complex v = PyComplex_AsCComplex(o);
    if (v.real == -1 && PyErr_Occurred()) throw PythonError{};
    s = Scalar(std::complex<double>(v.real, v.imag));
    return true;
  }
  if (is_tensor(o) || PySequence_Check(o) || PyUnicode_Check(o)) return false;
  // NumPy's scalars: those that are no float or int themselves convert by these methods.
  if (PyIndex_Check(o)) {
    const Ref index(PyNumber_Index(o));
    if (index) return to_scalar(index.get(), s);
    PyErr_Clear();
    return false;
  }
  const PyNumberMethods* n = Py_TYPE(o)->tp_as_number;
  const std::string_view type = Py_TYPE(o)->tp_name;
  if (type == "numpy.datetime64" || type == "numpy.timedelta64")
    return false;  // days are no number
  if (n && n->nb_float) {
    // numpy.bool_ has no __index__; its name tells it from floats.
    if (type.find("bool") != std::string_view::npos) {
      s = Scalar(truth(o));
      return true;
    }
    const double v = PyFloat_AsDouble(o);
    if (v == -1 && PyErr_Occurred()) {
      PyErr_Clear();
      return false;
    }
    s = Scalar(v);
    return true;
  }
  return false;
}

bool to_real(PyObject* o, double& v) {
  if (PyFloat_Check(o)) {
    v = PyFloat_AS_DOUBLE(o);
    return true;
  }
  if (is_tensor(o)) {
    const Tensor& t = tensor_of(o);
    if (t.numel() != 1 || t.requires_grad() || is_complex(t.dtype()) ||
        autograd::tangent_of(t).defined())
      return false;
    v = t.item<double>();
    return true;
  }
  Scalar s;
  if (!to_scalar(o, s) || s.is_complex()) return false;
  v = s.to_double();
  return true;
}

bool to_ints(PyObject* o, Shape& v) {
  if (!PyTuple_Check(o) && !PyList_Check(o)) return false;
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
  v.clear();
  for (Py_ssize_t i = 0; i < n; ++i) {
    int64_t e = 0;
    if (!to_int(PySequence_Fast_GET_ITEM(o, i), e)) return false;
    v.push_back(e);
  }
  return true;
}

bool to_reals(PyObject* o, std::vector<double>& v) {
  if (!PyTuple_Check(o) && !PyList_Check(o)) return false;
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
  v.clear();
  for (Py_ssize_t i = 0; i < n; ++i) {
    double e = 0;
    if (!to_real(PySequence_Fast_GET_ITEM(o, i), e)) return false;
    v.push_back(e);
  }
  return true;
}

bool to_tensors(PyObject* o, std::vector<Tensor>& v) {
  if (!PyTuple_Check(o) && !PyList_Check(o)) return false;
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
  v.clear();
  v.reserve(size_t(n));
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* e = PySequence_Fast_GET_ITEM(o, i);
    if (!is_tensor(e)) return false;
    v.push_back(tensor_of(e));
  }
  return true;
}

std::string to_text(PyObject* o) {
  Py_ssize_t n = 0;
  const char* s = PyUnicode_AsUTF8AndSize(o, &n);
  if (!s) throw PythonError{};
  return std::string(s, size_t(n));
}

}  // namespace arete::python
