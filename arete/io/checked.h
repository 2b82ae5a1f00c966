// Arithmetic on sizes that come from files: a wrapped product must never reach an allocation.
#pragma once

#include <cstdint>

namespace arete::io {

/// Stores a + b in *out; false (and *out unspecified) when it does not fit in 64 bits.
[[nodiscard]] inline bool checked_add(uint64_t a, uint64_t b, uint64_t* out) {
  return !__builtin_add_overflow(a, b, out);
}

/// Stores a * b in *out; false (and *out unspecified) when it does not fit in 64 bits.
[[nodiscard]] inline bool checked_mul(uint64_t a, uint64_t b, uint64_t* out) {
  return !__builtin_mul_overflow(a, b, out);
}

/// Reads a little-endian unsigned integer from bytes that need not be aligned.
template <typename T>
T load_le(const void* p) {
  const auto* b = static_cast<const unsigned char*>(p);
  T value = 0;
  for (unsigned i = 0; i < sizeof(T); ++i) value |= static_cast<T>(static_cast<T>(b[i]) << (8 * i));
  return value;
}

/// Writes `value` as little-endian bytes to `p`, which need not be aligned.
template <typename T>
void store_le(T value, void* p) {
  auto* b = static_cast<unsigned char*>(p);
  for (unsigned i = 0; i < sizeof(T); ++i) b[i] = static_cast<unsigned char>(value >> (8 * i));
}

}  // namespace arete::io
