// Small tools for the plain-loop references of operator records.
#pragma once

#include <vector>

#include "arete/core/tensor.h"
#include "arete/ops/call.h"

namespace arete::ops {

/// Calls f(index) for every index of `sizes` in row-major order; once for 0-d.
template <class F>
void for_each_index(IntList sizes, F&& f) {
  for (int64_t s : sizes)
    if (s == 0) return;
  Shape index(sizes.size(), 0);
  while (true) {
    f(static_cast<const Shape&>(index));
    int d = int(sizes.size()) - 1;
    for (; d >= 0; --d) {
      if (++index[size_t(d)] < sizes[size_t(d)]) break;
      index[size_t(d)] = 0;
    }
    if (d < 0) return;
  }
}

/// Row-major position of `index` in `sizes`; dimensions of size 1 ignore their index and missing
/// leading dimensions of `sizes` are skipped (broadcasting).
inline int64_t flat_position(IntList sizes, IntList index) {
  int64_t p = 0;
  const size_t skip = index.size() - sizes.size();
  for (size_t d = 0; d < sizes.size(); ++d)
    p = p * sizes[d] + (sizes[d] == 1 ? 0 : index[d + skip]);
  return p;
}

/// Element `index` (broadcast as in flat_position) of a contiguous f64, i64 or bool CPU tensor.
inline double at(const Tensor& t, IntList index) {
  const int64_t p = flat_position(t.sizes(), index);
  if (t.dtype() == kFloat64) return static_cast<const double*>(t.data_ptr())[p];
  if (t.dtype() == kInt64) return double(static_cast<const int64_t*>(t.data_ptr())[p]);
  return static_cast<const bool*>(t.data_ptr())[p] ? 1.0 : 0.0;
}

/// All elements of a contiguous f64, i64 or bool CPU tensor.
inline std::vector<double> values_of(const Tensor& t) {
  std::vector<double> v;
  v.reserve(size_t(t.numel()));
  for_each_index(t.sizes(), [&](const Shape& i) { v.push_back(at(t, i)); });
  return v;
}

/// A contiguous CPU tensor with the given values.
inline Tensor from_values(const std::vector<double>& values, IntList sizes,
                          DType dtype = kFloat64) {
  Tensor t = empty_tensor(sizes, dtype, kCPU);
  ARETE_ASSERT(int64_t(values.size()) == t.numel());
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == kFloat64)
      static_cast<double*>(t.data_ptr())[i] = values[i];
    else if (dtype == kInt64)
      static_cast<int64_t*>(t.data_ptr())[i] = int64_t(values[i]);
    else
      static_cast<bool*>(t.data_ptr())[i] = values[i] != 0;
  }
  return t;
}

/// A contiguous CPU tensor with element f(index).
template <class F>
Tensor build_tensor(IntList sizes, F&& f, DType dtype = kFloat64) {
  std::vector<double> v;
  for_each_index(sizes, [&](const Shape& i) { v.push_back(double(f(i))); });
  return from_values(v, sizes, dtype);
}

}  // namespace arete::ops
