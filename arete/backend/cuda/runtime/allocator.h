// The caching allocator of one device. What it promises comes first:
//
//  - allocate() gives memory that may be used at once on `stream`; deallocate() may be called while
//    kernels on that stream still use the block, since reuse on the same stream comes after them.
//  - A block used on other streams too (note_use) is not reused before they have passed the point
//    they had reached when it was freed.
//  - Freed memory of any sizes joins with its neighbours: one pool of a stream is one range of
//    virtual addresses which physical memory is mapped into as it grows (VMM expandable segments).
//    Where only scattered free pieces are left, their memory is put together behind other addresses
//    as well, so that reserved memory stays close to the most ever in use. A program that repeats
//    itself finds these addresses again: soon neither is memory mapped nor does any grow.
//    Where the driver has no VMM, or with ARETE_CUDA_ALLOCATOR=plain, segments come from
//    cuMemAlloc.
//  - Private pools (for CUDA graphs and for scopes of programs) keep their addresses until the pool
//    is released.
//  - All methods are thread-safe.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "arete/prim/backend.h"
#include "arete/prim/device_memory.h"

namespace arete::cuda {

/// Where the allocator gets address ranges, physical memory and events from: the driver, or a model
/// of it in tests. Methods return false or null where the driver reports that memory is exhausted;
/// other failures throw.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Bytes in which physical memory is mapped (2 MB); 0: no virtual memory management here.
  virtual size_t granularity() = 0;
  /// A range of addresses, aligned to the granularity, with nothing behind them.
  virtual void* reserve(size_t bytes) = 0;
  virtual void unreserve(void* address, size_t bytes) noexcept = 0;
  /// Puts new physical memory behind addresses, all of it or none.
  virtual bool map(void* address, size_t bytes) = 0;
  /// The memory behind `from` is put behind `to` as well. What one kernel writes at either address
  /// the next one reads at both. False: not done.
  virtual bool alias(void* from, void* to, size_t bytes) = 0;
  /// Any whole chunks of what was mapped, together or apart. Memory is given back when it has no
  /// address any more.
  virtual void unmap(void* address, size_t bytes) noexcept = 0;
  /// Plain segments, aligned to 512 bytes.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* address) noexcept = 0;
  /// Free and total physical memory of the device.
  virtual void memory_info(size_t* free, size_t* total) = 0;
  /// Events of one stream are done in the order in which they were recorded.
  virtual CUevent record(CUstream stream) = 0;
  virtual bool is_done(CUevent event) = 0;
  virtual void discard(CUevent event) noexcept = 0;
  /// Waits for everything on the device.
  virtual void synchronize() = 0;
  /// Waits for one stream.
  virtual void synchronize(CUstream stream) = 0;
};

class CachingAllocator {
 public:
  /// `device`: the number that events of memory (core/memory_events.h) name. `beside`: another
  /// allocator of the device, with which this one has one limit (set_memory_fraction).
  CachingAllocator(std::unique_ptr<MemorySource> source, std::string device_name, int device = 0,
                   CachingAllocator* beside = nullptr);
  ~CachingAllocator();

  /// At least 256-byte aligned. 0 bytes: null. OutOfMemoryError after releasing cached memory and
  /// waiting for pending blocks did not help; its text says what was asked, what is free, the
  /// largest holders by operator, and the remedies.
  void* allocate(size_t bytes, CUstream stream);
  /// The same at `p`, where memory was given out before; null if it is not free, or none of what
  /// `stream` allocates from.
  void* allocate_at(void* p, size_t bytes, CUstream stream);
  void deallocate(void* p) noexcept;
  /// The block that holds `p` (not necessarily its start) is used on `stream` from now on; on one
  /// that allocates from a private pool only blocks of that pool are, since a graph uses others on
  /// the streams that it is launched on. False: the address is not the allocator's, and nothing was
  /// noted.
  bool note_use(const void* p, CUstream stream);
  /// The same of addresses in order, at once. False: at least one is not the allocator's.
  bool note_uses(std::span<const void* const> sorted, CUstream stream);
  /// The stream is about to be destroyed: waits for it; its pool's memory serves others then.
  void forget_stream(CUstream stream);

  /// Gives cached physical memory back to the driver, after waiting for the device. During a
  /// capture (between begin_pool and end_pool) only what needs no waiting.
  void empty_cache();
  /// At most this part of the device's memory for this allocator and those beside it together;
  /// (0, 1], ValueError otherwise.
  void set_memory_fraction(double fraction);

  prim::MemoryStats stats() const;
  void reset_peak_stats();
  /// A readable table.
  std::string summary() const;

  /// Between begin_pool and end_pool, allocations made for `stream` come from private pool `pool`,
  /// and blocks freed into it are reused by it alone. Call begin_pool before the capture of a graph
  /// begins and end_pool after it has ended: in between the allocator neither waits for the device
  /// nor queries or records events, and blocks freed then after use on other streams are held.
  uint64_t create_pool();
  void begin_pool(uint64_t pool, CUstream stream);
  void end_pool(CUstream stream);
  /// What the calling thread allocates comes from private pool `pool`, on every stream that no
  /// begin_pool() is in force for, until leave_pool(); the innermost scope counts. Unlike
  /// begin_pool it changes nothing else.
  void enter_pool(uint64_t pool);
  void leave_pool(uint64_t pool) noexcept;
  /// Free memory of the pool serves its streams' other allocations before these would fail.
  void lend_pool(uint64_t pool);
  /// The pool's memory, by address.
  std::vector<prim::PoolSegment> segments(uint64_t pool) const;
  /// Nobody uses the pool any more: its memory is given back, of blocks still in use once they
  /// are freed.
  void release_pool(uint64_t pool);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Where the allocator asks for the name of the operator that is running on the calling thread, for
/// its reports; the text must stay valid. Null: nowhere.
void set_operator_source(const char* (*source)()) noexcept;

/// The real source, for one device and its primary context. `plain`: without virtual memory
/// management, as for memory that other processes open (cuIpcGetMemHandle).
std::unique_ptr<MemorySource> make_driver_memory_source(CUdevice device, CUcontext context,
                                                        bool plain = false);

}  // namespace arete::cuda
