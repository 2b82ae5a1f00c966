// Data-parallel training: each process has the same network and batches of its own, and all of them
// make the same steps.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arete/distributed/comm_hooks.h"
#include "arete/distributed/reducer.h"
#include "arete/nn/module.h"

namespace arete::distributed {

/// Gives tensors the values that they have in one process, in one message for each device and 250
/// MB. No history is recorded.
void broadcast_coalesced(ProcessGroup& group, std::span<const Tensor> tensors, int src = 0);
/// ValueError in all processes if one has other parameters than rank 0: another number of them,
/// other shapes or dtypes.
void check_same_parameters(ProcessGroup& group, std::span<const Tensor> parameters);

struct DataParallelOptions {
  ProcessGroupPtr group = nullptr;  ///< null: the default group
  /// Whether buffers get the values of rank 0 before the first forward pass, and before those that
  /// follow one whose gradients are reduced.
  bool broadcast_buffers = true;
  /// Whether parameters and buffers get the values of rank 0 now.
  bool init_sync = true;
  /// Tables whose gradients are sparse are among `reducer.sparse` in any case.
  ReducerOptions reducer = {};
};

/// The part of DistributedDataParallel that does not know the network's class.
class DataParallel {
 public:
  DataParallel() = default;
  DataParallel(nn::Module& network, const DataParallelOptions& options);
  /// Before each forward pass of the network that has the parameter first(); ValueError for
  /// another.
  void prepare(const Tensor& first) const;
  const Tensor& first() const { return state_->first; }
  /// Whether gradients of the passes that are prepared from now on are reduced.
  void set_sync(bool on) const { state_->sync = on; }
  bool sync() const { return state_->sync; }
  Reducer& reducer() const { return *state_->reducer; }

 private:
  struct State {
    std::shared_ptr<Reducer> reducer;
    Tensor first;  // of the parameters whose gradients are reduced
    std::vector<Tensor> buffers;
    bool sync = true;
    bool stale = true;  // the buffers may differ: a pass whose gradients are reduced came before
  };
  std::shared_ptr<State> state_;
};

/// While it lives, gradients are only accumulated: of the micro-batches before the last one.
/// Forward passes must be within, too.
class NoSync {
 public:
  explicit NoSync(DataParallel network) : network_(std::move(network)), before_(network_.sync()) {
    network_.set_sync(false);
  }
  ~NoSync() { network_.set_sync(before_); }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  DataParallel network_;
  bool before_;
};

/// A network whose gradients are the mean over the processes of a group, each of which calls it on
/// a batch of its own: `DistributedDataParallel net(Net{});`, then as the network itself.
/// Optimizers get `net.parameters()`. Keys of its state begin with "module.". To copy one, wrap a
/// clone of its `module`: calls of a clone are a ValueError. Errors: see check_same_parameters();
/// ValueError if no parameter requires a gradient.
template <class M>
class DistributedDataParallel : public nn::Module {
 public:
  explicit DistributedDataParallel(const M& network, const DataParallelOptions& options = {})
      : module(child("module", network)), parallel_(module, options), first_(parallel_.first()) {}
  std::string name() const override { return "DistributedDataParallel"; }
  Tensor forward(const Tensor& input) override { return (*this)(input); }
  /// The network's own call, of whatever arguments.
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    parallel_.prepare(first_);
    return module(std::forward<Args>(args)...);
  }
  /// `auto guard = net.no_sync();`
  NoSync no_sync() const { return NoSync(parallel_); }
  void register_comm_hook(CommHook hook) const { parallel_.reducer().set_hook(std::move(hook)); }
  Reducer& reducer() const { return parallel_.reducer(); }

  M module;

 private:
  DataParallel parallel_;
  nn::Parameter first_;  // which nn::clone() replaces
};

}  // namespace arete::distributed
