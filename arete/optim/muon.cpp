#include "arete/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "arete/ops/call.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/optim/update_internal.h"

namespace arete::optim {

template class TypedOptimizer<MuonOptions>;

namespace {

enum MuonPass : uint32_t { momentum_pass = 100, new_matrix };
using Views = std::vector<prim::View>;

// What the polynomial, applied again and again, makes of x: about U V^T for x = U S V^T.
Tensor orthogonal(Tensor x, const ParamGroup& group) {
  const double a = group.get("ns_a"), b = group.get("ns_b"), c = group.get("ns_c");
  const bool is_tall = x.size(0) > x.size(1);  // products of the shorter side are smaller
  if (is_tall) x = x.t();
  x = x / norm(x).clamp(group.get("eps"));
  for (int64_t i = 0; double(i) < group.get("ns_steps"); ++i) {
    const Tensor gram = mm(x, x.t());
    x = addmm(x, addmm(gram, gram, gram, b, c), x, a);
  }
  return is_tall ? x.t() : x;
}

double adjustment(const Tensor& param, AdjustLr how) {
  const double rows = double(param.size(0)), columns = double(param.size(1));
  return how == AdjustLr::original ? std::sqrt(std::max(1.0, rows / columns))
                                   : 0.2 * std::sqrt(std::max(rows, columns));
}

}  // namespace

void MuonOptions::check() const {
  ARETE_CHECK(
      ns_steps < 100,
      ValueError("Muon", "Number of steps must be less than 100 for computational efficiency")
          .got(ns_steps.text()));
}

void MuonOptions::check_parameter(const Tensor& param) {
  ARETE_CHECK(
      !is_complex(param.dtype()),
      TypeError("Muon", "Muon does not support complex parameters").got(ops::describe(param)));
  ARETE_CHECK(param.dim() == 2,
              ValueError("Muon",
                         "Muon only supports 2D parameters whereas we found a parameter with "
                         "size: " +
                             to_string(param.sizes()))
                  .hint("leave biases, norms and embeddings to another optimizer"));
}

void Muon::update(const ParamGroup& group, Batch& batch) {
  const bool nesterov = group.flag("nesterov");
  batch.compute(0, [](const auto& given) -> ComputedFrom<decltype(given)> {
    const auto lr = given["lr"], mu = given["momentum"];
    return {{mu, 1.0 - mu, lr, 1.0 - unfused(lr * given["weight_decay"])}, {}};
  });
  batch.unscale();
  std::vector<Tensor> updates;  // in the order of the items
  for (const Batch::Item& item : batch.items())
    updates.push_back(ops::empty_tensor(item.param.sizes(), kBFloat16, batch.device()));
  const auto update_of = [&](const Batch::Item& item) {
    return batch.view(updates[size_t(&item - batch.items().data())]);
  };
  batch.pass(
      {momentum_pass, nesterov},
      [&](const Batch::Item& item, Views& inputs, Views& outputs) {
        inputs.push_back(batch.view(batch.state(item, 0)));
        outputs.push_back(inputs.back());
        inputs.push_back(batch.view(item.grad));
        outputs.push_back(update_of(item));
      },
      [nesterov](std::span<const Value> v, const Batch::Beside& beside) {
        const Value mu = beside.numbers[0], old = expr::cast(v[0], mu.type()),
                    g = expr::cast(v[1], mu.type());
        const Value buffer = old + beside.numbers[1] * (g - old);
        return std::vector{beside.kept(buffer, old), nesterov ? g + mu * (buffer - g) : buffer};
      });
  const auto how = AdjustLr(int(group.get("adjust_lr_fn")));
  for (Tensor& u : updates)
    if (u.numel() > 0) u = orthogonal(u, group).to(batch.number_dtype()).mul_(adjustment(u, how));
  batch.pass(
      {new_matrix},
      [&](const Batch::Item& item, Views& inputs, Views& outputs) {
        inputs.push_back(batch.parameter(item));
        outputs.push_back(inputs.back());
        inputs.push_back(update_of(item));
      },
      [](std::span<const Value> v, const Batch::Beside& beside) {
        const Value p = expr::cast(v[0], v[1].type());
        return std::vector{beside.kept(p * beside.numbers[3] - beside.numbers[2] * v[1], p)};
      });
}

}  // namespace arete::optim
