// Launching elementwise kernels: shared by pointwise, copy and fill. See Note [Pointwise kernels].
#pragma once

#include <atomic>
#include <span>

#include "arete/backend/cuda/codegen/pointwise.h"
#include "arete/backend/cuda/cuda_backend.h"
#include "arete/prim/loop_nest.h"

namespace arete::cuda {

/// The kernels of one element code, made when first needed. Looking one up neither locks nor
/// allocates.
class PointwiseKernels {
 public:
  struct Variant {
    uint64_t key;
    const Kernel* kernel;
    int unroll;
    const Variant* next;
  };

  explicit PointwiseKernels(ElementCode code) : code_(std::move(code)), vector_(code_.vector()) {}
  ~PointwiseKernels();
  PointwiseKernels(const PointwiseKernels&) = delete;
  PointwiseKernels& operator=(const PointwiseKernels&) = delete;

  /// `shape.unroll` is chosen here.
  const Variant& find(CudaBackend& backend, PointwiseShape shape);
  const ElementCode& code() const { return code_; }
  /// ElementCode::vector().
  int vector() const { return vector_; }

 private:
  ElementCode code_;
  int vector_;
  std::atomic<const Variant*> variants_{nullptr};
};

/// Threads of a block for so many vectors: fewer where that keeps more multiprocessors busy.
unsigned pointwise_block(const DeviceLimits& limits, int64_t vectors, int unroll);

/// Operands that are all one run of `n` > 0 elements, or one element where `uniform` has the
/// input's bit.
void launch_linear(CudaBackend& backend, PointwiseKernels& kernels,
                   std::span<std::byte* const> operands, int64_t n, uint32_t uniform,
                   std::span<const expr::Literal> params, CUstream stream);

/// A scatter to places that a program computes, counted in shared memory. False where it is none of
/// few integers, all of which have one number added.
bool launch_counts(CudaBackend& backend, const prim::ScatterArgs& args, CUstream stream);

/// A scatter to the taps of points, in any order. False where an order is asked for.
bool launch_taps(CudaBackend& backend, const prim::ScatterArgs& args, CUstream stream);

/// The kernels of a program.
PointwiseKernels& kernels_of(const expr::Program& program);

/// Operands of any strides.
void launch_nest(CudaBackend& backend, PointwiseKernels& kernels, const prim::LoopNest& nest,
                 std::span<const expr::Literal> params, CUstream stream);

}  // namespace arete::cuda
