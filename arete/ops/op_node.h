// The history of one call of a record with a gradient formula.
#pragma once

#include "arete/core/modes.h"
#include "arete/ops/record.h"
#include "arete/ops/saved.h"

namespace arete::ops {

/// Arguments of a call that are not tensors, owned (tensors become none).
class Attributes {
 public:
  explicit Attributes(std::span<const Arg> args);
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  const Arg& operator[](size_t i) const { return args_[i]; }

 private:
  SmallVector<Arg, 6> args_;
  SmallVector<int64_t, 8> ints_;
  std::vector<double> reals_;
  std::vector<Scalar> scalars_;
  std::string chars_;
};

/// What is always remembered of an input.
struct InputMeta {
  Shape sizes;
  DType dtype = kFloat32;
  Device device;
  bool defined = false;
};

/// Saves what the record's formula needs and calls it.
class OpNode final : public CallNode {
 public:
  /// Made before the call runs: inputs are saved as they are now.
  explicit OpNode(const Call& call);
  /// After the call: outputs are saved, `first` gets slot 0 and so on.
  void save_outputs(std::span<const Tensor> outputs);
  std::string name() const override { return op_.name; }
  const OpRecord& op() const { return op_; }
  std::vector<SavedValue> saved() override;
  TensorList backward(const TensorList& grads, uint64_t needed) override;
  void release_saved() override;

 private:
  friend class OpGradCall;
  const OpRecord& op_;
  Attributes attributes_;
  SmallVector<InputMeta, 3> inputs_;
  SmallVector<SavedTensor, 3> saved_inputs_;
  SmallVector<SavedTensor, 1> saved_outputs_;
  bool released_ = false;
};

/// Calls f(index, tensor) for every tensor of the arguments in order (absent ones undefined).
template <class F>
void for_each_tensor(const Call& call, F&& f) {
  static const Tensor undefined;
  size_t i = 0;
  const Schema* schema = nullptr;
  for (size_t a = 0; a < call.size(); ++a) {
    const Arg& arg = call[a];
    if (arg.kind() == Arg::Kind::tensor) {
      f(i++, arg.tensor());
    } else if (arg.kind() == Arg::Kind::tensors) {
      for (const Tensor& t : arg.tensors()) f(i++, t);
    } else if (arg.kind() == Arg::Kind::none) {
      // Only the schema knows whether a tensor is missing here.
      if (!schema) schema = &schema_of(call.op);
      if (a < schema->args.size() && schema->args[a].is_tensor()) f(i++, undefined);
    }
  }
}

/// True if history must be recorded for this call.
bool needs_history(const Call& call);

}  // namespace arete::ops
