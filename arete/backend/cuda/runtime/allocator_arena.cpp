#include "arete/backend/cuda/runtime/allocator_arena.h"

#include <algorithm>

#include "arete/backend/cuda/runtime/allocator_pool.h"

namespace arete::cuda {
namespace {

constexpr size_t kMiB = size_t(1) << 20;
// Plain segments: a request smaller than kSharedLimit comes from one of kSharedSegment bytes.
constexpr size_t kPlainUnit = 2 * kMiB, kSharedLimit = 10 * kMiB, kSharedSegment = 20 * kMiB;

}  // namespace

Segment* ArenaResources::find_segment(uintptr_t address) const {
  auto it = std::upper_bound(segments.begin(), segments.end(), address,
                             [](uintptr_t a, const Segment* s) { return a < s->base; });
  if (it == segments.begin()) return nullptr;
  Segment* s = *--it;
  return address < s->end() ? s : nullptr;
}

Block* ArenaResources::find_live(const Segment* segment, uintptr_t address) const {
  if (Block* b = live.find(address)) return b;
  const ptrdiff_t i = segment->live.find_down((address - segment->base) / kBlockUnit);
  if (i < 0) return nullptr;
  Block* b = live.find(segment->base + size_t(i) * kBlockUnit);
  return b && address < b->end() ? b : nullptr;
}

Block* ArenaResources::find_free(const Segment* segment, uintptr_t address) const {
  // Nothing but blocks that are not live lies between the last live one and the address.
  const ptrdiff_t i = segment->live.find_down((address - segment->base) / kBlockUnit);
  Block* b = i < 0 ? segment->first : live.find(segment->base + size_t(i) * kBlockUnit);
  while (b && b->end() <= address) b = b->after;
  return b && b->state == Block::State::free ? b : nullptr;
}

void ArenaResources::add_segment(Segment* s) {
  segments.insert(
      std::upper_bound(segments.begin(), segments.end(), s,
                       [](const Segment* a, const Segment* b) { return a->base < b->base; }),
      s);
}

Arena::~Arena() {
  while (!segments_.empty()) {
    Segment* s = segments_.back().get();
    if (resources_.granularity) {
      for (Block* b = s->first; b; b = b->after)
        if (b->state != Block::State::hole) {
          // A run of memory begins; its ends are where holes are, at whole chunks.
          const uintptr_t begin = b->address;
          while (b->after && b->after->state != Block::State::hole) b = b->after;
          resources_.source.unmap(reinterpret_cast<void*>(begin), b->end() - begin);
          resources_.subtract_mapped(s, b->end() - begin);
        }
    }
    remove_segment(s);
  }
}

Block* Arena::cut(Block* b, size_t size, Block::State rest) {
  Block* r = resources_.records.make(b->segment, b->address + size, b->size - size);
  b->size = size;
  r->freed_at = b->freed_at;
  r->before = b;
  r->after = b->after;
  if (r->after) r->after->before = r;
  b->after = r;
  become(r, rest);
  return r;
}

void Arena::become(Block* b, Block::State state) {
  b->state = state;
  if (state == Block::State::free) free_.insert(b);
  if (state == Block::State::hole) add_hole(b);
}

void Arena::swallow_next(Block* b) {
  Block* n = b->after;
  b->size += n->size;
  b->after = n->after;
  if (n->after) n->after->before = b;
  resources_.records.recycle(n);
}

Block* Arena::put(Block* b) {
  if (Block* n = b->after; n && n->state == Block::State::free) {
    free_.remove(n);
    swallow_next(b);
  }
  if (Block* p = b->before; p && p->state == Block::State::free) {
    free_.remove(p);
    swallow_next(p);
    b = p;
  }
  b->state = Block::State::free;
  b->freed_at = epoch_;
  free_.insert(b);
  return b;
}

void Arena::add_hole(Block* b) {
  b->left = nullptr;
  b->right = holes_;
  if (holes_) holes_->left = b;
  holes_ = b;
}

void Arena::remove_hole(Block* b) {
  (b->left ? b->left->right : holes_) = b->right;
  if (b->right) b->right->left = b->left;
}

void Arena::join_holes(Block* b) {
  if (Block* n = b->after; n && n->state == Block::State::hole) {
    remove_hole(n);
    swallow_next(b);
  }
  if (Block* p = b->before; p && p->state == Block::State::hole) {
    remove_hole(b);
    swallow_next(p);
  }
}

Segment* Arena::add_segment(void* base, size_t bytes) {
  segments_.push_back(std::make_unique<Segment>(uintptr_t(base), bytes, this));
  Segment* s = segments_.back().get();
  resources_.add_segment(s);
  s->first = resources_.records.make(s, s->base, bytes);
  s->first->before = s->first->after = nullptr;
  return s;
}

void Arena::remove_segment(Segment* s) {
  if (resources_.granularity) {
    resources_.source.unreserve(reinterpret_cast<void*>(s->base), s->bytes);
  } else {
    resources_.source.release(reinterpret_cast<void*>(s->base));
    resources_.subtract_mapped(s, s->bytes);
  }
  for (Block *b = s->first, *next; b; b = next) {
    next = b->after;
    if (b->state == Block::State::free) free_.remove(b);
    if (b->state == Block::State::hole) remove_hole(b);
    resources_.records.recycle(b);
  }
  resources_.remove_segment(s);
  std::erase_if(segments_, [&](const auto& p) { return p.get() == s; });
}

Arena::Growth Arena::plan(size_t size, bool tight) const {
  Growth best;
  const size_t chunk = resources_.granularity;
  if (!chunk) {
    best.segment_bytes = kind_ == Kind::small            ? kPlainUnit
                         : size < kSharedLimit && !tight ? kSharedSegment
                                                         : round_up(size, kPlainUnit);
    best.bytes = best.segment_bytes;
    return best;
  }
  best.bytes = ~size_t(0);
  for (Block* hole = holes_; hole; hole = hole->right) {
    Block* first = hole->before && hole->before->state == Block::State::free ? hole->before : hole;
    size_t have = 0, cost = 0;
    for (Block* b = first; b && have < size; b = b->after) {
      if (b->state == Block::State::free) {
        have += b->size;
      } else if (b->state == Block::State::hole) {
        const size_t n = std::min(b->size, round_up(size - have, chunk));
        have += n;
        cost += n;
      } else {
        break;
      }
    }
    if (have < size || cost > best.bytes) continue;
    if (cost == best.bytes && first->address > best.begin) continue;
    best = {cost, first, first->address, first->address + have};
  }
  if (!best.first) {
    best.bytes = round_up(size, chunk);
    best.segment_bytes = std::max(resources_.range_bytes, best.bytes);
  }
  return best;
}

Arena::Growth Arena::plan_new(size_t bytes) const {
  Growth best;
  best.bytes = round_up(bytes, resources_.granularity);
  for (Block* hole = holes_; hole; hole = hole->right)
    if (hole->size >= best.bytes && (!best.first || hole->address < best.begin))
      best.first = hole, best.begin = hole->address;
  best.end = best.begin + best.bytes;
  if (!best.first) best.segment_bytes = std::max(resources_.range_bytes, best.bytes);
  return best;
}

bool Arena::grow(size_t size, const Growth& growth) {
  const size_t chunk = resources_.granularity;
  Block* b = growth.first;
  if (!b) {
    void* base = chunk ? resources_.source.reserve(growth.segment_bytes)
                       : resources_.source.allocate(growth.segment_bytes);
    if (!base) return false;
    Segment* s = add_segment(base, growth.segment_bytes);
    if (!chunk) {
      resources_.add_mapped(s, s->bytes);
      become(s->first, Block::State::free);
      return true;
    }
    b = s->first;
    become(b, Block::State::hole);
  }
  const uintptr_t begin = b->address;
  for (;;) {
    if (b->state == Block::State::hole) {
      const size_t n = std::min(b->size, round_up(size - (b->address - begin), chunk));
      if (!resources_.source.map(b->pointer(), n)) return false;
      resources_.add_mapped(b->segment, n);
      remove_hole(b);
      if (b->size > n) cut(b, n, Block::State::hole);
      b = put(b);  // joined with what came before
    }
    if (b->end() - begin >= size) return true;
    b = b->after;
  }
}

size_t Arena::trimmable(const Block* b) const {
  const size_t chunk = resources_.granularity;
  if (!chunk) return b->size == b->segment->bytes ? b->size : 0;
  const uintptr_t begin = round_up(b->address, chunk), end = round_down(b->end(), chunk);
  return begin < end ? end - begin : 0;
}

size_t Arena::trim(Block* b, size_t most) {
  const size_t chunk = resources_.granularity;
  if (!chunk) {
    const size_t bytes = b->size;
    remove_segment(b->segment);
    return bytes;
  }
  // From its end, so that memory gathers at low addresses.
  const uintptr_t end = round_down(b->end(), chunk);
  const size_t n = std::min(end - round_up(b->address, chunk), round_up(most, chunk));
  const uintptr_t begin = end - n;
  Block* hole = lend(b, begin, end);
  pool_->windows.forget(begin, end);
  resources_.source.unmap(hole->pointer(), n);
  resources_.subtract_mapped(hole->segment, n);
  become(hole, Block::State::hole);
  join_holes(hole);
  return n;
}

Block* Arena::lend(Block* b, uintptr_t begin, uintptr_t end) {
  free_.remove(b);
  if (b->end() > end) cut(b, end - b->address, Block::State::free);
  if (b->address != begin) {
    Block* rest = b;
    b = cut(b, begin - b->address, Block::State::lent);
    free_.insert(rest);
  }
  b->state = Block::State::lent;
  return b;
}

size_t Arena::trim_all() {
  std::vector<Block*> blocks;
  for_each_trimmable([&](Block* b, size_t) { blocks.push_back(b); });
  size_t bytes = 0;
  for (Block* b : blocks) bytes += trim(b, b->size);
  return bytes;
}

size_t Arena::mapped() const {
  size_t n = 0;
  for (const auto& s : segments_) n += s->mapped;
  return n;
}

bool Arena::has_blocks() const {
  for (const auto& s : segments_)
    for (const Block* b = s->first; b; b = b->after)
      if (b->state == Block::State::live || b->state == Block::State::lent ||
          b->state == Block::State::pending)
        return true;
  return false;
}

}  // namespace arete::cuda
