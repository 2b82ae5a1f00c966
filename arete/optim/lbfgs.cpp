#include "arete/optim/lbfgs.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/ops/call.h"
#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/sparse.h"
#include "arete/ops/target.h"
#include "arete/optim/update_internal.h"

namespace arete::optim {

namespace {

// Of the line search: what counts as a decrease and as a small slope, and when to give up.
constexpr double kDecrease = 1e-4, kCurvature = 0.9, kNarrowest = 1e-9;
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

void LBFGS::update(const ParamGroup&, Batch&) { ARETE_BUG("LBFGS updates by itself"); }

void LBFGS::step() {
  throw ValueError("LBFGS", "step() needs a closure that computes the loss and its gradients")
      .hint("optimizer.step(closure)");
}
void LBFGS::step_scaled(const Tensor&, const Tensor&) {
  throw ValueError("LBFGS", "a GradScaler cannot step it: it computes gradients anew as it goes")
      .hint("train in float32 or bfloat16, without a scaler");
}

namespace {
// The numbers that a tensor is made of.
Tensor numbers_of(const Tensor& t) { return is_complex(t.dtype()) ? view_as_real(t) : t; }
}  // namespace

Tensor LBFGS::flat_gradient() const {
  std::vector<Tensor> parts;
  for (const Tensor& p : param_groups().front().params) {
    Tensor g = p.grad();
    if (g.defined()) g = ops::dense_of(g);
    parts.push_back(numbers_of(g.defined() ? g : zeros_like(p)).reshape({-1}));
  }
  return cat(parts);
}

void LBFGS::move(double t, const Tensor& direction) {
  int64_t at = 0;
  for (const Tensor& p : param_groups().front().params) {
    Tensor numbers = numbers_of(p);
    numbers.add_(direction.narrow(0, at, numbers.numel()).view(numbers.sizes()), t);
    at += numbers.numel();
  }
}

// The gradient multiplied by minus the inverse Hessian as the pairs know it. Nothing here waits for
// the device but the test of the new pair.
Tensor LBFGS::direction_from(const Tensor& gradient) {
  if (memory_.iterations == 1) {
    memory_.pairs.clear();
    memory_.curvature = ones({}, TensorOptions(gradient.dtype(), gradient.device()));
    return gradient.neg();
  }
  Pair fresh{gradient - memory_.gradient, memory_.direction * memory_.t, {}};
  const Tensor curvature = dot(fresh.change, fresh.step);
  if (curvature.item<double>() > kLeastCurvature) {
    fresh.inverse = curvature.reciprocal();
    memory_.curvature = curvature / dot(fresh.change, fresh.change);
    if (double(memory_.pairs.size()) >= param_groups().front().get("history_size"))
      memory_.pairs.erase(memory_.pairs.begin());
    memory_.pairs.push_back(std::move(fresh));
  }
  Tensor q = gradient.neg();
  std::vector<Tensor> weights(memory_.pairs.size());
  for (size_t i = memory_.pairs.size(); i-- > 0;) {
    weights[i] = dot(memory_.pairs[i].step, q) * memory_.pairs[i].inverse;
    q.sub_(memory_.pairs[i].change * weights[i]);
  }
  q.mul_(memory_.curvature);
  for (size_t i = 0; i < memory_.pairs.size(); ++i)
    q.add_(memory_.pairs[i].step *
           (weights[i] - dot(memory_.pairs[i].change, q) * memory_.pairs[i].inverse));
  return q;
}

// A point of less loss and of a slope that is small against that at the start. First steps grow
// until they enclose one, then the interval shrinks around it; `length` is the direction's largest
// element. After `most` tries the best of what was seen has to do.
LBFGS::Point LBFGS::search(const Point& start, double t, double length, double most,
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
    if (tries >= most) {
      low = start;
      break;
    }
    if (is_flat(high)) return high;
    if (high.slope >= 0) break;
    const double next = cubic_minimum(low, high, high.t + 0.01 * (high.t - low.t), 10 * high.t);
    low = std::exchange(high, at(next));
    ++tries;
  }
  const auto order = [&] {
    if (low.loss > high.loss) std::swap(low, high);
  };
  order();
  bool was_slow = false;
  for (; tries < most && std::fabs(high.t - low.t) * length >= kNarrowest; ++tries) {
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
  ARETE_CHECK(param_groups().size() == 1,
              ValueError("LBFGS", "LBFGS doesn't support per-parameter options (parameter groups)")
                  .got(std::to_string(param_groups().size()) + " groups"));
  for (const Tensor& p : param_groups().front().params)
    ARETE_CHECK(!ops::is_capturing(p.device()),
                DeviceError("LBFGS", "CUDA graph capture of step() is impossible for LBFGS")
                    .hint("it asks the device after each iteration how to go on"));
  const NoGradGuard no_grad;
  const ParamGroup& group = param_groups().front();
  const double lr = group.lr(), tolerance_grad = group.get("tolerance_grad"),
               tolerance_change = group.get("tolerance_change"), max_iter = group.get("max_iter"),
               given = group.get("max_eval"),
               max_eval = given > 0 ? given : std::floor(max_iter * 5 / 4);
  int64_t calls = 0;
  const auto evaluate = [&] {
    ++calls;
    ++memory_.evaluations;
    const EnableGradGuard grad;
    return closure();
  };

  const Tensor first = evaluate();
  double loss = first.item<double>();
  Tensor gradient = flat_gradient();
  if (largest(gradient) <= tolerance_grad) return first;
  for (int64_t i = 1; double(i) <= max_iter; ++i) {
    ++memory_.iterations;
    memory_.direction = direction_from(gradient);
    memory_.gradient = gradient;
    memory_.loss = loss;
    // Nothing is known of the scale at first.
    memory_.t = lr;
    if (memory_.iterations == 1)
      memory_.t *= std::min(1.0, 1 / gradient.abs().sum().item<double>());
    const double slope = dot(gradient, memory_.direction).item<double>();
    if (slope > -tolerance_change) break;
    if (group.flag("line_search_fn")) {
      std::vector<Tensor> before;
      for (const Tensor& p : group.params) before.push_back(p.detach().clone());
      const auto at = [&](double t) {
        move(t, memory_.direction);
        const double value = evaluate().item<double>();
        Tensor g = flat_gradient();
        for (size_t k = 0; k < before.size(); ++k) Tensor(group.params[k]).copy_(before[k]);
        const double along = dot(g, memory_.direction).item<double>();
        return Point{t, value, along, std::move(g)};
      };
      const Point found = search({0, loss, slope, gradient}, memory_.t, largest(memory_.direction),
                                 max_eval - double(calls), at);
      memory_.t = found.t;
      loss = found.loss;
      gradient = found.gradient;
      move(memory_.t, memory_.direction);
    } else {
      move(memory_.t, memory_.direction);
      if (double(i) == max_iter) break;  // nobody would look at the new gradient
      loss = evaluate().item<double>();
      gradient = flat_gradient();
    }
    if (double(calls) >= max_eval || largest(gradient) <= tolerance_grad ||
        largest(memory_.direction) * std::fabs(memory_.t) <= tolerance_change ||
        std::fabs(loss - memory_.loss) < tolerance_change)
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
  const Memory& m = memory_;
  if (m.evaluations == 0) return s;
  s.numbers[prefix + "func_evals"] = double(m.evaluations);
  s.numbers[prefix + "n_iter"] = double(m.iterations);
  if (m.iterations == 0) return s;
  s.numbers[prefix + "t"] = m.t;
  s.numbers[prefix + "prev_loss"] = m.loss;
  s.tensors[prefix + "d"] = m.direction;
  s.tensors[prefix + "prev_flat_grad"] = m.gradient;
  s.tensors[prefix + "H_diag"] = m.curvature;
  for (size_t i = 0; i < m.pairs.size(); ++i) {
    s.tensors[prefix + "old_dirs." + std::to_string(i)] = m.pairs[i].change;
    s.tensors[prefix + "old_stps." + std::to_string(i)] = m.pairs[i].step;
    s.tensors[prefix + "ro." + std::to_string(i)] = m.pairs[i].inverse;
  }
  return s;
}

void LBFGS::load_state_dict(const State& state) {
  State rest = state;
  const std::string prefix = kPrefix;
  std::string problems;
  const auto number = [&](const std::string& name) {
    const auto node = rest.numbers.extract(prefix + name);
    if (node.empty()) problems += " " + prefix + name + " is missing.";
    return node.empty() ? 0 : node.mapped();
  };
  const Tensor like = flat_gradient();
  const auto tensor = [&](const std::string& name) {
    const auto node = rest.tensors.extract(prefix + name);
    return node.empty() ? Tensor() : node.mapped().to(like.device(), like.dtype(), false, true);
  };
  Memory m;
  if (state.numbers.contains(prefix + "n_iter")) {
    m.evaluations = int64_t(number("func_evals"));
    m.iterations = int64_t(number("n_iter"));
  }
  if (m.iterations > 0) {
    m.t = number("t");
    m.loss = number("prev_loss");
    m.direction = tensor("d");
    m.gradient = tensor("prev_flat_grad");
    m.curvature = tensor("H_diag");
    for (size_t i = 0; state.tensors.contains(prefix + "old_dirs." + std::to_string(i)); ++i) {
      const std::string index = "." + std::to_string(i);
      m.pairs.push_back(
          {tensor("old_dirs" + index), tensor("old_stps" + index), tensor("ro" + index)});
    }
  }
  problems += problems_of(m);
  ARETE_CHECK(problems.empty(), ValueError("load_state_dict",
                                           "Error(s) in loading state_dict for LBFGS:" + problems));
  Optimizer::load_state_dict(rest);  // the settings; names what is left over
  memory_ = std::move(m);
}

// What does not fit to the parameters.
std::string LBFGS::problems_of(const Memory& m) const {
  std::string problems;
  if (m.iterations == 0) return problems;
  const Tensor like = flat_gradient();
  const auto look = [&](const char* name, const Tensor& t, const Shape& sizes) {
    const std::string key = kPrefix + std::string(name);
    if (!t.defined())
      problems += problems.find(key) == std::string::npos ? " " + key + " is missing." : "";
    else if (!std::ranges::equal(t.sizes(), sizes) || t.dtype() != like.dtype() ||
             t.device() != like.device())
      problems += " size mismatch for " + key + ": the optimizer's is of " + to_string(sizes) +
                  " as " + ops::describe(like) + ", the state has " + ops::describe(t) + ".";
  };
  const Shape vector(like.sizes());
  look("d", m.direction, vector);
  look("prev_flat_grad", m.gradient, vector);
  look("H_diag", m.curvature, {});
  for (const Pair& p : m.pairs) {
    look("old_dirs", p.change, vector);
    look("old_stps", p.step, vector);
    look("ro", p.inverse, {});
  }
  return problems;
}

void LBFGS::put_memory(Memory memory) {
  const std::string problems = problems_of(memory);
  ARETE_CHECK(problems.empty(), ValueError("LBFGS", "the state does not fit:" + problems));
  memory_ = std::move(memory);
}

}  // namespace arete::optim
