// Samples, references and errors of the records in ops/random.cpp.
#include "arete/core/modes.h"
#include "arete/samples/pointwise_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached rand_op =
    attach("rand")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{{2, 3}, m.dtype, m.device, std::nullopt}, ""}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{{2}, kInt64, m.device, std::nullopt},
                                           ErrorKind::type,
                                           "\"rand\" not implemented for 'int64'"}};
        })
        .no_reference(kRandomReference);
const Attached randn_op =
    attach("randn")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{{2, 3}, m.dtype, m.device, std::nullopt}, ""}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{{2}, kInt64, m.device, std::nullopt},
                                           ErrorKind::type,
                                           "\"randn\" not implemented for 'int64'"}};
        })
        .no_reference(kRandomReference);
const Attached normal_sized_op =
    attach("normal.float_float")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{1.0, 2.0, {2, 3}, m.dtype, m.device, std::nullopt}, ""}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{0.0, -1.0, {2}, m.dtype, m.device, std::nullopt},
                                           ErrorKind::value,
                                           "normal expects std >= 0.0, but found std -1.0"}};
        })
        .no_reference(kRandomReference);
const Attached rand_like_op =
    attach("rand_like")
        .no_gradient_test()
        .samples(unary_samples(-2, 2, {std::nullopt, std::nullopt, std::nullopt}))
        .no_reference(kRandomReference);
const Attached randn_like_op =
    attach("randn_like")
        .no_gradient_test()
        .samples(unary_samples(-2, 2, {std::nullopt, std::nullopt, std::nullopt}))
        .no_reference(kRandomReference);
const Attached randint_op =
    attach("randint.low")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{-3, 4, {2, 3}, m.dtype, m.device, std::nullopt}, ""},
                                     {{0, 9, {4}, std::nullopt, m.device, std::nullopt}, "int64"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{2, 2, {2}, m.dtype, m.device, std::nullopt},
                                           ErrorKind::value,
                                           "random_ expects 'from' to be less than 'to', but got "
                                           "from=2 >= to=2"}};
        })
        .no_reference(kRandomReference);
const Attached randperm_op =
    attach("randperm")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{5, std::nullopt, m.device, std::nullopt}, ""},
                                     {{4, m.dtype, m.device, std::nullopt}, "other dtype"},
                                     {{0, std::nullopt, m.device, std::nullopt}, "empty"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{-1, std::nullopt, m.device, std::nullopt},
                                           ErrorKind::value,
                                           "n must be non-negative, got -1"}};
        })
        .no_reference(kRandomReference);
const Attached bernoulli_op =
    attach("bernoulli")
        .no_gradient_test()
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}, 0, 1), std::nullopt, std::nullopt}, ""},
                                     {{m.make_strided({2, 3}), 0.25, std::nullopt}, "one p"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make({2}), 1.5, std::nullopt},
                                           ErrorKind::value,
                                           "bernoulli expects p to be in [0, 1], but got p=1.5"}};
        })
        .no_reference(kRandomReference);
const Attached uniform_op =
    attach("uniform")
        .no_gradient_test()
        .samples(unary_samples(-2, 2, {-1.0, 1.0, std::nullopt}))
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2}), 1.0, 0.0, std::nullopt},
               ErrorKind::value,
               "uniform_ expects to return a [from, to) range, but found from=1.0 > to=0.0"}};
        })
        .no_reference(kRandomReference);
const Attached normal_op =
    attach("normal_functional")
        .no_gradient_test()
        .samples(unary_samples(-2, 2, {1.0, 0.5, std::nullopt}))
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make({2}), 0.0, -1.0, std::nullopt},
                                           ErrorKind::value,
                                           "normal expects std >= 0.0, but found std -1.0"}};
        })
        .no_reference(kRandomReference);
const Attached random_op =
    attach("random_functional")
        .no_gradient_test()
        .samples([](SampleMaker& m) {
          std::vector<Sample> all = unary_samples(-2, 2, {0, 10, std::nullopt})(m);
          all.push_back({{m.make({4}), 5, std::nullopt, std::nullopt}, "to alone"});
          all.push_back({{m.make({4}), std::nullopt, std::nullopt, std::nullopt}, "no bounds"});
          return all;
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2}), 3, 3, std::nullopt},
               ErrorKind::value,
               "random_ expects 'from' to be less than 'to', but got from=3 >= to=3"}};
        })
        .no_reference(kRandomReference);
const Attached exponential_op =
    attach("exponential")
        .no_gradient_test()
        .samples(unary_samples(-2, 2, {2.0, std::nullopt}))
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2}), 0.0, std::nullopt},
               ErrorKind::value,
               "exponential_ expects lambda > 0.0, but found lambda=0.0"}};
        })
        .no_reference(kRandomReference);

}  // namespace
}  // namespace arete::ops
