#include "arete/optim/lr_scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace arete::optim {

namespace {
double number_at(const std::map<std::string, double>& state, const std::string& key) {
  const auto found = state.find(key);
  ARETE_CHECK(found != state.end(),
              ValueError("load_state_dict", "the state of a scheduler has no number of this name")
                  .argument(key));
  return found->second;
}
double power(double base, int64_t exponent) { return std::pow(base, double(exponent)); }
void check_positive(const char* scheduler, const char* name, int64_t value) {
  ARETE_CHECK(value > 0, ValueError(scheduler, std::string("Expected positive integer ") + name)
                             .argument(name)
                             .got(std::to_string(value)));
}
}  // namespace

LRScheduler::LRScheduler(Optimizer& optimizer) : optimizer_(&optimizer) {
  for (ParamGroup& g : optimizer.param_groups()) {
    if (!g.has("initial_lr")) g.set("initial_lr", g.lr(), true);
    base_lr_.push_back(g.get("initial_lr"));
    last_lr_.push_back(g.lr());
  }
}
LRScheduler::~LRScheduler() = default;

double LRScheduler::next(size_t group, double) const { return closed(group, last_epoch_); }

double LRScheduler::current(size_t group) const { return optimizer_->param_groups()[group].lr(); }

void LRScheduler::set_rate(size_t group, double rate) {
  optimizer_->param_groups()[group].set_lr(rate);
  last_lr_[group] = rate;
}

void LRScheduler::step() {
  ++last_epoch_;
  for (size_t g = 0; g < base_lr_.size(); ++g) set_rate(g, next(g, current(g)));
  update_others();
}

void LRScheduler::start() {
  last_epoch_ = -1;
  LRScheduler::step();
}

void LRScheduler::restart(int64_t epoch) {
  last_epoch_ = epoch;
  for (size_t g = 0; g < base_lr_.size(); ++g) set_rate(g, closed(g, epoch));
  update_others();
}

std::map<std::string, double> LRScheduler::state_dict() const {
  std::map<std::string, double> state{{"last_epoch", double(last_epoch_)}};
  for (size_t g = 0; g < base_lr_.size(); ++g) {
    state["base_lr." + std::to_string(g)] = base_lr_[g];
    state["last_lr." + std::to_string(g)] = last_lr_[g];
  }
  save(state);
  return state;
}

void LRScheduler::load_state_dict(const std::map<std::string, double>& state) {
  const int64_t epoch = int64_t(number_at(state, "last_epoch"));
  std::vector<double> base, last;
  for (size_t g = 0; g < base_lr_.size(); ++g) {
    base.push_back(number_at(state, "base_lr." + std::to_string(g)));
    last.push_back(number_at(state, "last_lr." + std::to_string(g)));
  }
  load(state);
  last_epoch_ = epoch;
  base_lr_ = std::move(base);
  last_lr_ = std::move(last);
}

// ---- simple factors

LambdaLR::LambdaLR(Optimizer& optimizer, std::function<double(int64_t)> f)
    : LRScheduler(optimizer), f_(std::move(f)) {
  start();
}
double LambdaLR::closed(size_t g, int64_t epoch) const { return base_lr_[g] * f_(epoch); }

StepLR::StepLR(Optimizer& optimizer, int64_t step_size, double gamma)
    : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {
  check_positive("StepLR", "step_size", step_size);
  start();
}
double StepLR::closed(size_t g, int64_t epoch) const {
  return base_lr_[g] * power(gamma_, epoch / step_size_);
}
double StepLR::next(size_t, double lr) const {
  return last_epoch_ == 0 || last_epoch_ % step_size_ != 0 ? lr : lr * gamma_;
}

MultiStepLR::MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma)
    : LRScheduler(optimizer), milestones_(std::move(milestones)), gamma_(gamma) {
  std::sort(milestones_.begin(), milestones_.end());
  start();
}
double MultiStepLR::closed(size_t g, int64_t epoch) const {
  const auto passed = std::upper_bound(milestones_.begin(), milestones_.end(), epoch);
  return base_lr_[g] * power(gamma_, passed - milestones_.begin());
}
double MultiStepLR::next(size_t, double lr) const {
  return lr * power(gamma_, std::count(milestones_.begin(), milestones_.end(), last_epoch_));
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, double gamma)
    : LRScheduler(optimizer), gamma_(gamma) {
  start();
}
double ExponentialLR::closed(size_t g, int64_t epoch) const {
  return base_lr_[g] * power(gamma_, epoch);
}
double ExponentialLR::next(size_t, double lr) const { return last_epoch_ == 0 ? lr : lr * gamma_; }

ConstantLR::ConstantLR(Optimizer& optimizer, const ConstantLROptions& options)
    : LRScheduler(optimizer), o_(options) {
  ARETE_CHECK(o_.factor > 0 && o_.factor <= 1,
              ValueError("ConstantLR", "Constant multiplicative factor expected to be in (0, 1]")
                  .got(std::to_string(o_.factor)));
  start();
}
double ConstantLR::closed(size_t g, int64_t epoch) const {
  return base_lr_[g] * (epoch >= o_.total_iters ? 1 : o_.factor);
}
double ConstantLR::next(size_t, double lr) const {
  if (last_epoch_ == 0) return o_.total_iters > 0 ? lr * o_.factor : lr;
  return last_epoch_ == o_.total_iters ? lr / o_.factor : lr;
}

LinearLR::LinearLR(Optimizer& optimizer, const LinearLROptions& options)
    : LRScheduler(optimizer), o_(options) {
  ARETE_CHECK(o_.start_factor > 0 && o_.start_factor <= 1,
              ValueError("LinearLR", "Starting multiplicative factor expected to be in (0, 1]")
                  .got(std::to_string(o_.start_factor)));
  ARETE_CHECK(o_.end_factor >= 0 && o_.end_factor <= 1,
              ValueError("LinearLR", "Ending multiplicative factor expected to be in [0, 1]")
                  .got(std::to_string(o_.end_factor)));
  check_positive("LinearLR", "total_iters", o_.total_iters);
  start();
}
double LinearLR::closed(size_t g, int64_t epoch) const {
  const double done = double(std::min(epoch, o_.total_iters)) / double(o_.total_iters);
  return base_lr_[g] * (o_.start_factor + (o_.end_factor - o_.start_factor) * done);
}
double LinearLR::next(size_t, double lr) const {
  if (last_epoch_ == 0) return lr * o_.start_factor;
  if (last_epoch_ > o_.total_iters) return lr;
  const double rise = o_.end_factor - o_.start_factor;
  return lr *
         (1 + rise / (double(o_.total_iters) * o_.start_factor + double(last_epoch_ - 1) * rise));
}

PolynomialLR::PolynomialLR(Optimizer& optimizer, const PolynomialLROptions& options)
    : LRScheduler(optimizer), o_(options) {
  check_positive("PolynomialLR", "total_iters", o_.total_iters);
  start();
}
double PolynomialLR::closed(size_t g, int64_t epoch) const {
  const double left = 1 - double(std::min(epoch, o_.total_iters)) / double(o_.total_iters);
  return base_lr_[g] * std::pow(left, o_.power);
}
double PolynomialLR::next(size_t, double lr) const {
  if (last_epoch_ == 0 || last_epoch_ > o_.total_iters) return lr;
  const double total = double(o_.total_iters), e = double(last_epoch_);
  return lr * std::pow((1 - e / total) / (1 - (e - 1) / total), o_.power);
}

// ---- cosines

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, double eta_min)
    : LRScheduler(optimizer), t_max_(T_max), eta_min_(eta_min) {
  check_positive("CosineAnnealingLR", "T_max", T_max);
  start();
}
double CosineAnnealingLR::closed(size_t g, int64_t epoch) const {
  const double angle = std::numbers::pi * double(epoch) / double(t_max_);
  return eta_min_ + (base_lr_[g] - eta_min_) * (1 + std::cos(angle)) / 2;
}
double CosineAnnealingLR::next(size_t g, double lr) const {
  if (last_epoch_ == 0) return lr;
  const double unit = std::numbers::pi / double(t_max_);
  if ((last_epoch_ - 1 - t_max_) % (2 * t_max_) == 0)
    return lr + (base_lr_[g] - eta_min_) * (1 - std::cos(unit)) / 2;
  return (1 + std::cos(unit * double(last_epoch_))) /
             (1 + std::cos(unit * double(last_epoch_ - 1))) * (lr - eta_min_) +
         eta_min_;
}

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(Optimizer& optimizer, int64_t T_0,
                                                         int64_t T_mult, double eta_min)
    : LRScheduler(optimizer), t_0_(T_0), t_mult_(T_mult), eta_min_(eta_min) {
  check_positive("CosineAnnealingWarmRestarts", "T_0", T_0);
  check_positive("CosineAnnealingWarmRestarts", "T_mult", T_mult);
  start();
}
double CosineAnnealingWarmRestarts::closed(size_t g, int64_t epoch) const {
  int64_t length = t_0_, at = epoch;
  if (t_mult_ == 1) at %= length;
  while (at >= length) {
    at -= length;
    length *= t_mult_;
  }
  const double angle = std::numbers::pi * double(at) / double(length);
  return eta_min_ + (base_lr_[g] - eta_min_) * (1 + std::cos(angle)) / 2;
}

// ---- one cycle

OneCycleLR::OneCycleLR(Optimizer& optimizer, const OneCycleLROptions& o)
    : LRScheduler(optimizer),
      max_lr_(o.max_lr),
      total_(o.total_steps ? o.total_steps : o.epochs * o.steps_per_epoch),
      pct_start_(o.pct_start),
      base_momentum_(o.base_momentum),
      max_momentum_(o.max_momentum),
      div_(o.div_factor),
      final_div_(o.final_div_factor),
      cosine_(o.anneal_strategy == "cos"),
      cycle_momentum_(o.cycle_momentum),
      three_phase_(o.three_phase) {
  ARETE_CHECK(total_ > 0, ValueError("OneCycleLR",
                                     "You must define either total_steps OR (epochs "
                                     "AND steps_per_epoch)"));
  ARETE_CHECK(pct_start_ >= 0 && pct_start_ <= 1,
              ValueError("OneCycleLR", "Expected float between 0 and 1 pct_start")
                  .got(std::to_string(pct_start_)));
  ARETE_CHECK(cosine_ || o.anneal_strategy == "linear",
              ValueError("OneCycleLR", "anneal_strategy must be one of 'cos' or 'linear'")
                  .got(o.anneal_strategy));
  if (max_lr_.size() == 1) max_lr_.resize(base_lr_.size(), max_lr_[0]);
  ARETE_CHECK(max_lr_.size() == base_lr_.size(),
              ValueError("OneCycleLR", "expected one value for max_lr, or one for each group")
                  .expected(std::to_string(base_lr_.size()))
                  .got(std::to_string(max_lr_.size())));
  if (cycle_momentum_) {
    const ParamGroup& first = optimizer.param_groups().front();
    momentum_name_ = first.has("momentum") ? "momentum" : "beta1";
    ARETE_CHECK(first.has(momentum_name_),
                ValueError("OneCycleLR",
                           "optimizer must support momentum or beta1 with "
                           "`cycle_momentum` option enabled"));
  }
  for (size_t g = 0; g < base_lr_.size(); ++g) {
    base_lr_[g] = max_lr_[g] / div_;
    optimizer.param_groups()[g].set("initial_lr", base_lr_[g], true);
  }
  start();
}

// A value that is `low` at first, `high` at the peak, `middle` after the second of three phases
// and `last` at the end.
double OneCycleLR::interpolate(double epoch, double low, double high, double last,
                               double middle) const {
  const auto between = [&](double from, double to, double begin, double end) {
    const double part = end > begin ? (epoch - begin) / (end - begin) : 1;
    if (cosine_) return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * part));
    return from + (to - from) * part;
  };
  const double total = double(total_), peak = pct_start_ * total - 1;
  if (epoch <= peak) return between(low, high, 0, peak);
  if (!three_phase_) return between(high, last, peak, total - 1);
  const double second = 2 * pct_start_ * total - 2;
  if (epoch <= second) return between(high, middle, peak, second);
  return between(middle, last, second, total - 1);
}

double OneCycleLR::closed(size_t g, int64_t epoch) const {
  const double low = base_lr_[g];
  return interpolate(double(epoch), low, max_lr_[g], low / final_div_, low);
}

void OneCycleLR::update_others() {
  if (!cycle_momentum_) return;
  const double m =
      interpolate(double(last_epoch_), max_momentum_, base_momentum_, max_momentum_, max_momentum_);
  for (ParamGroup& g : optimizer_->param_groups()) g.set(momentum_name_, m);
}

void OneCycleLR::step() {
  ARETE_CHECK(last_epoch_ + 1 < total_,
              ValueError("OneCycleLR", "Tried to step " + std::to_string(last_epoch_ + 2) +
                                           " times. The specified number of total steps is " +
                                           std::to_string(total_)));
  LRScheduler::step();
}

// ---- plateaus

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, const ReduceLROnPlateauOptions& options)
    : LRScheduler(optimizer),
      o_(options),
      minimize_(options.mode == "min"),
      relative_(options.threshold_mode == "rel"),
      best_(minimize_ ? std::numeric_limits<double>::infinity()
                      : -std::numeric_limits<double>::infinity()) {
  ARETE_CHECK(
      o_.factor < 1,
      ValueError("ReduceLROnPlateau", "Factor should be < 1.0.").got(std::to_string(o_.factor)));
  ARETE_CHECK(minimize_ || options.mode == "max",
              ValueError("ReduceLROnPlateau", "mode " + std::string(options.mode) + " is unknown!")
                  .expected("min or max"));
  ARETE_CHECK(relative_ || options.threshold_mode == "abs",
              ValueError("ReduceLROnPlateau",
                         "threshold mode " + std::string(options.threshold_mode) + " is unknown!")
                  .expected("rel or abs"));
  o_.mode = o_.threshold_mode = {};  // the flags say it; the texts may not live
  last_epoch_ = 0;
}

bool ReduceLROnPlateau::is_better(double metric) const {
  // The first value is always an improvement: infinity times anything stays infinity.
  const double margin = relative_ && std::isfinite(best_) ? best_ * o_.threshold : o_.threshold;
  return minimize_ ? metric < best_ - margin : metric > best_ + margin;
}

void ReduceLROnPlateau::step(double metric) {
  ++last_epoch_;
  if (is_better(metric)) {
    best_ = metric;
    bad_epochs_ = 0;
  } else {
    ++bad_epochs_;
  }
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    bad_epochs_ = 0;
  }
  const bool reduce = bad_epochs_ > o_.patience;
  for (size_t g = 0; g < base_lr_.size(); ++g) {
    const double old = current(g), reduced = std::max(old * o_.factor, o_.min_lr);
    set_rate(g, reduce && old - reduced > o_.eps ? reduced : old);
  }
  if (reduce) {
    cooldown_left_ = o_.cooldown;
    bad_epochs_ = 0;
  }
}

void ReduceLROnPlateau::step() {
  throw ValueError("ReduceLROnPlateau", "step() needs the value of the metric")
      .hint("call step(metric)");
}

double ReduceLROnPlateau::closed(size_t g, int64_t) const { return current(g); }

void ReduceLROnPlateau::save(std::map<std::string, double>& state) const {
  state["best"] = best_;
  state["num_bad_epochs"] = double(bad_epochs_);
  state["cooldown_counter"] = double(cooldown_left_);
}

void ReduceLROnPlateau::load(const std::map<std::string, double>& state) {
  best_ = number_at(state, "best");
  bad_epochs_ = int64_t(number_at(state, "num_bad_epochs"));
  cooldown_left_ = int64_t(number_at(state, "cooldown_counter"));
}

// ---- one after the other

SequentialLR::SequentialLR(Optimizer& optimizer, std::vector<int64_t> milestones,
                           std::vector<std::shared_ptr<LRScheduler>> schedulers)
    : LRScheduler(optimizer),
      milestones_(std::move(milestones)),
      schedulers_(std::move(schedulers)) {
  ARETE_CHECK(!schedulers_.empty() && milestones_.size() + 1 == schedulers_.size(),
              ValueError("SequentialLR",
                         "expects number of schedulers provided to be one more "
                         "than the number of milestone points")
                  .got(std::to_string(schedulers_.size()) + " schedulers and " +
                       std::to_string(milestones_.size()) + " milestones"));
  ARETE_CHECK(std::is_sorted(milestones_.begin(), milestones_.end()),
              ValueError("SequentialLR", "the milestones must ascend"));
  for (const auto& s : schedulers_)
    ARETE_CHECK(
        s && s->optimizer_ == &optimizer,
        ValueError("SequentialLR", "expects all schedulers to belong to the same optimizer"));
  restart(0);
}

double SequentialLR::closed(size_t group, int64_t) const { return current(group); }

// Making the schedulers has moved the rates: the one in charge sets them again.
void SequentialLR::restart(int64_t epoch) {
  last_epoch_ = epoch;
  const auto passed = std::upper_bound(milestones_.begin(), milestones_.end(), epoch);
  const size_t i = size_t(passed - milestones_.begin());
  schedulers_[i]->restart(epoch - (i ? milestones_[i - 1] : 0));
  take_rates(*schedulers_[i]);
}

void SequentialLR::step() {
  ++last_epoch_;
  const auto passed = std::upper_bound(milestones_.begin(), milestones_.end(), last_epoch_);
  const size_t i = size_t(passed - milestones_.begin());
  if (i > 0 && milestones_[i - 1] == last_epoch_)
    schedulers_[i]->restart(0);
  else
    schedulers_[i]->step();
  take_rates(*schedulers_[i]);
}

void SequentialLR::save(std::map<std::string, double>& state) const {
  for (size_t i = 0; i < schedulers_.size(); ++i)
    for (const auto& [key, value] : schedulers_[i]->state_dict())
      state["schedulers." + std::to_string(i) + "." + key] = value;
}

void SequentialLR::load(const std::map<std::string, double>& state) {
  for (size_t i = 0; i < schedulers_.size(); ++i) {
    const std::string prefix = "schedulers." + std::to_string(i) + ".";
    std::map<std::string, double> part;
    for (auto it = state.lower_bound(prefix); it != state.end() && it->first.starts_with(prefix);
         ++it)
      part[it->first.substr(prefix.size())] = it->second;
    schedulers_[i]->load_state_dict(part);
  }
}

}  // namespace arete::optim
