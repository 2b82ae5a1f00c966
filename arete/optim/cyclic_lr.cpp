#include "arete/optim/cyclic_lr.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace arete::optim {

namespace {
std::vector<double> for_groups(const char* scheduler, const char* name, std::vector<double> values,
                               size_t groups) {
  if (values.size() == 1) values.resize(groups, values[0]);
  ARETE_CHECK(values.size() == groups,
              ValueError(scheduler,
                         std::string("expected one value for ") + name + ", or one for each group")
                  .expected(std::to_string(groups))
                  .got(std::to_string(values.size())));
  return values;
}
}  // namespace

MultiplicativeLR::MultiplicativeLR(Optimizer& optimizer, std::function<double(int64_t)> f)
    : LRScheduler(optimizer), f_(std::move(f)) {
  start();
}
double MultiplicativeLR::next(size_t, double lr) const {
  return last_epoch_ > 0 ? lr * f_(last_epoch_) : lr;
}
double MultiplicativeLR::closed(size_t g, int64_t epoch) const {
  double lr = base_lr_[g];
  for (int64_t e = 1; e <= epoch; ++e) lr *= f_(e);
  return lr;
}

CyclicLR::CyclicLR(Optimizer& optimizer, const CyclicLROptions& o)
    : LRScheduler(optimizer),
      max_lr_(for_groups("CyclicLR", "max_lr", o.max_lr, base_lr_.size())),
      base_momentum_(o.base_momentum),
      max_momentum_(o.max_momentum),
      scale_(o.scale_fn),
      by_cycle_(o.scale_fn ? o.scale_mode == "cycle" : o.mode != "exp_range"),
      cycle_momentum_(o.cycle_momentum) {
  const int64_t down = o.step_size_down.value_or(o.step_size_up);
  ARETE_CHECK(o.step_size_up > 0 && down > 0,
              ValueError("CyclicLR", "step_size_up and step_size_down must be positive"));
  total_ = double(o.step_size_up + down);
  ratio_ = double(o.step_size_up) / total_;
  ARETE_CHECK(
      o.scale_mode == "cycle" || o.scale_mode == "iterations",
      ValueError("CyclicLR", "scale_mode must be 'cycle' or 'iterations'").got(o.scale_mode));
  if (!scale_) {
    if (o.mode == "triangular")
      scale_ = [](double) { return 1.0; };
    else if (o.mode == "triangular2")
      scale_ = [](double cycle) { return std::pow(2.0, 1 - cycle); };
    else if (o.mode == "exp_range")
      scale_ = [gamma = o.gamma](double steps) { return std::pow(gamma, steps); };
    else
      throw ValueError("CyclicLR", "mode must be 'triangular', 'triangular2' or 'exp_range'")
          .got(o.mode);
  }
  if (cycle_momentum_) {
    const ParamGroup& first = optimizer.param_groups().front();
    momentum_name_ = first.has("momentum") ? "momentum" : "beta1";
    ARETE_CHECK(first.has(momentum_name_),
                ValueError("CyclicLR",
                           "optimizer must support momentum or beta1 with "
                           "`cycle_momentum` option enabled"));
  }
  base_lr_ = for_groups("CyclicLR", "base_lr", o.base_lr, base_lr_.size());
  for (size_t g = 0; g < base_lr_.size(); ++g)
    optimizer.param_groups()[g].set("initial_lr", base_lr_[g], true);
  start();
}

double CyclicLR::height(int64_t step) const {
  const double cycle = std::floor(1 + double(step) / total_), x = 1 + double(step) / total_ - cycle;
  const double up = x <= ratio_ ? x / ratio_ : (x - 1) / (ratio_ - 1);
  return up * scale_(by_cycle_ ? cycle : double(step));
}
double CyclicLR::closed(size_t g, int64_t epoch) const {
  return base_lr_[g] + (max_lr_[g] - base_lr_[g]) * height(epoch);
}
void CyclicLR::update_others() {
  if (!cycle_momentum_) return;
  const double m = max_momentum_ - (max_momentum_ - base_momentum_) * height(last_epoch_);
  for (ParamGroup& g : optimizer_->param_groups()) g.set(momentum_name_, m);
}

ChainedScheduler::ChainedScheduler(Optimizer& optimizer,
                                   std::vector<std::shared_ptr<LRScheduler>> schedulers)
    : LRScheduler(optimizer), schedulers_(std::move(schedulers)) {
  ARETE_CHECK(!schedulers_.empty(),
              ValueError("ChainedScheduler", "expected at least one scheduler"));
  for (const auto& s : schedulers_)
    ARETE_CHECK(
        s && !dynamic_cast<ReduceLROnPlateau*>(s.get()),
        ValueError("ChainedScheduler",
                   "a ReduceLROnPlateau needs a metric at each step, which a chain has not"));
  last_epoch_ = 0;
  take_rates();
}
void ChainedScheduler::take_rates() {
  for (size_t g = 0; g < last_lr_.size(); ++g) last_lr_[g] = current(g);
}
void ChainedScheduler::step() {
  ++last_epoch_;
  for (const auto& s : schedulers_) s->step();
  take_rates();
}
double ChainedScheduler::closed(size_t, int64_t) const {
  throw NotImplementedError("ChainedScheduler", "a chain cannot be part of a SequentialLR");
}
void ChainedScheduler::restart(int64_t epoch) { closed(0, epoch); }
void ChainedScheduler::save(std::map<std::string, double>& state) const {
  for (size_t i = 0; i < schedulers_.size(); ++i)
    for (const auto& [name, value] : schedulers_[i]->state_dict())
      state["scheduler." + std::to_string(i) + "." + name] = value;
}
void ChainedScheduler::load(const std::map<std::string, double>& state) {
  for (size_t i = 0; i < schedulers_.size(); ++i) {
    const std::string prefix = "scheduler." + std::to_string(i) + ".";
    std::map<std::string, double> own;
    for (const auto& [name, value] : state)
      if (name.starts_with(prefix)) own[name.substr(prefix.size())] = value;
    schedulers_[i]->load_state_dict(own);
  }
}

SWALR::SWALR(Optimizer& optimizer, std::vector<double> swa_lr, int64_t anneal_epochs,
             std::string_view anneal_strategy)
    : LRScheduler(optimizer),
      goal_(for_groups("SWALR", "swa_lr", std::move(swa_lr), base_lr_.size())),
      epochs_(anneal_epochs),
      cosine_(anneal_strategy == "cos") {
  ARETE_CHECK(
      cosine_ || anneal_strategy == "linear",
      ValueError("SWALR", "anneal_strategy must be one of 'cos' or 'linear'").got(anneal_strategy));
  ARETE_CHECK(
      anneal_epochs >= 0,
      ValueError("SWALR", "anneal_epochs must not be negative").got(std::to_string(anneal_epochs)));
  start();
}
double SWALR::share(int64_t epoch) const {
  if (epochs_ == 0) return 1;
  const double part = std::clamp(double(epoch) / double(epochs_), 0.0, 1.0);
  return cosine_ ? (1 - std::cos(std::numbers::pi * part)) / 2 : part;
}
double SWALR::next(size_t g, double lr) const {
  // The start is found from the rate and the share of the epoch before: other schedulers may have
  // moved it.
  const double before = last_epoch_ > 0 || epochs_ == 0 ? share(last_epoch_ - 1) : 0;
  const double start = before == 1 ? goal_[g] : (lr - before * goal_[g]) / (1 - before);
  return goal_[g] * share(last_epoch_) + start * (1 - share(last_epoch_));
}
double SWALR::closed(size_t g, int64_t epoch) const {
  return goal_[g] * share(epoch) + base_lr_[g] * (1 - share(epoch));
}

}  // namespace arete::optim
