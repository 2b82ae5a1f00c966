// Batches of matrices of many shapes, for which devices have other algorithms than for one: what
// defines the results, within what rounding allows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "arete/arete.h"
#include "arete/ops/samples.h"
#include "tests/support/test_device.h"
#include "tests/support/tolerance.h"

namespace arete::test {
namespace {

// Largest difference of a and b, against a tolerance for sums of n terms of size `scale`.
void expect_near(const Tensor& a, const Tensor& b, int64_t n, double scale = 1) {
  ASSERT_EQ(to_string(a.sizes()), to_string(b.sizes()));
  if (a.numel() == 0) return;
  EXPECT_LE((a - b).abs().max().item<double>(), tolerance(a.dtype(), n * n, scale));
}

class LinalgBatch : public testing::TestWithParam<DType> {
 protected:
  Tensor random(IntList sizes) {
    ops::SampleMaker maker(GetParam(), test_device(), false, ++seed_);
    return maker.make(sizes, -1, 1);
  }
  // Well-conditioned, and its rows in an order that asks for exchanges.
  Tensor invertible(IntList sizes) {
    const int64_t n = sizes.back();
    const Tensor a = random(sizes) + identity(n) * Scalar(2 * std::sqrt(double(n)));
    return a.roll({3}, {-2});
  }
  Tensor triangular(IntList sizes) {
    const int64_t n = sizes.back();
    return random(sizes) / Scalar(double(n)) + identity(n);
  }
  Tensor identity(int64_t n) { return eye(n, TensorOptions(GetParam(), test_device())); }
  uint64_t seed_ = 0;
};

TEST_P(LinalgBatch, LuFactors) {
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{2, 5, 7},
                                                                             {2, 7, 5},
                                                                             {3, 1, 4},
                                                                             {3, 4, 1},
                                                                             {2, 2, 105, 75},
                                                                             {2, 75, 105},
                                                                             {2, 180, 150},
                                                                             {2, 150, 180},
                                                                             {2, 300, 40},
                                                                             {3, 140, 140}}) {
    SCOPED_TRACE(to_string(shape));
    const Tensor a = random(shape);
    const auto [p, l, u] = linalg::lu(a);
    const int64_t m = a.size(-2), n = a.size(-1);
    expect_near(matmul(p, matmul(l, u)), a, m + n);
    EXPECT_LE(l.abs().max().item<double>(), 1 + 1e-5);  // the largest of a column is the pivot
    expect_near(matmul(p, p.mT()), identity(m).expand(p.sizes()), 1);
    const auto [lu, pivots, info] = linalg::lu_factor_ex(a);
    EXPECT_EQ(info.abs().max().item<int64_t>(), 0);
    EXPECT_GE(pivots.min().item<int64_t>(), 1);
    EXPECT_LE(pivots.max().item<int64_t>(), m);
  }
}

// Many larger ones; looked at by some products.
TEST_P(LinalgBatch, LuFactorsOfManyMatrices) {
  const int64_t n = 290;
  const Tensor a = random({32, n, n}), x = random({n, 3});
  const auto [p, l, u] = linalg::lu(a);
  expect_near(matmul(p, matmul(l, matmul(u, x))), matmul(a, x), 2 * n);
  EXPECT_LE(l.abs().max().item<double>(), 1 + 1e-5);
}

// The first pivot that is zero is told, and what follows is factored all the same.
TEST_P(LinalgBatch, LuOfSingularMatrices) {
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{3, 9, 6}, {3, 6, 9}, {3, 160, 120}}) {
    SCOPED_TRACE(to_string(shape));
    Tensor a = random(shape);
    const int64_t k = std::min(a.size(-2), a.size(-1));
    a.select(0, 1).select(-1, k / 2).zero_();
    a.select(0, 1).select(-1, k - 1).zero_();
    const auto [lu, pivots, info] = linalg::lu_factor_ex(a);
    EXPECT_EQ(info.to_vector<int64_t>(), (std::vector<int64_t>{0, k / 2 + 1, 0}));
    const auto [p, l, u] = lu_unpack(lu, pivots);
    expect_near(matmul(p, matmul(l, u)), a, a.size(-1) + a.size(-2));
  }
}

TEST_P(LinalgBatch, Solves) {
  for (const int64_t n : {3, 16, 40, 70, 150}) {
    for (const int64_t columns : {1, 9, 65}) {
      SCOPED_TRACE(std::to_string(n) + ", " + std::to_string(columns));
      const Tensor a = invertible({9, n, n}), b = random({9, n, columns});
      expect_near(matmul(a, linalg::solve(a, b)), b, n);
      expect_near(matmul(linalg::solve(a, b.mT(), false), a), b.mT(), n);
      const auto [lu, pivots] = linalg::lu_factor(a);
      for (const bool adjoint : {false, true}) {
        const Tensor op = adjoint ? a.mT() : a;
        expect_near(matmul(op, linalg::lu_solve(lu, pivots, b, true, adjoint)), b, n);
        expect_near(matmul(linalg::lu_solve(lu, pivots, b.mT(), false, adjoint), op), b.mT(), n);
      }
    }
    const Tensor a = invertible({3, 3, n, n});
    expect_near(matmul(a, linalg::inv(a)), identity(n).expand(a.sizes()), n);
  }
}

TEST_P(LinalgBatch, TriangularSystems) {
  for (const int64_t n : {5, 64, 65, 130, 200}) {
    for (const bool upper : {false, true}) {
      for (const bool unit : {false, true}) {
        for (const bool turned : {false, true}) {
          SCOPED_TRACE(std::to_string(n) + (upper ? ", upper" : "") + (unit ? ", unit" : "") +
                       (turned ? ", turned" : ""));
          Tensor a = triangular({9, n, n});
          if (turned) a = a.mT();
          Tensor t = upper ? a.triu(unit) : a.tril(unit ? -1 : 0);
          if (unit) t = t + identity(n);
          const Tensor b = random({9, n, 7}), c = random({9, 6, n});
          expect_near(matmul(t, linalg::solve_triangular(a, b, upper, true, unit)), b, n);
          expect_near(matmul(linalg::solve_triangular(a, c, upper, false, unit), t), c, n);
        }
      }
    }
  }
}

TEST_P(LinalgBatch, CholeskyFactors) {
  for (const int64_t n : {3, 33, 150}) {
    for (const bool upper : {false, true}) {
      SCOPED_TRACE(std::to_string(n) + (upper ? ", upper" : ""));
      const Tensor x = triangular({9, n, n});
      const Tensor a = matmul(x, x.mT()), f = linalg::cholesky(a, upper);
      expect_near(f, upper ? f.triu() : f.tril(), 1);
      expect_near(upper ? matmul(f.mT(), f) : matmul(f, f.mT()), a, n);
      // What is not read need not be zero.
      const Tensor filled = f + (upper ? x.tril(-1) : x.triu(1));
      const Tensor b = random({9, n, 4});
      expect_near(matmul(a, cholesky_solve(b, filled, upper)), b, 2 * n);
      expect_near(matmul(a, cholesky_inverse(filled, upper)), identity(n).expand(a.sizes()), 2 * n);
    }
  }
}

TEST_P(LinalgBatch, QrFactors) {
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {2, 4, 3}, {3, 3, 4}, {8, 70, 70}, {9, 90, 33}, {2, 200, 3}, {65, 900, 2}}) {
    for (const char* mode : {"reduced", "complete"}) {
      SCOPED_TRACE(to_string(shape) + mode);
      const Tensor a = random(shape);
      const auto [q, r] = linalg::qr(a, mode);
      expect_near(matmul(q, r), a, a.size(-1) + a.size(-2));
      // Of large ones some vectors are looked at: whole products take minutes without a library.
      const int64_t columns = q.size(-1);
      const Tensor v = columns > 256 ? random({columns, 4}) : identity(columns);
      const Tensor again = matmul(q.mT(), matmul(q, v));
      expect_near(again, v.expand(again.sizes()), a.size(-2));
      expect_near(r, r.triu(), 1);
    }
  }
}

TEST_P(LinalgBatch, LeastSquares) {
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{3, 6, 4}, {4, 5, 20, 15}, {7, 90, 70}, {2, 300, 5}}) {
    SCOPED_TRACE(to_string(shape));
    const int64_t m = shape[shape.size() - 2], n = shape.back();
    const Tensor a = random(shape) + eye(m, n, TensorOptions(GetParam(), test_device())) *
                                         Scalar(std::sqrt(double(m)));
    std::vector<int64_t> right = shape;
    right.back() = 3;
    const Tensor b = random(right);
    const auto [x, residuals, rank, values] = linalg::lstsq(a, b, std::nullopt, "gels");
    const Tensor error = matmul(a, x) - b;
    expect_near(matmul(a.mT(), error), zeros(x.sizes(), x.options()), m, std::sqrt(double(m)));
    expect_near(residuals, error.square().sum(-2), m, std::sqrt(double(m)));
  }
}

TEST_P(LinalgBatch, SingularValues) {
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{4, 32, 16},
                                                                             {4, 16, 32},
                                                                             {3, 30, 30},
                                                                             {3, 50, 8},
                                                                             {3, 8, 50},
                                                                             {2, 2, 130, 32},
                                                                             {2, 32, 130},
                                                                             {2, 40, 1},
                                                                             {2, 1, 40}}) {
    for (const bool full : {false, true}) {
      SCOPED_TRACE(to_string(shape) + (full ? ", full" : ""));
      Tensor a = random(shape);
      a.select(0, 1).select(-1, 0).zero_();  // the rank of some is not full
      const auto [u, s, vh] = linalg::svd(a, full);
      const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
      ASSERT_EQ(u.size(-1), full ? m : k);
      ASSERT_EQ(vh.size(-2), full ? n : k);
      expect_near(matmul(u.narrow(-1, 0, k) * s.unsqueeze(-2), vh.narrow(-2, 0, k)), a, m + n);
      expect_near(matmul(u.mT(), u), identity(u.size(-1)).expand(matmul(u.mT(), u).sizes()), m);
      expect_near(matmul(vh, vh.mT()), identity(vh.size(-2)).expand(matmul(vh, vh.mT()).sizes()),
                  n);
      expect_near(linalg::svdvals(a), s, m + n);
    }
  }
}

// Beyond what a multiprocessor keeps; looked at by some products.
TEST_P(LinalgBatch, SingularValuesOfLargerMatrices) {
  const int64_t n = 170;
  const Tensor a = random({8, n, n}), x = random({n, 4});
  const auto [u, s, vh] = linalg::svd(a, false);
  expect_near(matmul(u * s.unsqueeze(-2), matmul(vh, x)), matmul(a, x), 2 * n);
  for (const Tensor& t : {u, vh}) {
    const Tensor again = matmul(t.mT(), matmul(t, x));
    expect_near(again, x.expand(again.sizes()), n);
  }
  expect_near(linalg::svdvals(a), s, 2 * n);
}

TEST_P(LinalgBatch, SingularValuesOfUnusualMatrices) {
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{12, 9}, {9, 12}, {17, 17}}) {
    SCOPED_TRACE(to_string({m, n}));
    const double large = GetParam() == kFloat64 ? 1e300 : 1e37;
    const Tensor one = eye(m, n, TensorOptions(GetParam(), test_device()));
    const Tensor some = random({m, n});
    const std::vector<Tensor> matrices{one * Scalar(0),          one * Scalar(0) + Scalar(1),
                                       one * Scalar(2),          some * Scalar(large),
                                       some * Scalar(1 / large), (some * Scalar(2)).floor()};
    const Tensor a = stack(matrices);
    for (const bool full : {false, true}) {
      const auto [u, s, vh] = linalg::svd(a, full);
      const int64_t k = std::min(m, n);
      const Tensor scale = s.narrow(-1, 0, 1).clamp(std::numeric_limits<float>::min());
      const Tensor scaled = u.narrow(-1, 0, k) * (s / scale).unsqueeze(-2);
      expect_near(matmul(scaled, vh.narrow(-2, 0, k)), a / scale.unsqueeze(-1), m + n);
      expect_near(matmul(u.mT(), u), identity(u.size(-1)).expand(matmul(u.mT(), u).sizes()), m);
      expect_near(matmul(vh, vh.mT()), identity(vh.size(-2)).expand(matmul(vh, vh.mT()).sizes()),
                  n);
      EXPECT_TRUE((s.narrow(-1, 0, k - 1) >= s.narrow(-1, 1, k - 1)).all().item<bool>());
    }
    Tensor lost = a.clone();
    lost.select(0, 2).select(0, 1).fill_(std::numeric_limits<double>::quiet_NaN());
    EXPECT_THROW(linalg::svd(lost), ValueError);
  }
}

TEST_P(LinalgBatch, Exponentials) {
  for (const int64_t n : {1, 4, 40}) {
    for (const double size : {1e-3, 0.5, 3.0, 20.0}) {
      SCOPED_TRACE(std::to_string(n) + ", " + std::to_string(size));
      // Of antisymmetric matrices: orthogonal ones, of which the first has another norm.
      const Tensor x = random({3, n, n});
      Tensor a = (x - x.mT()) * Scalar(size / double(n));
      a.select(0, 0).mul_(Scalar(0.01));
      const Tensor y = linalg::matrix_exp(a);
      expect_near(matmul(y, y.mT()), identity(n).expand(y.sizes()), 8 * n);
      const Tensor exact = linalg::matrix_exp(a.to(kFloat64)).to(GetParam());
      expect_near(y, exact, 8 * n);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LinalgBatch, testing::Values(kFloat32, kFloat64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace arete::test
