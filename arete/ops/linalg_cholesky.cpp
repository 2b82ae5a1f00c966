// Cholesky factors and what is solved with them.
#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

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
        .dtypes(kFactorizableTypes);

Results checked_cholesky(const Call& c) {
  check_square(public_name(c), c.tensor(0));
  const auto [l, info] = linalg::cholesky_ex(c.tensor(0), c.boolean(1));
  check_info(public_name(c), info, not_positive_definite_text);
  return {l};
}

const OpRecord& linalg_cholesky_op =
    define("linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor")
        .doc("L with A = L L^T, or L^T.")
        .compose(checked_cholesky)
        .autocast(Autocast::f32)
        .dtypes(kFactorizableTypes);

const OpRecord& cholesky_op = define("cholesky(Tensor self, bool upper=False) -> Tensor")
                                  .doc("L with A = L L^T, or L^T: linalg_cholesky.")
                                  .compose(checked_cholesky)
                                  .autocast(Autocast::f32)
                                  .dtypes(kFactorizableTypes);

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
        .dtypes(kFactorizableTypes);

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
        .dtypes(kFactorizableTypes);

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
