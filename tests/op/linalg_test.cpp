// What the references of the records cannot say: identities that define factors whose signs, order
// or scale are free, larger matrices, and values that have no factors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>

#include "arete/arete.h"
#include "tests/support/record_cases.h"
#include "tests/support/test_device.h"
#include "tests/support/tolerance.h"

namespace arete::test {
namespace {

// Largest difference, against a tolerance for sums of n terms of the size of b.
void expect_close(const Tensor& a, const Tensor& b, int64_t n) {
  ASSERT_EQ(to_string(a.sizes()), to_string(b.sizes()));
  if (a.numel() == 0) return;
  const double scale = std::max(1.0, b.abs().max().item<double>());
  EXPECT_LE((a - b).abs().max().item<double>(), tolerance(a.dtype(), n * n, scale));
}

class Linalg : public testing::TestWithParam<DType> {
 protected:
  Tensor random(IntList sizes) {
    ops::SampleMaker maker(GetParam(), test_device(), false, ++seed_);
    return maker.make(sizes, -1, 1);
  }
  Tensor symmetric(IntList sizes) {
    const Tensor a = random(sizes);
    return a + a.mT();
  }
  Tensor identity(int64_t n) { return eye(n, TensorOptions(GetParam(), test_device())); }
  uint64_t seed_ = 0;
};

const std::vector<std::vector<int64_t>> kShapes{{3, 3},    {4, 2},   {2, 5},      {2, 3, 4, 4},
                                                {30, 17},  {17, 30}, {3, 40, 40}, {1, 1},
                                                {0, 3, 3}, {3, 0},   {0, 3},      {2, 0, 0}};

// Indefinite matrices; with nothing on the diagonal every pivot is a block of two.
TEST_P(Linalg, LdlSolves) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{5, 5}, {2, 3, 8, 8}, {40, 40}}) {
    for (bool hollow : {false, true}) {
      SCOPED_TRACE(to_string(shape) + (hollow ? ", hollow" : ""));
      Tensor a = symmetric(shape);
      if (hollow) a.diagonal(0, -2, -1).zero_();
      const auto [ld, pivots] = linalg::ldl_factor(a);
      expect_close(ld.triu(1), zeros(ld.sizes(), ld.options()), 1);
      if (hollow) {
        EXPECT_LT(pivots.min().item<int64_t>(), 0);
      }
      std::vector<int64_t> right = shape;
      right.back() = 2;
      const Tensor b = random(right), x = linalg::ldl_solve(ld, pivots, b);
      const int64_t n = a.size(-1);
      expect_close(matmul(a, x) / Scalar(x.abs().max().item<double>() + 1),
                   b / Scalar(x.abs().max().item<double>() + 1), 4 * n);
    }
  }
}

TEST_P(Linalg, SvdReconstructs) {
  for (const auto& shape : kShapes) {
    for (bool full : {false, true}) {
      SCOPED_TRACE(to_string(shape) + (full ? ", full" : ""));
      const Tensor a = random(shape);
      const auto [u, s, vh] = linalg::svd(a, full);
      const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
      expect_close(matmul(u.narrow(-1, 0, k) * s.unsqueeze(-2), vh.narrow(-2, 0, k)), a, m + n);
      expect_close(matmul(u.mT(), u), identity(u.size(-1)).expand(matmul(u.mT(), u).sizes()), m);
      expect_close(matmul(vh, vh.mT()), identity(vh.size(-2)).expand(matmul(vh, vh.mT()).sizes()),
                   n);
      if (k > 1 && s.numel()) {
        EXPECT_TRUE((s.narrow(-1, 0, k - 1) >= s.narrow(-1, 1, k - 1)).all().item<bool>());
      }
      expect_close(linalg::svdvals(a), s, m + n);
      const auto [u2, s2, v2] = svd(a, !full);
      expect_close(v2.mT(), vh, m + n);
    }
  }
}

TEST_P(Linalg, EighReconstructs) {
  for (const auto& shape : kShapes) {
    if (shape[shape.size() - 1] != shape[shape.size() - 2]) continue;
    SCOPED_TRACE(to_string(shape));
    const Tensor a = symmetric(shape);
    const int64_t n = a.size(-1);
    for (const char* uplo : {"L", "U"}) {
      const auto [w, v] = linalg::eigh(a, uplo);
      expect_close(matmul(v * w.unsqueeze(-2), v.mT()), a, 4 * n);
      expect_close(matmul(v.mT(), v), identity(n).expand(a.sizes()), n);
      if (n > 1 && w.numel()) {
        EXPECT_TRUE((w.narrow(-1, 0, n - 1) <= w.narrow(-1, 1, n - 1)).all().item<bool>());
      }
      expect_close(linalg::eigvalsh(a, uplo), w, 4 * n);
    }
  }
}

TEST_P(Linalg, EighOfLargeAndDeficientMatrices) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{65, 65}, {2, 150, 150}}) {
    const Tensor x = random({shape.back(), 2}), few = matmul(x, x.mT());
    for (const Tensor& a : {symmetric(shape), few, few * Scalar(0)}) {
      const auto [w, v] = linalg::eigh(a);
      const int64_t n = a.size(-1);
      expect_close(matmul(v * w.unsqueeze(-2), v.mT()), a, 4 * n);
      expect_close(matmul(v.mT(), v), identity(n).expand(a.sizes()), n);
      expect_close(linalg::eigvalsh(a), w, 4 * n);
    }
  }
  if (!test_device().is_cpu()) return;  // libraries of GPUs lose small numbers
  for (const double scale : {1e-37, 1e-30, 1e30}) {
    const Tensor a = symmetric({24, 24});
    const Tensor w = linalg::eigvalsh(a * Scalar(scale)) / Scalar(scale);
    EXPECT_LE((w - linalg::eigvalsh(a)).abs().max().item<double>(),
              tolerance(GetParam(), 24 * 24, 8))
        << scale;
    const auto [q, r] = linalg::qr(a * Scalar(scale));
    expect_close(matmul(q, r / Scalar(scale)), a, 24);
  }
}

TEST_P(Linalg, ComplexMatrices) {
  for (const int64_t n : {3, 12}) {
    const Shape shape{2, n, n};
    const Tensor one = complex(identity(n), random({n, n}) * Scalar(0));
    const Tensor a = complex(random(shape), random(shape)) + one * Scalar(double(n));
    const Tensor ah = conj(a).mT();
    const auto close = [&](const Tensor& x, const Tensor& y) {
      EXPECT_EQ(x.dtype(), a.dtype());
      expect_close(view_as_real(x.contiguous()), view_as_real(y.contiguous()), 16 * n);
    };
    const Tensor b = complex(random({2, n, 2}), random({2, n, 2}));
    close(matmul(a, linalg::solve(a, b)), b);
    close(matmul(a, linalg::inv(a)), one.expand(shape));
    const auto [u, s, vh] = linalg::svd(a);
    EXPECT_EQ(s.dtype(), GetParam());
    close(matmul(u * s.unsqueeze(-2), vh), a);
    const auto [q, r] = linalg::qr(a);
    close(matmul(q, r), a);
    const auto [w, v] = linalg::eig(a);
    close(matmul(a, v), v * w.unsqueeze(-2));
    const Tensor h = matmul(a, ah);
    const auto [values, vectors] = linalg::eigh(h);
    close(matmul(vectors * values.unsqueeze(-2), conj(vectors).mT()) / Scalar(double(n * n)),
          h / Scalar(double(n * n)));
    const Tensor l = linalg::cholesky(h);
    close(matmul(l, conj(l).mT()) / Scalar(double(n * n)), h / Scalar(double(n * n)));
  }
}

TEST_P(Linalg, EigSatisfiesItsEquation) {
  for (int64_t n : {1, 3, 4, 9}) {
    const Tensor a = random({2, n, n});
    const auto [w, v] = linalg::eig(a);
    ASSERT_TRUE(is_complex(w.dtype()));
    const auto values = w.to(kCPU).to_vector<std::complex<double>>();
    const auto vectors = v.to(kCPU).contiguous().to_vector<std::complex<double>>();
    const auto only = linalg::eigvals(a).to(kCPU).to_vector<std::complex<double>>();
    const auto matrix = a.to_vector<double>();
    const double bound = tolerance(GetParam(), n * n * 16, double(n));
    for (int64_t b = 0; b < 2; ++b) {
      std::complex<double> sum = 0, sum_only = 0;
      double trace = 0;
      for (int64_t j = 0; j < n; ++j) {
        sum += values[size_t(b * n + j)];
        sum_only += only[size_t(b * n + j)];
        trace += matrix[size_t((b * n + j) * n + j)];
        double length = 0;
        for (int64_t i = 0; i < n; ++i) {
          std::complex<double> product = 0;
          for (int64_t k = 0; k < n; ++k)
            product += matrix[size_t((b * n + i) * n + k)] * vectors[size_t((b * n + k) * n + j)];
          const auto x = vectors[size_t((b * n + i) * n + j)];
          EXPECT_LE(std::abs(product - values[size_t(b * n + j)] * x), bound);
          length += std::norm(x);
        }
        EXPECT_NEAR(length, 1, bound);
      }
      EXPECT_NEAR(sum.real(), trace, bound);
      EXPECT_NEAR(sum.imag(), 0, bound);
      EXPECT_NEAR(sum_only.real(), trace, bound);
    }
  }
}

TEST_P(Linalg, LargerMatricesFactorizeAndSolve) {
  const int64_t n = 150;
  const Tensor a = random({2, n, n}) + identity(n) * Scalar(12);
  const Tensor b = random({2, n, 7});
  expect_close(matmul(a, linalg::solve(a, b)), b, n);
  expect_close(matmul(linalg::solve(a, b.mT(), false), a), b.mT(), n);
  expect_close(matmul(a, linalg::inv(a)), identity(n).expand(a.sizes()), n);
  const auto [p, l, u] = linalg::lu(a);
  expect_close(matmul(p, matmul(l, u)), a, n);
  const auto [lu, pivots] = linalg::lu_factor(a);
  expect_close(matmul(a, linalg::lu_solve(lu, pivots, b)), b, n);
  expect_close(matmul(a.mT(), linalg::lu_solve(lu, pivots, b, true, true)), b, n);
  const Tensor spd = matmul(a, a.mT());
  const Tensor factor = linalg::cholesky(spd);
  expect_close(matmul(factor, factor.mT()), spd, n);
  expect_close(matmul(spd, cholesky_solve(b, factor)) / Scalar(100), b / Scalar(100), n);
  const auto [q, r] = linalg::qr(a);
  expect_close(matmul(q, r), a, n);
  const auto [reflectors, tau] = geqrf(a);
  expect_close(linalg::householder_product(reflectors, tau), q, n);
  expect_close(ormqr(reflectors, tau, r), a, n);
  expect_close(ormqr(reflectors, tau, a, true, true), r, n);
  expect_close(matmul(linalg::matrix_exp(a / Scalar(9)), linalg::matrix_exp(a / Scalar(-9))),
               identity(n).expand(a.sizes()), n * 30);
}

TEST_P(Linalg, PseudoInverseOfDependentColumns) {
  const Tensor a = matmul(random({5, 2}), random({2, 4}));
  const double tolerance_of_rank = 1e-4;
  const Tensor p = linalg::pinv(a, std::nullopt, tolerance_of_rank);
  expect_close(matmul(a, matmul(p, a)), a, 40);
  expect_close(matmul(p, matmul(a, p)), p, 40);
  expect_close(matmul(a, p), matmul(a, p).mT(), 40);
  expect_close(matmul(p, a), matmul(p, a).mT(), 40);
  EXPECT_EQ(linalg::matrix_rank(a, std::nullopt, tolerance_of_rank).item<int64_t>(), 2);
  const auto [x, residuals, rank, values] =
      linalg::lstsq(a, random({5, 1}), tolerance_of_rank, "gelsd");
  EXPECT_EQ(rank.item<int64_t>(), 2);
  EXPECT_EQ(residuals.numel(), 0) << "residuals are for full rank";
  EXPECT_EQ(values.numel(), 4);
}

TEST_P(Linalg, SingularMatrices) {
  const Tensor zero = zeros({2, 2}, TensorOptions(GetParam(), test_device()));
  EXPECT_EQ(linalg::det(zero).item<double>(), 0);
  const auto [sign, log] = linalg::slogdet(zero);
  EXPECT_EQ(sign.item<double>(), 0);
  EXPECT_EQ(log.item<double>(), -INFINITY);
  EXPECT_EQ(logdet(zero).item<double>(), -INFINITY);
  EXPECT_TRUE(std::isnan(logdet(identity(1).neg()).item<double>()));
  EXPECT_EQ(linalg::cond(zero, 1).item<double>(), INFINITY);
  EXPECT_EQ(linalg::cond(tensor({{1, 1}, {1, 1}}, zero.options()), 1).item<double>(), INFINITY);
  EXPECT_EQ(std::get<1>(linalg::inv_ex(zero)).item<int64_t>(), 1);
  EXPECT_EQ(std::get<1>(linalg::solve_ex(zero, zero)).item<int64_t>(), 1);
  EXPECT_EQ(std::get<2>(linalg::lu_factor_ex(zero)).item<int64_t>(), 1);
  EXPECT_EQ(std::get<1>(linalg::cholesky_ex(zero)).item<int64_t>(), 1);
  if (test_device().is_cpu()) {
    const Tensor with_nan = tensor({{0.0, 1.0}, {double(NAN), 1.0}}, zero.options());
    EXPECT_TRUE(std::isnan(linalg::det(with_nan).item<double>()));
  }
}

TEST_P(Linalg, DistancesOfManyPoints) {
  const Tensor a = random({40, 5}), b = random({30, 5});
  const Tensor by_product = cdist(a, b);
  const Tensor exact = cdist(a, b, 2, "donot_use_mm_for_euclid_dist");
  EXPECT_LE((by_product - exact).abs().max().item<double>(), tolerance(GetParam(), 400, 4));
  Tensor x = a.clone().requires_grad_();
  cdist(x, x).sum().backward();
  EXPECT_TRUE(x.grad().isfinite().all().item<bool>()) << "a distance of 0 has the gradient 0";
  Tensor lost = a.clone();
  lost.select(0, 3).fill_(NAN);
  EXPECT_TRUE(equal(cdist(lost, b).isnan().all({1}), lost.isnan().all({1}))) << "NaN are not 0";
}

TEST_P(Linalg, SolvesWithoutCopyingWhatItIsGiven) {
  // In-place changes of the input after the call must not show in the result.
  Tensor a = random({3, 3}) + identity(3) * Scalar(3);
  const Tensor y = linalg::inv(a), before = y.clone();
  a.zero_();
  EXPECT_TRUE(equal(y, before));
}

INSTANTIATE_TEST_SUITE_P(Types, Linalg, testing::Values(kFloat32, kFloat64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace arete::test
