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
  Tensor rsample(IntList sizes = {}) const;
  virtual bool has_rsample() const = 0;
  /// The logarithm of density or probability: value's shape without the event. Values outside of
  /// the support are the caller's mistake, and not looked for.
  virtual Tensor log_prob(const Tensor& value) const = 0;
  /// NotImplementedError where there is no closed form.
  virtual Tensor entropy() const = 0;
  virtual Tensor mean() const = 0;
  virtual Tensor variance() const = 0;
  Tensor stddev() const;

 protected:
  Distribution() = default;
  /// With history, if there is any.
  virtual Tensor draw(IntList sizes) const = 0;
  static Tensor draw_of(const Distribution& other, IntList sizes) { return other.draw(sizes); }
  Shape extended(IntList sizes) const;
  [[noreturn]] void refuse(const char* what) const;
  Shape batch_, event_;
};

/// A kind of distribution as functions of its parameters. Null: there is no closed form.
template <class D>
struct Formulas {
  const char* name;
  bool has_rsample;  ///< draws have a gradient in the parameters
  /// Draws of this shape, in which that of batch and event are the last dimensions.
  Tensor (*draw)(const D&, const Shape& all);
  Tensor (*log_prob)(const D&, const Tensor& value);
  Tensor (*entropy)(const D&);
  Tensor (*mean)(const D&);
  Tensor (*variance)(const D&);
};

/// A distribution that answers by its formulas, `D::formulas`.
template <class D>
class Formulated : public Distribution {
 public:
  const char* name() const override { return D::formulas.name; }
  bool has_rsample() const override { return D::formulas.has_rsample; }
  Tensor log_prob(const Tensor& value) const override { return D::formulas.log_prob(own(), value); }
  Tensor entropy() const override {
    if (!D::formulas.entropy) refuse("the entropy of this distribution has no closed form");
    return D::formulas.entropy(own());
  }
  Tensor mean() const override { return D::formulas.mean(own()); }
  Tensor variance() const override { return D::formulas.variance(own()); }

 protected:
  Tensor draw(IntList sizes) const override { return D::formulas.draw(own(), extended(sizes)); }

 private:
  const D& own() const { return static_cast<const D&>(*this); }
};

/// Of one number each: the parameters are broadcast together.
class Normal : public Formulated<Normal> {
 public:
  Normal(const Tensor& loc, const Tensor& scale);
  static const Formulas<Normal> formulas;
  Tensor loc, scale;
};

class Laplace : public Formulated<Laplace> {
 public:
  Laplace(const Tensor& loc, const Tensor& scale);
  static const Formulas<Laplace> formulas;
  Tensor loc, scale;
};

/// Mean and variance are NaN.
class Cauchy : public Formulated<Cauchy> {
 public:
  Cauchy(const Tensor& loc, const Tensor& scale);
  static const Formulas<Cauchy> formulas;
  Tensor loc, scale;
};

class Gumbel : public Formulated<Gumbel> {
 public:
  Gumbel(const Tensor& loc, const Tensor& scale);
  static const Formulas<Gumbel> formulas;
  Tensor loc, scale;
};

/// exp of normal numbers.
class LogNormal : public Formulated<LogNormal> {
 public:
  LogNormal(const Tensor& loc, const Tensor& scale);
  static const Formulas<LogNormal> formulas;
  Tensor loc, scale;
};

/// |x| of normal numbers around 0.
class HalfNormal : public Formulated<HalfNormal> {
 public:
  explicit HalfNormal(const Tensor& scale);
  static const Formulas<HalfNormal> formulas;
  Tensor scale;
};

/// [low, high).
class Uniform : public Formulated<Uniform> {
 public:
  Uniform(const Tensor& low, const Tensor& high);
  static const Formulas<Uniform> formulas;
  Tensor low, high;
};

class Exponential : public Formulated<Exponential> {
 public:
  explicit Exponential(const Tensor& rate);
  static const Formulas<Exponential> formulas;
  Tensor rate;
};

/// 0 or 1, by probability.
class Bernoulli : public Formulated<Bernoulli> {
 public:
  explicit Bernoulli(const Tensor& probs);
  static Bernoulli from_logits(const Tensor& logits);
  static const Formulas<Bernoulli> formulas;
  Tensor probs, logits;
};

/// Failures before the first success.
class Geometric : public Formulated<Geometric> {
 public:
  explicit Geometric(const Tensor& probs);
  static const Formulas<Geometric> formulas;
  Tensor probs;
};

class Poisson : public Formulated<Poisson> {
 public:
  explicit Poisson(const Tensor& rate);
  static const Formulas<Poisson> formulas;
  Tensor rate;
};

/// Classes 0 to k - 1 (int64), by probabilities (..., k), which are made to sum to 1. Mean and
/// variance are NaN.
class Categorical : public Formulated<Categorical> {
 public:
  explicit Categorical(const Tensor& probs);
  static Categorical from_logits(const Tensor& logits);
  static const Formulas<Categorical> formulas;
  Tensor probs, logits;  ///< logits: logarithms of the probabilities

 private:
  struct FromLogits {};
  Categorical(const Tensor& logits, FromLogits);
};

/// loc (..., d) and the lower triangular root (..., d, d) of the covariance.
class MultivariateNormal : public Formulated<MultivariateNormal> {
 public:
  MultivariateNormal(const Tensor& loc, const Tensor& scale_tril);
  /// From a covariance (..., d, d), which is positive definite.
  static MultivariateNormal from_covariance(const Tensor& loc, const Tensor& covariance);
  static const Formulas<MultivariateNormal> formulas;
  Tensor loc, scale_tril;
};

/// The last dimensions of the batch of another distribution become its event.
class Independent : public Distribution {
 public:
  Independent(std::shared_ptr<const Distribution> base, int64_t dims);
  const char* name() const override { return "Independent"; }
  bool has_rsample() const override { return base_->has_rsample(); }
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override { return base_->mean(); }
  Tensor variance() const override { return base_->variance(); }

 protected:
  Tensor draw(IntList sizes) const override { return draw_of(*base_, sizes); }

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
