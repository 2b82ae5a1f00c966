#include "arete/base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace arete {

Hash128 hash_bytes(const void* data, size_t size) {
  const XXH128_hash_t h = XXH3_128bits(data, size);
  return {h.low64, h.high64};
}

std::string Hash128::hex() const {
  std::string out;
  for (uint64_t word : {high, low})
    for (int shift = 60; shift >= 0; shift -= 4) out += "0123456789abcdef"[(word >> shift) & 15];
  return out;
}

}  // namespace arete
