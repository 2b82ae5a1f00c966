// Exchange of values of any type between the lanes of a warp.
#pragma once
#include "dtype.cuh"

constexpr u32 kAllLanes = 0xffffffffu;

template <class V>
union Words {
  V value;
  u32 words[(sizeof(V) + 3) / 4];
};
template <class V>
DEVICE V shuffle_up(V v, int by) {
  Words<V> w;
  w.value = v;
  for (u32& word : w.words) word = __shfl_up_sync(kAllLanes, word, by);
  return w.value;
}
template <class V>
DEVICE V shuffle_down(V v, int by) {
  Words<V> w;
  w.value = v;
  for (u32& word : w.words) word = __shfl_down_sync(kAllLanes, word, by);
  return w.value;
}
template <class V>
DEVICE V shuffle_from(V v, int lane) {
  Words<V> w;
  w.value = v;
  for (u32& word : w.words) word = __shfl_sync(kAllLanes, word, lane);
  return w.value;
}

// Words by which tiles tell later tiles what came before them: two bits of state over a number.
// The number travels in the same word, so plain relaxed accesses are enough.
template <class S>
struct TileState {
  static constexpr int kShift = 8 * int(sizeof(S)) - 2;
  static constexpr S kNumber = (S(1) << kShift) - 1;
  static constexpr S kOwn = S(1) << kShift;  // of this tile alone
  static constexpr S kSum = S(2) << kShift;  // of all tiles up to this one
  DEVICE S load(const S* p) { return *reinterpret_cast<const volatile S*>(p); }
  DEVICE void store(S* p, S v) { *reinterpret_cast<volatile S*>(p) = v; }
};
