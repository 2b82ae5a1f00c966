// Samples, references and errors of the records in ops/index.cpp.
#include <complex>

#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/index_util.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/samples/index_reference.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
using prim::ScatterMode;

namespace {

const Attached gather_op =
    attach("gather")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 4}), 0, m.make_index({2, 4}, 3)}, "rows"},
                  {{m.make({3, 4}), -1, m.make_index({2, 5}, 4)}, "columns, repeated"},
                  {{m.make_strided({2, 3, 2}), 1, m.make_index({2, 2, 1}, 3)}, "strided, smaller"},
                  {{m.make({5}), 0, m.make_index({3}, 5).sub(Scalar(5))}, "from the end"},
                  {{m.make({}), 0, m.make_index({}, 1)}, "0-d"},
                  {{m.make({}), -1, m.make_index({1}, 1)}, "0-d, index 1-d"},
                  {{m.make({3}), 0, m.make_index({}, 3)}, "index 0-d"},
                  {{m.make({3, 2}), 0, m.make_index({0, 2}, 3)}, "empty"},
                  {{m.make({3, 2}), 0, m.make_index({0}, 3)}, "empty, of another rank"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3, 2}), 0, m.make_index({2}, 3)},
                   ErrorKind::value,
                   "Index tensor must have the same number of dimensions as input tensor"},
                  {{m.make({3, 2}), 0, m.make_index({2, 3}, 3)},
                   ErrorKind::value,
                   "Expected index [2, 3] to be no larger than self [3, 2] apart from dimension 0"},
                  {{m.make({3, 2}), 2, m.make_index({2, 2}, 3)},
                   ErrorKind::index,
                   "Dimension out of range"},
                  {{m.make({3}), 0, m.make_mask({2})},
                   ErrorKind::type,
                   "gather(): Expected dtype int32/int64 for index"},
                  {{m.make({3}), 0, m.make_index({1}, 1).add(Scalar(5))},
                   ErrorKind::index,
                   "index 5 is out of bounds for dimension 0 with size 3"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor x = at_least_1d(c.tensor(0)), index = at_least_1d(c.tensor(2));
          const int dim = normalize_dim(c.integer(1), int(x.dim()), "gather");
          const Tensor y = build_tensor(index.sizes(), [&](const Shape& i) {
            return at(x, at_dim(i, dim, wrapped(at(index, i), x.size(dim))));
          });
          return {y.reshape(c.tensor(2).sizes())};
        });

std::vector<Sample> scatter_samples(SampleMaker& m, bool repeats) {
  // Indices of `set` are distinct within a lane, so that every value has a gradient.
  const Tensor rows = repeats ? m.make_index({2, 3}, 4)
                              : tensor({{3, 0, 1}, {0, 2, 3}}, TensorOptions(kInt64, m.device));
  const Tensor last = tensor({{2, 0}, {-1, 1}}, TensorOptions(kInt64, m.device));
  return {{{m.make({4, 3}), 0, rows, m.make({2, 3})}, "rows"},
          {{m.make_strided({2, 3}), -1, last, m.make({2, 2})}, "strided, from the end"},
          {{m.make({2, 3}), 1, last, m.make_strided({3, 4})}, "larger src"},
          {{m.make({}), 0, m.make_index({}, 1), m.make({})}, "0-d"},
          {{m.make({}), 0, m.make_index({1}, 1), m.make({1})}, "0-d, the others 1-d"},
          {{m.make({3}), 0, m.make_index({0}, 3), m.make({0})}, "empty"},
          {{m.make({3, 2}), 0, m.make_index({0}, 3), m.make({2, 2})}, "empty, of another rank"}};
}

// The same with `reduce`.
std::vector<Sample> with_reduce(std::vector<Sample> samples, OwnedArg reduce) {
  for (Sample& s : samples) s.args.push_back(reduce);
  return samples;
}

std::vector<ErrorSample> scatter_errors(SampleMaker& m) {
  return {{{m.make({3, 2}), 0, m.make_index({2}, 3), m.make({2})},
           ErrorKind::value,
           "Index tensor must have the same number of dimensions as self tensor"},
          {{m.make({3, 2}), 0, m.make_index({2, 2}, 3), m.make({1, 2})},
           ErrorKind::value,
           "Expected index [2, 2] to be no larger than src [1, 2]"},
          {{m.make({3}), 0, m.make_mask({2}), m.make({2})},
           ErrorKind::type,
           "Expected dtype int32/int64 for index"},
          {{m.make({3}), 0, m.make_index({2}, 3), m.make_mask({2})},
           ErrorKind::type,
           "Expected self.dtype to be equal to src.dtype"},
          {{m.make({3}), 0, m.make_index({1}, 1).sub(Scalar(4)), m.make({1})},
           ErrorKind::index,
           "index -4 is out of bounds for dimension 0 with size 3"}};
}

// f(old, new) for every element that is written.
template <class F>
std::vector<Tensor> scatter_reference(const Call& c, F f) {
  const Tensor self = at_least_1d(c.tensor(0)), index = at_least_1d(c.tensor(2));
  const int dim = normalize_dim(c.integer(1), int(self.dim()), "scatter");
  const bool number = c[3].kind() != Arg::Kind::tensor;
  const Tensor src = number ? Tensor() : at_least_1d(c.tensor(3));
  std::vector<double> v = values_of(self);
  for_each_index(index.sizes(), [&](const Shape& i) {
    const Shape to = at_dim(i, dim, wrapped(at(index, i), self.size(dim)));
    double& old = v[size_t(flat_position(self.sizes(), to))];
    old = f(old, number ? c.scalar(3).to_double() : at(src, i));
  });
  return {from_values(v, c.tensor(0).sizes())};
}

std::vector<Tensor> set_reference(const Call& c) {
  const std::string_view reduce = c.has(4) ? c[4].string() : "";
  return scatter_reference(c, [reduce](double old, double v) {
    return reduce.empty() ? v : reduce == "add" ? old + v : old * v;
  });
}

std::vector<Tensor> add_reference(const Call& c) {
  return scatter_reference(c, [](double old, double v) { return old + v; });
}

const Attached scatter_op =
    attach("scatter")
        .samples([](SampleMaker& m) {
          std::vector<Sample> all = with_reduce(scatter_samples(m, false), std::nullopt);
          for (Sample& s : with_reduce(scatter_samples(m, true), "add")) all.push_back(s);
          // Without a gradient.
          SampleMaker plain(m.dtype, m.device, false);
          for (Sample& s : with_reduce(scatter_samples(plain, true), "multiply")) all.push_back(s);
          return all;
        })
        .errors([](SampleMaker& m) {
          std::vector<ErrorSample> all = scatter_errors(m);
          all.push_back({{m.make({3}), 0, m.make_index({2}, 3), m.make({2}), "sum"},
                         ErrorKind::value,
                         "reduce argument must be either add or multiply."});
          return all;
        })
        .reference(set_reference);
const Attached scatter_value_op =
    attach("scatter.value")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          SampleMaker plain(m.dtype, m.device, false);  // products have no gradient
          return {{{m.make({4, 3}), 0, m.make_index({2, 3}, 4), Scalar(1.5), std::nullopt}, "rows"},
                  {{m.make_strided({2, 3}), -1, m.make_index({2, 1}, 3), Scalar(2), "add"}, "add"},
                  {{plain.make({2, 3}), -1, m.make_index({2, 1}, 3), Scalar(2), "multiply"},
                   "multiply"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), 0, m.make_index({1}, 3), Scalar(0.5), "sum"},
                   ErrorKind::value,
                   "reduce argument must be either add or multiply."},
                  {{m.make({3}), 0, m.make_index({1}, 3), Scalar(std::complex<double>(0, 1)),
                    std::nullopt},
                   ErrorKind::type,
                   "value cannot be converted to type"}};
        })
        .reference(set_reference);
const Attached scatter_add_op =
    attach("scatter_add")
        .samples([](SampleMaker& m) { return scatter_samples(m, true); })
        .errors(scatter_errors)
        .reference(add_reference);

}  // namespace
}  // namespace arete::ops
