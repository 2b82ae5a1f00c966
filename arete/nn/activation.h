// Activations as modules; formulas are documented with the functions in ops/activation.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "arete/nn/module.h"

namespace arete::nn {

struct InplaceOptions {
  bool inplace = false;  ///< write into the input, which must not be needed any more
};

#define ARETE_ACTIVATION_INPLACE(Name)                                                 \
  class Name : public Module {                                                         \
   public:                                                                             \
    explicit Name(const InplaceOptions& options = {}) : inplace_(options.inplace) {}   \
    Tensor forward(const Tensor& input) override;                                      \
    std::string extra_repr() const override { return inplace_ ? "inplace=True" : ""; } \
                                                                                       \
   private:                                                                            \
    bool inplace_;                                                                     \
  };
ARETE_ACTIVATION_INPLACE(ReLU)
ARETE_ACTIVATION_INPLACE(ReLU6)
ARETE_ACTIVATION_INPLACE(SiLU)
ARETE_ACTIVATION_INPLACE(Mish)
ARETE_ACTIVATION_INPLACE(SELU)
ARETE_ACTIVATION_INPLACE(Hardswish)
ARETE_ACTIVATION_INPLACE(Hardsigmoid)
#undef ARETE_ACTIVATION_INPLACE

#define ARETE_ACTIVATION(Name)                    \
  class Name : public Module {                    \
   public:                                        \
    Tensor forward(const Tensor& input) override; \
  };
ARETE_ACTIVATION(Tanh)
ARETE_ACTIVATION(Sigmoid)
ARETE_ACTIVATION(LogSigmoid)
ARETE_ACTIVATION(Softsign)
ARETE_ACTIVATION(Tanhshrink)
#undef ARETE_ACTIVATION

struct GELUOptions {
  std::string_view approximate = "none";  ///< or "tanh"
};
class GELU : public Module {
 public:
  explicit GELU(const GELUOptions& options = {}) : approximate_(options.approximate) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override { return "approximate='" + approximate_ + "'"; }

 private:
  std::string approximate_;
};

class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(double negative_slope = 0.01, const InplaceOptions& options = {})
      : slope_(negative_slope), inplace_(options.inplace) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  double slope_;
  bool inplace_;
};

class ELU : public Module {
 public:
  explicit ELU(double alpha = 1, const InplaceOptions& options = {})
      : alpha_(alpha), inplace_(options.inplace) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  double alpha_;
  bool inplace_;
};

class CELU : public Module {
 public:
  explicit CELU(double alpha = 1, const InplaceOptions& options = {})
      : alpha_(alpha), inplace_(options.inplace) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  double alpha_;
  bool inplace_;
};

class Softplus : public Module {
 public:
  explicit Softplus(double beta = 1, double threshold = 20) : beta_(beta), threshold_(threshold) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  double beta_, threshold_;
};

class Hardtanh : public Module {
 public:
  explicit Hardtanh(double min_val = -1, double max_val = 1, const InplaceOptions& options = {})
      : min_(min_val), max_(max_val), inplace_(options.inplace) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  double min_, max_;
  bool inplace_;
};

class Softshrink : public Module {
 public:
  explicit Softshrink(double lambd = 0.5) : lambd_(lambd) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  double lambd_;
};

class Hardshrink : public Module {
 public:
  explicit Hardshrink(double lambd = 0.5) : lambd_(lambd) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  double lambd_;
};

class Threshold : public Module {
 public:
  Threshold(double threshold, double value) : threshold_(threshold), value_(value) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

 private:
  double threshold_, value_;
};

/// x, or weight * x where x < 0, with a trained weight: one number or one for each channel.
class PReLU : public Module {
 public:
  explicit PReLU(int64_t num_parameters = 1, double init = 0.25);
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

  Parameter weight;
};

/// The first half of `dim` times the sigmoid of the second.
class GLU : public Module {
 public:
  explicit GLU(int64_t dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override { return "dim=" + std::to_string(dim_); }

 private:
  int64_t dim_;
};

class Softmax : public Module {
 public:
  explicit Softmax(int64_t dim) : dim_(dim) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override { return "dim=" + std::to_string(dim_); }

 private:
  int64_t dim_;
};

class Softmin : public Module {
 public:
  explicit Softmin(int64_t dim) : dim_(dim) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override { return "dim=" + std::to_string(dim_); }

 private:
  int64_t dim_;
};

class LogSoftmax : public Module {
 public:
  explicit LogSoftmax(int64_t dim) : dim_(dim) {}
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override { return "dim=" + std::to_string(dim_); }

 private:
  int64_t dim_;
};

}  // namespace arete::nn
