// What programs say of cuDNN. Without a GPU the switches can be set and read all the same.
#pragma once

#include <atomic>

namespace arete::cuda {

namespace detail {
extern constinit std::atomic<bool> cudnn_enabled, cudnn_benchmark, cudnn_deterministic;
extern constinit std::atomic<int> cudnn_benchmark_limit;
}  // namespace detail

/// Whether convolutions and attention may use cuDNN; at start true. Otherwise the library's own
/// kernels and products of matrices compute them, which is slower and takes more memory.
inline bool cudnn_enabled() noexcept {
  return detail::cudnn_enabled.load(std::memory_order_relaxed);
}
inline void set_cudnn_enabled(bool enabled) noexcept {
  detail::cudnn_enabled.store(enabled, std::memory_order_relaxed);
}

/// Whether the engines that cuDNN offers for a convolution are timed when its sizes are met first,
/// and the fastest is kept; at start false: its heuristics choose, but in plans without `exact` big
/// ones of uneven channels are timed, too, among engines of little memory. Small ones and those of
/// deterministic mode never are: times differ. What was timed is remembered while it is off.
inline bool cudnn_benchmark() noexcept {
  return detail::cudnn_benchmark.load(std::memory_order_relaxed);
}
inline void set_cudnn_benchmark(bool on) noexcept {
  detail::cudnn_benchmark.store(on, std::memory_order_relaxed);
}

/// Whether cuDNN may only use engines that give the same bits each time; at start false. Apart from
/// the deterministic mode of all operators, which says the same to cuDNN: either is enough.
inline bool cudnn_deterministic() noexcept {
  return detail::cudnn_deterministic.load(std::memory_order_relaxed);
}
inline void set_cudnn_deterministic(bool on) noexcept {
  detail::cudnn_deterministic.store(on, std::memory_order_relaxed);
}

/// How many engines are timed at most, 10 at start; 0 stands for all. For sizes that are met from
/// now on.
inline int cudnn_benchmark_limit() noexcept {
  return detail::cudnn_benchmark_limit.load(std::memory_order_relaxed);
}
/// ValueError for a negative number.
void set_cudnn_benchmark_limit(int engines);

}  // namespace arete::cuda
