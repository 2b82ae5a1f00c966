// The CPU backend: every primitive, implemented family by family in the files beside this one.
#pragma once

#include "arete/prim/backend.h"

namespace arete::cpu {

/// Runs primitives on the calling thread and the pool of arete/base/thread_pool.h. Everything is
/// synchronous; all methods are thread-safe on distinct outputs.
class CpuBackend final : public prim::Backend {
 public:
  Device device() const override { return kCPU; }

  // pointwise.cpp
  void fill(const prim::FillArgs&) override;
  void pointwise(const prim::PointwiseArgs&) override;
  void multi_pointwise(const prim::MultiPointwiseArgs&) override;
  // copy.cpp
  void copy(const prim::CopyArgs&) override;
  // reduce.cpp
  void reduce(const prim::ReduceArgs&) override;
  // fused.cpp
  void fused(const prim::FusedArgs&) override;
  // recurrence.cpp
  void recurrence(const prim::RecurrenceArgs&) override;

  // Sorting, indexing, scans, random numbers.
  void iota(const prim::IotaArgs&) override;
  void arg_reduce(const prim::ArgReduceArgs&) override;
  void scan(const prim::ScanArgs&) override;
  void sort(const prim::SortArgs&) override;
  void topk(const prim::TopkArgs&) override;
  void select(const prim::SelectArgs&) override;
  void gather(const prim::GatherArgs&) override;
  void scatter(const prim::ScatterArgs&) override;
  void take_rows(const prim::TakeRowsArgs&) override;
  void add_rows(const prim::AddRowsArgs&) override;
  int64_t compact(const prim::CompactArgs&) override;
  void random(const prim::RandomArgs&) override;
  void dropout(const prim::DropoutArgs&) override;

  // Contractions.
  void gemm(const prim::GemmArgs&) override;
  void conv(const prim::ConvArgs&) override;
  bool wants_channels_last(const prim::ConvArgs&) const override;
  void pool(const prim::PoolArgs&) override;
  // attention.cpp
  void attention(const prim::AttentionArgs&) override;
  /// A part of one core's own cache: bands are computed side by side.
  int64_t band_bytes() const override { return int64_t(512) << 10; }

  // fft.cpp, linalg.cpp
  void fft(const prim::FftArgs&) override;
  void linalg(const prim::LinalgArgs&) override;

  // backend.cpp and memory.cpp
  void* scratch(size_t bytes) override;
  void release_scratch(void* p, size_t bytes) noexcept override;
  void* allocate(size_t bytes) override;
  void deallocate(void* p, size_t bytes) noexcept override;
  void copy_to_host(void* dst, const void* src, size_t bytes) override;
  void copy_from_host(void* dst, const void* src, size_t bytes) override;
  void synchronize() override {}
  std::string description() const override;
};

/// The one object, also what backend_for(kCPU) gives.
CpuBackend& cpu_backend();

}  // namespace arete::cpu
