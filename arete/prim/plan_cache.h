// Plans of vendor libraries, kept from call to call: everything about a call but its pointers is
// the key, everything the library needs besides pointers is the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "arete/base/hash.h"

namespace arete::prim {

/// Counts since the cache was made, and how many plans it holds now.
struct PlanCacheStatistics {
  int64_t hits = 0, misses = 0, evictions = 0;
  size_t size = 0, capacity = 0;
};

/// A thread-safe map from keys to plans that holds at most `capacity` of them and drops the one
/// that was not used for longest.
///
/// Key: a plain struct, or Hash128 where the description of a call has no fixed size. It is hashed
/// and compared as bytes, so it must have no padding (checked when compiled: put the wide members
/// first and fill up with explicit members) and no floating-point members.
///
/// Plan: anything; it is shared by all threads, and one that is dropped lives on while somebody
/// still uses it. A plan that a call changes (a pointer set in a descriptor) needs its own lock.
///
/// Usage:
///   static PlanCache<ConvKey, ConvPlan> cache(4096);
///   const std::shared_ptr<ConvPlan> plan = cache.get(key, [&] { return make_plan(...); });
template <class Key, class Plan>
class PlanCache {
  static_assert(std::has_unique_object_representations_v<Key> && std::is_trivially_copyable_v<Key>,
                "a key is compared as bytes: no padding, no floating-point members");

 public:
  explicit PlanCache(size_t capacity) : capacity_(capacity > 0 ? capacity : 1) {}
  PlanCache(const PlanCache&) = delete;
  PlanCache& operator=(const PlanCache&) = delete;

  /// The plan of `key`, or null; counts as a use.
  std::shared_ptr<Plan> find(const Key& key) {
    const std::lock_guard lock(mutex_);
    return find_locked(key);
  }

  /// The plan of `key`, made by `make()` (a std::shared_ptr<Plan> or std::unique_ptr<Plan>) where
  /// there is none. Nothing is locked meanwhile, so `make` may use the cache itself; of two threads
  /// that make the same plan at once, both get the one that was finished first. What `make` throws
  /// is passed on and nothing is kept.
  template <class Make>
  std::shared_ptr<Plan> get(const Key& key, Make&& make) {
    {
      const std::lock_guard lock(mutex_);
      if (std::shared_ptr<Plan> found = find_locked(key)) return found;
    }
    return insert(key, std::shared_ptr<Plan>(std::forward<Make>(make)()));
  }

  /// Keeps `plan` unless there is one of that key already; returns the one that is kept.
  std::shared_ptr<Plan> insert(const Key& key, std::shared_ptr<Plan> plan) {
    std::shared_ptr<Plan> dropped;  // destroyed after the lock is gone
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = index_.try_emplace(key);
    if (!is_new) return at->second->plan;
    try {
      recent_.push_front({key, std::move(plan)});
    } catch (...) {
      index_.erase(at);
      throw;
    }
    at->second = recent_.begin();
    if (index_.size() > capacity_) {
      dropped = std::move(recent_.back().plan);
      index_.erase(recent_.back().key);
      recent_.pop_back();
      ++evictions_;
    }
    return recent_.front().plan;
  }

  void clear() {
    std::list<Entry> dropped;
    const std::lock_guard lock(mutex_);
    index_.clear();
    dropped.swap(recent_);
  }

  PlanCacheStatistics statistics() const {
    const std::lock_guard lock(mutex_);
    return {hits_, misses_, evictions_, index_.size(), capacity_};
  }

 private:
  struct Entry {
    Key key;
    std::shared_ptr<Plan> plan;
  };
  struct Hasher {
    size_t operator()(const Key& key) const noexcept {
      if constexpr (std::is_same_v<Key, Hash128>)
        return Hash128Hasher()(key);
      else
        return size_t(hash_bytes(&key, sizeof key).low);
    }
  };
  struct Equal {
    bool operator()(const Key& a, const Key& b) const noexcept {
      return std::memcmp(&a, &b, sizeof(Key)) == 0;
    }
  };

  std::shared_ptr<Plan> find_locked(const Key& key) {
    const auto at = index_.find(key);
    if (at == index_.end()) {
      ++misses_;
      return nullptr;
    }
    ++hits_;
    recent_.splice(recent_.begin(), recent_, at->second);
    return at->second->plan;
  }

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::list<Entry> recent_;  // the one used last comes first
  std::unordered_map<Key, typename std::list<Entry>::iterator, Hasher, Equal> index_;
  int64_t hits_ = 0, misses_ = 0, evictions_ = 0;
};

}  // namespace arete::prim
