// Averages of a network's weights over training: plain means (SWA) and exponential ones (EMA).
#pragma once

#include <optional>

#include "arete/nn/module.h"
#include "arete/ops/creation.h"

namespace arete::optim {

struct AverageOptions {
  /// Of exponential averages, in [0, 1]: averaged = decay * averaged + (1 - decay) * current.
  /// Default: the mean of all that were seen.
  std::optional<double> decay = {};
  bool use_buffers = false;  ///< buffers are averaged, too; else they are copied
};

/// Takes the weights of `model` into those of `average`, of one structure; the first time
/// (n_averaged, int64 () on the host, is 0) they are copied. ValueError for other networks.
void update_average(const nn::Module& average, const nn::Module& model, Tensor& n_averaged,
                    const AverageOptions& options);

/// An independent copy of a network whose parameters are the average of those that
/// update_parameters() saw. Its state has Python's names: "module.", "n_averaged".
///
///     optim::AveragedModel ema(net, {.decay = 0.999});
///     ema.update_parameters(net);  // after each step
template <class M>
class AveragedModel : public nn::Module {
 public:
  explicit AveragedModel(const M& model, const AverageOptions& options = {})
      : module(child("module", nn::clone(model))),
        n_averaged(register_buffer("n_averaged", zeros({}, kInt64))),
        options_(options) {
    ARETE_CHECK(!options.decay || (*options.decay >= 0 && *options.decay <= 1),
                ValueError("AveragedModel", "decay must be between 0 and 1")
                    .got(std::to_string(*options.decay)));
  }
  std::string name() const override { return "AveragedModel"; }
  Tensor forward(const Tensor& input) override { return module(input); }
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    return module(std::forward<Args>(args)...);
  }
  void update_parameters(const M& model) { update_average(module, model, n_averaged, options_); }

  M module;
  nn::Buffer n_averaged;

 private:
  AverageOptions options_;
};

}  // namespace arete::optim
