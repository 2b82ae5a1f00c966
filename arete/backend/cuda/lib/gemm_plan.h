// One matrix product prepared for cuBLASLt: descriptors and the choice of its algorithm.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "arete/backend/cuda/lib/cublaslt.h"
#include "arete/backend/cuda/lib/gemm_layout.h"
#include "arete/prim/plan_cache.h"

namespace arete::cuda {

class CudaBackend;

/// What the library does to a product on its way out, and the precision of f32.
struct GemmOptions {
  bool bias = false;       // of length m, added to every column of D
  bool gelu_tanh = false;  // its tanh approximation
  bool relu = false;
  bool aux = false;         // with gelu_tanh: the values before it
  bool derivative = false;  // with aux: times gelu's derivative at aux, which is read
  bool scales = false;      // of f8 operands
  enum class Sums : uint8_t { none, a, b } sums = Sums::none;  // of an operand along k
  bool tf32 = false;
  bool repeated = false;  // the call comes again and again
};

/// Addresses of one call; those of the epilogue null without them. Values of D are C of the
/// formula.
struct GemmPointers {
  const void *a = nullptr, *b = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;
  void *aux = nullptr, *sums = nullptr;
  const void *a_scale = nullptr, *b_scale = nullptr;
};

/// Everything that plans are chosen by (see prim/plan_cache.h).
struct GemmKey {
  int64_t m, n, k, lda, ldb, ldd, ld_aux;
  int64_t batch, batch_stride_a, batch_stride_b, batch_stride_d, batch_stride_aux;
  int64_t batch_stride_bias = 0;  // 0: one for all
  DType a, b, d;
  uint8_t device;
  bool transpose_a, transpose_b;
  bool has_bias, has_gelu, has_relu, has_aux, is_tf32, has_beta, has_derivative, has_a_scale,
      has_b_scale;
  bool is_repeated;  // Note [Choice of algorithms]
  GemmOptions::Sums sums;
  uint8_t log_align_a, log_align_b, log_align_d, log_align_bias,
      log_align_aux;                // of bytes; bias: or sums
  std::array<uint8_t, 2> unused{};  // keys are compared as bytes
};

/// log2 of what an address is a multiple of, as far as it matters to a library: 8 (256 bytes: the
/// start of an allocation), 4 (16 bytes: the widest access), and below.
uint8_t log_alignment(uint64_t address);

/// Operand types in the library's order of operands. `offsets`: bytes that calls with this plan may
/// add to all of the addresses (a bit-wise or of them): what they are aligned to is the plan's.
GemmKey gemm_key(int device, const LibraryGemm& call, DType a, DType b, DType d,
                 const GemmOptions& options, const GemmPointers& pointers, bool has_beta,
                 const std::array<uint64_t, 4>& offsets);

// Note [Choice of algorithms]
// The library's heuristic orders its algorithms by the time it expects. For products worth it the
// first few are run when the plan is first used (a few milliseconds) and the fastest one is kept
// (of small ones too if the call is one of those that come again and again: each trial finds
// nothing in the cache, where a row of one product finds the weights that a program's other
// products take out of it); the heuristic's first choice is kept for the largest, which a short run
// says little about. Not while a graph is captured: then the first one is used, and a later call
// measures. Nor in deterministic mode, where two runs of a program must not choose differently. No
// algorithm adds parts of a sum in an order that changes from run to run, and none rounds parts of
// a sum to less than the type that sums are computed in.

/// The descriptors of a product and the algorithm chosen for it.
class GemmPlan {
 public:
  GemmPlan(CudaBackend& backend, const GemmKey& key, const GemmPointers& pointers);
  /// False where the library has no algorithm.
  bool is_supported() const { return !candidates_.empty(); }
  /// D = epilogue(alpha * op(A) op(B) + beta * D), on `stream`. `deterministic`: nothing measured
  /// chooses the algorithm.
  void run(CudaBackend& backend, CUstream stream, const GemmPointers& pointers, double alpha,
           double beta, bool deterministic);

 private:
  struct Candidate {
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
  };
  // Alpha and beta as the library wants them for a type.
  union Scalar {
    float f;
    double d;
    float c[2];
    double z[2];
  };
  Scalar scalar(double value) const;
  void set_pointers(const GemmPointers& pointers);
  cublasStatus_t launch(CudaBackend& backend, CUstream stream, const Candidate& candidate,
                        const GemmPointers& pointers, const Scalar& alpha, const Scalar& beta,
                        void* d);
  void measure(CudaBackend& backend, CUstream stream, const GemmPointers& pointers, double alpha,
               double beta);

  GemmKey key_;
  MatmulDescriptor operation_;
  MatrixLayout a_, b_, d_;
  std::vector<Candidate> candidates_;
  std::atomic<const Candidate*> best_{nullptr};  // null: not measured yet
  std::mutex measuring_;
  std::mutex pointers_;  // the descriptor holds those of the epilogue
};

/// The plan of a key, from the cache or made now.
std::shared_ptr<GemmPlan> find_gemm_plan(CudaBackend& backend, const GemmKey& key,
                                         const GemmPointers& pointers);

}  // namespace arete::cuda
