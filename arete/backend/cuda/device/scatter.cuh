// scatter: out[.., index[.., i, ..], ..] op= src[.., i, ..], by atomic operations where the order
// does not matter, and from entries sorted by destination where it does.
#pragma once
#include "index.cuh"
#include "lanes.cuh"

// ---- how two elements are combined, in the types that registers compute in
template <class V>
struct Combine {
  DEVICE V add(V a, V b) { return a + b; }
  DEVICE V mul(V a, V b) { return a * b; }
  DEVICE V min(V a, V b) { return a < b || a != a ? a : b; }  // NaN if either is
  DEVICE V max(V a, V b) { return a > b || a != a ? a : b; }
};
template <>
struct Combine<i64> {
  DEVICE i64 add(i64 a, i64 b) { return i64(u64(a) + u64(b)); }
  DEVICE i64 mul(i64 a, i64 b) { return i64(u64(a) * u64(b)); }
  DEVICE i64 min(i64 a, i64 b) { return a < b ? a : b; }
  DEVICE i64 max(i64 a, i64 b) { return a > b ? a : b; }
};
template <>
struct Combine<i32> {
  DEVICE i32 add(i32 a, i32 b) { return i32(u32(a) + u32(b)); }
  DEVICE i32 mul(i32 a, i32 b) { return i32(u32(a) * u32(b)); }
  DEVICE i32 min(i32 a, i32 b) { return a < b ? a : b; }
  DEVICE i32 max(i32 a, i32 b) { return a > b ? a : b; }
};
template <>
struct Combine<bool> {
  DEVICE bool add(bool a, bool b) { return a || b; }
  DEVICE bool mul(bool a, bool b) { return a && b; }
  DEVICE bool min(bool a, bool b) { return a && b; }
  DEVICE bool max(bool a, bool b) { return a || b; }
};
template <class C>
struct CombineComplex {
  DEVICE C add(C a, C b) { return C{a.re + b.re, a.im + b.im}; }
  DEVICE C mul(C a, C b) { return C{a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
};
template <>
struct Combine<c64> : CombineComplex<c64> {};
template <>
struct Combine<c128> : CombineComplex<c128> {};

struct OpAdd {
  template <class V>
  DEVICE V apply(V a, V b) {
    return Combine<V>::add(a, b);
  }
};
struct OpMul {
  template <class V>
  DEVICE V apply(V a, V b) {
    return Combine<V>::mul(a, b);
  }
};
struct OpMin {
  template <class V>
  DEVICE V apply(V a, V b) {
    return Combine<V>::min(a, b);
  }
};
struct OpMax {
  template <class V>
  DEVICE V apply(V a, V b) {
    return Combine<V>::max(a, b);
  }
};

template <class T, class Op>
DEVICE T combine(T old, T v) {
  return from_compute<T>(Op::apply(to_compute(old), to_compute(v)));
}

// ---- atomically
template <class To, class From>
DEVICE To same_bits(From v) {
  union {
    From from;
    To to;
  } u;
  u.from = v;
  return u.to;
}

// Narrow elements are part of an aligned word that is exchanged as a whole; what other threads
// write beside them in between makes the exchange fail and start over.
template <int kBytes>
struct AtomicExchange;
template <>
struct AtomicExchange<8> {
  template <class T, class Op>
  DEVICE void run(T* p, T v) {
    u64* const word = reinterpret_cast<u64*>(p);
    u64 seen = *reinterpret_cast<volatile u64*>(word);
    for (;;) {
      const u64 wanted = same_bits<u64>(combine<T, Op>(same_bits<T>(seen), v));
      if (wanted == seen) return;
      const u64 found = atomicCAS(word, seen, wanted);
      if (found == seen) return;
      seen = found;
    }
  }
};
template <>
struct AtomicExchange<4> {
  template <class T, class Op>
  DEVICE void run(T* p, T v) {
    u32* const word = reinterpret_cast<u32*>(p);
    u32 seen = *reinterpret_cast<volatile u32*>(word);
    for (;;) {
      const u32 wanted = same_bits<u32>(combine<T, Op>(same_bits<T>(seen), v));
      if (wanted == seen) return;
      const u32 found = atomicCAS(word, seen, wanted);
      if (found == seen) return;
      seen = found;
    }
  }
};
template <class T, class Op, class Bits>
DEVICE void exchange_part(T* p, T v) {
  const u64 address = reinterpret_cast<u64>(p);
  u32* const word = reinterpret_cast<u32*>(address & ~u64(3));
  const u32 shift = u32(address & 3) * 8, mask = u32(Bits(~Bits(0))) << shift;
  u32 seen = *reinterpret_cast<volatile u32*>(word);
  for (;;) {
    const T old = same_bits<T>(Bits(seen >> shift));
    const u32 part = u32(same_bits<Bits>(combine<T, Op>(old, v))) << shift;
    const u32 wanted = (seen & ~mask) | part;
    if (wanted == seen) return;
    const u32 found = atomicCAS(word, seen, wanted);
    if (found == seen) return;
    seen = found;
  }
}
template <>
struct AtomicExchange<2> {
  template <class T, class Op>
  DEVICE void run(T* p, T v) {
    exchange_part<T, Op, u16>(p, v);
  }
};
template <>
struct AtomicExchange<1> {
  template <class T, class Op>
  DEVICE void run(T* p, T v) {
    exchange_part<T, Op, u8>(p, v);
  }
};

/// In global memory. Additions say so: the instruction for any memory is waited for.
template <class T, class Op>
struct Atomic {
  DEVICE void run(T* p, T v) { AtomicExchange<int(sizeof(T))>::template run<T, Op>(p, v); }
};
template <>
struct Atomic<f32, OpAdd> {
  DEVICE void run(f32* p, f32 v) {
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(p), "f"(v) : "memory");
  }
};
template <>
struct Atomic<f64, OpAdd> {
  DEVICE void run(f64* p, f64 v) {
    asm volatile("red.global.add.f64 [%0], %1;" ::"l"(p), "d"(v) : "memory");
  }
};
// An element of two bytes beside -0, which changes nothing, as the GPU adds pairs only.
DEVICE u32 pair_of(u64 address, u16 bits) {
  return address & 2 ? u32(bits) << 16 | 0x8000u : 0x80000000u | bits;
}
template <>
struct Atomic<f16, OpAdd> {
  DEVICE void run(f16* p, f16 v) {
    const u64 address = reinterpret_cast<u64>(p);
    asm volatile("red.global.add.noftz.f16x2 [%0], %1;" ::"l"(address & ~u64(3)),
                 "r"(pair_of(address, v.bits))
                 : "memory");
  }
};
#if __CUDA_ARCH__ >= 900
template <>
struct Atomic<bf16, OpAdd> {
  DEVICE void run(bf16* p, bf16 v) {
    const u64 address = reinterpret_cast<u64>(p);
    asm volatile("red.global.add.noftz.bf16x2 [%0], %1;" ::"l"(address & ~u64(3)),
                 "r"(pair_of(address, v.bits))
                 : "memory");
  }
};
#endif
template <>
struct Atomic<i32, OpAdd> {
  DEVICE void run(i32* p, i32 v) {
    asm volatile("red.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
  }
};
template <>
struct Atomic<i64, OpAdd> {
  DEVICE void run(i64* p, i64 v) {
    asm volatile("red.global.add.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
  }
};
template <>
struct Atomic<i32, OpMin> {
  DEVICE void run(i32* p, i32 v) { atomicMin(p, v); }
};
template <>
struct Atomic<i32, OpMax> {
  DEVICE void run(i32* p, i32 v) { atomicMax(p, v); }
};
template <>
struct Atomic<i64, OpMin> {
  DEVICE void run(i64* p, i64 v) { atomicMin(p, v); }
};
template <>
struct Atomic<i64, OpMax> {
  DEVICE void run(i64* p, i64 v) { atomicMax(p, v); }
};
template <>
struct Atomic<c64, OpAdd> {
  DEVICE void run(c64* p, c64 v) {
    Atomic<f32, OpAdd>::run(&p->re, v.re);
    Atomic<f32, OpAdd>::run(&p->im, v.im);
  }
};
template <>
struct Atomic<c128, OpAdd> {
  DEVICE void run(c128* p, c128 v) {
    Atomic<f64, OpAdd>::run(&p->re, v.re);
    Atomic<f64, OpAdd>::run(&p->im, v.im);
  }
};
/// Plain stores: of elements with one destination some one stays, whole.
struct OpSet {};
template <class T>
struct Atomic<T, OpSet> {
  DEVICE void run(T* p, T v) { *p = v; }
};

struct ScatterArgs {
  Walk walk;  // src, index, out without the dimension that the index supplies
  u64 src, index, out;
  u64 factors;     // of kFactors: one beside each index
  i64 size, step;  // of that dimension of out; step in bytes
  ErrorSink error;
};

/// The factor that lies as an index at a byte offset does.
template <class T>
DEVICE T factor_at(u64 factors, i64 index_offset) {
  return *at_byte<const T>(factors, index_offset / i64(sizeof(i64)) * i64(sizeof(T)));
}

template <class T, class Op, class I, bool kFactors>
DEVICE void scatter(const ScatterArgs& a) {
  const I first = I(blockIdx.x) * (kGatherThreads * kGatherItems) + threadIdx.x;
  Offsets<I> offsets[kGatherItems];
  own_offsets(a.walk, first, offsets);
  i64 index[kGatherItems];
  T values[kGatherItems];
  bool counts[kGatherItems];
#pragma unroll
  for (int k = 0; k < kGatherItems; ++k) {
    counts[k] = first + k * kGatherThreads < I(a.walk.count);
    if (counts[k]) {
      index[k] = *at_byte<const i64>(a.index, offsets[k].at[1]);
      values[k] = *at_byte<const T>(a.src, offsets[k].at[0]);
      if constexpr (kFactors) {
        const T factor = factor_at<T>(a.factors, offsets[k].at[1]);
        counts[k] = factor != T(0);
        values[k] *= factor;
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kGatherItems; ++k) {
    i64 position;
    if (counts[k] && resolve_index(index[k], a.size, a.error, &position))
      Atomic<T, Op>::run(at_byte<T>(a.out, offsets[k].at[2] + position * a.step), values[k]);
  }
}

/// Additions to few destinations (a.size of them, at most kFewBytes / sizeof(S)): blocks sum in
/// shared memory, in copies that neighbouring lanes have of their own, since elements of one
/// destination wait for each other. kEqual: src is one number, whose occurrences are counted in S.
constexpr int kFewBytes = 16384, kFewItems = 8;

template <class S>
DEVICE void add_in_shared(S* p, S v) {
  atomicAdd(p, v);
}
DEVICE void add_in_shared(i64* p, i64 v) { atomicAdd(reinterpret_cast<u64*>(p), u64(v)); }

template <class T, class S, class I, bool kEqual>
DEVICE void scatter_few(const ScatterArgs& a) {
  constexpr int kSlots = kFewBytes / int(sizeof(S));
  __shared__ S sums[kSlots];
  const int size = int(a.size);
  const int log_copies = log_of_copies(kSlots, size), copies = 1 << log_copies;
  for (int k = int(threadIdx.x); k < size << log_copies; k += kGatherThreads) sums[k] = S(0);
  __syncthreads();
  const I count = I(a.walk.count), round = I(kGatherThreads) * kFewItems;
  for (I base = I(blockIdx.x) * round; base < count; base += I(gridDim.x) * round) {
    i64 index[kFewItems];
    T values[kFewItems];
#pragma unroll
    for (int k = 0; k < kFewItems; ++k) {
      const I i = base + I(threadIdx.x) + k * kGatherThreads;
      if (i >= count) continue;
      const Offsets<I> offsets = offsets_of(a.walk, i);
      index[k] = *at_byte<const i64>(a.index, offsets.at[1]);
      if (!kEqual) values[k] = *at_byte<const T>(a.src, offsets.at[0]);
    }
#pragma unroll
    for (int k = 0; k < kFewItems; ++k) {
      i64 position;
      if (base + I(threadIdx.x) + k * kGatherThreads < count &&
          resolve_index(index[k], a.size, a.error, &position))
        add_in_shared(sums + own_copy(int(position), log_copies), kEqual ? S(1) : S(values[k]));
    }
  }
  __syncthreads();
  for (int k = int(threadIdx.x); k < size; k += kGatherThreads) {
    S sum = S(0);
    // Neighbours begin with neighbouring copies, which lie in different banks.
    for (int c = 0; c < copies; ++c)
      sum = Combine<S>::add(sum, sums[(k << log_copies) + ((c + k) & (copies - 1))]);
    if (sum == S(0)) continue;
    const T total = kEqual ? Combine<T>::mul(T(sum), *at_byte<const T>(a.src, 0)) : T(sum);
    Atomic<T, OpAdd>::run(at_byte<T>(a.out, i64(k) * a.step), total);
  }
}

// ---- in order. Entries are the elements of index in row-major order, so that those of one
// destination come in the order of the dimension; their keys number the destinations. Sorted
// stably by key, the entries of a destination are one run.
struct ScatterKeysArgs {
  Walk walk;  // as in ScatterArgs, row-major
  u64 index;
  u64 keys;          // written
  i64 length;        // of the dimension in index
  i64 inner;         // product of index's sizes after it
  i64 size;          // of the dimension in out
  i64 destinations;  // the key of an index out of range: after all others
  ErrorSink error;
};

template <class K>
DEVICE void scatter_keys(const ScatterKeysArgs& a) {
  const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= u64(a.walk.count)) return;
  const i64 index = *at_byte<const i64>(a.index, offsets_of(a.walk, i).at[1]);
  i64 position;
  u64 key = u64(a.destinations);
  if (resolve_index(index, a.size, a.error, &position)) {
    const u64 outer = i / u64(a.length * a.inner), inside = i % u64(a.inner);
    key = (outer * u64(a.size) + u64(position)) * u64(a.inner) + inside;
  }
  reinterpret_cast<K*>(a.keys)[i] = K(key);
}

struct ScatterSortedArgs {
  Walk walk;
  u64 src, out;
  u64 factors;          // of kFactors, as in ScatterArgs
  u64 keys, positions;  // sorted
  i64 inner, size, step, destinations;
};

// Registers of conditions cannot be shuffled: they travel as numbers.
template <class V>
struct Carried {
  typedef V type;
};
template <>
struct Carried<bool> {
  typedef i32 type;
};

template <class T>
DEVICE T* scatter_destination(const ScatterSortedArgs& a, u64 key, u64 entry) {
  const i64 position = i64(key / u64(a.inner) % u64(a.size));
  return at_byte<T>(a.out, offsets_of(a.walk, entry).at[2] + position * a.step);
}

/// The last entry of every run is the one that stays.
template <class T, class K, class P>
DEVICE void scatter_sorted_set(const ScatterSortedArgs& a) {
  const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x, n = u64(a.walk.count);
  if (i >= n) return;
  const K* const keys = reinterpret_cast<const K*>(a.keys);
  const K key = keys[i];
  if (u64(key) >= u64(a.destinations) || (i + 1 < n && keys[i + 1] == key)) return;
  const u64 entry = u64(reinterpret_cast<const P*>(a.positions)[i]);
  *scatter_destination<T>(a, u64(key), entry) =
      *at_byte<const T>(a.src, offsets_of(a.walk, entry).at[0]);
}

/// A warp looks at 32 sorted entries, and combines the runs that begin among them, to their ends.
template <class T, class Op, class K, class P, bool kFactors>
DEVICE void scatter_sorted(const ScatterSortedArgs& a) {
  typedef compute_of<T> V;
  typedef typename Carried<V>::type C;
  const K* const keys = reinterpret_cast<const K*>(a.keys);
  const P* const positions = reinterpret_cast<const P*>(a.positions);
  const u64 n = u64(a.walk.count);
  const int lane = int(threadIdx.x & 31);
  u64 i = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32 * 32 + u64(lane);
  if (i - u64(lane) >= n) return;
  const K none = K(~K(0));
  const auto value_of = [&](u64 entry) {
    const Offsets<u64> o = offsets_of(a.walk, entry);
    const C value = C(to_compute(*at_byte<const T>(a.src, o.at[0])));
    if constexpr (kFactors) {
      const T factor = factor_at<T>(a.factors, o.at[1]);
      return factor == T(0) ? C(0) : C(value * factor);
    }
    return value;
  };
  const K key = i < n ? keys[i] : none;
  const bool used = i < n && u64(key) < u64(a.destinations);
  const u64 entry = used ? u64(positions[i]) : 0;
  C value = used ? value_of(entry) : C{};
  for (int d = 1; d < 32; d *= 2) {
    const C before = shuffle_up(value, d);
    const K other = shuffle_up(key, d);
    if (lane >= d && other == key) value = C(Op::apply(V(before), V(value)));
  }
  const K next = i + 1 < n ? keys[i + 1] : none;
  const K first_key = shuffle_from(key, 0);
  // The run at lane 0 may have begun before; its warp has it.
  const bool ours = first_key != key || i - u64(lane) == 0 || keys[i - u64(lane) - 1] != key;
  const bool ends = i + 1 >= n || next != key;
  if (used && ours && ends) {
    T* const out = scatter_destination<T>(a, u64(key), entry);
    *out = from_compute<T>(Op::apply(to_compute(*out), V(value)));
  }
  const bool goes_on = __shfl_sync(kAllLanes, int(used && ours && !ends), 31);
  if (!goes_on) return;
  // The run of the last lane.
  const K run = shuffle_from(key, 31);
  C total = shuffle_from(value, 31);
  for (i += 32;; i += 32) {
    bool same = i < n && keys[i < n ? i : 0] == run;
    const u32 all = __ballot_sync(kAllLanes, same);
    if (all == 0) break;
    C part = same ? value_of(u64(positions[i])) : C{};
    for (int d = 1; d < 32; d *= 2) {
      const C after = shuffle_down(part, d);
      if (lane + d < 32 && (all >> (lane + d) & 1)) part = C(Op::apply(V(part), V(after)));
    }
    if (lane == 0) total = C(Op::apply(V(total), V(part)));
    if (all != kAllLanes) break;
  }
  const u64 last_entry = shuffle_from(entry, 31);
  if (lane == 0) {
    T* const out = scatter_destination<T>(a, u64(run), last_entry);
    *out = from_compute<T>(Op::apply(to_compute(*out), V(total)));
  }
}
