// torch.distributed's functions: the default group of this process, and calls on it or on others.
// Ranks of these functions are those in the default group.
#pragma once

#include "arete/distributed/process_group.h"

namespace arete::distributed {

struct InitOptions {
  std::string backend;      ///< empty: gloo, and nccl for tensors of GPUs where there is NCCL
  std::string init_method;  ///< empty: env://
  int rank = -1, world_size = -1;
  StorePtr store = nullptr;  ///< instead of init_method
  Milliseconds timeout = std::chrono::minutes(30);
  /// A GPU that is connected at once, which otherwise the first call does.
  std::optional<Device> device = {};
};
/// Makes the default group; all processes that belong to it must call this.
ProcessGroupPtr init_process_group(const InitOptions& options = {});
/// Of all groups, or of one, after what is under way, which ends by its timeout. `why` is told to
/// the others as by stop_monitor(): before, if the program has failed, which hurries; else at the
/// end.
void destroy_process_group(const ProcessGroupPtr& group = nullptr, const std::string& why = "",
                           bool failed = false);
/// A group of some ranks (all if there are none). All processes of the default group must call
/// this, in the same order, or with `among_members` those of the group alone, each as often as the
/// others; null for those that are not in it. The order of `ranks` is that of its ranks.
ProcessGroupPtr new_group(std::vector<int> ranks = {}, std::optional<Milliseconds> timeout = {},
                          const std::string& backend = "", std::optional<Device> device = {},
                          bool among_members = false);
bool is_initialized() noexcept;
/// How many groups of this process there are.
int group_count() noexcept;
bool is_gloo_available();
/// Whether NCCL is installed, for GPUs that are there; this starts CUDA.
bool is_nccl_available();
/// 22809 is 2.28.9; DistributedError if there is none.
int nccl_version();
/// The default group; ValueError if there is none.
ProcessGroupPtr world();
/// Of this process; -1 if it is not in the group.
int get_rank(const ProcessGroupPtr& group = nullptr);
int get_world_size(const ProcessGroupPtr& group = nullptr);
/// The rank in `group` of one of the default group; ValueError if it is not in it.
int get_group_rank(const ProcessGroup& group, int global_rank);

WorkPtr all_reduce(const Tensor& tensor, ReduceOp op = {}, const ProcessGroupPtr& group = nullptr,
                   bool async = false);
WorkPtr broadcast(const Tensor& tensor, int src, const ProcessGroupPtr& group = nullptr,
                  bool async = false);
WorkPtr reduce(const Tensor& tensor, int dst, ReduceOp op = {},
               const ProcessGroupPtr& group = nullptr, bool async = false);
WorkPtr all_gather(const std::vector<Tensor>& tensors, const Tensor& tensor,
                   const ProcessGroupPtr& group = nullptr, bool async = false);
WorkPtr all_gather_into_tensor(const Tensor& output, const Tensor& input,
                               const ProcessGroupPtr& group = nullptr, bool async = false);
WorkPtr reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs, ReduceOp op = {},
                       const ProcessGroupPtr& group = nullptr, bool async = false);
WorkPtr reduce_scatter_tensor(const Tensor& output, const Tensor& input, ReduceOp op = {},
                              const ProcessGroupPtr& group = nullptr, bool async = false);
WorkPtr all_to_all(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                   const ProcessGroupPtr& group = nullptr, bool async = false);
WorkPtr all_to_all_single(const Tensor& output, const Tensor& input,
                          const std::vector<int64_t>& output_splits = {},
                          const std::vector<int64_t>& input_splits = {},
                          const ProcessGroupPtr& group = nullptr, bool async = false);
WorkPtr gather(const Tensor& tensor, const std::vector<Tensor>& tensors, int dst = 0,
               const ProcessGroupPtr& group = nullptr, bool async = false);
WorkPtr scatter(const Tensor& tensor, const std::vector<Tensor>& tensors, int src = 0,
                const ProcessGroupPtr& group = nullptr, bool async = false);
void send(const Tensor& tensor, int dst, const ProcessGroupPtr& group = nullptr, uint32_t tag = 0);
/// Gives the rank of the sender; `src` -1: whoever sends first.
int recv(const Tensor& tensor, int src = -1, const ProcessGroupPtr& group = nullptr,
         uint32_t tag = 0);
WorkPtr isend(const Tensor& tensor, int dst, const ProcessGroupPtr& group = nullptr,
              uint32_t tag = 0);
WorkPtr irecv(const Tensor& tensor, int src = -1, const ProcessGroupPtr& group = nullptr,
              uint32_t tag = 0);
WorkPtr barrier(const ProcessGroupPtr& group = nullptr, bool async = false);
void monitored_barrier(const ProcessGroupPtr& group = nullptr,
                       std::optional<Milliseconds> timeout = {}, bool wait_all_ranks = false);

}  // namespace arete::distributed
