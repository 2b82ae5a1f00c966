// What the sources of sharded parameters share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "arete/core/tensor.h"
#include "arete/distributed/sharding.h"

namespace arete::distributed {

struct ShardedNetwork::Reduction {
  void go_on();
  std::shared_ptr<ShardedParameters> of;
  Tensor in, out;  // all rows by processes, and those of this one
  WorkPtr work;
  std::shared_ptr<const std::string> label;
  bool unsure;  // some parameters had no gradient in this process
};

/// So many elements of a message that the next ones begin where wide loads may, here and in NCCL.
int64_t in_message(int64_t elements, DType dtype);
/// A tensor over this memory that counts writes of its own.
Tensor over(const StoragePtr& memory, Layout layout, DType dtype);
/// Without gaps, the rows along a dimension one after the other.
Layout by_rows(Shape sizes, int dim);
/// A promise where the thread puts calls off.
StoragePtr new_memory(Device device, size_t bytes);
Tensor fresh(int64_t n, DType dtype, Device device);
/// Whether this pass backward is.
bool is_under_way(uint64_t pass);

}  // namespace arete::distributed
