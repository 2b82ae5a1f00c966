// Dropout layers: they do something in training only (see Module::train).
#pragma once

#include "arete/nn/activation.h"

namespace arete::nn {

/// Sets elements to 0 with probability p and divides the others by 1 - p.
class Dropout : public OperatorLayer {
 public:
  /// ValueError unless p is in [0, 1].
  explicit Dropout(double p = 0.5, const InplaceOptions& o = {})
      : OperatorLayer("Dropout", {{"p", p}, {"inplace", o.inplace}}), p_(p) {}
  double p() const { return p_; }

 private:
  double p_;
};

/// The same for whole channels of N-dimensional data, (batch, channels, *space); a missing batch
/// dimension is allowed.
template <int N>
class DropoutNd : public OperatorLayer {
 public:
  explicit DropoutNd(double p = 0.5, const InplaceOptions& o = {})
      : OperatorLayer(numbered("Dropout", N), {{"p", p}, {"inplace", o.inplace}}) {}
};
using Dropout1d = DropoutNd<1>;
using Dropout2d = DropoutNd<2>;
using Dropout3d = DropoutNd<3>;

/// Dropout that keeps the mean 0 and variance 1 of its input (for SELU networks).
class AlphaDropout : public OperatorLayer {
 public:
  explicit AlphaDropout(double p = 0.5, const InplaceOptions& o = {})
      : OperatorLayer("AlphaDropout", {{"p", p}, {"inplace", o.inplace}}) {}
};

/// AlphaDropout of whole channels.
class FeatureAlphaDropout : public OperatorLayer {
 public:
  explicit FeatureAlphaDropout(double p = 0.5, const InplaceOptions& o = {})
      : OperatorLayer("FeatureAlphaDropout", {{"p", p}, {"inplace", o.inplace}}) {}
};

}  // namespace arete::nn
