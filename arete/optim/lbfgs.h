// L-BFGS: Newton's method with curvature learned from the last gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arete/optim/optimizer.h"

namespace arete::optim {

struct LBFGSOptions {
  Setting lr = 1;
  Setting max_iter = 20;                ///< iterations per step
  std::optional<double> max_eval = {};  ///< calls of the closure per step; else 5/4 of max_iter
  Setting tolerance_grad = 1e-7;        ///< ends a step: the largest element of the gradient
  Setting tolerance_change = 1e-9;      ///< the same: the change of the loss or of a parameter
  Setting history_size = 100;  ///< pairs of steps and changes of the gradient that are kept
  bool strong_wolfe = false;   ///< searches along each direction; otherwise lr is the step

  static constexpr const char* kOptimizer = "LBFGS";
  static constexpr std::span<const StateKey> kState = {};
  static void fields(auto& visit, auto& o) {
    visit("lr", o.lr, is_learning_rate);
    visit("max_iter", o.max_iter, not_negative("Invalid max_iter value: "));
    visit("max_eval", o.max_eval, not_negative("Invalid max_eval value: "));
    visit("tolerance_grad", o.tolerance_grad, not_negative("Invalid tolerance_grad value: "));
    visit("tolerance_change", o.tolerance_change, not_negative("Invalid tolerance_change value: "));
    visit("history_size", o.history_size,
          Check{Check::at_least_one, "history_size must be positive: "});
    visit.choice("line_search_fn", o.strong_wolfe, std::array{"strong_wolfe"});
  }
};

/// The two-loop recursion of Nocedal and Wright (2006, algorithm 7.4), with a line search for the
/// strong Wolfe conditions (3.5 and 3.6) if asked for. One group of parameters of one dtype and
/// device; step() needs the closure, which clears the gradients, computes the loss and calls
/// backward(), and is called many times. Memory: 2 history_size vectors as long as all parameters.
/// State, with the first parameter: n_iter, func_evals, t, prev_loss (numbers), d, prev_flat_grad,
/// H_diag, old_dirs.<i>, old_stps.<i>, ro.<i> (i-th oldest pair).
class LBFGS : public TypedOptimizer<LBFGSOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

  /// ValueError: it needs the closure.
  void step() override;
  /// Several iterations; returns the loss of the first call.
  Tensor step(const std::function<Tensor()>& closure) override;
  /// ValueError: scaled gradients cannot be computed again.
  void step_scaled(const Tensor& found_inf, const Tensor& inverse_scale) override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;

  /// Two changes that belong together: of the gradient and of the parameters.
  struct Pair {
    Tensor change, step;
    Tensor inverse;  ///< 0-d: 1 / (change . step)
  };
  /// All it knows of the function so far.
  struct Memory {
    int64_t iterations = 0, evaluations = 0;
    double t = 0, loss = 0;  ///< of the last iteration
    Tensor direction, gradient;
    Tensor curvature;         ///< 0-d: the scale of the first guess of the inverse Hessian
    std::vector<Pair> pairs;  ///< the oldest first
  };
  const Memory& memory() const { return memory_; }
  /// Takes its tensors as they are; ValueError naming what does not fit to the parameters.
  void put_memory(Memory memory);

 protected:
  void update(const ParamGroup& group, Batch& batch) override;

 private:
  /// Where a line was looked at: t along it, the loss there, its slope and the gradient.
  struct Point {
    double t, loss, slope;
    Tensor gradient;
  };
  std::string problems_of(const Memory& memory) const;
  Tensor flat_gradient() const;
  void move(double t, const Tensor& direction);
  Tensor direction_from(const Tensor& gradient);
  static Point search(const Point& start, double t, double length, double most,
                      const std::function<Point(double)>& at);

  Memory memory_;
};

}  // namespace arete::optim
