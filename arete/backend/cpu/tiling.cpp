#include "arete/backend/cpu/tiling.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "arete/backend/cpu/walk.h"

namespace arete::cpu {
namespace {

using prim::LoopNest;

template <class T>
void copy_run_as(std::byte* dst, int64_t dst_stride, const std::byte* src, int64_t src_stride,
                 int64_t n) {
  if (dst_stride == int64_t(sizeof(T))) {
    T* d = reinterpret_cast<T*>(dst);
    for (int64_t i = 0; i < n; ++i, src += src_stride) d[i] = *reinterpret_cast<const T*>(src);
    return;
  }
  for (int64_t i = 0; i < n; ++i, dst += dst_stride, src += src_stride)
    *reinterpret_cast<T*>(dst) = *reinterpret_cast<const T*>(src);
}

struct Bytes16 {
  uint64_t low, high;
};

/// Copies a box; strides in bytes. References: copies would be read in wider words than the cursor
/// wrote them in, which waits for all its stores, and so for the previous tile's.
struct BoxCopy {
  int rank;
  const Extents &sizes, &dst_strides, &src_strides;
  size_t size;

  void run(std::byte* dst, const std::byte* src) const {
    const int64_t unit = int64_t(size);
    // Backwards through the source in a dimension other than the first: from its other end.
    for (int d = 1; d < rank; ++d) {
      const size_t k = size_t(d);
      if (src_strides[k] != -unit || sizes[k] == 1) continue;
      Extents to = dst_strides, from = src_strides;
      dst += to[k] * (sizes[k] - 1);
      src += from[k] * (sizes[k] - 1);
      to[k] = -to[k];
      from[k] = unit;
      return BoxCopy{rank, sizes, to, from, size}.run(dst, src);
    }
    // Two dimensions that are fastest on one side each: a transposition.
    int across = -1;
    if (src_strides[0] != unit && src_strides[0] != 0 && dst_strides[0] == unit) {
      for (int d = 1; d < rank && across < 0; ++d)
        if (src_strides[size_t(d)] == unit && sizes[size_t(d)] > 1) across = d;
    } else if (src_strides[0] == unit && dst_strides[0] != unit) {
      for (int d = 1; d < rank && across < 0; ++d)
        if (dst_strides[size_t(d)] == unit && sizes[size_t(d)] > 1) across = d;
    }
    if (across >= 0 && sizes[0] > 1) {
      const int64_t other_dst = dst_strides[size_t(across)],
                    other_src = src_strides[size_t(across)];
      const bool gather = dst_strides[0] == unit;
      // Rows of the source are along its unit stride.
      const int64_t rows = gather ? sizes[0] : sizes[size_t(across)];
      const int64_t cols = gather ? sizes[size_t(across)] : sizes[0];
      const int64_t dst_stride = gather ? other_dst : dst_strides[0];
      const int64_t src_stride = gather ? src_strides[0] : other_src;
      if (src_stride % unit == 0 && dst_stride % unit == 0) {
        const kernels::TransposeKernel kernel = kernels::table().transpose[size];
        outer(dst, src, across, [&](std::byte* d, const std::byte* s) {
          kernel(d, s, rows, cols, dst_stride / unit, src_stride / unit);
        });
        return;
      }
    }
    // Short rows are moved one column at a time.
    if (rank > 1 && sizes[0] <= 4 && sizes[1] >= 4 * sizes[0]) {
      outer(dst, src, 1, [&](std::byte* d, const std::byte* s) {
        for (int64_t i = 0; i < sizes[0]; ++i)
          copy_run(d + i * dst_strides[0], dst_strides[1], s + i * src_strides[0], src_strides[1],
                   sizes[1], size);
      });
      return;
    }
    if (rank > 1 && src_strides[0] == unit && dst_strides[0] == unit) {
      const size_t bytes = size_t(sizes[0]) * size;
      outer(dst, src, 1, [&](std::byte* d, const std::byte* s) {
        for (int64_t i = 0; i < sizes[1]; ++i)
          copy_bytes(d + i * dst_strides[1], s + i * src_strides[1], bytes);
      });
      return;
    }
    outer(dst, src, -1, [&](std::byte* d, const std::byte* s) {
      copy_run(d, dst_strides[0], s, src_strides[0], sizes[0], size);
    });
  }

  /// Calls f for every index of the dimensions other than 0 and `skip`.
  template <class F>
  void outer(std::byte* dst, const std::byte* src, int skip, F&& f) const {
    Extents index{};
    for (;;) {
      f(dst, src);
      int d = 1;
      for (; d < rank; ++d) {
        if (d == skip || sizes[size_t(d)] == 1) continue;
        const size_t k = size_t(d);
        dst += dst_strides[k];
        src += src_strides[k];
        if (++index[k] < sizes[k]) break;
        dst -= dst_strides[k] * sizes[k];
        src -= src_strides[k] * sizes[k];
        index[k] = 0;
      }
      if (d == rank) return;
    }
  }
};

bool walks_directly(const LoopNest::Operand& o, const LoopNest& nest, const Extents& extents) {
  int64_t expected = int64_t(size_of(o.dtype));
  bool whole = true;  // all dimensions so far are in the tile entirely
  for (int d = 0; d < nest.rank; ++d) {
    const size_t k = size_t(d);
    if (extents[k] > 1) {
      if (!whole || o.strides[k] != expected) return false;
      expected *= extents[k];
    }
    whole &= extents[k] == nest.sizes[k];
  }
  return true;
}

bool is_uniform(const LoopNest::Operand& o, const LoopNest& nest, const Extents& extents) {
  bool several = false;
  for (int d = 0; d < nest.rank; ++d) {
    if (extents[size_t(d)] <= 1) continue;
    several = true;
    if (o.strides[size_t(d)] != 0) return false;
  }
  return several;
}

}  // namespace

void copy_run(std::byte* dst, int64_t dst_stride, const std::byte* src, int64_t src_stride,
              int64_t n, size_t size) {
  if (dst_stride == int64_t(size) && src_stride == int64_t(size)) {
    copy_bytes(dst, src, size_t(n) * size);
    return;
  }
  if (dst_stride == int64_t(size) && src_stride == -int64_t(size)) {
    kernels::table().reverse[size](dst, src + (n - 1) * src_stride, nullptr, nullptr, n);
    return;
  }
  if (dst_stride == int64_t(size) && src_stride == 0) {
    kernels::table().splat[size](dst, src, nullptr, nullptr, n);
    return;
  }
  if (dst_stride == int64_t(size) && src_stride == 2 * int64_t(size) && size <= 8) {
    kernels::table().every_other[size](dst, src, nullptr, nullptr, n);
    return;
  }
  switch (size) {
    case 1:
      return copy_run_as<uint8_t>(dst, dst_stride, src, src_stride, n);
    case 2:
      return copy_run_as<uint16_t>(dst, dst_stride, src, src_stride, n);
    case 4:
      return copy_run_as<uint32_t>(dst, dst_stride, src, src_stride, n);
    case 8:
      return copy_run_as<uint64_t>(dst, dst_stride, src, src_stride, n);
    default:
      return copy_run_as<Bytes16>(dst, dst_stride, src, src_stride, n);
  }
}

void choose_extents(const LoopNest& nest, int first, int last, int64_t block, Extents& extents) {
  for (int d = first; d < last; ++d) extents[size_t(d)] = 1;
  if (first == last) return;
  // An operand that is fastest in another dimension: square tiles, so that each of its cache
  // lines is read once.
  if (nest.sizes[size_t(first)] >= 8) {
    for (const LoopNest::Operand& o : nest.operands) {
      const int64_t unit = int64_t(size_of(o.dtype));
      if (o.strides[size_t(first)] == unit || o.strides[size_t(first)] == 0) continue;
      for (int d = first + 1; d < last; ++d) {
        if (std::abs(o.strides[size_t(d)]) != unit || nest.sizes[size_t(d)] < 4) continue;
        const int64_t side = std::min<int64_t>(nest.sizes[size_t(d)], block >= 1024 ? 32 : 16);
        extents[size_t(d)] = side;
        extents[size_t(first)] = std::min(
            nest.sizes[size_t(first)], std::max<int64_t>(1, std::min<int64_t>(block, 2048) / side));
        return;
      }
    }
  }
  int64_t room = block;
  for (int d = first; d < last; ++d) {
    const int64_t size = nest.sizes[size_t(d)];
    int64_t take = std::min(size, room);
    if (d > first && room < block && block / room >= 256) {
      // Long rows already: more of them in a tile only where that saves packing.
      Extents wider = extents;
      wider[size_t(d)] = take;
      bool free = true;
      for (const LoopNest::Operand& o : nest.operands)
        free &= walks_directly(o, nest, wider) || is_uniform(o, nest, wider);
      if (!free) return;
    }
    extents[size_t(d)] = take;
    if (take < size) return;
    room /= std::max<int64_t>(take, 1);
    if (room <= 1) return;
  }
}

Tiling::Tiling(const LoopNest& nest_in, const Extents& extents_in)
    : nest(&nest_in), extents(extents_in), counts{} {
  for (int d = 0; d < nest_in.rank; ++d) {
    const size_t k = size_t(d);
    extents[k] = std::max<int64_t>(1, extents[k]);
    counts[k] = (nest_in.sizes[k] + extents[k] - 1) / extents[k];
  }
  for (const LoopNest::Operand& o : nest_in.operands)
    access.push_back(is_uniform(o, nest_in, extents)       ? Access::uniform
                     : walks_directly(o, nest_in, extents) ? Access::direct
                                                           : Access::packed);
}

TileCursor::TileCursor(const Tiling& tiling, int64_t first) : tiling_(tiling) {
  const LoopNest& nest = *tiling.nest;
  for (int d = 0; d < nest.rank; ++d) {
    const size_t k = size_t(d);
    low_[k] = 0;
    high_[k] = nest.sizes[k];
    position_[k] = first % tiling.counts[k] * tiling.extents[k];
    first /= tiling.counts[k];
  }
  for (const LoopNest::Operand& o : nest.operands) {
    std::byte* p = o.data;
    for (int d = 0; d < nest.rank; ++d) p += o.strides[size_t(d)] * position_[size_t(d)];
    bases_.push_back(p);
  }
  measure();
}

TileCursor::TileCursor(const Tiling& tiling, const Extents& low, const Extents& high)
    : tiling_(tiling), low_(low), high_(high), position_(low) {
  const LoopNest& nest = *tiling.nest;
  for (const LoopNest::Operand& o : nest.operands) {
    std::byte* p = o.data;
    for (int d = 0; d < nest.rank; ++d) p += o.strides[size_t(d)] * position_[size_t(d)];
    bases_.push_back(p);
  }
  measure();
}

void TileCursor::measure() {
  n_ = 1;
  for (int d = 0; d < tiling_.nest->rank; ++d) {
    const size_t k = size_t(d);
    extent_[k] = std::min(tiling_.extents[k], high_[k] - position_[k]);
    n_ *= extent_[k];
  }
}

void TileCursor::next() {
  const LoopNest& nest = *tiling_.nest;
  for (int d = 0; d < nest.rank; ++d) {
    const size_t k = size_t(d);
    const int64_t step = tiling_.extents[k];
    position_[k] += step;
    if (position_[k] < high_[k]) {
      for (size_t o = 0; o < bases_.size(); ++o) bases_[o] += nest.operands[o].strides[k] * step;
      break;
    }
    const int64_t back = position_[k] - step - low_[k];
    if (back)
      for (size_t o = 0; o < bases_.size(); ++o) bases_[o] -= nest.operands[o].strides[k] * back;
    position_[k] = low_[k];
  }
  measure();
}

Extents TileCursor::packed_strides(size_t size) const {
  Extents strides;
  int64_t stride = int64_t(size);
  for (int d = 0; d < tiling_.nest->rank; ++d) {
    strides[size_t(d)] = stride;
    stride *= extent_[size_t(d)];
  }
  return strides;
}

void TileCursor::pack(int operand, void* dst) const {
  const LoopNest::Operand& o = tiling_.nest->operands[size_t(operand)];
  const Extents packed = packed_strides(size_of(o.dtype));
  const BoxCopy copy{tiling_.nest->rank, extent_, packed, o.strides, size_of(o.dtype)};
  copy.run(static_cast<std::byte*>(dst), base(operand));
}

void TileCursor::unpack(int operand, const void* src) const {
  const LoopNest::Operand& o = tiling_.nest->operands[size_t(operand)];
  const Extents packed = packed_strides(size_of(o.dtype));
  const BoxCopy copy{tiling_.nest->rank, extent_, o.strides, packed, size_of(o.dtype)};
  copy.run(base(operand), static_cast<const std::byte*>(src));
}

bool TileCursor::are_interleaved(const Tiling& tiling, int first, int second) {
  const LoopNest::Operand &a = tiling.nest->operands[size_t(first)],
                          &b = tiling.nest->operands[size_t(second)];
  const int64_t size = int64_t(size_of(a.dtype));
  return size <= 8 && a.dtype == b.dtype && b.data - a.data == size && a.strides[0] == 2 * size &&
         std::equal(a.strides.begin(), a.strides.begin() + tiling.nest->rank, b.strides.begin());
}

void TileCursor::separate(int operand, void* first, void* second) const {
  const LoopNest::Operand& o = tiling_.nest->operands[size_t(operand)];
  const Extents packed = packed_strides(size_of(o.dtype));
  const BoxCopy copy{tiling_.nest->rank, extent_, packed, o.strides, size_of(o.dtype)};
  auto* const to = static_cast<std::byte*>(first);
  copy.outer(to, base(operand), -1, [&](std::byte* d, const std::byte* s) {
    kernels::table().separate[copy.size](d, static_cast<std::byte*>(second) + (d - to), s,
                                         extent_[0]);
  });
}

void TileCursor::interleave(int operand, const void* first, const void* second) const {
  const LoopNest::Operand& o = tiling_.nest->operands[size_t(operand)];
  const Extents packed = packed_strides(size_of(o.dtype));
  const BoxCopy copy{tiling_.nest->rank, extent_, o.strides, packed, size_of(o.dtype)};
  const auto* const from = static_cast<const std::byte*>(first);
  copy.outer(base(operand), from, -1, [&](std::byte* d, const std::byte* s) {
    kernels::table().interleave[copy.size](d, s, static_cast<const std::byte*>(second) + (s - from),
                                           nullptr, extent_[0]);
  });
}

void TileCursor::copy(int to, int from) const {
  const LoopNest::Operand& d = tiling_.nest->operands[size_t(to)];
  const LoopNest::Operand& s = tiling_.nest->operands[size_t(from)];
  BoxCopy{tiling_.nest->rank, extent_, d.strides, s.strides, size_of(d.dtype)}.run(base(to),
                                                                                   base(from));
}

TileRunner::TileRunner(const Tiling& tiling, const Code& code,
                       std::span<const expr::Literal> params, std::span<const int> inputs,
                       std::span<const int> outputs, ArenaScope& arena)
    : frame_(code, params, arena.take(code.register_bytes)) {
  const auto add = [&](SmallVector<Port, 8>& ports, int operand, bool used) {
    Port& p = ports.emplace_back(operand);
    if (operand < 0) return;
    p.access = tiling.access[size_t(operand)];
    if (p.access == Tiling::Access::packed && used)
      p.buffer = arena.take(size_t(tiling.tile_numel()) *
                            size_of(tiling.nest->operands[size_t(operand)].dtype));
  };
  for (size_t k = 0; k < inputs.size(); ++k) add(inputs_, inputs[k], (code.reads >> (k & 31)) & 1);
  for (int operand : outputs) add(outputs_, operand, true);
  by_rows_ = goes_by_rows(tiling, code);
  for (SmallVector<Port, 8>* ports : {&inputs_, &outputs_})
    for (size_t k = 0; k + 1 < ports->size(); ++k) {
      Port &a = (*ports)[k], &b = (*ports)[k + 1];
      if (!a.buffer || !b.buffer || !TileCursor::are_interleaved(tiling, a.operand, b.operand))
        continue;
      a.interleaved = true;
      ++k;
    }
}

// Starting the steps once more for each row costs less than moving its elements, if they are few
// and the row is not short.
bool TileRunner::goes_by_rows(const Tiling& tiling, const Code& code) const {
  constexpr int64_t kShortest = 32;
  if (tiling.extents[0] < kShortest || !code.results.empty() || code.given != Code::kNone)
    return false;
  size_t moved = 0;
  for (const SmallVector<Port, 8>* ports : {&inputs_, &outputs_})
    for (const Port& p : *ports) {
      if (p.operand < 0) return false;
      if (p.access == Tiling::Access::uniform) continue;
      const LoopNest::Operand& o = tiling.nest->operands[size_t(p.operand)];
      if (p.access == Tiling::Access::packed && !p.buffer) continue;  // not read
      if (o.strides[0] != int64_t(size_of(o.dtype))) return false;
      moved += p.buffer != nullptr;
    }
  return moved > 0 && code.body.size() <= 2 * moved;
}

void TileRunner::run_rows(const TileCursor& cursor) {
  SmallVector<int, 8> operands;
  SmallVector<void**, 8> slots;
  for (size_t k = 0; k < inputs_.size(); ++k) {
    if (inputs_[k].access == Tiling::Access::uniform) continue;
    operands.push_back(inputs_[k].operand);
    slots.push_back(frame_.input_slot(int(k)));
  }
  for (size_t k = 0; k < outputs_.size(); ++k) {
    operands.push_back(outputs_[k].operand);
    slots.push_back(frame_.output_slot(int(k)));
  }
  const int64_t n = cursor.extent(0);
  cursor.for_each_row({operands.data(), operands.size()}, [&](std::byte* const* at) {
    for (size_t k = 0; k < slots.size(); ++k) *slots[k] = at[k];
    frame_.run(n);
  });
}

void TileRunner::run_fixed(const TileCursor& cursor) {
  bool changed = false;
  for (size_t k = 0; k < inputs_.size(); ++k) {
    Port& p = inputs_[k];
    if (p.operand < 0) continue;
    std::byte* const base = cursor.base(p.operand);
    frame_.set_input(int(k), base);
    changed |= std::exchange(p.last, base) != base && k < 32 && frame_.code().fixed >> k & 1;
  }
  if (changed) frame_.run_fixed(cursor.n());
}

void TileRunner::run(const TileCursor& cursor, bool inputs_changed) {
  bool once = first_ || inputs_changed;
  for (size_t k = 0; k < inputs_.size(); ++k) {
    Port& p = inputs_[k];
    if (p.operand < 0) continue;
    std::byte* const base = cursor.base(p.operand);
    if (p.access == Tiling::Access::direct) {
      frame_.set_input(int(k), base);
    } else if (p.access == Tiling::Access::uniform) {
      once |= base != p.last;
      frame_.set_input(int(k), base);
      p.last = base;
    } else if (p.buffer && !by_rows_) {
      // A broadcast pattern often repeats from tile to tile.
      if (!p.last || base != p.last || p.last_extents != cursor.extents()) {
        if (p.interleaved)
          cursor.separate(p.operand, p.buffer, inputs_[k + 1].buffer);
        else
          cursor.pack(p.operand, p.buffer);
        p.last = base;
        p.last_extents = cursor.extents();
      }
      frame_.set_input(int(k), p.buffer);
      if (p.interleaved) {
        ++k;
        frame_.set_input(int(k), inputs_[k].buffer);
      }
    }
  }
  for (size_t k = 0; k < outputs_.size(); ++k) {
    Port& p = outputs_[k];
    frame_.set_output(int(k), p.buffer ? p.buffer : cursor.base(p.operand));
  }
  if (once) frame_.run_once();
  first_ = false;
  if (by_rows_) return run_rows(cursor);
  frame_.run(cursor.n());
  for (size_t k = 0; k < outputs_.size(); ++k) {
    const Port& p = outputs_[k];
    if (p.interleaved)
      cursor.interleave(p.operand, p.buffer, outputs_[++k].buffer);
    else if (p.buffer)
      cursor.unpack(p.operand, p.buffer);
  }
}

}  // namespace arete::cpu
