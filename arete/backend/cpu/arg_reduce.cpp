// Positions of extrema along a dimension.
#include <algorithm>
#include <mutex>
#include <vector>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/kernels/kernel_table.h"
#include "arete/backend/cpu/ordered_key.h"
#include "arete/backend/cpu/walk.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/core/complex.h"

namespace arete::cpu {
namespace {

template <class K>
struct Best {
  K key;
  int64_t position;
};

// The type as the kernels of reductions know it, if they do.
template <class T>
inline constexpr kernels::KType kKernelType = std::is_same_v<T, float>      ? kernels::t_f32
                                              : std::is_same_v<T, double>   ? kernels::t_f64
                                              : std::is_same_v<T, int32_t>  ? kernels::t_i32
                                              : std::is_same_v<T, int64_t>  ? kernels::t_i64
                                              : std::is_same_v<T, uint64_t> ? kernels::t_u64
                                                                            : kernels::kNumKTypes;

// The first position of a value in a run of n elements that has it; a NaN is like any other.
template <class T>
int64_t position_of(const T* p, int64_t n, T value) {
  constexpr int64_t kStep = 16;
  const bool nan = value != value;
  int64_t i = 0;
  for (bool found = false; i + kStep <= n; i += kStep) {
    for (int64_t k = 0; k < kStep; ++k)
      found |= (p[i + k] == value) | (nan & (p[i + k] != p[i + k]));
    if (found) break;
  }
  while (!(p[i] == value || (nan && p[i] != p[i]))) ++i;
  return i;
}

// The first position of the largest key in n elements `stride` apart, n >= 1. Blocks are searched
// for their largest key first (a loop that vectorizes), for its position only when it is a record.
template <bool kLargest, class T>
Best<OrderedKey<T>> best_in_lane(const T* p, int64_t n, int64_t stride) {
  using K = OrderedKey<T>;
  constexpr int64_t kBlock = 1024;
  constexpr kernels::KType type = kKernelType<T>;
  if constexpr (type != kernels::kNumKTypes) {
    if (stride == 1) {
      const kernels::ReduceKernel reduce =
          kernels::table().reduce_rows[kLargest ? kernels::m_max : kernels::m_min][type];
      int64_t at = 0;
      T value = p[0];
      for (int64_t b = 0; b < n && value == value; b += kBlock) {
        const int64_t len = std::min(kBlock, n - b);
        T top = value;
        reduce(&top, p + b, 1, len, len);
        if (top == value) continue;
        value = top;
        at = b + position_of(p + b, len, top);
      }
      return {rank_key<kLargest>(p[at]), at};
    }
  }
  Best<K> best{0, -1};
  for (int64_t b = 0; b < n; b += kBlock) {
    const int64_t len = std::min(kBlock, n - b);
    const T* q = p + b * stride;
    K top = 0;
    if (stride == 1)
      for (int64_t i = 0; i < len; ++i) top = std::max(top, rank_key<kLargest>(q[i]));
    else
      for (int64_t i = 0; i < len; ++i) top = std::max(top, rank_key<kLargest>(q[i * stride]));
    if (best.position >= 0 && top <= best.key) continue;
    int64_t i = 0;
    while (rank_key<kLargest>(q[i * stride]) != top) ++i;
    best = {top, b + i};
  }
  return best;
}

// Many neighbouring lanes at once: the reduced dimension is the slow one.
template <bool kLargest, class T>
void best_in_columns(const T* p, int64_t n, int64_t stride, int64_t columns, int64_t* out,
                     int64_t out_stride) {
  using K = OrderedKey<T>;
  constexpr int64_t kTile = 64;
  for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
    const int64_t width = std::min(kTile, columns - c0);
    K key[kTile];
    int64_t position[kTile];
    for (int64_t c = 0; c < width; ++c) {
      key[c] = rank_key<kLargest>(p[c0 + c]);
      position[c] = 0;
    }
    for (int64_t i = 1; i < n; ++i) {
      const T* row = p + i * stride + c0;
      for (int64_t c = 0; c < width; ++c) {
        const K k = rank_key<kLargest>(row[c]);
        const bool better = k > key[c];
        key[c] = better ? k : key[c];
        position[c] = better ? i : position[c];
      }
    }
    for (int64_t c = 0; c < width; ++c) out[(c0 + c) * out_stride] = position[c];
  }
}

// One long lane, shared by the threads.
template <bool kLargest, class T>
int64_t best_in_long_lane(const T* p, int64_t n, int64_t stride) {
  using K = OrderedKey<T>;
  constexpr int64_t kChunk = 1 << 16;
  std::vector<Best<K>> part(size_t((n + kChunk - 1) / kChunk));
  parallel_for(0, int64_t(part.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      part[c] =
          best_in_lane<kLargest>(p + c * kChunk * stride, std::min(kChunk, n - c * kChunk), stride);
      part[c].position += c * kChunk;
    }
  });
  Best<K> best = part[0];
  for (const Best<K>& b : part)
    if (b.key > best.key) best = b;
  return best.position;
}

template <bool kLargest, class T>
void arg_reduce_as(const prim::ArgReduceArgs& a) {
  const bool scalar = a.in.rank() == 0;
  const int64_t n = scalar ? 1 : a.in.sizes[a.dim], stride = scalar ? 0 : a.in.strides[a.dim];
  const prim::View& values = a.values ? a.values : a.out;
  const Walk<3> lanes(a.in.sizes, a.dim, {&a.in, &a.out, &values});
  const auto store_values = [&](const Walk<3>& w, int64_t i) {
    if (!a.values) return;
    const int64_t at = *reinterpret_cast<int64_t*>(a.out.data + w.offset(1) + i * w.stride(1));
    *reinterpret_cast<T*>(a.values.data + w.offset(2) + i * w.stride(2)) =
        reinterpret_cast<const T*>(a.in.data + w.offset(0) + i * w.stride(0))[at * stride];
  };
  if (n >= (1 << 17) && lanes.count() < 16 && num_threads() > 1) {
    for_each_run(lanes, 0, lanes.count(), [&](const Walk<3>& w, int64_t run) {
      for (int64_t i = 0; i < run; ++i) {
        const T* p = reinterpret_cast<const T*>(a.in.data + w.offset(0) + i * w.stride(0));
        *reinterpret_cast<int64_t*>(a.out.data + w.offset(1) + i * w.stride(1)) =
            best_in_long_lane<kLargest>(p, n, stride);
        store_values(w, i);
      }
    });
    return;
  }
  parallel_for(0, lanes.count(), grain_of_steps(200 + 2 * n), [&](int64_t begin, int64_t end) {
    for_each_run(lanes, begin, end, [&](const Walk<3>& w, int64_t run) {
      const T* p = reinterpret_cast<const T*>(a.in.data + w.offset(0));
      int64_t* out = reinterpret_cast<int64_t*>(a.out.data + w.offset(1));
      if (w.stride(0) == int64_t(sizeof(T)) && run > 4) {
        best_in_columns<kLargest>(p, n, stride, run, out, w.stride(1) / int64_t(sizeof(int64_t)));
      } else {
        for (int64_t i = 0; i < run; ++i)
          out[i * w.stride(1) / int64_t(sizeof(int64_t))] =
              best_in_lane<kLargest>(p + i * w.stride(0) / int64_t(sizeof(T)), n, stride).position;
      }
      for (int64_t i = 0; i < run; ++i) store_values(w, i);
    });
  });
}

}  // namespace

void CpuBackend::arg_reduce(const prim::ArgReduceArgs& args) {
  ARETE_ASSERT(args.out.dtype == kInt64);
  visit_dtype(args.in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_complex(dtype_of<T>)) {
      throw NotImplementedError(args.largest ? "argmax" : "argmin", "complex numbers have no order")
          .argument("input");
    } else {
      args.largest ? arg_reduce_as<true, T>(args) : arg_reduce_as<false, T>(args);
    }
  });
}

}  // namespace arete::cpu
