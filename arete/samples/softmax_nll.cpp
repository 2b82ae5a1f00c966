// Samples, references and errors of the records in ops/softmax_nll.cpp.
#include <cmath>

#include "arete/ops/fused_builder.h"
#include "arete/ops/nll_util.h"
#include "arete/ops/pointwise.h"
#include "arete/samples/nll_reference.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

std::vector<Sample> nll_samples(SampleMaker& m) {
  std::vector<Sample> out;
  for (int r : {kMean, kNone, kSum}) {
    out.push_back({{m.make({3, 4}), m.make_index({3}, 4), std::nullopt, -100, r}});
    out.push_back({{m.make({3, 4}), m.make_index({3}, 4), m.make({4}, 0.5, 2).detach(), 1, r}});
  }
  out.push_back({{m.make_strided({2, 3, 2}), m.make_index({2, 2}, 3), std::nullopt, 0, kMean}});
  out.push_back({{m.make({5}), m.make_index({}, 5), std::nullopt, -100, kMean}});
  // More classes than a kernel sees one by one, without and with weights.
  for (int r : {kMean, kNone, kSum}) {
    out.push_back({{m.make({3, 13}), m.make_index({3}, 13), std::nullopt, -100, r}});
    out.push_back({{m.make({3, 10}), m.make_index({3}, 10), m.make({10}, 0.5, 2).detach(), -1, r}});
  }
  return out;
}

const Attached softmax_nll_op =
    attach("softmax_nll")
        .samples(nll_samples)
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3, 4}), m.make_index({2}, 4), std::nullopt, -100, 1},
                   ErrorKind::value,
                   "Expected input batch_size (3) to match target batch_size (2)."}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &x = c.tensor(0), &t = c.tensor(1);
          std::vector<double> losses, lse;
          double sum = 0, total = 0;
          for_each_index(t.sizes(), [&](const Shape& row) {
            const int64_t k = int64_t(at(t, row));
            lse.push_back(log_sum_exp(x, row));
            const double w = k == c.integer(3) ? 0 : class_weight(c, 2, k);
            losses.push_back(w == 0 ? 0 : w * (lse.back() - at(x, logit_index(x, row, k))));
            sum += losses.back();
            total += w;
          });
          const int64_t r = c.integer(4);
          return {r == kNone ? from_values(losses, t.sizes())
                             : from_values({r == kSum ? sum : sum / total}, {}),
                  from_values(lse, t.sizes()), from_values({r == kMean ? total : 1.0}, {})};
        });
const Attached softmax_nll_backward_op =
    attach("softmax_nll_backward")
        // Its gradient takes lse and the total weight as functions of the input, so it is checked
        // as the second derivative of softmax_nll.
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> out;
          const DType work = work_dtype(m.dtype);
          const auto add = [&](Tensor grad, Tensor x, Tensor target, Tensor weight, int reduction) {
            const Tensor lse = x.detach().to(work).logsumexp(int64_t(class_dim(x)));
            const Tensor total = m.make({}, 1, 3).detach().to(work);
            out.push_back({{grad, x, target, weight, lse, total, 1, reduction}});
          };
          add(m.make({}), m.make({3, 4}), m.make_index({3}, 4), Tensor(), kMean);
          add(m.make({3}), m.make({3, 4}), m.make_index({3}, 4), m.make({4}, 0.5, 2), kNone);
          add(m.make({}), m.make_strided({2, 3, 2}), m.make_index({2, 2}, 3), Tensor(), kSum);
          add(m.make({}), m.make({4}), m.make_index({}, 4), Tensor(), kMean);
          add(m.make({}), m.make({3, 13}), m.make_index({3}, 13), Tensor(), kMean);
          add(m.make({3}), m.make({3, 10}), m.make_index({3}, 10), m.make({10}, 0.5, 2), kNone);
          return out;
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &grad = c.tensor(0), &x = c.tensor(1), &t = c.tensor(2);
          const size_t d = class_dim(x);
          return {build_tensor(x.sizes(), [&](const Shape& i) {
            Shape row = i;
            row.erase(row.begin() + d);
            const int64_t label = int64_t(at(t, row));
            if (label == c.integer(6)) return 0.0;
            const double p = std::exp(at(x, i) - at(c.tensor(4), row)) - (label == i[d] ? 1 : 0);
            return p * at(grad, row) * class_weight(c, 3, label) / at(c.tensor(5), {});
          })};
        });

}  // namespace
}  // namespace arete::ops
