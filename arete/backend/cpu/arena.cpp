#include "arete/backend/cpu/arena.h"

#include <algorithm>
#include <new>
#include <vector>

namespace arete::cpu {
namespace {

constexpr size_t kFirstChunk = size_t(256) << 10;
constexpr size_t kKeptChunk = size_t(4) << 20;  // larger chunks go back when their scope ends

struct Arena {
  struct Chunk {
    std::byte* data;
    size_t size, used;
  };
  std::vector<Chunk> chunks;
  int current = -1;

  ~Arena() {
    for (Chunk& c : chunks) release(c);
  }
  static void release(Chunk& c) { ::operator delete(c.data, std::align_val_t(64)); }

  std::byte* take(size_t bytes) {
    bytes = (bytes + 63) & ~size_t(63);
    while (current >= 0) {
      Chunk& c = chunks[size_t(current)];
      if (c.size - c.used >= bytes) {
        std::byte* p = c.data + c.used;
        c.used += bytes;
        return p;
      }
      if (size_t(current) + 1 == chunks.size()) break;
      chunks[size_t(++current)].used = 0;
    }
    const size_t size = std::max(bytes, kFirstChunk);
    chunks.push_back(
        {static_cast<std::byte*>(::operator new(size, std::align_val_t(64))), size, bytes});
    current = int(chunks.size()) - 1;
    return chunks.back().data;
  }

  void rewind(int chunk, size_t used) {
    current = chunk;
    if (chunk >= 0) chunks[size_t(chunk)].used = used;
    while (int(chunks.size()) - 1 > std::max(chunk, 0) && chunks.back().size > kKeptChunk) {
      release(chunks.back());
      chunks.pop_back();
    }
  }
};

Arena& arena() {
  static thread_local Arena a;
  return a;
}

}  // namespace

ArenaScope::ArenaScope() noexcept {
  Arena& a = arena();
  chunk_ = a.current;
  used_ = chunk_ >= 0 ? a.chunks[size_t(chunk_)].used : 0;
}

ArenaScope::~ArenaScope() {
  Arena& a = arena();
  if (chunk_ < 0 && !a.chunks.empty()) {
    a.rewind(0, 0);
  } else {
    a.rewind(chunk_, used_);
  }
}

std::byte* ArenaScope::take(size_t bytes) { return arena().take(bytes); }

}  // namespace arete::cpu
