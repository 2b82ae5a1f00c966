// Inverses and determinants.
#include <limits>

#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/linalg_reference_internal.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

const std::vector<DType> kTypes{kFloat32, kFloat64};

// P L U of square matrices.
struct Factored {
  Tensor lu, pivots, info;
  Tensor diagonal() const { return lu.diagonal(0, -2, -1); }
  // How many rows were exchanged for others.
  Tensor exchanges() const {
    const TensorOptions o(kInt32, pivots.device());
    return (pivots != arange(Scalar(1), Scalar(pivots.size(-1) + 1), o)).sum(-1);
  }
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
// -1 where `count` is odd, else 1.
Tensor parity_sign(const Tensor& count, DType dtype) {
  return (1 - remainder(count, Scalar(2)) * Scalar(2)).to(dtype);
}

// ---- inverses

const OpRecord& linalg_inv_ex_op =
    define("linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)")
        .doc("The inverse, infinite for singular matrices, and an error number for each matrix.")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& a = c.tensor(0);
          check_factorizable(public_name(c), a);
          check_square(public_name(c), a);
          const Shape batch = batch_sizes(a.sizes());
          out.push_back(matrix_spec(batch, a.size(-1), a.size(-1), a));
          out.push_back({batch, kInt32, a.device(), {}});
        })
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
              const Tensor y = g.output().mT();
              return {matmul(y, matmul(g.grad(), y)).neg()};
            },
            0, 1)
        .no_grad_outputs(2)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) * 2; })
        .dtypes(kTypes)
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{make_invertible(m, {3, 3}), false}},
                  {{make_invertible(m, {2, 1, 2, 2}), true}, "batch"},
                  {{m.make({0, 3, 3}), false}, "empty batch"},
                  {{m.make({2, 0, 0}), false}, "empty matrices"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 2}, 0, 0), true},
                   ErrorKind::value,
                   "linalg.inv_ex: The diagonal element 1 is zero"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& a = c.tensor(0);
          return {map_matrices(a, a.size(-1), a.size(-1), inverted),
                  build_tensor(
                      batch_sizes(a.sizes()), [](const Shape&) { return 0; }, kInt64)};
        });

Results checked_inverse(const Call& c) {
  check_square("linalg.inv", c.tensor(0));
  const auto [inverse, info] = linalg::inv_ex(c.tensor(0));
  check_info("linalg.inv", info, singular_inverse_text);
  return {inverse};
}
std::vector<Sample> inverse_samples(SampleMaker& m) {
  return {{{make_invertible(m, {3, 3})}},
          {{make_invertible(m, {2, 1, 2, 2})}, "batch"},
          {{m.make({0, 3, 3})}, "empty batch"},
          {{m.make({2, 0, 0})}, "empty matrices"}};
}
std::vector<ErrorSample> inverse_errors(SampleMaker& m) {
  Tensor second = make_invertible(m, {3, 3}).detach();
  second.select(0, 1).zero_();
  second.select(1, 1).zero_();
  return {{{m.make({2, 3})},
           ErrorKind::value,
           "linalg.inv: A must be batches of square matrices, but they are 2 by 3 matrices"},
          {{m.make({2, 2}, 0, 0)},
           ErrorKind::value,
           "linalg.inv: The diagonal element 1 is zero, the inversion could not be completed "
           "because the input matrix is singular."},
          {{stack({eye(3, second.options()), second})},
           ErrorKind::value,
           "linalg.inv: (Batch element 1): The diagonal element 2 is zero"},
          {{m.make({2, 2}).to(kFloat16)},
           ErrorKind::not_implemented,
           "Low precision dtypes not supported"}};
}
std::vector<Tensor> inverse_reference(const Call& c) {
  const Tensor& a = c.tensor(0);
  return {map_matrices(a, a.size(-1), a.size(-1), inverted)};
}

const OpRecord& linalg_inv_op = define("linalg_inv(Tensor A) -> Tensor")
                                    .doc("The inverse.")
                                    .compose(checked_inverse)
                                    .autocast(Autocast::f32)
                                    .dtypes(kTypes)
                                    .samples(inverse_samples)
                                    .errors(inverse_errors)
                                    .reference(inverse_reference);
const OpRecord& inverse_op = define("inverse(Tensor self) -> Tensor")
                                 .doc("The inverse: linalg_inv.")
                                 .compose(checked_inverse)
                                 .autocast(Autocast::f32)
                                 .dtypes(kTypes)
                                 .samples(inverse_samples)
                                 .errors(inverse_errors)
                                 .reference(inverse_reference);

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
        .dtypes(kTypes)
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto make = [&](IntList s, int64_t n) {
            return make_invertible(m, {n, n}).detach().reshape(s).requires_grad_(m.requires_grad);
          };
          return {{{make({2, 2, 4}, 4), 2}}, {{make({4, 2, 2}, 4), 1}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), 0}, ErrorKind::value, "Expected a strictly positive integer"},
                  {{m.make({2, 3}), 1}, ErrorKind::value, "Expected self to satisfy"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& a = c.tensor(0);
          int64_t n = 1;
          Shape sizes;
          for (int64_t d = 0; d < c.integer(1); ++d) n *= a.size(d);
          for (int64_t d = c.integer(1); d < a.dim(); ++d) sizes.push_back(a.size(d));
          for (int64_t d = 0; d < c.integer(1); ++d) sizes.push_back(a.size(d));
          Matrix m(n, n);
          m.values = values_of(a);
          return {from_values(inverted(m).values, sizes)};
        });

// ---- determinants

// d det / dA = det A^-T. Where a determinant is zero the inverse does not exist, but the cofactors
// do: with A = U S V^T they are det(U V) U diag(products of the other singular values) V^T.
Tensor cofactors(const Tensor& a, const Tensor& det) {
  const bool singular = !det.is_meta() && (det == 0).any().item<bool>();
  if (!singular) return std::get<0>(linalg::inv_ex(a)).mT() * det.unsqueeze(-1).unsqueeze(-1);
  const auto [u, s, vh] = linalg::svd(a, false);
  const int64_t n = a.size(-1);
  const Tensor diagonal = eye(n, TensorOptions(kBool, a.device()));
  const Tensor others = arete::where(diagonal, 1, s.unsqueeze(-2).expand(a.sizes())).prod(-1);
  const Tensor sign = linalg::det(u) * linalg::det(vh);
  return matmul(u * others.unsqueeze(-2), vh) * sign.unsqueeze(-1).unsqueeze(-1);
}

void number_infer(const Call& c, OutputSpecs& out, const std::string& name) {
  const Tensor& a = c.tensor(0);
  check_factorizable(name, a);
  check_square(name, a);
  out.push_back({batch_sizes(a.sizes()), a.dtype(), a.device(), {}});
}

std::vector<Sample> det_samples(SampleMaker& m, bool with_singular) {
  std::vector<Sample> all{{{make_invertible(m, {3, 3})}},
                          {{m.make({2, 1, 2, 2})}, "batch"},
                          {{m.make({1, 1})}, "one element"},
                          {{m.make({0, 3, 3})}, "empty batch"},
                          {{m.make({2, 0, 0})}, "empty matrices"}};
  if (with_singular) {
    const Tensor singular = m.make({3, 3});
    singular.detach().select(0, 1).zero_();
    all.push_back({{singular}, "singular"});
  }
  return all;
}
std::vector<ErrorSample> det_errors(SampleMaker& m) {
  return {{{m.make({2, 3})},
           ErrorKind::value,
           "A must be batches of square matrices, but they are 2 by 3 matrices"},
          {{m.make({2, 2}).to(kFloat16)},
           ErrorKind::not_implemented,
           "Low precision dtypes not supported"}};
}
std::vector<Tensor> det_reference(const Call& c) {
  return {map_matrices_to_numbers(c.tensor(0), determinant)};
}

const OpRecord& linalg_det_op =
    define("linalg_det(Tensor A) -> Tensor")
        .doc("The determinant.")
        .infer([](const Call& c, OutputSpecs& out) { number_infer(c, out, "linalg.det"); })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const PlainCalls guard;
          const Factored f = factored(c.tensor(0), p);
          const Tensor sign = parity_sign(f.exchanges(), out[0].dtype());
          p.copy({view_of(out[0]), view_of(f.diagonal().prod(-1) * sign)});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor a = g.input(0);
              return {cofactors(a, g.output()) * g.grad().unsqueeze(-1).unsqueeze(-1)};
            },
            1, 1)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) * 2 / 3; })
        .dtypes(kTypes)
        .samples([](SampleMaker& m) { return det_samples(m, true); })
        .errors(det_errors)
        .reference(det_reference);

const OpRecord& det_op =
    define("det(Tensor self) -> Tensor")
        .doc("The determinant: linalg_det.")
        .compose([](const Call& c) -> Results { return {linalg::det(c.tensor(0))}; })
        .dtypes(kTypes)
        .samples([](SampleMaker& m) { return det_samples(m, false); })
        .errors(det_errors)
        .reference(det_reference);

std::vector<Tensor> slogdet_reference(const Call& c) {
  const Tensor& a = c.tensor(0);
  return {map_matrices_to_numbers(a,
                                  [](const Matrix& m) {
                                    const double d = determinant(m);
                                    return d > 0 ? 1 : d < 0 ? -1 : 0;
                                  }),
          map_matrices_to_numbers(
              a, [](const Matrix& m) { return std::log(std::fabs(determinant(m))); })};
}

const OpRecord& linalg_slogdet_op =
    define("linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)")
        .doc("Sign of the determinant and the logarithm of its magnitude.")
        .infer([](const Call& c, OutputSpecs& out) {
          number_infer(c, out, "linalg.slogdet");
          out.push_back(out[0]);
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const PlainCalls guard;
          const Factored f = factored(c.tensor(0), p);
          const Tensor d = f.diagonal();
          const Tensor sign = parity_sign(f.exchanges() + (d < 0).sum(-1), d.dtype());
          p.copy({view_of(out[0]), view_of(sign * arete::all(d != 0, {-1}))});
          p.copy({view_of(out[1]), view_of(d.abs().log().sum(-1))});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              if (!g.grad(1).defined()) return {zeros(g.input_sizes(0), g.input(0).options())};
              return {std::get<0>(linalg::inv_ex(g.input(0))).mT() *
                      g.grad(1).unsqueeze(-1).unsqueeze(-1)};
            },
            1)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) * 2 / 3; })
        .dtypes(kTypes)
        .samples([](SampleMaker& m) { return det_samples(m, false); })
        .errors(det_errors)
        .reference(slogdet_reference);

const OpRecord& slogdet_op = define("slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)")
                                 .doc("Sign and logarithm of the determinant: linalg_slogdet.")
                                 .compose([](const Call& c) -> Results {
                                   const auto [sign, log] = linalg::slogdet(c.tensor(0));
                                   return {sign, log};
                                 })
                                 .no_grad_outputs(1)
                                 .dtypes(kTypes)
                                 .samples([](SampleMaker& m) { return det_samples(m, false); })
                                 .errors(det_errors)
                                 .reference(slogdet_reference);

const OpRecord& logdet_op =
    define("logdet(Tensor self) -> Tensor")
        .doc("The logarithm of the determinant, NaN where that is negative.")
        .compose([](const Call& c) -> Results {
          const auto [sign, log] = linalg::slogdet(c.tensor(0));
          return {arete::where(sign == -1, std::numeric_limits<double>::quiet_NaN(), log)};
        })
        .dtypes(kTypes)
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{make_invertible(m, {3, 3})}},
                  {{make_invertible(m, {2, 2, 2})}, "batch"},
                  {{m.make({2, 0, 0})}, "empty matrices"}};
        })
        .errors(det_errors)
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {map_matrices_to_numbers(
              c.tensor(0), [](const Matrix& m) { return std::log(determinant(m)); })};
        });

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
