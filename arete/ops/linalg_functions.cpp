// Functions of matrices and products of many.
#include <algorithm>
#include <array>
#include <cmath>

#include "arete/expr/program_cache.h"
#include "arete/expr/value.h"
#include "arete/ops/autocast.h"
#include "arete/ops/complex.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {
namespace ops {
namespace {

// ---- the exponential

// Note [Matrix exponential]
// exp(A) = exp(A / 2^s)^(2^s), where s makes the 1-norm small enough for the Taylor polynomial of
// degree 18 to be exact but for rounding. That takes five products (Bader, Blanes and Casas, 2019):
// with the combinations B1 ... B5 of I, A, A^2, A^3 and A^6 it is B2 + (B3 + C) C for C = B1 B5 +
// B4. Each matrix of a batch has its own s: needless squarings cost digits.

// Batches of matrices, in three dimensions, and how they change if that is asked for.
struct Changing {
  Tensor value, change;
};

// a b + c, and its change by the rule for products.
Changing product(const Changing& a, const Changing& b, const Changing& c = {}) {
  const auto add = [](const Tensor& t, const Tensor& x, const Tensor& y) {
    return t.defined() ? baddbmm(t, x, y) : bmm(x, y);
  };
  Changing y{add(c.value, a.value, b.value), {}};
  if (a.change.defined()) y.change = baddbmm(add(c.change, a.change, b.value), a.value, b.change);
  return y;
}

constexpr size_t kCombinations = 5;
// B1 ... B5 of the powers 0, 1, 2, 3 and 6.
Results combinations(const Tensor& one, const Tensor& x, const Tensor& x2, const Tensor& x3,
                     const Tensor& x6) {
  using expr::Value;
  static constexpr double kFactors[kCombinations][5] = {
      {0, -1.00365581030144618291e-01, -8.02924648241156932449e-03, -8.92138498045729985177e-04, 0},
      {0, 3.97849749499645077844e-01, 1.36783778460411720168e+00, 4.98289622525382669416e-01,
       -6.37898194594723280150e-04},
      {-1.09676396052962061844e+01, 1.68015813878906206114e+00, 5.71779846478865511061e-02,
       -6.98210122488052056106e-03, 3.34975017086070470649e-05},
      {-9.04316832390810593223e-02, -6.76404519071381882256e-02, 6.75961301770459654925e-02,
       2.95552570429315521194e-02, -1.39180257516060693404e-05},
      {0, 0, -9.23364619367118555360e-02, -1.69364939002081722752e-02,
       -1.40086798182036094347e-05}};
  if (is_complex(x.dtype())) {  // the factors are real: parts are numbers of their own
    Results all = combinations(view_as_real(one), view_as_real(x), view_as_real(x2),
                               view_as_real(x3), view_as_real(x6));
    for (Tensor& sum : all) sum = view_as_complex(sum.contiguous());
    return all;
  }
  static auto& cache = *new expr::ProgramCache;  // used until exit
  const DType t = x.dtype();
  const expr::Program& program = cache.get(pack_key({int(t)}), {t, t, t, t, t}, {}, {t, t, t, t, t},
                                           [](std::span<const Value> v) {
                                             std::vector<Value> all;
                                             for (const auto& factors : kFactors) {
                                               Value sum = constant_like(v[0], 0);
                                               for (size_t i = 0; i < v.size(); ++i)
                                                 if (factors[i] != 0) sum = sum + v[i] * factors[i];
                                               all.push_back(sum);
                                             }
                                             return all;
                                           });
  return apply_program(program.shared_from_this(), {{one, x, x2, x3, x6}}, {}, "linalg.matrix_exp");
}
std::array<Changing, kCombinations> combinations(const Changing& x) {
  const Changing x2 = product(x, x), x3 = product(x2, x), x6 = product(x3, x3);
  const auto options = x.value.options();
  const Results values = combinations(eye(x.value.size(-1), options).unsqueeze(0), x.value,
                                      x2.value, x3.value, x6.value);
  Results changes(kCombinations);
  if (x.change.defined())
    changes = combinations(zeros({1, 1, 1}, options), x.change, x2.change, x3.change, x6.change);
  std::array<Changing, kCombinations> all;
  for (size_t i = 0; i < all.size(); ++i) all[i] = {values[i], changes[i]};
  return all;
}

// exp(A), and its change where A changes by `change`, if that is defined.
Changing exponential(const Tensor& matrices, const Tensor& change = {}) {
  const int64_t n = matrices.size(-1);
  const Tensor a = matrices.reshape({-1, n, n});
  const double largest_norm =
      real_of(a.dtype()) == kFloat32 ? 3.010066362817634 : 1.090863719290036;
  const Tensor norm = a.norm(1, {-2}, true).amax({-1}, true);
  const Tensor halvings = (norm / Scalar(largest_norm)).log2().ceil().clamp(Scalar(0));
  const Tensor is_finite = halvings < Scalar(2000);
  const Tensor squarings = arete::where(is_finite, halvings, 0);
  const std::vector<double> counts = squarings.to_vector<double>();
  Changing y;
  {
    const Tensor scale = arete::where(is_finite, halvings.neg().exp2(), NAN);
    auto [b1, b2, b3, b4, b5] =
        combinations({a * scale, change.defined() ? change.reshape({-1, n, n}) * scale : Tensor()});
    const Changing c = product(b1, b5, b4);
    y = product({b3.value + c.value, change.defined() ? b3.change + c.change : Tensor()}, c, b2);
  }
  const auto [least, most] = std::ranges::minmax(counts);
  for (double i = 0; i < most; ++i) {
    const Changing square = product(y, y);
    if (i < least) {
      y = square;
      continue;
    }
    const Tensor larger = squarings > Scalar(i);
    y = {arete::where(larger, square.value, y.value),
         change.defined() ? arete::where(larger, square.change, y.change) : Tensor()};
  }
  return {y.value.reshape(matrices.sizes()),
          change.defined() ? y.change.reshape(matrices.sizes()) : Tensor()};
}

const OpRecord& matrix_exp_change_op =
    define("matrix_exp_change(Tensor self, Tensor change) -> Tensor")
        .surface(Surface::internal)
        .doc("How linalg_matrix_exp changes where square matrices do.")
        .batched(vmaps::leading)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& a = c.tensor(0);
          out.push_back({Shape(a.sizes()), a.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const PlainCalls guard;
          const Tensor y = exponential(c.tensor(0), c.tensor(1)).change;
          p.copy({view_of(out[0]), view_of(y)});
        })
        .flops([](const Call& c) { return factorization_flops(c) * 60; })
        .dtypes(kFactorizableTypes);

const OpRecord& linalg_matrix_exp_op =
    define("linalg_matrix_exp(Tensor self) -> Tensor")
        .doc("The exponential of square matrices.")
        .batched(vmaps::leading)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& a = c.tensor(0);
          check_factorizable(public_name(c), a);
          check_square(public_name(c), a);
          out.push_back({Shape(a.sizes()), a.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const PlainCalls guard;
          const Tensor y = exponential(c.tensor(0)).value;
          p.copy({view_of(out[0]), view_of(y)});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              // The derivative of exp at A^H in direction G, which is a block of
              // exp([A^H G; 0 A^H]): that has a gradient.
              const Tensor at = adjoint(g.input(0));
              if (!is_grad_enabled()) return {call(matrix_exp_change_op, {at, g.grad()})};
              const int64_t n = at.size(-1);
              const Tensor above = cat({at, g.grad()}, -1);
              const Tensor below = cat({zeros(at.sizes(), at.options()), at}, -1);
              const Tensor all = linalg::matrix_exp(cat({above, below}, -2));
              return {all.narrow(-2, 0, n).narrow(-1, n, n)};
            },
            1)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) * 20; })
        .dtypes(kMatrixTypes);

const OpRecord& matrix_exp_op =
    define("matrix_exp(Tensor self) -> Tensor")
        .doc("The exponential of square matrices: linalg_matrix_exp.")
        .compose([](const Call& c) -> Results { return {linalg::matrix_exp(c.tensor(0))}; })
        .dtypes(kMatrixTypes);

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
        .dtypes(kMatrixTypes);
const OpRecord& matrix_power_op = define("matrix_power(Tensor self, int n) -> Tensor")
                                      .doc("A power of square matrices: linalg_matrix_power.")
                                      .compose(power)
                                      .dtypes(kMatrixTypes);

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
        .dtypes(kMatrixTypes);

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
        .dtypes(kMatrixTypes);

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
