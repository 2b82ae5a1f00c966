// Samples, references and errors of the records in ops/loss.cpp.
#include <algorithm>
#include <cmath>

#include "arete/ops/pointwise.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

std::vector<Sample> difference_samples(SampleMaker& m) {
  return {{{m.make({2, 3}, 0, 1), m.make({2, 3}, 1.1, 1.4)}},
          {{m.make_strided({2, 3}, 2.6, 4), m.make({3}, 0, 0.2)}},
          {{m.make({0}), m.make({0})}}};
}

// A reference from the loss of one pair of elements.
template <class F>
std::vector<Tensor> reduced(const Call& c, size_t reduction_arg, F f) {
  const Tensor &x = c.tensor(0), &y = c.tensor(1);
  const Shape sizes = broadcast_shapes(x.sizes(), y.sizes(), "");
  std::vector<double> values;
  double sum = 0;
  for_each_index(sizes, [&](const Shape& i) {
    values.push_back(f(at(x, i), at(y, i), i));
    sum += values.back();
  });
  const std::string_view r = c[reduction_arg].string();
  if (r == "none") return {from_values(values, sizes)};
  if (r == "batchmean") return {from_values({sum / double(sizes[0])}, {})};
  return {from_values({r == "sum" ? sum : sum / double(values.size())}, {})};
}

template <class F>
Reference pair_reference(size_t reduction_arg, F f) {
  return [=](const Call& c) {
    return reduced(c, reduction_arg, [&](double x, double y, const Shape&) { return f(x, y, c); });
  };
}

// Samples of a loss of two tensors, `rest` after the reduction. The pairs keep away from kinks.
std::vector<Sample> pair_samples(SampleMaker& m,
                                 const std::vector<std::vector<OwnedArg>>& rest = {{}}) {
  std::vector<Sample> out;
  for (const auto& r : rest) {
    for (const char* reduction : {"mean", "none", "sum"}) {
      const auto add = [&](Tensor x, Tensor y) {
        std::vector<OwnedArg> args{x, y, reduction};
        args.insert(args.end(), r.begin(), r.end());
        out.push_back(Sample{std::move(args)});
      };
      add(m.make({2, 3}, 0, 1), m.make({2, 3}, 1.1, 1.4));
      if (std::string_view(reduction) != "mean") continue;
      add(m.make_strided({2, 3}, 2.6, 4), m.make({2, 3}, 0, 0.2));
      add(m.make({2, 3}, 0, 1), m.make({3}, 1.1, 1.4));
      add(m.make({}, 0, 1), m.make({}, 2.1, 3));
    }
  }
  return out;
}

std::vector<ErrorSample> pair_errors(SampleMaker& m, std::vector<OwnedArg> rest = {}) {
  std::vector<OwnedArg> wrong_reduction{m.make({2}), m.make({2}), "average"},
      wrong_sizes{m.make({2}), m.make({3}), "mean"};
  for (auto* a : {&wrong_reduction, &wrong_sizes}) a->insert(a->end(), rest.begin(), rest.end());
  return {{wrong_reduction, ErrorKind::value, "average is not a valid value for reduction"},
          {wrong_sizes, ErrorKind::value,
           "The size of tensor a (2) must match the size of tensor b (3)"}};
}

Reference element_reference(double (*f)(double, double)) {
  return [f](const Call& c) -> std::vector<Tensor> {
    const Tensor &x = c.tensor(0), &y = c.tensor(1);
    return {build_tensor(broadcast_shapes(x.sizes(), y.sizes(), ""),
                         [&](const Shape& i) { return f(at(x, i), at(y, i)); })};
  };
}

const Attached squared_error_op =
    attach("squared_error")
        .samples(difference_samples)
        .reference(element_reference([](double x, double y) { return (x - y) * (x - y); }));
const Attached absolute_error_op =
    attach("absolute_error")
        .samples(difference_samples)
        .reference(element_reference([](double x, double y) { return std::fabs(x - y); }));

std::vector<Sample> weight_samples(SampleMaker& m, const std::vector<OwnedArg>& rest) {
  std::vector<Sample> out;
  for (const char* reduction : {"mean", "none", "sum"}) {
    std::vector<OwnedArg> args{m.make({2, 3}, 0, 1), m.make({2, 3}, 1.1, 1.4), reduction};
    args.insert(args.end(), rest.begin(), rest.end());
    args.push_back(m.make({2, 3}, 0.5, 2));
    out.push_back(Sample{std::move(args), "weight"});
  }
  return out;
}

std::vector<Sample> joined(std::vector<Sample> a, const std::vector<Sample>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

template <class F>
Reference weighted_reference(size_t i, bool by_weight, F f) {
  return [=](const Call& c) {
    auto r = reduced(c, 2, [&](double x, double y, const Shape& at_index) {
      return f(x, y, c) * (c.has(i) ? at(c.tensor(i), at_index) : 1);
    });
    if (c.has(i) && by_weight && c[2].string() == "mean") {
      double sum = 0;
      for (double w : values_of(c.tensor(i))) sum += w;
      r[0] = from_values({at(r[0], {}) * double(c.tensor(i).numel()) / sum}, {});
    }
    return r;
  };
}

std::vector<ErrorSample> weighted_errors(SampleMaker& m, std::vector<OwnedArg> rest) {
  rest.push_back(std::nullopt);
  std::vector<ErrorSample> e = pair_errors(m, rest);
  rest.back() = m.make({3});
  std::vector<OwnedArg> args{m.make({2}), m.make({2}), "mean"};
  args.insert(args.end(), rest.begin(), rest.end());
  e.push_back({args, ErrorKind::value, "Weights and input must have the same size."});
  return e;
}

const Attached mse_loss_op =
    attach("mse_loss")
        .samples([](SampleMaker& m) {
          return joined(pair_samples(m, {{std::nullopt}}), weight_samples(m, {}));
        })
        .errors([](SampleMaker& m) { return weighted_errors(m, {}); })
        .reference(weighted_reference(
            3, true, [](double x, double y, const Call&) { return (x - y) * (x - y); }));
const Attached l1_loss_op =
    attach("l1_loss")
        .samples([](SampleMaker& m) {
          return joined(pair_samples(m, {{std::nullopt}}), weight_samples(m, {}));
        })
        .errors([](SampleMaker& m) { return weighted_errors(m, {}); })
        .reference(weighted_reference(
            3, true, [](double x, double y, const Call&) { return std::fabs(x - y); }));
const Attached smooth_l1_loss_op =
    attach("smooth_l1_loss")
        .samples([](SampleMaker& m) {
          return pair_samples(m, {{1.7}, {0.05}, {0.0}});
        })
        .errors([](SampleMaker& m) {
          auto e = pair_errors(m, {1.0});
          e.push_back({{m.make({2}), m.make({2}), "mean", -1.0},
                       ErrorKind::value,
                       "smooth_l1_loss does not support negative values for beta."});
          return e;
        })
        .reference(pair_reference(2, [](double x, double y, const Call& c) {
          const double z = std::fabs(x - y), beta = c.real(3);
          return z < beta ? 0.5 * z * z / beta : z - 0.5 * beta;
        }));
const Attached huber_loss_op =
    attach("huber_loss")
        .samples([](SampleMaker& m) {
          return joined(pair_samples(m, {{1.7, std::nullopt}, {0.05, std::nullopt}}),
                        weight_samples(m, {1.7}));
        })
        .errors([](SampleMaker& m) {
          auto e = weighted_errors(m, {1.0});
          e.push_back({{m.make({2}), m.make({2}), "mean", 0.0, std::nullopt},
                       ErrorKind::value,
                       "huber_loss does not support non-positive values for delta."});
          return e;
        })
        .reference(weighted_reference(4, false, [](double x, double y, const Call& c) {
          const double z = std::fabs(x - y), d = c.real(3);
          return z <= d ? 0.5 * z * z : d * (z - 0.5 * d);
        }));

double bce(double x, double y) {
  return -(y * std::max(std::log(x), -100.0) + (1 - y) * std::max(std::log1p(-x), -100.0));
}

double soft_plus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

const Attached bce_op = attach("bce")
                            .samples([](SampleMaker& m) -> std::vector<Sample> {
                              return {{{m.make({2, 3}, 0.1, 0.9), m.make({2, 3}, 0, 1)}},
                                      {{m.make_strided({2, 3}, 0.1, 0.9), m.make({3}, 0, 1)}}};
                            })
                            .reference(element_reference(bce));
const Attached bce_logits_op =
    attach("bce_logits")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make({2, 3}, 0, 1)}},
                  {{m.make_strided({2, 3}, -30, 30), m.make({3}, 0, 1)}}};
        })
        .reference(element_reference([](double x, double y) { return soft_plus(x) - x * y; }));
const Attached bce_logits_weighted_op =
    attach("bce_logits_weighted")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make({2, 3}, 0, 1), m.make({3}, 0.5, 2)}}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &x = c.tensor(0), &y = c.tensor(1), &w = c.tensor(2);
          return {build_tensor(x.sizes(), [&](const Shape& i) {
            return at(w, i) * at(y, i) * soft_plus(-at(x, i)) +
                   (1 - at(y, i)) * soft_plus(at(x, i));
          })};
        });
const Attached binary_cross_entropy_op =
    attach("binary_cross_entropy")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}, 0.1, 0.9), m.make({2, 3}, 0, 1), std::nullopt, "mean"}},
                  {{m.make({2, 3}, 0.1, 0.9), m.make({2, 3}, 0, 1), m.make({3}, 0.5, 2), "sum"}},
                  {{m.make_strided({2, 3}, 0.1, 0.9), m.make({2, 3}, 0, 1), m.make({2, 1}, 0.5, 2),
                    "none"}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}, 0.1, 0.9), m.make({3}, 0, 1), std::nullopt, "mean"},
                   ErrorKind::value,
                   "Using a target size ([3]) that is different to the input size ([2, 3])"}};
        })
        .reference([](const Call& c) {
          return reduced(c, 3, [&](double x, double y, const Shape& i) {
            return bce(x, y) * (c.has(2) ? at(c.tensor(2), i) : 1);
          });
        });
const Attached bce_with_logits_op =
    attach("binary_cross_entropy_with_logits")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {
              {{m.make({2, 3}), m.make({2, 3}, 0, 1), std::nullopt, "mean", std::nullopt}},
              {{m.make({2, 3}), m.make({2, 3}, 0, 1), m.make({3}, 0.5, 2), "sum", std::nullopt}},
              {{m.make_strided({2, 3}), m.make({2, 3}, 0, 1), std::nullopt, "none",
                m.make({3}, 0.5, 2)}},
              {{m.make({}), m.make({}, 0, 1), std::nullopt, "mean", std::nullopt}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({2}), std::nullopt, "mean", std::nullopt},
                   ErrorKind::value,
                   "Target size ([2]) must be the same as input size ([2, 3])"}};
        })
        .reference([](const Call& c) {
          return reduced(c, 3, [&](double x, double y, const Shape& i) {
            const double w = c.has(4) ? at(c.tensor(4), i) : 1;
            return (w * y * soft_plus(-x) + (1 - y) * soft_plus(x)) *
                   (c.has(2) ? at(c.tensor(2), i) : 1);
          });
        });
const Attached kl_div_point_op = attach("kl_div_point")
                                     .samples([](SampleMaker& m) -> std::vector<Sample> {
                                       return {{{m.make({2, 3}), m.make({2, 3}, 0.1, 1)}},
                                               {{m.make_strided({2, 3}), m.make({3}, 0.1, 1)}}};
                                     })
                                     .reference(element_reference([](double x, double t) {
                                       return t == 0 ? 0 : t * (std::log(t) - x);
                                     }));
const Attached kl_div_log_point_op =
    attach("kl_div_log_point")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make({2, 3})}}, {{m.make_strided({2, 3}), m.make({3})}}};
        })
        .reference(element_reference([](double x, double t) { return std::exp(t) * (t - x); }));
const Attached kl_div_op =
    attach("kl_div")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> out;
          for (const char* r : {"mean", "none", "sum", "batchmean"}) {
            out.push_back({{m.make({2, 3}), m.make({2, 3}, 0.1, 1), r, false}});
            out.push_back({{m.make({2, 3}), m.make_strided({2, 3}), r, true}});
          }
          return out;
        })
        .errors([](SampleMaker& m) { return pair_errors(m, {false}); })
        .reference(pair_reference(2, [](double x, double t, const Call& c) {
          if (c.boolean(3)) return std::exp(t) * (t - x);
          return t == 0 ? 0 : t * (std::log(t) - x);
        }));

}  // namespace
}  // namespace arete::ops
