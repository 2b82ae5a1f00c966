// Kernels of attention on tensor cores. See device/attention_tiles.cuh.
#pragma once

#include <cstdint>

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/core/dtype.h"

namespace arete::cuda {

/// The argument of these kernels; mirrors device/attention_tiles.cuh.
struct AttentionMatrix {
  const void* data;
  int64_t batch, head, row;
};
struct AttentionArguments {
  AttentionMatrix q, k, v, out, grad_out, grad_q, grad_k, grad_v;
  float *lse, *numbers, *sums;
  int64_t lse_batch, lse_head, lse_row;
  const void* mask;
  int64_t mask_batch, mask_head, mask_query, mask_key;
  uint64_t block;
  const uint64_t* state;
  int32_t heads, group;
  int32_t queries, keys, dim, value_dim;
  int32_t parts, all_heads;
  float scale, kept_scale;
  uint32_t mask_vectors;
  uint32_t last, any;
  uint32_t seed[20];
};

/// What one kernel is made for.
struct AttentionKernel {
  enum class Pass : uint8_t { forward, combine, prepare, queries, keys, gradients, finish };
  enum class Mask : uint8_t { none, boolean, additive };
  enum class Dropout : uint8_t { none, fixed, moved };  // moved: its numbers have a state

  /// The largest head that registers have room for.
  static constexpr int kLargestDim = 128;

  Pass pass = Pass::forward;
  DType dtype = kFloat32;        // f32, f16 or bf16
  int dim = 16, value_dim = 16;  // multiples of 16, at least those of the call
  Mask mask = Mask::none;
  bool causal = false;
  Dropout dropout = Dropout::none;
  bool vector = false;          // rows begin at multiples of 16 bytes and are multiples of them
  bool tf32 = false;            // f32 operands are rounded to tf32
  bool few = false;             // forward: fewer rows a block, for blocks that are few
  int most_shared = 227 << 10;  // bytes of shared memory that a block may have

  /// How a block is laid out.
  struct Layout {
    int warps, row_tiles, columns;
    int blocks;  // that should fit on a multiprocessor
    int rows() const { return 16 * row_tiles * warps; }
  };
  Layout layout() const;
  int threads() const { return 32 * layout().warps; }
  /// Rows of the scores that a block has.
  int rows() const { return layout().rows(); }
  /// Whether they are keys, not queries.
  bool has_key_rows() const { return pass == Pass::keys || pass == Pass::gradients; }
  /// More than most_shared, if no layout has so little.
  int shared_bytes() const { return shared_bytes(layout()); }
  /// Different for different kernels.
  uint64_t number() const;
  /// The pass that combines parts: it looks at nothing but these numbers.
  AttentionKernel for_combine() const {
    AttentionKernel k;
    k.pass = Pass::combine;
    k.dtype = dtype;
    k.value_dim = value_dim;
    k.mask = mask == Mask::additive ? mask : Mask::none;
    k.dropout = dropout == Dropout::none ? dropout : Dropout::fixed;
    return k;
  }

 private:
  int shared_bytes(const Layout& layout) const;
};

KernelSource attention_source(const AttentionKernel& kernel);

}  // namespace arete::cuda
