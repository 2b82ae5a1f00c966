// Samples, references and errors of the records in ops/activation.cpp.
#include <algorithm>
#include <cmath>

#include "arete/samples/pointwise_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

double soft_plus(double z) { return z > 40 ? z : std::log1p(std::exp(z)); }

constexpr double kSeluAlpha = 1.6732632423543772848170429916717;

constexpr double kSeluScale = 1.0507009873554804934193349852946;

template <class F>
Reference map(F f) {
  return [f](const Call& c) -> std::vector<Tensor> {
    const Tensor& x = c.tensor(0);
    return {build_tensor(x.sizes(), [&](const Shape& i) { return f(at(x, i), c); })};
  };
}

// Samples of unary activations: `rest` are the scalar arguments, one list for each variant. Values
// keep away from kinks, which lie at multiples of 0.5.
using Rest = std::vector<std::vector<OwnedArg>>;

std::vector<Sample> activation_samples(SampleMaker& m, const Rest& rest = {{}}) {
  std::vector<Sample> out;
  for (const std::vector<OwnedArg>& r : rest) {
    std::vector<Tensor> inputs;
    if (out.empty())
      inputs = {m.make({}, 0.6, 0.9), m.make({0, 2}), m.make_strided({2, 3}, 0.1, 0.4)};
    inputs.push_back(m.make({5}, -4.9, -3.1));
    inputs.push_back(m.make({4}, -0.4, -0.1));
    inputs.push_back(m.make({3}, 1.1, 1.4));
    inputs.push_back(m.make({3}, 6.1, 8));
    for (const Tensor& t : inputs) {
      std::vector<OwnedArg> args{t};
      args.insert(args.end(), r.begin(), r.end());
      out.push_back(Sample{std::move(args)});
    }
  }
  return out;
}

std::vector<Sample> plain_samples(SampleMaker& m) { return activation_samples(m); }

const Attached gelu_erf_op =
    attach("gelu_erf").samples(plain_samples).reference(map([](double x, const Call&) {
      return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
    }));
const Attached gelu_tanh_op =
    attach("gelu_tanh").samples(plain_samples).reference(map([](double x, const Call&) {
      return 0.5 * x *
             (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    }));
const Attached gelu_op = attach("gelu")
                             .samples([](SampleMaker& m) {
                               return activation_samples(m, {{"none"}, {"tanh"}});
                             })
                             .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
                               return {{{m.make({2}), "sigmoid"},
                                        ErrorKind::value,
                                        "approximate argument must be either none or tanh."}};
                             })
                             .reference(map([](double x, const Call& c) {
                               if (c[1].string() == "none")
                                 return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
                               return 0.5 * x *
                                      (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) *
                                                     (x + 0.044715 * x * x * x)));
                             }));
const Attached silu_op =
    attach("silu").samples(plain_samples).reference(map([](double x, const Call&) {
      return x / (1 + std::exp(-x));
    }));
const Attached mish_op =
    attach("mish").samples(plain_samples).reference(map([](double x, const Call&) {
      return x * std::tanh(soft_plus(x));
    }));
const Attached leaky_relu_op =
    attach("leaky_relu")
        .samples([](SampleMaker& m) {
          return activation_samples(m, {{0.01}, {0.3}});
        })
        .reference(map([](double x, const Call& c) { return x > 0 ? x : x * c.real(1); }));
const Attached elu_op = attach("elu")
                            .samples([](SampleMaker& m) {
                              return activation_samples(m, {{1.0}, {0.5}});
                            })
                            .reference(map([](double x, const Call& c) {
                              return x > 0 ? x : c.real(1) * std::expm1(x);
                            }));
const Attached selu_op =
    attach("selu").samples(plain_samples).reference(map([](double x, const Call&) {
      return kSeluScale * (x > 0 ? x : kSeluAlpha * std::expm1(x));
    }));

std::vector<Sample> celu_samples(SampleMaker& m) { return activation_samples(m, {{1.0}, {0.5}}); }

double celu_by_hand(double x, const Call& c) {
  return x > 0 ? x : c.real(1) * std::expm1(x / c.real(1));
}

const Attached celu_op = attach("celu")
                             .samples(celu_samples)
                             .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
                               return {{{m.make({2}), 0.0},
                                        ErrorKind::value,
                                        "ZeroDivisionError: alpha cannot be 0 for CELU"}};
                             })
                             .reference(map(celu_by_hand));
const Attached softplus_op = attach("softplus")
                                 .samples([](SampleMaker& m) {
                                   return activation_samples(m, {{1.0, 20.0}, {2.0, 3.5}});
                                 })
                                 .reference(map([](double x, const Call& c) {
                                   const double z = x * c.real(1);
                                   return z > c.real(2) ? x : soft_plus(z) / c.real(1);
                                 }));
const Attached softsign_op =
    attach("softsign").samples(plain_samples).reference(map([](double x, const Call&) {
      return x / (1 + std::fabs(x));
    }));

std::vector<Sample> hardtanh_samples(SampleMaker& m) {
  return activation_samples(m, {{-1, 1}, {-0.5, 2.0}});
}

double hardtanh_by_hand(double x, const Call& c) {
  return std::min(std::max(x, c.real(1)), c.real(2));
}

const Attached hardtanh_op =
    attach("hardtanh")
        .samples(hardtanh_samples)
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {
              {{m.make({2}), 1, -1}, ErrorKind::value, "min_val cannot be greater than max_val"},
              {{m.make_index({2}, 3).to(kUInt8), -1, 1},
               ErrorKind::value,
               "on an unsigned type with negative limits"},
              {{m.make_mask({2}), 0, 1}, ErrorKind::type, "Bool inputs not supported"}};
        })
        .reference(map(hardtanh_by_hand));
const Attached relu6_op =
    attach("relu6").samples(plain_samples).reference(map([](double x, const Call&) {
      return std::min(std::max(x, 0.0), 6.0);
    }));
const Attached hardsigmoid_op =
    attach("hardsigmoid").samples(plain_samples).reference(map([](double x, const Call&) {
      return std::min(std::max(x / 6 + 0.5, 0.0), 1.0);
    }));
const Attached hardswish_op =
    attach("hardswish").samples(plain_samples).reference(map([](double x, const Call&) {
      return x * std::min(std::max(x + 3, 0.0), 6.0) / 6;
    }));
const Attached logsigmoid_op =
    attach("logsigmoid").samples(plain_samples).reference(map([](double x, const Call&) {
      return -soft_plus(-x);
    }));
const Attached threshold_op =
    attach("threshold")
        .samples([](SampleMaker& m) {
          return activation_samples(m, {{0.5, -2.0}, {-3, 1}});
        })
        .reference(map([](double x, const Call& c) { return x <= c.real(1) ? c.real(2) : x; }));
const Attached tanhshrink_op =
    attach("tanhshrink").samples(plain_samples).reference(map([](double x, const Call&) {
      return x - std::tanh(x);
    }));

std::vector<Sample> softshrink_samples(SampleMaker& m) {
  return activation_samples(m, {{0.5}, {0.0}});
}

double softshrink_by_hand(double x, const Call& c) {
  return x > c.real(1) ? x - c.real(1) : x < -c.real(1) ? x + c.real(1) : 0.0;
}

const Attached softshrink_op =
    attach("softshrink")
        .samples(softshrink_samples)
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2}), -1.0}, ErrorKind::value, "lambda must be greater or equal to 0"}};
        })
        .reference(map(softshrink_by_hand));
const Attached hardshrink_op =
    attach("hardshrink")
        .samples([](SampleMaker& m) {
          return activation_samples(m, {{0.5}, {1.0}});
        })
        .reference(map([](double x, const Call& c) { return std::fabs(x) > c.real(1) ? x : 0.0; }));
const Attached prelu_kernel_op = attach("prelu_kernel")
                                     .samples([](SampleMaker& m) -> std::vector<Sample> {
                                       return {{{m.make({2, 3}, -2, -0.1), m.make({3})}},
                                               {{m.make_strided({2, 3}, 0.1, 2), m.make({2, 1})}}};
                                     })
                                     .reference([](const Call& c) -> std::vector<Tensor> {
                                       const Tensor &x = c.tensor(0), &w = c.tensor(1);
                                       return {build_tensor(x.sizes(), [&](const Shape& i) {
                                         return at(x, i) > 0 ? at(x, i) : at(x, i) * at(w, i);
                                       })};
                                     });
const Attached prelu_op = attach("prelu")
                              .samples([](SampleMaker& m) -> std::vector<Sample> {
                                return {{{m.make({2, 3}, -2, -0.1), m.make({3})}},
                                        {{m.make({2, 3, 2}, 0.1, 2), m.make({3})}},
                                        {{m.make_strided({2, 3}, -2, -0.1), m.make({1})}},
                                        {{m.make({4}, -2, -0.1), m.make({1})}}};
                              })
                              .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
                                return {{{m.make({2, 3}), m.make({4})},
                                         ErrorKind::value,
                                         "Mismatch of parameter numbers and input channel size."},
                                        {{m.make({2, 3}), m.make({1, 3})},
                                         ErrorKind::value,
                                         "prelu: Expected `weight` to be a scalar or 1D tensor"}};
                              })
                              .reference([](const Call& c) -> std::vector<Tensor> {
                                const Tensor &x = c.tensor(0), &w = c.tensor(1);
                                return {build_tensor(x.sizes(), [&](const Shape& i) {
                                  const double v = at(x, i);
                                  return v > 0 ? v : v * at(w, {w.numel() == 1 ? 0 : i[1]});
                                })};
                              });
const Attached glu_backward_op =
    attach("glu_backward")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 2}).detach(), m.make({2, 4}).detach(), 1}},
                  {{m.make({2, 3}).detach(), m.make_strided({4, 3}).detach(), 0}, "strides"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &g = c.tensor(0), &x = c.tensor(1);
          const size_t d = size_t(c.integer(2));
          return {build_tensor(x.sizes(), [&](const Shape& i) {
            Shape first = i, second = i;
            const bool is_gate = i[d] >= g.size(int64_t(d));
            (is_gate ? first : second)[d] += (is_gate ? -1 : 1) * g.size(int64_t(d));
            const double s = 1 / (1 + std::exp(-at(x, second)));
            return at(g, first) * (is_gate ? at(x, first) * s * (1 - s) : s);
          })};
        });
const Attached glu_op =
    attach("glu")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 4}), -1}},
                  {{m.make_strided({4, 3}), 0}},
                  {{m.make({2}), 0}},
                  {{m.make({2, 2, 0}), 1}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), -1},
                   ErrorKind::value,
                   "Halving dimension must be even, but dimension 1 is size 3"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const size_t d = size_t(c.integer(1) < 0 ? c.integer(1) + x.dim() : c.integer(1));
          Shape sizes(x.sizes());
          sizes[d] /= 2;
          return {build_tensor(sizes, [&](const Shape& i) {
            Shape gate = i;
            gate[d] += sizes[d];
            return at(x, i) / (1 + std::exp(-at(x, gate)));
          })};
        });

}  // namespace
}  // namespace arete::ops
