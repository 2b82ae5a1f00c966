// Another device's primitives for operands in host memory.
#pragma once

#include "arete/prim/forward.h"

namespace arete::test {

/// Copies the memory that each call's operands span to the device, runs the primitive there, waits
/// and copies everything back: the tests written for the CPU's primitives run unchanged on any
/// device. Operands that share memory share it on the device too; addresses keep their
/// remainder modulo 64, so that unaligned operands stay unaligned; guards before and behind each
/// piece of device memory are checked after the call.
class MirrorBackend final : public prim::Forwarding<prim::Backend, MirrorBackend> {
 public:
  explicit MirrorBackend(prim::Backend& device) : device_(device) {}
  Device device() const override { return device_.device(); }
  template <prim::Primitive P, class Args>
  prim::ResultOf<P> pass(const Args& args);

  // Host memory, since it is the tests that look at it.
  void* scratch(size_t bytes) override;
  void release_scratch(void* p, size_t bytes) noexcept override;
  void* allocate(size_t bytes) override { return scratch(bytes); }
  void deallocate(void* p, size_t bytes) noexcept override { release_scratch(p, bytes); }
  void copy_to_host(void* dst, const void* src, size_t bytes) override;
  void copy_from_host(void* dst, const void* src, size_t bytes) override;
  void synchronize() override { device_.synchronize(); }
  bool has_own(prim::Primitive p, DType dtype) const override { return device_.has_own(p, dtype); }
  std::string description() const override { return device_.description(); }

 private:
  prim::Backend& device_;
};

}  // namespace arete::test
