// Samples, references and errors of the records in ops/ctc_loss.cpp.
#include <algorithm>
#include <cmath>

#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

std::vector<double> reference_losses(const Call& c) {
  const Tensor& p = c.tensor(0);
  const bool batched = p.dim() == 3;
  const std::vector<double> lp = values_of(p), all = values_of(c.tensor(1)),
                            in = values_of(c.tensor(2)), len = values_of(c.tensor(3));
  const size_t batch = batched ? size_t(p.size(1)) : 1, classes = size_t(p.size(-1));
  std::vector<double> losses;
  size_t begin = 0;
  for (size_t n = 0; n < batch; ++n) {
    if (c.tensor(1).dim() == 2) begin = n * size_t(c.tensor(1).size(1));
    const std::vector<double> target(all.begin() + long(begin),
                                     all.begin() + long(begin) + long(len[n]));
    begin += target.size();
    // The probability of every path of symbols that reads as the target, path by path.
    double sum = 0;
    const auto walk = [&](auto& self, size_t t, double log_p, size_t done, int64_t last) -> void {
      if (t == size_t(in[n])) {
        if (done == target.size()) sum += std::exp(log_p);
        return;
      }
      for (size_t k = 0; k < classes; ++k) {
        const double next = log_p + lp[(t * batch + n) * classes + k];
        const bool is_blank = int64_t(k) == c.integer(4);
        if (is_blank || int64_t(k) == last)
          self(self, t + 1, next, done, is_blank ? -1 : last);
        else if (done < target.size() && double(k) == target[done])
          self(self, t + 1, next, done + 1, int64_t(k));
      }
    };
    walk(walk, 0, 0.0, 0, -1);
    losses.push_back(sum > 0 ? -std::log(sum) : c.boolean(6) ? 0.0 : double(INFINITY));
  }
  return losses;
}

const Attached ctc_loss_op =
    attach("ctc_loss")
        .no_gradient_test()  // see Note [Gradient of CTC]; tests/unit/ctc_loss_test.cpp
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto ints = [&](std::vector<int64_t> v, IntList sizes) {
            return tensor_from_host(v.data(), kInt64, sizes, TensorOptions(kInt64, m.device));
          };
          return {
              {{m.make({4, 2, 3}), ints({1, 2, 2, 1}, {2, 2}), ints({4, 3}, {2}), ints({2, 1}, {2}),
                0, "mean", false},
               "padded"},
              {{m.make_strided({4, 2, 3}), ints({1, 1, 0}, {3}), ints({4, 4}, {2}),
                ints({2, 1}, {2}), 2, "none", false},
               "one after the other, a repeat"},
              {{m.make({3, 3}), ints({2, 1}, {2}), ints({3}, {}), ints({2}, {}), 0, "sum", false},
               "no batch"},
              {{m.make({2, 2, 3}), ints({1, 1, 2, 1}, {2, 2}), ints({2, 2}, {2}), ints({2, 2}, {2}),
                0, "mean", true},
               "one does not fit"},
              {{m.make({3, 2, 3}), ints({1, 1}, {2, 1}), ints({3, 2}, {2}), ints({0, 1}, {2}), 0,
                "none", false},
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
          std::vector<double> losses = reference_losses(c);
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
