// Samples, references and errors of the records in ops/binary.cpp.
#include <cmath>

#include "arete/ops/fft.h"
#include "arete/samples/pointwise_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

// Values that are equal now and then.
std::vector<Sample> comparison_samples(SampleMaker& m) {
  const auto whole = [&](IntList sizes) {
    const Tensor t = m.make(sizes);
    return is_complex(t.dtype()) ? view_as_complex_copy(view_as_real_copy(t).round()) : t.round();
  };
  const Tensor a = whole({3, 4}), b = whole({4});
  return {
      {{a, b}, "broadcast"}, {{a, Scalar(1)}, "a number"}, {{m.make({0}), m.make({1})}, "empty"}};
}

std::vector<Sample> integer_samples(SampleMaker& m) {
  return {{{m.make({2, 3}, -20, 20), m.make({3}, -20, 20)}, "broadcast"},
          {{m.make({5}, -20, 20), Scalar(5)}, "a number"}};
}

std::vector<Sample> shift_samples(SampleMaker& m) {
  return {{{m.make({2, 3}, 0, 15), m.make({3}, 0, 3)}, "broadcast"}};
}

template <class F>
Reference comparison_reference(F f) {
  return [f](const Call& c) {
    return std::vector<Tensor>{build_tensor(
        broadcast_args(c, 2), [&](const Shape& i) { return f(at_arg(c[0], i), at_arg(c[1], i)); },
        kBool)};
  };
}

const Attached add_op =
    attach("add")
        .samples(sum_samples)
        .errors(binary_errors({1}))
        .reference(sum_reference([](double a, double b, double alpha) { return a + alpha * b; }));
const Attached sub_op =
    attach("sub")
        .samples(sum_samples)
        .errors(binary_errors({1}))
        .reference(sum_reference([](double a, double b, double alpha) { return a - alpha * b; }));
const Attached mul_op = attach("mul")
                            .samples(binary_samples(-2, 2, -2, 2))
                            .errors(binary_errors())
                            .reference(reference2([](double a, double b) { return a * b; }));
const Attached div_op = attach("div")
                            .samples(binary_samples(-2, 2, 0.5, 3))
                            .errors(binary_errors())
                            .reference(reference2([](double a, double b) { return a / b; }));
const Attached atan2_op =
    attach("atan2")
        .samples(binary_samples(-2, 2, 0.5, 3))
        .errors(binary_errors())
        .reference(reference2([](double a, double b) { return std::atan2(a, b); }));
const Attached copysign_op =
    attach("copysign")
        .samples(binary_samples(0.5, 2, 0.5, 2))
        .errors(binary_errors())
        .reference(reference2([](double a, double b) { return std::copysign(a, b); }));
const Attached fmod_op =
    attach("fmod")
        .samples(binary_samples(-5, 5, 0.7, 2))
        .errors(binary_errors())
        .reference(reference2([](double a, double b) { return std::fmod(a, b); }));
const Attached remainder_op =
    attach("remainder")
        .samples(binary_samples(-5, 5, 0.7, 2))
        .errors(binary_errors())
        .reference(reference2([](double a, double b) { return a - b * std::floor(a / b); }));
const Attached floor_divide_op =
    attach("floor_divide")
        .samples(binary_samples(-5, 5, 0.7, 2))
        .errors(binary_errors())
        .reference(reference2([](double a, double b) { return std::floor(a / b); }))
        .no_gradient_test();
const Attached maximum_op = attach("maximum")
                                .samples(binary_samples(-2, 2, -2, 2))
                                .errors(binary_errors())
                                .reference(reference2([](double a, double b) {
                                  return std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b);
                                }));
const Attached minimum_op = attach("minimum")
                                .samples(binary_samples(-2, 2, -2, 2))
                                .errors(binary_errors())
                                .reference(reference2([](double a, double b) {
                                  return std::isnan(a) || std::isnan(b) ? NAN : std::fmin(a, b);
                                }));
const Attached fmax_op =
    attach("fmax")
        .samples(binary_samples(-2, 2, -2, 2))
        .errors(binary_errors())
        .reference(reference2([](double a, double b) { return std::fmax(a, b); }));
const Attached fmin_op =
    attach("fmin")
        .samples(binary_samples(-2, 2, -2, 2))
        .errors(binary_errors())
        .reference(reference2([](double a, double b) { return std::fmin(a, b); }));
const Attached logaddexp_op = attach("logaddexp")
                                  .samples(binary_samples(-2, 2, -2, 2))
                                  .errors(binary_errors())
                                  .reference(reference2([](double a, double b) {
                                    return std::log(std::exp(a) + std::exp(b));
                                  }));
const Attached xlogy_op =
    attach("xlogy")
        .samples(binary_samples(0.5, 2, 0.5, 2))
        .errors(binary_errors())
        .reference(reference2([](double a, double b) { return a == 0 ? 0 : a * std::log(b); }));
const Attached eq_op =
    attach("eq")
        .samples(comparison_samples)
        .errors(binary_errors())
        .reference(comparison_reference([](double a, double b) { return a == b; }));
const Attached ne_op =
    attach("ne")
        .samples(comparison_samples)
        .errors(binary_errors())
        .reference(comparison_reference([](double a, double b) { return a != b; }));
const Attached lt_op =
    attach("lt")
        .samples(comparison_samples)
        .errors(binary_errors())
        .reference(comparison_reference([](double a, double b) { return a < b; }));
const Attached le_op =
    attach("le")
        .samples(comparison_samples)
        .errors(binary_errors())
        .reference(comparison_reference([](double a, double b) { return a <= b; }));
const Attached gt_op =
    attach("gt")
        .samples(comparison_samples)
        .errors(binary_errors())
        .reference(comparison_reference([](double a, double b) { return a > b; }));
const Attached ge_op =
    attach("ge")
        .samples(comparison_samples)
        .errors(binary_errors())
        .reference(comparison_reference([](double a, double b) { return a >= b; }));
const Attached logical_and_op =
    attach("logical_and")
        .samples(comparison_samples)
        .errors(binary_errors())
        .reference(comparison_reference([](double a, double b) { return (a != 0) && (b != 0); }));
const Attached logical_or_op =
    attach("logical_or")
        .samples(comparison_samples)
        .errors(binary_errors())
        .reference(comparison_reference([](double a, double b) { return (a != 0) || (b != 0); }));
const Attached logical_xor_op =
    attach("logical_xor")
        .samples(comparison_samples)
        .errors(binary_errors())
        .reference(comparison_reference([](double a, double b) { return (a != 0) != (b != 0); }));
const Attached bitwise_and_op =
    attach("bitwise_and").samples(integer_samples).reference(reference2([](double a, double b) {
      return double(int64_t(a) & int64_t(b));
    }));
const Attached bitwise_or_op =
    attach("bitwise_or").samples(integer_samples).reference(reference2([](double a, double b) {
      return double(int64_t(a) | int64_t(b));
    }));
const Attached bitwise_xor_op =
    attach("bitwise_xor").samples(integer_samples).reference(reference2([](double a, double b) {
      return double(int64_t(a) ^ int64_t(b));
    }));
const Attached bitwise_left_shift_op =
    attach("bitwise_left_shift")
        .samples(shift_samples)
        .reference(reference2([](double a, double b) { return double(int64_t(a) << int64_t(b)); }));
const Attached bitwise_right_shift_op =
    attach("bitwise_right_shift")
        .samples(shift_samples)
        .reference(reference2([](double a, double b) { return double(int64_t(a) >> int64_t(b)); }));
const Attached pow_op =
    attach("pow")
        .samples([](SampleMaker& m) {
          auto all = binary_samples(0.3, 3, -2, 2)(m);
          all.push_back({{m.make({5}), Scalar(3)}, "negative base, whole exponent"});
          return all;
        })
        .errors(binary_errors())
        .reference(reference2([](double a, double b) { return std::pow(a, b); }));
const Attached hypot_op =
    attach("hypot")
        .samples(binary_samples(-2, 2, 0.5, 2))
        .errors(binary_errors())
        .reference(reference2([](double a, double b) { return std::hypot(a, b); }));
const Attached nextafter_op =
    attach("nextafter")
        .samples(binary_samples(-2, 2, -2, 2))
        .errors(binary_errors())
        .reference(reference2([](double a, double b) { return std::nextafter(a, b); }))
        .no_gradient_test();

}  // namespace
}  // namespace arete::ops
