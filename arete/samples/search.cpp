// Samples, references and errors of the records in ops/search.cpp.
#include <algorithm>
#include <cmath>

#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

// The first element that is not smaller (larger, for the right side).
std::vector<Tensor> insertion_reference(const Tensor& sorted, const Tensor& values, bool right) {
  const int64_t n = sorted.size(-1);
  return {build_tensor(
      values.sizes(),
      [&](const Shape& i) {
        const double v = at(values, i);
        for (int64_t j = 0; j < n; ++j) {
          Shape p = sorted.dim() == 1 ? Shape{0} : i;
          p.back() = j;
          const double s = at(sorted, p);
          if (right ? s > v : s >= v) return j;
        }
        return n;
      },
      kInt64)};
}

// -1, -0.5, 0, ...
Tensor rising(SampleMaker& m, int64_t n) {
  return arange(Scalar(0), Scalar(n), TensorOptions(m.device))
      .mul(Scalar(0.5))
      .sub(Scalar(1))
      .to(m.dtype);
}

const Attached insertion_points_op =
    attach("insertion_points")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto rows = [&](int64_t n) {
            return rising(m, n).reshape({1, n}).expand({2, n}).contiguous();
          };
          return {{{rising(m, 7), m.make({3, 4}), false, false}, "vector"},
                  {{rising(m, 7), rising(m, 5), true, true}, "right, int32"},
                  {{rows(5), m.make({2, 3}), false, false}, "rows"},
                  {{rows(4).t().contiguous().t(), m.make_strided({2, 3}), true, false}, "strided"},
                  {{rising(m, 0), m.make({3}), false, false}, "in nothing"}};
        })
        .reference([](const Call& c) {
          std::vector<Tensor> r = insertion_reference(c.tensor(0), c.tensor(1), c.boolean(2));
          return std::vector<Tensor>{r[0].to(c.boolean(3) ? kInt32 : kInt64)};
        });

const Attached places_of_numbers_op =
    attach("places_of_numbers")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const Tensor sorted = rising(m, 12).mul(Scalar(2));  // -2, -1, 0, ...
          return {{{sorted, 15, false}, "numbers beyond the last"},
                  {{rising(m, 20), 5, true}, "int32, equal ones"},
                  {{rising(m, 0), 3, false}, "in nothing"},
                  {{rising(m, 3), 0, false}, "no numbers"}};
        })
        .reference([](const Call& c) {
          const int64_t count = c.integer(1);
          std::vector<double> numbers;
          for (int64_t i = 0; i < count; ++i) numbers.push_back(double(i));
          std::vector<Tensor> r =
              insertion_reference(c.tensor(0), from_values(numbers, {count}), true);
          return std::vector<Tensor>{r[0].to(c.boolean(2) ? kInt32 : kInt64)};
        });

const Attached searchsorted_op =
    attach("searchsorted")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto with = [](Tensor sorted, OwnedArg values, bool right, OwnedArg side = {},
                               OwnedArg sorter = {}) {
            return std::vector<OwnedArg>{sorted, values, false, right, side, sorter};
          };
          const Tensor two = rising(m, 6).reshape({1, 6}).expand({2, 6}).contiguous();
          const Tensor nan = full({2}, Scalar(NAN), TensorOptions(m.dtype, m.device));
          return {{with(rising(m, 5), m.make({3, 4}), false), "vector"},
                  {with(rising(m, 5), rising(m, 4), false), "equal values"},
                  {with(rising(m, 5), rising(m, 4), true), "equal values, right"},
                  {with(rising(m, 5), rising(m, 4), false, "right"), "side"},
                  {with(two, m.make({2, 3}), true), "rows"},
                  {with(rising(m, 1), m.make({4}), false), "one"},
                  {with(rising(m, 8), m.make({}), false), "0-d"},
                  {with(rising(m, 8), Scalar(0.25), false), "a number"},
                  {with(cat({rising(m, 3), nan}), cat({rising(m, 4), nan}), false), "NaN"},
                  {with(rising(m, 4).flip({0}), m.make({5}), false, {},
                        arange(Scalar(3), Scalar(-1), Scalar(-1), TensorOptions(kInt64, m.device))),
                   "sorter"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({3, 4}), false, false, std::nullopt, std::nullopt},
                   ErrorKind::value,
                   "boundaries tensor should be 1 dimension"},
                  {{m.make({3}), m.make({3}), false, true, "left", std::nullopt},
                   ErrorKind::value,
                   "side and right can't be set to opposites"}};
        })
        .reference([](const Call& c) {
          Tensor sorted = c.tensor(0);
          if (c.has(5)) {
            const std::vector<double> v = values_of(sorted);
            std::vector<double> moved;
            for (double i : values_of(c.tensor(5))) moved.push_back(v[size_t(i)]);
            sorted = from_values(moved, sorted.sizes(), sorted.dtype());
          }
          const bool number = c[1].kind() != Arg::Kind::tensor;
          return insertion_reference(
              sorted, number ? from_values({c.scalar(1).to_double()}, {}) : c.tensor(1),
              c.boolean(3) || (c.has(4) && c[4].string() == "right"));
        });
const Attached bucketize_op =
    attach("bucketize")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 4}), rising(m, 5), false, false}, "matrix"},
                  {{rising(m, 4), rising(m, 5), false, true}, "equal values, right"},
                  {{m.make({4}), rising(m, 5), true, false}, "int32"},
                  {{Scalar(0.25), rising(m, 5), false, false}, "a number"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2}), m.make({3, 4}), false, false},
                   ErrorKind::value,
                   "boundaries tensor must be 1 dimension, but got dim(2)"}};
        })
        .reference([](const Call& c) {
          const bool number = c[0].kind() != Arg::Kind::tensor;
          return insertion_reference(
              c.tensor(1), number ? from_values({c.scalar(0).to_double()}, {}) : c.tensor(0),
              c.boolean(3));
        });
const Attached isin_op =
    attach("isin")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const Tensor a = m.make({3, 4}).round(), b = m.make({2, 2}).round();
          return {{{a, b, false, false}, "some"},
                  {{a, b, false, true}, "inverted"},
                  {{a, Scalar(1), false, false}, "a number"},
                  {{Scalar(1), a, false, false}, "of a number"},
                  {{a, m.make({0}), false, false}, "none"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const auto values = [&](size_t i) {
            return c[i].kind() == Arg::Kind::tensor ? values_of(c.tensor(i))
                                                    : std::vector{c.scalar(i).to_double()};
          };
          const std::vector<double> v = values(0), test = values(1);
          std::vector<double> found;
          for (double e : v)
            found.push_back((std::find(test.begin(), test.end(), e) != test.end()) != c.boolean(3));
          return {from_values(
              found, c[0].kind() == Arg::Kind::tensor ? c.tensor(0).sizes() : IntList(), kBool)};
        });
const Attached number_counts_op = attach("number_counts")
                                      .samples([](SampleMaker& m) -> std::vector<Sample> {
                                        const Tensor x = m.make_index({40}, 5).to(m.dtype);
                                        return {{{x, 5}, "numbers"},
                                                {{x.reshape({20, 2}).select(1, 0), 7}, "strided"},
                                                {{x.narrow(0, 0, 0), 3}, "nothing"}};
                                      })
                                      .reference([](const Call& c) -> std::vector<Tensor> {
                                        std::vector<double> counts(size_t(c.integer(1)), 0);
                                        for (const double v : values_of(c.tensor(0)))
                                          ++counts[size_t(v)];
                                        return {from_values(counts, {c.integer(1)}).to(kInt64)};
                                      });
const Attached bincount_op =
    attach("bincount")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make_index({12}, 5), std::nullopt, 0}, "counts"},
                  {{m.make_index({12}, 5).to(kUInt8), std::nullopt, 0}, "counts of uint8"},
                  {{m.make_index({12}, 5), m.make({12}), 8}, "weights, minlength"},
                  {{m.make_index({0}, 5), std::nullopt, 3}, "nothing"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {
              {{m.make({3}), std::nullopt, 0}, ErrorKind::value, "bincount only supports 1-d"},
              {{m.make_index({3}, 2).sub(Scalar(4)), std::nullopt, 0},
               ErrorKind::value,
               "bincount only supports 1-d"},
              {{m.make_index({3}, 2), m.make({2}), 0}, ErrorKind::value, "weights should be 1-d"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const std::vector<double> x = values_of(c.tensor(0));
          std::vector<double> counts(size_t(c.integer(2)), 0);
          for (size_t i = 0; i < x.size(); ++i) {
            if (size_t(x[i]) >= counts.size()) counts.resize(size_t(x[i]) + 1, 0);
            counts[size_t(x[i])] += c.has(1) ? values_of(c.tensor(1))[i] : 1;
          }
          return {from_values(counts, {int64_t(counts.size())}, c.has(1) ? kFloat64 : kInt64)};
        });

}  // namespace
}  // namespace arete::ops
