// What gather, scatter and the row primitives share: checking of indices.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "arete/base/error.h"
#include "arete/core/dtype.h"

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
