#include "tests/support/record_cases.h"

#include <algorithm>
#include <cmath>

#include "arete/ops/complex.h"
#include "tests/support/tolerance.h"

namespace arete::test {

Tensor to_reference(const Tensor& t) {
  const DType wanted = is_floating(t.dtype())  ? kFloat64
                       : is_complex(t.dtype()) ? kComplex128
                       : t.dtype() == kBool    ? kBool
                                               : kInt64;
  return t.detach().to(kCPU).to(wanted).contiguous();
}

int64_t longest_reduction(const std::vector<ops::OwnedArg>& args) {
  int64_t n = 1;
  for (const ops::OwnedArg& a : args) {
    if (a.kind == ops::Arg::Kind::tensor && a.tensor.defined()) n = std::max(n, a.tensor.numel());
    for (const Tensor& t : a.tensors)
      if (t.defined()) n = std::max(n, t.numel());
  }
  return n;
}

std::string difference(const Tensor& got, const Tensor& want, int64_t reduction_length) {
  if (got.layout().sizes != want.layout().sizes)
    return "sizes " + to_string(got.sizes()) + " instead of " + to_string(want.sizes());
  if (is_complex(got.dtype()) && is_complex(want.dtype()))
    return difference(view_as_real(got), view_as_real(want), reduction_length);
  const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
  double largest = 0;
  for (double v : b)
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (a[i] == b[i]) continue;
    const double bound = tolerance(got.dtype(), reduction_length, std::max(largest, 1.0));
    if (std::isfinite(a[i]) && std::isfinite(b[i]) && std::fabs(a[i] - b[i]) <= bound) continue;
    return "element " + std::to_string(i) + ": " + Scalar(a[i]).to_string() + " instead of " +
           Scalar(b[i]).to_string() + " (tolerance " + Scalar(bound).to_string() + ")";
  }
  return "";
}

Tensor scramble_strides(const Tensor& t) {
  // Twice as long in every dimension, dimensions reversed, every second element used.
  Shape reversed, strides(size_t(t.dim()), 0);
  for (int64_t d = t.dim() - 1; d >= 0; --d) reversed.push_back(t.sizes()[size_t(d)] * 2);
  const Tensor memory = ops::empty_tensor(reversed, t.dtype(), t.device());
  for (int64_t d = 0; d < t.dim(); ++d)
    strides[size_t(d)] = memory.strides()[size_t(t.dim() - 1 - d)] * 2;
  Tensor out = ops::alias(memory, Layout(t.sizes(), strides, 0));
  out.copy_(t.detach());
  if (t.requires_grad()) out.requires_grad_();
  return out;
}

}  // namespace arete::test
