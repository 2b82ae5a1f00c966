// Whole rows by index: embedding look-ups and their gradients.
#include <algorithm>
#include <optional>

#include "arete/backend/cuda/index_common.h"
#include "arete/base/error.h"

namespace arete::cuda {
namespace {

/// The largest of 16, 8, ... 1 that divides every one of the numbers.
template <class... N>
size_t common_power(N... numbers) {
  const uint64_t bits = (uint64_t(numbers) | ... | uint64_t(16));
  return size_t(bits & (~bits + 1));
}

}  // namespace

void CudaBackend::take_rows(const prim::TakeRowsArgs& args) {
  const prim::View &table = args.table, &out = args.out;
  ARETE_ASSERT(args.index.dtype == kInt64 && args.index.is_contiguous());
  ARETE_ASSERT(table.rank() == 2 && out.rank() == 2 && table.dtype == out.dtype &&
               table.sizes[1] == out.sizes[1] && args.index.numel() == out.sizes[0]);
  const int64_t n = out.sizes[0], width = out.sizes[1];
  const bool whole = (table.strides[1] == 1 && out.strides[1] == 1) || width == 1;
  if (!whole) return Primitives::take_rows(args);
  const CUstream stream = enter(args);
  if (n == 0 || width == 0) return;
  const int64_t size = int64_t(size_of(out.dtype));
  const int64_t from = table.strides[0] * size, to = out.strides[0] * size;
  const size_t piece =
      common_power(width * size, from, to, address_of(table.data), address_of(out.data));

  indexing::TakeRowsArgs a;
  a.table = address_of(table.data);
  a.out = address_of(out.data);
  a.index = address_of(args.index.data);
  a.pieces = width * size / int64_t(piece);
  a.count = n * a.pieces;
  a.rows = table.sizes[0];
  a.table_stride = from / int64_t(piece);
  a.out_stride = to / int64_t(piece);
  const bool wide = a.count > INT32_MAX;
  if (!wide) a.divisor = indexing::make_divisor(a.pieces);
  a.error = error_sink(*this, args.op, 0);
  static KernelTable<34> kernels;
  const Kernel& k =
      kernels.get(*this, 2 * piece + wide, [&] { return indexing::take_rows_source(piece, wide); });
  launch(k, {blocks_for(a.count, indexing::kElementsPerBlock)}, {indexing::kThreads}, 0, stream, a);
}

void CudaBackend::add_rows(const prim::AddRowsArgs& args) {
  const prim::View &out = args.out, &src = args.src;
  using Runs = prim::AddRowsArgs::Runs;
  const bool routed = bool(args.source), in_runs = args.in_runs();
  ARETE_ASSERT(in_runs || (args.index.dtype == kInt64 && args.index.is_contiguous()));
  ARETE_ASSERT(out.rank() == 2 && src.rank() == 2 && out.dtype == src.dtype &&
               out.sizes[1] == src.sizes[1]);
  ARETE_ASSERT(in_runs || args.index.numel() == (routed ? args.source : src).sizes[0]);
  ARETE_ASSERT(routed || (!in_runs && !args.factors && args.left_out < 0));
  ARETE_ASSERT(!routed || is_differentiable(out.dtype));
  ARETE_ASSERT(args.what != Runs::max || (in_runs && !args.factors && !is_complex(out.dtype)));
  ARETE_ASSERT(!args.top || args.top.is_contiguous());
  const int64_t n = (routed ? args.source : src).sizes[0], width = src.sizes[1],
                rows = out.sizes[0];
  const CUstream stream = enter(args);
  if (width == 0 || (in_runs ? rows : n) == 0) return;

  const int64_t size = int64_t(size_of(out.dtype));
  const bool aligned = out.strides[1] == 1 && src.strides[1] == 1 &&
                       common_power(width * size, out.strides[0] * size, src.strides[0] * size,
                                    address_of(out.data), address_of(src.data)) == 16;
  const bool spread = !aligned;
  const int columns = indexing::add_rows_columns(out.dtype, spread);
  constexpr int64_t kWarps = indexing::kThreads / 32;
  indexing::AddRowsArgs a{};
  a.out = address_of(out.data);
  a.src = address_of(src.data);
  a.source = routed ? address_of(args.source.data) : 0;
  a.factors = args.factors ? address_of(args.factors.data) : 0;
  a.src_rows = src.sizes[0];
  a.left_out = args.left_out < 0 ? -1 : args.left_out;
  a.error = error_sink(*this, args.op, 0);
  a.count = n;
  a.rows = rows;
  a.width = width;
  a.out_stride = out.strides[0];
  a.src_stride = src.strides[0];
  a.out_step = out.strides[1];
  a.src_step = src.strides[1];
  a.slices = (width + 32 * columns - 1) / (32 * columns);
  const int64_t windows = (n + indexing::kPiece - 1) / indexing::kPiece;
  std::optional<Scratch> partial;
  const auto make_partial = [&] {
    partial.emplace(*this, size_t(2 * windows * width) * indexing::sum_bytes(out.dtype));
    a.partial = partial->address();
  };
  if (in_runs) {
    a.begins = args.begins ? address_of(args.begins.data) : 0;
    a.run = args.run;
    a.mean = args.what == Runs::mean;
    const bool maxima = args.what == Runs::max;
    a.top = args.top ? address_of(args.top.data) : 0;
    // Another launch is worth it only for runs that take a warp long, where a warp for each and for
    // its columns would not keep the GPU busy anyway (of runs that are not equally long one may be
    // all). So many warps on each multiprocessor keep memory busy; and if there are a few more than
    // run at once, these are as much faster as they have it to themselves.
    constexpr int64_t kBusyWarps = 16;
    const bool are_many = rows * a.slices >= kBusyWarps * limits().multiprocessors;
    const bool may_cut =
        n > 2 * indexing::kPiece && (args.begins || (args.run > indexing::kPiece && !are_many));
    std::optional<Scratch> piece_counts, piece_tops;
    if (may_cut) {
      make_partial();
      if (a.mean) a.counts = piece_counts.emplace(*this, size_t(windows) * 16).address();
      if (maxima)
        a.piece_tops = piece_tops.emplace(*this, size_t(2 * windows * width) * 8).address();
    }
    static KernelTable<kNumDTypes * 4> run_kernels, run_piece_kernels;
    const size_t number = (size_t(out.dtype) * 2 + spread) * 2 + maxima;
    const Kernel& k = run_kernels.get(
        *this, number, [&] { return indexing::add_runs_source(out.dtype, spread, maxima); });
    launch(k, {blocks_for((rows + (may_cut ? windows : 0)) * a.slices, kWarps)},
           {indexing::kThreads}, 0, stream, a);
    if (!may_cut) return;
    const Kernel& pieces = run_piece_kernels.get(
        *this, number, [&] { return indexing::add_run_pieces_source(out.dtype, spread, maxima); });
    launch(pieces, {blocks_for(windows * a.slices, kWarps)}, {indexing::kThreads}, 0, stream, a);
    return;
  }

  SortedPairs pairs(*this, stream, n, uint64_t(rows));
  const bool wide = pairs.wide();
  indexing::AddRowsKeysArgs keys;
  keys.index = address_of(args.index.data);
  keys.keys = pairs.unsorted();
  keys.count = n;
  keys.rows = rows;
  keys.error = error_sink(*this, args.op, 0);
  static KernelTable<2> key_kernels;
  launch(key_kernels.get(*this, wide, [&] { return indexing::add_rows_keys_source(wide); }),
         {blocks_for(n, indexing::kThreads)}, {indexing::kThreads}, 0, stream, keys);
  if (!args.sorted) pairs.sort();

  a.keys = args.sorted ? pairs.unsorted() : pairs.keys();
  a.positions = args.sorted ? 0 : pairs.positions();
  const bool may_cut = n > indexing::kPiece;
  if (may_cut) make_partial();
  const size_t number = (size_t(out.dtype) * 2 + spread) * 2 + wide;
  static KernelTable<kNumDTypes * 4> add_kernels, routed_kernels, piece_kernels;
  const Kernel& add = (routed ? routed_kernels : add_kernels).get(*this, number, [&] {
    return indexing::add_rows_source(out.dtype, spread, wide, routed);
  });
  launch(add, {blocks_for((n + 31) / 32 * a.slices, kWarps)}, {indexing::kThreads}, 0, stream, a);
  if (!may_cut) return;
  const Kernel& pieces = piece_kernels.get(
      *this, number, [&] { return indexing::add_row_pieces_source(out.dtype, spread, wide); });
  launch(pieces, {blocks_for(windows * a.slices, kWarps)}, {indexing::kThreads}, 0, stream, a);
}

}  // namespace arete::cuda
