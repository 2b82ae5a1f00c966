// Samples, references and errors of the records in ops/reduce.cpp.
#include <algorithm>
#include <cmath>

#include "arete/ops/reduce.h"
#include "arete/samples/pointwise_samples.h"
#include "arete/samples/reduce_samples.h"

namespace arete::ops {
namespace {

double total(const std::vector<double>& v) {
  double s = 0;
  for (double x : v) s += x;
  return s;
}

template <class F>
Reference reference_by(F f, DType t = kFloat64) {
  return [f, t](const Call& c) {
    return std::vector<Tensor>{reduce_reference(c, 1, c.boolean(2), f, t)};
  };
}

const Attached sum_op = attach("sum")
                            .samples([](SampleMaker& m) {
                              auto all = reduce_samples(m, {std::nullopt});
                              all.push_back({{m.make({3, 2}), {0}, false, kFloat64}, "dtype"});
                              return all;
                            })
                            .errors([](SampleMaker& m) { return reduce_errors(m, {std::nullopt}); })
                            .reference(reference_by(total));
const Attached mean_op =
    attach("mean")
        .samples([](SampleMaker& m) {
          auto all = reduce_samples(m, {std::nullopt}, false, false);
          all.push_back({{m.make({3, 2}), {0}, false, kFloat64}, "dtype"});
          all.push_back({{m.make({2, 0}), {0}, false, std::nullopt}, "no results"});
          return all;
        })
        .errors([](SampleMaker& m) {
          auto all = reduce_errors(m, {std::nullopt});
          all.push_back({{m.make_index({3}, 4), {0}, false, std::nullopt},
                         ErrorKind::type,
                         "mean(): could not infer output dtype. Input dtype must be either a "
                         "floating point or complex dtype. Got: Long"});
          return all;
        })
        .reference(
            reference_by([](const std::vector<double>& v) { return total(v) / double(v.size()); }));

std::vector<Sample> var_samples(SampleMaker& m) {
  std::vector<Sample> all{{{m.make({2, 3}), std::vector<int64_t>{}, false, 1.0}, "all"},
                          {{m.make({2, 3}), {1}, false, 1.0}, "rows"},
                          {{m.make({2, 3, 2}), {0, -1}, true, 0.0}, "population, kept"},
                          {{m.make_strided({3, 4}), {0}, false, 2.0}, "strided, correction 2"},
                          {{m.make({4}, 30, 34), {0}, false, 1.0}, "far from 0"},
                          {{m.make({}), std::vector<int64_t>{}, false, 0.0}, "0-d"},
                          {{m.make({2, 0}), {0}, false, 1.0}, "no results"}};
  return all;
}

template <class F>
Reference var_reference(F last) {
  return [last](const Call& c) {
    const double correction = c.real(3);
    return std::vector<Tensor>{
        reduce_reference(c, 1, c.boolean(2), [&](const std::vector<double>& v) {
          const double mean = total(v) / double(v.size());
          double s = 0;
          for (double x : v) s += (x - mean) * (x - mean);
          return last(s / std::max(0.0, double(v.size()) - correction));
        })};
  };
}

const Attached var_op = attach("var")
                            .samples(var_samples)
                            .errors([](SampleMaker& m) { return reduce_errors(m, {1.0}); })
                            .reference(var_reference([](double v) { return v; }));
const Attached std_op = attach("std")
                            .samples(var_samples)
                            .errors([](SampleMaker& m) { return reduce_errors(m, {1.0}); })
                            .reference(var_reference([](double v) { return std::sqrt(v); }));

std::vector<Sample> logical_samples(SampleMaker& m) {
  std::vector<Sample> all = reduce_samples(m);
  all.push_back({{m.make({3, 3}, 0, 1.5), {1}, false}, "zeros among integers"});
  all.push_back({{m.make({4, 2}, 1, 2), {0}, false}, "no zeros"});
  return all;
}

const Attached any_op = attach("any")
                            .no_gradient_test()
                            .samples(logical_samples)
                            .errors([](SampleMaker& m) { return reduce_errors(m); })
                            .reference(reference_by(
                                [](const std::vector<double>& v) {
                                  for (double x : v)
                                    if (x != 0) return true;
                                  return false;
                                },
                                kBool));
const Attached all_op = attach("all")
                            .no_gradient_test()
                            .samples(logical_samples)
                            .errors([](SampleMaker& m) { return reduce_errors(m); })
                            .reference(reference_by(
                                [](const std::vector<double>& v) {
                                  for (double x : v)
                                    if (x == 0) return false;
                                  return true;
                                },
                                kBool));
const Attached count_nonzero_op = attach("count_nonzero")
                                      .no_gradient_test()
                                      .samples(logical_samples)
                                      .errors([](SampleMaker& m) { return reduce_errors(m); })
                                      .reference(reference_by(
                                          [](const std::vector<double>& v) {
                                            int64_t n = 0;
                                            for (double x : v) n += x != 0;
                                            return n;
                                          },
                                          kInt64));

// A tensor of a sample with NaN where the square root of a negative number was.
std::vector<Sample> nan_samples(SampleMaker& m) {
  const auto holes = [&](IntList sizes) {
    Tensor t = m.make(sizes, 0.5, 2).detach();
    const Tensor gaps = m.make_mask(sizes);
    Tensor r = where(gaps, Scalar(NAN), t);
    if (m.requires_grad) r.requires_grad_();
    return r;
  };
  return {{{m.make({2, 3}), std::vector<int64_t>{}, false, std::nullopt}, "no NaN"},
          {{holes({3, 4}), {0}, false, std::nullopt}, "some NaN"},
          {{holes({5}), std::vector<int64_t>{}, true, kFloat64}, "kept"}};
}

const Attached without_nan_op =
    attach("without_nan").samples(unary_samples(-2, 2)).reference(reference1([](double v) {
      return std::isnan(v) ? 0 : v;
    }));
const Attached nansum_op = attach("nansum")
                               .samples(nan_samples)
                               .no_gradient_test()
                               .reference(reference_by([](const std::vector<double>& v) {
                                 double s = 0;
                                 for (double x : v)
                                   if (!std::isnan(x)) s += x;
                                 return s;
                               }));
const Attached nanmean_op = attach("nanmean")
                                .samples(nan_samples)
                                .no_gradient_test()
                                .reference(reference_by([](const std::vector<double>& v) {
                                  double s = 0, n = 0;
                                  for (double x : v)
                                    if (!std::isnan(x)) s += x, ++n;
                                  return s / n;
                                }));

}  // namespace
}  // namespace arete::ops
