// Orthogonal factors made of reflections.
#include <algorithm>

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

enum class Mode { reduced, complete, r };
Mode mode_of(std::string_view text) {
  if (text == "reduced") return Mode::reduced;
  if (text == "complete") return Mode::complete;
  ARETE_CHECK(text == "r",
              ValueError("linalg.qr", "qr received unrecognized mode '" + std::string(text) +
                                          "' but expected one of 'reduced' (default), "
                                          "'r', or 'complete'"));
  return Mode::r;
}

// ---- reflectors

const OpRecord& geqrf_op =
    define("geqrf(Tensor self) -> (Tensor a, Tensor tau)")
        .doc("The QR factorization as LAPACK has it: R and reflectors in one matrix. No gradient.")
        .batched(vmaps::leading)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& a = c.tensor(0);
          check_factorizable(c.name(), a);
          ARETE_CHECK(a.dim() >= 2,
                      ValueError(c.name(), "torch.geqrf: input must have at least 2 dimensions.")
                          .got(describe(a)));
          const Shape batch = batch_sizes(a.sizes());
          out.push_back(matrix_spec(batch, a.size(-2), a.size(-1), a));
          out.push_back({with_sizes(batch, {std::min(a.size(-2), a.size(-1))}), a.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& a = c.tensor(0);
          p.copy({view_of(out[0]), view_of(a)});
          if (a.numel() == 0) return;
          const Tensor info = empty_info(a);
          p.linalg({.op = Factorization::qr,
                    .a = view_of(out[0]),
                    .b = view_of(out[1]),
                    .info = view_of(info)});
        })
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) * 2; })
        .dtypes(kMatrixTypes);

// Note [Product of reflections]
// H1 H2 ... Hk = I - V T V^H (Schreiber and Van Loan), where V has the reflectors as columns and
// T = (I + D N)^-1 D with D = diag(tau) and N = triu(V^H V, 1): three matrix products and a
// triangular solve, which is all differentiable, and defined where a tau is zero.
struct Reflections {
  Tensor v, t;
  Reflections(const Tensor& a, const Tensor& tau) {
    const int64_t k = tau.size(-1);
    const Tensor thin = a.narrow(-1, 0, k);
    v = thin.tril(-1) + eye(a.size(-2), k, a.options());
    const Tensor scaled = matmul(adjoint(v), v).triu(1) * tau.unsqueeze(-1);
    t = linalg::solve_triangular(scaled, diagonal_matrices(tau), true, true, true);
  }
  // Q x, or Q^H x.
  Tensor apply(const Tensor& x, bool of_adjoint) const {
    return x - matmul(v, matmul(of_adjoint ? adjoint(t) : t, matmul(adjoint(v), x)));
  }
};

void check_reflectors(const std::string& name, const Tensor& a, const Tensor& tau) {
  check_factorizable(name, a);
  check_matrix(name, a, "input");
  ARETE_CHECK(tau.dim() == a.dim() - 1 && tau.size(-1) <= a.size(-1),
              ValueError(name, name + ": input.shape[-1] must be greater than or equal to "
                                      "tau.shape[-1], and tau must have one dimension less")
                  .got(describe(a) + ", " + describe(tau)));
  check_same_dtype(name, a, tau);
}

bool same_batch(const Tensor& a, const Tensor& tau) {
  return std::ranges::equal(batch_sizes(a.sizes()), batch_sizes(tau.sizes(), 1));
}

// As LAPACK computes it, without a gradient.
const OpRecord& reflector_columns_op =
    define("reflector_columns(Tensor input, Tensor tau) -> Tensor")
        .doc("linalg_householder_product of reflectors without history.")
        .surface(Surface::internal)
        .batched(vmaps::leading_with_vectors)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& a = c.tensor(0);
          out.push_back(matrix_spec(batch_sizes(a.sizes()), a.size(-2), a.size(-1), a));
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor tau = plain(c.tensor(1), c.tensor(1).dtype()), info = empty_info(out[0]);
          p.copy({view_of(out[0]), view_of(c.tensor(0))});
          p.linalg({.op = Factorization::qr_vectors,
                    .a = view_of(out[0]),
                    .b = view_of(tau),
                    .info = view_of(info)});
        })
        .dtypes(kMatrixTypes);

Results first_columns(const Call& c) {
  const Tensor &a = c.tensor(0), &tau = c.tensor(1);
  const FullPrecision guard;
  const std::string name = "torch.linalg.householder_product";
  ARETE_CHECK(a.dim() < 2 || a.size(-2) >= a.size(-1),
              ValueError(name, name + ": input.shape[-2] must be greater than or equal to "
                                      "input.shape[-1]")
                  .got(describe(a)));
  check_reflectors(name, a, tau);
  const bool recorded = will_record(a) || will_record(tau);
  if (!recorded && a.numel() > 0 && tau.numel() > 0 && same_batch(a, tau))
    return {call(reflector_columns_op, {a, tau})};
  const Tensor columns = eye(a.size(-2), a.size(-1), a.options()).expand(a.sizes());
  return {Reflections(a, tau).apply(columns, false)};
}

const OpRecord& linalg_householder_product_op =
    define("linalg_householder_product(Tensor input, Tensor tau) -> Tensor")
        .doc("The first columns of a product of Householder reflections.")
        .compose(first_columns)
        .autocast(Autocast::f32)
        .dtypes(kMatrixTypes);
const OpRecord& orgqr_op = define("orgqr(Tensor self, Tensor input2) -> Tensor")
                               .doc("linalg_householder_product.")
                               .compose(first_columns)
                               .autocast(Autocast::f32)
                               .dtypes(kMatrixTypes);

const OpRecord& ormqr_op =
    define(
        "ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False) -> "
        "Tensor")
        .doc("The product of a matrix (input3) with Q or Q^H of the reflectors (self, input2).")
        .compose([](const Call& c) -> Results {
          const Tensor &a = c.tensor(0), &tau = c.tensor(1), &other = c.tensor(2);
          const bool left = c.boolean(3), transposed = c.boolean(4);
          const FullPrecision guard;
          check_reflectors("torch.ormqr", a, tau);
          ARETE_CHECK(tau.size(-1) <= a.size(-2),
                      ValueError(c.name(),
                                 "torch.ormqr: input.shape[-2] must be greater than or "
                                 "equal to tau.shape[-1]")
                          .got(describe(a) + ", " + describe(tau)));
          check_matrix(c.name(), other, "other");
          ARETE_CHECK(
              other.size(left ? -2 : -1) == a.size(-2),
              ValueError(c.name(), std::string("torch.ormqr: other.shape[") + (left ? "-2" : "-1") +
                                       "] must be equal to input.shape[-2]")
                  .got(describe(a) + ", " + describe(other)));
          const bool recorded = will_record(a) || will_record(tau);
          const int64_t m = a.size(-2);
          if (!recorded && a.size(-1) >= m && tau.size(-1) == m && a.numel() > 0 &&
              same_batch(a, tau)) {
            const Tensor q = call(reflector_columns_op, {a.narrow(-1, 0, m), tau});
            const Tensor turned = transposed ? adjoint(q) : q;
            return {left ? matmul(turned, other) : matmul(other, turned)};
          }
          const Reflections q(a, tau);
          if (left) return {q.apply(other, transposed)};
          return {adjoint(q.apply(adjoint(other), !transposed))};
        })
        .autocast(Autocast::f32)
        .dtypes(kMatrixTypes);

// ---- QR

// For square or tall A: gA = [gQ + Q (X + X^H - diag X)] R^-H, X = triu(gR R^H - Q^H gQ).
Tensor thin_gradient(const Tensor& gq, const Tensor& gr, const Tensor& q, const Tensor& r) {
  Tensor inner;
  if (gr.defined()) inner = matmul(gr, adjoint(r));
  if (gq.defined()) {
    const Tensor part = matmul(adjoint(q), gq);
    inner = inner.defined() ? inner - part : part.neg();
  }
  const Tensor x = scale_diagonal(inner.triu(), 0.5);
  Tensor sum = matmul(q, x + adjoint(x));
  if (gq.defined()) sum = sum + gq;
  return linalg::solve_triangular(adjoint(r), sum, false, false);
}

TensorList qr_gradient(const GradCall& g) {
  const Mode mode = mode_of(g.arg(1).string());
  const int64_t m = g.input_sizes(0).end()[-2], n = g.input_sizes(0).end()[-1];
  ARETE_CHECK(mode != Mode::r,
              NotImplementedError("linalg.qr",
                                  "The derivative of linalg.qr depends on Q, which is "
                                  "not computed when mode='r'. Please use "
                                  "linalg.qr(A, mode='reduced') if you are going to "
                                  "differentiate through linalg.qr."));
  ARETE_CHECK(mode == Mode::reduced || m <= n,
              NotImplementedError("linalg.qr",
                                  "The QR decomposition is not differentiable when "
                                  "mode='complete' and nrows > ncols"));
  const Tensor q = g.output(0), r = g.output(1);
  Tensor gq = g.grad(0), gr = g.grad(1);
  if (m >= n) return {thin_gradient(gq, gr, q, r)};
  // Wide: A = [X Y] with X = Q U and Y = Q V, so that V = Q^H Y.
  const Tensor y = matmul(q, r.narrow(-1, m, n - m));
  Tensor gu, gy;
  if (gr.defined()) {
    gu = gr.narrow(-1, 0, m);
    const Tensor gv = gr.narrow(-1, m, n - m), through = matmul(y, adjoint(gv));
    gy = matmul(q, gv);
    gq = gq.defined() ? gq + through : through;
  }
  const Tensor gx = thin_gradient(gq, gu, q, r.narrow(-1, 0, m));
  if (!gy.defined()) gy = zeros(y.sizes(), y.options());
  return {cat({gx, gy}, -1)};
}

const OpRecord& linalg_qr_op =
    define("linalg_qr(Tensor A, str mode=\"reduced\") -> (Tensor Q, Tensor R)")
        .doc("A = Q R; mode reduced, complete or r (R only).")
        .batched(vmaps::leading)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& a = c.tensor(0);
          check_factorizable(public_name(c), a);
          check_matrix(public_name(c), a);
          const Mode mode = mode_of(c[1].string());
          const Shape batch = batch_sizes(a.sizes());
          const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
          if (mode == Mode::r)
            out.push_back({{0}, a.dtype()});
          else
            out.push_back(matrix_spec(batch, m, mode == Mode::complete ? m : k, a));
          out.push_back(matrix_spec(batch, mode == Mode::complete ? m : k, n, a));
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const PlainCalls guard;
          const Shape batch = batch_sizes(out[1].sizes());
          const Tensor a = column_major(c.tensor(0), batch, p), info = empty_info(a);
          const int64_t m = a.size(-2), k = std::min(m, a.size(-1));
          const Tensor& q = out[0];
          const bool with_q = q.dim() > 1 && q.numel() > 0;
          if (a.numel() == 0) {  // there is no R, or it is empty
            if (with_q) p.copy({view_of(q), view_of(identities(batch, m, q.options()))});
            return;
          }
          const Tensor tau = empty_tensor(with_sizes(batch, {k}), a.dtype(), a.device());
          p.linalg(
              {.op = Factorization::qr, .a = view_of(a), .b = view_of(tau), .info = view_of(info)});
          p.copy({view_of(out[1]), view_of(a.narrow(-2, 0, out[1].size(-2)).triu())});
          if (!with_q) return;
          p.copy(
              {view_of(q, narrow(q.layout(), -1, 0, k)), view_of(a, narrow(a.layout(), -1, 0, k))});
          p.linalg({.op = Factorization::qr_vectors,
                    .a = view_of(q),
                    .b = view_of(tau),
                    .info = view_of(info)});
        })
        .grad(qr_gradient, 0, 3)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) * 4; })
        .dtypes(kMatrixTypes);

const OpRecord& qr_op = define("qr(Tensor self, bool some=True) -> (Tensor Q, Tensor R)")
                            .doc("A = Q R: linalg_qr, reduced where some is true, else complete.")
                            .compose([](const Call& c) -> Results {
                              const auto [q, r] =
                                  linalg::qr(c.tensor(0), c.boolean(1) ? "reduced" : "complete");
                              return {q, r};
                            })
                            .dtypes(kFactorizableTypes);

}  // namespace
}  // namespace ops

namespace linalg {
std::tuple<Tensor, Tensor> qr(const Tensor& a, std::string_view mode) {
  const auto r = ops::call_all(ops::linalg_qr_op, {a, mode});
  return {r[0], r[1]};
}
Tensor householder_product(const Tensor& a, const Tensor& tau) {
  return ops::call(ops::linalg_householder_product_op, {a, tau});
}
}  // namespace linalg

std::tuple<Tensor, Tensor> qr(const Tensor& self, bool some) {
  const auto r = ops::call_all(ops::qr_op, {self, some});
  return {r[0], r[1]};
}
std::tuple<Tensor, Tensor> geqrf(const Tensor& self) {
  const auto r = ops::call_all(ops::geqrf_op, {self});
  return {r[0], r[1]};
}
Tensor orgqr(const Tensor& self, const Tensor& input2) {
  return ops::call(ops::orgqr_op, {self, input2});
}
Tensor ormqr(const Tensor& self, const Tensor& tau, const Tensor& other, bool left,
             bool transpose) {
  return ops::call(ops::ormqr_op, {self, tau, other, left, transpose});
}

}  // namespace arete

ARETE_FAMILY(linalg_qr)
