#include "arete/nn/utils.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "arete/core/modes.h"
#include "arete/expr/value.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/multi.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/sparse.h"

namespace arete::nn::utils {

namespace {

// What there is to be read and written: of sparse gradients each place once.
std::vector<Tensor> elements_of(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> elements;
  for (const Tensor& p : parameters) {
    Tensor g = p.grad();
    if (!g.defined()) continue;
    if (is_sparse(g)) p.set_grad(g = ops::coalesce(g));
    elements.push_back(ops::elements_of(g));
  }
  return elements;
}

// Rewrites all tensors in place with one program: element -> body(element, `factor` if it is
// defined, number); the number has the type of what is before it.
using Body = expr::Value (*)(std::span<const expr::Value>);
void rewrite(const char* name, const std::vector<Tensor>& tensors, const Tensor& factor, Body body,
             double number) {
  for (const std::vector<size_t>& group : ops::by_device_and_dtype(tensors)) {
    const Device device = tensors[group[0]].device();
    const DType outs[] = {tensors[group[0]].dtype()};
    std::vector<DType> types{outs[0]};
    Tensor local;
    if (factor.defined()) {
      local = factor.to(device);
      types.push_back(local.dtype());
    }
    const expr::Type params[] = {expr::compute_type(types.back())};
    const expr::ProgramPtr program = expr::trace(
        [&](std::span<const expr::Value> v) -> std::vector<expr::Value> { return {body(v)}; },
        types, params, outs);
    std::vector<prim::View> inputs, outputs;
    inputs.reserve(group.size() * types.size());
    outputs.reserve(group.size());
    // From the last to the first: whoever read them just before, in their order, has left the last
    // ones in the device's cache.
    for (size_t k = group.size(); k-- > 0;) {
      const Tensor& t = tensors[group[k]];
      if (t.numel() == 0) continue;
      inputs.push_back(ops::view_of(t));
      outputs.push_back(ops::view_of(t));
      if (local.defined()) inputs.push_back(ops::view_of(local));
    }
    const expr::Literal literal{.f = number};
    ops::run_programs(name, *program, device, int64_t(outputs.size()), inputs, outputs,
                      {&literal, 1});
  }
}

void scale_to_norm(const std::vector<Tensor>& grads, double max_norm, const Tensor& total) {
  if (grads.empty()) return;
  rewrite(
      "clip_grad_norm", grads, total,
      [](std::span<const expr::Value> v) {
        const expr::Value factor = min(v[2] / (v[1] + 1e-6), 1.0);
        return v[0] * expr::cast(factor, v[0].type());
      },
      max_norm);
}

}  // namespace

Tensor get_total_norm(const std::vector<Tensor>& given, double norm_type) {
  const NoGradGuard no_grad;
  if (given.empty()) return zeros({});
  std::vector<Tensor> tensors;
  for (const Tensor& t : given)
    tensors.push_back(is_sparse(t) ? ops::elements_of(ops::coalesce(t)) : t);
  // Without the root at the end the parts simply add up: one reduction for each device and dtype.
  std::vector<Tensor> parts;
  DType widest = kFloat32;
  for (const std::vector<size_t>& group : ops::by_device_and_dtype(tensors)) {
    const DType dtype = tensors[group[0]].dtype() == kFloat64 ? kFloat64 : kFloat32;
    if (dtype == kFloat64) widest = kFloat64;
    std::vector<Tensor> some = ops::at_positions(tensors, group);
    // An empty tensor has no largest element; it adds nothing to a sum either.
    std::erase_if(some, [](const Tensor& t) { return t.numel() == 0; });
    parts.push_back(some.empty() ? zeros({1}, {dtype, tensors[group[0]].device()})
                                 : ops::powers_of_each(some, norm_type, dtype));
  }
  for (Tensor& p : parts) p = p.to(parts[0].device(), widest);
  const Tensor all = parts.size() == 1 ? parts[0] : cat(parts);
  const prim::Monoid monoid = ops::monoid_of_order(norm_type);
  if (monoid == prim::Monoid::max) return amax(all);
  if (monoid == prim::Monoid::min) return amin(all);
  return ops::root_of_powers(all.sum(), norm_type);
}

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  const NoGradGuard no_grad;
  const std::vector<Tensor> grads = elements_of(parameters);
  const Tensor total = get_total_norm(grads, norm_type);
  if (error_if_nonfinite)
    ARETE_CHECK(std::isfinite(total.item<double>()),
                ValueError("clip_grad_norm_",
                           "The total norm of order " + std::to_string(norm_type) +
                               " for gradients from `parameters` is non-finite, so it cannot be "
                               "clipped")
                    .got(total.item().to_string()));
  scale_to_norm(grads, max_norm, total);
  return total;
}

void clip_grads_with_norm_(const std::vector<Tensor>& parameters, double max_norm,
                           const Tensor& total_norm) {
  const NoGradGuard no_grad;
  scale_to_norm(elements_of(parameters), max_norm, total_norm);
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  const NoGradGuard no_grad;
  rewrite(
      "clip_grad_value", elements_of(parameters), {},
      [](std::span<const expr::Value> v) { return min(max(v[0], -v[1]), v[1]); }, clip_value);
}

Tensor parameters_to_vector(const std::vector<Tensor>& parameters) {
  ARETE_CHECK(!parameters.empty(), ValueError("parameters_to_vector", "there are no parameters"));
  std::vector<Tensor> flat;
  for (const Tensor& p : parameters) flat.push_back(p.reshape({-1}));
  return cat(flat);
}

void vector_to_parameters(const Tensor& vector, const std::vector<Tensor>& parameters) {
  const NoGradGuard no_grad;
  int64_t total = 0;
  for (const Tensor& p : parameters) total += p.numel();
  ARETE_CHECK(vector.dim() == 1 && vector.numel() == total,
              ValueError("vector_to_parameters",
                         "the vector must have as many elements as all "
                         "parameters together")
                  .expected("[" + std::to_string(total) + "]")
                  .got(to_string(vector.sizes())));
  int64_t at = 0;
  for (const Tensor& p : parameters) {
    Tensor(p).copy_(vector.narrow(0, at, p.numel()).reshape(p.sizes()));
    at += p.numel();
  }
}

}  // namespace arete::nn::utils
