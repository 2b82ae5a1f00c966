// What a call of a group leaves behind that goes on by itself.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "arete/core/tensor.h"
#include "arete/distributed/store.h"
#include "arete/prim/communicator.h"

namespace arete::distributed {

/// A call that may be under way. What reads a tensor that a collective is about to write waits for
/// it by itself, on the host or in the stream that reads it; results of messages between tensors of
/// host memory are to be waited for.
class Work final : public PendingCopy {
 public:
  explicit Work(const void* queue) : queue_(queue) {}
  /// Of tensors of a GPU: done when a stream has come to `end`. `on_host`: who waits is to wait
  /// himself, not only have his stream do so. `memory` lives until let_go(), or until `owner`, the
  /// stream that it belongs to, has been told to wait: whoever has it then comes after the call.
  Work(Device device, const void* queue, std::shared_ptr<prim::StreamPoint> end, bool on_host,
       std::vector<StoragePtr> memory, const void* owner)
      : queue_(queue),
        device_(device),
        end_(std::move(end)),
        on_host_(on_host),
        owner_(owner),
        memory_(std::move(memory)) {}
  /// Of a call that a compiled function has put off, of this memory: who waits need not, unless it
  /// is to be done within a time, or outside of the function; who asks whether it is done has it
  /// made.
  explicit Work(StoragePtr put_off) : queue_(nullptr), put_off_(std::move(put_off)), done_(true) {}
  bool is_completed() const;
  /// Throws what went wrong, or a DistributedError if it takes longer. Of the group's timeout the
  /// call takes care itself. For tensors of a GPU the current stream waits, and without a timeout
  /// the caller goes on at once.
  void wait(std::optional<Milliseconds> timeout);
  /// Whether wait() without a timeout goes on at once.
  bool is_for_stream() const { return (end_ && !on_host_) || put_off_; }
  /// Whoever uses the tensors waits by himself; where that is a stream, nobody need wait before. A
  /// capture ends with what it began.
  void wait_unless_readers_do();
  /// Whether it is done, after `most` at the latest. DeviceError while a graph is
  /// captured.
  bool wait_done(Milliseconds most);
  /// What wait() throws if it takes longer.
  [[noreturn]] static void throw_late(Milliseconds timeout);
  /// What went wrong; null if nothing did so far.
  std::exception_ptr exception() const;
  /// The group rank of the sender, of a completed recv(); else -1.
  int source_rank() const;

  bool is_done() const noexcept override { return is_completed(); }
  void wait() override { wait(std::nullopt); }
  const void* queue() const noexcept override { return queue_; }
  /// For those who do the work.
  void finish(std::exception_ptr error, int source = -1);
  void let_go() noexcept;

 private:
  void make() const;
  const void* queue_;
  const StoragePtr put_off_ = nullptr;
  const Device device_ = kCPU;
  const std::shared_ptr<prim::StreamPoint> end_;
  const bool on_host_ = false;
  const void* const owner_ = nullptr;
  mutable std::mutex mutex_;
  std::vector<StoragePtr> memory_;
  std::condition_variable finished_;
  bool done_ = false;
  std::exception_ptr error_;
  int source_ = -1;
};
using WorkPtr = std::shared_ptr<Work>;

}  // namespace arete::distributed
