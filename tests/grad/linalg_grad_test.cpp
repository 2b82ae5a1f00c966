// Gradients of what holds for some inputs only: functions of symmetric matrices, and the modes of a
// QR factorization that have one.
#include <gtest/gtest.h>

#include <algorithm>

#include "arete/arete.h"
#include "arete/ops/samples.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using Function = std::function<std::vector<Tensor>(const Tensor&)>;

Tensor leaf(IntList sizes, double diagonal, double step = 0.7) {
  ops::SampleMaker maker(kFloat64, test_device(), true, 3);
  const Tensor t = maker.make(sizes, -0.4, 0.4);
  const int64_t n = std::min(t.size(-1), t.size(-2));
  t.detach().diagonal(0, -2, -1).add_(
      arange(Scalar(0), Scalar(n), TensorOptions(kFloat64, test_device())) * Scalar(step) +
      Scalar(diagonal));
  return t;
}

void check(const Function& f, const Tensor& x) {
  const auto g = [&](const std::vector<Tensor>& in) { return f(in[0]); };
  EXPECT_EQ(autograd::gradcheck(g, {x}), "");
  EXPECT_EQ(autograd::gradgradcheck(g, {x}), "");
}
void check_symmetric(const Function& f) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{3, 3}, {2, 2, 2}, {1, 1}}) {
    SCOPED_TRACE(to_string(sizes));
    check([&](const Tensor& x) { return f((x + x.mT()) * Scalar(0.5)); }, leaf(sizes, 1.5));
  }
}

TEST(LinalgGrad, Cholesky) {
  for (bool upper : {false, true}) {
    check_symmetric([=](const Tensor& a) { return std::vector{linalg::cholesky(a, upper)}; });
    check_symmetric([=](const Tensor& a) {
      return std::vector{std::get<0>(linalg::cholesky_ex(a, upper)), cholesky(a, upper)};
    });
  }
}

// The formulas leave no triangle of the factor out, but hold for triangular ones.
TEST(LinalgGrad, CholeskyFactors) {
  for (bool upper : {false, true}) {
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{3, 3}, {2, 2, 2}, {1, 1}}) {
      SCOPED_TRACE(to_string(sizes));
      const auto factor = [=](const Tensor& x) { return upper ? x.triu() : x.tril(); };
      const Tensor b = leaf({2, 1, sizes.back(), 2}, 0.1);
      check([&](const Tensor& x) { return std::vector{cholesky_inverse(factor(x), upper)}; },
            leaf(sizes, 1.5));
      check([&](const Tensor& x) { return std::vector{cholesky_solve(b, factor(x), upper)}; },
            leaf(sizes, 1.5));
      check([&](const Tensor& x) { return std::vector{cholesky_solve(x, factor(x), upper)}; },
            leaf(sizes, 1.5));
    }
  }
}

TEST(LinalgGrad, Eigh) {
  for (const char* uplo : {"L", "U"}) {
    check_symmetric([=](const Tensor& a) {
      const auto [w, v] = linalg::eigh(a, uplo);
      return std::vector{w, v};
    });
    check_symmetric([=](const Tensor& a) {
      return std::vector{std::get<1>(linalg::eigh(a, uplo)), linalg::eigvalsh(a, uplo)};
    });
  }
}

TEST(LinalgGrad, HermitianPseudoInverse) {
  check_symmetric([](const Tensor& a) {
    return std::vector{linalg::pinv(a, std::nullopt, std::nullopt, true)};
  });
}

TEST(LinalgGrad, Qr) {
  const auto qr = [](const char* mode) {
    return [=](const Tensor& a) {
      const auto [q, r] = linalg::qr(a, mode);
      return std::vector{q, r};
    };
  };
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{3, 3}, {4, 2}, {2, 4}, {2, 3, 2}}) {
    SCOPED_TRACE(to_string(sizes));
    check(qr("reduced"), leaf(sizes, 1.5));
    if (sizes[sizes.size() - 2] <= sizes.back()) check(qr("complete"), leaf(sizes, 1.5));
    // One factor only.
    check([](const Tensor& a) { return std::vector{std::get<0>(linalg::qr(a))}; },
          leaf(sizes, 1.5));
    check([](const Tensor& a) { return std::vector{std::get<1>(linalg::qr(a))}; },
          leaf(sizes, 1.5));
  }
  EXPECT_THROW(std::get<1>(linalg::qr(leaf({3, 3}, 1.5), "r")).sum().backward(),
               NotImplementedError);
  EXPECT_THROW(std::get<1>(linalg::qr(leaf({3, 2}, 1.5), "complete")).sum().backward(),
               NotImplementedError);
}

TEST(LinalgGrad, SvdPartByPart) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{3, 3}, {4, 2}, {2, 4}}) {
    SCOPED_TRACE(to_string(sizes));
    const Tensor x = leaf(sizes, 1.5);
    check([](const Tensor& a) { return std::vector{std::get<0>(linalg::svd(a, false))}; }, x);
    check([](const Tensor& a) { return std::vector{std::get<2>(linalg::svd(a, false))}; }, x);
    check([](const Tensor& a) { return std::vector{linalg::svdvals(a)}; }, x);
    // The columns beyond the singular values are free, the others are not.
    const int64_t k = std::min(sizes[0], sizes[1]);
    check(
        [=](const Tensor& a) {
          const auto [u, s, vh] = linalg::svd(a, true);
          return std::vector{u.narrow(-1, 0, k), s, vh.narrow(-2, 0, k)};
        },
        x);
  }
}

TEST(LinalgGrad, DeterminantOfSingularMatrices) {
  // Rank 2: the cofactors are those of the numeric derivative. Rank 1: all are zero.
  Tensor a = leaf({3, 3}, 1.5);
  a.detach().select(0, 2).zero_();
  check([](const Tensor& x) { return std::vector{linalg::det(x)}; }, a);
  Tensor b = zeros({3, 3}, TensorOptions(kFloat64, test_device())).requires_grad_();
  b.detach().select(0, 0).fill_(Scalar(1));
  linalg::det(b).backward();
  EXPECT_LE(b.grad().abs().max().item<double>(), 1e-12);
}

}  // namespace
}  // namespace arete::test
