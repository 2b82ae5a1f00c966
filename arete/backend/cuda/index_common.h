// What the files of indexing and sorting share.
#pragma once

#include <array>
#include <cstdint>

#include "arete/backend/cuda/codegen/index.h"
#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/kernel_memo.h"
#include "arete/backend/cuda/scratch_memory.h"

namespace arete::cuda {

inline uint64_t address_of(const void* p) { return reinterpret_cast<uint64_t>(p); }
inline unsigned blocks_for(int64_t elements, int64_t per_block) {
  return unsigned((elements + per_block - 1) / per_block);
}
/// Calls run(walk) for the nest of a gather or scatter, or for each walk that is made instead of it
/// (Note [Strips] in codegen/index.h).
template <class Run>
void walk_in_strips(CudaBackend& backend, const prim::LoopNest& nest, int64_t size,
                    const Run& run) {
  const int64_t width = indexing::strip_width(nest, size, backend.limits().l2_bytes);
  if (width == 0) return run(nest);
  for (const prim::LoopNest& walk : indexing::strips_of(nest, width)) run(walk);
}
/// Where kernels report an index out of range along `dim`.
inline indexing::ErrorSink error_sink(CudaBackend& backend, const char* op, int dim) {
  return {uint64_t(backend.context().error_address()), address_of(op), dim};
}

/// Numbers sorted stably, with their positions. The caller writes the keys, from 0 to `largest`,
/// at unsorted(), as u64 if wide() and u32 if not.
class SortedPairs {
 public:
  SortedPairs(CudaBackend& backend, CUstream stream, int64_t count, uint64_t largest);
  bool wide() const { return wide_; }
  uint64_t unsorted() const { return keys_[0].address(); }
  void sort();
  /// After sort(): the keys and their positions, of the same type.
  uint64_t keys() const { return keys_[result_].address(); }
  uint64_t positions() const { return positions_[result_].address(); }

 private:
  CudaBackend& backend_;
  CUstream stream_;
  int64_t count_;
  int bits_;
  bool wide_;
  std::array<Scratch, 2> keys_, positions_;
  size_t result_ = 0;
};

}  // namespace arete::cuda
