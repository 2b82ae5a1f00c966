#include "tensor_data.h"

#include <cstring>
#include <limits>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "convert.h"
#include "tensor_object.h"

namespace arete::python {

namespace {

// ---- nested lists

/// What a nested list looks like before its values are copied.
struct ListShape {
  Shape sizes;
  int category = 0;            // of the widest number: 0 bool, 1 int, 2 float, 3 complex
  std::optional<DType> dtype;  // where tensors or NumPy scalars say
  int64_t count = 0;
};

bool is_list(PyObject* o) { return PyList_Check(o) || PyTuple_Check(o); }

void not_a_number(PyObject* o) {
  if (PyUnicode_Check(o)) type_error("new(): invalid data type 'str'");
  type_error("must be a number or a sequence of numbers, not %s", Py_TYPE(o)->tp_name);
}

/// An object that is no list, but stands for several numbers.
Tensor inner_tensor(PyObject* o) {
  if (is_tensor(o)) return tensor_of(o);
  if (PyFloat_CheckExact(o) || PyLong_Check(o) || PyComplex_CheckExact(o)) return {};
  if (PyObject_CheckBuffer(o)) return tensor_over_buffer(o);
  return {};
}

void measure(PyObject* o, size_t depth, ListShape& s) {
  if (depth > 64) {
    PyErr_SetString(PyExc_ValueError, "too many dimensions (lists within lists beyond 64)");
    throw PythonError{};
  }
  const auto expect = [&](int64_t n) {
    if (s.sizes.size() <= depth) {
      s.sizes.push_back(n);
    } else if (s.sizes[depth] != n) {
      PyErr_Format(PyExc_ValueError, "expected sequence of length %lld at dim %zu (got %lld)",
                   static_cast<long long>(s.sizes[depth]), depth, static_cast<long long>(n));
      throw PythonError{};
    }
  };
  if (is_list(o)) {
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    if (s.count > 0 && s.sizes.size() <= depth) not_a_number(o);
    expect(n);
    for (Py_ssize_t i = 0; i < n; ++i) measure(PySequence_Fast_GET_ITEM(o, i), depth + 1, s);
    return;
  }
  if (const Tensor t = inner_tensor(o); t.defined()) {
    for (int64_t d = 0; d < t.dim(); ++d) {
      if (s.count > 0 && s.sizes.size() <= depth + size_t(d)) not_a_number(o);
      s.sizes.size() <= depth + size_t(d)
          ? s.sizes.push_back(t.size(d))
          : (s.sizes[depth + size_t(d)] == t.size(d)
                 ? void()
                 : (PyErr_SetString(PyExc_ValueError, "tensors of unequal sizes in a list"),
                    throw PythonError{}));
    }
    s.category = std::max(s.category, category_of(t.dtype()));
    s.dtype = s.dtype ? promote_types(*s.dtype, t.dtype()) : t.dtype();
    s.count += std::max<int64_t>(t.numel(), 1);
    return;
  }
  if (s.sizes.size() > depth) {
    PyErr_Format(PyExc_TypeError, "expected a sequence at dim %zu, got %s", depth,
                 Py_TYPE(o)->tp_name);
    throw PythonError{};
  }
  Scalar v;
  if (PyLong_CheckExact(o)) {
    s.category = std::max(s.category, 1);
  } else if (to_scalar(o, v)) {
    s.category = std::max(s.category, v.category());
  } else {
    not_a_number(o);
  }
  ++s.count;
}

template <class T>
T number_from(PyObject* o) {
  Scalar v;
  if (PyFloat_CheckExact(o)) return T(PyFloat_AS_DOUBLE(o));
  if (!to_scalar(o, v)) not_a_number(o);
  if constexpr (std::is_same_v<T, std::complex<double>>)
    return v.to_complex();
  else if constexpr (std::is_same_v<T, bool>)
    return v.to_bool();
  else if constexpr (std::is_same_v<T, int64_t>)
    return v.to_int64();
  else
    return v.to_double();
}

template <class T>
void fill(PyObject* o, T*& at) {
  if (is_list(o)) {
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    for (Py_ssize_t i = 0; i < n; ++i) fill(PySequence_Fast_GET_ITEM(o, i), at);
    return;
  }
  if (const Tensor t = inner_tensor(o); t.defined()) {
    const Tensor c = t.detach().to(kCPU, dtype_of<T>).contiguous();
    const int64_t n = c.numel();
    if (n > 0) std::memcpy(at, c.data_ptr(), size_t(n) * sizeof(T));
    at += n;
    return;
  }
  *at++ = number_from<T>(o);
}

template <class T>
Tensor tensor_of_list(PyObject* data, const Shape& sizes, DType dtype, Device device) {
  Tensor host = empty(sizes, TensorOptions(dtype_of<T>));
  T* at = static_cast<T*>(host.data_ptr());
  if (host.numel() > 0) fill<T>(data, at);
  return host.to(device, dtype);
}

// ---- buffers

const char* format_of(DType t) {
  switch (t) {
    case kUInt8:
      return "B";
    case kInt8:
      return "b";
    case kInt16:
      return "h";
    case kInt32:
      return "i";
    case kInt64:
      return "l";  // NumPy's own: "q" is another type of the same size there
    case kFloat16:
      return "e";
    case kFloat32:
      return "f";
    case kFloat64:
      return "d";
    case kComplex64:
      return "Zf";
    case kComplex128:
      return "Zd";
    case kBool:
      return "?";
    default:
      return nullptr;
  }
}

std::optional<DType> dtype_of_format(const char* format, Py_ssize_t size) {
  if (!format) return kUInt8;
  std::string_view f(format);
  if (!f.empty() && (f[0] == '@' || f[0] == '=' || f[0] == '<')) f.remove_prefix(1);
  if (f == "Zf") return kComplex64;
  if (f == "Zd") return kComplex128;
  if (f.size() != 1) return {};
  switch (f[0]) {
    case '?':
      return kBool;
    case 'e':
      return kFloat16;
    case 'f':
      return kFloat32;
    case 'd':
      return kFloat64;
    case 'B':
      return kUInt8;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
      return size == 1 ? kInt8 : size == 2 ? kInt16 : size == 4 ? kInt32 : kInt64;
    default:
      return {};
  }
}

// What a tensor over a buffer must give back; done under the GIL, by whatever thread frees it.
struct HeldBuffer {
  Py_buffer view;
};
void release_held(HeldBuffer* h) {
  if (Py_IsInitialized()) {
    const WithGil gil;
    PyBuffer_Release(&h->view);
  }
  delete h;
}

}  // namespace

Tensor tensor_over_buffer(PyObject* o) {
  if (!PyObject_CheckBuffer(o) || PyBytes_Check(o) || PyByteArray_Check(o)) return {};
  auto held = std::make_unique<HeldBuffer>();
  if (PyObject_GetBuffer(o, &held->view, PyBUF_STRIDES | PyBUF_FORMAT | PyBUF_WRITABLE) < 0) {
    PyErr_Clear();  // a read-only array can be looked at, though not written to
    if (PyObject_GetBuffer(o, &held->view, PyBUF_STRIDES | PyBUF_FORMAT) < 0) throw PythonError{};
  }
  const Py_buffer& v = held->view;
  const auto fail = [&](const char* format, auto... more) {
    PyErr_Format(PyExc_TypeError, format, more...);
    PyBuffer_Release(&held->view);
    throw PythonError{};
  };
  const std::optional<DType> dtype = dtype_of_format(v.format, v.itemsize);
  if (!dtype || Py_ssize_t(size_of(*dtype)) != v.itemsize)
    fail(
        "can't convert an array of elements '%s'. The supported ones are float64, float32, "
        "float16, "
        "complex64, complex128, int64, int32, int16, int8, uint8, and bool.",
        v.format ? v.format : "");
  Shape sizes, strides;
  for (int d = 0; d < v.ndim; ++d) {
    sizes.push_back(v.shape[d]);
    if (v.strides[d] < 0 || v.strides[d] % v.itemsize != 0) {
      PyErr_SetString(PyExc_ValueError,
                      "At least one stride in the given array is negative (or no multiple of the "
                      "element's size), and such tensors are not supported. (You can probably work "
                      "around this by making a copy with array.copy().)");
      PyBuffer_Release(&held->view);
      throw PythonError{};
    }
    strides.push_back(v.strides[d] / v.itemsize);
  }
  HeldBuffer* h = held.release();
  static std::byte nothing;
  void* const data = h->view.buf ? h->view.buf : &nothing;
  return from_blob(data, sizes, strides, TensorOptions(*dtype), [h](void*) { release_held(h); });
}

Tensor tensor_over_bytes(PyObject* o, DType dtype, int64_t count, int64_t offset) {
  auto held = std::make_unique<HeldBuffer>();
  if (PyObject_GetBuffer(o, &held->view, PyBUF_WRITABLE) < 0) {
    PyErr_Clear();
    if (PyObject_GetBuffer(o, &held->view, PyBUF_SIMPLE) < 0) throw PythonError{};
  }
  const int64_t bytes = held->view.len, size = int64_t(size_of(dtype));
  const auto fail = [&](const char* text) {
    PyBuffer_Release(&held->view);
    PyErr_SetString(PyExc_ValueError, text);
    throw PythonError{};
  };
  if (bytes == 0) fail("both buffer length and count must not be 0");
  if (offset < 0 || offset >= bytes)
    fail("offset must be non-negative and no greater than buffer length minus 1");
  if (count == 0 || count < -1) fail("both buffer length and count must not be 0");
  if (count < 0) {
    if ((bytes - offset) % size != 0) fail("buffer length must be a multiple of element size");
    count = (bytes - offset) / size;
  }
  if (count > (bytes - offset) / size)
    fail("requested buffer length after offset must not be greater than actual buffer length");
  HeldBuffer* h = held.release();
  return from_blob(static_cast<std::byte*>(h->view.buf) + offset, {count}, TensorOptions(dtype),
                   [h](void*) { release_held(h); });
}

Tensor tensor_from(PyObject* data, std::optional<DType> dtype, Device device) {
  if (is_tensor(data)) {
    const Tensor t = tensor_of(data).detach();
    return t.to(device, dtype.value_or(t.dtype()), false, true);
  }
  if (const Tensor t = inner_tensor(data); t.defined())
    return t.to(device, dtype.value_or(t.dtype()), false, true);
  // Sequences that are no lists, such as ranges.
  Ref as_list;
  if (!is_list(data) && PySequence_Check(data) && !PyUnicode_Check(data) && !PyBytes_Check(data)) {
    as_list = Ref(checked(PySequence_List(data)));
    data = as_list.get();
  }
  ListShape s;
  measure(data, 0, s);
  const DType found = s.count == 0                                     ? default_dtype()
                      : s.dtype && category_of(*s.dtype) >= s.category ? *s.dtype
                      : s.category == 0                                ? kBool
                      : s.category == 1                                ? kInt64
                      : s.category == 2                                ? default_dtype()
                      : default_dtype() == kFloat64                    ? kComplex128
                                                                       : kComplex64;
  const DType wanted = dtype.value_or(found);
  if (s.category == 3 && !is_complex(wanted))
    type_error("can't convert complex to %s", std::string(name_of(wanted)).c_str());
  switch (s.category) {
    case 0:
      return tensor_of_list<bool>(data, s.sizes, wanted, device);
    case 1:
      return tensor_of_list<int64_t>(data, s.sizes, wanted, device);
    case 2:
      return tensor_of_list<double>(data, s.sizes, wanted, device);
    default:
      return tensor_of_list<std::complex<double>>(data, s.sizes, wanted, device);
  }
}

// ---- out of tensors

namespace {
// Shape and strides of an exported buffer live as long as it does.
struct Export {
  std::vector<Py_ssize_t> sizes, strides;
  Tensor tensor;
};
}  // namespace

int get_buffer(PyObject* o, Py_buffer* view, int flags) {
  return guarded(-1, [&] {
    const Tensor& t = tensor_of(o);
    view->obj = nullptr;
    const auto fail = [&](PyObject* kind, const std::string& text) {
      PyErr_SetString(kind, text.c_str());
      return -1;
    };
    if (!t.device().is_cpu())
      return fail(PyExc_TypeError, "can't convert " + t.device().to_string() +
                                       " device type tensor to numpy. Use Tensor.cpu() to copy the "
                                       "tensor to host memory first.");
    if (is_grad_enabled() && t.requires_grad())
      return fail(PyExc_RuntimeError,
                  "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() "
                  "instead.");
    const char* const format = format_of(t.dtype());
    if (!format)
      return fail(PyExc_TypeError, "Got unsupported ScalarType " + std::string(name_of(t.dtype())));
    if (!(flags & PyBUF_STRIDES) && !t.is_contiguous())
      return fail(PyExc_BufferError, "the tensor is not contiguous");
    auto e = std::make_unique<Export>();
    e->tensor = t;
    const Py_ssize_t size = Py_ssize_t(t.element_size());
    for (int64_t d = 0; d < t.dim(); ++d) {
      e->sizes.push_back(t.size(d));
      e->strides.push_back(t.stride(d) * size);
    }
    static std::byte nothing[16];
    void* const data = t.data_ptr();
    view->buf = data ? data : nothing;
    view->obj = Py_NewRef(o);
    view->len = t.numel() * size;
    view->itemsize = size;
    view->readonly = 0;
    view->ndim = int(t.dim());
    view->format = flags & PyBUF_FORMAT ? const_cast<char*>(format) : nullptr;
    view->shape = e->sizes.data();
    view->strides = flags & PyBUF_STRIDES ? e->strides.data() : nullptr;
    view->suboffsets = nullptr;
    view->internal = e.release();
    return 0;
  });
}

void release_buffer(PyObject*, Py_buffer* view) { delete static_cast<Export*>(view->internal); }

namespace {
template <class T>
PyObject* python_number(T v) {
  if constexpr (std::is_same_v<T, bool>)
    return PyBool_FromLong(v);
  else if constexpr (std::is_same_v<T, int64_t>)
    return PyLong_FromLongLong(v);
  else if constexpr (std::is_same_v<T, double>)
    return PyFloat_FromDouble(v);
  else
    return PyComplex_FromDoubles(v.real(), v.imag());
}
template <class T>
PyObject* list_of(const T*& at, IntList sizes) {
  if (sizes.empty()) return python_number(*at++);
  PyObject* list = checked(PyList_New(sizes[0]));
  for (int64_t i = 0; i < sizes[0]; ++i)
    PyList_SET_ITEM(list, i, list_of(at, IntList(sizes.data() + 1, sizes.size() - 1)));
  return list;
}
template <class T>
PyObject* list_as(const Tensor& t) {
  const Tensor c = t.detach().to(kCPU, dtype_of<T>).contiguous();
  const T* at = static_cast<const T*>(c.data_ptr());
  return list_of(at, c.sizes());
}
}  // namespace

PyObject* to_list(const Tensor& t) {
  if (t.dtype() == kBool) return list_as<bool>(t);
  if (is_integer(t.dtype())) return list_as<int64_t>(t);
  if (is_complex(t.dtype())) return list_as<std::complex<double>>(t);
  return list_as<double>(t);
}

// ---- indices

namespace {

std::optional<int64_t> slice_part(PyObject* o) {
  if (o == Py_None) return {};
  int64_t v = 0;
  if (!to_int(o, v)) {
    if (PyBool_Check(o)) return o == Py_True;
    PyErr_SetString(PyExc_TypeError,
                    "slice indices must be integers or None or have an __index__ method");
    throw PythonError{};
  }
  return v;
}

Index index_entry(PyObject* o, const Tensor& x) {
  if (PyLong_CheckExact(o)) {
    int64_t v = 0;
    to_int(o, v);
    return Index(v);
  }
  if (PySlice_Check(o)) {
    auto* s = reinterpret_cast<PySliceObject*>(o);
    return Index(Slice(slice_part(s->start), slice_part(s->stop), slice_part(s->step).value_or(1)));
  }
  if (o == Py_None) return Index(kNewAxis);
  if (o == Py_Ellipsis) return Index(kEllipsis);
  if (is_tensor(o)) {
    const Tensor& t = tensor_of(o);
    // A number in a tensor selects, as a Python number does (a mask does not).
    if (t.dim() == 0 && is_integer(t.dtype()) && t.dtype() != kUInt8)
      return Index(t.item<int64_t>());
    return Index(t.dtype() == kUInt8 ? t.to(kBool) : t);
  }
  if (PyBool_Check(o)) return Index(full({}, Scalar(o == Py_True), TensorOptions(x.device())));
  if (is_list(o) || PyObject_CheckBuffer(o) || PySequence_Check(o)) {
    if (PyUnicode_Check(o))
      type_error(
          "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are "
          "valid indices (got str)");
    Tensor t = tensor_from(o, {}, x.device());
    if (t.numel() == 0) t = t.to(kInt64);
    if (t.dim() == 0 && is_integer(t.dtype())) return Index(t.item<int64_t>());
    return Index(std::move(t));
  }
  int64_t v = 0;
  if (to_int(o, v)) return Index(v);
  PyErr_Format(PyExc_IndexError,
               "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are "
               "valid indices (got %s)",
               Py_TYPE(o)->tp_name);
  throw PythonError{};
}

}  // namespace

std::vector<Index> index_from(PyObject* o, const Tensor& x) {
  std::vector<Index> all;
  if (PyTuple_Check(o)) {
    all.reserve(size_t(PyTuple_GET_SIZE(o)));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
      all.push_back(index_entry(PyTuple_GET_ITEM(o, i), x));
  } else {
    all.push_back(index_entry(o, x));
  }
  return all;
}

// ---- DLPack (github.com/dmlc/dlpack, the C structures of its versions 0.8 and 1.0)

namespace {

struct DLDevice {
  int32_t type, id;
};
struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DLManaged {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManaged*);
};
struct DLVersion {
  uint32_t major, minor;
};
struct DLManagedVersioned {
  DLVersion version;
  void* context;
  void (*deleter)(DLManagedVersioned*);
  uint64_t flags;
  DLTensor tensor;
};
constexpr uint64_t kReadOnly = 1, kIsCopied = 2;

DLDataType dl_type(DType t) {
  const uint8_t bits = uint8_t(8 * size_of(t));
  const uint8_t code = t == kBool         ? 6
                       : t == kUInt8      ? 1
                       : t == kBFloat16   ? 4
                       : t == kFloat8E4M3 ? 10
                       : t == kFloat8E5M2 ? 12
                       : is_complex(t)    ? 5
                       : is_floating(t)   ? 2
                                          : 0;
  return {code, bits, 1};
}
std::optional<DType> from_dl_type(DLDataType d) {
  if (d.lanes != 1) return {};
  for (int i = 0; i < kNumDTypes; ++i) {
    const DLDataType k = dl_type(DType(i));
    if (k.code == d.code && k.bits == d.bits) return DType(i);
  }
  return {};
}

template <class Managed>
struct Exported {
  Managed managed;
  Tensor tensor;
  Shape sizes, strides;
};

template <class Managed>
Managed* export_tensor(const Tensor& t) {
  auto* e = new Exported<Managed>{};
  e->tensor = t;
  for (int64_t d = 0; d < t.dim(); ++d) {
    e->sizes.push_back(t.size(d));
    e->strides.push_back(t.size(d) > 1 ? t.stride(d) : 1);
  }
  DLTensor& dl = e->managed.tensor;
  dl.data = t.data_ptr();
  dl.device = {t.device().is_cuda() ? 2 : 1, t.device().is_cuda() ? t.device().index : 0};
  dl.ndim = int32_t(t.dim());
  dl.dtype = dl_type(t.dtype());
  dl.shape = e->sizes.data();
  dl.strides = e->strides.data();
  dl.byte_offset = 0;
  e->managed.context = e;
  e->managed.deleter = [](Managed* m) { delete static_cast<Exported<Managed>*>(m->context); };
  return &e->managed;
}

template <class Managed>
void drop_capsule(PyObject* capsule, const char* name) {
  // Consumers rename the capsules they take over.
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* m = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (m && m->deleter) m->deleter(m);
}

template <class Managed>
Tensor import_tensor(Managed* m) {
  const DLTensor& dl = m->tensor;
  const std::optional<DType> dtype = from_dl_type(dl.dtype);
  if (!dtype)
    type_error("from_dlpack: unsupported element type (code %d, %d bits, %d lanes)",
               int(dl.dtype.code), int(dl.dtype.bits), int(dl.dtype.lanes));
  Device device;
  if (dl.device.type == 2)
    device = Device(DeviceType::cuda, dl.device.id);
  else if (dl.device.type != 1 && dl.device.type != 3)
    type_error("from_dlpack: unsupported device type %d", int(dl.device.type));
  Shape sizes, strides;
  int64_t row = 1;
  for (int i = dl.ndim - 1; i >= 0; --i) {
    sizes.push_back(dl.shape[i]);
    strides.push_back(dl.strides ? dl.strides[i] : row);
    row *= std::max<int64_t>(dl.shape[i], 1);
  }
  std::reverse(sizes.begin(), sizes.end());
  std::reverse(strides.begin(), strides.end());
  static std::byte nothing;
  void* data = dl.data ? static_cast<std::byte*>(dl.data) + dl.byte_offset : &nothing;
  return from_blob(data, sizes, strides, TensorOptions(*dtype, device), [m](void*) {
    if (!m->deleter || !Py_IsInitialized()) return;
    const WithGil gil;  // deleters of Python's libraries may need it
    m->deleter(m);
  });
}

}  // namespace

PyObject* to_dlpack(const Tensor& t, bool versioned, bool copied) {
  if (is_grad_enabled() && t.requires_grad()) {
    PyErr_SetString(PyExc_BufferError,
                    "Can't export tensors that require gradient, use tensor.detach()");
    throw PythonError{};
  }
  if (versioned) {
    auto* m = export_tensor<DLManagedVersioned>(t);
    m->version = {1, 0};
    m->flags = copied ? kIsCopied : 0;
    return PyCapsule_New(m, "dltensor_versioned", [](PyObject* c) {
      drop_capsule<DLManagedVersioned>(c, "dltensor_versioned");
    });
  }
  return PyCapsule_New(export_tensor<DLManaged>(t), "dltensor",
                       [](PyObject* c) { drop_capsule<DLManaged>(c, "dltensor"); });
}

Tensor from_dlpack(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    auto* m = static_cast<DLManagedVersioned*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    if (m->version.major > 1) type_error("from_dlpack: unsupported version %u", m->version.major);
    Tensor t = import_tensor(m);
    PyCapsule_SetName(capsule, "used_dltensor_versioned");
    return t;
  }
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    Tensor t = import_tensor(static_cast<DLManaged*>(PyCapsule_GetPointer(capsule, "dltensor")));
    PyCapsule_SetName(capsule, "used_dltensor");
    return t;
  }
  type_error("from_dlpack: expected a DLPack capsule that was not used before, not %s",
             Py_TYPE(capsule)->tp_name);
}

}  // namespace arete::python
