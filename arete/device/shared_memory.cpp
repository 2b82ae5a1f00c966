#include "arete/device/shared_memory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
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
// not positive and its owner gets the lock for himself. The file is opened by its name in /proc,
// which any process of the same user can do, however the description came to it.

namespace arete::cuda {
namespace {

std::string file_name(int file) {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file);
}

IoError no_counter(const char* what) {
  return IoError("shared memory", std::string("the file of its users cannot be ") + what)
      .got(std::strerror(errno));
}

/// The file of Note [Who uses shared memory].
class Users {
 public:
  /// Of new memory.
  Users() : file_(memfd_create("arete_users", MFD_CLOEXEC)) {
    if (file_ < 0) throw no_counter("made");
    if (ftruncate(file_, sizeof *count_) < 0) {
      close(file_);
      throw no_counter("made");
    }
    map();
  }
  /// Of memory that a description was given out for.
  explicit Users(const std::string& name)
      : file_(name.starts_with("/proc/") ? open(name.c_str(), O_RDWR | O_CLOEXEC) : -1) {
    if (file_ < 0) throw no_counter("opened: the process that shared the memory is gone");
    map();
    if (flock(file_, LOCK_SH) < 0) throw no_counter("locked");
    count_->fetch_sub(1);
  }
  ~Users() {
    if (count_) munmap(static_cast<void*>(count_), sizeof *count_);
    close(file_);
  }
  Users(const Users&) = delete;
  Users& operator=(const Users&) = delete;

  void add_description() { count_->fetch_add(1); }
  void remove_description() { count_->fetch_sub(1); }
  bool are_gone() const { return count_->load() <= 0 && flock(file_, LOCK_EX | LOCK_NB) == 0; }
  std::string name() const { return file_name(file_); }

 private:
  void map() {
    void* const p =
        lseek(file_, 0, SEEK_END) < off_t(sizeof *count_)
            ? MAP_FAILED
            : mmap(nullptr, sizeof *count_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (p == MAP_FAILED) {
      close(file_);
      throw no_counter("mapped");
    }
    count_ = static_cast<std::atomic<int64_t>*>(p);
    static_assert(std::atomic<int64_t>::is_always_lock_free);
  }
  int file_;
  std::atomic<int64_t>* count_ = nullptr;
};

prim::DeviceMemory& shared_devices() {
  prim::DeviceMemory* const memory = prim::find_device_memory();
  ARETE_CHECK(memory, DeviceError("shared memory", "the devices here do not share memory"));
  return *memory;
}

class Sharing final : public DeviceSharing {
 public:
  bool has(const void* data) override {
    const std::lock_guard lock(mutex_);
    return own_.contains(data);
  }

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
    const Own& own = own_.at(memory.data());
    own.users->add_description();
    return {own.device, own.handle, own.offset, memory.bytes(), own.users->name()};
  }

  StoragePtr open(const SharedMemory& d) {
    const Device device(DeviceType::cuda, d.device);
    prim::backend_for(device);  // it is there and in use
    auto users = std::make_shared<Users>(d.counter);
    const std::lock_guard lock(mutex_);
    std::byte* begin = nullptr;
    for (const auto& [data, own] : own_)
      if (own.handle == d.handle && own.offset == d.offset && own.device == d.device)
        begin = static_cast<std::byte*>(const_cast<void*>(data)) - own.offset;
    for (const auto& [data, own] : left_)
      if (own.handle == d.handle && own.offset == d.offset && own.device == d.device)
        begin = static_cast<std::byte*>(data) - own.offset;
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
      ++o.uses;
      begin = static_cast<std::byte*>(o.begin);
    }
    return Storage::adopt(device, begin + d.offset, d.bytes, [this, key, foreign, users] {
      if (prim::is_forked_from_device_user()) return;
      shared_devices().wait(key.first);  // before another process may use it
      if (!foreign) return;
      const std::lock_guard its_lock(mutex_);
      const auto o = opened_.find(key);
      if (--o->second.uses > 0) return;
      shared_devices().close_shared(key.first, o->second.begin);
      opened_.erase(o);
    });
  }

  void collect() {
    const std::lock_guard lock(mutex_);
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

  void collect_locked() noexcept {
    std::erase_if(left_, [](const auto& left) {
      if (!left.second.users->are_gone()) return false;
      shared_devices().free_shared(left.second.device, left.first);
      return true;
    });
  }

  std::mutex mutex_;
  std::map<const void*, Own> own_;           // that tensors here use
  std::vector<std::pair<void*, Own>> left_;  // that others may use
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

bool is_in_shared_memory(const Storage& memory) { return sharing().has(memory.data()); }

SharedMemory share_memory(const StoragePtr& memory) {
  move_to_shared_memory(memory);
  memory->readable_data();
  shared_devices().wait(memory->device().index);
  return sharing().describe(*memory);
}

StoragePtr open_shared_memory(const SharedMemory& description) {
  return sharing().open(description);
}

void collect_shared_memory() { sharing().collect(); }

}  // namespace arete::cuda
