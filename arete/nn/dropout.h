// Dropout layers: they do something in training only (see Module::train).
#pragma once

#include <string>

#include "arete/nn/module.h"

namespace arete::nn {

/// Sets elements to 0 with probability p and divides the others by 1 - p.
class Dropout : public Module {
 public:
  /// ValueError unless p is in [0, 1].
  explicit Dropout(double p = 0.5);
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;
  double p() const { return p_; }

 private:
  double p_;
};

/// The same for whole channels of N-dimensional data, (batch, channels, *space); a missing batch
/// dimension is allowed.
template <int N>
class DropoutNd : public Module {
 public:
  explicit DropoutNd(double p = 0.5);
  Tensor forward(const Tensor& input) override;
  std::string name() const override;
  std::string extra_repr() const override;

 private:
  double p_;
};
using Dropout1d = DropoutNd<1>;
using Dropout2d = DropoutNd<2>;
using Dropout3d = DropoutNd<3>;
extern template class DropoutNd<1>;
extern template class DropoutNd<2>;
extern template class DropoutNd<3>;

/// Dropout that keeps the mean 0 and variance 1 of its input (for SELU networks).
class AlphaDropout : public Module {
 public:
  explicit AlphaDropout(double p = 0.5);
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  double p_;
};

}  // namespace arete::nn
