// Compiled once per instruction set; see Note [Elimination in blocks].
#include <algorithm>
#include <cmath>
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
//
// Blocks take multiples of zeros, too, and quotients of the matrix' elements in place of those of
// the right-hand side. So where a quotient leaves the range of normal numbers, or the result is not
// finite, right-hand sides are solved again row by row, and getrf says that it must be done so.

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

template <class T>
bool is_normal(T x) {
  const T size = std::fabs(x);
  return (size >= std::numeric_limits<T>::min()) & (size <= std::numeric_limits<T>::max());
}
template <class T>
bool all_finite(const Columns<T>& c) {
  PackOf<T> total = {};  // of zeros and NaN
  for (T *p = c.data, *end = c[c.n]; p < end; p += kWidth<T>) total += pack_at(p) - pack_at(p);
  return sum_of<T>(total) == 0;
}

// The triangle of a block, its columns divided by the diagonal. `exact`: that left the range of
// normal numbers nowhere.
template <class T>
struct Triangle {
  alignas(kVectorBytes) T columns[kBlock * kBlock];
  alignas(kVectorBytes) T inverse[kBlock];
  bool upper, unit, exact = true;

  // Of a's rows and columns from k on; beyond n the identity.
  Triangle(const Columns<T>& a, int64_t n, int64_t k, bool upper_in, bool unit_in)
      : upper(upper_in), unit(unit_in) {
    std::fill(columns, columns + kBlock * kBlock, T(0));
    std::fill(inverse, inverse + kBlock, T(1));
    const int side = int(std::min<int64_t>(kBlock, n - k));
    for (int j = 0; j < side; ++j) {
      const T* const from = a[k + j] + k;
      const int first = upper ? 0 : j + 1, end = upper ? j : side;
      if (unit) {
        std::copy(from + first, from + end, columns + j * kBlock + first);
        continue;
      }
      inverse[j] = 1 / from[j];
      exact &= is_normal(inverse[j]);
      for (int i = first; i < end; ++i) {
        const T quotient = columns[j * kBlock + i] = from[i] / from[j];
        exact &= (from[i] == 0) | is_normal(quotient);
      }
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

// As solve_triangle, row by row: an element is divided by the diagonal before its multiples are
// taken, and only rows that depend on what is not finite become so.
template <class T>
void substitute(const Columns<T>& a, int64_t n, bool upper, bool unit, const Columns<T>& x) {
  for (int64_t j = 0; j < x.n; ++j)
    for (int64_t step = 0; step < n; ++step) {
      const int64_t k = upper ? n - 1 - step : step;
      T* const v = x[j];
      const T* const column = a[k];
      const T known = unit ? v[k] : v[k] /= column[k];
      for (int64_t i = upper ? 0 : k + 1, end = upper ? k : n; i < end; ++i)
        v[i] -= column[i] * known;
    }
}

enum class Way : uint8_t { by_blocks, by_rows };

// x becomes the solution of a triangular system of n rows; false: by blocks it would not be one.
// `used[b]` of x's columns have elements that are not zero in the first b + 1 blocks of rows (of a
// lower triangle; null: all).
template <class T>
bool solve_triangle(Way way, const Columns<T>& a, int64_t n, bool upper, bool unit,
                    const Columns<T>& x, const int64_t* used = nullptr) {
  if (way == Way::by_rows) {
    substitute(a, n, upper, unit, x);
    return true;
  }
  const int64_t blocks = whole_blocks(n) / kBlock;
  for (int64_t step = 0; step < blocks; ++step) {
    const int64_t block = upper ? blocks - 1 - step : step, k = block * kBlock;
    const int depth = int(std::min<int64_t>(kBlock, n - k));
    const int64_t columns = used ? used[block] : x.n;
    const Triangle<T> triangle(a, n, k, upper, unit);
    if (!triangle.exact) return false;
    triangle.solve(x, 0, columns, k);
    if (upper)
      subtract_product(x, 0, columns, 0, k, a, k, depth);
    else
      subtract_product(x, 0, columns, k + kBlock, x.stride, a, k, depth);
  }
  return true;
}

// x becomes a solution: fill() makes it the right-hand sides, and solve(way) is as solve_triangle.
template <class T, class Fill, class Solve>
void solve_filled(const Columns<T>& x, Fill&& fill, Solve&& solve) {
  fill();
  if (solve(Way::by_blocks) && all_finite(x)) return;
  fill();
  solve(Way::by_rows);
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
  if (!all_finite(c)) return kNotFinite;
  for (int64_t j = 0; j < n; ++j) std::copy_n(c[j], m, a + j * m);
  return info;
}

template <class T>
void solve_factored(bool transposed, int64_t n, int64_t columns, const T* lu, const int32_t* pivots,
                    T* b) {
  Scratch scratch(size_of_copy<T>(n, n) + size_of_copy<T>(n, columns));
  const Columns<T> a = copy_of(scratch, lu, n, n, n, transposed);
  const Columns<T> x{scratch.take<T>(a.stride * columns), columns, a.stride};
  std::vector<int64_t> rows(size_t(n), 0);  // where each stands after the exchanges
  std::iota(rows.begin(), rows.end(), 0);
  for (int64_t i = 0; i < n; ++i) std::swap(rows[size_t(i)], rows[size_t(pivots[i] - 1)]);
  if (transposed) {
    solve_filled(
        x, [&] { fill_from(x, b, n, n, false); },
        [&](Way way) {
          return solve_triangle(way, a, n, false, false, x) &&
                 solve_triangle(way, a, n, true, true, x);
        });
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
  for (int64_t j = 0; j < columns; ++j) place[size_t(j)] = next[size_t(block_of[size_t(j)])]++;
  solve_filled(
      x,
      [&] {
        for (int64_t j = 0; j < columns; ++j) {
          T* const to = x[place[size_t(j)]];
          for (int64_t i = 0; i < n; ++i) to[i] = b[j * n + rows[size_t(i)]];
          std::fill(to + n, to + x.stride, T(0));
        }
      },
      [&](Way way) {
        return solve_triangle(way, a, n, false, true, x, used.data()) &&
               solve_triangle(way, a, n, true, false, x);
      });
  for (int64_t j = 0; j < columns; ++j) std::copy_n(x[place[size_t(j)]], n, b + j * n);
}

// X A = B is A^T X^T = B^T.
template <class T>
void solve_triangular(bool left, bool upper, bool transposed, bool unit, int64_t m, int64_t n,
                      const T* a, T* b, int64_t leading) {
  const int64_t side = left ? m : n, columns = left ? n : m;
  Scratch scratch(size_of_copy<T>(side, side) + size_of_copy<T>(side, columns));
  const bool turned = transposed == left;
  const Columns<T> c = copy_of(scratch, a, side, side, side, turned);
  const Columns<T> x{scratch.take<T>(c.stride * columns), columns, c.stride};
  solve_filled(
      x, [&] { fill_from(x, b, side, leading, !left); },
      [&](Way way) { return solve_triangle(way, c, side, upper != turned, unit, x); });
  for (int64_t j = 0; j < columns; ++j) {
    if (left)
      std::copy_n(x[j], m, b + j * leading);
    else
      for (int64_t i = 0; i < n; ++i) b[i * leading + j] = x[j][i];
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
          const void* a, void* b, int64_t leading) {
  if (wide)
    return solve_triangular(left, upper, transposed, unit, m, n, static_cast<const double*>(a),
                            static_cast<double*>(b), leading);
  solve_triangular(left, upper, transposed, unit, m, n, static_cast<const float*>(a),
                   static_cast<float*>(b), leading);
}

}  // namespace arete::cpu::ARETE_SIMD_TARGET
