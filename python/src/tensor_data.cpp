#include "tensor_data.h"

#include <complex>
#include <cstring>
#include <limits>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/vmap.h"
#include "convert.h"
#include "numpy_data.h"
#include "tensor_object.h"

namespace arete::python {

namespace {

// ---- buffers

const char* format_of(DType t) {
  switch (t) {
    case kUInt8:
      return "B";
    case kUInt16:
      return "H";
    case kUInt32:
      return "I";
    case kUInt64:
      return "L";
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
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
      return size == 1 ? kUInt8 : size == 2 ? kUInt16 : size == 4 ? kUInt32 : kUInt64;
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
        "complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, and "
        "bool.",
        v.format ? v.format : "");
  // Exporters of contiguous memory may leave out strides, and of one dimension its size.
  Shape sizes, strides;
  for (int d = 0; d < v.ndim; ++d)
    sizes.push_back(v.shape ? v.shape[d] : v.len / std::max<Py_ssize_t>(v.itemsize, 1));
  strides = contiguous_strides(sizes);
  for (int d = 0; v.strides && d < v.ndim; ++d) {
    if (v.strides[d] < 0 || v.strides[d] % v.itemsize != 0) {
      PyErr_SetString(PyExc_ValueError,
                      v.strides[d] < 0
                          ? "At least one stride in the given numpy array is negative, and there "
                            "are no such tensors: make a copy with array.copy()"
                          : "given numpy array strides not a multiple of the element byte size: "
                            "make a copy with array.copy()");
      PyBuffer_Release(&held->view);
      throw PythonError{};
    }
    strides[size_t(d)] = v.strides[d] / v.itemsize;
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
    t.storage()->mark_exported();
    const Py_ssize_t size = Py_ssize_t(t.element_size());
    for (int64_t d = 0; d < t.dim(); ++d) {
      e->sizes.push_back(t.size(d));
      e->strides.push_back(t.stride(d) * size);
    }
    static std::byte nothing[16];
    void* const data = [&] {
      const WithoutGilToLook free(t);
      return t.data_ptr();
    }();
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
  else if constexpr (std::is_same_v<T, uint64_t>)
    return PyLong_FromUnsignedLongLong(v);
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
  Tensor c;
  const T* at = nullptr;
  {
    const WithoutGilToLook free(t);
    c = t.detach().to(kCPU, dtype_of<T>).contiguous();
    at = static_cast<const T*>(c.data_ptr());
  }
  return list_of(at, c.sizes());
}
}  // namespace

PyObject* to_list(const Tensor& t) {
  if (t.dtype() == kBool) return list_as<bool>(t);
  if (t.dtype() == kUInt64) return list_as<uint64_t>(t);
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
    if (t.dim() == 0 && is_integer(t.dtype()) && t.dtype() != kUInt8 && !is_batched(t))
      return Index(t.item<int64_t>());
    return Index(t.dtype() == kUInt8 ? t.to(kBool) : t);
  }
  const auto mask = [&](bool v) { return Index(full({}, Scalar(v), TensorOptions(x.device()))); };
  if (PyBool_Check(o)) return mask(o == Py_True);
  const bool is_array = is_numpy_array(o);
  if (is_numpy_scalar(o)) {
    Scalar v;
    if (to_scalar(o, v) && v.is_boolean()) return mask(v.to_bool());
  } else if (is_array || PyObject_CheckBuffer(o) || PySequence_Check(o)) {
    if (PyUnicode_Check(o))
      type_error(
          "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are "
          "valid indices (got str)");
    // Indices without a sign are converted.
    std::optional<DType> dtype;
    if (is_array) dtype = numpy_dtype(o, kInt64);
    if (dtype && *dtype >= kUInt16) dtype = kInt64;
    Tensor t = tensor_from(o, dtype, x.device());
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

// Whether a list stands for a tuple, as in PyTorch: one of fewer than 32 in which there is a
// tensor, a slice, None or `...`. One of lists is an index of several dimensions, as in NumPy and
// as PyTorch says it will be.
bool is_list_of_indices(PyObject* o) {
  if (!PyList_Check(o) || PyList_GET_SIZE(o) >= 32) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); ++i) {
    PyObject* const item = PyList_GET_ITEM(o, i);
    if (is_tensor(item) || PySlice_Check(item) || item == Py_Ellipsis || item == Py_None)
      return true;
  }
  return false;
}

}  // namespace

std::vector<Index> index_from(PyObject* o, const Tensor& x) {
  // Of its own: what __index__ of an element does may shorten the list.
  const Ref listed(is_list_of_indices(o) ? checked(PyList_AsTuple(o)) : nullptr);
  PyObject* const tuple = listed ? listed.get() : PyTuple_Check(o) ? o : nullptr;
  std::vector<Index> all;
  if (tuple) {
    const Py_ssize_t n = PyTuple_GET_SIZE(tuple);
    all.reserve(size_t(n));
    for (Py_ssize_t i = 0; i < n; ++i) all.push_back(index_entry(PyTuple_GET_ITEM(tuple, i), x));
  } else {
    all.push_back(index_entry(o, x));
  }
  return all;
}

}  // namespace arete::python
