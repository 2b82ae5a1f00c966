// Keys and values that processes share, with which they find each other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace arete::distributed {

using Milliseconds = std::chrono::milliseconds;

/// Values are bytes. All functions may be called from several threads; those of one object take
/// turns. A key that does not come in time is a DistributedError that names it.
class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  virtual void set(const std::string& key, std::string_view value) = 0;
  /// Waits until the key is there.
  virtual std::string get(const std::string& key) = 0;
  /// Adds to a number, 0 where there is none, and gives the sum; it is kept as decimal digits.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  /// Sets `desired` where the value is `expected`, or where there is none and `expected` is empty.
  /// Gives the value after it; `expected` where there is none.
  virtual std::string compare_set(const std::string& key, std::string_view expected,
                                  std::string_view desired) = 0;
  /// Whether all of them are there.
  virtual bool check(std::span<const std::string> keys) = 0;
  /// Waits until all of them are there, for timeout() if nothing else is said.
  virtual void wait(std::span<const std::string> keys, std::optional<Milliseconds> = {}) = 0;
  /// Whether there was one.
  virtual bool delete_key(const std::string& key) = 0;
  virtual int64_t num_keys() = 0;
  virtual void append(const std::string& key, std::string_view value) = 0;
  virtual std::vector<std::string> multi_get(std::span<const std::string> keys);
  virtual void multi_set(std::span<const std::string> keys, std::span<const std::string> values);
  /// Puts a value at the end of a queue. A queue that is not empty is there for check() and wait().
  virtual void queue_push(const std::string& key, std::string_view value);
  /// Takes the first value of a queue; waits until there is one, or without `block` an empty queue
  /// is a DistributedError.
  virtual std::string queue_pop(const std::string& key, bool block = true);
  virtual int64_t queue_len(const std::string& key);
  virtual std::vector<std::string> list_keys();

  virtual Milliseconds timeout() const { return timeout_; }
  virtual void set_timeout(Milliseconds timeout) { timeout_ = timeout; }

 private:
  Milliseconds timeout_ = std::chrono::minutes(5);
};
using StorePtr = std::shared_ptr<Store>;

/// What all stores do with one key; not for several threads.
class KeyTable {
 public:
  const std::string* find(const std::string& key) const;
  void set(const std::string& key, std::string_view value);
  /// ValueError if the value is no number.
  int64_t add(const std::string& key, int64_t amount);
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired);
  bool erase(const std::string& key);
  void append(const std::string& key, std::string_view value);
  size_t size() const { return values_.size(); }
  /// Of memory, about.
  uint64_t bytes() const { return bytes_; }
  const std::map<std::string, std::string>& values() const { return values_; }

 private:
  std::map<std::string, std::string> values_;
  uint64_t bytes_ = 0;
};

/// Within one process, for its threads.
class HashStore final : public Store {
 public:
  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override;
  bool check(std::span<const std::string> keys) override;
  void wait(std::span<const std::string> keys, std::optional<Milliseconds> timeout = {}) override;
  bool delete_key(const std::string& key) override;
  int64_t num_keys() override;
  void append(const std::string& key, std::string_view value) override;
  void queue_push(const std::string& key, std::string_view value) override;
  std::string queue_pop(const std::string& key, bool block = true) override;
  int64_t queue_len(const std::string& key) override;
  std::vector<std::string> list_keys() override;

 private:
  void wait_locked(std::unique_lock<std::mutex>& lock, std::span<const std::string> keys,
                   Milliseconds timeout);
  bool has(const std::string& key) const { return table_.find(key) || queues_.contains(key); }
  std::mutex mutex_;
  std::condition_variable changed_;
  KeyTable table_;
  std::map<std::string, std::deque<std::string>> queues_;  // none is empty
};

/// In a file that all processes can reach and lock: a list of writes, the later ones hold. Its
/// format is that of torch.distributed.FileStore. The last of `world_size` stores removes the file;
/// with -1 nobody does. A file that is left over from another run makes processes fail.
class FileStore final : public Store {
 public:
  FileStore(std::string path, int world_size = -1);
  ~FileStore() override;
  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override;
  bool check(std::span<const std::string> keys) override;
  void wait(std::span<const std::string> keys, std::optional<Milliseconds> timeout = {}) override;
  bool delete_key(const std::string& key) override;
  int64_t num_keys() override;
  void append(const std::string& key, std::string_view value) override;
  const std::string& path() const { return path_; }

 private:
  class Locked;
  int64_t add_raw(const std::string& key, int64_t amount);
  std::string path_;
  int world_size_;
  std::mutex mutex_;
  KeyTable table_;     // what was read
  uint64_t read_ = 0;  // up to here
};

/// Another store, seen through a prefix of all its keys.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, StorePtr store);
  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override;
  bool check(std::span<const std::string> keys) override;
  void wait(std::span<const std::string> keys, std::optional<Milliseconds> timeout = {}) override;
  bool delete_key(const std::string& key) override;
  /// Of the whole store.
  int64_t num_keys() override;
  void append(const std::string& key, std::string_view value) override;
  std::vector<std::string> multi_get(std::span<const std::string> keys) override;
  void multi_set(std::span<const std::string> keys, std::span<const std::string> values) override;
  void queue_push(const std::string& key, std::string_view value) override;
  std::string queue_pop(const std::string& key, bool block = true) override;
  int64_t queue_len(const std::string& key) override;
  /// Those with the prefix, without it.
  std::vector<std::string> list_keys() override;
  Milliseconds timeout() const override { return store_->timeout(); }
  void set_timeout(Milliseconds timeout) override { store_->set_timeout(timeout); }
  const StorePtr& underlying_store() const { return store_; }

 private:
  std::string name(const std::string& key) const { return prefix_ + "/" + key; }
  std::vector<std::string> names(std::span<const std::string> keys) const;
  std::string prefix_;
  StorePtr store_;
};

}  // namespace arete::distributed
