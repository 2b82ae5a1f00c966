// Programs on their way to tensors, and the history of that: of calls of pointwise records, and of
// programs that have no record of their own.
#pragma once

#include <atomic>
#include <map>
#include <mutex>

#include "arete/core/tracing.h"
#include "arete/ops/record.h"
#include "arete/ops/saved.h"

namespace arete::ops {

// Note [Variants of a pointwise record]
// A record's lambda is traced once for each combination of input dtypes, of inputs given as plain
// numbers (these become run-time parameters, so no tensor is made for the 2 in x * 2), of result
// dtype, and of parameters that are exactly 1 (these are folded, so add without alpha has no
// multiplication). The combination is packed in a 64-bit key.
struct PointwiseDef::Cache {
  struct Variant {
    uint64_t key;
    expr::ProgramPtr program;
    // Derivatives by the records' own gradients, by gradient and wanted mask.
    using Own = std::pair<const expr::Definition*, uint32_t>;
    std::mutex mutex;
    std::vector<std::pair<Own, std::unique_ptr<expr::Derivative>>> overridden;
    std::vector<int> number_inputs;  // which definition inputs are numbers
    DType compute;
    Variant* next = nullptr;
  };
  std::atomic<Variant*> first{nullptr};
  std::mutex mutex;
  ~Cache() {
    for (Variant* v = first.load(); v;) {
      Variant* next = v->next;
      delete v;
      v = next;
    }
  }
  Variant* find(uint64_t key) const {
    for (Variant* v = first.load(std::memory_order_acquire); v; v = v->next)
      if (v->key == key) return v;
    return nullptr;
  }
};
using Variant = PointwiseDef::Cache::Variant;

/// A program with its operands. `variant` and `def` are those of a pointwise record, null for a
/// program without one.
struct Application {
  const char* name;
  const expr::ProgramPtr& program;
  std::span<const Tensor> inputs;
  std::span<const expr::Literal> params;
  Variant* variant = nullptr;
  const PointwiseDef* def = nullptr;
  const Call* call = nullptr;  ///< of a pointwise record

  /// Which of the definition's inputs is input i: numbers among them are no tensors.
  size_t position(size_t i) const;
  /// Whether a gradient could flow to input i.
  bool is_differentiable_at(size_t i) const;
  /// Whether history must be recorded.
  bool needs_history() const;
};

/// Allocates results, unless `outputs` holds memory for them, runs the program and records history:
/// what every pointwise call comes down to.
void apply(const Application& a, Results& outputs);
/// The same as a call that observers see, of the anonymous record of its name.
Results call_program(const Application& a);
/// Runs the program into `outputs`; nothing on the meta device.
void execute(const expr::Program& program, std::span<const Tensor> inputs,
             std::span<const Tensor> outputs, std::span<const expr::Literal> params);

// The record of a name, made by `fill` when it is first asked for. Records stay for good: history
// and recordings of a profiler keep pointers to them.
class AnonymousRecords {
 public:
  explicit AnonymousRecords(void (*fill)(OpRecord&)) : fill_(fill) {}
  const OpRecord& find(std::string_view name);

 private:
  void (*const fill_)(OpRecord&);
  std::mutex mutex_;
  std::map<std::string, OpRecord, std::less<>> records_;
};

/// f(name) for a gradient. Where somebody listens, the name is "..._backward"; anomaly mode looks
/// at what backward() gives, and then names its node.
template <class F>
Results call_derivative(const char* name, F&& f) {
  if (tracing::is_plain()) [[likely]]
    return f(name);
  const ModesGuard guard;
  modes().word &= ~uint32_t(Modes::kAnomaly);
  return f((std::string(name) + "_backward").c_str());
}

/// Saves what the derivative reads and applies it.
class ProgramNode final : public CallNode {
 public:
  /// Made before the program runs. `overwritten`: the tensor that it is about to write to.
  ProgramNode(const Application& a, IntList space, const Tensor* overwritten = nullptr);
  void save_outputs(std::span<const Tensor> results);
  std::string name() const override { return name_; }
  TensorList backward(const TensorList& grads, uint64_t needed) override;
  void release_saved() override;
  std::vector<SavedValue> saved() override;

 private:
  Results run_derivative(const expr::ProgramPtr& program, std::span<const Tensor> inputs);
  const expr::Derivative& derivative(uint32_t wanted);
  expr::Derivative override(uint32_t wanted);

  const char* name_;
  const OpRecord* record_;  // null: a program's own
  expr::ProgramPtr program_;
  Variant* variant_;
  const PointwiseDef* def_;
  const expr::Definition* gradient_ = nullptr;  // the record's own, if it has one
  SmallVector<expr::Literal, 4> params_;
  Shape space_;
  uint32_t wanted_ = 0;   // bit i: that of input i
  uint32_t refused_ = 0;  // of others that history was recorded for, and whose gradients are errors
  const expr::Derivative* derivative_ = nullptr;
  SmallVector<SavedTensor, 3> saved_;
  SmallVector<Shape, 2> input_sizes_;
  SmallVector<DType, 4> input_dtypes_;
};

}  // namespace arete::ops
