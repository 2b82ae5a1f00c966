// Samples, references and errors of the records in ops/unary.cpp.
#include <cmath>

#include "arete/core/modes.h"
#include "arete/samples/pointwise_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

double digamma_reference(double x) {
  // Recurrence up to 30, then the asymptotic series (DLMF 5.11.2), exact to 1e-17 there.
  double shift = 0;
  while (x < 30) {
    shift -= 1 / x;
    x += 1;
  }
  const double y = 1 / (x * x);
  return shift + std::log(x) - 0.5 / x -
         y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y / 132))));
}

double erfinv_reference(double y) {
  // Newton on erf from a rough start: independent of the program's polynomial.
  double x = y * 0.886;
  for (int i = 0; i < 60; ++i) x -= (std::erf(x) - y) / (M_2_SQRTPI * std::exp(-x * x));
  return x;
}

const Attached abs_op =
    attach("abs").samples(unary_samples(-2, 2)).reference(reference1([](double v) {
      return std::fabs(v);
    }));
const Attached sign_op =
    attach("sign").samples(unary_samples(-2, 2)).reference(reference1([](double v) {
      return double((v > 0) - (v < 0));
    }));
const Attached sgn_op =
    attach("sgn").samples(unary_samples(-2, 2)).reference(reference1([](double v) {
      return double((v > 0) - (v < 0));
    }));
const Attached floor_op =
    attach("floor").samples(unary_samples(-2, 2)).reference(reference1([](double v) {
      return std::floor(v);
    }));
const Attached ceil_op =
    attach("ceil").samples(unary_samples(-2, 2)).reference(reference1([](double v) {
      return std::ceil(v);
    }));
const Attached trunc_op =
    attach("trunc").samples(unary_samples(-2, 2)).reference(reference1([](double v) {
      return std::trunc(v);
    }));
const Attached round_op =
    attach("round").samples(unary_samples(-2, 2)).reference(reference1([](double v) {
      return std::nearbyint(v);
    }));
const Attached frac_op =
    attach("frac").samples(unary_samples(-2, 2)).reference(reference1([](double v) {
      return v - std::trunc(v);
    }));
const Attached sqrt_op =
    attach("sqrt").samples(unary_samples(0.1, 4)).reference(reference1([](double v) {
      return std::sqrt(v);
    }));
const Attached rsqrt_op =
    attach("rsqrt").samples(unary_samples(0.1, 4)).reference(reference1([](double v) {
      return 1 / std::sqrt(v);
    }));
const Attached square_point_op =
    attach("square_point").samples(unary_samples(-2, 2)).reference(reference1([](double v) {
      return v * v;
    }));
const Attached square_op = attach("square")
                               .samples([](SampleMaker& m) {
                                 auto all = unary_samples(-2, 2)(m);
                                 all.push_back({{m.make_mask({5})}, "bool"});
                                 return all;
                               })
                               .reference(reference1([](double v) { return v * v; }));
const Attached reciprocal_op =
    attach("reciprocal").samples(unary_samples(0.2, 3)).reference(reference1([](double v) {
      return 1 / v;
    }));
const Attached exp_op =
    attach("exp").samples(unary_samples(-3, 3)).reference(reference1([](double v) {
      return std::exp(v);
    }));
const Attached exp2_op =
    attach("exp2").samples(unary_samples(-3, 3)).reference(reference1([](double v) {
      return std::exp2(v);
    }));
const Attached expm1_op =
    attach("expm1").samples(unary_samples(-2, 2)).reference(reference1([](double v) {
      return std::expm1(v);
    }));
const Attached log_op =
    attach("log").samples(unary_samples(0.1, 4)).reference(reference1([](double v) {
      return std::log(v);
    }));
const Attached log2_op =
    attach("log2").samples(unary_samples(0.1, 4)).reference(reference1([](double v) {
      return std::log2(v);
    }));
const Attached log10_op =
    attach("log10").samples(unary_samples(0.1, 4)).reference(reference1([](double v) {
      return std::log10(v);
    }));
const Attached log1p_op =
    attach("log1p").samples(unary_samples(-0.9, 3)).reference(reference1([](double v) {
      return std::log1p(v);
    }));
const Attached sin_op =
    attach("sin").samples(unary_samples(-4, 4)).reference(reference1([](double v) {
      return std::sin(v);
    }));
const Attached cos_op =
    attach("cos").samples(unary_samples(-4, 4)).reference(reference1([](double v) {
      return std::cos(v);
    }));
const Attached tan_op =
    attach("tan").samples(unary_samples(-1.2, 1.2)).reference(reference1([](double v) {
      return std::tan(v);
    }));
const Attached asin_op =
    attach("asin").samples(unary_samples(-0.9, 0.9)).reference(reference1([](double v) {
      return std::asin(v);
    }));
const Attached acos_op =
    attach("acos").samples(unary_samples(-0.9, 0.9)).reference(reference1([](double v) {
      return std::acos(v);
    }));
const Attached atan_op =
    attach("atan").samples(unary_samples(-3, 3)).reference(reference1([](double v) {
      return std::atan(v);
    }));
const Attached sinh_op =
    attach("sinh").samples(unary_samples(-3, 3)).reference(reference1([](double v) {
      return std::sinh(v);
    }));
const Attached cosh_op =
    attach("cosh").samples(unary_samples(-3, 3)).reference(reference1([](double v) {
      return std::cosh(v);
    }));
const Attached tanh_op =
    attach("tanh").samples(unary_samples(-3, 3)).reference(reference1([](double v) {
      return std::tanh(v);
    }));
const Attached asinh_op =
    attach("asinh").samples(unary_samples(-3, 3)).reference(reference1([](double v) {
      return std::asinh(v);
    }));
const Attached acosh_op =
    attach("acosh").samples(unary_samples(1.2, 4)).reference(reference1([](double v) {
      return std::acosh(v);
    }));
const Attached atanh_op =
    attach("atanh").samples(unary_samples(-0.9, 0.9)).reference(reference1([](double v) {
      return std::atanh(v);
    }));
const Attached erf_op =
    attach("erf").samples(unary_samples(-3, 3)).reference(reference1([](double v) {
      return std::erf(v);
    }));
const Attached erfc_op =
    attach("erfc").samples(unary_samples(-2, 3)).reference(reference1([](double v) {
      return std::erfc(v);
    }));
const Attached lgamma_op =
    attach("lgamma").samples(unary_samples(0.5, 6)).reference(reference1([](double v) {
      return std::lgamma(v);
    }));
const Attached sigmoid_op =
    attach("sigmoid").samples(unary_samples(-5, 5)).reference(reference1([](double v) {
      return 1 / (1 + std::exp(-v));
    }));
const Attached logit_op =
    attach("logit_point").samples(unary_samples(0.1, 0.9)).reference(reference1([](double v) {
      return std::log(v / (1 - v));
    }));
const Attached deg2rad_op =
    attach("deg2rad").samples(unary_samples(-200, 200)).reference(reference1([](double v) {
      return v * M_PI / 180;
    }));
const Attached rad2deg_op =
    attach("rad2deg").samples(unary_samples(-4, 4)).reference(reference1([](double v) {
      return v * 180 / M_PI;
    }));
const Attached neg_op =
    attach("neg")
        .samples(unary_samples(-2, 2))
        .reference(reference1([](double v) { return -v; }))
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make_mask({2})}, ErrorKind::type, "Negation"}};
        });
const Attached positive_op =
    attach("positive").samples(unary_samples(-2, 2)).reference(reference1([](double v) {
      return v;
    }));
const Attached erfinv_op =
    attach("erfinv").samples(unary_samples(-0.9, 0.9)).reference(reference1(erfinv_reference));
const Attached digamma_op =
    attach("digamma").samples(unary_samples(0.5, 6)).reference(reference1(digamma_reference));
const Attached sinc_op =
    attach("sinc").samples(unary_samples(0.1, 3)).reference(reference1([](double v) {
      return v == 0 ? 1 : std::sin(M_PI * v) / (M_PI * v);
    }));
const Attached relu_op =
    attach("relu").samples(unary_samples(-2, 2)).reference(reference1([](double v) {
      return v > 0 ? v : 0;
    }));
const Attached logical_not_op =
    attach("logical_not")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}).mul(m.make_mask({2, 3}))}, "some zeros"},
                                     {{m.make_mask({5})}, "bool"}};
        })
        .reference([](const Call& c) {
          const Tensor& x = c.tensor(0);
          return std::vector<Tensor>{build_tensor(
              x.sizes(), [&](const Shape& i) { return at(x, i) == 0; }, kBool)};
        });
const Attached bitwise_not_op =
    attach("bitwise_not")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}, -20, 20)}, "integers"}};
        })
        .reference(reference1([](double v) { return double(~int64_t(v)); }));

std::vector<Sample> special_values(SampleMaker& m) {
  Tensor x = m.make({6});
  const double values[] = {0.0, -0.0, NAN, INFINITY, -INFINITY, 1.5};
  NoGradGuard no_grad;
  for (int i = 0; i < 6; ++i) x[i].fill_(values[i]);
  return {{{x}, "special values"}, {{m.make({2, 2})}, "finite"}};
}

template <class F>
Reference mask_reference(F f) {
  return [f](const Call& c) {
    const Tensor& x = c.tensor(0);
    return std::vector<Tensor>{build_tensor(
        x.sizes(), [&](const Shape& i) { return f(at(x, i)); }, kBool)};
  };
}

const Attached isnan_op =
    attach("isnan").samples(special_values).reference(mask_reference([](double v) {
      return std::isnan(v);
    }));
const Attached isinf_op =
    attach("isinf").samples(special_values).reference(mask_reference([](double v) {
      return std::isinf(v);
    }));
const Attached isfinite_op =
    attach("isfinite").samples(special_values).reference(mask_reference([](double v) {
      return std::isfinite(v);
    }));
const Attached signbit_op =
    attach("signbit")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({7})}, "values"}};
        })
        .reference(mask_reference([](double v) { return std::signbit(v); }));
std::vector<Tensor> finite_reference(const Call& c) {
  return {build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
    const double v = at(c.tensor(0), i);
    return std::isnan(v) ? c.real(1) : std::isinf(v) ? (v > 0 ? c.real(2) : c.real(3)) : v;
  })};
}
std::vector<Sample> finite_samples(SampleMaker& m, double largest) {
  std::vector<Sample> all = special_values(m);
  for (Sample& s : all) s.args.insert(s.args.end(), {0.5, largest, -largest});
  return all;
}
const Attached nan_to_num_op = attach("nan_to_num_point")
                                   .samples([](SampleMaker& m) { return finite_samples(m, 7.0); })
                                   .reference(finite_reference)
                                   .no_gradient_test();
const Attached nan_to_bounds_op =
    attach("nan_to_bounds")
        .samples([](SampleMaker& m) { return finite_samples(m, 1e4); })
        .reference(finite_reference)
        .no_gradient_test();

}  // namespace
}  // namespace arete::ops
