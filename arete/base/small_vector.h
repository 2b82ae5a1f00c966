// A vector that keeps up to N elements inside itself: shapes and argument lists without malloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace arete {

/// Elements are contiguous; growing beyond N moves them to the heap. Exceptions from T's copy
/// leave the vector destructible (no stronger promise).
template <class T, size_t N>
class SmallVector {
 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  SmallVector() = default;
  explicit SmallVector(size_t n, const T& value = T()) { resize(n, value); }
  SmallVector(std::initializer_list<T> list) { append(list.begin(), list.end()); }
  template <class It>
  requires(!std::is_integral_v<It>) SmallVector(It first, It last) { append(first, last); }
  SmallVector(std::span<const T> s) { append(s.begin(), s.end()); }
  SmallVector(const SmallVector& o) { append(o.begin(), o.end()); }
  SmallVector(SmallVector&& o) noexcept { steal(o); }
  SmallVector& operator=(const SmallVector& o) {
    if (this != &o) assign(o.begin(), o.end());
    return *this;
  }
  SmallVector& operator=(SmallVector&& o) noexcept {
    if (this != &o) {
      clear();
      release();
      steal(o);
    }
    return *this;
  }
  ~SmallVector() {
    clear();
    release();
  }

  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  T* begin() noexcept { return data_; }
  T* end() noexcept { return data_ + size_; }
  const T* begin() const noexcept { return data_; }
  const T* end() const noexcept { return data_ + size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& front() { return data_[0]; }
  const T& front() const { return data_[0]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }
  operator std::span<const T>() const { return {data_, size_}; }

  void clear() noexcept {
    std::destroy(begin(), end());
    size_ = 0;
  }
  void reserve(size_t n) {
    if (n > capacity_) grow(n);
  }
  void resize(size_t n, const T& value = T()) {
    if (n < size_) {
      std::destroy(begin() + n, end());
      size_ = n;
    } else {
      const T copy = value;
      reserve(n);
      while (size_ < n) emplace_unchecked(copy);
    }
  }
  template <class It>
  void assign(It first, It last) {
    clear();
    append(first, last);
  }
  template <class It>
  void append(It first, It last) {
    for (; first != last; ++first) push_back(*first);
  }
  void push_back(const T& v) { emplace_back(v); }
  void push_back(T&& v) { emplace_back(std::move(v)); }
  template <class... A>
  T& emplace_back(A&&... args) {
    if (size_ == capacity_) [[unlikely]] {
      T value(std::forward<A>(args)...);  // the argument may live inside this vector
      grow(size_ * 2 + 2);
      return emplace_unchecked(std::move(value));
    }
    return emplace_unchecked(std::forward<A>(args)...);
  }
  void pop_back() { std::destroy_at(data_ + --size_); }
  T* insert(const T* where, const T& value) {
    const size_t i = size_t(where - data_);
    emplace_back(value);
    for (T* p = end() - 1; p != data_ + i; --p) std::swap(*p, p[-1]);
    return data_ + i;
  }
  T* erase(const T* where) {
    T* const p = data_ + (where - data_);
    for (T* next = p + 1; next != end(); ++next) next[-1] = std::move(*next);
    pop_back();
    return p;
  }

  friend bool operator==(const SmallVector& a, const SmallVector& b) {
    if (a.size_ != b.size_) return false;
    for (size_t i = 0; i < a.size_; ++i)
      if (!(a.data_[i] == b.data_[i])) return false;
    return true;
  }

 private:
  template <class... A>
  T& emplace_unchecked(A&&... args) {
    T* p = ::new (static_cast<void*>(data_ + size_)) T(std::forward<A>(args)...);
    ++size_;
    return *p;
  }
  bool inline_storage() const noexcept { return data_ == reinterpret_cast<const T*>(buffer_); }
  void grow(size_t n) {
    if (n < capacity_ * 2) n = capacity_ * 2;
    T* p = static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(alignof(T))));
    std::uninitialized_move(begin(), end(), p);
    const size_t count = size_;
    clear();
    release();
    data_ = p;
    size_ = count;
    capacity_ = n;
  }
  void release() noexcept {
    if (!inline_storage()) ::operator delete(data_, std::align_val_t(alignof(T)));
    data_ = reinterpret_cast<T*>(buffer_);
    capacity_ = N;
  }
  void steal(SmallVector& o) noexcept {
    if (o.inline_storage()) {
      std::uninitialized_move(o.begin(), o.end(), data_);
      size_ = o.size_;
      o.clear();
    } else {
      data_ = std::exchange(o.data_, reinterpret_cast<T*>(o.buffer_));
      size_ = std::exchange(o.size_, 0);
      capacity_ = std::exchange(o.capacity_, N);
    }
  }

  T* data_ = reinterpret_cast<T*>(buffer_);
  size_t size_ = 0;
  size_t capacity_ = N;
  alignas(T) std::byte buffer_[N * sizeof(T)];
};

}  // namespace arete
