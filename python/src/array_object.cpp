#include "array_object.h"

#include <structmember.h>

#include <array>
#include <new>
#include <unordered_map>
#include <vector>

#include "arete/core/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/make_view.h"
#include "convert.h"
#include "identity.h"
#include "tensor_internal.h"

namespace arete::python {

// Note [Arrays and their short ways]
// arete.numpy is Python over tensors, and its calls on small arrays cost what Python costs. What
// programs do most is done here: elements, views, operators, ufuncs and a few functions, for plain
// arrays whose dtypes need no more than a promotion. Each such short way either gives what the long
// way in Python would, or nothing (for lists as indices, other classes, every error), and then the
// long way is taken, which has the texts of errors, too. So a short way never decides anything on
// its own, and with all of them off the results are the same.
//
// A number that a function or an index gives (NumPy has scalars there) is kept as a value and its
// dtype until somebody asks for its tensor: an element costs no memory of a tensor, and arithmetic
// of elements no call of an operator.

PyTypeObject *array_type, *read_only_array_type, *reversed_array_type;
Device array_device;

namespace {

PyTypeObject* base_type;
PyObject* array_dtypes[kNumDTypes];  // NumPy's, by the tensors'
PyObject* dtype_names;               // a dict: what names a dtype, to that object
// The same for the keys themselves, not what equals them.
std::unordered_map<const PyObject*, DType>& named_dtypes() {
  static auto* map = new std::unordered_map<const PyObject*, DType>;
  return *map;
}
std::array<std::array<int8_t, kNumDTypes>, kNumDTypes> common_dtypes;
PyObject *slow_getitem, *slow_setitem, *slow_iterate, *slow_set_shape;

/// Arrays of which there were views, by their tensors.
IdentityMap& array_bases() {
  static IdentityMap* map = new IdentityMap;
  return *map;
}
void forget_base(PyObject* o) {
  if (const TensorImpl* const t = std::exchange(array_in(o)->viewed, nullptr))
    array_bases().erase(t, o);
}
bool only_value(PyObject* o) { return !array_in(o)->has_tensor; }

PyObject* new_array(PyTypeObject* type) {
  PyObject* const o = checked(type->tp_alloc(type, 0));
  ArrayObject* const a = array_in(o);
  a->weak_references = a->shown = nullptr;
  new (&a->tensor) Tensor;
  new (&a->value) Scalar;
  a->dtype = kFloat64;
  a->is_number = false;
  a->has_tensor = true;
  a->reversed = 0;
  a->viewed = nullptr;
  return o;
}

// ---- elements in host memory

Scalar element_at(const Tensor& t, int64_t offset) {
  const std::byte* const at =
      t.storage()->readable_data() + (t.layout().offset + offset) * int64_t(t.element_size());
  return visit_dtype(t.dtype(), [&](auto tag) -> Scalar {
    using T = typename decltype(tag)::type;
    T v;
    std::memcpy(static_cast<void*>(&v), at, sizeof(T));
    if constexpr (std::is_integral_v<T>)
      return Scalar(v);
    else if constexpr (std::is_same_v<T, std::complex<float>> ||
                       std::is_same_v<T, std::complex<double>>)
      return Scalar(std::complex<double>(v));
    else
      return Scalar(double(v));
  });
}

/// What Python has for a whole number, or an element of whole numbers, as an index.
bool whole_number_of(PyObject* o, int64_t& i) {
  if (PyLong_CheckExact(o)) {
    i = PyLong_AsLongLong(o);
    if (i == -1 && PyErr_Occurred()) throw PythonError{};
    return true;
  }
  if (!is_plain_array(o) || !only_value(o) || !is_integer(array_in(o)->dtype) ||
      array_in(o)->value.is_large())
    return false;
  i = array_in(o)->value.to_int64();
  return true;
}

/// The place of an element from the first one on; -1: there is none, or it is no element.
int64_t place_of(const Tensor& t, PyObject* const* parts, Py_ssize_t n) {
  if (t.dim() != n || n == 0) return -1;
  int64_t place = 0;
  for (Py_ssize_t d = 0; d < n; ++d) {
    int64_t i;
    if (!whole_number_of(parts[d], i)) return -1;
    const int64_t size = t.sizes()[size_t(d)];
    if (i < 0) i += size;
    if (i < 0 || i >= size) return -1;
    place += i * t.strides()[size_t(d)];
  }
  return place;
}

/// A number that an element of the dtype takes as it is.
std::optional<Scalar> value_for(DType t, PyObject* o) {
  if (PyFloat_CheckExact(o)) {
    if ((!is_floating(t) && !is_complex(t)) || is_reduced_float(t)) return {};
    return Scalar(PyFloat_AS_DOUBLE(o));
  }
  if (PyLong_CheckExact(o)) {
    int overflow = 0;
    const long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow || t == kBool) return {};
    if (is_integer(t) && t != kInt64 && (double(v) < lowest_of(t) || double(v) > max_of(t)))
      return {};
    return Scalar(int64_t(v));
  }
  if (is_plain_array(o) && only_value(o) && array_in(o)->dtype == t) return array_in(o)->value;
  return {};
}

void write_element(const Tensor& t, int64_t place, const Scalar& value) {
  std::byte* const at =
      t.storage()->writable_data() + (t.layout().offset + place) * int64_t(t.element_size());
  visit_dtype(t.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T v;
    if constexpr (std::is_same_v<T, bool>)
      v = value.to_bool();
    else if constexpr (std::is_integral_v<T>)
      v = T(value.to_int64());
    else if constexpr (std::is_same_v<T, std::complex<float>> ||
                       std::is_same_v<T, std::complex<double>>)
      v = T(to_complex(value));
    else
      v = T(value.to_double());
    std::memcpy(at, static_cast<const void*>(&v), sizeof(T));
  });
  t.bump_version();
}

// ---- indices

/// An index of numbers, slices and new axes, part by part.
class BasicIndex {
 public:
  explicit BasicIndex(const Tensor& t) : t_(t), layout_(IntList(), IntList(), t.layout().offset) {}
  /// False for what makes no view.
  bool read(PyObject* key) {
    const bool is_tuple = PyTuple_CheckExact(key);
    PyObject* const* const parts = is_tuple ? &PyTuple_GET_ITEM(key, 0) : &key;
    const Py_ssize_t n = is_tuple ? PyTuple_GET_SIZE(key) : 1;
    if (n == 0) return false;
    for (Py_ssize_t i = 0; i < n; ++i) {
      if (parts[i] == Py_Ellipsis) {
        if (std::exchange(has_ellipsis_, true)) return false;
        parts_.push_back({Kind::ellipsis});
        int64_t behind = 0;
        for (Py_ssize_t k = i + 1; k < n; ++k) behind += parts[k] != Py_None;
        keep_until(t_.dim() - behind);
      } else if (!part(parts[i])) {
        return false;
      }
    }
    keep_until(t_.dim());
    return true;
  }
  Tensor view() {
    static const ops::OpRecord& strided = record_of("as_strided");
    if (is_plain(t_)) return ops::make_one_view(t_, std::move(layout_), strided);
    std::vector<Index> index;  // each part is a call of its own, which may record history
    for (const Part& p : parts_) {
      if (p.kind == Kind::ellipsis)
        index.emplace_back(kEllipsis);
      else if (p.kind == Kind::new_axis)
        index.emplace_back(kNewAxis);
      else if (p.kind == Kind::number)
        index.emplace_back(p.start);
      else
        index.emplace_back(Slice(p.start, p.stop, p.step));
    }
    return t_.index(index);
  }
  /// Axes of the view that are in the opposite order.
  const Shape& reversed() const { return reversed_; }

 private:
  enum class Kind : uint8_t { ellipsis, new_axis, number, slice };
  struct Part {
    Kind kind;
    int64_t start = 0, stop = 0, step = 1;
  };
  bool part(PyObject* o) {
    if (o == Py_None) {
      parts_.push_back({Kind::new_axis});
      add_axis(1, 1);
      return true;
    }
    if (taken_ >= t_.dim()) return false;
    const int64_t size = t_.sizes()[size_t(taken_)], stride = t_.strides()[size_t(taken_)];
    if (int64_t i; whole_number_of(o, i)) {
      if (i < 0) i += size;
      if (i < 0 || i >= size) return false;
      parts_.push_back({Kind::number, i});
      layout_.offset += i * stride;
    } else if (PySlice_Check(o)) {
      Py_ssize_t start, stop, step;
      if (PySlice_Unpack(o, &start, &stop, &step) < 0) throw PythonError{};
      const Py_ssize_t n = PySlice_AdjustIndices(size, &start, &stop, step);
      if (step < 0) {  // the same elements in their order
        // Behind an ellipsis the axis is another one.
        if (has_ellipsis_) throw PythonError{};
        start = n ? start + (n - 1) * step : 0;
        step = -step;
        if (n > 1) reversed_.push_back(int64_t(layout_.sizes.size()));
      }
      parts_.push_back({Kind::slice, start, n ? start + (n - 1) * step + 1 : start, step});
      layout_.offset += start * stride;
      add_axis(n, stride * step);
    } else {
      return false;
    }
    ++taken_;
    return true;
  }
  void keep_until(int64_t axis) {
    for (; taken_ < axis; ++taken_)
      add_axis(t_.sizes()[size_t(taken_)], t_.strides()[size_t(taken_)]);
  }
  void add_axis(int64_t size, int64_t stride) {
    layout_.sizes.push_back(size);
    layout_.strides.push_back(stride);
  }
  const Tensor& t_;
  Layout layout_;  // of the view, so far
  SmallVector<Part, 4> parts_;
  Shape reversed_;
  int64_t taken_ = 0;
  bool has_ellipsis_ = false;
};

bool is_all_numbers(PyObject* key) {
  int64_t i;
  if (!PyTuple_CheckExact(key)) return whole_number_of(key, i);
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(key); ++k)
    if (!whole_number_of(PyTuple_GET_ITEM(key, k), i)) return false;
  return true;
}

/// An array as an index: a mask of the first axes, or whole numbers for the first one.
bool is_index_array(const Tensor& t, PyObject* key) {
  if (!is_readable_array(key) || only_value(key)) return false;
  const Tensor& i = array_tensor(key);
  if (i.dim() == 0 || t.dim() == 0 || i.device() != t.device()) return false;
  if (is_integer(i.dtype())) return true;
  if (i.dtype() != kBool || i.dim() > t.dim()) return false;
  for (int64_t d = 0; d < i.dim(); ++d)
    if (i.sizes()[size_t(d)] != t.sizes()[size_t(d)]) return false;
  return true;
}

/// What is_index_array() has found, as tensors take it.
Tensor index_array(PyObject* key) {
  const Tensor& i = array_tensor(key);
  return i.dtype() == kBool || i.dtype() == kInt64 ? i : i.to(kInt64);
}

PyObject* wrap_reversed(Tensor view, const Shape& axes) {
  PyObject* const o = new_array(reversed_array_type);
  array_in(o)->tensor = std::move(view);
  for (const int64_t d : axes) array_in(o)->reversed |= uint32_t(1) << d;
  return o;
}
Shape reversed_axes(PyObject* o) {
  Shape axes;
  for (int d = 0; d < kMaxRank; ++d)
    if (array_in(o)->reversed >> d & 1) axes.push_back(d);
  return axes;
}

PyObject* short_getitem(PyObject* o, PyObject* key) {
  return try_short([&]() -> PyObject* {
    const Tensor& t = array_tensor(o);
    if (!t.defined()) return nullptr;
    const bool is_tuple = PyTuple_CheckExact(key);
    if (is_at_hand(t)) {
      const int64_t place = is_tuple ? place_of(t, &PyTuple_GET_ITEM(key, 0), PyTuple_GET_SIZE(key))
                                     : place_of(t, &key, 1);
      if (place >= 0) return wrap_number(element_at(t, place), t.dtype());
    }
    if (is_index_array(t, key)) {
      const Tensor at = index_array(key);
      Tensor few = few_picked(t, at);
      return wrap_array(few.defined() ? std::move(few) : t.index({Index(at)}));
    }
    BasicIndex basic(t);
    if (!basic.read(key)) return nullptr;
    Tensor view = basic.view();
    note_view_of(o);
    if (!basic.reversed().empty() && view.numel() > 0)
      return wrap_reversed(std::move(view), basic.reversed());
    // A number is a copy: what is written to the array later does not change it.
    return view.dim() == 0 && is_all_numbers(key) ? wrap_result(view.clone())
                                                  : wrap_array(std::move(view));
  });
}

bool short_setitem(PyObject* o, PyObject* key, PyObject* value) {
  try {
    if (array_in(o)->is_number) return false;
    const Tensor& t = array_tensor(o);
    if (!t.defined()) return false;
    if (is_at_hand(t)) {
      const int64_t place = PyTuple_CheckExact(key)
                                ? place_of(t, &PyTuple_GET_ITEM(key, 0), PyTuple_GET_SIZE(key))
                                : place_of(t, &key, 1);
      if (place >= 0) {
        const std::optional<Scalar> v = value_for(t.dtype(), value);
        if (!v) return false;
        write_element(t, place, *v);
        return true;
      }
    }
    const std::optional<Scalar> number = value_for(t.dtype(), value);
    if (number && is_index_array(t, key)) {
      Tensor(t).index_put_({Index(index_array(key))}, *number);
      return true;
    }
    if (!number) {
      if (!is_readable_array(value) || only_value(value)) return false;
      const Tensor& v = array_tensor(value);
      if (v.dtype() != t.dtype() || v.device() != t.device()) return false;
    }
    BasicIndex basic(t);
    if (!basic.read(key) || !(basic.reversed().empty() || number)) return false;
    Tensor view = basic.view();
    if (number) {
      view.fill_(*number);
    } else {
      const Tensor& v = array_tensor(value);
      if (v.dim() > view.dim()) return false;
      const bool shared = v.storage() == view.storage();
      // a[i] += b writes the view back to where it is.
      if (shared && is_plain(v) && is_plain(view) && v.layout() == view.layout()) return true;
      view.copy_(shared ? v.clone() : v);
    }
    return true;
  } catch (...) {
    PyErr_Clear();
    return false;
  }
}

PyObject* array_getitem(PyObject* o, PyObject* key) {
  if (is_plain_array(o))
    if (PyObject* const r = short_getitem(o, key)) return r;
  return PyObject_CallFunctionObjArgs(slow_getitem, o, key, nullptr);
}
int array_setitem(PyObject* o, PyObject* key, PyObject* value) {
  if (!value) {
    PyErr_SetString(PyExc_ValueError, "cannot delete array elements");
    return -1;
  }
  if (is_plain_array(o) && short_setitem(o, key, value)) return 0;
  const Ref done(PyObject_CallFunctionObjArgs(slow_setitem, o, key, value, nullptr));
  return done ? 0 : -1;
}
Py_ssize_t array_length(PyObject* o) {
  return guarded(Py_ssize_t(-1), [&] {
    if (only_value(o) || array_tensor(o).dim() == 0) type_error("len() of unsized object");
    return Py_ssize_t(array_tensor(o).sizes()[0]);
  });
}
PyObject* array_item_at(PyObject* o, Py_ssize_t i) {
  const Ref index(PyLong_FromSsize_t(i));
  return index ? PyObject_GetItem(o, index.get()) : nullptr;
}
// The elements of a vector are numbers, and no views: each is read when it is its turn.
struct ElementIterator {
  PyObject_HEAD PyObject* array;
  int64_t place;
};
PyTypeObject* iterator_type;
PyObject* next_element(PyObject* o) {
  auto* const at = reinterpret_cast<ElementIterator*>(o);
  const Tensor& t = array_tensor(at->array);
  if (t.dim() != 1 || at->place >= t.sizes()[0]) return nullptr;
  return guarded(
      [&] { return wrap_number(element_at(t, at->place++ * t.strides()[0]), t.dtype()); });
}
void iterator_dealloc(PyObject* o) {
  PyTypeObject* const type = Py_TYPE(o);
  Py_XDECREF(reinterpret_cast<ElementIterator*>(o)->array);
  type->tp_free(o);
  Py_DECREF(type);
}
PyObject* elements_left(PyObject* o, PyObject*) {
  const auto* const at = reinterpret_cast<ElementIterator*>(o);
  return guarded([&] {
    // The array may have taken another shape since.
    const Tensor& t = array_tensor(at->array);
    return PyLong_FromLongLong(t.dim() == 1 ? std::max<int64_t>(0, t.sizes()[0] - at->place) : 0);
  });
}
PyMethodDef iterator_methods[] = {{"__length_hint__", elements_left, METH_NOARGS, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};
PyType_Slot iterator_slots[] = {SLOT(Py_tp_dealloc, iterator_dealloc),
                                SLOT(Py_tp_iter, PyObject_SelfIter),
                                SLOT(Py_tp_iternext, next_element),
                                SLOT(Py_tp_methods, iterator_methods),
                                {0, nullptr}};
PyType_Spec iterator_spec{"arete._C._ElementIterator", sizeof(ElementIterator), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, iterator_slots};
PyObject* array_iterate(PyObject* o) {
  if (is_plain_array(o) && !only_value(o)) {
    const Tensor& t = array_tensor(o);
    if (t.defined() && t.dim() == 1 && is_at_hand(t)) {
      PyObject* const at = iterator_type->tp_alloc(iterator_type, 0);
      if (at) reinterpret_cast<ElementIterator*>(at)->array = Py_NewRef(o);
      return at;
    }
  }
  return PyObject_CallFunctionObjArgs(slow_iterate, o, nullptr);
}

// ---- life and attributes

PyObject* array_new(PyTypeObject* type, PyObject*, PyObject*) {
  return guarded([&] { return new_array(type); });
}
void array_dealloc(PyObject* o) {
  PyTypeObject* const type = Py_TYPE(o);
  ArrayObject* const a = array_in(o);
  if (a->weak_references) PyObject_ClearWeakRefs(o);
  forget_base(o);
  Py_CLEAR(a->shown);
  a->tensor.~Tensor();
  type->tp_free(o);
  Py_DECREF(type);
}
// Numbers are found in sets and dicts as Python's are.
Py_hash_t array_hash(PyObject* o) {
  if (is_plain_array(o) && array_in(o)->is_number) {
    const Ref number(only_value(o) ? wrap(array_in(o)->value)
                                   : guarded([&] { return wrap(only_item(array_tensor(o))); }));
    return number ? PyObject_Hash(number.get()) : -1;
  }
  PyErr_Format(PyExc_TypeError, "unhashable type: '%s'", Py_TYPE(o)->tp_name);
  return -1;
}

PyObject* get_tensor(PyObject* o, void*) {
  return guarded([&]() -> PyObject* {
    ArrayObject* const a = array_in(o);
    if (!a->shown) {
      array_tensor(o);
      a->shown = checked(wrap(a->tensor));
      a->tensor = Tensor();
    }
    return Py_NewRef(a->shown);
  });
}
int set_tensor(PyObject* o, PyObject* value, void*) {
  return guarded(-1, [&] {
    if (!value || !is_tensor(value)) type_error("_tensor must be a Tensor");
    ArrayObject* const a = array_in(o);
    forget_base(o);
    Py_XSETREF(a->shown, Py_NewRef(value));
    a->tensor = Tensor();
    a->has_tensor = true;
    return 0;
  });
}
PyObject* get_array_dtype(PyObject* o, void*) {
  return guarded([&]() -> PyObject* {
    const DType t = only_value(o) ? array_in(o)->dtype : array_tensor(o).dtype();
    PyObject* const found = array_dtypes[int(t)];
    if (!found) type_error("arrays have no dtype %s", std::string(name_of(t)).c_str());
    return Py_NewRef(found);
  });
}
PyObject* get_array_shape(PyObject* o, void*) {
  return guarded([&]() -> PyObject* {
    if (only_value(o)) return PyTuple_New(0);
    const IntList sizes = array_tensor(o).sizes();
    Ref r(checked(PyTuple_New(Py_ssize_t(sizes.size()))));
    for (size_t d = 0; d < sizes.size(); ++d)
      PyTuple_SET_ITEM(r.get(), Py_ssize_t(d), checked(PyLong_FromLongLong(sizes[d])));
    return r.release();
  });
}
int set_array_shape(PyObject* o, PyObject* value, void*) {
  if (array_in(o)->is_number) {
    PyErr_SetString(PyExc_AttributeError, "the shape of a number is not writable");
    return -1;
  }
  const Ref done(PyObject_CallFunctionObjArgs(slow_set_shape, o, value ? value : Py_None, nullptr));
  return done ? 0 : -1;
}
#define ARRAY_GETTER(name, of_number, of_tensor)                         \
  PyObject* get_array_##name(PyObject* o, void*) {                       \
    return guarded([&]() -> PyObject* {                                  \
      if (only_value(o)) return PyLong_FromLongLong(int64_t(of_number)); \
      const Tensor& t = array_tensor(o);                                 \
      return PyLong_FromLongLong(int64_t(of_tensor));                    \
    });                                                                  \
  }
ARRAY_GETTER(ndim, 0, t.dim())
ARRAY_GETTER(size, 1, t.numel())
ARRAY_GETTER(itemsize, size_of(array_in(o)->dtype), t.element_size())
ARRAY_GETTER(nbytes, size_of(array_in(o)->dtype), t.nbytes())
#undef ARRAY_GETTER
PyObject* get_array_base(PyObject* o, void*) {
  return guarded([&]() -> PyObject* {
    if (only_value(o) || !array_tensor(o).defined() || !array_tensor(o).is_view()) Py_RETURN_NONE;
    const Tensor base(array_tensor(o).impl()->base);
    PyObject* const found = array_bases().find(base.impl());
    const bool is_it = found && array_tensor(found).impl() == base.impl();
    return is_it ? Py_NewRef(found) : wrap_array(base);
  });
}
PyObject* get_reversed_axes(PyObject* o, void*) {
  return guarded([&]() -> PyObject* {
    const Shape axes = reversed_axes(o);
    const Ref r(checked(PyTuple_New(Py_ssize_t(axes.size()))));
    for (size_t i = 0; i < axes.size(); ++i)
      PyTuple_SET_ITEM(r.get(), Py_ssize_t(i), checked(PyLong_FromLongLong(axes[i])));
    return Py_NewRef(r.get());
  });
}
int set_reversed_axes(PyObject* o, PyObject* value, void*) {
  return guarded(-1, [&] {
    Shape axes;
    if (!value || !to_ints(value, axes)) type_error("_reversed_axes must be a tuple of axes");
    uint32_t reversed = 0;
    for (const int64_t d : axes) {
      if (d < 0 || d >= 32) type_error("_reversed_axes must be a tuple of axes");
      reversed |= uint32_t(1) << d;
    }
    array_in(o)->reversed = reversed;
    return 0;
  });
}
PyObject* get_is_number(PyObject* o, void*) { return PyBool_FromLong(array_in(o)->is_number); }

PyGetSetDef array_getset[] = {
    {"_tensor", get_tensor, set_tensor, "The tensor that the array shows.", nullptr},
    {"dtype", get_array_dtype, nullptr, "The type of the elements.", nullptr},
    {"shape", get_array_shape, set_array_shape, "The sizes.", nullptr},
    {"ndim", get_array_ndim, nullptr, "The number of axes.", nullptr},
    {"size", get_array_size, nullptr, "The number of elements.", nullptr},
    {"itemsize", get_array_itemsize, nullptr, "Bytes of one element.", nullptr},
    {"nbytes", get_array_nbytes, nullptr, "Bytes of all elements.", nullptr},
    {"base", get_array_base, nullptr, "The array whose memory a view shows, else None.", nullptr},
    {"_reversed_axes", get_reversed_axes, set_reversed_axes, "Those in the opposite order.",
     nullptr},
    {"_is_number", get_is_number, nullptr, "Whether it is what NumPy has a scalar for.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef array_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ArrayObject, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

const PyType_Slot kArraySlots[] = {
    SLOT(Py_tp_new, array_new),
    SLOT(Py_tp_dealloc, array_dealloc),
    SLOT(Py_tp_hash, array_hash),
    SLOT(Py_tp_iter, array_iterate),
    SLOT(Py_tp_getset, array_getset),
    SLOT(Py_tp_members, array_members),
    SLOT(Py_mp_length, array_length),
    SLOT(Py_mp_subscript, array_getitem),
    SLOT(Py_mp_ass_subscript, array_setitem),
    SLOT(Py_sq_item, array_item_at),
    {Py_tp_doc, const_cast<char*>("What ndarray is in C++: its tensor or number, and short ways.")},
};

// ---- what arete.numpy sets up

PyObject* set_array_classes(PyObject*, PyObject* args) {
  PyObject *plain, *read_only, *reversed, *getitem, *setitem, *iterate, *shape;
  if (!PyArg_ParseTuple(args, "O!O!O!OOOO", &PyType_Type, &plain, &PyType_Type, &read_only,
                        &PyType_Type, &reversed, &getitem, &setitem, &iterate, &shape))
    return nullptr;
  reversed_array_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(reversed));
  array_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(plain));
  read_only_array_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(read_only));
  // A class of Python's takes care of what it adds, and ndarray adds nothing.
  for (PyTypeObject* type : {array_type, reversed_array_type})
    if (type->tp_basicsize == base_type->tp_basicsize) type->tp_dealloc = array_dealloc;
  slow_getitem = Py_NewRef(getitem);
  slow_setitem = Py_NewRef(setitem);
  slow_iterate = Py_NewRef(iterate);
  slow_set_shape = Py_NewRef(shape);
  Py_RETURN_NONE;
}
PyObject* set_array_dtypes(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *objects, *common, *names;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyDict_Type, &objects, &PyDict_Type, &common,
                          &PyDict_Type, &names))
      return nullptr;
    for (auto& row : common_dtypes) row.fill(-1);
    PyObject *key, *value;
    DType a, b, both;
    for (Py_ssize_t at = 0; PyDict_Next(objects, &at, &key, &value);)
      if (to_dtype(key, a)) array_dtypes[int(a)] = Py_NewRef(value);
    for (Py_ssize_t at = 0; PyDict_Next(common, &at, &key, &value);)
      if (to_dtype(PyTuple_GET_ITEM(key, 0), a) && to_dtype(PyTuple_GET_ITEM(key, 1), b) &&
          to_dtype(value, both))
        common_dtypes[size_t(a)][size_t(b)] = int8_t(both);
    dtype_names = Py_NewRef(names);
    for (Py_ssize_t at = 0; PyDict_Next(names, &at, &key, &value);)
      for (int t = 0; t < kNumDTypes; ++t)
        if (array_dtypes[t] == value) named_dtypes().emplace(key, DType(t));
    Py_RETURN_NONE;
  });
}
PyObject* set_array_device(PyObject*, PyObject* device) {
  return guarded([&]() -> PyObject* {
    if (!to_device(device, array_device)) type_error("a device is wanted");
    Py_RETURN_NONE;
  });
}
PyObject* array_of(PyObject*, PyObject* t) {
  return guarded([&]() -> PyObject* {
    if (!is_tensor(t)) type_error("a tensor is wanted, not %s", Py_TYPE(t)->tp_name);
    Ref o(new_array(array_type));
    array_in(o.get())->shown = Py_NewRef(t);
    return o.release();
  });
}
PyObject* number_of(PyObject*, PyObject* t) {
  return guarded([&]() -> PyObject* {
    if (!is_tensor(t)) type_error("a tensor is wanted, not %s", Py_TYPE(t)->tp_name);
    return wrap_result(tensor_of(t));
  });
}
// None where the long way is to be taken.
PyObject* number_from(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *value, *dtype;
    DType t;
    if (!PyArg_ParseTuple(args, "OO", &value, &dtype) || !to_dtype(dtype, t)) return nullptr;
    const std::optional<Scalar> v =
        array_device.is_cpu() ? value_for(t, value) : std::optional<Scalar>();
    if (!v || is_reduced_float(t)) Py_RETURN_NONE;
    if (t == kFloat32) return wrap_number(Scalar(double(float(v->to_double()))), t);
    if (t == kFloat64) return wrap_number(Scalar(v->to_double()), t);
    if (!is_integer(t)) Py_RETURN_NONE;
    return wrap_number(*v, t);
  });
}
PyObject* note_view(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    if (is_plain_array(o)) note_view_of(o);
    Py_RETURN_NONE;
  });
}
PyMethodDef array_setup[] = {{"_set_array_classes", set_array_classes, METH_VARARGS, nullptr},
                             {"_set_array_dtypes", set_array_dtypes, METH_VARARGS, nullptr},
                             {"_set_array_device", set_array_device, METH_O, nullptr},
                             {"_number_from", number_from, METH_VARARGS,
                              "One of Python's numbers as one of a dtype, or None."},
                             {"_note_view", note_view, METH_O, nullptr},
                             {"_array_of", array_of, METH_O, "The array of a tensor."},
                             {"_result_of", number_of, METH_O,
                              "The same for what NumPy has a number for where it has no axes."},
                             {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyObject* wrap_view_of(PyObject* o, Layout&& layout) {
  static const ops::OpRecord& strided = record_of("as_strided");
  note_view_of(o);
  return wrap_array(ops::make_one_view(array_tensor(o), std::move(layout), strided));
}

const Tensor& array_tensor(PyObject* o) {
  ArrayObject* const a = array_in(o);
  if (a->shown) return tensor_of(a->shown);
  if (!a->has_tensor) {
    a->tensor = full({}, a->value, TensorOptions(a->dtype, Device()));
    a->has_tensor = true;
  }
  return a->tensor;
}

Tensor tensor_to_read(PyObject* o) {
  if (is_readable_array(o)) return array_tensor(o);
  if (!array_type || Py_TYPE(o) != reversed_array_type) return {};
  return array_tensor(o).flip(reversed_axes(o));
}

void note_view_of(PyObject* o) {
  const Tensor& t = array_tensor(o);
  if (array_in(o)->viewed || !t.defined() || t.is_view()) return;
  array_in(o)->viewed = t.impl();
  array_bases().insert(t.impl(), o);
}

PyObject* wrap_array(Tensor t) {
  PyObject* const o = new_array(array_type);
  array_in(o)->tensor = std::move(t);
  return o;
}
PyObject* wrap_number(Scalar value, DType dtype) {
  PyObject* const o = new_array(array_type);
  ArrayObject* const a = array_in(o);
  a->value = value;
  a->dtype = dtype;
  a->is_number = true;
  a->has_tensor = false;
  return o;
}
PyObject* wrap_result(Tensor t) {
  if (t.dim() != 0 || !t.device().is_cpu()) return wrap_array(std::move(t));
  if (is_at_hand(t)) return wrap_number(element_at(t, 0), t.dtype());
  PyObject* const o = wrap_array(std::move(t));
  array_in(o)->is_number = true;
  return o;
}

std::optional<DType> common_dtype(DType a, DType b) {
  const int8_t found = common_dtypes[size_t(a)][size_t(b)];
  if (found < 0 || !dtype_names) return {};
  return DType(found);
}
std::optional<DType> known_dtype(PyObject* o) {
  if (!dtype_names) return {};
  if (const auto at = named_dtypes().find(o); at != named_dtypes().end()) return at->second;
  PyObject* const found = PyDict_GetItemWithError(dtype_names, o);
  PyErr_Clear();
  for (int t = 0; found && t < kNumDTypes; ++t)
    if (array_dtypes[t] == found) return DType(t);
  return {};
}

bool init_array_type(PyObject* module) {
  std::vector<PyType_Slot> slots(std::begin(kArraySlots), std::end(kArraySlots));
  const std::span<const PyType_Slot> numbers = array_number_slots();
  slots.insert(slots.end(), numbers.begin(), numbers.end());
  slots.push_back({0, nullptr});
  PyType_Spec spec{"arete._C._ArrayBase", sizeof(ArrayObject), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots.data()};
  base_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  iterator_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&iterator_spec));
  return base_type && iterator_type && PyModule_AddFunctions(module, array_setup) == 0 &&
         PyModule_AddObjectRef(module, "_ArrayBase", reinterpret_cast<PyObject*>(base_type)) == 0 &&
         init_array_functions(module);
}

}  // namespace arete::python
