// A training loop: epochs, validation, checkpoints, early stopping, mixed precision, several
// processes. Python's arete.training.Trainer is its twin.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arete/amp/grad_scaler.h"
#include "arete/data/loader.h"
#include "arete/io/tensor_io.h"
#include "arete/metrics/regression.h"
#include "arete/nn/module.h"
#include "arete/optim/lr_scheduler.h"
#include "arete/optim/optimizer.h"
#include "arete/training/callback.h"

namespace arete::distributed {
class DataParallel;
}

namespace arete::training {

/// Figures of an epoch by name: "epoch", "step", "lr", "seconds", "train_loss", "val_loss",
/// "train_" and "val_" with the names of metrics (and ".0", ".1", ... of those with several
/// values).
using Figures = std::map<std::string, double>;

struct TrainerOptions {
  optim::LRScheduler* scheduler = nullptr;  ///< outlives the trainer
  bool scheduler_steps = false;             ///< it goes on after each update, not after each epoch
  std::vector<std::pair<std::string, std::shared_ptr<metrics::Metric>>> metrics = {};
  std::optional<Device> device = {};  ///< default: where the network is
  int64_t accumulate = 1;             ///< batches whose gradients are added before an update
  std::optional<double> clip_norm = {};
  /// kBFloat16, or kFloat16, which scales losses: passes under autocast.
  std::optional<DType> precision = {};
  std::vector<std::shared_ptr<Callback>> callbacks = {};
  /// Where last.safetensors and best.safetensors are written after each epoch; empty: nowhere.
  std::string folder = {};
  /// last.safetensors is also written after so many updates within an epoch; 0: only at its end.
  int64_t checkpoint_every = 0;
  /// Texts that are kept in checkpoints: "note." and their names in the metadata.
  std::map<std::string, std::string> notes = {};
  std::string monitor = {};  ///< the figure that says what is best; empty: val_loss or train_loss
  Mode mode = Mode::min;
  bool progress = true;  ///< a line for each epoch on stderr
};

/// Trains a network on batches of an input and a target. Of several processes (started by `arete
/// run`; the default group is made unless it is there) each trains on its part: the loader has a
/// data::DistributedSampler. Gradients and figures are those of all processes, and rank 0 writes.
class Trainer {
 public:
  using Loss = std::function<Tensor(const Tensor& output, const Tensor& target)>;
  /// Moves the network to the device. Network and optimizer outlive the trainer. ValueError for
  /// options that mean nothing.
  Trainer(nn::Module& network, optim::Optimizer& optimizer, Loss loss, TrainerOptions options = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Trains until there are `epochs` epochs. `resume`: goes on from last.safetensors where it is
  /// there, between two epochs or within one, with the same bits as if the run had not ended.
  const std::vector<Figures>& fit(data::DataLoader& train, data::DataLoader* validation = nullptr,
                                  int64_t epochs = 1, bool resume = false);
  /// The mean loss and the metrics, under "val_" and their names.
  Figures validate(data::DataLoader& loader);
  /// Outputs for all inputs, one after another, on the host. ValueError without any batch.
  Tensor predict(data::DataLoader& loader);

  nn::Module& network() { return network_; }
  optim::Optimizer& optimizer() { return optimizer_; }
  const std::vector<Figures>& history() const { return history_; }
  /// Of the last epoch; empty: val_loss, or train_loss where nothing was validated. ValueError for
  /// one that is not there.
  double figure(const std::string& name) const;
  int64_t epoch() const { return epoch_; }
  int64_t step() const { return step_; }
  double best() const { return best_; }
  int rank() const { return rank_; }
  bool is_distributed() const { return parallel_ != nullptr; }
  /// Examples of the epoch under way so far, and their mean loss, which waits for the device.
  int64_t seen() const { return seen_; }
  double running_loss() const { return losses_.compute().item<double>(); }
  /// Of the last update, on the device.
  const Tensor& loss() const { return loss_; }
  /// Ends fit() after the update under way, with the figures of its epoch so far.
  void stop() { stop_ = true; }
  /// Ends fit() after the update under way, of several processes, whichever is told, after the next
  /// one. Within an epoch it has no figures then, but with a folder the state is saved, so that a
  /// resumed run goes on there.
  void interrupt() { interrupted_ = true; }
  /// Whether the last fit() was ended so.
  bool is_interrupted() const { return interrupted_; }

  /// The state of a run in one file, which appears complete or not at all; of several processes
  /// all call it, and rank 0 writes. `loader`: the position of the training data, too. Within an
  /// epoch (from a callback) ValueError without the loader.
  void save_checkpoint(const std::string& path, const data::DataLoader* loader = nullptr);
  /// IoError where it is no such file; ValueError where this trainer was made with others of what
  /// has a state, or within an epoch for another number of processes.
  void load_checkpoint(const std::string& path, data::DataLoader* loader = nullptr);

 private:
  Tensor forward(const Tensor& input);
  void one_epoch(data::DataLoader& train, data::DataLoader* validation, int64_t epochs);
  void update(std::vector<data::Batch>& group);
  Tensor total(metrics::Metric& metric);
  void add_figures(Figures& figures, const std::string& prefix);
  void each(void (Callback::*f)(Trainer&));
  void keep(const data::DataLoader& train);
  void save_last(const data::DataLoader& train);
  io::NamedTensors states_within() const;
  struct Own {
    std::map<std::string, double> numbers;
    io::NamedTensors tensors;
  };
  std::vector<Own> own_of_all(const data::DataLoader* loader);
  bool ends(bool now);

  nn::Module& network_;
  optim::Optimizer& optimizer_;
  Loss loss_function_;
  TrainerOptions options_;
  Device device_;
  amp::GradScaler scaler_;
  std::unique_ptr<distributed::DataParallel> parallel_;
  std::vector<Figures> history_;
  Tensor loss_, told_;          // told_: what the processes answered in ends()
  metrics::MeanMetric losses_;  // of the epoch under way
  int64_t epoch_ = 0, step_ = 0, seen_ = 0;
  double epoch_start_ = 0, spent_ = 0;  // seconds; spent_: before the run was resumed
  int rank_ = 0, world_ = 1;
  double best_;
  bool within_ = false;   // an epoch has begun
  bool goes_on_ = false;  // fit() goes on within it, as a checkpoint has it
  bool stop_ = false, interrupted_ = false;
};

}  // namespace arete::training
