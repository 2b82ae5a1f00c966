// Temporary device memory of one call.
#pragma once

#include "arete/backend/cuda/cuda_backend.h"

namespace arete::cuda {

/// Scratch memory, released in stream order with the object; null for 0 bytes.
class Scratch {
 public:
  Scratch(CudaBackend& backend, size_t bytes)
      : backend_(backend), bytes_(bytes), data_(bytes > 0 ? backend.scratch(bytes) : nullptr) {}
  ~Scratch() {
    if (data_) backend_.release_scratch(data_, bytes_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }

 private:
  CudaBackend& backend_;
  size_t bytes_;
  void* data_;
};

}  // namespace arete::cuda
