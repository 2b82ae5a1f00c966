// Who allocated what, when: a history of the memory of tensors on CPU and GPUs, with operators,
// scopes and call stacks, as data, JSON, a page to look at, and the pickle that PyTorch's memory
// viewer reads.
//
//   memory::record_history();
//   train();
//   memory::dump_snapshot("memory.html");
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "arete/core/memory_events.h"

namespace arete::memory {

/// What call stacks are kept of: nothing, live memory, also allocations in the history, also frees.
enum class Context : uint8_t { none, state, alloc, all };

struct HistoryOptions {
  bool events = true;  ///< false: only what is live is known, not how it came to be
  Context context = Context::all;
  bool native_frames = true;                                ///< C++ frames beside those of Python
  size_t max_entries = std::numeric_limits<size_t>::max();  ///< the oldest events are dropped
  bool clear = false;  ///< forgets what an earlier call recorded
};
/// Begins to record, or changes what is recorded from now on. What was allocated before is not
/// known.
void record_history(const HistoryOptions& options = {});
/// Ends recording and forgets what was recorded.
void stop_history();
bool is_recording_history() noexcept;

struct Frame {
  std::string file, function;
  int line = 0;
};
using StackId = uint32_t;  ///< an index into Snapshot::stacks; 0: none

struct Entry {
  MemoryEvent event;
  int64_t time_us = 0;  ///< since 1970
  uint64_t thread = 0;
  std::string operator_name, scope;
  StackId stack = 0;
};

struct Snapshot {
  std::vector<Entry> events;  ///< by time
  std::vector<Entry> live;    ///< the allocations that have not been freed, by device and address
  /// By StackId, innermost frame first; the first one is empty.
  std::vector<std::vector<Frame>> stacks;
  size_t dropped = 0;  ///< events that max_entries left no room for
};
/// What has been recorded until now.
Snapshot snapshot();

/// What is live after all events of a history, found by going through them. Where nothing was
/// dropped this is Snapshot::live.
std::vector<Entry> replay(const Snapshot& snapshot);

std::string to_json(const Snapshot& snapshot);
/// Python's pickle of what torch.cuda.memory._snapshot() gives: PyTorch's memory viewer reads it.
/// Host memory follows the GPUs as one more device.
std::string to_pickle(const Snapshot& snapshot);
/// A page that needs no network: memory over time by operator, scope or place in the program, and
/// what was live at any moment. `scopes`: what the page calls Entry::scope; with another word than
/// "scope" it shows no places in the program.
std::string to_html(const Snapshot& snapshot, std::string_view scopes = "scope");
/// Writes the snapshot of now, all or nothing; the name's end says how: .json, .html, .pickle.
/// IoError when that is not possible.
void dump_snapshot(const std::string& path);
void dump_snapshot(const std::string& path, const Snapshot& snapshot);

/// Where frames of another language come from.
class FrameSource {
 public:
  /// A place in a program that is running.
  struct Place {
    const void* code;
    int line;
    bool operator==(const Place&) const = default;
  };
  virtual ~FrameSource() = default;
  /// Appends the calling thread's places, innermost first; none where it is not running that
  /// language. Called under locks of the allocators: must not wait for other threads nor free
  /// tensors.
  virtual void capture(std::vector<Place>& places) noexcept = 0;
  /// Called on the thread that captured it, under a lock of the history.
  virtual Frame describe(const Place& place) = 0;
};
/// The source must live as long as the process. Null: none.
void set_frame_source(FrameSource* source) noexcept;

}  // namespace arete::memory
