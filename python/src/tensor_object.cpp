#include "tensor_object.h"

#include <structmember.h>

#include "arete/autograd/engine.h"
#include "arete/core/history.h"
#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/pointwise.h"
#include "convert.h"
#include "identity.h"
#include "operator_object.h"
#include "tensor_data.h"

namespace arete::python {

PyTypeObject* tensor_type;

namespace {

IdentityMap& identities() {
  static IdentityMap* map = new IdentityMap;  // objects may be freed after static destructors ran
  return *map;
}

TensorObject* object_in(PyObject* o) { return reinterpret_cast<TensorObject*>(o); }

PyObject* new_object(PyTypeObject* type, Tensor t) {
  PyObject* o = type->tp_alloc(type, 0);
  if (!o) return nullptr;
  const void* const key = t.impl();
  new (&object_in(o)->tensor) Tensor(std::move(t));
  object_in(o)->dict = nullptr;
  object_in(o)->weak_references = nullptr;
  identities().insert(key, o);
  return o;
}

// ---- life

PyObject* tensor_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  // Tensor(), Tensor(2, 3), Tensor([1, 2]): PyTorch's old constructor, always of default_dtype().
  return guarded([&]() -> PyObject* {
    if (kwargs && PyDict_GET_SIZE(kwargs) > 0) type_error("Tensor() takes no keyword arguments");
    Tensor t;
    Shape sizes;
    if (PyTuple_GET_SIZE(args) == 0) {
      t = empty({0});
    } else if (to_ints(args, sizes)) {
      t = empty(sizes);
    } else if (PyTuple_GET_SIZE(args) == 1) {
      PyObject* a = PyTuple_GET_ITEM(args, 0);
      if (is_tensor(a) && type != tensor_type)
        t = tensor_of(a).detach();
      else
        t = tensor_from(a, default_dtype(), Device());
    } else {
      type_error("Tensor() takes sizes or one sequence of numbers");
    }
    return new_object(type, std::move(t));
  });
}

void tensor_dealloc(PyObject* o) {
  PyTypeObject* const type = Py_TYPE(o);
  PyObject_GC_UnTrack(o);
  TensorObject* const self = object_in(o);
  if (self->weak_references) PyObject_ClearWeakRefs(o);
  identities().erase(self->tensor.impl(), o);
  Py_CLEAR(self->dict);
  self->tensor.~Tensor();
  type->tp_free(o);
  Py_DECREF(type);
}
int tensor_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(object_in(o)->dict);
  Py_VISIT(Py_TYPE(o));
  return 0;
}
int tensor_clear(PyObject* o) {
  Py_CLEAR(object_in(o)->dict);
  return 0;
}

// ---- numbers

#define RECORD(name)                                                  \
  static const ops::OpRecord& record = []() -> const ops::OpRecord& { \
    const ops::OpRecord* r = ops::find_record(name);                  \
    if (!r) ARETE_BUG("no record " name);                             \
    return *r;                                                        \
  }();
#define BINARY(function, name)                   \
  PyObject* function(PyObject* a, PyObject* b) { \
    RECORD(name)                                 \
    return binary_operator(record, a, b);        \
  }
#define BINARY_IN_PLACE(function, name)                \
  PyObject* function(PyObject* a, PyObject* b) {       \
    RECORD(name)                                       \
    PyObject* r = binary_operator(record, a, b, true); \
    return r;                                          \
  }
BINARY(nb_add, "add")
BINARY(nb_sub, "sub")
BINARY(nb_mul, "mul")
BINARY(nb_div, "div")
BINARY(nb_floor_div, "floor_divide")
BINARY(nb_mod, "remainder")
BINARY(nb_and, "bitwise_and")
BINARY(nb_or, "bitwise_or")
BINARY(nb_xor, "bitwise_xor")
BINARY(nb_lshift, "bitwise_left_shift")
BINARY(nb_rshift, "bitwise_right_shift")
BINARY_IN_PLACE(nb_iadd, "add")
BINARY_IN_PLACE(nb_isub, "sub")
BINARY_IN_PLACE(nb_imul, "mul")
BINARY_IN_PLACE(nb_idiv, "div")
BINARY_IN_PLACE(nb_ifloor_div, "floor_divide")
BINARY_IN_PLACE(nb_imod, "remainder")
BINARY_IN_PLACE(nb_iand, "bitwise_and")
BINARY_IN_PLACE(nb_ior, "bitwise_or")
BINARY_IN_PLACE(nb_ixor, "bitwise_xor")
PyObject* nb_pow(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  RECORD("pow")
  return binary_operator(record, a, b);
}
PyObject* nb_ipow(PyObject* a, PyObject* b, PyObject*) {
  RECORD("pow")
  return binary_operator(record, a, b, true);
}
PyObject* nb_matmul(PyObject* a, PyObject* b) {
  if (!is_tensor(a) || !is_tensor(b)) Py_RETURN_NOTIMPLEMENTED;
  RECORD("matmul")
  return binary_operator(record, a, b);
}
#define UNARY(function, name)                                                \
  PyObject* function(PyObject* a) {                                          \
    RECORD(name)                                                             \
    return guarded([&] { return wrap(ops::call(record, {tensor_of(a)})); }); \
  }
UNARY(nb_negative, "neg")
UNARY(nb_absolute, "abs")
UNARY(nb_positive, "positive")
PyObject* nb_invert(PyObject* a) {
  const bool logic = tensor_of(a).dtype() == kBool;
  if (logic) {
    RECORD("logical_not")
    return guarded([&] { return wrap(ops::call(record, {tensor_of(a)})); });
  }
  RECORD("bitwise_not")
  return guarded([&] { return wrap(ops::call(record, {tensor_of(a)})); });
}

Scalar only_item(const Tensor& t) {
  if (t.numel() == 1 && t.device().is_cpu()) return t.item();
  const WithoutGil free;  // waits for the device
  return t.item();
}
int nb_bool(PyObject* o) {
  return guarded(-1, [&] {
    const Tensor& t = tensor_of(o);
    if (t.numel() != 1) {
      PyErr_SetString(PyExc_RuntimeError,
                      t.numel() == 0
                          ? "Boolean value of Tensor with no values is ambiguous"
                          : "Boolean value of Tensor with more than one value is ambiguous");
      throw PythonError{};
    }
    return int(only_item(t).to_bool());
  });
}
PyObject* nb_int(PyObject* o) {
  return guarded([&]() -> PyObject* {
    const Scalar s = only_item(tensor_of(o));
    if (s.is_integral()) return PyLong_FromLongLong(s.to_int64());
    return PyLong_FromDouble(s.to_double());
  });
}
PyObject* nb_float(PyObject* o) {
  return guarded([&] { return PyFloat_FromDouble(only_item(tensor_of(o)).to_double()); });
}
PyObject* nb_index(PyObject* o) {
  return guarded([&]() -> PyObject* {
    const Tensor& t = tensor_of(o);
    if (t.numel() != 1 || !is_integral_or_bool(t.dtype()))
      type_error("only integer tensors of a single element can be converted to an index");
    return PyLong_FromLongLong(only_item(t).to_int64());
  });
}

PyObject* tensor_compare(PyObject* a, PyObject* b, int op) {
  static const ops::OpRecord* records[6] = {};
  static const char* const names[6] = {"lt", "le", "eq", "ne", "gt", "ge"};
  if (!records[op]) records[op] = ops::find_record(names[op]);
  return binary_operator(*records[op], a, b);
}
Py_hash_t tensor_hash(PyObject* o) { return _Py_HashPointer(o); }

// ---- sequence

Py_ssize_t tensor_length(PyObject* o) {
  const Tensor& t = tensor_of(o);
  if (t.dim() == 0) {
    PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
    return -1;
  }
  return Py_ssize_t(t.size(0));
}
PyObject* tensor_subscript(PyObject* o, PyObject* index) {
  return guarded([&]() -> PyObject* {
    const Tensor& t = tensor_of(o);
    if (PyLong_CheckExact(index)) {
      int64_t i = 0;
      to_int(index, i);
      return wrap(t[i]);
    }
    return wrap(t.index(index_from(index, t)));
  });
}
int tensor_assign(PyObject* o, PyObject* index, PyObject* value) {
  return guarded(-1, [&] {
    if (!value) type_error("Tensor does not support deleting items");
    Tensor& t = tensor_of(o);
    const std::vector<Index> indices = index_from(index, t);
    Scalar s;
    if (is_tensor(value))
      t.index_put_(
          indices,
          tensor_of(value).to(
              tensor_of(value).numel() == 1 ? t.device() : tensor_of(value).device(), t.dtype()));
    else if (to_scalar(value, s))
      t.index_put_(indices, full({}, s, TensorOptions(t.dtype(), t.device())));
    else
      t.index_put_(indices, tensor_from(value, t.dtype(), t.device()));
    return 0;
  });
}
PyObject* tensor_item_at(PyObject* o, Py_ssize_t i) {
  return guarded([&]() -> PyObject* {
    const Tensor& t = tensor_of(o);
    if (t.dim() == 0) type_error("iteration over a 0-d tensor");
    if (i >= t.size(0)) {
      PyErr_SetString(PyExc_IndexError, "index out of range");
      throw PythonError{};
    }
    return wrap(t.select(0, i));
  });
}
PyObject* tensor_iterate(PyObject* o) {
  return guarded([&]() -> PyObject* {
    const Tensor& t = tensor_of(o);
    if (t.dim() == 0) type_error("iteration over a 0-d tensor");
    const Ref list(checked(PyList_New(t.size(0))));
    RECORD("unbind")
    ops::Results parts = ops::call_all(record, {t, int64_t(0)});
    for (size_t i = 0; i < parts.size(); ++i)
      PyList_SET_ITEM(list.get(), Py_ssize_t(i), checked(wrap(std::move(parts[i]))));
    return PyObject_GetIter(list.get());
  });
}
int tensor_contains(PyObject* o, PyObject* value) {
  const Ref equal(tensor_compare(o, value, Py_EQ));
  if (!equal || equal.get() == Py_NotImplemented) {
    if (equal) PyErr_SetString(PyExc_TypeError, "Tensor.__contains__ takes a Tensor or a number");
    return -1;
  }
  return guarded(-1, [&] { return int(tensor_of(equal.get()).any().item<bool>()); });
}

PyObject* tensor_repr(PyObject* o) {
  return guarded([&] {
    const std::string s = [&] {
      const WithoutGil free;
      return tensor_of(o).to_string();
    }();
    return PyUnicode_FromStringAndSize(s.data(), Py_ssize_t(s.size()));
  });
}

// ---- attributes

#define GETTER(name, value)                  \
  PyObject* get_##name(PyObject* o, void*) { \
    return guarded([&]() -> PyObject* {      \
      const Tensor& t = tensor_of(o);        \
      (void)t;                               \
      return value;                          \
    });                                      \
  }
GETTER(shape, wrap_size(t.sizes()))
GETTER(dtype, wrap(t.dtype()))
GETTER(device, wrap(t.device()))
GETTER(ndim, PyLong_FromLongLong(t.dim()))
GETTER(itemsize, PyLong_FromSize_t(t.element_size()))
GETTER(nbytes, PyLong_FromSize_t(t.nbytes()))
GETTER(requires_grad, PyBool_FromLong(t.requires_grad()))
GETTER(is_leaf, PyBool_FromLong(t.is_leaf()))
GETTER(is_cuda, PyBool_FromLong(t.is_cuda()))
GETTER(is_cpu, PyBool_FromLong(t.device().is_cpu()))
GETTER(is_meta, PyBool_FromLong(t.is_meta()))
GETTER(version, PyLong_FromUnsignedLongLong(t.version()))
GETTER(grad, wrap(t.grad()))
GETTER(data, wrap(t.detach()))
GETTER(retains_grad, PyBool_FromLong(t.impl()->autograd&& t.impl()->autograd->retains_grad))
GETTER(is_view, PyBool_FromLong(t.is_view()))
GETTER(no, Py_NewRef(Py_False))
GETTER(output_nr, PyLong_FromLong(t.impl()->autograd ? long(t.impl()->autograd->grad_fn.slot) : 0))
GETTER(base, wrap(t.is_view() ? Tensor(t.impl()->base) : Tensor()))
#undef GETTER
PyObject* get_transposed(PyObject* o, void* last_two) {
  return guarded([&] {
    const Tensor& t = tensor_of(o);
    if (last_two) {
      if (t.dim() < 2) {
        PyErr_Format(PyExc_RuntimeError,
                     "tensor.mT is only supported on matrices or batches of matrices. Got %lld-D "
                     "tensor.",
                     static_cast<long long>(t.dim()));
        throw PythonError{};
      }
      return wrap(t.transpose(-2, -1));
    }
    Shape dims;
    for (int64_t d = t.dim(); d-- > 0;) dims.push_back(d);
    return wrap(t.permute(dims));
  });
}
int set_requires_grad(PyObject* o, PyObject* value, void*) {
  return guarded(-1, [&] {
    if (!value || !PyBool_Check(value)) type_error("requires_grad must be a bool");
    tensor_of(o).requires_grad_(value == Py_True);
    return 0;
  });
}
int set_grad(PyObject* o, PyObject* value, void*) {
  return guarded(-1, [&] {
    if (!value || value == Py_None) {
      tensor_of(o).set_grad({});
    } else {
      if (!is_tensor(value))
        type_error("assigned grad expected to be a Tensor or None but got %s",
                   Py_TYPE(value)->tp_name);
      tensor_of(o).set_grad(tensor_of(value));
    }
    return 0;
  });
}
// x.data = y: the object shows y's memory from now on and keeps its place in history.
int set_data(PyObject* o, PyObject* value, void*) {
  return guarded(-1, [&] {
    if (!value || !is_tensor(value))
      type_error("Variable data has to be a tensor, but got %s",
                 value ? Py_TYPE(value)->tp_name : "nothing");
    TensorImpl& self = *tensor_of(o).impl();
    const TensorImpl& from = *tensor_of(value).impl();
    self.storage = from.storage;
    self.layout = from.layout;
    self.dtype = from.dtype;
    // Its gradients have the new shape, dtype and device from now on.
    if (self.autograd && self.autograd->accumulator)
      self.autograd->accumulator->outputs[0] = {
          Shape(from.layout.sizes.begin(), from.layout.sizes.end()), from.dtype,
          from.storage->device()};
    return 0;
  });
}

PyGetSetDef tensor_getset[] = {
    {"shape", get_shape, nullptr, "The sizes.", nullptr},
    {"dtype", get_dtype, nullptr, "The type of the elements.", nullptr},
    {"device", get_device, nullptr, "Where the memory is.", nullptr},
    {"ndim", get_ndim, nullptr, "The number of dimensions.", nullptr},
    {"itemsize", get_itemsize, nullptr, "Bytes of one element.", nullptr},
    {"nbytes", get_nbytes, nullptr, "Bytes of all elements.", nullptr},
    {"requires_grad", get_requires_grad, set_requires_grad, "Whether gradients are wanted.",
     nullptr},
    {"is_leaf", get_is_leaf, nullptr, "Whether no recorded operator made it.", nullptr},
    {"is_cuda", get_is_cuda, nullptr, nullptr, nullptr},
    {"is_cpu", get_is_cpu, nullptr, nullptr, nullptr},
    {"is_meta", get_is_meta, nullptr, nullptr, nullptr},
    {"is_sparse", get_no, nullptr, nullptr, nullptr},
    {"is_quantized", get_no, nullptr, nullptr, nullptr},
    {"is_nested", get_no, nullptr, nullptr, nullptr},
    {"is_mkldnn", get_no, nullptr, nullptr, nullptr},
    {"is_mps", get_no, nullptr, nullptr, nullptr},
    {"_version", get_version, nullptr, "Counts writes in place.", nullptr},
    {"grad", get_grad, set_grad, "The accumulated gradient, or None.", nullptr},
    {"data", get_data, set_data, "The same memory without history.", nullptr},
    {"retains_grad", get_retains_grad, nullptr, nullptr, nullptr},
    {"output_nr", get_output_nr, nullptr, nullptr, nullptr},
    {"_base", get_base, nullptr, "What a view shows.", nullptr},
    {"T", get_transposed, nullptr, "All dimensions in reverse order.", nullptr},
    {"mT", get_transposed, nullptr, "The last two dimensions swapped.", reinterpret_cast<void*>(1)},
    {"H", get_transposed, nullptr, nullptr, nullptr},
    {"mH", get_transposed, nullptr, nullptr, reinterpret_cast<void*>(1)},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

// ---- methods that are no operators

#define METHOD(name, ...)                      \
  PyObject* m_##name(PyObject* o, PyObject*) { \
    return guarded([&]() -> PyObject* {        \
      Tensor& t = tensor_of(o);                \
      (void)t;                                 \
      __VA_ARGS__;                             \
    });                                        \
  }
METHOD(dim, return PyLong_FromLongLong(t.dim()))
METHOD(numel, return PyLong_FromLongLong(t.numel()))
METHOD(item, return wrap(only_item(t)))
METHOD(tolist, return to_list(t))
METHOD(is_floating_point, return PyBool_FromLong(t.is_floating_point()))
METHOD(is_complex, return PyBool_FromLong(is_complex(t.dtype())))
METHOD(is_signed, return PyBool_FromLong(t.dtype() != kUInt8 && t.dtype() != kBool))
METHOD(is_inference, return PyBool_FromLong(t.is_inference()))
METHOD(is_pinned, return PyBool_FromLong(t.is_pinned()))
METHOD(data_ptr, return PyLong_FromVoidPtr(t.data_ptr()))
METHOD(storage_offset, return PyLong_FromLongLong(t.storage_offset()))
METHOD(element_size, return PyLong_FromSize_t(t.element_size()))
METHOD(get_device, return PyLong_FromLong(t.is_cuda() ? t.device().index : -1))
METHOD(detach, return wrap(t.detach()))
METHOD(detach_, t.detach_(); return Py_NewRef(o))
METHOD(retain_grad, t.retain_grad(); Py_RETURN_NONE)
METHOD(zero_, t.zero_(); return Py_NewRef(o))
METHOD(storage_key, return PyLong_FromVoidPtr(t.storage().get()))
METHOD(storage_bytes, return PyLong_FromSize_t(t.storage()->bytes()))
METHOD(storage_data, return PyLong_FromVoidPtr(t.storage()->data()))
#undef METHOD

MemoryFormat format_from(PyObject* o, MemoryFormat otherwise) {
  if (!o || o == Py_None) return otherwise;
  const Ref text(checked(PyObject_Str(o)));
  const std::string s = to_text(text.get());
  if (s.ends_with("channels_last") || s.ends_with("channels_last_3d"))
    return MemoryFormat::channels_last;
  return s.ends_with("preserve_format") ? MemoryFormat::preserve : MemoryFormat::contiguous;
}

PyObject* m_is_contiguous(PyObject* o, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"memory_format", nullptr};
    PyObject* format = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &format))
      return nullptr;
    const Tensor& t = tensor_of(o);
    if (format_from(format, MemoryFormat::contiguous) != MemoryFormat::channels_last)
      return PyBool_FromLong(t.is_contiguous());
    if (t.dim() < 4) Py_RETURN_FALSE;
    // Row-major once the channels are last.
    return PyBool_FromLong(t.movedim(1, -1).is_contiguous());
  });
}
PyObject* size_or_stride(PyObject* o, PyObject* args, PyObject* kwargs, bool stride) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"dim", nullptr};
    PyObject* dim = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &dim))
      return nullptr;
    const Tensor& t = tensor_of(o);
    if (dim == Py_None) {
      if (!stride) return wrap_size(t.sizes());
      const Ref size(wrap_size(t.strides()));
      return PySequence_Tuple(size.get());
    }
    int64_t d = 0;
    if (!to_int(dim, d))
      type_error("size(): argument 'dim' must be int, not %s", Py_TYPE(dim)->tp_name);
    return PyLong_FromLongLong(stride ? t.stride(d) : t.size(d));
  });
}
PyObject* m_size(PyObject* o, PyObject* a, PyObject* k) { return size_or_stride(o, a, k, false); }
PyObject* m_stride(PyObject* o, PyObject* a, PyObject* k) { return size_or_stride(o, a, k, true); }

PyObject* m_requires_grad_(PyObject* o, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"requires_grad", nullptr};
    int value = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p", const_cast<char**>(names), &value))
      return nullptr;
    tensor_of(o).requires_grad_(value);
    return Py_NewRef(o);
  });
}

PyObject* m_backward(PyObject* o, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"gradient", "retain_graph", "create_graph", "inputs", nullptr};
    PyObject *gradient = Py_None, *retain = Py_None, *inputs = Py_None;
    int create = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OOpO", const_cast<char**>(names), &gradient,
                                     &retain, &create, &inputs))
      return nullptr;
    if (gradient != Py_None && !is_tensor(gradient))
      type_error("gradients can be either Tensors or None, but got %s", Py_TYPE(gradient)->tp_name);
    const bool keep = retain == Py_None ? bool(create) : truth(retain);
    const Tensor& t = tensor_of(o);
    const Tensor g = gradient == Py_None ? Tensor() : tensor_of(gradient);
    if (inputs != Py_None) {  // gradients of these leaves alone are accumulated
      std::vector<Tensor> leaves;
      if (is_tensor(inputs))
        leaves.push_back(tensor_of(inputs));
      else if (!to_tensors(inputs, leaves))
        type_error("backward(): inputs must be Tensors");
      const WithoutGil free;
      std::vector<Tensor> gradients;
      if (g.defined()) gradients.push_back(g);
      const TensorList found =
          autograd::grad({&t, 1}, leaves, gradients, keep, create, /*allow_unused=*/true);
      for (size_t i = 0; i < leaves.size(); ++i)
        if (found[i].defined())
          leaves[i].set_grad(leaves[i].grad().defined() ? leaves[i].grad().add(found[i])
                                                        : found[i]);
    } else {
      const WithoutGil free;
      t.backward(g, keep, create);
    }
    Py_RETURN_NONE;
  });
}

/// A Python function called with a tensor under the GIL; None stands for "no replacement".
std::function<Tensor(const Tensor&)> as_hook(PyObject* callable) {
  struct Held {
    PyObject* f;
    explicit Held(PyObject* g) : f(Py_NewRef(g)) {}
    ~Held() {
      if (!Py_IsInitialized()) return;
      const WithGil gil;
      Py_DECREF(f);
    }
  };
  auto held = std::make_shared<Held>(callable);
  return [held](const Tensor& g) -> Tensor {
    const WithGil gil;
    const Ref argument(checked(wrap(g)));
    const Ref r(checked(PyObject_CallOneArg(held->f, argument.get())));
    if (r.get() == Py_None) return {};
    if (!is_tensor(r.get())) type_error("hooks must return None or a Tensor");
    return tensor_of(r.get());
  };
}
PyObject* m_register_hook(PyObject* o, PyObject* callable) {
  return guarded([&]() -> PyObject* {
    if (!PyCallable_Check(callable)) type_error("register_hook(): the hook must be callable");
    if (!tensor_of(o).requires_grad()) {
      PyErr_SetString(PyExc_RuntimeError,
                      "cannot register a hook on a tensor that doesn't require gradient");
      throw PythonError{};
    }
    return PyLong_FromUnsignedLongLong(tensor_of(o).register_hook(as_hook(callable)));
  });
}
PyObject* m_remove_hook(PyObject* o, PyObject* id) {
  return guarded([&]() -> PyObject* {
    int64_t i = 0;
    if (to_int(id, i)) tensor_of(o).remove_hook(uint64_t(i));
    Py_RETURN_NONE;
  });
}

// to(dtype), to(device), to(device, dtype), to(other), with non_blocking, copy and memory_format.
PyObject* m_to(PyObject* o, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    const Tensor& t = tensor_of(o);
    Device device = t.device();
    DType dtype = t.dtype();
    bool non_blocking = false, copy = false;
    PyObject* format = nullptr;
    const auto flag = [](PyObject* v) { return truth(v); };
    int flags = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
      PyObject* a = PyTuple_GET_ITEM(args, i);
      if (PyBool_Check(a)) {
        (flags++ == 0 ? non_blocking : copy) = flag(a);
      } else if (is_tensor(a)) {
        device = tensor_of(a).device();
        dtype = tensor_of(a).dtype();
      } else if (a == Py_None || to_dtype(a, dtype) || to_device(a, device)) {
      } else {
        type_error("to() received an invalid combination of arguments - got %s",
                   Py_TYPE(a)->tp_name);
      }
    }
    if (kwargs) {
      PyObject *key, *value;
      Py_ssize_t at = 0;
      while (PyDict_Next(kwargs, &at, &key, &value)) {
        const std::string k = to_text(key);
        if (k == "non_blocking")
          non_blocking = flag(value);
        else if (k == "copy")
          copy = flag(value);
        else if (k == "memory_format")
          format = value;
        else if (value == Py_None)
          continue;
        else if (k == "other" && is_tensor(value))
          device = tensor_of(value).device(), dtype = tensor_of(value).dtype();
        else if ((k == "dtype" && to_dtype(value, dtype)) ||
                 (k == "device" && to_device(value, device)))
          continue;
        else
          type_error("to() received an invalid argument '%s'", k.c_str());
      }
    }
    if (device == t.device() && dtype == t.dtype() && !copy && !format) return Py_NewRef(o);
    const MemoryFormat wanted = format_from(format, MemoryFormat::preserve);
    Tensor r;
    {
      const WithoutGil free;
      r = t.to(device, dtype, non_blocking, copy);
      if (wanted != MemoryFormat::preserve) r = r.contiguous(wanted);
    }
    return r.is_same(t) ? Py_NewRef(o) : wrap(std::move(r));
  });
}
PyObject* copied_as(PyObject* o, PyObject* args, PyObject* kwargs, bool clone) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"memory_format", nullptr};
    PyObject* format = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &format))
      return nullptr;
    const Tensor& t = tensor_of(o);
    const MemoryFormat f =
        format_from(format, clone ? MemoryFormat::preserve : MemoryFormat::contiguous);
    Tensor r;
    if (t.numel() > 1 << 15) {
      const WithoutGil free;
      r = clone ? t.clone(f) : t.contiguous(f);
    } else {
      r = clone ? t.clone(f) : t.contiguous(f);
    }
    return r.is_same(t) ? Py_NewRef(o) : wrap(std::move(r));
  });
}
PyObject* m_clone(PyObject* o, PyObject* a, PyObject* k) { return copied_as(o, a, k, true); }
PyObject* m_contiguous(PyObject* o, PyObject* a, PyObject* k) { return copied_as(o, a, k, false); }
PyObject* m_pin_memory(PyObject* o, PyObject*, PyObject*) {
  return guarded([&] { return wrap(tensor_of(o).pin_memory()); });
}
PyObject* m_copy_(PyObject* o, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"other", "non_blocking", nullptr};
    PyObject* src = nullptr;
    int non_blocking = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p", const_cast<char**>(names), &src,
                                     &non_blocking))
      return nullptr;
    if (!is_tensor(src))
      type_error("copy_(): argument 'other' (position 1) must be Tensor, not %s",
                 Py_TYPE(src)->tp_name);
    {
      const WithoutGil free;
      tensor_of(o).copy_(tensor_of(src), non_blocking);
    }
    return Py_NewRef(o);
  });
}
// Tensor._make_subclass(cls, data, requires_grad=False): data's memory as an object of cls.
PyObject* make_subclass(PyObject*, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"cls", "data", "require_grad", nullptr};
    PyObject *cls = nullptr, *data = nullptr;
    int requires_grad = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|p", const_cast<char**>(names), &cls, &data,
                                     &requires_grad))
      return nullptr;
    if (!PyType_Check(cls) || !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), tensor_type))
      type_error("cls must be a subclass of Tensor");
    if (!is_tensor(data)) type_error("data must be a Tensor, not %s", Py_TYPE(data)->tp_name);
    Tensor t = tensor_of(data).detach();
    if (requires_grad) t.requires_grad_();
    return new_object(reinterpret_cast<PyTypeObject*>(cls), std::move(t));
  });
}
PyObject* m_dlpack_capsule(PyObject* o, PyObject* args) {
  return guarded([&]() -> PyObject* {
    int versioned = 0, copied = 0;
    if (!PyArg_ParseTuple(args, "pp", &versioned, &copied)) return nullptr;
    return to_dlpack(tensor_of(o), versioned, copied);
  });
}
PyObject* m_tobytes(PyObject* o, PyObject*) {
  return guarded([&]() -> PyObject* {
    const Tensor c = tensor_of(o).detach().to(kCPU).contiguous();
    return PyBytes_FromStringAndSize(static_cast<const char*>(c.data_ptr()),
                                     Py_ssize_t(c.nbytes()));
  });
}

#define WITH_KEYWORDS(f) \
  reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f)), METH_VARARGS | METH_KEYWORDS
PyMethodDef tensor_methods[] = {
    {"dim", m_dim, METH_NOARGS, "The number of dimensions."},
    {"ndimension", m_dim, METH_NOARGS, "The number of dimensions."},
    {"numel", m_numel, METH_NOARGS, "The number of elements."},
    {"nelement", m_numel, METH_NOARGS, "The number of elements."},
    {"item", m_item, METH_NOARGS, "The only element as a Python number."},
    {"tolist", m_tolist, METH_NOARGS, "Nested lists of Python numbers."},
    {"tobytes", m_tobytes, METH_NOARGS, "The elements' bytes in row-major order."},
    {"is_floating_point", m_is_floating_point, METH_NOARGS, nullptr},
    {"is_complex", m_is_complex, METH_NOARGS, nullptr},
    {"is_signed", m_is_signed, METH_NOARGS, nullptr},
    {"is_inference", m_is_inference, METH_NOARGS, nullptr},
    {"is_pinned", m_is_pinned, METH_NOARGS, "Whether a GPU reaches this host memory by itself."},
    {"data_ptr", m_data_ptr, METH_NOARGS, "The address of the first element."},
    {"storage_offset", m_storage_offset, METH_NOARGS, nullptr},
    {"element_size", m_element_size, METH_NOARGS, "Bytes of one element."},
    {"get_device", m_get_device, METH_NOARGS, "The GPU's number, or -1."},
    {"detach", m_detach, METH_NOARGS, "The same memory without history."},
    {"detach_", m_detach_, METH_NOARGS, "Forgets the history."},
    {"retain_grad", m_retain_grad, METH_NOARGS, "Keeps the gradient of a non-leaf, too."},
    {"zero_", m_zero_, METH_NOARGS, "Sets all elements to zero."},
    {"_storage_key", m_storage_key, METH_NOARGS, nullptr},
    {"_storage_bytes", m_storage_bytes, METH_NOARGS, nullptr},
    {"_storage_data", m_storage_data, METH_NOARGS, nullptr},
    {"is_contiguous", WITH_KEYWORDS(m_is_contiguous), "Whether the memory is row-major."},
    {"size", WITH_KEYWORDS(m_size), "The sizes, or that of one dimension."},
    {"stride", WITH_KEYWORDS(m_stride), "The strides, or that of one dimension."},
    {"requires_grad_", WITH_KEYWORDS(m_requires_grad_), "Whether gradients are wanted."},
    {"backward", WITH_KEYWORDS(m_backward), "Accumulates gradients in the leaves."},
    {"_register_hook", m_register_hook, METH_O, nullptr},
    {"_remove_hook", m_remove_hook, METH_O, nullptr},
    {"to", WITH_KEYWORDS(m_to), "Another dtype or device; itself if nothing changes."},
    {"clone", WITH_KEYWORDS(m_clone), "A copy, with history."},
    {"contiguous", WITH_KEYWORDS(m_contiguous), "Itself or a copy in row-major order."},
    {"pin_memory", WITH_KEYWORDS(m_pin_memory), "A copy in pinned host memory."},
    {"copy_", WITH_KEYWORDS(m_copy_), "Takes over the values of another tensor."},
    {"_make_subclass", WITH_KEYWORDS(make_subclass) | METH_STATIC, nullptr},
    {"_dlpack_capsule", m_dlpack_capsule, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyMemberDef tensor_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(TensorObject, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TensorObject, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

#define SLOT(id, f) \
  { id, reinterpret_cast<void*>(f) }
PyType_Slot tensor_slots[] = {SLOT(Py_tp_new, tensor_new),
                              SLOT(Py_tp_dealloc, tensor_dealloc),
                              SLOT(Py_tp_traverse, tensor_traverse),
                              SLOT(Py_tp_clear, tensor_clear),
                              SLOT(Py_tp_repr, tensor_repr),
                              SLOT(Py_tp_hash, tensor_hash),
                              SLOT(Py_tp_richcompare, tensor_compare),
                              SLOT(Py_tp_iter, tensor_iterate),
                              SLOT(Py_tp_getset, tensor_getset),
                              SLOT(Py_tp_methods, tensor_methods),
                              SLOT(Py_tp_members, tensor_members),
                              SLOT(Py_mp_length, tensor_length),
                              SLOT(Py_mp_subscript, tensor_subscript),
                              SLOT(Py_mp_ass_subscript, tensor_assign),
                              SLOT(Py_sq_item, tensor_item_at),
                              SLOT(Py_sq_contains, tensor_contains),
                              SLOT(Py_bf_getbuffer, get_buffer),
                              SLOT(Py_bf_releasebuffer, release_buffer),
                              SLOT(Py_nb_add, nb_add),
                              SLOT(Py_nb_subtract, nb_sub),
                              SLOT(Py_nb_multiply, nb_mul),
                              SLOT(Py_nb_true_divide, nb_div),
                              SLOT(Py_nb_floor_divide, nb_floor_div),
                              SLOT(Py_nb_remainder, nb_mod),
                              SLOT(Py_nb_power, nb_pow),
                              SLOT(Py_nb_matrix_multiply, nb_matmul),
                              SLOT(Py_nb_and, nb_and),
                              SLOT(Py_nb_or, nb_or),
                              SLOT(Py_nb_xor, nb_xor),
                              SLOT(Py_nb_lshift, nb_lshift),
                              SLOT(Py_nb_rshift, nb_rshift),
                              SLOT(Py_nb_inplace_add, nb_iadd),
                              SLOT(Py_nb_inplace_subtract, nb_isub),
                              SLOT(Py_nb_inplace_multiply, nb_imul),
                              SLOT(Py_nb_inplace_true_divide, nb_idiv),
                              SLOT(Py_nb_inplace_floor_divide, nb_ifloor_div),
                              SLOT(Py_nb_inplace_remainder, nb_imod),
                              SLOT(Py_nb_inplace_power, nb_ipow),
                              SLOT(Py_nb_inplace_and, nb_iand),
                              SLOT(Py_nb_inplace_or, nb_ior),
                              SLOT(Py_nb_inplace_xor, nb_ixor),
                              SLOT(Py_nb_negative, nb_negative),
                              SLOT(Py_nb_positive, nb_positive),
                              SLOT(Py_nb_absolute, nb_absolute),
                              SLOT(Py_nb_invert, nb_invert),
                              SLOT(Py_nb_bool, nb_bool),
                              SLOT(Py_nb_int, nb_int),
                              SLOT(Py_nb_float, nb_float),
                              SLOT(Py_nb_index, nb_index),
                              {Py_tp_doc, const_cast<char*>("An n-dimensional array.")},
                              {0, nullptr}};
PyType_Spec tensor_spec{"arete.Tensor", sizeof(TensorObject), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                        tensor_slots};

}  // namespace

bool init_tensor_type(PyObject* module) {
  tensor_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&tensor_spec));
  return tensor_type &&
         PyModule_AddObjectRef(module, "Tensor", reinterpret_cast<PyObject*>(tensor_type)) == 0;
}

PyObject* wrap(Tensor t) {
  if (!t.defined()) return Py_NewRef(Py_None);
  // A new result is shown by nobody.
  if (t.impl()->use_count() > 1)
    if (PyObject* o = identities().find(t.impl())) return Py_NewRef(o);
  return new_object(tensor_type, std::move(t));
}

PyObject* wrap_as(PyTypeObject* type, Tensor t) { return new_object(type, std::move(t)); }

void rebind(PyObject* o, Tensor t) {
  identities().erase(tensor_of(o).impl(), o);
  identities().insert(t.impl(), o);
  tensor_of(o) = std::move(t);
}

}  // namespace arete::python
