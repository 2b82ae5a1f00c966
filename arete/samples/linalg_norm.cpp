// Samples, references and errors of the records in ops/linalg_norm.cpp.
#include <algorithm>
#include <cmath>
#include <complex>

#include "arete/ops/creation.h"
#include "arete/ops/reduce_family.h"
#include "arete/samples/linalg_samples.h"
#include "arete/samples/reduce_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached linalg_vector_norm_op =
    attach("linalg_vector_norm")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> all{
              {{m.make({2, 3}), Scalar(2), std::nullopt, false, std::nullopt}},
              {{m.make({2, 3, 2}), Scalar(1), {0, 2}, true, std::nullopt}, "two dims, keepdim"},
              {{m.make({3, 4}, 0.5, 2), Scalar(2.5), {-1}, false, std::nullopt}, "rows"},
              {{m.make({3, 4}), Scalar(HUGE_VAL), {0}, false, std::nullopt}, "largest"},
              {{m.make({0, 2}), Scalar(2), {0}, false, std::nullopt}, "empty"}};
          if (!m.requires_grad)
            all.push_back({{m.make({4}), Scalar(2), std::nullopt, false, kFloat64}, "dtype"});
          return all;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make_index({3}, 2), Scalar(2), std::nullopt, false, std::nullopt},
                   ErrorKind::type,
                   "linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
                   "int64"},
                  {{m.make({3}), Scalar(2), {1}, false, std::nullopt},
                   ErrorKind::index,
                   "Dimension out of range"},
                  {{m.make({3}), Scalar(2), {0}, false, kInt64},
                   ErrorKind::type,
                   "dtype should be floating point or complex"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {reduce_reference(c, 2, c.boolean(3),
                                   [&](const auto& v) { return norm_of(v, c.real(1)); })};
        });

Shape dims_or_all(const Call& c, size_t i) {
  if (c.has(i) && !c.ints(i).empty()) return Shape(c.ints(i));
  Shape all;
  for (int64_t d = 0; d < c.tensor(0).dim(); ++d) all.push_back(d);
  return all;
}

// Of the matrices that `dims` name, by plain loops.
std::vector<Tensor> matrix_reference(const Call& c, IntList dims, bool keepdim,
                                     const std::function<double(const Matrix&)>& f) {
  const Tensor& x = c.tensor(0);
  const Shape d{normalize_dim(dims[0], int(x.dim()), ""), normalize_dim(dims[1], int(x.dim()), "")};
  Shape kept(x.sizes());
  kept[size_t(d[0])] = kept[size_t(d[1])] = 1;
  const std::vector<Number> all = numbers_of(x);
  std::vector<double> results;
  for_each_index(kept, [&](Shape i) {
    Matrix m(x.size(d[0]), x.size(d[1]));
    for (i[size_t(d[0])] = 0; i[size_t(d[0])] < m.rows; ++i[size_t(d[0])])
      for (i[size_t(d[1])] = 0; i[size_t(d[1])] < m.columns; ++i[size_t(d[1])])
        m(i[size_t(d[0])], i[size_t(d[1])]) = all[size_t(flat_position(x.sizes(), i))];
    results.push_back(f(m));
  });
  return {from_values(results, reduced_sizes(x.sizes(), 1u << d[0] | 1u << d[1], keepdim))};
}

double reference_of(Matrix m, double ord) {
  if (std::fabs(ord) == 2) {
    const auto s = singular_values(m);
    return s.empty() ? 0 : ord > 0 ? s.front() : s.back();
  }
  if (std::isinf(ord)) m = adjoint(m);
  double big = 0, small = INFINITY;
  for (int64_t j = 0; j < m.columns; ++j) {
    double s = 0;
    for (int64_t i = 0; i < m.rows; ++i) s += std::abs(m(i, j));
    big = std::max(big, s);
    small = std::min(small, s);
  }
  return ord > 0 ? big : small;
}

double reference_of(const Matrix& m, std::string_view ord) {
  double s = 0;
  if (ord == "fro")
    for (const Number& v : m.values) s += std::norm(v);
  else
    for (double v : singular_values(m)) s += v;
  return ord == "fro" ? std::sqrt(s) : s;
}

const Attached linalg_matrix_norm_op =
    attach("linalg_matrix_norm")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> all;
          for (double ord : {1.0, -1.0, 2.0, -2.0, HUGE_VAL, -HUGE_VAL}) {
            all.push_back(
                {{make_invertible(m, {3, 3}), Scalar(ord), {-2, -1}, false, std::nullopt}});
            all.push_back({{make_invertible(m, {2, 3, 2}), Scalar(ord), {2, 1}, true, std::nullopt},
                           "other dims, keepdim"});
          }
          all.push_back(
              {{m.make({2, 3, 4}), Scalar(1), {0, 2}, false, std::nullopt}, "outer dims"});
          for (double ord : {1.0, 2.0, HUGE_VAL})
            for (const Shape& none : {Shape{0, 2}, Shape{2, 0}})
              all.push_back({{m.make(none), Scalar(ord), {-2, -1}, true, std::nullopt}, "empty"});
          return all;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3, 3}), Scalar(3), {-2, -1}, false, std::nullopt},
                   ErrorKind::value,
                   "linalg.matrix_norm: Order 3 not supported."},
                  {{m.make({3}), Scalar(1), {-2, -1}, false, std::nullopt},
                   ErrorKind::value,
                   "linalg.matrix_norm: The input tensor A must have at least 2 dimensions."},
                  {{m.make({3, 3}), Scalar(1), {0}, false, std::nullopt},
                   ErrorKind::value,
                   "dim must be a 2-tuple"},
                  {{m.make({3, 3}), Scalar(1), {1, -1}, false, std::nullopt},
                   ErrorKind::value,
                   "dims must be different. Got (1, -1)"}};
        })
        .reference([](const Call& c) {
          return matrix_reference(c, c.ints(2), c.boolean(3),
                                  [&](const Matrix& m) { return reference_of(m, c.real(1)); });
        });
const Attached linalg_matrix_norm_str_op =
    attach("linalg_matrix_norm.str_ord")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{make_invertible(m, {3, 3}), "fro", {-2, -1}, false, std::nullopt}},
                  {{make_invertible(m, {3, 2}), "nuc", {-2, -1}, true, std::nullopt}},
                  {{m.make({2, 3, 4}), "fro", {0, 2}, true, std::nullopt}, "outer dims"},
                  {{m.make({2, 3, 4}), "nuc", {2, 0}, true, std::nullopt}, "outer dims, swapped"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3, 3}), "max", {-2, -1}, false, std::nullopt},
                   ErrorKind::value,
                   "linalg.matrix_norm: Order max not supported."}};
        })
        .reference([](const Call& c) {
          return matrix_reference(c, c.ints(2), c.boolean(3),
                                  [&](const Matrix& m) { return reference_of(m, c[1].string()); });
        });
const Attached linalg_norm_op =
    attach("linalg_norm")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3, 2}), std::nullopt, std::nullopt, false, std::nullopt}},
                  {{m.make({2, 3}), std::nullopt, {1}, true, std::nullopt}, "rows"},
                  {{m.make({5}), Scalar(3), std::nullopt, false, std::nullopt}, "vector"},
                  {{make_invertible(m, {3, 3}), Scalar(2), std::nullopt, false, std::nullopt},
                   "matrix"},
                  {{m.make({2, 3, 2}), Scalar(1), {2, 0}, true, std::nullopt}, "two dims"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 2, 2}), Scalar(1), std::nullopt, false, std::nullopt},
                   ErrorKind::value,
                   "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D."},
                  {{m.make({2, 2, 2}), Scalar(1), {0, 1, 2}, false, std::nullopt},
                   ErrorKind::value,
                   "linalg.norm: If dim is specified, it must be of length 1 or 2."}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Shape dims = dims_or_all(c, 2);
          if (c.has(1) && dims.size() == 2)
            return matrix_reference(c, dims, c.boolean(3),
                                    [&](const Matrix& m) { return reference_of(m, c.real(1)); });
          const double p = c.has(1) ? c.real(1) : 2;
          return {
              reduce_reference(c, 2, c.boolean(3), [&](const auto& v) { return norm_of(v, p); })};
        });
const Attached linalg_norm_str_op =
    attach("linalg_norm.ord_str")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 2}), "fro", std::nullopt, false, std::nullopt}},
                  {{m.make({2, 3, 2}), "nuc", {0, 1}, true, std::nullopt}, "dims"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), "fro", std::nullopt, false, std::nullopt},
                   ErrorKind::value,
                   "linalg.norm: The input tensor A must have at least 2 dimensions."}};
        })
        .reference([](const Call& c) {
          return matrix_reference(c, dims_or_all(c, 2), c.boolean(3),
                                  [&](const Matrix& m) { return reference_of(m, c[1].string()); });
        });

}  // namespace
}  // namespace arete::ops
