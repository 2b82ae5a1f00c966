// The second seam: what moves tensors between processes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "arete/prim/device_runtime.h"
#include "arete/prim/view.h"

namespace arete::prim {

enum class CollectiveKind : uint8_t {
  all_reduce,
  all_gather,
  broadcast,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  reduce,
  barrier,
  send,  // these two of a StreamCommunicator only
  recv,
};
const char* name_of(CollectiveKind kind);

enum class ReduceKind : uint8_t { sum, product, min, max, band, bor, bxor, avg, premul_sum };
const char* name_of(ReduceKind kind);

/// One part of a call that all processes of a group make. Views are contiguous and in memory of the
/// communicator's device. Where a side has one view per rank they may differ in size, as long as
/// the one that sends and the one that receives agree.
///   all_reduce      in[0] -> out[0], which may be the same
///   all_gather      in[0] -> out[every rank]
///   broadcast       out[0] of the root -> out[0] of all
///   reduce_scatter  in[every rank] -> out[0]
///   all_to_all      in[every rank] -> out[every rank]
///   gather          in[0] -> out[every rank], of the root only
///   scatter         in[every rank], of the root only -> out[0]
///   reduce          in[0] -> out[0], which may be the same, of the root; others' is not written
///   barrier         nothing
///   send            in[0], to `root`
///   recv            out[0], from `root`
struct CollectiveArgs {
  CollectiveKind kind;
  std::span<const View> in{}, out{};
  int root = 0;
  ReduceKind reduce = ReduceKind::sum;
  double factor = 1;      // premul_sum: what the inputs are multiplied with
  bool overlaps = false;  // computation goes on beside it, and should keep the device; in all ranks
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

/// A message under way. It is to be waited for before it is destroyed.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Gives the rank of the other end.
  virtual int wait(std::chrono::milliseconds timeout) = 0;
};

/// What one process has of a group of them. Calls of run() follow each other; send() and recv() may
/// be called beside them, from any thread, and do not wait. What fails is a DistributedError, after
/// which no other call need work.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Whether run() takes such a call. The others are made of these, of send() and of recv()
  /// (run_collective()).
  virtual bool supports(const CollectiveArgs&) const = 0;
  virtual void run(const CollectiveArgs&) = 0;
  virtual std::unique_ptr<Transfer> send(const View& view, int to, uint32_t tag) = 0;
  /// `from` -1: from whoever sends first.
  virtual std::unique_ptr<Transfer> recv(const View& view, int from, uint32_t tag) = 0;
  /// Ends what is under way, which then fails, from another thread.
  virtual void abort() noexcept = 0;
};

/// Makes the call by what the communicator has (decompose/collective.cpp).
void run_collective(Communicator& communicator, const CollectiveArgs& args);

/// Tags from here on are those of run_collective(); programs have the ones below.
inline constexpr uint32_t kFirstOwnTag = uint32_t(1) << 31;

/// Combines elements one by one: out[i] = a[i] op b[i], where out may be a or b. Half types compute
/// in float. NaN wins in min and max. On bools sum is "or" and product "and".
using ReduceFunction = void (*)(void* out, const void* a, const void* b, size_t n);
/// TypeError for what a dtype has not: an order of complex numbers, bits of floating ones. avg and
/// premul_sum add.
ReduceFunction reduce_function(ReduceKind kind, DType dtype);

/// How processes tell each other where they are.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual void set(const std::string& key, std::string_view value) = 0;
  virtual std::string get(const std::string& key) = 0;
  /// Without a time for as long as get() waits.
  virtual void wait(std::span<const std::string> keys,
                    std::optional<std::chrono::milliseconds> timeout) = 0;
};
using MakeCommunicator = std::unique_ptr<Communicator> (*)(Rendezvous& where, int rank, int size,
                                                           std::chrono::milliseconds timeout);

/// The one of a plug-in, opened at its first use; null with the reason in `problem`.
MakeCommunicator find_gloo(std::string& problem);

/// How far a stream had come when this was made.
class StreamPoint {
 public:
  virtual ~StreamPoint() = default;
  /// Also where the device is broken: nothing will come any more. From any thread.
  virtual bool is_done() noexcept = 0;
  /// Work that a stream is given from now on comes after it; the caller does not wait.
  virtual void hold(StreamHandle stream) = 0;
};

/// What one process has of a group whose tensors are in the memory of a GPU: its calls are put into
/// streams. One call at a time; the last three functions may be called beside it. What fails is a
/// DistributedError, after which no other call need work.
class StreamCommunicator {
 public:
  /// Waits for nothing: who wants calls to end marks them first.
  virtual ~StreamCommunicator() = default;
  /// A stream of its own, for calls that others need not wait for.
  virtual StreamHandle stream() = 0;
  /// Puts calls into a stream, as one: messages among them wait for each other in no order. The
  /// caller keeps the memory until they are done, or the current stream comes after them.
  /// TypeError, before anything is done, for elements that cannot be combined so.
  virtual void run(std::span<const CollectiveArgs> calls, StreamHandle stream) = 0;
  virtual std::shared_ptr<StreamPoint> mark(StreamHandle stream) = 0;
  /// What went wrong since; "" if nothing did.
  virtual std::string problem() = 0;
  /// Ends what is under way. Its results are worth nothing: the next wait for the device raises
  /// `why`.
  virtual void abort(const std::string& why) noexcept = 0;
};

/// What the plug-in of a device has for groups.
struct StreamLibrary {
  /// Of a GPU by its number; all processes of the group call it.
  std::unique_ptr<StreamCommunicator> (*make)(int ordinal, Rendezvous& where, int rank, int size,
                                              std::chrono::milliseconds timeout);
  /// Major, minor and patch as 10000, 100 and 1; 0 with the reason in `problem` if it cannot be
  /// used. Loads it.
  int (*version)(std::string& problem);
};
/// NCCL; null with the reason in `problem`.
const StreamLibrary* find_nccl(std::string& problem);
/// Called by the plug-in of GPUs when it loads.
void register_nccl(const StreamLibrary& library);

}  // namespace arete::prim
