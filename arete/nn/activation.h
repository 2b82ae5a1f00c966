// Activations as modules; formulas are documented with the functions in ops/activation.h.
#pragma once

#include <string>
#include <string_view>

#include "arete/nn/layer.h"
#include "arete/ops/creation.h"

namespace arete::nn {

struct InplaceOptions {
  bool inplace = false;  ///< write into the input, which must not be needed any more
};

#define ARETE_ACTIVATION_INPLACE(Name)                            \
  class Name : public OperatorLayer {                             \
   public:                                                        \
    explicit Name(const InplaceOptions& options = {})             \
        : OperatorLayer(#Name, {{"inplace", options.inplace}}) {} \
  };
ARETE_ACTIVATION_INPLACE(ReLU)
ARETE_ACTIVATION_INPLACE(ReLU6)
ARETE_ACTIVATION_INPLACE(SiLU)
ARETE_ACTIVATION_INPLACE(Mish)
ARETE_ACTIVATION_INPLACE(SELU)
ARETE_ACTIVATION_INPLACE(Hardswish)
ARETE_ACTIVATION_INPLACE(Hardsigmoid)
#undef ARETE_ACTIVATION_INPLACE

#define ARETE_ACTIVATION(Name)           \
  class Name : public OperatorLayer {    \
   public:                               \
    Name() : OperatorLayer(#Name, {}) {} \
  };
ARETE_ACTIVATION(Tanh)
ARETE_ACTIVATION(Sigmoid)
ARETE_ACTIVATION(LogSigmoid)
ARETE_ACTIVATION(Softsign)
ARETE_ACTIVATION(Tanhshrink)
ARETE_ACTIVATION(Softmax2d)  // over the channels of (N, C, H, W) or (C, H, W)
#undef ARETE_ACTIVATION

struct GELUOptions {
  std::string_view approximate = "none";  ///< or "tanh"
};
class GELU : public OperatorLayer {
 public:
  explicit GELU(const GELUOptions& o = {})
      : OperatorLayer("GELU", {{"approximate", o.approximate}}) {}
};

class LeakyReLU : public OperatorLayer {
 public:
  explicit LeakyReLU(double negative_slope = 0.01, const InplaceOptions& o = {})
      : OperatorLayer("LeakyReLU", {{"negative_slope", negative_slope}, {"inplace", o.inplace}}) {}
};

/// leaky_relu with slopes drawn in training.
class RReLU : public OperatorLayer {
 public:
  explicit RReLU(double lower = 1.0 / 8, double upper = 1.0 / 3, const InplaceOptions& o = {})
      : OperatorLayer("RReLU", {{"lower", lower}, {"upper", upper}, {"inplace", o.inplace}}) {}
};

class ELU : public OperatorLayer {
 public:
  explicit ELU(double alpha = 1, const InplaceOptions& o = {})
      : OperatorLayer("ELU", {{"alpha", alpha}, {"inplace", o.inplace}}) {}
};

class CELU : public OperatorLayer {
 public:
  explicit CELU(double alpha = 1, const InplaceOptions& o = {})
      : OperatorLayer("CELU", {{"alpha", alpha}, {"inplace", o.inplace}}) {}
};

class Softplus : public OperatorLayer {
 public:
  explicit Softplus(double beta = 1, double threshold = 20)
      : OperatorLayer("Softplus", {{"beta", beta}, {"threshold", threshold}}) {}
};

class Hardtanh : public OperatorLayer {
 public:
  /// ValueError unless min_val < max_val.
  explicit Hardtanh(double min_val = -1, double max_val = 1, const InplaceOptions& o = {})
      : OperatorLayer("Hardtanh",
                      {{"min_val", min_val}, {"max_val", max_val}, {"inplace", o.inplace}}) {}
};

class Softshrink : public OperatorLayer {
 public:
  explicit Softshrink(double lambd = 0.5) : OperatorLayer("Softshrink", {{"lambd", lambd}}) {}
};

class Hardshrink : public OperatorLayer {
 public:
  explicit Hardshrink(double lambd = 0.5) : OperatorLayer("Hardshrink", {{"lambd", lambd}}) {}
};

class Threshold : public OperatorLayer {
 public:
  Threshold(double threshold, double value, const InplaceOptions& o = {})
      : OperatorLayer("Threshold",
                      {{"threshold", threshold}, {"value", value}, {"inplace", o.inplace}}) {}
};

/// x, or weight * x where x < 0, with a trained weight: one number or one for each channel.
class PReLU : public OperatorLayer {
 public:
  explicit PReLU(int64_t num_parameters = 1, double init = 0.25)
      : OperatorLayer("PReLU", {{"num_parameters", num_parameters}, {"init", init}}),
        weight(register_parameter("weight", full({num_parameters}, init))) {}
  Tensor forward(const Tensor& input) override { return run({input, weight}); }

  Parameter weight;
};

/// The first half of `dim` times the sigmoid of the second.
class GLU : public OperatorLayer {
 public:
  explicit GLU(int64_t dim = -1) : OperatorLayer("GLU", {{"dim", dim}}) {}
};

class Softmax : public OperatorLayer {
 public:
  explicit Softmax(int64_t dim) : OperatorLayer("Softmax", {{"dim", dim}}) {}
};

class Softmin : public OperatorLayer {
 public:
  explicit Softmin(int64_t dim) : OperatorLayer("Softmin", {{"dim", dim}}) {}
};

class LogSoftmax : public OperatorLayer {
 public:
  explicit LogSoftmax(int64_t dim) : OperatorLayer("LogSoftmax", {{"dim", dim}}) {}
};

}  // namespace arete::nn
