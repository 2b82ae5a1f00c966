#include "arete/device/shared_memory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "arete/base/error.h"
#include "arete/core/device_sharing.h"
#include "arete/prim/backend.h"
#include "arete/prim/device_memory.h"
#include "arete/prim/plugin_internal.h"

// Note [Who uses shared memory]
// Each piece of memory that was shared has a file without a name (memfd) with a count of the
// descriptions that were given out and not opened. Who opens one takes a lock (flock, shared) on
// the file, then lowers the count, and keeps the lock while he uses the memory: the kernel drops it
// when a process ends, however that happens. So the memory is in nobody's hands when the count is
// zero and its owner gets the lock for himself. The file is opened by its process and number in
// /proc, which any process of the same user can do, however the description came to it. Such
// numbers come again, so that a random key is in the file and in the description: nothing is
// written to a file that has another.

namespace arete::cuda {
namespace {

constexpr const char* kFileName = "arete_users";

IoError no_counter(const char* what) {
  return IoError("shared memory", std::string("the file of its users cannot be ") + what)
      .got(std::strerror(errno));
}

/// The file of Note [Who uses shared memory].
class Users {
 public:
  /// Of new memory.
  Users() : Users(memfd_create(kFileName, MFD_CLOEXEC), true) {
    std::random_device random;
    content_->key = uint64_t(random()) << 32 | random();
  }
  /// Of memory that a description with this name() was given out for. IoError if it is gone or all
  /// descriptions of it were opened.
  explicit Users(const std::string& name) : Users(open_named(name), false) {
    if (name != name_of(name, content_->key)) throw gone();
    if (flock(file_, LOCK_SH) < 0) throw no_counter("locked");
    int64_t count = content_->descriptions.load();
    do {
      ARETE_CHECK(count > 0, IoError("shared memory",
                                     "every description of the memory was opened before: each "
                                     "can be opened once"));
    } while (!content_->descriptions.compare_exchange_weak(count, count - 1));
  }
  ~Users() {
    munmap(static_cast<void*>(content_), sizeof *content_);
    close(file_);
  }
  Users(const Users&) = delete;
  Users& operator=(const Users&) = delete;

  void add_description() { content_->descriptions.fetch_add(1); }
  bool are_gone() const {
    return content_->descriptions.load() == 0 && flock(file_, LOCK_EX | LOCK_NB) == 0;
  }
  std::string name() const {
    return name_of(std::to_string(getpid()) + " " + std::to_string(file_) + " ", content_->key);
  }

 private:
  struct Content {
    std::atomic<int64_t> descriptions;
    uint64_t key;
  };
  static_assert(std::atomic<int64_t>::is_always_lock_free);

  Users(int file, bool is_new) : file_(file) {
    if (file_ < 0) throw no_counter("made");
    struct stat known;
    void* p = MAP_FAILED;
    if (is_new ? ftruncate(file_, sizeof(Content)) == 0
               : fstat(file_, &known) == 0 && known.st_size == sizeof(Content))
      p = mmap(nullptr, sizeof(Content), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (p == MAP_FAILED) {
      const IoError error = no_counter("mapped");
      close(file_);
      throw error;
    }
    content_ = static_cast<Content*>(p);
  }

  static IoError gone() {
    return IoError("shared memory",
                   "the process that shared the memory is gone, or it has freed the memory");
  }
  /// `name` with this key: process, file, key.
  static std::string name_of(const std::string& name, uint64_t key) {
    return name.substr(0, name.rfind(' ') + 1) + std::to_string(key);
  }
  static int open_named(const std::string& name) {
    int process = 0, number = 0;
    if (std::sscanf(name.c_str(), "%d %d ", &process, &number) != 2) throw gone();
    const std::string link = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(number);
    // Before it is opened, which does something to files of some kinds.
    const std::string wanted = "/memfd:" + std::string(kFileName) + " (deleted)";
    char target[64];
    const ssize_t length = readlink(link.c_str(), target, sizeof target);
    if (length < 0 || std::string_view(target, size_t(length)) != wanted) throw gone();
    const int file = open(link.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) throw gone();
    return file;
  }

  int file_;
  Content* content_ = nullptr;
};

prim::DeviceMemory& shared_devices() {
  prim::DeviceMemory* const memory = prim::find_device_memory();
  ARETE_CHECK(memory, DeviceError("shared memory", "the devices here do not share memory"));
  return *memory;
}

class Sharing final : public DeviceSharing {
 public:
  void* copy(Device device, const void* from, size_t bytes) override {
    ARETE_CHECK(bytes > 0, DeviceError("share_memory_", "memory of no bytes is not shared"));
    auto users = std::make_unique<Users>();
    const int ordinal = device.index;
    const prim::SharedBlock block = shared_devices().copy_to_shared(ordinal, from, bytes);
    const std::lock_guard lock(mutex_);
    own_.emplace(block.data, Own{ordinal, block.handle, block.offset, std::move(users)});
    return block.data;
  }

  Allocator& allocator(Device) override { return frees_; }

  SharedMemory describe(const Storage& memory) {
    const std::lock_guard lock(mutex_);
    const auto found = own_.find(memory.data());
    ARETE_CHECK(found != own_.end(), DeviceError("share_memory",
                                                 "memory of a GPU is described by the process that "
                                                 "made it, while it uses it"));
    const Own& own = found->second;
    own.users->add_description();
    return {own.device, own.handle, own.offset, memory.bytes(), own.users->name()};
  }

  StoragePtr open(const SharedMemory& d) {
    const Device device(DeviceType::cuda, d.device);
    prim::backend_for(device);  // it is there and in use
    auto users = std::make_shared<Users>(d.counter);
    const std::lock_guard lock(mutex_);
    std::byte* begin = nullptr;
    const auto look_in = [&](const auto& memory) {
      for (const auto& [data, own] : memory)
        if (own.handle == d.handle && own.offset == d.offset && own.device == d.device)
          begin = static_cast<std::byte*>(data) - own.offset;
    };
    look_in(own_);
    look_in(left_);
    const std::pair key(d.device, d.handle);
    const bool foreign = begin == nullptr;
    if (foreign) {
      Opened& o = opened_[key];
      if (!o.begin) try {
          o.begin = shared_devices().open_shared(d.device, d.handle);
        } catch (...) {
          opened_.erase(key);
          throw;
        }
      begin = static_cast<std::byte*>(o.begin);
    }
    const auto release = [this, key, foreign, users] {
      if (prim::is_forked_from_device_user()) return;
      if (let_go(key, foreign)) return;
      const std::lock_guard its_lock(mutex_);
      captured_.push_back({key, foreign, users});
    };
    // Nothing may fail after the count, nor leave open what nobody counts.
    StoragePtr memory;
    try {
      memory = Storage::adopt(device, begin + d.offset, d.bytes, release);
    } catch (...) {
      if (foreign) close_unused(opened_.find(key));
      throw;
    }
    memory->mark_shared();
    if (foreign) ++opened_.at(key).uses;
    return memory;
  }

  void collect() {
    std::unique_lock lock(mutex_);
    std::vector<Leaving> captured = std::exchange(captured_, {});
    lock.unlock();
    std::erase_if(captured, [&](const Leaving& l) { return let_go(l.key, l.foreign); });
    lock.lock();
    captured_.insert(captured_.end(), captured.begin(), captured.end());
    collect_locked();
  }

 private:
  struct Own {
    int device;
    std::string handle;
    size_t offset;
    std::unique_ptr<Users> users;
  };
  struct Opened {
    void* begin = nullptr;
    int64_t uses = 0;
  };
  struct Leaving {
    std::pair<int, std::string> key;
    bool foreign;
    std::shared_ptr<Users> users;
  };
  /// Memory is freed when nobody uses it here or elsewhere.
  class Frees final : public Allocator {
   public:
    explicit Frees(Sharing& sharing) : sharing_(sharing) {}
    void* allocate(size_t) override { ARETE_BUG("shared memory is made by copies"); }
    void deallocate(void* p, size_t) noexcept override { sharing_.leave(p); }

   private:
    Sharing& sharing_;
  };

  void leave(void* p) noexcept {
    if (prim::is_forked_from_device_user()) return;
    const std::lock_guard lock(mutex_);
    auto own = own_.extract(p);
    left_.emplace_back(p, std::move(own.mapped()));
    collect_locked();
  }

  /// False where the device cannot be waited for, as in a capture. Users of the memory are held
  /// until it was, since another process may use it then.
  bool let_go(const std::pair<int, std::string>& key, bool foreign) noexcept {
    try {
      shared_devices().wait(key.first);
    } catch (const Error&) {
      return false;
    }
    if (!foreign) return true;
    const std::lock_guard lock(mutex_);
    const auto o = opened_.find(key);
    --o->second.uses;
    close_unused(o);
    return true;
  }

  void close_unused(std::map<std::pair<int, std::string>, Opened>::iterator o) noexcept {
    if (o->second.uses > 0) return;
    shared_devices().close_shared(o->first.first, o->second.begin);
    opened_.erase(o);
  }

  void collect_locked() noexcept {
    std::erase_if(left_, [](const auto& left) {
      if (!left.second.users->are_gone()) return false;
      shared_devices().free_shared(left.second.device, left.first);
      return true;
    });
  }

  std::mutex mutex_;
  std::map<void*, Own> own_;                 // that tensors here use
  std::vector<std::pair<void*, Own>> left_;  // that others may use
  std::vector<Leaving> captured_;            // let go while the device could not be waited for
  std::map<std::pair<int, std::string>, Opened> opened_;
  Frees frees_{*this};
};

Sharing& sharing() {
  static Sharing* const s = [] {
    auto* const made = new Sharing;  // tensors that are freed at exit need it
    set_device_sharing(made);
    return made;
  }();
  return *s;
}

}  // namespace

void move_to_shared_memory(const StoragePtr& memory) {
  ARETE_CHECK(memory->device().is_cuda(), DeviceError("share_memory", "memory of a GPU is expected")
                                              .got("memory of " + memory->device().to_string()));
  sharing().collect();
  memory->share();
}

SharedMemory share_memory(const StoragePtr& memory) {
  move_to_shared_memory(memory);
  memory->readable_data();
  shared_devices().wait(memory->device().index);
  return sharing().describe(*memory);
}

StoragePtr open_shared_memory(const SharedMemory& description) {
  sharing().collect();
  return sharing().open(description);
}

void collect_shared_memory() { sharing().collect(); }

}  // namespace arete::cuda
