#include "numpy_data.h"

#include <string>
#include <unordered_map>

#include "convert.h"
#include "tensor_data.h"

namespace arete::python {

namespace {

/// numpy.ndarray and numpy.generic, looked up when NumPy is there; kept for good.
struct Classes {
  PyObject *array = nullptr, *generic = nullptr;
};
const Classes& classes() {
  static Classes known;
  if (known.generic) return known;
  const Ref module(PyImport_GetModule(Ref(PyUnicode_InternFromString("numpy")).get()));
  if (module) {
    Ref array(PyObject_GetAttrString(module.get(), "ndarray"));
    Ref generic(PyObject_GetAttrString(module.get(), "generic"));
    if (array && generic) known = {array.release(), generic.release()};
  }
  PyErr_Clear();  // NumPy is being imported
  return known;
}

bool is_of(PyObject* o, PyObject* type) {
  return type && PyType_IsSubtype(Py_TYPE(o), reinterpret_cast<PyTypeObject*>(type));
}

// The letter of a dtype's attribute.
char letter_of(PyObject* dtype, const char* attribute) {
  const Ref text(checked(PyObject_GetAttrString(dtype, attribute)));
  return to_text(text.get()).at(0);
}

std::string name_of_elements(PyObject* dtype) {
  const Ref type(checked(PyObject_GetAttrString(dtype, "type")));
  const Ref name(checked(PyObject_GetAttrString(type.get(), "__name__")));
  return "numpy." + to_text(name.get());
}

struct Elements {
  std::optional<DType> dtype;  // none: numbers of a kind that Arete lacks
  char kind;                   // b, i, u, f, c
};

Elements read_elements(PyObject* o) {
  const Ref dtype(checked(PyObject_GetAttrString(o, "dtype")));
  const char kind = letter_of(dtype.get(), "kind");
  const Ref size_object(checked(PyObject_GetAttrString(dtype.get(), "itemsize")));
  const int64_t size = PyLong_AsLongLong(size_object.get());
  switch (kind) {
    case 'b':
      return {kBool, kind};
    case 'i':
      return {size == 1 ? kInt8 : size == 2 ? kInt16 : size == 4 ? kInt32 : kInt64, kind};
    case 'u':
      return {size == 1 ? kUInt8 : size == 2 ? kUInt16 : size == 4 ? kUInt32 : kUInt64, kind};
    case 'f':
      if (size > 8) return {{}, kind};
      return {size == 2 ? kFloat16 : size == 4 ? kFloat32 : kFloat64, kind};
    case 'c':
      if (size > 16) return {{}, kind};
      return {size == 8 ? kComplex64 : kComplex128, kind};
    default:
      return {{}, '?'};
  }
}

// Single elements, which come by the thousand, are known by their class; its texts and records are
// not, whose sizes differ.
Elements elements_of(PyObject* o) {
  static std::unordered_map<PyTypeObject*, Elements> known;
  if (!is_numpy_scalar(o)) return read_elements(o);
  const auto it = known.find(Py_TYPE(o));
  if (it != known.end()) return it->second;
  const Elements e = read_elements(o);
  if (e.kind != '?') {
    Py_INCREF(Py_TYPE(o));
    known[Py_TYPE(o)] = e;
  }
  return e;
}

[[noreturn]] void unsupported(PyObject* o, char kind) {
  const Ref dtype(checked(PyObject_GetAttrString(o, "dtype")));
  type_error(
      "can't convert np.ndarray of type %s. The only supported types are: float64, float32, "
      "float16, complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, "
      "and bool.%s",
      name_of_elements(dtype.get()).c_str(),
      kind == '?' ? "" : " Given a dtype, arete.tensor() converts it.");
}

}  // namespace

bool is_numpy_array(PyObject* o) { return is_of(o, classes().array); }
bool is_numpy_scalar(PyObject* o) { return is_of(o, classes().generic); }

DType numpy_dtype(PyObject* o, std::optional<DType> wanted) {
  const Elements e = elements_of(o);
  if (e.dtype) return *e.dtype;
  if (e.kind == '?' || !wanted) unsupported(o, e.kind);
  return e.kind == 'c' ? kComplex128 : kFloat64;
}

Tensor tensor_over_array(PyObject* array, std::optional<DType> wanted) {
  const Ref dtype(checked(PyObject_GetAttrString(array, "dtype")));
  const DType t = numpy_dtype(array, wanted);
  Ref converted;
  if (!elements_of(array).dtype) {
    converted =
        Ref(checked(PyObject_CallMethod(array, "astype", "s", std::string(name_of(t)).c_str())));
    array = converted.get();
  } else if (letter_of(dtype.get(), "byteorder") == '>') {
    PyErr_SetString(PyExc_ValueError,
                    "given numpy array has byte order different from the native byte order. "
                    "Conversion between byte orders is currently not supported.");
    throw PythonError{};
  }
  const Tensor tensor = tensor_over_buffer(array);
  if (!tensor.defined()) type_error("an array of %s has no buffer", Py_TYPE(array)->tp_name);
  return tensor;
}

}  // namespace arete::python
