// Compiled once per instruction set; see Note [Elimination in blocks].
#include <numeric>
#include <vector>

#include "arete/backend/cpu/columns.inl.h"
#include "arete/backend/cpu/small_matrices.h"

// Note [Elimination in blocks]
// A panel of kBlock columns is factored column by column, then the rows to its right are solved
// with its triangle, and what lies below them loses a product of kBlock terms (Golub and Van Loan,
// "Matrix computations", chapter 3). Triangular systems are the last two steps alone. Products keep
// a tile of several columns in registers, and the triangle of a block is gone through with its rows
// in registers: a row that is known is spread over a vector, times the column that it belongs to.
// The columns of a right-hand side are taken in the order of their first elements that are not
// zero, so that an identity costs half of what a full one does.

namespace arete::cpu::ARETE_SIMD_TARGET {
namespace {

using kernels::Element;

constexpr int kBlock = 16;  // whole vectors of either type
constexpr int kRegisters = kVectorBytes == 64 ? 32 : 16;

int64_t whole_blocks(int64_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

// kRows vectors of kColumns columns of c: c -= a b.
template <int kRows, int kColumns, class T>
void subtract_tile(T* c, const T* b, int64_t stride, const T* a, int64_t a_stride, int depth) {
  PackOf<T> sum[kColumns][kRows];
#pragma GCC unroll 8
  for (int j = 0; j < kColumns; ++j)
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) sum[j][r] = pack_at(c + j * stride + r * kWidth<T>);
  for (int k = 0; k < depth; ++k) {
    PackOf<T> x[kRows];
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) x[r] = pack_at(a + k * a_stride + r * kWidth<T>);
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j)
#pragma GCC unroll 3
      for (int r = 0; r < kRows; ++r) sum[j][r] -= x[r] * b[j * stride + k];
  }
#pragma GCC unroll 8
  for (int j = 0; j < kColumns; ++j)
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) pack_at(c + j * stride + r * kWidth<T>) = sum[j][r];
}

// Rows [row, end) of x's columns [first, last), less columns [k, k + depth) of a times the rows of
// x of these numbers.
template <int kColumns, class T>
int64_t subtract_columns(const Columns<T>& x, int64_t first, int64_t last, int64_t row, int64_t end,
                         const Columns<T>& a, int64_t k, int depth) {
  for (; first + kColumns <= last; first += kColumns) {
    T* const column = x[first];
    const auto tile = [&]<int kRows>(int64_t i) {
      subtract_tile<kRows, kColumns>(column + i, column + k, x.stride, a[k] + i, a.stride, depth);
    };
    int64_t i = row;
    for (; i + 3 * kWidth<T> <= end; i += 3 * kWidth<T>) tile.template operator()<3>(i);
    if (end - i >= 2 * kWidth<T>)
      tile.template operator()<2>(i);
    else if (i < end)
      tile.template operator()<1>(i);
  }
  return first;
}
template <class T>
void subtract_product(const Columns<T>& x, int64_t first, int64_t last, int64_t row, int64_t end,
                      const Columns<T>& a, int64_t k, int depth) {
  if constexpr (kRegisters == 32)
    first = subtract_columns<8>(x, first, last, row, end, a, k, depth);
  first = subtract_columns<4>(x, first, last, row, end, a, k, depth);
  subtract_columns<1>(x, first, last, row, end, a, k, depth);
}

template <int kLane, class T>
PackOf<T> spread(const PackOf<T>& v) {
  using Lanes = decltype(v == v);
  return __builtin_shuffle(v, Lanes{} + kLane);
}

// The triangle of a block, its columns divided by the diagonal.
template <class T>
struct Triangle {
  alignas(kVectorBytes) T columns[kBlock * kBlock];
  alignas(kVectorBytes) T inverse[kBlock];
  bool upper, unit;

  // Of a's rows and columns from k on; beyond n the identity.
  Triangle(const Columns<T>& a, int64_t n, int64_t k, bool upper_in, bool unit_in)
      : upper(upper_in), unit(unit_in) {
    std::fill(columns, columns + kBlock * kBlock, T(0));
    std::fill(inverse, inverse + kBlock, T(1));
    const int side = int(std::min<int64_t>(kBlock, n - k));
    for (int j = 0; j < side; ++j) {
      const T* const from = a[k + j] + k;
      if (!unit) inverse[j] = 1 / from[j];
      for (int i = upper ? 0 : j + 1, end = upper ? j : side; i < end; ++i)
        columns[j * kBlock + i] = unit ? from[i] : from[i] / from[j];
    }
  }

  // One step for each row of a block: the others lose its multiples.
  template <int kStep, bool kUpper, int kColumns, int kPacks>
  void eliminate(PackOf<T> (&v)[kColumns][kPacks]) const {
    if constexpr (kStep < kBlock) {
      constexpr int k = kUpper ? kBlock - 1 - kStep : kStep;
      constexpr int first = kUpper ? 0 : k / kWidth<T>;
      constexpr int last = kUpper ? k / kWidth<T> : kPacks - 1;
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) {
        const PackOf<T> known = spread<k % kWidth<T>, T>(v[j][k / kWidth<T>]);
#pragma GCC unroll 8
        for (int r = first; r <= last; ++r)
          v[j][r] -= pack_at(columns + k * kBlock + r * kWidth<T>) * known;
      }
      eliminate<kStep + 1, kUpper>(v);
    }
  }
  template <bool kUpper, int kColumns>
  void solve_columns(T* x, int64_t stride) const {
    constexpr int kPacks = kBlock / kWidth<T>;
    PackOf<T> v[kColumns][kPacks];
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j)
#pragma GCC unroll 8
      for (int r = 0; r < kPacks; ++r) v[j][r] = pack_at(x + j * stride + r * kWidth<T>);
    eliminate<0, kUpper>(v);
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j)
#pragma GCC unroll 8
      for (int r = 0; r < kPacks; ++r)
        pack_at(x + j * stride + r * kWidth<T>) = v[j][r] * pack_at(inverse + r * kWidth<T>);
  }
  // Rows from k on of x's columns [first, last).
  void solve(const Columns<T>& x, int64_t first, int64_t last, int64_t k) const {
    constexpr int kColumns = std::min(8, std::max(1, kRegisters / 2 / (kBlock / kWidth<T>)));
    for (; first + kColumns <= last; first += kColumns)
      upper ? solve_columns<true, kColumns>(x[first] + k, x.stride)
            : solve_columns<false, kColumns>(x[first] + k, x.stride);
    for (; first < last; ++first)
      upper ? solve_columns<true, 1>(x[first] + k, x.stride)
            : solve_columns<false, 1>(x[first] + k, x.stride);
  }
};

// c's columns of so many rows from a matrix with `leading` elements from column to column, or from
// its transpose.
template <class T>
void fill_from(const Columns<T>& c, const T* a, int64_t rows, int64_t leading, bool transposed) {
  for (int64_t j = 0; j < c.n; ++j) {
    if (transposed)
      for (int64_t i = 0; i < rows; ++i) c[j][i] = a[i * leading + j];
    else
      std::copy_n(a + j * leading, rows, c[j]);
    std::fill(c[j] + rows, c[j] + c.stride, T(0));
  }
}
template <class T>
Columns<T> copy_of(Scratch& scratch, const T* a, int64_t rows, int64_t columns, int64_t leading,
                   bool transposed) {
  const int64_t stride = whole_blocks(rows);
  const Columns<T> c{scratch.take<T>(stride * columns), columns, stride};
  fill_from(c, a, rows, leading, transposed);
  return c;
}
template <class T>
size_t size_of_copy(int64_t rows, int64_t columns) {
  return Scratch::size<T>(whole_blocks(rows) * columns);
}

// x becomes the solution of a triangular system of n rows. `used[b]` of x's columns have elements
// that are not zero in the first b + 1 blocks of rows (of a lower triangle; null: all).
template <class T>
void solve_triangle(const Columns<T>& a, int64_t n, bool upper, bool unit, const Columns<T>& x,
                    const int64_t* used = nullptr) {
  const int64_t blocks = whole_blocks(n) / kBlock;
  for (int64_t step = 0; step < blocks; ++step) {
    const int64_t block = upper ? blocks - 1 - step : step, k = block * kBlock;
    const int depth = int(std::min<int64_t>(kBlock, n - k));
    const int64_t columns = used ? used[block] : x.n;
    Triangle<T>(a, n, k, upper, unit).solve(x, 0, columns, k);
    if (upper)
      subtract_product(x, 0, columns, 0, k, a, k, depth);
    else
      subtract_product(x, 0, columns, k + kBlock, x.stride, a, k, depth);
  }
}

// The row of the largest element of a column of m rows, from row `first` on; NaN is none.
template <class T>
int64_t largest(const T* column, int64_t first, int64_t m, int64_t stride) {
  using Lanes = decltype(PackOf<T>{} < PackOf<T>{});
  Lanes lane;
  for (int i = 0; i < kWidth<T>; ++i) lane[i] = i;
  const int64_t begin = first / kWidth<T> * kWidth<T>;
  PackOf<T> most = PackOf<T>{} - 1;
  Lanes where = {}, row = lane + Element<Lanes>(begin);
  const auto take = [&](const PackOf<T>& size, const Lanes& at, const Lanes& better) {
    most = better ? size : most;
    where = better ? at : where;
  };
  for (int64_t i = begin; i < stride; i += kWidth<T>, row += kWidth<T>) {
    const PackOf<T> v = pack_at(column + i), size = v < 0 ? -v : v;
    take(size, row, (size > most) & (row >= Element<Lanes>(first)));
  }
  for (int half = kWidth<T> / 2; half > 0; half /= 2) {
    const PackOf<T> other = __builtin_shuffle(most, lane ^ half);
    const Lanes at = __builtin_shuffle(where, lane ^ half);
    take(other, at, (other > most) | ((other == most) & (at < where)));
  }
  return most[0] < 0 || where[0] >= m ? first : where[0];
}

template <class T>
int factor(int64_t m, int64_t n, T* a, int32_t* pivots) {
  Scratch scratch(size_of_copy<T>(m, n) + Scratch::size<T>(whole_blocks(m)));
  const Columns<T> c = copy_of(scratch, a, m, n, m, false);
  T* const v = scratch.take<T>(c.stride);
  int info = 0;
  for (int64_t k = 0, steps = std::min(m, n); k < steps; k += kBlock) {
    const int64_t end = std::min(k + kBlock, steps);
    for (int64_t j = k; j < end; ++j) {
      T* const column = c[j];
      const int64_t pivot = largest(column, j, m, c.stride);
      pivots[j] = int32_t(pivot + 1);
      if (pivot != j)
        for (int64_t i = k; i < end; ++i) std::swap(c[i][j], c[i][pivot]);
      // The multiples of row j that the others lose. Also below a pivot of 0, where NaN may stand.
      const T divisor = column[j] == 0 ? T(1) : column[j];
      if (column[j] == 0 && info == 0) info = int(j + 1);
      const int64_t row = j / kWidth<T> * kWidth<T>;
      for (int64_t i = row; i < c.stride; i += kWidth<T>)
        pack_at(v + i) = pack_at(column + i) / divisor;
      std::fill(v + row, v + j + 1, T(0));
      std::copy(v + j + 1, v + c.stride, column + j + 1);
      for (int64_t i = j + 1; i < end; ++i) {
        const T factor = c[i][j];
        for (int64_t r = row; r < c.stride; r += kWidth<T>)
          pack_at(c[i] + r) -= pack_at(v + r) * factor;
      }
    }
    for (int64_t i = 0; i < n; ++i)
      if (i < k || i >= end)
        for (int64_t j = k; j < end; ++j) std::swap(c[i][j], c[i][pivots[j] - 1]);
    if (end == n) continue;
    Triangle<T>(c, end, k, false, true).solve(c, end, n, k);
    subtract_product(c, end, n, k + kBlock, c.stride, c, k, int(end - k));
  }
  for (int64_t j = 0; j < n; ++j) std::copy_n(c[j], m, a + j * m);
  return info;
}

// A X = B with the factors of A in `a` (of A^T, if transposed) for some columns of B, for which
// there is room; rows[i] is row i after the exchanges.
template <class T>
void solve_some(const Columns<T>& a, bool transposed, const std::vector<int64_t>& rows,
                int64_t columns, T* b, T* room) {
  const int64_t n = int64_t(rows.size());
  const Columns<T> x{room, columns, a.stride};
  const auto clear_rest = [&](int64_t j) { std::fill(x[j] + n, x[j] + x.stride, T(0)); };
  if (transposed) {
    for (int64_t j = 0; j < columns; ++j) {
      std::copy_n(b + j * n, n, x[j]);
      clear_rest(j);
    }
    solve_triangle(a, n, false, false, x);
    solve_triangle(a, n, true, true, x);
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t i = 0; i < n; ++i) b[j * n + rows[size_t(i)]] = x[j][i];
    return;
  }
  // By the block of the first element that is not zero.
  const int64_t blocks = a.stride / kBlock;
  std::vector<int64_t> block_of(size_t(columns), 0), used(size_t(blocks), 0);
  for (int64_t j = 0; j < columns; ++j) {
    int64_t i = 0;
    while (i < n - 1 && b[j * n + rows[size_t(i)]] == 0) ++i;
    ++used[size_t(block_of[size_t(j)] = i / kBlock)];
  }
  std::partial_sum(used.begin(), used.end(), used.begin());
  std::vector<int64_t> place(size_t(columns), 0), next(size_t(blocks), 0);
  std::copy_n(used.begin(), blocks - 1, next.begin() + 1);
  for (int64_t j = 0; j < columns; ++j) {
    const int64_t to = place[size_t(j)] = next[size_t(block_of[size_t(j)])]++;
    for (int64_t i = 0; i < n; ++i) x[to][i] = b[j * n + rows[size_t(i)]];
    clear_rest(to);
  }
  solve_triangle(a, n, false, true, x, used.data());
  solve_triangle(a, n, true, false, x);
  for (int64_t j = 0; j < columns; ++j) std::copy_n(x[place[size_t(j)]], n, b + j * n);
}

constexpr int64_t kMostColumns = 512;  // that are copied at a time

template <class T>
void solve_factored(bool transposed, int64_t n, int64_t columns, const T* lu, const int32_t* pivots,
                    T* b) {
  const int64_t most = std::min(columns, kMostColumns);
  Scratch scratch(size_of_copy<T>(n, n) + size_of_copy<T>(n, most));
  const Columns<T> a = copy_of(scratch, lu, n, n, n, transposed);
  T* const room = scratch.take<T>(a.stride * most);
  std::vector<int64_t> rows(size_t(n), 0);
  std::iota(rows.begin(), rows.end(), 0);
  for (int64_t i = 0; i < n; ++i) std::swap(rows[size_t(i)], rows[size_t(pivots[i] - 1)]);
  for (int64_t j = 0; j < columns; j += most)
    solve_some(a, transposed, rows, std::min(most, columns - j), b + j * n, room);
}

// X A = B is A^T X^T = B^T.
template <class T>
void solve_triangular(bool left, bool upper, bool transposed, bool unit, int64_t m, int64_t n,
                      const T* a, T* b) {
  const int64_t side = left ? m : n, columns = left ? n : m, most = std::min(columns, kMostColumns);
  Scratch scratch(size_of_copy<T>(side, side) + size_of_copy<T>(side, most));
  const bool turned = transposed == left;
  const Columns<T> c = copy_of(scratch, a, side, side, side, turned);
  T* const room = scratch.take<T>(c.stride * most);
  for (int64_t first = 0; first < columns; first += most) {
    const Columns<T> x{room, std::min(most, columns - first), c.stride};
    T* const some = b + first * (left ? m : 1);
    fill_from(x, some, side, m, !left);
    solve_triangle(c, side, upper != turned, unit, x);
    for (int64_t j = 0; j < x.n; ++j) {
      if (left)
        std::copy_n(x[j], m, some + j * m);
      else
        for (int64_t i = 0; i < n; ++i) some[i * m + j] = x[j][i];
    }
  }
}

}  // namespace

int getrf(bool wide, int64_t m, int64_t n, void* a, int32_t* pivots) {
  if (wide) return factor(m, n, static_cast<double*>(a), pivots);
  return factor(m, n, static_cast<float*>(a), pivots);
}

void getrs(bool wide, bool transposed, int64_t n, int64_t columns, const void* lu,
           const int32_t* pivots, void* b) {
  if (wide)
    return solve_factored(transposed, n, columns, static_cast<const double*>(lu), pivots,
                          static_cast<double*>(b));
  solve_factored(transposed, n, columns, static_cast<const float*>(lu), pivots,
                 static_cast<float*>(b));
}

void trsm(bool wide, bool left, bool upper, bool transposed, bool unit, int64_t m, int64_t n,
          const void* a, void* b) {
  if (wide)
    return solve_triangular(left, upper, transposed, unit, m, n, static_cast<const double*>(a),
                            static_cast<double*>(b));
  solve_triangular(left, upper, transposed, unit, m, n, static_cast<const float*>(a),
                   static_cast<float*>(b));
}

}  // namespace arete::cpu::ARETE_SIMD_TARGET
