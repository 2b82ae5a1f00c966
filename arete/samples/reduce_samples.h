// What the samples of reductions share.
#pragma once

#include <cmath>
#include <vector>

#include "arete/ops/reduce_family.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {

/// Calls f(elements of the reduced part) for every output of a reduction over argument 0.
template <class F>
Tensor reduce_reference(const Call& c, size_t dims_arg, bool keepdim, F&& f,
                        DType dtype = kFloat64) {
  const Tensor& x = c.tensor(0);
  const uint32_t dims = reduced_dims(c, dims_arg);
  const Shape kept = reduced_sizes(x.sizes(), dims, true);
  std::vector<double> results;
  for_each_index(kept, [&](const Shape& o) {
    std::vector<double> elements;
    for_each_index(x.sizes(), [&](const Shape& i) {
      for (size_t d = 0; d < i.size(); ++d)
        if (!(dims >> d & 1) && i[d] != o[d]) return;
      elements.push_back(at(x, i));
    });
    results.push_back(double(f(elements)));
  });
  return from_values(results, reduced_sizes(x.sizes(), dims, keepdim), dtype);
}

/// The p-norm of the elements.
inline double norm_of(const std::vector<double>& v, double p) {
  double s = 0, big = 0, small = INFINITY;
  for (double e : v) {
    const double a = std::fabs(e);
    s += p == 0 ? a != 0 : std::pow(a, p);
    big = std::fmax(big, a);
    small = std::fmin(small, a);
  }
  return std::isinf(p) ? (p > 0 ? big : small) : p == 0 ? s : std::pow(s, 1 / p);
}

/// Samples (tensor, dims, keepdim, more...) of a reduction.
inline std::vector<Sample> reduce_samples(SampleMaker& m, std::vector<OwnedArg> more = {},
                                          bool distinct = false, bool with_empty = true) {
  const auto make = [&](IntList s) { return distinct ? m.make_distinct(s) : m.make(s); };
  std::vector<Sample> all{
      {{make({3, 4}), std::vector<int64_t>{}, false}, "all"},
      {{make({3, 4}), {0}, false}, "first"},
      {{make({3, 4}), {-1}, true}, "last, keepdim"},
      {{make({2, 3, 4}), {0, 2}, false}, "outer two"},
      {{make({2, 3, 2, 2}), {1, -1}, true}, "two of four, keepdim"},
      {{make({}), std::vector<int64_t>{}, false}, "0-d"},
      {{make({1, 5}), {0}, false}, "size 1"},
      {{m.dtype == kBool ? make({3, 4}) : make({4, 3}).transpose(0, 1), {1}, false}, "strided"}};
  if (with_empty) all.push_back({{make({0, 3}), {0}, false}, "empty"});
  for (Sample& s : all) s.args.insert(s.args.end(), more.begin(), more.end());
  return all;
}

inline std::vector<ErrorSample> reduce_errors(SampleMaker& m, std::vector<OwnedArg> more = {}) {
  std::vector<ErrorSample> all{
      {{m.make({2, 3}), {2}, false}, ErrorKind::index, "Dimension out of range"},
      {{m.make({2, 3}), {0, 0}, false}, ErrorKind::value, "appears multiple times"}};
  for (ErrorSample& s : all) s.args.insert(s.args.end(), more.begin(), more.end());
  return all;
}

}  // namespace arete::ops
