// Probability distributions under torch.distributions' names. Parameters are floating tensors that
// broadcast; with history, log_prob(), entropy() and rsample() are differentiable in them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arete/core/tensor.h"

namespace arete::distributions {

/// Base class. batch_shape() is that of the parameters, event_shape() that of one draw.
class Distribution {
 public:
  virtual ~Distribution() = default;
  virtual const char* name() const = 0;
  const Shape& batch_shape() const { return batch_; }
  const Shape& event_shape() const { return event_; }
  /// Draws of shape `sizes`, then batch_shape(), then event_shape(); no history.
  Tensor sample(IntList sizes = {}) const;
  /// The same, with the gradient in the parameters; NotImplementedError where there is none.
  virtual Tensor rsample(IntList sizes = {}) const;
  virtual bool has_rsample() const { return false; }
  /// The logarithm of density or probability: value's shape without the event. Values outside of
  /// the support are the caller's mistake, and not looked for.
  virtual Tensor log_prob(const Tensor& value) const = 0;
  /// NotImplementedError where there is no closed form.
  virtual Tensor entropy() const;
  virtual Tensor mean() const = 0;
  virtual Tensor variance() const = 0;
  Tensor stddev() const;

 protected:
  Distribution() = default;
  /// Draws without history, for those without rsample().
  virtual Tensor draw(IntList sizes) const;
  Shape extended(IntList sizes) const;
  Shape batch_, event_;
};

/// Of one number each: the parameters are broadcast together.
class Normal : public Distribution {
 public:
  Normal(const Tensor& loc, const Tensor& scale);
  const char* name() const override { return "Normal"; }
  bool has_rsample() const override { return true; }
  Tensor rsample(IntList sizes = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override { return loc; }
  Tensor variance() const override;
  Tensor loc, scale;
};

class Laplace : public Distribution {
 public:
  Laplace(const Tensor& loc, const Tensor& scale);
  const char* name() const override { return "Laplace"; }
  bool has_rsample() const override { return true; }
  Tensor rsample(IntList sizes = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override { return loc; }
  Tensor variance() const override;
  Tensor loc, scale;
};

/// Mean and variance are NaN.
class Cauchy : public Distribution {
 public:
  Cauchy(const Tensor& loc, const Tensor& scale);
  const char* name() const override { return "Cauchy"; }
  bool has_rsample() const override { return true; }
  Tensor rsample(IntList sizes = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  Tensor loc, scale;
};

class Gumbel : public Distribution {
 public:
  Gumbel(const Tensor& loc, const Tensor& scale);
  const char* name() const override { return "Gumbel"; }
  bool has_rsample() const override { return true; }
  Tensor rsample(IntList sizes = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  Tensor loc, scale;
};

/// exp of normal numbers.
class LogNormal : public Distribution {
 public:
  LogNormal(const Tensor& loc, const Tensor& scale);
  const char* name() const override { return "LogNormal"; }
  bool has_rsample() const override { return true; }
  Tensor rsample(IntList sizes = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  Tensor loc, scale;
};

/// |x| of normal numbers around 0.
class HalfNormal : public Distribution {
 public:
  explicit HalfNormal(const Tensor& scale);
  const char* name() const override { return "HalfNormal"; }
  bool has_rsample() const override { return true; }
  Tensor rsample(IntList sizes = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  Tensor scale;
};

/// [low, high).
class Uniform : public Distribution {
 public:
  Uniform(const Tensor& low, const Tensor& high);
  const char* name() const override { return "Uniform"; }
  bool has_rsample() const override { return true; }
  Tensor rsample(IntList sizes = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  Tensor low, high;
};

class Exponential : public Distribution {
 public:
  explicit Exponential(const Tensor& rate);
  const char* name() const override { return "Exponential"; }
  bool has_rsample() const override { return true; }
  Tensor rsample(IntList sizes = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  Tensor rate;
};

/// 0 or 1, by probability.
class Bernoulli : public Distribution {
 public:
  explicit Bernoulli(const Tensor& probs);
  static Bernoulli from_logits(const Tensor& logits);
  const char* name() const override { return "Bernoulli"; }
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override { return probs; }
  Tensor variance() const override;
  Tensor probs, logits;

 protected:
  Tensor draw(IntList sizes) const override;
};

/// Failures before the first success.
class Geometric : public Distribution {
 public:
  explicit Geometric(const Tensor& probs);
  const char* name() const override { return "Geometric"; }
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  Tensor probs;

 protected:
  Tensor draw(IntList sizes) const override;
};

class Poisson : public Distribution {
 public:
  explicit Poisson(const Tensor& rate);
  const char* name() const override { return "Poisson"; }
  Tensor log_prob(const Tensor& value) const override;
  Tensor mean() const override { return rate; }
  Tensor variance() const override { return rate; }
  Tensor rate;

 protected:
  Tensor draw(IntList sizes) const override;
};

/// Classes 0 to k - 1 (int64), by probabilities (..., k), which are made to sum to 1. Mean and
/// variance are NaN.
class Categorical : public Distribution {
 public:
  explicit Categorical(const Tensor& probs);
  static Categorical from_logits(const Tensor& logits);
  const char* name() const override { return "Categorical"; }
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;
  Tensor probs, logits;  ///< logits: logarithms of the probabilities

 protected:
  Tensor draw(IntList sizes) const override;

 private:
  struct FromLogits {};
  Categorical(const Tensor& logits, FromLogits);
};

/// loc (..., d) and the lower triangular root (..., d, d) of the covariance.
class MultivariateNormal : public Distribution {
 public:
  MultivariateNormal(const Tensor& loc, const Tensor& scale_tril);
  /// From a covariance (..., d, d), which is positive definite.
  static MultivariateNormal from_covariance(const Tensor& loc, const Tensor& covariance);
  const char* name() const override { return "MultivariateNormal"; }
  bool has_rsample() const override { return true; }
  Tensor rsample(IntList sizes = {}) const override;
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override { return loc; }
  Tensor variance() const override;
  Tensor loc, scale_tril;
};

/// The last dimensions of the batch of another distribution become its event.
class Independent : public Distribution {
 public:
  Independent(std::shared_ptr<const Distribution> base, int64_t dims);
  const char* name() const override { return "Independent"; }
  bool has_rsample() const override { return base_->has_rsample(); }
  Tensor rsample(IntList sizes = {}) const override { return base_->rsample(sizes); }
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override { return base_->mean(); }
  Tensor variance() const override { return base_->variance(); }

 protected:
  Tensor draw(IntList sizes) const override { return base_->sample(sizes); }

 private:
  Tensor sum(const Tensor& t) const;
  std::shared_ptr<const Distribution> base_;
  int64_t dims_;
};

/// The divergence of p from q: the mean of log p - log q under p. NotImplementedError for pairs
/// without a closed form here: there are those of two Normal, Laplace, LogNormal, Uniform,
/// Exponential, Bernoulli, Geometric, Poisson, Gamma, Beta, Dirichlet, Pareto, Categorical or
/// MultivariateNormal.
Tensor kl_divergence(const Distribution& p, const Distribution& q);

}  // namespace arete::distributions
