// Stable sort along a dimension, and the k first elements of that order.
#include <algorithm>
#include <optional>

#include "arete/backend/cuda/radix_sort.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/base/error.h"

namespace arete::cuda {
namespace {

using prim::View;
using sorting::Element;

// From this many bytes on, elements that do not lie along the rows are brought together first.
constexpr int64_t kGatherRowsFrom = int64_t(1) << 21;

/// Scratch memory as a view of given sizes in which dimension `dim` is innermost.
class RowsView {
 public:
  RowsView(CudaBackend& backend, DType dtype, IntList sizes, int dim)
      : sizes_(sizes),
        strides_(DenseRows::strides(sizes, dim)),
        memory_(backend, size_t(numel_of(sizes)) * size_of(dtype)),
        view_(memory_.data(), dtype, sizes_, strides_) {}
  RowsView(const RowsView&) = delete;
  const View& view() const { return view_; }

 private:
  Shape sizes_, strides_;
  Scratch memory_;
  View view_;
};

/// An operand as dense rows: itself, or a copy in scratch memory.
class Operand {
 public:
  Operand(CudaBackend& backend, const View& v, int dim, bool copy_in, bool must_be_dense)
      : backend_(backend), original_(v), view_(v) {
    if (!v || !must_be_dense || DenseRows::holds(v, dim)) return;
    copy_.emplace(backend, v.dtype, v.sizes, dim);
    view_ = copy_->view();
    if (copy_in) backend.copy({.out = view_, .in = v});
  }
  const View& view() const { return view_; }
  uint64_t address() const { return address_of(view_.data); }
  /// For outputs: brings what was computed to where it belongs.
  void finish() {
    if (copy_) backend_.copy({.out = original_, .in = view_});
  }

 private:
  CudaBackend& backend_;
  const View& original_;
  View view_;
  std::optional<RowsView> copy_;
};

int64_t step_of(const View& v, int dim) {
  return v && v.rank() > 0 ? v.strides[size_t(dim)] * int64_t(size_of(v.dtype)) : 0;
}

/// The loops over rows of up to three operands, which agree in all sizes but along `dim`.
prim::LoopNest nest_of_rows(std::initializer_list<const View*> views, int dim) {
  std::array<Shape, 3> strides;
  SmallVector<View, 3> flat;
  Shape sizes((*views.begin())->sizes);
  if (!sizes.empty()) sizes[size_t(dim)] = 1;
  for (const View* v : views) {
    if (!*v) continue;
    Shape& s = strides[flat.size()];
    s = Shape(v->strides);
    if (!s.empty()) s[size_t(dim)] = 0;
    View row = *v;
    row.sizes = sizes;
    row.strides = s;
    flat.push_back(row);
  }
  return prim::LoopNest::plan(sizes, flat);
}

void sort_short_rows(CudaBackend& backend, CUstream stream, const View& in, const View& values,
                     const View& indices, int dim, bool descending) {
  const int64_t length = in.rank() == 0 ? 1 : in.sizes[size_t(dim)],
                keep = in.rank() == 0 ? 1 : values.sizes[size_t(dim)];
  const bool large = in.numel() * int64_t(size_of(in.dtype)) >= kGatherRowsFrom;
  const bool along = step_of(in, dim) == int64_t(size_of(in.dtype));
  Operand from(backend, in, dim, true, large && !along),
      to(backend, values, dim, false, large && step_of(values, dim) != int64_t(size_of(in.dtype))),
      at(backend, indices, dim, false, large && step_of(indices, dim) != 8);
  const prim::LoopNest nest = nest_of_rows({&from.view(), &to.view(), &at.view()}, dim);
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
  Operand in(backend, args.in, args.dim, true, true),
      values(backend, args.values, args.dim, false, true),
      indices(backend, args.indices, args.dim, false, true);
  RadixSort sort{.element = Element::of(args.in.dtype),
                 .rows = numel / length,
                 .length = length,
                 .in = in.address(),
                 .passes = int(bytes),
                 .descending = args.descending,
                 .keys = {},
                 .positions = {},
                 .wide = !radix_sort_is_narrow(length),
                 .values = values.address(),
                 .indices = args.indices ? indices.address() : 0};
  const size_t position_bytes = sort.wide ? 8 : 4;
  std::optional<Scratch> keys, positions, more_positions;
  if (sort.passes > 1) {
    keys.emplace(backend, size_t(numel) * bytes);
    positions.emplace(backend, size_t(numel) * position_bytes);
    sort.keys[0] = keys->address();
    sort.positions[0] = positions->address();
    // The number of passes is even, so the last one reads the first buffer and may write over
    // the second.
    sort.keys[1] = sort.values;
    sort.positions[1] = sort.indices;
    if (!sort.indices)
      sort.positions[1] = more_positions.emplace(backend, size_t(numel) * position_bytes).address();
  }
  radix_sort(backend, stream, sort);
  values.finish();
  indices.finish();
}

void refuse_complex(DType dtype, const char* op) {
  if (is_complex(dtype))
    throw NotImplementedError(op, "complex numbers have no order").argument("input");
}

// ---- topk of long rows, see Note [Selection by digits] in device/topk.cuh
constexpr int64_t kCandidates = sorting::kRowSortLength;  // kept of a row, at most
constexpr int64_t kMostSelected = kCandidates / 2;        // the largest k
constexpr int64_t kRowsAtOnce = 1024;

// What is known beforehand about filtering rows, see Note [Selection from a sample].
struct RowFilter {
  static constexpr int64_t kFrom = int64_t(1) << 20;  // shorter rows are not worth it
  int64_t capacity = 0;                               // elements that it can keep of a row
  int rank = 0;

  RowFilter(const DType dtype, int64_t length, int64_t keep) {
    // Keys of few bits have too many ties.
    if (length < kFrom || size_of(dtype) < 2) return;
    // Each sample stands for `each` elements. Some beyond those for the double of what is wanted
    // make too few unlikely; eight times what is to be expected leaves room for bad samples.
    const int64_t each = length / (int64_t(sorting::kTopkThreads) * sorting::kTopkSamples);
    const int64_t samples = 2 * keep / each + 8;
    rank = int(samples) - 1;
    capacity = std::max<int64_t>(int64_t(1) << 16, 8 * samples * each);
  }
  /// Rows filtered at the same time, within a moderate amount of memory.
  int64_t rows_at_once() const {
    return capacity == 0 ? kRowsAtOnce
                         : std::clamp<int64_t>((int64_t(1) << 22) / capacity, 1, kRowsAtOnce);
  }
};

void select_rows(CudaBackend& backend, CUstream stream, const View& in, const View& values,
                 const View& indices, int dim, bool largest) {
  const DType dtype = in.dtype;
  const int64_t length = in.sizes[size_t(dim)], keep = values.sizes[size_t(dim)],
                bytes = int64_t(size_of(dtype));
  Operand from(backend, in, dim, true, step_of(in, dim) != bytes);
  const prim::LoopNest nest = nest_of_rows({&from.view(), &values, &indices}, dim);
  const RowFilter filter(dtype, length, keep);
  const int64_t all_rows = nest.numel(), batch = std::min(all_rows, filter.rows_at_once());
  // States, both counts of candidates and histograms begin as 0; bounds do not need to.
  const size_t counts_at = size_t(batch) * sizeof(sorting::TopkState),
               filter_counts_at = counts_at + size_t(batch) * 4,
               histograms_at = filter_counts_at + size_t(batch) * 4,
               zeroed = histograms_at + size_t(batch * sorting::kTopkBins) * 4;
  Scratch memory(backend, zeroed + size_t(batch) * 8),
      keys(backend, size_t(batch * kCandidates * bytes)),
      positions(backend, size_t(batch * kCandidates) * 4),
      filter_keys(backend, size_t(batch * filter.capacity * bytes)),
      filter_positions(backend, size_t(batch * filter.capacity) * 4);

  static KernelTable<kNumDTypes> counts, collects, bounds, filters;
  const Kernel& count =
      counts.get(backend, size_t(dtype), [&] { return sorting::topk_count_source(dtype); });
  const Kernel& collect =
      collects.get(backend, size_t(dtype), [&] { return sorting::topk_collect_source(dtype); });
  sorting::TopkArgs a{};
  a.rows = indexing::make_walk(nest);
  a.in = from.address();
  a.step = bytes;
  a.length = length;
  a.keep = keep;
  a.flip = flip_for(largest);
  a.states = memory.address();
  a.candidate_counts = a.states + counts_at;
  a.histograms = a.states + histograms_at;
  a.filter_counts = a.states + filter_counts_at;
  a.bounds = a.states + zeroed;
  a.filter_capacity = filter.capacity;
  a.filter_keys = filter_keys.address();
  a.filter_positions = filter_positions.address();
  a.bound_rank = filter.rank;
  a.candidate_keys = keys.address();
  a.candidate_positions = positions.address();
  a.capacity = kCandidates;
  constexpr int64_t kStep = sorting::kTopkThreads * sorting::kTopkItems;
  const int64_t blocks = int64_t(backend.limits().multiprocessors) * 4;
  for (int64_t first = 0; first < all_rows; first += batch) {
    const int64_t rows = std::min(batch, all_rows - first);
    ARETE_CU(cuMemsetD8Async, memory.address(), 0, zeroed, stream);
    a.first_row = first;
    a.parts = std::clamp<int64_t>(blocks / rows, 1, (length + kStep - 1) / kStep);
    a.part_length = ((length + a.parts - 1) / a.parts + kStep - 1) / kStep * kStep;
    const Dim3 grid{unsigned(rows * a.parts)};
    if (filter.capacity > 0) {
      backend.launch(
          bounds.get(backend, size_t(dtype), [&] { return sorting::topk_bound_source(dtype); }),
          {unsigned(rows)}, {sorting::kTopkThreads}, 0, stream, a);
      backend.launch(
          filters.get(backend, size_t(dtype), [&] { return sorting::topk_filter_source(dtype); }),
          grid, {sorting::kTopkThreads}, 0, stream, a);
    }
    const auto count_digits = [&](int bits, bool on_positions) {
      for (int left = bits; left > 0;) {
        a.on_positions = on_positions;
        a.is_first = left == bits && !on_positions;
        a.width = std::min(left, sorting::kTopkDigitBits);
        left -= a.width;
        a.shift = left;
        backend.launch(count, grid, {sorting::kTopkThreads}, 0, stream, a);
      }
    };
    count_digits(int(8 * bytes), false);
    count_digits(int(std::bit_width(uint64_t(length - 1))), true);
    backend.launch(collect, grid, {sorting::kTopkThreads}, 0, stream, a);

    sorting::RowSortArgs s{};
    s.rows = a.rows;
    s.rows.count = rows;
    s.in = a.in;
    s.values = address_of(values.data);
    s.indices = address_of(indices.data);
    s.steps[0] = bytes;
    s.steps[1] = step_of(values, dim);
    s.steps[2] = step_of(indices, dim);
    s.length = kCandidates;
    s.keep = keep;
    s.flip = a.flip;
    s.candidate_keys = a.candidate_keys;
    s.candidate_positions = a.candidate_positions;
    s.candidate_counts = a.candidate_counts;
    s.capacity = kCandidates;
    s.first_row = first;
    launch_row_sort(backend, stream, Element::of(dtype), true, kCandidates, s);
  }
}

}  // namespace

void CudaBackend::sort(const prim::SortArgs& args) {
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
  if (n <= sorting::kRowSortLength)
    sort_short_rows(*this, stream, args.in, args.values, args.indices, args.dim, args.largest);
  else if (k <= kMostSelected && n < int64_t(UINT32_MAX))
    select_rows(*this, stream, args.in, args.values, args.indices, args.dim, args.largest);
  else
    Primitives::topk(args);
}

}  // namespace arete::cuda
