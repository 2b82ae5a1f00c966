// One process that divides its batches among several GPUs.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "arete/nn/module.h"

namespace arete::distributed {

namespace detail {
Tensor call_replicas(const nn::Module& network, const Tensor& input, std::vector<Device> devices,
                     int64_t dim, const std::function<std::shared_ptr<nn::Module>()>& clone);
}  // namespace detail

/// network(input), where each of some devices (none: all GPUs) computes the part of `input` along
/// `dim` that is its share, at a time, with a copy of the network that is made for the call.
/// Threads of their own have the caller's modes and streams. The result is on the first device,
/// where the network must be; gradients flow into its parameters, and of its buffers what the first
/// device writes stays. With fewer than two devices it is the network's own call.
/// DistributedDataParallel is faster. ValueError for a network elsewhere; else the first error of a
/// part.
template <class M>
Tensor data_parallel(const M& network, const Tensor& input, std::vector<Device> devices = {},
                     int64_t dim = 0) {
  return detail::call_replicas(network, input, std::move(devices), dim,
                               [&] { return std::make_shared<M>(nn::clone(network)); });
}

}  // namespace arete::distributed
