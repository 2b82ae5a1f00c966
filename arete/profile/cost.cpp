#include "arete/profile/cost_internal.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <unordered_map>

#include "arete/ops/call.h"
#include "arete/ops/work.h"

namespace arete::profile {
namespace {

int64_t bytes_of(const Tensor& t) { return ops::bytes_under(ops::view_of(t)); }

// Operations of a pointwise record for one element: what its definition computes in f32.
double operations_per_element(const ops::OpRecord& op) {
  static std::mutex mutex;
  static std::unordered_map<const ops::OpRecord*, double> known;
  const std::lock_guard lock(mutex);
  const auto [it, fresh] = known.try_emplace(&op, 1.0);
  if (!fresh) return it->second;
  try {
    const ops::PointwiseDef& def = *op.pointwise;
    const std::vector<DType> inputs(size_t(def.n_inputs), kFloat32);
    const std::vector<expr::Type> params(size_t(def.n_params), expr::Type::f32);
    const expr::ProgramPtr program = expr::trace(def.definition, inputs, params, {});
    it->second = std::max(ops::operations_per_element(*program), 1.0);
  } catch (const std::exception&) {
    // Not for f32: bit operations and the like, one each.
  }
  return it->second;
}

}  // namespace

Cost cost_of(const ops::OpRecord& op, std::span<const ops::Arg> args,
             std::span<const Tensor> results, bool in_place) noexcept try {
  Cost cost;
  if (op.uninitialized) return cost;  // memory, and nothing in it
  const ops::Call call(op, args, in_place);
  if (op.flops) cost.flops = op.flops(call);
  // The bytes of a tensor that is touched at indices only.
  const std::optional<ops::IndexedAccess>& access = op.indexed;
  const bool at_indices = access && (!access->writes || in_place);
  const auto touched = [&](const Tensor& t) {
    const int64_t places = access->places    ? access->places(call)
                           : results.empty() ? 0
                                             : results[0].numel();
    return places * int64_t(size_of(t.dtype()));
  };
  int64_t elements = 0, inputs = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    if (at_indices && i == access->argument && args[i].kind() == ops::Arg::Kind::tensor) {
      // Old values are read where something is computed with them.
      if (!access->writes || cost.flops > 0) cost.bytes += touched(args[i].tensor());
      continue;
    }
    if (args[i].kind() == ops::Arg::Kind::tensor) {
      cost.bytes += bytes_of(args[i].tensor());
      inputs = std::max(inputs, args[i].tensor().numel());
    }
    if (args[i].kind() == ops::Arg::Kind::tensors)
      for (const Tensor& t : args[i].tensors())
        if (t.defined()) cost.bytes += bytes_of(t);
  }
  for (const Tensor& t : results) {
    if (!t.defined()) continue;
    cost.bytes += at_indices && access->writes ? touched(t) : bytes_of(t);
    elements += t.numel();
  }
  if (op.flops) return cost;
  if (op.pointwise)
    cost.flops = operations_per_element(op) * double(elements);
  else if (inputs > 0)
    cost.flops = double(std::max(inputs, elements));  // a reduction: one for each element read
  return cost;
} catch (...) {
  return {};  // a figure is not worth a failed call
}

}  // namespace arete::profile
