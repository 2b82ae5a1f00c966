#include "arete/nn/linear.h"

#include <cmath>

#include "arete/nn/init.h"
#include "arete/nn/layer_internal.h"
#include "arete/ops/matmul.h"

namespace arete::nn {

Linear::Linear(int64_t in_features, int64_t out_features, const LinearOptions& options)
    : DescribedLayer(
          "Linear",
          {{"in_features", in_features}, {"out_features", out_features}, {"bias", options.bias}}) {
  weight = register_parameter("weight", empty({out_features, in_features}));
  bias = register_parameter("bias", options.bias ? empty({out_features}) : Tensor());
  reset_parameters();
}

void Linear::reset_parameters() {
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (bias.defined()) init_uniform(bias, weight.size(1));
}

Tensor Linear::forward(const Tensor& input) { return linear(input, weight, bias); }

Bilinear::Bilinear(int64_t in1_features, int64_t in2_features, int64_t out_features,
                   const LinearOptions& options)
    : DescribedLayer("Bilinear", {{"in1_features", in1_features},
                                  {"in2_features", in2_features},
                                  {"out_features", out_features},
                                  {"bias", options.bias}}) {
  weight = register_parameter("weight", empty({out_features, in1_features, in2_features}));
  bias = register_parameter("bias", options.bias ? empty({out_features}) : Tensor());
  reset_parameters();
}

void Bilinear::reset_parameters() {
  init_uniform(weight, weight.size(1));
  if (bias.defined()) init_uniform(bias, weight.size(1));
}

Tensor Bilinear::forward(const Tensor& input1, const Tensor& input2) const {
  return bilinear(input1, input2, weight, bias);
}

}  // namespace arete::nn
