// Functions of numbers that have an inverse, and distributions of what they make of draws.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "arete/distributions/distribution.h"

namespace arete::distributions {

/// A function of each element, its inverse, and the logarithm of its slope's absolute value.
struct Transform {
  std::function<Tensor(const Tensor&x)> forward, inverse;
  std::function<Tensor(const Tensor& x, const Tensor& y)> log_abs_det_jacobian;

  Tensor operator()(const Tensor& x) const { return forward(x); }
  /// The inverse as a transform.
  Transform inv() const;
};

/// y = exp(x)
struct ExpTransform : Transform {
  ExpTransform();
};
/// y = loc + scale x; scale is not 0.
struct AffineTransform : Transform {
  AffineTransform(const Tensor& loc, const Tensor& scale);
};
/// y = x^exponent of positive numbers.
struct PowerTransform : Transform {
  explicit PowerTransform(const Tensor& exponent);
};
/// y = 1 / (1 + exp(-x))
struct SigmoidTransform : Transform {
  SigmoidTransform();
};
struct TanhTransform : Transform {
  TanhTransform();
};
/// y = log(1 + exp(x))
struct SoftplusTransform : Transform {
  SoftplusTransform();
};
/// One after another.
struct ComposeTransform : Transform {
  explicit ComposeTransform(std::vector<Transform> parts);
};

/// Draws of `base` after transforms, one after another, whose parameters broadcast to the shape of
/// its draws: ValueError by sample() and rsample() where they have more. NotImplementedError for
/// mean, variance and entropy, which have no closed form.
class TransformedDistribution : public Distribution {
 public:
  TransformedDistribution(std::shared_ptr<const Distribution> base,
                          std::vector<Transform> transforms);
  const char* name() const override { return "TransformedDistribution"; }
  bool has_rsample() const override { return base_->has_rsample(); }
  Tensor log_prob(const Tensor& value) const override;
  Tensor entropy() const override;
  Tensor mean() const override;
  Tensor variance() const override;

 protected:
  Tensor draw(IntList sizes) const override;

 private:
  std::shared_ptr<const Distribution> base_;
  Transform transform_;
};

}  // namespace arete::distributions
