// Things made once and kept for the process, found by a packed key.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "arete/base/error.h"

namespace arete {

/// Packs numbers below 32 (dtypes, flags) into a key: 12 at most, so that no two keys are one.
constexpr uint64_t pack_key(std::initializer_list<int> parts) {
  ARETE_ASSERT(parts.size() <= 12);
  uint64_t key = 0;
  for (int p : parts) {
    ARETE_ASSERT(p >= 0 && p < 32);
    key = key << 5 | uint64_t(p);
  }
  return key;
}

/// May be used by several threads.
template <class T, class Key = uint64_t, class Hasher = std::hash<Key>>
class KeyedCache {
 public:
  /// make() gives a std::unique_ptr<T>; it is called once for each key.
  template <class F>
  const T& get(const Key& key, F&& make) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<T>& slot = map_[key];
    if (!slot) slot = make();
    return *slot;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<Key, std::unique_ptr<T>, Hasher> map_;
};

}  // namespace arete
