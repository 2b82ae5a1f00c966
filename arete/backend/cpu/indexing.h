// What gather, scatter and the row primitives share: checking of indices.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "arete/base/error.h"
#include "arete/core/complex.h"
#include "arete/core/dtype.h"
#include "arete/prim/view.h"

namespace arete::cpu {

/// Collects out-of-range indices in loops that may run in parallel, where throwing at once would
/// leave the result to chance; raise() reports one after the loop.
class IndexCheck {
 public:
  explicit IndexCheck(int64_t size) : size_(size), plain_(size) {}
  /// Leaving an index out (GatherArgs).
  IndexCheck(int64_t size, int64_t left_out)
      : size_(size), plain_(0), leaves_out_(true), left_out_(left_out) {}

  /// The index counted from the start, or -1 if it is left out, or (recorded) out of range.
  int64_t resolve(int64_t index) {
    if (uint64_t(index) < uint64_t(plain_)) [[likely]]
      return index;
    if (leaves_out_) {
      if (index == left_out_) return -1;
      if (uint64_t(index) < uint64_t(size_)) return index;
    } else if (index < 0 && index + size_ >= 0) {
      return index + size_;
    }
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

  int64_t size_, plain_;  // plain: below it an index is what it says
  bool leaves_out_ = false;
  int64_t left_out_ = 0;
  int64_t bad_ = 0;
  std::atomic<bool> claimed_{false}, failed_{false};
};

/// The positions that an index names. An index that is the same for all lanes along its dimension
/// is resolved once.
class Positions {
 public:
  /// `lanes`: of the whole call.
  Positions(const prim::View& index, int dim, int64_t lanes, IndexCheck& check)
      : index_(index.as<int64_t>()), check_(check) {
    bool same = lanes > 1 && index.rank() > 0 && index.strides[dim] != 0;
    for (int d = 0; d < index.rank() && same; ++d)
      same = d == dim || index.strides[d] == 0 || index.sizes[d] == 1;
    if (!same) return;
    stride_ = index.strides[dim];
    for (int64_t i = 0; i < index.sizes[dim]; ++i)
      all_.push_back(check.resolve(index_[i * stride_]));
  }

  /// Calls f with a function that gives the position which index number i from `index` on names,
  /// one each `stride`, or -1.
  template <class F>
  void visit(const int64_t* index, int64_t stride, F&& f) const {
    if (!all_.empty() && stride == stride_)
      f([at = all_.data() + (index - index_) / stride_](int64_t i) { return at[i]; });
    else if (stride == 1)
      f([index, &check = check_](int64_t i) { return check.resolve(index[i]); });
    else
      f([index, stride, &check = check_](int64_t i) { return check.resolve(index[i * stride]); });
  }

 private:
  const int64_t* index_;
  IndexCheck& check_;
  int64_t stride_ = 0;
  std::vector<int64_t> all_;
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
