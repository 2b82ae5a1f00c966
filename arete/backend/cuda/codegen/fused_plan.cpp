#include "arete/backend/cuda/codegen/fused_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>

#include "arete/expr/program.h"
#include "arete/prim/loop_nest.h"
#include "arete/prim/tables.h"

namespace arete::cuda {
namespace {

using prim::FusedStage;
using prim::LoopNest;
using prim::View;
using Kind = FusedStage::Kind;
using Mapping = FusedVariant::Mapping;

constexpr int kMaxArgumentBytes = 4000;  // kernels take 4 KB
constexpr int64_t kNarrow = 1ll << 30;   // 32-bit positions keep clear of overflow

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

class Planner {
 public:
  /// `columns`: with the reduce_columns stages; the plan's variant says whether that is possible.
  Planner(const prim::FusedArgs& args, const FusedLimits& limits, bool columns)
      : args_(args),
        limits_(limits),
        outputs_(int(args.outputs.size())),
        tables_(prim::tables_of(*args.spec)) {
    if (columns) columns_ = columns_of(*args.spec);
  }

  FusedPlan plan() {
    FusedPlan& p = plan_;
    if (args_.inputs.size() + args_.outputs.size() > size_t(LoopNest::kMaxOperands)) {
      p.kind = FusedPlan::Kind::decompose;
      return std::move(p);
    }
    SmallVector<View, 8> views;
    views.append(args_.outputs.begin(), args_.outputs.end());
    for (const View& v : prim::heads_of_tables(args_.inputs, tables_)) views.push_back(v);
    nest_ = LoopNest::plan_split(args_.space, args_.outer_rank, views, &inner_);
    for (int d = 0; d < nest_.rank; ++d) (d < inner_ ? elements_ : rows_) *= nest_.sizes[size_t(d)];
    if (rows_ == 0) return std::move(p);
    const size_t words = 6 + std::max<size_t>(1, args_.inputs.size()) + size_t(nest_.rank) +
                         nest_.operands.size() * size_t(1 + nest_.rank) +
                         std::max<size_t>(1, parameters_of(*args_.spec));
    if (words * 8 > size_t(kMaxArgumentBytes)) {
      p.kind = FusedPlan::Kind::decompose;
      return std::move(p);
    }

    look_at_stages();
    p.variant.mapping = choose_mapping();
    p.variant.inner_rank = inner_;
    p.variant.outer_rank = nest_.rank - inner_;
    choose_vector();
    classify_inputs();
    p.kind = FusedPlan::Kind::one_launch;
    const bool looks_up = choose_look_ups();
    const bool resident = !looks_up && (columns_.empty() || takes_columns()) && choose_resident();
    if (!resident && !columns_.empty()) return std::move(p);
    if (!resident && !looks_up) {
      choose_bundles();
      choose_streamed();
      FusedVariant& v = p.variant;
      v.exact = p.kind == FusedPlan::Kind::one_launch && !v.partial && !v.shifted &&
                chunks() % (int64_t(v.threads) * v.count) == 0;
    }
    if (!columns_.empty() && !choose_column_blocks()) return std::move(p);
    p.variant.wide = !is_narrow();
    p.grid = unsigned(std::min<int64_t>(ceil_div(row_groups(), p.variant.rows), INT32_MAX));
    if (!columns_.empty()) {
      p.variant.columns = true;
      p.variant.ahead = loads_ahead();
      p.grid = unsigned(std::min(int64_t(p.grid), column_blocks()));
      p.columns = size_t(elements_);
      p.partials = column_partials();
    }
    write_arguments();
    return std::move(p);
  }

 private:
  const LoopNest::Operand& input(size_t i) const { return nest_.operands[size_t(outputs_) + i]; }
  LoopNest::Operand& operand(size_t k) { return nest_.operands[k]; }

  // How often inputs are read element by element, and which outputs are stored so.
  void look_at_stages() {
    for (const FusedStage& s : args_.spec->stages) {
      if (s.kind == Kind::store_row) has_row_stores_ = true;
      if (s.kind == Kind::reduce_columns && columns_.empty()) continue;
      if (s.kind != Kind::store_row)
        for (int i : s.inputs)
          if (i >= 0) needed_ |= 1u << i;
      if (s.kind == Kind::store)
        for (size_t k = 0; k < s.program->outputs().size(); ++k)
          stored_ |= 1u << (s.first_output + int(k));
      if (s.kind == Kind::row || s.kind == Kind::store_row) continue;
      uint32_t read = 0;
      for (int i : s.inputs)
        if (i >= 0) read |= 1u << i;
      read &= ~tables_;
      read_twice_ |= read_ & read;
      read_ |= read;
    }
  }

  // Along which dimensions does the largest operand run fastest? Of equal ones an input counts.
  // Rotates the outer dimension in
  // question to the front.
  Mapping choose_mapping() {
    if (elements_ <= 1 || inner_ == nest_.rank) return Mapping::rows;
    const LoopNest::Operand* main = nullptr;
    int64_t most = -1;
    for (size_t k = 0; k < nest_.operands.size(); ++k) {
      const LoopNest::Operand& o = operand((size_t(outputs_) + k) % nest_.operands.size());
      int64_t n = 1;
      for (int d = 0; d < nest_.rank; ++d)
        if (o.strides[size_t(d)] != 0) n *= nest_.sizes[size_t(d)];
      if (n > most) most = n, main = &o;
    }
    if (!main) return Mapping::rows;
    const int64_t unit = int64_t(size_of(main->dtype));
    const int64_t few = only_looks_up() ? 2 : 8;
    for (int d = 0; d < inner_; ++d)
      if (std::abs(main->strides[size_t(d)]) == unit && nest_.sizes[size_t(d)] > 1)
        return Mapping::rows;
    for (int d = inner_; d < nest_.rank; ++d) {
      if (std::abs(main->strides[size_t(d)]) != unit || nest_.sizes[size_t(d)] < few) continue;
      const auto rotate = [&](auto& list) {
        std::rotate(list.begin() + inner_, list.begin() + d, list.begin() + d + 1);
      };
      rotate(nest_.sizes);
      for (LoopNest::Operand& o : nest_.operands) rotate(o.strides);
      return Mapping::columns;
    }
    return is_of_pairs() ? Mapping::columns : Mapping::rows;
  }

  // Whether many rows all read the same elements, each beside numbers of its own, as the forces
  // between bodies do: then threads that have a row each share what they load.
  bool is_of_pairs() {
    if (stored_ != 0 || rows_ < 32 * int64_t(limits_.multiprocessors)) return false;
    bool all = true;
    for_each_varying([&](const LoopNest::Operand& o) {
      for (int d = inner_; d < nest_.rank; ++d) all &= o.strides[size_t(d)] == 0;
    });
    return all && nest_.sizes[size_t(inner_)] >= 32;
  }

  bool is_uniform(const LoopNest::Operand& o) const {
    for (int d = 0; d < inner_; ++d)
      if (o.strides[size_t(d)] != 0) return false;
    return true;
  }

  // Calls f with the operands that are read or stored element by element and not the same for all
  // of a row.
  template <class F>
  void for_each_varying(F f) const {
    for (int k = 0; k < outputs_; ++k)
      if (stored_ >> k & 1) f(nest_.operands[size_t(k)]);
    for (size_t i = 0; i < args_.inputs.size(); ++i)
      if ((read_ >> i & 1) && !is_uniform(input(i))) f(input(i));
  }

  // The widest access that all operands allow: a power of two.
  void choose_vector() {
    int& vector = plan_.variant.vector;
    vector = 1;
    if (plan_.variant.mapping == Mapping::columns || elements_ == 0) return;
    // 16 bytes of the smallest elements, but no more than 8 of them.
    int64_t smallest = 16, most = int64_t(nest_.sizes[0] & -nest_.sizes[0]);
    bool possible = true, any = false;
    for_each_varying([&](const LoopNest::Operand& o) {
      const int64_t size = int64_t(size_of(o.dtype));
      if (o.strides[0] == 0) return;
      possible &= o.strides[0] == size;
      any = true;
      smallest = std::min(smallest, size);
      // The power of two that all its accesses are aligned to, if that is less than 16.
      uint64_t bits = reinterpret_cast<uintptr_t>(o.data) | 16;
      for (int d = 1; d < nest_.rank; ++d) bits |= uint64_t(o.strides[size_t(d)]);
      const int64_t aligned = int64_t(bits & -bits);
      if (aligned < 16) most = std::min(most, aligned / size);
    });
    if (possible && any)
      vector = int(std::max<int64_t>(1, std::min({most, 16 / smallest, int64_t(8)})));
  }

  // The operand that varies along most rows: chunks lie as its rows do. Null if all rows share all.
  const LoopNest::Operand* main_operand() const {
    const LoopNest::Operand* main = nullptr;
    int64_t most = rows_ > 1;
    for_each_varying([&](const LoopNest::Operand& o) {
      int64_t n = 1;
      for (int d = inner_; d < nest_.rank; ++d)
        if (o.strides[size_t(d)] != 0) n *= nest_.sizes[size_t(d)];
      if (n > most) most = n, main = &o;
    });
    return main;
  }

  // Whether rows of the main operand share one of this operand: they begin elsewhere in a chunk.
  bool is_shared(const LoopNest::Operand& o, const LoopNest::Operand& main) const {
    for (int d = inner_; d < nest_.rank; ++d)
      if (o.strides[size_t(d)] == 0 && main.strides[size_t(d)] != 0) return true;
    return false;
  }

  // The widest access where rows may begin anywhere in one, at the same element of it in all
  // operands that have rows of their own; what is looked up takes no elements of other rows.
  int shifted_vector(const LoopNest::Operand& main) const {
    if (plan_.variant.mapping != Mapping::rows || inner_ != 1 || !columns_.empty()) return 1;
    for (const FusedStage& s : args_.spec->stages)
      if ((s.kind == Kind::reduce || s.kind == Kind::store) && s.program->tables() != 0) return 1;
    bool possible = true;
    int64_t width = 8;
    for_each_varying([&](const LoopNest::Operand& o) {
      const int64_t size = int64_t(size_of(o.dtype));
      possible &= o.strides[0] == size;
      if (is_shared(o, main)) return;
      width = std::min(width, 16 / size);
      const auto place = [](const LoopNest::Operand& of, int d) {
        const int64_t bytes =
            d == 0 ? int64_t(reinterpret_cast<uintptr_t>(of.data)) : of.strides[size_t(d)];
        return bytes / int64_t(size_of(of.dtype));
      };
      for (int d = 0; d < nest_.rank; ++d)
        while (width > 1 && (d == 0 || nest_.sizes[size_t(d)] > 1) &&
               (place(o, d) - place(main, d)) % width != 0)
          width /= 2;
    });
    while (width > 1 && elements_ < 4 * width) width /= 2;
    // Two doubles at once save less than it takes to tell which of them count.
    return possible && width > 2 ? int(width) : 1;
  }

  // Takes wider chunks, of at most `most` elements, if rows may begin anywhere in them.
  void shift(int most) {
    FusedVariant& v = plan_.variant;
    const LoopNest::Operand* const main = main_operand();
    int wider = main ? shifted_vector(*main) : 1;
    while (wider > most) wider /= 2;
    if (wider <= v.vector) return;
    v.vector = wider;
    v.shifted = true;
    v.shared = 0;
    for (size_t i = 0; i < args_.inputs.size(); ++i)
      if ((read_ >> i & 1) && !is_uniform(input(i)) && is_shared(input(i), *main))
        v.shared |= 1u << i;
  }

  // Chunks of a row, and what rows come in.
  int64_t chunks() const {
    const FusedVariant& v = plan_.variant;
    // Where rows begin in the middle of a chunk, they take one more at most.
    if (v.shifted) return ceil_div(elements_ + v.vector - 1, v.vector);
    return v.bundles ? elements_ : elements_ / v.vector;
  }
  int64_t row_groups() const {
    return plan_.variant.bundles ? rows_ / plan_.variant.vector : rows_;
  }

  // With elements of 2 bytes a thread that has one row moves little for each instruction: 8 bytes
  // of neighbouring rows at a time, as long as there are enough rows for a warp.
  void choose_bundles() {
    FusedVariant& v = plan_.variant;
    if (v.mapping != Mapping::columns) return;
    const size_t row = size_t(inner_);
    int64_t width = 8, largest = 1;
    for_each_varying([&](const LoopNest::Operand& o) {
      const int64_t size = int64_t(size_of(o.dtype)), step = o.strides[row];
      if (step == 0) return;
      if (step != size) width = 1;
      largest = std::max(largest, size);
    });
    width = std::min(width, 8 / largest);
    // Each row has registers for its own numbers, and two for each result that a stage adds up.
    int64_t results = 0;
    for (const FusedStage& s : args_.spec->stages)
      if (s.kind == Kind::reduce) results = std::max(results, int64_t(s.program->outputs().size()));
    const int64_t registers = std::popcount(plan_.variant.uniform) + 2 * results;
    width = std::min(width, int64_t(std::bit_floor(uint64_t(
                                std::max<int64_t>(1, 40 / std::max<int64_t>(1, registers))))));
    while (width > 1 && (nest_.sizes[row] % width != 0 || rows_ / width < 32)) width /= 2;
    for_each_varying([&](const LoopNest::Operand& o) {
      if (o.strides[row] == 0) return;
      uint64_t bits = reinterpret_cast<uintptr_t>(o.data);
      for (size_t d = 0; d < size_t(nest_.rank); ++d)
        if (d != row) bits |= uint64_t(o.strides[d]);
      while (width > 1 && bits % uint64_t(width * int64_t(size_of(o.dtype))) != 0) width /= 2;
    });
    if (width <= 1) return;
    v.bundles = true;
    v.vector = int(width);
    classify_inputs();
  }

  void classify_inputs() {
    FusedVariant& v = plan_.variant;
    v.uniform = v.single = v.cached = v.written = 0;
    for (size_t i = 0; i < args_.inputs.size(); ++i) {
      const uint32_t bit = 1u << i;
      for (const View& o : args_.outputs)
        if (o.data == args_.inputs[i].data) v.written |= bit;
      if (tables_ & bit) continue;
      if (is_uniform(input(i))) {
        // Read before the stages, also by stages over rows.
        v.uniform |= bit;
        continue;
      }
      if (!(read_ & bit)) continue;
      if (v.vector > 1 && input(i).strides[v.bundles ? size_t(inner_) : 0] == 0) {
        v.single |= bit;
        continue;
      }
      // What all rows share is in the nearest cache anyway.
      bool own = rows_ == 1;
      for (int d = inner_; d < nest_.rank; ++d) own |= input(i).strides[size_t(d)] != 0;
      if ((read_twice_ & bit) && own) v.cached |= bit;
    }
  }

  // Whether the blocks' results over rows can lie in memory as the outputs do.
  bool takes_columns() {
    if (plan_.variant.mapping != Mapping::rows || inner_ != 1 || elements_ == 0) return false;
    for (const FusedColumn& c : columns_) {
      const LoopNest::Operand& o = operand(size_t(c.output));
      if (c.type == expr::Type::boolean) return false;
      if (elements_ > 1 && o.strides[0] != int64_t(size_of(o.dtype))) return false;
    }
    return true;
  }

  // Blocks that leave results for columns, and the bytes of these.
  int64_t column_blocks() const {
    const FusedVariant& v = plan_.variant;
    return std::min(ceil_div(row_groups(), v.rows),
                    int64_t(limits_.multiprocessors) * v.resident_blocks());
  }
  size_t column_partials() const {
    return columns_.size() * size_t(column_blocks() * elements_) * column_bytes(columns_);
  }
  // False where blocks have so few rows each that what they leave is much of what they read: to
  // read the rows once more takes no such memory then, of very few rows even where it is little.
  bool choose_column_blocks() {
    FusedVariant& v = plan_.variant;
    constexpr int64_t kMany = 16, kFew = 4;  // rows of one thread
    constexpr int64_t kVeryFew = 64;         // rows
    constexpr int kLargeBlock = 256;
    constexpr size_t kLittle = size_t(256) << 10, kMuch = size_t(4) << 20;  // bytes
    const auto has_rows = [&](int64_t n) { return rows_ >= n * v.rows * column_blocks(); };
    if (!has_rows(kMany) && column_partials() > kLittle && v.block() < kLargeBlock)
      v.rows = kLargeBlock / v.threads;  // fewer blocks for as many rows at a time
    return has_rows(kFew) || column_partials() <= (rows_ <= kVeryFew ? kLittle : kMuch);
  }

  // Whether threads have the registers for the data of two rows: those of 16-bit elements, of which
  // one by itself takes a register, too.
  bool loads_ahead() const {
    if (plan_.variant.vector == 1 && plan_.variant.count > 4) return false;
    for (size_t i = 0; i < args_.inputs.size(); ++i)
      if ((plan_.variant.cached >> i & 1) && size_of(args_.inputs[i].dtype) > 2) return false;
    return true;
  }

  // Registers that one element of the row takes; doubles are computed with more of them.
  int registers_per_element() const {
    int n = 0;
    for (size_t i = 0; i < args_.inputs.size(); ++i)
      if (plan_.variant.cached >> i & 1) n += size_of(args_.inputs[i].dtype) == 8 ? 4 : 1;
    for (const FusedColumn& c : columns_)
      n += c.type == expr::Type::f64 || c.type == expr::Type::i64 ? 2 : 1;
    return std::max(1, n);
  }

  // Rows whose neighbours run beside each other and whose elements are looked up in what all rows
  // share, as the channels of places in images are. Threads that are at one element at a time share
  // the lines that the nearest cache holds, and what a stage makes of a row pays for many elements:
  // so a thread has whole rows, and a block as many as there can be, unless the elements are so few
  // that the start of a large block would cost more. Where rows are few, elements are divided among
  // blocks.
  bool only_looks_up() const {
    return tables_ != 0 && stored_ != 0 && !has_row_stores_ && columns_.empty() &&
           reductions_of(*args_.spec).stages == 0;
  }
  bool choose_look_ups() {
    FusedVariant& v = plan_.variant;
    constexpr int64_t kAtOnce = 4;    // elements that are all under way together
    constexpr int64_t kOfThread = 8;  // no thread has fewer if there are more
    constexpr int64_t kMostThreads = 1024;
    if (!only_looks_up() || v.mapping != Mapping::columns || v.cached != 0 || v.written != 0)
      return false;
    choose_bundles();
    const int64_t most = ceil_div(elements_, kOfThread);  // parts of a row
    const int64_t threads = std::bit_floor(uint64_t(row_groups() * most / limits_.multiprocessors));
    v.threads = 1;
    // No more than have a row: others would do nothing.
    const int64_t useful = std::max<int64_t>(32, std::bit_ceil(uint64_t(row_groups())));
    v.rows =
        int(std::clamp<int64_t>(threads, 32, std::min(most == 1 ? 128 : kMostThreads, useful)));
    v.count = elements_ <= kAtOnce ? int(kAtOnce) : 2;
    const int64_t at_work = limits_.multiprocessors * kMostThreads,
                  parts = std::clamp<int64_t>(at_work / (ceil_div(row_groups(), v.rows) * v.rows),
                                              1, most);
    span_ = ceil_div(ceil_div(elements_, parts), v.count) * v.count;
    if (span_ >= elements_) return true;
    plan_.kind = FusedPlan::Kind::phases;
    plan_.splits = unsigned(ceil_div(elements_, span_));
    return true;
  }

  bool choose_resident() {
    FusedVariant& v = plan_.variant;
    if (elements_ == 0) return false;
    const int per_thread = limits_.data_registers / registers_per_element();
    if (per_thread == 0) return false;
    const int vector = v.vector;
    const auto not_resident = [&] {
      v.vector = vector;
      v.shared = 0;
      return v.shifted = false;
    };
    shift(per_thread);
    while (v.vector > per_thread) v.vector /= 2;
    const int64_t chunks = this->chunks();
    const int most = per_thread / v.vector;
    const bool columns = v.mapping == Mapping::columns;
    // Two inputs, with what is computed from them, take more registers than large blocks have.
    const int limit = columns ? 32 : columns_.empty() && registers_per_element() > 1 ? 512 : 1024;
    // Single elements take more registers for their places; with sums over rows eight do not fit.
    const int usual = std::min(most, v.vector >= 4 ? 4 : columns_.empty() ? 8 : 6);
    int threads = 1;
    while (threads < limit &&
           ceil_div(chunks, threads) >
               (!columns && !v.shifted && threads < 32 ? std::min(usual, 2) : usual))
      threads *= 2;
    // Long columns that are read once need not be held, and 32 of them are whole cache lines.
    if (columns && threads == limit && v.cached == 0) return not_resident();
    int64_t count = ceil_div(chunks, threads);
    if (count > 8) count = ceil_div(count, 4) * 4;
    if (count > std::min(most, 16)) return not_resident();
    v.resident = true;
    v.threads = threads;
    v.count = int(count);
    v.exact = !v.shifted && chunks == threads * count;
    if (columns) {
      // Several blocks on a multiprocessor, so that some load while others combine.
      v.rows = threads == 32 ? 16 : std::max(32, 128 / threads);
    } else {
      v.rows = std::max(1, 128 / threads);
      if (threads > 32) v.rows = 1;
    }
    return true;
  }

  void choose_streamed() {
    FusedVariant& v = plan_.variant;
    const bool columns = v.mapping == Mapping::columns;
    shift(8);
    v.cached &= ~v.shared;  // copies to shared memory are of aligned chunks
    const int64_t chunks = this->chunks();
    v.rows = columns ? 32 : 1;
    // Bytes of a thread's chunk of all inputs, and of a block's chunk of those to be kept.
    int64_t all = 0, kept = 0;
    for (size_t i = 0; i < args_.inputs.size(); ++i) {
      const int64_t size = int64_t(size_of(args_.inputs[i].dtype));
      if ((read_ >> i & 1) && !(v.uniform >> i & 1))
        all += size * (v.single >> i & 1 ? 1 : v.vector);
      if (v.cached >> i & 1) kept += size * v.vector * v.rows;
    }
    // Chunks that a thread has under way.
    const auto under_way = [&](int64_t bytes) {
      return int(
          std::bit_floor(uint64_t(std::clamp<int64_t>(bytes / std::max<int64_t>(1, all), 1, 8))));
    };
    v.count = under_way(64);
    if (choose_phases(ceil_div(row_groups(), v.rows), chunks, kept)) return;

    // Shared memory: for two blocks on a multiprocessor if that holds the rows, else for one.
    constexpr int64_t kOwn = 12 * 1024;  // of the kernel and the system
    const int64_t one = limits_.shared_per_block - kOwn;
    const int64_t two = std::min<int64_t>(one, limits_.shared_per_multiprocessor / 2 - kOwn);
    const int64_t wanted = kept * chunks;
    // Where a multiprocessor has one block only, it is a large one.
    const bool alone = v.bundles && ceil_div(row_groups(), v.rows) <= limits_.multiprocessors;
    const int usual = columns ? (alone ? 32 : 16) : 512, most = columns ? 32 : 1024;
    v.threads = wanted > two ? most : usual;
    if (kept == 0) return;
    held_ = chunks;
    if (wanted > one) {
      held_ = one / kept / v.threads * v.threads;
      v.partial = true;
    }
    if (held_ < chunks / 8 || held_ == 0) {  // not worth while
      held_ = 0;
      v.partial = false;
      v.cached = 0;
      v.threads = usual;
      return;
    }
    v.count = under_way(32);
    for (size_t i = 0; i < args_.inputs.size(); ++i) {
      if (!(v.cached >> i & 1)) continue;
      cache_[i] = int64_t(plan_.shared);
      const int64_t bytes = int64_t(size_of(args_.inputs[i].dtype)) * v.vector * v.rows * held_;
      plan_.shared += size_t(ceil_div(bytes, 16) * 16);
    }
  }

  // Few long rows are divided among blocks. `kept`: bytes of a chunk of what is read again.
  bool choose_phases(int64_t groups, int64_t chunks, int64_t kept) {
    FusedVariant& v = plan_.variant;
    const bool columns = v.mapping == Mapping::columns;
    const FusedReductions reductions = reductions_of(*args_.spec);
    const int64_t is_long = columns ? limits_.long_column : limits_.long_row;
    if (elements_ < is_long || reductions.stages == 0) return false;
    // Rows that no multiprocessor can hold are read again in any case, and few of them do not come
    // out even.
    const bool too_long = !columns && kept * chunks > limits_.shared_per_block &&
                          elements_ >= 2 * is_long && groups < 4 * limits_.multiprocessors;
    if (!too_long) {
      if (groups >= limits_.multiprocessors) return false;
      // One launch is quicker for a row that is not so long, unless most of the GPU would be idle.
      if (elements_ < 4 * is_long && 2 * groups >= limits_.multiprocessors) return false;
    }
    // Other blocks may still need a row's input when one block stores a row's output; but not one
    // that nothing except storing rows reads.
    if (has_row_stores_)
      for (size_t i = 0; i < args_.inputs.size(); ++i)
        if ((v.written & needed_) >> i & 1 && ((v.uniform >> i & 1) || !(read_ >> i & 1)))
          return false;
    const int threads = columns ? v.bundles ? 32 : 16 : 512;
    const int64_t most = std::clamp<int64_t>(chunks / (int64_t(threads) * v.count), 1, 65535);
    // Every block combines the partial results of all splits: with bundles, whose blocks have 1024
    // threads, those of many rows.
    const int64_t blocks = (v.bundles                          ? 1
                            : groups < limits_.multiprocessors ? 4
                                                               : 16) *
                           int64_t(limits_.multiprocessors);
    const int64_t splits = std::clamp<int64_t>(blocks / groups, 1, most);
    if (splits == 1) return false;
    v.threads = threads;
    v.cached = 0;
    span_ = ceil_div(ceil_div(chunks, splits), threads) * threads;
    plan_.kind = FusedPlan::Kind::phases;
    plan_.splits = unsigned(ceil_div(chunks, span_));
    plan_.partials = size_t(reductions.results) * plan_.splits * size_t(rows_) * 8;
    return true;
  }

  // The dimension that chunks lie along, whose strides are from one to the next.
  int across() const { return plan_.variant.bundles ? inner_ : 0; }

  bool is_narrow() const {
    const FusedVariant& v = plan_.variant;
    if (elements_ > kNarrow || rows_ > kNarrow) return false;
    for (const LoopNest::Operand& o : nest_.operands) {
      int64_t reach = 0;
      for (int d = 0; d < inner_; ++d)
        reach += (nest_.sizes[size_t(d)] - 1) * std::abs(o.strides[size_t(d)]);
      for (int d = inner_; d < nest_.rank; ++d)
        reach = std::max(reach, std::abs(o.strides[size_t(d)]) * (d == across() ? v.vector : 1));
      if (reach > INT32_MAX) return false;
    }
    return true;
  }

  void write_arguments() {
    const FusedVariant& v = plan_.variant;
    auto& words = plan_.arguments;
    const auto put = [&](int64_t w) { words.push_back(uint64_t(w)); };
    put(row_groups());
    put(v.shifted ? elements_ : chunks());
    put(plan_.splits);
    put(span_);
    put(0);  // partial results
    put(held_);
    for (size_t i = 0; i < std::max<size_t>(1, args_.inputs.size()); ++i) put(cache_[i]);
    for (int d = 0; d < nest_.rank; ++d)
      put(nest_.sizes[size_t(d)] / (d == across() ? v.vector : 1));
    for (const LoopNest::Operand& o : nest_.operands) {
      put(int64_t(reinterpret_cast<uintptr_t>(o.data)));
      for (int d = 0; d < nest_.rank; ++d)
        put(o.strides[size_t(d)] * (d == across() ? v.vector : 1));
    }
    const size_t n = parameters_of(*args_.spec);
    for (size_t k = 0; k < n; ++k) put(args_.params[k].i);
    if (n == 0) put(0);
  }

  const prim::FusedArgs& args_;
  const FusedLimits& limits_;
  const int outputs_;
  const uint32_t tables_;
  std::vector<FusedColumn> columns_;
  LoopNest nest_;
  int inner_ = 1;
  int64_t rows_ = 1, elements_ = 1, span_ = 0, held_ = 0;
  uint32_t read_ = 0, read_twice_ = 0, stored_ = 0;
  uint32_t needed_ = 0;  // inputs that other stages than store_row read
  bool has_row_stores_ = false;
  std::array<int64_t, LoopNest::kMaxOperands> cache_{};  // where inputs are in shared memory
  FusedPlan plan_;
};

}  // namespace

FusedPlan plan_fused(const prim::FusedArgs& args, const FusedLimits& limits) {
  if (!columns_of(*args.spec).empty()) {
    FusedPlan with_columns = Planner(args, limits, true).plan();
    if (with_columns.variant.columns) return with_columns;
  }
  return Planner(args, limits, false).plan();
}

}  // namespace arete::cuda
