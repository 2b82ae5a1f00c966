// Samples, references and errors of the records in ops/cross_entropy.cpp.
#include "arete/ops/nll_util.h"
#include "arete/ops/pointwise.h"
#include "arete/samples/nll_reference.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

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

const Attached cross_entropy_op =
    attach("cross_entropy")
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
const Attached nll_loss_op =
    attach("nll_loss")
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
}  // namespace arete::ops
