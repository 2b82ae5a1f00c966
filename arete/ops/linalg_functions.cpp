// Functions of matrices and products of many.
#include <cmath>

#include "arete/ops/autocast.h"
#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

// ---- the exponential

// Note [Matrix exponential]
// exp(A) = exp(A / 2^s)^(2^s), where s makes the 1-norm small enough for the Pade approximant of
// degree 13 to be exact in double precision, or that of degree 7 in single precision (Higham,
// 2005). Each matrix of a batch has its own s: needless squarings cost digits.
Tensor exponential(const Tensor& a) {
  const bool single = a.dtype() == kFloat32;
  constexpr double kOfDegree7[] = {17297280., 8648640., 1995840., 277200., 25200., 1512., 56., 1.};
  constexpr double kOfDegree13[] = {64764752532480000.,
                                    32382376266240000.,
                                    7771770303897600.,
                                    1187353796428800.,
                                    129060195264000.,
                                    10559470521600.,
                                    670442572800.,
                                    33522128640.,
                                    1323241920.,
                                    40840800.,
                                    960960.,
                                    16380.,
                                    182.,
                                    1.};
  const double largest_norm = single ? 3.925724783138660 : 5.371920351148152;
  // Divided by the first, so that float32 keeps them in range.
  const auto b = [&](int i) {
    return single ? Scalar(kOfDegree7[i] / kOfDegree7[0]) : Scalar(kOfDegree13[i] / kOfDegree13[0]);
  };
  const Tensor norm = a.norm(1, {-2}, true).amax({-1}, true);
  const Tensor squarings = (norm / Scalar(largest_norm)).log2().ceil().clamp(Scalar(0));
  const Tensor x = a * squarings.neg().exp2();
  const Tensor one = eye(a.size(-1), a.options());
  const Tensor x2 = matmul(x, x), x4 = matmul(x2, x2), x6 = matmul(x4, x2);
  Tensor odd = x6 * b(7) + x4 * b(5) + x2 * b(3) + one * b(1);
  Tensor even = x6 * b(6) + x4 * b(4) + x2 * b(2) + one * b(0);
  if (!single) {
    odd = matmul(x6, x6 * b(13) + x4 * b(11) + x2 * b(9)) + odd;
    even = matmul(x6, x6 * b(12) + x4 * b(10) + x2 * b(8)) + even;
  }
  const Tensor u = matmul(x, odd);
  Tensor y = std::get<0>(linalg::solve_ex(even - u, even + u));
  const double most = squarings.max().item<double>();  // NaN and infinity end in NaN by themselves
  for (int64_t i = 0; std::isfinite(most) && i < int64_t(most); ++i)
    y = arete::where(squarings > Scalar(i), matmul(y, y), y);
  return y;
}

const OpRecord& linalg_matrix_exp_op =
    define("linalg_matrix_exp(Tensor self) -> Tensor")
        .doc("The exponential of square matrices.")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& a = c.tensor(0);
          check_factorizable(public_name(c), a);
          check_square(public_name(c), a);
          out.push_back({Shape(a.sizes()), a.dtype(), a.device(), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const PlainCalls guard;
          const Tensor y = exponential(c.tensor(0));
          p.copy({view_of(out[0]), view_of(y)});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              // The derivative of exp at A^T in direction G is a block of exp([A^T G; 0 A^T]).
              const Tensor at = g.input(0).mT();
              const int64_t n = at.size(-1);
              const Tensor above = cat({at, g.grad()}, -1);
              const Tensor below = cat({zeros(at.sizes(), at.options()), at}, -1);
              const Tensor all = linalg::matrix_exp(cat({above, below}, -2));
              return {all.narrow(-2, 0, n).narrow(-1, n, n)};
            },
            1)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) * 20; })
        .dtypes(kFactorizableTypes);

const OpRecord& matrix_exp_op =
    define("matrix_exp(Tensor self) -> Tensor")
        .doc("The exponential of square matrices: linalg_matrix_exp.")
        .compose([](const Call& c) -> Results { return {linalg::matrix_exp(c.tensor(0))}; })
        .dtypes(kFactorizableTypes);

// ---- powers

Results power(const Call& c) {
  Tensor a = c.tensor(0);
  int64_t n = c.integer(1);
  check_square("linalg.matrix_power", a);
  if (n == 0) {  // a constant, whose gradient is zero
    const Tensor one = identities(batch_sizes(a.sizes()), a.size(-1), a.options());
    return {arete::where(full({}, true, TensorOptions(kBool, a.device())), one, a)};
  }
  if (n < 0) {
    ARETE_CHECK(n != INT64_MIN, ValueError(c.name(), "the exponent is too small"));
    a = linalg::inv(a);
    n = -n;
  }
  if (n == 1) return {a.clone()};
  Tensor result;
  for (;; a = matmul(a, a)) {
    if (n & 1) result = result.defined() ? matmul(result, a) : a;
    if ((n >>= 1) == 0) return {result};
  }
}

const OpRecord& linalg_matrix_power_op =
    define("linalg_matrix_power(Tensor self, int n) -> Tensor")
        .doc("A multiplied with itself; negative n: of the inverse.")
        .compose(power)
        .dtypes(kFactorizableTypes);
const OpRecord& matrix_power_op = define("matrix_power(Tensor self, int n) -> Tensor")
                                      .doc("A power of square matrices: linalg_matrix_power.")
                                      .compose(power)
                                      .dtypes(kFactorizableTypes);

// ---- products of many matrices

// The cheapest order of multiplications, by dynamic programming over all intervals.
class Chain {
 public:
  explicit Chain(std::vector<Tensor> matrices)
      : matrices_(std::move(matrices)), n_(matrices_.size()), splits_(n_ * n_, 0) {
    std::vector<double> size, cost(n_ * n_, 0);
    for (const Tensor& t : matrices_) size.push_back(double(t.size(0)));
    size.push_back(double(matrices_.back().size(1)));
    for (size_t length = 2; length <= n_; ++length) {
      for (size_t i = 0; i + length <= n_; ++i) {
        const size_t j = i + length - 1;
        double best = INFINITY;
        for (size_t k = i; k < j; ++k) {
          const double all =
              cost[i * n_ + k] + cost[(k + 1) * n_ + j] + size[i] * size[k + 1] * size[j + 1];
          if (all >= best) continue;
          best = all;
          splits_[i * n_ + j] = k;
        }
        cost[i * n_ + j] = best;
      }
    }
  }
  Tensor multiply() const { return multiply(0, n_ - 1); }

 private:
  Tensor multiply(size_t i, size_t j) const {
    if (i == j) return matrices_[i];
    const size_t k = splits_[i * n_ + j];
    return mm(multiply(i, k), multiply(k + 1, j));
  }
  std::vector<Tensor> matrices_;
  size_t n_;
  std::vector<size_t> splits_;  // interval (i, j): the last factor of its left half
};

using Tensors = std::vector<Tensor>;

const OpRecord& linalg_multi_dot_op =
    define("linalg_multi_dot(Tensor[] tensors) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::lower))
        .doc("The product of matrices in the cheapest order.")
        .compose([](const Call& c) -> Results {
          const auto given = c.tensors(0);
          const size_t n = given.size();
          ARETE_CHECK(n >= 2, ValueError(c.name(),
                                         "multi_dot(): expected at least 2 tensors but "
                                         "got " +
                                             std::to_string(n)));
          Tensors matrices(given.begin(), given.end());
          for (size_t i = 0; i < n; ++i) {
            const bool end = i == 0 || i + 1 == n;
            const int64_t rank = given[i].dim();
            ARETE_CHECK(rank == 2 || (end && rank == 1),
                        ValueError(c.name(),
                                   end ? "multi_dot(): the first and last tensors must be 1D or 2D"
                                       : "multi_dot(): tensor " + std::to_string(i) +
                                             " must be 2D but got " + std::to_string(rank) + "D")
                            .got(describe(given[i])));
          }
          const bool row = given.front().dim() == 1, column = given.back().dim() == 1;
          if (row) matrices.front() = matrices.front().unsqueeze(0);
          if (column) matrices.back() = matrices.back().unsqueeze(1);
          for (size_t i = 0; i + 1 < n; ++i)
            ARETE_CHECK(matrices[i].size(1) == matrices[i + 1].size(0),
                        ValueError(c.name(), "multi_dot(): tensors " + std::to_string(i) + " and " +
                                                 std::to_string(i + 1) + " with shapes " +
                                                 to_string(given[i].sizes()) + " and " +
                                                 to_string(given[i + 1].sizes()) +
                                                 " cannot be multiplied"));
          Tensor y = Chain(std::move(matrices)).multiply();
          if (column) y = y.squeeze(1);
          if (row) y = y.squeeze(0);
          return {y};
        })
        .dtypes(kFactorizableTypes);

const OpRecord& chain_matmul_op =
    define("chain_matmul(Tensor[] matrices) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::lower))
        .doc("The product of matrices in the cheapest order.")
        .compose([](const Call& c) -> Results {
          const auto given = c.tensors(0);
          ARETE_CHECK(!given.empty(),
                      ValueError(c.name(), "chain_matmul(): Expected one or more matrices"));
          for (const Tensor& t : given)
            ARETE_CHECK(t.dim() == 2,
                        ValueError(c.name(), "Tensor dimension is " + std::to_string(t.dim()) +
                                                 ", expected 2 instead.")
                            .got(describe(t)));
          return {Chain(Tensors(given.begin(), given.end())).multiply()};
        })
        .dtypes(kFactorizableTypes);

}  // namespace
}  // namespace ops

namespace linalg {
Tensor matrix_exp(const Tensor& a) { return ops::call(ops::linalg_matrix_exp_op, {a}); }
Tensor matrix_power(const Tensor& a, int64_t n) {
  return ops::call(ops::linalg_matrix_power_op, {a, n});
}
Tensor multi_dot(const std::vector<Tensor>& tensors) {
  return ops::call(ops::linalg_multi_dot_op, {tensors});
}
}  // namespace linalg

Tensor matrix_exp(const Tensor& self) { return ops::call(ops::matrix_exp_op, {self}); }
Tensor matrix_power(const Tensor& self, int64_t n) {
  return ops::call(ops::matrix_power_op, {self, n});
}
Tensor chain_matmul(const std::vector<Tensor>& matrices) {
  return ops::call(ops::chain_matmul_op, {matrices});
}

}  // namespace arete

ARETE_FAMILY(linalg_functions)
