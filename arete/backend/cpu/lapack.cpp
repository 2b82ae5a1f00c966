#include "arete/backend/cpu/lapack.h"

#include <algorithm>
#include <complex>
#include <vector>

#define LAPACK_COMPLEX_CUSTOM
#define lapack_complex_float std::complex<float>
#define lapack_complex_double std::complex<double>
#include <cblas.h>
#include <lapacke.h>

#include "arete/backend/cpu/blas.h"
#include "arete/base/error.h"

namespace arete::cpu::lapack {
namespace {

// The functions of the types. The _work forms take memory from us and do not search for NaN.
template <class T>
struct Names;
#define ARETE_LAPACK_NAMES(T, c, orthogonal, symmetric)               \
  template <>                                                         \
  struct Names<T> {                                                   \
    static constexpr auto potrf = &LAPACKE_##c##potrf_work;           \
    static constexpr auto getrf = &LAPACKE_##c##getrf_work;           \
    static constexpr auto getrs = &LAPACKE_##c##getrs_work;           \
    static constexpr auto trsm = &cblas_##c##trsm;                    \
    static constexpr auto geqrf = &LAPACKE_##c##geqrf_work;           \
    static constexpr auto orgqr = &LAPACKE_##c##orthogonal##gqr_work; \
    static constexpr auto gesdd = &LAPACKE_##c##gesdd_work;           \
    static constexpr auto syevd = &LAPACKE_##c##symmetric##evd_work;  \
    static constexpr auto geev = &LAPACKE_##c##geev_work;             \
    static constexpr auto gels = &LAPACKE_##c##gels_work;             \
    static constexpr auto gelsy = &LAPACKE_##c##gelsy_work;           \
    static constexpr auto gelsd = &LAPACKE_##c##gelsd_work;           \
    static constexpr auto gelss = &LAPACKE_##c##gelss_work;           \
  };
ARETE_LAPACK_NAMES(float, s, or, sy)
ARETE_LAPACK_NAMES(double, d, or, sy)
ARETE_LAPACK_NAMES(std::complex<float>, c, un, he)
ARETE_LAPACK_NAMES(std::complex<double>, z, un, he)
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
  return lapack_int(std::clamp(double(std::real(wanted)) * (1 + 1e-6) + 1, 1.0, double(INT32_MAX)));
}

// Real numbers that functions of complex matrices work with, and those of real ones do not.
template <class T>
std::vector<Real<T>> real_workspace(int64_t n) {
  return std::vector<Real<T>>(kIsComplex<T> ? size_t(std::max<int64_t>(n, 1)) : 0);
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
  const auto call = [&](auto one) {
    Names<T>::trsm(CblasColMajor, left ? CblasLeft : CblasRight, upper ? CblasUpper : CblasLower,
                   transposed ? CblasTrans : CblasNoTrans, unit ? CblasUnit : CblasNonUnit, size(m),
                   size(n), one, a, size(left ? m : n), b, size(m));
  };
  const T one(1);
  if constexpr (kIsComplex<T>)
    call(&one);
  else
    call(one);
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
int gesdd(Vectors vectors, int64_t m, int64_t n, T* a, Real<T>* s, T* u, T* vt) {
  const int64_t k = std::min(m, n), most = std::max(m, n);
  const char job = vectors == Vectors::none ? 'N' : vectors == Vectors::full ? 'A' : 'S';
  std::vector<lapack_int> integers(size_t(8 * std::max<int64_t>(k, 1)));
  auto reals = real_workspace<T>(
      vectors == Vectors::none ? 7 * k : std::max(5 * k * k + 7 * k, 2 * (most * k + k * k) + k));
  return with_workspace<T>([&](T* work, lapack_int length) {
    const auto call = [&](auto*... more) {
      return Names<T>::gesdd(kColumns, job, size(m), size(n), a, leading(m), s, u, leading(m), vt,
                             leading(vectors == Vectors::reduced ? k : n), work, length, more...);
    };
    if constexpr (kIsComplex<T>)
      return call(reals.data(), integers.data());
    else
      return call(integers.data());
  });
}

template <class T>
int syevd(bool vectors, bool upper, int64_t n, T* a, Real<T>* w) {
  const char job = vectors ? 'V' : 'N', triangle = upper ? 'U' : 'L';
  prepare_blas();
  T wanted = 0;
  Real<T> wanted_reals = 0;
  lapack_int wanted_integers = 0;
  const auto call = [&](T* work, lapack_int length, Real<T>* reals, lapack_int real_length,
                        lapack_int* integers, lapack_int integer_length) {
    if constexpr (kIsComplex<T>)
      return Names<T>::syevd(kColumns, job, triangle, size(n), a, leading(n), w, work, length,
                             reals, real_length, integers, integer_length);
    else
      return Names<T>::syevd(kColumns, job, triangle, size(n), a, leading(n), w, work, length,
                             integers, integer_length);
  };
  if (const int info = call(&wanted, -1, &wanted_reals, -1, &wanted_integers, -1); info != 0)
    return info;
  std::vector<T> work(size_t(workspace_length(wanted)));
  auto reals = real_workspace<T>(workspace_length(wanted_reals));
  std::vector<lapack_int> integers(size_t(std::max<lapack_int>(wanted_integers, 1)));
  return call(work.data(), lapack_int(work.size()), reals.data(), lapack_int(reals.size()),
              integers.data(), lapack_int(integers.size()));
}

template <class T>
int geev(bool vectors, int64_t n, T* a, T* re, T* im, T* v) {
  return with_workspace<T>([&](T* work, lapack_int length) {
    return Names<T>::geev(kColumns, 'N', vectors ? 'V' : 'N', size(n), a, leading(n), re, im,
                          nullptr, 1, v, vectors ? leading(n) : 1, work, length);
  });
}

template <class T>
int geev(bool vectors, int64_t n, std::complex<T>* a, std::complex<T>* w, std::complex<T>* v) {
  std::vector<T> reals(size_t(std::max<int64_t>(2 * n, 1)));
  return with_workspace<std::complex<T>>([&](std::complex<T>* work, lapack_int length) {
    return Names<std::complex<T>>::geev(kColumns, 'N', vectors ? 'V' : 'N', size(n), a, leading(n),
                                        w, nullptr, 1, v, vectors ? leading(n) : 1, work, length,
                                        reals.data());
  });
}

template <class T>
int least_squares(Driver driver, int64_t m, int64_t n, int64_t columns, T* a, T* b, double rcond,
                  int32_t* rank, Real<T>* s) {
  const lapack_int rows = size(m), width = size(n), right = size(columns);
  const lapack_int lda = leading(m), ldb = leading(std::max(m, n));
  const auto least = Real<T>(rcond);
  std::vector<lapack_int> integers(size_t(std::max<int64_t>(n, 1)), 0);  // gelsy: free columns
  auto reals = real_workspace<T>(driver == Driver::gelss ? 5 * std::min(m, n) : 2 * n);
  const auto divide_and_conquer = [&](T* work, lapack_int length, Real<T>* more) {
    if constexpr (kIsComplex<T>)
      return Names<T>::gelsd(kColumns, rows, width, right, a, lda, b, ldb, s, least, rank, work,
                             length, more, integers.data());
    else
      return Names<T>::gelsd(kColumns, rows, width, right, a, lda, b, ldb, s, least, rank, work,
                             length, integers.data());
  };
  if (driver == Driver::gelsd) {
    prepare_blas();
    T wanted = 0;
    Real<T> wanted_reals = 0;
    if (const int info = divide_and_conquer(&wanted, -1, &wanted_reals); info != 0) return info;
    integers.resize(size_t(std::max<lapack_int>(integers[0], 1)));
    reals = real_workspace<T>(workspace_length(wanted_reals));
  }
  return with_workspace<T>([&](T* work, lapack_int length) {
    // The last argument of those for complex matrices.
    const auto call = [&](auto function, auto... arguments) {
      if constexpr (kIsComplex<T>)
        return function(kColumns, rows, width, right, a, lda, b, ldb, arguments..., work, length,
                        reals.data());
      else
        return function(kColumns, rows, width, right, a, lda, b, ldb, arguments..., work, length);
    };
    switch (driver) {
      case Driver::gels:
        return Names<T>::gels(kColumns, 'N', rows, width, right, a, lda, b, ldb, work, length);
      case Driver::gelsy:
        return call(Names<T>::gelsy, integers.data(), least, rank);
      case Driver::gelsd:
        return divide_and_conquer(work, length, reals.data());
      case Driver::gelss:
        return call(Names<T>::gelss, s, least, rank);
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
  template int gesdd(Vectors, int64_t, int64_t, T*, Real<T>*, T*, T*);        \
  template int syevd(bool, bool, int64_t, T*, Real<T>*);                      \
  template int least_squares(Driver, int64_t, int64_t, int64_t, T*, T*, double, int32_t*, Real<T>*);
ARETE_INSTANTIATE(float)
ARETE_INSTANTIATE(double)
ARETE_INSTANTIATE(std::complex<float>)
ARETE_INSTANTIATE(std::complex<double>)
#undef ARETE_INSTANTIATE
template int geev(bool, int64_t, float*, float*, float*, float*);
template int geev(bool, int64_t, double*, double*, double*, double*);
template int geev(bool, int64_t, std::complex<float>*, std::complex<float>*, std::complex<float>*);
template int geev(bool, int64_t, std::complex<double>*, std::complex<double>*,
                  std::complex<double>*);

}  // namespace arete::cpu::lapack
