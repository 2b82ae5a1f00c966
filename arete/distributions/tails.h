// Positive numbers with long tails: powers of exponential numbers, and Cauchy numbers.
#pragma once

#include "arete/distributions/distribution.h"

namespace arete::distributions {

/// |x| of Cauchy numbers around 0. Mean and variance are infinite.
class HalfCauchy : public Distribution {
 public:
  explicit HalfCauchy(const Tensor& scale);
  const char* name() const override { return "HalfCauchy"; }
  bool has_rsample() const override { return true; }
  Tensor rsample(IntList sizes = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  Tensor scale;
};

/// Numbers from `scale` on, of which (scale / x)^alpha are larger than x.
class Pareto : public Distribution {
 public:
  Pareto(const Tensor& scale, const Tensor& alpha);
  const char* name() const override { return "Pareto"; }
  bool has_rsample() const override { return true; }
  Tensor rsample(IntList sizes = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  Tensor scale, alpha;
};

/// Numbers of which (x / scale)^concentration is exponential.
class Weibull : public Distribution {
 public:
  Weibull(const Tensor& scale, const Tensor& concentration);
  const char* name() const override { return "Weibull"; }
  bool has_rsample() const override { return true; }
  Tensor rsample(IntList sizes = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  Tensor scale, concentration;
};

}  // namespace arete::distributions
