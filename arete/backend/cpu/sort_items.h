// Keys with positions: what sort and topk move instead of values and indices.
#pragma once

#include <cstdint>

#include "arete/backend/cpu/ordered_key.h"

namespace arete::cpu {

/// Items order by key, then by position, so that any sort of them is stable.
/// Keys of 32 bits with positions below 2^32 share one number.
struct PackedItem {
  using Key = uint32_t;
  uint64_t bits;
  PackedItem() = default;
  PackedItem(uint32_t key, int64_t position) : bits(uint64_t(key) << 32 | uint32_t(position)) {}
  uint32_t key() const { return uint32_t(bits >> 32); }
  int64_t position() const { return int64_t(bits & 0xffffffffu); }
  bool operator<(const PackedItem& o) const { return bits < o.bits; }
};
struct WideItem {
  using Key = uint64_t;
  uint64_t key_;
  int64_t position_;
  WideItem() = default;
  WideItem(uint64_t key, int64_t position) : key_(key), position_(position) {}
  uint64_t key() const { return key_; }
  int64_t position() const { return position_; }
  bool operator<(const WideItem& o) const {
    return key_ < o.key_ || (key_ == o.key_ && position_ < o.position_);
  }
};

/// The key under which ascending order is the wanted one. Only the lowest kOrderedKeyBits<T> bits
/// are used.
template <class T>
inline OrderedKey<T> sort_key(T v, bool descending) {
  constexpr OrderedKey<T> kMask =
      OrderedKey<T>(~OrderedKey<T>(0)) >> (8 * sizeof(OrderedKey<T>) - kOrderedKeyBits<T>);
  return ordered_key(v) ^ (descending ? kMask : OrderedKey<T>(0));
}

}  // namespace arete::cpu
