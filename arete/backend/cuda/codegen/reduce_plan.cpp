#include "arete/backend/cuda/codegen/reduce_plan.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "arete/core/layout.h"

namespace arete::cuda {

using prim::LoopNest;
using prim::View;

int log2_ceil(int64_t n) { return n <= 1 ? 0 : int(std::bit_width(uint64_t(n - 1))); }

namespace {

constexpr int64_t kMaxGrid = INT32_MAX;
constexpr int64_t kRounds = 16;  // blocks of rows for each multiprocessor
// Kernels step beyond the last element by less than this before they compare.
constexpr int64_t kIndexSlack = int64_t(1) << 17;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

class Planner {
 public:
  Planner(ReducePlan& plan, const ReduceLimits& limits, std::span<const int64_t> element_sizes)
      : plan_(plan), nest_(plan.nest), limits_(limits), size_(element_sizes) {}

  void run() {
    ReduceHeader& h = plan_.header;
    h.outputs = h.reduced = 1;
    for (int d = 0; d < nest_.rank; ++d)
      (d < plan_.reduced_rank ? h.reduced : h.outputs) *= nest_.sizes[size_t(d)];
    plan_.wide_index =
        !nest_.fits_32bit() || h.outputs * h.reduced > INT32_MAX - kIndexSlack || h.reduced == 0;
    if (h.outputs == 0) return;
    if (limits_.tiles && shape_tiles()) return;
    const int column = column_dim();
    plan_.columns = column >= 0;
    if (plan_.columns) bring_to_front(column);
    choose_vector();
    if (plan_.columns)
      shape_columns();
    else
      shape_rows();
    // Columns write results side by side. The parts of one are neighbours where there are many:
    // a warp or more combines them then, which a few threads would do one after the other.
    constexpr int64_t kManyParts = 64;
    const bool parts = !plan_.columns || h.splits >= kManyParts;
    h.part_step = parts ? 1 : h.outputs;
    h.result_step = parts ? h.splits : 1;
  }

 private:
  int n_operands() const { return int(nest_.operands.size()); }
  int64_t stride(int o, int d) const { return nest_.operands[size_t(o)].strides[size_t(d)]; }
  int64_t extent(int d) const { return nest_.sizes[size_t(d)]; }

  /// The kept dimension along which the largest input runs fastest, or -1 if it is a reduced one.
  int column_dim() const {
    if (plan_.header.reduced == 0) return -1;
    int main = -1;
    int64_t most = -1;
    for (int o = plan_.n_outputs; o < n_operands(); ++o) {
      int64_t n = 1;
      for (int d = 0; d < nest_.rank; ++d)
        if (stride(o, d) != 0) n *= extent(d);
      if (n > most) most = n, main = o;
    }
    int best = -1;
    for (int d = 0; main >= 0 && d < nest_.rank; ++d) {
      if (extent(d) == 1 || stride(main, d) == 0) continue;
      if (best < 0 || std::abs(stride(main, d)) < std::abs(stride(main, best))) best = d;
    }
    return best >= plan_.reduced_rank ? best : -1;
  }

  void bring_to_front(int column) {
    const auto rotate = [&](auto& list) {
      std::rotate(list.begin(), list.begin() + column, list.begin() + column + 1);
    };
    rotate(nest_.sizes);
    for (LoopNest::Operand& o : nest_.operands) rotate(o.strides);
  }

  /// Plans tiles, where they fit. Each loads rows of two inputs, kTile of either, once for kTile
  /// squared results; few results leave most multiprocessors nothing to do, as rows of few elements
  /// do of a tile.
  bool shape_tiles() {
    constexpr int64_t kFewest = 8, kShort = 16, kSide = ReducePlan::kTile;
    const int first = plan_.n_outputs, second = first + 1;
    if (plan_.n_outputs != 1 || n_operands() != 3 || plan_.reduced_rank != 1 ||
        extent(0) < kShort || stride(first, 0) != size_[size_t(first)] ||
        stride(second, 0) != size_[size_t(second)])
      return false;
    int left = -1, right = -1;  // the longest dimensions of the one input alone
    for (int d = 1; d < nest_.rank; ++d) {
      int& longest = stride(second, d) == 0 ? left : right;
      if ((stride(first, d) == 0) == (stride(second, d) == 0)) continue;
      if (longest < 0 || extent(d) > extent(longest)) longest = d;
    }
    if (left < 0 || right < 0) return false;
    const int64_t rows = divide_up(extent(left), kSide), columns = divide_up(extent(right), kSide);
    ReduceHeader& h = plan_.header;
    const int64_t blocks = rows * columns * (h.outputs / (extent(left) * extent(right)));
    if (blocks < kFewest || 3 * extent(left) * extent(right) < rows * columns * kSide * kSide)
      return false;
    // To the place behind the reduced dimension, the second input's first.
    const auto bring = [&](int d, int to) {
      std::swap(nest_.sizes[size_t(d)], nest_.sizes[size_t(to)]);
      for (LoopNest::Operand& o : nest_.operands)
        std::swap(o.strides[size_t(d)], o.strides[size_t(to)]);
    };
    bring(right, 1);
    bring(left == 1 ? right : left, 2);
    plan_.tiles = true;
    h.column_blocks = columns;
    h.other_blocks = rows;
    h.blocks = blocks;
    plan_.threads = unsigned(ReducePlan::kTileThreads);
    plan_.grid = unsigned(std::min(kMaxGrid, blocks));
    return true;
  }

  /// Whether rows may be taken `vector` elements at a time from the same element on in all operands
  /// that run along them: rows of one operand may begin anywhere and have any length.
  bool begins_alike(int64_t vector) const {
    if (plan_.reduced_rank != 1 || extent(0) < (plan_.columns ? 1 : 4) * vector) return false;
    const auto place = [&](int o, int d) {
      const int64_t bytes =
          d == 0 ? int64_t(reinterpret_cast<uintptr_t>(nest_.operands[size_t(o)].data))
                 : stride(o, d);
      return bytes / size_[size_t(o)];
    };
    for (int o = plan_.n_outputs; o < n_operands(); ++o) {
      if (stride(o, 0) == 0) continue;
      for (int d = 0; d < nest_.rank; ++d)
        if ((d == 0 || extent(d) > 1) && (place(o, d) - place(plan_.main, d)) % vector != 0)
          return false;
    }
    return true;
  }

  /// Whether everything that runs along the first dimension consists of aligned vectors; only rows
  /// may have a rest.
  bool is_aligned(int64_t vector) const {
    const bool linear = !plan_.columns && plan_.reduced_rank == 1;
    if (extent(0) < vector || (!linear && extent(0) % vector != 0)) return false;
    for (int o = plan_.n_outputs; o < n_operands(); ++o) {
      if (stride(o, 0) == 0) continue;
      const int64_t bytes = vector * size_[size_t(o)];
      if (reinterpret_cast<uintptr_t>(nest_.operands[size_t(o)].data) % uintptr_t(bytes))
        return false;
      for (int d = 1; d < nest_.rank; ++d)
        if (extent(d) > 1 && stride(o, d) % bytes) return false;
    }
    return true;
  }

  /// Threads side by side, each of which has a vector of columns, as a logarithm.
  static int log_side(int64_t columns) { return std::min(5, log2_ceil(columns)); }

  /// Sets vector, uniform and main.
  void choose_vector() {
    int64_t largest = 0;
    int contiguous = 0;
    for (int o = plan_.n_outputs; o < n_operands(); ++o) {
      const int64_t s = stride(o, 0), size = size_[size_t(o)];
      if (s == 0 && extent(0) > 1) continue;
      if (s != size) return;  // strided: one by one
      if (contiguous++ == 0) plan_.main = o;
      largest = std::max(largest, size);
    }
    if (contiguous == 0 || largest > 8) return;
    // A column needs registers for an accumulator of its own.
    const int64_t most = plan_.columns ? limits_.max_vector / 2 : limits_.max_vector;
    int64_t vector = std::min<int64_t>(most, 16 / largest);
    while (vector > 1 && (plan_.columns || !begins_alike(vector)) && !is_aligned(vector))
      vector /= 2;
    if (plan_.columns && vector * largest < 8) {
      int64_t wide = std::min<int64_t>(most, 16 / largest);
      while (wide > vector && (!begins_alike(wide) || plan_.header.reduced < 4 * wide)) wide /= 2;
      if (wide > vector) plan_.shifted = true, vector = wide;
    }
    // Half of that, of 8 bytes still, where many of a block's threads would have no column.
    const auto with_rest = [&](int64_t v) {
      const int64_t columns = extent(0) / v, side = int64_t(1) << log_side(columns);
      return divide_up(columns, side) * side * v;
    };
    while (plan_.columns && !plan_.shifted && vector * largest >= 16 &&
           16 * with_rest(vector / 2) <= 15 * with_rest(vector))
      vector /= 2;
    if (vector == 1) return;
    uint32_t uniform = 0;
    for (int o = plan_.n_outputs; o < n_operands(); ++o)
      if (stride(o, 0) == 0) uniform |= 1u << o;
    plan_.vector = int(vector);
    plan_.uniform = uniform;
  }

  /// Bytes that one element of the space needs, at most.
  int64_t element_bytes() const {
    int64_t bytes = 0;
    for (int o = plan_.n_outputs; o < n_operands(); ++o)
      bytes += stride(o, 0) != 0 ? size_[size_t(o)] : 0;
    return std::max<int64_t>(bytes, 1);
  }

  void shape_rows() {
    ReduceHeader& h = plan_.header;
    const int64_t vectors = divide_up(h.reduced, plan_.vector);
    const int64_t many = 8 * int64_t(limits_.multiprocessors);
    int log_group;
    if (h.outputs >= many && vectors <= 128) {
      // A thread has four vectors or eight elements under way: few threads have little to exchange.
      const int64_t at_once = plan_.vector > 1 ? 4 : 8;
      log_group = log2_ceil(divide_up(vectors, at_once));
      // Fewer in turns, where more than a seventh of the loads would be beyond the end.
      const auto beyond = [&] {
        const int64_t turn = at_once << log_group;
        return divide_up(vectors, turn) * turn - vectors;
      };
      while (plan_.vector > 1 && log_group > 1 && 6 * beyond() > vectors) --log_group;
    } else if (vectors <= 32) {
      log_group = log2_ceil(vectors);
    } else if (h.outputs >= many) {
      // Enough rows to keep every thread busy for a while.
      log_group = vectors <= 256 ? 5 : std::clamp(log2_ceil(divide_up(vectors, 8)), 6, 8);
    } else {
      log_group = vectors <= 64 ? 5 : std::clamp(log2_ceil(divide_up(vectors, 4)), 6, 9);
    }
    const int64_t bytes = h.reduced * element_bytes();
    constexpr int64_t kOneBlock = 128 << 10, kPart = 32 << 10;
    if (h.outputs < 2 * int64_t(limits_.multiprocessors) && bytes > kOneBlock) {
      log_group = 8;
      h.splits = std::min({divide_up(many, h.outputs), divide_up(bytes, kPart), vectors / 256 + 1});
    }
    h.log_x = log_group;
    plan_.threads = std::max(256u, 1u << log_group);
    if (log_group > 5) plan_.threads = 1u << log_group;
    const int64_t per_block = plan_.threads >> log_group;
    // Blocks that take one result after another begin less often.
    const int64_t most = h.splits > 1 ? kMaxGrid : kRounds * int64_t(limits_.multiprocessors);
    plan_.grid = unsigned(std::min(most, divide_up(h.outputs * h.splits, per_block)));
  }

  void shape_columns() {
    ReduceHeader& h = plan_.header;
    const int64_t others = h.outputs / extent(0);
    // Shifted vectors of a block are one more than those that its columns fill.
    const int64_t columns = divide_up(extent(0), plan_.vector) + plan_.shifted;
    const int log_x = log_side(columns);
    // Rows: some eight for each thread, more threads if there is nothing else for them to do.
    int log_y = std::min(8 - log_x, log2_ceil(divide_up(h.reduced, 8)));
    while (log_x + log_y < 8 && log2_ceil(others) < 8 - log_x - log_y &&
           log_y < log2_ceil(h.reduced))
      ++log_y;
    // The rows of a thread begin alike.
    if (plan_.shifted) log_y = std::max(log_y, log2_ceil(plan_.vector));
    const int log_z = std::min(8 - log_x - log_y, log2_ceil(others));
    h.column_blocks = divide_up(columns - plan_.shifted, (int64_t(1) << log_x) - plan_.shifted);
    h.other_blocks = divide_up(others, int64_t(1) << log_z);
    const int64_t blocks = h.column_blocks * h.other_blocks;
    const int64_t target = 32 * int64_t(limits_.multiprocessors);
    if (blocks < target / 4) {
      // At least 32 rows for each thread: partial results are few.
      const int64_t most = h.reduced >> (log_y + 5);
      h.splits = std::clamp<int64_t>(divide_up(target, blocks), 1, std::max<int64_t>(most, 1));
    }
    h.log_x = log_x;
    h.log_y = log_y;
    h.blocks = blocks * h.splits;
    plan_.threads = 1u << (log_x + log_y + log_z);
    plan_.grid = unsigned(std::min(kMaxGrid, h.blocks));
  }

  ReducePlan& plan_;
  LoopNest& nest_;
  const ReduceLimits& limits_;
  std::span<const int64_t> size_;
};

/// Merges neighbouring kept dimensions that all operands walk in one stride.
void merge_kept(ReducePlan& plan) {
  LoopNest& nest = plan.nest;
  int made = plan.reduced_rank;
  for (int d = plan.reduced_rank; d < nest.rank; ++d) {
    bool merge = made > plan.reduced_rank;
    for (const LoopNest::Operand& o : nest.operands)
      merge = merge &&
              o.strides[size_t(d)] == o.strides[size_t(made - 1)] * nest.sizes[size_t(made - 1)];
    if (merge) {
      nest.sizes[size_t(made - 1)] *= nest.sizes[size_t(d)];
      continue;
    }
    nest.sizes[size_t(made)] = nest.sizes[size_t(d)];
    for (LoopNest::Operand& o : nest.operands) o.strides[size_t(made)] = o.strides[size_t(d)];
    ++made;
  }
  nest.rank = made;
}

}  // namespace

ReducePlan plan_reduce(IntList space, uint32_t reduced, std::span<const View> views, int n_outputs,
                       const ReduceLimits& limits) {
  ReducePlan plan;
  plan.n_outputs = n_outputs;
  plan.nest = LoopNest::plan_reduced(space, reduced, views, &plan.reduced_rank);
  SmallVector<int64_t, 8> sizes;
  for (const View& v : views) sizes.push_back(int64_t(size_of(v.dtype)));
  Planner(plan, limits, sizes).run();
  return plan;
}

ReducePlan plan_combine(const ReducePlan& first, std::byte* partials, int64_t size,
                        const ReduceLimits& limits) {
  ReducePlan plan;
  plan.n_outputs = first.n_outputs;
  const ReduceHeader& h = first.header;
  LoopNest& nest = plan.nest;
  nest.rank = 1;
  nest.sizes[0] = h.splits;
  for (int o = 0; o < first.n_outputs; ++o) {
    nest.operands.push_back(first.nest.operands[size_t(o)]);
    nest.operands.back().strides[0] = 0;
  }
  LoopNest::Operand in{};
  in.data = partials;
  in.strides[0] = h.part_step * size;
  int64_t step = h.result_step * size;
  const auto keep = [&](int d) {
    const size_t to = size_t(nest.rank++);
    nest.sizes[to] = first.nest.sizes[size_t(d)];
    for (int o = 0; o < first.n_outputs; ++o)
      nest.operands[size_t(o)].strides[to] = first.nest.operands[size_t(o)].strides[size_t(d)];
    in.strides[to] = step;
    step *= nest.sizes[to];
  };
  if (first.columns) keep(0);
  for (int d = first.reduced_rank + int(first.columns); d < first.nest.rank; ++d) keep(d);
  nest.operands.push_back(in);
  merge_kept(plan);
  SmallVector<int64_t, 4> sizes;
  for (int o = 0; o < first.n_outputs; ++o)
    sizes.push_back(int64_t(size_of(nest.operands[size_t(o)].dtype)));
  sizes.push_back(size);
  Planner(plan, limits, sizes).run();
  // One more launch would cost more than it saves.
  plan.header.splits = 1;
  if (plan.columns) plan.header.blocks = plan.header.column_blocks * plan.header.other_blocks;
  plan.grid =
      std::min(plan.grid, unsigned(std::min<int64_t>(
                              INT32_MAX, plan.columns ? plan.header.blocks : plan.header.outputs)));
  return plan;
}

}  // namespace arete::cuda
