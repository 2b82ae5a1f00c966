// L-BFGS: Newton's method with curvature learned from the last gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "arete/optim/optimizer.h"

namespace arete::optim {

struct LBFGSOptions {
  double lr = 1;
  int64_t max_iter = 20;           ///< iterations per step
  int64_t max_eval = 0;            ///< calls of the closure per step; 0: 5/4 of max_iter
  double tolerance_grad = 1e-7;    ///< ends a step: the largest element of the gradient
  double tolerance_change = 1e-9;  ///< the same: the change of the loss or of a parameter
  int64_t history_size = 100;      ///< pairs of steps and changes of the gradient that are kept
  bool strong_wolfe = false;       ///< searches along each direction; otherwise lr is the step
};
Settings settings_of(const LBFGSOptions& options);

/// The two-loop recursion of Nocedal and Wright (2006, algorithm 7.4), with a line search for the
/// strong Wolfe conditions (3.5 and 3.6) if asked for. One group of parameters of one dtype and
/// device; step() needs the closure, which clears the gradients, computes the loss and calls
/// backward(), and is called many times. Memory: 2 history_size vectors as long as all parameters.
/// State, with the first parameter: n_iter, func_evals, t, prev_loss (numbers), d, prev_flat_grad,
/// H_diag, old_dirs.<i>, old_stps.<i>, ro.<i> (i-th oldest pair).
class LBFGS : public Optimizer {
 public:
  explicit LBFGS(std::vector<Tensor> params, const LBFGSOptions& options = {});

  /// ValueError: it needs the closure.
  void step() override;
  /// Several iterations; returns the loss of the first call.
  Tensor step(const std::function<Tensor()>& closure) override;
  /// ValueError: scaled gradients cannot be computed again.
  void step_scaled(const Tensor& found_inf, const Tensor& inverse_scale) override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 protected:
  void update(const ParamGroup& group, Batch& batch) override;

 private:
  struct Pair {
    Tensor change, step;  // of the gradient and of the parameters
    Tensor inverse;       // 0-d: 1 / (change . step)
  };
  /// Where a line was looked at: t along it, the loss there, its slope and the gradient.
  struct Point {
    double t, loss, slope;
    Tensor gradient;
  };
  Tensor flat_gradient() const;
  void move(double t, const Tensor& direction);
  Tensor direction_from(const Tensor& gradient);
  static Point search(const Point& start, double t, double length,
                      const std::function<Point(double)>& at);

  int64_t iterations_ = 0, evaluations_ = 0;
  double t_ = 0, loss_ = 0;  // of the last iteration
  Tensor direction_, gradient_;
  Tensor curvature_;  // 0-d: the scale of the first guess of the inverse Hessian
  std::vector<Pair> pairs_;
};

}  // namespace arete::optim
