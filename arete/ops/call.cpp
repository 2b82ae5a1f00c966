#include "arete/ops/call.h"

#include <algorithm>
#include <cmath>

#include "arete/base/warn.h"
#include "arete/core/modes.h"
#include "arete/core/sparse.h"
#include "arete/core/tracing.h"
#include "arete/ops/anomaly.h"
#include "arete/ops/autocast.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/in_place.h"
#include "arete/ops/make_view.h"
#include "arete/ops/op_node.h"
#include "arete/ops/pointwise_call.h"
#include "arete/ops/target.h"
#include "arete/ops/vmap_internal.h"

namespace arete::ops {

Tensor make_one_view(const Tensor& self, Layout&& layout, const OpRecord& op) {
  const DType dtype = op.view_dtype ? op.view_dtype(self.dtype()) : self.dtype();
  // As alias(), which moves the layout more often.
  IntrusivePtr<TensorImpl> out(new TensorImpl(self.impl()->storage, std::move(layout), dtype));
  TensorImpl* const impl = out.get();
  impl->own_version = self.impl()->own_version;
  impl->inference = self.is_inference();
  if (!impl->inference || !is_inference_mode()) {
    impl->base = self.impl()->base ? self.impl()->base : IntrusivePtr<TensorImpl>(self.impl());
    impl->made_by = op.name.c_str();
    impl->view_version = self.version();
    impl->no_grad_view = !modes().grad_enabled || self.impl()->no_grad_view;
    impl->multi_output = self.impl()->multi_output;
  }
  return Tensor(std::move(out));
}

namespace {

void check_grad_exists(const Call& call) {
  ARETE_CHECK(call.op.grad, NotImplementedError(call.name(), "derivative for " + call.op.name +
                                                                 " is not implemented")
                                .hint("detach() the inputs if no gradient is wanted"));
}

// False for argmax, nonzero and so on, which end the history without an error.
bool has_differentiable_output(const OpRecord& op, const OutputSpecs& specs) {
  for (size_t i = 0; i < specs.size(); ++i)
    if (is_differentiable(specs[i].dtype) && !(op.non_differentiable_outputs >> i & 1)) return true;
  return false;
}

// What a device says of a failure names no tensors: it does not know them.
template <class E>
void add_arguments(E& error, const Call& call) {
  if (!error.got().empty()) return;
  std::string text;
  for_each_tensor(call, [&](size_t, const Tensor& t) {
    if (t.defined()) text += (text.empty() ? "" : ", ") + describe(t);
  });
  error.got(text);
}

// Runs f; failures of the device gain the call's arguments.
template <class F>
auto on_device(const Call& call, F&& f) {
  modes().current_op = call.op.name.c_str();
  try {
    return f();
  } catch (DeviceError& e) {
    add_arguments(e, call);
    throw;
  } catch (OutOfMemoryError& e) {
    add_arguments(e, call);
    throw;
  }
}

// What ends on the device meta has made nothing: it must not be taken for a result.
void refuse_sparse(const Call& call) {
  for_each_tensor(call, [&](size_t, const Tensor& t) {
    if (t.defined()) check_not_sparse(call.name(), t);
  });
}

// The level of vmap by whose rules a call runs; 0: it is an ordinary one.
uint64_t vmap_level(const Call& call) { return vmaps::may_be() ? vmaps::level_of(call) : 0; }

bool needs_history(const Call& call, uint64_t level) {
  return level ? vmaps::needs_history(call, level) : ops::needs_history(call);
}

// What a call results in. Records find their tensors on one device.
OutputSpecs inferred(const Call& call) {
  const Device device = call.op.across_devices ? kCPU : common_device(call);
  OutputSpecs specs;
  call.op.infer(call, specs);
  for (OutputSpec& s : specs)
    if (!s.device) s.device = device;
  return specs;
}

Results run_inferred(const Call& call, const OutputSpecs& specs) {
  const OpRecord& op = call.op;
  const uint64_t level = vmap_level(call);
  Results outputs;
  if (!level)
    for (const OutputSpec& s : specs) outputs.push_back(empty_tensor(s));
  IntrusivePtr<OpNode> node;
  if (has_differentiable_output(op, specs) && needs_history(call, level)) {
    check_grad_exists(call);
    node = IntrusivePtr<OpNode>(new OpNode(call));
  }
  if (level) [[unlikely]]
    outputs = vmaps::run(call, specs, level);
  else if (!specs[0].device->is_meta())
    op.lower(call, {outputs.data(), outputs.size()}, target(*specs[0].device));
  else
    refuse_sparse(call);
  if (node) {
    node->save_outputs({outputs.data(), outputs.size()});
    for (size_t i = 0; i < outputs.size(); ++i)
      if (is_differentiable(outputs[i].dtype()) && !(op.non_differentiable_outputs >> i & 1))
        set_history(outputs[i], node, uint32_t(i));
  }
  return outputs;
}

bool is_of_complex(const Call& call) {
  return call.size() > 0 && call[0].kind() == Arg::Kind::tensor &&
         is_complex(call.tensor(0).dtype());
}

// Whether compose_complex stands for the operator: it reads complex numbers, or a dtype asks for
// them.
bool is_composed_for_complex(const Call& call) {
  return call.op.compose_complex &&
         (is_of_complex(call) || std::ranges::any_of(call.args(), [](const Arg& a) {
            return a.kind() == Arg::Kind::dtype && is_complex(a.dtype());
          }));
}

Results run(const Call& call) {
  if (is_composed_for_complex(call)) return call.op.compose_complex(call);
  const OutputSpecs specs = inferred(call);
  return on_device(call, [&] { return run_inferred(call, specs); });
}

// The in-place form of a composition: its result is copied back, and the history is that of the
// copy. Where history is recorded it starts from a copy, too: its parts may save what they read.
// What gives back its input (dropout of nothing) writes nothing: what saved the values has them.
Tensor& compose_in_place(Tensor& self, const OpRecord& op, std::span<const Arg> args,
                         Results (*compose)(const Call&), bool record) {
  bool is_saved = record;
  if (!record && modes().grad_enabled && vmaps::may_be())
    for_each_tensor(Call(op, args),
                    [&](size_t, const Tensor& t) { is_saved = is_saved || has_outer_history(t); });
  const Tensor before = is_saved ? self.clone() : self;
  SmallVector<Arg, 8> given(args.begin(), args.end());
  given[0] = Arg(before);
  const Tensor result = compose(Call(op, {given.data(), given.size()}))[0];
  if (result.impl() == before.impl()) return self;
  check_result(self, result.sizes(), result.dtype(), op.name);
  return self.copy_(result);
}

// Host memory that a copy still reads from or writes to is about to be written. Copies from a
// device need not wait: they see to their order themselves.
void wait_for_copies(const Call& call, const Tensor& self) {
  bool from_device = false;
  for_each_tensor(call, [&](size_t, const Tensor& t) {
    from_device = from_device || (t.defined() && t.device() != self.device());
  });
  if (!from_device) wait_to_write(*self.storage());
}

Tensor make_view(const Call& call) {
  const OpRecord& op = call.op;
  if (call.tensor(0).is_meta()) refuse_sparse(call);
  const uint64_t level = vmap_level(call);
  IntrusivePtr<OpNode> node;
  if (needs_history(call, level)) {
    check_grad_exists(call);
    node = IntrusivePtr<OpNode>(new OpNode(call));
  }
  Tensor output = level ? vmaps::run_view(call, op.view(call), level)
                        : make_one_view(call.tensor(0), op.view(call), op);
  if (node) {
    node->save_outputs({&output, 1});
    set_history(output, node, 0);
  }
  return output;
}

Results make_views(const Call& call) {
  const OpRecord& op = call.op;
  const Tensor& self = call.tensor(0);
  if (self.is_meta()) refuse_sparse(call);
  const uint64_t level = vmap_level(call);
  IntrusivePtr<OpNode> node;
  if (needs_history(call, level)) {
    check_grad_exists(call);
    node = IntrusivePtr<OpNode>(new OpNode(call));
  }
  Results outputs;
  if (level)
    outputs = vmaps::run_views(call, level);
  else
    for (Layout& l : op.views(call)) outputs.push_back(make_one_view(self, std::move(l), op));
  for (const Tensor& t : outputs) t.impl()->multi_output = true;
  if (node) {
    node->save_outputs({outputs.data(), outputs.size()});
    for (size_t i = 0; i < outputs.size(); ++i) set_history(outputs[i], node, uint32_t(i));
  }
  return outputs;
}

Results run_path(const Call& call) {
  const OpRecord& op = call.op;
  if (op.pointwise) return on_device(call, [&] { return call_pointwise(call); });
  if (op.view) return {make_view(call)};
  if (op.views) return make_views(call);
  if (op.compose) {
    if (!vmaps::may_be()) return op.compose(call);
    const uint64_t level = vmap_level(call);
    if (level && op.batching.one_by_one) return vmaps::run_composition(call, level);
    const vmaps::Making making(call.args());
    return op.compose(call);
  }
  if (op.apply) return on_device(call, [&] { return op.apply(call); });
  return run(call);
}

Results call_observed(const OpRecord& op, std::span<const Arg> args) {
  Modes& m = modes();
  const Call call(op, args);
  tracing::CallScope traced(op, {args.data(), args.size()}, false);
  Results results = run_path(call);
  traced.end({results.data(), results.size()});
  if ((m.word & Modes::kAnomaly) && !op.compose && !op.random) {
    bool input_nan = false;
    for_each_tensor(call, [&](size_t, const Tensor& t) { input_nan = input_nan || holds_nan(t); });
    for (const Tensor& t : results)
      ARETE_CHECK(
          input_nan || op.uninitialized || !holds_nan(t),
          ValueError(op.name, "Function '" + op.name + "' returned nan values in its output")
              .got(describe(t))
              .hint("look at the values of its inputs: none of them is NaN"));
  }
  return results;
}

Results call_special(const OpRecord& op, std::span<const Arg> args) {
  if (modes().word & Modes::kAutocast && op.autocast != Autocast::none) {
    const AutocastArgs casted(op, args);
    if (casted.has_class()) {
      const WithoutAutocast guard;
      return call_observed(op, casted.get());
    }
  }
  return call_observed(op, args);
}

// The work of call_in_place.
void run_in_place(Tensor& self, const OpRecord& op, std::span<const Arg> args) {
  const Call call(op, args, true);
  const bool record = modes().grad_enabled && (needs_history(call) || self.requires_grad());
  check_in_place(self, op.name.c_str(), record);
  if (self.storage()->has_pending_copies()) [[unlikely]]
    wait_for_copies(call, self);
  if (op.compose_in_place) {
    op.compose_in_place(self, call);
    return;
  }
  if (op.compose) {
    compose_in_place(self, op, args, op.compose, record);
    return;
  }
  if (op.pointwise) {
    if (!on_device(call, [&] { return call_pointwise_into(call, self, record); }))
      compose_in_place(self, op, args, call_pointwise, record);
  } else {
    IntrusivePtr<OpNode> node;
    if (record) {
      check_grad_exists(call);
      node = IntrusivePtr<OpNode>(new OpNode(call));
    }
    const OutputSpecs specs = inferred(call);
    check_result(self, specs[0].sizes, specs[0].dtype, op.name);
    if (const uint64_t level = vmap_level(call)) {
      on_device(call, [&] { vmaps::run_in_place(call, specs, level); });
    } else if (!self.is_meta()) {
      on_device(call, [&] {
        prim::Primitives& p = target(self.device());
        if (op.in_place_by_copy || specs[0].dtype != self.dtype()) {
          const Tensor temporary = empty_tensor(specs[0]);
          op.lower(Call(op, call.args()), {&temporary, 1}, p);
          p.copy({view_of(self), view_of(temporary)});
        } else {
          op.lower(call, {&self, 1}, p);
        }
      });
    } else {
      refuse_sparse(call);
    }
    self.bump_version();
    if (node) {
      node->save_outputs({&self, 1});
      rebase_history(self, node);
    }
  }
}

Tensor& call_in_place_watched(Tensor& self, const OpRecord& op, std::span<const Arg> args) {
  std::optional<WithoutAutocast> exact;
  if (modes().word & Modes::kAutocast) exact.emplace();
  tracing::CallScope traced(op, {args.data(), args.size()}, true);
  run_in_place(self, op, args);
  traced.end({&self, 1});
  return self;
}

}  // namespace

Results call_all(const OpRecord& op, std::span<const Arg> args) {
  if (!tracing::is_plain()) [[unlikely]]
    return call_special(op, args);
  return run_path(Call(op, args));
}

Tensor call(const OpRecord& op, std::span<const Arg> args) {
  if (!tracing::is_plain()) [[unlikely]]
    return std::move(call_special(op, args)[0]);
  const Call call(op, args);
  if (op.pointwise) return on_device(call, [&] { return call_pointwise_one(call); });
  if (op.view) return make_view(call);
  return std::move(run_path(call)[0]);
}

Tensor& call_in_place(Tensor& self, const OpRecord& op, std::span<const Arg> args) {
  ARETE_CHECK(op.has_in_place, NotImplementedError(op.name, op.name + " has no in-place form"));
  if (!tracing::is_plain()) [[unlikely]]
    return call_in_place_watched(self, op, args);
  run_in_place(self, op, args);
  return self;
}

// Note [Results into given memory]
// A pointwise record's program and a primitive's lowering write into `out` at once if it lies as
// the result would have been allocated, or, for programs, in any way. A composition allocates as it
// goes: the first tensor that it makes of out's sizes, dtype and strides gets out's memory
// (Modes::destination), which is the result in most, and right in any case: nothing reads `out`
// meanwhile, and a result that ended elsewhere is copied. Where out shares memory with an argument,
// or its dtype or strides are not the result's, there is a temporary.

namespace {

void fit(Tensor& out, IntList sizes, const char* op) {
  if (std::ranges::equal(out.sizes(), sizes)) return;
  if (out.numel() != 0)
    warn("An output with one or more elements was resized since it had shape " +
         to_string(out.sizes()) + ", which does not match the required output shape " +
         to_string(sizes) +
         ". This behavior is deprecated, and in a future PyTorch release outputs will not be "
         "resized unless they have zero elements. You can explicitly reuse an out tensor t by "
         "resizing it, inplace, to zero elements with t.resize_(0). Operator: " +
         op);
  TensorImpl& impl = *out.impl();
  impl.storage = empty_tensor(sizes, out.dtype(), out.device()).storage();
  impl.layout = Layout(sizes);
  impl.base = {};
}

// PyTorch's texts name dtypes as C++ does.
std::string cpp_name(DType t) {
  static constexpr std::pair<DType, const char*> kNames[] = {{kFloat32, "float"},
                                                             {kFloat64, "double"},
                                                             {kFloat16, "c10::Half"},
                                                             {kInt64, "long int"},
                                                             {kInt32, "int"},
                                                             {kInt16, "short int"},
                                                             {kInt8, "signed char"},
                                                             {kUInt8, "unsigned char"},
                                                             {kBFloat16, "c10::BFloat16"},
                                                             {kComplex64, "c10::complex<float>"},
                                                             {kComplex128, "c10::complex<double>"}};
  for (const auto& [dtype, name] : kNames)
    if (dtype == t) return name;
  return std::string(name_of(t));
}

// Whether out= may have another dtype than the result: where the record says so, of compositions,
// whose last operator mostly converts, and where the dtype can be chosen.
bool converts_out(const OpRecord& op, DType result, DType out) {
  return op.converts_out || op.pointwise || (op.compose && is_complex(result) == is_complex(out)) ||
         std::ranges::any_of(schema_of(op).args,
                             [](const SchemaArg& a) { return a.type == "dtype?"; });
}

void check_out_dtype(const OpRecord& op, DType result, DType out) {
  check_castable(result, out, op.name);
  ARETE_CHECK(result == out || converts_out(op, result, out),
              TypeError(op.name, "Expected out tensor to have dtype " + cpp_name(result) +
                                     ", but got " + cpp_name(out) + " instead"));
}

void check_out_device(const OpRecord& op, Device result, const Tensor& out) {
  ARETE_CHECK(out.device() == result,
              DeviceError(op.name, "Expected out tensor to have device " + result.to_string() +
                                       ", but got " + out.device().to_string() + " instead"));
}

bool keeps_shape(const OpRecord& op, const Tensor& out, IntList sizes) {
  return op.keeps_out_shape && out.numel() == Layout(sizes).numel();
}

void write_result(Tensor& out, const Tensor& result, const OpRecord& op) {
  check_out_device(op, result.device(), out);
  check_out_dtype(op, result.dtype(), out.dtype());
  if (keeps_shape(op, out, result.sizes()) && !std::ranges::equal(out.sizes(), result.sizes()))
    return void(out.copy_(result.view(out.sizes())));
  fit(out, result.sizes(), op.name.c_str());
  const bool same_memory = result.storage() == out.storage();
  if (same_memory && result.layout() == out.layout() && result.dtype() == out.dtype())
    out.bump_version();
  else
    out.copy_(same_memory ? result.clone() : result);
}

bool shares_memory(const Call& call, const Tensor& out) {
  bool shares = false;
  for_each_tensor(call, [&](size_t, const Tensor& t) {
    shares = shares || (t.defined() && t.storage() == out.storage());
  });
  return shares;
}

// Sets the thread's destination while it lives.
class DestinationGuard : ModesGuard {
 public:
  explicit DestinationGuard(const Tensor* out) : out_(out) { modes().destination = &out_; }

 private:
  const Tensor* out_;
};

void lower_into(const Call& call, std::span<Tensor* const> outs) {
  const OpRecord& op = call.op;
  const OutputSpecs specs = inferred(call);
  Results outputs;
  for (size_t i = 0; i < outs.size(); ++i) {
    Tensor& out = *outs[i];
    check_out_device(op, *specs[i].device, out);
    check_out_dtype(op, specs[i].dtype, out.dtype());
    const bool shares = shares_memory(call, out);
    if (!shares && !keeps_shape(op, out, specs[i].sizes)) fit(out, specs[i].sizes, op.name.c_str());
    outputs.push_back(!shares && may_hold(out, specs[i]) ? alias(out, out.layout())
                                                         : empty_tensor(specs[i]));
  }
  if (!specs[0].device->is_meta())
    op.lower(call, {outputs.data(), outputs.size()}, target(*specs[0].device));
  else
    refuse_sparse(call);
  for (size_t i = 0; i < outs.size(); ++i) write_result(*outs[i], outputs[i], op);
}

}  // namespace

void call_into(std::span<Tensor* const> outs, const OpRecord& op, std::span<const Arg> args) {
  // As in PyTorch, the dtype of an output that is given says how to compute.
  std::optional<WithoutAutocast> exact;
  if (modes().word & Modes::kAutocast) exact.emplace();
  const Schema& schema = schema_of(op);
  ARETE_CHECK(!outs.empty() && (schema.returns.size() == outs.size() || schema.returns.size() == 1),
              ValueError(op.name, "argument 'out' must hold a tensor for each result")
                  .expected(std::to_string(schema.returns.size()))
                  .got(std::to_string(outs.size())));
  if (vmaps::may_be()) [[unlikely]] {
    uint64_t level = vmaps::level_of(Call(op, args));
    for (const Tensor* out : outs) level = std::max(level, vmaps::level_of({out, 1}));
    if (level) {
      const Results results = call_all(op, args);
      for (size_t i = 0; i < outs.size(); ++i) {
        check_out_device(op, results[i].device(), *outs[i]);
        check_out_dtype(op, results[i].dtype(), outs[i]->dtype());
        check_result(*outs[i], results[i].sizes(), results[i].dtype(), op.name);
        outs[i]->copy_(results[i]);
      }
      return;
    }
  }
  // Norms of complex tensors are real: out does not say how to compute them.
  const bool complex = is_of_complex(Call(op, args));
  SmallVector<Arg, 8> given(args.begin(), args.end());
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].kind() != Arg::Kind::none) continue;
    if (schema.args[i].type == "dtype?" && !complex && !is_complex(outs[0]->dtype()))
      given[i] = Arg(outs[0]->dtype());
    if (schema.args[i].type == "device?") given[i] = Arg(outs[0]->device());
  }
  const Call call(op, {given.data(), given.size()});
  for (Tensor* out : outs) {
    ARETE_CHECK(!modes().grad_enabled || (!out->requires_grad() && !needs_history(call)),
                AutogradError(op.name, op.name + "(): functions with out=... arguments don't "
                                                 "support automatic differentiation, but one of "
                                                 "the arguments requires grad."));
    check_in_place(*out, op.name.c_str(), false);
    if (out->storage()->has_pending_copies()) [[unlikely]]
      wait_for_copies(call, *out);
  }
  tracing::CallScope traced(op, {given.data(), given.size()}, false, {outs.data(), outs.size()});
  const bool composed = is_composed_for_complex(call);
  on_device(call, [&] {
    if (op.pointwise && outs.size() == 1 && call_pointwise_out(call, *outs[0], fit)) return;
    if (op.lower && !composed) return lower_into(call, outs);
    const bool shares =
        std::ranges::any_of(outs, [&](const Tensor* out) { return shares_memory(call, *out); });
    Results results;
    {
      const DestinationGuard guard(outs.size() == 1 && !shares ? outs[0] : nullptr);
      results = run_path(call);
    }
    ARETE_CHECK(results.size() == outs.size(),
                ValueError(op.name, "argument 'out' must hold a tensor for each result")
                    .expected(std::to_string(results.size()))
                    .got(std::to_string(outs.size())));
    for (size_t i = 0; i < outs.size(); ++i) write_result(*outs[i], results[i], op);
  });
  Results written;
  for (const Tensor* out : outs) written.push_back(*out);
  traced.end({written.data(), written.size()});
}

Tensor& call_out(Tensor& out, const OpRecord& op, std::initializer_list<Arg> args) {
  Tensor* const outs[] = {&out};
  call_into(outs, op, {args.begin(), args.size()});
  return out;
}

}  // namespace arete::ops
