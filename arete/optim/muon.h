// Orthogonal steps for matrices.
#pragma once

#include "arete/optim/optimizer.h"

namespace arete::optim {

/// How the rate depends on the sides of a matrix.
enum class AdjustLr : uint8_t {
  original,         ///< times sqrt(max(1, rows / columns))
  match_rms_adamw,  ///< times 0.2 sqrt(max(rows, columns)): as large as a step of AdamW
};

struct MuonOptions {
  Setting lr = 1e-3;
  Setting weight_decay = 0.1;  ///< decoupled, as in AdamW
  Setting momentum = 0.95;
  bool nesterov = true;
  /// Of the polynomial a x + b x^3 + c x^5 that is applied to the singular values.
  Setting ns_a = 3.4445, ns_b = -4.775, ns_c = 2.0315;
  Setting eps = 1e-7;    ///< the least norm of what is made orthogonal
  Setting ns_steps = 5;  ///< how often the polynomial is applied
  AdjustLr adjust_lr = AdjustLr::original;

  static constexpr const char* kOptimizer = "Muon";
  static constexpr StateKey kState[] = {{"momentum_buffer"}};
  static void fields(auto& visit, auto& o) {
    visit("lr", o.lr, not_negative("Learning rate should be >= 0 but is: "));
    visit("weight_decay", o.weight_decay, not_negative("weight decay should be >= 0 but is: "));
    visit("momentum", o.momentum, not_negative("momentum should be >= 0 but is: "));
    visit("nesterov", o.nesterov);
    visit.tuple("ns_coefficients", member("ns_a", o.ns_a, fixed_number),
                member("ns_b", o.ns_b, fixed_number), member("ns_c", o.ns_c, fixed_number));
    visit("eps", o.eps, fixed_number);
    visit("ns_steps", o.ns_steps, fixed_number);
    visit.choice("adjust_lr_fn", o.adjust_lr, std::array{"original", "match_rms_adamw"});
  }
  void check() const;
  static void check_parameter(const Tensor& param);
};

extern template class TypedOptimizer<MuonOptions>;

/// Muon (Jordan et al. 2024): the momentum of a matrix is replaced by the nearest orthogonal
/// matrix, approximately, by a few steps of an iteration in bf16 (Newton and Schulz's, with
/// coefficients that make it fast). p *= 1 - lr * weight_decay, p -= lr * adjustment *
/// orthogonal(m), with m = momentum * m + (1 - momentum) * g (nesterov: g and m mixed once more).
/// For parameters of two dimensions; others need another optimizer beside it. State:
/// momentum_buffer.
class Muon : public TypedOptimizer<MuonOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
};

}  // namespace arete::optim
