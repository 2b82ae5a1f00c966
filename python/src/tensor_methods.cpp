// Methods of Tensor that are no operators: what they are, where they are, copies, differentiation.
#include "arete/autograd/engine.h"
#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/device/shared_memory.h"
#include "arete/ops/call.h"
#include "arete/ops/in_place.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/window_util.h"
#include "convert.h"
#include "memory_format.h"
#include "skip.h"
#include "tensor_data.h"
#include "tensor_internal.h"

namespace arete::python {

namespace {

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
// Whoever has an address looks at the memory without asking.
void* address_for_others(const Tensor& t, void* address) {
  if (address && modes().word & Modes::kPutOff) t.storage()->mark_exported();
  return address;
}
METHOD(data_ptr, return PyLong_FromVoidPtr(address_for_others(t, t.data_ptr())))
METHOD(storage_offset, return PyLong_FromLongLong(t.storage_offset()))
METHOD(element_size, return PyLong_FromSize_t(t.element_size()))
METHOD(get_device, return PyLong_FromLong(t.is_cuda() ? t.device().index : -1))
METHOD(detach, return wrap(t.detach()))
METHOD(detach_, t.detach_(); return Py_NewRef(o))
METHOD(retain_grad, t.retain_grad(); Py_RETURN_NONE)
METHOD(zero_, t.zero_(); return Py_NewRef(o))
METHOD(storage_key, return PyLong_FromVoidPtr(t.storage().get()))
METHOD(storage_bytes, return PyLong_FromSize_t(t.storage()->bytes()))
METHOD(storage_data, return PyLong_FromVoidPtr(address_for_others(t, t.storage()->writable_data())))
METHOD(share_memory_, {
  const WithoutGil free;
  if (t.device().is_cuda())
    cuda::move_to_shared_memory(t.storage());
  else
    t.storage()->share();
} return Py_NewRef(o))
METHOD(is_shared, return PyBool_FromLong(t.storage()->is_shared()))
METHOD(shared_file, return PyLong_FromLong(t.storage()->shared_file()))
#undef METHOD

PyObject* m_is_contiguous(PyObject* o, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"memory_format", nullptr};
    PyObject* format = nullptr;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &format))
      return nullptr;
    const Format wanted = format_from(format, MemoryFormat::contiguous, "is_contiguous");
    if (wanted.order == MemoryFormat::preserve)
      return PyBool_FromLong(tensor_of(o).is_contiguous());
    return PyBool_FromLong(lies_as(tensor_of(o), wanted));
  });
}
PyObject* size_or_stride(PyObject* o, PyObject* args, PyObject* kwargs, bool stride) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"dim", nullptr};
    PyObject* dim = Py_None;
    const bool given = kwargs || PyTuple_GET_SIZE(args) > 0;
    if (given && !PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &dim))
      return nullptr;
    const Tensor& t = tensor_of(o);
    if (dim == Py_None) {
      if (!stride) return wrap_size(t.sizes());
      Ref all(checked(PyTuple_New(t.dim())));
      for (int64_t d = 0; d < t.dim(); ++d)
        PyTuple_SET_ITEM(all.get(), d, checked(PyLong_FromLongLong(t.strides()[size_t(d)])));
      return all.release();
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
    std::vector<Tensor> only;  // accumulate
    if (inputs != Py_None) {
      if (is_tensor(inputs))
        only.push_back(tensor_of(inputs));
      else if (!to_tensors(inputs, only))
        type_error("backward(): inputs must be Tensors");
      ARETE_CHECK(!only.empty(),
                  AutogradError("backward", "`inputs` argument to `backward()` cannot be empty."));
    }
    if (CallWatcher* const watcher = CallWatcher::of_thread())
      watcher->backward(t, !keep && !create && only.empty());
    {
      const WithoutGil free;
      autograd::backward({&t, 1}, {&g, size_t(g.defined())}, keep, create, only);
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
// is_pinned(device=None): PyTorch's argument of old says for which kind of device.
PyObject* m_is_pinned(PyObject* o, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"device", nullptr};
    PyObject* device = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &device))
      return nullptr;
    Device d(DeviceType::cuda);
    if (device != Py_None && !to_device(device, d))
      type_error("is_pinned(): argument 'device' must be arete.device, not %s",
                 Py_TYPE(device)->tp_name);
    return PyBool_FromLong(d.is_cuda() && tensor_of(o).is_pinned());
  });
}

// The function is the Python object's, where cycles through it (a function that refers to the leaf)
// are found; the leaf's sink knows the object only weakly.
PyObject* m_register_post_accumulate(PyObject* o, PyObject* callable) {
  return guarded([&]() -> PyObject* {
    struct Held {
      PyObject* leaf;
      Ref number{};
      explicit Held(PyObject* weak) : leaf(weak) {}
      Held(const Held&) = delete;
      Held& operator=(const Held&) = delete;
      ~Held() {
        PyObject* const n = number.release();
        if (!Py_IsInitialized()) return;
        const WithGil gil;
        Py_DECREF(leaf);
        Py_XDECREF(n);
      }
    };
    if (!PyCallable_Check(callable))
      type_error("register_post_accumulate_grad_hook(): the hook must be callable");
    auto held = std::make_shared<Held>(checked(PyWeakref_NewRef(o, nullptr)));
    const uint64_t id =
        autograd::register_post_accumulate_grad_hook(tensor_of(o), [held](const Tensor&) {
          const WithGil gil;
          const Ref leaf = Ref::borrow(PyWeakref_GetObject(held->leaf));
          if (!leaf || leaf.get() == Py_None) return;
          PyObject* const all = reinterpret_cast<TensorObject*>(leaf.get())->hooks;
          const Ref f = Ref::borrow(all ? PyDict_GetItem(all, held->number.get()) : nullptr);
          if (!f) return;
          const Ref result(checked(PyObject_CallOneArg(f.get(), leaf.get())));
          if (result.get() == Py_None) return;
          PyErr_SetString(PyExc_RuntimeError,
                          "Tensor post accumulate grad hooks should return None.");
          throw PythonError{};
        });
    held->number = Ref(checked(PyLong_FromUnsignedLongLong(id)));
    PyObject*& all = reinterpret_cast<TensorObject*>(o)->hooks;
    if (!all) all = checked(PyDict_New());
    if (PyDict_SetItem(all, held->number.get(), callable) < 0) throw PythonError{};
    return Py_NewRef(held->number.get());
  });
}
PyObject* m_remove_post_accumulate(PyObject* o, PyObject* id) {
  return guarded([&]() -> PyObject* {
    int64_t i = 0;
    if (!to_int(id, i)) type_error("the number of a hook is an int");
    autograd::remove_post_accumulate_grad_hook(tensor_of(o), uint64_t(i));
    PyObject* const all = reinterpret_cast<TensorObject*>(o)->hooks;
    if (all && PyDict_Contains(all, id) == 1) PyDict_DelItem(all, id);
    Py_RETURN_NONE;
  });
}
PyObject* m_become(PyObject* o, PyObject* view) {
  return guarded([&]() -> PyObject* {
    if (!is_tensor(view)) type_error("_become(): a view of the tensor is wanted");
    ops::become(tensor_of(o), tensor_of(view));
    return Py_NewRef(o);
  });
}
// Of a tensor that a Function has written: its history is that of the result `from` from now on.
PyObject* m_take_history(PyObject* o, PyObject* from) {
  return guarded([&]() -> PyObject* {
    if (!is_tensor(from)) type_error("_take_history(): a tensor is wanted");
    const Edge edge = gradient_edge(tensor_of(from));
    ops::check_in_place(tensor_of(o), "mark_dirty", bool(edge));
    if (edge) ops::rebase_history(tensor_of(o), edge.node, edge.slot);
    return Py_NewRef(o);
  });
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
    // Where calls are written down a dtype that is asked for is looked at again later.
    const bool is_written_down = tracing::is_written_down();
    bool looks_again = false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
      PyObject* a = PyTuple_GET_ITEM(args, i);
      if (PyBool_Check(a)) {
        (flags++ == 0 ? non_blocking : copy) = flag(a);
      } else if (is_tensor(a)) {
        device = tensor_of(a).device();
        dtype = tensor_of(a).dtype();
        looks_again = is_written_down;
      } else if (to_dtype(a, dtype)) {
        looks_again = is_written_down;
      } else if (a != Py_None && !to_device(a, device)) {
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
          device = tensor_of(value).device(), dtype = tensor_of(value).dtype(),
          looks_again = is_written_down;
        else if (k == "dtype" && to_dtype(value, dtype))
          looks_again = is_written_down;
        else if (k == "device" && to_device(value, device))
          continue;
        else
          type_error("to() received an invalid argument '%s'", k.c_str());
      }
    }
    device = device.resolved();
    const bool converts = device != t.device() || dtype != t.dtype() || copy;
    if (!converts && !format && !looks_again) return Py_NewRef(o);
    const Format wanted = format_from(format, MemoryFormat::preserve, "to");
    // Sizes of 1 fit several orders: strides are then made those of the wanted one.
    if (!converts && !is_written_down && lies_as(t, wanted) &&
        (wanted.rank == 0 || ops::prefers_channels_last(t)))
      return Py_NewRef(o);
    check_rank(wanted, t.dim(), "to");
    if (!converts && is_written_down) {
      static const ops::OpRecord& to = record_of("to");
      return wrap(ops::call(to, {t, dtype, int64_t(wanted.order)}));
    }
    Tensor r;
    {
      const WithoutGil free;
      if (wanted.order == MemoryFormat::preserve) {
        r = t.to(device, dtype, non_blocking, copy);
      } else {  // conversion and order in one pass
        static const ops::OpRecord& to_copy = record_of("to_copy");
        r = ops::call(to_copy, {t, dtype, device, int64_t(wanted.order), non_blocking});
      }
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
    const char* const name = clone ? "clone" : "contiguous";
    const Format wanted =
        format_from(format, clone ? MemoryFormat::preserve : MemoryFormat::contiguous, name);
    const bool is_written_down = !clone && tracing::is_written_down();
    if (!clone && !is_written_down && lies_as(t, wanted)) return Py_NewRef(o);
    check_rank(wanted, t.dim(), name);
    const MemoryFormat f = wanted.order;
    if (is_written_down) return wrap(t.contiguous(f));
    if (t.numel() <= 1 << 15) return wrap(t.clone(f));
    Tensor r;
    {
      const WithoutGil free;
      r = t.clone(f);
    }
    return wrap(std::move(r));
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
    if (!is_tensor(src)) {
      Scalar number;
      if (!to_scalar(src, number))
        type_error("copy_(): argument 'other' (position 1) must be Tensor, not %s",
                   Py_TYPE(src)->tp_name);
      tensor_of(o).fill_(number);
    } else {
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
    return wrap_as(reinterpret_cast<PyTypeObject*>(cls), std::move(t));
  });
}
// t._in_class(cls): an object of a subclass that shows this very tensor from now on.
PyObject* m_in_class(PyObject* o, PyObject* cls) {
  return guarded([&]() -> PyObject* {
    if (!PyType_Check(cls) || !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), tensor_type))
      type_error("cls must be a subclass of Tensor");
    const Tensor t = tensor_of(o);
    rebind(o, t.detach());
    return wrap_as(reinterpret_cast<PyTypeObject*>(cls), t);
  });
}
// t._swap(other): each object shows the other's tensor from now on.
PyObject* m_swap(PyObject* o, PyObject* other) {
  return guarded([&]() -> PyObject* {
    if (!is_tensor(other)) type_error("expected a Tensor, not %s", Py_TYPE(other)->tp_name);
    swap_shown(o, other);
    return Py_NewRef(Py_None);
  });
}
// Who else holds the tensor than this object: graphs, views, lists in C++.
PyObject* m_use_count(PyObject* o, PyObject*) {
  return PyLong_FromLongLong(tensor_of(o).impl()->use_count());
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

}  // namespace

#define WITH_KEYWORDS(f) \
  reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f)), METH_VARARGS | METH_KEYWORDS
/// What inspect.signature() reads off the beginning of a method's text.
#define SIGNATURE(name, arguments, text) name "($self, " arguments ")\n--\n\n" text
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
    {"is_pinned", WITH_KEYWORDS(m_is_pinned),
     SIGNATURE("is_pinned", "device=None", "Whether a GPU reaches this host memory by itself.")},
    {"data_ptr", m_data_ptr, METH_NOARGS, "The address of the first element."},
    {"storage_offset", m_storage_offset, METH_NOARGS, nullptr},
    {"element_size", m_element_size, METH_NOARGS, "Bytes of one element."},
    {"get_device", m_get_device, METH_NOARGS, "The GPU's number, or -1."},
    {"detach", m_detach, METH_NOARGS, "The same memory without history."},
    {"detach_", m_detach_, METH_NOARGS, "Forgets the history."},
    {"retain_grad", m_retain_grad, METH_NOARGS, "Keeps the gradient of a non-leaf, too."},
    {"zero_", m_zero_, METH_NOARGS, "Sets all elements to zero."},
    {"share_memory_", m_share_memory_, METH_NOARGS, R"(Moves the memory to where processes share it.

What it or a process forked afterwards writes is seen by both, and arete.multiprocessing sends the tensor to others without a copy.
Views move with it. Memory of a GPU is moved to where the driver lets other processes open it; RuntimeError that says why where that
is not possible.

>>> x = arete.zeros(3).share_memory_()
>>> x.is_shared()
True
)"},
    {"is_shared", m_is_shared, METH_NOARGS,
     R"(Whether processes share the memory: see share_memory_().

>>> arete.zeros(3).is_shared()
False
)"},
    {"_shared_file", m_shared_file, METH_NOARGS, nullptr},
    {"_storage_key", m_storage_key, METH_NOARGS, nullptr},
    {"_storage_bytes", m_storage_bytes, METH_NOARGS, nullptr},
    {"_storage_data", m_storage_data, METH_NOARGS, nullptr},
    {"is_contiguous", WITH_KEYWORDS(m_is_contiguous),
     SIGNATURE("is_contiguous", "memory_format=None", "Whether the memory is row-major.")},
    {"size", WITH_KEYWORDS(m_size),
     SIGNATURE("size", "dim=None", "The sizes, or that of one dimension.")},
    {"stride", WITH_KEYWORDS(m_stride),
     SIGNATURE("stride", "dim=None", "The strides, or that of one dimension.")},
    {"requires_grad_", WITH_KEYWORDS(m_requires_grad_),
     SIGNATURE("requires_grad_", "requires_grad=True", "Whether gradients are wanted.")},
    {"backward", WITH_KEYWORDS(m_backward),
     SIGNATURE("backward", "gradient=None, retain_graph=None, create_graph=False, inputs=None",
               "Accumulates gradients in the leaves.")},
    {"_register_hook", m_register_hook, METH_O, nullptr},
    {"_remove_hook", m_remove_hook, METH_O, nullptr},
    {"_register_post_accumulate", m_register_post_accumulate, METH_O, nullptr},
    {"_remove_post_accumulate", m_remove_post_accumulate, METH_O, nullptr},
    {"to", WITH_KEYWORDS(m_to),
     SIGNATURE("to", "*args, non_blocking=False, copy=False, memory_format=None",
               "Another dtype or device; itself if nothing changes.")},
    {"clone", WITH_KEYWORDS(m_clone),
     SIGNATURE("clone", "*, memory_format=None", "A copy, with history.")},
    {"contiguous", WITH_KEYWORDS(m_contiguous),
     SIGNATURE("contiguous", "memory_format=None", "Itself or a copy in row-major order.")},
    {"pin_memory", WITH_KEYWORDS(m_pin_memory),
     SIGNATURE("pin_memory", "device=None", "A copy in pinned host memory.")},
    {"copy_", WITH_KEYWORDS(m_copy_),
     SIGNATURE("copy_", "other, non_blocking=False", "Takes over the values of another tensor.")},
    {"_put_at", m_put_at, METH_VARARGS, nullptr},
    {"_become", m_become, METH_O, nullptr},
    {"_take_history", m_take_history, METH_O, nullptr},
    {"_in_class", m_in_class, METH_O, nullptr},
    {"_swap", m_swap, METH_O, nullptr},
    {"_use_count", m_use_count, METH_NOARGS, nullptr},
    {"_make_subclass", WITH_KEYWORDS(make_subclass) | METH_STATIC, nullptr},
    {"_dlpack_capsule", m_dlpack_capsule, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace arete::python
