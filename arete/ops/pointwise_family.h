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
inline double at_arg(const Arg& a, IntList index) {
  return a.kind() == Arg::Kind::tensor ? at(a.tensor(), index) : a.scalar().to_double();
}

/// The broadcast sizes of the first n arguments.
inline Shape broadcast_args(const Call& c, size_t n) {
  Shape s;
  for (size_t i = 0; i < n; ++i)
    if (c[i].kind() == Arg::Kind::tensor) s = broadcast_shapes(s, c.tensor(i).sizes(), c.name());
  return s;
}

/// A reference from a function of two doubles; further arguments are the record's parameters.
template <class F>
Reference reference2(F f) {
  return [f](const Call& c) {
    return std::vector<Tensor>{build_tensor(
        broadcast_args(c, 2), [&](const Shape& i) { return f(at_arg(c[0], i), at_arg(c[1], i)); })};
  };
}

/// Samples of one tensor with values in [low, high): usual, strided, 0-d, empty.
inline std::function<std::vector<Sample>(SampleMaker&)> unary_samples(double low, double high) {
  return [=](SampleMaker& m) {
    return std::vector<Sample>{{{m.make({2, 3}, low, high)}, "matrix"},
                               {{m.make_strided({3, 4}, low, high)}, "strided"},
                               {{m.make({}, low, high)}, "0-d"},
                               {{m.make({0, 3}, low, high)}, "empty"},
                               {{m.make({17}, low, high)}, "odd length"}};
  };
}

/// Samples of two tensors: equal shapes, broadcasting, strided, 0-d, empty, a number.
inline std::function<std::vector<Sample>(SampleMaker&)> binary_samples(
    double low1, double high1, double low2, double high2, std::vector<OwnedArg> more = {}) {
  return [=](SampleMaker& m) {
    std::vector<Sample> all{
        {{m.make({2, 3}, low1, high1), m.make({2, 3}, low2, high2)}, "equal shapes"},
        {{m.make({2, 1, 3}, low1, high1), m.make({4, 1}, low2, high2)}, "broadcast"},
        {{m.make_strided({3, 4}, low1, high1), m.make({4}, low2, high2)}, "strided"},
        {{m.make({}, low1, high1), m.make({3}, low2, high2)}, "0-d and 1-d"},
        {{m.make({0, 3}, low1, high1), m.make({3}, low2, high2)}, "empty"},
        {{m.make({5}, low1, high1), Scalar((low2 + high2) / 2 + 0.25)}, "a number"}};
    for (Sample& s : all) s.args.insert(s.args.end(), more.begin(), more.end());
    return all;
  };
}

/// Shapes that do not broadcast.
inline std::function<std::vector<ErrorSample>(SampleMaker&)> binary_errors(
    std::vector<OwnedArg> more = {}) {
  return [=](SampleMaker& m) {
    std::vector<ErrorSample> all{{{m.make({2, 3}), m.make({2, 4})},
                                  ErrorKind::value,
                                  "The size of tensor a (3) must match the size of tensor b (4)"}};
    for (ErrorSample& s : all) s.args.insert(s.args.end(), more.begin(), more.end());
    return all;
  };
}

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
