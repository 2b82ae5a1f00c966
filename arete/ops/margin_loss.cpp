// Losses of margins between classes and the likelihoods of Poisson and normal distributions
// (declared in loss.h).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "arete/core/modes.h"
#include "arete/expr/program_cache.h"
#include "arete/ops/activation.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/element_loss.h"
#include "arete/ops/index.h"
#include "arete/ops/loss.h"
#include "arete/ops/nll_util.h"
#include "arete/ops/pointwise_family.h"
#include "arete/ops/rows.h"
#include "arete/ops/search.h"
#include "arete/ops/shape.h"
#include "arete/ops/sort.h"
#include "arete/ops/vmap.h"

namespace arete {
namespace ops {
namespace {

using expr::Value;
using Values = std::span<const Value>;

const OpRecord& soft_margin_loss_op =
    define("soft_margin_loss(Tensor input, Tensor target, str reduction=\"mean\") -> Tensor")
        .autocast(Autocast::f32)
        .doc("log(1 + exp(-target * input)) for targets of 1 and -1.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &target = c.tensor(1);
          const Shape sizes = broadcast_shapes(x.sizes(), target.sizes(), c.name());
          ARETE_CHECK(
              std::ranges::equal(sizes, x.sizes()),
              ValueError(c.name(), "output with shape " + to_string(x.sizes()) +
                                       " doesn't match the broadcast shape " + to_string(sizes))
                  .argument("target"));
          static auto* const loss =
              new ElementLoss(2, 0, [](Values v) { return soft_plus(-v[0] * v[1]); });
          return {(*loss)({x, target}, {}, c[2].string(), c.name())};
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

// The mean over a row's classes of max(0, margin - own + x)^p, times the weight of the row's class,
// with nothing for that class itself. Where the maximum is 0, so is its slope. Inputs: the row, its
// class, the numbers of classes[, their weights]; parameters: the margin and a further factor.
const RowProgramPtr& multi_margin_program(DType t, DType out, bool squared, bool weighted) {
  static auto* const cache = new RowProgramCache;
  std::vector<DType> inputs{t, kInt32, kInt32};
  if (weighted) inputs.push_back(t);
  const expr::Type work = expr::work_type(t);
  return cache->get(pack_key({int(t), int(out), squared, weighted}), inputs, {work, work}, {out},
                    [=](Rows& rows, Values v) {
                      const size_t n = 3 + weighted;
                      const Value is_own = v[1] == v[2];
                      const Value z = v[n] - rows.sum(where(is_own, v[0], 0.0)) + v[0];
                      const Value loss = squared ? z * z : z;
                      Value sum = rows.sum(where((z > 0) & !is_own, loss, 0.0));
                      if (weighted) sum = sum * rows.sum(where(is_own, v[3], 0.0));
                      return std::vector{sum / cast(rows.length(), work) * v[n + 1]};
                    });
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
          const Tensor logits = x.dim() == 2 ? x : x.reshape({1, x.numel()});
          const int64_t classes = logits.size(1);
          // Negative classes would count from the end: out of range, reading with them is an error.
          static const expr::ProgramPtr checked = expr::trace(
              [](Values v) { return std::vector{where(v[0] < 0, double(int64_t(1) << 62), v[0])}; },
              std::vector<DType>{kInt64}, {}, {});
          const Tensor target = c.tensor(1).reshape({-1});
          const Tensor numbers = arange(classes, TensorOptions(kInt32, x.device()));
          // What is read is the class itself; that it is there is checked by reading.
          const Tensor own =
              numbers.index_select(0, apply_program(checked, {&target, 1}, {}, c.name())[0]);
          std::vector<Tensor> inputs{logits, own.unsqueeze(1), numbers};
          if (c.has(4)) {
            const Tensor& weight = c.tensor(4);
            ARETE_CHECK(weight.dim() == 1 && weight.numel() == classes,
                        ValueError(c.name(), "inconsistent weight size, expected " +
                                                 std::to_string(classes) + " but got " +
                                                 to_string(weight.sizes())));
            check_weight_dtype(c.name(), x, weight);
            inputs.push_back(weight);
          }
          const int kind = reduction_of(c[5].string(), c.name());
          const double factor = kind == kMean ? 1 / double(logits.size(0)) : 1;
          const Scalar params[] = {Scalar(c.real(3)), Scalar(factor)};
          const int64_t dims[] = {1};
          const DType out = kind == kNone ? x.dtype() : expr::work_dtype(x.dtype());
          const Tensor losses = apply_rows(multi_margin_program(x.dtype(), out, p == 2, c.has(4)),
                                           inputs, params, dims, c.name())[0];
          return {kind == kNone ? losses.view(c.tensor(1).sizes()) : losses.sum().to(x.dtype())};
        });

// Note [Margins between labels and classes]
// The loss of a row is the sum over its labels y and its other classes k of max(0, 1 - x_y + x_k),
// which sums of pairs would make a square of the number of classes. With the numbers n_y of classes
// that label y has above x_y - 1, and m_k of labels that class k has below x_k + 1, it is
//   sum_y n_y (1 - x_y) + sum_k m_k x_k,
// and these numbers, which are all of the gradient, too, come from sorting both and searching one
// in the other; from counting pairs, which takes fewer calls, where there are few. The sum of all
// n_y is that of all m_k, so that any number may be taken off x: with the largest of the other
// classes no term is larger than the largest margin by more than 1.

// Of the places of labels in a row, and their numbers: which class it is (0 where it does not
// count), and whether it counts, which is while no negative one has come before it.
const RowProgramPtr& label_program() {
  static auto* const cache = new RowProgramCache;
  return cache->get(0, {kInt64, kInt64}, {}, {kInt64, kInt64}, [](Rows& rows, Values v) {
    const Value none = v[0].builder()->constant(expr::Type::i64, 0), never = none + 0x1p62;
    const Value counts = v[1] < rows.reduce(prim::Monoid::min, where(v[0] < 0, v[1], never));
    return std::vector{where(counts, v[0], none), cast(counts, expr::Type::i64)};
  });
}

// What is sorted: classes that are no labels, and the labels' limits. NaN is above and below none.
const expr::Program& margin_keys_program(DType t) {
  static auto* const cache = new expr::ProgramCache;
  return cache->get(pack_key({int(t)}), {t, kInt64, t, kInt64}, {}, {t, t}, [](Values v) {
    const Value limit = v[2] - 1;
    return std::vector{where((v[1] != 0) | is_nan(v[0]), -HUGE_VAL, v[0]),
                       where((v[3] == 0) | is_nan(limit), HUGE_VAL, limit)};
  });
}

// One class of a row: its value, whether it is a label, the sum of n over labels that are it, m,
// n of the label at this place, and the largest of the other classes. The parameter is a factor.
const expr::Program& multilabel_margin_program(DType t) {
  static auto* const cache = new expr::ProgramCache;
  return cache->get(pack_key({int(t)}), {t, kInt64, kInt64, kInt64, kInt64, t},
                    {expr::work_type(t)}, {t}, [](Values v) {
                      const Value x = v[0], top = where(is_inf(v[5]), 0.0, v[5]);
                      const Value factor = cast(where(v[1] != 0, -v[2], v[3]), x.type());
                      const Value part = where((factor == 0) | is_nan(x), 0.0, factor * (x - top));
                      return std::vector{(part + cast(v[4], x.type())) * v[6]};
                    });
}

// What multilabel_margin_program adds up for the classes of x, besides x.
struct MarginCounts {
  Tensor is_label, n_of_class, m, n, top;
};

// By sorting.
MarginCounts sorted_counts(const char* op, const Tensor& x, const Tensor& target,
                           const Tensor& numbers) {
  const int64_t classes = x.size(1), row[] = {1};
  const Results labels = apply_rows(label_program(), {{target, numbers}}, {}, row, op);
  const Tensor &label = labels[0], &counts = labels[1], chosen = x.gather(-1, label);
  const Tensor none = zeros_to_copy(x.sizes(), TensorOptions(kInt64, x.device()));
  const Tensor hits = none.scatter_add(-1, label, counts);
  const Results keys = apply_program(margin_keys_program(x.dtype()).shared_from_this(),
                                     {{x, hits, chosen, counts}}, {}, op);
  const Tensor others = std::get<0>(sort(keys[0])), limits = std::get<0>(sort(keys[1]));
  const Tensor n = searchsorted(others, keys[1], true).neg().add(Scalar(classes)).mul(counts);
  return {hits, none.scatter_add(-1, label, n), searchsorted(limits, x), n,
          others.narrow(-1, classes - 1, 1)};
}

// By counting pairs, of a label's place and a class (rows, places, classes) and of two classes.
MarginCounts counted_pairs(const char* op, const Tensor& x, const Tensor& target,
                           const Tensor& numbers) {
  const DType t = x.dtype();
  // To read with the labels checks them.
  const Tensor label = numbers.index_select(0, target.reshape({-1})).view(target.sizes());
  // How often each class is a label.
  static auto* const hits_cache = new RowProgramCache;
  const RowProgramPtr& hits_program =
      hits_cache->get(0, {kInt64, kInt64, kInt64, kInt64}, {}, {kInt64}, [](Rows& rows, Values v) {
        const Value never = v[0].builder()->constant(expr::Type::i64, 0) + 0x1p62;
        const Value counts = v[2] < rows.reduce(prim::Monoid::min, where(v[0] < 0, v[2], never));
        return std::vector{rows.sum(cast(counts & (v[1] == v[3]), expr::Type::i64))};
      });
  const int64_t places[] = {1}, others[] = {2};
  const Tensor hits = apply_rows(
      hits_program, {{target.unsqueeze(2), label.unsqueeze(2), numbers.unsqueeze(1), numbers}}, {},
      places, op)[0];
  // A class and all classes: n over its labels, m, and the largest that is none.
  static auto* const pair_cache = new RowProgramCache;
  const RowProgramPtr& pair_program = pair_cache->get(
      pack_key({int(t)}), {t, kInt64, t, kInt64}, {}, {kInt64, kInt64, t},
      [](Rows& rows, Values v) {
        const Value other = v[3] == 0, none = v[3] * 0.0;
        const Value above = where(other & (v[2] > v[0] - 1), v[1], none);
        const Value top = where(other & !is_nan(v[2]), v[2], -HUGE_VAL);
        return std::vector{rows.sum(above), rows.sum(where(v[2] - 1 < v[0], v[3], none)),
                           rows.reduce(prim::Monoid::max, top)};
      });
  const Results r =
      apply_rows(pair_program, {{x.unsqueeze(2), hits.mT(), x.unsqueeze(1), hits}}, {}, others, op);
  const Tensor n = r[0].squeeze(2);
  return {hits.squeeze(1), n, r[1].squeeze(2), n, r[2].squeeze(2)};
}

const OpRecord& multilabel_margin_loss_op =
    define("multilabel_margin_loss(Tensor input, Tensor target, str reduction=\"mean\") -> Tensor")
        .autocast(Autocast::f32)
        .doc(
            "Margins of 1 between the classes of each row (those before the first -1) and all "
            "others.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          const Tensor &input = c.tensor(0), &given = c.tensor(1);
          ARETE_CHECK(input.dim() <= 2 && (input.dim() == 0 || input.size(-1) > 0),
                      ValueError(c.name(),
                                 "Expected non-empty vector or matrix with optional 0-dim batch "
                                 "size, but got: " +
                                     to_string(input.sizes())));
          const bool number = input.dim() == 0;  // one class
          ARETE_CHECK(
              input.layout().sizes == given.layout().sizes || (number && given.numel() == 1),
              ValueError(c.name(), "inconsistent target size: " + to_string(given.sizes()) +
                                       " for input of size: " + to_string(input.sizes())));
          ARETE_CHECK(given.dtype() == kInt64,
                      TypeError(c.name(), "expected scalar type Long but found " +
                                              std::string(name_of(given.dtype()))));
          const int64_t classes = number ? 1 : input.size(-1);
          const Shape sizes{input.dim() == 2 ? input.size(0) : 1, classes};
          const Tensor x = input.reshape(sizes), value = x.detach(), target = given.reshape(sizes);
          const Tensor numbers = arange(classes, TensorOptions(kInt64, x.device()));
          const double pairs = double(sizes[0]) * double(classes) * double(classes);
          const bool few = pairs <= (x.device().is_cpu() ? 1 << 12 : 1 << 22);
          const MarginCounts k = few ? counted_pairs(c.name(), value, target, numbers)
                                     : sorted_counts(c.name(), value, target, numbers);
          const Tensor inputs[] = {x, k.is_label, k.n_of_class, k.m, k.n, k.top};
          const int kind = reduction_of(c[2].string(), c.name());
          const Scalar factor(1 / (double(classes) * (kind == kMean ? double(sizes[0]) : 1)));
          // One kernel over all rows where their own sums are not asked for.
          const int64_t dims[] = {1, 0};
          const Tensor loss = apply_reduce(multilabel_margin_program(x.dtype()).shared_from_this(),
                                           prim::Monoid::sum, inputs, {&factor, 1},
                                           IntList(dims, kind == kNone ? 1 : 2), false, c.name());
          if (kind != kNone) return {loss};
          Shape losses(input.sizes());
          if (!losses.empty()) losses.pop_back();
          return {loss.view(losses)};
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
          // The last number is a factor.
          static auto* const plain = new ElementLoss(2, 1, [](Values v) {
            return (v[1] * soft_plus(-v[0]) + (1.0 - v[1]) * soft_plus(v[0])) * v[2];
          });
          static auto* const weighted = new ElementLoss(3, 1, [](Values v) {
            return (v[1] * soft_plus(-v[0]) + (1.0 - v[1]) * soft_plus(v[0])) * v[2] * v[3];
          });
          const auto losses = [&](double factor, std::string_view reduction) {
            return c.has(2) ? (*weighted)({x, y, c.tensor(2)}, {factor}, reduction, c.name())
                            : (*plain)({x, y}, {factor}, reduction, c.name());
          };
          // The classes are input's last dimension, also where target has more of them.
          const int64_t classes = x.dim() - 1, count = x.size(classes);
          const std::string_view reduction = c[3].string();
          Shape sizes = broadcast_shapes(x.sizes(), y.sizes(), c.name());
          if (c.has(2)) sizes = broadcast_shapes(sizes, c.tensor(2).sizes(), c.name());
          if (reduction == "sum") return {losses(1 / double(count), reduction)};
          if (reduction == "mean" && sizes == Shape(x.sizes())) return {losses(1, reduction)};
          const Tensor each = losses(1, "none").sum(classes).div(Scalar(double(count)));
          return {apply_reduction(each, reduction, c.name())};
        });

// Of the input, the target and eps.
Value poisson(Values v, bool log_input) {
  return log_input ? exp(v[0]) - v[1] * v[0] : v[0] - v[1] * log(v[0] + v[2]);
}
// Of log t!, for t above 1.
Value stirling(const Value& t) {
  const Value large = t > 1, safe = where(large, t, 2.0);
  return where(large, safe * log(safe) - safe + 0.5 * log(2 * std::numbers::pi * safe), 0.0);
}

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
          // By the flags log_input and full.
          static auto* const losses = new ElementLoss[4]{
              {2, 1, [](Values v) { return poisson(v, false); }},
              {2, 1, [](Values v) { return poisson(v, false) + stirling(v[1]); }},
              {2, 1, [](Values v) { return poisson(v, true); }},
              {2, 1, [](Values v) { return poisson(v, true) + stirling(v[1]); }}};
          return {losses[2 * c.boolean(2) + c.boolean(3)]({x, t}, {c.real(4)}, c[5].string(),
                                                          c.name())};
        });

// Can the values be looked at without waiting for a device?
bool can_look(const Tensor& t) { return t.device().is_cpu() && !(modes().word & Modes::kCapture); }

// The variance in a shape that broadcasts with the input.
Tensor variance_of(const Call& c) {
  const Tensor& x = c.tensor(0);
  Tensor var = c.tensor(2);
  if (can_look(var) && var.numel() > 0)
    ARETE_CHECK(!lt(all_values(var), Scalar(0)).any().item<bool>(),
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
  return var;
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
          // Numbers: eps, a constant. The limit does not stop the gradient: the variance comes with
          // and without history.
          static auto* const loss = new ElementLoss(4, 2, [](Values v) {
            const Value limited = where(v[3] < v[4], v[2] - v[3] + v[4], v[2]);
            return 0.5 * (log(limited) + square(v[0] - v[1]) / limited) + v[5];
          });
          const double constant = c.boolean(3) ? 0.5 * std::log(2 * std::numbers::pi) : 0;
          return {(*loss)({c.tensor(0), c.tensor(1), var, var.detach()}, {c.real(4), constant},
                          c[5].string(), c.name())};
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
