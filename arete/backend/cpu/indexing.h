// What gather, scatter and the row primitives share: checking of indices.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "arete/base/error.h"
#include "arete/core/dtype.h"
#include "arete/prim/view.h"

namespace arete::cpu {

/// Collects out-of-range indices in loops that may run in parallel, where throwing at once would
/// leave the result to chance; raise() reports one after the loop.
class IndexCheck {
 public:
  explicit IndexCheck(int64_t size) : size_(size) {}

  /// The index counted from the start, or -1 (recorded) if it is out of range.
  int64_t resolve(int64_t index) {
    const int64_t i = index < 0 ? index + size_ : index;
    if (uint64_t(i) < uint64_t(size_)) [[likely]]
      return i;
    record(index);
    return -1;
  }

  /// The same for n indices, one each `stride`. Without branches, so that the loop vectorizes.
  /// Returns whether all are in range.
  bool resolve(const int64_t* index, int64_t stride, int64_t n, int64_t* positions) {
    int64_t outside = 0;  // its sign
    const auto look_at = [&](int64_t i, int64_t k) {
      const int64_t p = k + (k < 0 ? size_ : 0);
      outside |= p | (size_ - 1 - p);
      positions[i] = p;
    };
    if (stride == 1)
      for (int64_t i = 0; i < n; ++i) look_at(i, index[i]);
    else
      for (int64_t i = 0; i < n; ++i) look_at(i, index[i * stride]);
    if (outside >= 0) [[likely]]
      return true;
    for (int64_t i = 0; i < n; ++i) positions[i] = resolve(index[i * stride]);
    return false;
  }

  /// IndexError naming `op` if there was one.
  void raise(const char* op, int dim) const {
    if (!failed_.load(std::memory_order_acquire)) [[likely]]
      return;
    throw IndexError(op, "index " + std::to_string(bad_) + " is out of bounds for dimension " +
                             std::to_string(dim) + " with size " + std::to_string(size_))
        .argument("index");
  }

 private:
  [[gnu::cold, gnu::noinline]] void record(int64_t index) {
    if (claimed_.exchange(true)) return;
    bad_ = index;
    failed_.store(true, std::memory_order_release);
  }

  int64_t size_;
  int64_t bad_ = 0;
  std::atomic<bool> claimed_{false}, failed_{false};
};

/// The positions that an index names, some at a time. An index that is the same for all lanes along
/// its dimension is resolved once.
class Positions {
 public:
  static constexpr int64_t kBlock = 512;

  /// `lanes`: of the whole call.
  Positions(const prim::View& index, int dim, int64_t lanes, IndexCheck& check)
      : index_(index.as<int64_t>()), check_(check) {
    bool same = lanes > 1 && index.rank() > 0;
    for (int d = 0; d < index.rank() && same; ++d)
      same = d == dim || index.strides[d] == 0 || index.sizes[d] == 1;
    if (!same || index.strides[dim] == 0) return;
    stride_ = index.strides[dim];
    all_.resize(size_t(index.sizes[dim]));
    fine_ = check.resolve(index_, stride_, index.sizes[dim], all_.data());
  }

  /// Calls f(first, count, positions, all of them are in range), -1 standing for those that are
  /// not, for the n indices from `index` on, one each `stride`.
  template <class F>
  void for_each_block(const int64_t* index, int64_t stride, int64_t n, F&& f) const {
    if (!all_.empty() && stride == stride_)
      return f(int64_t{0}, n, all_.data() + (index - index_) / stride_, fine_);
    int64_t block[kBlock];
    for (int64_t first = 0; first < n; first += kBlock) {
      const int64_t count = std::min(kBlock, n - first);
      const bool fine = check_.resolve(index + first * stride, stride, count, block);
      f(first, count, block, fine);
    }
  }

 private:
  const int64_t* index_;
  IndexCheck& check_;
  int64_t stride_ = 0;
  std::vector<int64_t> all_;
  bool fine_ = true;
};

/// Calls f with the TypeTag of an unsigned integer (or, for 16 bytes, a struct) of that size.
template <class F>
void visit_size(size_t bytes, F&& f) {
  struct Sixteen {
    uint64_t a, b;
  };
  switch (bytes) {
    case 1:
      return f(TypeTag<uint8_t>{});
    case 2:
      return f(TypeTag<uint16_t>{});
    case 4:
      return f(TypeTag<uint32_t>{});
    case 8:
      return f(TypeTag<uint64_t>{});
    default:
      return f(TypeTag<Sixteen>{});
  }
}

}  // namespace arete::cpu
