// Small image classifiers for 28 x 28 pictures of ten classes.
#pragma once

#include <string>

#include "arete/nn/container.h"

namespace arete::models {

/// Flatten, 784 -> 256 -> 10 with ReLU. Input (N, 1, 28, 28), output (N, 10) logits.
nn::Sequential mlp();
/// Two blocks of 3x3 convolution (32, then 64 channels), batch norm, ReLU and 2x2 max pool, then a
/// linear layer on 3136 features. Input (N, 1, 28, 28), output (N, 10) logits.
nn::Sequential cnn();
/// By name, "mlp" or "cnn"; ValueError naming the choices otherwise.
nn::Sequential classifier(const std::string& name);

}  // namespace arete::models
