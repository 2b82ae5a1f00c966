// Cholesky factors and what is solved with them.
#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/matmul.h"
#include "arete/ops/over.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {
namespace ops {
namespace {

// Y = L^-H phi(L^H gL) L^-1, of which the Hermitian part is taken: A is.
Tensor factor_gradient(const Tensor& grad, const Tensor& factor, bool upper) {
  const Tensor l = upper ? adjoint(factor) : factor, gl = upper ? adjoint(grad) : grad;
  const Tensor lh = adjoint(l);
  // What is used up makes room for the next.
  Tensor y = scale_diagonal(call_over(matmul(lh, gl), "tril", {0}), 0.5);
  y = linalg::solve_triangular(l, y, false, false);
  y = linalg::solve_triangular(lh, y, true);
  return call_over(y + adjoint(y), "mul", {Scalar(0.5)});
}

const OpRecord& linalg_cholesky_ex_op =
    define(
        "linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor "
        "L, Tensor info)")
        .doc("Cholesky factors and the order of the first minor that is not positive, or 0.")
        .batched(vmaps::leading)
        .infer(square_with_info)
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& a = c.tensor(0);
          const bool upper = c.boolean(1);
          const PlainCalls guard;
          p.copy({view_of(out[0]), view_of(a)});
          p.linalg({.op = Factorization::cholesky,
                    .a = view_of(out[0]),
                    .info = view_of(out[1]),
                    .upper = upper});
          Tensor factor = out[0];
          call_in_place(factor, *find_record(upper ? "triu" : "tril"), {factor, 0});
          if (c.boolean(2) && a.numel() > 0)
            check_info(public_name(c), out[1], not_positive_definite_text);
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
        .doc("L with A = L L^H, or L^H.")
        .compose(checked_cholesky)
        .autocast(Autocast::f32)
        .dtypes(kMatrixTypes);

const OpRecord& cholesky_op = define("cholesky(Tensor self, bool upper=False) -> Tensor")
                                  .doc("L with A = L L^H, or L^H: linalg_cholesky.")
                                  .compose(checked_cholesky)
                                  .autocast(Autocast::f32)
                                  .dtypes(kMatrixTypes);

// ---- what is solved with factors. Their gradients are those of torch, which symmetrize but leave
// no triangle out.

// out, which holds B, becomes X with F F^H X = B, or F^H F X = B (upper).
void solve_with_factor(const Tensor& f, bool upper, const Tensor& out, prim::Primitives& p) {
  const PlainCalls guard;
  const Shape batch = batch_sizes(out.sizes());
  const TriangularFactor factor(f, batch, upper, p);
  // The adjoint one is this one transposed.
  const TriangularFactor conjugated =
      is_complex(f.dtype()) ? TriangularFactor(conj(f), batch, upper, p) : factor;
  (upper ? conjugated : factor).solve(out, p, upper);
  (upper ? factor : conjugated).solve(out, p, !upper);
}

// The gradient of F where that of A is S + S^H, but for the sign.
Tensor through_product(const Tensor& f, bool upper, Tensor s) {
  s = s + adjoint(s);
  return call_over(upper ? matmul(f, s) : matmul(s, f), "neg");
}

const OpRecord& cholesky_solve_op =
    define("cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor")
        .converts_out()
        .doc("X with A X = B from the Cholesky factor of A.")
        .batched(vmaps::leading)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &b = c.tensor(0), &f = c.tensor(1);
          ARETE_CHECK(b.dim() >= 2,
                      ValueError(c.name(), "b should have at least 2 dimensions, but has " +
                                               std::to_string(b.dim()) + " dimensions instead"));
          ARETE_CHECK(f.dim() >= 2,
                      ValueError(c.name(), "u should have at least 2 dimensions, but has " +
                                               std::to_string(f.dim()) + " dimensions instead"));
          check_factorizable(c.name(), f);
          check_square(c.name(), f, "input2");
          const auto n = [&](int64_t dim, const Tensor& t) { return std::to_string(t.size(dim)); };
          ARETE_CHECK(b.size(-2) == f.size(-1),
                      ValueError(c.name(),
                                 "Incompatible matrix sizes for cholesky_solve: each A "
                                 "matrix is " +
                                     n(-1, f) + " by " + n(-1, f) + " but each b matrix is " +
                                     n(-2, b) + " by " + n(-1, b)));
          ARETE_CHECK(
              b.dtype() == f.dtype(),
              TypeError(c.name(), "Expected b and A to have the same dtype, but found b of type " +
                                      std::string(name_of(b.dtype())) + " and A of type " +
                                      std::string(name_of(f.dtype())) + " instead."));
          out.push_back(matrix_spec(
              broadcast_shapes(batch_sizes(b.sizes()), batch_sizes(f.sizes()), c.name()),
              b.size(-2), b.size(-1), b));
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const Tensor& b = c.tensor(0);
          Tensor f = c.tensor(1);
          drop_repeats(f);
          const Shape own = batch_sizes(f.sizes());
          if (SharedSides::are_in(out[0], own, true)) {
            const SharedSides x(own, b, out[0], true, p);
            solve_with_factor(f.view(with_sizes(x.batch(), {f.size(-2), f.size(-1)})), c.boolean(2),
                              x.columns(), p);
            return x.finish(p);
          }
          p.copy({view_of(out[0]), view_of(b, expand(b.layout(), out[0].sizes()))});
          solve_with_factor(f, c.boolean(2), out[0], p);
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor f = g.input(1);
              const bool upper = g.boolean(2);
              const Tensor gb = cholesky_solve(g.grad(), f, upper);
              TensorList all(2);
              if (g.needs(0)) all[0] = sum_to_size(gb, g.input_sizes(0));
              if (g.needs(1))
                all[1] = through_product(
                    f, upper, sum_of_products(gb, adjoint(g.output()), g.input_sizes(1)));
              return all;
            },
            2, 1)
        .autocast(Autocast::f32)
        .flops([](const Call& c) {
          return 2 * double(c.tensor(1).size(-1)) * double(c.tensor(0).numel());
        })
        .dtypes(kMatrixTypes);

const OpRecord& cholesky_inverse_op =
    define("cholesky_inverse(Tensor self, bool upper=False) -> Tensor")
        .converts_out()
        .doc("The inverse of A from its Cholesky factor.")
        .batched(vmaps::leading)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& f = c.tensor(0);
          check_factorizable(c.name(), f);
          check_square(c.name(), f);
          out.push_back(matrix_spec(batch_sizes(f.sizes()), f.size(-1), f.size(-1), f));
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const PlainCalls guard;
          const Tensor& f = c.tensor(0);
          p.copy({view_of(out[0]),
                  view_of(identities(batch_sizes(f.sizes()), f.size(-1), f.options()))});
          solve_with_factor(f, c.boolean(1), out[0], p);
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor y = g.output();
              return {through_product(g.input(0), g.boolean(1), matmul(y, matmul(g.grad(), y)))};
            },
            1, 1)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) * 2; })
        .dtypes(kMatrixTypes);

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
