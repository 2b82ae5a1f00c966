// Losses but cross entropy: one pointwise record each and the reduction.
#include "arete/ops/loss.h"

#include "arete/base/warn.h"
#include "arete/ops/anomaly.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/complex_form.h"
#include "arete/ops/element_loss.h"
#include "arete/ops/nll_util.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/vmap.h"

namespace arete {
namespace ops {

Tensor apply_reduction(const Tensor& t, std::string_view reduction, const char* op) {
  if (reduction == "mean") return t.mean();
  if (reduction == "sum") return t.sum();
  ARETE_CHECK(reduction == "none",
              ValueError(op, std::string(reduction) + " is not a valid value for reduction")
                  .argument("reduction")
                  .expected("\"none\", \"mean\" or \"sum\""));
  return t;
}

expr::Value ElementLoss::value(std::span<const expr::Value> v, expr::Type work) const {
  SmallVector<expr::Value, 8> given;
  for (const expr::Value& x : v) given.push_back(cast(x, work));
  return body_({given.data(), given.size()});
}

Tensor ElementLoss::operator()(std::initializer_list<Tensor> inputs,
                               std::initializer_list<double> numbers, std::string_view reduction,
                               const char* op) {
  ARETE_ASSERT(inputs.size() == inputs_ && numbers.size() == numbers_);
  const std::span<const Tensor> tensors(inputs.begin(), inputs.size());
  const int kind = reduction_of(reduction, op);
  DType out = result_type(tensors);
  if (!is_floating(out)) out = default_dtype();
  const expr::Type work = expr::work_type(out);
  std::vector<DType> dtypes;
  uint64_t key = pack_key({kind, int(out)});
  for (const Tensor& t : tensors) {
    dtypes.push_back(t.dtype());
    key = key << 5 | uint64_t(t.dtype());
  }
  const std::vector<expr::Type> params(numbers_, work);
  const SmallVector<Scalar, 4> given(numbers.begin(), numbers.end());
  const std::span<const Scalar> scalars(given.data(), given.size());
  if (kind == kNone) {
    const expr::Program& program =
        each_.get(key, dtypes, params, {out},
                  [&](std::span<const expr::Value> v) { return std::vector{value(v, work)}; });
    return apply_program(program.shared_from_this(), tensors, scalars, op)[0];
  }
  const RowProgramPtr& program =
      reduced_.get(key, dtypes, params, {out}, [&](Rows& rows, std::span<const expr::Value> v) {
        const expr::Value x = value(v, work);
        return std::vector{kind == kMean ? rows.mean(x) : rows.sum(x)};
      });
  return apply_rows(program, tensors, scalars, {}, op)[0].view({});
}

namespace {

using expr::Value;
using Values = std::span<const Value>;

PointwiseDef loss(int inputs, int params, Value (*f)(Values)) {
  PointwiseDef d;
  d.n_inputs = inputs;
  d.n_params = params;
  d.definition = [f](Values v) { return std::vector<Value>{f(v)}; };
  d.result = PointwiseDef::Result::floating;
  return d;
}

// ---- distances ----

const OpRecord& squared_error_op =
    define("squared_error(Tensor input, Tensor target) -> Tensor")
        .doc("(input - target)^2.")
        .surface(Surface::internal)
        .pointwise(loss(2, 0, [](Values v) { return square(v[0] - v[1]); }));

const OpRecord& absolute_error_op =
    define("absolute_error(Tensor input, Tensor target) -> Tensor")
        .doc("|input - target|.")
        .surface(Surface::internal)
        .pointwise(loss(2, 0, [](Values v) { return abs(v[0] - v[1]); }))
        .complex(of_complex([](Complex a, Complex b) { return abs(a - b); },
                            [](Values v) {
                              const Complex d = sgn(complex_at(v, 0) - complex_at(v, 1)) * v[5];
                              return parts(d, -d);
                            }));

// Losses of real pairs without weights, which need no memory for all of them.
bool is_plain(const Call& c, size_t weight) {
  return !c.has(weight) && !is_complex(c.tensor(0).dtype()) && !is_complex(c.tensor(1).dtype());
}

// Losses of pairs with a weight for each, argument i: "mean" divides by the sum of the weights if
// asked, else by their number.
Tensor weighted(const Call& c, size_t i, const Tensor& losses, bool by_weight) {
  const std::string_view reduction = c[2].string();
  if (!c.has(i)) return apply_reduction(losses, reduction, c.name());
  ARETE_CHECK(c.tensor(i).layout().sizes == c.tensor(0).layout().sizes,
              ValueError(c.name(), "Weights and input must have the same size.")
                  .argument("weight")
                  .got(describe(c.tensor(i))));
  const Tensor scaled = losses.mul(c.tensor(i));
  if (by_weight && reduction == "mean") return scaled.sum().div(c.tensor(i).sum());
  return apply_reduction(scaled, reduction, c.name());
}

// Broadcasting a target is rarely meant.
void warn_of_sizes(const Call& c) {
  const Tensor &x = c.tensor(0), &target = c.tensor(1);
  if (Shape(x.sizes()) == Shape(target.sizes())) return;
  warn("Using a target size (" + to_string(target.sizes()) +
       ") that is different to the input size (" + to_string(x.sizes()) +
       "). This will likely lead to incorrect results due to broadcasting. Please ensure they have "
       "the same size.");
}

const OpRecord& mse_loss_op =
    define(
        "mse_loss(Tensor input, Tensor target, str reduction=\"mean\", Tensor? weight=None) -> "
        "Tensor")
        .autocast(Autocast::f32)
        .doc("Mean of (input - target)^2.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          warn_of_sizes(c);
          static auto* const loss =
              new ElementLoss(2, 0, [](Values v) { return square(v[0] - v[1]); });
          if (is_plain(c, 3))
            return {(*loss)({c.tensor(0), c.tensor(1)}, {}, c[2].string(), c.name())};
          return {weighted(c, 3, call(squared_error_op, {c[0], c[1]}), true)};
        });

const OpRecord& l1_loss_op =
    define(
        "l1_loss(Tensor input, Tensor target, str reduction=\"mean\", Tensor? weight=None) -> "
        "Tensor")
        .autocast(Autocast::f32)
        .doc("Mean of |input - target|.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          warn_of_sizes(c);
          const Tensor &x = c.tensor(0), &y = c.tensor(1);
          const DType common = promote_types(x.dtype(), y.dtype());
          const Tensor error =
              is_floating(common) ? call(absolute_error_op, {c[0], c[1]}) : x.sub(y).abs();
          return {weighted(c, 3, error, true)};
        });

const OpRecord& smooth_l1_loss_op =
    define(
        "smooth_l1_loss(Tensor input, Tensor target, str reduction=\"mean\", float beta=1.0) -> "
        "Tensor")
        .autocast(Autocast::f32)
        .doc("Mean of the loss that is quadratic below beta and linear beyond.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          ARETE_CHECK(
              c.real(3) >= 0,
              ValueError(c.name(), "smooth_l1_loss does not support negative values for beta."));
          warn_of_sizes(c);
          if (c.real(3) == 0) return {l1_loss(c.tensor(0), c.tensor(1), c[2].string())};
          static auto* const loss = new ElementLoss(2, 1, [](Values v) {
            // Not the square of |d|, whose second derivative is 0 at 0; NaN is squared, too.
            const Value d = v[0] - v[1], z = abs(d);
            return where(z >= v[2], z - 0.5 * v[2], 0.5 * d * d / v[2]);
          });
          return {(*loss)({c.tensor(0), c.tensor(1)}, {c.real(3)}, c[2].string(), c.name())};
        });

const OpRecord& huber_loss_op =
    define(
        "huber_loss(Tensor input, Tensor target, str reduction=\"mean\", float delta=1.0, Tensor? "
        "weight=None) -> Tensor")
        .functional(
            {"huber_loss(Tensor input, Tensor target, str reduction='mean', float delta=1.0, "
             "Tensor? weight=None)"})
        .autocast(Autocast::f32)
        .doc("Mean of the loss that is quadratic up to delta and linear beyond.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          ARETE_CHECK(
              c.real(3) > 0,
              ValueError(c.name(), "huber_loss does not support non-positive values for delta."));
          warn_of_sizes(c);
          static auto* const loss = new ElementLoss(2, 1, [](Values v) {
            const Value d = v[0] - v[1], z = abs(d);  // as in smooth_l1_loss
            return where(z >= v[2], v[2] * (z - 0.5 * v[2]), 0.5 * d * d);
          });
          const std::string_view reduction = c.has(4) ? "none" : c[2].string();
          const Tensor losses =
              (*loss)({c.tensor(0), c.tensor(1)}, {c.real(3)}, reduction, c.name());
          return {c.has(4) ? weighted(c, 4, losses, false) : losses};
        });

// ---- binary cross entropy ----

// The symbolic derivative divides by 0 at the ends of [0, 1].
const OpRecord& bce_op =
    define("bce(Tensor input, Tensor target) -> Tensor")
        .doc(
            "-(y log x + (1 - y) log(1 - x)), logarithms not below -100; NaN where an argument is "
            "not between 0 and 1.")
        .surface(Surface::internal)
        .pointwise(loss(2, 0,
                        [](Values v) {
                          const Value x = v[0], y = v[1];
                          const Value l =
                              y * max(log(x), -100.0) + (1.0 - y) * max(log1p(-x), -100.0);
                          return where((y >= 0.0) & (y <= 1.0), -l, NAN);  // NaN for such x, too
                        }))
        .gradient([](Values v) {
          const Value x = v[0], y = v[1], g = v[3];
          return std::vector{g * (x - y) / max((1.0 - x) * x, 1e-12),
                             g * (max(log1p(-x), -100.0) - max(log(x), -100.0))};
        });

// max(x, 0) + log(1 + exp(-|x|)) - x y; its derivative is sigmoid(x) - y, without a kink at 0.
const OpRecord& bce_logits_op =
    define("bce_logits(Tensor input, Tensor target) -> Tensor")
        .doc("Binary cross entropy of logits.")
        .surface(Surface::internal)
        .pointwise(loss(2, 0,
                        [](Values v) {
                          const Value x = v[0];
                          return max(x, 0.0) - x * v[1] + log1p(exp(-abs(x)));
                        }))
        .gradient([](Values v) {
          const Value x = v[0], y = v[1], g = v[3];
          return std::vector{g * (sigmoid(x) - y), -(g * x)};
        });

const OpRecord& bce_logits_weighted_op =
    define("bce_logits_weighted(Tensor input, Tensor target, Tensor pos_weight) -> Tensor")
        .doc("Binary cross entropy of logits with a factor for the positive term.")
        .surface(Surface::internal)
        .pointwise(loss(3, 0,
                        [](Values v) {
                          const Value x = v[0], y = v[1], plus = max(-x, 0.0) + log1p(exp(-abs(x)));
                          return (1.0 - y) * x + (1.0 + (v[2] - 1.0) * y) * plus;
                        }))
        .gradient([](Values v) {
          // softplus(-x) written as -log(sigmoid(x)) would lose large -x.
          const Value x = v[0], y = v[1], w = v[2], g = v[4];
          const Value plus = max(-x, 0.0) + log1p(exp(-abs(x)));
          return std::vector{g * ((1.0 - y) - (1.0 + (w - 1.0) * y) * sigmoid(-x)),
                             g * ((w - 1.0) * plus - x), g * (y * plus)};
        });

Tensor weighted(const Tensor& t, const Call& c, size_t weight_arg) {
  return c.has(weight_arg) ? t.mul(c.tensor(weight_arg)) : t;
}

// A result without NaN says that all arguments are between 0 and 1. A GPU is not asked: the host
// would wait for it.
void check_probabilities(const Call& c, const Tensor& result) {
  if (!result.device().is_cpu() || !holds_nan(all_values(result))) return;
  const NoGradGuard no_grad;
  for (size_t i : {0, 1})
    ARETE_CHECK((all_values(c.tensor(i)).ge(0) & all_values(c.tensor(i)).le(1)).all().item<bool>(),
                ValueError(c.name(), std::string("all elements of ") + (i ? "target" : "input") +
                                         " should be between 0 and 1"));
}

const OpRecord& binary_cross_entropy_op =
    define(
        "binary_cross_entropy(Tensor input, Tensor target, Tensor? weight=None, str "
        "reduction=\"mean\") -> Tensor")
        .autocast(autocast_by_device(Autocast::f32, Autocast::banned))
        .doc("Cross entropy of probabilities of two classes.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &y = c.tensor(1);
          ARETE_CHECK(
              Shape(x.sizes()) == Shape(y.sizes()),
              ValueError(c.name(), "Using a target size (" + to_string(y.sizes()) +
                                       ") that is different to the input size (" +
                                       to_string(x.sizes()) +
                                       ") is deprecated. Please ensure they have the same size."));
          const Tensor result =
              apply_reduction(weighted(call(bce_op, {x, y}), c, 2), c[3].string(), c.name());
          check_probabilities(c, result);
          return {result};
        });

const OpRecord& bce_with_logits_op =
    define(
        "binary_cross_entropy_with_logits(Tensor input, Tensor target, Tensor? weight=None, "
        "str reduction=\"mean\", Tensor? pos_weight=None) -> Tensor")
        .functional()
        .autocast(Autocast::f32)
        .doc("Cross entropy of logits of two classes.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &y = c.tensor(1);
          ARETE_CHECK(Shape(x.sizes()) == Shape(y.sizes()),
                      ValueError(c.name(), "Target size (" + to_string(y.sizes()) +
                                               ") must be the same as input size (" +
                                               to_string(x.sizes()) + ")"));
          const Tensor t =
              c.has(4) ? call(bce_logits_weighted_op, {x, y, c[4]}) : call(bce_logits_op, {x, y});
          return {apply_reduction(weighted(t, c, 2), c[3].string(), c.name())};
        });

// ---- divergence ----

const OpRecord& kl_div_point_op =
    define("kl_div_point(Tensor input, Tensor target) -> Tensor")
        .doc("target * (log target - input), 0 where target is 0, NaN where it is negative.")
        .surface(Surface::internal)
        .pointwise(loss(2, 0, [](Values v) {
          const Value t = v[1];
          return where(t == 0.0, 0.0, t * log(where(t == 0.0, 1.0, t))) - t * v[0];
        }));

const OpRecord& kl_div_log_point_op =
    define("kl_div_log_point(Tensor input, Tensor target) -> Tensor")
        .doc("exp(target) * (target - input).")
        .surface(Surface::internal)
        .pointwise(loss(2, 0, [](Values v) { return exp(v[1]) * (v[1] - v[0]); }));

const OpRecord& kl_div_op =
    define(
        "kl_div(Tensor input, Tensor target, str reduction=\"mean\", bool log_target=False) -> "
        "Tensor")
        .autocast(Autocast::f32)
        .doc("Kullback-Leibler divergence of log probabilities from target.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          if (c[2].string() == "mean")
            warn(
                "reduction: 'mean' divides the total loss by both the batch size and the support "
                "size. 'batchmean' divides only by the batch size, and aligns with the KL div math "
                "definition.");
          const Tensor t = call(c.boolean(3) ? kl_div_log_point_op : kl_div_point_op, {c[0], c[1]});
          if (c[2].string() == "batchmean") {
            const double n = c.tensor(0).dim() ? double(c.tensor(0).size(0)) : 1;
            return {t.sum().div(Scalar(n))};
          }
          return {apply_reduction(t, c[2].string(), c.name())};
        });

}  // namespace
}  // namespace ops

Tensor mse_loss(const Tensor& input, const Tensor& target, std::string_view reduction,
                const Tensor& weight) {
  return ops::call(ops::mse_loss_op, {input, target, reduction, weight});
}
Tensor l1_loss(const Tensor& input, const Tensor& target, std::string_view reduction,
               const Tensor& weight) {
  return ops::call(ops::l1_loss_op, {input, target, reduction, weight});
}
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, std::string_view reduction,
                      double beta) {
  return ops::call(ops::smooth_l1_loss_op, {input, target, reduction, beta});
}
Tensor huber_loss(const Tensor& input, const Tensor& target, std::string_view reduction,
                  double delta, const Tensor& weight) {
  return ops::call(ops::huber_loss_op, {input, target, reduction, delta, weight});
}
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight,
                            std::string_view reduction) {
  return ops::call(ops::binary_cross_entropy_op, {input, target, weight, reduction});
}
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const Tensor& weight, std::string_view reduction,
                                        const Tensor& pos_weight) {
  return ops::call(ops::bce_with_logits_op, {input, target, weight, reduction, pos_weight});
}
Tensor kl_div(const Tensor& input, const Tensor& target, std::string_view reduction,
              bool log_target) {
  return ops::call(ops::kl_div_op, {input, target, reduction, log_target});
}

}  // namespace arete

ARETE_FAMILY(loss)
