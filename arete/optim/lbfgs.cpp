#include "arete/optim/lbfgs.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/ops/creation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/optim/check_internal.h"
#include "arete/optim/update_internal.h"

namespace arete::optim {

namespace {

// Of the line search: what counts as a decrease and as a small slope, and when to give up.
constexpr double kDecrease = 1e-4, kCurvature = 0.9, kNarrowest = 1e-9;
constexpr int kMostTries = 25;
// A pair of less curvature would spoil the positive definite guess.
constexpr double kLeastCurvature = 1e-10;

double largest(const Tensor& t) { return t.abs().max().item<double>(); }

// Where the cubic through two points with their slopes is least, within [low, high]; the middle
// if it has no minimum.
template <class Point>
double cubic_minimum(const Point& a, const Point& b, double low, double high) {
  const Point &left = a.t <= b.t ? a : b, &right = a.t <= b.t ? b : a;
  const double chord = left.slope + right.slope - 3 * (left.loss - right.loss) / (left.t - right.t);
  const double square = chord * chord - left.slope * right.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const double root = std::sqrt(square);
  const double t = right.t - (right.t - left.t) * ((right.slope + root - chord) /
                                                   (right.slope - left.slope + 2 * root));
  return std::min(std::max(t, low), high);
}

}  // namespace

Settings settings_of(const LBFGSOptions& o) {
  check_not_negative("LBFGS", {{"learning rate", o.lr},
                               {"max_iter", double(o.max_iter)},
                               {"max_eval", double(o.max_eval)},
                               {"tolerance_grad", o.tolerance_grad},
                               {"tolerance_change", o.tolerance_change}});
  ARETE_CHECK(
      o.history_size >= 1,
      ValueError("LBFGS", "history_size must be positive").got(std::to_string(o.history_size)));
  return {{"lr", o.lr},
          {"max_iter", double(o.max_iter)},
          {"max_eval", double(o.max_eval > 0 ? o.max_eval : o.max_iter * 5 / 4)},
          {"tolerance_grad", o.tolerance_grad},
          {"tolerance_change", o.tolerance_change},
          {"history_size", double(o.history_size)},
          {"strong_wolfe", double(o.strong_wolfe)}};
}

LBFGS::LBFGS(std::vector<Tensor> params, const LBFGSOptions& options) : Optimizer("LBFGS", {}) {
  add_group(std::move(params), settings_of(options));
}

void LBFGS::update(const ParamGroup&, Batch&) { ARETE_BUG("LBFGS updates by itself"); }

void LBFGS::step() {
  throw ValueError("LBFGS", "step() needs a closure that computes the loss and its gradients")
      .hint("optimizer.step(closure)");
}
void LBFGS::step_scaled(const Tensor&, const Tensor&) {
  throw ValueError("LBFGS", "a GradScaler cannot step it: it computes gradients anew as it goes")
      .hint("train in float32 or bfloat16, without a scaler");
}

Tensor LBFGS::flat_gradient() const {
  std::vector<Tensor> parts;
  for (const Tensor& p : param_groups().front().params) {
    const Tensor g = p.grad();
    parts.push_back(g.defined() ? g.reshape({-1}) : zeros_like(p).reshape({-1}));
  }
  return cat(parts);
}

void LBFGS::move(double t, const Tensor& direction) {
  int64_t at = 0;
  for (Tensor& p : param_groups().front().params) {
    p.add_(direction.narrow(0, at, p.numel()).view(p.sizes()), t);
    at += p.numel();
  }
}

// The gradient multiplied by minus the inverse Hessian as the pairs know it. Nothing here waits for
// the device but the test of the new pair.
Tensor LBFGS::direction_from(const Tensor& gradient) {
  if (iterations_ == 1) {
    pairs_.clear();
    curvature_ = ones({}, TensorOptions(gradient.dtype(), gradient.device()));
    return gradient.neg();
  }
  Pair fresh{gradient - gradient_, direction_ * t_, {}};
  const Tensor curvature = dot(fresh.change, fresh.step);
  if (curvature.item<double>() > kLeastCurvature) {
    fresh.inverse = curvature.reciprocal();
    curvature_ = curvature / dot(fresh.change, fresh.change);
    if (double(pairs_.size()) >= param_groups().front().get("history_size"))
      pairs_.erase(pairs_.begin());
    pairs_.push_back(std::move(fresh));
  }
  Tensor q = gradient.neg();
  std::vector<Tensor> weights(pairs_.size());
  for (size_t i = pairs_.size(); i-- > 0;) {
    weights[i] = dot(pairs_[i].step, q) * pairs_[i].inverse;
    q.sub_(pairs_[i].change * weights[i]);
  }
  q.mul_(curvature_);
  for (size_t i = 0; i < pairs_.size(); ++i)
    q.add_(pairs_[i].step * (weights[i] - dot(pairs_[i].change, q) * pairs_[i].inverse));
  return q;
}

// A point of less loss and of a slope that is small against that at the start. First steps grow
// until they enclose one, then the interval shrinks around it; `length` is the direction's largest
// element.
LBFGS::Point LBFGS::search(const Point& start, double t, double length,
                           const std::function<Point(double)>& at) {
  const auto is_lower = [&](const Point& p) {
    return p.loss <= start.loss + kDecrease * p.t * start.slope;
  };
  const auto is_flat = [&](const Point& p) {
    return std::fabs(p.slope) <= -kCurvature * start.slope;
  };
  Point low = start, high = at(t);
  int tries = 0;
  while (is_lower(high) && !(tries > 1 && high.loss >= low.loss)) {
    if (is_flat(high)) return high;
    if (high.slope >= 0) break;
    if (tries == kMostTries) {
      low = start;
      break;
    }
    const double next = cubic_minimum(low, high, high.t + 0.01 * (high.t - low.t), 10 * high.t);
    low = std::exchange(high, at(next));
    ++tries;
  }
  const auto order = [&] {
    if (low.loss > high.loss) std::swap(low, high);
  };
  order();
  bool was_slow = false;
  for (; tries < kMostTries && std::fabs(high.t - low.t) * length >= kNarrowest; ++tries) {
    const auto [left, right] = std::minmax(low.t, high.t);
    const double margin = 0.1 * (right - left);
    t = cubic_minimum(low, high, left, right);
    // Twice near the same end would be slow: then the next try stays off it.
    const bool is_near = std::min(right - t, t - left) < margin;
    const bool pushed = is_near && (was_slow || t >= right || t <= left);
    if (pushed) t = right - t < t - left ? right - margin : left + margin;
    was_slow = is_near && !pushed;
    Point p = at(t);
    if (!is_lower(p) || p.loss >= low.loss) {
      high = std::move(p);
      order();
      continue;
    }
    if (is_flat(p)) return p;
    if (p.slope * (high.t - low.t) >= 0) high = low;
    low = std::move(p);
  }
  return low;
}

Tensor LBFGS::step(const std::function<Tensor()>& closure) {
  const tracing::RangeScope traced(tracing::RangeKind::optimizer,
                                   std::string_view("Optimizer.step#LBFGS.step"));
  const NoGradGuard no_grad;
  const ParamGroup& group = param_groups().front();
  const double lr = group.lr(), tolerance_grad = group.get("tolerance_grad"),
               tolerance_change = group.get("tolerance_change"), max_iter = group.get("max_iter"),
               max_eval = group.get("max_eval");
  int64_t calls = 0;
  const auto evaluate = [&] {
    ++calls;
    ++evaluations_;
    const EnableGradGuard grad;
    return closure();
  };

  const Tensor first = evaluate();
  double loss = first.item<double>();
  Tensor gradient = flat_gradient();
  if (largest(gradient) <= tolerance_grad) return first;
  for (int64_t i = 1; double(i) <= max_iter; ++i) {
    ++iterations_;
    direction_ = direction_from(gradient);
    gradient_ = gradient;
    loss_ = loss;
    // Nothing is known of the scale at first.
    t_ = lr;
    if (iterations_ == 1) t_ *= std::min(1.0, 1 / gradient.abs().sum().item<double>());
    const double slope = dot(gradient, direction_).item<double>();
    if (slope > -tolerance_change) break;
    if (group.flag("strong_wolfe")) {
      std::vector<Tensor> before;
      for (const Tensor& p : group.params) before.push_back(p.detach().clone());
      const auto at = [&](double t) {
        move(t, direction_);
        const double value = evaluate().item<double>();
        Tensor g = flat_gradient();
        for (size_t k = 0; k < before.size(); ++k) Tensor(group.params[k]).copy_(before[k]);
        const double along = dot(g, direction_).item<double>();
        return Point{t, value, along, std::move(g)};
      };
      const Point found = search({0, loss, slope, gradient}, t_, largest(direction_), at);
      t_ = found.t;
      loss = found.loss;
      gradient = found.gradient;
      move(t_, direction_);
    } else {
      move(t_, direction_);
      if (double(i) == max_iter) break;  // nobody would look at the new gradient
      loss = evaluate().item<double>();
      gradient = flat_gradient();
    }
    if (double(calls) >= max_eval || largest(gradient) <= tolerance_grad ||
        largest(direction_) * std::fabs(t_) <= tolerance_change ||
        std::fabs(loss - loss_) < tolerance_change)
      break;
  }
  return first;
}

// ---- saving and loading

namespace {
constexpr const char* kPrefix = "state.0.";
}

State LBFGS::state_dict() const {
  State s = Optimizer::state_dict();
  const std::string prefix = kPrefix;
  if (evaluations_ == 0) return s;
  s.numbers[prefix + "func_evals"] = double(evaluations_);
  s.numbers[prefix + "n_iter"] = double(iterations_);
  if (iterations_ == 0) return s;
  s.numbers[prefix + "t"] = t_;
  s.numbers[prefix + "prev_loss"] = loss_;
  s.tensors[prefix + "d"] = direction_;
  s.tensors[prefix + "prev_flat_grad"] = gradient_;
  s.tensors[prefix + "H_diag"] = curvature_;
  for (size_t i = 0; i < pairs_.size(); ++i) {
    s.tensors[prefix + "old_dirs." + std::to_string(i)] = pairs_[i].change;
    s.tensors[prefix + "old_stps." + std::to_string(i)] = pairs_[i].step;
    s.tensors[prefix + "ro." + std::to_string(i)] = pairs_[i].inverse;
  }
  return s;
}

void LBFGS::load_state_dict(const State& state) {
  State rest = state;
  std::string problems;
  const std::string prefix = kPrefix;
  const std::vector<Tensor>& params = param_groups().front().params;
  const TensorOptions options(params.front().dtype(), params.front().device());
  int64_t n = 0;
  for (const Tensor& p : params) n += p.numel();
  const auto number = [&](const std::string& name) {
    const auto node = rest.numbers.extract(prefix + name);
    if (node.empty()) problems += " " + prefix + name + " is missing.";
    return node.empty() ? 0 : node.mapped();
  };
  const auto tensor = [&](const std::string& name, const Shape& sizes) {
    const auto node = rest.tensors.extract(prefix + name);
    if (node.empty()) {
      problems += " " + prefix + name + " is missing.";
      return Tensor();
    }
    if (!std::ranges::equal(node.mapped().sizes(), sizes)) {
      problems += " size mismatch for " + prefix + name + ": the optimizer's is " +
                  to_string(sizes) + ", the state has " + to_string(node.mapped().sizes()) + ".";
      return Tensor();
    }
    return zeros(sizes, options).copy_(node.mapped());
  };
  int64_t evaluations = 0, iterations = 0;
  double t = 0, loss = 0;
  Tensor direction, gradient, curvature;
  std::vector<Pair> pairs;
  if (state.numbers.contains(prefix + "n_iter")) {
    evaluations = int64_t(number("func_evals"));
    iterations = int64_t(number("n_iter"));
  }
  if (iterations > 0) {
    t = number("t");
    loss = number("prev_loss");
    direction = tensor("d", {n});
    gradient = tensor("prev_flat_grad", {n});
    curvature = tensor("H_diag", {});
    for (size_t i = 0; state.tensors.contains(prefix + "old_dirs." + std::to_string(i)); ++i) {
      const std::string index = "." + std::to_string(i);
      pairs.push_back({tensor("old_dirs" + index, {n}), tensor("old_stps" + index, {n}),
                       tensor("ro" + index, {})});
    }
  }
  ARETE_CHECK(problems.empty(), ValueError("load_state_dict",
                                           "Error(s) in loading state_dict for LBFGS:" + problems));
  Optimizer::load_state_dict(rest);  // the settings; names what is left over
  evaluations_ = evaluations;
  iterations_ = iterations;
  t_ = t;
  loss_ = loss;
  direction_ = std::move(direction);
  gradient_ = std::move(gradient);
  curvature_ = std::move(curvature);
  pairs_ = std::move(pairs);
}

}  // namespace arete::optim
