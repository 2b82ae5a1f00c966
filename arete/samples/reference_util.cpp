#include "arete/samples/reference_util.h"

#include "arete/ops/call.h"

namespace arete::ops {

void for_each_index(IntList sizes, const std::function<void(const Shape&)>& f) {
  for (int64_t s : sizes)
    if (s == 0) return;
  Shape index(sizes.size(), 0);
  while (true) {
    f(index);
    int d = int(sizes.size()) - 1;
    for (; d >= 0; --d) {
      if (++index[size_t(d)] < sizes[size_t(d)]) break;
      index[size_t(d)] = 0;
    }
    if (d < 0) return;
  }
}

int64_t flat_position(IntList sizes, IntList index) {
  int64_t p = 0;
  const size_t skip = index.size() - sizes.size();
  for (size_t d = 0; d < sizes.size(); ++d)
    p = p * sizes[d] + (sizes[d] == 1 ? 0 : index[d + skip]);
  return p;
}

double at(const Tensor& t, IntList index) {
  const int64_t p = flat_position(t.sizes(), index);
  if (t.dtype() == kFloat64) return static_cast<const double*>(t.data_ptr())[p];
  if (t.dtype() == kInt64) return double(static_cast<const int64_t*>(t.data_ptr())[p]);
  return static_cast<const bool*>(t.data_ptr())[p] ? 1.0 : 0.0;
}

std::vector<double> values_of(const Tensor& t) {
  std::vector<double> v;
  v.reserve(size_t(t.numel()));
  for_each_index(t.sizes(), [&](const Shape& i) { v.push_back(at(t, i)); });
  return v;
}

Tensor from_values(const std::vector<double>& values, IntList sizes, DType dtype) {
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

Tensor build_tensor(IntList sizes, const std::function<double(const Shape&)>& f, DType dtype) {
  std::vector<double> v;
  for_each_index(sizes, [&](const Shape& i) { v.push_back(f(i)); });
  return from_values(v, sizes, dtype);
}

Shape result_sizes(const Call& c) {
  OutputSpecs specs;
  c.op.infer(c, specs);
  return specs[0].sizes;
}

}  // namespace arete::ops
