// Scaled dot-product attention as cuDNN plans: one kernel forward, without the matrix of scores in
// memory, and one chain of kernels backward.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "arete/backend/cuda/lib/cudnn.h"
#include "arete/prim/plan_cache.h"

namespace arete::cuda::cudnn {

/// Everything a plan depends on. q, out (batch, heads, q_len, dim); k, v (batch, kv_heads, kv_len,
/// dim); each group of heads / kv_heads heads of q shares one of k and v. Strides in elements,
/// those of `dim` are 1 and the others multiples of 8. The log-sum-exp of the rows of scores is
/// f32, (batch, heads, q_len, 1) and contiguous. Compared as bytes.
struct AttentionKey {
  using Strides = std::array<int64_t, 4>;
  int64_t batch = 0, heads = 0, kv_heads = 0, q_len = 0, kv_len = 0, dim = 0, v_dim = 0;
  Strides q{}, k{}, v{}, out{};
  Strides grad_out{}, grad_q{}, grad_k{}, grad_v{};  // backward only
  DType dtype = kFloat16;                            // or bf16
  uint8_t backward = 0;
  uint8_t causal = 0;         // row i sees columns 0 to i
  uint8_t deterministic = 0;  // backward: sums of q's gradient in one order, for more memory
  int8_t device = 0;
  std::array<uint8_t, 3> unused{};

  std::string to_string() const;
};

/// What the graph's tensors are called when a plan runs.
enum AttentionTensor : int64_t {
  kAttentionQ = 1,
  kAttentionK,
  kAttentionV,
  kAttentionOut,
  kAttentionLse,
  kAttentionScale,   // float on the host
  kAttentionMasked,  // float on the host: the score of what may not be seen, -infinity
  kAttentionOne,     // float on the host: 1, backward
  kAttentionGradOut,
  kAttentionGradQ,
  kAttentionGradK,
  kAttentionGradV,
  kAttentionRowSums,   // backward: scratch, f32 (batch, heads, q_len, 1)
  kAttentionSumGradQ,  // backward, unless deterministic: scratch, f32 (batch, heads, q_len, dim)
};

/// Lock `mutex` while the plan runs; whether there is one never changes.
struct AttentionPlan {
  std::mutex mutex;
  std::optional<Plan> plan;  // nothing: cuDNN cannot do it
  bool is_kept = false;      // by keep_if_captured()
};

/// A refusal is noted if there is no plan.
std::unique_ptr<AttentionPlan> make_attention_plan(const AttentionKey& key, const Target& target);

/// The cache of the process.
prim::PlanCache<AttentionKey, AttentionPlan>& attention_plans();

}  // namespace arete::cuda::cudnn
