// What the samples of pointwise records share.
#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include "arete/samples/reference_util.h"

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

/// Samples of one tensor with values in [low, high), and more arguments: usual, strided, 0-d,
/// empty.
std::function<std::vector<Sample>(SampleMaker&)> unary_samples(double low, double high,
                                                               std::vector<OwnedArg> more = {});

/// Samples of two tensors: equal shapes, broadcasting, strided, 0-d, empty, a number.
std::function<std::vector<Sample>(SampleMaker&)> binary_samples(double low1, double high1,
                                                                double low2, double high2,
                                                                std::vector<OwnedArg> more = {});

/// Samples and a reference of a sum of two tensors, the second times alpha: f(a, b, alpha).
std::vector<Sample> sum_samples(SampleMaker& m);
template <class F>
Reference sum_reference(F f) {
  return [f](const Call& c) {
    return std::vector<Tensor>{build_tensor(broadcast_args(c, 2), [&](const Shape& i) {
      return f(at_arg(c[0], i), at_arg(c[1], i), c.scalar(2).to_double());
    })};
  };
}

/// Shapes that do not broadcast.
std::function<std::vector<ErrorSample>(SampleMaker&)> binary_errors(
    std::vector<OwnedArg> more = {});

}  // namespace arete::ops
