#include "arete/nn/utils.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "arete/core/modes.h"
#include "arete/expr/value.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/target.h"
#include "arete/prim/backend.h"

namespace arete::nn::utils {

namespace {

std::vector<Tensor> gradients_of(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> grads;
  for (const Tensor& p : parameters)
    if (Tensor g = p.grad(); g.defined()) grads.push_back(std::move(g));
  return grads;
}

// Tensors of one device and dtype: one launch.
using Batch = std::vector<const Tensor*>;
std::vector<Batch> batched(const std::vector<Tensor>& tensors) {
  std::vector<Batch> batches;
  for (const Tensor& t : tensors) {
    const auto fits = [&](const Batch& b) {
      return b[0]->device() == t.device() && b[0]->dtype() == t.dtype();
    };
    auto b = std::ranges::find_if(batches, fits);
    if (b == batches.end()) {
      b = batches.insert(b, Batch());
      b->reserve(tensors.size());
    }
    b->push_back(&t);
  }
  return batches;
}

// Rewrites all tensors in place with one program: element -> body(element, `factor` if it is
// defined, number); the number has the type of what is before it.
using Body = expr::Value (*)(std::span<const expr::Value>);
void rewrite(const std::vector<Tensor>& tensors, const Tensor& factor, Body body, double number) {
  for (const Batch& batch : batched(tensors)) {
    const DType dtype = batch[0]->dtype();
    std::vector<DType> types{dtype};
    Tensor local;
    if (factor.defined()) {
      local = factor.to(batch[0]->device());
      types.push_back(local.dtype());
    }
    const expr::Type params[] = {expr::compute_type(types.back())};
    const DType outs[] = {dtype};
    const expr::ProgramPtr program = expr::trace(
        [&](std::span<const expr::Value> v) -> std::vector<expr::Value> { return {body(v)}; },
        types, params, outs);
    std::vector<prim::View> inputs, outputs;
    int64_t n = 0;
    inputs.reserve(batch.size() * types.size());
    outputs.reserve(batch.size());
    // From the last to the first: whoever read them just before, in their order, has left the last
    // ones in the device's cache.
    for (size_t k = batch.size(); k-- > 0;) {
      const Tensor& t = *batch[k];
      t.bump_version();
      if (t.numel() == 0 || t.is_meta()) continue;
      ++n;
      inputs.push_back(ops::view_of(t));
      outputs.push_back(ops::view_of(t));
      if (local.defined()) inputs.push_back(ops::view_of(local));
    }
    if (n == 0) continue;
    const expr::Literal literal{.f = number};
    ops::target(batch[0]->device())
        .multi_pointwise({.program = program.get(),
                          .n_tensors = n,
                          .inputs = inputs,
                          .outputs = outputs,
                          .params = {&literal, 1}});
  }
}

// What is added up (or compared) for a norm of one order; param: the order.
struct Norm {
  prim::Monoid monoid;
  expr::Value (*term)(expr::Value x, expr::Value order);
};
Norm norm_of(double order) {
  using expr::Value;
  if (std::isinf(order))
    return {order > 0 ? prim::Monoid::max : prim::Monoid::min,
            [](Value x, Value) { return expr::abs(x); }};
  if (order == 2) return {prim::Monoid::sum, [](Value x, Value) { return x * x; }};
  if (order == 1) return {prim::Monoid::sum, [](Value x, Value) { return expr::abs(x); }};
  if (order == 0)
    return {prim::Monoid::sum, [](Value x, Value) { return expr::where(x != 0.0, 1.0, x * 0.0); }};
  return {prim::Monoid::sum, [](Value x, Value p) { return expr::pow(expr::abs(x), p); }};
}

// One number for each tensor of one device and dtype.
Tensor partial_norms(const Batch& tensors, const Norm& norm, double order) {
  const DType dtype = tensors[0]->dtype(), work = dtype == kFloat64 ? kFloat64 : kFloat32;
  const expr::Type type = expr::compute_type(work);
  const DType types[] = {dtype}, outs[] = {work};
  const expr::Type params[] = {type};
  const expr::ProgramPtr program = expr::trace(
      [&](std::span<const expr::Value> v) {
        return std::vector{norm.term(expr::cast(v[0], type), v[1])};
      },
      types, params, outs);
  std::vector<prim::View> inputs;
  inputs.reserve(tensors.size());
  for (const Tensor* t : tensors)
    // An empty tensor has no largest element; it adds nothing to a sum either.
    if (t->numel() > 0) inputs.push_back(ops::view_of(*t));
  const Tensor result =
      ops::empty_tensor({std::max<int64_t>(int64_t(inputs.size()), 1)}, work, tensors[0]->device());
  if (tensors[0]->is_meta()) return result;
  if (inputs.empty()) return Tensor(result).zero_();
  const expr::Literal literal{.f = order};
  ops::target(tensors[0]->device())
      .multi_reduce({.monoid = norm.monoid,
                     .prologue = program.get(),
                     .inputs = inputs,
                     .out = ops::view_of(result),
                     .params = {&literal, 1}});
  return result;
}

void scale_to_norm(const std::vector<Tensor>& grads, double max_norm, const Tensor& total) {
  if (grads.empty()) return;
  rewrite(
      grads, total,
      [](std::span<const expr::Value> v) {
        const expr::Value factor = min(v[2] / (v[1] + 1e-6), 1.0);
        return v[0] * expr::cast(factor, v[0].type());
      },
      max_norm);
}

}  // namespace

Tensor get_total_norm(const std::vector<Tensor>& tensors, double norm_type) {
  const NoGradGuard no_grad;
  if (tensors.empty()) return zeros({});
  // Without the root at the end the parts simply add up: one reduction for each device and dtype.
  std::vector<Tensor> parts;
  DType widest = kFloat32;
  const Norm norm = norm_of(norm_type);
  for (const Batch& batch : batched(tensors)) {
    parts.push_back(partial_norms(batch, norm, norm_type));
    if (parts.back().dtype() == kFloat64) widest = kFloat64;
  }
  for (Tensor& p : parts) p = p.to(parts[0].device(), widest);
  const Tensor all = parts.size() == 1 ? parts[0] : cat(parts);
  if (norm.monoid == prim::Monoid::max) return amax(all);
  if (norm.monoid == prim::Monoid::min) return amin(all);
  if (norm_type == 0) return all.sum();
  return norm_type == 2 ? sqrt(all.sum()) : pow(all.sum(), Scalar(1 / norm_type));
}

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  const NoGradGuard no_grad;
  const std::vector<Tensor> grads = gradients_of(parameters);
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
  scale_to_norm(gradients_of(parameters), max_norm, total_norm);
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  const NoGradGuard no_grad;
  rewrite(
      gradients_of(parameters), {},
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
