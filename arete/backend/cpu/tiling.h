// Walks an iteration space in tiles small enough for a block of the interpreter.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "arete/backend/cpu/arena.h"
#include "arete/backend/cpu/fetch.h"
#include "arete/backend/cpu/interpreter.h"
#include "arete/prim/loop_nest.h"

namespace arete::cpu {

using Extents = std::array<int64_t, kMaxRank>;

/// Chooses how many elements of dimensions [first, last) of the nest make a tile of at most
/// `block` elements; other entries of `extents` stay.
void choose_extents(const prim::LoopNest& nest, int first, int last, int64_t block,
                    Extents& extents);

/// A nest cut into tiles of the given extents.
struct Tiling {
  enum class Access : uint8_t {
    direct,   ///< the tile is one run of memory
    uniform,  ///< the tile is one element
    packed,   ///< must be gathered
  };

  Tiling(const prim::LoopNest& nest_in, const Extents& extents_in);

  int64_t tiles() const {
    int64_t n = 1;
    for (int d = 0; d < nest->rank; ++d) n *= counts[size_t(d)];
    return n;
  }
  int64_t tile_numel() const {
    int64_t n = 1;
    for (int d = 0; d < nest->rank; ++d) n *= extents[size_t(d)];
    return n;
  }

  const prim::LoopNest* nest;
  Extents extents, counts;
  SmallVector<Access, 8> access;  // per operand
};

/// A position in a tiling, or in a box of it. Tiles come with dimension 0 fastest.
class TileCursor {
 public:
  /// Starts at tile number `first` of all.
  TileCursor(const Tiling& tiling, int64_t first);
  /// Walks the box [low, high) (elements; low must be at tile borders).
  TileCursor(const Tiling& tiling, const Extents& low, const Extents& high);

  void next();
  int64_t n() const { return n_; }
  int64_t extent(int d) const { return extent_[size_t(d)]; }
  const Extents& extents() const { return extent_; }
  /// Index of the tile's first element along a dimension.
  int64_t start(int d) const { return position_[size_t(d)]; }
  std::byte* base(int operand) const { return bases_[size_t(operand)]; }
  /// Bytes of an element.
  int64_t size(int operand) const {
    return int64_t(size_of(tiling_.nest->operands[size_t(operand)].dtype));
  }
  int64_t stride(int operand, int d) const {
    return tiling_.nest->operands[size_t(operand)].strides[size_t(d)];
  }

  /// Calls f for each row of the tile, which is along dimension 0, with pointers to it, one for
  /// each of `operands`.
  template <class F>
  void for_each_row(std::span<const int> operands, F&& f) const {
    const prim::LoopNest& nest = *tiling_.nest;
    SmallVector<std::byte*, 8> at;
    for (int o : operands) at.push_back(bases_[size_t(o)]);
    Extents index{};
    for (;;) {
      f(at.data());
      int d = 1;
      for (; d < nest.rank; ++d) {
        const size_t k = size_t(d);
        if (extent_[k] == 1) continue;
        const int64_t steps = ++index[k] < extent_[k] ? 1 : 1 - extent_[k];
        for (size_t i = 0; i < at.size(); ++i)
          at[i] += steps * nest.operands[size_t(operands[i])].strides[k];
        if (steps == 1) break;
        index[k] = 0;
      }
      if (d == nest.rank) return;
    }
  }
  /// Copies the operand's elements of this tile to `dst` or from `src`, which are contiguous.
  void pack(int operand, void* dst) const;
  void unpack(int operand, const void* src) const;
  /// Whether two operands lie in each other like the parts of complex numbers.
  static bool are_interleaved(const Tiling& tiling, int first, int second);
  /// Packs and unpacks such a pair at once, for its first operand.
  void separate(int operand, void* first, void* second) const;
  void interleave(int operand, const void* first, const void* second) const;
  /// Copies the elements of operand `from` to operand `to`, of equal element sizes.
  void copy(int to, int from) const;

 private:
  void measure();
  /// Strides in bytes of a contiguous copy of this tile; only the nest's dimensions are set.
  Extents packed_strides(size_t size) const;
  const Tiling& tiling_;
  Extents low_, high_, position_, extent_;
  int64_t n_ = 0;
  SmallVector<std::byte*, 8> bases_;
};

/// Connects a frame with the operands of a tiling: hands over pointers, packs and unpacks.
class TileRunner {
 public:
  /// Input k of the code is operand inputs[k] (-1: the caller sets it), output k is outputs[k].
  TileRunner(const Tiling& tiling, const Code& code, std::span<const expr::Literal> params,
             std::span<const int> inputs, std::span<const int> outputs, ArenaScope& arena);

  /// Runs the code on the cursor's tile. A caller that set inputs itself says so.
  void run(const TileCursor& cursor, bool inputs_changed = false);
  /// Runs the code on n tiles that follow each other in dimension d, from the cursor's on, none of
  /// whose operands is packed; calls before(k) and after(k) around that of tile k.
  template <class Before, class After>
  void run_along(const TileCursor& cursor, int d, int64_t n, Before&& before, After&& after) {
    struct Moving {
      void** slot;
      std::byte* at;
      int64_t step, ahead;  // bytes to ask for
    };
    constexpr int64_t kAhead = 4;  // tiles
    SmallVector<Moving, 8> moving;
    const auto add = [&](const Port& p, void** slot) {
      if (p.operand < 0) return;
      // What goes on in the next tile is seen by the hardware.
      const int64_t step = cursor.stride(p.operand, d), bytes = cursor.n() * cursor.size(p.operand);
      const bool apart = p.access == Tiling::Access::direct && step > 2 * bytes;
      moving.push_back({slot, cursor.base(p.operand), step, apart ? bytes : 0});
    };
    for (size_t k = 0; k < inputs_.size(); ++k) add(inputs_[k], frame_.input_slot(int(k)));
    for (size_t k = 0; k < outputs_.size(); ++k) add(outputs_[k], frame_.output_slot(int(k)));
    if (frame_.code().n_fixed > 0) run_fixed(cursor);
    for (int64_t k = 0; k < n; ++k) {
      for (Moving& m : moving) {
        *m.slot = m.at;
        if (m.ahead > 0) fetch_lines(m.at + kAhead * m.step, m.ahead);
        m.at += m.step;
      }
      before(k);
      frame_.run_once();
      frame_.run(cursor.n());
      after(k);
    }
  }
  Frame& frame() { return frame_; }

 private:
  struct Port {
    // With its own constructor, which leaves `last_extents` alone: setting all of it takes longer
    // than a short row.
    explicit Port(int operand_in) : operand(operand_in) {}
    int operand;
    Tiling::Access access = Tiling::Access::direct;
    bool interleaved = false;  // its elements alternate with those of the next one
    std::byte* buffer = nullptr;
    const std::byte* last = nullptr;  // what the buffer or cell was made from
    Extents last_extents;             // of the tile that `buffer` holds, if `last` is not null
  };
  bool goes_by_rows(const Tiling& tiling, const Code& code) const;
  void run_fixed(const TileCursor& cursor);
  void run_rows(const TileCursor& cursor);

  Frame frame_;
  SmallVector<Port, 8> inputs_, outputs_;
  bool first_ = true;
  bool by_rows_ = false;  // the code runs on each row of a tile, where the operands are
};

/// Copies a strided run of elements of `size` bytes (strides in bytes).
void copy_run(std::byte* dst, int64_t dst_stride, const std::byte* src, int64_t src_stride,
              int64_t n, size_t size);

}  // namespace arete::cpu
