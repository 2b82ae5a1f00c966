// Sort along a dimension: stable with indices.
#include <algorithm>
#include <bit>
#include <tuple>
#include <vector>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/kernels/kernel_table.h"
#include "arete/backend/cpu/kernels/sort_table.h"
#include "arete/backend/cpu/radix_sort.h"
#include "arete/backend/cpu/sort_items.h"
#include "arete/backend/cpu/walk.h"
#include "arete/base/error.h"
#include "arete/core/complex.h"

namespace arete::cpu {
namespace {

using prim::SortArgs;

constexpr int64_t kParallelFrom = 1 << 16;  // shorter lanes: one thread each
constexpr int kFewDigits = 16;              // keys of fewer bits: a radix sort is the fastest

template <class T>
struct Lane {
  const T* in;
  T* values;         // or null
  int64_t* indices;  // or null
  int64_t n, in_stride, value_stride, index_stride;
};

/// f(i) for i < n, in `parts` pieces.
template <class F>
void for_parts(int64_t n, int parts, F&& f) {
  parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = n * first / parts, end = n * last / parts; i < end; ++i) f(i);
  });
}

template <class T, class Item>
void write_out(const Lane<T>& l, const Item* sorted, int parts) {
  for_parts(l.n, parts, [&](int64_t i) {
    const int64_t from = sorted[i].position();
    if (l.values) l.values[i * l.value_stride] = l.in[from * l.in_stride];
    if (l.indices) l.indices[i * l.index_stride] = from;
  });
}

constexpr int64_t kLongRun = 2048;  // of ties, that a comparison each is too slow for

/// Sorts items with equal keys by `rest`, the other `bits` bits; `other` holds n more items.
template <class Rest>
void settle_ties(PackedItem* items, PackedItem* other, int64_t n, int bits, int parts,
                 Rest&& rest) {
  const auto before = [&](const PackedItem& a, const PackedItem& b) {
    const uint32_t ra = rest(a.position()), rb = rest(b.position());
    return ra < rb || (ra == rb && a.position() < b.position());
  };
  const auto tied = [&](int64_t i) { return items[i].key() == items[i - 1].key(); };
  // A run belongs to the part in which it begins.
  std::vector<int64_t> begins(size_t(parts) + 1, n);
  parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      int64_t i = n * p / parts;
      while (i > 0 && i < n && tied(i)) ++i;
      begins[size_t(p)] = i;
    }
  });
  struct Run {
    int64_t begin, end;
  };
  std::vector<std::vector<Run>> long_runs(static_cast<size_t>(parts));
  parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      // Ties are rare: eight places at once are looked at.
      const int64_t end = begins[size_t(p) + 1];
      for (int64_t i = begins[size_t(p)] + 1; i < end; ++i) {
        for (; i + 8 <= end; i += 8) {
          bool any = false;
#pragma GCC unroll 8
          for (int k = 0; k < 8; ++k) any |= tied(i + k);
          if (any) break;
        }
        if (i == end || !tied(i)) continue;
        const int64_t begin = i - 1;
        bool sorted = true;
        for (; i < end && tied(i); ++i) sorted &= before(items[i - 1], items[i]);
        if (sorted) continue;
        if (i - begin < kLongRun)
          std::sort(items + begin, items + i, before);
        else
          long_runs[size_t(p)].push_back({begin, i});
      }
    }
  });
  for (const std::vector<Run>& runs : long_runs)
    for (const Run& r : runs) {
      PackedItem *const from = items + r.begin, *const to = other + r.begin;
      const int64_t count = r.end - r.begin;
      const auto make = [&](int64_t i) {
        return PackedItem(rest(from[i].position()), from[i].position());
      };
      if (radix_sort(make, count, bits, parts, to, from) == to) std::copy_n(to, count, from);
    }
}

template <class Key>
const kernels::KeySort<Key>& key_sort() {
  static const kernels::SortTable& table = ARETE_SELECT_TABLE(sort_table);
  if constexpr (sizeof(Key) == 4)
    return table.of_32;
  else
    return table.of_64;
}

/// By vectors: Note [Sorting by vectors] in kernels/sort.simd.cpp. Splits until there is a piece
/// for each of `parts` threads, and some more, since pieces are not equal.
template <class Key>
void sort_keys(Key* keys, int64_t n, int parts) {
  struct Piece {
    int64_t begin, end, middle;
  };
  const kernels::KeySort<Key>& by_vectors = key_sort<Key>();
  std::vector<Piece> pieces{{0, n, 0}};
  const auto for_pieces = [&](auto&& f) {
    parallel_for(0, int64_t(pieces.size()), 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) f(pieces[size_t(i)]);
    });
  };
  for (int wanted = 2; parts > 1 && wanted <= 8 * parts; wanted *= 2) {
    for_pieces([&](Piece& p) {
      const int64_t count = p.end - p.begin;
      p.middle =
          count < kernels::kFewestSplit ? p.end : p.begin + by_vectors.split(keys + p.begin, count);
    });
    std::vector<Piece> halves;
    for (const Piece& p : pieces) {
      halves.push_back({p.begin, p.middle, 0});
      if (p.middle < p.end) halves.push_back({p.middle, p.end, 0});
    }
    pieces.swap(halves);
  }
  for_pieces([&](const Piece& p) { by_vectors.sort(keys + p.begin, p.end - p.begin); });
}

/// Of values alone, in `keys`, which has room for n.
template <class T>
void sort_values(const Lane<T>& l, bool descending, int parts, OrderedKey<T>* keys) {
  const OrderedKey<T> flip = descending ? OrderedKey<T>(~OrderedKey<T>(0)) : OrderedKey<T>(0);
  for_parts(l.n, parts, [&](int64_t i) { keys[i] = value_key(l.in[i * l.in_stride]) ^ flip; });
  sort_keys(keys, l.n, parts);
  for_parts(l.n, parts,
            [&](int64_t i) { l.values[i * l.value_stride] = value_of_key<T>(keys[i] ^ flip); });
}

/// The first splits of a long lane are passes of one thread and of two; the passes of a radix sort
/// are of all. Where one overtakes the other was not measured.
constexpr int kMostPartsByVectors = 8;

template <class T, class Item>
void sort_lane(const Lane<T>& l, bool descending, int parts, Item* a, Item* b) {
  using Key = typename Item::Key;
  if constexpr (sizeof(T) == 4 || sizeof(T) == 8)
    if (!l.indices && parts <= kMostPartsByVectors && key_sort<OrderedKey<T>>().sort)
      return sort_values(l, descending, parts, reinterpret_cast<OrderedKey<T>*>(a));
  const auto key = [&](int64_t i) { return sort_key(l.in[i * l.in_stride], descending); };
  if constexpr (std::is_same_v<Item, PackedItem>) {
    // Keys of 64 bits: the upper 32 of those in which they differ from the least one decide nearly
    // everything.
    int bits = kOrderedKeyBits<T>, shift = 0;
    OrderedKey<T> least = 0;
    if constexpr (sizeof(T) > 4) {
      OrderedKey<T> largest = least = key(0);
      if (std::is_same_v<T, int64_t> && l.in_stride == 1) {  // by vectors
        T low = l.in[0], high = low;
        const auto& reduce = kernels::table().reduce_rows;
        reduce[kernels::m_min][kernels::t_i64](&low, l.in, 1, l.n, 0);
        reduce[kernels::m_max][kernels::t_i64](&high, l.in, 1, l.n, 0);
        std::tie(least, largest) =
            std::minmax({sort_key(low, descending), sort_key(high, descending)});
      } else {
        for (int64_t i = 1; i < l.n; ++i) {
          least = std::min(least, key(i));
          largest = std::max(largest, key(i));
        }
      }
      bits = std::bit_width(OrderedKey<T>(largest - least));
      shift = std::max(0, bits - 32);
      bits -= shift;
    }
    const auto upper = [&](int64_t i) { return Key(OrderedKey<T>(key(i) - least) >> shift); };
    Item* sorted = a;
    if (l.n <= kernels::kMostRanked) {
      uint32_t keys[kernels::kMostRanked];
      int32_t ranks[kernels::kMostRanked];
      for (int64_t i = 0; i < l.n; ++i) keys[i] = upper(i);
      kernels::table().rank(keys, ranks, l.n);
      if constexpr (sizeof(T) <= 4) {  // without ties to settle
        for (int64_t i = 0; i < l.n; ++i) {
          if (l.values) l.values[ranks[i] * l.value_stride] = l.in[i * l.in_stride];
          if (l.indices) l.indices[ranks[i] * l.index_stride] = i;
        }
        return;
      }
      for (int64_t i = 0; i < l.n; ++i) a[ranks[i]] = Item(keys[i], i);
    } else {
      const auto make = [&](int64_t i) { return Item(upper(i), i); };
      if (bits > kFewDigits && parts <= kMostPartsByVectors && key_sort<uint64_t>().sort) {
        for_parts(l.n, parts, [&](int64_t i) { a[i] = make(i); });
        sort_keys(reinterpret_cast<uint64_t*>(a), l.n, parts);
      } else {
        sorted = radix_sort(make, l.n, bits, parts, a, b);
      }
    }
    if constexpr (sizeof(T) > 4)
      if (shift > 0)
        settle_ties(sorted, sorted == a ? b : a, l.n, shift, parts, [&](int64_t i) {
          return uint32_t((key(i) - least) & ((OrderedKey<T>(1) << shift) - 1));
        });
    write_out(l, sorted, parts);
  } else {
    const auto make = [&](int64_t i) { return Item(key(i), i); };
    write_out(l, radix_sort(make, l.n, kOrderedKeyBits<T>, parts, a, b), parts);
  }
}

template <class T, class Item>
void sort_as(CpuBackend& backend, const SortArgs& s) {
  const bool scalar = s.in.rank() == 0;
  const prim::View &indices = s.indices ? s.indices : s.values,
                   &values = s.values ? s.values : s.indices;
  const Walk<3> walk(s.in.sizes, s.dim, {&s.in, &values, &indices});
  const int64_t n = scalar ? 1 : s.in.sizes[s.dim];
  if (n == 0 || walk.count() == 0) return;
  const auto for_lanes = [&](int64_t begin, int64_t end, int parts, Item* a, Item* b) {
    for_each_run(walk, begin, end, [&](const Walk<3>& w, int64_t lanes) {
      for (int64_t i = 0; i < lanes; ++i) {
        std::byte* at[3] = {s.in.data, s.values.data, s.indices.data};
        for (int k = 0; k < 3; ++k)
          if (at[k]) at[k] += w.offset(k) + i * w.stride(k);
        sort_lane<T, Item>(
            {reinterpret_cast<const T*>(at[0]), reinterpret_cast<T*>(at[1]),
             reinterpret_cast<int64_t*>(at[2]), n, scalar ? 0 : s.in.strides[s.dim],
             scalar ? 0 : values.strides[s.dim], scalar ? 0 : indices.strides[s.dim]},
            s.descending, parts, a, b);
      }
    });
  };
  const int64_t bytes = n * int64_t(sizeof(Item)) * 2;
  const auto with_buffers = [&](auto&& f) {
    prim::ScratchView buffers(backend, kUInt8, IntList(&bytes, 1));
    Item* a = buffers.view().as<Item>();
    f(a, a + n);
  };
  const int threads = num_threads();
  if (n >= kParallelFrom && walk.count() < 2 * threads) {
    with_buffers([&](Item* a, Item* b) { for_lanes(0, walk.count(), threads, a, b); });
  } else {
    parallel_for(0, walk.count(), grain_of_steps(n * 16), [&](int64_t begin, int64_t end) {
      with_buffers([&](Item* a, Item* b) { for_lanes(begin, end, 1, a, b); });
    });
  }
}

}  // namespace

void CpuBackend::sort(const SortArgs& args) {
  ARETE_ASSERT(args.values || args.indices);
  ARETE_ASSERT(!args.values || args.values.dtype == args.in.dtype);
  ARETE_ASSERT(!args.indices || args.indices.dtype == kInt64);
  visit_dtype(args.in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_complex(dtype_of<T>)) {
      throw NotImplementedError("sort", "complex numbers have no order").argument("input");
    } else {
      const bool fits = args.in.rank() == 0 || args.in.sizes[args.dim] <= (int64_t(1) << 32);
      if (fits)
        sort_as<T, PackedItem>(*this, args);
      else
        sort_as<T, WideItem>(*this, args);
    }
  });
}

}  // namespace arete::cpu
