// 128-bit hashes for cache keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace arete {

/// A 128-bit hash; wide enough that equal hashes are taken for equal keys.
struct Hash128 {
  uint64_t low = 0, high = 0;
  bool operator==(const Hash128&) const = default;
  auto operator<=>(const Hash128&) const = default;
  /// 32 hexadecimal digits.
  std::string hex() const;
};

/// XXH3-128 of `size` bytes (the algorithm of the xxHash library).
Hash128 hash_bytes(const void* data, size_t size);
inline Hash128 hash_bytes(std::string_view text) { return hash_bytes(text.data(), text.size()); }

/// For unordered containers.
struct Hash128Hasher {
  size_t operator()(const Hash128& h) const noexcept { return size_t(h.low ^ h.high); }
};

}  // namespace arete
