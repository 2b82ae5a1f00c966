// Tensors and their differentiation.
#include <cstring>

#include "arete/autograd/engine.h"
#include "arete/c_api/handles_internal.h"
#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/ops/dlpack.h"
#include "arete/ops/random.h"

using namespace arete;
using namespace arete::c_api;

static_assert(int(kUInt8) == ARETE_UINT8 && int(kInt8) == ARETE_INT8 &&
              int(kInt16) == ARETE_INT16 && int(kInt32) == ARETE_INT32 &&
              int(kInt64) == ARETE_INT64 && int(kFloat16) == ARETE_FLOAT16 &&
              int(kFloat32) == ARETE_FLOAT32 && int(kFloat64) == ARETE_FLOAT64 &&
              int(kComplex64) == ARETE_COMPLEX64 && int(kComplex128) == ARETE_COMPLEX128 &&
              int(kBool) == ARETE_BOOL && int(kBFloat16) == ARETE_BFLOAT16 &&
              int(kFloat8E4M3) == ARETE_FLOAT8_E4M3FN && int(kFloat8E5M2) == ARETE_FLOAT8_E5M2 &&
              int(kUInt16) == ARETE_UINT16 && int(kUInt32) == ARETE_UINT32 &&
              int(kUInt64) == ARETE_UINT64);

namespace {

IntList sizes_of(const int64_t* sizes, size_t ndim) {
  ARETE_CHECK(ndim <= 64,
              ValueError("", "a tensor has 64 dimensions at most").got(std::to_string(ndim)));
  const auto list = list_of(sizes, ndim, "sizes");
  return {list.data(), list.size()};
}

void check_bytes(const Tensor& t, const void* values, size_t bytes) {
  ARETE_CHECK(bytes == t.nbytes(), ValueError("", "the buffer is not as large as the tensor")
                                       .expected(std::to_string(t.nbytes()) + " bytes")
                                       .got(std::to_string(bytes)));
  if (bytes) given(static_cast<const std::byte*>(values), "values");
}

}  // namespace

arete_status arete_tensor_empty(const int64_t* sizes, size_t ndim, arete_dtype dtype,
                                const char* device, arete_tensor** out) {
  return guarded([&] {
    auto& result = given(out, "out");
    result = handle_of(
        empty(sizes_of(sizes, ndim), TensorOptions(dtype_of_code(dtype), device_of(device))));
  });
}

arete_status arete_tensor_from_data(const void* values, const int64_t* sizes, size_t ndim,
                                    arete_dtype dtype, const char* device, arete_tensor** out) {
  return guarded([&] {
    auto& result = given(out, "out");
    const IntList shape = sizes_of(sizes, ndim);
    const DType t = dtype_of_code(dtype);
    if (numel_of(shape)) given(static_cast<const std::byte*>(values), "values");
    result = handle_of(tensor_from_host(values, t, shape, TensorOptions(t, device_of(device))));
  });
}

arete_status arete_tensor_from_memory(void* data, const int64_t* sizes, const int64_t* strides,
                                      size_t ndim, arete_dtype dtype, const char* device,
                                      void (*release)(void* context), void* context,
                                      arete_tensor** out) {
  return guarded([&] {
    auto& result = given(out, "out");
    const IntList shape = sizes_of(sizes, ndim);
    const TensorOptions options(dtype_of_code(dtype), device_of(device));
    ARETE_CHECK(!options.device_.is_meta(), DeviceError("", "a meta tensor has no memory"));
    auto handle = std::make_unique<arete_tensor>();
    std::function<void(void*)> deleter;
    if (release) deleter = [release, context](void*) { release(context); };
    handle->value =
        from_blob(data, shape, strides ? Shape(IntList(strides, ndim)) : contiguous_strides(shape),
                  options, std::move(deleter));
    result = handle.release();
  });
}

arete_status arete_tensor_share(const arete_tensor* tensor, arete_tensor** out) {
  return guarded([&] { given(out, "out") = handle_of(tensor_of(tensor)); });
}

void arete_tensor_free(arete_tensor* tensor) { delete tensor; }

arete_status arete_tensor_read(const arete_tensor* tensor, void* values, size_t bytes) {
  return guarded([&] {
    const Tensor& t = tensor_of(tensor);
    check_bytes(t, values, bytes);
    const NoGradGuard no_grad;
    const Tensor host = t.to(kCPU).contiguous();
    if (bytes) std::memcpy(values, host.data_ptr(), bytes);
  });
}

arete_status arete_tensor_write(arete_tensor* tensor, const void* values, size_t bytes) {
  return guarded([&] {
    Tensor t = tensor_of(tensor);
    check_bytes(t, values, bytes);
    t.copy_(tensor_from_host(values, t.dtype(), t.sizes(), TensorOptions(t.dtype())));
  });
}

arete_status arete_tensor_item(const arete_tensor* tensor, double* out) {
  return guarded([&] { given(out, "out") = tensor_of(tensor).item().to_double(); });
}

arete_status arete_tensor_item_int(const arete_tensor* tensor, int64_t* out) {
  return guarded([&] {
    auto& result = given(out, "out");
    const Tensor& t = tensor_of(tensor);
    ARETE_CHECK(
        is_integral_or_bool(t.dtype()),
        TypeError("", "the tensor does not hold integers").got(std::string(name_of(t.dtype()))));
    result = t.item().to_int64();
  });
}

arete_status arete_tensor_text(const arete_tensor* tensor, char* text, size_t capacity,
                               size_t* length) {
  return guarded([&] {
    const std::string s = tensor_of(tensor).to_string();
    if (const auto room = list_of(text, capacity, "text"); !room.empty()) {
      const size_t n = s.copy(room.data(), room.size() - 1);
      room[n] = 0;
    }
    if (length) *length = s.size();
  });
}

arete_status arete_tensor_to(const arete_tensor* tensor, const char* device, arete_dtype dtype,
                             int32_t non_blocking, arete_tensor** out) {
  return guarded([&] {
    auto& result = given(out, "out");
    const Tensor& t = tensor_of(tensor);
    result = handle_of(t.to(device_of(device, t.device()),
                            dtype == -1 ? t.dtype() : dtype_of_code(dtype), non_blocking != 0));
  });
}

arete_dtype arete_tensor_dtype(const arete_tensor* tensor) {
  return tensor ? arete_dtype(tensor->value.dtype()) : -1;
}
int64_t arete_tensor_ndim(const arete_tensor* tensor) { return tensor ? tensor->value.dim() : -1; }
const int64_t* arete_tensor_sizes(const arete_tensor* tensor) {
  return tensor ? tensor->value.sizes().data() : nullptr;
}
const int64_t* arete_tensor_strides(const arete_tensor* tensor) {
  return tensor ? tensor->value.strides().data() : nullptr;
}
int64_t arete_tensor_numel(const arete_tensor* tensor) {
  return tensor ? tensor->value.numel() : -1;
}
size_t arete_tensor_nbytes(const arete_tensor* tensor) {
  return tensor ? tensor->value.nbytes() : 0;
}
int32_t arete_tensor_is_contiguous(const arete_tensor* tensor) {
  return tensor && tensor->value.is_contiguous();
}
const char* arete_tensor_device_type(const arete_tensor* tensor) {
  if (!tensor) return nullptr;
  const Device device = tensor->value.device();
  return device.is_cuda() ? "cuda" : device.is_meta() ? "meta" : "cpu";
}
int32_t arete_tensor_device_index(const arete_tensor* tensor) {
  return tensor ? tensor->value.device().index : -1;
}

arete_status arete_tensor_data(const arete_tensor* tensor, void** out) {
  return guarded([&] {
    auto& result = given(out, "out");
    const Tensor& t = tensor_of(tensor);
    t.storage()->mark_exported();
    result = t.data_ptr();
  });
}

size_t arete_dtype_size(arete_dtype dtype) {
  return dtype >= 0 && dtype < kNumDTypes ? size_of(DType(dtype)) : 0;
}

arete_status arete_tensor_to_dlpack(const arete_tensor* tensor, DLManagedTensor** out) {
  return guarded([&] { given(out, "out") = to_dlpack(tensor_of(tensor)); });
}
arete_status arete_tensor_to_dlpack_versioned(const arete_tensor* tensor,
                                              DLManagedTensorVersioned** out) {
  return guarded([&] { given(out, "out") = to_dlpack_versioned(tensor_of(tensor)); });
}
arete_status arete_tensor_from_dlpack(DLManagedTensor* managed, arete_tensor** out) {
  return guarded([&] {
    auto& result = given(out, "out");
    auto handle = std::make_unique<arete_tensor>();
    handle->value = from_dlpack(managed);
    result = handle.release();
  });
}
arete_status arete_tensor_from_dlpack_versioned(DLManagedTensorVersioned* managed,
                                                arete_tensor** out) {
  return guarded([&] {
    auto& result = given(out, "out");
    auto handle = std::make_unique<arete_tensor>();
    handle->value = from_dlpack(managed);
    result = handle.release();
  });
}

arete_status arete_manual_seed(uint64_t seed) {
  return guarded([&] { manual_seed(seed); });
}

arete_status arete_tensor_set_requires_grad(arete_tensor* tensor, int32_t requires_grad) {
  return guarded([&] { given(tensor, "tensor").value.requires_grad_(requires_grad != 0); });
}

int32_t arete_tensor_requires_grad(const arete_tensor* tensor) {
  return tensor && tensor->value.requires_grad();
}

arete_status arete_tensor_backward(const arete_tensor* tensor, const arete_tensor* gradient,
                                   int32_t retain_graph, int32_t create_graph) {
  return guarded([&] {
    tensor_of(tensor).backward(gradient ? gradient->value : Tensor(), retain_graph != 0,
                               create_graph != 0);
  });
}

arete_status arete_tensor_grad(const arete_tensor* tensor, arete_tensor** out) {
  return guarded([&] { given(out, "out") = handle_of(tensor_of(tensor).grad()); });
}

arete_status arete_tensor_set_grad(arete_tensor* tensor, const arete_tensor* grad) {
  return guarded([&] { tensor_of(tensor).set_grad(grad ? grad->value : Tensor()); });
}

arete_status arete_tensor_detach(const arete_tensor* tensor, arete_tensor** out) {
  return guarded([&] { given(out, "out") = handle_of(tensor_of(tensor).detach()); });
}

arete_status arete_grad(const arete_tensor* const* outputs, size_t n_outputs,
                        const arete_tensor* const* inputs, size_t n_inputs,
                        const arete_tensor* const* gradients, int32_t retain_graph,
                        int32_t create_graph, int32_t allow_unused, arete_tensor** results) {
  return guarded([&] {
    const auto of = tensors_of(outputs, n_outputs, "outputs");
    const auto with_respect_to = tensors_of(inputs, n_inputs, "inputs");
    const auto seeds = tensors_of(gradients, gradients ? n_outputs : 0, "gradients", true);
    list_of(results, n_inputs, "results");
    const TensorList found = autograd::grad(of, with_respect_to, seeds, retain_graph != 0,
                                            create_graph != 0, allow_unused != 0);
    give({found.data(), found.size()}, results, &n_inputs);
  });
}

arete_status arete_set_grad_enabled(int32_t enabled, int32_t* before) {
  if (before) *before = is_grad_enabled();
  modes().grad_enabled = enabled != 0;
  return ARETE_OK;
}
