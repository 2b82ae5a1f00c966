// Singular values and the eigenvalues of symmetric matrices.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "arete/backend/cuda/codegen/linalg.h"
#include "arete/backend/cuda/index_common.h"
#include "arete/backend/cuda/linalg_call.h"
#include "arete/backend/cuda/scale_program.h"

namespace arete::cuda {
namespace {

using prim::View;

// The iterations need not end on numbers that are not finite. While it lives, matrices with such
// numbers are zeros; finish() makes their results NaN and their info -1. Waits for the device.
template <class T>
class FiniteOnly {
 public:
  explicit FiniteOnly(LinalgCall<T>& c) : call_(c) {
    const int64_t size = c.rows * c.columns;
    // The sum of 0 * x is not a number if some x is not finite.
    const Scratch sums(c.backend, sizeof(T) * size_t(c.count));
    const Shape space{c.count, size};
    const OwnedView a(c.a(), c.kType, Layout(space));
    const expr::Literal zero{.f = 0};
    c.backend.reduce({.monoid = prim::Monoid::sum,
                      .space = space,
                      .reduced = 1u << 1,
                      .inputs = {&a.view(), 1},
                      .out = OwnedView(sums.data(), c.kType, Layout(Shape{c.count, 1})),
                      .prologue = &scale_program(c.kType),
                      .params = {&zero, 1},
                      .epilogue = nullptr,
                      .epilogue_params = {}});
    std::vector<T> found(static_cast<size_t>(c.count), T(0));
    c.backend.copy_to_host(found.data(), sums.data(), sizeof(T) * found.size());
    for (int64_t i = 0; i < c.count; ++i)
      if (std::isnan(found[size_t(i)])) others_.push_back(i);
    for (int64_t i : others_) fill(c.a(), size, i, 0);
  }
  void finish(std::initializer_list<const View*> results) {
    for (int64_t i : others_) {
      for (const View* v : results)
        if (v->data)
          fill(v->template as<T>(), v->numel() / call_.count, i,
               std::numeric_limits<double>::quiet_NaN());
      call_.fill_info(-1, i, 1);
    }
  }

 private:
  void fill(T* first, int64_t size, int64_t i, double value) {
    const OwnedView view(first + i * size, call_.kType, Layout(Shape{size}));
    call_.backend.fill({.out = view, .value = {.f = value}});
  }

  LinalgCall<T>& call_;
  std::vector<int64_t> others_;
};

// By Note [Singular values by rotations], a block for each matrix; false if they are too large, or
// too few for that to be the faster way.
template <class T>
bool svd_by_rotations(LinalgCall<T>& c) {
  // Beyond shared memory, from this many matrices on up to this many columns and rows.
  constexpr int64_t kMany = 8, kMostColumns = 512, kMostRows = 4096;
  const prim::LinalgArgs& l = c.args;
  const int64_t m = std::max(c.rows, c.columns), n = c.k;
  const bool vectors = bool(l.c), transposed = c.rows < c.columns;
  const int64_t left_columns = !vectors ? n : transposed ? rows_of(l.d) : columns_of(l.c);
  const size_t room = size_t(c.backend.limits().shared_per_block);
  // A warp for each pair of columns, and for some of the columns of the longer vectors.
  const int64_t warps = std::clamp<int64_t>(std::max((n + 1) / 2, vectors ? left_columns / 8 : 0),
                                            1, linear::kMostRotatingThreads / 32);
  const size_t matrices = sizeof(T) * size_t(m * n + (vectors ? n * n : 0));
  const size_t others =
      sizeof(T) * size_t(32 + 3 * n + (vectors ? warps * m : 0)) + sizeof(int32_t) * size_t(n);
  const bool in_shared = others + matrices <= room;
  if (!in_shared && (others > room || c.count < kMany || n > kMostColumns || m > kMostRows))
    return false;
  const Scratch memory(c.backend, in_shared ? 0 : matrices * size_t(c.count));
  linear::SvdArgs args{};
  args.a = address_of(c.a());
  args.values = address_of(l.b.data);
  args.left = address_of((transposed ? l.d : l.c).data);
  args.right = address_of((transposed ? l.c : l.d).data);
  args.memory = memory.address();
  args.info = address_of(c.info);
  args.rows = int32_t(m);
  args.columns = int32_t(n);
  args.transposed = transposed;
  args.left_columns = int32_t(left_columns);
  static KernelTable<2> kernels;
  c.backend.launch(kernel_of<T>(kernels, c.backend, linear::svd_source), {unsigned(c.count)},
                   {unsigned(warps * 32)}, others + (in_shared ? matrices : 0), c.stream, args);
  return true;
}

// As gesvd takes it, with as many rows as columns at least: u (m, A: m, S: n) and vt (n, n).
struct SvdJob {
  int m, n;
  signed char job;  // N, S or A
};

template <class T>
void run_gesvd(LinalgCall<T>& c, const SvdJob& j, T* a, T* s, T* u, T* vt, T* work, int size,
               int32_t* info) {
  check_cusolver(c.solver.gesvd(c.solver_handle, j.job, j.job, j.m, j.n, a, j.m, s, u, j.m, vt, j.n,
                                work, size, nullptr, info),
                 "gesvd");
}

// out (rows, columns) = the transpose of `in`, both column-major.
template <class T>
void transpose_into(LinalgCall<T>& c, T* out, T* in, int64_t rows, int64_t columns) {
  const Shape sizes{rows, columns};
  c.backend.copy({.out = OwnedView(out, c.kType, Layout(sizes, Shape{1, rows})),
                  .in = OwnedView(in, c.kType, Layout(sizes, Shape{columns, 1}))});
}

}  // namespace

template <class T>
void svd(LinalgCall<T>& c) {
  if (svd_by_rotations(c)) return;
  const prim::LinalgArgs& l = c.args;
  const bool vectors = bool(l.c), wide = c.rows < c.columns;
  const bool full = vectors && (columns_of(l.c) > c.k || rows_of(l.d) > c.k);
  const SvdJob job{library_int(std::max(c.rows, c.columns)), library_int(c.k),
                   static_cast<signed char>(!vectors ? 'N'
                                            : full   ? 'A'
                                                     : 'S')};
  T *const s = l.b.template as<T>(), *const u = l.c.template as<T>(),
           *const vt = l.d.template as<T>();
  const int64_t long_side = job.m, short_side = c.k, inner = full ? long_side : short_side;
  FiniteOnly<T> finite(c);
  c.with_work(
      [&](int* size) { return c.solver.gesvd_bufferSize(c.solver_handle, job.m, job.n, size); },
      [&](T* work, int size) {
        const auto at = [&](T* first, int64_t elements, int64_t i) {
          return first ? first + i * elements : nullptr;
        };
        if (!wide) {
          for (int64_t i = 0; i < c.count; ++i)
            run_gesvd(c, job, c.a(i), s + i * c.k, at(u, long_side * inner, i),
                      at(vt, short_side * short_side, i), work, size, c.info + i);
          return;
        }
        // A^T = V S U^T.
        const Scratch turned(c.backend, sizeof(T) * size_t(long_side * short_side));
        const Scratch v(c.backend, vectors ? sizeof(T) * size_t(long_side * inner) : 0);
        const Scratch ut(c.backend, vectors ? sizeof(T) * size_t(short_side * short_side) : 0);
        T *const turned_at = reinterpret_cast<T*>(turned.data()),
                 *const v_at = reinterpret_cast<T*>(v.data()),
                 *const ut_at = reinterpret_cast<T*>(ut.data());
        for (int64_t i = 0; i < c.count; ++i) {
          transpose_into(c, turned_at, c.a(i), long_side, short_side);
          run_gesvd(c, job, turned_at, s + i * c.k, v_at, ut_at, work, size, c.info + i);
          if (!vectors) continue;
          transpose_into(c, u + i * short_side * short_side, ut_at, short_side, short_side);
          transpose_into(c, vt + i * inner * long_side, v_at, inner, long_side);
        }
      });
  finite.finish({&l.b, &l.c, &l.d});
}

template <class T>
void symmetric_eigen(LinalgCall<T>& c) {
  // Up to here there is a function for whole batches, by Jacobi's rotations.
  constexpr int64_t kTiny = 32;
  const int n = library_int(c.rows);
  const cusolverEigMode_t mode =
      c.args.vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
  const cublasFillMode_t triangle = fill_mode(c.args.upper);
  T* const w = c.args.b.template as<T>();
  FiniteOnly<T> finite(c);
  if (c.count > 1 && n <= kTiny) {
    static const syevjInfo_t defaults = [] {  // kept for the process
      syevjInfo_t made = nullptr;
      check_cusolver(find_cusolver()->cusolverDnCreateSyevjInfo(&made), "CreateSyevjInfo");
      return made;
    }();
    const int count = library_int(c.count);
    c.with_work(
        [&](int* size) {
          return c.solver.syevj_batched_bufferSize(c.solver_handle, mode, triangle, n, c.a(), n, w,
                                                   size, defaults, count);
        },
        [&](T* work, int size) {
          check_cusolver(c.solver.syevj_batched(c.solver_handle, mode, triangle, n, c.a(), n, w,
                                                work, size, c.info, defaults, count),
                         "syevjBatched");
        });
  } else {
    c.with_work(
        [&](int* size) {
          return c.solver.syevd_bufferSize(c.solver_handle, mode, triangle, n, c.a(), n, w, size);
        },
        [&](T* work, int size) {
          for (int64_t i = 0; i < c.count; ++i)
            check_cusolver(c.solver.syevd(c.solver_handle, mode, triangle, n, c.a(i), n, w + i * n,
                                          work, size, c.info + i),
                           "syevd");
        });
  }
  const View none{};
  finite.finish({&c.args.b, c.args.vectors ? &c.args.a : &none});
}

template void svd(LinalgCall<float>&);
template void svd(LinalgCall<double>&);
template void symmetric_eigen(LinalgCall<float>&);
template void symmetric_eigen(LinalgCall<double>&);

}  // namespace arete::cuda
