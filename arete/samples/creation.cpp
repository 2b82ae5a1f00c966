// Samples, references and errors of the records in ops/creation.cpp.
#include <cmath>

#include "arete/expr/value.h"
#include "arete/ops/creation.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

std::vector<Sample> size_samples(SampleMaker& m) {
  return {{{{2, 3}, m.dtype, m.device}, "usual"},
          {{std::vector<int64_t>{}, m.dtype, m.device}, "0-d"},
          {{{2, 0}, m.dtype, m.device}, "empty"},
          {{{4}, std::nullopt, m.device}, "default dtype"}};
}

std::vector<ErrorSample> size_errors(SampleMaker& m) {
  return {{{{2, -1}, m.dtype, m.device},
           ErrorKind::value,
           "Trying to create tensor with negative dimension -1: [2, -1]"}};
}

std::vector<Sample> like_samples(SampleMaker& m) {
  return {{{m.make({2, 3}), std::nullopt, std::nullopt}, "usual"},
          {{m.make_strided({2, 3}), kInt64, m.device}, "transposed, other dtype"},
          {{m.make({}), std::nullopt, std::nullopt}, "0-d"},
          {{m.make({0, 2}), std::nullopt, std::nullopt}, "empty"}};
}

const Attached empty_op =
    attach("empty")
        .errors(size_errors)
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{{2, 3}, m.dtype, m.device}, "matrix"},
                                     {{std::vector<int64_t>{}, m.dtype, m.device}, "0-d"}};
        })
        .no_reference(kUnset);
const Attached empty_strided_op =
    attach("empty_strided")
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{{2, 3}, std::vector<int64_t>{1}, m.dtype, m.device},
               ErrorKind::value,
               "dimensionality of sizes (2) must match dimensionality of strides (1)"}};
        })
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{{2, 3}, {1, 2}, m.dtype, m.device}, "column-major"}};
        })
        .no_reference(kUnset);
const Attached zeros_op = attach("zeros")
                              .samples(size_samples)
                              .errors(size_errors)
                              .reference([](const Call& c) -> std::vector<Tensor> {
                                return {build_tensor(c.ints(0), [](const Shape&) { return 0; })};
                              });
const Attached ones_op = attach("ones")
                             .samples(size_samples)
                             .errors(size_errors)
                             .reference([](const Call& c) -> std::vector<Tensor> {
                               return {build_tensor(c.ints(0), [](const Shape&) { return 1; })};
                             });
const Attached full_op =
    attach("full")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{{2, 3}, 2.5, m.dtype, m.device}, "usual"},
                                     {{{2}, 7, std::nullopt, m.device}, "integer"},
                                     {{{2}, true, std::nullopt, m.device}, "boolean"},
                                     {{std::vector<int64_t>{}, -1.0, m.dtype, m.device}, "0-d"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{{-2}, 1.0, m.dtype, m.device},
                                           ErrorKind::value,
                                           "Trying to create tensor with negative dimension -2"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const double v = c.scalar(1).to_double();
          return {build_tensor(c.ints(0), [v](const Shape&) { return v; })};
        });
const Attached empty_like_op =
    attach("empty_like")
        .no_gradient_test()
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make_strided({2, 3}), std::nullopt, std::nullopt}, "strided"}};
        })
        .no_reference(kUnset);
const Attached zeros_like_op =
    attach("zeros_like")
        .no_gradient_test()
        .samples(like_samples)
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {build_tensor(c.tensor(0).sizes(), [](const Shape&) { return 0; })};
        });
const Attached ones_like_op =
    attach("ones_like")
        .no_gradient_test()
        .samples(like_samples)
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {build_tensor(c.tensor(0).sizes(), [](const Shape&) { return 1; })};
        });
const Attached full_like_op =
    attach("full_like")
        .no_gradient_test()
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make({2, 3}), 1.5, std::nullopt, std::nullopt}, "usual"},
              {{m.make_strided({2, 3}), 3, kInt32, m.device}, "transposed, other dtype"},
              {{m.make({}), -2, std::nullopt, std::nullopt}, "0-d"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const double v = c.scalar(1).to_double();
          return {build_tensor(c.tensor(0).sizes(), [v](const Shape&) { return v; })};
        });
const Attached arange_op =
    attach("arange.start")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{0, 5, 1, m.dtype, m.device}, "usual"},
                                     {{1.0, 2.0, 0.25, m.dtype, m.device}, "fractions"},
                                     {{5, -3, -2, std::nullopt, m.device}, "down, int64"},
                                     {{0.5, 3.0, 1, std::nullopt, m.device}, "default dtype"},
                                     {{3, 3, 1, m.dtype, m.device}, "empty"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{0, 5, 0, m.dtype, m.device}, ErrorKind::value, "step must be nonzero"},
              {{0, 5, -1, m.dtype, m.device},
               ErrorKind::value,
               "upper bound and lower bound inconsistent with step sign"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const double a = c.scalar(0).to_double(), b = c.scalar(1).to_double(),
                       s = c.scalar(2).to_double();
          std::vector<double> v;
          for (double x = a; s > 0 ? x < b : x > b; x = a + double(v.size()) * s) v.push_back(x);
          return {from_values(v, {int64_t(v.size())})};
        });
const Attached linspace_op =
    attach("linspace")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{-1.0, 1.0, 5, m.dtype, m.device}, "usual"},
                                     {{3, 0, 4, m.dtype, m.device}, "down"},
                                     {{2.0, 7.0, 1, m.dtype, m.device}, "one"},
                                     {{2.0, 7.0, 0, m.dtype, m.device}, "none"},
                                     {{0, 10, 5, kInt64, m.device}, "integers are truncated"},
                                     {{4.3, -2.7, 9, kInt64, m.device}, "and the ends, too"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{0, 1, -1, m.dtype, m.device},
                                           ErrorKind::value,
                                           "number of steps must be non-negative"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const int64_t n = c.integer(2);
          const bool whole = c.has(3) && is_integer(c[3].dtype());
          double a = c.scalar(0).to_double(), b = c.scalar(1).to_double();
          if (whole) a = std::trunc(a), b = std::trunc(b);
          return {build_tensor({n}, [&](const Shape& i) {
            const double v = n == 1 ? a : a + (b - a) * (double(i[0]) / double(n - 1));
            return whole ? std::trunc(v) : v;
          })};
        });
const Attached logspace_op =
    attach("logspace")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{-1.0, 1.0, 5, 10.0, m.dtype, m.device}, "usual"},
                                     {{0, 3, 4, 2.0, m.dtype, m.device}, "base 2"},
                                     {{1, 3, 0, 10.0, m.dtype, m.device}, "none"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{0, 1, -1, 10.0, m.dtype, m.device},
                                           ErrorKind::value,
                                           "number of steps must be non-negative"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const double a = c.scalar(0).to_double(), b = c.scalar(1).to_double();
          const int64_t n = c.integer(2);
          return {build_tensor({n}, [&](const Shape& i) {
            return std::pow(c.real(3), n == 1 ? a : a + (b - a) * (double(i[0]) / double(n - 1)));
          })};
        });
const Attached eye_op =
    attach("eye")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{3, std::nullopt, m.dtype, m.device}, "square"},
                                     {{2, 4, m.dtype, m.device}, "wide"},
                                     {{4, 2, m.dtype, m.device}, "tall"},
                                     {{0, std::nullopt, m.dtype, m.device}, "empty"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{-1, std::nullopt, m.dtype, m.device},
                                           ErrorKind::value,
                                           "n must be greater or equal to 0, got -1"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const int64_t n = c.integer(0), m = c.has(1) ? c.integer(1) : n;
          return {build_tensor({n, m}, [](const Shape& i) { return i[0] == i[1]; })};
        });

}  // namespace
}  // namespace arete::ops
