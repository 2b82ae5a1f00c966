// Reductions of a block by rows or by columns. The order of the additions depends on the shape of
// the block only.
#include "arete/backend/cpu/kernels/simd.inl.h"

namespace arete::cpu::kernels {
namespace {

template <class T, int kLanes>
struct VectorOf {
  typedef T type __attribute__((vector_size(sizeof(T) * kLanes)));
};

struct Sum {
  template <class A>
  static A run(A a, A b) {
    return a + b;
  }
  template <class A>
  static constexpr A identity() {
    return 0;
  }
};
struct Prod {
  template <class A>
  static A run(A a, A b) {
    return a * b;
  }
  template <class A>
  static constexpr A identity() {
    return 1;
  }
};
// On vectors too: comparisons there give masks.
struct Min {
  template <class A>
  static A run(A a, A b) {
    return (a < b) | (a != a) ? a : b;
  }
};
struct Max {
  template <class A>
  static A run(A a, A b) {
    return (a > b) | (a != a) ? a : b;
  }
};

// An element may be met twice.
template <class M>
inline constexpr bool kIdempotent = false;
template <>
inline constexpr bool kIdempotent<Min> = true;
template <>
inline constexpr bool kIdempotent<Max> = true;

/// The elements of a vector in one: of halves, of their halves and so on.
template <class M, class A, int kLanes>
A reduce_lanes(typename VectorOf<A, kLanes>::type v) {
  if constexpr (kLanes * sizeof(A) > 16) {
    typename VectorOf<A, kLanes / 2>::type half[2];
    __builtin_memcpy(half, &v, sizeof(v));
    return reduce_lanes<M, A, kLanes / 2>(M::run(half[0], half[1]));
  } else if constexpr (kLanes == 4) {
    v = M::run(v, __builtin_shufflevector(v, v, 2, 3, 2, 3));
    v = M::run(v, __builtin_shufflevector(v, v, 1, 1, 1, 1));
    return v[0];
  } else {
    v = M::run(v, __builtin_shufflevector(v, v, 1, 1));
    return v[0];
  }
}

template <class M, class T, class A>
A reduce_run(const T* p, int64_t n, A acc) {
  constexpr int kLanes = kVectorBytes / sizeof(A);
  using VT = typename VectorOf<T, kLanes>::type;
  using VA = typename VectorOf<A, kLanes>::type;
  int64_t i = 0;
  if (n >= kLanes) {
    auto load = [&](int64_t at) {
      VT v;
      __builtin_memcpy(&v, p + at, sizeof(VT));
      return __builtin_convertvector(v, VA);
    };
    VA lanes = load(0);
    i = kLanes;
    if (n >= 4 * kLanes) {
      VA lane1 = load(kLanes), lane2 = load(2 * kLanes), lane3 = load(3 * kLanes);
      for (i = 4 * kLanes; i + 4 * kLanes <= n; i += 4 * kLanes) {
        lanes = M::run(lanes, load(i));
        lane1 = M::run(lane1, load(i + kLanes));
        lane2 = M::run(lane2, load(i + 2 * kLanes));
        lane3 = M::run(lane3, load(i + 3 * kLanes));
      }
      lanes = M::run(M::run(lanes, lane1), M::run(lane2, lane3));
    }
    for (; i + kLanes <= n; i += kLanes) lanes = M::run(lanes, load(i));
    if constexpr (kIdempotent<M>) {
      lanes = M::run(lanes, load(n - kLanes));
      i = n;
    }
    acc = M::run(acc, reduce_lanes<M, A, kLanes>(lanes));
  }
  for (; i < n; ++i) acc = M::run(acc, A(p[i]));
  return acc;
}

template <class M, class T, class A>
void rows(void* acc, const void* in, int64_t n_rows, int64_t n_cols, int64_t stride) {
  auto* a = static_cast<A*>(acc);
  auto* p = static_cast<const T*>(in);
  for (int64_t r = 0; r < n_rows; ++r, p += stride) a[r] = reduce_run<M, T, A>(p, n_cols, a[r]);
}

template <class M, class T, class A>
void cols(void* acc, const void* in, int64_t n_rows, int64_t n, int64_t stride) {
  auto* a = static_cast<A*>(acc);
  auto* p = static_cast<const T*>(in);
  constexpr int64_t kLanes = kVectorBytes / sizeof(A);
  using VT = typename VectorOf<T, kLanes>::type;
  using VA = typename VectorOf<A, kLanes>::type;
  auto load = [](const T* from) {
    VT v;
    __builtin_memcpy(&v, from, sizeof(VT));
    return __builtin_convertvector(v, VA);
  };
  int64_t r = 0;
  for (; r + 4 <= n_rows; r += 4, p += 4 * stride) {
    const T *p1 = p + stride, *p2 = p1 + stride, *p3 = p2 + stride;
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      VA v;
      __builtin_memcpy(&v, a + i, sizeof(VA));
      v = M::run(v, M::run(M::run(load(p + i), load(p1 + i)), M::run(load(p2 + i), load(p3 + i))));
      __builtin_memcpy(a + i, &v, sizeof(VA));
    }
    for (; i < n; ++i)
      a[i] = M::run(a[i], M::run(M::run(A(p[i]), A(p1[i])), M::run(A(p2[i]), A(p3[i]))));
  }
  for (; r < n_rows; ++r, p += stride) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      VA v;
      __builtin_memcpy(&v, a + i, sizeof(VA));
      v = M::run(v, load(p + i));
      __builtin_memcpy(a + i, &v, sizeof(VA));
    }
    for (; i < n; ++i) a[i] = M::run(a[i], A(p[i]));
  }
}

// Booleans are bytes 0 and 1.
template <bool kAll>
struct Logical {
  static uint8_t run(uint8_t a, uint8_t b) { return kAll ? a & b : a | b; }
};
template <bool kAll>
void logical_rows(void* acc, const void* in, int64_t n_rows, int64_t n, int64_t stride) {
  auto* a = static_cast<uint8_t*>(acc);
  auto* p = static_cast<const uint8_t*>(in);
  for (int64_t r = 0; r < n_rows; ++r, p += stride) {
    uint8_t v = a[r];
    for (int64_t i = 0; i < n; ++i) v = Logical<kAll>::run(v, p[i]);
    a[r] = v;
  }
}
template <bool kAll>
void logical_cols(void* acc, const void* in, int64_t n_rows, int64_t n, int64_t stride) {
  auto* a = static_cast<uint8_t*>(acc);
  auto* p = static_cast<const uint8_t*>(in);
  for (int64_t r = 0; r < n_rows; ++r, p += stride) {
    ARETE_LOOP a[i] = Logical<kAll>::run(a[i], p[i]);
  }
}
void count_rows(void* acc, const void* in, int64_t n_rows, int64_t n, int64_t stride) {
  auto* a = static_cast<int64_t*>(acc);
  auto* p = static_cast<const uint8_t*>(in);
  for (int64_t r = 0; r < n_rows; ++r, p += stride) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) count += p[i];
    a[r] += count;
  }
}

template <class M, class T, class A>
void put(KernelTable& t, KMonoid m) {
  t.reduce_rows[m][kTypeOf<T>] = rows<M, T, A>;
  t.reduce_cols[m][kTypeOf<T>] = cols<M, T, A>;
}
template <class T, class A>
void put_all(KernelTable& t) {
  put<Sum, T, A>(t, m_sum);
  put<Prod, T, A>(t, m_prod);
  put<Min, T, T>(t, m_min);
  put<Max, T, T>(t, m_max);
}

}  // namespace

void ARETE_FILL(reduce)(KernelTable& t) {
  put_all<float, double>(t);
  put_all<double, double>(t);
  // Accumulators wrap; unsigned arithmetic says so to the compiler, min and max compare signed.
  put<Min, int32_t, int32_t>(t, m_min);
  put<Max, int32_t, int32_t>(t, m_max);
  put<Min, int64_t, int64_t>(t, m_min);
  put<Max, int64_t, int64_t>(t, m_max);
  t.reduce_rows[m_sum][t_i32] = rows<Sum, int32_t, uint64_t>;
  t.reduce_cols[m_sum][t_i32] = cols<Sum, int32_t, uint64_t>;
  t.reduce_rows[m_prod][t_i32] = rows<Prod, int32_t, uint64_t>;
  t.reduce_cols[m_prod][t_i32] = cols<Prod, int32_t, uint64_t>;
  t.reduce_rows[m_sum][t_i64] = rows<Sum, int64_t, uint64_t>;
  t.reduce_cols[m_sum][t_i64] = cols<Sum, int64_t, uint64_t>;
  t.reduce_rows[m_prod][t_i64] = rows<Prod, int64_t, uint64_t>;
  t.reduce_cols[m_prod][t_i64] = cols<Prod, int64_t, uint64_t>;
  t.reduce_rows[m_sum][t_bool] = count_rows;
  t.reduce_cols[m_sum][t_bool] = cols<Sum, uint8_t, int64_t>;
  t.reduce_rows[m_prod][t_bool] = rows<Prod, uint8_t, int64_t>;
  t.reduce_cols[m_prod][t_bool] = cols<Prod, uint8_t, int64_t>;
  t.reduce_rows[m_all][t_bool] = t.reduce_rows[m_min][t_bool] = logical_rows<true>;
  t.reduce_cols[m_all][t_bool] = t.reduce_cols[m_min][t_bool] = logical_cols<true>;
  t.reduce_rows[m_any][t_bool] = t.reduce_rows[m_max][t_bool] = logical_rows<false>;
  t.reduce_cols[m_any][t_bool] = t.reduce_cols[m_max][t_bool] = logical_cols<false>;
}

}  // namespace arete::cpu::kernels
