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
#include "arete/ops/reference_util.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

using Samples = std::vector<Sample>;
using Errors = std::vector<ErrorSample>;

std::vector<Tensor> reduce_values(const std::vector<double>& values, IntList sizes,
                                  std::string_view reduction) {
  if (reduction == "none") return {from_values(values, sizes)};
  double sum = 0;
  for (double v : values) sum += v;
  return {from_values({reduction == "sum" ? sum : sum / double(values.size())}, {})};
}
// The reduction of f(index) over all indices.
template <class F>
std::vector<Tensor> reduce_map(IntList sizes, std::string_view reduction, F f) {
  std::vector<double> values;
  for_each_index(sizes, [&](const Shape& i) { values.push_back(f(i)); });
  return reduce_values(values, sizes, reduction);
}
Tensor signs(SampleMaker& m, IntList sizes) {
  return m.make_index(sizes, 2).mul(Scalar(2)).sub(Scalar(1));
}

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
        })
        .samples([](SampleMaker& m) -> Samples {
          return {{{m.make({2, 3}), signs(m, {2, 3}), "mean"}},
                  {{m.make_strided({2, 3}), signs(m, {2, 3}), "none"}},
                  {{m.make({}), signs(m, {}), "sum"}},
                  {{m.make({4}, 200, 300), signs(m, {4}), "none"}, "no overflow"}};
        })
        .errors([](SampleMaker& m) -> Errors {
          return {{{m.make({2}), m.make({2}), "all"},
                   ErrorKind::value,
                   "all is not a valid value for reduction"},
                  {{m.make({2}), m.make({3, 2}), "mean"},
                   ErrorKind::value,
                   "output with shape [2] doesn't match the broadcast shape [3, 2]"}};
        })
        .reference([](const Call& c) {
          return reduce_map(c.tensor(0).sizes(), c[2].string(), [&](const Shape& i) {
            const double z = -at(c.tensor(0), i) * at(c.tensor(1), i);
            return std::max(z, 0.0) + std::log1p(std::exp(-std::fabs(z)));
          });
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
        })
        .samples([](SampleMaker& m) -> Samples {
          return {{{m.make({3, 4}), m.make_index({3}, 4), 1, 1.0, std::nullopt, "mean"}},
                  {{m.make_strided({3, 4}), m.make_index({3}, 4), 2, 0.5,
                    m.make({4}, 0.5, 1).detach(), "none"}},
                  {{m.make({4}), m.make_index({}, 4), 1, 1.5, std::nullopt, "none"}, "no batch"},
                  {{m.make({4}), m.make_index({1}, 4), 1, 1.5, std::nullopt, "none"}},
                  {{m.make({2, 3}), m.make_index({2}, 3), 2, 1.0, std::nullopt, "sum"}}};
        })
        .errors([](SampleMaker& m) -> Errors {
          return {{{m.make({2, 3}), m.make_index({2}, 3), 3, 1.0, std::nullopt, "mean"},
                   ErrorKind::value,
                   "only p == 1 and p == 2 supported"},
                  {{m.make({2, 3}), m.make_index({3}, 3), 1, 1.0, std::nullopt, "mean"},
                   ErrorKind::value,
                   "inconsistent target size"}};
        })
        .reference([](const Call& c) {
          const Tensor& x = c.tensor(0);
          const int64_t classes = x.size(-1);
          const std::vector<double> values = values_of(x);
          return reduce_map(c.tensor(1).sizes(), c[5].string(), [&](const Shape& i) {
            const int64_t row = i.empty() ? 0 : i[0], y = int64_t(at(c.tensor(1), i));
            double sum = 0;
            for (int64_t k = 0; k < classes; ++k) {
              if (k == y) continue;
              const double z = std::max(0.0, c.real(3) - values[size_t(row * classes + y)] +
                                                 values[size_t(row * classes + k)]);
              sum += (c.integer(2) == 2 ? z * z : z) * (c.has(4) ? at(c.tensor(4), {y}) : 1);
            }
            return sum / double(classes);
          });
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
        })
        .samples([](SampleMaker& m) -> Samples {
          const auto labels = [&](std::vector<int64_t> v, IntList sizes) {
            return tensor_from_host(v.data(), kInt64, sizes, TensorOptions(kInt64, m.device));
          };
          return {{{m.make({2, 4}), labels({3, 0, -1, 1, 1, -1, 2, 0}, {2, 4}), "mean"}},
                  {{m.make_strided({2, 3}), labels({-1, 0, 1, 0, 1, 2}, {2, 3}), "none"},
                   "none and all"},
                  {{m.make({3}), labels({2, -1, 0}, {3}), "sum"}, "no batch"},
                  {{m.make({}), labels({0}, {}), "mean"}, "0-d"}};
        })
        .errors([](SampleMaker& m) -> Errors {
          return {{{m.make({2, 3}), m.make_index({3}, 2), "mean"},
                   ErrorKind::value,
                   "inconsistent target size"}};
        })
        .reference([](const Call& c) {
          const Tensor& x = c.tensor(0);
          const int64_t classes = x.dim() ? x.size(-1) : 1;
          const std::vector<double> values = values_of(x), labels = values_of(c.tensor(1));
          Shape rows(x.sizes());
          if (!rows.empty()) rows.pop_back();
          return reduce_map(rows, c[2].string(), [&](const Shape& i) {
            const size_t first = size_t((i.empty() ? 0 : i[0]) * classes);
            std::vector<int64_t> own;
            for (int64_t k = 0; k < classes && labels[first + size_t(k)] >= 0; ++k)
              own.push_back(int64_t(labels[first + size_t(k)]));
            double sum = 0;
            for (int64_t y : own)
              for (int64_t k = 0; k < classes; ++k)
                if (std::find(own.begin(), own.end(), k) == own.end())
                  sum += std::max(0.0, 1 - values[first + size_t(y)] + values[first + size_t(k)]);
            return sum / double(classes);
          });
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
          return {apply_reduction(losses.mean(x.dim() - 1), c[3].string(), c.name())};
        })
        .samples([](SampleMaker& m) -> Samples {
          return {{{m.make({2, 3}), m.make_index({2, 3}, 2).to(m.dtype), std::nullopt, "mean"}},
                  {{m.make_strided({2, 3}), m.make_index({2, 3}, 2), m.make({3}, 0.5, 1), "none"}},
                  {{m.make({3}), m.make({3}, 0, 1), std::nullopt, "sum"}, "no batch"}};
        })
        .errors([](SampleMaker& m) -> Errors {
          return {{{m.make({2, 3}), m.make({2, 3}), std::nullopt, "all"},
                   ErrorKind::value,
                   "all is not a valid value for reduction"}};
        })
        .reference([](const Call& c) {
          const Tensor& x = c.tensor(0);
          const int64_t classes = x.size(-1);
          Shape rows(x.sizes());
          rows.pop_back();
          return reduce_map(rows, c[3].string(), [&](Shape i) {
            double sum = 0;
            i.push_back(0);
            for (int64_t& k = i.back(); k < classes; ++k) {
              const double v = at(x, i), y = at(c.tensor(1), i);
              sum += (y * std::log1p(std::exp(-v)) + (1 - y) * std::log1p(std::exp(v))) *
                     (c.has(2) ? at(c.tensor(2), i) : 1);
            }
            return sum / double(classes);
          });
        });

const OpRecord& poisson_nll_loss_op =
    define(
        "poisson_nll_loss(Tensor input, Tensor target, bool log_input=True, bool full=False, float "
        "eps=1e-8, str reduction=\"mean\") -> Tensor")
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
        })
        .samples([](SampleMaker& m) -> Samples {
          return {
              {{m.make({2, 3}), m.make_index({2, 3}, 5), true, false, 1e-8, "mean"}},
              {{m.make({2, 3}, 0.5, 2), m.make_strided({2, 3}, 0, 0.9), false, true, 1e-3, "none"}},
              {{m.make({2, 3}), m.make({3}, 1.2, 4), true, true, 1e-8, "sum"}}};
        })
        .errors([](SampleMaker& m) -> Errors {
          return {{{m.make({2}), m.make({2}), true, false, 1e-8, "all"},
                   ErrorKind::value,
                   "all is not a valid value for reduction"}};
        })
        .reference([](const Call& c) {
          return reduce_map(c.tensor(0).sizes(), c[5].string(), [&](const Shape& i) {
            const double x = at(c.tensor(0), i), t = at(c.tensor(1), i);
            const double loss =
                c.boolean(2) ? std::exp(x) - t * x : x - t * std::log(x + c.real(4));
            return loss + (c.boolean(3) && t > 1
                               ? t * std::log(t) - t + 0.5 * std::log(2 * std::numbers::pi * t)
                               : 0);
          });
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
        })
        .samples([](SampleMaker& m) -> Samples {
          return {
              {{m.make({2, 3}), m.make({2, 3}), m.make({2, 3}, 0.5, 2), false, 1e-6, "mean"}},
              {{m.make({2, 3}), m.make_strided({2, 3}), m.make({2}, 0.5, 2), true, 1e-6, "none"},
               "one variance for each row"},
              {{m.make({2, 3}), m.make({2, 3}), m.make({2, 1}, 0.5, 2), true, 1e-6, "sum"}},
              {{m.make({3}), m.make({3}), m.make({3}, 0.1, 0.2).detach(), false, 0.5, "mean"},
               "limited"},
              {{m.make({3}), m.make({3}), m.make({}, 0.5, 2), false, 1e-6, "mean"}, "a number"}};
        })
        .errors([](SampleMaker& m) -> Errors {
          Errors all{{{m.make({2, 3}), m.make({2, 3}), m.make({4}, 1, 2), false, 1e-6, "mean"},
                      ErrorKind::value,
                      "var is of incorrect size"}};
          // Elsewhere looking at the values would make the host wait.
          if (m.device.is_cpu())
            all.push_back({{m.make({2}), m.make({2}), m.make({2}, -2, -1), false, 1e-6, "mean"},
                           ErrorKind::value,
                           "var has negative entry/entries"});
          return all;
        })
        .reference([](const Call& c) {
          const Tensor& var = c.tensor(2);
          return reduce_map(c.tensor(0).sizes(), c[5].string(), [&](const Shape& i) {
            const bool rows = var.dim() > 0 && var.dim() < int64_t(i.size());
            const double v = std::max(at(var, rows ? Shape{i[0]} : i), c.real(4));
            const double d = at(c.tensor(0), i) - at(c.tensor(1), i);
            return 0.5 * (std::log(v) + d * d / v) +
                   (c.boolean(3) ? 0.5 * std::log(2 * std::numbers::pi) : 0);
          });
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
