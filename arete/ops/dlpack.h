// Tensors that are shared with other libraries through DLPack (github.com/dmlc/dlpack), versions
// 0.8 and 1.0. The structures are those of its header, which nobody needs to include for this one.
#pragma once

#include "arete/core/tensor.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace arete {

/// The tensor's memory for somebody else, who calls the result's deleter when done with it.
/// AutogradError for tensors that require grad. Of a GPU's memory: work that was given to the
/// current stream may still be writing it.
DLManagedTensor* to_dlpack(const Tensor& t);
/// `copied`: says that nobody else has the memory.
DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& t, bool copied = false);

/// A tensor over somebody's memory; takes the structure over and calls its deleter when the last
/// view is gone. TypeError and ValueError for what Arete cannot show, after which the structure is
/// still the caller's. `release`: called instead of the deleter. Tensors have no read-only memory:
/// of a structure whose flags say so, the caller must not write to the result.
Tensor from_dlpack(DLManagedTensor* managed, void (*release)(DLManagedTensor*) = nullptr);
Tensor from_dlpack(DLManagedTensorVersioned* managed,
                   void (*release)(DLManagedTensorVersioned*) = nullptr);

/// Calls the deleter, where there is one.
void release_dlpack(DLManagedTensor* managed);
void release_dlpack(DLManagedTensorVersioned* managed);

}  // namespace arete
