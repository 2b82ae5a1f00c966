#include "arete/ops/dlpack.h"

#include <memory>
#include <optional>

#include "arete/core/modes.h"
#include "arete/device/cuda.h"
#include "arete/ops/creation.h"

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
struct DLVersion {
  uint32_t major, minor;
};
}  // namespace

// In the global namespace, where the header of DLPack has them.
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor*);
};
struct DLManagedTensorVersioned {
  DLVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned*);
  uint64_t flags;
  DLTensor dl_tensor;
};

namespace arete {

namespace {

constexpr uint64_t kIsCopied = 2;
constexpr int32_t kHost = 1, kGpu = 2, kPinned = 3;

DLDataType dl_type(DType t) {
  const uint8_t bits = uint8_t(8 * size_of(t));
  const uint8_t code = t == kBool         ? 6
                       : is_unsigned(t)   ? 1
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
  ARETE_CHECK(!is_grad_enabled() || !t.requires_grad(),
              AutogradError("to_dlpack",
                            "Can't export tensors that require gradient, use tensor.detach()"));
  ARETE_CHECK(!t.is_meta(), DeviceError("to_dlpack", "a meta tensor has no memory to share"));
  auto e = std::make_unique<Exported<Managed>>();
  e->tensor = t;
  for (int64_t d = 0; d < t.dim(); ++d) {
    e->sizes.push_back(t.size(d));
    e->strides.push_back(t.size(d) > 1 ? t.stride(d) : 1);
  }
  DLTensor& dl = e->managed.dl_tensor;
  dl.data = t.data_ptr();
  dl.device = {t.is_cuda() ? kGpu : kHost, t.is_cuda() ? t.device().index : 0};
  dl.ndim = int32_t(t.dim());
  dl.dtype = dl_type(t.dtype());
  dl.shape = e->sizes.data();
  dl.strides = e->strides.data();
  dl.byte_offset = 0;
  e->managed.manager_ctx = e.get();
  e->managed.deleter = [](Managed* m) { delete static_cast<Exported<Managed>*>(m->manager_ctx); };
  t.storage()->mark_exported();
  return &e.release()->managed;
}

template <class Managed>
Tensor import_tensor(Managed* m, void (*release)(Managed*)) {
  ARETE_CHECK(m, ValueError("from_dlpack", "the structure is null"));
  const DLTensor& dl = m->dl_tensor;
  const std::optional<DType> dtype = from_dl_type(dl.dtype);
  ARETE_CHECK(dtype, TypeError("from_dlpack", "unsupported element type")
                         .got("code " + std::to_string(dl.dtype.code) + ", " +
                              std::to_string(dl.dtype.bits) + " bits, " +
                              std::to_string(dl.dtype.lanes) + " lanes"));
  ARETE_CHECK(
      dl.device.type >= kHost && dl.device.type <= kPinned,
      TypeError("from_dlpack", "unsupported device type").got(std::to_string(dl.device.type)));
  ARETE_CHECK(dl.device.type != kGpu || (dl.device.id >= 0 && dl.device.id < cuda::device_count()),
              DeviceError("from_dlpack", "there is no GPU of this number")
                  .got(std::to_string(dl.device.id))
                  .hint(cuda::unavailable_reason()));
  ARETE_CHECK(dl.ndim >= 0 && (dl.ndim == 0 || dl.shape),
              ValueError("from_dlpack", "the shape is missing")
                  .got(std::to_string(dl.ndim) + " dimensions"));
  const Device device = dl.device.type == kGpu ? Device(DeviceType::cuda, dl.device.id) : kCPU;
  const IntList sizes(dl.shape, size_t(dl.ndim));
  const Shape strides =
      dl.strides ? Shape(IntList(dl.strides, size_t(dl.ndim))) : contiguous_strides(sizes);
  void* const data = dl.data ? static_cast<std::byte*>(dl.data) + dl.byte_offset : nullptr;
  return from_blob(data, sizes, strides, TensorOptions(*dtype, device), [m, release](void*) {
    if (release)
      release(m);
    else
      release_dlpack(m);
  });
}

}  // namespace

DLManagedTensor* to_dlpack(const Tensor& t) { return export_tensor<DLManagedTensor>(t); }

DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& t, bool copied) {
  auto* m = export_tensor<DLManagedTensorVersioned>(t);
  m->version = {1, 0};
  m->flags = copied ? kIsCopied : 0;
  return m;
}

Tensor from_dlpack(DLManagedTensor* managed, void (*release)(DLManagedTensor*)) {
  return import_tensor(managed, release);
}

Tensor from_dlpack(DLManagedTensorVersioned* managed, void (*release)(DLManagedTensorVersioned*)) {
  // Of a later version nothing is known but where the version stands.
  ARETE_CHECK(
      !managed || managed->version.major <= 1,
      TypeError("from_dlpack", "unsupported version").got(std::to_string(managed->version.major)));
  return import_tensor(managed, release);
}

void release_dlpack(DLManagedTensor* managed) {
  if (managed->deleter) managed->deleter(managed);
}
void release_dlpack(DLManagedTensorVersioned* managed) {
  if (managed->deleter) managed->deleter(managed);
}

}  // namespace arete
