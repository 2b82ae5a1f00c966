// What the files of pointwise records share: short forms that tie a record to its free function,
// its method and its in-place method.
#pragma once

#include "arete/ops/call.h"
#include "arete/ops/pointwise.h"

namespace arete::ops {

/// start + weight * (end - start) within a program. Two forms, so that weight 1 gives `end` exactly
/// and the result moves monotonically.
inline expr::Value lerp(expr::Value start, expr::Value end, expr::Value weight) {
  const expr::Value gap = end - start;
  return where(abs(weight) < 0.5, start + weight * gap, end - gap * (1.0 - weight));
}

/// log(1 + exp(z)) within a program. Beyond 40 that is z in f64, too; the exponent is kept from
/// overflowing so that the derivative of the branch not taken stays finite.
inline expr::Value soft_plus(expr::Value z) {
  return where(z > 40.0, z, log1p(exp(where(z > 40.0, 40.0, z))));
}

/// Gradients of log(base^a + base^b). The symbolic derivative has a kink where both are equal.
inline std::vector<expr::Value> shares_of_log_sum(std::span<const expr::Value> v, double log_base) {
  const expr::Value &a = v[0], &b = v[1], &grad = v[3];
  const expr::Value same = (a == b) & is_inf(a);
  const expr::Value gap = where(same, 0.0, a - b) * log_base;
  return {grad * sigmoid(gap), grad * sigmoid(-gap)};
}

}  // namespace arete::ops

namespace arete {
/// nan_to_num in place.
Tensor& nan_to_num_(Tensor& self, double nan, std::optional<double> posinf,
                    std::optional<double> neginf);
}  // namespace arete

/// Free function, method and in-place method of a unary record called <name>_op.
#define ARETE_DEFINE_UNARY(name)                                                           \
  namespace arete {                                                                        \
  Tensor name(const Tensor& self) { return ops::call(ops::name##_op, {self}); }            \
  Tensor Tensor::name() const { return ops::call(ops::name##_op, {*this}); }               \
  Tensor& Tensor::name##_() { return ops::call_in_place(*this, ops::name##_op, {*this}); } \
  }
/// The same for a binary record, with numbers on either side.
#define ARETE_DEFINE_BINARY(name)                                                               \
  namespace arete {                                                                             \
  Tensor name(const Tensor& self, const Tensor& other) {                                        \
    return ops::call(ops::name##_op, {self, other});                                            \
  }                                                                                             \
  Tensor name(const Tensor& self, Scalar other) {                                               \
    return ops::call(ops::name##_op, {self, other});                                            \
  }                                                                                             \
  Tensor name(Scalar self, const Tensor& other) {                                               \
    return ops::call(ops::name##_op, {self, other});                                            \
  }                                                                                             \
  Tensor Tensor::name(const Tensor& other) const {                                              \
    return ops::call(ops::name##_op, {*this, other});                                           \
  }                                                                                             \
  Tensor Tensor::name(Scalar other) const { return ops::call(ops::name##_op, {*this, other}); } \
  Tensor& Tensor::name##_(const Tensor& other) {                                                \
    return ops::call_in_place(*this, ops::name##_op, {*this, other});                           \
  }                                                                                             \
  Tensor& Tensor::name##_(Scalar other) {                                                       \
    return ops::call_in_place(*this, ops::name##_op, {*this, other});                           \
  }                                                                                             \
  }
