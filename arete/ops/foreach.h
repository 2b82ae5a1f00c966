// Pointwise operators on each tensor of a list, PyTorch's `_foreach_*`: as many launches as there
// are dtypes and devices, where nothing speaks against it.
#pragma once

#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "arete/ops/record.h"

namespace arete::ops {

/// A listener of the thread that is this, too, hears calls on lists as single calls.
struct HearsSingleCalls {
  virtual ~HearsSingleCalls() = default;
};

/// An argument of an operator on lists: a tensor or a number for each place, or one for all.
using ListArg = std::variant<std::span<const Tensor>, std::span<const Scalar>, Tensor, Scalar>;

/// Result k is that of the pointwise record's call with place k of each list in `args`, which are
/// as many as the record's arguments; promotion, broadcasting, history and errors are those of that
/// call, which autocast does not change. ValueError for an empty list and for lists of different
/// lengths.
std::vector<Tensor> foreach_call(const OpRecord& op, std::span<const ListArg> args);
/// The in-place form: the results replace the tensors of the first list, one after the other, or as
/// if it were so. A list that may not be written is refused before anything is.
void foreach_call_in_place(const OpRecord& op, std::span<const ListArg> args);

/// self[k].copy_(src[k]) for all.
void foreach_copy(std::span<const Tensor> self, std::span<const Tensor> src, bool non_blocking);
/// self[k].zero_() for all.
void foreach_zero(std::span<const Tensor> self);
/// The norm of each tensor, 0-d, or with `root` = false what it is the root of: the sum of
/// |x|^order. In `dtype` if it is given, else in that of the tensor. Errors as vector_norm().
std::vector<Tensor> foreach_norm(std::span<const Tensor> tensors, double order,
                                 std::optional<DType> dtype = {}, bool root = true);
/// The largest element of each tensor, 0-d.
std::vector<Tensor> foreach_max(std::span<const Tensor> tensors);

}  // namespace arete::ops
