// Samples, references and errors of the records in ops/numeric.cpp.
#include <cmath>
#include <numbers>
#include <numeric>

#include "arete/ops/creation.h"
#include "arete/ops/numeric.h"
#include "arete/samples/pointwise_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached rsub_op =
    attach("rsub")
        .samples(sum_samples)
        .errors(binary_errors({1}))
        .reference(sum_reference([](double a, double b, double alpha) { return b - alpha * a; }));
const Attached div_trunc_op =
    attach("div_trunc")
        .samples(binary_samples(-5, 5, 0.7, 2))
        .errors(binary_errors())
        .reference(reference2([](double a, double b) { return std::trunc(a / b); }))
        .no_gradient_test();
const Attached div_mode_op =
    attach("div.Tensor_mode")
        .no_gradient_test()
        .samples([](SampleMaker& m) {
          auto all = binary_samples(-5, 5, 0.7, 2, {"trunc"})(m);
          for (auto& s : binary_samples(-5, 5, 0.7, 2, {"floor"})(m)) all.push_back(s);
          for (auto& s : binary_samples(-5, 5, 0.7, 2, {std::nullopt})(m)) all.push_back(s);
          return all;
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make({2}), m.make({2}), "up"},
                                           ErrorKind::value,
                                           "div expected rounding_mode to be one of None"}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{build_tensor(broadcast_args(c, 2), [&](const Shape& i) {
            const double q = at_arg(c[0], i) / at_arg(c[1], i);
            return !c.has(2) ? q : c[2].string() == "floor" ? std::floor(q) : std::trunc(q);
          })};
        });
const Attached round_decimals_op =
    attach("round.decimals")
        .no_gradient_test()
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}), 0}, "whole"},
                                     {{m.make({2, 3}), 2}, "behind"},
                                     {{m.make_strided({3, 4}, -500, 500), -2}, "before"}};
        })
        .reference([](const Call& c) {
          const double ten = std::pow(10.0, double(c.integer(1)));
          return std::vector<Tensor>{build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
            return std::nearbyint(at(c.tensor(0), i) * ten) / ten;
          })};
        });
const Attached float_power_op =
    attach("float_power")
        .samples(binary_samples(0.3, 3, -2, 2))
        .errors(binary_errors())
        .reference(reference2([](double a, double b) { return std::pow(a, b); }));
const Attached ldexp_op =
    attach("ldexp")
        .samples(binary_samples(-2, 2, -3, 3))
        .errors(binary_errors())
        .reference(reference2([](double a, double b) { return a * std::exp2(b); }));
const Attached frexp_op =
    attach("frexp")
        .samples([](SampleMaker& m) {
          Tensor edges = m.make({5}).detach();
          edges.copy_(tensor({0.0, 1.0, -0.5, 96.0, 1.0 / 1024}));
          return std::vector<Sample>{{{m.make({2, 3}, 0.6, 0.9)}, "one"},
                                     {{m.make_strided({3, 4}, -30, 30)}, "strided"},
                                     {{m.make({}, 2.2, 3)}, "0-d"},
                                     {{edges}, "edges"}};
        })
        .reference([](const Call& c) {
          const Tensor& x = c.tensor(0);
          const auto part = [&](bool mantissa) {
            return build_tensor(
                x.sizes(),
                [&](const Shape& i) {
                  int e = 0;
                  const double m = std::frexp(at(x, i), &e);
                  return mantissa ? m : double(e);
                },
                mantissa ? kFloat64 : kInt64);
          };
          return std::vector<Tensor>{part(true), part(false)};
        });
const Attached logaddexp2_op = attach("logaddexp2")
                                   .samples(binary_samples(-2, 2, -2, 2))
                                   .errors(binary_errors())
                                   .reference(reference2([](double a, double b) {
                                     return std::log2(std::exp2(a) + std::exp2(b));
                                   }));
const Attached heaviside_op =
    attach("heaviside")
        .no_gradient_test()
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({3, 4}).round(), m.make({4})}, "broadcast"},
                                     {{m.make({5}).round(), m.make({5})}, "equal shapes"}};
        })
        .reference(reference2([](double a, double b) { return a == 0  ? b
                                                              : a > 0 ? 1.0
                                                                      : 0.0; }));

std::vector<Sample> whole_samples(SampleMaker& m) {
  return {{{m.make({2, 3}, -11, 11), m.make({2, 3}, -11, 11)}, "equal shapes"},
          {{m.make({2, 1, 3}, -9, 9), m.make({4, 1}, -9, 9)}, "broadcast"},
          {{m.make_strided({3, 4}, -9, 9), m.make({4}, -1, 1)}, "zeros"},
          {{m.make({5}, -11, 11), Scalar(6)}, "a number"}};
}

const Attached gcd_op =
    attach("gcd")
        .samples(whole_samples)
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make({2}).to(kFloat32), m.make({2})},
                                           ErrorKind::not_implemented,
                                           "\"gcd\" not implemented for 'Float'"}};
        })
        .reference(reference2(
            [](double a, double b) { return double(std::gcd(int64_t(a), int64_t(b))); }));
const Attached lcm_op =
    attach("lcm").samples(whole_samples).reference(reference2([](double a, double b) {
      return double(std::lcm(int64_t(a), int64_t(b)));
    }));
const Attached isposinf_op =
    attach("isposinf")
        .samples([](SampleMaker& m) {
          Tensor x = m.make({5}).detach();
          x.copy_(tensor({1.0, HUGE_VAL, -HUGE_VAL, double(NAN), 0.0}));
          return std::vector<Sample>{{{x}, "special values"}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{build_tensor(
              c.tensor(0).sizes(), [&](const Shape& i) { return at(c.tensor(0), i) == HUGE_VAL; },
              kBool)};
        });
const Attached isneginf_op =
    attach("isneginf")
        .samples([](SampleMaker& m) {
          Tensor x = m.make({5}).detach();
          x.copy_(tensor({1.0, HUGE_VAL, -HUGE_VAL, double(NAN), 0.0}));
          return std::vector<Sample>{{{x}, "special values"}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{build_tensor(
              c.tensor(0).sizes(), [&](const Shape& i) { return at(c.tensor(0), i) == -HUGE_VAL; },
              kBool)};
        });
const Attached angle_op =
    attach("angle").samples(unary_samples(-2, 2)).reference(reference1([](double v) {
      return std::isnan(v) ? v : v < 0 ? std::numbers::pi : 0;
    }));
const Attached clamp_op =
    attach("clamp")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({3, 4}), Scalar(-0.5), Scalar(0.75)}, "both"},
                                     {{m.make({3, 4}), std::nullopt, Scalar(0.75)}, "max"},
                                     {{m.make({3, 4}), Scalar(-0.5), std::nullopt}, "min"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make({2}), std::nullopt, std::nullopt},
                                           ErrorKind::value,
                                           "At least one of 'min' or 'max' must not be None"}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
            double v = at(c.tensor(0), i);
            if (c.has(1)) v = std::fmax(v, c.scalar(1).to_double());
            return c.has(2) ? std::fmin(v, c.scalar(2).to_double()) : v;
          })};
        });
const Attached clamp_tensor_op =
    attach("clamp.Tensor")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{
              {{m.make({3, 4}), m.make({4}, -1.5, -0.5), m.make({3, 1}, 0.5, 1.5)}, "both"},
              {{m.make({3, 4}), std::nullopt, m.make({3, 4})}, "max"},
              {{m.make({3, 4}), m.make({3, 4}), std::nullopt}, "min"}};
        })
        .reference([](const Call& c) {
          Shape s(c.tensor(0).sizes());
          for (size_t k : {1, 2})
            if (c.has(k)) s = broadcast_shapes(s, c.tensor(k).sizes(), "clamp");
          return std::vector<Tensor>{build_tensor(s, [&](const Shape& i) {
            double v = at(c.tensor(0), i);
            if (c.has(1)) v = std::fmax(v, at(c.tensor(1), i));
            return c.has(2) ? std::fmin(v, at(c.tensor(2), i)) : v;
          })};
        });
const Attached logit_op =
    attach("logit")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}, 0.1, 0.9), std::nullopt}, "none"},
                                     {{m.make({2, 3}, 0.05, 0.95), 0.2}, "eps"}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
            double v = at(c.tensor(0), i);
            if (c.has(1)) v = std::fmin(std::fmax(v, c.real(1)), 1 - c.real(1));
            return std::log(v / (1 - v));
          })};
        });
const Attached limited_logit_op =
    attach("logit.eps")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}, 0.05, 0.95), 0.2}, "eps"},
                                     {{m.make_strided({3, 4}, 0.05, 0.95), 0.01}, "strided"},
                                     {{m.make({4}, -1, 2), 0.3}, "outside"}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
            const double v = std::fmin(std::fmax(at(c.tensor(0), i), c.real(1)), 1 - c.real(1));
            return std::log(v / (1 - v));
          })};
        });
const Attached nan_to_num_op =
    attach("nan_to_num")
        .no_gradient_test()
        .samples([](SampleMaker& m) {
          Tensor x = m.make({5}).detach();
          x.copy_(tensor({1.0, HUGE_VAL, -HUGE_VAL, double(NAN), 0.0}));
          return std::vector<Sample>{
              {{x, std::nullopt, 7.0, -7.0}, "infinities"},
              {{m.make({2, 3}), std::nullopt, std::nullopt, std::nullopt}, "finite"}};
        })
        .reference([](const Call& c) {
          return std::vector<Tensor>{build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
            const double v = at(c.tensor(0), i);
            if (std::isnan(v)) return c.has(1) ? c.real(1) : 0.0;
            return !std::isinf(v) ? v : v > 0 ? c.real(2) : c.real(3);
          })};
        });

std::vector<Sample> close_samples(SampleMaker& m) {
  const Tensor a = m.make({3, 4}).detach();
  Tensor nan = m.make({3}).detach();
  nan.copy_(tensor({1.0, double(NAN), HUGE_VAL}));
  return {{{a, a.add(m.make_mask({3, 4}).to(m.dtype)), 1e-5, 1e-8, false}, "some differ"},
          {{a, a, 1e-5, 1e-8, false}, "the same"},
          {{nan, nan, 1e-5, 1e-8, false}, "special values"},
          {{nan, nan, 1e-5, 1e-8, true}, "NaN equals NaN"},
          {{a, m.make({4}).detach(), 0.5, 0.5, false}, "broadcast"}};
}

std::vector<ErrorSample> close_errors(SampleMaker& m) {
  return {{{m.make({2}), m.make({2}), -1.0, 0.0, false},
           ErrorKind::value,
           "rtol must be greater than or equal to zero, but got -1"}};
}

bool close(double a, double b, const Call& c) {
  if (std::isnan(a) || std::isnan(b)) return c.boolean(4) && std::isnan(a) && std::isnan(b);
  if (a == b) return true;
  return std::isfinite(a) && std::isfinite(b) &&
         std::fabs(a - b) <= c.real(3) + c.real(2) * std::fabs(b);
}

const Attached isclose_op =
    attach("isclose")
        .no_gradient_test()
        .samples(close_samples)
        .errors(close_errors)
        .reference([](const Call& c) {
          return std::vector<Tensor>{build_tensor(
              broadcast_args(c, 2),
              [&](const Shape& i) { return close(at_arg(c[0], i), at_arg(c[1], i), c); }, kBool)};
        });
const Attached allclose_op =
    attach("allclose")
        .no_gradient_test()
        .samples(close_samples)
        .errors(close_errors)
        .reference([](const Call& c) {
          bool all = true;
          for_each_index(broadcast_args(c, 2), [&](const Shape& i) {
            all = all && close(at_arg(c[0], i), at_arg(c[1], i), c);
          });
          return std::vector<Tensor>{from_values({double(all)}, {}, kBool)};
        });
const Attached equal_op = attach("equal")
                              .no_gradient_test()
                              .samples([](SampleMaker& m) {
                                const Tensor a = m.make({3, 4});
                                return std::vector<Sample>{{{a, a}, "the same"},
                                                           {{a, a.neg()}, "others"},
                                                           {{a, m.make({4})}, "other sizes"},
                                                           {{m.make({0}), m.make({0})}, "empty"}};
                              })
                              .reference([](const Call& c) {
                                const bool all =
                                    c.tensor(0).layout().sizes == c.tensor(1).layout().sizes &&
                                    values_of(c.tensor(0)) == values_of(c.tensor(1));
                                return std::vector<Tensor>{from_values({double(all)}, {}, kBool)};
                              });

}  // namespace
}  // namespace arete::ops
