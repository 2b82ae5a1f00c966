// Whole rows by index: embedding look-ups and their gradients.
#include <algorithm>
#include <cstring>

#include "arete/backend/cpu/combine.h"
#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/indexing.h"
#include "arete/backend/cpu/walk.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"

namespace arete::cpu {
namespace {

// to[i] += from[i]; the contiguous loop vectorizes.
template <class T>
void add_row(T* to, int64_t so, const T* from, int64_t sf, int64_t width) {
  using C = CombineType<T>;
  if (so == 1 && sf == 1) {
    for (int64_t i = 0; i < width; ++i) to[i] = T(wrapping_add(C(to[i]), C(from[i])));
  } else {
    for (int64_t i = 0; i < width; ++i)
      to[i * so] = T(wrapping_add(C(to[i * so]), C(from[i * sf])));
  }
}

template <class T>
void add_rows_as(const prim::AddRowsArgs& a, IndexCheck& check) {
  const int64_t n = a.src.sizes[0], width = a.src.sizes[1], rows = a.out.sizes[0];
  const int64_t* index = a.index.as<int64_t>();
  T* const out = a.out.as<T>();
  const T* const src = a.src.as<T>();
  const int64_t so = a.out.strides[0], ss = a.src.strides[0], wo = a.out.strides[1],
                ws = a.src.strides[1];
  // Threads own disjoint columns, or disjoint rows where rows are short; either way each sum is
  // formed in index order.
  const int64_t column_grain = std::max<int64_t>(64, 32768 / std::max<int64_t>(n, 1));
  if (width >= 128) {
    parallel_for(0, width, column_grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < n; ++i) {
        const int64_t k = check.resolve(index[i]);
        if (k >= 0)
          add_row(out + k * so + begin * wo, wo, src + i * ss + begin * ws, ws, end - begin);
      }
    });
    return;
  }
  const int64_t row_grain = n * width < 65536 ? rows : std::max<int64_t>(1, rows / 16);
  parallel_for(0, rows, row_grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t k = check.resolve(index[i]);
      if (k >= begin && k < end) add_row(out + k * so, wo, src + i * ss, ws, width);
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
  IndexCheck check(table.sizes[0]);
  parallel_for(0, out.sizes[0], grain_for(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t k = check.resolve(index[i]);
      if (k < 0) continue;
      std::byte* to = out.data + i * out.strides[0] * size;
      const std::byte* from = table.data + k * table.strides[0] * size;
      if (whole) {
        if (width > 0) std::memcpy(to, from, size_t(width * size));
      } else {
        for (int64_t j = 0; j < width; ++j)
          std::memcpy(to + j * out.strides[1] * size, from + j * table.strides[1] * size,
                      size_t(size));
      }
    }
  });
  check.raise(args.op, 0);
}

void CpuBackend::add_rows(const prim::AddRowsArgs& args) {
  ARETE_ASSERT(args.index.dtype == kInt64 && args.index.is_contiguous());
  ARETE_ASSERT(args.out.rank() == 2 && args.src.rank() == 2 && args.out.dtype == args.src.dtype &&
               args.out.sizes[1] == args.src.sizes[1] && args.index.numel() == args.src.sizes[0]);
  IndexCheck check(args.out.sizes[0]);
  visit_dtype(args.out.dtype,
              [&](auto tag) { add_rows_as<typename decltype(tag)::type>(args, check); });
  check.raise(args.op, 0);
}

}  // namespace arete::cpu
