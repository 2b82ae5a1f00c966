// What the tests generated from the operator records share: making, copying and comparing calls.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "arete/ops/call.h"
#include "arete/ops/samples.h"

namespace arete::test {

/// Records in order of names: the parameter of the generated tests.
inline std::string record_name(const testing::TestParamInfo<const ops::OpRecord*>& info) {
  std::string name = info.param->full_name();
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

/// Borrowed arguments of a sample; valid while the sample lives.
inline std::vector<ops::Arg> borrow(const std::vector<ops::OwnedArg>& args) {
  std::vector<ops::Arg> result;
  for (const ops::OwnedArg& a : args) result.push_back(a.borrow());
  return result;
}

/// The same call with every tensor replaced by f(tensor).
template <class F>
std::vector<ops::OwnedArg> map_tensors(const std::vector<ops::OwnedArg>& args, F&& f) {
  std::vector<ops::OwnedArg> result = args;
  for (ops::OwnedArg& a : result) {
    if (a.kind == ops::Arg::Kind::tensor && a.tensor.defined()) a.tensor = f(a.tensor);
    for (Tensor& t : a.tensors)
      if (t.defined()) t = f(t);
  }
  return result;
}

inline ops::Results run(const ops::OpRecord& op, const std::vector<ops::OwnedArg>& args) {
  const std::vector<ops::Arg> borrowed = borrow(args);
  return ops::call_all(op, borrowed);
}

/// Floating tensors as f64, complex ones as complex128, integers as i64, bool as it is: contiguous,
/// on the CPU.
Tensor to_reference(const Tensor& t);
/// The longest reduction a call of these arguments can hold (for tolerances).
int64_t longest_reduction(const std::vector<ops::OwnedArg>& args);
/// "" if `got` equals the f64 / i64 / bool `want` within the tolerance of its dtype, else what
/// differs and where.
std::string difference(const Tensor& got, const Tensor& want, int64_t reduction_length);

/// The tensor's values in a memory with gaps and swapped dimensions.
Tensor scramble_strides(const Tensor& t);

}  // namespace arete::test
