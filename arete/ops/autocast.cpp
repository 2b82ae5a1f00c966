#include "arete/ops/autocast.h"

#include <unordered_map>

#include "arete/ops/call.h"

namespace arete::ops {

namespace {

// A parameter that is used several times in a region is cast once. The entry keeps the parameter,
// so that its address stays its own, and is good as long as nothing was written to it. A cast made
// where no history was recorded would cut off the gradient, so it serves such places only.
struct KeptCast {
  Tensor source, casted;
  StoragePtr storage;  // Module::to() gives a parameter another one
  uint64_t writes = 0;
  bool with_history = false, inference = false;
};

struct ThreadState : AutocastState {
  std::unordered_map<const TensorImpl*, KeptCast> kept;
};

ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

bool is_eligible(const Tensor& t, DeviceType device) {
  return t.defined() && t.device().type == device && is_floating(t.dtype()) &&
         t.dtype() != kFloat64 && size_of(t.dtype()) > 1;
}

// Calls f(tensor) for each defined tensor until it returns true.
template <class F>
bool any_tensor(std::span<const Arg> args, F&& f) {
  for (const Arg& a : args) {
    if (a.kind() == Arg::Kind::tensor && f(a.tensor())) return true;
    if (a.kind() == Arg::Kind::tensors)
      for (const Tensor& t : a.tensors())
        if (t.defined() && f(t)) return true;
  }
  return false;
}

// Where the schema has an optional argument for the dtype of the result.
std::optional<size_t> dtype_argument(const OpRecord& op) {
  const std::vector<SchemaArg>& args = schema_of(op).args;
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i].name == "dtype" && args[i].default_text == "None") return i;
  return {};
}

// The only such operator: the logarithms of rounded probabilities are of no use.
[[noreturn]] void refuse(const OpRecord& op) {
  throw AutogradError(op.name,
                      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to "
                      "autocast")
      .hint(
          "use binary_cross_entropy_with_logits or BCEWithLogitsLoss, which do the sigmoid, too, "
          "and are safe, or compute the loss outside of the region from float() values");
}

}  // namespace

AutocastState& autocast_state() { return thread_state(); }

void apply_autocast_state() {
  const AutocastState& s = autocast_state();
  uint32_t& word = modes().word;
  word = s.cpu.enabled || s.cuda.enabled ? word | Modes::kAutocast
                                         : word & ~uint32_t(Modes::kAutocast);
}

void clear_autocast_cache() { thread_state().kept.clear(); }

std::optional<DType> autocast_lower_dtype(const Tensor& t) {
  if (!(modes().word & Modes::kAutocast)) return {};
  const AutocastState::OfDevice* s = autocast_state().find(t.device().type);
  if (!s || !s->enabled || !is_eligible(t, t.device().type)) return {};
  return s->dtype;
}

Tensor autocast_cast(const Tensor& t, DType to) {
  if (t.dtype() == to) return t;
  ThreadState& state = thread_state();
  const AutocastState::OfDevice* s = state.find(t.device().type);
  // While a function is captured, the cast is a part of it.
  const bool keep = state.cache_enabled && s && to == s->dtype && t.dtype() == kFloat32 &&
                    t.requires_grad() && t.is_leaf() && !t.is_view() && state.depth > 0 &&
                    !(modes().word & Modes::kCapture);
  // A cast is none of the operators that have a class, but it has history like them.
  if (!keep) return t.to(to);
  const bool history = is_grad_enabled(), inference = is_inference_mode();
  KeptCast& kept = state.kept[t.impl()];
  if (!kept.casted.defined() || kept.writes != t.storage()->writes() || kept.casted.dtype() != to ||
      kept.storage != t.storage() || kept.with_history != history || kept.inference != inference)
    kept = {t, t.to(to), t.storage(), t.storage()->writes(), history, inference};
  return kept.casted;
}

AutocastArgs::AutocastArgs(const OpRecord& op, std::span<const Arg> args) : args_(args) {
  if (op.autocast == Autocast::none) return;
  AutocastState& state = autocast_state();
  DeviceType device{};
  const bool on = any_tensor(args, [&](const Tensor& t) {
    const AutocastState::OfDevice* s = state.find(t.device().type);
    device = t.device().type;
    return s && s->enabled;
  });
  if (!on) return;
  const Autocast c = autocast_class(op.autocast, device);
  if (c == Autocast::none) return;
  has_class_ = true;
  if (c == Autocast::banned) refuse(op);
  if (c == Autocast::lower) cast_all(args, device, state.find(device)->dtype);
  if (c == Autocast::f32) {
    if (const std::optional<size_t> dtype = dtype_argument(op))
      ask_for_f32(args, device, *dtype);
    else
      cast_all(args, device, kFloat32);
  }
  const auto is_wide = [&](const Tensor& t) {
    return is_eligible(t, device) && t.dtype() == kFloat32;
  };
  if (c == Autocast::promote && any_tensor(args, is_wide)) cast_all(args, device, kFloat32);
}

void AutocastArgs::ask_for_f32(std::span<const Arg> args, DeviceType device, size_t dtype) {
  // As PyTorch, that looks at the first argument only.
  const bool given = dtype < args.size() && !args[dtype].is_none();
  if (given || args[0].kind() != Arg::Kind::tensor || !is_eligible(args[0].tensor(), device))
    return;
  new_args_ = SmallVector<Arg, 8>(args.begin(), args.end());
  while (new_args_.size() <= dtype) new_args_.push_back(Arg());
  new_args_[dtype] = Arg(kFloat32);
  args_ = {new_args_.data(), new_args_.size()};
}

void AutocastArgs::cast_all(std::span<const Arg> args, DeviceType device, DType to) {
  const auto needs_cast = [&](const Tensor& t) {
    return is_eligible(t, device) && t.dtype() != to;
  };
  if (!any_tensor(args, needs_cast)) return;
  // Arguments point to what is cast: neither list may grow later.
  casted_.reserve(args.size());
  lists_.reserve(args.size());
  for (const Arg& a : args) {
    if (a.kind() == Arg::Kind::tensor && needs_cast(a.tensor())) {
      casted_.push_back(autocast_cast(a.tensor(), to));
      new_args_.push_back(Arg(casted_.back()));
    } else if (a.kind() == Arg::Kind::tensors) {
      std::vector<Tensor>& list = lists_.emplace_back(a.tensors().begin(), a.tensors().end());
      for (Tensor& t : list)
        if (needs_cast(t)) t = autocast_cast(t, to);
      new_args_.push_back(Arg(list));
    } else {
      new_args_.push_back(a);
    }
  }
  args_ = {new_args_.data(), new_args_.size()};
}

}  // namespace arete::ops
