// Analytical gradients against central differences.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "arete/core/tensor.h"

namespace arete::autograd {

using CheckedFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

struct GradcheckOptions {
  double eps = 1e-6;  ///< step of the differences
  double atol = 1e-5, rtol = 1e-3;
};

/// Compares the gradients of every output with respect to every f64 input that requires grad with
/// central differences. Returns "" if they agree, else a text that names output, input, element
/// and both values. TypeError if an input that requires grad is not f64.
std::string gradcheck(const CheckedFunction& f, const std::vector<Tensor>& inputs,
                      const GradcheckOptions& options = {});

/// The same for the gradients' own gradients.
std::string gradgradcheck(const CheckedFunction& f, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options = {});

}  // namespace arete::autograd
