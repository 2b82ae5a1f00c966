// The gamma distribution and those made of it. Draws have no gradient here: Python's have it.
#pragma once

#include "arete/distributions/distribution.h"

namespace arete::distributions {

class Gamma : public Distribution {
 public:
  Gamma(const Tensor& concentration, const Tensor& rate);
  const char* name() const override { return "Gamma"; }
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  Tensor concentration, rate;

 protected:
  Tensor draw(IntList sizes) const override;
};

/// The sum of the squares of df standard normal numbers.
class Chi2 : public Gamma {
 public:
  explicit Chi2(const Tensor& df);
  const char* name() const override { return "Chi2"; }
  Tensor df;
};

/// Probabilities of k classes, (..., k) as the concentrations are.
class Dirichlet : public Distribution {
 public:
  explicit Dirichlet(const Tensor& concentration);
  const char* name() const override { return "Dirichlet"; }
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  Tensor concentration;

 protected:
  Tensor draw(IntList sizes) const override;
};

/// Numbers of [0, 1]: the first of two classes of Dirichlet.
class Beta : public Distribution {
 public:
  Beta(const Tensor& concentration1, const Tensor& concentration0);
  const char* name() const override { return "Beta"; }
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  Dirichlet of_two() const;
  Tensor concentration1, concentration0;

 protected:
  Tensor draw(IntList sizes) const override;
};

/// The mean is NaN for df up to 1, the variance for up to 1, and infinite for up to 2.
class StudentT : public Distribution {
 public:
  StudentT(const Tensor& df, const Tensor& loc, const Tensor& scale);
  const char* name() const override { return "StudentT"; }
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  Tensor df, loc, scale;

 protected:
  Tensor draw(IntList sizes) const override;
};

/// Successes of probability `probs` before total_count failures.
class NegativeBinomial : public Distribution {
 public:
  NegativeBinomial(const Tensor& total_count, const Tensor& probs);
  const char* name() const override { return "NegativeBinomial"; }
  Tensor log_prob(const Tensor& value) const override;
  Tensor mean() const override;
  Tensor variance() const override;
  Tensor total_count, probs;

 protected:
  Tensor draw(IntList sizes) const override;
};

}  // namespace arete::distributions
