// Reference counting inside the object: one allocation, one word per handle.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace arete {

/// Base of counted objects. The last release calls T::destroy(), which deletes unless overridden.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  void retain() const noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
  /// True if this was the last reference.
  bool release() const noexcept {
    // A sole owner needs no read-modify-write: nobody else can be counting.
    if (refs_.load(std::memory_order_acquire) == 1) return true;
    return refs_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  int64_t use_count() const noexcept { return refs_.load(std::memory_order_relaxed); }

 protected:
  ~RefCounted() = default;

 private:
  friend struct WeakAccess;
  mutable std::atomic<int64_t> refs_{0};
};

/// Owning handle of a RefCounted object. `T` needs `void destroy() const noexcept` (or inherits
/// one) called when the count reaches zero.
template <class T>
class IntrusivePtr {
 public:
  IntrusivePtr() = default;
  IntrusivePtr(std::nullptr_t) {}
  explicit IntrusivePtr(T* p) : p_(p) {
    if (p_) p_->retain();
  }
  IntrusivePtr(const IntrusivePtr& o) : p_(o.p_) {
    if (p_) p_->retain();
  }
  IntrusivePtr(IntrusivePtr&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  template <class U>
  IntrusivePtr(const IntrusivePtr<U>& o) : p_(o.get()) {
    if (p_) p_->retain();
  }
  ~IntrusivePtr() { reset(); }
  IntrusivePtr& operator=(IntrusivePtr o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  void reset() noexcept {
    if (T* p = std::exchange(p_, nullptr); p && p->release()) p->destroy();
  }
  T* get() const noexcept { return p_; }
  T* operator->() const noexcept { return p_; }
  T& operator*() const noexcept { return *p_; }
  explicit operator bool() const noexcept { return p_ != nullptr; }
  bool operator==(const IntrusivePtr& o) const noexcept { return p_ == o.p_; }

 private:
  T* p_ = nullptr;
};

}  // namespace arete
