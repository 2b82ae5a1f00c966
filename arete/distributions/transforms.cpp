#include "arete/distributions/transforms.h"

#include <algorithm>

#include "arete/distributions/distribution_internal.h"
#include "arete/ops/activation.h"
#include "arete/ops/reduce.h"

namespace arete::distributions {

Transform Transform::inv() const {
  return {inverse, forward, [slope = log_abs_det_jacobian](const Tensor& x, const Tensor& y) {
            return -slope(y, x);
          }};
}

ExpTransform::ExpTransform()
    : Transform{[](const Tensor& x) { return x.exp(); }, [](const Tensor& y) { return y.log(); },
                [](const Tensor& x, const Tensor&) { return x; }} {}

AffineTransform::AffineTransform(const Tensor& loc, const Tensor& scale)
    : Transform{[=](const Tensor& x) { return loc + scale * x; },
                [=](const Tensor& y) { return (y - loc) / scale; },
                [=](const Tensor& x, const Tensor&) { return scale.abs().log() + zeros_like(x); }} {
  check_floating(loc, "AffineTransform");
  check_floating(scale, "AffineTransform");
}

PowerTransform::PowerTransform(const Tensor& exponent)
    : Transform{[=](const Tensor& x) { return x.pow(exponent); },
                [=](const Tensor& y) { return y.pow(1 / exponent); },
                [=](const Tensor& x, const Tensor& y) { return (exponent * y / x).abs().log(); }} {
  check_floating(exponent, "PowerTransform");
}

SigmoidTransform::SigmoidTransform()
    : Transform{[](const Tensor& x) { return sigmoid(x); },
                [](const Tensor& y) { return logits_of(y); },
                [](const Tensor& x, const Tensor&) { return -softplus(-x) - softplus(x); }} {}

TanhTransform::TanhTransform()
    : Transform{[](const Tensor& x) { return x.tanh(); }, [](const Tensor& y) { return y.atanh(); },
                [](const Tensor& x, const Tensor&) {
                  return 2 * (std::numbers::ln2 - x - softplus(-2 * x));
                }} {}

SoftplusTransform::SoftplusTransform()
    : Transform{[](const Tensor& x) { return softplus(x); },
                [](const Tensor& y) { return (-(-y).expm1()).log() + y; },
                [](const Tensor& x, const Tensor&) { return -softplus(-x); }} {}

ComposeTransform::ComposeTransform(std::vector<Transform> given) {
  const auto parts = std::make_shared<const std::vector<Transform>>(std::move(given));
  forward = [parts](const Tensor& x) {
    Tensor y = x;
    for (const Transform& t : *parts) y = t(y);
    return y;
  };
  inverse = [parts](const Tensor& y) {
    Tensor x = y;
    for (size_t k = parts->size(); k-- > 0;) x = (*parts)[k].inverse(x);
    return x;
  };
  log_abs_det_jacobian = [parts](const Tensor& x, const Tensor& y) {
    if (parts->empty()) return zeros_like(x);
    Tensor sum, at = x;
    for (const Transform& t : *parts) {
      const Tensor next = &t == &parts->back() ? y : t(at);
      const Tensor slope = t.log_abs_det_jacobian(at, next);
      sum = sum.defined() ? sum + slope : slope;
      at = next;
    }
    return sum;
  };
}

TransformedDistribution::TransformedDistribution(std::shared_ptr<const Distribution> base,
                                                 std::vector<Transform> transforms)
    : base_(std::move(base)), transform_(ComposeTransform(std::move(transforms))) {
  ARETE_CHECK(base_ != nullptr, ValueError(name(), "there is no distribution"));
  batch_ = base_->batch_shape();
  event_ = base_->event_shape();
}
Tensor TransformedDistribution::draw(IntList sizes) const {
  const Tensor x = draw_of(*base_, sizes);
  Tensor y = transform_(x);
  ARETE_CHECK(std::ranges::equal(y.sizes(), x.sizes()),
              ValueError(name(),
                         "the parameters of transforms have dimensions that draws of the "
                         "base have not: give the base parameters of that shape"));
  return y;
}
Tensor TransformedDistribution::log_prob(const Tensor& value) const {
  const Tensor x = transform_.inverse(value);
  Tensor slope = transform_.log_abs_det_jacobian(x, value);
  for (size_t d = 0; d < event_.size(); ++d) slope = slope.sum({-1});
  return base_->log_prob(x) - slope;
}
Tensor TransformedDistribution::entropy() const {
  refuse("the entropy of this distribution has no closed form");
}
Tensor TransformedDistribution::mean() const {
  refuse("the mean of this distribution has no closed form");
}
Tensor TransformedDistribution::variance() const {
  refuse("the variance of this distribution has no closed form");
}

}  // namespace arete::distributions
