// What is kept of the tensors that backward needs: as they are, or as hooks decide.
#pragma once

#include <memory>

#include "arete/base/intrusive_ptr.h"
#include "arete/core/tensor.h"

namespace arete {

/// What a tensor kept for backward was replaced by, until backward asks for its values.
class PackedTensor : public RefCounted {
 public:
  virtual ~PackedTensor() = default;
  /// The values, in a tensor that need not have a history. May be called more than once.
  virtual Tensor unpack() = 0;
  void destroy() const noexcept { delete this; }
};

/// Decides what is kept of the tensors that backward needs: moves them elsewhere, compresses them.
class SavedTensorHooks {
 public:
  virtual ~SavedTensorHooks() = default;
  /// Called with recording and hooks switched off. `t` has no history and must not be written to
  /// (AutogradError). Null: the tensor is kept as it is.
  virtual IntrusivePtr<PackedTensor> pack(const Tensor& t) = 0;
};

/// While it lives, what this thread's calls save goes through `hooks` (those of the innermost guard
/// alone; null: tensors are kept as they are). In-place writes to a tensor after it was packed are
/// not noticed.
class SavedTensorHooksGuard {
 public:
  explicit SavedTensorHooksGuard(std::shared_ptr<SavedTensorHooks> hooks);
  ~SavedTensorHooksGuard();
  SavedTensorHooksGuard(const SavedTensorHooksGuard&) = delete;
  SavedTensorHooksGuard& operator=(const SavedTensorHooksGuard&) = delete;
  /// Whether this thread has hooks.
  static bool has_hooks() noexcept;

 private:
  std::shared_ptr<SavedTensorHooks> hooks_;
  SavedTensorHooks* outer_;
};

}  // namespace arete
