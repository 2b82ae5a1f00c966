// GPUs: devices, streams, events, graphs, memory. The names are those of torch.cuda. Nothing of
// CUDA is loaded before a function here is called or a tensor is put on a GPU; on a machine without
// one is_available() is false, counters are 0, and what needs a GPU is a DeviceError that says why
// there is none.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arete/core/device.h"
#include "arete/core/device_info.h"
#include "arete/prim/device_memory.h"

namespace arete::cuda {

// ---- devices. `device` is an ordinal; -1 stands for current_device().

/// True if there is at least one GPU that can be used.
bool is_available();
/// Why there is none: no driver, no libarete_cuda.so, ...; "" if there is one.
std::string unavailable_reason();
/// True once a GPU is in use. The first call that needs one starts CUDA for it; init() does so for
/// the current device.
bool is_initialized();
void init();
/// True in a process forked from one that had started CUDA, which is_available() does, too: what
/// needs a GPU is a DeviceError there that says so.
bool is_in_bad_fork() noexcept;
int device_count();
/// The calling thread's choice, 0 at first: what the functions here work on unless told otherwise,
/// and what a device without an ordinal (kCUDA, Device("cuda")) stands for.
int current_device() noexcept;
/// `chooses`: it is the program's choice, not one for a while; has_chosen_device() tells.
void set_device(int device, bool chooses = true);
bool has_chosen_device() noexcept;
/// Sets the current device and restores the previous one at its end.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) : previous_(current_device()) { set_device(device, false); }
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_;
};
DeviceProperties get_device_properties(int device = -1);
/// Names and versions of the driver and the vendor's libraries, as far as they are known without
/// loading them.
std::vector<std::pair<std::string, std::string>> versions();
/// For people: "cuda" with the number of devices and versions or the reason why there are none,
/// then "cuda:0" and so on with a description each. Asks the driver's management library, which
/// does not start CUDA, where that can answer; `start`: starts CUDA in any case.
std::vector<std::pair<std::string, std::string>> survey(bool start = false);
/// True if `device` can reach the memory of `peer` directly.
bool can_device_access_peer(int device, int peer);
/// Waits for all work given to a device. Errors that kernels recorded, such as an index out of
/// range, are raised here (as at every other wait); the process can go on after them.
void synchronize(int device = -1);

// ---- streams and events

class Event;

/// A queue of work on one GPU: what is given to one stream runs in order, streams run side by side.
/// A value; copies are the same stream. Tensors may be used on several streams freely as far as
/// their memory is concerned; that a stream sees what another one computes is the caller's concern
/// (wait_stream).
class Stream {
 public:
  /// A new stream. Lower priorities run first; GPUs have a few, from 0 down to about -5, and what
  /// is beyond them is clamped.
  explicit Stream(int priority = 0, int device = -1);
  /// A stream (CUstream or cudaStream_t) made by other code, which keeps it alive.
  static Stream from_native(void* stream, int device = -1);

  int device() const noexcept;
  int priority() const noexcept;
  /// The CUstream.
  void* native_handle() const noexcept;
  /// True if everything given to it is done.
  bool query() const;
  /// Waits on the host, and raises what kernels recorded.
  void synchronize() const;
  /// What is given to this stream from now on waits for the event; the host does not.
  void wait_event(const Event& event) const;
  /// The same for all that the other stream has been given.
  void wait_stream(const Stream& other) const;
  /// A new event at the present end of the stream.
  Event record_event() const;
  bool operator==(const Stream& other) const noexcept;

 private:
  struct State;
  explicit Stream(std::shared_ptr<State> state) : state_(std::move(state)) {}
  friend class Event;
  friend Stream current_stream(int);
  friend Stream default_stream(int);
  friend void set_stream(const Stream&);
  std::shared_ptr<State> state_;
};

/// The stream that the calling thread's work on a device goes to.
Stream current_stream(int device = -1);
/// The one it goes to at first.
Stream default_stream(int device = -1);
/// For the calling thread, and the stream's device.
void set_stream(const Stream& stream);
/// Sets the current stream of the stream's device, and that device as the current one; restores
/// both at its end.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  DeviceGuard device_;
  Stream previous_, stream_;
};

/// A point in a stream. A value; copies are the same event.
class Event {
 public:
  /// `interprocess`: other processes may have it, too, by ipc_handle(). ValueError with
  /// `enable_timing`: such events have no times.
  explicit Event(bool enable_timing = false, bool interprocess = false);
  /// The event that another process on this machine has made and described by ipc_handle(); both
  /// may record it and wait for it. That process keeps its own while this one is used.
  static Event from_ipc_handle(const std::string& handle, int device = -1);
  /// What from_ipc_handle() of another process takes. An event that is not recorded yet is one of
  /// the current device from then on. ValueError for one that was not made with `interprocess`.
  std::string ipc_handle() const;
  /// Moves the event to the present end of a stream (default: the current one).
  void record();
  void record(const Stream& stream);
  /// What is given to the stream from now on waits for the event. Not recorded yet: nothing.
  void wait(const Stream& stream) const { stream.wait_event(*this); }
  /// True if all before it is done. Not recorded yet: true.
  bool query() const;
  void synchronize() const;
  /// Milliseconds from this event to `end`. Both must be made with enable_timing, and recorded on
  /// one device; waits for `end`.
  double elapsed_time(const Event& end) const;
  /// The CUevent, and the number of its device: null and -1 before it is recorded.
  void* native_handle() const noexcept;
  int device() const noexcept;

 private:
  friend class Stream;
  struct State;
  std::shared_ptr<State> state_;
};

// ---- graphs

/// Memory of a device that scopes (MemPoolGuard) or graphs take their tensors from and nothing else
/// does: what is freed in it is used again by it alone, and addresses of graphs stay. Graphs that
/// never run at the same time may share one. A value; when the last copy is gone the memory goes
/// back to the driver, of tensors that still live when they are freed.
class MemPool {
 public:
  /// `use_on_oom`: its free memory serves the same stream's other tensors before there would be an
  /// OutOfMemoryError. Not for graphs, which would overwrite them.
  explicit MemPool(int device = -1, bool use_on_oom = false);
  int device() const noexcept;
  /// Pools of one device have different ones, which are never 0.
  uint64_t id() const noexcept;
  /// Copies of it: of the program, of scopes that are open, of graphs.
  int64_t use_count() const noexcept;
  /// Its memory, by address.
  std::vector<prim::PoolSegment> snapshot() const;

 private:
  friend class GraphCapture;
  friend class MemPoolGuard;
  struct State;
  std::shared_ptr<State> state_;
};

/// While it lives, what the calling thread allocates on the pool's device comes from the pool, on
/// every stream but those that are being captured. Other threads, also those that the engine of
/// autograd uses, do not take part. Ends on the thread that began it.
class MemPoolGuard {
 public:
  explicit MemPoolGuard(MemPool pool);
  ~MemPoolGuard();
  MemPoolGuard(const MemPoolGuard&) = delete;
  MemPoolGuard& operator=(const MemPoolGuard&) = delete;

 private:
  MemPool pool_;
};

/// Work that was recorded once and runs again as a whole with one call: for programs of many small
/// kernels. A value. The tensors that the recorded calls read and write keep their addresses: new
/// inputs are copied into the old ones (copy_). Memory allocated during the capture belongs to the
/// graph and is overwritten by each replay.
class Graph {
 public:
  Graph() = default;
  /// True once a capture has ended well.
  bool is_ready() const noexcept { return state_ != nullptr; }
  /// Runs it on the current stream of its device.
  void replay() const;
  /// Has `function` run before each replay, by the thread that calls replay(): to write what the
  /// graph reads, on the stream that it is about to run on. In the order of these calls; an
  /// exception keeps the graph from running. DeviceError if the graph is not ready.
  void before_replay(std::function<void()> function);
  /// Waits for replays that still run and forgets the graph.
  void reset() noexcept { state_.reset(); }

 private:
  friend class GraphCapture;
  struct State;
  std::shared_ptr<State> state_;
};

/// While it lives, the calling thread's work on the current device is recorded into a graph instead
/// of run. Reading values on the host is an error then, which leaves the capture intact. An
/// exception that leaves the scope discards what was recorded.
///
/// It records on a stream of its own, or on one that is given, which is the current one meanwhile:
/// neither a default stream, which all threads use, nor one that is being captured (DeviceError).
/// The stream waits for the one that was current before.
class GraphCapture {
 public:
  explicit GraphCapture(Graph& graph);
  GraphCapture(Graph& graph, MemPool pool);
  GraphCapture(Graph& graph, const Stream& stream);
  GraphCapture(Graph& graph, MemPool pool, const Stream& stream);
  /// Ends the capture where it has not been ended; errors show as a graph that is not ready.
  ~GraphCapture();
  /// Ends the capture and makes the graph ready; DeviceError if what was recorded is no graph.
  void end();
  /// Graph::before_replay of the graph that is being recorded.
  void before_replay(std::function<void()> function);
  /// The one that the calling thread began on a device and has not ended; null if there is none.
  static GraphCapture* current(int device = -1) noexcept;
  GraphCapture(const GraphCapture&) = delete;
  GraphCapture& operator=(const GraphCapture&) = delete;

 private:
  Graph& graph_;
  MemPool pool_;
  Stream stream_;
  std::unique_ptr<StreamGuard> guard_;
  std::vector<std::function<void()>> before_replay_;
  int exceptions_;
  bool open_ = true;
};
/// True if the calling thread's work is being recorded.
bool is_current_stream_capturing();

// ---- memory. Bytes; a device that has not been used has taken none.

/// In tensors, now and at most.
size_t memory_allocated(int device = -1);
size_t max_memory_allocated(int device = -1);
/// Taken from the driver by the caching allocator, now and at most.
size_t memory_reserved(int device = -1);
size_t max_memory_reserved(int device = -1);
void reset_peak_memory_stats(int device = -1);
/// Counts of allocations, frees, retries and errors begin at 0 again.
void reset_accumulated_memory_stats(int device = -1);
MemoryStats memory_stats(int device = -1);
/// The same under the names of torch.cuda.memory_stats, sorted: "allocated_bytes.all.peak" and so
/// on. Small and large blocks have no pools of their own here: all are in large_pool. Peaks that
/// nobody keeps (segments, inactive memory) are the present values.
std::vector<std::pair<std::string, int64_t>> memory_stats_by_name(int device = -1);
/// A readable table with the rows of torch.cuda.memory_summary, and unless `abbreviated` what the
/// allocator knows besides: its pools, and who holds most.
std::string memory_summary(int device = -1, bool abbreviated = false);
/// Physical memory, whoever uses it. Needs a GPU.
MemoryInfo mem_get_info(int device = -1);
/// Gives memory that is cached, but not in use, back to the driver.
void empty_cache();
/// At most this part of the GPU's memory, (0, 1], is taken; needs a GPU.
void set_per_process_memory_fraction(double fraction, int device = -1);

// ---- ranges for a profiler's timeline (NVTX); without a GPU they do nothing.

namespace nvtx {
void range_push(const char* name) noexcept;
void range_pop() noexcept;
/// A moment.
void mark(const char* name) noexcept;
/// A range that may overlap others and end on another thread: range_end takes the number it gives
/// (0 without a GPU).
uint64_t range_start(const char* name) noexcept;
void range_end(uint64_t range) noexcept;
class RangeGuard {
 public:
  explicit RangeGuard(const char* name) noexcept { range_push(name); }
  ~RangeGuard() { range_pop(); }
  RangeGuard(const RangeGuard&) = delete;
  RangeGuard& operator=(const RangeGuard&) = delete;
};
}  // namespace nvtx

}  // namespace arete::cuda
