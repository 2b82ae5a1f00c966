// Convolutions as cuDNN plans: which engine runs a convolution of given sizes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "arete/backend/cuda/lib/cudnn.h"
#include "arete/prim/plan_cache.h"

namespace arete::cuda::cudnn {

/// How dense tensors (batch, channels, *space) and weights lie in memory.
enum class Order : uint8_t { channels_first, channels_last };
/// Which of the engines that cuDNN offers is used: the first in the opinion of its heuristics, the
/// fastest of several that were timed, of all or of those that take little memory, or the first
/// that sums in the same order every time.
enum class EngineChoice : uint8_t { first, fastest, fastest_of_small, deterministic };
/// Strides of a dense tensor.
Shape dense_strides(IntList sizes, Order order);

/// Everything a plan depends on. Sizes have `spatial` + 2 entries, windows `spatial`; the rest is
/// 0. One spatial dimension counts as two, the first of size 1. Compared as bytes.
struct ConvolutionKey {
  std::array<int64_t, 5> x{}, w{}, y{};
  std::array<int64_t, 3> stride{}, padding{}, dilation{};
  ConvolutionPass pass = ConvolutionPass::forward;
  DType dtype = kFloat32;
  Order order = Order::channels_first;  // of x, w and y
  uint8_t spatial = 2;
  uint8_t has_bias = 0;
  uint8_t allow_tf32 = 0;  // f32 only
  EngineChoice choice = EngineChoice::first;
  int8_t device = 0;

  /// Multiplications and additions.
  double flops() const;
  std::string to_string() const;
};

/// What the graph's tensors are called when a plan runs.
enum ConvolutionTensor : int64_t { kConvX = 1, kConvW, kConvY, kConvBias };

/// The plans for one key. Lock `mutex` to read or change it and while one of them runs.
struct ConvolutionPlan {
  std::mutex mutex;
  /// The one to use first; while there are more, none has been measured. Empty: cuDNN cannot do it.
  std::vector<Plan> plans;
  /// The plans add the bias, else that remains to be done.
  bool adds_bias = false;
  bool is_kept = false;  // by keep_if_captured()
};

/// The best `limit` plans that keep to the key's demands on precision and to 1 GiB of workspace, or
/// as much as all operands, the best first in the opinion of cuDNN's heuristics. A refusal is noted
/// if there is none.
std::unique_ptr<ConvolutionPlan> make_convolution_plan(const ConvolutionKey& key,
                                                       const Target& target, size_t limit);

/// The cache of the process.
prim::PlanCache<ConvolutionKey, ConvolutionPlan>& convolution_plans();

}  // namespace arete::cuda::cudnn
