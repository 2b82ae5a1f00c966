// A call of CudaBackend::linalg, as the files of dense linear algebra see it.
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/kernel_memo.h"
#include "arete/backend/cuda/lib/cublas.h"
#include "arete/backend/cuda/lib/cublaslt.h"
#include "arete/backend/cuda/lib/cusolver.h"
#include "arete/backend/cuda/scratch_memory.h"
#include "arete/base/error.h"

namespace arete::cuda {

/// A view that owns its sizes and strides.
class OwnedView {
 public:
  OwnedView(void* data, DType dtype, Layout layout)
      : layout_(std::move(layout)),
        view_(static_cast<std::byte*>(data), dtype, layout_.sizes, layout_.strides) {}
  OwnedView(const OwnedView&) = delete;
  OwnedView& operator=(const OwnedView&) = delete;
  const prim::View& view() const { return view_; }
  operator const prim::View&() const { return view_; }

 private:
  Layout layout_;
  prim::View view_;
};

inline int64_t rows_of(const prim::View& v) { return v.sizes[size_t(v.rank() - 2)]; }
inline int64_t columns_of(const prim::View& v) { return v.sizes[size_t(v.rank() - 1)]; }

/// A size as the libraries take it; ValueError if it is too large.
inline int library_int(int64_t n) {
  ARETE_CHECK(n <= INT32_MAX,
              ValueError("linalg", "a matrix is too large for cuSOLVER").got(std::to_string(n)));
  return int(n);
}
inline cublasFillMode_t fill_mode(bool upper) {
  return upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
}

/// The operands of one call with elements T (float or double), and the libraries' handles on the
/// current stream, which the caller has locked.
template <class T>
struct LinalgCall {
  static constexpr DType kType = std::is_same_v<T, double> ? kFloat64 : kFloat32;

  CudaBackend& backend;
  const prim::LinalgArgs& args;
  CUstream stream;
  cusolverDnHandle_t solver_handle;
  cublasHandle_t blas_handle;
  const CuSolverOf<T>& solver;
  const CuBlasOf<T>& blas;
  /// How many matrices; rows and columns of `a`.
  int64_t count = args.info.numel(), rows = rows_of(args.a), columns = columns_of(args.a);
  int64_t k = std::min(rows, columns);
  int32_t* info = args.info.template as<int32_t>();

  T* a(int64_t i = 0) const { return args.a.template as<T>() + i * rows * columns; }

  /// f(memory, elements), with as much memory as size(&elements), a library's function, wants.
  template <class Size, class F>
  void with_work(Size&& size, F&& f) {
    int elements = 0;
    check_cusolver(size(&elements), "bufferSize");
    const Scratch work(backend, sizeof(T) * size_t(std::max(elements, 1)));
    f(reinterpret_cast<T*>(work.data()), elements);
  }
  void fill_info(int32_t value, int64_t first, int64_t n) {
    const OwnedView view(info + first, kInt32, Layout(Shape{n}));
    backend.fill({.out = view, .value = {.i = value}, .value_is_integer = true});
  }
  void all_succeeded() { fill_info(0, 0, count); }
};

/// The kernel for elements T whose source is make(is_double).
template <class T, class MakeSource>
const Kernel& kernel_of(KernelTable<2>& table, CudaBackend& backend, MakeSource&& make) {
  constexpr bool kDouble = sizeof(T) == sizeof(double);
  return table.get(backend, kDouble, [&] { return make(kDouble); });
}

/// The addresses of the matrices of a batch, in device memory.
template <class T>
class MatrixPointers {
 public:
  /// `size` elements lie between the first elements of two matrices.
  MatrixPointers(CudaBackend& backend, const T* first, int64_t size, int64_t count)
      : memory_(backend, sizeof(T*) * size_t(count)) {
    const OwnedView view(memory_.data(), kInt64, Layout(Shape{count}));
    backend.iota({.out = view,
                  .istart = int64_t(reinterpret_cast<uintptr_t>(first)),
                  .istep = size * int64_t(sizeof(T))});
  }
  T** get() const { return reinterpret_cast<T**>(memory_.data()); }

 private:
  Scratch memory_;
};

/// One column-major matrix in each of a batch.
template <class T>
struct Matrices {
  T* first;
  int64_t stride;  // elements from one to the next
  int ld;
  /// The part that begins at a row and a column.
  Matrices block(int64_t row, int64_t column) const {
    return {first + row + column * ld, stride, ld};
  }
};

// linalg_batches.cpp

/// op(A) X = B (left) or X op(A) = B; op transposes A, whose triangle named is read.
struct TriangularSystem {
  bool left = true, upper = false, unit = false, transposed = false;
};
/// b (m, n) becomes X, in all matrices.
template <class T>
void solve_triangles(LinalgCall<T>& c, const TriangularSystem& s, const Matrices<T>& a,
                     const Matrices<T>& b, int m, int n);

/// Row i is exchanged with row pivots[i] - 1 - first, for i = 0, 1 ... count - 1 in turn.
struct RowExchanges {
  const int32_t* pivots;
  int64_t stride;  // of one matrix to the next
  int count, first;
};
/// Whether columns of `a` are short enough for that.
template <class T>
bool can_exchange_rows(const LinalgCall<T>& c);
/// Exchanges rows of a (rows, columns); backward: the last exchange first.
template <class T>
void exchange_rows(LinalgCall<T>& c, const Matrices<T>& a, int rows, int columns,
                   const RowExchanges& e, bool backward);

/// LU factors of matrices of any shape, if can_exchange_rows().
template <class T>
void factor_rectangles(LinalgCall<T>& c);

/// out (rows, columns) = Q in, or Q^T in, for the Q of the first `count` reflectors. Of `in` there
/// may be fewer rows and columns: beyond those there are those of the identity.
template <class T>
struct Reflection {
  Matrices<T> out, in, reflectors;
  const T* tau;  // (batch, count)
  int rows, columns, in_rows, in_columns, count;
  bool transpose;
};
/// Whether the matrices are many and short enough for that to be better than one by one.
template <class T>
bool can_reflect(const LinalgCall<T>& c);
template <class T>
void reflect(LinalgCall<T>& c, const Reflection<T>& r);

// linalg_spectral.cpp
template <class T>
void svd(LinalgCall<T>& c);
template <class T>
void symmetric_eigen(LinalgCall<T>& c);

}  // namespace arete::cuda
