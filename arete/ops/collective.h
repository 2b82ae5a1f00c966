// What the processes of a group compute together, with gradients. A group is named by a number,
// which a process gives its own (distributed/functional.h has functions of groups).
#pragma once

#include <cstdint>
#include <span>

#include "arete/core/tensor.h"
#include "arete/prim/communicator.h"

namespace arete::ops {

/// A group as the records of this file know it.
class CollectiveGroup {
 public:
  virtual ~CollectiveGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Fills tensors that are there (prim::CollectiveArgs says what goes where).
  virtual void perform(prim::CollectiveKind kind, std::span<const Tensor> in,
                       std::span<const Tensor> out, int root, prim::ReduceKind reduce,
                       double factor) = 0;
};

/// The group of this process alone.
inline constexpr int64_t kAlone = -1;
/// Names a group. It is removed before it goes.
int64_t add_group(CollectiveGroup& group);
void remove_group(int64_t number) noexcept;

}  // namespace arete::ops
