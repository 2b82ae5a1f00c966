// What primitives see of a tensor: pointer, element type, sizes and strides.
#pragma once

#include <cstddef>

#include "arete/core/dtype.h"
#include "arete/core/layout.h"

namespace arete {
class Storage;

namespace prim {

/// A non-owning strided view, or none: an operand that is absent is View{} and converts to false.
/// (A null address does not say so: views of nothing have it, and so may memory that is not there
/// yet.) `data` points at element (0, ..., 0); strides are in elements and may be 0 or negative.
/// `storage` identifies the memory to a recorder; kernels ignore it.
struct View {
  std::byte* data = nullptr;
  DType dtype = kFloat32;
  bool present = false;
  IntList sizes;
  IntList strides;
  const Storage* storage = nullptr;

  View() = default;
  View(std::byte* data_in, DType dtype_in, IntList sizes_in, IntList strides_in,
       const Storage* storage_in = nullptr)
      : data(data_in),
        dtype(dtype_in),
        present(true),
        sizes(sizes_in),
        strides(strides_in),
        storage(storage_in) {}
  explicit operator bool() const { return present; }

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
