// Samples, references and errors of the records in ops/linalg_cholesky.cpp.
#include <complex>

#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/samples/linalg_samples.h"

namespace arete::ops {
namespace {

// From the triangle that is read, by the textbook's loop.
Matrix factor_of(const Matrix& a, bool upper) {
  const int64_t n = a.rows;
  Matrix l(n, n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      Number s = upper ? std::conj(a(j, i)) : a(i, j);
      for (int64_t k = 0; k < j; ++k) s -= l(i, k) * std::conj(l(j, k));
      l(i, j) = i == j ? std::sqrt(s.real()) : s / l(j, j);
    }
  }
  return upper ? adjoint(l) : l;
}

std::vector<Tensor> factor_reference(const Call& c) {
  const Tensor& a = c.tensor(0);
  const int64_t n = a.size(-1);
  return {map_matrices(a, n, n, [&](const Matrix& m) { return factor_of(m, c.boolean(1)); })};
}

// Not positive definite from the second row on.
Tensor indefinite(SampleMaker& m) {
  Tensor t = eye(3, TensorOptions(m.dtype, m.device));
  t.select(0, 1).neg_();
  return t;
}

const Attached linalg_cholesky_ex_op =
    attach("linalg_cholesky_ex")
        .no_gradient_test()  // of symmetric matrices: tests/grad/linalg_grad_test.cpp
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{make_symmetric(m, {3, 3}), false, false}},
                  {{make_symmetric(m, {2, 1, 2, 2}), true, true}, "batch, upper"},
                  {{indefinite(m), false, false}, "not positive definite"},
                  {{m.make({0, 3, 3}), false, false}, "empty batch"},
                  {{m.make({2, 0, 0}), false, true}, "empty matrices"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), false, false},
                   ErrorKind::value,
                   "The input tensor A must have at least 2 dimensions."},
                  {{indefinite(m), false, true},
                   ErrorKind::value,
                   "the leading minor of order 2 is not positive-definite"}};
        })
        .no_reference("where it fails the factor is not defined: see linalg_cholesky");

std::vector<Sample> cholesky_samples(SampleMaker& m) {
  return {{{make_symmetric(m, {3, 3}), false}},
          {{make_symmetric(m, {2, 1, 2, 2}), true}, "batch, upper"},
          {{make_invertible(m, {2, 4, 4}), false}, "one triangle is read"},
          {{make_invertible(m, {4, 4}), true}, "one triangle is read, upper"},
          {{m.make({0, 3, 3}), false}, "empty batch"},
          {{m.make({2, 0, 0}), false}, "empty matrices"}};
}

std::vector<ErrorSample> cholesky_errors(SampleMaker& m) {
  return {{{m.make({2, 3}), false},
           ErrorKind::value,
           "A must be batches of square matrices, but they are 2 by 3 matrices"},
          {{indefinite(m), false},
           ErrorKind::value,
           "cholesky: The factorization could not be completed because the input is not "
           "positive-definite"},
          {{stack({make_symmetric(m, {3, 3}), indefinite(m)}), false},
           ErrorKind::value,
           "cholesky: (Batch element 1): The factorization could not be completed"},
          {{make_symmetric(m, {2, 2}).to(kFloat16), false},
           ErrorKind::not_implemented,
           "Low precision dtypes not supported. Got float16"},
          {{m.make_index({2, 2}, 2), false},
           ErrorKind::type,
           "Expected a floating point or complex tensor as input. Got int64"}};
}

const Attached linalg_cholesky_op = attach("linalg_cholesky")
                                        .no_gradient_test()
                                        .samples(cholesky_samples)
                                        .errors(cholesky_errors)
                                        .reference(factor_reference);
const Attached cholesky_op = attach("cholesky")
                                 .no_gradient_test()
                                 .samples(cholesky_samples)
                                 .errors(cholesky_errors)
                                 .reference(factor_reference);

// A = L L^H of one triangle of f.
Matrix recomposed(const Matrix& f, bool upper) {
  Matrix l = upper ? adjoint(f) : f;
  for (int64_t i = 0; i < l.rows; ++i)
    for (int64_t j = i + 1; j < l.columns; ++j) l(i, j) = 0;
  return product(l, adjoint(l));
}

const Attached cholesky_solve_op =
    attach("cholesky_solve")
        .no_gradient_test()  // of triangular factors: tests/grad/linalg_grad_test.cpp
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {
              {{m.make({3, 2}), make_invertible(m, {3, 3}), false}},
              {{m.make_strided({3, 2}), make_invertible(m, {2, 3, 3}), true}, "upper, batch"},
              {{m.make({2, 3, 3, 2}), make_invertible(m, {2, 1, 3, 3}), false}, "shared"},
              {{m.make({3, 2, 2, 9}), make_invertible(m, {2, 2, 2}), true}, "shared, many sides"},
              {{m.make({3, 2, 4}), make_invertible(m, {2, 2}).detach().expand({3, 2, 2}), true},
               "repeated"},
              {{m.make({0, 2}), m.make({0, 0}), false}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), make_invertible(m, {3, 3}), false},
                   ErrorKind::value,
                   "b should have at least 2 dimensions, but has 1 dimensions instead"},
                  {{m.make({3, 2}), make_invertible(m, {4, 4}), false},
                   ErrorKind::value,
                   "each A matrix is 4 by 4 but each b matrix is 3 by 2"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {map_pairs(c.tensor(1), c.tensor(0), [&](const Matrix& f, const Matrix& b) {
            return solved(recomposed(f, c.boolean(2)), b);
          })};
        });
const Attached cholesky_inverse_op =
    attach("cholesky_inverse")
        .no_gradient_test()  // of triangular factors: tests/grad/linalg_grad_test.cpp
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{make_invertible(m, {3, 3}), false}},
                  {{make_invertible(m, {2, 2, 2}), true}, "upper, batch"},
                  {{m.make({0, 0}), false}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), false},
                   ErrorKind::value,
                   "cholesky_inverse: A must be batches of square matrices"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const int64_t n = c.tensor(0).size(-1);
          return {map_matrices(c.tensor(0), n, n, [&](const Matrix& m) {
            return inverted(recomposed(m, c.boolean(1)));
          })};
        });

}  // namespace
}  // namespace arete::ops
