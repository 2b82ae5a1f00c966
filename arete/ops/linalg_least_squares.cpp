// Pseudo-inverse, least squares, rank and condition.
#include <algorithm>
#include <cmath>

#include "arete/ops/complex_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/matmul.h"
#include "arete/ops/matmul_internal.h"
#include "arete/ops/over.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {
namespace ops {
namespace {

// Which of `values` (their magnitudes along the last dimension) count: those above
// max(atol, rtol * largest). Without rtol it is 0 where an atol is given, else max(m, n) * eps.
// Both are numbers, or tensors with a value for each matrix.
Tensor significant(const Tensor& values, const Tensor& a, const Arg& atol, const Arg& rtol) {
  if (atol.kind() == Arg::Kind::tensor || rtol.kind() == Arg::Kind::tensor) {
    const auto given = [&](const Arg& t) { return t.tensor().to(values.dtype()).unsqueeze(-1); };
    const double standard =
        epsilon_of(real_of(a.dtype())) * double(std::max(a.size(-1), a.size(-2)));
    const Tensor largest = values.amax({-1}, true);
    if (atol.is_none()) return values > largest * given(rtol);
    const Tensor absolute = given(atol);
    const Tensor relative =
        rtol.is_none() ? (absolute <= 0).to(values.dtype()) * Scalar(standard) : given(rtol);
    return values > maximum(largest * relative, absolute);
  }
  const double absolute = atol.is_none() ? 0 : atol.real();
  const double relative =
      !rtol.is_none() ? rtol.real()
      : absolute > 0  ? 0
                      : epsilon_of(real_of(a.dtype())) * double(std::max(a.size(-1), a.size(-2)));
  const Tensor limit = (values.amax({-1}, true) * Scalar(relative)).clamp(Scalar(absolute));
  return values > limit;
}

// ---- the pseudo-inverse

void pinv_infer(const Call& c, OutputSpecs& out) {
  const Tensor& a = c.tensor(0);
  check_factorizable("linalg.pinv", a);
  check_matrix("linalg.pinv", a);
  if (c.boolean(3)) check_square("linalg.pinv", a);
  // Tolerances that are tensors broadcast with the batch.
  Shape batch = batch_sizes(a.sizes());
  for (size_t i : {1, 2})
    if (a.numel() > 0 && c[i].kind() == Arg::Kind::tensor)
      batch = broadcast_shapes(batch, c.tensor(i).sizes(), "linalg.pinv");
  out.push_back({with_sizes(batch, {a.size(-1), a.size(-2)}), a.dtype()});
}
void pinv_lower(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  const PlainCalls guard;
  const Tensor& a = c.tensor(0);
  if (a.numel() == 0) return;  // and so is the result
  Tensor left, values, right;
  if (c.boolean(3)) {
    std::tie(values, left) = linalg::eigh(a);
    right = adjoint(left);
  } else {
    std::tie(left, values, right) = linalg::svd(a, false);
  }
  const Tensor kept = significant(values.abs(), a, c[1], c[2]);
  const Tensor inverse = arete::where(kept, values.reciprocal(), 0).unsqueeze(-1);
  const bool widens = inverse.numel() * right.size(-1) > right.numel();  // tolerances' batches
  const Tensor scaled = widens ? right * inverse : call_over(std::move(right), "mul", {inverse});
  if (!is_complex(a.dtype()))
    return run_product(scaled.mT(), left.mT(), out[0], p, Tensor(), false);
  p.copy({view_of(out[0]), view_of(matmul(adjoint(scaled), adjoint(left)))});
}
double pinv_flops(const Call& c) { return factorization_flops(c) * 22; }

const OpRecord& linalg_pinv_op =
    define(
        "linalg_pinv(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> "
        "Tensor")
        .doc("The pseudo-inverse, by singular values (hermitian: by eigenvalues).")
        .batched(vmaps::leading)
        .infer(pinv_infer)
        .lower(pinv_lower)
        .grad(
            [](const GradCall& g) -> TensorList {
              return {pinv_gradient(g.grad(), g.output(), g.input(0))};
            },
            1, 1)
        .autocast(Autocast::f32)
        .flops(pinv_flops)
        .dtypes(kMatrixTypes);

const OpRecord& linalg_pinv_tensor_op =
    define(
        "linalg_pinv_tensor(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool "
        "hermitian=False) -> Tensor")
        .doc("linalg_pinv with tolerances for each matrix.")
        .surface(Surface::internal)
        .one_by_one("tolerances broadcast over the matrices of one element")
        .infer(pinv_infer)
        .lower(pinv_lower)
        .grad(
            [](const GradCall& g) -> TensorList {
              TensorList all(g.input_count());
              all[0] =
                  sum_to_size(pinv_gradient(g.grad(), g.output(), g.input(0)), g.input_sizes(0));
              return all;
            },
            1, 1)
        .autocast(Autocast::f32)
        .flops(pinv_flops)
        .dtypes(kMatrixTypes);

const OpRecord& pinverse_op = define("pinverse(Tensor self, float rcond=1e-15) -> Tensor")
                                  .doc("The pseudo-inverse: linalg_pinv with a relative tolerance.")
                                  .compose([](const Call& c) -> Results {
                                    return {linalg::pinv(c.tensor(0), std::nullopt, c.real(1))};
                                  })
                                  .dtypes(kFactorizableTypes);

// ---- least squares

using Driver = prim::LinalgArgs::Driver;
Driver driver_of(std::string_view name) {
  if (name == "gels") return Driver::gels;
  if (name == "gelsy") return Driver::gelsy;
  if (name == "gelsd") return Driver::gelsd;
  ARETE_CHECK(name == "gelss", ValueError("linalg.lstsq",
                                          "torch.linalg.lstsq: parameter `driver` should be one of "
                                          "(gels, gelsy, gelsd, gelss)")
                                   .got(std::string(name)));
  return Driver::gelss;
}

// Those of A and B where X = P B for the pseudo-inverse P of an A of full rank. With Z = P^H G they
// are Z and, by what pinv_gradient() begins with, (B - A X) (P Z)^H - Z X^H for a tall A and
// P^H X (G - A^H Z)^H - Z X^H for a wide one. By A = Q R (tall) or A^H = Q R neither needs P.
std::pair<Tensor, Tensor> full_rank_gradient(const Tensor& grad, const Tensor& a, const Tensor& b,
                                             const Tensor& x) {
  const bool tall = a.size(-2) >= a.size(-1);
  const auto [q, r] = linalg::qr(tall ? a : adjoint(a));
  Tensor z, rest;
  if (tall) {
    const Tensor y = linalg::solve_triangular(adjoint(r), grad, false);
    z = matmul(q, y);
    // Square matrices leave no residual.
    if (a.size(-2) > a.size(-1))
      rest = matmul(b - matmul(a, x), adjoint(linalg::solve_triangular(r, y, true)));
  } else {
    const Tensor qh = adjoint(q);
    z = linalg::solve_triangular(r, matmul(qh, grad), true);
    rest = matmul(linalg::solve_triangular(r, matmul(qh, x), true),
                  adjoint(grad - matmul(adjoint(a), z)));
  }
  const Tensor through_x = matmul(z, adjoint(x));
  return {rest.defined() ? rest - through_x : through_x.neg(), z};
}

const OpRecord& least_squares_op =
    define(
        "_linalg_lstsq(Tensor A, Tensor B, float? rcond=None, str driver=\"gelsy\") -> (Tensor "
        "solution, Tensor residuals, Tensor rank, Tensor singular_values)")
        .doc("Least squares solutions, with all results that some driver has.")
        .batched(vmaps::leading)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          const std::string name = "linalg.lstsq";
          check_factorizable(name, a);
          check_matrix(name, a, "input");
          check_matrix(name, b, "other");
          check_same_dtype(name, a, b);
          driver_of(c[3].string());
          ARETE_CHECK(a.size(-2) == b.size(-2),
                      ValueError(name,
                                 "torch.linalg.lstsq: input.size(-2) should match "
                                 "other.size(-2)")
                          .got(describe(a) + ", " + describe(b)));
          const Shape batch =
              broadcast_shapes(batch_sizes(a.sizes()), batch_sizes(b.sizes()), c.name());
          const int64_t n = a.size(-1), columns = b.size(-1);
          out.push_back({with_sizes(batch, {n, columns}), a.dtype()});
          const DType real = real_of(a.dtype());
          out.push_back({with_sizes(batch, {columns}), real});
          out.push_back({batch, kInt64});
          out.push_back({with_sizes(batch, {std::min(a.size(-2), n)}), real});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const PlainCalls guard;
          const int64_t m = c.tensor(0).size(-2), n = c.tensor(0).size(-1);
          const int64_t columns = c.tensor(1).size(-1), k = std::min(m, n), rows = std::max(m, n);
          const Shape batch = batch_sizes(out[0].sizes());
          const double rcond =
              c.has(2) ? c.real(2) : epsilon_of(real_of(out[0].dtype())) * double(rows);
          if (k == 0 || columns == 0) {
            for (const Tensor& t : out) p.fill({view_of(t), {}, !is_differentiable(t.dtype()), 0});
            return;
          }
          Tensor a = column_major(c.tensor(0), batch, p);
          // B in the first rows of a matrix that holds X afterwards.
          const Tensor b = empty_tensor(matrix_spec(batch, rows, columns, a));
          const Shape b_sizes = with_sizes(batch, {m, columns});
          p.copy({view_of(b, narrow(b.layout(), -2, 0, m)),
                  view_of(c.tensor(1), expand(c.tensor(1).layout(), b_sizes))});
          const Tensor info = empty_info(a);
          p.linalg({.op = Factorization::least_squares,
                    .a = view_of(a),
                    .b = view_of(b),
                    .c = view_of(out[2]),
                    .d = view_of(out[3]),
                    .info = view_of(info),
                    .driver = driver_of(c[3].string()),
                    .rcond = rcond});
          check_info("torch.linalg.lstsq", info, [](int64_t code) {
            return "The least squares solution could not be computed because the input matrix does "
                   "not have full rank (error code: " +
                   std::to_string(code) + ").";
          });
          a = Tensor();  // its memory is free for what follows
          // What is left below the solution is the residual in an orthogonal basis.
          if (m > n)
            p.copy({view_of(out[1]), view_of(b.narrow(-2, n, m - n).abs().square().sum(-2))});
          else
            p.fill({view_of(out[1]), {}});
          p.copy({view_of(out[0]), view_of(b, narrow(b.layout(), -2, 0, n))});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor a = g.input(0), b = g.input(1), &gx = g.grad(0), &gr = g.grad(1);
              Tensor of_a, of_b;
              if (gx.defined() && driver_of(g.arg(3).string()) == Driver::gels) {
                std::tie(of_a, of_b) = full_rank_gradient(gx, a, b, g.output(0));
              } else if (gx.defined()) {
                const Tensor p = linalg::pinv(a);
                if (g.needs(0)) of_a = pinv_gradient(matmul(gx, adjoint(b)), p, a);
                if (g.needs(1)) of_b = matmul(adjoint(p), gx);
              }
              if (gr.defined()) {
                // |A X - B|^2 where X minimizes it: its change through X is 0.
                const Tensor x = g.output(0);
                const Tensor error = (matmul(a, x) - b) * gr.mul(Scalar(2)).unsqueeze(-2);
                const Tensor through_a = matmul(error, adjoint(x));
                of_a = of_a.defined() ? of_a + through_a : through_a;
                of_b = of_b.defined() ? of_b - error : error.neg();
              }
              TensorList all(2);
              if (g.needs(0)) all[0] = sum_to_size(of_a, g.input_sizes(0));
              if (g.needs(1)) all[1] = sum_to_size(of_b, g.input_sizes(1));
              return all;
            },
            3, 1)
        .no_grad_outputs(12)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) * 4; })
        .dtypes(kFactorizableTypes);

const OpRecord& linalg_lstsq_op =
    define(
        "linalg_lstsq(Tensor self, Tensor b, float? rcond=None, *, str? driver=None) -> (Tensor "
        "solution, Tensor residuals, Tensor rank, Tensor singular_values)")
        .doc(
            "Least squares solution of A X = B; residuals, rank and singular values where the "
            "driver finds them.")
        .compose([](const Call& c) -> Results {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          check_matrix("linalg.lstsq", a, "input");
          const std::string_view driver = c.has(3) ? c[3].string() : "gelsy";
          const bool vector = has_vectors(a, b);
          const int64_t m = a.size(-2), n = a.size(-1);
          const Results r =
              call_all(least_squares_op, {a, vector ? b.unsqueeze(-1) : b, c[2], driver});
          const bool by_values = driver == "gelsd" || driver == "gelss";
          bool with_residuals = m > n && driver != "gelsy";
          if (with_residuals && by_values && !a.is_meta())
            with_residuals = (all_values(r[2]) == n).all().item<bool>();
          const Tensor none = empty({0}, r[3].options());
          return {vector ? r[0].squeeze(-1) : r[0], with_residuals ? r[1] : none,
                  driver == "gels" ? empty({0}, r[2].options()) : r[2], by_values ? r[3] : none};
        })
        .no_grad_outputs(12)
        .dtypes(kMatrixTypes);

// ---- rank and condition

Results matrix_rank(const Call& c) {
  const Tensor a = c.tensor(0).detach();
  check_matrix("torch.linalg.matrix_rank", a, "input");
  if (c.boolean(3)) check_square("linalg.matrix_rank", a);
  if (a.numel() == 0) return {zeros(batch_sizes(a.sizes()), TensorOptions(kInt64, a.device()))};
  const Tensor values = c.boolean(3) ? linalg::eigvalsh(a).abs() : linalg::svdvals(a);
  return {significant(values, a, c[1], c[2]).sum(-1)};
}

const OpRecord& linalg_matrix_rank_op =
    define(
        "linalg_matrix_rank(Tensor self, *, float? atol=None, float? rtol=None, bool "
        "hermitian=False) -> Tensor")
        .doc("How many singular values are above a tolerance.")
        .compose(matrix_rank)
        .dtypes(kMatrixTypes);

const OpRecord& linalg_matrix_rank_tensor_op =
    define(
        "linalg_matrix_rank_tensor(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool "
        "hermitian=False) -> Tensor")
        .doc("linalg_matrix_rank with tolerances for each matrix.")
        .surface(Surface::internal)
        .compose(matrix_rank)
        .dtypes(kMatrixTypes);

// |A| |A^-1|, where that of a singular matrix is infinite.
template <class F>
Tensor condition(const Tensor& a, const std::string& ord, F&& norm) {
  check_square("linalg.cond(ord=" + ord + ")", a);
  const auto [inverse, info] = linalg::inv_ex(a);
  return arete::where(info == 0, norm(a) * norm(inverse), HUGE_VAL);
}

const OpRecord& linalg_cond_op =
    define("linalg_cond(Tensor self, Scalar? p=None) -> Tensor")
        .doc("Condition number in the norm p: None, 2, -2, 1, -1, inf or -inf.")
        .compose([](const Call& c) -> Results {
          const Tensor& a = c.tensor(0);
          check_matrix(public_name(c), a, "input");
          const double p = c.has(1) ? c.real(1) : 2;
          if (a.numel() == 0)
            return {zeros(batch_sizes(a.sizes()), TensorOptions(real_of(a.dtype()), a.device()))};
          if (std::fabs(p) != 2)
            return {condition(a, c.scalar(1).to_string(),
                              [&](const Tensor& t) { return linalg::matrix_norm(t, p); })};
          const Tensor s = linalg::svdvals(a);
          const Tensor largest = s.select(-1, 0), smallest = s.select(-1, s.size(-1) - 1);
          return {p > 0 ? largest / smallest : smallest / largest};
        })
        .dtypes(kMatrixTypes);

const OpRecord& linalg_cond_str_op =
    define("linalg_cond.p_str(Tensor self, str p) -> Tensor")
        .doc("Condition number in the norm \"fro\" or \"nuc\".")
        .compose([](const Call& c) -> Results {
          const Tensor& a = c.tensor(0);
          check_matrix("linalg.cond", a, "input");
          const std::string p(c[1].string());
          ARETE_CHECK(p == "fro" || p == "nuc",
                      ValueError(c.name(), "linalg.cond got an invalid norm type: " + p));
          if (a.numel() == 0)
            return {zeros(batch_sizes(a.sizes()), TensorOptions(real_of(a.dtype()), a.device()))};
          return {condition(a, p, [&](const Tensor& t) { return linalg::matrix_norm(t, p); })};
        })
        .dtypes(kMatrixTypes);

}  // namespace
}  // namespace ops

namespace linalg {
Tensor pinv(const Tensor& a, std::optional<double> atol, std::optional<double> rtol,
            bool hermitian) {
  return ops::call(ops::linalg_pinv_op, {a, atol, rtol, hermitian});
}
std::tuple<Tensor, Tensor, Tensor, Tensor> lstsq(const Tensor& a, const Tensor& b,
                                                 std::optional<double> rcond,
                                                 std::optional<std::string_view> driver) {
  const auto r = ops::call_all(ops::linalg_lstsq_op, {a, b, rcond, driver});
  return {r[0], r[1], r[2], r[3]};
}
Tensor matrix_rank(const Tensor& a, std::optional<double> atol, std::optional<double> rtol,
                   bool hermitian) {
  return ops::call(ops::linalg_matrix_rank_op, {a, atol, rtol, hermitian});
}
Tensor cond(const Tensor& a, std::optional<double> p) {
  return ops::call(ops::linalg_cond_op, {a, p});
}
Tensor cond(const Tensor& a, std::string_view p) {
  return ops::call(ops::linalg_cond_str_op, {a, p});
}
}  // namespace linalg

Tensor pinverse(const Tensor& self, double rcond) {
  return ops::call(ops::pinverse_op, {self, rcond});
}

}  // namespace arete

ARETE_FAMILY(linalg_least_squares)
