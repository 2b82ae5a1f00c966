// DLPack (github.com/dmlc/dlpack): the C structures of its versions 0.8 and 1.0.
#include <algorithm>

#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "convert.h"
#include "tensor_data.h"

namespace arete::python {

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
  t.storage()->mark_exported();
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
