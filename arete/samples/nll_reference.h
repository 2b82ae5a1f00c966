// The loops of the references of cross entropies.
#pragma once

#include <algorithm>
#include <cmath>

#include "arete/ops/nll_util.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {

/// Argument i of the call is the weight of the classes, or absent.
inline double class_weight(const Call& c, size_t i, int64_t k) {
  return c.has(i) ? at(c.tensor(i), {k}) : 1;
}

// Element (row, class) of logits whose row is an index of target.
inline Shape logit_index(const Tensor& x, const Shape& row, int64_t k) {
  Shape i = row;
  i.insert(i.begin() + class_dim(x), k);
  return i;
}

inline double log_sum_exp(const Tensor& x, const Shape& row) {
  double m = -INFINITY, s = 0;
  const int64_t classes = x.sizes()[class_dim(x)];
  for (int64_t k = 0; k < classes; ++k) m = std::max(m, at(x, logit_index(x, row, k)));
  for (int64_t k = 0; k < classes; ++k) s += std::exp(at(x, logit_index(x, row, k)) - m);
  return m + std::log(s);
}

}  // namespace arete::ops
