// Dense linear algebra: LAPACK, a matrix on each thread, and own code for what it is slow at.
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/kernels/select_table.h"
#include "arete/backend/cpu/lapack.h"
#include "arete/backend/cpu/onednn.h"
#include "arete/backend/cpu/small_matrices.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"

namespace arete::cpu {
namespace {

using prim::LinalgArgs;
using prim::View;
using Op = LinalgArgs::Op;

constexpr int64_t kSmallSides = 8;

// A batch of matrices or vectors, of which the i-th begins size * i elements after the first.
template <class T>
struct Batch {
  T* first;
  int64_t size;
  Batch(const View& v, int inner_rank) : first(reinterpret_cast<T*>(v.data)), size(1) {
    for (int d = std::max(v.rank() - inner_rank, 0); d < v.rank(); ++d) size *= v.sizes[size_t(d)];
  }
  T* operator[](int64_t i) const { return first ? first + i * size : nullptr; }
};

int64_t rows_of(const View& v) { return v.sizes[size_t(v.rank() - 2)]; }
int64_t columns_of(const View& v) { return v.sizes[size_t(v.rank() - 1)]; }

template <class T>
bool all_finite(const T* p, int64_t n) {
  return std::all_of(
      p, p + n, [](T x) { return std::isfinite(std::real(x)) && std::isfinite(std::imag(x)); });
}
template <class T>
void fill_nan(T* p, int64_t n) {
  if (p) std::fill(p, p + n, T(std::numeric_limits<double>::quiet_NaN()));
}

// Eigenvectors from LAPACK's packed form: of a pair of conjugate values the columns are the real
// and the imaginary part.
template <class T>
void unpack_eigen(int64_t n, const T* re, const T* im, const T* packed, std::complex<T>* w,
                  std::complex<T>* v) {
  for (int64_t i = 0; i < n; ++i) w[i] = {re[i], im[i]};
  for (int64_t j = 0; v && j < n; ++j) {
    const bool pair = im[j] != 0;
    const T* x = packed + j * n;
    for (int64_t i = 0; i < n; ++i) {
      v[j * n + i] = {x[i], pair ? x[n + i] : T(0)};
      if (pair) v[(j + 1) * n + i] = {x[i], -x[n + i]};
    }
    j += pair;
  }
}

// As getrf, for matrices that its call costs more than, and for what is not finite: only elements
// that depend on it become so.
template <class T>
int factor_plainly(int64_t m, int64_t n, T* a, int32_t* pivots) {
  int info = 0;
  for (int64_t k = 0; k < std::min(m, n); ++k) {
    T* const column = a + k * m;
    int64_t pivot = k;
    for (int64_t i = k + 1; i < m; ++i)
      if (std::fabs(column[i]) > std::fabs(column[pivot])) pivot = i;
    pivots[k] = int32_t(pivot + 1);
    if (column[pivot] == 0) {
      if (info == 0) info = int(k + 1);
    } else {
      if (pivot != k)
        for (T* x = a; x < a + m * n; x += m) std::swap(x[k], x[pivot]);
      for (int64_t i = k + 1; i < m; ++i) column[i] /= column[k];
    }
    // Also below a pivot of 0: what stands there may be NaN.
    for (T* x = column + m; x < a + m * n; x += m)
      for (int64_t i = k + 1; i < m; ++i) x[i] -= column[i] * x[k];
  }
  return info;
}

// As getrs, likewise and by quotients.
template <class T>
void solve_small(bool transposed, int64_t n, int64_t columns, const T* lu, const int32_t* pivots,
                 T* b) {
  for (T* x = b; x < b + n * columns; x += n) {
    if (!transposed) {
      for (int64_t k = 0; k < n; ++k) std::swap(x[k], x[pivots[k] - 1]);
      for (int64_t k = 0; k < n; ++k)
        for (int64_t i = k + 1; i < n; ++i) x[i] -= lu[k * n + i] * x[k];
      for (int64_t k = n - 1; k >= 0; --k) {
        x[k] /= lu[k * n + k];
        for (int64_t i = 0; i < k; ++i) x[i] -= lu[k * n + i] * x[k];
      }
    } else {
      for (int64_t k = 0; k < n; ++k) {
        for (int64_t i = 0; i < k; ++i) x[k] -= lu[k * n + i] * x[i];
        x[k] /= lu[k * n + k];
      }
      for (int64_t k = n - 1; k >= 0; --k)
        for (int64_t i = k + 1; i < n; ++i) x[k] -= lu[k * n + i] * x[i];
      for (int64_t k = n - 1; k >= 0; --k) std::swap(x[k], x[pivots[k] - 1]);
    }
  }
}

// Whether the diagonal has a number whose reciprocal is infinite, by which OpenBLAS would multiply.
template <class T>
bool reciprocals_overflow(int64_t n, const T* a) {
  for (int64_t j = 0; j < n; ++j) {
    const T d = a[j * (n + 1)];
    const auto size = std::max(std::fabs(std::real(d)), std::fabs(std::imag(d)));
    if (size != 0 && std::isinf(1 / size)) return true;
  }
  return false;
}

// As trsm, by quotients: for complex triangles with such a diagonal.
template <class T>
void substitute(const LinalgArgs& l, int64_t rows, int64_t columns, const T* a, T* b) {
  const int64_t n = l.left ? rows : columns, of_element = l.left ? 1 : rows;
  // X A = B is A^T X^T = B^T.
  const bool turned = l.transposed == l.left, upper = l.upper != turned;
  const int64_t of_row = turned ? n : 1, of_column = turned ? 1 : n;
  for (int64_t r = 0; r < (l.left ? columns : rows); ++r) {
    T* const x = b + r * (l.left ? rows : 1);
    for (int64_t done = 0; done < n; ++done) {
      const int64_t k = upper ? n - 1 - done : done;
      T& own = x[k * of_element];
      own /= a[k * (n + 1)];
      for (int64_t i = upper ? 0 : k + 1; i < (upper ? k : n); ++i)
        x[i * of_element] -= a[i * of_row + k * of_column] * own;
    }
  }
}

template <class T>
void run(const LinalgArgs& l) {
  const int64_t count = l.info.numel(), m = rows_of(l.a), n = columns_of(l.a);
  const int64_t k = std::min(m, n);
  using Real = lapack::Real<T>;
  constexpr bool kComplex = lapack::kIsComplex<T>;  // for which there is no code of our own
  const Batch<T> a(l.a, 2);
  int32_t* const info = reinterpret_cast<int32_t*>(l.info.data);
  // Few large matrices are parallel inside LAPACK, others side by side. The constant is what a call
  // costs.
  const bool iterates = l.op == Op::svd || l.op == Op::symmetric_eigen || l.op == Op::eigen;
  const bool solves = l.op == Op::lu_solve || l.op == Op::triangular_solve;
  const int64_t right_sides = l.op == Op::lu_solve           ? columns_of(l.c)
                              : l.op != Op::triangular_solve ? 0
                              : l.left                       ? columns_of(l.b)
                                                             : rows_of(l.b);
  const double work =
      double(m) * double(n) * double(solves ? right_sides : k) * (iterates ? 10 : 1) + 1000;
  // By elimination.simd.cpp, which is not parallel inside: parts of the right-hand sides are, of as
  // many as repay what a part copies.
  const bool by_blocks = !kComplex && std::max(m, n) <= kLargestOwnEliminated &&
                         (l.op == Op::lu || right_sides >= kFewestOwnColumns);
  int64_t parts = 1, part_size = right_sides;
  if (by_blocks && solves) {
    constexpr int64_t kFewest = 64;
    const int64_t of_thread = (right_sides * count + num_threads() - 1) / num_threads();
    part_size = (std::clamp(of_thread, kFewest, kMostOwnColumns) + 7) / 8 * 8;
    parts = (right_sides + part_size - 1) / part_size;
  }
  const auto each_part = [&](auto&& f) {
    const onednn::ThreadScope threads(4 * work * double(count));
    const auto body = [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) f(i);
    };
    if (!by_blocks && count < num_threads() && work > 1e6)
      body(0, count * parts);
    else
      parallel_for(0, count * parts, grain_for(4 * work / double(parts)), body);
  };
  const auto each = [&](auto&& f) { each_part([&](int64_t i) { info[i] = f(i); }); };
  // f(number of the system, its first right-hand side, how many of them)
  const auto each_of_right_sides = [&](auto&& f) {
    std::fill_n(info, count, 0);
    each_part([&](int64_t i) {
      const int64_t first = i % parts * part_size;
      f(i / parts, first, std::min(part_size, right_sides - first));
    });
  };
  switch (l.op) {
    case Op::cholesky:
      return each([&](int64_t i) { return lapack::potrf(l.upper, n, a[i]); });
    case Op::lu: {
      const Batch<int32_t> pivots(l.b, 1);
      static const auto own = ARETE_SELECT(::arete::cpu, getrf);
      return each([&](int64_t i) {
        if constexpr (!kComplex)
          if (std::max(m, n) <= kSmallSides) return factor_plainly<T>(m, n, a[i], pivots[i]);
        if constexpr (!kComplex)
          if (by_blocks) {
            const int code = own(sizeof(T) == 8, m, n, a[i], pivots[i]);
            return code == kNotFinite ? factor_plainly<T>(m, n, a[i], pivots[i]) : code;
          }
        return lapack::getrf<T>(m, n, a[i], pivots[i]);
      });
    }
    case Op::lu_solve: {
      const Batch<int32_t> pivots(l.b, 1);
      const Batch<T> c(l.c, 2);
      static const auto own = ARETE_SELECT(::arete::cpu, getrs);
      return each_of_right_sides([&](int64_t i, int64_t first, int64_t columns) {
        for (int64_t j = 0; j < n; ++j)
          ARETE_CHECK(pivots[i][j] >= 1 && pivots[i][j] <= n,
                      ValueError("linalg.lu_solve",
                                 std::string("Pivots given to lu_solve must all be ") +
                                     (pivots[i][j] < 1 ? "greater or equal to 1"
                                                       : "smaller or equal to LU.size(-2)") +
                                     ". Did you properly pass the result of lu_factor?")
                          .got(std::to_string(pivots[i][j])));
        T* const x = c[i] + first * n;
        const bool small = !kComplex && n <= kSmallSides;
        const bool overflows = !small && !by_blocks && reciprocals_overflow<T>(n, a[i]);
        if (small || (kComplex && overflows))
          solve_small<T>(l.transposed, n, columns, a[i], pivots[i], x);
        else if (by_blocks || overflows)
          own(sizeof(T) == 8, l.transposed, n, columns, a[i], pivots[i], x);
        else
          info[i] = lapack::getrs<T>(l.transposed, n, columns, a[i], pivots[i], x);
      });
    }
    case Op::triangular_solve: {
      const Batch<T> b(l.b, 2);
      static const auto own = ARETE_SELECT(::arete::cpu, trsm);
      const int64_t rows = rows_of(l.b);
      return each_of_right_sides([&](int64_t i, int64_t first, int64_t some) {
        const bool overflows = !by_blocks && !l.unit && reciprocals_overflow<T>(n, a[i]);
        ARETE_ASSERT(by_blocks || (first == 0 && some == right_sides));
        if (kComplex && overflows)
          substitute<T>(l, rows, columns_of(l.b), a[i], b[i]);
        else if (by_blocks || overflows)
          own(sizeof(T) == 8, l.left, l.upper, l.transposed, l.unit, l.left ? rows : some,
              l.left ? some : columns_of(l.b), a[i], b[i] + first * (l.left ? rows : 1), rows);
        else
          lapack::trsm<T>(l.left, l.upper, l.transposed, l.unit, rows, columns_of(l.b), a[i], b[i]);
      });
    }
    case Op::qr: {
      const Batch<T> tau(l.b, 1);
      static const auto own = ARETE_SELECT(::arete::cpu, geqrf);
      return each([&](int64_t i) {
        if (kComplex || (k > 0 && m * n > kMostOwnReflected))
          return lapack::geqrf(m, n, a[i], tau[i]);
        own(sizeof(T) == 8, m, n, a[i], tau[i]);
        return 0;
      });
    }
    case Op::qr_vectors: {
      const Batch<T> tau(l.b, 1);
      static const auto own = ARETE_SELECT(::arete::cpu, orgqr);
      return each([&](int64_t i) {
        if (kComplex || (k > 0 && m * n > kMostOwnReflected))
          return lapack::orgqr(m, n, tau.size, a[i], tau[i]);
        own(sizeof(T) == 8, m, n, tau.size, a[i], tau[i]);
        return 0;
      });
    }
    case Op::svd: {
      const Batch<Real> s(l.b, 1);
      const Batch<T> u(l.c, 2), vt(l.d, 2);
      const lapack::Vectors vectors = !l.c ? lapack::Vectors::none
                                      : m == n || u.size + vt.size == m * k + k * n
                                          ? lapack::Vectors::reduced
                                          : lapack::Vectors::full;
      return each([&](int64_t i) {
        if (all_finite(a[i], m * n)) return lapack::gesdd(vectors, m, n, a[i], s[i], u[i], vt[i]);
        fill_nan(s[i], s.size), fill_nan(u[i], u.size), fill_nan(vt[i], vt.size);
        return -1;
      });
    }
    case Op::symmetric_eigen: {
      const Batch<Real> w(l.b, 1);
      static const auto own = ARETE_SELECT(::arete::cpu, symmetric_eigen);
      return each([&](int64_t i) {
        if (!all_finite(a[i], n * n)) {
          fill_nan(a[i], n * n), fill_nan(w[i], n);
          return -1;
        }
        if (kComplex || n > kLargestOwnEigen)
          return lapack::syevd(l.vectors, l.upper, n, a[i], w[i]);
        return own(sizeof(T) == 8, l.vectors, l.upper, n, a[i], w[i]);
      });
    }
    case Op::eigen: {
      const Batch<std::complex<Real>> w(l.b, 1), v(l.c, 2);
      return each([&](int64_t i) {
        if (!all_finite(a[i], n * n)) {
          fill_nan(w[i], n), fill_nan(v[i], n * n);
          return -1;
        }
        if constexpr (kComplex) {
          return lapack::geev(bool(l.c), n, a[i], w[i], v[i]);
        } else {
          std::vector<T> re(size_t(n), T(0)), im(size_t(n), T(0));
          std::vector<T> packed(l.c ? size_t(n * n) : 1);
          const int code = lapack::geev(bool(l.c), n, a[i], re.data(), im.data(), packed.data());
          if (code == 0) unpack_eigen(n, re.data(), im.data(), packed.data(), w[i], v[i]);
          return code;
        }
      });
    }
    case Op::least_squares: {
      const Batch<T> b(l.b, 2);
      const Batch<Real> s(l.d, 1);
      int64_t* const ranks = reinterpret_cast<int64_t*>(l.c.data);
      return each([&](int64_t i) {
        std::fill(s[i], s[i] + k, Real(0));
        int32_t rank = int32_t(k);
        const int code = lapack::least_squares(l.driver, m, n, columns_of(l.b), a[i], b[i], l.rcond,
                                               &rank, s[i]);
        ranks[i] = rank;
        return code;
      });
    }
  }
}

}  // namespace

void CpuBackend::linalg(const LinalgArgs& l) {
  ARETE_ASSERT(l.info.is_contiguous() && l.info.dtype == kInt32);
  if (l.info.numel() == 0) return;
  switch (l.a.dtype) {
    case kFloat64:
      return run<double>(l);
    case kComplex64:
      return run<std::complex<float>>(l);
    case kComplex128:
      return run<std::complex<double>>(l);
    default:
      return run<float>(l);
  }
}

}  // namespace arete::cpu
