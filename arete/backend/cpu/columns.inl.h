// Matrices in columns of whole vectors, and Householder's reflections of them, for the files
// compiled once per instruction set.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "arete/backend/cpu/kernels/simd.inl.h"
#include "arete/backend/cpu/memory.h"

namespace arete::cpu::ARETE_SIMD_TARGET {
namespace {

using kernels::kVectorBytes;

template <class T>
constexpr int kWidth = kVectorBytes / int(sizeof(T));

template <class T>
struct Pack {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using PackOf = typename Pack<T>::type;
template <class T>
PackOf<T>& pack_at(T* p) {
  return *reinterpret_cast<PackOf<T>*>(p);
}
template <class T>
const PackOf<T>& pack_at(const T* p) {
  return *reinterpret_cast<const PackOf<T>*>(p);
}

// Columns of whole vectors; what is below row n is zero.
template <class T>
struct Columns {
  T* data;
  int64_t n, stride;
  T* operator[](int64_t j) const { return data + j * stride; }
};

template <class T>
T sum_of(const PackOf<T>& v) {
  T total = 0;
  for (int i = 0; i < kWidth<T>; ++i) total += v[i];
  return total;
}

template <class T>
T dot(const T* x, const T* y, int64_t first, int64_t n) {
  PackOf<T> total = {};
  for (int64_t i = first; i < n; i += kWidth<T>) total += pack_at(x + i) * pack_at(y + i);
  return sum_of<T>(total);
}

// x (zeros before `first`) becomes v with (I - tau v v^T) x = beta e_first and v[first] = 1.
template <class T>
struct Reflection {
  T tau = 0, beta;
  Reflection(T* x, int64_t first, int64_t stride) : beta(x[first]) {
    constexpr T kLeast = std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon();
    const int64_t from = first / kWidth<T> * kWidth<T>;
    const T squares = dot(x, x, from, stride);
    if (squares >= kLeast && squares <= std::numeric_limits<T>::max()) {
      make(x, first, stride);
      return;
    }
    // Squares may be lost, or too large: scaled so that the largest number is about 1.
    T largest = 0;
    for (int64_t i = first; i < stride; ++i) largest = std::max(largest, std::fabs(x[i]));
    const int exponent = largest > 0 && std::isfinite(largest) ? std::ilogb(largest) : 0;
    const auto scale_by = [](T& v, int e) { v = std::ldexp(v, e); };
    for (int64_t i = first; i < stride; ++i) scale_by(x[i], -exponent);
    beta = x[first];
    make(x, first, stride);
    scale_by(beta, exponent);
  }

 private:
  void make(T* x, int64_t first, int64_t stride) {
    const int64_t from = first / kWidth<T> * kWidth<T>;
    const T alpha = beta;
    x[first] = 0;
    const T rest = dot(x, x, from, stride);
    // What is so small that its square is 0 still turns the sign, as in LAPACK.
    if (rest == 0 && std::all_of(x + from, x + stride, [](T v) { return v == 0; })) {
      std::fill(x + from, x + stride, T(0));
    } else {
      beta = -std::copysign(std::sqrt(alpha * alpha + rest), alpha);
      tau = (beta - alpha) / beta;
      const T scale = 1 / (alpha - beta);
      for (int64_t i = from; i < stride; i += kWidth<T>) pack_at(x + i) *= scale;
    }
    x[first] = 1;
  }
};

// The memory that one matrix needs besides itself.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : bytes_(bytes), next_(bytes), data_(allocate_cached(bytes)) {}
  ~Scratch() { release_cached(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  template <class T>
  static size_t size(int64_t count) {
    return (size_t(count) * sizeof(T) + 63) / 64 * 64;
  }
  template <class T>
  T* take(int64_t count) {
    next_ -= size<T>(count);
    return reinterpret_cast<T*>(static_cast<char*>(data_) + next_);
  }

 private:
  size_t bytes_, next_;
  void* data_;
};

}  // namespace
}  // namespace arete::cpu::ARETE_SIMD_TARGET
