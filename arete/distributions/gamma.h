// The gamma distribution and those made of it. Draws have no gradient here: Python's have it.
#pragma once

#include "arete/distributions/distribution.h"

namespace arete::distributions {

class Gamma : public Formulated<Gamma> {
 public:
  Gamma(const Tensor& concentration, const Tensor& rate);
  static const Formulas<Gamma> formulas;
  Tensor concentration, rate;
};

/// The sum of the squares of df standard normal numbers.
class Chi2 : public Gamma {
 public:
  explicit Chi2(const Tensor& df);
  const char* name() const override { return "Chi2"; }
  Tensor df;
};

/// Probabilities of k classes, (..., k) as the concentrations are.
class Dirichlet : public Formulated<Dirichlet> {
 public:
  explicit Dirichlet(const Tensor& concentration);
  static const Formulas<Dirichlet> formulas;
  Tensor concentration;
};

/// Numbers of [0, 1]: the first of two classes of Dirichlet.
class Beta : public Formulated<Beta> {
 public:
  Beta(const Tensor& concentration1, const Tensor& concentration0);
  Dirichlet of_two() const;
  static const Formulas<Beta> formulas;
  Tensor concentration1, concentration0;
};

/// The mean is NaN for df up to 1, the variance for up to 1, and infinite for up to 2.
class StudentT : public Formulated<StudentT> {
 public:
  StudentT(const Tensor& df, const Tensor& loc, const Tensor& scale);
  static const Formulas<StudentT> formulas;
  Tensor df, loc, scale;
};

/// Successes of probability `probs` before total_count failures.
class NegativeBinomial : public Formulated<NegativeBinomial> {
 public:
  NegativeBinomial(const Tensor& total_count, const Tensor& probs);
  static const Formulas<NegativeBinomial> formulas;
  Tensor total_count, probs;
};

}  // namespace arete::distributions
