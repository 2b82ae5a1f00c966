// Samples, references and errors of the records in ops/fused_norm.cpp.
#include <algorithm>
#include <cmath>

#include "arete/ops/fused_norm.h"
#include "arete/ops/fused_norm_internal.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
using namespace norms;
using L = std::initializer_list<int64_t>;

namespace {

bool has_residual_argument(const Call& c) { return c.size() == 13; }

std::vector<Tensor> norm_reference(const Call& c) {
  const Tensor& x = c.tensor(0);
  const bool with_residual = has_residual_argument(c);
  const NormSpec s = spec_of(c, with_residual ? 6 : 5);
  const Shape rows = stat_sizes(s);
  const std::vector<double> residual =
      with_residual ? values_of(c.tensor(3)) : std::vector<double>();
  const std::vector<double> xv = values_of(x);
  std::vector<double> mean(size_t(numel_of(rows)), 0.0), var(mean.size(), 0.0), y;
  const double n = elements_per_row(s);
  size_t k = 0;
  for_each_index(s.shape, [&](const Shape& i) {
    mean[size_t(flat_position(rows, i))] += s.center ? xv[k] / n : 0;
    ++k;
  });
  k = 0;
  for_each_index(s.shape, [&](const Shape& i) {
    const size_t r = size_t(flat_position(rows, i));
    var[r] += (xv[k] - mean[r]) * (xv[k] - mean[r]) / n;
    ++k;
  });
  for (double& v : var) v = 1 / std::sqrt(v + s.eps);
  k = 0;
  const std::vector<double> w = c.has(1) ? values_of(c.tensor(1)) : std::vector<double>();
  const std::vector<double> b = c.has(2) ? values_of(c.tensor(2)) : std::vector<double>();
  for_each_index(s.shape, [&](const Shape& i) {
    const size_t r = size_t(flat_position(rows, i)), p = size_t(flat_position(s.weight_shape, i));
    double v = (xv[k] - mean[r]) * var[r] * (c.has(1) ? w[p] : 1) + (c.has(2) ? b[p] : 0);
    if (with_residual) v += residual[k];
    y.push_back(s.relu ? std::max(v, 0.0) : v);
    ++k;
  });
  return {from_values(y, x.sizes()), from_values(mean, rows), from_values(var, rows)};
}

// Without running statistics.
std::vector<Sample> norm_samples(SampleMaker& m, bool with_residual) {
  const double eps = 1e-3;
  std::vector<Sample> all{
      {{m.make({3, 4}), m.make({4}), m.make({4}), L{3, 4}, L{1}, L{4}, true, eps, false},
       "layer norm"},
      {{m.make_strided({3, 4}), std::nullopt, std::nullopt, L{3, 4}, L{1}, L{4}, true, eps, false}},
      {{m.make({3, 4}), m.make({4}), std::nullopt, L{3, 4}, L{1}, L{4}, false, eps, false},
       "RMS norm"},
      {{m.make({2, 4, 2}), m.make({4}), m.make({4}), L{2, 2, 2, 2}, L{2, 3}, L{2, 2, 1}, true, eps,
        false},
       "group norm"},
      {{m.make({3, 2, 2}), m.make({2}), m.make({2}), L{3, 2, 2}, L{0, 2}, L{2, 1}, true, eps,
        false},
       "batch norm"},
      {{m.make({3, 2, 2}), std::nullopt, m.make({2}), L{3, 2, 2}, L{0, 2}, L{2, 1}, true, eps,
        false}},
      {{m.make_strided({2, 3, 2}), m.make({3}), m.make({3}), L{2, 3, 2}, L{2}, L{3, 1}, true, eps,
        false},
       "instance norm"},
      {{m.make({3, 2, 2}), m.make({2}), m.make({2}), L{3, 2, 2}, L{0, 2}, L{2, 1}, true, eps, true},
       "batch norm with relu"},
      {{m.make_strided({3, 2, 2}), std::nullopt, std::nullopt, L{3, 2, 2}, L{0, 2}, L{2, 1}, true,
        eps, true},
       "batch norm with relu"}};
  for (Sample& s : all) {
    s.args.insert(s.args.begin() + 3, 2, OwnedArg());
    s.args.push_back(OwnedArg(0.0));
    if (with_residual)
      s.args.insert(s.args.begin() + 3, OwnedArg(m.make(s.args[0].tensor.sizes())));
  }
  return all;
}

std::vector<ErrorSample> norm_errors(SampleMaker& m, bool with_residual) {
  std::vector<ErrorSample> all{{{m.make({3, 4}), m.make({3}), std::nullopt, std::nullopt,
                                 std::nullopt, L{3, 4}, L{1}, L{4}, true, 1e-5, false, 0.0},
                                ErrorKind::value,
                                "weight and bias must have one element for each position"},
                               {{m.make({3, 4}), m.make({4}), std::nullopt, std::nullopt,
                                 std::nullopt, L{3, 4}, L{1}, L{4}, true, 1e-5, true, 0.0},
                                ErrorKind::value,
                                "relu needs statistics for each weight"},
                               {{m.make({3, 4}), std::nullopt, std::nullopt, m.make({4}),
                                 std::nullopt, L{3, 4}, L{0}, L{4}, true, 1e-5, false, 0.1},
                                ErrorKind::value,
                                "running_mean and running_var belong together"},
                               {{m.make({3, 4}), std::nullopt, std::nullopt, m.make({4}),
                                 m.make({3}), L{3, 4}, L{0}, L{4}, true, 1e-5, false, 0.1},
                                ErrorKind::value,
                                "running statistics must be like the input's"}};
  for (ErrorSample& e : all)
    if (with_residual) e.args.insert(e.args.begin() + 3, OwnedArg(m.make({3, 4})));
  return all;
}

const Attached fused_norm_op = attach("fused_norm")
                                   .samples([](SampleMaker& m) { return norm_samples(m, false); })
                                   .errors([](SampleMaker& m) { return norm_errors(m, false); })
                                   .reference(norm_reference);
const Attached fused_norm_residual_op =
    attach("fused_norm_residual")
        .samples([](SampleMaker& m) { return norm_samples(m, true); })
        .errors([](SampleMaker& m) { return norm_errors(m, true); })
        .reference(norm_reference);

}  // namespace
}  // namespace arete::ops
