// Operators and ufuncs of arrays by short ways: Note [Arrays and their short ways].
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "arete/core/complex.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "array_object.h"
#include "convert.h"
#include "operator_object.h"
#include "tensor_internal.h"

namespace arete::python {

namespace {

// ---- functions of elements

/// What the ufunc is for dtypes that need no more than a promotion.
struct ElementFunction {
  const ops::OpRecord* record = nullptr;  // null: there is no short way
  uint32_t direct = 0;                    // bits of dtypes that it computes in as they come
  bool wide = false;                      // whole numbers become float64
  bool is_power = false;                  // whole numbers take no negative powers
  bool is_remainder = false;              // a floating zero has the divisor's sign
  bool gives_bool = false;
  int arithmetic = -1;  // of two numbers, see compute()
};

struct UfuncObject {
  PyObject_HEAD ElementFunction* short_way;
};
ElementFunction& short_way_of(PyObject* ufunc) {
  return *reinterpret_cast<UfuncObject*>(ufunc)->short_way;
}

bool takes(const ElementFunction& f, DType t) { return f.record && (f.direct >> int(t) & 1); }

/// One side of an operator.
struct Operand {
  enum class Kind { other, tensor, number, python_int, python_float } kind = Kind::other;
  Tensor tensor{};
  Scalar value{};
  DType dtype = kFloat64;

  explicit Operand(PyObject* o) {
    if (is_readable_array(o) && !array_in(o)->has_tensor) {
      kind = Kind::number;
      value = array_in(o)->value;
      dtype = array_in(o)->dtype;
    } else if (Tensor t = tensor_to_read(o); t.defined()) {
      kind = Kind::tensor;
      dtype = t.dtype();
      tensor = std::move(t);
    } else if (PyFloat_CheckExact(o)) {
      kind = Kind::python_float;
      value = Scalar(PyFloat_AS_DOUBLE(o));
    } else if (PyLong_CheckExact(o)) {
      int overflow = 0;
      const long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
      if (overflow) return;
      kind = Kind::python_int;
      value = Scalar(int64_t(v));
      dtype = kInt64;
    }
  }
  bool is_tensor() const { return kind == Kind::tensor; }
  bool has_dtype() const { return kind == Kind::tensor || kind == Kind::number; }
};

/// The dtype in which two operands meet; none: the long way says.
std::optional<DType> dtype_of_both(const Operand& a, const Operand& b) {
  if (a.has_dtype() && b.has_dtype())
    return a.dtype == b.dtype ? a.dtype : common_dtype(a.dtype, b.dtype);
  if (!a.has_dtype() && !b.has_dtype()) return {};
  const Operand &strong = a.has_dtype() ? a : b, &weak = a.has_dtype() ? b : a;
  if (weak.kind == Operand::Kind::python_float)
    return is_integral_or_bool(strong.dtype) ? kFloat64 : strong.dtype;
  if (strong.dtype == kBool) return kInt64;
  if (is_integer(strong.dtype) && strong.dtype != kInt64) {
    const double v = weak.value.to_double();
    if (v < lowest_of(strong.dtype) || v > max_of(strong.dtype)) return {};
  }
  return strong.dtype;
}

/// Numbers of Python's become float16 before they meet such elements, which are computed with as
/// float32. Rounded once: to an odd float first, from which the next step cannot err.
void round_weak(Operand& o, DType meets) {
  if (meets != kFloat16 ||
      (o.kind != Operand::Kind::python_int && o.kind != Operand::Kind::python_float))
    return;
  const double v = o.value.to_double();
  float f = float(v);
  if (double(f) != v && !(std::bit_cast<uint32_t>(f) & 1))
    f = std::nextafter(f, v > double(f) ? HUGE_VALF : -HUGE_VALF);
  o.value = Scalar(double(float(Half(f))));
}

/// What arithmetic modulo 2^64 leaves in a dtype of whole numbers.
Scalar wrapped_around(uint64_t bits, DType dtype) {
  return visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>)
      return Scalar(T(bits));
    else
      return Scalar(int64_t(bits));
  });
}

template <class T>
PyObject* compared(int op, T x, T y) {
  using A = Arithmetic;
  const bool r = op == A::less         ? x < y
                 : op == A::less_equal ? x <= y
                 : op == A::equal      ? x == y
                 : op == A::not_equal  ? x != y
                 : op == A::greater    ? x > y
                                       : x >= y;
  return wrap_number(Scalar(r), kBool);
}

PyObject* compute_floating(int op, double x, double y, DType dtype) {
  using A = Arithmetic;
  if (dtype == kFloat32) x = float(x), y = float(y);
  if (op >= A::less) return compared(op, x, y);
  if (op > (dtype == kFloat64 ? A::power : A::divide)) return nullptr;
  const double r = op == A::add        ? x + y
                   : op == A::subtract ? x - y
                   : op == A::multiply ? x * y
                   : op == A::divide   ? x / y
                                       : std::pow(x, y);
  // To a double and then to a float is the rounding to a float, for these four.
  return wrap_number(Scalar(dtype == kFloat32 ? double(float(r)) : r), dtype);
}

PyObject* compute_whole(int op, int64_t x, int64_t y, DType dtype) {
  using A = Arithmetic;
  if (op >= A::less && op <= A::greater_equal) return compared(op, x, y);
  if (dtype == kBool && op < A::bitwise_and) return nullptr;
  const uint64_t u = uint64_t(x), v = uint64_t(y);  // which go round as NumPy's do
  const auto result = [&](uint64_t bits) {
    return wrap_number(wrapped_around(bits, dtype), dtype);
  };
  switch (op) {
    case A::add:
      return result(u + v);
    case A::subtract:
      return result(u - v);
    case A::multiply:
      return result(u * v);
    case A::floor_divide:
    case A::remainder: {
      if (y == 0 || y == -1) return nullptr;
      const int64_t r = x % y, sign = r != 0 && (r < 0) != (y < 0);
      return result(uint64_t(op == A::remainder ? r + sign * y : x / y - sign));
    }
    case A::bitwise_and:
      return result(u & v);
    case A::bitwise_or:
      return result(u | v);
    case A::bitwise_xor:
      return result(u ^ v);
    case A::left_shift:
    case A::right_shift:
      if (y < 0 || y >= int64_t(8 * size_of(dtype))) return nullptr;
      return result(op == A::left_shift ? u << y : uint64_t(x >> y));
    default:
      return nullptr;
  }
}

/// Of two numbers; null: the long way.
PyObject* compute(int op, const Scalar& a, const Scalar& b, DType dtype) {
  if (dtype == kFloat64 || dtype == kFloat32)
    return compute_floating(op, a.to_double(), b.to_double(), dtype);
  if (!is_integral_or_bool(dtype) || dtype == kUInt64) return nullptr;
  return compute_whole(op, a.to_int64(), b.to_int64(), dtype);
}

Tensor in_dtype(const Tensor& t, DType dtype) { return t.dtype() == dtype ? t : t.to(dtype); }

/// f(a, b); null without an error: the long way is to be taken.
PyObject* call_two(const ElementFunction& f, PyObject* left, PyObject* right) {
  if (!f.record) return nullptr;
  return try_short([&]() -> PyObject* {
    Operand a(left), b(right);
    if (a.kind == Operand::Kind::other || b.kind == Operand::Kind::other) return nullptr;
    std::optional<DType> d = dtype_of_both(a, b);
    if (!d) return nullptr;
    if (f.wide && is_integral_or_bool(*d)) d = kFloat64;
    if (!takes(f, *d)) return nullptr;
    round_weak(a, *d);
    round_weak(b, *d);
    if (f.is_power && is_integral_or_bool(*d) && (b.is_tensor() || b.value.to_int64() < 0))
      return nullptr;
    if (!a.is_tensor() && !b.is_tensor()) {
      if (f.arithmetic >= 0)
        if (PyObject* const r = compute(f.arithmetic, a.value, b.value, *d)) return r;
      a.tensor = full({}, a.value, TensorOptions(*d, Device()));
      a.kind = Operand::Kind::tensor;
    }
    if (f.arithmetic >= 0) {
      Tensor few = few_results(f.arithmetic, {a.is_tensor() ? &a.tensor : nullptr, a.value},
                               {b.is_tensor() ? &b.tensor : nullptr, b.value}, *d);
      if (few.defined()) return wrap_result(std::move(few));
    }
    if (a.is_tensor()) a.tensor = in_dtype(a.tensor, *d);
    if (b.is_tensor()) b.tensor = in_dtype(b.tensor, *d);
    if (a.is_tensor() && b.is_tensor() && a.tensor.device() != b.tensor.device()) return nullptr;
    const ops::Arg x = a.is_tensor() ? ops::Arg(a.tensor) : ops::Arg(a.value);
    const ops::Arg y = b.is_tensor() ? ops::Arg(b.tensor) : ops::Arg(b.value);
    Tensor r = call_two_operands(*f.record, x, y);
    if (f.is_remainder && is_floating(*d)) {
      static const ops::OpRecord& copysign = record_of("copysign");
      r = call_two_operands(copysign, ops::Arg(r), y);
    }
    return wrap_result(std::move(r));
  });
}

PyObject* call_one(const ElementFunction& f, PyObject* o) {
  if (!f.record) return nullptr;
  return try_short([&]() -> PyObject* {
    Tensor t = tensor_to_read(o);
    if (PyFloat_CheckExact(o) && array_device.is_cpu())
      t = full({}, Scalar(PyFloat_AS_DOUBLE(o)), TensorOptions(kFloat64, Device()));
    if (!t.defined()) return nullptr;
    if (f.wide && (t.dtype() == kInt64 || t.dtype() == kInt32)) t = t.to(kFloat64);
    if (!takes(f, t.dtype())) return nullptr;
    return wrap_result(call_one_operand(*f.record, t));
  });
}

/// f(..., out=o), where the operands are as the result is.
bool write_result(const ElementFunction& f, PyObject* args, PyObject* kwargs) {
  PyObject* const out = PyDict_GetItemString(kwargs, "out");
  const Py_ssize_t n = PyTuple_GET_SIZE(args);
  if (!f.record || f.gives_bool || f.is_power || f.is_remainder || !out || !is_plain_array(out) ||
      array_in(out)->is_number || n != (f.arithmetic == -2 ? 1 : 2))
    return false;
  try {
    const Tensor& o = array_tensor(out);
    if (!o.defined() || !takes(f, o.dtype()) || (f.wide && !is_floating(o.dtype()))) return false;
    static const Scalar one(1);
    ops::Arg all[3];
    Tensor kept[2];
    for (Py_ssize_t i = 0; i < n; ++i) {
      if (!is_readable_array(PyTuple_GET_ITEM(args, i))) return false;
      const Tensor& t = kept[i] = array_tensor(PyTuple_GET_ITEM(args, i));
      if (!t.defined() || t.dtype() != o.dtype() || t.device() != o.device() ||
          !std::ranges::equal(t.sizes(), o.sizes()) ||
          (!t.is_same(o) && t.storage() == o.storage()))
        return false;
      all[i] = ops::Arg(t);
    }
    size_t count = size_t(n);
    if (f.record->pointwise && f.record->pointwise->n_params == 1) all[count++] = ops::Arg(one);
    Tensor target = o;
    Tensor* const outs[] = {&target};
    run_freely(o.numel(), [&] {
      ops::call_into(outs, *f.record, {all, count});
      return Tensor();
    });
    return true;
  } catch (...) {
    PyErr_Clear();
    return false;
  }
}

// ---- the class of ufuncs

PyObject* ufunc_new(PyTypeObject* type, PyObject*, PyObject*) {
  return guarded([&]() -> PyObject* {
    PyObject* const o = checked(type->tp_alloc(type, 0));
    reinterpret_cast<UfuncObject*>(o)->short_way = new ElementFunction;
    return o;
  });
}
void ufunc_dealloc(PyObject* o) {
  PyTypeObject* const type = Py_TYPE(o);
  delete reinterpret_cast<UfuncObject*>(o)->short_way;
  type->tp_free(o);
  Py_DECREF(type);
}
PyObject* ufunc_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  if (!kwargs || PyDict_GET_SIZE(kwargs) == 0) {
    PyObject* r = nullptr;
    if (PyTuple_GET_SIZE(args) == 1)
      r = short_way_of(self).arithmetic == -2
              ? call_one(short_way_of(self), PyTuple_GET_ITEM(args, 0))
              : nullptr;
    else if (PyTuple_GET_SIZE(args) == 2 && short_way_of(self).arithmetic != -2)
      r = call_two(short_way_of(self), PyTuple_GET_ITEM(args, 0), PyTuple_GET_ITEM(args, 1));
    if (r) return r;
  }
  if (kwargs && PyDict_GET_SIZE(kwargs) == 1 && write_result(short_way_of(self), args, kwargs))
    return Py_NewRef(PyDict_GetItemString(kwargs, "out"));
  const Ref long_way(PyObject_GetAttrString(self, "_call"));
  return long_way ? PyObject_Call(long_way.get(), args, kwargs) : nullptr;
}
// _set_short_way(record, operands, dtypes, wide, gives_bool)
PyObject* ufunc_set(PyObject* self, PyObject* args) {
  return guarded([&]() -> PyObject* {
    const char* record;
    int operands, wide, gives_bool;
    PyObject* dtypes;
    if (!PyArg_ParseTuple(args, "siOpp", &record, &operands, &dtypes, &wide, &gives_bool))
      return nullptr;
    const ops::OpRecord& its = record_of(record);
    const size_t alpha = its.pointwise && its.pointwise->n_params == 1;
    if (ops::schema_of(its).args.size() != size_t(operands) + (operands == 2 ? alpha : 0))
      Py_RETURN_FALSE;  // it has options
    ElementFunction& f = short_way_of(self);
    f.record = &its;
    f.wide = wide;
    f.gives_bool = gives_bool;
    f.is_power = std::strcmp(record, "pow") == 0;
    f.is_remainder = std::strcmp(record, "remainder") == 0;
    static constexpr const char* kNames[] = {"add",
                                             "sub",
                                             "mul",
                                             "div",
                                             "pow",
                                             "floor_divide",
                                             "remainder",
                                             "lt",
                                             "le",
                                             "eq",
                                             "ne",
                                             "gt",
                                             "ge",
                                             "bitwise_and",
                                             "bitwise_or",
                                             "bitwise_xor",
                                             "bitwise_left_shift",
                                             "bitwise_right_shift"};
    const auto* const name =
        std::ranges::find_if(kNames, [&](const char* n) { return std::strcmp(n, record) == 0; });
    f.arithmetic = operands == 1 ? -2 : name == std::end(kNames) ? -1 : int(name - kNames);
    const Ref each(checked(PyObject_GetIter(dtypes)));
    while (const Ref item{PyIter_Next(each.get())}) {
      DType t;
      if (!to_dtype(item.get(), t)) type_error("a dtype is wanted");
      f.direct |= 1u << int(t);
    }
    if (PyErr_Occurred()) return nullptr;
    Py_RETURN_TRUE;
  });
}
PyMethodDef ufunc_methods[] = {{"_set_short_way", ufunc_set, METH_VARARGS, nullptr},
                               {nullptr, nullptr, 0, nullptr}};
PyType_Slot ufunc_slots[] = {SLOT(Py_tp_new, ufunc_new),
                             SLOT(Py_tp_dealloc, ufunc_dealloc),
                             SLOT(Py_tp_call, ufunc_call),
                             SLOT(Py_tp_methods, ufunc_methods),
                             {0, nullptr}};
PyType_Spec ufunc_spec{"arete._C._UfuncBase", sizeof(UfuncObject), 0,
                       Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, ufunc_slots};

// ---- the operators of arrays

/// What a slot of the number protocol is: the ufunc, and the long ways with the array first.
struct ArrayOperator {
  PyObject *ufunc = nullptr, *forward = nullptr, *reflected = nullptr, *in_place = nullptr;
};
enum Slot {
  s_add,
  s_sub,
  s_mul,
  s_truediv,
  s_floordiv,
  s_mod,
  s_pow,
  s_and,
  s_or,
  s_xor,
  s_lshift,
  s_rshift,
  s_lt,
  s_le,
  s_eq,
  s_ne,
  s_gt,
  s_ge,
  s_matmul,
  s_neg,
  s_pos,
  s_abs,
  s_invert,
  s_bool,
  s_int,
  s_float,
  s_index,
  kSlots
};
constexpr const char* kSlotNames[kSlots] = {
    "add",    "sub",    "mul",    "truediv", "floordiv", "mod",  "pow", "and",   "or",
    "xor",    "lshift", "rshift", "lt",      "le",       "eq",   "ne",  "gt",    "ge",
    "matmul", "neg",    "pos",    "abs",     "invert",   "bool", "int", "float", "index"};
ArrayOperator operators[kSlots];

PyTypeObject* array_base;  // _ArrayBase
bool is_any_array(PyObject* o) { return PyType_IsSubtype(Py_TYPE(o), array_base); }

PyObject* long_way(Slot slot, PyObject* a, PyObject* b) {
  const ArrayOperator& op = operators[slot];
  return is_any_array(a) ? PyObject_CallFunctionObjArgs(op.forward, a, b, nullptr)
                         : PyObject_CallFunctionObjArgs(op.reflected, b, a, nullptr);
}
PyObject* binary_slot(Slot slot, PyObject* a, PyObject* b) {
  PyObject* const r = call_two(short_way_of(operators[slot].ufunc), a, b);
  return r ? r : long_way(slot, a, b);
}

bool change(const ElementFunction& f, PyObject* self, PyObject* other) {
  if (!f.record || !is_plain_array(self)) return false;
  try {
    const Tensor& t = array_tensor(self);
    Operand b(other);
    if (!t.defined() || b.kind == Operand::Kind::other) return false;
    const std::optional<DType> d = dtype_of_both(Operand(self), b);
    if (d != t.dtype() || !takes(f, *d) || (f.is_remainder && is_floating(*d))) return false;
    if (f.is_power && is_integer(*d) && (b.is_tensor() || b.value.to_int64() < 0)) return false;
    round_weak(b, *d);
    if (b.is_tensor()) {
      if (b.tensor.device() != t.device() || (t.dim() == 0 && b.tensor.dim() != 0)) return false;
      // Memory that both have is read before it is written.
      if (!t.is_same(b.tensor) && t.storage() == b.tensor.storage()) b.tensor = b.tensor.clone();
      b.tensor = in_dtype(b.tensor, *d);
    }
    Tensor target = t;
    change_by(target, *f.record, b.is_tensor() ? ops::Arg(b.tensor) : ops::Arg(b.value));
    return true;
  } catch (...) {
    PyErr_Clear();
    return false;
  }
}
PyObject* in_place_slot(Slot slot, PyObject* self, PyObject* other) {
  if (is_plain_array(self) && array_in(self)->is_number) return binary_slot(slot, self, other);
  if (change(short_way_of(operators[slot].ufunc), self, other)) return Py_NewRef(self);
  return PyObject_CallFunctionObjArgs(operators[slot].in_place, self, other, nullptr);
}
PyObject* compare_arrays(PyObject* a, PyObject* b, int op) {
  static constexpr Slot kSlot[] = {s_lt, s_le, s_eq, s_ne, s_gt, s_ge};
  return binary_slot(kSlot[op], a, b);
}
PyObject* unary_slot(Slot slot, PyObject* a) {
  PyObject* const r = call_one(short_way_of(operators[slot].ufunc), a);
  return r ? r : PyObject_CallFunctionObjArgs(operators[slot].forward, a, nullptr);
}
PyObject* multiply_matrices(PyObject* a, PyObject* b) {
  if (is_readable_array(a) && is_readable_array(b)) {
    PyObject* const r = try_short([&]() -> PyObject* {
      const Tensor &x = array_tensor(a), &y = array_tensor(b);
      if (!x.defined() || !y.defined() || x.dtype() != y.dtype() || !is_floating(x.dtype()) ||
          x.dim() == 0 || y.dim() == 0 || x.device() != y.device())
        return nullptr;
      static const ops::OpRecord& record = record_of("matmul");
      return wrap_result(call_two_operands(record, ops::Arg(x), ops::Arg(y)));
    });
    if (r) return r;
  }
  return long_way(s_matmul, a, b);
}

PyObject* whole_number(const Scalar& v) {
  return v.is_large() ? PyLong_FromUnsignedLongLong(v.to_bits())
                      : PyLong_FromLongLong(v.to_int64());
}
int array_bool(PyObject* o) {
  if (const Scalar* const v = value_in(o)) return v->to_bool();
  const Ref r(PyObject_CallFunctionObjArgs(operators[s_bool].forward, o, nullptr));
  return r ? PyObject_IsTrue(r.get()) : -1;
}
PyObject* array_int(PyObject* o) {
  if (const Scalar* const v = value_in(o)) {
    if (v->is_integral()) return whole_number(*v);
    if (v->is_floating()) return PyLong_FromDouble(v->to_double());
  }
  return PyObject_CallFunctionObjArgs(operators[s_int].forward, o, nullptr);
}
PyObject* array_float(PyObject* o) {
  if (const Scalar* const v = value_in(o); v && !v->is_complex())
    return PyFloat_FromDouble(v->to_double());
  return PyObject_CallFunctionObjArgs(operators[s_float].forward, o, nullptr);
}
PyObject* array_index(PyObject* o) {
  if (const Scalar* const v = value_in(o); v && is_integer(array_in(o)->dtype))
    return whole_number(*v);
  return PyObject_CallFunctionObjArgs(operators[s_index].forward, o, nullptr);
}

#define ARRAY_BINARY(name)                                                                 \
  PyObject* array_##name(PyObject* a, PyObject* b) { return binary_slot(s_##name, a, b); } \
  PyObject* array_i##name(PyObject* a, PyObject* b) { return in_place_slot(s_##name, a, b); }
ARRAY_BINARY(add)
ARRAY_BINARY(sub)
ARRAY_BINARY(mul)
ARRAY_BINARY(truediv)
ARRAY_BINARY(floordiv)
ARRAY_BINARY(mod)
ARRAY_BINARY(and)
ARRAY_BINARY(or)
ARRAY_BINARY(xor)
ARRAY_BINARY(lshift)
ARRAY_BINARY(rshift)
#undef ARRAY_BINARY
PyObject* array_pow(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return binary_slot(s_pow, a, b);
}
PyObject* array_ipow(PyObject* a, PyObject* b, PyObject*) { return in_place_slot(s_pow, a, b); }
#define ARRAY_UNARY(name) \
  PyObject* array_##name(PyObject* a) { return unary_slot(s_##name, a); }
ARRAY_UNARY(neg)
ARRAY_UNARY(pos)
ARRAY_UNARY(abs)
ARRAY_UNARY(invert)
#undef ARRAY_UNARY

const PyType_Slot kArrayNumberSlots[] = {
    SLOT(Py_tp_richcompare, compare_arrays),
    SLOT(Py_nb_add, array_add),
    SLOT(Py_nb_subtract, array_sub),
    SLOT(Py_nb_multiply, array_mul),
    SLOT(Py_nb_true_divide, array_truediv),
    SLOT(Py_nb_floor_divide, array_floordiv),
    SLOT(Py_nb_remainder, array_mod),
    SLOT(Py_nb_power, array_pow),
    SLOT(Py_nb_matrix_multiply, multiply_matrices),
    SLOT(Py_nb_and, array_and),
    SLOT(Py_nb_or, array_or),
    SLOT(Py_nb_xor, array_xor),
    SLOT(Py_nb_lshift, array_lshift),
    SLOT(Py_nb_rshift, array_rshift),
    SLOT(Py_nb_inplace_add, array_iadd),
    SLOT(Py_nb_inplace_subtract, array_isub),
    SLOT(Py_nb_inplace_multiply, array_imul),
    SLOT(Py_nb_inplace_true_divide, array_itruediv),
    SLOT(Py_nb_inplace_floor_divide, array_ifloordiv),
    SLOT(Py_nb_inplace_remainder, array_imod),
    SLOT(Py_nb_inplace_power, array_ipow),
    SLOT(Py_nb_inplace_and, array_iand),
    SLOT(Py_nb_inplace_or, array_ior),
    SLOT(Py_nb_inplace_xor, array_ixor),
    SLOT(Py_nb_inplace_lshift, array_ilshift),
    SLOT(Py_nb_inplace_rshift, array_irshift),
    SLOT(Py_nb_negative, array_neg),
    SLOT(Py_nb_positive, array_pos),
    SLOT(Py_nb_absolute, array_abs),
    SLOT(Py_nb_invert, array_invert),
    SLOT(Py_nb_bool, array_bool),
    SLOT(Py_nb_int, array_int),
    SLOT(Py_nb_float, array_float),
    SLOT(Py_nb_index, array_index),
};

// _set_array_operator(slot, ufunc or None, forward, reflected=None, in_place=None)
PyObject* set_array_operator(PyObject*, PyObject* args) {
  const char* name;
  PyObject *ufunc, *forward, *reflected = Py_None, *in_place = Py_None;
  if (!PyArg_ParseTuple(args, "sOO|OO", &name, &ufunc, &forward, &reflected, &in_place))
    return nullptr;
  const auto* const slot =
      std::ranges::find_if(kSlotNames, [&](const char* n) { return std::strcmp(n, name) == 0; });
  if (slot == std::end(kSlotNames))
    return PyErr_Format(PyExc_KeyError, "there is no operator '%s'", name);
  operators[slot - kSlotNames] = {Py_NewRef(ufunc), Py_NewRef(forward), Py_NewRef(reflected),
                                  Py_NewRef(in_place)};
  Py_RETURN_NONE;
}

PyMethodDef operator_setup[] = {{"_set_array_operator", set_array_operator, METH_VARARGS, nullptr},
                                {nullptr, nullptr, 0, nullptr}};

}  // namespace

std::span<const PyType_Slot> array_number_slots() { return kArrayNumberSlots; }

bool init_array_functions(PyObject* module) {
  array_base = reinterpret_cast<PyTypeObject*>(PyObject_GetAttrString(module, "_ArrayBase"));
  PyObject* const ufunc = PyType_FromSpec(&ufunc_spec);
  return array_base && ufunc && PyModule_AddFunctions(module, operator_setup) == 0 &&
         PyModule_AddObjectRef(module, "_UfuncBase", ufunc) == 0 && init_short_functions(module);
}

}  // namespace arete::python
