// What messages between processes take, and which way of dividing a Transformer among GPUs should
// be the fastest. These are projections: see Note [What a plan leaves out].
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace arete::distributed {

/// What a message takes: `latency` and a byte's share of `bandwidth`, in seconds and bytes a second
/// of one process.
struct Link {
  double latency = 0, bandwidth = 1;
  double message(double bytes) const { return latency + bytes / bandwidth; }
};
/// Of collectives of `ranks` processes in a ring. `bytes`: of the whole tensor. Zero for one rank.
double all_reduce_seconds(double bytes, int ranks, const Link& link);
/// Of all_gather, reduce_scatter and all_to_all: `bytes` are those of all ranks' parts together.
double all_gather_seconds(double bytes, int ranks, const Link& link);
/// The link whose message() fits measured (bytes, seconds) best: least squares of relative errors.
/// ValueError for less than two sizes.
Link fit_link(const std::vector<std::pair<double, double>>& measured);

struct Machine {
  std::string name;
  int gpus_per_node = 8;
  double flops = 0;             ///< of products in bf16, at most
  double efficiency = 0.5;      ///< of it, that a layer's products reach
  double memory = 0;            ///< bytes of a GPU
  double memory_bandwidth = 0;  ///< bytes a second
  Link local{}, network{};      ///< within a node and between nodes, of a GPU
};
/// "h100", "h200", "a100". ValueError for others.
Machine machine_of(const std::string& name);

struct TransformerSize {
  std::string name;
  int64_t layers = 0, width = 0, heads = 0, kv_heads = 0, hidden = 0, vocabulary = 0;
  bool gated = false;  ///< three matrices in the feed-forward part instead of two
  bool tied = false;   ///< the head is the embedding
  double parameters_of_layer() const;
  double parameters() const;
  /// FLOPs of a token forward, in a sequence of that length with a causal mask.
  double flops_of_layer(int64_t sequence) const;
  double flops(int64_t sequence) const;
};
/// "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "llama-7b", "llama-13b", "llama-70b",
/// "llama-405b". ValueError for others.
TransformerSize transformer_of(const std::string& name);

struct PlanRequest {
  TransformerSize model;
  Machine machine;
  int gpus = 1;
  int64_t batch = 1024;  ///< sequences of a step, of all GPUs
  int64_t sequence = 4096;
};
/// One way.
struct ParallelPlan {
  int data = 1, tensor = 1, pipeline = 1;  ///< processes along each dimension
  std::string schedule;                    ///< of pipeline_schedule(); "" without stages
  int stages = 1;
  std::string sharding;  ///< "replicas", "optimizer" (ZeRO-1) or "parameters" (fully_shard)
  bool recompute = false;
  int64_t microbatch = 1,
          microbatches = 1;  ///< sequences, and how many of them a process has a step
  double step = 0;           ///< seconds
  double tokens = 0;         ///< a second, of all GPUs
  double utilization = 0;    ///< of the machine's flops, without recomputation
  double memory = 0;         ///< bytes of a GPU, at most
  double bubble = 0,
         exposed = 0;  ///< parts of the step: waiting for stages, for gradients and parameters
};
/// All that fit, the fastest first. ValueError if the batch is not divisible or nothing fits.
std::vector<ParallelPlan> parallel_plans(const PlanRequest& request);

}  // namespace arete::distributed
