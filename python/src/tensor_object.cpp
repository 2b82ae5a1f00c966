#include "tensor_object.h"

#include <structmember.h>

#include "arete/core/history.h"
#include "arete/core/sparse.h"
#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/vmap.h"
#include "convert.h"
#include "identity.h"
#include "tensor_data.h"
#include "tensor_internal.h"

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
  object_in(o)->hooks = nullptr;
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
    } else if (to_ints(PyTuple_GET_SIZE(args) == 1 && is_size(PyTuple_GET_ITEM(args, 0))
                           ? PyTuple_GET_ITEM(args, 0)
                           : args,
                       sizes)) {
      t = empty(sizes);
    } else if (PyTuple_GET_SIZE(args) == 1) {
      PyObject* a = PyTuple_GET_ITEM(args, 0);
      Scalar number;
      if (is_tensor(a) && type != tensor_type)
        t = tensor_of(a).detach();
      else if (!is_tensor(a) && to_scalar(a, number))
        type_error("new(): data must be a sequence (got %s)", Py_TYPE(a)->tp_name);
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
  Py_CLEAR(self->hooks);
  self->tensor.~Tensor();
  type->tp_free(o);
  Py_DECREF(type);
}
int tensor_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(object_in(o)->dict);
  Py_VISIT(object_in(o)->hooks);
  Py_VISIT(Py_TYPE(o));
  return 0;
}
int tensor_clear(PyObject* o) {
  Py_CLEAR(object_in(o)->dict);
  Py_CLEAR(object_in(o)->hooks);
  return 0;
}

PyObject* tensor_repr(PyObject* o) {
  return guarded([&] {
    const std::string s = [&] {
      const WithoutGil free;
      const Tensor& t = tensor_of(o);
      return is_batched(t) ? "BatchedTensor(value=" + all_values(t).to_string() + ")"
                           : t.to_string();
    }();
    return PyUnicode_FromStringAndSize(s.data(), Py_ssize_t(s.size()));
  });
}
Py_hash_t tensor_hash(PyObject* o) { return _Py_HashPointer(o); }

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
GETTER(data, wrap(t.variable_data()))
GETTER(retains_grad, PyBool_FromLong(t.impl()->autograd&& t.impl()->autograd->retains_grad))
GETTER(is_view, PyBool_FromLong(t.is_view()))
GETTER(no, Py_NewRef(Py_False))
GETTER(output_nr, PyLong_FromLong(t.impl()->autograd ? long(t.impl()->autograd->grad_fn.slot) : 0))
GETTER(base, wrap(t.is_view() ? Tensor(t.impl()->base) : Tensor()))
#undef GETTER
PyObject* get_grad(PyObject* o, void*) {
  return guarded([&]() -> PyObject* {
    const Tensor& t = tensor_of(o);
    Tensor g = t.grad();
    if (!g.defined() && t.requires_grad() && !t.is_leaf() && !t.impl()->autograd->retains_grad &&
        PyErr_WarnEx(PyExc_UserWarning,
                     "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. "
                     "Its .grad attribute won't be populated during autograd.backward(). Call "
                     ".retain_grad() on it before if you want its gradient, or look at a leaf's.",
                     1) < 0)
      return nullptr;
    return wrap(std::move(g));
  });
}
// The closure: bit 0, only the last two dimensions; bit 1, conjugated.
PyObject* get_transposed(PyObject* o, void* closure) {
  return guarded([&] {
    const auto how = reinterpret_cast<uintptr_t>(closure);
    const int64_t dims_of = tensor_of(o).dim();
    const bool other_rank = !(how & 1) && dims_of != 2 && dims_of != 0;
    if (other_rank && (how & 2)) {
      PyErr_Format(PyExc_RuntimeError,
                   "tensor.H is only supported on matrices (2-D tensors). Got %lld-D tensor.%s",
                   static_cast<long long>(dims_of),
                   dims_of > 2 ? " For batches of matrices, consider using tensor.mH" : "");
      throw PythonError{};
    }
    if (other_rank && PyErr_WarnEx(PyExc_UserWarning,
                                   "The use of `x.T` on tensors of dimension other than 2 to "
                                   "reverse their shape is deprecated and it will throw an error "
                                   "in a future release. Consider `x.mT` to transpose batches of "
                                   "matrices or `x.permute(*arange(x.ndim - 1, -1, -1))` to "
                                   "reverse the dimensions of a tensor.",
                                   1) < 0)
      throw PythonError{};
    const Tensor t = how & 2 ? conj(tensor_of(o)) : tensor_of(o);
    if (how & 1) {
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
      ARETE_CHECK(value != o, AutogradError("grad", "can't assign Variable as its own grad"));
      ARETE_CHECK(tensor_of(value).dtype() == tensor_of(o).dtype(),
                  AutogradError("grad", "attempting to assign a gradient with dtype '" +
                                            std::string(name_of(tensor_of(value).dtype())) +
                                            "' to a tensor with dtype '" +
                                            std::string(name_of(tensor_of(o).dtype())) + "'"));
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
    ARETE_CHECK(!tensor_of(o).requires_grad() || is_differentiable(from.dtype),
                AutogradError("set_data",
                              "data set to a tensor that requires gradients must be floating point "
                              "or complex dtype")
                    .got(std::string(name_of(from.dtype))));
    // The count of writes goes on: what was saved before stays good.
    if (!self.own_version)
      self.own_version = IntrusivePtr<VersionCounter>(new VersionCounter(self.version()));
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
    {"is_xpu", get_no, nullptr, nullptr, nullptr},
    {"is_xla", get_no, nullptr, nullptr, nullptr},
    {"is_mtia", get_no, nullptr, nullptr, nullptr},
    {"is_ipu", get_no, nullptr, nullptr, nullptr},
    {"is_maia", get_no, nullptr, nullptr, nullptr},
    {"is_vulkan", get_no, nullptr, nullptr, nullptr},
    {"_version", get_version, nullptr, "Counts writes in place.", nullptr},
    {"grad", get_grad, set_grad, "The accumulated gradient, or None.", nullptr},
    {"data", get_data, set_data, "The same memory without history.", nullptr},
    {"retains_grad", get_retains_grad, nullptr, nullptr, nullptr},
    {"output_nr", get_output_nr, nullptr, nullptr, nullptr},
    {"_base", get_base, nullptr, "What a view shows.", nullptr},
    {"T", get_transposed, nullptr, "All dimensions in reverse order.", nullptr},
    {"mT", get_transposed, nullptr, "The last two dimensions swapped.", reinterpret_cast<void*>(1)},
    {"H", get_transposed, nullptr, "The conjugate of T.", reinterpret_cast<void*>(2)},
    {"mH", get_transposed, nullptr, "The conjugate of mT.", reinterpret_cast<void*>(3)},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef tensor_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(TensorObject, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TensorObject, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

const PyType_Slot kObjectSlots[] = {
    SLOT(Py_tp_new, tensor_new),
    SLOT(Py_tp_dealloc, tensor_dealloc),
    SLOT(Py_tp_traverse, tensor_traverse),
    SLOT(Py_tp_clear, tensor_clear),
    SLOT(Py_tp_repr, tensor_repr),
    SLOT(Py_tp_hash, tensor_hash),
    SLOT(Py_tp_getset, tensor_getset),
    SLOT(Py_tp_methods, tensor_methods),
    SLOT(Py_tp_members, tensor_members),
    SLOT(Py_bf_getbuffer, get_buffer),
    SLOT(Py_bf_releasebuffer, release_buffer),
    {Py_tp_doc,
     const_cast<char*>(R"(An n-dimensional array: made by arete.tensor, arete.zeros and so on.

>>> x = arete.ones(2, 3, requires_grad=True)
>>> (x * 2).sum().backward()
>>> x.grad
tensor([[2., 2., 2.],
        [2., 2., 2.]])
)")},
};

}  // namespace

namespace {
// The class that Python has for sparse tensors; its module is imported when there is one.
PyTypeObject* sparse_type() {
  static PyObject* type = nullptr;  // lives as long as the interpreter
  if (!type) {
    const Ref module(checked(PyImport_ImportModule("arete._operators._sparse_functions")));
    type = checked(PyObject_GetAttrString(module.get(), "SparseTensor"));
  }
  return reinterpret_cast<PyTypeObject*>(type);
}
}  // namespace

bool init_tensor_type(PyObject* module) {
  std::vector<PyType_Slot> slots(std::begin(kObjectSlots), std::end(kObjectSlots));
  for (const std::span<const PyType_Slot> part : {number_slots(), indexing_slots()})
    slots.insert(slots.end(), part.begin(), part.end());
  slots.push_back({0, nullptr});
  PyType_Spec tensor_spec{"arete.Tensor", sizeof(TensorObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                          slots.data()};
  tensor_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&tensor_spec));
  return tensor_type &&
         PyModule_AddObjectRef(module, "Tensor", reinterpret_cast<PyObject*>(tensor_type)) == 0;
}

PyObject* wrap(Tensor t) {
  if (!t.defined()) return Py_NewRef(Py_None);
  // A new result is shown by nobody.
  if (t.impl()->use_count() > 1)
    if (PyObject* o = identities().find(t.impl())) return Py_NewRef(o);
  if (is_sparse(t)) [[unlikely]]
    return new_object(sparse_type(), std::move(t));
  return new_object(tensor_type, std::move(t));
}

PyObject* wrap_as(PyTypeObject* type, Tensor t) { return new_object(type, std::move(t)); }

void rebind(PyObject* o, Tensor t) {
  identities().erase(tensor_of(o).impl(), o);
  identities().insert(t.impl(), o);
  tensor_of(o) = std::move(t);
}

void swap_shown(PyObject* a, PyObject* b) {
  if (tensor_of(a).impl() == tensor_of(b).impl()) return;
  identities().erase(tensor_of(a).impl(), a);
  identities().erase(tensor_of(b).impl(), b);
  std::swap(tensor_of(a), tensor_of(b));
  std::swap(object_in(a)->hooks, object_in(b)->hooks);
  identities().insert(tensor_of(a).impl(), a);
  identities().insert(tensor_of(b).impl(), b);
}

}  // namespace arete::python
