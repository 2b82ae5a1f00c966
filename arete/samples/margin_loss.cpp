// Samples, references and errors of the records in ops/margin_loss.cpp.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
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

const Attached soft_margin_loss_op =
    attach("soft_margin_loss")
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
const Attached multi_margin_loss_op =
    attach("multi_margin_loss")
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
const Attached multilabel_margin_loss_op =
    attach("multilabel_margin_loss")
        .samples([](SampleMaker& m) -> Samples {
          const auto labels = [&](std::vector<int64_t> v, IntList sizes) {
            return tensor_from_host(v.data(), kInt64, sizes, TensorOptions(kInt64, m.device));
          };
          return {{{m.make({2, 4}), labels({3, 0, -1, 1, 1, -1, 2, 0}, {2, 4}), "mean"}},
                  {{m.make_strided({2, 3}), labels({-1, 0, 1, 0, 1, 2}, {2, 3}), "none"},
                   "none and all"},
                  {{m.make({3}), labels({2, -1, 0}, {3}), "sum"}, "no batch"},
                  {{m.make({2, 4}), labels({1, 1, 0, -1, 2, 2, 2, 2}, {2, 4}), "sum"},
                   "labels that repeat"},
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
const Attached multilabel_soft_margin_loss_op =
    attach("multilabel_soft_margin_loss")
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
const Attached poisson_nll_loss_op =
    attach("poisson_nll_loss")
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
const Attached gaussian_nll_loss_op =
    attach("gaussian_nll_loss")
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
}  // namespace arete::ops
