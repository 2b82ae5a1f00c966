// Tensors as a library wants them: the caller's memory where it fits, else copies in scratch
// memory.
#pragma once

#include <optional>

#include "arete/backend/cuda/scratch_memory.h"
#include "arete/prim/decompose/layout_view_internal.h"

namespace arete::cuda {

/// One tensor of a call. Unless `fits`, a dense stand-in with `strides` takes its place: filled
/// from the tensor if that is read, else copied home by store(). The view's sizes and strides must
/// outlive this object.
class Operand {
 public:
  Operand(CudaBackend& backend, const prim::View& view, bool fits, IntList strides, bool is_read)
      : backend_(backend),
        home_(view),
        is_read_(is_read),
        scratch_(backend, fits ? 0 : size_t(view.numel()) * size_of(view.dtype)) {
    if (!scratch_.data()) return;
    prim::View memory = view;
    memory.data = scratch_.data();
    stand_in_.emplace(memory, Layout(view.sizes, strides));
    if (is_read) backend.copy({.out = *stand_in_, .in = home_});
  }

  void* data() const { return stand_in_ ? scratch_.data() : home_.data; }
  void store() const {
    if (stand_in_ && !is_read_) backend_.copy({.out = home_, .in = *stand_in_});
  }

 private:
  CudaBackend& backend_;
  prim::View home_;
  bool is_read_;
  Scratch scratch_;
  std::optional<prim::LayoutView> stand_in_;
};

}  // namespace arete::cuda
