// What the files of reductions share.
#pragma once

#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
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

/// Extremes of nothing are refused: a dimension of `dims` without elements. `named`: the call names
/// its dimensions.
inline void check_not_empty(const Call& c, IntList sizes, uint32_t dims, bool named) {
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (!(dims >> d & 1) || sizes[d] > 0) continue;
    const std::string name = std::string(c.name()) + "(): Expected reduction dim ";
    ARETE_CHECK(!named, IndexError(c.name(), name + std::to_string(d) + " to have non-zero size.")
                            .got(describe(c.tensor(0))));
    ARETE_CHECK(false,
                ValueError(c.name(), name + "to be specified for input.numel() == 0. Specify "
                                            "the reduction dim with the 'dim' argument.")
                    .argument("dim " + std::to_string(d))
                    .got(describe(c.tensor(0))));
  }
}

/// How many elements become one.
inline int64_t reduced_count(IntList sizes, uint32_t mask) {
  int64_t n = 1;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (mask >> d & 1) n *= sizes[d];
  return n;
}

/// The gradient of each element is that of its group.
inline Tensor spread(const GradCall& g, const Tensor& grad) {
  const IntList sizes = g.input_sizes(0);
  const uint32_t mask = dims_of_grad(g, 1);
  const Tensor t = grad.dtype() == g.input_dtype(0) ? grad : grad.to(g.input_dtype(0));
  return with_dims(t, sizes, mask).expand(sizes);
}

/// The gradient of elements picked along `dim` at the positions that are output 1: back to them.
TensorList grad_of_picked(const GradCall& g, int64_t dim, bool keepdim);

/// The same call of another first argument.
inline Tensor again(const Call& c, const Tensor& self) {
  SmallVector<Arg, 8> args(c.args().begin(), c.args().end());
  args[0] = Arg(self);
  return call(c.op, std::span<const Arg>(args.data(), args.size()));
}

}  // namespace arete::ops
