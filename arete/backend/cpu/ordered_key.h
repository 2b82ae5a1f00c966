// Total orders as unsigned integers: what sort, topk and arg_reduce compare.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "arete/core/dtype.h"

namespace arete::cpu {

/// The unsigned type of T's keys: its own width, 32 bits at least.
template <class T>
using OrderedKey = std::conditional_t<(sizeof(T) > 4), uint64_t, uint32_t>;

/// Bits of T's key that can differ (from the lowest).
template <class T>
inline constexpr int kOrderedKeyBits = std::is_same_v<T, bool> ? 1 : 8 * int(sizeof(T));

/// What holds a floating number's bits.
template <class T>
using FloatBits =
    std::conditional_t<sizeof(T) == 8, uint64_t,
                       std::conditional_t<sizeof(T) == 4, uint32_t,
                                          std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;

/// Keys order as the values do: a < b exactly when key(a) < key(b); zeros of both signs are one
/// key, and so are all NaN, the largest.
template <class T>
inline OrderedKey<T> ordered_key(T v) {
  using K = OrderedKey<T>;
  if constexpr (std::is_same_v<T, bool>) {
    return K(v);
  } else if constexpr (std::is_integral_v<T>) {
    constexpr K kFlip = std::is_signed_v<T> ? K(1) << (8 * sizeof(T) - 1) : K(0);
    return K(std::make_unsigned_t<T>(v)) ^ kFlip;
  } else {
    using B = FloatBits<T>;
    constexpr int kBits = 8 * sizeof(T);
    constexpr B kSign = B(B(1) << (kBits - 1)), kMagnitude = B(~kSign);
    // The largest magnitude that is a number.
    constexpr B kMax = std::is_same_v<T, double>       ? B(0x7ff0000000000000ull)
                       : std::is_same_v<T, float>      ? B(0x7f800000u)
                       : std::is_same_v<T, BFloat16>   ? B(0x7f80u)
                       : std::is_same_v<T, Half>       ? B(0x7c00u)
                       : std::is_same_v<T, Float8E4M3> ? B(0x7eu)
                                                       : B(0x7cu);
    const B bits = std::bit_cast<B>(v);
    const B magnitude = B(bits & kMagnitude);
    // Negative numbers count down from the middle, -0 meets +0 there.
    const B ordered = (bits & kSign) ? B(kSign - magnitude) : B(kSign + magnitude);
    return magnitude > kMax ? K(B(~B(0))) : K(ordered);
  }
}

/// As ordered_key(), but with a key of its own for each value: -0 comes before +0, and only NaN are
/// one key. value_of_key() is the way back.
template <class T>
inline OrderedKey<T> value_key(T v) {
  if constexpr (std::is_integral_v<T>) {
    return ordered_key(v);
  } else {
    using B = FloatBits<T>;
    constexpr B kSign = B(B(1) << (8 * sizeof(T) - 1));
    const B bits = std::bit_cast<B>(v);
    return v != v ? OrderedKey<T>(B(~B(0)))
                  : OrderedKey<T>(B((bits & kSign) ? B(~bits) : B(bits | kSign)));
  }
}
template <class T>
inline T value_of_key(OrderedKey<T> key) {
  using B = FloatBits<T>;
  constexpr B kSign = B(B(1) << (8 * sizeof(T) - 1));
  if constexpr (std::is_integral_v<T>)
    return T(B(key) ^ (std::is_signed_v<T> ? kSign : B(0)));
  else
    return std::bit_cast<T>(B((B(key) & kSign) ? B(B(key) ^ kSign) : B(~B(key))));
}

/// The key under which the wanted extremum is the largest and NaN wins either way.
template <bool kLargest, class T>
inline OrderedKey<T> rank_key(T v) {
  if constexpr (kLargest) {
    return ordered_key(v);
  } else if constexpr (std::is_integral_v<T>) {
    return OrderedKey<T>(~ordered_key(v));
  } else {  // the other sign: a NaN stays one
    using B = FloatBits<T>;
    return ordered_key(std::bit_cast<T>(B(std::bit_cast<B>(v) ^ B(B(1) << (8 * sizeof(T) - 1)))));
  }
}

}  // namespace arete::cpu
