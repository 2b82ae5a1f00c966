// The calls of one group whose tensors are in the memory of one GPU: they are put into streams, and
// a thread watches whether they end.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "arete/distributed/call_internal.h"
#include "arete/distributed/flight_recorder.h"
#include "arete/distributed/process_group.h"

namespace arete::distributed {

// Why a group is of no use any more, once it is not: what its streams' watchers tell each other.
class GroupFailure {
 public:
  void set(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (!why_) why_ = why;
  }
  std::optional<std::string> why() const {
    const std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<std::string> why_;
};

class StreamCalls {
 public:
  StreamCalls(Device device, std::unique_ptr<prim::StreamCommunicator> communicator,
              std::shared_ptr<GroupWatch> watch, int rank, std::shared_ptr<GroupFailure> failure);
  /// See finish().
  ~StreamCalls();
  StreamCalls(const StreamCalls&) = delete;
  StreamCalls& operator=(const StreamCalls&) = delete;

  Device device() const { return device_; }
  const void* queue() { return communicator_->stream(); }
  /// Puts calls into a stream as one: the device's current one, then it gives null, or the group's
  /// own, then it gives what to wait for. `is_barrier`: whoever waits, waits on the host.
  WorkPtr run(const std::vector<std::shared_ptr<Call>>& calls, bool async, bool is_barrier = false);
  /// Waits for what is under way, which may take until its timeout; `hurries`: two seconds, after
  /// which it is ended. Nothing may be called at that time.
  void finish(bool hurries = false);
  /// Ends what is under way, which fails with that text, as all later calls do. From any thread.
  void end(const std::string& why);

 private:
  struct UnderWay {
    std::shared_ptr<prim::StreamPoint> end;  // null: the library is still being called
    std::weak_ptr<Work> work;
    std::chrono::steady_clock::time_point begun;
    Milliseconds timeout;
    // What it is, in words only if it fails.
    prim::CollectiveKind kind;
    std::optional<DType> dtype;
    int64_t elements;
    std::vector<uint64_t> watched;  // the calls' numbers in records
  };
  void watch();
  void forget_ended(std::unique_lock<std::mutex>& lock);
  void leave(const UnderWay& call, bool failed) noexcept;
  std::string describe(const UnderWay& call) const;
  void fail(std::unique_lock<std::mutex>& lock, const std::string& why);

  const Device device_;
  const std::shared_ptr<GroupWatch> watch_;
  const int rank_;
  const std::shared_ptr<GroupFailure> failure_;
  const std::unique_ptr<prim::StreamCommunicator> communicator_;
  std::mutex order_;  // of calls

  std::mutex mutex_;  // of the rest
  std::condition_variable more_;
  std::deque<UnderWay> under_way_;
  std::exception_ptr error_;
  bool idle_ = false, ends_ = false;
  std::thread watcher_;
};

}  // namespace arete::distributed
