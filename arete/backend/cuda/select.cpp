// Selection: the k first elements of long rows, and elements by their place in a row's order.
#include <algorithm>
#include <bit>

#include "arete/backend/cuda/row_operand.h"
#include "arete/backend/cuda/runtime/driver.h"

namespace arete::cuda {

using prim::View;
using sorting::Element;

prim::LoopNest nest_over_rows(IntList space, std::span<const View> views, uint32_t still, int dim) {
  std::array<Shape, 4> strides;
  SmallVector<View, 4> flat;
  for (size_t k = 0; k < views.size(); ++k) {
    View row = views[k];
    strides[k] = Shape(row.strides);
    if (still >> k & 1 && !space.empty()) strides[k][size_t(dim)] = 0;
    row.sizes = space;
    row.strides = strides[k];
    flat.push_back(row);
  }
  return prim::LoopNest::plan(space, flat);
}

namespace {

constexpr int64_t kRowsAtOnce = 1024;

// What is known beforehand about filtering rows, see Note [Selection from a sample].
struct RowFilter {
  static constexpr int64_t kFrom = int64_t(1) << 20;  // shorter rows are not worth it
  int64_t capacity = 0;                               // elements that it can keep of a row
  int rank = 0;

  RowFilter() = default;
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

/// Memory and kernels of Note [Selection by digits], for some rows at a time.
class DigitSelection {
 public:
  /// Which rows, and what is wanted of them, stands in `args`: rows, in, length, flip, and keep or,
  /// where it `selects` one element, place.
  DigitSelection(CudaBackend& backend, CUstream stream, DType dtype, bool selects,
                 const RowFilter& filter, const sorting::TopkArgs& args)
      : backend_(backend),
        stream_(stream),
        dtype_(dtype),
        selects_(selects),
        filters_(filter.capacity > 0),
        batch_(std::min(args.rows.count, filter.rows_at_once())),
        // States, both counts of candidates and histograms begin as 0; bounds do not need to.
        counts_at_(size_t(batch_) * sizeof(sorting::TopkState)),
        zeroed_(counts_at_ + size_t(batch_) * 8 + size_t(batch_ * sorting::kTopkBins) * 4),
        memory_(backend, zeroed_ + size_t(batch_) * 8),
        keys_(backend, size_t(batch_ * kCandidates) * size_of(dtype)),
        positions_(backend, size_t(batch_ * kCandidates) * 4),
        filter_keys_(backend, size_t(batch_ * filter.capacity) * size_of(dtype)),
        filter_positions_(backend, size_t(batch_ * filter.capacity) * 4),
        a_(args) {
    a_.step = int64_t(size_of(dtype));
    a_.states = memory_.address();
    a_.candidate_counts = a_.states + counts_at_;
    a_.filter_counts = a_.candidate_counts + size_t(batch_) * 4;
    a_.histograms = a_.filter_counts + size_t(batch_) * 4;
    a_.bounds = a_.states + zeroed_;
    a_.filter_capacity = filter.capacity;
    a_.filter_keys = filter_keys_.address();
    a_.filter_positions = filter_positions_.address();
    a_.bound_rank = filter.rank;
    a_.candidate_keys = keys_.address();
    a_.candidate_positions = positions_.address();
    a_.capacity = kCandidates;
  }

  /// Calls f(args, number of rows) when candidates of rows from args.first_row on are there.
  template <class F>
  void for_each_batch(F&& f) {
    static KernelTable<2 * kNumDTypes> counts, collects;
    static KernelTable<kNumDTypes> bounds, filters;
    const size_t number = size_t(dtype_), twice = 2 * number + selects_;
    const Kernel& count =
        counts.get(backend_, twice, [&] { return sorting::topk_count_source(dtype_, selects_); });
    const Kernel& collect = collects.get(
        backend_, twice, [&] { return sorting::topk_collect_source(dtype_, selects_); });
    constexpr int64_t kStep = sorting::kTopkThreads * sorting::kTopkItems;
    const int64_t blocks = int64_t(backend_.limits().multiprocessors) * 4;
    for (int64_t first = 0; first < a_.rows.count; first += batch_) {
      const int64_t rows = std::min(batch_, a_.rows.count - first);
      ARETE_CU(cuMemsetD8Async, memory_.address(), 0, zeroed_, stream_);
      a_.first_row = first;
      a_.parts = std::clamp<int64_t>(blocks / rows, 1, (a_.length + kStep - 1) / kStep);
      a_.part_length = ((a_.length + a_.parts - 1) / a_.parts + kStep - 1) / kStep * kStep;
      const Dim3 grid{unsigned(rows * a_.parts)};
      const auto launch = [&](const Kernel& kernel, Dim3 blocks_of_it) {
        backend_.launch(kernel, blocks_of_it, {sorting::kTopkThreads}, 0, stream_, a_);
      };
      if (filters_) {
        launch(bounds.get(backend_, number, [&] { return sorting::topk_bound_source(dtype_); }),
               {unsigned(rows)});
        launch(filters.get(backend_, number, [&] { return sorting::topk_filter_source(dtype_); }),
               grid);
      }
      const auto count_digits = [&](int bits, bool on_positions) {
        for (int left = bits; left > 0;) {
          a_.on_positions = on_positions;
          a_.is_first = left == bits && !on_positions;
          a_.width = std::min(left, sorting::kTopkDigitBits);
          left -= a_.width;
          a_.shift = left;
          launch(count, grid);
        }
      };
      count_digits(int(8 * size_of(dtype_)), false);
      count_digits(int(std::bit_width(uint64_t(a_.length - 1))), true);
      launch(collect, grid);
      f(std::as_const(a_), rows);
    }
  }

 private:
  CudaBackend& backend_;
  const CUstream stream_;
  const DType dtype_;
  const bool selects_, filters_;
  const int64_t batch_;
  const size_t counts_at_, zeroed_;
  Scratch memory_, keys_, positions_, filter_keys_, filter_positions_;
  sorting::TopkArgs a_;
};

/// The rows of `values`, and what is wanted of them.
struct Selection {
  const prim::SelectArgs& args;
  const RowOperand& in;
  prim::LoopNest nest;
  sorting::Place place{};

  Selection(CudaBackend& backend, const prim::SelectArgs& a, const RowOperand& from)
      : args(a), in(from) {
    using Kind = prim::SelectArgs::Place;
    const View views[] = {from.view(), a.values, a.indices, a.ranks};
    const bool ranks = a.place == Kind::ranks;
    nest = nest_over_rows(a.values.sizes, {views, ranks ? 4u : 3u}, 0b001, a.dim);
    place.kind = int32_t(a.place);
    place.rank = a.rank;
    if (ranks) {
      prim::LoopNest alone = nest;
      alone.operands = {nest.operands[3]};
      nest.operands.pop_back();
      place.walk = indexing::make_walk(alone);
      place.ranks = address_of(alone.operands[0].data);
      place.error = error_sink(backend, a.op, a.dim);
    } else if (a.place != Kind::rank && !is_floating(a.in.dtype)) {
      place.kind = int32_t(Kind::rank);
      place.rank = (length() - 1) / 2;
    }
  }
  int64_t length() const { return args.in.sizes[size_t(args.dim)]; }

  sorting::SelectArgs kernel_args() const {
    sorting::SelectArgs s{};
    s.rows = indexing::make_walk(nest);
    s.in = in.address();
    s.values = address_of(args.values.data);
    s.indices = address_of(args.indices.data);
    s.step = step_of(in.view(), args.dim);
    s.length = length();
    s.place = place;
    return s;
  }
};

void launch_select(CudaBackend& backend, CUstream stream, DType dtype, bool candidates,
                   int64_t longest, const sorting::SelectArgs& s) {
  const bool apart = s.step != int64_t(size_of(dtype));
  const sorting::SelectShape shape = sorting::select_shape(longest, apart);
  static KernelTable<kNumDTypes * 2 * sorting::SelectShape::kNumbers> kernels;
  const Kernel& kernel = kernels.get(
      backend, (size_t(dtype) * 2 + candidates) * sorting::SelectShape::kNumbers + shape.number(),
      [&] { return sorting::select_source(dtype, shape, candidates); });
  backend.launch(kernel, {blocks_for(s.rows.count, shape.threads() / shape.group)},
                 {unsigned(shape.threads())}, 0, stream, s);
}

void select_in_registers(CudaBackend& backend, CUstream stream, const prim::SelectArgs& args) {
  const int64_t bytes = int64_t(size_of(args.in.dtype)), length = args.in.sizes[size_t(args.dim)];
  // Warps read neighbouring rows at the same time; blocks that share a row do not.
  const bool copies = length > sorting::kSelectInWarp && step_of(args.in, args.dim) != bytes &&
                      args.in.numel() * bytes >= kGatherRowsFrom;
  const RowOperand in(backend, args.in, args.dim, true, copies);
  launch_select(backend, stream, args.in.dtype, false, length,
                Selection(backend, args, in).kernel_args());
}

void select_of_long_rows(CudaBackend& backend, CUstream stream, const prim::SelectArgs& args) {
  const DType dtype = args.in.dtype;
  const RowOperand in(backend, args.in, args.dim, true,
                      step_of(args.in, args.dim) != int64_t(size_of(dtype)));
  const Selection selection(backend, args, in);
  sorting::SelectArgs s = selection.kernel_args();
  sorting::TopkArgs a{};
  a.rows = s.rows;
  a.in = s.in;
  a.length = s.length;
  a.place = s.place;
  DigitSelection digits(backend, stream, dtype, true, RowFilter(), a);
  digits.for_each_batch([&](const sorting::TopkArgs& found, int64_t rows) {
    s.rows.count = rows;
    s.states = found.states;
    s.candidate_keys = found.candidate_keys;
    s.candidate_positions = found.candidate_positions;
    s.candidate_counts = found.candidate_counts;
    s.capacity = found.capacity;
    s.first_row = found.first_row;
    launch_select(backend, stream, dtype, true, kCandidates, s);
  });
}

}  // namespace

bool topk_takes_at_once(DType dtype, int64_t length, int64_t keep) {
  // To sort a few of a row takes less than to sort the row.
  return length > sorting::kSelectInWarp && length <= sorting::longest_select(size_of(dtype)) &&
         keep <= std::min<int64_t>(length / 4, 1024);
}

void topk_at_once(CudaBackend& backend, CUstream stream, const View& in, const View& values,
                  const View& indices, int dim, bool largest) {
  const DType dtype = in.dtype;
  const int64_t bytes = int64_t(size_of(dtype)), length = in.sizes[size_t(dim)];
  const RowOperand from(backend, in, dim, true, step_of(in, dim) != bytes);
  Shape one(in.sizes);
  one[size_t(dim)] = 1;
  const View views[] = {from.view(), values, indices};
  sorting::RowSortArgs s{};
  s.rows = indexing::make_walk(nest_over_rows(one, views, 0b111, dim));
  s.in = from.address();
  s.values = address_of(values.data);
  s.indices = address_of(indices.data);
  s.steps[0] = bytes;
  s.steps[1] = step_of(values, dim);
  s.steps[2] = step_of(indices, dim);
  s.length = length;
  s.keep = values.sizes[size_t(dim)];
  s.flip = flip_for(largest);
  // Twice as many places as are wanted are found in few steps.
  s.log2_slots = std::max(7, int(std::bit_width(uint64_t(2 * s.keep - 1))));
  const sorting::SelectShape shape = sorting::select_shape(length, false);
  static KernelTable<kNumDTypes * sorting::SelectShape::kNumbers> kernels;
  const Kernel& kernel =
      kernels.get(backend, size_t(dtype) * sorting::SelectShape::kNumbers + shape.number(),
                  [&] { return sorting::topk_rows_source(dtype, shape); });
  backend.launch(kernel, {unsigned(s.rows.count)}, {unsigned(shape.threads())},
                 sorting::row_sort_shared(size_t(1) << s.log2_slots, size_t(bytes), false), stream,
                 s);
}

void topk_of_long_rows(CudaBackend& backend, CUstream stream, const View& in, const View& values,
                       const View& indices, int dim, bool largest) {
  const DType dtype = in.dtype;
  const int64_t length = in.sizes[size_t(dim)], keep = values.sizes[size_t(dim)],
                bytes = int64_t(size_of(dtype));
  const RowOperand from(backend, in, dim, true, step_of(in, dim) != bytes);
  Shape one(in.sizes);
  one[size_t(dim)] = 1;
  const View views[] = {from.view(), values, indices};
  sorting::TopkArgs a{};
  a.rows = indexing::make_walk(nest_over_rows(one, views, 0b111, dim));
  a.in = from.address();
  a.length = length;
  a.keep = keep;
  a.flip = flip_for(largest);
  DigitSelection digits(backend, stream, dtype, false, RowFilter(dtype, length, keep), a);
  digits.for_each_batch([&](const sorting::TopkArgs& found, int64_t rows) {
    sorting::RowSortArgs s{};
    s.rows = found.rows;
    s.rows.count = rows;
    s.in = found.in;
    s.values = address_of(values.data);
    s.indices = address_of(indices.data);
    s.steps[0] = bytes;
    s.steps[1] = step_of(values, dim);
    s.steps[2] = step_of(indices, dim);
    s.length = kCandidates;
    s.keep = keep;
    s.flip = found.flip;
    s.candidate_keys = found.candidate_keys;
    s.candidate_positions = found.candidate_positions;
    s.candidate_counts = found.candidate_counts;
    s.capacity = kCandidates;
    s.first_row = found.first_row;
    launch_row_sort(backend, stream, Element::of(dtype), true, kCandidates, s);
  });
}

void CudaBackend::select(const prim::SelectArgs& args) {
  ARETE_ASSERT(args.values.dtype == args.in.dtype && args.indices.dtype == kInt64);
  refuse_complex(args.in.dtype, args.op);
  if (args.values.numel() == 0) return;
  const int64_t length = args.in.sizes[size_t(args.dim)];
  ARETE_ASSERT(length > 0);
  // Positions have 32 bits.
  if (length >= int64_t(UINT32_MAX)) return Primitives::select(args);
  const CUstream stream = enter(args);
  if (length <= sorting::longest_select(size_of(args.in.dtype)))
    select_in_registers(*this, stream, args);
  else
    select_of_long_rows(*this, stream, args);
}

}  // namespace arete::cuda
