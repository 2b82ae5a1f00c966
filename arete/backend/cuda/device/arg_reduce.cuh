// Positions of extrema: what arg_reduce accumulates in the kernels of reduce.cuh.
#pragma once
#include "reduce.cuh"

DEVICE bool is_unordered(f32 v) { return v != v; }
DEVICE bool is_unordered(f64 v) { return v != v; }
template <class T>
DEVICE bool is_unordered(T) {
  return false;
}

/// `a` comes strictly before `b`: larger (smaller), or NaN where `b` is a number. Without && and
/// ||, of which compilers make branches that the lanes of a warp take one after the other.
template <bool kLargest, class T>
DEVICE bool is_better(T a, T b) {
  return bool(!(kLargest ? a <= b : a >= b) & !is_unordered(b));
}

template <class V>
struct Extremum {
  V value;
  i64 position;
};

/// Position is the type of positions within one thread.
template <class V, class Position, bool kLargest>
struct ExtremumFold {
  typedef Extremum<V> Partial;
  struct Lane {
    V value;
    Position position;
    /// `first`: the position that add() is going to be called with first, so that it is the result
    /// where no value is better than the identity.
    __device__ __forceinline__ void clear(Position first) {
      value = kLargest ? Limits<V>::lowest() : Limits<V>::highest();
      position = first;
    }
    __device__ __forceinline__ void add(V v, Position at) {
      const bool better = is_better<kLargest>(v, value);
      value = better ? v : value;
      position = better ? at : position;
    }
    __device__ __forceinline__ Partial partial() const { return {value, i64(position)}; }
  };
  /// Loses against everything: no position is so high.
  DEVICE Partial identity() {
    return {kLargest ? Limits<V>::lowest() : Limits<V>::highest(), Limits<i64>::highest()};
  }
  DEVICE Partial merge(Partial a, Partial b) {
    const bool second = bool(is_better<kLargest>(b.value, a.value) |
                             (!is_better<kLargest>(a.value, b.value) & (b.position < a.position)));
    return second ? b : a;
  }
  DEVICE Partial shuffle(Partial p, int lanes) {
    return {shuffle_xor(p.value, lanes), shuffle_xor(p.position, lanes)};
  }
};

/// The partial results of F, merged.
template <class F>
struct CombineFold : F {
  typedef typename F::Partial Partial;
  struct Lane {
    Partial best;
    template <class P>
    __device__ __forceinline__ void clear(P) {
      best = F::identity();
    }
    template <class P>
    __device__ __forceinline__ void add(Partial p, P) {
      best = F::merge(best, p);
    }
    __device__ __forceinline__ Partial partial() const { return best; }
  };
};
