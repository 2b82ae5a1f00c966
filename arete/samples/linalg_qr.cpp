// Samples, references and errors of the records in ops/linalg_qr.cpp.
#include <algorithm>
#include <complex>

#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/samples/linalg_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

// Householder's reflections by plain loops, with LAPACK's choice of signs: R in the upper triangle,
// the vectors (their leading 1 left out) below it.
std::vector<Number> reflect(Matrix& a) {
  std::vector<Number> taus;
  for (int64_t k = 0; k < std::min(a.rows, a.columns); ++k) {
    double below = 0;
    for (int64_t i = k + 1; i < a.rows; ++i) below += std::norm(a(i, k));
    const Number alpha = a(k, k);
    Number tau = 0;
    if (below > 0 || alpha.imag() != 0) {  // R's diagonal is real
      const double beta = -std::copysign(std::sqrt(std::norm(alpha) + below), alpha.real());
      tau = (beta - alpha) / beta;
      for (int64_t i = k + 1; i < a.rows; ++i) a(i, k) /= alpha - beta;
      a(k, k) = beta;
      for (int64_t j = k + 1; j < a.columns; ++j) {
        Number s = a(k, j);
        for (int64_t i = k + 1; i < a.rows; ++i) s += std::conj(a(i, k)) * a(i, j);
        s *= std::conj(tau);
        a(k, j) -= s;
        for (int64_t i = k + 1; i < a.rows; ++i) a(i, j) -= s * a(i, k);
      }
    }
    taus.push_back(tau);
  }
  return taus;
}

// The product of all reflections.
Matrix product_of(const Matrix& a, const std::vector<Number>& taus) {
  Matrix q = identity_matrix(a.rows);
  for (int64_t k = int64_t(taus.size()); k-- > 0;) {
    for (int64_t j = 0; j < a.rows; ++j) {
      Number s = q(k, j);
      for (int64_t i = k + 1; i < a.rows; ++i) s += std::conj(a(i, k)) * q(i, j);
      s *= taus[size_t(k)];
      q(k, j) -= s;
      for (int64_t i = k + 1; i < a.rows; ++i) q(i, j) -= s * a(i, k);
    }
  }
  return q;
}

Matrix leading_columns(const Matrix& a, int64_t n) {
  Matrix m(a.rows, n);
  for (int64_t i = 0; i < m.rows; ++i)
    for (int64_t j = 0; j < n; ++j) m(i, j) = a(i, j);
  return m;
}

const Attached geqrf_op =
    attach("geqrf")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 3})}},
                  {{m.make_strided({4, 2})}, "tall"},
                  {{m.make({2, 2, 3})}, "batch, wide"},
                  {{m.make({0, 2})}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3})},
                   ErrorKind::value,
                   "torch.geqrf: input must have at least 2 dimensions."}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& a = c.tensor(0);
          std::vector<Number> taus;
          const Tensor r = map_matrices(a, a.size(-2), a.size(-1), [&](Matrix m) {
            for (const Number& t : reflect(m)) taus.push_back(t);
            return m;
          });
          const int64_t k = std::min(a.size(-2), a.size(-1));
          return {r, from_numbers(taus, with_sizes(batch_sizes(a.sizes()), {k}), a.dtype())};
        });

std::vector<Sample> reflector_samples(SampleMaker& m) {
  return {{{m.make({3, 3}, -1, 1), m.make({3}, 0, 1)}},
          {{m.make_strided({4, 2}, -1, 1), m.make({2}, 0, 1)}, "tall"},
          {{m.make({2, 4, 3}, -1, 1), m.make({2, 2}, 0, 1)}, "batch, fewer reflectors"},
          {{m.make({3, 2}), m.make({2}, 0, 0)}, "tau 0"},
          {{m.make({2, 0}), m.make({0})}, "empty"}};
}

std::vector<ErrorSample> reflector_errors(SampleMaker& m) {
  return {{{m.make({2, 3}), m.make({2})},
           ErrorKind::value,
           "input.shape[-2] must be greater than or equal to input.shape[-1]"}};
}

std::vector<Tensor> reflector_reference(const Call& c) {
  const Tensor &a = c.tensor(0), &tau = c.tensor(1);
  const std::vector<Number> all = numbers_of(tau);
  size_t index = 0;
  return {map_matrices(a, a.size(-2), a.size(-1), [&](const Matrix& m) {
    const size_t k = size_t(tau.size(-1));
    const std::vector<Number> own(all.begin() + int64_t(index), all.begin() + int64_t(index + k));
    index += k;
    return leading_columns(product_of(m, own), m.columns);
  })};
}

const Attached reflector_columns_op =
    attach("reflector_columns")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({4, 2}, -1, 1), m.make({2}, 0, 1)}},
                  {{m.make_strided({2, 4, 3}, -1, 1), m.make({2, 2}, 0, 1)}, "fewer reflectors"}};
        })
        .reference(reflector_reference);
const Attached linalg_householder_product_op = attach("linalg_householder_product")
                                                   .samples(reflector_samples)
                                                   .errors(reflector_errors)
                                                   .reference(reflector_reference);
const Attached orgqr_op = attach("orgqr")
                              .samples(reflector_samples)
                              .errors(reflector_errors)
                              .reference(reflector_reference);
const Attached ormqr_op =
    attach("ormqr")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto a = [&] { return m.make({4, 2}, -1, 1); };
          const auto tau = [&] { return m.make({2}, 0, 1); };
          return {{{a(), tau(), m.make({4, 3}), true, false}},
                  {{a(), tau(), m.make({4, 3}), true, true}, "transposed"},
                  {{a(), tau(), m.make({3, 4}), false, false}, "right"},
                  {{a(), tau(), m.make({3, 4}), false, true}, "right, transposed"},
                  {{m.make({2, 4}, -1, 1), tau(), m.make({2, 3}), true, false}, "wide"},
                  {{m.make({3, 3}, -1, 1), tau(), m.make({2, 3}), false, true}, "square, right"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({4, 2}), m.make({2}), m.make({3, 3}), true, false},
                   ErrorKind::value,
                   "torch.ormqr: other.shape[-2] must be equal to input.shape[-2]"},
                  {{m.make({2, 4}), m.make({3}), m.make({2, 3}), true, false},
                   ErrorKind::value,
                   "torch.ormqr: input.shape[-2] must be greater than or equal to tau.shape[-1]"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& other = c.tensor(2);
          Matrix q = product_of(matrices_of(c.tensor(0))[0], numbers_of(c.tensor(1)));
          if (c.boolean(4)) q = adjoint(q);
          return {map_matrices(other, other.size(-2), other.size(-1), [&](const Matrix& m) {
            return c.boolean(3) ? product(q, m) : product(m, q);
          })};
        });
const Attached linalg_qr_op =
    attach("linalg_qr")
        .no_gradient_test()  // for the modes that have one: tests/grad/linalg_grad_test.cpp
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> all;
          for (const char* mode : {"reduced", "complete", "r"}) {
            all.push_back({{make_invertible(m, {3, 3}), mode}, "square"});
            all.push_back({{m.make_strided({4, 2}), mode}, "tall"});
            all.push_back({{m.make({2, 2, 4}), mode}, "batch, wide"});
            all.push_back({{m.make({0, 2, 2}), mode}, "empty batch"});
            all.push_back({{m.make({2, 0}), mode}, "no columns"});
            all.push_back({{m.make({0, 2}), mode}, "no rows"});
          }
          return all;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {
              {{m.make({3}), "reduced"},
               ErrorKind::value,
               "linalg.qr: The input tensor A must have at least 2 dimensions."},
              {{m.make({3, 3}), "full"}, ErrorKind::value, "qr received unrecognized mode 'full'"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& a = c.tensor(0);
          const std::string_view mode = c[1].string();
          const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
          const int64_t inner = mode == "complete" ? m : k;
          std::vector<Matrix> qs, rs;
          for (Matrix f : matrices_of(a)) {
            const std::vector<Number> taus = reflect(f);
            qs.push_back(leading_columns(product_of(f, taus), inner));
            Matrix r(inner, n);
            for (int64_t i = 0; i < std::min(inner, m); ++i)
              for (int64_t j = i; j < n; ++j) r(i, j) = f(i, j);
            rs.push_back(r);
          }
          const Shape batch = batch_sizes(a.sizes());
          const DType t = a.dtype();
          return {mode == "r" ? from_numbers({}, {0}, t) : from_matrices(qs, batch, m, inner, t),
                  from_matrices(rs, batch, inner, n, t)};
        });
const Attached qr_op = attach("qr")
                           .samples([](SampleMaker& m) -> std::vector<Sample> {
                             return {{{make_invertible(m, {3, 3}), true}},
                                     {{make_invertible(m, {4, 2}), true}, "tall"},
                                     {{make_invertible(m, {2, 4}), true}, "wide"},
                                     {{make_invertible(m, {2, 2, 3}), false}, "batch, complete"}};
                           })
                           .no_reference("linalg_qr under another name");

}  // namespace
}  // namespace arete::ops
