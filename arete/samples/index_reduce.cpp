// Samples, references and errors of the records in ops/index_reduce.cpp.
#include <algorithm>

#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/index_util.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/samples/index_reference.h"
#include "arete/samples/linalg_samples.h"
#include "arete/samples/reduce_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

using prim::ScatterMode;

std::vector<Tensor> combine_reference(const Call& c) {
  const Tensor &self = c.tensor(0), &index = c.tensor(2);
  const int dim = normalize_dim(c.integer(1), int(self.dim()), "scatter_reduce");
  const int64_t n = self.dim() ? self.size(dim) : 1;
  std::vector<double> v = values_of(self);
  for_each_index(index.sizes(), [&](const Shape& i) {
    const Shape to = at_dim(i, dim, wrapped(at(index, i), n));
    double& old = v[size_t(flat_position(self.sizes(), to))];
    const double s = at(c.tensor(3), i);
    switch (ScatterMode(c.integer(4))) {
      case ScatterMode::mul:
        old *= s;
        break;
      case ScatterMode::min:
        old = std::min(old, s);
        break;
      default:
        old = std::max(old, s);
        break;
    }
  });
  return {from_values(v, self.sizes())};
}

const Attached scatter_combine_op =
    attach("scatter_combine")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> all;
          for (ScatterMode mode : {ScatterMode::mul, ScatterMode::min, ScatterMode::max}) {
            const auto one = [&](IntList s) { return m.make_distinct(s, 0.25); };
            all.push_back(
                {{one({4, 3}), 0, m.make_index({2, 3}, 4), m.make({2, 3}), int(mode)}, "rows"});
            all.push_back(
                {{m.make_strided({2, 3}), -1, m.make_index({2, 4}, 3), one({2, 4}), int(mode)},
                 "repeated"});
          }
          // Products with one zero among the factors, and with two.
          const Tensor self = m.make({3}, 0.5, 2), src = m.make({5}, 0.5, 2);
          self.detach()[0].zero_();
          for (int64_t zero : {0, 1, 4}) src.detach()[zero].zero_();
          all.push_back({{self, 0, tensor({1, 1, 0, 2, 0}, TensorOptions(kInt64, m.device)), src,
                          int(ScatterMode::mul)},
                         "zeros"});
          return all;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3, 2}), 0, m.make_index({2}, 3), m.make({2}), int(ScatterMode::mul)},
                   ErrorKind::value,
                   "Index tensor must have the same number of dimensions as self tensor"}};
        })
        .reference(combine_reference);

template <class F>
std::vector<Tensor> reduce_reference(const Call& c, const Tensor& src, F&& place) {
  const Tensor self = c.tensor(0).dim() ? c.tensor(0) : c.tensor(0).reshape({1});
  const std::string_view reduce = c[4].string();
  const std::vector<double> old = values_of(self);
  std::vector<std::vector<double>> met(old.size());
  if (c.boolean(5))
    for (size_t i = 0; i < old.size(); ++i) met[i].push_back(old[i]);
  for_each_index(src.sizes(), [&](const Shape& i) {
    const Shape to = place(self, i);
    if (!to.empty()) met[size_t(flat_position(self.sizes(), to))].push_back(at(src, i));
  });
  std::vector<double> v = old;
  for (size_t i = 0; i < v.size(); ++i) {
    if (met[i].empty()) continue;
    double sum = 0, product = 1, low = INFINITY, high = -INFINITY;
    for (double x : met[i]) {
      sum += x;
      product *= x;
      low = std::min(low, x);
      high = std::max(high, x);
    }
    v[i] = reduce == "sum"    ? sum
           : reduce == "prod" ? product
           : reduce == "amin" ? low
           : reduce == "amax" ? high
                              : sum / double(met[i].size());
  }
  return {from_values(v, c.tensor(0).sizes())};
}

const Attached scatter_reduce_op =
    attach("scatter_reduce")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> all;
          for (const char* reduce : {"sum", "prod", "mean", "amax", "amin"})
            for (const bool own : {true, false}) {
              all.push_back({{m.make_distinct({4, 3}, 0.25), 0, m.make_index({2, 3}, 4),
                              m.make({2, 3}), reduce, own},
                             "rows"});
              all.push_back({{m.make_strided({2, 3}), -1, m.make_index({2, 4}, 3),
                              m.make_distinct({3, 5}, 0.25), reduce, own},
                             "repeated, larger src"});
              all.push_back({{m.make({}), 0, m.make_index({}, 1), m.make({}), reduce, own}, "0-d"});
            }
          all.push_back(
              {{m.make({3}), 0, m.make_index({0}, 3), m.make({2}), "sum", false}, "nothing"});
          return all;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), 0, m.make_index({2}, 3), m.make({2}), "max", true},
                   ErrorKind::value,
                   "reduce argument must be either sum, prod, mean, amax or amin"},
                  {{m.make({3}), 0, m.make_index({2}, 3), m.make({1}), "sum", true},
                   ErrorKind::value,
                   "Expected index [2] to be no larger than src [1]"}};
        })
        .reference([](const Call& c) {
          const Tensor index = at_least_1d(c.tensor(2)), src = at_least_1d(c.tensor(3));
          return reduce_reference(c, src, [&](const Tensor& self, const Shape& i) {
            for (size_t d = 0; d < i.size(); ++d)
              if (i[d] >= index.size(int64_t(d))) return Shape();
            const int dim = normalize_dim(c.integer(1), int(self.dim()), "scatter_reduce");
            return at_dim(i, dim, wrapped(at(index, i), self.size(dim)));
          });
        });
const Attached index_reduce_op =
    attach("index_reduce")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> all;
          for (const char* reduce : {"prod", "mean", "amax", "amin"})
            for (const bool own : {true, false}) {
              all.push_back({{m.make_distinct({4, 3}, 0.25), 0, m.make_index({3}, 4),
                              m.make({3, 3}), reduce, own},
                             "rows"});
              all.push_back({{m.make_strided({2, 3}), -1, m.make_index({4}, 3).sub(Scalar(3)),
                              m.make_distinct({2, 4}, 0.25), reduce, own},
                             "columns, from the end"});
              all.push_back(
                  {{m.make({}), 0, m.make_index({1}, 1), m.make({}), reduce, own}, "0-d"});
            }
          return all;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), 0, m.make_index({2}, 3), m.make({2}), "sum", true},
                   ErrorKind::value,
                   "Expected reduce to be one of prod, mean, amax or amin but got sum."},
                  {{m.make({3}), 0, m.make_index({2}, 3), m.make({1}), "mean", true},
                   ErrorKind::value,
                   "Number of indices should be equal to source.size(dim)"}};
        })
        .reference([](const Call& c) {
          const std::vector<double> k = values_of(c.tensor(2));
          return reduce_reference(
              c, at_least_1d(c.tensor(3)), [&](const Tensor& self, const Shape& i) {
                const int dim = normalize_dim(c.integer(1), int(self.dim()), "index_reduce");
                return at_dim(i, dim, wrapped(k[size_t(i[size_t(dim)])], self.size(dim)));
              });
        });

}  // namespace
}  // namespace arete::ops
