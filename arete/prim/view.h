// What primitives see of a tensor: pointer, element type, sizes and strides.
#pragma once

#include <cstddef>

#include "arete/core/dtype.h"
#include "arete/core/layout.h"

namespace arete {
class Storage;

namespace prim {

/// A non-owning strided view. `data` points at element (0, ..., 0); strides are in elements and
/// may be 0 or negative. `storage` identifies the memory to a recorder; kernels ignore it.
struct View {
  std::byte* data = nullptr;
  DType dtype = kFloat32;
  IntList sizes;
  IntList strides;
  const Storage* storage = nullptr;

  int rank() const { return int(sizes.size()); }
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t s : sizes) n *= s;
    return n;
  }
  bool is_contiguous() const {
    int64_t expected = 1;
    for (int d = rank() - 1; d >= 0; --d) {
      if (sizes[d] != 1 && strides[d] != expected) return numel() == 0;
      expected *= sizes[d];
    }
    return true;
  }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

}  // namespace prim
}  // namespace arete
