// cross_entropy and nll_loss (declared in loss.h). Classes without label smoothing go to the fused
// softmax_nll, the others are compositions.
#include <algorithm>

#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/loss.h"
#include "arete/ops/nll_util.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/softmax.h"

namespace arete {
namespace ops {
namespace {

Tensor negative_log_likelihood(const char* op, const Tensor& logp, const Tensor& target,
                               const Tensor& weight, int64_t ignore, int reduction) {
  check_targets(op, logp, target);
  const int64_t dim = int64_t(class_dim(logp));
  check_range(op, target, logp.size(dim), ignore);
  const Tensor valid = ne(target, Scalar(ignore));
  // Negative classes would count from the end: out of range, reading with them is an error.
  const int64_t classes = logp.size(dim);
  const Tensor safe =
      where(valid, where(lt(target, Scalar(0)), target.sub(Scalar(classes)), target), Scalar(0));
  Tensor loss = logp.gather(dim, safe.unsqueeze(dim)).squeeze(dim).neg(),
         counted = valid.to(logp.dtype());
  if (weight.defined()) {
    check_weight(op, logp, weight);
    const Tensor w = weight.index_select(0, safe.reshape({safe.numel()})).view(safe.sizes());
    loss = loss.mul(w);
    counted = counted.mul(w);
  }
  loss = where(valid, loss, Scalar(0.0));
  if (reduction == kNone) return loss;
  return reduction == kSum ? loss.sum() : loss.sum().div(counted.sum());
}

Tensor smooth_part(const Tensor& logp, const Tensor& target, const Tensor& weight, int64_t ignore,
                   int reduction) {
  const int64_t dim = int64_t(class_dim(logp));
  Tensor terms = logp;
  if (weight.defined()) {
    Shape sizes(size_t(logp.dim()), 1);
    sizes[size_t(dim)] = weight.numel();
    terms = logp.mul(weight.view(sizes));
  }
  const Tensor valid = ne(target, Scalar(ignore));
  const Tensor loss = where(valid, terms.sum(dim).neg(), Scalar(0.0));
  if (reduction == kNone) return loss;
  if (reduction == kSum) return loss.sum();
  Tensor counted = valid.to(logp.dtype());
  if (weight.defined()) {
    const Tensor safe = where(valid, target, Scalar(0));
    counted = counted.mul(weight.index_select(0, safe.reshape({safe.numel()})).view(safe.sizes()));
  }
  return loss.sum().div(counted.sum());
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
  if (smoothing == 0 && !(weight.defined() && weight.requires_grad()))
    return softmax_nll(x, target, weight, ignore, reduction);
  const int64_t dim = int64_t(class_dim(x));
  const Tensor logp = log_softmax(wide(x), dim);
  const Tensor nll = negative_log_likelihood(op, logp, target, weight, ignore, reduction);
  if (smoothing == 0) return nll;
  const Tensor smooth = smooth_part(logp, target, weight, ignore, reduction);
  return nll.mul(Scalar(1 - smoothing)).add(smooth, Scalar(smoothing / double(x.size(dim))));
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
