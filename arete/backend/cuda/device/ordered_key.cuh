// Total orders as unsigned integers, as in backend/cpu/ordered_key.h: a < b exactly when
// key(a) < key(b), zeros of both signs are one key, and so are all NaN, the largest.
#pragma once
#include "dtype.cuh"

/// U: the unsigned type of T's keys. key(v); value(key) gives v back where is_exact(key), which is
/// all keys but those that several values share.
template <class T>
struct OrderedKey;

template <class T, class Unsigned, bool kSigned>
struct IntegerKey {
  typedef Unsigned U;
  static constexpr U kFlip = kSigned ? U(U(1) << (8 * sizeof(U) - 1)) : U(0);
  DEVICE U key(T v) { return U(U(v) ^ kFlip); }
  DEVICE T value(U k) { return T(U(k ^ kFlip)); }
  DEVICE bool is_exact(U) { return true; }
};
template <>
struct OrderedKey<u8> : IntegerKey<u8, u8, false> {};
template <>
struct OrderedKey<i8> : IntegerKey<i8, u8, true> {};
template <>
struct OrderedKey<i16> : IntegerKey<i16, u16, true> {};
template <>
struct OrderedKey<u16> : IntegerKey<u16, u16, false> {};
template <>
struct OrderedKey<i32> : IntegerKey<i32, u32, true> {};
template <>
struct OrderedKey<u32> : IntegerKey<u32, u32, false> {};
template <>
struct OrderedKey<i64> : IntegerKey<i64, u64, true> {};
template <>
struct OrderedKey<u64> : IntegerKey<u64, u64, false> {};
template <>
struct OrderedKey<boolean> {
  typedef u8 U;
  DEVICE U key(boolean v) { return U(v.bits != 0); }
  DEVICE boolean value(U k) { return boolean{k}; }
  DEVICE bool is_exact(U) { return true; }
};

/// kInfinity: the bits of the largest magnitude that is not NaN.
template <class T, class Unsigned, Unsigned kInfinity>
struct FloatKey {
  typedef Unsigned U;
  static constexpr U kSign = U(U(1) << (8 * sizeof(U) - 1));
  static constexpr U kNan = U(~U(0));
  union Both {
    T value;
    U bits;
  };
  DEVICE U key(T v) {
    Both b;
    b.value = v;
    const U magnitude = U(b.bits & U(~kSign));
    // Negative numbers count down from the middle, where -0 meets 0.
    const U ordered = (b.bits & kSign) ? U(kSign - magnitude) : U(kSign + magnitude);
    return magnitude > kInfinity ? kNan : ordered;
  }
  DEVICE T value(U k) {
    Both b;
    b.bits = k >= kSign ? U(k - kSign) : U(kSign | U(kSign - k));
    return b.value;
  }
  DEVICE bool is_exact(U k) { return k != kSign && k != kNan; }
};
template <>
struct OrderedKey<f64> : FloatKey<f64, u64, 0x7ff0000000000000ull> {};
template <>
struct OrderedKey<f32> : FloatKey<f32, u32, 0x7f800000u> {};
template <>
struct OrderedKey<bf16> : FloatKey<bf16, u16, 0x7f80> {};
template <>
struct OrderedKey<f16> : FloatKey<f16, u16, 0x7c00> {};
template <>
struct OrderedKey<f8e4m3> : FloatKey<f8e4m3, u8, 0x7e> {};
template <>
struct OrderedKey<f8e5m2> : FloatKey<f8e5m2, u8, 0x7c> {};

/// The same order with -0 before 0, so that a key tells all of its value but the bits of a NaN.
template <class T>
struct ExactKey : OrderedKey<T> {};
template <class T>
struct ExactFloatKey : OrderedKey<T> {
  typedef OrderedKey<T> Ordered;
  typedef typename Ordered::U U;
  DEVICE U key(T v) {
    typename Ordered::Both b;
    b.value = v;
    if (Ordered::key(v) == Ordered::kNan) return Ordered::kNan;
    return (b.bits & Ordered::kSign) ? U(~b.bits) : U(b.bits | Ordered::kSign);
  }
  DEVICE T value(U k) {
    typename Ordered::Both b;
    b.bits = (k & Ordered::kSign) ? U(k ^ Ordered::kSign) : U(~k);
    return b.value;
  }
  DEVICE bool is_exact(U) { return true; }
};
template <>
struct ExactKey<f64> : ExactFloatKey<f64> {};
template <>
struct ExactKey<f32> : ExactFloatKey<f32> {};
template <>
struct ExactKey<bf16> : ExactFloatKey<bf16> {};
template <>
struct ExactKey<f16> : ExactFloatKey<f16> {};
template <>
struct ExactKey<f8e4m3> : ExactFloatKey<f8e4m3> {};
template <>
struct ExactKey<f8e5m2> : ExactFloatKey<f8e5m2> {};
