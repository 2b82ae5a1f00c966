// cross_entropy and nll_loss (declared in loss.h). Classes without label smoothing go to the fused
// softmax_nll, the others are compositions.
#include <algorithm>

#include "arete/expr/program_cache.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/loss.h"
#include "arete/ops/nll_util.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/rows.h"
#include "arete/ops/softmax.h"
#include "arete/ops/vmap.h"

namespace arete {
namespace ops {
namespace {

using expr::Value;
using Values = std::span<const Value>;

// The loss of a target (its class, what was picked for it[, its weight], the class to ignore).
Value loss_of(Values v, bool weighted) {
  return where(v[0] == v.back(), 0.0, weighted ? -v[1] * v[2] : -v[1]);
}
const expr::Program& losses_program(DType t, bool weighted) {
  static auto* const cache = new expr::ProgramCache;
  return cache->get(
      pack_key({int(t), weighted}), weighted ? std::vector{kInt64, t, t} : std::vector{kInt64, t},
      {expr::Type::i64}, {t}, [=](Values v) { return std::vector{loss_of(v, weighted)}; });
}
const RowProgramPtr& mean_loss_program(DType t, bool weighted) {
  static auto* const cache = new RowProgramCache;
  return cache->get(pack_key({int(t), weighted}),
                    weighted ? std::vector{kInt64, t, t} : std::vector{kInt64, t},
                    {expr::Type::i64}, {t}, [=](Rows& rows, Values v) {
                      const Value one = weighted ? v[2] : constant_like(v[1], 1.0);
                      const Value counted = where(v[0] == v.back(), 0.0, one);
                      return std::vector{rows.sum(loss_of(v, weighted)) / rows.sum(counted)};
                    });
}

Tensor negative_log_likelihood(const char* op, const Tensor& logp, const Tensor& target,
                               const Tensor& weight, int64_t ignore, int reduction) {
  check_targets(op, logp, target);
  const int64_t dim = int64_t(class_dim(logp)), classes = logp.size(dim);
  check_range(op, target, classes, ignore);
  const Scalar params[] = {Scalar(ignore), Scalar(classes)};
  const Tensor place =
      apply_program(class_to_read().shared_from_this(), {&target, 1}, params, op)[0];
  std::vector<Tensor> inputs{target, logp.gather(dim, place.unsqueeze(dim)).squeeze(dim)};
  if (weight.defined()) {
    check_weight(op, logp, weight);
    inputs.push_back(weight.index_select(0, place.reshape({place.numel()})).view(place.sizes()));
  }
  const std::span<const Scalar> ignored(params, 1);
  if (reduction == kMean) {
    const RowProgramPtr& mean = mean_loss_program(logp.dtype(), weight.defined());
    return apply_rows(mean, inputs, ignored, {}, op)[0].view({});
  }
  const expr::ProgramPtr losses = losses_program(logp.dtype(), weight.defined()).shared_from_this();
  return reduction == kNone
             ? apply_program(losses, inputs, ignored, op)[0]
             : apply_reduce(losses, prim::Monoid::sum, inputs, ignored, {}, false, op);
}

// The loss of a row of logits with smoothed labels, and what counts for it in a mean. Inputs: the
// row, the numbers of classes, the row's class, its target[, weights of classes]; parameters: how
// much is smoothed, and that by the number of classes; the target to ignore.
const RowProgramPtr& smoothed_program(DType x, bool weighted) {
  static auto* const cache = new RowProgramCache;
  const expr::Type work = expr::work_type(x);
  const DType out = expr::work_dtype(x);
  std::vector<DType> inputs{x, kInt32, kInt32, kInt64};
  if (weighted) inputs.push_back(x);
  return cache->get(pack_key({int(x), weighted}), inputs, {work, work, expr::Type::i64}, {out, out},
                    [=](Rows& rows, Values v) {
                      const size_t n = 4 + weighted;
                      // Of no class where the target is ignored.
                      const Value is_own = (v[1] == v[2]) & (v[3] != v[n + 2]);
                      const Value top = rows.reduce(prim::Monoid::max, v[0], false);
                      const Value lse = log(rows.sum(exp(v[0] - top))) + top;
                      const Value own = rows.sum(where(is_own, v[0], 0.0));
                      const Value counts = rows.sum(where(is_own, constant_like(v[0], 1.0), 0.0));
                      const Value weight = weighted ? rows.sum(where(is_own, v[4], 0.0)) : counts;
                      const Value each = lse - v[0];
                      const Value smooth = rows.sum(weighted ? each * v[4] : each);
                      const Value loss = (1.0 - v[n]) * weight * (lse - own) + v[n + 1] * smooth;
                      return std::vector{where(counts == 0, 0.0, loss), weight};
                    });
}

Tensor smoothed_cross_entropy(const char* op, const Tensor& x, const Tensor& target,
                              const Tensor& weight, int64_t ignore, int reduction,
                              double smoothing) {
  const int64_t dim = int64_t(class_dim(x)), classes = x.size(dim);
  check_range(op, target, classes, ignore);
  const Scalar places[] = {Scalar(ignore), Scalar(classes)};
  const Tensor place =
      apply_program(class_to_read().shared_from_this(), {&target, 1}, places, op)[0];
  const Tensor numbers = arange(classes, TensorOptions(kInt32, x.device()));
  // What is read is the class itself; that it is there is checked by reading.
  const Tensor own = numbers.index_select(0, place.reshape({place.numel()})).view(place.sizes());
  Shape along(size_t(x.dim()), 1);
  along[size_t(dim)] = classes;
  std::vector<Tensor> inputs{x, numbers.view(along), own.unsqueeze(dim), target.unsqueeze(dim)};
  if (weight.defined()) inputs.push_back(weight.view(along));
  const Scalar params[] = {Scalar(smoothing), Scalar(smoothing / double(classes)), Scalar(ignore)};
  const int64_t dims[] = {dim};
  const Results r =
      apply_rows(smoothed_program(x.dtype(), weight.defined()), inputs, params, dims, op);
  if (reduction == kNone) return r[0].squeeze(dim).to(x.dtype());
  static auto* const cache = new RowProgramCache;
  const bool mean = reduction == kMean;
  const DType t = r[0].dtype();
  const RowProgramPtr& total = cache->get(pack_key({int(t), int(x.dtype()), mean}), {t, t}, {},
                                          {x.dtype()}, [=](Rows& rows, Values v) {
                                            const Value sum = rows.sum(v[0]);
                                            return std::vector{mean ? sum / rows.sum(v[1]) : sum};
                                          });
  return apply_rows(total, {r.data(), r.size()}, {}, {}, op)[0].view({});
}

Tensor probability_loss(const char* op, const Tensor& x, const Tensor& target, const Tensor& weight,
                        int reduction, double smoothing) {
  ARETE_CHECK(
      Shape(x.sizes()) == Shape(target.sizes()),
      ValueError(op,
                 "Expected floating point type for target with class probabilities to have the "
                 "shape of input")
          .argument("target")
          .expected(to_string(x.sizes()))
          .got(describe(target)));
  const int64_t dim = int64_t(class_dim(x)), classes = x.size(dim);
  Tensor t = target;
  if (smoothing > 0) t = t.mul(Scalar(1 - smoothing)).add(Scalar(smoothing / double(classes)));
  Tensor terms = log_softmax(x, dim).mul(t);
  if (weight.defined()) {
    check_weight(op, x, weight);
    Shape sizes(size_t(x.dim()), 1);
    sizes[size_t(dim)] = classes;
    terms = terms.mul(weight.view(sizes));
  }
  const Tensor loss = terms.sum(dim).neg();
  if (reduction == kNone) return loss;
  if (reduction == kSum) return loss.sum();
  return loss.sum().div(Scalar(double(x.numel()) / double(std::max<int64_t>(classes, 1))));
}

// Under autocast losses are f32. softmax_nll reads logits in half types for one, the others cast.
Tensor wide(const Tensor& t) {
  return t.defined() && autocast_lower_dtype(t) ? autocast_cast(t, kFloat32) : t;
}

Tensor cross_entropy_by_parts(const Tensor& x, const Tensor& target_in, const Tensor& weight,
                              int64_t ignore, std::string_view reduction_text, double smoothing) {
  const char* op = "cross_entropy";
  const int reduction = reduction_of(reduction_text, op);
  ARETE_CHECK(smoothing >= 0 && smoothing <= 1,
              ValueError(op, "label_smoothing must be between 0.0 and 1.0. Got: " +
                                 std::to_string(smoothing)));
  ARETE_CHECK(x.dim() > 0,
              ValueError(op, "input must have at least one dimension").argument("input"));
  if (is_floating(target_in.dtype()) && target_in.dim() == x.dim()) {
    ARETE_CHECK(ignore < 0,
                ValueError(op, "ignore_index is not supported for floating point target"));
    return probability_loss(op, wide(x), wide(target_in), wide(weight), reduction, smoothing);
  }
  Tensor target = is_integer(target_in.dtype()) ? target_in.to(kInt64) : target_in;
  check_targets(op, x, target);
  target = without_list(x, target);
  if (weight.defined()) {
    check_weight(op, x, weight);
    check_weight_dtype(op, wide(x), wide(weight));
  }
  if (smoothing == 0 && !(weight.defined() && will_record(weight)))
    return softmax_nll(x, target, weight, ignore, reduction);
  if (smoothing > 0 && x.numel() > 0)
    return smoothed_cross_entropy(op, wide(x), target, wide(weight), ignore, reduction, smoothing);
  return negative_log_likelihood(op, log_softmax(wide(x), int64_t(class_dim(x))), target, weight,
                                 ignore, reduction);
}

const OpRecord& cross_entropy_op =
    define(
        "cross_entropy(Tensor input, Tensor target, Tensor? weight=None, int ignore_index=-100, "
        "str reduction=\"mean\", float label_smoothing=0.0) -> Tensor")
        .functional({"cross_entropy(Tensor input, Tensor target, Tensor? weight=None, bool? "
                     "size_average=None, "
                     "int ignore_index=-100, bool? reduce=None, str reduction='mean', float "
                     "label_smoothing=0.0)"})
        .doc("Cross entropy of logits against classes or probabilities.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          return {cross_entropy_by_parts(c.tensor(0), c.tensor(1),
                                         c.has(2) ? c.tensor(2) : Tensor(), c.integer(3),
                                         c[4].string(), c.real(5))};
        });

const OpRecord& nll_loss_op =
    define(
        "nll_loss(Tensor input, Tensor target, Tensor? weight=None, int ignore_index=-100, "
        "str reduction=\"mean\") -> Tensor")
        .functional(
            {"nll_loss(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, "
             "int ignore_index=-100, bool? reduce=None, str reduction='mean')"})
        .autocast(Autocast::f32)
        .doc("Negative log likelihood of classes under log probabilities.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &given = c.tensor(1),
                       weight = c.has(2) ? c.tensor(2) : Tensor();
          const Tensor t = is_integer(given.dtype()) ? given.to(kInt64) : given;
          check_targets(c.name(), x, t);
          if (weight.defined()) check_weight_dtype(c.name(), x, weight);
          return {negative_log_likelihood(c.name(), x, without_list(x, t), weight, c.integer(3),
                                          reduction_of(c[4].string(), c.name()))};
        });

}  // namespace
}  // namespace ops

Tensor cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight,
                     int64_t ignore_index, std::string_view reduction, double label_smoothing) {
  return ops::call(ops::cross_entropy_op,
                   {input, target, weight, ignore_index, reduction, label_smoothing});
}
Tensor nll_loss(const Tensor& input, const Tensor& target, const Tensor& weight,
                int64_t ignore_index, std::string_view reduction) {
  return ops::call(ops::nll_loss_op, {input, target, weight, ignore_index, reduction});
}

}  // namespace arete

ARETE_FAMILY(cross_entropy)
