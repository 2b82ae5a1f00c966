// What a device does besides computing: memory, streams, events, copies, graphs. Everything here is
// written in terms of opaque handles, so that no type of a vendor's library appears above a
// backend.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arete/core/device.h"
#include "arete/core/device_info.h"
#include "arete/core/storage.h"

namespace arete::prim {

class Backend;

/// Opaque to all but the backend that made them. A stream is a queue of work on one device; null
/// means the device's default one. An event is a point in a stream.
using StreamHandle = void*;
using EventHandle = void*;
using GraphHandle = void*;

/// One launch of a user's kernel on the current stream.
struct UserLaunch {
  std::array<unsigned, 3> grid{1, 1, 1}, block{1, 1, 1};
  size_t shared = 0;                    // bytes of dynamic shared memory
  void** arguments;                     // the address of each argument
  std::span<const void* const> memory;  // device memory that the arguments point to
};

/// The runtime half of a backend. The defaults are those of a device that does everything at once
/// on the calling thread (the CPU): nothing is ever pending, and there is one stream.
class DeviceRuntime : public Allocator {
 public:
  // ---- waiting
  /// Waits for everything submitted to the device and raises what kernels recorded.
  virtual void synchronize() = 0;

  // ---- copies of plain bytes
  /// Between this device and the host, in the order of the current stream. On return the host
  /// memory may be read, changed and freed. An error while the current stream captures a graph
  /// (to_host), when no values exist yet.
  virtual void copy_to_host(void* dst, const void* src, size_t bytes) = 0;
  virtual void copy_from_host(void* dst, const void* src, size_t bytes) = 0;
  /// The same without waiting. `host` is the pinned storage that the host address lies in; it is
  /// told of the copy (Storage::add_pending), so that readers of its bytes wait for it.
  virtual void copy_to_host_async(Storage& host, void* dst, const void* src, size_t bytes);
  virtual void copy_from_host_async(Storage& host, void* dst, const void* src, size_t bytes);
  /// From memory of `from`, a backend of the same kind, without waiting; ordered after what both
  /// devices' current streams were given before, and before what they are given next.
  virtual void copy_from_peer(void* dst, Backend& from, const void* src, size_t bytes);
  /// Where host memory comes from that the device can reach by itself.
  virtual Allocator& pinned_allocator() { return *this; }

  // ---- streams
  /// The stream that the calling thread's work goes to. Never null on a device that has streams.
  virtual StreamHandle current_stream() { return nullptr; }
  virtual StreamHandle default_stream() { return nullptr; }
  /// For the calling thread; null: the default stream.
  virtual void set_current_stream(StreamHandle) {}
  /// Lower numbers run first; what is outside the device's range is clamped.
  virtual StreamHandle create_stream(int /*priority*/) { return nullptr; }
  /// Work already in the stream is finished. Memory that was used on it stays valid.
  virtual void destroy_stream(StreamHandle) noexcept {}
  /// A stream made by other code is about to be used.
  virtual void adopt_stream(StreamHandle) {}
  virtual bool stream_is_done(StreamHandle) { return true; }
  virtual void synchronize_stream(StreamHandle) {}
  virtual void stream_wait_event(StreamHandle, EventHandle) {}

  // ---- events
  virtual EventHandle create_event(bool /*timing*/) { return nullptr; }
  virtual void destroy_event(EventHandle) noexcept {}
  virtual void record_event(EventHandle, StreamHandle) {}
  virtual bool event_is_done(EventHandle) { return true; }
  virtual void synchronize_event(EventHandle) {}
  /// Milliseconds; both must be made with timing and be done.
  virtual double elapsed_time(EventHandle begin, EventHandle end);

  // ---- graphs
  virtual bool is_capturing() { return false; }
  /// A pool of memory of its own for graphs. Released: its memory is given back as its blocks are.
  virtual uint64_t create_pool();
  virtual void release_pool(uint64_t) noexcept {}
  /// Work given to `stream` until end_capture is recorded instead of run; memory allocated on it
  /// comes from `pool`.
  virtual void begin_capture(StreamHandle stream, uint64_t pool);
  virtual GraphHandle end_capture(StreamHandle stream);
  /// Ends it without a graph.
  virtual void discard_capture(StreamHandle) noexcept {}
  virtual void launch_graph(GraphHandle graph, StreamHandle stream);
  /// Waits for launches that still run.
  virtual void destroy_graph(GraphHandle) noexcept {}

  // ---- kernels that users write in the device's own language
  /// The function `name` of a source, compiled on first use and kept for the process and on disk.
  /// ValueError with the compiler's messages, whose line numbers are the source's own; DeviceError
  /// if the device compiles nothing.
  virtual const void* find_user_kernel(const std::string& source, const std::string& name,
                                       const std::vector<std::string>& options);
  /// ValueError if the launch asks for more than the device has.
  virtual void launch_user_kernel(const void* kernel, const UserLaunch& launch);

  // ---- memory
  virtual MemoryStats memory_stats() const { return {}; }
  virtual std::string memory_summary() const { return ""; }
  virtual MemoryInfo memory_info() { return {}; }
  virtual void reset_peak_memory_stats() {}
  virtual void empty_cache() {}
  virtual void set_memory_fraction(double) {}
};

/// A kind of device that a plug-in brings. Only backend() makes use of a device; everything else is
/// answered from the driver alone.
class DeviceProvider {
 public:
  virtual ~DeviceProvider() = default;
  virtual int count() const = 0;
  virtual DeviceProperties properties(int ordinal) const = 0;
  /// One line for `arete info`.
  virtual std::string description(int ordinal) const = 0;
  /// Names and versions of the driver and the libraries, as far as they are known without loading
  /// them.
  virtual std::vector<std::pair<std::string, std::string>> versions() const = 0;
  virtual bool can_access_peer(int from, int to) const = 0;
  /// Makes the backend of a device; asked once for each. Throws if the device cannot be used.
  virtual Backend* make_backend(int ordinal) = 0;
  /// Named ranges for a profiler's timeline.
  virtual void push_range(const char* name) noexcept = 0;
  virtual void pop_range() noexcept = 0;
};

/// The provider of a device type, loaded at the first call; null if there is none (the reason:
/// unavailable_reason).
DeviceProvider* find_provider(DeviceType type) noexcept;
/// Called by plug-ins when they load; the object lives for the rest of the process.
void register_provider(DeviceType type, DeviceProvider* provider);

}  // namespace arete::prim
