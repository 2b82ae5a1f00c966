// Walking several strided operands in row-major order, run by run; the order is part of the
// meaning here (flat positions, lanes along a dimension), unlike in prim/loop_nest.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "arete/base/thread_pool.h"
#include "arete/prim/view.h"

namespace arete::cpu {

/// The positions of a space (optionally without one dimension) with the byte offset of each of N
/// operands. Dimensions that all operands walk in one stride are merged.
template <int N>
class Walk {
 public:
  /// Strides of operand k are those of views[k], whatever its sizes. `skip`: dimension to leave
  /// out, or -1.
  Walk(IntList sizes, int skip, const std::array<const prim::View*, N>& views) {
    for (int d = 0; d < int(sizes.size()); ++d) {
      if (d == skip) continue;
      count_ *= sizes[d];
      if (sizes[d] == 1) continue;
      std::array<int64_t, N> s;
      for (int k = 0; k < N; ++k) s[k] = views[k]->strides[d] * int64_t(size_of(views[k]->dtype));
      bool merge = rank_ > 0;
      for (int k = 0; k < N && merge; ++k) merge = stride_[rank_ - 1][k] == s[k] * sizes[d];
      if (merge) {
        size_[rank_ - 1] *= sizes[d];
        stride_[rank_ - 1] = s;
      } else {
        size_[rank_] = sizes[d];
        stride_[rank_++] = s;
      }
    }
    if (rank_ == 0) {
      size_[0] = count_;
      stride_[0] = {};
      rank_ = 1;
    }
  }

  int64_t count() const { return count_; }
  /// Everything is one run.
  bool single_run() const { return rank_ == 1; }
  /// Byte stride of operand k within a run.
  int64_t stride(int k) const { return stride_[rank_ - 1][k]; }
  /// Byte offset of operand k at the current position.
  int64_t offset(int k) const { return offset_[k]; }
  /// Positions left in the current run, this one included.
  int64_t run() const { return size_[rank_ - 1] - index_[rank_ - 1]; }

  void seek(int64_t flat) {
    offset_ = {};
    for (int d = rank_ - 1; d >= 0; --d) {
      index_[d] = size_[d] > 0 ? flat % size_[d] : 0;
      flat = size_[d] > 0 ? flat / size_[d] : 0;
      for (int k = 0; k < N; ++k) offset_[k] += index_[d] * stride_[d][k];
    }
  }
  /// Goes on by n <= run() positions.
  void advance(int64_t n) {
    int d = rank_ - 1;
    if (d > 0 && n == size_[d]) {  // a whole run, often a short one
      for (int k = 0; k < N; ++k) offset_[k] += stride_[d - 1][k];
      ++index_[--d];
    } else {
      index_[d] += n;
      for (int k = 0; k < N; ++k) offset_[k] += n * stride_[d][k];
    }
    while (d > 0 && index_[d] == size_[d]) {
      for (int k = 0; k < N; ++k) offset_[k] += stride_[d - 1][k] - size_[d] * stride_[d][k];
      index_[d] = 0;
      ++index_[--d];
    }
  }

 private:
  int rank_ = 0;
  int64_t count_ = 1;
  std::array<int64_t, kMaxRank + 1> size_{}, index_{};
  std::array<std::array<int64_t, N>, kMaxRank + 1> stride_{};
  std::array<int64_t, N> offset_{};
};

/// Calls body(walk, length) for every run within positions [begin, end) of a copy of `walk`.
template <int N, class F>
void for_each_run(const Walk<N>& walk, int64_t begin, int64_t end, F&& body) {
  Walk<N> w = walk;
  w.seek(begin);
  for (int64_t i = begin; i < end;) {
    const int64_t n = std::min(w.run(), end - i);
    body(w, n);
    w.advance(n);
    i += n;
  }
}

/// memcpy, short ones without the call.
inline void copy_bytes(void* out, const void* in, size_t bytes) {
  auto* to = static_cast<std::byte*>(out);
  auto* from = static_cast<const std::byte*>(in);
  // All of it in steps, the last of which ends where it does.
  const auto in_steps = [&]<size_t kStep>() {
    for (size_t i = 0; i + kStep < bytes; i += kStep) std::memcpy(to + i, from + i, kStep);
    std::memcpy(to + bytes - kStep, from + bytes - kStep, kStep);
  };
  if (bytes < 4 || bytes > 256) {
    // Where memory is up to so much behind the other's place in its page, the library's copy goes
    // backwards, four times as slowly.
    constexpr size_t kPage = 4096, kBehind = 256, kMany = 128;
    const size_t behind = (uintptr_t(out) - uintptr_t(in)) % kPage;
    if (bytes > kBehind && behind > 0 && behind < kBehind)
      for (; bytes > kBehind; bytes -= kMany, to += kMany, from += kMany) {
        std::byte part[kMany];
        std::memcpy(part, from, kMany);
        std::memcpy(to, part, kMany);
      }
    std::memcpy(to, from, bytes);
  } else if (bytes >= 16)
    in_steps.operator()<16>();
  else if (bytes >= 8)
    in_steps.operator()<8>();
  else
    in_steps.operator()<4>();
}

/// A grain for parallel_for over items of `steps` elementary steps each, 0.1 ns or so.
inline int64_t grain_of_steps(int64_t steps) { return grain_for(4 * double(steps)); }

}  // namespace arete::cpu
