// What the files of pointwise records share: short forms that tie a record to its free function,
// its method and its in-place method.
#pragma once

#include <cmath>

#include "arete/ops/call.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reference_util.h"

namespace arete::ops {

/// A reference from a function of one double.
template <class F>
Reference reference1(F f) {
  return [f](const Call& c) {
    const Tensor& x = c.tensor(0);
    return std::vector<Tensor>{
        build_tensor(x.sizes(), [&](const Shape& i) { return f(at(x, i)); })};
  };
}

/// An argument that may be a tensor or a number, at a broadcast index.
double at_arg(const Arg& a, IntList index);

/// The broadcast sizes of the first n arguments.
Shape broadcast_args(const Call& c, size_t n);

/// A reference from a function of two doubles; further arguments are the record's parameters.
template <class F>
Reference reference2(F f) {
  return [f](const Call& c) {
    return std::vector<Tensor>{build_tensor(
        broadcast_args(c, 2), [&](const Shape& i) { return f(at_arg(c[0], i), at_arg(c[1], i)); })};
  };
}

/// start + weight * (end - start) within a program. Two forms, so that weight 1 gives `end` exactly
/// and the result moves monotonically.
inline expr::Value lerp(expr::Value start, expr::Value end, expr::Value weight) {
  const expr::Value gap = end - start;
  return where(abs(weight) < 0.5, start + weight * gap, end - gap * (1.0 - weight));
}

/// Samples of one tensor with values in [low, high): usual, strided, 0-d, empty.
std::function<std::vector<Sample>(SampleMaker&)> unary_samples(double low, double high);

/// Samples of two tensors: equal shapes, broadcasting, strided, 0-d, empty, a number.
std::function<std::vector<Sample>(SampleMaker&)> binary_samples(double low1, double high1,
                                                                double low2, double high2,
                                                                std::vector<OwnedArg> more = {});

/// Shapes that do not broadcast.
std::function<std::vector<ErrorSample>(SampleMaker&)> binary_errors(
    std::vector<OwnedArg> more = {});

}  // namespace arete::ops

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
