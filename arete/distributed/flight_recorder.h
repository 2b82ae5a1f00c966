// The last calls of this process with others: what is looked at when one of them does not end.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "arete/base/error.h"
#include "arete/prim/communicator.h"

namespace arete::distributed {

enum class CallState : uint8_t { queued, started, done, failed };

/// What of a call can differ between ranks, beside collectives: messages, and the start of a group.
enum class CallKind : uint8_t { collective, send, recv, init };

struct CallShape {
  std::array<int64_t, 6> sizes{};  // the first of them
  uint8_t dim = 0, known = 0;      // known: whether there is a tensor
};

struct CallRecord {
  uint64_t number = 0;    ///< among all calls of this process, from 1; 0: none
  uint64_t sequence = 0;  ///< from 1, among the collectives of the group, or among its messages
  uint32_t group = 0;
  CallKind kind = CallKind::collective;
  prim::CollectiveKind op = prim::CollectiveKind::barrier;
  prim::ReduceKind reduce = prim::ReduceKind::sum;
  CallState state = CallState::queued;
  bool has_dtype = false;
  DType dtype = kFloat32;
  int32_t root = -1;   ///< or the other end of a message; -1: none
  int64_t numel = -1;  ///< what all ranks must agree in; -1: they need not
  CallShape in, out;   ///< of the first tensor of each side
  std::chrono::steady_clock::time_point queued, started, ended;
  std::shared_ptr<const std::string> label;
};

/// Says what the calls of this thread are for, in reports: "DDP bucket 4 of 7: h.3.*". The text
/// lives as long as someone needs it. They are the exchanges of a step of training, which its
/// computation goes on beside (prim::CollectiveArgs::overlaps).
class CallLabel {
 public:
  explicit CallLabel(std::shared_ptr<const std::string> text);
  ~CallLabel();
  /// What they are for now; null: nobody says it.
  static std::shared_ptr<const std::string> current();
  CallLabel(const CallLabel&) = delete;
  CallLabel& operator=(const CallLabel&) = delete;

 private:
  std::shared_ptr<const std::string> text_;
  const CallLabel* outer_;
};

/// One group of this process, as those who watch it see it. Its functions may be called from any
/// thread. A process keeps its last kRecorded calls; each costs less than a microsecond.
class GroupWatch {
 public:
  static constexpr size_t kRecorded = 2048;
  /// `rank` is that within the group, `ranks` are of the default group.
  static std::shared_ptr<GroupWatch> make(std::string name, std::string backend, int rank,
                                          std::vector<int> ranks);
  GroupWatch(const GroupWatch&) = delete;
  GroupWatch& operator=(const GroupWatch&) = delete;

  const std::string& name() const { return name_; }
  const std::vector<int>& ranks() const { return ranks_; }
  bool has_one_of(const std::vector<int>& members) const;
  /// A call was made; gives its number. Throws the verdict, if there is one on this group.
  uint64_t enter(const prim::CollectiveArgs& args);
  uint64_t enter(CallKind kind, int peer, const prim::View* view);
  void start(uint64_t call);
  /// Its number among the group's collectives, or its messages, as in reports; 0 if it is
  /// forgotten.
  uint64_t sequence_of(uint64_t call) const noexcept;
  void leave(uint64_t call, bool failed = false) noexcept;
  /// Does the work of a call. What goes wrong with others is thrown again with the name of who is
  /// to blame, if the monitor knows it.
  template <class F>
  void perform(uint64_t call, F&& f) {
    start(call);
    try {
      f();
    } catch (const Error& e) {
      leave(call, true);
      rethrow(call, e);
    } catch (...) {
      leave(call, true);
      throw;
    }
    leave(call);
  }
  /// How to end what is under way; null when it can no longer be called.
  void set_abort(std::function<void()> abort);
  /// Calls it.
  void abort() noexcept;
  /// Whether a call that failed may wait for its reason: the first one, of a group that is in use.
  bool may_ask() const noexcept { return !asked_.exchange(true); }

 private:
  friend class FlightRecorder;
  friend bool are_calls_under_way(const std::vector<int>& members);
  GroupWatch(std::string name, std::string backend, int rank, std::vector<int> ranks);
  [[noreturn]] void rethrow(uint64_t call, const Error& error);
  uint64_t add(CallRecord record);
  const std::string name_, backend_;
  const int rank_;
  const std::vector<int> ranks_;
  uint32_t id_ = 0;
  uint64_t issued_ = 0, done_ = 0, messages_ = 0;  // guarded by the recorder
  uint64_t thread_ = 0;                            // that made the last call
  mutable std::atomic<bool> asked_{false};
  std::mutex abort_mutex_;
  std::function<void()> abort_;
};

struct RecordOptions {
  size_t recent = 0;  ///< of each group only so many calls, the first that are under way; 0: all
  bool place = true;  ///< also where in its program the process is
};
/// What all groups of the process did, as JSON under the names of PyTorch's flight recorder: an
/// object with rank, host, pid, place, groups and entries, the oldest first.
std::string flight_record(const RecordOptions& options = {});
/// Writes it to `folder`/rank_N.json. IoError if that cannot be written.
void write_flight_record(const std::string& folder);

/// The groups that have one of these ranks among their members (all if there are none), and whether
/// calls of theirs are under way.
std::vector<std::shared_ptr<GroupWatch>> watched_groups(const std::vector<int>& members);
bool are_calls_under_way(const std::vector<int>& members);

/// The rank of this process in records.
void set_process_rank(int rank);
/// Where in its program a thread (pthread_self) is: "train.py:88 in main". It may take a while, or
/// for ever if the thread that would answer is busy: nobody waits for it for long. Null: nobody
/// knows.
using PlaceReader = std::string (*)(uint64_t thread);
void set_place_reader(PlaceReader reader);

}  // namespace arete::distributed
