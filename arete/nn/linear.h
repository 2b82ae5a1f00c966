// Layers that are matrix products.
#pragma once

#include "arete/nn/layer.h"

namespace arete::nn {

struct LinearOptions {
  bool bias = true;
};

/// y = x W^T + b over the last dimension: (*, in_features) -> (*, out_features). Parameters: weight
/// (out, in) and bias (out), both uniform in +-1 / sqrt(in) at first.
class Linear : public DescribedLayer {
 public:
  Linear(int64_t in_features, int64_t out_features, const LinearOptions& options = {});
  Tensor forward(const Tensor& input) override;
  /// Draws new values.
  void reset_parameters();

  Parameter weight, bias;
};

/// x1^T A x2 + b: (*, in1) and (*, in2) -> (*, out).
class Bilinear : public DescribedLayer {
 public:
  Bilinear(int64_t in1_features, int64_t in2_features, int64_t out_features,
           const LinearOptions& options = {});
  using Module::forward;
  Tensor forward(const Tensor& input1, const Tensor& input2) const;
  Tensor operator()(const Tensor& input1, const Tensor& input2) const {
    return forward(input1, input2);
  }
  void reset_parameters();

  Parameter weight, bias;
};

/// Gives its input back.
class Identity : public Module {
 public:
  Tensor forward(const Tensor& input) override { return input; }
};

}  // namespace arete::nn
