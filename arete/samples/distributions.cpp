// Samples, references and errors of the records in ops/distributions.cpp.
#include "arete/core/modes.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/samples/pointwise_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached geometric_op =
    attach("geometric")
        .no_gradient_test()
        .samples(unary_samples(-2, 2, {0.5, std::nullopt}))
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2}), 1.0, std::nullopt},
                   ErrorKind::value,
                   "geometric_ expects p to be in (0, 1), but got p=1.0"}};
        })
        .no_reference(kRandomReference);
const Attached cauchy_op = attach("cauchy")
                               .no_gradient_test()
                               .samples(unary_samples(-2, 2, {1.0, 2.0, std::nullopt}))
                               .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
                                 return {{{m.make({2}), 0.0, 0.0, std::nullopt},
                                          ErrorKind::value,
                                          "cauchy_ expects sigma > 0.0, but found sigma=0.0"}};
                               })
                               .no_reference(kRandomReference);
const Attached log_normal_op = attach("log_normal")
                                   .no_gradient_test()
                                   .samples(unary_samples(-2, 2, {0.0, 0.25, std::nullopt}))
                                   .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
                                     return {{{m.make({2}), 0.0, 0.0, std::nullopt},
                                              ErrorKind::value,
                                              "log_normal_ expects std > 0.0, but found std=0.0"}};
                                   })
                                   .no_reference(kRandomReference);
const Attached randint_like_op =
    attach("randint_like")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), 1, 10, std::nullopt, std::nullopt, std::nullopt}, "both"},
                  {{m.make_strided({2, 3}), 5, std::nullopt, kInt64, m.device, std::nullopt},
                   "high alone"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2}), 3, 3, std::nullopt, std::nullopt, std::nullopt},
                   ErrorKind::value,
                   "random_ expects 'from' to be less than 'to', but got from=3 >= to=3"}};
        })
        .no_reference(kRandomReference);
const Attached normal_tensor_tensor_op =
    attach("normal.Tensor_Tensor")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make({3}, 0.5, 2), std::nullopt}, "broadcast"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2}), m.make({2}, -2, -1), std::nullopt},
                   ErrorKind::value,
                   "normal expects all elements of std >= 0.0"}};
        })
        .no_reference(kRandomReference);
const Attached normal_tensor_float_op =
    attach("normal.Tensor_float")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), 0.5, std::nullopt}, "usual"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2}), -1.0, std::nullopt},
                   ErrorKind::value,
                   "normal expects std >= 0.0, but found std -1.0"}};
        })
        .no_reference(kRandomReference);
const Attached normal_float_tensor_op =
    attach("normal.float_Tensor")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{1.0, m.make({2, 3}, 0.5, 2), std::nullopt}, "usual"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{0.0, m.make({2}, -2, -1), std::nullopt},
                   ErrorKind::value,
                   "normal expects all elements of std >= 0.0"}};
        })
        .no_reference(kRandomReference);
const Attached bernoulli_tensor_op =
    attach("bernoulli.Tensor")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make({3}, 0, 1), std::nullopt}, "broadcast"}};
        })
        .no_reference(kRandomReference);
const Attached poisson_op =
    attach("poisson")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}, 0, 5), std::nullopt}, "small"},
                  {{m.make_strided({2, 3}, 5, 50), std::nullopt}, "small and large"},
                  {{m.make({}, 20, 30), std::nullopt}, "0-d"},
                  {{m.make({0}), std::nullopt}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          if (m.device.is_cuda()) return {};  // there they give NaN
          return {{{m.make({2}, -2, -1), std::nullopt},
                   ErrorKind::value,
                   "invalid Poisson rate, expected rate to be non-negative"}};
        })
        .no_reference(kRandomReference);

const Attached poisson_numbers_op =
    attach("poisson_numbers")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 5}, 0, 50), std::nullopt}, "small and large"}};
        })
        .no_reference(kRandomReference);
const Attached normal_numbers_op =
    attach("normal_numbers")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make({3}, 0.5, 2), 0.0, 1.0, std::nullopt}, "both"},
                  {{m.make_strided({2, 3}), std::nullopt, 0.0, 2.0, std::nullopt}, "mean"},
                  {{std::nullopt, m.make({2, 3}, 0.5, 2), 3.0, 1.0, std::nullopt}, "deviation"}};
        })
        .no_reference(kRandomReference);

}  // namespace
}  // namespace arete::ops
