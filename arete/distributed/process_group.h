// Processes that exchange tensors.
#pragma once

#include <array>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "arete/core/tensor.h"
#include "arete/distributed/flight_recorder.h"
#include "arete/distributed/store.h"
#include "arete/distributed/work.h"
#include "arete/ops/collective.h"
#include "arete/prim/communicator.h"

namespace arete::distributed {

class GroupFailure;
class GroupEffect;
class StreamCalls;
struct Call;

/// How elements of several processes become one. premul_sum multiplies them with `factor` first.
struct ReduceOp {
  prim::ReduceKind kind = prim::ReduceKind::sum;
  double factor = 1;
  ReduceOp() = default;
  ReduceOp(prim::ReduceKind k, double f = 1) : kind(k), factor(f) {}
};
inline const ReduceOp kSum, kProduct(prim::ReduceKind::product), kMin(prim::ReduceKind::min),
    kMax(prim::ReduceKind::max), kAvg(prim::ReduceKind::avg);

/// One process' part of a group. Ranks are those within the group. All processes of a group call
/// the same functions in the same order; each function ends when this process' part is done, or
/// with `async` at once with what is to be waited for, else null. Tensors need not be contiguous,
/// but what is not in order is copied. Tensors of GPUs travel by NCCL: their calls are put into the
/// current stream, with `async` into one of the group. Without NCCL they are copied to host memory.
/// No history is recorded.
class ProcessGroup final : public ops::CollectiveGroup {
 public:
  /// `ranks`: of the members, in the default group. `backend`: "gloo", "nccl" for tensors of GPUs
  /// only, or both as "cpu:gloo,cuda:nccl"; "undefined": the same, where there is NCCL; "store", in
  /// which messages go through the store, for tests and where there is no Gloo; "fake", in which
  /// nobody else is. A GPU is connected at its first call.
  ProcessGroup(std::string name, std::string backend, StorePtr store, int rank,
               std::vector<int> ranks, Milliseconds timeout);
  /// See finish().
  ~ProcessGroup() override;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return int(ranks_.size()); }
  /// What operators with gradients name it by.
  int64_t number() const { return number_; }
  void perform(prim::CollectiveKind kind, std::span<const Tensor> in, std::span<const Tensor> out,
               int root, prim::ReduceKind reduce, double factor) override;
  const std::vector<int>& ranks() const { return ranks_; }
  const std::string& name() const { return name_; }
  const std::string& backend() const { return backend_; }
  const StorePtr& store() const { return store_; }
  Milliseconds timeout() const { return timeout_; }
  void set_timeout(Milliseconds timeout) { timeout_ = timeout; }
  prim::Communicator& communicator() { return *communicator_; }
  /// Of a "fake" group: "all_reduce SUM float32[6]" for each call, in order, with the root or the
  /// peer of those that have one; of others nothing.
  std::vector<std::string> recorded_calls() const;
  /// Whether tensors of the device travel by NCCL.
  bool uses_nccl(Device device) const;
  /// Where tensors may be that are made for a call: host memory, or the group's GPU; until it has
  /// one, the current one, or where that is the first, the one of this process on its machine.
  Device home() const;
  /// Waits for the collectives that are under way, until their timeout at the latest, and for
  /// messages of host memory two seconds; `hurries`: for all of them. What is under way then is
  /// ended. No other thread may call the group at that time.
  void finish(bool hurries = false);
  /// Connects a GPU now, which the others have to do as well.
  void connect(Device device) { stream_calls(device); }

  /// Sparse tensors are added up; the sum is coalesced, and there when the call ends.
  WorkPtr all_reduce(const Tensor& tensor, ReduceOp op = {}, bool async = false);
  WorkPtr reduce(const Tensor& tensor, int dst, ReduceOp op = {}, bool async = false);
  WorkPtr broadcast(const Tensor& tensor, int src, bool async = false);
  /// Tensors of different ranks may differ in size.
  WorkPtr all_gather(const std::vector<Tensor>& outputs, const Tensor& input, bool async = false);
  WorkPtr all_gather_into_tensor(const Tensor& output, const Tensor& input, bool async = false);
  /// Each tensor has, one after the other, as many elements from each rank; those of this one are
  /// there. Of a GPU they are one piece of work.
  WorkPtr all_gather_in_place(const std::vector<Tensor>& tensors, bool async = false);
  WorkPtr reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs, ReduceOp op = {},
                         bool async = false);
  WorkPtr reduce_scatter_tensor(const Tensor& output, const Tensor& input, ReduceOp op = {},
                                bool async = false);
  /// The sums, as with `async`; of a GPU in a second stream with a communicator of its own, which
  /// waits for no other calls.
  WorkPtr reduce_scatter_beside(const Tensor& output, const Tensor& input);
  WorkPtr all_to_all(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                     bool async = false);
  /// Rows for each rank, and of each; empty: equally many.
  WorkPtr all_to_all_single(const Tensor& output, const Tensor& input,
                            const std::vector<int64_t>& output_splits = {},
                            const std::vector<int64_t>& input_splits = {}, bool async = false);
  /// `outputs` at `dst` only.
  WorkPtr gather(const Tensor& input, const std::vector<Tensor>& outputs, int dst,
                 bool async = false);
  /// `inputs` at `src` only.
  WorkPtr scatter(const Tensor& output, const std::vector<Tensor>& inputs, int src,
                  bool async = false);
  WorkPtr barrier(bool async = false);
  /// A barrier that names who did not come: at rank 0 in a DistributedError, the first, or all.
  void monitored_barrier(std::optional<Milliseconds> timeout = {}, bool wait_all_ranks = false);

  WorkPtr send(const Tensor& tensor, int dst, uint32_t tag = 0, bool async = false);
  /// `src` -1: from whoever sends first. The rank of the sender goes to `source`.
  WorkPtr recv(const Tensor& tensor, int src, uint32_t tag = 0, bool async = false,
               int* source = nullptr);
  struct Message {
    Tensor tensor;
    int peer;
    uint32_t tag;
    bool sends;
  };
  /// Starts several, in whatever order. Those of a GPU are one piece of work.
  std::vector<WorkPtr> start_messages(const std::vector<Message>& messages);

 private:
  WorkPtr add_sparse(const Tensor& tensor, ReduceOp op, bool async);
  WorkPtr run(prim::CollectiveKind kind, const std::vector<Tensor>& in,
              const std::vector<Tensor>& out, int root, ReduceOp op, bool async,
              bool beside = false);
  void check_rank(const char* op, const char* argument, int rank) const;
  Device home_of(const char* op, const Tensor& t) const;
  StreamCalls& stream_calls(Device device, bool beside = false);
  std::vector<std::shared_ptr<StreamCalls>> connected();
  void check_count(const char* op, const char* argument, size_t count) const;
  void check_list(const char* op, const char* argument, std::span<const Tensor> list,
                  const Tensor& other) const;
  std::vector<Tensor> rows(const char* op, const Tensor& whole, std::vector<int64_t> each) const;
  std::vector<Tensor> equal_parts(const char* op, const Tensor& whole) const;
  Device check_message(const Message& m, bool in_batch = false) const;
  std::shared_ptr<Call> call_of(const Message& m, Device home, const void* queue) const;
  WorkPtr message(const Message& m, bool async, int* source);
  friend class GroupEffect;
  void put_off(const Call& call, bool beside);
  WorkPtr start(const std::vector<std::shared_ptr<Call>>& calls, std::span<const Tensor> out,
                bool async, bool beside);
  WorkPtr start_on_host(const std::shared_ptr<Call>& call, std::span<const Tensor> out, bool async);

  std::string name_, backend_;
  std::string cpu_backend_;  // "": none
  bool has_nccl_ = false;
  StorePtr store_;
  int rank_;
  std::vector<int> ranks_;
  Milliseconds timeout_;
  std::shared_ptr<GroupWatch> watch_;
  std::unique_ptr<prim::Communicator> communicator_;
  int64_t barriers_ = 0, number_ = 0;
  struct Threads;
  std::unique_ptr<Threads> threads_;
  std::mutex connect_mutex_;               // of who connects a GPU, which may take a while
  std::exception_ptr connect_error_;       // the store has keys of the attempt: there is no other
  mutable std::mutex stream_calls_mutex_;  // of the pointers
  std::array<std::shared_ptr<StreamCalls>, 2> stream_calls_;  // the second for calls beside others
  std::shared_ptr<GroupFailure> failure_;                     // of any of them
  class Effects;
  const std::shared_ptr<Effects> effects_;
};
using ProcessGroupPtr = std::shared_ptr<ProcessGroup>;

}  // namespace arete::distributed
