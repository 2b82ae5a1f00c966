// The element at one place of each row's order: of short rows the one that has this rank, of others
// the one that a partition leaves there. No order of the rest is made.
#include <algorithm>
#include <memory>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/kernels/kernel_table.h"
#include "arete/backend/cpu/ordered_key.h"
#include "arete/backend/cpu/walk.h"
#include "arete/base/thread_pool.h"
#include "arete/core/complex.h"

namespace arete::cpu {
namespace {

using prim::SelectArgs;
using Place = SelectArgs::Place;

/// Ranks of longer rows take longer than a partition.
constexpr int64_t kMostByRanks = 96;
static_assert(kMostByRanks <= kernels::kMostRanked);

template <class T>
constexpr bool kHasNan = is_floating(dtype_of<T>);

/// The place that is wanted in a row of n elements, the last `nan` of which in order are NaN.
int64_t place_of(const SelectArgs& a, int64_t n, int64_t nan) {
  if (a.place == Place::rank) return a.rank;
  if (a.place == Place::median && nan > 0) return n - nan;
  return std::max<int64_t>(n - nan - 1, 0) / 2;
}

template <class T>
void select_as(const SelectArgs& a) {
  using Key = OrderedKey<T>;
  const int64_t n = a.in.sizes[size_t(a.dim)], stride = a.in.strides[size_t(a.dim)];
  const bool by_ranks = sizeof(Key) == 4 && n <= kMostByRanks;
  const Walk<3> walk(a.in.sizes, a.dim, {&a.in, &a.values, &a.indices});
  parallel_for(0, walk.count(), grain_of_steps(n), [&](int64_t begin, int64_t end) {
    const std::unique_ptr<Key[]> keys(new Key[size_t(by_ranks ? kernels::kMostRanked : n)]);
    for_each_run(walk, begin, end, [&](const Walk<3>& w, int64_t lanes) {
      for (int64_t l = 0; l < lanes; ++l) {
        const T* in = reinterpret_cast<const T*>(a.in.data + w.offset(0) + l * w.stride(0));
        int64_t nan = 0;
        for (int64_t i = 0; i < n; ++i) {
          const Key key = keys[size_t(i)] = ordered_key(in[i * stride]);
          if constexpr (kHasNan<T>) nan += key == Key(FloatBits<T>(~FloatBits<T>(0)));
        }
        const int64_t place = place_of(a, n, nan);
        int64_t from = 0;
        if (by_ranks) {
          if constexpr (sizeof(Key) == 4) {
            int32_t ranks[kernels::kMostRanked];
            kernels::table().rank(keys.get(), ranks, n);
            while (ranks[from] != place) ++from;
          }
        } else {
          Key* const wanted = keys.get() + place;
          std::nth_element(keys.get(), wanted, keys.get() + n);
          const Key key = *wanted;
          // Of equal elements the one whose place among them is this, in order of position.
          int64_t before = std::count(keys.get(), wanted, key);
          for (;; ++from)
            if (ordered_key(in[from * stride]) == key && before-- == 0) break;
        }
        *reinterpret_cast<T*>(a.values.data + w.offset(1) + l * w.stride(1)) = in[from * stride];
        *reinterpret_cast<int64_t*>(a.indices.data + w.offset(2) + l * w.stride(2)) = from;
      }
    });
  });
}

}  // namespace

void CpuBackend::select(const SelectArgs& a) {
  const int64_t n = a.in.rank() > 0 ? a.in.sizes[size_t(a.dim)] : 1;
  // Several places of a row want its order; a few first elements are found with less memory.
  const bool few = a.place == Place::rank && a.rank < 64 && n > kernels::kMostRanked;
  if (n <= 1 || few || a.place == Place::ranks) return Primitives::select(a);
  visit_dtype(a.in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!is_complex(dtype_of<T>)) {
      select_as<T>(a);
    } else {
      Primitives::select(a);
    }
  });
}

}  // namespace arete::cpu
