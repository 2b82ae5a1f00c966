#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/reduce_common.h"
#include "arete/backend/cpu/tiling.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/expr/value.h"
#include "arete/prim/fused_forms.h"
#include "arete/prim/loop_nest.h"
#include "arete/prim/slots.h"
#include "arete/prim/tables.h"

namespace arete::cpu {
namespace {

using prim::FusedStage;
using prim::LoopNest;
using prim::View;
using Kind = FusedStage::Kind;

// Note [Rows on the CPU]
// Rows are worked on in groups, all stages of a group before the next group, so that its data stay
// in cache. What a group is depends on the layout:
//   single   one long row, or some that are a tile each; its values are cells of the element-wise
//            programs
//   batch    several short rows, one tile [rows][elements]
//   columns  the data run fastest from row to row: a strip of rows, tiles [elements][rows]
// In the last two, row values are arrays; element-wise programs read them spread to the tile's
// shape. Where the rows of a dimension are few, a group has those of the next one, too.
enum class Mode : uint8_t { single, batch, columns };

constexpr int64_t kShortRow = 256;       // rows up to this length are batched
constexpr int64_t kSeveralRows = 4096;   // elements that several longer rows have together, at most
constexpr int64_t kStrip = 256;          // rows of a strip
constexpr int64_t kFewRuns = 128;        // rows whose elements are worked on one by one, at least
constexpr int64_t kWideStrip = 1 << 17;  // elements of a strip of more rows
// Rows of so few elements together, or of some more where they have many values, are joined by
// those of the next dimension: more would be packed for it at a loss.
constexpr int64_t kFewElements = 128, kSomeElements = 1024;
constexpr size_t kFewValues = 4;  // row values that are cheap to spread
// Values that cost so much are kept for later stages where the second cache has room for a group's.
constexpr double kCostly = 8;
constexpr int64_t kMostKept = 1 << 16;
constexpr size_t kKeptSize = 4;  // they are of f32

/// A value per row of a group.
struct RowValue {
  DType dtype;
  size_t size;
  std::byte* data;     // one per row
  std::byte* spread;   // one per element of a tile; null if no program needs that
  bool is_spread;      // for the current group
  std::byte* in_tile;  // as programs by element read it: data or spread
};

/// What is known of a stage before any data are touched.
struct Stage {
  explicit Stage(const FusedStage& spec_in) : spec(&spec_in) {}
  const FusedStage* spec;
  bool by_element = false;
  int first_row = 0;  // number of the first row value it makes
  CodeKey key;
  const Code* code = nullptr;
  std::span<const expr::Literal> params;
  SmallVector<int, 8> inputs;   // operands of the nest; -1: a row value
  SmallVector<int, 4> outputs;  // operands of the nest
  SmallVector<Accumulation, 2> accumulations;
  int keeps = -1;     // a result that later stages are given
  int given_by = -1;  // the stage that keeps what this one is given
  int given = -1;     // and which of its instructions that is
};

/// The instruction of stage b that computes what instruction `wanted` of stage a does; -1 if there
/// is none, or if the programs are so long that looking for it would take long.
int same_value(const FusedStage& a, int wanted, const FusedStage& b) {
  constexpr size_t kMostPairs = 4096;
  const auto from = a.program->code().first(size_t(wanted) + 1), to = b.program->code();
  const auto has_op = [&](const expr::Instruction& in) {
    return in.op == from.back().op && in.type == from.back().type;
  };
  if (std::ranges::none_of(to, has_op) || from.size() * to.size() > kMostPairs) return -1;
  SmallVector<int, 32> equal;  // of each instruction of b that of a, or -1
  const auto same = [&](const expr::Instruction& i, const expr::Instruction& j) {
    if (i.op != j.op || i.type != j.type) return false;
    if (i.op == expr::Op::input) {
      const size_t k = size_t(i.index), l = size_t(j.index);
      return a.inputs[k] == b.inputs[l] && a.program->inputs()[k] == b.program->inputs()[l];
    }
    if (i.op == expr::Op::constant) return i.value.i == j.value.i;
    if (i.index != j.index) return false;
    for (size_t k = 0; k < i.operand.size(); ++k)
      if (i.operand[k] != (j.operand[k] < 0 ? -1 : equal[size_t(j.operand[k])])) return false;
    return true;
  };
  for (size_t y = 0; y < to.size(); ++y) {
    // An operand that a has not got makes what is of it another value.
    const bool known =
        std::ranges::all_of(to[y].operand, [&](int o) { return o < 0 || equal[size_t(o)] >= 0; });
    int x = known ? 0 : wanted + 1;
    while (x <= wanted && !same(from[size_t(x)], to[y])) ++x;
    if (x == wanted) return int(y);
    equal.push_back(x < wanted ? x : -1);
  }
  return -1;
}

class Fusion {
 public:
  explicit Fusion(const prim::FusedArgs& args) : args_(args) {
    SmallVector<View, 8> views;
    views.append(args.outputs.begin(), args.outputs.end());
    for (const View& v : prim::heads_of_tables(args.inputs, prim::tables_of(*args.spec)))
      views.push_back(v);
    nest_ = LoopNest::plan_split(args.space, args.outer_rank, views, &inner_);
    for (int d = 0; d < nest_.rank; ++d) (d < inner_ ? elements_ : rows_) *= nest_.sizes[size_t(d)];
    stages_.reserve(args.spec->stages.size());
    for (const FusedStage& s : args.spec->stages)
      if (s.kind != Kind::reduce_columns) add_stage(s);
    find_kept();
  }

  int64_t rows() const { return rows_; }
  int64_t elements() const { return elements_; }

  void run() {
    choose_mode();
    const Tiling tiling = choose_tiles();
    double cost = 0;
    for (const Stage& s : stages_) cost += s.by_element ? s.code->cost : 0;
    const int64_t group_numel = elements_ * group_;
    parallel_for(0, groups_, grain_for((2 + cost) * double(group_numel)),
                 [&](int64_t first, int64_t last) { run_groups(tiling, first, last); });
  }

 private:
  void add_stage(const FusedStage& spec) {
    Stage& s = stages_.emplace_back(spec);
    s.by_element = spec.kind == Kind::reduce || spec.kind == Kind::store;
    s.params = args_.params.first(spec.program->params().size());
    const int n_outputs = int(args_.outputs.size());
    for (int i : spec.inputs) s.inputs.push_back(i >= 0 ? n_outputs + i : -1);
    const auto results = spec.program->outputs();
    if (spec.kind == Kind::store || spec.kind == Kind::store_row) {
      for (size_t k = 0; k < results.size(); ++k) {
        const int o = spec.first_output + int(k);
        s.outputs.push_back(o);
        if (k >= size_t(CodeKey::kMaxAliased)) continue;
        for (size_t i = 0; i < spec.inputs.size(); ++i)
          if (spec.inputs[i] >= 0 &&
              args_.inputs[size_t(spec.inputs[i])].data == args_.outputs[size_t(o)].data)
            s.key.set_alias(int(k), int(i));
      }
      return;
    }
    s.first_row = int(row_dtypes_.size());
    for (size_t k = 0; k < results.size(); ++k) {
      row_dtypes_.push_back(results[k].dtype);
      if (spec.kind == Kind::reduce) s.accumulations.emplace_back(spec.monoid, *spec.program, k);
    }
    if (spec.kind == Kind::reduce) s.key = Accumulation::key(spec.monoid);
  }

  // Costly values that were accumulated, and that later stages compute again: exponentials that
  // are divided by their sum.
  void find_kept() {
    for (size_t from = 0; from + 1 < stages_.size(); ++from) {
      Stage& maker = stages_[from];
      if (maker.spec->kind != Kind::reduce) continue;
      const expr::Program::Output& result = maker.spec->program->outputs()[0];
      const expr::Instruction& root = maker.spec->program->code()[size_t(result.value)];
      if (root.type != expr::Type::f32 || expr::arity_of(root.op) == 0 ||
          cost_of(root.op) < kCostly || result.dtype != DType::f32)
        continue;
      for (size_t to = from + 1; to < stages_.size(); ++to) {
        Stage& reader = stages_[to];
        if (!reader.by_element || reader.given >= 0) continue;
        reader.given = same_value(*maker.spec, result.value, *reader.spec);
        if (reader.given < 0) continue;
        reader.given_by = int(from);
        maker.keeps = 0;
      }
    }
  }

  // Moves a dimension of the nest forward.
  void move_dim(int from, int to) {
    const auto rotate = [&](auto& list) {
      std::rotate(list.begin() + to, list.begin() + from, list.begin() + from + 1);
    };
    rotate(nest_.sizes);
    for (LoopNest::Operand& o : nest_.operands) rotate(o.strides);
  }

  void choose_mode() {
    row_dim_ = inner_ < nest_.rank ? inner_ : -1;
    mode_ = Mode::single;
    if (row_dim_ < 0) return;
    // Whether the rows of dimension d share groups with those of another one.
    const auto joins = [&](int d) {
      const int64_t most = row_dtypes_.size() > kFewValues ? kSomeElements : kFewElements;
      return nest_.rank > inner_ + 1 && nest_.sizes[size_t(d)] * elements_ <= most;
    };
    // Along which dimension does the largest operand run fastest? Of equal ones an input counts.
    const LoopNest::Operand* main = nullptr;
    int64_t most = -1;
    for (size_t k = 0; k < nest_.operands.size(); ++k) {
      const size_t o = (args_.outputs.size() + k) % nest_.operands.size();
      int64_t n = 1;
      for (int d = 0; d < nest_.rank; ++d)
        if (nest_.operands[o].strides[size_t(d)] != 0) n *= nest_.sizes[size_t(d)];
      if (n > most) most = n, main = &nest_.operands[o];
    }
    if (main && elements_ > 1) {
      const int64_t unit = int64_t(size_of(main->dtype));
      bool inside = false;
      for (int d = 0; d < inner_; ++d)
        inside |= main->strides[size_t(d)] == unit && nest_.sizes[size_t(d)] > 1;
      for (int d = inner_; d < nest_.rank && !inside; ++d) {
        if (main->strides[size_t(d)] != unit || (nest_.sizes[size_t(d)] < 8 && !joins(d))) continue;
        mode_ = Mode::columns;
        if (joins(d)) row_dims_ = 2;
        move_dim(d, 0);
        if (row_dims_ == 2) move_dim(inner_ + 1, 1);
        row_dim_ = 0;
        return;
      }
    }
    if (elements_ > kShortRow || rows_ == 1) return;
    mode_ = Mode::batch;
    if (joins(row_dim_)) row_dims_ = 2;
  }

  /// Whether a group has several rows that are a tile each.
  bool by_tiles() const { return mode_ == Mode::single && group_ > 1; }
  // Whether a stage by element has a row's value as one number, if that is its input i.
  bool is_number(size_t i) const { return mode_ == Mode::single && i < CodeKey::kMaxUniform; }
  bool is_row(int d) const { return d >= row_dim_ && d < row_dim_ + row_dims_; }
  bool is_inner(int d) const {
    return mode_ == Mode::columns ? d >= row_dims_ && d < row_dims_ + inner_ : d < inner_;
  }

  // A group of about `most` rows.
  void choose_group(int64_t most, Extents& extents) {
    group_ = 1;
    for (int d = row_dim_; d < row_dim_ + row_dims_; ++d) {
      const int64_t take = std::clamp<int64_t>(most / group_, 1, nest_.sizes[size_t(d)]);
      extents[size_t(d)] = take;
      group_ *= take;
      if (take < nest_.sizes[size_t(d)]) break;
    }
  }

  Tiling choose_tiles() {
    int64_t block = kMaxBlock;
    for (Stage& s : stages_) block = std::min(block, code_for(*s.spec->program, s.key).block);
    for (;;) {
      Extents extents;
      extents.fill(1);
      group_ = 1;
      switch (mode_) {
        case Mode::single:
          choose_extents(nest_, 0, inner_, block, extents);
          if (row_dim_ >= 0 && inner_tiles(extents) == 1)
            group_ =
                std::clamp<int64_t>(kSeveralRows / elements_, 1, nest_.sizes[size_t(row_dim_)]);
          break;
        case Mode::batch:
          for (int d = 0; d < inner_; ++d) extents[size_t(d)] = nest_.sizes[size_t(d)];
          choose_group(block / elements_, extents);
          break;
        case Mode::columns: {
          // Row values are better read as they are than spread over several elements, unless the
          // strip outgrows the caches or leaves threads without work.
          const bool wide = row_dtypes_.size() > kFewValues ||
                            (elements_ * block <= kWideStrip &&
                             (rows_ >= 8 * block || rows_ * elements_ <= kWideStrip / 4));
          choose_group(wide ? block : std::min(kStrip, block), extents);
          // Of a part of rows that lie side by side one element is a run of memory, several are
          // not.
          const Extents one = extents;
          int64_t room = block / group_;
          for (int d = row_dims_; d < row_dims_ + inner_ && room > 1; ++d) {
            const int64_t take = std::min(nest_.sizes[size_t(d)], room);
            extents[size_t(d)] = take;
            if (take < nest_.sizes[size_t(d)]) break;
            room /= take;
          }
          if (group_ >= kFewRuns && inner_ == 1 && extents != one &&
              packs(Tiling(nest_, extents)) && !packs(Tiling(nest_, one)))
            extents = one;
          break;
        }
      }
      const Tiling tiling(nest_, extents);
      const bool packed = packs(tiling);
      if (packed && by_tiles()) group_ = 1;
      along_ = mode_ == Mode::columns && inner_ == 1 && !packed && extents[size_t(row_dims_)] == 1;
      kept_ = (by_tiles() ? group_ : inner_tiles(tiling.extents)) * tiling.tile_numel();
      if (kept_ > kMostKept) kept_ = 0;
      bool fits = true;
      for (Stage& s : stages_) {
        s.key.given = int16_t(kept_ > 0 ? s.given : -1);
        s.key.uniform = s.key.fixed = 0;
        if (s.by_element)
          for (size_t i = 0; i < s.inputs.size(); ++i) {
            const bool uniform =
                s.inputs[i] < 0 ? is_number(i)
                                : tiling.access[size_t(s.inputs[i])] == Tiling::Access::uniform;
            ARETE_ASSERT(!uniform || i < CodeKey::kMaxUniform);  // tensors come first
            if (uniform) s.key.uniform |= uint32_t(1) << i;
            if (by_tiles() && i < CodeKey::kMaxUniform && s.inputs[i] >= 0 && !uniform &&
                nest_.operands[size_t(s.inputs[i])].strides[size_t(row_dim_)] == 0)
              s.key.fixed |= uint32_t(1) << i;
          }
        s.code = &code_for(*s.spec->program, s.key);
        if (s.code->block < (s.by_element ? tiling.tile_numel() : group_)) {
          block = std::min(block, s.code->block);
          fits = false;
        }
      }
      if (!fits) continue;
      groups_ = 1;
      for (int d = 0; d < nest_.rank; ++d)
        if (!is_inner(d)) groups_ *= count_of(tiling, d);
      return tiling;
    }
  }

  static bool packs(const Tiling& tiling) {
    return std::ranges::count(tiling.access, Tiling::Access::packed) > 0;
  }
  /// Tiles that the elements of a group's rows are.
  int64_t inner_tiles(const Extents& extents) const {
    int64_t n = 1;
    for (int d = 0; d < nest_.rank; ++d)
      if (is_inner(d)) n *= (nest_.sizes[size_t(d)] + extents[size_t(d)] - 1) / extents[size_t(d)];
    return n;
  }
  /// How much of a dimension of rows a group has, and how many such parts there are.
  int64_t step_of(const Tiling& tiling, int d) const {
    return by_tiles() && d == row_dim_ ? group_ : tiling.extents[size_t(d)];
  }
  int64_t count_of(const Tiling& tiling, int d) const {
    const int64_t step = step_of(tiling, d);
    return (nest_.sizes[size_t(d)] + step - 1) / step;
  }

  /// A stage as one thread runs it.
  struct Running {
    Running() {}                          // else all bytes are set to 0 first
    std::optional<TileRunner> tiles;      // by element
    std::optional<Frame> frame;           // by row
    std::byte* kept = nullptr;            // the result that it keeps, of the elements of a group
    SmallVector<std::byte*, 4> gathered;  // row-wise inputs and outputs that are tensors
  };

  void run_groups(const Tiling& tiling, int64_t first, int64_t last) {
    ArenaScope arena;
    SmallVector<RowValue, 8> values;
    const bool spreads = mode_ != Mode::single || std::ranges::any_of(stages_, [](const Stage& s) {
                           return s.inputs.size() > CodeKey::kMaxUniform;
                         });
    for (DType d : row_dtypes_) {
      const size_t size = size_of(d);
      values.push_back({d, size, arena.take(size_t(group_) * size),
                        spreads ? arena.take(size_t(tiling.tile_numel()) * size) : nullptr, false,
                        nullptr});
    }
    std::vector<Running> running(stages_.size());
    // Accumulators to row values: one frame for each pair of types met.
    std::vector<std::unique_ptr<Frame>> converters(row_dtypes_.size());
    for (size_t k = 0; k < stages_.size(); ++k) {
      const Stage& s = stages_[k];
      Running& r = running[k];
      if (s.by_element) {
        r.tiles.emplace(tiling, *s.code, s.params, s.inputs, s.outputs, arena);
        if (s.keeps >= 0 && kept_ > 0) r.kept = arena.take(size_t(kept_) * kKeptSize);
      } else {
        r.frame.emplace(*s.code, s.params, arena.take(s.code->register_bytes));
        for (size_t i = 0; i < s.inputs.size(); ++i)
          r.gathered.push_back(
              s.spec->program->is_table(i) ? nullptr : gather_buffer(s.inputs[i], tiling, arena));
        for (int o : s.outputs) r.gathered.push_back(gather_buffer(o, tiling, arena));
      }
      for (size_t j = 0; j < s.accumulations.size(); ++j) {
        const Accumulation& a = s.accumulations[j];
        const size_t row = size_t(s.first_row) + j;
        if (a.dtype != row_dtypes_[row]) {
          const Code& code = code_for(*expr::conversion(a.dtype, row_dtypes_[row]), CodeKey{});
          converters[row] = std::make_unique<Frame>(code, std::span<const expr::Literal>(),
                                                    arena.take(code.register_bytes));
        }
      }
    }
    std::byte* acc = arena.take(size_t(group_) * 8 * std::max<size_t>(1, row_dtypes_.size()));

    const int64_t tiles = inner_tiles(tiling.extents);
    // Groups of one tile follow each other as tiles do.
    const bool follow = tiles == 1 && !by_tiles();
    std::optional<TileCursor> cursor;
    if (follow) cursor.emplace(tiling, first);
    for (int64_t g = first; g < last; ++g) {
      if (!follow)
        start_of_group(g, tiling, cursor);
      else if (g > first)
        cursor->next();
      const TileCursor& start = *cursor;
      int64_t n = 1;
      if (by_tiles()) n = std::min(group_, nest_.sizes[size_t(row_dim_)] - start.start(row_dim_));
      for (int d = 0; d < nest_.rank && !by_tiles(); ++d)
        if (is_row(d)) n *= start.extent(d);
      for (RowValue& v : values) v.is_spread = false;
      for (size_t k = 0; k < stages_.size(); ++k) {
        if (stages_[k].by_element) {
          by_element(stages_[k], running, k, start, tiles, n, values, converters, acc);
        } else {
          by_row(stages_[k], running[k], start, n, values);
        }
      }
    }
  }

  void start_of_group(int64_t g, const Tiling& tiling, std::optional<TileCursor>& cursor) const {
    Extents low{}, high = nest_.sizes;
    for (int d = 0; d < nest_.rank; ++d) {
      if (is_inner(d)) continue;
      const int64_t step = step_of(tiling, d), count = count_of(tiling, d);
      low[size_t(d)] = g % count * step;
      high[size_t(d)] = std::min(nest_.sizes[size_t(d)], low[size_t(d)] + step);
      g /= count;
    }
    cursor.emplace(tiling, low, high);
  }

  std::byte* gather_buffer(int operand, const Tiling& tiling, ArenaScope& arena) const {
    if (operand < 0) return nullptr;
    const LoopNest::Operand& o = nest_.operands[size_t(operand)];
    bool direct = true;
    int64_t run = int64_t(size_of(o.dtype));
    for (int d = row_dim_; group_ > 1 && d < row_dim_ + row_dims_; ++d) {
      const int64_t rows = step_of(tiling, d);
      direct &= rows == 1 || o.strides[size_t(d)] == run;
      run *= rows;
    }
    return direct ? nullptr : arena.take(size_t(group_) * size_of(o.dtype));
  }
  // One element for each row of a group, side by side in `buffer`.
  void gather_rows(const TileCursor& at, int64_t n_rows, int operand, std::byte* buffer,
                   bool back) const {
    const LoopNest::Operand& o = nest_.operands[size_t(operand)];
    const int64_t size = int64_t(size_of(o.dtype)),
                  outer = row_dims_ == 2 ? at.extent(row_dim_ + 1) : 1, n = n_rows / outer,
                  step = o.strides[size_t(row_dim_)];
    std::byte* memory = at.base(operand);
    for (int64_t i = 0; i < outer; ++i, buffer += n * size) {
      if (back)
        copy_run(memory, step, buffer, size, n, size_t(size));
      else
        copy_run(buffer, size, memory, step, n, size_t(size));
      if (row_dims_ == 2) memory += o.strides[size_t(row_dim_) + 1];
    }
  }

  /// The values of n rows from the first one on to the shape of their tile.
  void spread(RowValue& v, int64_t first, int64_t n, int64_t elements) const {
    if (v.is_spread && !by_tiles()) return;
    v.is_spread = true;
    const std::byte* const data = v.data + size_t(first) * v.size;
    v.in_tile = elements == 1 ? v.data : v.spread;
    if (elements == 1) return;
    if (mode_ != Mode::columns) {
      const kernels::Kernel splat = kernels::table().splat[v.size];
      for (int64_t r = 0; r < n; ++r)
        splat(v.spread + size_t(r * elements) * v.size, data + size_t(r) * v.size, nullptr, nullptr,
              elements);
    } else {
      for (int64_t r = 0; r < elements; ++r)
        copy_run(v.spread + size_t(r * n) * v.size, int64_t(v.size), data, int64_t(v.size), n,
                 v.size);
    }
  }

  void by_element(const Stage& s, std::vector<Running>& running, size_t number,
                  const TileCursor& start, int64_t tiles, int64_t n,
                  SmallVector<RowValue, 8>& values, std::vector<std::unique_ptr<Frame>>& converters,
                  std::byte* acc) const {
    Running& r = running[number];
    Frame& frame = r.tiles->frame();
    const std::byte* const given = s.key.given >= 0 ? running[size_t(s.given_by)].kept : nullptr;
    const int64_t tile_bytes = start.n() * int64_t(kKeptSize);
    const int64_t in_tile = by_tiles() ? 1 : n;    // rows
    const int64_t per_tile = start.n() / in_tile;  // elements of a row in the first, largest tile
    const bool reduces = s.spec->kind == Kind::reduce;
    const size_t stride = size_t(group_) * 8;
    for (size_t j = 0; j < s.accumulations.size(); ++j)
      s.accumulations[j].clear(acc + j * stride, n);
    // Before and after a tile, whose first row is that of the number.
    const auto set_rows = [&](int64_t row) {
      for (size_t i = 0; i < s.inputs.size(); ++i) {
        if (s.inputs[i] >= 0) continue;
        RowValue& v = values[size_t(~s.spec->inputs[i])];
        if (!is_number(i)) spread(v, row, in_tile, per_tile);
        frame.set_input(int(i), is_number(i) ? v.data + size_t(row) * v.size : v.in_tile);
      }
    };
    const auto set_kept = [&](int64_t t) {
      if (r.kept) frame.set_result(s.keeps, r.kept + t * tile_bytes);
      if (given) frame.set_given(given + t * tile_bytes);
    };
    const auto accumulate = [&](int64_t row, int64_t elements) {
      if (!reduces) return;
      for (size_t j = 0; j < s.accumulations.size(); ++j) {
        const Accumulation& a = s.accumulations[j];
        if (mode_ == Mode::columns)
          a.add_cols(acc + j * stride, frame, int(j), elements, n);
        else
          a.add_rows(acc + j * stride + size_t(row) * a.size, frame, int(j), in_tile, elements);
      }
    };
    if (by_tiles()) {
      r.tiles->run_along(
          start, row_dim_, n,
          [&](int64_t t) {
            set_rows(t);
            set_kept(t);
          },
          [&](int64_t t) { accumulate(t, per_tile); });
    } else if (along_) {
      set_rows(0);
      r.tiles->run_along(start, row_dims_, tiles, set_kept, [&](int64_t) { accumulate(0, 1); });
    } else {
      set_rows(0);
      const auto tile = [&](const TileCursor& cursor, int64_t t) {
        set_kept(t);
        r.tiles->run(cursor, t == 0);
        accumulate(0, cursor.n() / in_tile);
      };
      tile(start, 0);
      if (tiles > 1) {
        TileCursor cursor = start;
        for (int64_t t = 1; t < tiles; ++t) {
          cursor.next();
          tile(cursor, t);
        }
      }
    }
    for (size_t j = 0; j < s.accumulations.size(); ++j) {
      const size_t row = size_t(s.first_row) + j;
      RowValue& v = values[row];
      if (Frame* convert = converters[row].get()) {
        convert->set_input(0, acc + j * stride);
        convert->set_output(0, v.data);
        convert->run(n);
      } else {
        std::copy_n(acc + j * stride, size_t(n) * v.size, v.data);
      }
    }
  }

  void by_row(const Stage& s, Running& r, const TileCursor& start, int64_t n,
              SmallVector<RowValue, 8>& values) const {
    Frame& frame = *r.frame;
    for (size_t i = 0; i < s.inputs.size(); ++i) {
      const int operand = s.inputs[i];
      if (operand < 0) {
        frame.set_input(int(i), values[size_t(~s.spec->inputs[i])].data);
      } else if (std::byte* buffer = r.gathered[i]) {
        gather_rows(start, n, operand, buffer, false);
        frame.set_input(int(i), buffer);
      } else {
        frame.set_input(int(i), start.base(operand));
      }
    }
    const int n_results = int(s.spec->program->outputs().size());
    for (int k = 0; k < n_results; ++k) {
      if (s.spec->kind == Kind::row) {
        frame.set_output(k, values[size_t(s.first_row + k)].data);
        continue;
      }
      std::byte* buffer = r.gathered[s.inputs.size() + size_t(k)];
      frame.set_output(k, buffer ? buffer : start.base(s.outputs[size_t(k)]));
    }
    frame.run_once();
    frame.run(n);
    if (s.spec->kind == Kind::row) return;
    for (int k = 0; k < n_results; ++k) {
      const int operand = s.outputs[size_t(k)];
      if (std::byte* buffer = r.gathered[s.inputs.size() + size_t(k)])
        gather_rows(start, n, operand, buffer, true);
    }
  }

  const prim::FusedArgs& args_;
  LoopNest nest_;
  int inner_ = 1, row_dim_ = -1, row_dims_ = 1;  // rows of a group are of one or two dimensions
  int64_t rows_ = 1, elements_ = 1, group_ = 1, groups_ = 1;
  int64_t kept_ = 0;    // elements of a group, if results are kept
  bool along_ = false;  // a tile is one element of each row, where it lies
  Mode mode_ = Mode::single;
  std::vector<Stage> stages_;
  SmallVector<DType, 8> row_dtypes_;
};

}  // namespace

void CpuBackend::fused(const prim::FusedArgs& args) {
  if (!args.slots.empty()) return fused(prim::Addressed(args).args());
  if (prim::run_one_stage(*this, args)) return;
  Fusion fusion(args);
  // Few rows so long that one fills several caches, and rows without elements: stage by stage,
  // each parallel in itself.
  if (fusion.rows() > 0 &&
      (fusion.elements() == 0 || (fusion.rows() < 8 && fusion.elements() >= (1 << 17))))
    return Backend::fused(args);
  // Reductions over the rows are quickest by themselves.
  prim::FusedSpec columns{{}, args.spec->n_inputs, args.spec->n_outputs};
  for (const FusedStage& s : args.spec->stages)
    if (s.kind == Kind::reduce_columns) columns.stages.push_back(s);
  if (!columns.stages.empty()) {
    prim::FusedArgs a = args;
    a.spec = &columns;
    Backend::fused(a);
  }
  if (fusion.rows() > 0) fusion.run();
}

}  // namespace arete::cpu
