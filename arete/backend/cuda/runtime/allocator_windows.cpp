#include "arete/backend/cuda/runtime/allocator_windows.h"

#include <algorithm>
#include <utility>

namespace arete::cuda {
namespace {

// Windows are dropped from so many on, or when they have so many times the memory there is.
constexpr size_t kMostWindows = 256, kMostShare = 16;

}  // namespace

Windows::~Windows() {
  for (const auto& w : windows_) destroy(*w);
}

Block* Windows::take_oldest(size_t size) {
  for (const auto& w : windows_)
    if (w->usable >= size && w->lent.empty() && !w->dropped && can_serve(*w, size))
      return hand_out(*w, size);
  return nullptr;
}

bool Windows::can_serve(const Window& w, size_t size) const {
  for (const Window::Piece& p : w.pieces) {
    if (p.offset >= size) break;
    const Block* b = resources_.find_free(p.segment, p.home);
    if (!b || b->end() < p.home + std::min(p.bytes, size - p.offset)) return false;
  }
  return true;
}

Block* Windows::hand_out(Window& w, size_t size) {
  for (const Window::Piece& p : w.pieces) {
    if (p.offset >= size) break;
    Block* b = resources_.find_free(p.segment, p.home);
    w.lent.push_back(
        p.segment->arena->lend(b, p.home, p.home + std::min(p.bytes, size - p.offset)));
  }
  w.used_at = ++uses_;
  w.segment.first->size = size;
  return w.segment.first;
}

void Windows::put(Block* b) {
  Window& w = *b->segment->window;
  b->state = Block::State::hole;
  for (Block* l : std::exchange(w.lent, {})) l->segment->arena->put(l);
  w.freed_at = epoch_;
}

size_t Windows::free_bytes() const {
  size_t found = 0;
  for (const Arena* a : arenas_) a->for_each_trimmable([&](const Block*, size_t n) { found += n; });
  return found;
}

Block* Windows::make(size_t size) {
  const size_t chunk = resources_.granularity;
  std::vector<Window::Piece> pieces;
  size_t found = 0;
  for (const Arena* a : arenas_)
    a->for_each_trimmable([&](const Block* b, size_t n) {
      pieces.push_back({0, b->segment, round_up(b->address, chunk), n});
      found += n;
    });
  if (found < size) return nullptr;
  const size_t bytes = round_up(size, chunk);
  drop_old_ones(bytes);
  // Small pieces first, since large ones are more likely to be used as they are.
  std::sort(pieces.begin(), pieces.end(), [](const Window::Piece& a, const Window::Piece& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.home < b.home;
  });
  void* const base = resources_.source.reserve(bytes);
  if (!base) return nullptr;
  auto w = std::make_unique<Window>(uintptr_t(base), bytes, arenas_[1]);
  for (Window::Piece& p : pieces) {
    if (w->usable == bytes) break;
    p.offset = w->usable;
    p.bytes = std::min(p.bytes, bytes - p.offset);
    if (!resources_.source.alias(reinterpret_cast<void*>(p.home),
                                 reinterpret_cast<void*>(w->segment.base + p.offset), p.bytes))
      break;
    w->pieces.push_back(p);
    w->usable += p.bytes;
  }
  Segment& s = w->segment;
  s.window = w.get();
  s.first = resources_.records.make(&s, s.base, bytes);
  s.first->before = s.first->after = nullptr;
  s.first->state = Block::State::hole;
  resources_.add_segment(&s);
  if (w->usable < bytes) {
    destroy(*w);
    return nullptr;
  }
  bytes_ += bytes;
  windows_.push_back(std::move(w));
  return hand_out(*windows_.back(), size);
}

void Windows::drop_old_ones(size_t bytes) {
  for (;;) {
    size_t count = 0;
    Window* oldest = nullptr;
    for (const auto& w : windows_) {
      if (w->dropped) continue;
      ++count;
      if (w->lent.empty() && (!oldest || w->used_at < oldest->used_at)) oldest = w.get();
    }
    if (!oldest) return;
    if (count < kMostWindows && bytes_ + bytes <= kMostShare * resources_.mapped) return;
    drop(*oldest);
  }
}

void Windows::drop(Window& w) {
  w.dropped = true;
  bytes_ -= w.segment.bytes;
}

void Windows::destroy(Window& w) {
  for (const Window::Piece& p : w.pieces)
    resources_.source.unmap(reinterpret_cast<void*>(w.segment.base + p.offset), p.bytes);
  resources_.source.unreserve(reinterpret_cast<void*>(w.segment.base), w.segment.bytes);
  resources_.remove_segment(&w.segment);
  resources_.records.recycle(w.segment.first);
}

void Windows::release_dropped(uint64_t until_epoch) {
  std::erase_if(windows_, [&](const std::unique_ptr<Window>& w) {
    if (!w->dropped || w->freed_at > until_epoch) return false;
    destroy(*w);
    return true;
  });
}

void Windows::forget(uintptr_t begin, uintptr_t end) {
  for (const auto& w : windows_) {
    std::vector<Window::Piece> left;
    for (const Window::Piece& p : w->pieces) {
      const uintptr_t from = std::max(begin, p.home), to = std::min(end, p.home + p.bytes);
      if (from >= to) {
        left.push_back(p);
        continue;
      }
      const size_t before = from - p.home, after = p.home + p.bytes - to;
      resources_.source.unmap(reinterpret_cast<void*>(w->segment.base + p.offset + before),
                              to - from);
      if (before) left.push_back({p.offset, p.segment, p.home, before});
      if (after) left.push_back({p.offset + p.bytes - after, p.segment, to, after});
      w->usable = std::min(w->usable, p.offset + before);
    }
    w->pieces = std::move(left);
    if (w->usable == 0 && !w->dropped) drop(*w);
  }
}

}  // namespace arete::cuda
