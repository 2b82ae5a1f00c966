// What the files of reductions share.
#pragma once

#include <cmath>

#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/reference_util.h"
#include "arete/ops/shape.h"

namespace arete::ops {

/// The dims of argument `i` as bits; all of them where the list is empty.
inline uint32_t reduced_dims(const Call& c, size_t i) {
  const int rank = int(c.tensor(0).dim());
  const IntList given = c.has(i) ? c.ints(i) : IntList();
  uint32_t bits = 0;
  for (int64_t d : normalize_dims(given, rank, c.name(), true)) bits |= 1u << d;
  return bits;
}

/// The sizes left after reducing.
inline Shape reduced_sizes(IntList sizes, uint32_t dims, bool keepdim) {
  Shape s;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (!(dims >> d & 1))
      s.push_back(sizes[d]);
    else if (keepdim)
      s.push_back(1);
  }
  return s;
}

/// `out` (with or without the reduced dimensions) seen with all of them, size 1.
inline Layout keepdim_layout(const Tensor& out, IntList in_sizes, uint32_t dims) {
  Layout l;
  l.offset = out.storage_offset();
  const bool kept = out.sizes().size() == in_sizes.size();
  size_t k = 0;
  for (size_t d = 0; d < in_sizes.size(); ++d) {
    const bool reduced = dims >> d & 1;
    l.sizes.push_back(reduced ? 1 : in_sizes[d]);
    l.strides.push_back(reduced ? 0 : out.strides()[kept ? d : k]);
    if (!reduced) ++k;
  }
  return l;
}

/// A gradient of the reduced shape, with the reduced dimensions back (size 1).
inline Tensor with_dims(const Tensor& g, IntList in_sizes, uint32_t dims) {
  return g.dim() == int64_t(in_sizes.size()) ? g : g.reshape(reduced_sizes(in_sizes, dims, true));
}

inline uint32_t dims_of_grad(const GradCall& g, size_t i) {
  const int rank = int(g.input_sizes(0).size());
  uint32_t bits = 0;
  for (int64_t d : normalize_dims(g.arg(i).is_none() ? IntList() : g.ints(i), rank, "reduce", true))
    bits |= 1u << d;
  return bits;
}

/// The same call of another first argument.
inline Tensor again(const Call& c, const Tensor& self) {
  SmallVector<Arg, 8> args(c.args().begin(), c.args().end());
  args[0] = Arg(self);
  return call(c.op, std::span<const Arg>(args.data(), args.size()));
}

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
