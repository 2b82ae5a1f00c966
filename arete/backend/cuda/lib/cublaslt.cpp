#include "arete/backend/cuda/lib/cublaslt.h"

#include <array>
#include <atomic>
#include <mutex>

#include "arete/backend/cuda/lib/library_setup.h"
#include "arete/backend/cuda/runtime/context.h"
#include "arete/backend/cuda/runtime/dynamic_library.h"
#include "arete/base/error.h"

namespace arete::cuda {
namespace {

struct Loaded {
  CublasLt functions;
  std::string problem;
};

const Loaded& loaded() {
  static const Loaded* const result = [] {
    auto* r = new Loaded;
    // The version this was built with comes first: its interface is the one known.
    const std::string built = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
    static const DynamicLibrary library(
        "cuBLASLt, CUDA's library of matrix products",
        {built, "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"});
    if (!library.is_open()) {
      r->problem = library.problem();
      return r;
    }
#define ARETE_LOOKUP(name) library.look_up(r->functions.name, #name, r->problem);
    ARETE_CUBLASLT_FUNCTIONS(ARETE_LOOKUP)
#undef ARETE_LOOKUP
    return r;
  }();
  return *result;
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt& functions = []() -> const CublasLt& {
    const Loaded& l = loaded();
    ARETE_CHECK(l.problem.empty(), DeviceError("", l.problem));
    return l.functions;
  }();
  return functions;
}

cublasLtHandle_t cublaslt_handle(DeviceContext& device) {
  // Never destroyed: products may run until the process ends.
  static std::array<std::atomic<cublasLtHandle_t>, 64> handles{};
  std::atomic<cublasLtHandle_t>& slot = handles[size_t(device.ordinal())];
  if (const cublasLtHandle_t h = slot.load(std::memory_order_acquire)) return h;
  static std::mutex mutex;
  static std::array<cublasLtHandle_t, 64> made{};  // also what could not be waited for yet
  const std::lock_guard lock(mutex);
  if (const cublasLtHandle_t h = slot.load(std::memory_order_relaxed)) return h;
  device.make_current();
  cublasLtHandle_t& h = made[size_t(device.ordinal())];
  if (!h) check_cublas(cublaslt().cublasLtCreate(&h), "cublasLtCreate");
  finish_setup(device);
  slot.store(h, std::memory_order_release);
  return h;
}

void throw_cublas_error(cublasStatus_t status, const std::string& what) {
  const Loaded& l = loaded();
  const std::string text = l.problem.empty()
                               ? what + ": " + l.functions.cublasLtGetStatusName(status) + " (" +
                                     l.functions.cublasLtGetStatusString(status) + ")"
                               : what + ": error " + std::to_string(int(status));
  if (status == CUBLAS_STATUS_ALLOC_FAILED) throw OutOfMemoryError("matmul", text);
  throw DeviceError("matmul", text);
}

cudaDataType_t cublas_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::f32:
      return CUDA_R_32F;
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f8e4m3:
      return CUDA_R_8F_E4M3;
    case DType::f8e5m2:
      return CUDA_R_8F_E5M2;
    case DType::c64:
      return CUDA_C_32F;
    case DType::c128:
      return CUDA_C_64F;
    default:
      ARETE_BUG("cuBLASLt has no such element type");
  }
}

MatmulDescriptor::MatmulDescriptor(cublasComputeType_t compute, cudaDataType_t scale) {
  check_cublas(cublaslt().cublasLtMatmulDescCreate(&get_, compute, scale),
               "cublasLtMatmulDescCreate");
}
MatmulDescriptor::~MatmulDescriptor() { cublaslt().cublasLtMatmulDescDestroy(get_); }

MatrixLayout::MatrixLayout(DType dtype, int64_t rows, int64_t columns, int64_t ld, int64_t batch,
                           int64_t batch_stride) {
  const CublasLt& l = cublaslt();
  check_cublas(l.cublasLtMatrixLayoutCreate(&get_, cublas_type(dtype), uint64_t(rows),
                                            uint64_t(columns), ld),
               "cublasLtMatrixLayoutCreate");
  if (batch == 1) return;
  const int32_t count = int32_t(batch);
  cublasStatus_t status = l.cublasLtMatrixLayoutSetAttribute(
      get_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = l.cublasLtMatrixLayoutSetAttribute(get_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &batch_stride, sizeof batch_stride);
  if (status == CUBLAS_STATUS_SUCCESS) return;
  l.cublasLtMatrixLayoutDestroy(get_);
  throw_cublas_error(status, "cublasLtMatrixLayoutSetAttribute");
}
MatrixLayout::~MatrixLayout() { cublaslt().cublasLtMatrixLayoutDestroy(get_); }

MatmulPreference::MatmulPreference() {
  check_cublas(cublaslt().cublasLtMatmulPreferenceCreate(&get_), "cublasLtMatmulPreferenceCreate");
}
MatmulPreference::~MatmulPreference() { cublaslt().cublasLtMatmulPreferenceDestroy(get_); }

}  // namespace arete::cuda
