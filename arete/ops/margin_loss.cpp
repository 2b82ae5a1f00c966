// Losses of margins between classes and the likelihoods of Poisson and normal distributions
// (declared in loss.h).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "arete/core/modes.h"
#include "arete/ops/activation.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/loss.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

const OpRecord& soft_margin_loss_op =
    define("soft_margin_loss(Tensor input, Tensor target, str reduction=\"mean\") -> Tensor")
        .autocast(Autocast::f32)
        .doc("log(1 + exp(-target * input)) for targets of 1 and -1.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          const Tensor z = c.tensor(0).mul(c.tensor(1)).neg();
          ARETE_CHECK(
              std::ranges::equal(z.sizes(), c.tensor(0).sizes()),
              ValueError(c.name(), "output with shape " + to_string(c.tensor(0).sizes()) +
                                       " doesn't match the broadcast shape " + to_string(z.sizes()))
                  .argument("target"));
          return {apply_reduction(softplus(z, 1, 40), c[2].string(), c.name())};
        });

// (N, C) logits and (N) classes of an input that may lack the batch dimension.
void check_class_index(const Call& c) {
  const Tensor &x = c.tensor(0), &target = c.tensor(1);
  ARETE_CHECK(x.dim() <= 2 && (x.dim() == 0 || x.size(-1) > 0),
              ValueError(c.name(),
                         "Expected non-empty vector or matrix with optional 0-dim batch size, but "
                         "got: " +
                             to_string(x.sizes())));
  ARETE_CHECK(target.dtype() == kInt64,
              TypeError(c.name(), "expected scalar type Long but found " +
                                      std::string(name_of(target.dtype()))));
  const int64_t n = x.dim() == 2 ? x.size(0) : 1;
  ARETE_CHECK(target.dim() <= 1 && target.numel() == n,
              ValueError(c.name(), "inconsistent target size, expected " + std::to_string(n) +
                                       " but got " + to_string(target.sizes())));
}

const OpRecord& multi_margin_loss_op =
    define(
        "multi_margin_loss(Tensor input, Tensor target, int p=1, float margin=1.0, Tensor? "
        "weight=None, str reduction=\"mean\") -> Tensor")
        .autocast(Autocast::f32)
        .doc("Mean over the wrong classes of max(0, margin - input[target] + input)^p.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          const int64_t p = c.integer(2);
          ARETE_CHECK(p == 1 || p == 2,
                      ValueError(c.name(), "only p == 1 and p == 2 supported").argument("p"));
          check_class_index(c);
          const Tensor& x = c.tensor(0);
          const bool batch = x.dim() == 2;
          const Tensor logits = batch ? x : x.reshape({1, x.numel()});
          const Tensor column = c.tensor(1).reshape({-1, 1});
          if (c.has(4))
            ARETE_CHECK(c.tensor(4).dim() == 1 && c.tensor(4).numel() == logits.size(1),
                        ValueError(c.name(), "inconsistent weight size, expected " +
                                                 std::to_string(logits.size(1)) + " but got " +
                                                 to_string(c.tensor(4).sizes())));
          Tensor z = logits.sub(logits.gather(1, column)).add(Scalar(c.real(3))).clamp(Scalar(0));
          if (p == 2) z = z.square();
          if (c.has(4)) z = z.mul(c.tensor(4).index_select(0, column.flatten()).unsqueeze(1));
          const Tensor losses =
              z.scatter(1, column, Scalar(0)).sum(1).div(Scalar(double(logits.size(1))));
          return {apply_reduction(losses.view(c.tensor(1).sizes()), c[5].string(), c.name())};
        });

const OpRecord& multilabel_margin_loss_op =
    define("multilabel_margin_loss(Tensor input, Tensor target, str reduction=\"mean\") -> Tensor")
        .autocast(Autocast::f32)
        .doc(
            "Margins of 1 between the classes of each row (those before the first -1) and all "
            "others.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          const bool number = c.tensor(0).dim() == 0;  // one class
          const Tensor x = number ? c.tensor(0).unsqueeze(0) : c.tensor(0);
          const Tensor target = number ? c.tensor(1).reshape({-1}) : c.tensor(1);
          ARETE_CHECK(x.dim() <= 2 && x.size(-1) > 0,
                      ValueError(c.name(),
                                 "Expected non-empty vector or matrix with optional 0-dim batch "
                                 "size, but got: " +
                                     to_string(x.sizes())));
          ARETE_CHECK(
              x.layout().sizes == target.layout().sizes,
              ValueError(c.name(), "inconsistent target size: " + to_string(target.sizes()) +
                                       " for input of size: " + to_string(x.sizes())));
          ARETE_CHECK(target.dtype() == kInt64,
                      TypeError(c.name(), "expected scalar type Long but found " +
                                              std::string(name_of(target.dtype()))));
          // A label counts while no negative one has come before it.
          const Tensor counts = eq(lt(target, Scalar(0)).to(kInt64).cumsum(-1), Scalar(0));
          const Tensor labels = where(counts, target, Scalar(0));
          const Tensor hits = zeros(x.sizes(), TensorOptions(kInt64, x.device()))
                                  .scatter_add(-1, labels, counts.to(kInt64));
          const Tensor others = eq(hits, Scalar(0));
          // Dimension -2 runs over the labels, -1 over the classes compared with them.
          const Tensor margins = x.unsqueeze(-2)
                                     .sub(x.gather(-1, labels).unsqueeze(-1))
                                     .add(Scalar(1))
                                     .clamp(Scalar(0));
          const Tensor compared = counts.unsqueeze(-1).logical_and(others.unsqueeze(-2));
          const Tensor losses = where(compared, margins, Scalar(0.0))
                                    .sum(IntList{-2, -1})
                                    .div(Scalar(double(x.size(-1))));
          return {apply_reduction(losses, c[2].string(), c.name())};
        });

const OpRecord& multilabel_soft_margin_loss_op =
    define(
        "multilabel_soft_margin_loss(Tensor input, Tensor target, Tensor? weight=None, str "
        "reduction=\"mean\") -> Tensor")
        .doc("Mean over the classes of the binary cross entropies of logits.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &y = c.tensor(1);
          ARETE_CHECK(x.dim() > 0, ValueError(c.name(), "input needs a dimension of classes"));
          Tensor losses =
              y.mul(logsigmoid(x)).add(y.neg().add(Scalar(1)).mul(logsigmoid(x.neg()))).neg();
          if (c.has(2)) losses = losses.mul(c.tensor(2));
          // The classes are input's last dimension, also where target has more of them.
          const int64_t classes = x.dim() - 1;
          losses = losses.sum(classes).div(Scalar(double(x.size(classes))));
          return {apply_reduction(losses, c[3].string(), c.name())};
        });

const OpRecord& poisson_nll_loss_op =
    define(
        "poisson_nll_loss(Tensor input, Tensor target, bool log_input=True, bool full=False, float "
        "eps=1e-8, str reduction=\"mean\") -> Tensor")
        .functional(
            {"poisson_nll_loss(Tensor input, Tensor target, bool log_input=True, bool full=False, "
             "bool? size_average=None, float eps=1e-8, bool? reduce=None, str "
             "reduction='mean')"})
        .autocast(Autocast::f32)
        .doc(
            "Negative log likelihood of counts with a Poisson distribution; full adds Stirling's "
            "approximation for targets above 1.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &t = c.tensor(1);
          Tensor losses =
              c.boolean(2) ? x.exp().sub(t.mul(x)) : x.sub(t.mul(x.add(Scalar(c.real(4))).log()));
          if (c.boolean(3)) {
            const Tensor large = gt(t, Scalar(1));
            const Tensor safe = where(large, t, Scalar(2.0));
            const Tensor stirling =
                safe.mul(safe.log())
                    .sub(safe)
                    .add(safe.mul(Scalar(2 * std::numbers::pi)).log().mul(Scalar(0.5)));
            losses = losses.add(where(large, stirling, Scalar(0.0)));
          }
          return {apply_reduction(losses, c[5].string(), c.name())};
        });

// Can the values be looked at without waiting for a device?
bool can_look(const Tensor& t) { return t.device().is_cpu() && !(modes().word & Modes::kCapture); }

// The variance in a shape that broadcasts with the input, not below eps. The limit does not stop
// the gradient.
Tensor variance_of(const Call& c) {
  const Tensor& x = c.tensor(0);
  Tensor var = c.tensor(2);
  if (can_look(var) && var.numel() > 0)
    ARETE_CHECK(!lt(var.detach(), Scalar(0)).any().item<bool>(),
                ValueError(c.name(), "var has negative entry/entries").argument("var"));
  if (var.layout().sizes != x.layout().sizes && var.dim() > 0) {
    const IntList lead = x.sizes().first(x.sizes().size() - 1);
    if (std::equal(lead.begin(), lead.end(), var.sizes().begin(), var.sizes().end())) {
      var = var.unsqueeze(-1);
    } else {
      int differing = var.dim() == x.dim() ? 0 : 2;
      for (int64_t d = 0; differing < 2 && d < x.dim(); ++d)
        if (var.size(d) != x.size(d)) differing += var.size(d) == 1 ? 1 : 2;
      ARETE_CHECK(differing == 1, ValueError(c.name(), "var is of incorrect size")
                                      .argument("var")
                                      .got(describe(var) + " for input " + describe(x)));
    }
  }
  const Tensor moved = var.sub(var.detach()).add(Scalar(c.real(4)));
  return where(lt(var.detach(), Scalar(c.real(4))), moved, var);
}

const OpRecord& gaussian_nll_loss_op =
    define(
        "gaussian_nll_loss(Tensor input, Tensor target, Tensor var, bool full=False, float "
        "eps=1e-6, str reduction=\"mean\") -> Tensor")
        .doc(
            "Negative log likelihood with normal distributions of the given means (input) and "
            "variances.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          const Tensor var = variance_of(c);
          Tensor losses =
              var.log().add(c.tensor(0).sub(c.tensor(1)).square().div(var)).mul(Scalar(0.5));
          if (c.boolean(3)) losses = losses.add(Scalar(0.5 * std::log(2 * std::numbers::pi)));
          return {apply_reduction(losses, c[5].string(), c.name())};
        });

}  // namespace
}  // namespace ops

Tensor soft_margin_loss(const Tensor& input, const Tensor& target, std::string_view reduction) {
  return ops::call(ops::soft_margin_loss_op, {input, target, reduction});
}
Tensor multi_margin_loss(const Tensor& input, const Tensor& target, int64_t p, double margin,
                         const Tensor& weight, std::string_view reduction) {
  return ops::call(ops::multi_margin_loss_op, {input, target, p, margin, weight, reduction});
}
Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target,
                              std::string_view reduction) {
  return ops::call(ops::multilabel_margin_loss_op, {input, target, reduction});
}
Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target, const Tensor& weight,
                                   std::string_view reduction) {
  return ops::call(ops::multilabel_soft_margin_loss_op, {input, target, weight, reduction});
}
Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, bool log_input, bool full,
                        double eps, std::string_view reduction) {
  return ops::call(ops::poisson_nll_loss_op, {input, target, log_input, full, eps, reduction});
}
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var, bool full,
                         double eps, std::string_view reduction) {
  return ops::call(ops::gaussian_nll_loss_op, {input, target, var, full, eps, reduction});
}

}  // namespace arete

ARETE_FAMILY(margin_loss)
