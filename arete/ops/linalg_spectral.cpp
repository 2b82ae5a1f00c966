// Singular values, eigenvalues, and their vectors.
#include <algorithm>

#include "arete/ops/complex.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {
namespace ops {
namespace {

const prim::View kNothing{};  // an output that is not wanted
// differences(x)[i, j] = x[j] - x[i], with ones on the diagonal.
Tensor differences(const Tensor& x) {
  const Tensor on = eye(x.size(-1), TensorOptions(kBool, x.device()));
  return arete::where(on, 1, x.unsqueeze(-2) - x.unsqueeze(-1));
}

// ---- singular values

// Undefined gradients contribute nothing. The vectors' part: with skew X = X - X^H and
// E = S_j^2 - S_i^2, U [skew(U^H gU) / E S + S skew(V^H gV) / E + diag gS] V^H, and what lies
// outside the space of U (tall) or V (wide). Complex vectors are known but for a common phase of
// each pair, which no loss may depend on: that leaves diag(skew(U^H gU)) / 2S for the diagonal.
Tensor svd_gradient(Tensor gu, const Tensor& gs, Tensor gvh, Tensor u, const Tensor& s, Tensor vh) {
  const int64_t m = u.size(-2), n = vh.size(-1), k = s.size(-1);
  u = u.narrow(-1, 0, k);
  vh = vh.narrow(-2, 0, k);
  if (gu.defined()) gu = gu.narrow(-1, 0, k);
  if (gvh.defined()) gvh = gvh.narrow(-2, 0, k);
  if (!gu.defined() && !gvh.defined()) return matmul(u * gs.unsqueeze(-2), vh);
  const auto skew = [](const Tensor& x) { return x - adjoint(x); };
  Tensor inner, phases;
  if (gu.defined()) {
    const Tensor turn = skew(matmul(adjoint(u), gu));
    if (is_complex(u.dtype()) && gvh.defined()) phases = turn.diagonal(0, -2, -1) / (s * Scalar(2));
    inner = turn * s.unsqueeze(-2);
  }
  if (gvh.defined()) {
    const Tensor part = s.unsqueeze(-1) * skew(matmul(vh, adjoint(gvh)));
    inner = inner.defined() ? inner + part : part;
  }
  inner = inner / differences(s * s);
  if (phases.defined()) inner = inner + diagonal_matrices(phases);
  if (gs.defined()) inner = inner + diagonal_matrices(gs);
  Tensor ga = matmul(u, matmul(inner, vh));
  if (gu.defined() && m > k) {
    const Tensor outside = gu / s.unsqueeze(-2);
    ga = ga + matmul(outside - matmul(u, matmul(adjoint(u), outside)), vh);
  }
  if (gvh.defined() && n > k) {
    const Tensor outside = gvh / s.unsqueeze(-1);
    ga = ga + matmul(u, outside - matmul(matmul(outside, adjoint(vh)), vh));
  }
  return ga;
}

const OpRecord& svd_parts_op =
    define(
        "_linalg_svd(Tensor A, bool full_matrices=False, bool compute_uv=True) -> (Tensor U, "
        "Tensor S, Tensor Vh)")
        .doc("A = U diag(S) Vh; U and Vh are empty without compute_uv.")
        .batched(vmaps::leading)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& a = c.tensor(0);
          check_factorizable("linalg.svd", a);
          check_matrix("linalg.svd", a);
          const Shape batch = batch_sizes(a.sizes());
          const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
          const bool full = c.boolean(1), with_vectors = c.boolean(2);
          const OutputSpec none{{0}, a.dtype()};
          out.push_back(with_vectors ? matrix_spec(batch, m, full ? m : k, a) : none);
          out.push_back({with_sizes(batch, {k}), real_of(a.dtype())});
          out.push_back(with_vectors ? matrix_spec(batch, full ? n : k, n, a) : none);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const PlainCalls guard;
          const Tensor &u = out[0], &s = out[1], &vh = out[2];
          const Shape batch = batch_sizes(c.tensor(0).sizes());
          const bool full = c.boolean(1), with_vectors = c.boolean(2);
          if (s.size(-1) == 0) {  // the full factors of an empty matrix are identities
            for (const Tensor* t : {&u, &vh})
              if (with_vectors && full && t->numel() > 0)
                p.copy({view_of(*t), view_of(identities(batch, t->size(-1), t->options()))});
            return;
          }
          const Tensor a = column_major(c.tensor(0), batch, p), info = empty_info(a);
          p.linalg({.op = Factorization::svd,
                    .a = view_of(a),
                    .b = view_of(s),
                    .c = with_vectors ? view_of(u) : kNothing,
                    .d = with_vectors ? view_of(vh) : kNothing,
                    .info = view_of(info)});
          check_info(
              "linalg.svd", info,
              [](int64_t code) {
                return "The algorithm failed to converge because the input matrix is "
                       "ill-conditioned or has too many repeated singular values (error code: " +
                       std::to_string(code) + ").";
              },
              "linalg.svd: The algorithm failed to converge because the input matrix contained "
              "non-finite values.");
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              ARETE_CHECK(g.boolean(2), NotImplementedError("linalg.svd",
                                                            "svd: without its vectors there is no "
                                                            "derivative; use compute_uv=True"));
              return {svd_gradient(g.grad(0), g.grad(1), g.grad(2), g.output(0), g.output(1),
                                   g.output(2))};
            },
            0, 7)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) * (c.boolean(2) ? 20 : 4); })
        .dtypes(kFactorizableTypes);

Tensor values_of_svd(const Tensor& a) {
  // Their gradient needs the vectors.
  const bool with_vectors = will_record(a);
  return call_all(svd_parts_op, {a, false, with_vectors})[1];
}

const OpRecord& linalg_svd_op =
    define("linalg_svd(Tensor A, bool full_matrices=True) -> (Tensor U, Tensor S, Tensor Vh)")
        .doc("A = U diag(S) Vh.")
        .compose([](const Call& c) -> Results {
          return call_all(svd_parts_op, {c.tensor(0), c.boolean(1), true});
        })
        .dtypes(kFactorizableTypes);

const OpRecord& linalg_svdvals_op =
    define("linalg_svdvals(Tensor A) -> Tensor")
        .doc("Singular values, largest first.")
        .compose([](const Call& c) -> Results { return {values_of_svd(c.tensor(0))}; })
        .dtypes(kMatrixTypes);

const OpRecord& svd_op =
    define(
        "svd(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)")
        .doc("A = U diag(S) V^H; U and V are zeros without compute_uv.")
        .compose([](const Call& c) -> Results {
          const Tensor& a = c.tensor(0);
          check_matrix("svd", a, "input");
          if (c.boolean(2)) {
            const Results r = call_all(svd_parts_op, {a, !c.boolean(1), true});
            return {r[0], r[1], adjoint(r[2])};
          }
          const Shape batch = batch_sizes(a.sizes());
          const int64_t m = a.size(-2), n = a.size(-1);
          return {zeros(with_sizes(batch, {m, m}), a.options()), values_of_svd(a),
                  zeros(with_sizes(batch, {n, n}), a.options())};
        })
        .dtypes(kFactorizableTypes);

// ---- symmetric and Hermitian matrices

bool is_upper(const std::string& name, std::string_view uplo) {
  const char c = uplo.size() == 1 ? uplo[0] : '?';
  ARETE_CHECK(
      c == 'L' || c == 'l' || c == 'U' || c == 'u',
      ValueError(name, "Expected UPLO argument to be 'L' or 'U', but got " + std::string(uplo)));
  return c == 'U' || c == 'u';
}

const OpRecord& eigh_parts_op =
    define(
        "_linalg_eigh(Tensor A, str UPLO=\"L\", bool compute_v=True) -> (Tensor eigenvalues, "
        "Tensor "
        "eigenvectors)")
        .doc("Eigenvalues of symmetric matrices, smallest first, and eigenvectors if wanted.")
        .batched(vmaps::leading)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& a = c.tensor(0);
          check_factorizable("linalg.eigh", a);
          check_square("linalg.eigh", a);
          is_upper("linalg.eigh", c[1].string());
          const Shape batch = batch_sizes(a.sizes());
          const int64_t n = a.size(-1);
          out.push_back({with_sizes(batch, {n}), real_of(a.dtype())});
          out.push_back(c.boolean(2) ? matrix_spec(batch, n, n, a) : OutputSpec{{0}, a.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Shape batch = batch_sizes(c.tensor(0).sizes());
          const bool with_vectors = c.boolean(2);
          if (c.tensor(0).numel() == 0) return;
          Tensor a = out[1];
          if (with_vectors)
            p.copy({view_of(a), view_of(c.tensor(0))});
          else
            a = column_major(c.tensor(0), batch, p);
          const Tensor info = empty_info(a);
          p.linalg({.op = Factorization::symmetric_eigen,
                    .a = view_of(a),
                    .b = view_of(out[0]),
                    .info = view_of(info),
                    .upper = is_upper("", c[1].string()),
                    .vectors = with_vectors});
          // Of a matrix with numbers that are not finite the results are NaN.
          check_info("linalg.eigh", info, [](int64_t code) {
            return "The algorithm failed to converge because the input matrix is ill-conditioned "
                   "or has too many repeated eigenvalues (error code: " +
                   std::to_string(code) + ").";
          });
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              ARETE_CHECK(g.boolean(2), NotImplementedError("linalg.eigh",
                                                            "eigh: without its vectors there is no "
                                                            "derivative"));
              const Tensor &gw = g.grad(0), &gv = g.grad(1);
              const Tensor w = g.output(0), v = g.output(1);
              const Tensor vh = adjoint(v);
              if (!gv.defined()) return {matmul(v * gw.unsqueeze(-2), vh)};
              const Tensor product = matmul(vh, gv);
              Tensor inner = (product - adjoint(product)) * Scalar(0.5) / differences(w);
              if (gw.defined()) inner = inner + diagonal_matrices(gw);
              return {matmul(v, matmul(inner, vh))};
            },
            0, 3)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) * (c.boolean(2) ? 9 : 4); })
        .dtypes(kFactorizableTypes);

const OpRecord& linalg_eigh_op =
    define("linalg_eigh(Tensor self, str UPLO=\"L\") -> (Tensor eigenvalues, Tensor eigenvectors)")
        .doc("Eigenvalues and eigenvectors of symmetric matrices.")
        .compose([](const Call& c) -> Results {
          return call_all(eigh_parts_op, {c.tensor(0), c[1].string(), true});
        })
        .dtypes(kFactorizableTypes);

const OpRecord& linalg_eigvalsh_op =
    define("linalg_eigvalsh(Tensor self, str UPLO=\"L\") -> Tensor")
        .doc("Eigenvalues of symmetric matrices, smallest first.")
        .compose([](const Call& c) -> Results {
          const Tensor& a = c.tensor(0);
          const bool with_vectors = will_record(a);
          return {call_all(eigh_parts_op, {a, c[1].string(), with_vectors})[0]};
        })
        .dtypes(kMatrixTypes);

// ---- any square matrices: complex results

// A V = V diag(L): of the values alone V^-H diag(gL) V^H; of the vectors, whose columns have length
// 1, V^-H [(V^H gV - V^H V diag(Re V^H gV)) / conj(L_j - L_i) + diag gL] V^H (Boeddeker et al.,
// 2019), where only the diagonal of the second is not known: it has no part in it.
Tensor eig_gradient(const Tensor& a, const Tensor& gl, const Tensor& gv, const Tensor& l,
                    const Tensor& v) {
  const Tensor vh = adjoint(v);
  Tensor inner;
  if (gv.defined()) {
    const Tensor product = matmul(vh, gv);
    const Tensor length = arete::real(product.diagonal(0, -2, -1));
    inner = (product - matmul(vh, v) * length.unsqueeze(-2)) / conj(differences(l));
    inner = inner * (Scalar(1) - eye(l.size(-1), TensorOptions(real_of(l.dtype()), l.device())));
  }
  if (gl.defined()) {
    const Tensor values = diagonal_matrices(gl);
    inner = inner.defined() ? inner + values : values;
  }
  const Tensor ga = linalg::solve(vh, matmul(inner, vh));
  return is_complex(a.dtype()) ? ga : arete::real(ga);
}

void eig_infer(const Call& c, OutputSpecs& out, bool with_vectors) {
  const Tensor& a = c.tensor(0);
  const std::string name = with_vectors ? "linalg.eig" : "linalg.eigvals";
  check_factorizable(name, a);
  check_square(name, a);
  const Shape batch = batch_sizes(a.sizes());
  const int64_t n = a.size(-1);
  out.push_back({with_sizes(batch, {n}), complex_of(a.dtype())});
  if (!with_vectors) return;
  out.push_back(matrix_spec(batch, n, n, a));
  out.back().dtype = complex_of(a.dtype());
}

void eig_lower(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  const Tensor& input = c.tensor(0);
  if (input.numel() == 0) return;
  const Tensor a = column_major(input, batch_sizes(input.sizes()), p), info = empty_info(a);
  p.linalg({.op = Factorization::eigen,
            .a = view_of(a),
            .b = view_of(out[0]),
            .c = out.size() > 1 ? view_of(out[1]) : kNothing,
            .info = view_of(info)});
  check_info(
      "linalg.eig", info, [](int64_t) -> std::string { return "The algorithm failed to converge"; },
      "torch.linalg.eig: input tensor should not contain infs or NaNs.");
}

const OpRecord& linalg_eig_op =
    define("linalg_eig(Tensor self) -> (Tensor eigenvalues, Tensor eigenvectors)")
        .doc("Complex eigenvalues and eigenvectors of any square matrices.")
        .batched(vmaps::leading)
        .infer([](const Call& c, OutputSpecs& out) { eig_infer(c, out, true); })
        .lower(eig_lower)
        .grad(
            [](const GradCall& g) -> TensorList {
              return {eig_gradient(g.input(0), g.grad(0), g.grad(1), g.output(0), g.output(1))};
            },
            1, 3)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) * 25; })
        .dtypes(kFactorizableTypes);

const OpRecord& eigenvalues_op =
    define("_linalg_eigvals(Tensor self) -> Tensor")
        .surface(Surface::internal)
        .doc("linalg_eigvals without a gradient.")
        .batched(vmaps::leading)
        .infer([](const Call& c, OutputSpecs& out) { eig_infer(c, out, false); })
        .lower(eig_lower)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) * 10; })
        .dtypes(kFactorizableTypes);

const OpRecord& linalg_eigvals_op =
    define("linalg_eigvals(Tensor self) -> Tensor")
        .doc("Complex eigenvalues of any square matrices.")
        .compose([](const Call& c) -> Results {
          // Their gradient needs the vectors.
          const Tensor& a = c.tensor(0);
          const bool with_vectors = will_record(a);
          return {with_vectors ? call_all(linalg_eig_op, {a})[0] : call(eigenvalues_op, {a})};
        })
        .dtypes(kFactorizableTypes);

}  // namespace
}  // namespace ops

namespace linalg {
std::tuple<Tensor, Tensor, Tensor> svd(const Tensor& a, bool full_matrices) {
  const auto r = ops::call_all(ops::linalg_svd_op, {a, full_matrices});
  return {r[0], r[1], r[2]};
}
Tensor svdvals(const Tensor& a) { return ops::call(ops::linalg_svdvals_op, {a}); }
std::tuple<Tensor, Tensor> eigh(const Tensor& a, std::string_view uplo) {
  const auto r = ops::call_all(ops::linalg_eigh_op, {a, uplo});
  return {r[0], r[1]};
}
Tensor eigvalsh(const Tensor& a, std::string_view uplo) {
  return ops::call(ops::linalg_eigvalsh_op, {a, uplo});
}
std::tuple<Tensor, Tensor> eig(const Tensor& a) {
  const auto r = ops::call_all(ops::linalg_eig_op, {a});
  return {r[0], r[1]};
}
Tensor eigvals(const Tensor& a) { return ops::call(ops::linalg_eigvals_op, {a}); }
}  // namespace linalg

std::tuple<Tensor, Tensor, Tensor> svd(const Tensor& self, bool some, bool compute_uv) {
  const auto r = ops::call_all(ops::svd_op, {self, some, compute_uv});
  return {r[0], r[1], r[2]};
}

}  // namespace arete

ARETE_FAMILY(linalg_spectral)
