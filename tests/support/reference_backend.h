// The mandatory primitives at their plainest: what every backend's are held to.
#pragma once

#include "arete/prim/backend.h"

namespace arete::test {

/// The thirteen mandatory primitives as loops over elements. All others are the base class's, as
/// for a device that has nothing of its own.
class ReferencePrimitives : public prim::Backend {
 public:
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
  // So that plans do on it what they do for libraries that are quicker so.
  bool wants_channels_last(const prim::ConvArgs&) const override { return true; }
  bool has_epilogue(prim::Activation a, DType) const override {
    return a == prim::Activation::gelu_tanh;
  }
};

/// A device that computes with them; it says that it is the first GPU, since operators must take it
/// for a device of its own, but its memory is the host's. Each call of a primitive, mandatory or
/// not, is checked first (BugError):
/// - operands lie in memory that the device has given, and inside of their storage;
/// - what is written has no element twice and shares none with another operand, unless the two are
///   the same view and the primitive allows that.
/// Fresh memory and what is about to be written hold NaN: whoever looks at old values is found out.
prim::Backend& reference_device();

}  // namespace arete::test
