// Dense linear algebra: cuSOLVER, one matrix after the other, and cuBLAS for triangular systems
// and for batches of small matrices, of which a kernel of our own factors those that are not
// square. What these libraries do not have, or where they are not installed, the CPU computes.
#include <array>
#include <limits>

#include "arete/backend/cuda/codegen/lu.h"
#include "arete/backend/cuda/index_common.h"
#include "arete/backend/cuda/kernel_memo.h"
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
};
Handles& handles_of(int ordinal) {
  static auto* const handles = new std::array<Handles, 64>;  // kept for the process
  return (*handles)[size_t(ordinal)];
}

// Up to here batched functions, which give each matrix to a few threads, are the faster ones.
constexpr int64_t kSmall = 128;
// What cuBLAS may use. A workspace of its own would be shared by all streams.
constexpr size_t kBlasWorkspace = size_t(8) << 20;

bool runs_here(const LinalgArgs& l) {
  if (l.a.numel() == 0) return false;
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

// where(i >= j, x, y)
const expr::Program& choice(DType t) {
  static auto& cache = *new expr::ProgramCache;  // used until exit
  return cache.get(
      pack_key({int(t)}), {kInt32, kInt32, t, t}, {}, {t},
      [](std::span<const expr::Value> v) { return std::vector{where(v[0] >= v[1], v[2], v[3])}; });
}

// One triangle of each matrix of a becomes that of `from`.
template <class T>
void copy_triangle(LinalgCall<T>& c, std::byte* from) {
  const int64_t n = c.rows;
  const Scratch numbers(c.backend, sizeof(int32_t) * size_t(n));
  c.backend.iota({.out = OwnedView(numbers.data(), kInt32, Layout(Shape{n}))});
  // The matrices as they lie in memory: dimension 1 are their columns, 2 their rows.
  const Shape sizes{c.count, n, n};
  const OwnedView row(numbers.data(), kInt32, Layout(sizes, Shape{0, 0, 1}));
  const OwnedView column(numbers.data(), kInt32, Layout(sizes, Shape{0, 1, 0}));
  const OwnedView a(c.a(), c.kType, Layout(sizes)), source(from, c.kType, Layout(sizes));
  const bool upper = c.args.upper;
  const View inputs[] = {upper ? column : row, upper ? row : column, source, a};
  c.backend.pointwise({&choice(c.kType), inputs, {&a.view(), 1}, {}});
}

template <class T>
void cholesky(LinalgCall<T>& c) {
  const int n = library_int(c.rows);
  const cublasFillMode_t triangle = fill_mode(c.args.upper);
  if (c.count > 1 && n <= kSmall) {
    // The batched function destroys the other triangle, which must stay.
    const Scratch copy(c.backend, sizeof(T) * size_t(c.count * c.rows * c.rows));
    const Layout all(Shape{c.count * c.rows * c.rows});
    c.backend.copy(
        {.out = OwnedView(copy.data(), c.kType, all), .in = OwnedView(c.a(), c.kType, all)});
    const MatrixPointers<T> at(c.backend, reinterpret_cast<T*>(copy.data()), c.rows * c.rows,
                               c.count);
    check_cusolver(c.solver.potrf_batched(c.solver_handle, triangle, n, at.get(), n, c.info,
                                          library_int(c.count)),
                   "potrfBatched");
    return copy_triangle(c, copy.data());
  }
  c.with_work(
      [&](int* size) {
        return c.solver.potrf_bufferSize(c.solver_handle, triangle, n, c.a(), n, size);
      },
      [&](T* work, int size) {
        for (int64_t i = 0; i < c.count; ++i)
          check_cusolver(
              c.solver.potrf(c.solver_handle, triangle, n, c.a(i), n, work, size, c.info + i),
              "potrf");
      });
}

// ---- LU

template <class T>
void lu(LinalgCall<T>& c) {
  const int m = library_int(c.rows), n = library_int(c.columns);
  int32_t* const pivots = c.args.b.template as<int32_t>();
  if (c.count > 1 && m == n && n <= kSmall) {
    const MatrixPointers<T> at(c.backend, c.a(), c.rows * c.columns, c.count);
    check_cublas(
        c.blas.getrf_batched(c.blas_handle, n, at.get(), n, pivots, c.info, library_int(c.count)),
        "getrfBatched");
    return;
  }
  if (c.count > 1 && c.rows * c.columns <= kSmall * kSmall) {
    static KernelTable<2> kernels;
    const Kernel& k =
        kernels.get(c.backend, c.kType == kFloat64, [&] { return lu_source(c.kType); });
    const LuKernelArgs args{address_of(c.a()), address_of(pivots), address_of(c.info), m, n};
    const unsigned warps = unsigned(std::clamp(n, 1, kLuThreads / 32));
    c.backend.launch(k, {unsigned(c.count)}, {32 * warps}, 0, c.stream, args);
    return;
  }
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
  if (c.count > 1 && n <= kSmall) {
    const MatrixPointers<T> factors(c.backend, c.a(), c.rows * c.rows, c.count);
    const MatrixPointers<T> solutions(c.backend, x, size, c.count);
    int wrong_argument = 0;
    check_cublas(c.blas.getrs_batched(c.blas_handle, op, n, columns, factors.get(), n, pivots,
                                      solutions.get(), n, &wrong_argument, library_int(c.count)),
                 "getrsBatched");
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
  const cublasSideMode_t side = l.left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT;
  const cublasDiagType_t diagonal = l.unit ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
  const cublasFillMode_t triangle = fill_mode(l.upper);
  T* const b = l.b.template as<T>();
  const int64_t size = int64_t(m) * n;
  const T one = 1;
  if (c.count > 1 && order <= kSmall) {
    const MatrixPointers<T> factors(c.backend, c.a(), c.rows * c.rows, c.count);
    const MatrixPointers<T> solutions(c.backend, b, size, c.count);
    check_cublas(
        c.blas.trsm_batched(c.blas_handle, side, triangle, CUBLAS_OP_N, diagonal, m, n, &one,
                            factors.get(), order, solutions.get(), m, library_int(c.count)),
        "trsmBatched");
  } else {
    for (int64_t i = 0; i < c.count; ++i)
      check_cublas(c.blas.trsm(c.blas_handle, side, triangle, CUBLAS_OP_N, diagonal, m, n, &one,
                               c.a(i), order, b + i * size, m),
                   "trsm");
  }
  c.all_succeeded();
}

// ---- QR

template <class T>
void qr(LinalgCall<T>& c, T* tau) {
  const int m = library_int(c.rows), n = library_int(c.columns);
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
  qr(c, tau);
  c.with_work(
      [&](int* elements) {
        return c.solver.ormqr_bufferSize(c.solver_handle, CUBLAS_SIDE_LEFT, CUBLAS_OP_T, m, right,
                                         n, c.a(), m, tau, b, m, elements);
      },
      [&](T* work, int elements) {
        for (int64_t i = 0; i < c.count; ++i)
          check_cusolver(
              c.solver.ormqr(c.solver_handle, CUBLAS_SIDE_LEFT, CUBLAS_OP_T, m, right, n, c.a(i), m,
                             tau + i * c.k, b + i * size, m, work, elements, c.info + i),
              "ormqr");
      });
  const T one = 1;
  for (int64_t i = 0; i < c.count; ++i)
    check_cublas(c.blas.trsm(c.blas_handle, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N,
                             CUBLAS_DIAG_NON_UNIT, n, right, &one, c.a(i), m, b + i * size, m),
                 "trsm");
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
      return qr(c, c.args.b.template as<T>());
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
  const CuSolver* const solver = find_cusolver();
  const CuBlas* const blas = find_cublas();
  if (!solver || !blas || !runs_here(l)) return prim::Backend::linalg(l);

  const CUstream stream = enter(l);
  Handles& h = handles_of(context_.ordinal());
  const std::lock_guard lock(h.mutex);
  if (!h.solver) check_cusolver(solver->cusolverDnCreate(&h.solver), "Create");
  if (!h.blas) check_cublas(blas->create(&h.blas), "cublasCreate");
  const auto s = reinterpret_cast<cudaStream_t>(stream);
  check_cusolver(solver->cusolverDnSetStream(h.solver, s), "SetStream");
  check_cublas(blas->set_stream(h.blas, s), "cublasSetStream");
  const Scratch workspace(*this, kBlasWorkspace + 256);
  const size_t gap = (256 - workspace.address() % 256) % 256;
  check_cublas(blas->set_workspace(h.blas, workspace.data() + gap, kBlasWorkspace),
               "cublasSetWorkspace");
  if (l.a.dtype == kFloat64)
    run(LinalgCall<double>{*this, l, stream, h.solver, h.blas, solver->f64, blas->f64});
  else
    run(LinalgCall<float>{*this, l, stream, h.solver, h.blas, solver->f32, blas->f32});
}

}  // namespace arete::cuda
