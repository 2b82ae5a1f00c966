#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/memory.h"
#include "arete/backend/cpu/reduce_common.h"
#include "arete/backend/cpu/tiling.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/expr/value.h"
#include "arete/prim/loop_nest.h"
#include "arete/prim/slots.h"
#include "arete/prim/tables.h"

namespace arete::cpu {

using expr::Type;
using prim::LoopNest;
using prim::Monoid;
using prim::View;

namespace {

uint64_t identity_of(Monoid monoid, kernels::KType type) {
  using kernels::KType;
  const bool low = monoid == Monoid::max || monoid == Monoid::any;
  switch (monoid) {
    case Monoid::sum:
      return 0;  // of every type
    case Monoid::prod:
      return type == KType::t_f64   ? std::bit_cast<uint64_t>(1.0)
             : type == KType::t_f32 ? uint64_t(std::bit_cast<uint32_t>(1.0f))
                                    : 1;
    default:
      break;
  }
  constexpr double kInf = std::numeric_limits<double>::infinity();
  switch (type) {
    case KType::t_bool:
      return low ? 0 : 1;
    case KType::t_i32:
      return low ? uint64_t(uint32_t(INT32_MIN)) : uint64_t(INT32_MAX);
    case KType::t_i64:
      return low ? uint64_t(INT64_MIN) : uint64_t(INT64_MAX);
    case KType::t_u64:
      return low ? 0 : UINT64_MAX;
    case KType::t_u8:
      return low ? 0 : UINT8_MAX;
    case KType::t_i8:
      return uint64_t(low ? INT8_MIN : INT8_MAX);
    case KType::t_i16:
      return uint64_t(low ? INT16_MIN : INT16_MAX);
    case KType::t_f32:
      return std::bit_cast<uint32_t>(float(low ? -kInf : kInf));
    default:
      return std::bit_cast<uint64_t>(low ? -kInf : kInf);
  }
}

}  // namespace

Accumulation::Accumulation(Monoid of, kernels::KType t) : monoid(kernels::KMonoid(of)) {
  const kernels::KernelTable& table = kernels::table();
  const kernels::KMonoid m = monoid;
  const kernels::KType a = kernels::accumulator_type(m, t);
  rows = table.reduce_rows[m][t];
  cols = table.reduce_cols[m][t];
  if (of == Monoid::min) {
    opposite_rows = table.opposite_rows[t];
    opposite_cols = table.opposite_cols[t];
  } else if (of == Monoid::sum) {
    number_rows = table.number_rows[t];
    number_cols = table.number_cols[t];
    product_rows = table.product_rows[t];
    product_cols = table.product_cols[t];
    square_rows = table.square_rows[t];
    square_cols = table.square_cols[t];
    deviation_rows = table.deviation_rows[t];
    deviation_cols = table.deviation_cols[t];
  }
  combine = table.reduce_cols[m][a];
  ARETE_ASSERT(rows && cols && combine);
  dtype = storage_type(a);
  size = size_of(dtype);
  value_size = size_of(storage_type(t));
  identity_ = identity_of(of, a);
  splat_ = table.splat[size];
}

void Accumulation::clear(void* acc, int64_t n) const {
  splat_(acc, &identity_, nullptr, nullptr, n);
}

namespace {

// Note [Reductions]
// The space is ordered as reduced dimensions inside, kept ones outside. If the data run fastest
// along a reduced dimension, blocks of values are reduced by rows, else by columns: a strip of
// outputs accumulates row after row. Long reductions are cut into chunks whose size depends on the
// shape only; their partial results are combined in order. So the result does not depend on the
// number of threads.
constexpr int64_t kRowChunk = 32768;    // elements of one output
constexpr int64_t kColChunk = 1 << 18;  // elements of one strip
constexpr int64_t kMaxStrip = 4096;     // outputs accumulated together

/// Turns accumulators into outputs; one per thread.
class Finisher {
 public:
  Finisher(const prim::ReduceArgs& args, const Accumulation& acc, ArenaScope& arena)
      : out_size_(size_of(args.out.dtype)) {
    const DType between = args.epilogue ? args.epilogue->inputs()[0] : args.out.dtype;
    start(convert_, *expr::conversion(acc.dtype, between), {}, arena);
    acc_size_ = acc.size;
    block_ = convert_->code().block;
    if (args.epilogue) {
      start(epilogue_, *args.epilogue, args.epilogue_params, arena);
      block_ = std::min(block_, epilogue_->code().block);
      between_ = arena.take(size_t(block_) * size_of(between));
    }
    staged_ = arena.take(size_t(block_) * out_size_);
  }

  void store(const std::byte* acc, int64_t n, std::byte* out, int64_t stride) {
    const bool direct = stride == int64_t(out_size_);
    while (n > 0) {
      const int64_t now = std::min(n, block_);
      std::byte* const last = direct ? out : staged_;
      run(*convert_, acc, between_ ? between_ : last, now);
      if (between_) run(*epilogue_, between_, last, now);
      if (!direct) copy_run(out, stride, staged_, int64_t(out_size_), now, out_size_);
      acc += size_t(now) * acc_size_;
      out += now * stride;
      n -= now;
    }
  }

 private:
  static void start(std::optional<Frame>& frame, const expr::Program& program,
                    std::span<const expr::Literal> params, ArenaScope& arena) {
    const Code& code = code_for(program, CodeKey{});
    frame.emplace(code, params, arena.take(code.register_bytes)).run_once();
  }
  static void run(Frame& f, const std::byte* in, std::byte* out, int64_t n) {
    f.set_input(0, in);
    f.set_output(0, out);
    f.run(n);
  }

  std::optional<Frame> convert_, epilogue_;
  size_t out_size_, acc_size_;
  int64_t block_;
  std::byte *between_ = nullptr, *staged_;
};

/// Memory for partial results.
class Partials {
 public:
  explicit Partials(size_t bytes)
      : bytes_(bytes), data_(static_cast<std::byte*>(allocate_cached(bytes))) {}
  ~Partials() { release_cached(data_, bytes_); }
  Partials(const Partials&) = delete;
  Partials& operator=(const Partials&) = delete;
  std::byte* data() const { return data_; }

 private:
  size_t bytes_;
  std::byte* data_;
};

class Reduction {
 public:
  explicit Reduction(const prim::ReduceArgs& args)
      : args_(args),
        program_(args.prologue ? *args.prologue : *read_program(args)),
        acc_(args.monoid, program_) {
    SmallVector<View, 4> views{args.out};  // operand 0
    views.append(args.inputs.begin(), args.inputs.end());
    nest_ = LoopNest::plan_reduced(args.space, args.reduced, views, &inner_);
    for (size_t i = 0; i < args.inputs.size(); ++i) inputs_.push_back(int(i) + 1);
  }

  void run() {
    outputs_ = 1;
    reduced_ = 1;
    for (int d = 0; d < nest_.rank; ++d)
      (d < inner_ ? reduced_ : outputs_) *= nest_.sizes[size_t(d)];
    if (outputs_ == 0) return;
    if (reduced_ == 0) {
      Partials acc(size_t(outputs_) * acc_.size);
      acc_.clear(acc.data(), outputs_);
      finish_all(acc.data());
    } else if (const int column = column_dim(); column >= 0) {
      run_columns(column);
    } else {
      run_rows();
    }
  }

 private:
  static const expr::Program* read_program(const prim::ReduceArgs& args) {
    const DType in = args.inputs[0].dtype;
    const bool logical = args.monoid == Monoid::all || args.monoid == Monoid::any;
    return expr::conversion(in, logical ? kBool : expr::storage_type(expr::compute_type(in))).get();
  }

  /// The kept dimension along which the data run fastest, if it is one.
  int column_dim() const {
    const LoopNest::Operand* main = nullptr;
    int64_t most = -1;
    for (size_t o = 1; o < nest_.operands.size(); ++o) {
      int64_t n = 1;
      for (int d = 0; d < nest_.rank; ++d)
        if (nest_.operands[o].strides[size_t(d)] != 0) n *= nest_.sizes[size_t(d)];
      if (n > most) most = n, main = &nest_.operands[o];
    }
    if (!main) return -1;
    const int64_t unit = int64_t(size_of(main->dtype));
    for (int d = 0; d < inner_; ++d)
      if (main->strides[size_t(d)] == unit && nest_.sizes[size_t(d)] > 1) return -1;
    for (int d = inner_; d < nest_.rank; ++d)
      if (main->strides[size_t(d)] == unit && nest_.sizes[size_t(d)] > 1) return d;
    return -1;
  }

  CodeKey key_for(const Tiling& tiling) const {
    CodeKey key = Accumulation::key(args_.monoid);
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (tiling.access[i + 1] == Tiling::Access::uniform) key.uniform |= uint32_t(1) << i;
    return key;
  }
  int64_t default_block() const {
    return code_for(program_, Accumulation::key(args_.monoid)).block;
  }
  /// Tiles that fit the code which they need.
  template <class F>
  const Code& fit(F&& choose, Tiling& tiling) const {
    int64_t block = default_block();
    for (;;) {
      Extents extents;
      extents.fill(1);
      choose(extents, block);
      tiling = Tiling(nest_, extents);
      const Code& code = code_for(program_, key_for(tiling));
      if (tiling.tile_numel() <= code.block) return code;
      block = code.block;
    }
  }
  double cost(const Code& code, const Tiling& tiling) const {
    double c = code.cost + 2;
    for (size_t o = 1; o < nest_.operands.size(); ++o)
      c += tiling.access[o] == Tiling::Access::packed ? 4 : 0;
    return c;
  }

  // Rows.

  void run_rows() {
    const Extents one = [] {
      Extents e;
      e.fill(1);
      return e;
    }();
    Tiling tiling(nest_, one);
    const bool batched = reduced_ <= default_block() / 4 && nest_.rank > inner_;
    const Code& code = fit(
        [&](Extents& extents, int64_t block) {
          if (batched && reduced_ <= block) {
            for (int d = 0; d < inner_; ++d) extents[size_t(d)] = nest_.sizes[size_t(d)];
            extents[size_t(inner_)] = std::min(nest_.sizes[size_t(inner_)], block / reduced_);
          } else {
            choose_extents(nest_, 0, inner_, block, extents);
          }
        },
        tiling);
    if (batched && tiling.counts[0] == 1) {
      int64_t per_output = 1;
      for (int d = 0; d < inner_; ++d) per_output *= tiling.counts[size_t(d)];
      if (per_output == 1) return short_rows(tiling, code);
    }
    long_rows(tiling, code);
  }

  void short_rows(const Tiling& tiling, const Code& code) {
    const int64_t stride = nest_.operands[0].strides[size_t(inner_)];
    parallel_for(0, tiling.tiles(), grain_for(cost(code, tiling) * double(tiling.tile_numel())),
                 [&](int64_t first, int64_t last) {
                   ArenaScope arena;
                   Finisher finisher(args_, acc_, arena);
                   TileRunner runner(tiling, code, args_.params, inputs_, {}, arena);
                   std::byte* acc = arena.take(size_t(tiling.extents[size_t(inner_)]) * acc_.size);
                   TileCursor cursor(tiling, first);
                   for (int64_t t = first;;) {
                     const int64_t rows = cursor.extent(inner_);
                     runner.run(cursor);
                     acc_.clear(acc, rows);
                     acc_.add_rows(acc, runner.frame(), 0, rows, reduced_);
                     finisher.store(acc, rows, cursor.base(0), stride);
                     if (++t == last) break;
                     cursor.next();
                   }
                 });
  }

  void long_rows(const Tiling& tiling, const Code& code) {
    int64_t per_output = 1;
    for (int d = 0; d < inner_; ++d) per_output *= tiling.counts[size_t(d)];
    const int64_t chunk = reduced_ > 2 * kRowChunk
                              ? std::max<int64_t>(1, kRowChunk / tiling.tile_numel())
                              : per_output;
    const int64_t chunks = (per_output + chunk - 1) / chunk;
    const double each = cost(code, tiling);
    auto accumulate = [&](TileRunner& runner, TileCursor& cursor, int64_t tiles, bool more,
                          std::byte* acc) {
      for (int64_t t = 0;;) {
        runner.run(cursor);
        acc_.add_rows(acc, runner.frame(), 0, 1, cursor.n());
        const bool last = ++t == tiles;
        if (!last || more) cursor.next();
        if (last) break;
      }
    };
    if (chunks == 1) {
      constexpr int64_t kPanel = 256;
      const bool kept = nest_.rank > inner_;
      const int64_t stride = kept ? nest_.operands[0].strides[size_t(inner_)] : 0;
      parallel_for(
          0, outputs_, grain_for(each * double(reduced_)), [&](int64_t first, int64_t last) {
            ArenaScope arena;
            Finisher finisher(args_, acc_, arena);
            TileRunner runner(tiling, code, args_.params, inputs_, {}, arena);
            std::byte* acc = arena.take(kPanel * acc_.size);
            TileCursor cursor(tiling, first * per_output);
            for (int64_t o = first; o < last;) {
              // Outputs of one run along the first kept dimension.
              const int64_t room = kept ? nest_.sizes[size_t(inner_)] - cursor.start(inner_) : 1;
              const int64_t n = std::min({kPanel, last - o, room});
              std::byte* const out = cursor.base(0);
              acc_.clear(acc, n);
              for (int64_t k = 0; k < n; ++k, ++o)
                accumulate(runner, cursor, per_output, o + 1 < last, acc + size_t(k) * acc_.size);
              finisher.store(acc, n, out, stride);
            }
          });
      return;
    }
    Partials partials(size_t(chunks * outputs_) * acc_.size);
    parallel_for(0, outputs_ * chunks, grain_for(each * double(chunk * tiling.tile_numel())),
                 [&](int64_t first, int64_t last) {
                   ArenaScope arena;
                   TileRunner runner(tiling, code, args_.params, inputs_, {}, arena);
                   for (int64_t item = first; item < last; ++item) {
                     const int64_t o = item / chunks, c = item % chunks;
                     const int64_t from = c * chunk, to = std::min(per_output, from + chunk);
                     std::byte* acc = partials.data() + size_t(c * outputs_ + o) * acc_.size;
                     acc_.clear(acc, 1);
                     TileCursor cursor(tiling, o * per_output + from);
                     accumulate(runner, cursor, to - from, false, acc);
                   }
                 });
    combine(partials.data(), chunks);
  }

  // Columns.

  /// Moves the column dimension to the front; kept ones stay behind the reduced ones.
  void bring_to_front(int column) {
    auto rotate = [&](auto& list) {
      std::rotate(list.begin(), list.begin() + column, list.begin() + column + 1);
    };
    rotate(nest_.sizes);
    for (LoopNest::Operand& o : nest_.operands) rotate(o.strides);
  }

  void run_columns(int column) {
    bring_to_front(column);
    const int64_t width = nest_.sizes[0];
    const int first_kept = inner_ + 1;  // dimensions 1 ... inner_ are reduced
    Extents one;
    one.fill(1);
    Tiling tiling(nest_, one);
    const Code& code = fit(
        [&](Extents& extents, int64_t block) {
          extents[0] = std::min(width, block);
          if (extents[0] == width) {
            int64_t room = block / width;
            for (int d = 1; d <= inner_ && room > 1; ++d) {
              const int64_t take = std::min(nest_.sizes[size_t(d)], room);
              extents[size_t(d)] = take;
              if (take < nest_.sizes[size_t(d)]) break;
              room /= take;
            }
          }
        },
        tiling);
    // Where there is nothing to compute, rows are read where they are.
    const bool in_place =
        code.body.empty() && code.results[0].slot == 0 && code.results[0].factor == Code::kNone &&
        tiling.access[1] != Tiling::Access::uniform &&
        nest_.operands[1].strides[0] == int64_t(size_of(nest_.operands[1].dtype)) &&
        nest_.operands[1].strides[1] % int64_t(size_of(nest_.operands[1].dtype)) == 0;
    if (in_place) {
      Extents extents;
      extents.fill(1);
      extents[0] = std::min(width, kMaxStrip);
      extents[1] = nest_.sizes[1];
      tiling = Tiling(nest_, extents);
    }
    const int64_t strip = std::min(width, kMaxStrip / tiling.extents[0] * tiling.extents[0]);
    const int64_t strips = (width + strip - 1) / strip;
    int64_t others = 1;
    for (int d = first_kept; d < nest_.rank; ++d) others *= nest_.sizes[size_t(d)];
    // The longest reduced dimension is cut into chunks.
    int cut = 1;
    for (int d = 2; d <= inner_; ++d)
      if (nest_.sizes[size_t(d)] > nest_.sizes[size_t(cut)]) cut = d;
    int64_t length = nest_.sizes[size_t(cut)];
    const int64_t slice = strip * (reduced_ / length);  // elements for one step along `cut`
    if (strips * others < 16 && slice * length > 2 * kColChunk) {
      length = std::max<int64_t>(1, kColChunk / slice);
      if (!in_place || cut != 1)
        length = (length + tiling.extents[size_t(cut)] - 1) / tiling.extents[size_t(cut)] *
                 tiling.extents[size_t(cut)];
      if (in_place && cut == 1) {
        Extents extents = tiling.extents;
        extents[1] = length;
        tiling = Tiling(nest_, extents);
      }
    }
    const int64_t chunks = (nest_.sizes[size_t(cut)] + length - 1) / length;
    const int64_t items = strips * others * chunks;

    Partials partials(chunks > 1 ? size_t(chunks * outputs_) * acc_.size : 0);
    parallel_for(
        0, items, grain_for(cost(code, tiling) * double(slice * length)),
        [&](int64_t first, int64_t last) {
          ArenaScope arena;
          Finisher finisher(args_, acc_, arena);
          TileRunner runner(tiling, code, args_.params, inputs_, {}, arena);
          // Narrow rows are accumulated several at a time.
          const bool dense =
              !in_place || nest_.operands[1].strides[1] == nest_.operands[1].strides[0] * width;
          const int64_t group = width > 32 || !dense ? 1 : 64 / width;
          std::byte* acc = arena.take(size_t(strip * group) * acc_.size);
          std::byte* folded = group > 1 ? arena.take(size_t(strip) * acc_.size) : acc;
          for (int64_t item = first; item < last; ++item) {
            const int64_t c = item % chunks, s = item / chunks % strips, o = item / chunks / strips;
            Extents low{}, high = nest_.sizes;
            low[0] = s * strip;
            high[0] = std::min(width, low[0] + strip);
            low[size_t(cut)] = c * length;
            high[size_t(cut)] = std::min(nest_.sizes[size_t(cut)], low[size_t(cut)] + length);
            int64_t rest = o;
            for (int d = first_kept; d < nest_.rank; ++d) {
              low[size_t(d)] = rest % nest_.sizes[size_t(d)];
              high[size_t(d)] = low[size_t(d)] + 1;
              rest /= nest_.sizes[size_t(d)];
            }
            const int64_t wide = high[0] - low[0];
            acc_.clear(acc, wide * group);
            TileCursor cursor(tiling, low, high);
            std::byte* const out = cursor.base(0);
            for (int64_t left = tiles_in(tiling, low, high);;) {
              const int64_t w = cursor.extent(0), rows = cursor.n() / w;
              std::byte* const at = acc + size_t(cursor.start(0) - low[0]) * acc_.size;
              const int64_t whole = rows / group, done = whole * group;
              if (in_place) {
                const auto add = acc_.cols_of(code, 0);
                const LoopNest::Operand& in = nest_.operands[1];
                const int64_t unit = int64_t(size_of(in.dtype)), stride = in.strides[1] / unit;
                add(at, cursor.base(1), whole, w * group, stride * group);
                add(at, cursor.base(1) + done * stride * unit, rows - done, w, stride);
              } else {
                runner.run(cursor);
                acc_.add_cols(at, runner.frame(), 0, whole, w * group);
                acc_.add_cols(at, runner.frame(), 0, rows - done, w, done * w);
              }
              if (--left == 0) break;
              cursor.next();
            }
            if (group > 1) {
              acc_.clear(folded, wide);
              acc_.combine(folded, acc, group, wide, wide);
            }
            if (chunks > 1) {
              std::byte* to =
                  partials.data() + size_t((c * others + o) * width + low[0]) * acc_.size;
              std::copy(folded, folded + size_t(wide) * acc_.size, to);
            } else {
              finisher.store(folded, wide, out, nest_.operands[0].strides[0]);
            }
          }
        });
    if (chunks > 1) {
      // Back to the order that combine() expects: the column is the first kept dimension.
      std::rotate(nest_.sizes.begin(), nest_.sizes.begin() + 1, nest_.sizes.begin() + 1 + inner_);
      for (LoopNest::Operand& o : nest_.operands)
        std::rotate(o.strides.begin(), o.strides.begin() + 1, o.strides.begin() + 1 + inner_);
      combine(partials.data(), chunks);
    }
  }

  static int64_t tiles_in(const Tiling& tiling, const Extents& low, const Extents& high) {
    int64_t n = 1;
    for (int d = 0; d < tiling.nest->rank; ++d) {
      const size_t k = size_t(d);
      n *= (high[k] - low[k] + tiling.extents[k] - 1) / tiling.extents[k];
    }
    return n;
  }

  // Ends.

  /// partials[chunk][output] to outputs.
  void combine(const std::byte* partials, int64_t chunks) {
    Partials acc(size_t(outputs_) * acc_.size);
    acc_.clear(acc.data(), outputs_);
    parallel_for(0, outputs_, std::max<int64_t>(64, grain_for(2 * double(chunks))),
                 [&](int64_t first, int64_t last) {
                   acc_.combine(acc.data() + size_t(first) * acc_.size,
                                partials + size_t(first) * acc_.size, chunks, last - first,
                                outputs_);
                 });
    finish_all(acc.data());
  }

  /// Accumulators of all outputs, the first kept dimension fastest.
  void finish_all(const std::byte* acc) {
    ArenaScope arena;
    Finisher finisher(args_, acc_, arena);
    const LoopNest::Operand& out = nest_.operands[0];
    const bool kept = nest_.rank > inner_;
    const int64_t run = kept ? nest_.sizes[size_t(inner_)] : 1;
    Extents index{};
    std::byte* p = out.data;
    for (int64_t done = 0; done < outputs_; done += run) {
      finisher.store(acc + size_t(done) * acc_.size, run, p,
                     kept ? out.strides[size_t(inner_)] : 0);
      for (int d = inner_ + 1; d < nest_.rank; ++d) {
        const size_t k = size_t(d);
        p += out.strides[k];
        if (++index[k] < nest_.sizes[k]) break;
        p -= out.strides[k] * nest_.sizes[k];
        index[k] = 0;
      }
    }
  }

  const prim::ReduceArgs& args_;
  const expr::Program& program_;
  const Accumulation acc_;
  LoopNest nest_;
  int inner_ = 1;
  int64_t outputs_ = 1, reduced_ = 1;
  SmallVector<int, 4> inputs_;
};

}  // namespace

void CpuBackend::reduce(const prim::ReduceArgs& args) {
  if (!args.slots.empty() || !args.epilogue_slots.empty())
    return reduce(prim::Addressed(args).args());
  if (!args.prologue || args.prologue->tables() == 0) return Reduction(args).run();
  const SmallVector<View, 8> inputs = prim::heads_of_tables(args.inputs, args.prologue->tables());
  prim::ReduceArgs a = args;
  a.inputs = {inputs.data(), inputs.size()};
  Reduction(a).run();
}

}  // namespace arete::cpu
