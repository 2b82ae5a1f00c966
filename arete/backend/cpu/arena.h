// Short-lived memory of a thread: registers, packed operands, accumulators.
#pragma once

#include <cstddef>
#include <cstdint>

namespace arete::cpu {

/// A stack of blocks kept by the thread. Memory taken inside a Scope is free again when the scope
/// ends; it is 64-byte aligned and holds garbage.
class ArenaScope {
 public:
  ArenaScope() noexcept;
  ~ArenaScope();
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

  std::byte* take(size_t bytes);
  template <class T>
  T* take_array(int64_t n) {
    return reinterpret_cast<T*>(take(size_t(n) * sizeof(T)));
  }

 private:
  int chunk_;
  size_t used_;
};

}  // namespace arete::cpu
