// Samples, references and errors of the records in ops/distance.cpp.
#include <algorithm>
#include <cmath>

#include "arete/ops/pointwise.h"
#include "arete/samples/reduce_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

double distance(const std::vector<double>& a, const std::vector<double>& b, double p, double eps) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(std::fabs(a[i] - b[i] + eps), p);
  return std::pow(sum, 1 / p);
}

struct Cosine {
  double dot = 0, a = 0, b = 0;
  double value(double eps) const {
    return dot / (std::max(std::sqrt(a), eps) * std::max(std::sqrt(b), eps));
  }
};

// f(x, y) of every pair of rows along `dim`.
template <class F>
Tensor map_row_pairs(const Tensor& x, const Tensor& y, int64_t dim, F f) {
  const Shape full = broadcast_shapes(x.sizes(), y.sizes(), "");
  if (dim < 0) dim += int64_t(full.size());
  Shape outer = full;
  outer.erase(outer.begin() + dim);
  return build_tensor(outer, [&](const Shape& i) {
    std::vector<double> a, b;
    Shape at_index = i;
    at_index.insert(at_index.begin() + dim, 0);
    for (int64_t& k = at_index[size_t(dim)]; k < full[size_t(dim)]; ++k) {
      a.push_back(at(x, at_index));
      b.push_back(at(y, at_index));
    }
    return f(a, b);
  });
}

double cosine(const std::vector<double>& a, const std::vector<double>& b, double eps) {
  Cosine c;
  for (size_t i = 0; i < a.size(); ++i) {
    c.dot += a[i] * b[i];
    c.a += a[i] * a[i];
    c.b += b[i] * b[i];
  }
  return c.value(eps);
}

std::vector<Tensor> reduce_reference(const Tensor& t, std::string_view reduction) {
  if (reduction == "none") return {t};
  double sum = 0;
  for (double v : values_of(t)) sum += v;
  return {from_values({reduction == "sum" ? sum : sum / double(t.numel())}, {})};
}

const Attached cosine_similarity_op =
    attach("cosine_similarity")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make({2, 3}), 1, 1e-8}},
                  {{m.make_strided({2, 3}), m.make({1, 3}), -1, 1e-6}},
                  {{m.make({2, 3, 2}), m.make({2, 3, 2}), 0, 1e-8}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({2, 3}), 2, 1e-8},
                   ErrorKind::index,
                   "Dimension out of range"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {
              map_row_pairs(c.tensor(0), c.tensor(1), c.integer(2),
                            [&](const auto& a, const auto& b) { return cosine(a, b, c.real(3)); })};
        });
const Attached pairwise_distance_op =
    attach("pairwise_distance")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}, 0, 1), m.make({2, 3}, 1.5, 3), 2.0, 1e-6, false}},
                  {{m.make_strided({2, 3}, 0, 1), m.make({3}, 1.5, 3), 1.0, 1e-6, true}},
                  {{m.make({3}, 0, 1), m.make({3}, 1.5, 3), 3.0, 1e-3, false}}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          Tensor t = map_row_pairs(c.tensor(0), c.tensor(1), -1, [&](const auto& a, const auto& b) {
            return distance(a, b, c.real(2), c.real(3));
          });
          Shape sizes(t.sizes());
          if (c.boolean(4)) sizes.push_back(1);
          return {from_values(values_of(t), sizes)};
        });
const Attached cosine_embedding_loss_op =
    attach("cosine_embedding_loss")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto labels = [&] { return m.make_index({3}, 2).mul(Scalar(2)).sub(Scalar(1)); };
          return {
              {{m.make({3, 2}, 0.5, 2), m.make({3, 2}, 0.5, 2), labels(), 0.1, "mean"}},
              {{m.make({3, 2}, 0.5, 2), m.make_strided({3, 2}, 0.5, 2), labels(), 0.0, "none"}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3, 2}), m.make({3, 2}), m.make_index({3, 2}, 2), 0.0, "mean"},
                   ErrorKind::value,
                   "cosine_embedding_loss: input1, input2 and target do not fit"}};
        })
        .reference([](const Call& c) {
          const Tensor cosines =
              map_row_pairs(c.tensor(0), c.tensor(1), -1,
                            [](const auto& a, const auto& b) { return cosine(a, b, 1e-6); });
          return reduce_reference(
              build_tensor(cosines.sizes(),
                           [&](const Shape& i) {
                             const double v = at(cosines, i);
                             return at(c.tensor(2), i) == 1 ? 1 - v : std::max(0.0, v - c.real(3));
                           }),
              c[4].string());
        });
const Attached hinge_embedding_loss_op =
    attach("hinge_embedding_loss")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto labels = [&] { return m.make_index({2, 3}, 2).mul(Scalar(2)).sub(Scalar(1)); };
          return {{{m.make({2, 3}, 0, 0.9), labels(), 1.0, "mean"}},
                  {{m.make_strided({2, 3}, 0.6, 2), labels(), 0.5, "none"}},
                  {{m.make({2, 3}, 0, 0.9), m.make({2, 3}, -0.5, 0.5).detach(), 1.0, "sum"},
                   "other targets"}};
        })
        .reference([](const Call& c) {
          return reduce_reference(build_tensor(c.tensor(0).sizes(),
                                               [&](const Shape& i) {
                                                 const double v = at(c.tensor(0), i);
                                                 const double t = at(c.tensor(1), i);
                                                 return (t != -1 ? v : 0) +
                                                        (t != 1 ? std::max(0.0, c.real(2) - v) : 0);
                                               }),
                                  c[3].string());
        });
const Attached margin_ranking_loss_op =
    attach("margin_ranking_loss")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto labels = [&] { return m.make_index({3}, 2).mul(Scalar(2)).sub(Scalar(1)); };
          return {{{m.make({3}, 0, 1), m.make({3}, 1.2, 2), labels(), 0.1, "mean"}},
                  {{m.make({3}, 0, 1), m.make({3}, 1.2, 2), labels(), 0.0, "sum"}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), m.make({3, 1}), m.make({3}), 0.0, "mean"},
                   ErrorKind::value,
                   "margin_ranking_loss : All input tensors should have same dimension"}};
        })
        .reference([](const Call& c) {
          return reduce_reference(
              build_tensor(c.tensor(0).sizes(),
                           [&](const Shape& i) {
                             return std::max(0.0, -at(c.tensor(2), i) * (at(c.tensor(0), i) -
                                                                         at(c.tensor(1), i)) +
                                                      c.real(3));
                           }),
              c[4].string());
        });
const Attached triplet_margin_loss_op =
    attach("triplet_margin_loss")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}, 0, 1), m.make({2, 3}, 3, 4), m.make({2, 3}, 1.5, 2), 1.0, 2.0,
                    1e-6, false, "mean"}},
                  {{m.make({2, 3}, 0, 1), m.make({2, 3}, 3, 4), m.make({2, 3}, 1.5, 1.9), 2.0, 2.0,
                    1e-6, true, "none"}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({2, 3}), m.make({2, 3}), 0.0, 2.0, 1e-6, false, "mean"},
                   ErrorKind::value,
                   "margin must be greater than 0, got 0"},
                  {{m.make({2, 3}), m.make({3}), m.make({2, 3}), 1.0, 2.0, 1e-6, false, "mean"},
                   ErrorKind::value,
                   "The anchor, positive, and negative tensors are expected to have the same"}};
        })
        .reference([](const Call& c) {
          const auto d = [&](size_t i, size_t j) {
            return map_row_pairs(c.tensor(i), c.tensor(j), -1, [&](const auto& a, const auto& b) {
              return distance(a, b, c.real(4), c.real(5));
            });
          };
          const Tensor near = d(0, 1), far = d(0, 2), other = d(1, 2);
          return reduce_reference(
              build_tensor(near.sizes(),
                           [&](const Shape& i) {
                             const double f =
                                 c.boolean(6) ? std::min(at(far, i), at(other, i)) : at(far, i);
                             return std::max(0.0, at(near, i) - f + c.real(3));
                           }),
              c[7].string());
        });

}  // namespace
}  // namespace arete::ops
