#include "arete/ops/multi.h"

#include <algorithm>
#include <cmath>

#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/expr/program_cache.h"
#include "arete/ops/call.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/target.h"

namespace arete::ops {

namespace {

using prim::View;

// Listeners hear of tensors.
std::vector<Tensor> tensors_over(std::span<const View> views) {
  std::vector<Tensor> tensors;
  tensors.reserve(views.size());
  for (const View& v : views) {
    const StoragePtr storage(const_cast<Storage*>(v.storage));
    const int64_t bytes = v.data ? v.data - storage->data() : 0;
    tensors.emplace_back(IntrusivePtr<TensorImpl>(new TensorImpl(
        storage, Layout(v.sizes, v.strides, bytes / int64_t(size_of(v.dtype))), v.dtype)));
  }
  return tensors;
}

// Tells of a run of a program while it lives.
class Told {
 public:
  Told(const char* name, const expr::Program& program, std::span<const View> inputs,
       std::span<const expr::Literal> params)
      : program_{.program = &program, .params = params},
        inputs_(tensors_over(inputs)),
        args_{Arg(program_), Arg(inputs_)},
        scope_(program_record(name), {args_, 2}, false) {}
  void end(std::vector<Tensor> results) { scope_.end({results.data(), results.size()}); }

 private:
  const AppliedProgram program_;
  const std::vector<Tensor> inputs_;
  const Arg args_[2];
  tracing::CallScope scope_;
};

template <class F>
void run(const char* name, const expr::Program& program, Device device,
         std::span<const View> inputs, std::span<const View> outputs,
         std::span<const expr::Literal> params, F&& launch) {
  if (outputs.empty() || device.is_meta()) return;
  modes().current_op = name;
  // Host memory that a copy still reads or writes.
  for (const View& v : outputs) wait_to_write(*v.storage);
  std::optional<Told> told;
  if (tracing::listener() || modes().word & Modes::kObserve)
    told.emplace(name, program, inputs, params);
  launch(target(device));
  for (const View& v : outputs) const_cast<Storage*>(v.storage)->bump_version();
  if (told) told->end(tensors_over(outputs));
}

}  // namespace

void run_program(const char* name, const expr::Program& program, Device device,
                 std::span<const View> inputs, std::span<const View> outputs,
                 std::span<const expr::Literal> params) {
  run(name, program, device, inputs, outputs, params, [&](prim::Primitives& p) {
    p.pointwise({.program = &program, .inputs = inputs, .outputs = outputs, .params = params});
  });
}

void run_programs(const char* name, const expr::Program& program, Device device, int64_t n,
                  std::span<const View> inputs, std::span<const View> outputs,
                  std::span<const expr::Literal> params) {
  run(name, program, device, inputs, outputs, params, [&](prim::Primitives& p) {
    p.multi_pointwise({.program = &program,
                       .n_tensors = n,
                       .inputs = inputs,
                       .outputs = outputs,
                       .params = params});
  });
}

Tensor reduce_each(const char* name, prim::Monoid monoid, const expr::Program& program,
                   std::span<const Tensor> tensors, std::span<const expr::Literal> params) {
  const Device device = tensors[0].device();
  std::vector<View> inputs;
  inputs.reserve(tensors.size());
  for (const Tensor& t : tensors) inputs.push_back(view_of(t));
  const Tensor result = empty_tensor({int64_t(tensors.size())}, program.outputs()[0].dtype, device);
  const View out = view_of(result);
  run(name, program, device, inputs, {&out, 1}, params, [&](prim::Primitives& p) {
    p.multi_reduce(
        {.monoid = monoid, .prologue = &program, .inputs = inputs, .out = out, .params = params});
  });
  return result;
}

prim::Monoid monoid_of_order(double order) {
  if (!std::isinf(order)) return prim::Monoid::sum;
  return order > 0 ? prim::Monoid::max : prim::Monoid::min;
}

Tensor powers_of_each(std::span<const Tensor> tensors, double order, DType dtype) {
  using expr::Value;
  const expr::Type type = expr::compute_type(dtype);
  const int kind = order == 0 || order == 1 || order == 2 ? int(order) : std::isinf(order) ? 3 : 4;
  static auto& cache = *new expr::ProgramCache;
  const expr::Program& program =
      cache.get(pack_key({int(tensors[0].dtype()), int(dtype), kind}), {tensors[0].dtype()}, {type},
                {dtype}, [&](std::span<const Value> v) {
                  const Value x = expr::cast(v[0], type);
                  if (order == 2) return std::vector{x * x};
                  if (order == 0) return std::vector{where(x != 0.0, 1.0, x * 0.0)};
                  if (order == 1 || std::isinf(order)) return std::vector{abs(x)};
                  return std::vector{pow(abs(x), v[1])};
                });
  const expr::Literal literal{.f = order};
  return reduce_each("norm", monoid_of_order(order), program, tensors, {&literal, 1});
}

Tensor root_of_powers(const Tensor& powers, double order) {
  if (std::isinf(order) || order == 0 || order == 1) return powers;
  return order == 2 ? sqrt(powers) : pow(powers, Scalar(1 / order));
}

std::vector<std::vector<size_t>> by_device_and_dtype(std::span<const Tensor> tensors) {
  std::vector<std::vector<size_t>> groups;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto fits = [&](const std::vector<size_t>& g) {
      const Tensor& first = tensors[g.front()];
      return first.device() == tensors[i].device() && first.dtype() == tensors[i].dtype();
    };
    auto group = std::ranges::find_if(groups, fits);
    if (group == groups.end()) {
      group = groups.emplace(group);
      group->reserve(tensors.size());
    }
    group->push_back(i);
  }
  return groups;
}

std::vector<Tensor> at_positions(std::span<const Tensor> tensors, std::span<const size_t> where) {
  std::vector<Tensor> some;
  some.reserve(where.size());
  for (size_t i : where) some.push_back(tensors[i]);
  return some;
}

}  // namespace arete::ops
