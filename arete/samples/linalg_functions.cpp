// Samples, references and errors of the records in ops/linalg_functions.cpp.
#include <cmath>
#include <complex>

#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/samples/linalg_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

// By its series, in more than double precision: what cancels and what squarings lose is below that.
Matrix exponential_of(const Matrix& a) {
  using Wide = std::vector<std::complex<long double>>;
  const size_t n = size_t(a.rows);
  const auto times = [&](const Wide& x, const Wide& y) {
    Wide z(n * n, 0);
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j)
        for (size_t k = 0; k < n; ++k) z[i * n + j] += x[i * n + k] * y[k * n + j];
    return z;
  };
  constexpr int kHalvings = 4;
  Wide x(a.values.begin(), a.values.end()), sum(n * n, 0);
  for (auto& v : x) v *= std::ldexp(1.0L, -kHalvings);
  for (size_t i = 0; i < n; ++i) sum[i * n + i] = 1;
  Wide term = sum;
  for (int k = 1; k < 40; ++k) {
    term = times(term, x);
    for (size_t i = 0; i < n * n; ++i) sum[i] += term[i] /= (long double)(k);
  }
  for (int i = 0; i < kHalvings; ++i) sum = times(sum, sum);
  Matrix y(a.rows, a.rows);
  for (size_t i = 0; i < n * n; ++i) y.values[i] = Number(sum[i]);
  return y;
}

std::vector<Sample> exponential_samples(SampleMaker& m) {
  return {{{m.make({3, 3}, -1, 1)}},
          {{m.make({2, 1, 2, 2}, 1, 4)}, "batch, large"},
          {{m.make({2, 2}, 0, 0)}, "zero"},
          {{m.make({1, 1})}, "one element"},
          {{m.make({0, 2, 2})}, "empty batch"},
          {{m.make({2, 0, 0})}, "empty matrices"}};
}

std::vector<ErrorSample> exponential_errors(SampleMaker& m) {
  return {{{m.make({2, 3})},
           ErrorKind::value,
           "linalg.matrix_exp: A must be batches of square matrices"},
          {{m.make_index({2, 2}, 2)}, ErrorKind::type, "Expected a floating point or complex"}};
}

std::vector<Tensor> exponential_reference(const Call& c) {
  const int64_t n = c.tensor(0).size(-1);
  return {map_matrices(c.tensor(0), n, n, exponential_of)};
}

const Attached matrix_exp_change_op =
    attach("matrix_exp_change")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 3}, -1, 1), m.make({3, 3}, -1, 1)}},
                  {{m.make({2, 1, 2, 2}, 1, 4), m.make({2, 1, 2, 2}, -1, 1)}, "batch, large"},
                  {{m.make({2, 0, 0}), m.make({2, 0, 0})}, "empty matrices"}};
        })
        .no_gradient_test()
        // A block of exp([A C; 0 A]).
        .reference([](const Call& c) -> std::vector<Tensor> {
          const std::vector<Matrix> changes = matrices_of(c.tensor(1));
          size_t at = 0;
          const int64_t size = c.tensor(0).size(-1);
          return {map_matrices(c.tensor(0), size, size, [&](const Matrix& a) {
            const int64_t n = a.rows;
            const Matrix& change = changes[at++];
            Matrix blocks(2 * n, 2 * n), y(n, n);
            for (int64_t i = 0; i < n; ++i)
              for (int64_t j = 0; j < n; ++j) {
                blocks(i, j) = blocks(n + i, n + j) = a(i, j);
                blocks(i, n + j) = change(i, j);
              }
            const Matrix all = exponential_of(blocks);
            for (int64_t i = 0; i < n; ++i)
              for (int64_t j = 0; j < n; ++j) y(i, j) = all(i, n + j);
            return y;
          })};
        });
const Attached linalg_matrix_exp_op = attach("linalg_matrix_exp")
                                          .samples(exponential_samples)
                                          .errors(exponential_errors)
                                          .reference(exponential_reference);
const Attached matrix_exp_op = attach("matrix_exp")
                                   .samples(exponential_samples)
                                   .errors(exponential_errors)
                                   .reference(exponential_reference);

std::vector<Sample> power_samples(SampleMaker& m) {
  std::vector<Sample> all;
  for (int64_t n : {0, 1, 2, 5, -1, -2}) all.push_back({{make_invertible(m, {2, 2}), n}});
  all.push_back({{make_invertible(m, {2, 3, 3}), int64_t(3)}, "batch"});
  all.push_back({{m.make({2, 0, 0}), int64_t(2)}, "empty"});
  return all;
}

std::vector<ErrorSample> power_errors(SampleMaker& m) {
  return {{{m.make({2, 3}), 2},
           ErrorKind::value,
           "linalg.matrix_power: A must be batches of square matrices"},
          {{m.make({2, 2}, 0, 0), -1}, ErrorKind::value, "linalg.inv: The diagonal element 1"}};
}

std::vector<Tensor> power_reference(const Call& c) {
  const int64_t n = c.tensor(0).size(-1);
  return {map_matrices(c.tensor(0), n, n, [&](const Matrix& m) {
    Matrix y = identity_matrix(m.rows);
    for (int64_t i = 0; i < std::abs(c.integer(1)); ++i)
      y = product(y, c.integer(1) < 0 ? inverted(m) : m);
    return y;
  })};
}

const Attached linalg_matrix_power_op = attach("linalg_matrix_power")
                                            .samples(power_samples)
                                            .errors(power_errors)
                                            .reference(power_reference);
const Attached matrix_power_op =
    attach("matrix_power").samples(power_samples).errors(power_errors).reference(power_reference);

std::vector<Tensor> chain_reference(const Call& c) {
  const auto tensors = c.tensors(0);
  const auto matrix = [&](size_t i) {
    const Tensor& t = tensors[i];
    return matrices_of(t.dim() == 2 ? t : t.unsqueeze(i == 0 ? 0 : 1))[0];
  };
  Matrix y = matrix(0);
  for (size_t i = 1; i < tensors.size(); ++i) y = product(y, matrix(i));
  const Tensor &first = tensors.front(), &last = tensors.back();
  const int64_t rows = first.dim() == 2 ? first.size(0) : 1,
                columns = last.dim() == 2 ? last.size(1) : 1;
  Shape sizes;
  if (first.dim() == 2) sizes.push_back(rows);
  if (last.dim() == 2) sizes.push_back(columns);
  return {from_matrices({y}, {}, rows, columns, first.dtype()).reshape(sizes)};
}

using Tensors = std::vector<Tensor>;
const Attached linalg_multi_dot_op =
    attach("linalg_multi_dot")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{Tensors{m.make({2, 3}), m.make({3, 4})}}},
                  {{Tensors{m.make({4, 2}), m.make({2, 5}), m.make({5, 1}), m.make({1, 3})}}},
                  {{Tensors{m.make({3}), m.make({3, 2}), m.make({2})}}, "vectors at the ends"},
                  {{Tensors{m.make({3}), m.make({3})}}, "vectors"},
                  {{Tensors{m.make({2, 0}), m.make({0, 3}), m.make({3, 2})}}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {
              {{Tensors{m.make({2, 2})}},
               ErrorKind::value,
               "multi_dot(): expected at least 2 tensors but got 1"},
              {{Tensors{m.make({2}), m.make({2}), m.make({2, 2})}},
               ErrorKind::value,
               "multi_dot(): tensor 1 must be 2D but got 1D"},
              {{Tensors{m.make({2, 3}), m.make({2, 3})}},
               ErrorKind::value,
               "multi_dot(): tensors 0 and 1 with shapes [2, 3] and [2, 3] cannot be multiplied"}};
        })
        .reference(chain_reference);
const Attached chain_matmul_op =
    attach("chain_matmul")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{Tensors{m.make({2, 3})}}},
                  {{Tensors{m.make({2, 3}), m.make({3, 4}), m.make({4, 2})}}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{Tensors{m.make({3})}}, ErrorKind::value, "Tensor dimension is 1, expected 2"}};
        })
        .reference(chain_reference);

}  // namespace
}  // namespace arete::ops
