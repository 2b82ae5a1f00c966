#include "arete/autograd/function.h"

#include <algorithm>

#include "arete/autograd/engine.h"
#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/vmap_internal.h"

namespace arete::autograd {

std::vector<Tensor> Context::saved_tensors() const {
  std::vector<Tensor> result;
  for (size_t i = 0; i < saved_.size(); ++i)
    result.push_back(saved_[i].unpack(node_, uint32_t(std::max(output_slot_[i], 0)), name_));
  return result;
}

class CustomNode final : public Node {
 public:
  CustomNode(const FunctionDef& def, const std::vector<Tensor>& inputs) : def_(def) {
    for (const Tensor& t : inputs)
      edges.push_back(t.defined() && is_differentiable(t.dtype()) ? gradient_edge(t) : Edge{});
    context_.name_ = def.name;
  }
  Context& context() { return context_; }
  std::string name() const override { return def_.name; }

  // Called when the outputs have their history, so that a saved output knows its slot.
  void finish(const std::vector<Tensor>& results) {
    context_.node_ = this;
    for (const Tensor& t : results) outputs.push_back({Shape(t.sizes()), t.dtype(), t.device()});
    for (const Tensor& t : context_.to_save_) {
      int slot = -1;
      for (size_t i = 0; i < results.size(); ++i)
        if (results[i].is_same(t)) slot = int(i);
      context_.saved_.push_back(SavedTensor(t, slot >= 0));
      context_.output_slot_.push_back(slot);
    }
    context_.to_save_.clear();
  }

  TensorList backward(const TensorList& grads, uint64_t needed) override {
    context_.needed_ = needed;
    std::vector<Tensor> given(grads.begin(), grads.end());
    for (size_t i = 0; i < given.size() && def_.materialize_grads; ++i)
      if (!given[i].defined())
        given[i] = zeros(outputs[i].sizes, TensorOptions(outputs[i].dtype, outputs[i].device));
    const std::vector<Tensor> result = def_.backward(context_, given);
    ARETE_CHECK(result.size() == edges.size(),
                AutogradError(def_.name, "function " + def_.name +
                                             "Backward returned an incorrect number of gradients")
                    .expected(std::to_string(edges.size()))
                    .got(std::to_string(result.size())));
    return TensorList(result.begin(), result.end());
  }

  void release_saved() override {
    for (SavedTensor& s : context_.saved_) s.reset();
  }

 private:
  const FunctionDef def_;
  Context context_;
};

namespace {

// The node would have edges to tensors of the innermost level alone.
void check_no_outer_history(const FunctionDef& f, const std::vector<Tensor>& inputs) {
  const uint64_t level =
      modes().grad_enabled && ops::vmaps::may_be() ? ops::vmaps::level_of(inputs) : 0;
  if (!level) return;
  for (const Tensor& t : inputs)
    ARETE_CHECK(!t.defined() || !ops::vmaps::is_differentiated_around(t, level),
                AutogradError(f.name, f.name + ": a custom function under vmap has no gradient for "
                                               "tensors that are differentiated around it")
                    .hint("detach() them, or write the function with operators"));
}

std::vector<Tensor> run(const FunctionDef& f, const std::vector<Tensor>& inputs) {
  bool record = false;
  if (modes().grad_enabled)
    for (const Tensor& t : inputs) record = record || (t.defined() && t.requires_grad());
  if (!f.keeps_outer_history) check_no_outer_history(f, inputs);
  IntrusivePtr<CustomNode> node(new CustomNode(f, inputs));
  std::vector<Tensor> results;
  {
    const NoGradGuard no_grad;
    results = f.forward(node->context(), inputs);
  }
  if (!record) return results;
  for (Tensor& t : results) {
    // An input handed through gets a handle of its own, or its history would be overwritten.
    for (const Tensor& in : inputs)
      if (t.is_same(in)) t = ops::alias(t, t.layout());
  }
  node->finish(results);
  for (size_t i = 0; i < results.size(); ++i)
    if (is_differentiable(results[i].dtype())) set_history(results[i], node, uint32_t(i));
  return results;
}

}  // namespace

std::vector<Tensor> apply(const FunctionDef& f, const std::vector<Tensor>& inputs) {
  if (tracing::is_plain()) return run(f, inputs);
  const ops::Arg given(inputs);
  tracing::CallScope traced(ops::function_record(f.name), {&given, 1}, false);
  std::vector<Tensor> results = run(f, inputs);
  traced.end({results.data(), results.size()});
  return results;
}

}  // namespace arete::autograd
