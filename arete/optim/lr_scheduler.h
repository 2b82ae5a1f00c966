// Learning rates that change during training. A scheduler sets the rates of its optimizer when it
// is made and at each step(), which is called once per epoch (or per update, as its numbers are
// meant). Schedulers refer to their optimizer, which must outlive them; they are values otherwise.
// Several may act on one optimizer, each continuing from the rate the one before it left.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "arete/optim/optimizer.h"

namespace arete::optim {

/// Base class. The rate that a group had before its first scheduler is its base rate, kept in the
/// group's setting "initial_lr".
class LRScheduler {
 public:
  virtual ~LRScheduler();
  /// Goes on by one epoch.
  virtual void step();
  /// The rates set last, one per group.
  const std::vector<double>& get_last_lr() const { return last_lr_; }
  /// Steps so far.
  int64_t last_epoch() const { return last_epoch_; }
  /// Numbers by name; the optimizer's own state, which includes the rates, is saved beside it.
  std::map<std::string, double> state_dict() const;
  /// ValueError naming what is missing.
  void load_state_dict(const std::map<std::string, double>& state);

 protected:
  explicit LRScheduler(Optimizer& optimizer);
  LRScheduler(const LRScheduler&) = default;
  LRScheduler& operator=(const LRScheduler&) = default;
  friend class SequentialLR;

  /// The rate of a group at an epoch, from its base rate alone.
  virtual double closed(size_t group, int64_t epoch) const = 0;
  /// The rate at last_epoch() from that of the epoch before.
  virtual double next(size_t group, double current) const;
  /// Sets what else changes with the rate.
  virtual void update_others() {}
  virtual void save(std::map<std::string, double>&) const {}
  virtual void load(const std::map<std::string, double>&) {}
  /// Called at the end of each constructor: epoch 0.
  void start();
  /// Goes to an epoch, from the base rates.
  virtual void restart(int64_t epoch);
  void set_rate(size_t group, double rate);
  double current(size_t group) const;

  Optimizer* optimizer_;
  std::vector<double> base_lr_, last_lr_;
  int64_t last_epoch_ = -1;
};

/// base * f(epoch).
class LambdaLR : public LRScheduler {
 public:
  LambdaLR(Optimizer& optimizer, std::function<double(int64_t epoch)> f);

 protected:
  double closed(size_t group, int64_t epoch) const override;

 private:
  std::function<double(int64_t)> f_;
};

/// Times gamma every step_size epochs.
class StepLR : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = 0.1);

 protected:
  double closed(size_t group, int64_t epoch) const override;
  double next(size_t group, double current) const override;

 private:
  int64_t step_size_;
  double gamma_;
};

/// Times gamma at each milestone.
class MultiStepLR : public LRScheduler {
 public:
  MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma = 0.1);

 protected:
  double closed(size_t group, int64_t epoch) const override;
  double next(size_t group, double current) const override;

 private:
  std::vector<int64_t> milestones_;  // sorted
  double gamma_;
};

/// Times gamma every epoch.
class ExponentialLR : public LRScheduler {
 public:
  ExponentialLR(Optimizer& optimizer, double gamma);

 protected:
  double closed(size_t group, int64_t epoch) const override;
  double next(size_t group, double current) const override;

 private:
  double gamma_;
};

struct ConstantLROptions {
  double factor = 1.0 / 3;
  int64_t total_iters = 5;
};
/// base * factor for total_iters epochs, then base.
class ConstantLR : public LRScheduler {
 public:
  explicit ConstantLR(Optimizer& optimizer, const ConstantLROptions& options = {});

 protected:
  double closed(size_t group, int64_t epoch) const override;
  double next(size_t group, double current) const override;

 private:
  ConstantLROptions o_;
};

struct LinearLROptions {
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  int64_t total_iters = 5;
};
/// The factor moves linearly from start to end over total_iters epochs: warm-up.
class LinearLR : public LRScheduler {
 public:
  explicit LinearLR(Optimizer& optimizer, const LinearLROptions& options = {});

 protected:
  double closed(size_t group, int64_t epoch) const override;
  double next(size_t group, double current) const override;

 private:
  LinearLROptions o_;
};

struct PolynomialLROptions {
  int64_t total_iters = 5;
  double power = 1;
};
/// base * (1 - epoch / total_iters)^power, 0 from total_iters on.
class PolynomialLR : public LRScheduler {
 public:
  explicit PolynomialLR(Optimizer& optimizer, const PolynomialLROptions& options = {});

 protected:
  double closed(size_t group, int64_t epoch) const override;
  double next(size_t group, double current) const override;

 private:
  PolynomialLROptions o_;
};

/// From base to eta_min along half a cosine in T_max epochs (and back, if stepped on).
class CosineAnnealingLR : public LRScheduler {
 public:
  CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, double eta_min = 0);

 protected:
  double closed(size_t group, int64_t epoch) const override;
  double next(size_t group, double current) const override;

 private:
  int64_t t_max_;
  double eta_min_;
};

/// Cosines from base to eta_min that start again after T_0 epochs, each T_mult times as long as
/// the one before.
class CosineAnnealingWarmRestarts : public LRScheduler {
 public:
  CosineAnnealingWarmRestarts(Optimizer& optimizer, int64_t T_0, int64_t T_mult = 1,
                              double eta_min = 0);

 protected:
  double closed(size_t group, int64_t epoch) const override;

 private:
  int64_t t_0_, t_mult_;
  double eta_min_;
};

struct OneCycleLROptions {
  std::vector<double> max_lr = {};  ///< one number, or one for each group
  int64_t total_steps = 0;          ///< or epochs * steps_per_epoch
  int64_t epochs = 0, steps_per_epoch = 0;
  double pct_start = 0.3;                    ///< part of the cycle in which the rate rises
  std::string_view anneal_strategy = "cos";  ///< or "linear"
  bool cycle_momentum = true;                ///< momentum (or beta1) falls while the rate rises
  double base_momentum = 0.85, max_momentum = 0.95;
  double div_factor = 25;         ///< the first rate is max_lr / div_factor
  double final_div_factor = 1e4;  ///< the last one is the first / final_div_factor
  bool three_phase = false;       ///< fall to the first rate, then to the last
};
/// The one-cycle policy: rise to max_lr, fall far below the start. step() after every update; more
/// than total_steps of them are a ValueError.
class OneCycleLR : public LRScheduler {
 public:
  OneCycleLR(Optimizer& optimizer, const OneCycleLROptions& options);
  void step() override;

 protected:
  double closed(size_t group, int64_t epoch) const override;
  void update_others() override;

 private:
  double interpolate(double epoch, double low, double high, double last, double middle) const;
  std::vector<double> max_lr_;
  int64_t total_;
  double pct_start_, base_momentum_, max_momentum_, div_, final_div_;
  bool cosine_, cycle_momentum_, three_phase_;
  std::string momentum_name_;
};

struct ReduceLROnPlateauOptions {
  std::string_view mode = "min";  ///< the metric should get smaller ("max": larger)
  double factor = 0.1;
  int64_t patience = 10;  ///< epochs without improvement that are tolerated
  double threshold = 1e-4;
  std::string_view threshold_mode = "rel";  ///< or "abs"
  int64_t cooldown = 0;                     ///< epochs after a reduction in which none are counted
  double min_lr = 0;
  double eps = 1e-8;  ///< smaller reductions are not made
};
/// Reduces the rate when a metric stops improving.
class ReduceLROnPlateau : public LRScheduler {
 public:
  explicit ReduceLROnPlateau(Optimizer& optimizer, const ReduceLROnPlateauOptions& options = {});
  /// One epoch that ended with this value of the metric; NaN is no improvement.
  void step(double metric);

 protected:
  void step() override;
  double closed(size_t group, int64_t epoch) const override;
  void save(std::map<std::string, double>& state) const override;
  void load(const std::map<std::string, double>& state) override;

 private:
  bool is_better(double metric) const;
  ReduceLROnPlateauOptions o_;
  bool minimize_, relative_;
  double best_;
  int64_t bad_epochs_ = 0, cooldown_left_ = 0;
};

/// Schedulers one after the other: scheduler i + 1 takes over at epoch milestones[i], from its own
/// epoch 0.
///
///     optim::SequentialLR schedule(opt, {5}, optim::LinearLR(opt), optim::CosineAnnealingLR(opt,
///     95));
class SequentialLR : public LRScheduler {
 public:
  SequentialLR(Optimizer& optimizer, std::vector<int64_t> milestones,
               std::vector<std::shared_ptr<LRScheduler>> schedulers);
  template <class... Schedulers>
  requires(sizeof...(Schedulers) > 0 && (std::is_base_of_v<LRScheduler, Schedulers> && ...))
      SequentialLR(Optimizer& optimizer, std::vector<int64_t> milestones,
                   const Schedulers&... schedulers)
      : SequentialLR(optimizer, std::move(milestones),
                     std::vector<std::shared_ptr<LRScheduler>>{
                         std::make_shared<Schedulers>(schedulers)...}) {}
  void step() override;

 protected:
  double closed(size_t group, int64_t epoch) const override;
  void restart(int64_t epoch) override;
  void save(std::map<std::string, double>& state) const override;
  void load(const std::map<std::string, double>& state) override;

 private:
  void take_rates(const LRScheduler& from) { last_lr_ = from.last_lr_; }
  std::vector<int64_t> milestones_;
  std::vector<std::shared_ptr<LRScheduler>> schedulers_;
};

}  // namespace arete::optim
