#include "arete/backend/cuda/radix_sort.h"

#include <algorithm>
#include <bit>

#include "arete/backend/cuda/runtime/driver.h"
#include "arete/base/error.h"

namespace arete::cuda {

using sorting::Element;

Shape DenseRows::strides(IntList sizes, int dim) {
  Shape out(sizes.size(), 1);
  int64_t step = sizes.empty() ? 1 : std::max<int64_t>(sizes[size_t(dim)], 1);
  for (int d = int(sizes.size()) - 1; d >= 0; --d) {
    if (d == dim) continue;
    out[size_t(d)] = step;
    step *= std::max<int64_t>(sizes[size_t(d)], 1);
  }
  return out;
}

bool DenseRows::holds(const prim::View& v, int dim) {
  const Shape wanted = strides(v.sizes, dim);
  for (int d = 0; d < v.rank(); ++d)
    if (v.sizes[size_t(d)] > 1 && v.strides[size_t(d)] != wanted[size_t(d)]) return false;
  return true;
}

size_t radix_sort(CudaBackend& backend, CUstream stream, const RadixSort& sort) {
  const sorting::SortForm& form = sort.form;
  const size_t position_bytes = form.wide ? 8 : 4;
  const int64_t tile = sorting::sort_tile(form), tiles = (sort.length + tile - 1) / tile,
                passes = sort.passes;
  const int64_t table = sort.rows * sorting::kDigits;  // counts of one digit
  // Counts of all digits, states of all tiles, numbers of next tiles, idle passes of rows.
  const size_t counts_bytes = size_t(passes * table) * position_bytes,
               states_bytes = size_t(passes * tiles * table) * position_bytes,
               bytes = counts_bytes + states_bytes + size_t(passes + sort.rows) * 4;
  Scratch memory(backend, bytes);
  ARETE_CU(cuMemsetD8Async, memory.address(), 0, bytes, stream);
  const uint64_t states = memory.address() + counts_bytes, next_tiles = states + states_bytes,
                 idle = next_tiles + uint64_t(4 * passes);
  const uint64_t flip = flip_for(sort.descending);
  sorting::SortHistogramArgs h;
  h.in = sort.in;
  h.counts = memory.address();
  h.rows = sort.rows;
  h.length = sort.length;
  constexpr int64_t kStep = sorting::kHistogramThreads * sorting::kHistogramItems;
  const int64_t blocks = int64_t(backend.limits().multiprocessors) * 4;
  h.parts = std::clamp<int64_t>(blocks / sort.rows, 1, (sort.length + kStep - 1) / kStep);
  h.part_length = (sort.length + h.parts - 1) / h.parts;
  h.part_length = (h.part_length + kStep - 1) / kStep * kStep;
  h.flip = flip;
  h.passes = passes;
  static KernelTable<sorting::SortForm::kNumbers> histograms, pass_kernels;
  static KernelTable<2> bases;
  const Kernel& histogram =
      histograms.get(backend, form.number(), [&] { return sorting::sort_histogram_source(form); });
  backend.launch(histogram, {unsigned(sort.rows * h.parts)}, {sorting::kHistogramThreads}, 0,
                 stream, h);
  backend.launch(
      bases.get(backend, form.wide, [&] { return sorting::sort_bases_source(form.wide); }),
      {unsigned(sort.rows * passes)}, {sorting::kDigits}, 0, stream,
      sorting::SortBasesArgs{h.counts, idle, sort.rows, sort.length});

  const Kernel& pass =
      pass_kernels.get(backend, form.number(), [&] { return sorting::sort_pass_source(form); });
  sorting::SortPassArgs a{};
  a.in = sort.in;
  for (size_t k : {0, 1}) a.keys[k] = sort.keys[k], a.positions[k] = sort.positions[k];
  a.values = sort.values;
  a.indices = sort.indices;
  a.idle = idle;
  a.length = sort.length;
  a.tiles = tiles;
  a.flip = flip;
  a.passes = int32_t(passes);
  for (int64_t p = 0; p < passes; ++p) {
    a.bases = h.counts + uint64_t(p * table) * position_bytes;
    a.states = states + uint64_t(p * tiles * table) * position_bytes;
    a.next_tile = next_tiles + uint64_t(4 * p);
    a.pass = int32_t(p);
    backend.launch(pass, {unsigned(sort.rows * tiles)}, {sorting::kSortThreads},
                   sorting::sort_shared(form), stream, a);
  }
  return size_t((passes - 1) % 2);
}

void launch_row_sort(CudaBackend& backend, CUstream stream, Element element, bool candidates,
                     int64_t longest, sorting::RowSortArgs& args) {
  // Blocks of about 1024 items, of several rows where those are short.
  const int slots = std::bit_width(uint64_t(longest - 1)),
            rows = std::bit_width(uint64_t(args.rows.count - 1));
  args.log2_slots = slots;
  args.log2_rows = std::clamp(10 - slots, 0, rows);
  const int64_t items = int64_t(1) << (slots + args.log2_rows);
  const unsigned threads = unsigned(std::max<int64_t>(items / 8, 32));
  static KernelTable<2 * Element::kNumbers> kernels;
  const Kernel& k = kernels.get(backend, element.number() * 2 + candidates,
                                [&] { return sorting::row_sort_source(element, candidates); });
  const int64_t blocks = ((args.rows.count - 1) >> args.log2_rows) + 1;
  backend.launch(k, {unsigned(blocks)}, {threads},
                 sorting::row_sort_shared(size_t(items), element.bytes(), candidates), stream,
                 args);
}

void row_sort(CudaBackend& backend, CUstream stream, const RowSort& sort) {
  sorting::RowSortArgs a{};
  a.rows = indexing::make_walk(*sort.nest);
  const auto& operands = sort.nest->operands;
  a.in = address_of(operands[0].data);
  a.values = address_of(operands[1].data);
  a.indices = operands.size() > 2 ? address_of(operands[2].data) : 0;
  for (int k = 0; k < 3; ++k) a.steps[k] = sort.steps[k];
  a.length = sort.length;
  a.keep = sort.keep;
  a.flip = flip_for(sort.descending);
  launch_row_sort(backend, stream, sort.element, false, sort.length, a);
}

SortedPairs::SortedPairs(CudaBackend& backend, CUstream stream, int64_t count, uint64_t largest)
    : backend_(backend),
      stream_(stream),
      count_(count),
      bits_(std::max(1, int(std::bit_width(largest)))),
      wide_(!radix_sort_is_narrow(count) || bits_ > 32),
      keys_{Scratch(backend, size_t(count) * (wide_ ? 8 : 4)),
            Scratch(backend, size_t(count) * (wide_ ? 8 : 4))},
      positions_{Scratch(backend, size_t(count) * (wide_ ? 8 : 4)),
                 Scratch(backend, size_t(count) * (wide_ ? 8 : 4))} {}

void SortedPairs::sort() {
  if (!wide_ && count_ <= sorting::kRowSortLength) {
    prim::LoopNest one;  // a single row
    one.sizes[0] = 1;
    for (uint64_t address : {keys_[0].address(), keys_[1].address(), positions_[1].address()}) {
      prim::LoopNest::Operand o{};
      o.data = reinterpret_cast<std::byte*>(address);
      one.operands.push_back(o);
    }
    row_sort(backend_, stream_,
             {.element = sorting::Element::key32(),
              .nest = &one,
              .steps = {4, 4, 4},
              .length = count_,
              .keep = count_});
    result_ = 1;
    return;
  }
  // The first pass reads the keys where they are and writes to the other buffer.
  RadixSort sort{
      .form = {wide_ ? sorting::Element::key64() : sorting::Element::key32(), wide_},
      .rows = 1,
      .length = count_,
      .in = keys_[0].address(),
      .passes = (bits_ + 7) / 8,
      .keys = {keys_[1].address(), keys_[0].address()},
      .positions = {positions_[1].address(), positions_[0].address()},
  };
  result_ = 1 - radix_sort(backend_, stream_, sort);
}

}  // namespace arete::cuda
