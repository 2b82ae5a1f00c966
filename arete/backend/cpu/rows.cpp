// Whole rows by index: embedding look-ups and their gradients.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "arete/backend/cpu/combine.h"
#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/fetch.h"
#include "arete/backend/cpu/indexing.h"
#include "arete/backend/cpu/kernels/kernel_table.h"
#include "arete/backend/cpu/walk.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/core/complex.h"

namespace arete::cpu {
namespace {

// to[j] += from[j], times *factor if there is one; rows of floating numbers by vector kernels.
template <class A, class T>
void add_row(A* to, int64_t so, const T* from, int64_t sf, int64_t width,
             const CombineType<T>* factor) {
  using C = CombineType<T>;
  if constexpr (std::is_same_v<A, C> && (std::is_same_v<A, float> || std::is_same_v<A, double>)) {
    if (so == 1 && sf == 1) {
      constexpr int64_t kBlock = 256;
      constexpr auto type = std::is_same_v<A, float> ? kernels::t_f32 : kernels::t_f64;
      const kernels::KernelTable& k = kernels::table();
      A block[std::is_same_v<A, T> ? 1 : kBlock];
      const int64_t step = std::is_same_v<A, T> ? width : kBlock;
      for (int64_t j = 0; j < width; j += step) {
        const int64_t n = std::min(step, width - j);
        const void* row = from + j;
        if constexpr (!std::is_same_v<A, T>) {
          k.load[int(dtype_of<T>)](block, row, nullptr, nullptr, n);
          row = block;
        }
        if (factor)
          k.triple[kernels::triple_mul_add][type][1](to + j, factor, row, to + j, n);
        else
          k.binary[kernels::op_add][type][kernels::vv](to + j, to + j, row, nullptr, n);
      }
      return;
    }
  }
  for (int64_t j = 0; j < width; ++j) {
    const C x = C(from[j * sf]);
    to[j * so] = A(wrapping_add(C(to[j * so]), factor ? wrapping_mul(*factor, x) : x));
  }
}

// What the entries of add_rows add.
template <class T>
class RowEntries {
  using C = CombineType<T>;

 public:
  RowEntries(const prim::AddRowsArgs& a, IndexCheck& check)
      : source_(a.source ? a.source.as<int64_t>() : nullptr),
        factors_(a.factors ? a.factors.as<T>() : nullptr),
        rows_(a.src.as<T>()),
        stride_(a.src.strides[0]),
        step_(a.src.strides[1]),
        left_out_(a.left_out < 0 ? -1 : a.left_out),
        count_(a.src.sizes[0]),
        check_(check) {}

  /// to[j] += what entry i adds, for columns [first, first + width).
  template <class A>
  void add(A* to, int64_t so, int64_t i, int64_t first, int64_t width) const {
    int64_t row = i;
    if (source_) {
      row = check_.resolve(source_[i]);
      if (row < 0) return;
    }
    if (row == left_out_) return;
    const T* const from = rows_ + row * stride_ + first * step_;
    const C factor = factors_ ? C(factors_[i]) : C();
    add_row(to, so, from, step_, width, factors_ ? &factor : nullptr);
  }
  /// to[j] += what entries i to i + 2 add, one after the other, by one kernel for all columns, if
  /// there is one.
  template <class A>
  bool add_three(A* to, int64_t so, int64_t i, int64_t width) const {
    if constexpr (std::is_same_v<A, C> && (std::is_same_v<A, float> || std::is_same_v<A, double>)) {
      const kernels::KernelTable& table = kernels::table();
      const kernels::Kernel kernel = !std::is_same_v<A, T> ? table.half_add_three[int(dtype_of<T>)]
                                     : std::is_same_v<A, float> ? table.add_three[kernels::t_f32]
                                                                : table.add_three[kernels::t_f64];
      if (!kernel || so != 1 || step_ != 1 || factors_) return false;
      const T* from[3];
      for (int64_t k = 0; k < 3; ++k) {
        const int64_t row = source_ ? source_[i + k] : i + k;
        if (uint64_t(row) >= uint64_t(count_) || row == left_out_) return false;
        from[k] = rows_ + row * stride_;
      }
      kernel(to, from[0], from[1], from[2], width);
      return true;
    } else {
      return false;
    }
  }
  /// Entry i will be wanted soon.
  void expect(int64_t i, int64_t width) const {
    if (!source_ || step_ != 1) return;
    const int64_t row = source_[i];
    if (uint64_t(row) >= uint64_t(count_)) return;
    fetch_lines(rows_ + row * stride_, std::min<int64_t>(width * int64_t(sizeof(T)), 1024));
  }

 private:
  const int64_t* source_;
  const T *factors_, *rows_;
  int64_t stride_, step_, left_out_, count_;
  IndexCheck& check_;
};

// Each row is summed by the thread in whose part its first entry is, half types in f32.
template <class T>
void add_sorted_rows(const prim::AddRowsArgs& a, const RowEntries<T>& entries, IndexCheck& check) {
  using C = CombineType<T>;
  constexpr int64_t kAhead = 16;
  const int64_t n = a.index.numel(), width = a.out.sizes[1];
  const int64_t *index = a.index.as<int64_t>(), so = a.out.strides[0], wo = a.out.strides[1];
  parallel_for(0, n, grain_of_steps(width), [&](int64_t begin, int64_t end) {
    std::vector<C> sums(std::is_same_v<C, T> ? 0 : size_t(width));
    while (begin > 0 && begin < end && index[begin] == index[begin - 1]) ++begin;
    for (int64_t i = begin; i < end;) {
      const int64_t here = index[i], k = check.resolve(here);
      if (k < 0) {
        ++i;
        continue;
      }
      T* const out = a.out.as<T>() + k * so;
      const auto add_run = [&](auto* to, int64_t step) {
        for (; i < n && index[i] == here; ++i) {
          const int64_t three = i + 2 < n && index[i + 2] == here ? 3 : 1;
          for (int64_t k = i + kAhead; k < std::min(n, i + kAhead + three); ++k)
            entries.expect(k, width);
          if (three > 1 && entries.add_three(to, step, i, width))
            i += 2;
          else
            entries.add(to, step, i, 0, width);
        }
      };
      if constexpr (std::is_same_v<C, T>) {
        add_run(out, wo);
      } else {
        C* const to = sums.data();
        const kernels::KernelTable& table = kernels::table();
        constexpr int d = int(dtype_of<T>);
        if (wo == 1)
          table.load[d](to, out, nullptr, nullptr, width);
        else
          for (int64_t j = 0; j < width; ++j) to[j] = C(out[j * wo]);
        add_run(to, 1);
        if (wo == 1)
          table.store[d](out, to, nullptr, nullptr, width);
        else
          for (int64_t j = 0; j < width; ++j) out[j * wo] = T(to[j]);
      }
    }
  });
}

// Maxima of runs. A number takes the place of one that it is above, and NaN that of any number.
template <class T>
void find_maxima_as(const prim::AddRowsArgs& a, IndexCheck& from) {
  using C = CombineType<T>;
  const int64_t n = a.source.numel(), width = a.out.sizes[1], rows = a.out.sizes[0];
  const int64_t *source = a.source.as<int64_t>(),
                *begins = a.begins ? a.begins.as<int64_t>() : nullptr;
  const T* const src = a.src.as<T>();
  const int64_t ss = a.src.strides[0], ws = a.src.strides[1], so = a.out.strides[0],
                wo = a.out.strides[1];
  const auto begin_of = [&](int64_t run) {
    if (run == 0) return int64_t(0);
    if (run == rows) return n;
    return begins ? std::clamp<int64_t>(begins[run], 0, n) : std::min(run * a.run, n);
  };
  const int64_t work = width * std::max<int64_t>(1, n / std::max<int64_t>(1, rows));
  parallel_for(0, rows, grain_of_steps(work), [&](int64_t first, int64_t last) {
    std::vector<C> best(static_cast<size_t>(width));
    std::vector<int64_t> rows_of_best(a.top ? size_t(width) : 0);
    C* const most = best.data();
    for (int64_t run = first; run < last; ++run) {
      bool any = false;
      std::fill(best.begin(), best.end(), C(0));
      std::fill(rows_of_best.begin(), rows_of_best.end(), -1);
      for (int64_t i = begin_of(run), end = begin_of(run + 1); i < end; ++i) {
        const int64_t row = from.resolve(source[i]);
        if (row < 0 || row == a.left_out) continue;
        const T* const values = src + row * ss;
        const bool is_first = !std::exchange(any, true);
        const auto take = [&](auto step, auto keep_row) {
          for (int64_t j = 0; j < width; ++j) {
            const C x = C(values[j * step]), b = most[j];
            const bool taken = is_first | (!(x <= b) & (b == b));
            most[j] = taken ? x : b;
            keep_row(j, taken);
          }
        };
        const auto take_all = [&](auto step) {
          if (a.top)
            take(step, [&](int64_t j, bool taken) {
              if (taken) rows_of_best[size_t(j)] = row;
            });
          else
            take(step, [](int64_t, bool) {});
        };
        if (ws == 1)
          take_all(std::integral_constant<int64_t, 1>());
        else
          take_all(ws);
      }
      T* const out = a.out.as<T>() + run * so;
      for (int64_t j = 0; j < width; ++j) out[j * wo] = T(most[j]);
      if (a.top) std::ranges::copy(rows_of_best, a.top.as<int64_t>() + run * width);
    }
  });
}

template <class T>
void add_rows_as(const prim::AddRowsArgs& a, IndexCheck& check, IndexCheck& from) {
  const int64_t n = a.index.numel(), width = a.src.sizes[1], rows = a.out.sizes[0];
  const int64_t* index = a.index.as<int64_t>();
  T* const out = a.out.as<T>();
  const int64_t so = a.out.strides[0], wo = a.out.strides[1];
  const RowEntries<T> entries(a, from);
  if (a.sorted) return add_sorted_rows(a, entries, check);
  // Threads own disjoint columns, or disjoint rows where rows are short; either way each sum is
  // formed in index order.
  const int64_t column_grain = std::max<int64_t>(64, grain_of_steps(n));
  if (width >= 128) {
    parallel_for(0, width, column_grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < n; ++i) {
        const int64_t k = check.resolve(index[i]);
        if (k >= 0) entries.add(out + k * so + begin * wo, wo, i, begin, end - begin);
      }
    });
    return;
  }
  const int64_t row_grain = n * width < grain_for(2) ? rows : std::max<int64_t>(1, rows / 16);
  parallel_for(0, rows, row_grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t k = check.resolve(index[i]);
      if (k >= begin && k < end) entries.add(out + k * so, wo, i, 0, width);
    }
  });
}

}  // namespace

void CpuBackend::take_rows(const prim::TakeRowsArgs& args) {
  const prim::View &table = args.table, &out = args.out;
  ARETE_ASSERT(args.index.dtype == kInt64 && args.index.is_contiguous());
  ARETE_ASSERT(table.rank() == 2 && out.rank() == 2 && table.dtype == out.dtype &&
               table.sizes[1] == out.sizes[1] && args.index.numel() == out.sizes[0]);
  const int64_t* index = args.index.as<int64_t>();
  const int64_t width = table.sizes[1], size = int64_t(size_of(out.dtype));
  const bool whole = (table.strides[1] == 1 && out.strides[1] == 1) || width == 1;
  const int64_t row = width * size, to_step = out.strides[0] * size,
                from_step = table.strides[0] * size;
  constexpr int64_t kBlock = 64;
  const int64_t last = table.sizes[0] - 1;
  // Of a table that the second cache does not hold rows are asked for before they are copied, of
  // long ones the beginning.
  constexpr int64_t kAhead = 8, kSecondCache = 1 << 19;
  const bool far = whole && table.sizes[0] * row > kSecondCache;
  const int64_t fetched = std::min<int64_t>(row, 1024);
  IndexCheck check(table.sizes[0]);
  const auto take = [&](auto to_row, auto from_row, auto copy) {
    parallel_for(0, out.sizes[0], grain_of_steps(width), [&](int64_t begin, int64_t end) {
      std::byte* const to = out.data;
      const std::byte* const from = table.data;
      int64_t i = begin;
      // Where no index of a block is out of range or negative, which is seen at once, each is what
      // it says.
      for (; i + kBlock <= end; i += kBlock) {
        int64_t signs = 0;
        for (int64_t k = 0; k < kBlock; ++k)
          signs |= index[i + k] | int64_t(uint64_t(last) - uint64_t(index[i + k]));
        if (signs < 0) break;
        if (far && i + 2 * kBlock <= end) {
          for (int64_t k = 0; k < kBlock; ++k) {
            const int64_t next = index[i + k + kAhead];
            if (uint64_t(next) <= uint64_t(last)) fetch_lines(from + next * from_row, fetched);
            copy(to + (i + k) * to_row, from + index[i + k] * from_row);
          }
          continue;
        }
#pragma GCC unroll 8
        for (int64_t k = 0; k < kBlock; ++k)
          copy(to + (i + k) * to_row, from + index[i + k] * from_row);
      }
      for (; i < end; ++i)
        if (const int64_t k = check.resolve(index[i]); k >= 0)
          copy(to + i * to_row, from + k * from_row);
    });
  };
  // Short rows are moves of a known size.
  const auto take_short = [&]<size_t kBytes>() {
    const auto move = [](std::byte* a, const std::byte* b) { std::memcpy(a, b, kBytes); };
    constexpr std::integral_constant<int64_t, kBytes> dense;
    if (to_step == dense && from_step == dense)
      take(dense, dense, move);
    else
      take(to_step, from_step, move);
  };
  if (!whole) {
    take(to_step, from_step, [&](std::byte* to, const std::byte* from) {
      for (int64_t j = 0; j < width; ++j)
        std::memcpy(to + j * out.strides[1] * size, from + j * table.strides[1] * size,
                    size_t(size));
    });
  } else if (row == 1) {
    take_short.operator()<1>();
  } else if (row == 2) {
    take_short.operator()<2>();
  } else if (row == 4) {
    take_short.operator()<4>();
  } else if (row == 8) {
    take_short.operator()<8>();
  } else if (row == 16) {
    take_short.operator()<16>();
  } else if (row > 0) {
    take(to_step, from_step,
         [&](std::byte* to, const std::byte* from) { copy_bytes(to, from, size_t(row)); });
  }
  check.raise(args.op, 0);
}

void CpuBackend::add_rows(const prim::AddRowsArgs& args) {
  if (args.in_runs() && args.what != prim::AddRowsArgs::Runs::max)
    return Primitives::add_rows(args);
  if (args.in_runs()) {
    IndexCheck from(args.src.sizes[0]);
    visit_dtype(args.out.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (is_floating(dtype_of<T>))
        find_maxima_as<T>(args, from);
      else
        ARETE_BUG("maxima of rows are of floating numbers");
    });
    return from.raise(args.op, 0);
  }
  ARETE_ASSERT(args.index.dtype == kInt64 && args.index.is_contiguous());
  ARETE_ASSERT(args.out.rank() == 2 && args.src.rank() == 2 && args.out.dtype == args.src.dtype &&
               args.out.sizes[1] == args.src.sizes[1] &&
               args.index.numel() == (args.source ? args.source : args.src).sizes[0]);
  ARETE_ASSERT(!args.factors ||
               (args.factors.is_contiguous() && args.factors.dtype == args.out.dtype));
  IndexCheck check(args.out.sizes[0]), from(args.src.sizes[0]);
  visit_dtype(args.out.dtype,
              [&](auto tag) { add_rows_as<typename decltype(tag)::type>(args, check, from); });
  from.raise(args.op, 0);
  check.raise(args.op, 0);
}

}  // namespace arete::cpu
