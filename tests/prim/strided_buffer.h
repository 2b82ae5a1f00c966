// A test operand with any layout: gaps, permuted dimensions, guard bytes all round.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "arete/prim/view.h"

namespace arete::test {

/// Reads or writes element `p` of a type as a double (complex: the real part).
inline double load(const std::byte* p, DType dtype) {
  return visit_dtype(dtype, [&](auto tag) -> double {
    using T = typename decltype(tag)::type;
    T v;
    std::memcpy(&v, p, sizeof(T));
    if constexpr (is_complex(dtype_of<T>))
      return double(v.real());
    else if constexpr (std::is_arithmetic_v<T>)
      return double(v);
    else
      return double(float(v));
  });
}
inline void store(std::byte* p, DType dtype, double value) {
  visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T v;
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      v = T(int64_t(value));
    else if constexpr (std::is_arithmetic_v<T>)
      v = T(value);
    else if constexpr (is_complex(dtype_of<T>))
      v = T(typename T::value_type(value));
    else
      v = T(float(value));
    std::memcpy(p, &v, sizeof(T));
  });
}

/// Memory of a view whose strides come from: the order of dimensions (outermost first), and for
/// each dimension a gap in elements after it. Every byte that no element covers is watched.
class StridedBuffer {
 public:
  static constexpr int64_t kGuard = 64;

  StridedBuffer(DType dtype, Shape sizes, std::vector<int> order = {}, int64_t gap = 0,
                bool reversed = false)
      : sizes_(sizes), strides_(sizes.size()), dtype_(dtype) {
    const int rank = int(sizes.size());
    if (order.empty()) {
      order.resize(size_t(rank));
      std::iota(order.begin(), order.end(), 0);
    }
    int64_t step = 1, last = 0;
    for (int i = rank - 1; i >= 0; --i) {
      const int d = order[size_t(i)];
      strides_[d] = step * (i == rank - 1 && gap < 0 ? -gap : 1);
      if (sizes[d] > 0) last += (sizes[d] - 1) * strides_[d];
      step = strides_[d] * std::max<int64_t>(sizes[d], 1) + std::max<int64_t>(gap, 0);
    }
    const int64_t size = int64_t(size_of(dtype));
    bytes_.assign(size_t((last + 1) * size + 2 * kGuard), std::byte{0xA5});
    start_ = kGuard;
    if (reversed && rank > 0 && sizes[0] > 0) {
      start_ += (sizes[0] - 1) * strides_[0] * size;
      strides_[0] = -strides_[0];
    }
    covered_.assign(bytes_.size(), false);
    for_each([&](int64_t offset) {
      for (int64_t b = 0; b < size; ++b) covered_[size_t(start_ + offset * size + b)] = true;
    });
  }

  prim::View view() { return {bytes_.data() + start_, dtype_, sizes_, strides_}; }
  DType dtype() const { return dtype_; }
  const Shape& sizes() const { return sizes_; }
  int64_t numel() const { return numel_of(sizes_); }

  /// Values in row-major order of indices.
  std::vector<double> values() const {
    std::vector<double> out;
    out.reserve(size_t(numel()));
    for_each([&](int64_t offset) { out.push_back(load(address(offset), dtype_)); });
    return out;
  }
  void set(const std::vector<double>& values) {
    size_t i = 0;
    for_each([&](int64_t offset) {
      store(const_cast<std::byte*>(address(offset)), dtype_, values[i++]);
    });
  }
  /// Random values as the dtype holds them: small integers or halves of [-1, 1].
  void randomize(std::mt19937_64& rng) {
    std::vector<double> v(static_cast<size_t>(numel()));
    for (double& x : v) {
      const double u = double(rng() >> 11) * 0x1p-53;
      x = is_integral_or_bool(dtype_) ? std::floor(u * 9) - (dtype_ == kUInt8 ? 0 : 4) : 2 * u - 1;
    }
    set(v);
  }
  void expect_guards_intact() const {
    for (size_t i = 0; i < bytes_.size(); ++i)
      if (!covered_[i] && bytes_[i] != std::byte{0xA5}) {
        ADD_FAILURE() << "byte " << int64_t(i) - start_ << " outside the view was written";
        return;
      }
  }

 private:
  const std::byte* address(int64_t offset) const {
    return bytes_.data() + start_ + offset * int64_t(size_of(dtype_));
  }
  template <class F>
  void for_each(F&& f) const {
    const int rank = int(sizes_.size());
    Shape index(size_t(rank), 0);
    const int64_t n = numel_of(sizes_);
    for (int64_t i = 0; i < n; ++i) {
      int64_t offset = 0;
      for (int d = 0; d < rank; ++d) offset += index[d] * strides_[d];
      f(offset);
      for (int d = rank - 1; d >= 0 && ++index[d] == sizes_[d]; --d) index[d] = 0;
    }
  }

  Shape sizes_, strides_;
  DType dtype_;
  int64_t start_ = 0;
  std::vector<std::byte> bytes_;
  std::vector<bool> covered_;
};

}  // namespace arete::test
