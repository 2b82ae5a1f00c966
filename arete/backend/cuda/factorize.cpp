// Factorizations by cuSOLVER, one matrix after the other.
#include <algorithm>
#include <array>
#include <mutex>

#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/lib/cusolver.h"
#include "arete/backend/cuda/scratch_memory.h"
#include "arete/base/error.h"

namespace arete::cuda {
namespace {

// One handle for each device; it is used under its lock, since it carries the stream.
struct Handle {
  std::mutex mutex;
  cusolverDnHandle_t handle = nullptr;
};
Handle& handle_of(int ordinal) {
  static auto* const handles = new std::array<Handle, 64>;
  return (*handles)[size_t(ordinal)];
}

cublasFillMode_t triangle(bool upper) {
  return upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
}

int to_int(int64_t n) {
  ARETE_CHECK(n <= INT32_MAX, ValueError("linalg", "a matrix is too large for cuSOLVER"));
  return int(n);
}

}  // namespace

template <class F>
void CudaBackend::with_solver(F&& f) {
  const CUstream stream = enter(std::initializer_list<const prim::View*>{});
  Handle& h = handle_of(context_.ordinal());
  const std::lock_guard lock(h.mutex);
  if (!h.handle) check_cusolver(cusolver().cusolverDnCreate(&h.handle), "Create");
  check_cusolver(cusolver().cusolverDnSetStream(h.handle, reinterpret_cast<cudaStream_t>(stream)),
                 "SetStream");
  f(h.handle);
}

void CudaBackend::potrf(DType dtype, bool upper, int64_t n, int64_t count, void* a, int32_t* info) {
  const auto run = [&]<class T>(T* at, auto buffer_size, auto factorize) {
    with_solver([&](cusolverDnHandle_t h) {
      const int order = to_int(n);
      int elements = 0;
      check_cusolver(buffer_size(h, triangle(upper), order, at, order, &elements),
                     "potrf_bufferSize");
      const Scratch work(*this, sizeof(T) * size_t(elements));
      for (int64_t b = 0; b < count; ++b)
        check_cusolver(factorize(h, triangle(upper), order, at + b * n * n, order,
                                 reinterpret_cast<T*>(work.data()), elements, info + b),
                       "potrf");
    });
  };
  if (dtype == kFloat64)
    run(static_cast<double*>(a), cusolver().cusolverDnDpotrf_bufferSize,
        cusolver().cusolverDnDpotrf);
  else
    run(static_cast<float*>(a), cusolver().cusolverDnSpotrf_bufferSize,
        cusolver().cusolverDnSpotrf);
}

void CudaBackend::getrf(DType dtype, int64_t m, int64_t n, int64_t count, void* a, int32_t* pivots,
                        int32_t* info) {
  const auto run = [&]<class T>(T* at, auto buffer_size, auto factorize) {
    with_solver([&](cusolverDnHandle_t h) {
      const int rows = to_int(m), columns = to_int(n);
      int elements = 0;
      check_cusolver(buffer_size(h, rows, columns, at, rows, &elements), "getrf_bufferSize");
      const Scratch work(*this, sizeof(T) * size_t(elements));
      for (int64_t b = 0; b < count; ++b)
        check_cusolver(
            factorize(h, rows, columns, at + b * m * n, rows, reinterpret_cast<T*>(work.data()),
                      pivots + b * std::min(m, n), info + b),
            "getrf");
    });
  };
  if (dtype == kFloat64)
    run(static_cast<double*>(a), cusolver().cusolverDnDgetrf_bufferSize,
        cusolver().cusolverDnDgetrf);
  else
    run(static_cast<float*>(a), cusolver().cusolverDnSgetrf_bufferSize,
        cusolver().cusolverDnSgetrf);
}

void CudaBackend::syevd(DType dtype, bool vectors, bool upper, int64_t n, int64_t count, void* a,
                        void* w, int32_t* info) {
  const auto run = [&]<class T>(T* at, T* values, auto buffer_size, auto factorize) {
    with_solver([&](cusolverDnHandle_t h) {
      const int order = to_int(n);
      const cusolverEigMode_t mode =
          vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
      int elements = 0;
      check_cusolver(buffer_size(h, mode, triangle(upper), order, at, order, values, &elements),
                     "syevd_bufferSize");
      const Scratch work(*this, sizeof(T) * size_t(elements));
      for (int64_t b = 0; b < count; ++b)
        check_cusolver(
            factorize(h, mode, triangle(upper), order, at + b * n * n, order, values + b * n,
                      reinterpret_cast<T*>(work.data()), elements, info + b),
            "syevd");
    });
  };
  if (dtype == kFloat64)
    run(static_cast<double*>(a), static_cast<double*>(w), cusolver().cusolverDnDsyevd_bufferSize,
        cusolver().cusolverDnDsyevd);
  else
    run(static_cast<float*>(a), static_cast<float*>(w), cusolver().cusolverDnSsyevd_bufferSize,
        cusolver().cusolverDnSsyevd);
}

}  // namespace arete::cuda
