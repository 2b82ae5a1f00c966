// The store in a file. Each record is the length of a key in 32 bits, the key, the length of a
// value and the value; keys of users begin with '/', and a '-' before that says that a key is gone.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <thread>

#include "arete/base/file.h"
#include "arete/distributed/store.h"
#include "arete/distributed/store_internal.h"

namespace arete::distributed {
namespace {

constexpr uint64_t kMostBytes = uint64_t(1) << 30;
constexpr const char* kReferences = "refcount/";  // stores that have the file open
constexpr const char* kFinished = "cleanup/";     // stores that had it open

std::string user_key(const std::string& key) { return "/" + key; }

void append_record_text(std::string& to, std::string_view text) {
  const auto length = uint32_t(text.size());
  to.append(reinterpret_cast<const char*>(&length), sizeof(length));
  to.append(text);
}

// The next text, which `at` is moved behind; none if it is not there in whole.
std::optional<std::string_view> next_text(std::string_view bytes, size_t& at) {
  uint32_t length = 0;
  if (bytes.size() - at < sizeof(length)) return {};
  std::memcpy(&length, bytes.data() + at, sizeof(length));
  if (bytes.size() - at - sizeof(length) < length) return {};
  at += sizeof(length) + length;
  return bytes.substr(at - length, length);
}

// Whether bytes may be the beginning of a record.
bool may_begin_record(std::string_view bytes) {
  const std::string_view key = bytes.substr(std::min(bytes.size(), sizeof(uint32_t)));
  return std::ranges::any_of(
      std::initializer_list<std::string_view>{"/", "-/", kReferences, kFinished},
      [&](std::string_view begin) {
        const size_t n = std::min(begin.size(), key.size());
        return begin.substr(0, n) == key.substr(0, n);
      });
}

}  // namespace

// The file, open and locked, with all that is in it read.
class FileStore::Locked {
 public:
  Locked(FileStore& store, bool writes) : store_(store), lock_(store.mutex_) {
    file_ = open(store.path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file_ < 0) throw io::system_error("open", store.path_, errno);
    while (flock(file_, writes ? LOCK_EX : LOCK_SH) != 0) {
      if (errno == EINTR) continue;
      const int error = errno;
      close(file_);
      throw io::system_error("lock", store.path_, error);
    }
    try {
      read_news();
    } catch (...) {
      close(file_);
      throw;
    }
  }
  ~Locked() { close(file_); }  // which unlocks it
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

  KeyTable& table() { return store_.table_; }

  // Writes a record that the table has been told of already.
  void write(const std::string& key, std::string_view value) {
    ARETE_CHECK(key.size() < UINT32_MAX && value.size() < UINT32_MAX,
                ValueError("FileStore", "a value is too long"));
    std::string record;
    append_record_text(record, key);
    append_record_text(record, value);
    // Nothing of it may be left behind a record that is shorter.
    if (unfinished_ && ftruncate(file_, off_t(store_.read_)) != 0) {
      const int error = errno;
      store_.table_ = {};
      store_.read_ = 0;
      throw io::system_error("write", store_.path_, error);
    }
    unfinished_ = false;
    size_t done = 0;
    while (done < record.size()) {
      const ssize_t n =
          pwrite(file_, record.data() + done, record.size() - done, off_t(store_.read_ + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        const int error = errno;
        // Nobody shall find half a record, and the table is ahead of the file.
        if (ftruncate(file_, off_t(store_.read_)) != 0) errno = error;
        store_.table_ = {};
        store_.read_ = 0;
        throw io::system_error("write", store_.path_, error);
      }
      done += size_t(n);
    }
    store_.read_ += record.size();
  }

 private:
  void read_news() {
    struct stat state;
    if (fstat(file_, &state) != 0) throw io::system_error("read", store_.path_, errno);
    const auto size = uint64_t(state.st_size);
    if (size < store_.read_ || size - store_.read_ > kMostBytes)
      throw DistributedError(Failure::store, "FileStore",
                             size < store_.read_
                                 ? "'" + store_.path_ + "' has become shorter, or was removed"
                                 : "'" + store_.path_ + "' is too large for the file of a store");
    std::string news(size - store_.read_, '\0');
    size_t done = 0;
    while (done < news.size()) {
      const ssize_t n =
          pread(file_, news.data() + done, news.size() - done, off_t(store_.read_ + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw io::system_error("read", store_.path_, n < 0 ? errno : EIO);
      done += size_t(n);
    }
    for (size_t at = 0; at < news.size();) {
      const size_t begin = at;
      const auto name = next_text(news, at);
      const auto value = name ? next_text(news, at) : std::nullopt;
      if (!value) {
        // Writers hold the lock: the one of half a record has died. Without a whole one before it
        // the file may be anybody's.
        if (store_.read_ == 0 || !may_begin_record(std::string_view(news).substr(begin)))
          throw DistributedError(
              Failure::store, "FileStore",
              "'" + store_.path_ + "' is not the file of a store, or was cut off");
        unfinished_ = true;
        return;
      }
      const std::string key(*name);
      if (key.starts_with('-'))
        store_.table_.erase(key.substr(1));
      else
        store_.table_.set(key, *value);
      store_.read_ += at - begin;
    }
  }

  FileStore& store_;
  std::unique_lock<std::mutex> lock_;
  int file_;
  bool unfinished_ = false;  // half a record is at the end
};

FileStore::FileStore(std::string path, int world_size)
    : path_(std::move(path)), world_size_(world_size) {
  add_raw(kReferences, 1);
}

FileStore::~FileStore() {
  // Not around the body: what is caught there is thrown again.
  try {
    const int64_t finished = add_raw(kFinished, 1);
    if (add_raw(kReferences, -1) == 0 && world_size_ >= 0 && finished >= world_size_)
      unlink(path_.c_str());
  } catch (...) {
    // Somebody removed it.
  }
}

int64_t FileStore::add_raw(const std::string& key, int64_t amount) {
  Locked file(*this, true);
  const int64_t sum = file.table().add(key, amount);
  file.write(key, std::to_string(sum));
  return sum;
}

void FileStore::set(const std::string& key, std::string_view value) {
  Locked file(*this, true);
  file.write(user_key(key), value);
  file.table().set(user_key(key), value);
}

std::string FileStore::get(const std::string& key) {
  wait({&key, 1});
  Locked file(*this, false);
  const std::string* value = file.table().find(user_key(key));
  if (!value) throw_store_timeout({&key, 1}, Milliseconds(0));
  return *value;
}

int64_t FileStore::add(const std::string& key, int64_t amount) {
  return add_raw(user_key(key), amount);
}

std::string FileStore::compare_set(const std::string& key, std::string_view expected,
                                   std::string_view desired) {
  Locked file(*this, true);
  const std::string value = file.table().compare_set(user_key(key), expected, desired);
  if (const std::string* now = file.table().find(user_key(key)); now && *now == desired)
    file.write(user_key(key), desired);
  return value;
}

bool FileStore::check(std::span<const std::string> keys) {
  Locked file(*this, false);
  return std::ranges::all_of(
      keys, [&](const std::string& key) { return file.table().find(user_key(key)); });
}

void FileStore::wait(std::span<const std::string> keys, std::optional<Milliseconds> limit) {
  const Milliseconds most = limit.value_or(timeout());
  const auto end = std::chrono::steady_clock::now() + most;
  // Files tell nobody of writes to them in a way that works on all file systems.
  for (Milliseconds pause(1); !check(keys); pause = std::min(pause * 2, Milliseconds(20))) {
    if (std::chrono::steady_clock::now() >= end) throw_store_timeout(keys, most);
    std::this_thread::sleep_for(pause);
  }
}

bool FileStore::delete_key(const std::string& key) {
  Locked file(*this, true);
  if (!file.table().erase(user_key(key))) return false;
  file.write("-" + user_key(key), "");
  return true;
}

int64_t FileStore::num_keys() {
  Locked file(*this, false);
  return int64_t(file.table().size());
}

void FileStore::append(const std::string& key, std::string_view value) {
  Locked file(*this, true);
  file.table().append(user_key(key), value);
  file.write(user_key(key), *file.table().find(user_key(key)));
}

}  // namespace arete::distributed
