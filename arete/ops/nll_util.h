// Shared by the fused cross entropy and the losses composed around it.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/target.h"
#include "arete/ops/vmap.h"

namespace arete::ops {

/// The dimension of the classes of logits (N, C, ...) or (C).
inline size_t class_dim(const Tensor& input) { return input.dim() == 1 ? 0 : 1; }

// Shapes of logits and integer targets.
inline void check_targets(const char* op, const Tensor& x, const Tensor& target) {
  ARETE_CHECK(x.dim() > 0,
              ValueError(op, "input must have at least one dimension").argument("input"));
  ARETE_CHECK(is_floating(x.dtype()),
              TypeError(op, "input must be of a floating dtype").got(describe(x)));
  ARETE_CHECK(
      target.dtype() == kInt64,
      TypeError(op, "expected scalar type Long but found " + std::string(name_of(target.dtype())))
          .argument("target")
          .expected("int64 classes, or probabilities of input's shape")
          .got(describe(target)));
  if (x.dim() == 1) {
    ARETE_CHECK(target.dim() <= 1,
                ValueError(op, "0D or 1D target tensor expected, multi-target not supported")
                    .argument("target"));
    ARETE_CHECK(target.numel() == 1,
                ValueError(op, "For 1D input, 1D target must have size 1, but got target size: " +
                                   std::to_string(target.numel())));
    return;
  }
  ARETE_CHECK(target.dim() > 0 && x.sizes()[0] == target.sizes()[0],
              ValueError(op, "Expected input batch_size (" + std::to_string(x.sizes()[0]) +
                                 ") to match target batch_size (" +
                                 std::to_string(target.dim() ? target.sizes()[0] : 1) + ").")
                  .got("input " + describe(x) + ", target " + describe(target)));
  Shape expected(x.sizes());
  expected.erase(expected.begin() + 1);
  ARETE_CHECK(expected == Shape(target.sizes()),
              ValueError(op, "Expected target size " + to_string(expected) + ", got " +
                                 to_string(target.sizes())));
}

/// The class of logits (C), of which there may be one in a list.
inline Tensor without_list(const Tensor& x, const Tensor& target) {
  return x.dim() == 1 && target.dim() == 1 ? target.reshape({}) : target;
}

/// Class weights of another floating type are no slip to be rounded over.
inline void check_weight_dtype(const char* op, const Tensor& x, const Tensor& weight) {
  const auto called = [](DType t) -> std::string {
    return t == kFloat32    ? "Float"
           : t == kFloat64  ? "Double"
           : t == kFloat16  ? "Half"
           : t == kBFloat16 ? "BFloat16"
                            : std::string(name_of(t));
  };
  ARETE_CHECK(weight.dtype() == x.dtype(),
              ValueError(op, "expected scalar type " + called(x.dtype()) + " but found " +
                                 called(weight.dtype()))
                  .argument("weight"));
}

inline void check_weight(const char* op, const Tensor& x, const Tensor& weight) {
  const int64_t classes = x.sizes()[class_dim(x)];
  ARETE_CHECK(
      weight.dim() == 1 && weight.numel() == classes,
      ValueError(op, "weight tensor should be defined either for all " + std::to_string(classes) +
                         " classes or no classes but got weight tensor of shape: " +
                         to_string(weight.sizes())));
}

// On the host the values can be looked at before anything is read with them.
inline void check_range(const char* op, const Tensor& target, int64_t classes, int64_t ignore) {
  if (!target.device().is_cpu() || (modes().word & Modes::kCapture) || target.numel() == 0) return;
  const Tensor t = plain(all_values(target), kInt64);
  note_look();
  // Not by data_ptr(), which is a write: calls that were put off and only read would be made first.
  const int64_t* p =
      reinterpret_cast<const int64_t*>(t.storage()->readable_data()) + t.layout().offset;
  const int64_t n = t.numel();
  bool wrong = false;
  for (int64_t i = 0; i < n; ++i)  // without a way out the loop is vector code
    wrong |= (uint64_t(p[i]) >= uint64_t(classes)) & (p[i] != ignore);
  for (int64_t i = 0; wrong && i < n; ++i)
    ARETE_CHECK((p[i] >= 0 && p[i] < classes) || p[i] == ignore,
                IndexError(op, "Target " + std::to_string(p[i]) + " is out of bounds.")
                    .argument("target")
                    .expected("classes in [0, " + std::to_string(classes) + ")" +
                              (ignore < 0 ? "" : " or " + std::to_string(ignore))));
}

enum Reduction : int { kNone = 0, kMean = 1, kSum = 2 };

inline int reduction_of(std::string_view text, const char* op) {
  if (text == "mean") return kMean;
  if (text == "sum") return kSum;
  ARETE_CHECK(text == "none",
              ValueError(op, std::string(text) + " is not a valid value for reduction")
                  .argument("reduction")
                  .expected("\"none\", \"mean\" or \"sum\""));
  return kNone;
}

/// Programs of a target and, as parameters, the class to ignore and the number of classes: the
/// class to read, 0 where it is ignored. Negative ones, which would count from the end, move out of
/// range, so that reading with them is an error on every device.
const expr::Program& class_to_read();

/// The fused cross entropy of logits and int64 classes; `weight` may be undefined and gets no
/// gradient.
Tensor softmax_nll(const Tensor& input, const Tensor& target, const Tensor& weight, int64_t ignore,
                   int reduction);

}  // namespace arete::ops
