// Cholesky factors and what is solved with them.
#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/linalg_reference_internal.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

const std::vector<DType> kTypes{kFloat32, kFloat64};

// From the triangle that is read, by the textbook's loop.
Matrix factor_of(const Matrix& a, bool upper) {
  const int64_t n = a.rows;
  Matrix l(n, n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      double s = upper ? a(j, i) : a(i, j);
      for (int64_t k = 0; k < j; ++k) s -= l(i, k) * l(j, k);
      l(i, j) = i == j ? std::sqrt(s) : s / l(j, j);
    }
  }
  return upper ? transposed(l) : l;
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

// Y = L^-T phi(L^T gL) L^-1, of which the symmetric part is taken: A is.
Tensor factor_gradient(const Tensor& grad, const Tensor& factor, bool upper) {
  const Tensor l = upper ? factor.mT() : factor, gl = upper ? grad.mT() : grad;
  const Tensor phi = scale_diagonal(matmul(l.mT(), gl).tril(), 0.5);
  const Tensor right = linalg::solve_triangular(l, phi, false, false);
  const Tensor y = linalg::solve_triangular(l.mT(), right, true);
  return (y + y.mT()) * Scalar(0.5);
}

const OpRecord& linalg_cholesky_ex_op =
    define(
        "linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor "
        "L, Tensor info)")
        .doc("Cholesky factors and the order of the first minor that is not positive, or 0.")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& a = c.tensor(0);
          check_factorizable(public_name(c), a);
          check_square(public_name(c), a);
          const Shape batch = batch_sizes(a.sizes());
          out.push_back(matrix_spec(batch, a.size(-1), a.size(-1), a));
          out.push_back({batch, kInt32, a.device(), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& a = c.tensor(0);
          const bool upper = c.boolean(1);
          const PlainCalls guard;
          // The factorization leaves the other triangle as it is.
          p.copy({view_of(out[0]), view_of(upper ? a.triu() : a.tril())});
          p.linalg({.op = Factorization::cholesky,
                    .a = view_of(out[0]),
                    .info = view_of(out[1]),
                    .upper = upper});
          if (c.boolean(2)) check_info(public_name(c), out[1], not_positive_definite_text);
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              return {factor_gradient(g.grad(), g.output(), g.boolean(1))};
            },
            0, 1)
        .no_grad_outputs(2)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) / 3; })
        .dtypes(kTypes)
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

Results checked_cholesky(const Call& c) {
  check_square(public_name(c), c.tensor(0));
  const auto [l, info] = linalg::cholesky_ex(c.tensor(0), c.boolean(1));
  check_info(public_name(c), info, not_positive_definite_text);
  return {l};
}
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

const OpRecord& linalg_cholesky_op =
    define("linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor")
        .doc("L with A = L L^T, or L^T.")
        .compose(checked_cholesky)
        .autocast(Autocast::f32)
        .dtypes(kTypes)
        .no_gradient_test()
        .samples(cholesky_samples)
        .errors(cholesky_errors)
        .reference(factor_reference);

const OpRecord& cholesky_op = define("cholesky(Tensor self, bool upper=False) -> Tensor")
                                  .doc("L with A = L L^T, or L^T: linalg_cholesky.")
                                  .compose(checked_cholesky)
                                  .autocast(Autocast::f32)
                                  .dtypes(kTypes)
                                  .no_gradient_test()
                                  .samples(cholesky_samples)
                                  .errors(cholesky_errors)
                                  .reference(factor_reference);

// A = L L^T of one triangle of f.
Matrix recomposed(const Matrix& f, bool upper) {
  Matrix l = upper ? transposed(f) : f;
  for (int64_t i = 0; i < l.rows; ++i)
    for (int64_t j = i + 1; j < l.columns; ++j) l(i, j) = 0;
  return product(l, transposed(l));
}

Tensor solve_with_factor(const Tensor& b, const Tensor& f, bool upper) {
  const Tensor l = upper ? f.mT() : f;
  return linalg::solve_triangular(l.mT(), linalg::solve_triangular(l, b, false), true);
}

const OpRecord& cholesky_solve_op =
    define("cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor")
        .doc("X with A X = B from the Cholesky factor of A.")
        .compose([](const Call& c) -> Results {
          const Tensor &b = c.tensor(0), &f = c.tensor(1);
          ARETE_CHECK(b.dim() >= 2,
                      ValueError(c.name(), "b should have at least 2 dimensions, but has " +
                                               std::to_string(b.dim()) + " dimensions instead"));
          ARETE_CHECK(f.dim() >= 2,
                      ValueError(c.name(), "u should have at least 2 dimensions, but has " +
                                               std::to_string(f.dim()) + " dimensions instead"));
          check_square(c.name(), f, "input2");
          return {solve_with_factor(b, f, c.boolean(2))};
        })
        .autocast(Autocast::f32)
        .dtypes(kTypes)
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 2}), make_invertible(m, {3, 3}), false}},
                  {{m.make_strided({3, 2}), make_invertible(m, {2, 3, 3}), true}, "upper, batch"},
                  {{m.make({0, 2}), m.make({0, 0}), false}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), make_invertible(m, {3, 3}), false},
                   ErrorKind::value,
                   "b should have at least 2 dimensions, but has 1 dimensions instead"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &b = c.tensor(0), &f = c.tensor(1);
          return {map_matrices(f, b.size(-2), b.size(-1), [&](const Matrix& m) {
            return solved(recomposed(m, c.boolean(2)), matrices_of(b)[0]);
          })};
        });

const OpRecord& cholesky_inverse_op =
    define("cholesky_inverse(Tensor self, bool upper=False) -> Tensor")
        .doc("The inverse of A from its Cholesky factor.")
        .compose([](const Call& c) -> Results {
          const Tensor& f = c.tensor(0);
          check_square(c.name(), f);
          return {solve_with_factor(identities(batch_sizes(f.sizes()), f.size(-1), f.options()), f,
                                    c.boolean(1))};
        })
        .autocast(Autocast::f32)
        .dtypes(kTypes)
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
}  // namespace ops

namespace linalg {
Tensor cholesky(const Tensor& a, bool upper) {
  return ops::call(ops::linalg_cholesky_op, {a, upper});
}
std::tuple<Tensor, Tensor> cholesky_ex(const Tensor& a, bool upper, bool check_errors) {
  const auto r = ops::call_all(ops::linalg_cholesky_ex_op, {a, upper, check_errors});
  return {r[0], r[1]};
}
}  // namespace linalg

Tensor cholesky(const Tensor& self, bool upper) {
  return ops::call(ops::cholesky_op, {self, upper});
}
Tensor cholesky_solve(const Tensor& self, const Tensor& input2, bool upper) {
  return ops::call(ops::cholesky_solve_op, {self, input2, upper});
}
Tensor cholesky_inverse(const Tensor& self, bool upper) {
  return ops::call(ops::cholesky_inverse_op, {self, upper});
}

}  // namespace arete

ARETE_FAMILY(linalg_cholesky)
