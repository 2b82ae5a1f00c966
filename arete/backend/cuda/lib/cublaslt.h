// cuBLASLt, loaded when the first matrix product needs it: its functions, handles and descriptors.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>

#include "arete/core/dtype.h"

namespace arete::cuda {

class DeviceContext;

#define ARETE_CUBLASLT_FUNCTIONS(X)       \
  X(cublasLtCreate)                       \
  X(cublasLtGetStatusName)                \
  X(cublasLtGetStatusString)              \
  X(cublasLtMatmul)                       \
  X(cublasLtMatmulDescCreate)             \
  X(cublasLtMatmulDescDestroy)            \
  X(cublasLtMatmulDescSetAttribute)       \
  X(cublasLtMatrixLayoutCreate)           \
  X(cublasLtMatrixLayoutDestroy)          \
  X(cublasLtMatrixLayoutSetAttribute)     \
  X(cublasLtMatmulPreferenceCreate)       \
  X(cublasLtMatmulPreferenceDestroy)      \
  X(cublasLtMatmulPreferenceSetAttribute) \
  X(cublasLtMatmulAlgoGetHeuristic)

/// Pointers to the library's functions, under their own names.
struct CublasLt {
#define ARETE_CUBLASLT_POINTER(name) decltype(&::name) name = nullptr;
  ARETE_CUBLASLT_FUNCTIONS(ARETE_CUBLASLT_POINTER)
#undef ARETE_CUBLASLT_POINTER
};

/// The loaded library. DeviceError with the reason if there is none.
const CublasLt& cublaslt();
/// The handle of a device, made at first use; all threads share it.
cublasLtHandle_t cublaslt_handle(DeviceContext& device);

/// Throws OutOfMemoryError or DeviceError naming `what` and the library's name and text for it.
[[noreturn]] void throw_cublas_error(cublasStatus_t status, const std::string& what);
inline void check_cublas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    throw_cublas_error(status, what);
}

/// The library's name of an element type; BUG for integers and booleans.
cudaDataType_t cublas_type(DType dtype);

/// What is computed: types, transposes, epilogue.
class MatmulDescriptor {
 public:
  MatmulDescriptor(cublasComputeType_t compute, cudaDataType_t scale);
  ~MatmulDescriptor();
  MatmulDescriptor(const MatmulDescriptor&) = delete;
  MatmulDescriptor& operator=(const MatmulDescriptor&) = delete;
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check_cublas(cublaslt().cublasLtMatmulDescSetAttribute(get_, attribute, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
  }
  cublasLtMatmulDesc_t get() const { return get_; }

 private:
  cublasLtMatmulDesc_t get_ = nullptr;
};

/// A batch of column-major matrices.
class MatrixLayout {
 public:
  MatrixLayout(DType dtype, int64_t rows, int64_t columns, int64_t ld, int64_t batch,
               int64_t batch_stride);
  ~MatrixLayout();
  MatrixLayout(const MatrixLayout&) = delete;
  MatrixLayout& operator=(const MatrixLayout&) = delete;
  cublasLtMatrixLayout_t get() const { return get_; }

 private:
  cublasLtMatrixLayout_t get_ = nullptr;
};

/// What the choice of an algorithm may assume and spend.
class MatmulPreference {
 public:
  MatmulPreference();
  ~MatmulPreference();
  MatmulPreference(const MatmulPreference&) = delete;
  MatmulPreference& operator=(const MatmulPreference&) = delete;
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    check_cublas(
        cublaslt().cublasLtMatmulPreferenceSetAttribute(get_, attribute, &value, sizeof value),
        "cublasLtMatmulPreferenceSetAttribute");
  }
  cublasLtMatmulPreference_t get() const { return get_; }

 private:
  cublasLtMatmulPreference_t get_ = nullptr;
};

}  // namespace arete::cuda
