// How often things happen in a number of trials.
#pragma once

#include "arete/distributions/distribution.h"

namespace arete::distributions {

/// How many of total_count trials succeed, each with probability probs. The entropy is a sum over
/// all counts: NotImplementedError where total_count is not one number.
class Binomial : public Formulated<Binomial> {
 public:
  Binomial(const Tensor& total_count, const Tensor& probs);
  static Binomial from_logits(const Tensor& total_count, const Tensor& logits);
  static const Formulas<Binomial> formulas;
  Tensor total_count, probs, logits;
};

/// How often each of k classes comes in total_count trials, by probabilities (..., k), which are
/// made to sum to 1.
class Multinomial : public Formulated<Multinomial> {
 public:
  Multinomial(int64_t total_count, const Tensor& probs);
  static Multinomial from_logits(int64_t total_count, const Tensor& logits);
  static const Formulas<Multinomial> formulas;
  int64_t total_count;
  Tensor probs, logits;  ///< logits: logarithms of the probabilities

 private:
  Multinomial(int64_t total_count, const Categorical& classes);
};

}  // namespace arete::distributions
