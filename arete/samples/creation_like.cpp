// Samples, references and errors of the records in ops/creation_like.cpp.
#include <cmath>

#include "arete/ops/creation.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

Reference constant(double v) {
  return [v](const Call& c) -> std::vector<Tensor> {
    return {build_tensor(c.ints(1), [v](const Shape&) { return v; })};
  };
}

std::vector<Sample> new_samples(SampleMaker& m) {
  return {{{m.make({2}), {2, 3}, std::nullopt, std::nullopt}, "usual"},
          {{m.make({2}), std::vector<int64_t>{}, kInt64, m.device}, "0-d, other dtype"},
          {{m.make({}), {2, 0}, std::nullopt, std::nullopt}, "empty"}};
}

std::vector<ErrorSample> new_errors(SampleMaker& m) {
  return {{{m.make({2}), {2, -1}, std::nullopt, std::nullopt},
           ErrorKind::value,
           "Trying to create tensor with negative dimension -1: [2, -1]"}};
}

const Attached new_zeros_op = attach("new_zeros")
                                  .no_gradient_test()
                                  .samples(new_samples)
                                  .errors(new_errors)
                                  .reference(constant(0));
const Attached new_ones_op = attach("new_ones")
                                 .no_gradient_test()
                                 .samples(new_samples)
                                 .errors(new_errors)
                                 .reference(constant(1));
const Attached new_full_op =
    attach("new_full")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2}), {2, 3}, Scalar(1.5), std::nullopt, std::nullopt}, "usual"},
                  {{m.make({2}), {2}, Scalar(3), kInt64, m.device}, "other dtype"}};
        })
        .reference([](const Call& c) { return constant(c.scalar(2).to_double())(c); });
const Attached new_empty_op = attach("new_empty")
                                  .no_gradient_test()
                                  .samples(new_samples)
                                  .errors(new_errors)
                                  .no_reference(kUnset);
const Attached new_empty_strided_op =
    attach("new_empty_strided")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2}), {2, 3}, {1, 2}, std::nullopt, std::nullopt}, "column-major"}};
        })
        .no_reference(kUnset);
const Attached empty_permuted_op =
    attach("empty_permuted")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{{2, 3, 4}, {0, 2, 1}, m.dtype, m.device}, "usual"},
                  {{std::vector<int64_t>{}, std::vector<int64_t>{}, m.dtype, m.device}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {
              {{{2, 3}, {0}, m.dtype, m.device},
               ErrorKind::value,
               "Number of dimensions in size does not match the length of the physical_layout"},
              {{{2, 3}, {0, 0}, m.dtype, m.device}, ErrorKind::value, "Duplicate dim not allowed"}};
        })
        .no_reference(kUnset);
const Attached scalar_tensor_op =
    attach("scalar_tensor")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{Scalar(1.5), m.dtype, m.device}, "usual"},
                  {{Scalar(3), std::nullopt, m.device}, "default dtype"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {from_values({c.scalar(0).to_double()}, {})};
        });

std::vector<ErrorSample> ends_errors(SampleMaker& m, const std::string& name,
                                     std::vector<OwnedArg> rest) {
  ErrorSample e{{m.make({1}), m.make({})},
                ErrorKind::value,
                name +
                    " only supports 0-dimensional start and end tensors, but got start with 1 "
                    "dimension(s) and end with 0 dimension(s)."};
  e.args.insert(e.args.end(), rest.begin(), rest.end());
  return {e};
}

const Attached linspace_tensor_op =
    attach("linspace.Tensor_Tensor")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({}), m.make({}), 5, m.dtype, m.device}, "usual"},
                  {{m.make({}), m.make({}), 1, m.dtype, std::nullopt}, "one"}};
        })
        .errors([](SampleMaker& m) {
          return ends_errors(m, "linspace", {3, m.dtype, m.device});
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const double a = values_of(c.tensor(0))[0], b = values_of(c.tensor(1))[0];
          const int64_t n = c.integer(2);
          return {build_tensor({n}, [&](const Shape& i) {
            return n == 1 ? a : a + (b - a) * (double(i[0]) / double(n - 1));
          })};
        });
const Attached logspace_tensor_op =
    attach("logspace.Tensor_Tensor")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({}), m.make({}), 5, 2.0, m.dtype, m.device}, "usual"}};
        })
        .errors([](SampleMaker& m) {
          return ends_errors(m, "logspace", {3, 2.0, m.dtype, m.device});
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const double a = values_of(c.tensor(0))[0], b = values_of(c.tensor(1))[0];
          const int64_t n = c.integer(2);
          return {build_tensor({n}, [&](const Shape& i) {
            return std::pow(c.real(3), n == 1 ? a : a + (b - a) * (double(i[0]) / double(n - 1)));
          })};
        });

}  // namespace
}  // namespace arete::ops
