// Functions of arete.numpy by short ways: Note [Arrays and their short ways] in array_object.cpp.
#include <structmember.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/linalg.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/sort.h"
#include "array_object.h"
#include "convert.h"
#include "operator_object.h"
#include "tensor_internal.h"

namespace arete::python {

namespace {

/// A plain array of elements in its argument's place; undefined for others, and for empty ones.
Tensor elements_in(PyObject* o) {
  const Tensor t = tensor_to_read(o);
  return t.defined() && t.dim() > 0 && t.numel() > 0 ? t : Tensor();
}
bool sizes_in(PyObject* o, Shape& sizes) {
  const auto one = [&](PyObject* p) {
    const Py_ssize_t v = PyLong_CheckExact(p) ? PyLong_AsSsize_t(p) : -1;
    if (v >= 0) sizes.push_back(v);
    return v >= 0;
  };
  if (!PyTuple_CheckExact(o)) return one(o);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
    if (!one(PyTuple_GET_ITEM(o, i))) return false;
  return true;
}

using ShortWay = PyObject* (*)(PyObject* const* args, Py_ssize_t n);

/// Of all elements, or along one axis: f(a), f(a, axis).
template <class Reduce>
PyObject* reduced(PyObject* const* args, Py_ssize_t n, Reduce reduce) {
  const Tensor t = n <= 2 ? elements_in(args[0]) : Tensor();
  if (!t.defined()) return nullptr;
  Shape dims;
  if (n == 2 && args[1] != Py_None) {
    if (!PyLong_CheckExact(args[1])) return nullptr;
    int64_t axis = PyLong_AsLongLong(args[1]);
    if (axis < 0) axis += t.dim();
    if (axis < 0 || axis >= t.dim()) return nullptr;
    dims.push_back(axis);
  } else {
    for (int64_t d = 0; d < t.dim(); ++d) dims.push_back(d);
  }
  Tensor r = run_freely(t.numel(), [&] { return reduce(t, dims); });
  return r.defined() ? wrap_result(std::move(r)) : nullptr;
}
PyObject* short_sum(PyObject* const* args, Py_ssize_t n) {
  return reduced(args, n, [](const Tensor& t, const Shape& dims) {
    const DType d = t.dtype();
    return sum(t, dims, false, is_unsigned(d) ? kUInt64 : is_integral_or_bool(d) ? kInt64 : d);
  });
}
PyObject* short_mean(PyObject* const* args, Py_ssize_t n) {
  return reduced(args, n, [](const Tensor& t, const Shape& dims) {
    return is_integral_or_bool(t.dtype()) ? Tensor() : mean(t, dims);
  });
}
PyObject* short_max(PyObject* const* args, Py_ssize_t n) {
  return reduced(args, n, [](const Tensor& t, const Shape& dims) {
    return is_complex(t.dtype()) ? Tensor() : amax(t, dims);
  });
}
PyObject* short_min(PyObject* const* args, Py_ssize_t n) {
  return reduced(args, n, [](const Tensor& t, const Shape& dims) {
    return is_complex(t.dtype()) ? Tensor() : amin(t, dims);
  });
}
PyObject* short_any(PyObject* const* args, Py_ssize_t n) {
  return reduced(args, n,
                 [](const Tensor& t, const Shape& dims) { return any(t, dims).to(kBool); });
}
PyObject* short_all(PyObject* const* args, Py_ssize_t n) {
  return reduced(args, n,
                 [](const Tensor& t, const Shape& dims) { return all(t, dims).to(kBool); });
}
PyObject* short_norm(PyObject* const* args, Py_ssize_t n) {
  const Tensor t = n == 1 ? elements_in(args[0]) : Tensor();
  if (!t.defined() || is_integral_or_bool(t.dtype())) return nullptr;
  return wrap_result(run_freely(t.numel(), [&] { return linalg::vector_norm(t); }));
}
template <class Find>
PyObject* found(PyObject* const* args, Py_ssize_t n, bool is_largest, Find find) {
  const Tensor t = n == 1 ? elements_in(args[0]) : Tensor();
  if (!t.defined() || t.dtype() == kBool || is_complex(t.dtype())) return nullptr;
  if (const int64_t at = few_position(t, is_largest); at >= 0)
    return wrap_number(Scalar(at), kInt64);
  return wrap_result(run_freely(t.numel(), [&] { return find(t); }));
}
PyObject* short_argmax(PyObject* const* args, Py_ssize_t n) {
  return found(args, n, true, [](const Tensor& t) { return argmax(t); });
}
PyObject* short_argmin(PyObject* const* args, Py_ssize_t n) {
  return found(args, n, false, [](const Tensor& t) { return argmin(t); });
}
template <class Make>
PyObject* made(PyObject* const* args, Py_ssize_t n, Make make) {
  Shape sizes;
  if (n != 1 || !sizes_in(args[0], sizes)) return nullptr;
  return wrap_array(make(sizes, TensorOptions(kFloat64, array_device)));
}
PyObject* short_empty(PyObject* const* args, Py_ssize_t n) {
  return made(args, n, [](const Shape& s, const TensorOptions& o) { return empty(s, o); });
}
PyObject* short_zeros(PyObject* const* args, Py_ssize_t n) {
  return made(args, n, [](const Shape& s, const TensorOptions& o) {
    Tensor few = few_equal(s, 0);
    return few.defined() ? few : zeros(s, o);
  });
}
PyObject* short_ones(PyObject* const* args, Py_ssize_t n) {
  return made(args, n, [](const Shape& s, const TensorOptions& o) {
    Tensor few = few_equal(s, 1);
    return few.defined() ? few : ones(s, o);
  });
}

/// Nested lists of Python's numbers, all as long as their neighbours.
class NumbersInLists {
 public:
  bool read(PyObject* o) {
    if (!shape_of(o)) return false;
    doubles_.reserve(size_t(std::max<int64_t>(numel_of(sizes_), 0)));
    return fill(o, 0) && !doubles_.empty();
  }
  Tensor tensor() const {
    const DType t = all_bool_ ? kBool : all_whole_ ? kInt64 : kFloat64;
    Tensor r = ops::empty_tensor(sizes_, t, Device());
    void* const to = r.data_ptr();
    if (t == kFloat64)
      std::memcpy(to, doubles_.data(), doubles_.size() * sizeof(double));
    else if (t == kInt64)
      std::memcpy(to, whole_.data(), whole_.size() * sizeof(int64_t));
    else
      std::ranges::transform(whole_, static_cast<bool*>(to), [](int64_t v) { return v != 0; });
    return r;
  }

 private:
  bool shape_of(PyObject* o) {
    while (PyList_CheckExact(o) || PyTuple_CheckExact(o)) {
      const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
      sizes_.push_back(n);
      if (n == 0 || sizes_.size() > 8) return false;
      o = PySequence_Fast_GET_ITEM(o, 0);
    }
    return !sizes_.empty();
  }
  bool fill(PyObject* o, size_t depth) {
    if (depth == sizes_.size()) return number(o);
    if ((!PyList_CheckExact(o) && !PyTuple_CheckExact(o)) ||
        PySequence_Fast_GET_SIZE(o) != sizes_[depth])
      return false;
    for (Py_ssize_t i = 0; i < sizes_[depth]; ++i)
      if (!fill(PySequence_Fast_GET_ITEM(o, i), depth + 1)) return false;
    return true;
  }
  bool number(PyObject* o) {
    if (PyFloat_CheckExact(o)) {
      all_whole_ = all_bool_ = false;
      doubles_.push_back(PyFloat_AS_DOUBLE(o));
    } else if (PyBool_Check(o)) {
      whole_.push_back(o == Py_True);
      doubles_.push_back(o == Py_True);
    } else if (PyLong_CheckExact(o)) {
      int overflow = 0;
      const long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
      if (overflow) return false;
      all_bool_ = false;
      whole_.push_back(v);
      doubles_.push_back(double(v));
    } else if (is_plain_array(o) && !array_in(o)->has_tensor) {
      const Scalar& v = array_in(o)->value;
      const DType t = array_in(o)->dtype;
      if (t != kFloat64 && t != kInt64 && t != kBool) return false;
      all_bool_ &= t == kBool;
      all_whole_ &= t != kFloat64;
      whole_.push_back(v.to_int64());
      doubles_.push_back(v.to_double());
    } else {
      return false;
    }
    return true;
  }
  Shape sizes_;
  std::vector<double> doubles_;
  std::vector<int64_t> whole_;
  bool all_whole_ = true, all_bool_ = true;
};

Tensor copied(const Tensor& t) {
  Tensor few = few_copied(t);
  return few.defined() ? few : run_freely(t.numel(), [&] { return t.clone(); });
}
PyObject* short_array(PyObject* const* args, Py_ssize_t n) {
  if (n != 1) return nullptr;
  if (is_plain_array(args[0])) {
    const Tensor& t = array_tensor(args[0]);
    return t.defined() ? wrap_array(copied(t)) : nullptr;
  }
  NumbersInLists numbers;
  if (!array_device.is_cpu() || !numbers.read(args[0])) return nullptr;
  return wrap_array(numbers.tensor());
}
PyObject* short_asarray(PyObject* const* args, Py_ssize_t n) {
  if (n == 1 && is_plain_array(args[0])) return Py_NewRef(args[0]);
  return short_array(args, n);
}
PyObject* short_copy(PyObject* const* args, Py_ssize_t n) {
  const Tensor t = n == 1 ? tensor_to_read(args[0]) : Tensor();
  if (!t.defined()) return nullptr;
  if (!is_readable_array(args[0])) return wrap_array(t);  // it was copied to be read
  return wrap_array(t.is_contiguous() ? copied(t) : run_freely(t.numel(), [&] {
    return t.clone().contiguous();
  }));
}
PyObject* short_astype(PyObject* const* args, Py_ssize_t n) {
  if (n != 2 || !is_readable_array(args[0])) return nullptr;
  const Tensor t = array_tensor(args[0]);
  const std::optional<DType> d = known_dtype(args[1]);
  if (!t.defined() || !d || (is_complex(t.dtype()) && !is_complex(*d))) return nullptr;
  Tensor few = few_converted(t, *d);
  return wrap_array(few.defined() ? std::move(few)
                                  : run_freely(t.numel(), [&] { return t.to(*d, /*copy=*/true); }));
}
PyObject* short_reshape(PyObject* const* args, Py_ssize_t n) {
  if (n < 2 || !is_plain_array(args[0])) return nullptr;
  Shape sizes;
  const bool is_tuple = n == 2 && PyTuple_CheckExact(args[1]);
  PyObject* const* const given = is_tuple ? &PyTuple_GET_ITEM(args[1], 0) : args + 1;
  for (Py_ssize_t i = 0; i < (is_tuple ? PyTuple_GET_SIZE(args[1]) : n - 1); ++i) {
    if (!PyLong_CheckExact(given[i])) return nullptr;
    sizes.push_back(PyLong_AsLongLong(given[i]));
    if (sizes.back() == -1 && PyErr_Occurred()) {
      PyErr_Clear();
      return nullptr;  // the long way says so
    }
  }
  const Tensor& t = array_tensor(args[0]);
  if (!t.defined()) return nullptr;
  if (is_plain(t) && t.is_contiguous() &&
      std::ranges::none_of(sizes, [](int64_t s) { return s < 0; })) {
    Layout layout(sizes);
    layout.offset = t.layout().offset;
    return layout.numel() == t.numel() ? wrap_view_of(args[0], std::move(layout)) : nullptr;
  }
  note_view_of(args[0]);
  return wrap_array(t.reshape(sizes));
}
PyObject* short_transposed(PyObject* const* args, Py_ssize_t n) {
  if (n != 1 || !is_plain_array(args[0])) return nullptr;
  const Tensor& t = array_tensor(args[0]);
  if (!t.defined()) return nullptr;
  if (is_plain(t)) {
    Layout layout = t.layout();
    std::ranges::reverse(layout.sizes);
    std::ranges::reverse(layout.strides);
    return wrap_view_of(args[0], std::move(layout));
  }
  note_view_of(args[0]);
  Shape dims;
  for (int64_t d = t.dim(); d-- > 0;) dims.push_back(d);
  return wrap_array(t.permute(dims));
}
PyObject* short_ravel(PyObject* const* args, Py_ssize_t n) {
  if (n != 1 || !is_plain_array(args[0])) return nullptr;
  note_view_of(args[0]);
  const Tensor& t = array_tensor(args[0]);
  return t.defined() && t.is_contiguous() ? wrap_array(t.reshape({-1})) : nullptr;
}
PyObject* short_flatten(PyObject* const* args, Py_ssize_t n) {
  if (n != 1 || !is_plain_array(args[0])) return nullptr;
  const Tensor& t = array_tensor(args[0]);
  return t.defined() && t.is_contiguous() ? wrap_array(t.reshape({-1}).clone()) : nullptr;
}
PyObject* short_item(PyObject* const* args, Py_ssize_t n) {
  if (n == 2 && PyLong_CheckExact(args[1])) {
    const Ref one(PyObject_GetItem(args[0], args[1]));
    if (!one) PyErr_Clear();
    return one && value_in(one.get()) ? wrap(*value_in(one.get())) : nullptr;
  }
  return n == 1 && value_in(args[0]) ? wrap(*value_in(args[0])) : nullptr;
}
PyObject* short_concatenate(PyObject* const* args, Py_ssize_t n) {
  if (n != 1 || (!PyList_CheckExact(args[0]) && !PyTuple_CheckExact(args[0]))) return nullptr;
  std::vector<Tensor> all;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(args[0]); ++i) {
    Tensor t = elements_in(PySequence_Fast_GET_ITEM(args[0], i));
    if (!t.defined() || (!all.empty() && (t.dtype() != all[0].dtype() || t.dim() != all[0].dim() ||
                                          t.device() != all[0].device())))
      return nullptr;
    all.push_back(std::move(t));
  }
  if (all.empty()) return nullptr;
  if (Tensor few = few_joined(all); few.defined()) return wrap_array(std::move(few));
  return wrap_array(run_freely(int64_t(1) << 20, [&] { return cat(all); }));
}
PyObject* short_where(PyObject* const* args, Py_ssize_t n) {
  if (n != 3) return nullptr;
  const Tensor c = elements_in(args[0]), a = elements_in(args[1]), b = elements_in(args[2]);
  if (!c.defined() || !a.defined() || !b.defined() || c.dtype() != kBool ||
      a.dtype() != b.dtype() || a.device() != b.device() || a.device() != c.device())
    return nullptr;
  return wrap_array(run_freely(c.numel(), [&] { return where(c, a, b); }));
}
PyObject* short_dot(PyObject* const* args, Py_ssize_t n) {
  if (n != 2) return nullptr;
  const Tensor a = elements_in(args[0]), b = elements_in(args[1]);
  if (!a.defined() || !b.defined() || a.dtype() != b.dtype() || !is_floating(a.dtype()) ||
      a.dim() > 2 || b.dim() > 2 || a.device() != b.device())
    return nullptr;
  static const ops::OpRecord& record = record_of("matmul");
  return wrap_result(call_two_operands(record, ops::Arg(a), ops::Arg(b)));
}

PyObject* short_sort(PyObject* const* args, Py_ssize_t n) {
  const Tensor t = n == 1 ? elements_in(args[0]) : Tensor();
  if (!t.defined() || is_complex(t.dtype())) return nullptr;
  return wrap_array(
      run_freely(t.numel(), [&] { return t.dim() == 1 ? msort(t) : std::get<0>(t.sort(-1)); }));
}
PyObject* short_argsort(PyObject* const* args, Py_ssize_t n) {
  const Tensor t = n == 1 ? elements_in(args[0]) : Tensor();
  if (!t.defined() || is_complex(t.dtype())) return nullptr;
  return wrap_array(run_freely(t.numel(), [&] { return argsort(t); }));
}
PyObject* short_count_nonzero(PyObject* const* args, Py_ssize_t n) {
  const Tensor t = n == 1 ? elements_in(args[0]) : Tensor();
  if (!t.defined()) return nullptr;
  if (const Tensor few = few_true(t); few.defined())
    return wrap_number(Scalar(few.numel()), kInt64);
  return wrap_result(run_freely(t.numel(), [&] { return count_nonzero(t); }));
}
PyObject* short_nonzero(PyObject* const* args, Py_ssize_t n) {
  const Tensor t = n == 1 ? elements_in(args[0]) : Tensor();
  if (!t.defined() || t.dim() != 1) return nullptr;
  Tensor places = few_true(t);
  if (!places.defined()) places = run_freely(t.numel(), [&] { return nonzero(t).reshape({-1}); });
  const Ref r(checked(PyTuple_New(1)));
  PyTuple_SET_ITEM(r.get(), 0, wrap_array(std::move(places)));
  return Py_NewRef(r.get());
}
PyObject* short_unique(PyObject* const* args, Py_ssize_t n) {
  const Tensor t = n == 1 ? elements_in(args[0]) : Tensor();
  Tensor few = t.defined() ? few_different(t) : Tensor();
  return few.defined() ? wrap_array(std::move(few)) : nullptr;
}
PyObject* short_take(PyObject* const* args, Py_ssize_t n) {
  const Tensor t = n == 2 ? elements_in(args[0]) : Tensor();
  const Tensor at = t.defined() ? elements_in(args[1]) : Tensor();
  if (!at.defined() || at.dtype() != kInt64 || at.device() != t.device()) return nullptr;
  return wrap_array(run_freely(at.numel(), [&] {
    return index_select(t.reshape({-1}), 0, at.reshape({-1})).reshape(at.sizes());
  }));
}
PyObject* short_arange(PyObject* const* args, Py_ssize_t n) {
  bool whole = true;
  for (Py_ssize_t i = 0; i < n; ++i) {
    if (!PyLong_CheckExact(args[i]) && !PyFloat_CheckExact(args[i])) return nullptr;
    whole &= PyLong_CheckExact(args[i]);
  }
  if (n > 3) return nullptr;
  const auto given = [&](Py_ssize_t i) { return PyFloat_AsDouble(args[i]); };
  const double start = n == 1 ? 0 : given(0), stop = given(n == 1 ? 0 : 1),
               step = n == 3 ? given(2) : 1;
  if (PyErr_Occurred()) throw PythonError{};  // too large
  const double count = std::max(0.0, std::ceil((stop - start) / step));
  // Whole numbers are counted exactly as doubles that far.
  if (step == 0 || !(count < 0x1p40) ||
      std::max({std::abs(start), std::abs(stop), whole ? std::abs(step) : 0.0}) > 0x1p52)
    return nullptr;
  const TensorOptions options(whole ? kInt64 : kFloat64, array_device);
  if (whole) {
    if (array_device.is_cpu())
      if (Tensor few = few_counted(int64_t(start), int64_t(step), int64_t(count)); few.defined())
        return wrap_array(std::move(few));
    if (count == 0) return wrap_array(empty({0}, options));
    return wrap_array(arange(Scalar(int64_t(start)), Scalar(int64_t(start + count * step)),
                             Scalar(int64_t(step)), options));
  }
  Tensor t = arange(Scalar(0), Scalar(int64_t(count)), Scalar(1), options);
  if (step != 1) t.mul_(Scalar(step));
  if (step != 1 || start != 0) t.add_(Scalar(start));  // which makes no first element of -0
  return wrap_array(std::move(t));
}

const std::pair<const char*, ShortWay> kShortWays[] = {
    {"sum", short_sum},         {"mean", short_mean},       {"max", short_max},
    {"min", short_min},         {"any", short_any},         {"all", short_all},
    {"argmax", short_argmax},   {"argmin", short_argmin},   {"empty", short_empty},
    {"zeros", short_zeros},     {"ones", short_ones},       {"array", short_array},
    {"asarray", short_asarray}, {"copy", short_copy},       {"astype", short_astype},
    {"reshape", short_reshape}, {"ravel", short_ravel},     {"transpose", short_transposed},
    {"flatten", short_flatten}, {"item", short_item},       {"concatenate", short_concatenate},
    {"where", short_where},     {"dot", short_dot},         {"sort", short_sort},
    {"argsort", short_argsort}, {"nonzero", short_nonzero}, {"count_nonzero", short_count_nonzero},
    {"take", short_take},       {"arange", short_arange},   {"unique", short_unique},
    {"norm", short_norm},
};

/// A Python function, with a short way for the calls that most programs make. Its first two
/// arguments may be (array, axis), the second by its name.
struct ShortFunction {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;
  ShortWay way;
  bool takes_axis;
};
ShortFunction* short_function(PyObject* o) { return reinterpret_cast<ShortFunction*>(o); }

PyObject* short_function_call(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* names) {
  ShortFunction* const f = short_function(o);
  const Py_ssize_t n = PyVectorcall_NARGS(nargsf), named = names ? PyTuple_GET_SIZE(names) : 0;
  const bool by_axis = named == 1 && n == 1 && f->takes_axis &&
                       PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "axis") == 0;
  if (n > 0 && (named == 0 || by_axis))
    if (PyObject* const r = try_short([&] { return f->way(args, n + named); })) return r;
  return PyObject_Vectorcall(f->function, args, nargsf, names);
}
PyObject* short_function_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* function;
  const char* name;
  if (!PyArg_ParseTuple(args, "Os", &function, &name)) return nullptr;
  const auto* const way = std::ranges::find_if(
      kShortWays, [&](const auto& w) { return std::strcmp(w.first, name) == 0; });
  if (way == std::end(kShortWays))
    return PyErr_Format(PyExc_KeyError, "there is no short way of '%s'", name);
  PyObject* const o = type->tp_alloc(type, 0);
  if (!o) return nullptr;
  short_function(o)->vectorcall = short_function_call;
  short_function(o)->function = Py_NewRef(function);
  short_function(o)->way = way->second;
  short_function(o)->takes_axis = way - std::begin(kShortWays) < 6;  // the reductions
  return o;
}
void short_function_dealloc(PyObject* o) {
  PyTypeObject* const type = Py_TYPE(o);
  Py_XDECREF(short_function(o)->function);
  type->tp_free(o);
  Py_DECREF(type);
}
PyObject* short_function_get(PyObject* o, PyObject* instance, PyObject*) {
  return !instance || instance == Py_None ? Py_NewRef(o) : PyMethod_New(o, instance);
}
PyObject* short_function_attribute(PyObject* o, PyObject* name) {
  PyObject* const own = PyObject_GenericGetAttr(o, name);
  if (own || !PyErr_ExceptionMatches(PyExc_AttributeError)) return own;
  PyErr_Clear();
  return PyObject_GetAttr(short_function(o)->function, name);
}
PyObject* short_function_repr(PyObject* o) { return PyObject_Repr(short_function(o)->function); }
PyObject* short_function_reduce(PyObject* o, PyObject*) {
  return PyObject_GetAttrString(short_function(o)->function, "__qualname__");
}
PyObject* short_function_doc(PyObject* o, void*) {
  return PyObject_GetAttrString(short_function(o)->function, "__doc__");
}
PyObject* short_function_module(PyObject* o, void*) {
  return PyObject_GetAttrString(short_function(o)->function, "__module__");
}
PyMethodDef short_function_methods[] = {{"__reduce__", short_function_reduce, METH_NOARGS, nullptr},
                                        {nullptr, nullptr, 0, nullptr}};
PyGetSetDef short_function_getset[] = {
    {"__doc__", short_function_doc, nullptr, nullptr, nullptr},
    {"__module__", short_function_module, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef short_function_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ShortFunction, vectorcall), READONLY, nullptr},
    {"__wrapped__", T_OBJECT, offsetof(ShortFunction, function), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyType_Slot short_function_slots[] = {SLOT(Py_tp_new, short_function_new),
                                      SLOT(Py_tp_dealloc, short_function_dealloc),
                                      SLOT(Py_tp_call, PyVectorcall_Call),
                                      SLOT(Py_tp_descr_get, short_function_get),
                                      SLOT(Py_tp_getattro, short_function_attribute),
                                      SLOT(Py_tp_repr, short_function_repr),
                                      SLOT(Py_tp_methods, short_function_methods),
                                      SLOT(Py_tp_getset, short_function_getset),
                                      SLOT(Py_tp_members, short_function_members),
                                      {0, nullptr}};
PyType_Spec short_function_spec{
    "arete._C._ShortFunction", sizeof(ShortFunction), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    short_function_slots};

}  // namespace

bool init_short_functions(PyObject* module) {
  PyObject* const type = PyType_FromSpec(&short_function_spec);
  return type && PyModule_AddObjectRef(module, "_ShortFunction", type) == 0;
}

}  // namespace arete::python
