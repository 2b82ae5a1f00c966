// Samples, references and errors of the records in ops/feed_forward.cpp.
#include <cmath>

#include "arete/core/modes.h"
#include "arete/ops/activation.h"
#include "arete/ops/pointwise.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

using prim::Activation;
const Attached linear_weight_grad_op =
    attach("linear_weight_grad")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 2}), m.make({3, 4})}},
                  {{m.make_strided({3, 2}), m.make_strided({3, 4})}},
                  {{m.make({0, 2}), m.make({0, 4})}, "no rows"},
                  {{m.make({3, 2}), m.make({3, 0})}, "no inputs"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3, 2}), m.make({4, 2})},
                   ErrorKind::value,
                   "expected two matrices with the same number of rows"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &g = c.tensor(0), &x = c.tensor(1);
          return {build_tensor(Shape{g.size(1), x.size(1)},
                               [&](const Shape& i) {
                                 double sum = 0;
                                 for (int64_t r = 0; r < g.size(0); ++r)
                                   sum += at(g, {r, i[0]}) * at(x, {r, i[1]});
                                 return sum;
                               }),
                  build_tensor(Shape{g.size(1)}, [&](const Shape& i) {
                    double sum = 0;
                    for (int64_t r = 0; r < g.size(0); ++r) sum += at(g, {r, i[0]});
                    return sum;
                  })};
        });

Activation activation_of(std::string_view name) {
  return name == "relu"   ? Activation::relu
         : name == "gelu" ? Activation::gelu
                          : Activation::gelu_tanh;
}

double slope(Activation act, double x) {
  const double c = std::sqrt(2 / M_PI);
  switch (act) {
    case Activation::none:
      return 1;
    case Activation::relu:
      return x > 0;
    case Activation::gelu:
      return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
    case Activation::gelu_tanh: {
      const double t = std::tanh(c * (x + 0.044715 * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
    }
  }
  return 0;
}

const Attached mm_activation_grad_op =
    attach("mm_activation_grad")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> all;
          for (const char* act : {"relu", "gelu", "gelu_tanh"}) {
            all.push_back({{m.make({3, 2}), m.make({2, 4}), m.make({3, 4}), act}});
            all.push_back(
                {{m.make_strided({3, 2}), m.make_strided({2, 4}), m.make_strided({3, 4}), act}});
          }
          all.push_back({{m.make({0, 2}), m.make({2, 4}), m.make({0, 4}), "gelu"}, "no rows"});
          return all;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3, 2}), m.make({2, 4}), m.make({3, 3}), "relu"},
                   ErrorKind::value,
                   "shapes do not fit"},
                  {{m.make({3, 2}), m.make({2, 4}), m.make({3, 4}), "tanh"},
                   ErrorKind::value,
                   "unknown activation"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &g = c.tensor(0), &w = c.tensor(1), &pre = c.tensor(2);
          const Activation act = activation_of(c[3].string());
          return {build_tensor(pre.sizes(), [&](const Shape& i) {
            double sum = 0;
            for (int64_t k = 0; k < g.size(1); ++k) sum += at(g, {i[0], k}) * at(w, {k, i[1]});
            return sum * slope(act, at(pre, i));
          })};
        });

Tensor rows_of(const Tensor& t) {
  const IntList rows = t.sizes().first(size_t(t.dim() - 1));
  return from_values(values_of(t), {numel_of(rows), t.size(-1)});
}

const Attached feed_forward_op =
    attach("feed_forward")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> all;
          for (const char* act : {"relu", "gelu", "gelu_tanh"}) {
            all.push_back(
                {{m.make({3, 2}), m.make({4, 2}), m.make({4}), m.make({5, 4}), m.make({5}), act}});
            all.push_back({{m.make_strided({2, 3, 2}), m.make_strided({4, 2}), std::nullopt,
                            m.make_strided({2, 4}), std::nullopt, act},
                           "no bias"});
          }
          all.push_back(
              {{m.make({2}), m.make({3, 2}), m.make({3}), m.make({2, 3}), std::nullopt, "gelu"},
               "one row"});
          all.push_back(
              {{m.make({0, 2}), m.make({3, 2}), m.make({3}), m.make({2, 3}), m.make({2}), "gelu"},
               "no rows"});
          return all;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {
              {{m.make({3, 2}), m.make({4, 3}), std::nullopt, m.make({5, 4}), std::nullopt, "relu"},
               ErrorKind::value,
               "shapes do not fit"},
              {{m.make({3, 2}), m.make({4, 2}), m.make({3}), m.make({5, 4}), std::nullopt, "relu"},
               ErrorKind::value,
               "a bias does not fit its weight"},
              {{m.make({3, 2}), m.make({4, 2}), std::nullopt, m.make({5, 4}), std::nullopt, "tanh"},
               ErrorKind::value,
               "unknown activation"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor x = rows_of(c.tensor(0)), &w1 = c.tensor(1), &w2 = c.tensor(3);
          const Activation act = activation_of(c[5].string());
          const auto value = [&](double v) {
            if (act == Activation::relu) return v > 0 ? v : 0.0;
            if (act == Activation::gelu) return 0.5 * v * std::erfc(-v / std::sqrt(2.0));
            return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
          };
          const Tensor pre = build_tensor(Shape{x.size(0), w1.size(0)}, [&](const Shape& i) {
            double sum = c.has(2) ? at(c.tensor(2), {i[1]}) : 0;
            for (int64_t k = 0; k < x.size(1); ++k) sum += at(x, {i[0], k}) * at(w1, {i[1], k});
            return sum;
          });
          const Tensor hidden =
              build_tensor(pre.sizes(), [&](const Shape& i) { return value(at(pre, i)); });
          Shape sizes(c.tensor(0).sizes());
          sizes.back() = w2.size(0);
          const Tensor y = build_tensor(Shape{x.size(0), w2.size(0)}, [&](const Shape& i) {
            double sum = c.has(4) ? at(c.tensor(4), {i[1]}) : 0;
            for (int64_t k = 0; k < w2.size(1); ++k)
              sum += at(hidden, {i[0], k}) * at(w2, {i[1], k});
            return sum;
          });
          return {y.reshape(sizes), hidden,
                  act == Activation::relu ? from_values({}, Shape{0}) : pre};
        });

}  // namespace
}  // namespace arete::ops
