// Stable sort along a dimension, and the k first elements of that order.
#include <optional>

#include "arete/backend/cuda/row_operand.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/base/error.h"

namespace arete::cuda {
namespace {

using prim::View;
using sorting::Element;

void sort_short_rows(CudaBackend& backend, CUstream stream, const View& in, const View& values,
                     const View& indices, int dim, bool descending) {
  const int64_t length = in.rank() == 0 ? 1 : in.sizes[size_t(dim)],
                keep = in.rank() == 0 ? 1 : values.sizes[size_t(dim)];
  const bool large = in.numel() * int64_t(size_of(in.dtype)) >= kGatherRowsFrom;
  const bool along = step_of(in, dim) == int64_t(size_of(in.dtype));
  RowOperand from(backend, in, dim, true, large && !along),
      to(backend, values, dim, false, large && step_of(values, dim) != int64_t(size_of(in.dtype))),
      at(backend, indices, dim, false, large && step_of(indices, dim) != 8);
  Shape one(in.sizes);
  if (!one.empty()) one[size_t(dim)] = 1;
  const prim::View views[] = {from.view(), to.view(), at.view()};
  const prim::LoopNest nest = nest_over_rows(one, {views, at.view() ? 3u : 2u}, 0b111, dim);
  row_sort(backend, stream,
           {.element = Element::of(in.dtype),
            .nest = &nest,
            .steps = {step_of(from.view(), dim), step_of(to.view(), dim), step_of(at.view(), dim)},
            .length = length,
            .keep = keep,
            .descending = descending});
  to.finish();
  at.finish();
}

void sort_long_rows(CudaBackend& backend, CUstream stream, const prim::SortArgs& args) {
  const int64_t numel = args.in.numel(), length = args.in.sizes[size_t(args.dim)];
  const size_t bytes = size_of(args.in.dtype);
  RowOperand in(backend, args.in, args.dim, true, true),
      values(backend, args.values, args.dim, false, true),
      indices(backend, args.indices, args.dim, false, true);
  RadixSort sort{
      .form = {Element::of(args.in.dtype), !radix_sort_is_narrow(length), bool(args.indices)},
      .rows = numel / length,
      .length = length,
      .in = in.address(),
      .passes = int(bytes),
      .descending = args.descending,
      .keys = {},
      .positions = {},
      .values = values.address(),
      .indices = args.indices ? indices.address() : 0};
  std::optional<Scratch> keys, positions;
  if (sort.passes > 1) {
    keys.emplace(backend, size_t(numel) * bytes);
    sort.keys[0] = keys->address();
    // The number of passes is even, so the last one reads the first buffer and may write over
    // the second.
    sort.keys[1] = sort.values;
    if (sort.form.pairs) {
      positions.emplace(backend, size_t(numel) * (sort.form.wide ? 8 : 4));
      sort.positions[0] = positions->address();
      sort.positions[1] = sort.indices;
    }
  }
  radix_sort(backend, stream, sort);
  values.finish();
  indices.finish();
}

}  // namespace

void CudaBackend::sort(const prim::SortArgs& args) {
  if (!args.values) {  // passes go through them
    const prim::ScratchView values(*this, args.in.dtype, args.in.sizes);
    prim::SortArgs with = args;
    with.values = values;
    return sort(with);
  }
  ARETE_ASSERT(args.values.dtype == args.in.dtype);
  ARETE_ASSERT(!args.indices || args.indices.dtype == kInt64);
  refuse_complex(args.in.dtype, "sort");
  const CUstream stream = enter(args);
  if (args.in.numel() == 0) return;
  if (args.in.rank() == 0 || args.in.sizes[size_t(args.dim)] <= sorting::kRowSortLength)
    sort_short_rows(*this, stream, args.in, args.values, args.indices, args.dim, args.descending);
  else
    sort_long_rows(*this, stream, args);
}

void CudaBackend::topk(const prim::TopkArgs& args) {
  ARETE_ASSERT(args.values.dtype == args.in.dtype && args.indices.dtype == kInt64);
  refuse_complex(args.in.dtype, "topk");
  const CUstream stream = enter(args);
  if (args.values.numel() == 0) return;
  const bool scalar = args.in.rank() == 0;
  const int64_t n = scalar ? 1 : args.in.sizes[size_t(args.dim)],
                k = scalar ? 1 : args.values.sizes[size_t(args.dim)];
  ARETE_ASSERT(k <= n);
  if (topk_takes_at_once(args.in.dtype, n, k))
    topk_at_once(*this, stream, args.in, args.values, args.indices, args.dim, args.largest);
  else if (n <= sorting::kRowSortLength)
    sort_short_rows(*this, stream, args.in, args.values, args.indices, args.dim, args.largest);
  else if (k <= kMostSelected && n < int64_t(UINT32_MAX))
    topk_of_long_rows(*this, stream, args.in, args.values, args.indices, args.dim, args.largest);
  else
    Primitives::topk(args);
}

}  // namespace arete::cuda
