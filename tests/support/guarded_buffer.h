// Operands for tests of primitives: any layout, with every byte that no element covers watched.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <random>
#include <vector>

#include "arete/core/complex.h"
#include "arete/prim/view.h"
#include "tests/support/index_walk.h"

namespace arete::test {

/// Memory behind a view of any strides (0 and negative ones too).
class GuardedBuffer {
 public:
  static constexpr int64_t kGuard = 256;
  static constexpr std::byte kPattern{0xA7};

  GuardedBuffer(DType dtype, Layout layout) : layout_(std::move(layout)), dtype_(dtype) {
    const int64_t size = int64_t(size_of(dtype));
    int64_t low = 0, high = 0;
    for (int d = 0; d < layout_.rank(); ++d) {
      const int64_t reach = std::max<int64_t>(layout_.sizes[d] - 1, 0) * layout_.strides[d];
      (reach < 0 ? low : high) += reach;
    }
    start_ = kGuard - low * size;
    bytes_.assign(size_t(2 * kGuard + (high - low + 1) * size), kPattern);
    covered_.assign(bytes_.size(), false);
    for (IndexWalk w(layout_.sizes); w; ++w) {
      const int64_t at = position(*w);
      std::fill_n(covered_.begin() + at, size, true);
      std::memset(bytes_.data() + at, 0, size_t(size));
    }
  }
  /// Row-major.
  GuardedBuffer(DType dtype, IntList sizes) : GuardedBuffer(dtype, Layout(sizes)) {}

  prim::View view() const {
    return {const_cast<std::byte*>(bytes_.data()) + start_, dtype_, layout_.sizes, layout_.strides};
  }
  DType dtype() const { return dtype_; }
  const Layout& layout() const { return layout_; }

  template <class T>
  T at(IntList index) const {
    T v;
    std::memcpy(&v, bytes_.data() + position(index), sizeof(T));
    return v;
  }
  template <class T>
  void set_at(IntList index, T v) {
    std::memcpy(bytes_.data() + position(index), &v, sizeof(T));
  }

  /// Elements as doubles (complex: the real part).
  double get(IntList index) const {
    return visit_dtype(dtype_, [&](auto tag) -> double {
      using T = typename decltype(tag)::type;
      const T v = at<T>(index);
      if constexpr (is_complex(dtype_of<T>))
        return double(v.real());
      else if constexpr (std::is_arithmetic_v<T>)
        return double(v);
      else
        return double(float(v));
    });
  }
  void set(IntList index, double value) {
    visit_dtype(dtype_, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (std::is_same_v<T, bool>)
        set_at<T>(index, value != 0);
      else if constexpr (std::is_integral_v<T>)
        set_at<T>(index, T(int64_t(value)));
      else if constexpr (std::is_floating_point_v<T>)
        set_at<T>(index, T(value));
      else if constexpr (is_complex(dtype_of<T>))
        set_at<T>(index, T(typename T::value_type(value)));
      else
        set_at<T>(index, T(float(value)));
    });
  }
  /// f(index) -> double for every element.
  template <class F>
  void fill(F&& f) {
    for (IndexWalk w(layout_.sizes); w; ++w) set(*w, f(*w));
  }
  /// Integers in [low, high], in types that hold them.
  void fill_random(std::mt19937_64& rng, int low, int high) {
    if (is_unsigned(dtype_)) low = std::max(low, 0);
    fill([&](IntList) { return double(low + int64_t(rng() % uint64_t(high - low + 1))); });
  }
  std::vector<double> values() const {
    std::vector<double> out;
    for (IndexWalk w(layout_.sizes); w; ++w) out.push_back(get(*w));
    return out;
  }
  /// No byte but those of the elements has changed.
  bool guards_intact() const {
    for (size_t i = 0; i < bytes_.size(); ++i)
      if (!covered_[i] && bytes_[i] != kPattern) return false;
    return true;
  }

 private:
  int64_t position(IntList index) const {
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset += index[d] * layout_.strides[d];
    return start_ + offset * int64_t(size_of(dtype_));
  }

  Layout layout_;
  DType dtype_;
  int64_t start_;
  std::vector<std::byte> bytes_;
  std::vector<bool> covered_;
};

/// Layouts of one shape without overlap: row-major, column-major, with gaps, reversed.
inline std::vector<Layout> dense_and_strided_layouts(const Shape& sizes) {
  std::vector<Layout> out{Layout(sizes)};
  if (sizes.empty()) return out;
  Layout column(sizes);
  int64_t step = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    column.strides[d] = step;
    step *= std::max<int64_t>(sizes[d], 1);
  }
  out.push_back(column);
  Layout gaps(sizes);
  step = 2;
  for (int d = int(sizes.size()) - 1; d >= 0; --d) {
    gaps.strides[d] = step;
    step = step * std::max<int64_t>(sizes[d], 1) + 3;
  }
  out.push_back(gaps);
  Layout reversed(sizes);
  for (int64_t& s : reversed.strides) s = -s;
  out.push_back(reversed);
  return out;
}

/// The same and, for inputs, the first dimension expanded.
inline std::vector<Layout> input_layouts(const Shape& sizes) {
  std::vector<Layout> out = dense_and_strided_layouts(sizes);
  if (sizes.empty()) return out;
  Layout expanded(sizes);
  expanded.strides[0] = 0;
  out.push_back(expanded);
  return out;
}

/// The dtypes that have an order and arithmetic (all but complex).
inline std::vector<DType> real_dtypes() {
  std::vector<DType> out;
  for (int t = 0; t < kNumDTypes; ++t)
    if (!is_complex(DType(t))) out.push_back(DType(t));
  return out;
}

}  // namespace arete::test
