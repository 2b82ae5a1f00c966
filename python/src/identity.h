// Which Python object shows which tensor, so that `a.grad is a.grad` and attributes stay.
#pragma once

#include <Python.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace arete::python {

/// A hash table from addresses to objects (not owned), open addressing with linear probing.
/// Guarded by the GIL.
class IdentityMap {
 public:
  IdentityMap() : slots_(1024) {}
  PyObject* find(const void* key) const {
    for (size_t i = place(key);; i = next(i)) {
      if (slots_[i].first == key) return slots_[i].second;
      if (!slots_[i].first) return nullptr;
    }
  }
  void insert(const void* key, PyObject* object) {
    if (2 * ++count_ > slots_.size()) grow();
    put(key, object);
  }
  /// Does nothing unless `object` is what stands there.
  void erase(const void* key, const PyObject* object) {
    size_t i = place(key);
    for (; slots_[i].first != key; i = next(i))
      if (!slots_[i].first) return;
    if (slots_[i].second != object) return;
    --count_;
    // What follows moves up, so that no search stops too early at the hole.
    for (size_t j = next(i); slots_[j].first; j = next(j)) {
      const size_t home = place(slots_[j].first);
      const bool between = i <= j ? (i < home && home <= j) : (i < home || home <= j);
      if (between) continue;
      slots_[i] = slots_[j];
      i = j;
    }
    slots_[i] = {};
  }
  size_t size() const { return count_; }

 private:
  size_t place(const void* key) const {
    return (uint64_t(reinterpret_cast<uintptr_t>(key)) * 0x9e3779b97f4a7c15ull >> 20) &
           (slots_.size() - 1);
  }
  size_t next(size_t i) const { return (i + 1) & (slots_.size() - 1); }
  void put(const void* key, PyObject* object) {
    size_t i = place(key);
    while (slots_[i].first && slots_[i].first != key) i = next(i);
    slots_[i] = {key, object};
  }
  void grow() {
    std::vector<std::pair<const void*, PyObject*>> old(2 * slots_.size());
    old.swap(slots_);
    for (const auto& [key, object] : old)
      if (key) put(key, object);
  }
  std::vector<std::pair<const void*, PyObject*>> slots_;
  size_t count_ = 0;
};

}  // namespace arete::python
