// Batches of matrices beyond the libraries' batched functions: triangular systems and LU factors
// block by block, where products do most of the work, exchanges of rows, and products with the Q of
// QR factorizations.
#include <algorithm>

#include "arete/backend/cuda/codegen/linalg.h"
#include "arete/backend/cuda/index_common.h"
#include "arete/backend/cuda/linalg_call.h"

namespace arete::cuda {
namespace {

using namespace linear;

constexpr size_t kUsualShared = 48 << 10;

// Blocks of warps for the columns of each of `count` matrices, where each warp keeps a column.
struct ColumnBlocks {
  int warps, blocks;
  ColumnBlocks(int64_t count, int64_t columns, size_t column_bytes, size_t more_bytes) {
    // A block with one warp may need more than what is usual.
    const size_t room = kUsualShared > more_bytes ? (kUsualShared - more_bytes) / column_bytes : 0;
    warps = int(std::clamp<int64_t>(std::min(int64_t(room), columns), 1, kMostThreads / 32));
    // Each block has work in common for its columns, so not more blocks than keep a device busy.
    constexpr int64_t kEnough = 2048;
    const int64_t most = (columns + warps - 1) / warps;
    blocks = int(std::clamp<int64_t>((kEnough + count - 1) / count, 1, most));
  }
};

// c -= op(a) b in each matrix; c is (m, n), op(a) (m, k).
template <class T>
void subtract_product(LinalgCall<T>& c, cublasOperation_t op_a, const Matrices<T>& a,
                      cublasOperation_t op_b, const Matrices<T>& b, const Matrices<T>& out, int m,
                      int n, int k) {
  const T minus_one = -1, one = 1;
  check_cublas(c.blas.gemm_strided(c.blas_handle, op_a, op_b, m, n, k, &minus_one, a.first, a.ld,
                                   a.stride, b.first, b.ld, b.stride, &one, out.first, out.ld,
                                   out.stride, library_int(c.count)),
               "gemmStridedBatched");
}

}  // namespace

template <class T>
void solve_triangles(LinalgCall<T>& c, const TriangularSystem& s, const Matrices<T>& a,
                     const Matrices<T>& b, int m, int n) {
  // Up to here the batched function is fast.
  constexpr int kBlock = 64;
  const int order = s.left ? m : n;
  if (m == 0 || n == 0) return;
  const cublasOperation_t op = s.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  if (order <= kBlock) {
    const MatrixPointers<T> factors(c.backend, a.first, a.stride, c.count);
    const MatrixPointers<T> solutions(c.backend, b.first, b.stride, c.count);
    const T one = 1;
    check_cublas(c.blas.trsm_batched(
                     c.blas_handle, s.left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT,
                     fill_mode(s.upper), op, s.unit ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT, m, n,
                     &one, factors.get(), a.ld, solutions.get(), b.ld, library_int(c.count)),
                 "trsmBatched");
    return;
  }
  const int h = (order / 2 + 31) / 32 * 32, rest = order - h;
  const Matrices<T> corner = a.block(h, h), off = s.upper ? a.block(0, h) : a.block(h, 0);
  const Matrices<T> second = s.left ? b.block(h, 0) : b.block(0, h);
  const auto solve_first = [&] { solve_triangles(c, s, a, b, s.left ? h : m, s.left ? n : h); };
  const auto solve_second = [&] {
    solve_triangles(c, s, corner, second, s.left ? rest : m, s.left ? n : rest);
  };
  const auto subtract = [&](const Matrices<T>& known, int known_order, const Matrices<T>& other,
                            int other_order) {
    if (s.left)
      subtract_product(c, op, off, CUBLAS_OP_N, known, other, other_order, n, known_order);
    else
      subtract_product(c, CUBLAS_OP_N, known, op, off, other, m, other_order, known_order);
  };
  const bool lower = s.upper == s.transposed;  // op(A)
  if (s.left == lower) {
    solve_first();
    subtract(b, h, second, rest);
    solve_second();
  } else {
    solve_second();
    subtract(second, rest, b, h);
    solve_first();
  }
}

template <class T>
void exchange_rows(LinalgCall<T>& c, const Matrices<T>& a, int rows, int columns,
                   const RowExchanges& e, bool backward) {
  if (columns == 0) return;
  const size_t more = sizeof(int32_t) * size_t(rows + e.count), column = sizeof(T) * size_t(rows);
  const ColumnBlocks grid(c.count, columns, column, more);
  ExchangeArgs args{};
  args.a = address_of(a.first);
  args.stride = a.stride;
  args.pivots = address_of(e.pivots);
  args.pivot_stride = e.stride;
  args.ld = a.ld;
  args.rows = rows;
  args.columns = columns;
  args.count = e.count;
  args.first = e.first;
  args.backward = backward;
  args.blocks = grid.blocks;
  static KernelTable<2> kernels;
  c.backend.launch(kernel_of<T>(kernels, c.backend, exchange_rows_source),
                   {unsigned(c.count * grid.blocks)}, {unsigned(grid.warps * 32)},
                   more + column * size_t(grid.warps), c.stream, args);
}

namespace {

// Columns [first, first + width) from row `first` on, which the columns left of them have changed
// already. Exchanges rows of these columns only.
template <class T>
void factor_columns(LinalgCall<T>& c, const Matrices<T>& all, int first, int width) {
  constexpr size_t kPanel = 64 << 10;  // bytes, so that several blocks fit a multiprocessor
  constexpr int kNarrow = 16;
  const int rows = int(c.rows) - first;
  const size_t bytes = sizeof(T) * size_t(rows) * size_t(width);
  const Matrices<T> panel = all.block(first, first);
  int32_t* const pivots = c.args.b.template as<int32_t>() + first;
  if (width <= kNarrow || bytes <= kPanel) {
    LuPanelArgs args{};
    args.a = address_of(panel.first);
    args.stride = panel.stride;
    args.pivots = address_of(pivots);
    args.pivot_stride = c.k;
    args.info = address_of(c.info);
    args.ld = panel.ld;
    args.rows = rows;
    args.columns = width;
    args.first = first;
    args.in_shared = bytes <= size_t(c.backend.limits().shared_per_block);
    const int64_t threads = (int64_t(rows) * width / 16 + 31) / 32 * 32;
    static KernelTable<2> kernels;
    c.backend.launch(kernel_of<T>(kernels, c.backend, lu_panel_source), {unsigned(c.count)},
                     {unsigned(std::clamp<int64_t>(threads, 32, kMostThreads))},
                     args.in_shared ? bytes : 0, c.stream, args);
    return;
  }
  const int h = (width / 2 + kNarrow - 1) / kNarrow * kNarrow, rest = width - h;
  const RowExchanges left{pivots, c.k, h, first}, right{pivots + h, c.k, rest, first + h};
  const Matrices<T> top = all.block(first, first + h), below = all.block(first + h, first);
  factor_columns(c, all, first, h);
  exchange_rows(c, top, rows, rest, left, false);
  solve_triangles(c, {.unit = true}, panel, top, h, rest);
  subtract_product(c, CUBLAS_OP_N, below, CUBLAS_OP_N, top, all.block(first + h, first + h),
                   rows - h, rest, h);
  factor_columns(c, all, first + h, rest);
  exchange_rows(c, below, rows - h, h, right, false);
}

}  // namespace

template <class T>
bool can_exchange_rows(const LinalgCall<T>& c) {
  return c.rows <= 8192 && (sizeof(T) + 2 * sizeof(int32_t)) * size_t(c.rows) <=
                               size_t(c.backend.limits().shared_per_block);
}

template <class T>
void factor_rectangles(LinalgCall<T>& c) {
  const int m = int(c.rows), n = int(c.columns), k = int(c.k);
  const Matrices<T> all{c.a(), c.rows * c.columns, m}, right = all.block(0, k);
  factor_columns(c, all, 0, k);
  if (n == k) return;
  const RowExchanges exchanges{c.args.b.template as<int32_t>(), c.k, k, 0};
  exchange_rows(c, right, m, n - k, exchanges, false);
  solve_triangles(c, {.unit = true}, all, right, m, n - k);
}

template <class T>
bool can_reflect(const LinalgCall<T>& c) {
  return c.count > 1 && c.rows <= 1024 && c.count >= c.rows / 16;
}

template <class T>
void reflect(LinalgCall<T>& c, const Reflection<T>& r) {
  const size_t column = sizeof(T) * size_t(r.rows);
  const ColumnBlocks grid(c.count, r.columns, column, 0);
  ReflectArgs args{};
  args.out = address_of(r.out.first);
  args.in = address_of(r.in.first);
  args.reflectors = address_of(r.reflectors.first);
  args.tau = address_of(r.tau);
  args.out_stride = r.out.stride;
  args.in_stride = r.in.stride;
  args.reflector_stride = r.reflectors.stride;
  args.tau_stride = r.count;
  args.rows = r.rows;
  args.columns = r.columns;
  args.in_rows = r.in_rows;
  args.in_columns = r.in_columns;
  args.out_ld = r.out.ld;
  args.in_ld = r.in.ld;
  args.reflector_ld = r.reflectors.ld;
  args.count = r.count;
  args.transpose = r.transpose;
  args.blocks = grid.blocks;
  static KernelTable<2> kernels;
  c.backend.launch(kernel_of<T>(kernels, c.backend, reflect_source),
                   {unsigned(c.count * grid.blocks)}, {unsigned(grid.warps * 32)},
                   column * size_t(grid.warps), c.stream, args);
}

#define ARETE_INSTANTIATE(T)                                                                     \
  template void solve_triangles(LinalgCall<T>&, const TriangularSystem&, const Matrices<T>&,     \
                                const Matrices<T>&, int, int);                                   \
  template void exchange_rows(LinalgCall<T>&, const Matrices<T>&, int, int, const RowExchanges&, \
                              bool);                                                             \
  template bool can_exchange_rows(const LinalgCall<T>&);                                         \
  template void factor_rectangles(LinalgCall<T>&);                                               \
  template bool can_reflect(const LinalgCall<T>&);                                               \
  template void reflect(LinalgCall<T>&, const Reflection<T>&);
ARETE_INSTANTIATE(float)
ARETE_INSTANTIATE(double)
#undef ARETE_INSTANTIATE

}  // namespace arete::cuda
