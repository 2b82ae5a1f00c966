// Positive numbers with long tails: powers of exponential numbers, and Cauchy numbers.
#pragma once

#include "arete/distributions/distribution.h"

namespace arete::distributions {

/// |x| of Cauchy numbers around 0. Mean and variance are infinite.
class HalfCauchy : public Formulated<HalfCauchy> {
 public:
  explicit HalfCauchy(const Tensor& scale);
  static const Formulas<HalfCauchy> formulas;
  Tensor scale;
};

/// Numbers from `scale` on, of which (scale / x)^alpha are larger than x.
class Pareto : public Formulated<Pareto> {
 public:
  Pareto(const Tensor& scale, const Tensor& alpha);
  static const Formulas<Pareto> formulas;
  Tensor scale, alpha;
};

/// Numbers of which (x / scale)^concentration is exponential.
class Weibull : public Formulated<Weibull> {
 public:
  Weibull(const Tensor& scale, const Tensor& concentration);
  static const Formulas<Weibull> formulas;
  Tensor scale, concentration;
};

}  // namespace arete::distributions
