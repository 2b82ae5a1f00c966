#include "arete/nn/activation.h"

#include "arete/nn/layer_internal.h"
#include "arete/ops/activation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/softmax.h"

namespace arete::nn {

namespace {
std::string with_inplace(std::string text, bool inplace) {
  return inplace ? text + ", inplace=True" : text;
}
// The in-place functions take a handle they may write through.
template <class F>
Tensor in_place(const Tensor& input, F&& f) {
  Tensor x = input;
  f(x);
  return x;
}
}  // namespace

Tensor ReLU::forward(const Tensor& x) {
  return inplace_ ? in_place(x, [](Tensor& t) { t.relu_(); }) : relu(x);
}
#define ARETE_FORWARD_INPLACE(Name, function)                                       \
  Tensor Name::forward(const Tensor& x) {                                           \
    return inplace_ ? in_place(x, [](Tensor& t) { function##_(t); }) : function(x); \
  }
ARETE_FORWARD_INPLACE(ReLU6, relu6)
ARETE_FORWARD_INPLACE(SiLU, silu)
ARETE_FORWARD_INPLACE(Mish, mish)
ARETE_FORWARD_INPLACE(SELU, selu)
ARETE_FORWARD_INPLACE(Hardswish, hardswish)
ARETE_FORWARD_INPLACE(Hardsigmoid, hardsigmoid)
#undef ARETE_FORWARD_INPLACE

Tensor Tanh::forward(const Tensor& x) { return tanh(x); }
Tensor Sigmoid::forward(const Tensor& x) { return sigmoid(x); }
Tensor LogSigmoid::forward(const Tensor& x) { return logsigmoid(x); }
Tensor Softsign::forward(const Tensor& x) { return softsign(x); }
Tensor Tanhshrink::forward(const Tensor& x) { return tanhshrink(x); }
Tensor GELU::forward(const Tensor& x) { return gelu(x, approximate_); }

Tensor LeakyReLU::forward(const Tensor& x) {
  return inplace_ ? in_place(x, [&](Tensor& t) { leaky_relu_(t, slope_); }) : leaky_relu(x, slope_);
}
std::string LeakyReLU::extra_repr() const {
  return with_inplace("negative_slope=" + text_of(slope_), inplace_);
}

Tensor ELU::forward(const Tensor& x) {
  return inplace_ ? in_place(x, [&](Tensor& t) { elu_(t, alpha_); }) : elu(x, alpha_);
}
std::string ELU::extra_repr() const { return with_inplace("alpha=" + text_of(alpha_), inplace_); }

Tensor CELU::forward(const Tensor& x) {
  return inplace_ ? in_place(x, [&](Tensor& t) { celu_(t, alpha_); }) : celu(x, alpha_);
}
std::string CELU::extra_repr() const { return with_inplace("alpha=" + text_of(alpha_), inplace_); }

Tensor Softplus::forward(const Tensor& x) { return softplus(x, beta_, threshold_); }
std::string Softplus::extra_repr() const {
  return "beta=" + text_of(beta_) + ", threshold=" + text_of(threshold_);
}

Tensor Hardtanh::forward(const Tensor& x) {
  return inplace_ ? in_place(x, [&](Tensor& t) { hardtanh_(t, min_, max_); })
                  : hardtanh(x, min_, max_);
}
std::string Hardtanh::extra_repr() const {
  return with_inplace("min_val=" + text_of(min_) + ", max_val=" + text_of(max_), inplace_);
}

Tensor Softshrink::forward(const Tensor& x) { return softshrink(x, lambd_); }
std::string Softshrink::extra_repr() const { return text_of(lambd_); }
Tensor Hardshrink::forward(const Tensor& x) { return hardshrink(x, lambd_); }
std::string Hardshrink::extra_repr() const { return text_of(lambd_); }
Tensor Threshold::forward(const Tensor& x) { return threshold(x, threshold_, value_); }
std::string Threshold::extra_repr() const {
  return "threshold=" + text_of(threshold_) + ", value=" + text_of(value_);
}

PReLU::PReLU(int64_t num_parameters, double init) {
  check_sizes("PReLU", {{"num_parameters", num_parameters}});
  weight = register_parameter("weight", full({num_parameters}, init));
}
Tensor PReLU::forward(const Tensor& x) { return prelu(x, weight); }
std::string PReLU::extra_repr() const { return "num_parameters=" + std::to_string(weight.numel()); }

Tensor GLU::forward(const Tensor& x) { return glu(x, dim_); }
Tensor Softmax::forward(const Tensor& x) { return softmax(x, dim_); }
Tensor Softmin::forward(const Tensor& x) { return softmin(x, dim_); }
Tensor LogSoftmax::forward(const Tensor& x) { return log_softmax(x, dim_); }

}  // namespace arete::nn
