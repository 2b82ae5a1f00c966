// What the layers' sources share.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "arete/base/error.h"
#include "arete/nn/init.h"
#include "arete/ops/creation.h"

namespace arete::nn {

/// U(-1 / sqrt(fan_in), 1 / sqrt(fan_in)).
inline void init_uniform(const Tensor& t, int64_t fan_in) {
  const double bound = fan_in > 0 ? 1 / std::sqrt(double(fan_in)) : 0;
  init::uniform_(t, -bound, bound);
}

// Values as the printed tree shows them, in Python's notation.
inline const char* text_of(bool v) { return v ? "True" : "False"; }
inline std::string text_of(int64_t v) { return std::to_string(v); }
std::string text_of(double v);
/// "[2, 3]" (inside classes, whose own to_string hides the function).
inline std::string text_of(IntList sizes) { return arete::to_string(sizes); }
/// "(3, 3)".
std::string tuple_text(IntList values);

}  // namespace arete::nn
