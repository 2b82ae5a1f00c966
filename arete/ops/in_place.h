// Rules of in-place writes and what they do to history (see Note [In-place writes] in
// in_place.cpp).
#pragma once

#include <string>

#include "arete/core/history.h"

namespace arete::ops {

/// Inference tensors may be written, and given other shapes, in inference mode alone.
void check_inference(const Tensor& self, const char* op);
/// Errors for targets that may not be written: leaves that require grad (when history is
/// recorded), multi-output views, views made under no_grad, inference tensors outside inference
/// mode, tensors whose elements share memory.
void check_in_place(const Tensor& self, const char* op, bool record);
/// Errors for results that may not be converted to the dtype of what they are written to, and for
/// those that have another shape than the target of an in-place call, too.
void check_castable(DType from, DType to, const std::string& op);
void check_result(const Tensor& self, IntList sizes, DType dtype, const std::string& op);
/// Makes `node` the producer of `self`, its output `slot`, after an in-place write: retain_grad()
/// is about the new values from then on. For a view the history of its base changes, too: then
/// node's input 0 stands for the old value of self, and slot is 0.
void rebase_history(Tensor& self, const IntrusivePtr<Node>& node, uint32_t slot = 0);

}  // namespace arete::ops
