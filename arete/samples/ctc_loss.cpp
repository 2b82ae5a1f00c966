// Samples, references and errors of the records in ops/ctc_loss.cpp.
#include <algorithm>
#include <cmath>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

// Calls f(path, log probability) for every path of symbols that reads as the target of sample n,
// of as many steps as the sample has.
template <class F>
void for_each_path(const Tensor& log_probs, const std::vector<double>& target, size_t n,
                   size_t steps, int64_t blank, F&& f) {
  const bool batched = log_probs.dim() == 3;
  const std::vector<double> lp = values_of(log_probs);
  const size_t batch = batched ? size_t(log_probs.size(1)) : 1,
               classes = size_t(log_probs.size(-1));
  std::vector<size_t> path;
  const auto walk = [&](auto& self, double log_p, size_t done, int64_t last) -> void {
    const size_t t = path.size();
    if (t == steps) {
      if (done == target.size()) f(path, log_p);
      return;
    }
    for (size_t k = 0; k < classes; ++k) {
      const double next = log_p + lp[(t * batch + n) * classes + k];
      const bool is_blank = int64_t(k) == blank;
      path.push_back(k);
      if (is_blank || int64_t(k) == last)
        self(self, next, done, is_blank ? -1 : last);
      else if (done < target.size() && double(k) == target[done])
        self(self, next, done + 1, int64_t(k));
      path.pop_back();
    }
  };
  walk(walk, 0.0, 0, -1);
}

// The targets of all samples, which follow each other or are rows.
std::vector<std::vector<double>> targets_of(const Tensor& targets, const std::vector<double>& len) {
  const std::vector<double> all = values_of(targets);
  std::vector<std::vector<double>> lists;
  size_t begin = 0;
  for (size_t n = 0; n < len.size(); ++n) {
    if (targets.dim() == 2) begin = n * size_t(targets.size(1));
    lists.emplace_back(all.begin() + long(begin), all.begin() + long(begin) + long(len[n]));
    begin += lists.back().size();
  }
  return lists;
}

std::vector<double> reference_losses(const Call& c, int64_t blank, double impossible) {
  const std::vector<double> in = values_of(c.tensor(2)), len = values_of(c.tensor(3));
  const auto targets = targets_of(c.tensor(1), len);
  std::vector<double> losses;
  for (size_t n = 0; n < len.size(); ++n) {
    double sum = 0;
    for_each_path(c.tensor(0), targets[n], n, size_t(in[n]), blank,
                  [&](const std::vector<size_t>&, double log_p) { sum += std::exp(log_p); });
    losses.push_back(sum > 0 ? -std::log(sum) : impossible);
  }
  return losses;
}

Tensor ints(SampleMaker& m, std::vector<int64_t> v, IntList sizes) {
  return tensor_from_host(v.data(), kInt64, sizes, TensorOptions(kInt64, m.device));
}

// Only the losses are documented: the rest is between the two records.
const Attached ctc_losses_op =
    attach("ctc_losses")
        .no_gradient_test()  // as below
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({4, 2, 3}), ints(m, {1, 2, 2, 1}, {2, 2}), ints(m, {4, 3}, {2}),
                    ints(m, {2, 1}, {2}), std::nullopt, 0, 2}},
                  {{m.make({4, 2, 3}).transpose(1, 2).contiguous().transpose(1, 2),
                    ints(m, {1, 1, 0}, {3}), ints(m, {4, 0}, {2}), ints(m, {2, 1}, {2}),
                    ints(m, {0, 2}, {2}), 2, 2},
                   "one after the other, a repeat"},
                  {{m.make({2, 1, 3}), ints(m, {}, {1, 0}), ints(m, {2}, {1}), ints(m, {0}, {1}),
                    std::nullopt, 1, 0},
                   "nothing to emit"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const std::vector<double> losses = reference_losses(c, c.integer(5), double(INFINITY));
          const std::vector<double> in = values_of(c.tensor(2)), len = values_of(c.tensor(3));
          const auto targets = targets_of(c.tensor(1), len);
          const int64_t steps = c.tensor(0).size(0), blank = c.integer(5),
                        batch = c.tensor(0).size(1), states = 2 * c.integer(6) + 1;
          const std::vector<double> lp = values_of(c.tensor(0));
          const size_t classes = size_t(c.tensor(0).size(2));
          // alpha as it is defined, in probabilities; kNever stands for 0.
          std::vector<double> chain, alpha;
          for (int64_t n = 0; n < batch; ++n) {
            const std::vector<double>& t = targets[size_t(n)];
            for (int64_t s = 0; s < states; ++s) {
              const size_t k = size_t(s / 2);
              const bool label = s % 2 == 1 && k < t.size();
              const bool into = label && k > 0 && t[k - 1] != t[k],
                         on = label && k + 1 < t.size() && t[k + 1] != t[k];
              chain.push_back(label ? t[k] * 4 + into + 2 * on : double(blank * 4));
            }
          }
          std::vector<double> now(size_t(batch * states), 0.0);
          for (int64_t t = 0; t < steps; ++t) {
            const std::vector<double> before = now;
            for (int64_t n = 0; n < batch; ++n)
              for (int64_t s = 0; s < states; ++s) {
                const size_t at = size_t(n * states + s);
                const int64_t code = int64_t(chain[at]);
                if (t >= int64_t(in[size_t(n)])) continue;
                double ways = t == 0 ? double(s < 2) : before[at];
                if (t > 0 && s > 0) ways += before[at - 1];
                if (t > 0 && (code & 1)) ways += before[at - 2];
                now[at] = ways * std::exp(lp[size_t(t * batch + n) * classes + size_t(code / 4)]);
              }
            for (int64_t n = 0; n < batch; ++n)
              for (int64_t s = 0; s < states; ++s) {
                const double p = now[size_t(n * states + s)];
                alpha.push_back(in[size_t(n)] == 0 ? 0 : p > 0 ? std::log(p) : -1e30);
              }
          }
          return {from_values(losses, {batch}), from_values(alpha, {steps, batch, states}),
                  from_values(chain, {batch, states}, kInt64)};
        });

const Attached ctc_losses_backward_op =
    attach("ctc_losses_backward")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const Tensor x = m.make({4, 2, 3}), in = ints(m, {4, 3}, {2}), len = ints(m, {2, 1}, {2});
          const NoGradGuard guard;
          const Results r = call_all(
              *find_record("ctc_losses"),
              {x, ints(m, {1, 2, 2, 1}, {2, 2}), in, len, Tensor(), int64_t(0), int64_t(2)});
          return {{{m.make({2}), x, in, len, r[0], r[1], r[2], 0}}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const std::vector<double> grad = values_of(c.tensor(0)), lp = values_of(c.tensor(1)),
                                    in = values_of(c.tensor(2));
          const std::vector<std::vector<double>> targets{{1, 2}, {2}};
          const size_t batch = 2, classes = 3;
          std::vector<double> out(lp.size());
          for (size_t n = 0; n < batch; ++n) {
            double sum = 0;
            std::vector<double> shares(lp.size());
            for_each_path(c.tensor(1), targets[n], n, size_t(in[n]), 0,
                          [&](const std::vector<size_t>& path, double log_p) {
                            sum += std::exp(log_p);
                            for (size_t t = 0; t < path.size(); ++t)
                              shares[(t * batch + n) * classes + path[t]] += std::exp(log_p);
                          });
            for (size_t t = 0; t < size_t(in[n]); ++t)
              for (size_t k = 0; k < classes; ++k) {
                const size_t at = (t * batch + n) * classes + k;
                out[at] = (std::exp(lp[at]) - shares[at] / sum) * grad[n];
              }
          }
          return {from_values(out, c.tensor(1).sizes())};
        });

const Attached ctc_loss_op =
    attach("ctc_loss")
        .no_gradient_test()  // see Note [Gradient of CTC]; tests/unit/ctc_loss_test.cpp
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({4, 2, 3}), ints(m, {1, 2, 2, 1}, {2, 2}), ints(m, {4, 3}, {2}),
                    ints(m, {2, 1}, {2}), 0, "mean", false},
                   "padded"},
                  {{m.make_strided({4, 2, 3}), ints(m, {1, 1, 0}, {3}), ints(m, {4, 4}, {2}),
                    ints(m, {2, 1}, {2}), 2, "none", false},
                   "one after the other, a repeat"},
                  {{m.make({3, 3}), ints(m, {2, 1}, {2}), ints(m, {3}, {}), ints(m, {2}, {}), 0,
                    "sum", false},
                   "no batch"},
                  {{m.make({2, 2, 3}), ints(m, {1, 1, 2, 1}, {2, 2}), ints(m, {2, 2}, {2}),
                    ints(m, {2, 2}, {2}), 0, "mean", true},
                   "one does not fit"},
                  {{m.make({3, 2, 3}), ints(m, {1, 1}, {2, 1}), ints(m, {3, 2}, {2}),
                    ints(m, {0, 1}, {2}), 0, "none", false},
                   "nothing to emit"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const Tensor two = full({2}, Scalar(2), TensorOptions(kInt64, m.device));
          return {{{m.make({3, 2, 3}), m.make_index({2, 2}, 3), two, two, 3, "mean", false},
                   ErrorKind::value,
                   "blank must be in label range"},
                  {{m.make({3, 2, 3}), m.make_index({2, 2}, 3), two.narrow(0, 0, 1), two, 0, "mean",
                    false},
                   ErrorKind::value,
                   "input_lengths must be of size batch_size"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          std::vector<double> losses =
              reference_losses(c, c.integer(4), c.boolean(6) ? 0.0 : double(INFINITY));
          const bool batched = c.tensor(0).dim() == 3;
          if (c[5].string() == "none")
            return {from_values(losses, batched ? Shape{int64_t(losses.size())} : Shape{})};
          const std::vector<double> len = values_of(c.tensor(3));
          double sum = 0;
          for (size_t n = 0; n < losses.size(); ++n)
            sum += c[5].string() == "mean"
                       ? losses[n] / std::max(len[n], 1.0) / double(losses.size())
                       : losses[n];
          return {from_values({sum}, {})};
        });

}  // namespace
}  // namespace arete::ops
