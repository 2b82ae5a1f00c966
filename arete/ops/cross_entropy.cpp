// cross_entropy and nll_loss (declared in loss.h). Classes without label smoothing go to the fused
// softmax_nll, the others are compositions.
#include <algorithm>

#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/loss.h"
#include "arete/ops/nll_util.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reference_util.h"
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
  if (is_floating(target_in.dtype()) && target_in.dim() == x.dim())
    return probability_loss(op, wide(x), wide(target_in), wide(weight), reduction, smoothing);
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

// The loss of every target, its weight, by plain loops.
std::vector<Tensor> cross_entropy_reference(const Call& c, bool from_logits) {
  const Tensor &x = c.tensor(0), &t = c.tensor(1);
  const std::string_view reduction = c[4].string();
  const double smoothing = from_logits ? c.real(5) : 0;
  const int64_t classes = x.sizes()[class_dim(x)];
  const bool probabilities = t.dtype() != kInt64;
  Shape rows(x.sizes());
  rows.erase(rows.begin() + class_dim(x));
  std::vector<double> losses;
  double sum = 0, total = 0;
  for_each_index(rows, [&](const Shape& row) {
    const double lse = from_logits ? log_sum_exp(x, row) : 0;
    const int64_t label = probabilities ? 0 : int64_t(at(t, row));
    const bool ignored = !probabilities && label == c.integer(3);
    double loss = 0;
    for (int64_t k = 0; k < classes && !ignored; ++k) {
      const double q = probabilities ? at(t, logit_index(x, row, k)) : double(k == label);
      const double mixed = q * (1 - smoothing) + smoothing / double(classes);
      if (mixed != 0) loss += mixed * class_weight(c, 2, k) * (lse - at(x, logit_index(x, row, k)));
    }
    losses.push_back(loss);
    sum += loss;
    total += probabilities ? 1 : ignored ? 0 : class_weight(c, 2, label);
  });
  if (reduction == "none") return {from_values(losses, rows)};
  return {from_values({reduction == "sum" ? sum : sum / total}, {})};
}

const OpRecord& cross_entropy_op =
    define(
        "cross_entropy(Tensor input, Tensor target, Tensor? weight=None, int ignore_index=-100, "
        "str reduction=\"mean\", float label_smoothing=0.0) -> Tensor")
        .doc("Cross entropy of logits against classes or probabilities.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          return {cross_entropy_by_parts(c.tensor(0), c.tensor(1),
                                         c.has(2) ? c.tensor(2) : Tensor(), c.integer(3),
                                         c[4].string(), c.real(5))};
        })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> out;
          for (const char* r : {"mean", "none", "sum"}) {
            out.push_back({{m.make({3, 4}), m.make_index({3}, 4), std::nullopt, -100, r, 0.0}});
            out.push_back({{m.make({3, 4}), m.make_index({3}, 4), m.make({4}, 0.5, 2), 2, r, 0.1},
                           "smoothed"});
            out.push_back(
                {{m.make({3, 4}), m.make({3, 4}, 0, 1), m.make({4}, 0.5, 2), -100, r, 0.2},
                 "probabilities"});
          }
          out.push_back(
              {{m.make({2, 3}), m.make_index({2}, 3), m.make({3}, 0.5, 2), -100, "mean", 0.0},
               "weights with a gradient"});
          out.push_back(
              {{m.make_strided({2, 3, 2}), m.make_index({2, 2}, 3), std::nullopt, 1, "mean", 0.0}});
          out.push_back(
              {{m.make({2, 3, 2}), m.make({2, 3, 2}, 0, 1), std::nullopt, -100, "mean", 0.0}});
          out.push_back(
              {{m.make({5}), m.make_index({}, 5), std::nullopt, -100, "mean", 0.0}, "no batch"});
          out.push_back({{m.make({0, 3}), m.make_index({0}, 3), std::nullopt, -100, "sum", 0.0}});
          return out;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const Tensor big = m.make_index({3}, 1).add(Scalar(10));
          return {{{m.make({3, 4}), big, std::nullopt, -100, "mean", 0.0},
                   ErrorKind::index,
                   "Target 10 is out of bounds."},
                  {{m.make({3, 4}), m.make_index({2}, 4), std::nullopt, -100, "mean", 0.0},
                   ErrorKind::value,
                   "Expected input batch_size (3) to match target batch_size (2)."},
                  {{m.make({3, 4}), m.make_index({3}, 4), m.make({3}), -100, "mean", 0.0},
                   ErrorKind::value,
                   "weight tensor should be defined either for all 4 classes"},
                  {{m.make({3, 4}), m.make_index({3}, 4), std::nullopt, -100, "average", 0.0},
                   ErrorKind::value,
                   "average is not a valid value for reduction"},
                  {{m.make({3, 4}), m.make_index({3}, 4), std::nullopt, -100, "mean", 1.5},
                   ErrorKind::value,
                   "label_smoothing must be between 0.0 and 1.0."},
                  {{m.make({3, 4}), m.make({3}), std::nullopt, -100, "mean", 0.0},
                   ErrorKind::type,
                   "expected scalar type Long but found"}};
        })
        .reference([](const Call& c) { return cross_entropy_reference(c, true); });

const OpRecord& nll_loss_op =
    define(
        "nll_loss(Tensor input, Tensor target, Tensor? weight=None, int ignore_index=-100, "
        "str reduction=\"mean\") -> Tensor")
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
        })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> out;
          for (const char* r : {"mean", "none", "sum"}) {
            out.push_back({{m.make({3, 4}), m.make_index({3}, 4), std::nullopt, -100, r}});
            out.push_back({{m.make({3, 4}), m.make_index({3}, 4), m.make({4}, 0.5, 2), 1, r}});
          }
          out.push_back(
              {{m.make_strided({2, 3, 2}), m.make_index({2, 2}, 3), std::nullopt, -100, "mean"}});
          out.push_back({{m.make({5}), m.make_index({}, 5), std::nullopt, -100, "mean"}});
          out.push_back({{m.make({5}), m.make_index({1}, 5), std::nullopt, -100, "sum"}});
          return out;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {
              {{m.make({3, 4}), m.make_index({3}, 1).sub(Scalar(7)), std::nullopt, -100, "mean"},
               ErrorKind::index,
               "Target -7 is out of bounds."},
              {{m.make({4}), m.make_index({2}, 4), std::nullopt, -100, "mean"},
               ErrorKind::value,
               "For 1D input, 1D target must have size 1, but got target size: 2"},
              {{m.make({3, 4}), m.make_index({3}, 4),
                m.make({4}, 0.5, 2).to(m.dtype == kFloat16 ? kBFloat16 : kFloat16), -100, "mean"},
               ErrorKind::value,
               "expected scalar type"}};
        })
        .reference([](const Call& c) { return cross_entropy_reference(c, false); });

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
