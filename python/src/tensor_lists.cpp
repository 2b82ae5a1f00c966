// Tensors of nested sequences of numbers.
//
// Note [Sequences that change]
// Numbers may be objects of the program, whose __float__ and the like can do anything, such as
// append to the list that is just read. A list is measured first and read then: the second time
// every length is compared with the first, so that no more is written than there is room for, and
// each item is held while it is looked at.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "arete/core/complex.h"
#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/ops/filling.h"
#include "convert.h"
#include "numpy_data.h"
#include "tensor_data.h"
#include "tensor_object.h"

namespace arete::python {

namespace {

/// What a nested list looks like before its values are copied.
struct ListShape {
  std::optional<DType> wanted;
  Shape sizes;
  int category = 0;            // of the widest number: 0 bool, 1 int, 2 float, 3 complex
  std::optional<DType> dtype;  // where tensors or NumPy's objects say
  int64_t count = 0;
  std::unordered_map<PyObject*, Ref> lists;  // of the items of other sequences, such as ranges
};

bool is_list(PyObject* o) { return PyList_Check(o) || PyTuple_Check(o); }

[[noreturn]] void not_a_number(PyObject* o, const ListShape& s) {
  const char* const type = Py_TYPE(o)->tp_name;
  if (PyUnicode_Check(o) || PyBytes_Check(o)) type_error("new(): invalid data type '%s'", type);
  if (s.wanted) type_error("must be real number, not %s", type);
  throw ValueError("", std::string("Could not infer dtype of ") + type)
      .expected("a number or a sequence of numbers");
}

[[noreturn]] void changed() {
  PyErr_SetString(PyExc_RuntimeError, "a sequence changed while its numbers were read");
  throw PythonError{};
}

/// An object that is no list, but stands for several numbers.
Tensor inner_tensor(PyObject* o, const ListShape& s) {
  if (is_tensor(o)) return tensor_of(o);
  return is_numpy_array(o) ? tensor_over_array(o, s.wanted) : Tensor();
}

/// A list or tuple as it is, another sequence as a list of its items; null for what is none.
PyObject* items_of(PyObject* o, ListShape& s) {
  if (is_list(o)) return o;
  if (!PySequence_Check(o) || PyUnicode_Check(o) || PyBytes_Check(o) || is_numpy_scalar(o))
    return nullptr;
  if (PySequence_Size(o) < 0) throw PythonError{};
  Ref& list = s.lists[o];
  if (!list) list = Ref(checked(PySequence_List(o)));
  return list.get();
}

bool is_simple_number(PyObject* o) {
  return PyFloat_CheckExact(o) || PyLong_CheckExact(o) || PyBool_Check(o) ||
         PyComplex_CheckExact(o);
}

void measure(PyObject* o, size_t depth, ListShape& s);

void measure_items(PyObject* items, size_t depth, ListShape& s) {
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
  if (s.count > 0 && s.sizes.size() <= depth) not_a_number(items, s);
  if (s.sizes.size() <= depth) {
    s.sizes.push_back(n);
  } else if (s.sizes[depth] != n) {
    PyErr_Format(PyExc_ValueError, "expected sequence of length %lld at dim %zu (got %lld)",
                 static_cast<long long>(s.sizes[depth]), depth, static_cast<long long>(n));
    throw PythonError{};
  }
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (i >= PySequence_Fast_GET_SIZE(items)) changed();
    const Ref item = Ref::borrow(PySequence_Fast_GET_ITEM(items, i));
    measure(item.get(), depth + 1, s);
  }
}

void measure_tensor(const Tensor& t, PyObject* o, size_t depth, ListShape& s) {
  for (int64_t d = 0; d < t.dim(); ++d) {
    const size_t at = depth + size_t(d);
    if (s.sizes.size() <= at) {
      if (s.count > 0) not_a_number(o, s);
      s.sizes.push_back(t.size(d));
    } else if (s.sizes[at] != t.size(d)) {
      PyErr_SetString(PyExc_ValueError, "tensors of unequal sizes in a list");
      throw PythonError{};
    }
  }
  s.category = std::max(s.category, category_of(t.dtype()));
  s.dtype = s.dtype ? promote_types(*s.dtype, t.dtype()) : t.dtype();
  s.count += std::max<int64_t>(t.numel(), 1);
  if (s.sizes.size() > depth + size_t(t.dim())) {
    PyErr_Format(PyExc_TypeError, "expected a sequence at dim %zu, got %s", depth + size_t(t.dim()),
                 Py_TYPE(o)->tp_name);
    throw PythonError{};
  }
}

void measure(PyObject* o, size_t depth, ListShape& s) {
  if (depth > 64) {
    PyErr_SetString(PyExc_ValueError, "too many dimensions (lists within lists beyond 64)");
    throw PythonError{};
  }
  if (!is_simple_number(o)) {
    if (const Tensor t = inner_tensor(o, s); t.defined()) return measure_tensor(t, o, depth, s);
    if (PyObject* const items = items_of(o, s)) return measure_items(items, depth, s);
  }
  if (s.sizes.size() > depth) {
    PyErr_Format(PyExc_TypeError, "expected a sequence at dim %zu, got %s", depth,
                 Py_TYPE(o)->tp_name);
    throw PythonError{};
  }
  int category = 0;
  if (PyFloat_CheckExact(o)) {
    category = 2;
  } else if (PyLong_Check(o)) {
    category = PyBool_Check(o) ? 0 : 1;
  } else if (PyComplex_CheckExact(o)) {
    category = 3;
  } else if (is_numpy_scalar(o)) {
    const DType t = numpy_dtype(o, s.wanted);
    category = category_of(t);
    s.dtype = s.dtype ? promote_types(*s.dtype, t) : t;
  } else {
    Scalar v;
    if (!to_scalar(o, v)) not_a_number(o, s);
    category = v.category();
  }
  s.category = std::max(s.category, category);
  ++s.count;
}

template <class T>
T number_from(PyObject* o, const ListShape& s) {
  if constexpr (std::is_same_v<T, double>) {
    if (PyFloat_CheckExact(o)) return PyFloat_AS_DOUBLE(o);
    if (PyLong_Check(o) || is_numpy_scalar(o)) {  // as many bits as it takes
      const double v = PyFloat_AsDouble(o);
      if (v == -1 && PyErr_Occurred()) throw PythonError{};
      return v;
    }
  }
  Scalar v;
  if (!to_scalar(o, v)) not_a_number(o, s);
  if constexpr (std::is_same_v<T, std::complex<double>>) return to_complex(v);
  if constexpr (std::is_same_v<T, bool>) return v.to_bool();
  if constexpr (std::is_same_v<T, int64_t>) return v.to_int64();
  if constexpr (std::is_same_v<T, uint64_t>) {
    if (v.is_integral() && !v.is_large() && v.to_int64() < 0) {
      PyErr_SetString(PyExc_OverflowError, "can't convert negative int to unsigned");
      throw PythonError{};
    }
    return v.to_bits();
  }
  return T(v.to_double());
}

// See Note [Sequences that change].
template <class T>
void fill(PyObject* o, size_t depth, ListShape& s, T*& at) {
  if (!is_simple_number(o)) {
    if (const Tensor t = inner_tensor(o, s); t.defined()) {
      const Tensor c = t.detach().to(kCPU, dtype_of<T>).contiguous();
      if (!std::equal(c.sizes().begin(), c.sizes().end(), s.sizes.begin() + depth, s.sizes.end()))
        changed();
      const int64_t n = c.numel();
      if (n > 0) std::memcpy(at, c.data_ptr(), size_t(n) * sizeof(T));
      at += n;
      return;
    }
    if (PyObject* const items = items_of(o, s)) {
      if (depth >= s.sizes.size()) changed();
      for (int64_t i = 0; i < s.sizes[depth]; ++i) {
        if (PySequence_Fast_GET_SIZE(items) != s.sizes[depth]) changed();
        const Ref item = Ref::borrow(PySequence_Fast_GET_ITEM(items, i));
        fill(item.get(), depth + 1, s, at);
      }
      return;
    }
  }
  if (depth != s.sizes.size()) changed();
  *at = number_from<T>(o, s);
  if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t> ||
                std::is_same_v<T, double>)
    if (s.wanted && is_integer(*s.wanted)) ops::check_holds(*s.wanted, Scalar(*at), "tensor");
  ++at;
}

template <class T>
Tensor tensor_of_list(PyObject* data, ListShape& s, DType dtype, Device device) {
  Tensor host = empty(s.sizes, TensorOptions(dtype_of<T>));
  T* at = static_cast<T*>(host.data_ptr());
  if (host.numel() > 0) fill<T>(data, 0, s, at);
  return host.to(device, dtype);
}

}  // namespace

Tensor tensor_from(PyObject* data, std::optional<DType> dtype, Device device) {
  ListShape s;
  s.wanted = dtype;
  if (const Tensor t = inner_tensor(data, s); t.defined())
    return t.detach().to(device, dtype.value_or(t.dtype()), false, true);
  measure(data, 0, s);
  const DType found = s.count == 0                                     ? default_dtype()
                      : s.dtype && category_of(*s.dtype) >= s.category ? *s.dtype
                      : s.category == 0                                ? kBool
                      : s.category == 1                                ? kInt64
                      : s.category == 2                                ? default_dtype()
                      : default_dtype() == kFloat64                    ? kComplex128
                                                                       : kComplex64;
  const DType wanted = dtype.value_or(found);
  if (s.category == 3 && !is_complex(wanted) && !is_numpy_scalar(data))
    type_error("can't convert complex to %s", std::string(name_of(wanted)).c_str());
  // Integers may be larger than 64 bits if floating numbers are made of them.
  switch (s.category == 1 && is_floating(wanted) ? 2 : s.category) {
    case 0:
      return tensor_of_list<bool>(data, s, wanted, device);
    case 1:
      return wanted == kUInt64 ? tensor_of_list<uint64_t>(data, s, wanted, device)
                               : tensor_of_list<int64_t>(data, s, wanted, device);
    case 2:
      return tensor_of_list<double>(data, s, wanted, device);
    default:
      return tensor_of_list<std::complex<double>>(data, s, wanted, device);
  }
}

}  // namespace arete::python
