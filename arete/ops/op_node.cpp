#include "arete/ops/op_node.h"

#include <algorithm>

#include "arete/ops/autocast.h"
#include "arete/ops/vmap_internal.h"
#include "arete/prim/recorder.h"

namespace arete::ops {

Attributes::Attributes(std::span<const Arg> args) {
  size_t n_ints = 0, n_reals = 0, n_chars = 0, n_scalars = 0;
  for (const Arg& a : args) {
    if (a.kind() == Arg::Kind::ints) n_ints += a.ints().size();
    if (a.kind() == Arg::Kind::reals) n_reals += a.reals().size();
    if (a.kind() == Arg::Kind::string) n_chars += a.string().size();
    if (a.kind() == Arg::Kind::scalar) ++n_scalars;
  }
  // Reserved first, so that the borrowed pointers below stay valid.
  ints_.reserve(n_ints);
  reals_.reserve(n_reals);
  chars_.reserve(n_chars);
  scalars_.reserve(n_scalars);
  for (const Arg& a : args) {
    switch (a.kind()) {
      case Arg::Kind::tensor:
      case Arg::Kind::tensors:
      case Arg::Kind::generator:
      case Arg::Kind::program:
        args_.push_back(Arg());
        break;
      case Arg::Kind::ints: {
        const size_t at = ints_.size();
        ints_.append(a.ints().begin(), a.ints().end());
        args_.push_back(Arg(IntList(ints_.data() + at, a.ints().size())));
        break;
      }
      case Arg::Kind::reals: {
        const size_t at = reals_.size();
        reals_.insert(reals_.end(), a.reals().begin(), a.reals().end());
        args_.push_back(Arg(std::span<const double>(reals_.data() + at, a.reals().size())));
        break;
      }
      case Arg::Kind::string: {
        const size_t at = chars_.size();
        chars_.append(a.string());
        args_.push_back(Arg(std::string_view(chars_.data() + at, a.string().size())));
        break;
      }
      case Arg::Kind::scalar:
        scalars_.push_back(a.scalar());
        args_.push_back(Arg(scalars_.back()));
        break;
      default:
        args_.push_back(a);
    }
  }
}

OpNode::OpNode(const Call& call) : op_(call.op), attributes_(call.args()) {
  if (modes().word & Modes::kPutOff) keeper = modes().capture->keeper();
  for_each_tensor(call, [&](size_t i, const Tensor& t) {
    InputMeta meta;
    SavedTensor saved;
    Edge edge;
    if (t.defined()) {
      meta = {Shape(t.sizes()), t.dtype(), t.device(), true};
      // What an in-place call is about to write over is kept as a copy.
      if (op_.save_inputs >> std::min<size_t>(i, 63) & 1)
        saved = SavedTensor(
            call.in_place() && t.storage() == call.tensor(0).storage() ? t.clone() : t, false);
      if (is_differentiable(t.dtype())) edge = gradient_edge(t);
    }
    inputs_.push_back(std::move(meta));
    saved_inputs_.push_back(std::move(saved));
    edges.push_back(std::move(edge));
  });
}

void OpNode::save_outputs(std::span<const Tensor> results) {
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor& t = results[i];
    outputs.push_back({Shape(t.sizes()), t.dtype(), t.device()});
    saved_outputs_.push_back(op_.save_outputs >> i & 1 ? SavedTensor(t, true) : SavedTensor());
  }
}

std::string result_name(const OpRecord* record, size_t i, size_t count) {
  if (record) {
    const std::vector<std::string>& returns = schema_of(*record).returns;
    // "Tensor values"
    if (i < returns.size())
      if (const size_t space = returns[i].rfind(' '); space != std::string::npos)
        return returns[i].substr(space + 1);
  }
  return count == 1 ? "result" : "result" + std::to_string(i);
}

std::vector<SavedValue> OpNode::saved() {
  std::vector<SavedValue> all;
  const std::vector<SchemaArg>& schema = schema_of(op_).args;
  // No record has more than one list of tensors.
  const auto is_list = [](const SchemaArg& a) { return a.type == "Tensor[]"; };
  const size_t others = size_t(std::ranges::count_if(
      schema, [&](const SchemaArg& a) { return a.is_tensor() && !is_list(a); }));
  size_t i = 0;
  const auto add = [&](const std::string& name, bool in_list) {
    const size_t at = i++;
    if (!(op_.save_inputs >> std::min<size_t>(at, 63) & 1)) return;
    all.push_back({name,
                   inputs_[at].defined ? saved_inputs_[at].unpack(this, 0, op_.name) : Tensor(),
                   in_list});
  };
  for (const SchemaArg& a : schema) {
    if (is_list(a))
      for (size_t n = inputs_.size() - others; n > 0; --n) add(a.name, true);
    else if (a.is_tensor())
      add(a.name, false);
  }
  for (size_t k = 0; k < saved_outputs_.size(); ++k)
    if (op_.save_outputs >> k & 1)
      all.push_back({result_name(&op_, k, saved_outputs_.size()),
                     saved_outputs_[k].unpack(this, uint32_t(k), op_.name)});
  return all;
}

class OpGradCall final : public GradCall {
 public:
  OpGradCall(OpNode& node, const TensorList& grads, uint64_t needed)
      : node_(node), grads_(grads), needed_(needed) {}
  const Tensor& grad(size_t i) const override {
    static const Tensor none;
    return i < grads_.size() ? grads_[i] : none;
  }
  Tensor input(size_t i) const override {
    if (!node_.inputs_[i].defined) return Tensor();
    if (!node_.released_ && !node_.saved_inputs_[i].defined())
      ARETE_BUG(
          ("input " + std::to_string(i) + " of " + node_.op_.name + " was not saved").c_str());
    return node_.saved_inputs_[i].unpack(&node_, 0, node_.op_.name);
  }
  Tensor output(size_t i) const override {
    if (!node_.released_ && !node_.saved_outputs_[i].defined())
      ARETE_BUG(
          ("output " + std::to_string(i) + " of " + node_.op_.name + " was not saved").c_str());
    return node_.saved_outputs_[i].unpack(&node_, uint32_t(i), node_.op_.name);
  }
  IntList input_sizes(size_t i) const override { return node_.inputs_[i].sizes; }
  DType input_dtype(size_t i) const override { return node_.inputs_[i].dtype; }
  Device input_device(size_t i) const override { return node_.inputs_[i].device; }
  bool has_input(size_t i) const override { return node_.inputs_[i].defined; }
  size_t input_count() const override { return node_.inputs_.size(); }
  bool needs(size_t i) const override { return i < 64 ? needed_ >> i & 1 : bool(node_.edges[i]); }
  const Arg& arg(size_t i) const override { return node_.attributes_[i]; }

 private:
  OpNode& node_;
  const TensorList& grads_;
  uint64_t needed_;
};

TensorList OpNode::backward(const TensorList& grads, uint64_t needed) {
  // The forward call's dtypes say how to compute, also where backward() runs inside a region.
  std::optional<WithoutAutocast> exact;
  if (modes().word & Modes::kAutocast) exact.emplace();
  const vmaps::Making making({});
  TensorList result = op_.grad(OpGradCall(*this, grads, needed));
  if (result.size() > edges.size())
    ARETE_BUG((op_.name + ": the gradient formula gives more gradients than inputs").c_str());
  while (result.size() < edges.size()) result.emplace_back();
  return result;
}

void OpNode::release_saved() {
  released_ = true;
  for (SavedTensor& s : saved_inputs_) s.reset();
  for (SavedTensor& s : saved_outputs_) s.reset();
}

bool needs_history(const Call& call) {
  if (!modes().grad_enabled) return false;
  for (size_t a = 0; a < call.size(); ++a) {
    const Arg& arg = call[a];
    if (arg.kind() == Arg::Kind::tensor) {
      if (arg.tensor().requires_grad()) return true;
    } else if (arg.kind() == Arg::Kind::tensors) {
      for (const Tensor& t : arg.tensors())
        if (t.defined() && t.requires_grad()) return true;
    }
  }
  return false;
}

}  // namespace arete::ops
