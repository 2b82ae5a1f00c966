#include "arete/backend/cpu/lapack.h"

#include <cblas.h>
#include <lapacke.h>

#include <algorithm>
#include <vector>

#include "arete/backend/cpu/blas.h"
#include "arete/base/error.h"

namespace arete::cpu::lapack {
namespace {

// The functions of the two types. The _work forms take memory from us and do not search for NaN.
template <class T>
struct Names;
#define ARETE_LAPACK_NAMES(T, c)                            \
  template <>                                               \
  struct Names<T> {                                         \
    static constexpr auto potrf = &LAPACKE_##c##potrf_work; \
    static constexpr auto getrf = &LAPACKE_##c##getrf_work; \
    static constexpr auto getrs = &LAPACKE_##c##getrs_work; \
    static constexpr auto trsm = &cblas_##c##trsm;          \
    static constexpr auto geqrf = &LAPACKE_##c##geqrf_work; \
    static constexpr auto orgqr = &LAPACKE_##c##orgqr_work; \
    static constexpr auto gesdd = &LAPACKE_##c##gesdd_work; \
    static constexpr auto syevd = &LAPACKE_##c##syevd_work; \
    static constexpr auto geev = &LAPACKE_##c##geev_work;   \
    static constexpr auto gels = &LAPACKE_##c##gels_work;   \
    static constexpr auto gelsy = &LAPACKE_##c##gelsy_work; \
    static constexpr auto gelsd = &LAPACKE_##c##gelsd_work; \
    static constexpr auto gelss = &LAPACKE_##c##gelss_work; \
  };
ARETE_LAPACK_NAMES(float, s)
ARETE_LAPACK_NAMES(double, d)
#undef ARETE_LAPACK_NAMES

constexpr int kColumns = LAPACK_COL_MAJOR;

lapack_int size(int64_t n) {
  ARETE_CHECK(n <= INT32_MAX,
              ValueError("linalg", "a matrix is too large for LAPACK").got(std::to_string(n)));
  return lapack_int(n);
}
/// Leading dimensions must be at least 1.
lapack_int leading(int64_t n) { return size(std::max<int64_t>(n, 1)); }

// Wanted lengths come as floating numbers, which may have been rounded down.
template <class T>
lapack_int workspace_length(T wanted) {
  return lapack_int(std::clamp(double(wanted) * (1 + 1e-6) + 1, 1.0, double(INT32_MAX)));
}

// f(work, length): asked first with length -1, when it writes the length it wants into work[0].
template <class T, class F>
int with_workspace(F f) {
  prepare_blas();
  T wanted = 0;
  if (const int info = f(&wanted, lapack_int(-1)); info != 0) return info;
  std::vector<T> work(size_t(workspace_length(wanted)));
  return f(work.data(), lapack_int(work.size()));
}

}  // namespace

template <class T>
int potrf(bool upper, int64_t n, T* a) {
  prepare_blas();
  return Names<T>::potrf(kColumns, upper ? 'U' : 'L', size(n), a, leading(n));
}

template <class T>
int getrf(int64_t m, int64_t n, T* a, int32_t* pivots) {
  prepare_blas();
  return Names<T>::getrf(kColumns, size(m), size(n), a, leading(m), pivots);
}

template <class T>
int getrs(bool transposed, int64_t n, int64_t columns, const T* lu, const int32_t* pivots, T* b) {
  prepare_blas();
  return Names<T>::getrs(kColumns, transposed ? 'T' : 'N', size(n), size(columns), lu, leading(n),
                         pivots, b, leading(n));
}

template <class T>
void trsm(bool left, bool upper, bool transposed, bool unit, int64_t m, int64_t n, const T* a,
          T* b) {
  if (m == 0 || n == 0) return;
  prepare_blas();
  Names<T>::trsm(CblasColMajor, left ? CblasLeft : CblasRight, upper ? CblasUpper : CblasLower,
                 transposed ? CblasTrans : CblasNoTrans, unit ? CblasUnit : CblasNonUnit, size(m),
                 size(n), T(1), a, size(left ? m : n), b, size(m));
}

template <class T>
int geqrf(int64_t m, int64_t n, T* a, T* tau) {
  return with_workspace<T>([&](T* work, lapack_int length) {
    return Names<T>::geqrf(kColumns, size(m), size(n), a, leading(m), tau, work, length);
  });
}

template <class T>
int orgqr(int64_t m, int64_t columns, int64_t reflectors, T* a, const T* tau) {
  return with_workspace<T>([&](T* work, lapack_int length) {
    return Names<T>::orgqr(kColumns, size(m), size(columns), size(reflectors), a, leading(m), tau,
                           work, length);
  });
}

template <class T>
int gesdd(Vectors vectors, int64_t m, int64_t n, T* a, T* s, T* u, T* vt) {
  const int64_t k = std::min(m, n);
  const char job = vectors == Vectors::none ? 'N' : vectors == Vectors::full ? 'A' : 'S';
  std::vector<lapack_int> integers(size_t(8 * std::max<int64_t>(k, 1)));
  return with_workspace<T>([&](T* work, lapack_int length) {
    return Names<T>::gesdd(kColumns, job, size(m), size(n), a, leading(m), s, u, leading(m), vt,
                           leading(vectors == Vectors::reduced ? k : n), work, length,
                           integers.data());
  });
}

template <class T>
int syevd(bool vectors, bool upper, int64_t n, T* a, T* w) {
  const char job = vectors ? 'V' : 'N', triangle = upper ? 'U' : 'L';
  prepare_blas();
  T wanted = 0;
  lapack_int wanted_integers = 0;
  if (const int info = Names<T>::syevd(kColumns, job, triangle, size(n), a, leading(n), w, &wanted,
                                       -1, &wanted_integers, -1);
      info != 0)
    return info;
  std::vector<T> work(size_t(workspace_length(wanted)));
  std::vector<lapack_int> integers(size_t(std::max<lapack_int>(wanted_integers, 1)));
  return Names<T>::syevd(kColumns, job, triangle, size(n), a, leading(n), w, work.data(),
                         lapack_int(work.size()), integers.data(), lapack_int(integers.size()));
}

template <class T>
int geev(bool vectors, int64_t n, T* a, T* re, T* im, T* v) {
  return with_workspace<T>([&](T* work, lapack_int length) {
    return Names<T>::geev(kColumns, 'N', vectors ? 'V' : 'N', size(n), a, leading(n), re, im,
                          nullptr, 1, v, vectors ? leading(n) : 1, work, length);
  });
}

template <class T>
int least_squares(Driver driver, int64_t m, int64_t n, int64_t columns, T* a, T* b, double rcond,
                  int32_t* rank, T* s) {
  const lapack_int rows = size(m), width = size(n), right = size(columns);
  const lapack_int lda = leading(m), ldb = leading(std::max(m, n));
  std::vector<lapack_int> integers(size_t(std::max<int64_t>(n, 1)), 0);  // gelsy: free columns
  if (driver == Driver::gelsd) {
    prepare_blas();
    T wanted = 0;
    lapack_int wanted_integers = 0;
    if (const int info = Names<T>::gelsd(kColumns, rows, width, right, a, lda, b, ldb, s, T(rcond),
                                         rank, &wanted, -1, &wanted_integers);
        info != 0)
      return info;
    integers.resize(size_t(std::max<lapack_int>(wanted_integers, 1)));
  }
  return with_workspace<T>([&](T* work, lapack_int length) {
    switch (driver) {
      case Driver::gels:
        return Names<T>::gels(kColumns, 'N', rows, width, right, a, lda, b, ldb, work, length);
      case Driver::gelsy:
        return Names<T>::gelsy(kColumns, rows, width, right, a, lda, b, ldb, integers.data(),
                               T(rcond), rank, work, length);
      case Driver::gelsd:
        return Names<T>::gelsd(kColumns, rows, width, right, a, lda, b, ldb, s, T(rcond), rank,
                               work, length, integers.data());
      case Driver::gelss:
        return Names<T>::gelss(kColumns, rows, width, right, a, lda, b, ldb, s, T(rcond), rank,
                               work, length);
    }
    __builtin_unreachable();
  });
}

#define ARETE_INSTANTIATE(T)                                                  \
  template int potrf(bool, int64_t, T*);                                      \
  template int getrf(int64_t, int64_t, T*, int32_t*);                         \
  template int getrs(bool, int64_t, int64_t, const T*, const int32_t*, T*);   \
  template void trsm(bool, bool, bool, bool, int64_t, int64_t, const T*, T*); \
  template int geqrf(int64_t, int64_t, T*, T*);                               \
  template int orgqr(int64_t, int64_t, int64_t, T*, const T*);                \
  template int gesdd(Vectors, int64_t, int64_t, T*, T*, T*, T*);              \
  template int syevd(bool, bool, int64_t, T*, T*);                            \
  template int geev(bool, int64_t, T*, T*, T*, T*);                           \
  template int least_squares(Driver, int64_t, int64_t, int64_t, T*, T*, double, int32_t*, T*);
ARETE_INSTANTIATE(float)
ARETE_INSTANTIATE(double)
#undef ARETE_INSTANTIATE

}  // namespace arete::cpu::lapack
