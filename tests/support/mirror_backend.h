// Another device's primitives for operands in host memory.
#pragma once

#include "arete/prim/backend.h"

namespace arete::test {

/// Copies the memory that each call's operands span to the device, runs the primitive there, waits
/// and copies everything back: the tests written for the CPU's primitives run unchanged on any
/// device. Operands that share memory share it on the device too; addresses keep their
/// remainder modulo 64, so that unaligned operands stay unaligned; guards before and behind each
/// piece of device memory are checked after the call.
class MirrorBackend final : public prim::Backend {
 public:
  explicit MirrorBackend(prim::Backend& device) : device_(device) {}
  Device device() const override { return device_.device(); }

  void fill(const prim::FillArgs&) override;
  void copy(const prim::CopyArgs&) override;
  void iota(const prim::IotaArgs&) override;
  void pointwise(const prim::PointwiseArgs&) override;
  void reduce(const prim::ReduceArgs&) override;
  void arg_reduce(const prim::ArgReduceArgs&) override;
  void scan(const prim::ScanArgs&) override;
  void sort(const prim::SortArgs&) override;
  void gather(const prim::GatherArgs&) override;
  void scatter(const prim::ScatterArgs&) override;
  int64_t compact(const prim::CompactArgs&) override;
  void random(const prim::RandomArgs&) override;
  void gemm(const prim::GemmArgs&) override;
  void topk(const prim::TopkArgs&) override;
  void take_rows(const prim::TakeRowsArgs&) override;
  void add_rows(const prim::AddRowsArgs&) override;
  void conv(const prim::ConvArgs&) override;
  void pool(const prim::PoolArgs&) override;
  void multi_pointwise(const prim::MultiPointwiseArgs&) override;
  void multi_reduce(const prim::MultiReduceArgs&) override;
  void dropout(const prim::DropoutArgs&) override;
  void attention(const prim::AttentionArgs&) override;
  void fused(const prim::FusedArgs&) override;
  void fft(const prim::FftArgs&) override;
  void linalg(const prim::LinalgArgs&) override;

  // Host memory, since it is the tests that look at it.
  void* scratch(size_t bytes) override;
  void release_scratch(void* p, size_t bytes) noexcept override;
  void* allocate(size_t bytes) override { return scratch(bytes); }
  void deallocate(void* p, size_t bytes) noexcept override { release_scratch(p, bytes); }
  void copy_to_host(void* dst, const void* src, size_t bytes) override;
  void copy_from_host(void* dst, const void* src, size_t bytes) override;
  void synchronize() override { device_.synchronize(); }
  std::string supports(prim::Primitive p, DType dtype) const override {
    return device_.supports(p, dtype);
  }
  std::string description() const override { return device_.description(); }

 private:
  prim::Backend& device_;
};

}  // namespace arete::test
