// Pointwise activations that are no methods of Tensor (relu, sigmoid and tanh are). All take any
// shape and floating dtypes (integers become the default dtype unless noted); those ending in _
// write into their argument and return it.
#pragma once

#include <string_view>

#include "arete/core/tensor.h"

namespace arete {

class Generator;

/// x * Phi(x) with the normal distribution's Phi; approximate "tanh" takes the tanh formula, "none"
/// the exact one. ValueError for other texts.
Tensor gelu(const Tensor& self, std::string_view approximate = "none");
/// x * sigmoid(x), also known as swish.
Tensor silu(const Tensor& self);
Tensor& silu_(Tensor& self);
/// x * tanh(softplus(x)).
Tensor mish(const Tensor& self);
Tensor& mish_(Tensor& self);
/// x where positive, else negative_slope * x.
Tensor leaky_relu(const Tensor& self, double negative_slope = 0.01);
Tensor& leaky_relu_(Tensor& self, double negative_slope = 0.01);
/// leaky_relu with a slope drawn for each element from [lower, upper); without training with the
/// mean of the two. ValueError if lower > upper.
Tensor rrelu(const Tensor& self, double lower = 1.0 / 8, double upper = 1.0 / 3,
             bool training = false, Generator* generator = nullptr);
/// x where positive, else alpha * (exp(x) - 1).
Tensor elu(const Tensor& self, double alpha = 1.0);
Tensor& elu_(Tensor& self, double alpha = 1.0);
/// Self-normalising elu: scale * elu(x, alpha) with fixed constants.
Tensor selu(const Tensor& self);
Tensor& selu_(Tensor& self);
/// max(0, x) + min(0, alpha * (exp(x / alpha) - 1)). ValueError for alpha 0.
Tensor celu(const Tensor& self, double alpha = 1.0);
Tensor& celu_(Tensor& self, double alpha = 1.0);
/// log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold.
Tensor softplus(const Tensor& self, double beta = 1, double threshold = 20);
/// x / (1 + |x|).
Tensor softsign(const Tensor& self);
/// x limited to [min_val, max_val]; integers stay integers. ValueError if min_val > max_val.
Tensor hardtanh(const Tensor& self, Scalar min_val = -1, Scalar max_val = 1);
Tensor& hardtanh_(Tensor& self, Scalar min_val = -1, Scalar max_val = 1);
/// x limited to [0, 6]; integers stay integers.
Tensor relu6(const Tensor& self);
Tensor& relu6_(Tensor& self);
/// x / 6 + 1/2 limited to [0, 1].
Tensor hardsigmoid(const Tensor& self);
Tensor& hardsigmoid_(Tensor& self);
/// x * hardsigmoid(x).
Tensor hardswish(const Tensor& self);
Tensor& hardswish_(Tensor& self);
/// log(sigmoid(x)), accurate for large |x|.
Tensor logsigmoid(const Tensor& self);
/// x where x > threshold, else value; integers stay integers.
Tensor threshold(const Tensor& self, Scalar threshold, Scalar value);
Tensor& threshold_(Tensor& self, Scalar threshold, Scalar value);
/// x where positive, else weight * x; weight has one element or one for each channel (dim 1).
Tensor prelu(const Tensor& self, const Tensor& weight);
/// The first half along `dim` times the sigmoid of the second. ValueError for odd sizes.
Tensor glu(const Tensor& self, int64_t dim = -1);
/// x - tanh(x).
Tensor tanhshrink(const Tensor& self);
/// x moved towards 0 by lambd, 0 where |x| <= lambd. ValueError for negative lambd.
Tensor softshrink(const Tensor& self, double lambd = 0.5);
/// x where |x| > lambd, else 0.
Tensor hardshrink(const Tensor& self, double lambd = 0.5);

}  // namespace arete
