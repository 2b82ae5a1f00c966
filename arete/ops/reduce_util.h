// What the files of reductions share: dimensions to masks, layouts with reduced dimensions kept,
// the primitive call, and the plain-loop reference.
#pragma once

#include <vector>

#include "arete/ops/call.h"
#include "arete/ops/fused_builder.h"
#include "arete/ops/reference_util.h"

namespace arete::ops {

/// Bit d: dimension d is reduced. An empty list means all dimensions.
inline uint32_t reduced_mask(IntList dims, int64_t rank, const char* op) {
  uint32_t mask = 0;
  for (int64_t d : normalize_dims(dims, int(rank), op, true)) mask |= 1u << d;
  return rank == 0 ? 0 : mask;
}

inline Shape reduced_sizes(IntList sizes, uint32_t mask, bool keepdim) {
  Shape out;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (!(mask >> d & 1)) out.push_back(sizes[d]);
    else if (keepdim) out.push_back(1);
  }
  return out;
}

/// How many elements become one.
inline int64_t reduced_count(IntList sizes, uint32_t mask) {
  int64_t n = 1;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (mask >> d & 1) n *= sizes[d];
  return n;
}

/// The layout of a result of reducing `sizes` with its reduced dimensions present, of size 1.
inline Layout kept_layout(const Layout& out, IntList sizes, uint32_t mask) {
  if (out.sizes.size() == sizes.size()) return out;
  Layout l;
  l.offset = out.offset;
  size_t next = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const bool gone = mask >> d & 1;
    l.sizes.push_back(gone ? 1 : out.sizes[next]);
    l.strides.push_back(gone ? 0 : out.strides[next]);
    if (!gone) ++next;
  }
  return l;
}

/// A result with its reduced dimensions present (a differentiable view).
inline Tensor kept(const Tensor& t, IntList sizes, uint32_t mask) {
  if (size_t(t.dim()) == sizes.size()) return t;
  return t.reshape(reduced_sizes(sizes, mask, true));
}

/// Memory for a value of each result, seen with the reduced dimensions present.
class KeptScratch {
 public:
  KeptScratch(prim::Primitives& p, DType t, IntList sizes, uint32_t mask)
      : sizes_(reduced_sizes(sizes, mask, true)), scratch_(p, t, sizes_) {}
  const prim::View& view() const { return scratch_.view(); }

 private:
  Shape sizes_;
  prim::ScratchView scratch_;
};

/// The rest of a reduce call.
struct ReduceParts {
  const expr::Program* prologue = nullptr;
  std::span<const expr::Literal> params{};
  const expr::Program* epilogue = nullptr;
  std::span<const expr::Literal> epilogue_params{};
};

/// out (a view with reduced dimensions of size 1) = the inputs reduced over `mask` of `space`.
inline void run_reduce(prim::Primitives& p, prim::Monoid monoid, IntList space, uint32_t mask,
                       std::span<const prim::View> inputs, const prim::View& out,
                       const ReduceParts& parts = {}) {
  p.reduce({monoid, space, mask, inputs, out, parts.prologue, parts.params, parts.epilogue,
            parts.epilogue_params});
}

/// Calls f(values) with the elements of each group that becomes one result, in row-major order,
/// and makes the results a tensor.
template <class F>
Tensor reduce_groups(const Tensor& x, IntList dims, bool keepdim, F f, DType dtype = kFloat64) {
  uint32_t mask = 0;
  for (int64_t d : dims) mask |= 1u << (d < 0 ? d + x.dim() : d);
  if (dims.empty() || x.dim() == 0) mask = (1u << x.dim()) - 1;
  const Shape out = reduced_sizes(x.sizes(), mask, true);
  std::vector<std::vector<double>> groups(size_t(numel_of(out)));
  for_each_index(x.sizes(), [&](const Shape& i) {
    groups[size_t(flat_position(out, i))].push_back(at(x, i));
  });
  std::vector<double> results;
  for (const std::vector<double>& g : groups) results.push_back(double(f(g)));
  return from_values(results, reduced_sizes(x.sizes(), mask, keepdim), dtype);
}

/// Samples (self, dims, keepdim, more...) of every kind of dimension list.
inline std::vector<Sample> reduce_samples(SampleMaker& m, bool distinct = false,
                                          std::vector<OwnedArg> more = {}) {
  const auto make = [&](IntList s) { return distinct ? m.make_distinct(s, 0.25) : m.make(s); };
  const std::vector<int64_t> none;
  std::vector<Sample> all{{{make({2, 3}), none, false}, "all"},
                          {{make({2, 3}), none, true}, "all, kept"},
                          {{make({2, 3, 2}), {1}, false}, "middle"},
                          {{make({2, 3, 2}), {-1, 0}, true}, "two, kept"},
                          {{make({2, 3, 2}), {0, 2}, false}, "outer and inner"},
                          {{m.make_strided({3, 4}), {-2}, false}, "strided"},
                          {{make({4, 1}), {1}, false}, "one element each"},
                          {{make({}), none, false}, "0-d"},
                          {{make({}), {-1}, true}, "0-d with dim"}};
  for (Sample& s : all) s.args.insert(s.args.end(), more.begin(), more.end());
  return all;
}
/// The same and empty ones, for reductions with an identity.
inline std::vector<Sample> reduce_samples_with_empty(SampleMaker& m,
                                                     std::vector<OwnedArg> more = {}) {
  std::vector<Sample> all = reduce_samples(m, false, more);
  const std::vector<int64_t> none;
  std::vector<Sample> empty{{{m.make({0, 3}), none, false}, "nothing"},
                            {{m.make({2, 0}), {1}, false}, "rows of nothing"},
                            {{m.make({2, 0}), {0}, true}, "no rows"}};
  for (Sample& s : empty) {
    s.args.insert(s.args.end(), more.begin(), more.end());
    all.push_back(s);
  }
  return all;
}
inline std::vector<ErrorSample> reduce_errors(SampleMaker& m, std::vector<OwnedArg> more = {}) {
  std::vector<ErrorSample> all{
      {{m.make({2, 3}), {2}, false}, ErrorKind::index, "Dimension out of range"},
      {{m.make({2, 3}), {0, -2}, false}, ErrorKind::value, "dim 0 appears multiple times"}};
  for (ErrorSample& s : all) s.args.insert(s.args.end(), more.begin(), more.end());
  return all;
}

}  // namespace arete::ops
