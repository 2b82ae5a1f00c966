// Inverses and determinants.
#include <algorithm>
#include <limits>

#include "arete/ops/complex.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/rows.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {
namespace ops {
namespace {

// P L U of square matrices.
struct Factored {
  Tensor lu, pivots, info;
};
Factored factored(const Tensor& a, prim::Primitives& p) {
  const Shape batch = batch_sizes(a.sizes());
  Factored f{column_major(a, batch, p),
             empty_tensor(with_sizes(batch, {a.size(-1)}), kInt32, a.device()), empty_info(a)};
  p.linalg({.op = Factorization::lu,
            .a = view_of(f.lu),
            .b = view_of(f.pivots),
            .info = view_of(f.info)});
  return f;
}

// ---- inverses

const OpRecord& linalg_inv_ex_op =
    define("linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)")
        .doc("The inverse, infinite for singular matrices, and an error number for each matrix.")
        .batched(vmaps::leading)
        .infer(square_with_info)
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const PlainCalls guard;
          const Factored f = factored(c.tensor(0), p);
          Tensor inverse = out[0];
          p.copy({view_of(inverse),
                  view_of(identities(out[1].sizes(), inverse.size(-1), inverse.options()))});
          p.linalg({.op = Factorization::lu_solve,
                    .a = view_of(f.lu),
                    .b = view_of(f.pivots),
                    .c = view_of(inverse),
                    .info = view_of(out[1])});
          p.copy({view_of(out[1]), view_of(f.info)});
          inverse.masked_fill_((f.info != 0).unsqueeze(-1).unsqueeze(-1),
                               Scalar(std::numeric_limits<double>::infinity()));
          if (c.boolean(1)) check_info(public_name(c), out[1], singular_inverse_text);
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor y = adjoint(g.output());
              return {matmul(y, matmul(g.grad(), y)).neg()};
            },
            0, 1)
        .no_grad_outputs(2)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) * 2; })
        .dtypes(kMatrixTypes);

Results checked_inverse(const Call& c) {
  check_square("linalg.inv", c.tensor(0));
  const auto [inverse, info] = linalg::inv_ex(c.tensor(0));
  check_info("linalg.inv", info, singular_inverse_text);
  return {inverse};
}

const OpRecord& linalg_inv_op = define("linalg_inv(Tensor A) -> Tensor")
                                    .doc("The inverse.")
                                    .compose(checked_inverse)
                                    .autocast(Autocast::f32)
                                    .dtypes(kMatrixTypes);
const OpRecord& inverse_op = define("inverse(Tensor self) -> Tensor")
                                 .doc("The inverse: linalg_inv.")
                                 .compose(checked_inverse)
                                 .autocast(Autocast::f32)
                                 .dtypes(kMatrixTypes);

const OpRecord& linalg_tensorinv_op =
    define("linalg_tensorinv(Tensor self, int ind=2) -> Tensor")
        .doc("The inverse of the map from the dimensions from ind on to those before.")
        .compose([](const Call& c) -> Results {
          const Tensor& a = c.tensor(0);
          const int64_t ind = c.integer(1);
          ARETE_CHECK(ind > 0, ValueError(c.name(),
                                          "Expected a strictly positive integer for "
                                          "'ind', but got " +
                                              std::to_string(ind)));
          const size_t split = size_t(std::min(ind, a.dim()));
          const Shape rows(a.sizes().first(split)), columns(a.sizes().subspan(split));
          const int64_t n = numel_of(rows);
          ARETE_CHECK(
              n == numel_of(columns),
              ValueError(c.name(),
                         "Expected self to satisfy the requirement "
                         "prod(self.shape[ind:]) == prod(self.shape[:ind]), but "
                         "got " +
                             std::to_string(numel_of(columns)) + " != " + std::to_string(n)));
          Shape sizes = columns;
          for (int64_t s : rows) sizes.push_back(s);
          return {linalg::inv(a.reshape({n, n})).reshape(sizes)};
        })
        .autocast(Autocast::f32)
        .dtypes(kMatrixTypes);

// ---- determinants

// d det / dA = det A^-T. Where a determinant is zero the inverse does not exist, but the cofactors
// do: with A = U S V^H they are det(U V^H) times the conjugate of U diag(products of the other
// singular values) V^H.
Tensor cofactors(const Tensor& a, const Tensor& det) {
  const bool singular = !det.is_meta() && (all_values(det) == 0).any().item<bool>();
  if (!singular) return std::get<0>(linalg::inv_ex(a)).mT() * det.unsqueeze(-1).unsqueeze(-1);
  const auto [u, s, vh] = linalg::svd(a, false);
  const int64_t n = a.size(-1);
  const Tensor diagonal = eye(n, TensorOptions(kBool, a.device()));
  const Tensor others = arete::where(diagonal, 1, s.unsqueeze(-2).expand(a.sizes())).prod(-1);
  const Tensor sign = linalg::det(u) * linalg::det(vh);
  return conj(matmul(u * others.unsqueeze(-2), vh)) * sign.unsqueeze(-1).unsqueeze(-1);
}

// Of the factors of a matrix each: the product over the diagonal of U, or the product of its signs
// and the sum of logarithms; a row exchanged for another changes the sign.
Results determinants(const Factored& f, bool logarithm) {
  using expr::Value;
  static auto* const cache = new RowProgramCache;
  const DType t = f.lu.dtype();
  const int64_t n = f.pivots.size(-1);
  const Tensor numbers = arange(Scalar(1), Scalar(n + 1), TensorOptions(kInt32, f.pivots.device()));
  if (is_complex(t)) {
    const Tensor d = f.lu.diagonal(0, -2, -1);
    const Tensor parity =
        arete::where(f.pivots != numbers, -1, ones({}, TensorOptions(real_of(t), d.device())))
            .prod(-1);
    if (!logarithm) return {d.prod(-1) * parity};
    return {arete::sgn(d).prod(-1) * parity, d.abs().log().sum(-1)};
  }
  const RowProgramPtr& program = cache->get(
      pack_key({int(t), logarithm}), {t, kInt32, kInt32}, {},
      logarithm ? std::vector{t, t} : std::vector{t}, [=](Rows& rows, std::span<const Value> v) {
        const Value d = where(v[1] != v[2], -v[0], v[0]);
        if (!logarithm) return std::vector{rows.reduce(prim::Monoid::prod, d)};
        const Value sign = where(d < 0, -1.0, where(d == 0, 0.0, constant_like(d, 1.0)));
        return std::vector{rows.reduce(prim::Monoid::prod, sign), rows.sum(log(abs(d)))};
      });
  const int64_t dims[] = {f.pivots.dim() - 1};
  Results r =
      apply_rows(program, {{f.lu.diagonal(0, -2, -1), f.pivots, numbers}}, {}, dims, "linalg.det");
  for (Tensor& x : r) x = x.squeeze(-1);
  return r;
}

void number_infer(const Call& c, OutputSpecs& out, const std::string& name) {
  const Tensor& a = c.tensor(0);
  check_factorizable(name, a);
  check_square(name, a);
  out.push_back({batch_sizes(a.sizes()), a.dtype()});
}

const OpRecord& linalg_det_op =
    define("linalg_det(Tensor A) -> Tensor")
        .doc("The determinant.")
        .batched(vmaps::leading)
        .infer([](const Call& c, OutputSpecs& out) { number_infer(c, out, "linalg.det"); })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const PlainCalls guard;
          const Results r = determinants(factored(c.tensor(0), p), false);
          p.copy({view_of(out[0]), view_of(r[0])});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor a = g.input(0);
              return {conj(cofactors(a, g.output())) * g.grad().unsqueeze(-1).unsqueeze(-1)};
            },
            1, 1)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) * 2 / 3; })
        .dtypes(kMatrixTypes);

const OpRecord& det_op =
    define("det(Tensor self) -> Tensor")
        .doc("The determinant: linalg_det.")
        .compose([](const Call& c) -> Results { return {linalg::det(c.tensor(0))}; })
        .dtypes(kMatrixTypes);

const OpRecord& linalg_slogdet_op =
    define("linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)")
        .doc("Sign of the determinant and the logarithm of its magnitude.")
        .batched(vmaps::leading)
        .infer([](const Call& c, OutputSpecs& out) {
          number_infer(c, out, "linalg.slogdet");
          out.push_back(out[0]);
          out.back().dtype = real_of(out[0].dtype);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const PlainCalls guard;
          const Results r = determinants(factored(c.tensor(0), p), true);
          p.copy({view_of(out[0]), view_of(r[0])});
          p.copy({view_of(out[1]), view_of(r[1])});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              // d log det = tr(A^-1 dA), of which the real part changes the logarithm and the
              // imaginary one the angle; the sign of a real determinant does not change.
              const Tensor a = g.input(0), &gs = g.grad(0), &gl = g.grad(1);
              Tensor factor = gl;
              if (is_complex(a.dtype()) && gs.defined()) {
                const Tensor angle = imag(conj(gs) * g.output(0)),
                             real = gl.defined() ? gl : zeros_like(angle);
                factor = arete::complex(real, angle.neg());
              }
              if (!factor.defined()) return {zeros(g.input_sizes(0), a.options())};
              return {adjoint(std::get<0>(linalg::inv_ex(a))) * factor.unsqueeze(-1).unsqueeze(-1)};
            },
            1, 1)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) * 2 / 3; })
        .dtypes(kMatrixTypes);

const OpRecord& slogdet_op = define("slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)")
                                 .doc("Sign and logarithm of the determinant: linalg_slogdet.")
                                 .compose([](const Call& c) -> Results {
                                   const auto [sign, log] = linalg::slogdet(c.tensor(0));
                                   return {sign, log};
                                 })
                                 .dtypes(kMatrixTypes);

const OpRecord& logdet_op =
    define("logdet(Tensor self) -> Tensor")
        .doc("The logarithm of the determinant, NaN where that is a negative real number.")
        .compose([](const Call& c) -> Results {
          const auto [sign, log] = linalg::slogdet(c.tensor(0));
          if (is_complex(sign.dtype())) return {log + sign.log()};
          return {arete::where(sign == -1, std::numeric_limits<double>::quiet_NaN(), log)};
        })
        .dtypes(kMatrixTypes);

}  // namespace
}  // namespace ops

namespace linalg {
Tensor inv(const Tensor& a) { return ops::call(ops::linalg_inv_op, {a}); }
std::tuple<Tensor, Tensor> inv_ex(const Tensor& a, bool check_errors) {
  const auto r = ops::call_all(ops::linalg_inv_ex_op, {a, check_errors});
  return {r[0], r[1]};
}
Tensor tensorinv(const Tensor& a, int64_t ind) {
  return ops::call(ops::linalg_tensorinv_op, {a, ind});
}
Tensor det(const Tensor& a) { return ops::call(ops::linalg_det_op, {a}); }
std::tuple<Tensor, Tensor> slogdet(const Tensor& a) {
  const auto r = ops::call_all(ops::linalg_slogdet_op, {a});
  return {r[0], r[1]};
}
}  // namespace linalg

Tensor inverse(const Tensor& self) { return ops::call(ops::inverse_op, {self}); }
Tensor det(const Tensor& self) { return ops::call(ops::det_op, {self}); }
Tensor logdet(const Tensor& self) { return ops::call(ops::logdet_op, {self}); }
std::tuple<Tensor, Tensor> slogdet(const Tensor& self) {
  const auto r = ops::call_all(ops::slogdet_op, {self});
  return {r[0], r[1]};
}

}  // namespace arete

ARETE_FAMILY(linalg_inverse)
