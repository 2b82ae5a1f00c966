// What the memory of a kind of device can do besides being allocated: pools that scopes take from,
// memory where it was before, and memory that other processes open, with the events that tell these
// when it may be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace arete::prim {

/// A range of addresses that a pool has, and what it is divided into.
struct PoolSegment {
  struct Block {
    enum class State : uint8_t {
      free,
      live,     // a tensor's
      pending,  // given back, but perhaps still used on other streams
    };
    uintptr_t address;
    size_t bytes;
    State state;
  };
  uintptr_t address = 0;
  size_t bytes = 0;  // that have memory behind them
  void* stream = nullptr;
  bool expandable = false;    // more memory may be put behind its addresses
  std::vector<Block> blocks;  // by address
};

/// Memory that other processes open by a name (`handle`) and then find `offset` bytes from its
/// beginning.
struct SharedBlock {
  void* data = nullptr;
  std::string handle;
  size_t offset = 0;
};

/// Devices are named by their ordinals, pools by DeviceRuntime::create_pool().
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// What the calling thread allocates from now on comes from the pool, where no graph is being
  /// captured on its stream, until leave_pool(). Scopes nest.
  virtual void enter_pool(int device, uint64_t pool) = 0;
  virtual void leave_pool(int device, uint64_t pool) noexcept = 0;
  /// Free memory of the pool serves others before they would be out of memory.
  virtual void lend_pool(int device, uint64_t pool) = 0;
  virtual std::vector<PoolSegment> pool_segments(int device, uint64_t pool) = 0;
  /// `bytes` (not 0) at an address that was given out before, if they are free and what the calling
  /// thread allocates may be there; null: they are not. Given back as other memory is.
  virtual void* allocate_at(int device, void* address, size_t bytes) = 0;

  /// New memory with the bytes that are at `from` when all that the device was given is done. An
  /// error that says why where there is none: memory that a recorded graph may use must not move.
  virtual SharedBlock copy_to_shared(int device, const void* from, size_t bytes) = 0;
  virtual void free_shared(int device, void* data) noexcept = 0;
  /// Waits for all that the device was given, and leaves errors that kernels recorded to who waits
  /// for these.
  virtual void wait(int device) = 0;
  /// Where the memory of another process begins here. Each handle is opened once at a time.
  virtual void* open_shared(int device, const std::string& handle) = 0;
  virtual void close_shared(int device, void* begin) noexcept = 0;

  /// An event without a time that other processes may open, as DeviceRuntime has events.
  virtual void* create_shared_event(int device) = 0;
  /// By what other processes open it.
  virtual std::string handle_of_event(int device, void* event) = 0;
  /// An event of another process, as one of this.
  virtual void* open_event(int device, const std::string& handle) = 0;
};

/// Of GPUs; null if no plug-in has brought one. Loads none.
DeviceMemory* find_device_memory() noexcept;
/// Called by plug-ins when they load; the object lives for the rest of the process.
void register_device_memory(DeviceMemory* memory) noexcept;

}  // namespace arete::prim
