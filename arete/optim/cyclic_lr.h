// Schedules that Python has beside those of lr_scheduler.h: cycles, products, chains, and the one
// of averaged weights.
#pragma once

#include <optional>

#include "arete/optim/lr_scheduler.h"

namespace arete::optim {

/// Each epoch multiplies the rate by f(epoch), from epoch 1 on.
class MultiplicativeLR : public LRScheduler {
 public:
  MultiplicativeLR(Optimizer& optimizer, std::function<double(int64_t epoch)> f);

 protected:
  double closed(size_t group, int64_t epoch) const override;
  double next(size_t group, double current) const override;

 private:
  std::function<double(int64_t)> f_;
};

struct CyclicLROptions {
  std::vector<double> base_lr = {}, max_lr = {};  ///< one number, or one for each group
  int64_t step_size_up = 2000;
  std::optional<int64_t> step_size_down = {};  ///< default: step_size_up
  std::string_view mode = "triangular";        ///< "triangular2": half the height each cycle
  double gamma = 1;  ///< of mode "exp_range": the height is scaled by gamma^steps
  /// Replaces the mode: of the cycle, from 1, or of the steps.
  std::function<double(double)> scale_fn = nullptr;
  std::string_view scale_mode = "cycle";  ///< or "iterations"
  bool cycle_momentum = true;             ///< momentum (or beta1) falls while the rate rises
  double base_momentum = 0.8, max_momentum = 0.9;
};
/// Rates that go up from base_lr to max_lr and down again, over and over. step() after every
/// update.
class CyclicLR : public LRScheduler {
 public:
  CyclicLR(Optimizer& optimizer, const CyclicLROptions& options);

 protected:
  double closed(size_t group, int64_t epoch) const override;
  void update_others() override;

 private:
  double height(int64_t step) const;
  std::vector<double> max_lr_;
  double total_, ratio_, base_momentum_, max_momentum_;
  std::function<double(double)> scale_;
  bool by_cycle_, cycle_momentum_;
  std::string momentum_name_;
};

/// Steps several schedulers of one optimizer at once, each upon the rates that the one before it
/// left. It cannot be part of a SequentialLR (NotImplementedError).
class ChainedScheduler : public LRScheduler {
 public:
  /// ValueError for none, a null pointer, or a ReduceLROnPlateau, which needs a metric.
  ChainedScheduler(Optimizer& optimizer, std::vector<std::shared_ptr<LRScheduler>> schedulers);
  void step() override;

 protected:
  double closed(size_t group, int64_t epoch) const override;
  void restart(int64_t epoch) override;
  void save(std::map<std::string, double>& state) const override;
  void load(const std::map<std::string, double>& state) override;

 private:
  void take_rates();
  std::vector<std::shared_ptr<LRScheduler>> schedulers_;
};

/// Goes from the rate it meets to swa_lr (one number, or one for each group) within anneal_epochs
/// epochs, along a cosine or a line, and stays there.
class SWALR : public LRScheduler {
 public:
  SWALR(Optimizer& optimizer, std::vector<double> swa_lr, int64_t anneal_epochs = 10,
        std::string_view anneal_strategy = "cos");

 protected:
  double closed(size_t group, int64_t epoch) const override;
  double next(size_t group, double current) const override;

 private:
  double share(int64_t epoch) const;
  std::vector<double> goal_;
  int64_t epochs_;
  bool cosine_;
};

}  // namespace arete::optim
