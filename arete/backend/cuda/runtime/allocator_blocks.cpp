#include "arete/backend/cuda/runtime/allocator_blocks.h"

#include <new>
#include <utility>

namespace arete::cuda {
namespace {

bool comes_before(const Block* a, const Block* b) {
  return a->size != b->size ? a->size < b->size : a->address < b->address;
}

/// Priorities in the trees: fixed for a block, and independent of the order of keys.
uint64_t priority(const Block* b) {
  uint64_t x = b->address / kBlockUnit * 0xD6E8FEB86659FD93u;
  x ^= x >> 32;
  return x * 0xD6E8FEB86659FD93u;
}

void tree_insert(Block** root, Block* b) {
  const uint64_t p = priority(b);
  Block** link = root;
  while (*link && priority(*link) >= p)
    link = comes_before(b, *link) ? &(*link)->left : &(*link)->right;
  // The subtree here is split around b, which takes its place.
  Block *t = *link, **smaller = &b->left, **larger = &b->right;
  *link = b;
  while (t) {
    if (comes_before(t, b)) {
      *smaller = t;
      smaller = &t->right;
      t = t->right;
    } else {
      *larger = t;
      larger = &t->left;
      t = t->left;
    }
  }
  *smaller = *larger = nullptr;
}

void tree_remove(Block** root, Block* b) {
  Block** link = root;
  while (*link != b) link = comes_before(b, *link) ? &(*link)->left : &(*link)->right;
  // Its two subtrees are merged in its place.
  Block *l = b->left, *r = b->right;
  while (l && r) {
    if (priority(l) >= priority(r)) {
      *link = l;
      link = &l->right;
      l = l->right;
    } else {
      *link = r;
      link = &r->left;
      r = r->left;
    }
  }
  *link = l ? l : r;
}

Block* tree_best_fit(Block* root, size_t size) {
  Block* best = nullptr;
  while (root) {
    if (root->size >= size) {
      best = root;
      root = root->left;
    } else {
      root = root->right;
    }
  }
  return best;
}

}  // namespace

void BlockRecords::add_slab() {
  constexpr size_t kCount = 256;
  slabs_.push_back(std::make_unique<Block[]>(kCount));
  for (size_t i = kCount; i-- > 0;) {
    Block* b = &slabs_.back()[i];
    b->after = unused_;
    unused_ = b;
  }
}

void FreeBlocks::insert(Block* b) {
  const int bin = bin_of(b->size);
  Block*& first = bins_[size_t(bin)];
  if (!first) mark(bin);
  if (bin >= kExactBins) return tree_insert(&first, b);
  b->left = nullptr;
  b->right = first;
  if (first) first->left = b;
  first = b;
}

void FreeBlocks::remove(Block* b) {
  const int bin = bin_of(b->size);
  Block*& first = bins_[size_t(bin)];
  if (bin >= kExactBins) {
    tree_remove(&first, b);
  } else {
    (b->left ? b->left->right : first) = b->right;
    if (b->right) b->right->left = b->left;
  }
  if (!first) unmark(bin);
}

Block* FreeBlocks::best_fit(size_t size) const {
  int bin = next_used(bin_of(size));
  if (bin < 0) return nullptr;
  if (bin < kExactBins) return bins_[size_t(bin)];
  if (Block* b = tree_best_fit(bins_[size_t(bin)], size)) return b;
  // Only in the bin of the size itself can all blocks be too small.
  if (bin + 1 >= kBins || (bin = next_used(bin + 1)) < 0) return nullptr;
  return tree_best_fit(bins_[size_t(bin)], size);
}

void BlockTable::grow() {
  std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
  --shift_;
  for (const Slot& s : old)
    if (s.address) place(s);
}

IndexSet::IndexSet(size_t limit) {
  do {
    limit = (limit + 63) / 64;
    // calloc, because the system gives large zeroed memory page by page.
    auto* words = static_cast<uint64_t*>(std::calloc(limit, sizeof(uint64_t)));
    if (!words) throw std::bad_alloc();
    levels_.push_back({std::unique_ptr<uint64_t[], Free>(words)});
  } while (limit > 1);
}

ptrdiff_t IndexSet::find_down(size_t i) const {
  for (size_t level = 0; level < levels_.size(); ++level) {
    // Bits up to i in its word; at upper levels only those of earlier words are asked for.
    const uint64_t word = levels_[level].words[i / 64] & (~uint64_t(0) >> (63 - i % 64));
    if (word) {
      i = i / 64 * 64 + 63 - size_t(std::countl_zero(word));
      while (level-- > 0) i = i * 64 + 63 - size_t(std::countl_zero(levels_[level].words[i]));
      return ptrdiff_t(i);
    }
    if (i < 64) return -1;
    i = i / 64 - 1;
  }
  return -1;
}

}  // namespace arete::cuda
