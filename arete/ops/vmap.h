// Functions of one element called for a batch of them: tensors whose batch dimension the function
// does not see. How calls meet such tensors stands in ops/vmap_internal.h.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "arete/core/tensor.h"
#include "arete/core/tracing.h"

namespace arete {

/// What a function of a batch may do with random numbers.
enum class Randomness : uint8_t {
  error,      ///< nothing: AutogradError
  different,  ///< each element has its own
  same,       ///< all elements have the same
};

// Note [Batched tensors]
// A batched tensor is a handle on the sizes of one element over memory that nobody may look at: its
// storage has no bytes and is promised by a VmapLevel's body, which holds the physical tensor, the
// same with the batch as dimension 0. So sizes, dtypes, inference and history are those of one
// element, aliases (detach(), saved tensors) are batched, too, and a look at values is an error.
// A call goes its usual way down to where it would allocate and run (lower, the program, the
// layout): there a rule that follows from the record (ops/vmap_rules.cpp) makes a call of physical
// tensors instead. That one is an ordinary call with a history of its own, so levels nest: what is
// differentiated inside the function has its history on the batched tensors, and what is
// differentiated around it on the physical ones.

/// A level of vmap, while it lives: what is entered into it is batched for the calls of its thread.
/// Levels of a thread end in the opposite order to that in which they began.
class VmapLevel final : public tracing::ThreadListener {
 public:
  /// For batches of that many elements.
  VmapLevel(int64_t batch, Randomness randomness);

  /// The tensor without dimension `dim`, of the size of the batch, which is hidden.
  /// IndexError, ValueError.
  Tensor enter(const Tensor& t, int64_t dim) const;
  /// A tensor that all elements share, with a place of its own in the history of this level: what
  /// functions inside differentiate with respect to. What is batched here stays as it is.
  Tensor share(const Tensor& t) const;
  /// The tensor with the batch as dimension `dim`; what is not batched here is expanded.
  Tensor leave(const Tensor& t, int64_t dim) const;
  /// The tensor that all elements share, or nothing if it is batched here.
  std::optional<Tensor> shared(const Tensor& t) const;

  /// What is taken out of history here has none around the level either.
  void detached(const Tensor& from, const Tensor& to) noexcept override;

  int64_t batch() const { return batch_; }
  Randomness randomness() const { return randomness_; }
  /// Grows from level to level.
  uint64_t number() const { return number_; }
  /// The innermost level of the thread, null if there is none.
  static const VmapLevel* innermost();

 private:
  int64_t batch_;
  Randomness randomness_;
  uint64_t number_;
};

/// Whether calls of some level batch this tensor.
bool is_batched(const Tensor& t);
/// The values of all elements of the batches that a tensor is one element of, without history: for
/// checks of arguments, which hold for all elements or are errors. Other tensors stay what they
/// are.
Tensor all_values(const Tensor& t);
/// Whether what is differentiated around the levels of a tensor leads to it.
bool has_outer_history(const Tensor& t);
/// Whether calls of a tensor are recorded, by itself or around its levels: asked before a way
/// without a gradient is taken.
bool will_record(const Tensor& t);

/// func(inputs) for each element of the inputs' dimensions `in_dims` (nothing: the input is shared;
/// an empty list: 0 for all), with the results stacked along `out_dim`.
///
///   auto per_sample = vmap([&](const std::vector<Tensor>& x) { return std::vector{dot(x[0], w)};
///   },
///                          {samples});
///
/// ValueError where the inputs do not fit together; AutogradError where the function looks at
/// values.
std::vector<Tensor> vmap(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& func,
                         const std::vector<Tensor>& inputs,
                         const std::vector<std::optional<int64_t>>& in_dims = {},
                         int64_t out_dim = 0, Randomness randomness = Randomness::error);

}  // namespace arete
