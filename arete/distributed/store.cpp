#include "arete/distributed/store.h"

#include <algorithm>
#include <charconv>

#include "arete/distributed/store_internal.h"

namespace arete::distributed {

constexpr uint64_t kEntryBytes = 64;  // of a table, beside key and value

std::vector<std::string> Store::multi_get(std::span<const std::string> keys) {
  std::vector<std::string> values;
  values.reserve(keys.size());
  for (const std::string& key : keys) values.push_back(get(key));
  return values;
}

void Store::multi_set(std::span<const std::string> keys, std::span<const std::string> values) {
  ARETE_CHECK(keys.size() == values.size(),
              ValueError("multi_set", "multi_set keys and values vectors must be of same size"));
  for (size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i]);
}

void Store::queue_push(const std::string&, std::string_view) {
  throw NotImplementedError("queue_push", "this store has no queues");
}

std::string Store::queue_pop(const std::string&, bool) {
  throw NotImplementedError("queue_pop", "this store has no queues");
}

int64_t Store::queue_len(const std::string&) {
  throw NotImplementedError("queue_len", "this store has no queues");
}

std::vector<std::string> Store::list_keys() {
  throw NotImplementedError("list_keys", "this store does not list its keys");
}

// ---- KeyTable

const std::string* KeyTable::find(const std::string& key) const {
  const auto at = values_.find(key);
  return at == values_.end() ? nullptr : &at->second;
}

void KeyTable::set(const std::string& key, std::string_view value) {
  const auto [at, fresh] = values_.try_emplace(key);
  bytes_ += (fresh ? key.size() + kEntryBytes : 0) + value.size() - at->second.size();
  at->second.assign(value);
}

bool KeyTable::erase(const std::string& key) {
  const auto at = values_.find(key);
  if (at == values_.end()) return false;
  bytes_ -= key.size() + kEntryBytes + at->second.size();
  values_.erase(at);
  return true;
}

void KeyTable::append(const std::string& key, std::string_view value) {
  const auto [at, fresh] = values_.try_emplace(key);
  bytes_ += (fresh ? key.size() + kEntryBytes : 0) + value.size();
  at->second.append(value);
}

int64_t KeyTable::add(const std::string& key, int64_t amount) {
  int64_t sum = 0;
  if (const std::string* old = find(key)) {
    const auto [end, error] = std::from_chars(old->data(), old->data() + old->size(), sum);
    ARETE_CHECK(error == std::errc() && end == old->data() + old->size(),
                ValueError("add", "the value is no number").argument(key).got("'" + *old + "'"));
  }
  ARETE_CHECK(!__builtin_add_overflow(sum, amount, &sum),
              ValueError("add", "the sum is too large").argument(key));
  set(key, std::to_string(sum));
  return sum;
}

std::string KeyTable::compare_set(const std::string& key, std::string_view expected,
                                  std::string_view desired) {
  const std::string* old = find(key);
  if (old ? *old != expected : !expected.empty()) return old ? *old : std::string(expected);
  set(key, desired);
  return std::string(desired);
}

// ---- HashStore

void HashStore::set(const std::string& key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  table_.set(key, value);
  changed_.notify_all();
}

std::string HashStore::get(const std::string& key) {
  std::unique_lock lock(mutex_);
  wait_locked(lock, {&key, 1}, timeout());
  return *table_.find(key);
}

int64_t HashStore::add(const std::string& key, int64_t amount) {
  const std::lock_guard lock(mutex_);
  const int64_t sum = table_.add(key, amount);
  changed_.notify_all();
  return sum;
}

std::string HashStore::compare_set(const std::string& key, std::string_view expected,
                                   std::string_view desired) {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
  return table_.compare_set(key, expected, desired);
}

bool HashStore::check(std::span<const std::string> keys) {
  const std::lock_guard lock(mutex_);
  return std::ranges::all_of(keys, [&](const std::string& key) { return has(key); });
}

void HashStore::wait(std::span<const std::string> keys, std::optional<Milliseconds> limit) {
  std::unique_lock lock(mutex_);
  wait_locked(lock, keys, limit.value_or(timeout()));
}

void HashStore::wait_locked(std::unique_lock<std::mutex>& lock, std::span<const std::string> keys,
                            Milliseconds limit) {
  if (!changed_.wait_for(lock, limit, [&] {
        return std::ranges::all_of(keys, [&](const std::string& key) { return has(key); });
      }))
    throw_store_timeout(keys, limit);
}

bool HashStore::delete_key(const std::string& key) {
  const std::lock_guard lock(mutex_);
  return table_.erase(key);
}

int64_t HashStore::num_keys() {
  const std::lock_guard lock(mutex_);
  return int64_t(table_.size());
}

void HashStore::append(const std::string& key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  table_.append(key, value);
  changed_.notify_all();
}

void HashStore::queue_push(const std::string& key, std::string_view value) {
  const std::lock_guard lock(mutex_);
  queues_[key].emplace_back(value);
  changed_.notify_all();
}

std::string HashStore::queue_pop(const std::string& key, bool block) {
  std::unique_lock lock(mutex_);
  if (block && !changed_.wait_for(lock, timeout(), [&] { return queues_.contains(key); }))
    throw_store_timeout({&key, 1}, timeout());
  const auto queue = queues_.find(key);
  if (queue == queues_.end()) throw_empty_queue(key);
  std::string value = std::move(queue->second.front());
  queue->second.pop_front();
  if (queue->second.empty()) queues_.erase(queue);
  return value;
}

int64_t HashStore::queue_len(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto queue = queues_.find(key);
  return queue == queues_.end() ? 0 : int64_t(queue->second.size());
}

std::vector<std::string> HashStore::list_keys() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> keys;
  for (const auto& [key, value] : table_.values()) keys.push_back(key);
  return keys;
}

// ---- PrefixStore

PrefixStore::PrefixStore(std::string prefix, StorePtr store)
    : prefix_(std::move(prefix)), store_(std::move(store)) {
  ARETE_CHECK(store_, ValueError("PrefixStore", "there is no store"));
}

std::vector<std::string> PrefixStore::names(std::span<const std::string> keys) const {
  std::vector<std::string> names;
  names.reserve(keys.size());
  for (const std::string& key : keys) names.push_back(name(key));
  return names;
}

void PrefixStore::set(const std::string& key, std::string_view value) {
  store_->set(name(key), value);
}
std::string PrefixStore::get(const std::string& key) { return store_->get(name(key)); }
int64_t PrefixStore::add(const std::string& key, int64_t amount) {
  return store_->add(name(key), amount);
}
std::string PrefixStore::compare_set(const std::string& key, std::string_view expected,
                                     std::string_view desired) {
  return store_->compare_set(name(key), expected, desired);
}
bool PrefixStore::check(std::span<const std::string> keys) { return store_->check(names(keys)); }
void PrefixStore::wait(std::span<const std::string> keys, std::optional<Milliseconds> limit) {
  store_->wait(names(keys), limit);
}
bool PrefixStore::delete_key(const std::string& key) { return store_->delete_key(name(key)); }
int64_t PrefixStore::num_keys() { return store_->num_keys(); }
void PrefixStore::append(const std::string& key, std::string_view value) {
  store_->append(name(key), value);
}
std::vector<std::string> PrefixStore::multi_get(std::span<const std::string> keys) {
  return store_->multi_get(names(keys));
}
void PrefixStore::multi_set(std::span<const std::string> keys,
                            std::span<const std::string> values) {
  store_->multi_set(names(keys), values);
}
void PrefixStore::queue_push(const std::string& key, std::string_view value) {
  store_->queue_push(name(key), value);
}
std::string PrefixStore::queue_pop(const std::string& key, bool block) {
  return store_->queue_pop(name(key), block);
}
int64_t PrefixStore::queue_len(const std::string& key) { return store_->queue_len(name(key)); }
std::vector<std::string> PrefixStore::list_keys() {
  std::vector<std::string> keys;
  const std::string prefix = name("");
  for (const std::string& key : store_->list_keys())
    if (key.starts_with(prefix)) keys.push_back(key.substr(prefix.size()));
  return keys;
}

}  // namespace arete::distributed
