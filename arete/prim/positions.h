// Inputs of programs that compute where elements lie.
#pragma once

#include <optional>

#include "arete/base/error.h"
#include "arete/prim/backend.h"

namespace arete::prim {

/// 0, 1, 2, ... `count` of them of kInt32 or kInt64, in memory of the device that nobody writes and
/// that stays where it is, made at the first use. Null where they have to be counted by a call:
/// there are too many, or they are not there yet and a graph of the device's work is being captured
/// or calls are rehearsed.
std::byte* kept_numbers(Device device, DType dtype, int64_t count);
/// Whether they are what lies there.
bool are_kept_numbers(const std::byte* address) noexcept;

/// 0, 1, 2, ... in memory, shown along dimensions of what a program runs over.
class Positions {
 public:
  /// As many as the longest of the numbers that are asked for.
  Positions(Primitives& p, DType dtype, int64_t count)
      : size_{count}, numbers_(kept_numbers(p.device(), dtype, count), dtype, size_, stride_) {
    if (numbers_.data) return;
    counted_.emplace(p, dtype, size_);
    numbers_.data = counted_->view().data;
    p.iota({.out = numbers_});
  }
  Positions(const Positions&) = delete;
  Positions& operator=(const Positions&) = delete;

  /// All of them, one after the other.
  const View& all() const { return numbers_; }
  /// The number of an element among dimensions `first` to `last` of `sizes`, row-major. A view of
  /// this object's.
  View along(IntList sizes, size_t first, size_t last) {
    ARETE_ASSERT(count_ < size_t(kMaxRank) && last < sizes.size());
    Shape &part = sizes_[count_], &strides = strides_[count_];
    ++count_;
    part = Shape(sizes.size(), 1);
    strides = Shape(sizes.size(), 0);
    int64_t n = 1;
    for (size_t d = last + 1; d-- > first; n *= sizes[d]) {
      part[d] = sizes[d];
      strides[d] = n;
    }
    ARETE_ASSERT(n <= size_[0]);
    View v = numbers_;
    v.sizes = part;
    v.strides = strides;
    return v;
  }

 private:
  Shape size_, stride_{1};
  View numbers_;
  std::optional<ScratchView> counted_;
  Shape sizes_[kMaxRank], strides_[kMaxRank];
  size_t count_ = 0;
};

/// What positions among `most` elements are counted in: 32 bits are faster where they suffice.
inline DType position_dtype(int64_t most) { return most < (int64_t{1} << 30) ? kInt32 : kInt64; }

}  // namespace arete::prim
