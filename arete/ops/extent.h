// Sizes of windows, strides, paddings: one number for all spatial dimensions or one for each.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "arete/core/layout.h"

namespace arete {

/// One number for all spatial dimensions or one for each: conv2d(x, w, b, 2) or conv2d(x, w, b,
/// {2, 1}).
class Extent {
 public:
  Extent(int v) : values_{v} {}
  Extent(int64_t v) : values_{v} {}
  Extent(std::initializer_list<int64_t> v) : values_(v.begin(), v.end()) {}
  Extent(IntList v) : values_(v.begin(), v.end()) {}
  Extent(const Shape& v) : values_(v) {}
  Extent(const std::vector<int64_t>& v) : values_(v.begin(), v.end()) {}
  const Shape& values() const { return values_; }
  operator IntList() const { return values_; }

 private:
  Shape values_;
};

/// The padding of a convolution: numbers, or "same" (the output has the input's size; stride 1
/// only) or "valid" (none).
class Padding {
 public:
  Padding(int v) : values_{v} {}
  Padding(int64_t v) : values_{v} {}
  Padding(std::initializer_list<int64_t> v) : values_(v.begin(), v.end()) {}
  Padding(IntList v) : values_(v.begin(), v.end()) {}
  Padding(const Shape& v) : values_(v) {}
  Padding(const std::vector<int64_t>& v) : values_(v.begin(), v.end()) {}
  Padding(const char* mode) : mode_(mode) {}
  Padding(std::string_view mode) : mode_(mode) {}
  const Shape& values() const { return values_; }
  /// Empty if numbers were given.
  std::string_view mode() const { return mode_; }

 private:
  Shape values_;
  std::string_view mode_;
};

}  // namespace arete
