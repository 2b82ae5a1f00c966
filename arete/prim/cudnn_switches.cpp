#include "arete/prim/cudnn_switches.h"

#include <string>

#include "arete/base/error.h"

namespace arete::cuda {

constinit std::atomic<bool> detail::cudnn_enabled{true}, detail::cudnn_benchmark{false},
    detail::cudnn_deterministic{false};
constinit std::atomic<int> detail::cudnn_benchmark_limit{10};

void set_cudnn_benchmark_limit(int engines) {
  ARETE_CHECK(
      engines >= 0,
      ValueError("cudnn.benchmark_limit", "must not be negative").got(std::to_string(engines)));
  detail::cudnn_benchmark_limit.store(engines, std::memory_order_relaxed);
}

}  // namespace arete::cuda
