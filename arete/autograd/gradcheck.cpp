#include "arete/autograd/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "arete/autograd/engine.h"
#include "arete/core/generator.h"
#include "arete/core/modes.h"
#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/fft.h"
#include "arete/ops/pointwise.h"

namespace arete::autograd {

namespace {

// Every call sees the same random numbers, so functions with dropout can be checked. Complex
// results are seen by their parts: the gradient of a + bi is d/da + i d/db.
class SameRandomNumbers {
 public:
  SameRandomNumbers() : state_(default_generator().state()) {}
  std::vector<Tensor> operator()(const CheckedFunction& f, const std::vector<Tensor>& in) const {
    default_generator().set_state(state_);
    std::vector<Tensor> out = f(in);
    for (Tensor& t : out)
      if (t.defined() && is_complex(t.dtype())) t = view_as_real(t);
    return out;
  }

 private:
  Generator::State state_;
};

bool any_complex(const std::vector<Tensor>& inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const Tensor& t) {
    return t.defined() && t.requires_grad() && is_complex(t.dtype());
  });
}

// The same check of the function of the parts of its complex inputs.
template <class Check>
std::string check_parts(Check&& check, const CheckedFunction& f, const std::vector<Tensor>& inputs,
                        const GradcheckOptions& options) {
  std::vector<Tensor> parts = inputs;
  std::vector<bool> split(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    split[i] = any_complex({inputs[i]});
    if (split[i]) parts[i] = view_as_real(inputs[i].detach()).clone().requires_grad_();
  }
  const auto joined = [&](const std::vector<Tensor>& in) {
    std::vector<Tensor> given = in;
    for (size_t i = 0; i < in.size(); ++i)
      if (split[i]) given[i] = view_as_complex_copy(in[i]);
    return f(given);
  };
  return check(joined, parts, options);
}

std::string number(double v) { return Scalar(v).to_string(); }

std::string compare(double analytic, double numeric, const GradcheckOptions& o, size_t output,
                    int64_t element, size_t input, int64_t at) {
  if (std::isnan(analytic) == std::isnan(numeric) &&
      (std::isnan(numeric) ||
       std::fabs(analytic - numeric) <= o.atol + o.rtol * std::fabs(numeric)))
    return "";
  return "Jacobian mismatch for output " + std::to_string(output) + " (element " +
         std::to_string(element) + ") with respect to input " + std::to_string(input) +
         " (element " + std::to_string(at) + "): analytical " + number(analytic) + ", numerical " +
         number(numeric);
}

}  // namespace

std::string gradcheck(const CheckedFunction& f, const std::vector<Tensor>& inputs,
                      const GradcheckOptions& options) {
  if (any_complex(inputs)) return check_parts(gradcheck, f, inputs, options);
  std::vector<Tensor> fresh;
  std::vector<size_t> wanted;
  for (size_t i = 0; i < inputs.size(); ++i) {
    fresh.push_back(inputs[i]);
    if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
    ARETE_CHECK(inputs[i].dtype() == kFloat64,
                TypeError("gradcheck", "inputs that require grad must be float64 or complex128")
                    .argument("inputs[" + std::to_string(i) + "]")
                    .got(std::string(name_of(inputs[i].dtype()))));
    fresh[i] = inputs[i].detach().clone();
    fresh[i].requires_grad_();
    wanted.push_back(i);
  }
  std::vector<std::vector<double>> at(inputs.size());  // where the derivatives are taken
  for (size_t i : wanted) at[i] = fresh[i].to_vector<double>();
  const SameRandomNumbers run;
  const std::vector<Tensor> outputs = run(f, fresh);
  // Numerical Jacobians column by column, those of all outputs at a time. [input][output]: all
  // elements of the output for the first of the input, and so on.
  std::vector<std::vector<std::vector<double>>> numeric(inputs.size());
  for (size_t i : wanted) {
    const NoGradGuard no_grad;
    numeric[i].resize(outputs.size());
    for (size_t e = 0; e < at[i].size(); ++e) {
      std::vector<std::vector<double>> sides[2];
      for (int side = 0; side < 2; ++side) {
        std::vector<Tensor> moved = fresh;
        std::vector<double> values = at[i];
        values[e] += side ? -options.eps : options.eps;
        const Tensor x = tensor(values, fresh[i].options()).view(fresh[i].sizes());
        // Keep the memory order of the original, so that strided paths are checked.
        moved[i] = fresh[i].detach().clone();
        moved[i].copy_(x);
        for (const Tensor& y : run(f, moved))
          sides[side].push_back(is_floating(y.dtype()) ? y.to_vector<double>()
                                                       : std::vector<double>());
      }
      for (size_t k = 0; k < outputs.size(); ++k)
        for (size_t o = 0; o < sides[0][k].size(); ++o)
          numeric[i][k].push_back((sides[0][k][o] - sides[1][k][o]) / (2 * options.eps));
    }
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!is_floating(outputs[k].dtype())) continue;
    const int64_t n_out = outputs[k].numel();
    for (size_t i : wanted) {
      const int64_t n_in = fresh[i].numel();
      for (int64_t o = 0; o < n_out; ++o) {
        std::vector<double> analytic(size_t(n_in), 0.0);
        if (outputs[k].requires_grad()) {
          std::vector<double> one(size_t(n_out), 0.0);
          one[size_t(o)] = 1;
          const Tensor seed = tensor(one, outputs[k].options()).view(outputs[k].sizes());
          const TensorList g =
              grad({&outputs[k], 1}, {&fresh[i], 1}, {&seed, 1}, true, false, true);
          if (g[0].defined()) analytic = g[0].to_vector<double>();
        }
        for (int64_t e = 0; e < n_in; ++e)
          if (std::string text = compare(analytic[size_t(e)], numeric[i][k][size_t(e * n_out + o)],
                                         options, k, o, i, e);
              !text.empty())
            return text;
      }
    }
  }
  return "";
}

std::string gradgradcheck(const CheckedFunction& f, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options) {
  if (any_complex(inputs)) return check_parts(gradgradcheck, f, inputs, options);
  // g(inputs, v) = gradients of the outputs weighted by v: check that function.
  const SameRandomNumbers run;
  std::vector<Tensor> all = inputs;
  std::vector<size_t> differentiable;
  {
    const std::vector<Tensor> outputs = run(f, inputs);
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (!outputs[k].requires_grad()) continue;
      differentiable.push_back(k);
      Generator generator(7 + k);
      std::vector<double> values(size_t(outputs[k].numel()));
      for (double& v : values) v = 0.3 + double(generator.reserve(1).offset * 37 % 11) / 11;
      all.push_back(tensor(values, TensorOptions(kFloat64, outputs[k].device()))
                        .view(outputs[k].sizes())
                        .requires_grad_());
    }
  }
  if (differentiable.empty()) return "";
  const size_t n = inputs.size();
  const auto gradients = [&](const std::vector<Tensor>& args) {
    const EnableGradGuard enable;
    std::vector<Tensor> in(args.begin(), args.begin() + int64_t(n)), wanted;
    for (size_t i = 0; i < n; ++i) {
      if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
      if (!in[i].requires_grad()) in[i] = in[i].detach().requires_grad_();
      wanted.push_back(in[i]);
    }
    const std::vector<Tensor> outputs = run(f, in);
    std::vector<Tensor> chosen, seeds;
    for (size_t j = 0; j < differentiable.size(); ++j) {
      chosen.push_back(outputs[differentiable[j]]);
      seeds.push_back(args[n + j]);
    }
    TensorList g = grad(chosen, wanted, seeds, true, true, true);
    std::vector<Tensor> result;
    for (size_t i = 0; i < g.size(); ++i)
      result.push_back(g[i].defined() ? g[i] : zeros(wanted[i].sizes(), wanted[i].options()));
    return result;
  };
  return gradcheck(gradients, all, options);
}

}  // namespace arete::autograd
