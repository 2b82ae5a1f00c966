// Dense linear algebra: functions of cuSOLVER and cuBLAS for whole batches, what linalg_batches.cpp
// makes of them, and for few or large matrices cuSOLVER, one matrix after the other. What these
// libraries do not have, or where they are not installed, the CPU computes.
#include <algorithm>
#include <array>
#include <limits>

#include "arete/backend/cuda/lib/library_setup.h"
#include "arete/backend/cuda/linalg_call.h"
#include "arete/expr/program_cache.h"

namespace arete::cuda {
namespace {

using prim::LinalgArgs;
using prim::View;
using Op = LinalgArgs::Op;

// One of each for each device. They carry the stream, so they are used under the lock.
struct Handles {
  std::mutex mutex;
  cusolverDnHandle_t solver = nullptr;
  cublasHandle_t blas = nullptr;
  bool are_set_up = false;
};
Handles& handles_of(int ordinal) {
  static auto* const handles = new std::array<Handles, 64>;  // kept for the process
  return (*handles)[size_t(ordinal)];
}

// Up to here factorizations of batches, which give each matrix to one block of threads, are the
// faster ones; larger matrices need more of them to fill the GPU.
constexpr int64_t kBatched = 512, kManyBatched = 1024, kMany = 32;
// From here on LU factors of many matrices are made of panels and products.
constexpr int64_t kFewPanels = 256;
// What cuBLAS may use, by the size of the matrices; the least is what it needs for any function. A
// workspace of its own would be shared by all streams.
constexpr size_t kLeastWorkspace = size_t(16) << 10, kMostWorkspace = size_t(8) << 20;

bool is_batched(int64_t count, int64_t n) {
  return count > 1 && n <= (count >= kMany ? kManyBatched : kBatched);
}

// Whether nothing but `info` is asked for.
bool is_empty(const LinalgArgs& l) {
  const auto none = [](const View& v) { return !v || v.numel() == 0; };
  switch (l.op) {
    case Op::lu_solve:
      return none(l.c);
    case Op::triangular_solve:
      return none(l.b);
    default:
      return none(l.a) && none(l.b) && none(l.c) && none(l.d);
  }
}

bool runs_here(const LinalgArgs& l) {
  if (l.a.numel() == 0 || is_complex(l.a.dtype)) return false;
  switch (l.op) {
    case Op::eigen:
      return false;
    case Op::least_squares:
      return l.driver == LinalgArgs::Driver::gels && rows_of(l.a) >= columns_of(l.a) &&
             l.b.numel() > 0;
    case Op::lu_solve:
      return l.c.numel() > 0;
    case Op::triangular_solve:
    case Op::qr_vectors:
      return l.b.numel() > 0;
    default:
      return true;
  }
}

// ---- triangular factors

template <class T>
void cholesky(LinalgCall<T>& c) {
  const int n = library_int(c.rows);
  const cublasFillMode_t triangle = fill_mode(c.args.upper);
  if (c.count > 1) {
    const MatrixPointers<T> at(c.backend, c.a(), c.rows * c.rows, c.count);
    check_cusolver(c.solver.potrf_batched(c.solver_handle, triangle, n, at.get(), n, c.info,
                                          library_int(c.count)),
                   "potrfBatched");
    return;
  }
  c.with_work(
      [&](int* size) {
        return c.solver.potrf_bufferSize(c.solver_handle, triangle, n, c.a(), n, size);
      },
      [&](T* work, int size) {
        check_cusolver(c.solver.potrf(c.solver_handle, triangle, n, c.a(), n, work, size, c.info),
                       "potrf");
      });
}

// ---- LU

template <class T>
void lu(LinalgCall<T>& c) {
  const int m = library_int(c.rows), n = library_int(c.columns);
  int32_t* const pivots = c.args.b.template as<int32_t>();
  // Products do most of the work of larger ones, if there are enough to fill the GPU with panels.
  const bool has_panels = c.count >= kMany && n > kFewPanels && n <= kBatched;
  if (m == n && is_batched(c.count, n) && !has_panels) {
    const MatrixPointers<T> at(c.backend, c.a(), c.rows * c.columns, c.count);
    check_cublas(
        c.blas.getrf_batched(c.blas_handle, n, at.get(), n, pivots, c.info, library_int(c.count)),
        "getrfBatched");
    return;
  }
  if (c.count > 1 && c.k <= kBatched && can_exchange_rows(c)) return factor_rectangles(c);
  c.with_work(
      [&](int* size) { return c.solver.getrf_bufferSize(c.solver_handle, m, n, c.a(), m, size); },
      [&](T* work, int) {
        for (int64_t i = 0; i < c.count; ++i)
          check_cusolver(
              c.solver.getrf(c.solver_handle, m, n, c.a(i), m, work, pivots + i * c.k, c.info + i),
              "getrf");
      });
}

template <class T>
void lu_solve(LinalgCall<T>& c) {
  const int n = library_int(c.rows), columns = library_int(columns_of(c.args.c));
  const int32_t* const pivots = c.args.b.template as<int32_t>();
  T* const x = c.args.c.template as<T>();
  const int64_t size = c.rows * columns;
  const cublasOperation_t op = c.args.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  // For few right sides the batched function is faster than triangular systems by themselves.
  if (is_batched(c.count, n) && (n <= 16 || columns <= (n <= 64 ? 8 : 2))) {
    const MatrixPointers<T> factors(c.backend, c.a(), c.rows * c.rows, c.count);
    const MatrixPointers<T> solutions(c.backend, x, size, c.count);
    int wrong_argument = 0;
    check_cublas(c.blas.getrs_batched(c.blas_handle, op, n, columns, factors.get(), n, pivots,
                                      solutions.get(), n, &wrong_argument, library_int(c.count)),
                 "getrsBatched");
    return c.all_succeeded();
  }
  if (is_batched(c.count, n)) {
    const Matrices<T> factors{c.a(), c.rows * c.rows, n}, solutions{x, size, n};
    const RowExchanges exchanges{pivots, n, n, 0};
    const TriangularSystem lower{.unit = true}, upper{.upper = true};
    const auto solve = [&](TriangularSystem s) {
      s.transposed = c.args.transposed;
      solve_triangles(c, s, factors, solutions, n, columns);
    };
    if (!c.args.transposed) exchange_rows(c, solutions, n, columns, exchanges, false);
    solve(c.args.transposed ? upper : lower);
    solve(c.args.transposed ? lower : upper);
    if (c.args.transposed) exchange_rows(c, solutions, n, columns, exchanges, true);
    return c.all_succeeded();
  }
  for (int64_t i = 0; i < c.count; ++i)
    check_cusolver(c.solver.getrs(c.solver_handle, op, n, columns, c.a(i), n, pivots + i * n,
                                  x + i * size, n, c.info + i),
                   "getrs");
}

// ---- triangular systems

template <class T>
void triangular_solve(LinalgCall<T>& c) {
  const LinalgArgs& l = c.args;
  const int m = library_int(rows_of(l.b)), n = library_int(columns_of(l.b)), order = l.left ? m : n;
  T* const b = l.b.template as<T>();
  const int64_t size = int64_t(m) * n;
  // Few large systems keep the device busy one by one.
  if (c.count > (order >= 64 ? 8 : 1)) {
    solve_triangles(c, {l.left, l.upper, l.unit, l.transposed},
                    Matrices<T>{c.a(), c.rows * c.rows, order}, Matrices<T>{b, size, m}, m, n);
  } else {
    const T one = 1;
    for (int64_t i = 0; i < c.count; ++i)
      check_cublas(c.blas.trsm(c.blas_handle, l.left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT,
                               fill_mode(l.upper), l.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                               l.unit ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT, m, n, &one, c.a(i),
                               order, b + i * size, m),
                   "trsm");
  }
  c.all_succeeded();
}

// ---- QR

// With tau (batch, min(rows, columns)).
template <class T>
void factor_qr(LinalgCall<T>& c, T* tau) {
  const int m = library_int(c.rows), n = library_int(c.columns);
  if (c.count > 1 && m <= 256 && c.count >= m / 16) {
    const MatrixPointers<T> matrices(c.backend, c.a(), c.rows * c.columns, c.count);
    const MatrixPointers<T> factors(c.backend, tau, c.k, c.count);
    int wrong_argument = 0;
    check_cublas(c.blas.geqrf_batched(c.blas_handle, m, n, matrices.get(), m, factors.get(),
                                      &wrong_argument, library_int(c.count)),
                 "geqrfBatched");
    return c.all_succeeded();
  }
  c.with_work(
      [&](int* size) { return c.solver.geqrf_bufferSize(c.solver_handle, m, n, c.a(), m, size); },
      [&](T* work, int size) {
        for (int64_t i = 0; i < c.count; ++i)
          check_cusolver(c.solver.geqrf(c.solver_handle, m, n, c.a(i), m, tau + i * c.k, work, size,
                                        c.info + i),
                         "geqrf");
      });
}

template <class T>
void qr_vectors(LinalgCall<T>& c) {
  const int m = library_int(c.rows), n = library_int(c.columns);
  const int reflectors = library_int(c.args.b.sizes.back());
  const T* const tau = c.args.b.template as<T>();
  if (can_reflect(c)) {
    const Scratch copy(c.backend, sizeof(T) * size_t(c.args.a.numel()));
    const Layout all(Shape{c.args.a.numel()});
    c.backend.copy(
        {.out = OwnedView(copy.data(), c.kType, all), .in = OwnedView(c.a(), c.kType, all)});
    const Matrices<T> out{c.a(), c.rows * c.columns, m};
    reflect(c, {.out = out,
                .in = out,
                .reflectors = {reinterpret_cast<T*>(copy.data()), out.stride, m},
                .tau = tau,
                .rows = m,
                .columns = n,
                .in_rows = 0,
                .in_columns = 0,
                .count = reflectors,
                .transpose = false});
    return c.all_succeeded();
  }
  c.with_work(
      [&](int* size) {
        return c.solver.orgqr_bufferSize(c.solver_handle, m, n, reflectors, c.a(), m, tau, size);
      },
      [&](T* work, int size) {
        for (int64_t i = 0; i < c.count; ++i)
          check_cusolver(c.solver.orgqr(c.solver_handle, m, n, reflectors, c.a(i), m,
                                        tau + i * reflectors, work, size, c.info + i),
                         "orgqr");
      });
}

// ---- least squares

// where(x == 0, i, none) and where(i == none, 0, i), for the place of a first zero.
constexpr double kNone = std::numeric_limits<int32_t>::max();
const expr::Program& place_of_zero(DType t) {
  static auto& cache = *new expr::ProgramCache;  // used until exit
  return cache.get(pack_key({int(t)}), {t, kInt32}, {}, {kInt32},
                   [](std::span<const expr::Value> v) {
                     return std::vector{where(v[0] == 0.0, v[1], constant_like(v[1], kNone))};
                   });
}
const expr::Program& none_is_zero() {
  static const auto* const program = [] {
    const std::array<DType, 1> t{kInt32};
    return new expr::ProgramPtr(expr::trace(
        [](std::span<const expr::Value> v) {
          return std::vector{where(v[0] == kNone, constant_like(v[0], 0), v[0])};
        },
        t, {}, t));
  }();
  return **program;
}

// info: where R has its first zero on the diagonal, from 1, or 0.
template <class T>
void find_zeros(LinalgCall<T>& c) {
  const int64_t n = c.columns;
  const Scratch numbers(c.backend, sizeof(int32_t) * size_t(n));
  const Scratch places(c.backend, sizeof(int32_t) * size_t(n * c.count));
  c.backend.iota({.out = OwnedView(numbers.data(), kInt32, Layout(Shape{n})), .istart = 1});
  const Shape sizes{c.count, n};
  const OwnedView diagonal(c.a(), c.kType, Layout(sizes, Shape{c.rows * n, c.rows + 1}));
  const OwnedView number(numbers.data(), kInt32, Layout(sizes, Shape{0, 1}));
  const OwnedView place(places.data(), kInt32, Layout(sizes));
  const OwnedView info(c.info, kInt32, Layout(Shape{c.count, 1}));
  const View inputs[] = {diagonal, number};
  c.backend.pointwise({&place_of_zero(c.kType), inputs, {&place.view(), 1}, {}});
  c.backend.reduce({.monoid = prim::Monoid::min,
                    .space = sizes,
                    .reduced = 1u << 1,
                    .inputs = {&place.view(), 1},
                    .out = info,
                    .prologue = nullptr,
                    .params = {},
                    .epilogue = nullptr,
                    .epilogue_params = {}});
  c.backend.pointwise({&none_is_zero(), {&info.view(), 1}, {&info.view(), 1}, {}});
}

// As LAPACK's gels: R X = Q^T B.
template <class T>
void least_squares(LinalgCall<T>& c) {
  const int m = library_int(c.rows), n = library_int(c.columns);
  const int right = library_int(columns_of(c.args.b));
  T* const b = c.args.b.template as<T>();
  const int64_t size = int64_t(m) * right;
  const Scratch taus(c.backend, sizeof(T) * size_t(c.count * c.k));
  T* const tau = reinterpret_cast<T*>(taus.data());
  const Matrices<T> a{c.a(), c.rows * c.columns, m}, solutions{b, size, m};
  factor_qr(c, tau);
  if (can_reflect(c)) {
    reflect(c, {.out = solutions,
                .in = solutions,
                .reflectors = a,
                .tau = tau,
                .rows = m,
                .columns = right,
                .in_rows = m,
                .in_columns = right,
                .count = n,
                .transpose = true});
    solve_triangles(c, {.upper = true}, a, solutions, n, right);
  } else {
    c.with_work(
        [&](int* elements) {
          return c.solver.ormqr_bufferSize(c.solver_handle, CUBLAS_SIDE_LEFT, CUBLAS_OP_T, m, right,
                                           n, c.a(), m, tau, b, m, elements);
        },
        [&](T* work, int elements) {
          for (int64_t i = 0; i < c.count; ++i)
            check_cusolver(
                c.solver.ormqr(c.solver_handle, CUBLAS_SIDE_LEFT, CUBLAS_OP_T, m, right, n, c.a(i),
                               m, tau + i * c.k, b + i * size, m, work, elements, c.info + i),
                "ormqr");
        });
    const T one = 1;
    for (int64_t i = 0; i < c.count; ++i)
      check_cublas(c.blas.trsm(c.blas_handle, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N,
                               CUBLAS_DIAG_NON_UNIT, n, right, &one, c.a(i), m, b + i * size, m),
                   "trsm");
  }
  c.backend.fill({.out = c.args.c, .value = {.i = c.k}, .value_is_integer = true});
  c.backend.fill({.out = c.args.d, .value = {.f = 0}});
  find_zeros(c);
}

template <class T>
void run(LinalgCall<T> c) {
  switch (c.args.op) {
    case Op::cholesky:
      return cholesky(c);
    case Op::lu:
      return lu(c);
    case Op::lu_solve:
      return lu_solve(c);
    case Op::triangular_solve:
      return triangular_solve(c);
    case Op::qr:
      return factor_qr(c, c.args.b.template as<T>());
    case Op::qr_vectors:
      return qr_vectors(c);
    case Op::svd:
      return svd(c);
    case Op::symmetric_eigen:
      return symmetric_eigen(c);
    case Op::least_squares:
      return least_squares(c);
    case Op::eigen:
      break;
  }
  ARETE_ASSERT(false);
}

}  // namespace

void CudaBackend::linalg(const LinalgArgs& l) {
  if (l.info.numel() == 0) return;
  if (is_empty(l))
    return fill({.out = l.info, .value = {.i = 0}, .value_is_integer = true, .context = l.context});
  const CuSolver* const solver = find_cusolver();
  const CuBlas* const blas = find_cublas();
  if (!solver || !blas || !runs_here(l)) return prim::Backend::linalg(l);

  const CUstream stream = enter(l);
  Handles& h = handles_of(context_.ordinal());
  const std::lock_guard lock(h.mutex);
  if (!h.are_set_up) {
    if (!h.solver) check_cusolver(solver->cusolverDnCreate(&h.solver), "Create");
    if (!h.blas) check_cublas(blas->create(&h.blas), "cublasCreate");
    finish_setup(context_);
    h.are_set_up = true;
  }
  const auto s = reinterpret_cast<cudaStream_t>(stream);
  check_cusolver(solver->cusolverDnSetStream(h.solver, s), "SetStream");
  check_cublas(blas->set_stream(h.blas, s), "cublasSetStream");
  const size_t bytes = std::clamp(size_of(l.a.dtype) * size_t(l.a.numel()) / 16 / 256 * 256,
                                  kLeastWorkspace, kMostWorkspace);
  const Scratch workspace(*this, bytes + 256);
  const size_t gap = (256 - workspace.address() % 256) % 256;
  check_cublas(blas->set_workspace(h.blas, workspace.data() + gap, bytes), "cublasSetWorkspace");
  if (l.a.dtype == kFloat64)
    run(LinalgCall<double>{*this, l, stream, h.solver, h.blas, solver->f64, blas->f64});
  else
    run(LinalgCall<float>{*this, l, stream, h.solver, h.blas, solver->f32, blas->f32});
}

}  // namespace arete::cuda
