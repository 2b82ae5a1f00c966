// What the distributions share.
#pragma once

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "arete/core/tensor.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/shape.h"

namespace arete::distributions {

inline constexpr double kPi = std::numbers::pi, kEuler = std::numbers::egamma;
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline void check_floating(const Tensor& t, const char* name) {
  ARETE_CHECK(t.defined() && t.is_floating_point(),
              TypeError(name, "the parameters of a distribution are floating tensors"));
}

// Two parameters of one shape.
inline void broadcast(Tensor& a, Tensor& b, const char* name) {
  check_floating(a, name);
  check_floating(b, name);
  const std::vector<Tensor> both = broadcast_tensors({a, b});
  a = both[0], b = both[1];
}

// Finite for probabilities 0 and 1.
inline Tensor logits_of(const Tensor& probs) {
  const Tensor p = probs.clamp(epsilon_of(probs.dtype()), 1 - epsilon_of(probs.dtype()));
  return p.log() - (-p).log1p();
}

// Logarithms of gamma numbers of rate 1 of this shape, in f32 at least.
Tensor log_gamma_draws(const Tensor& concentration, const Shape& sizes);

inline Tensor exponential_numbers(const Tensor& like, const Shape& sizes) {
  Tensor t = empty(sizes, like.options());
  t.exponential_();
  return t;
}

}  // namespace arete::distributions
