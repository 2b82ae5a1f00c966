#include "arete/optim/adafactor.h"

#include <cmath>

#include "arete/ops/call.h"
#include "arete/ops/linalg.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/optim/update_internal.h"

namespace arete::optim {

template class TypedOptimizer<AdafactorOptions>;

namespace {

enum Key : size_t { step_key, row_key, column_key, variance_key };
enum Pass : uint32_t { rows_and_columns = 100, factored_update, plain_update, new_parameter };
using Views = std::vector<prim::View>;

// sqrt(mean(t^2)), 0-d.
Tensor root_mean_square(const Tensor& t, DType dtype) {
  return linalg::vector_norm(t, 2, {}, false, dtype).div_(std::sqrt(double(t.numel())));
}
Tensor mean_square(const Tensor& t, int64_t dim, DType dtype) {
  return linalg::vector_norm(t, 2, {dim}, true, dtype).square_().div_(double(t.size(dim)));
}

}  // namespace

void AdafactorOptions::check_parameter(const Tensor& param) {
  ARETE_CHECK(!is_complex(param.dtype()),
              TypeError("Adafactor", "Adafactor does not support complex parameters")
                  .got(ops::describe(param)));
}

bool Adafactor::has_state(const Tensor& param, size_t key) const {
  return key == step_key || (param.dim() > 1) == (key != variance_key);
}

Shape Adafactor::state_sizes(const Tensor& param, size_t key) const {
  Shape sizes(param.sizes());
  if (key == row_key) sizes[sizes.size() - 1] = 1;
  if (key == column_key) sizes[sizes.size() - 2] = 1;
  return sizes;
}

void Adafactor::update(const ParamGroup& group, Batch& batch) {
  const bool maximize = group.flag("maximize");
  const auto numbers = [](const auto& given) -> ComputedFrom<decltype(given)> {
    const auto lr = given["lr"], t = given.t, eps1 = given["eps1"];
    return {{pow(t, given["beta2_decay"]), min(lr, 1.0 / sqrt(t)), 1.0 - lr * given["weight_decay"],
             where(eps1 == eps1, eps1, given.constants[0]),  // NaN: not given
             given["eps2"], given["d"]},
            {}};
  };
  const DType dtype = batch.number_dtype();
  batch.compute(0, numbers, {epsilon_of(batch.items().front().param.dtype())});
  batch.unscale();

  // Views of the tensors here.
  std::deque<Tensor> made;
  const auto view = [&](Tensor t) {
    made.push_back(std::move(t));
    return batch.view(made.back());
  };
  std::vector<Tensor> updates;  // in the order of the items
  for (const Batch::Item& item : batch.items())
    updates.push_back(ops::empty_tensor(item.param.sizes(), dtype, batch.device()));
  const auto update_of = [&](const Batch::Item& item) {
    return batch.view(updates[size_t(&item - batch.items().data())]);
  };
  const auto step_along = [maximize](Value g, Value mean, Value least) {
    const Value u = rsqrt(max(mean, least * least)) * expr::cast(g, mean.type());
    return maximize ? -u : u;
  };

  if (batch.items().front().param.dim() > 1) {
    for (const size_t key : {row_key, column_key})
      batch.pass(
          {rows_and_columns},
          [&](const Batch::Item& item, Views& inputs, Views& outputs) {
            inputs.push_back(batch.view(batch.state(item, key)));
            outputs.push_back(inputs.back());
            inputs.push_back(view(mean_square(item.grad, key == row_key ? -1 : -2, dtype)));
          },
          [](std::span<const Value> v, const Batch::Beside& beside) {
            const Value old = expr::cast(v[0], v[1].type());
            return std::vector{beside.kept(old + beside.numbers[0] * (v[1] - old), old)};
          });
    batch.pass(
        {factored_update, maximize},
        [&](const Batch::Item& item, Views& inputs, Views& outputs) {
          const IntList sizes = item.param.sizes();
          const Tensor& rows = batch.state(item, row_key);
          inputs.push_back(batch.view(item.grad));
          inputs.push_back(view(rows.expand(sizes)));
          inputs.push_back(view(batch.state(item, column_key).expand(sizes)));
          inputs.push_back(view(mean(rows, {-2}, true, dtype).expand(sizes)));
          outputs.push_back(update_of(item));
        },
        [&](std::span<const Value> v, const Batch::Beside& beside) {
          const Value least = beside.numbers[3], mean = max(v[3], least);
          return std::vector{step_along(v[0], expr::cast(v[1], mean.type()) * v[2] / mean, least)};
        });
  } else {
    batch.pass(
        {plain_update, maximize},
        [&](const Batch::Item& item, Views& inputs, Views& outputs) {
          inputs.push_back(batch.view(batch.state(item, variance_key)));
          outputs.push_back(inputs.back());
          inputs.push_back(batch.view(item.grad));
          outputs.push_back(update_of(item));
        },
        [&](std::span<const Value> v, const Batch::Beside& beside) {
          const Value w = beside.numbers[0], old = expr::cast(v[0], w.type()),
                      g = expr::cast(v[1], w.type());
          const Value variance = old + w * (g * g - old);
          return std::vector{beside.kept(variance, old),
                             step_along(g, variance, beside.numbers[3])};
        });
  }
  batch.pass(
      {new_parameter},
      [&](const Batch::Item& item, Views& inputs, Views& outputs) {
        inputs.push_back(batch.parameter(item));
        outputs.push_back(inputs.back());
        inputs.push_back(update_of(item));
        const Tensor& u = updates[size_t(&item - batch.items().data())];
        inputs.push_back(view(root_mean_square(item.param.detach(), dtype)));
        inputs.push_back(view(root_mean_square(u, dtype)));
      },
      [](std::span<const Value> v, const Batch::Beside& beside) {
        const std::span<const Value> n = beside.numbers;
        const Value p = expr::cast(v[0], v[1].type());
        const Value length = n[1] * max(v[2], n[4]) / max(v[3] / n[5], 1.0);
        return std::vector{beside.kept(p * n[2] - length * v[1], p)};
      });
}

}  // namespace arete::optim
