// Pseudo-inverse, least squares, rank and condition.
#include <cmath>

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

// Which of `values` (their magnitudes along the last dimension) count: those above
// max(atol, rtol * largest). Without rtol it is 0 where an atol is given, else max(m, n) * eps.
// Both are numbers, or tensors with a value for each matrix.
Tensor significant(const Tensor& values, const Tensor& a, const Arg& atol, const Arg& rtol) {
  if (atol.kind() == Arg::Kind::tensor || rtol.kind() == Arg::Kind::tensor) {
    const auto given = [&](const Arg& t) { return t.tensor().to(values.dtype()).unsqueeze(-1); };
    const double standard = epsilon_of(a.dtype()) * double(std::max(a.size(-1), a.size(-2)));
    const Tensor largest = values.amax({-1}, true);
    if (atol.is_none()) return values > largest * given(rtol);
    const Tensor absolute = given(atol);
    const Tensor relative =
        rtol.is_none() ? (absolute <= 0).to(values.dtype()) * Scalar(standard) : given(rtol);
    return values > maximum(largest * relative, absolute);
  }
  const double absolute = atol.is_none() ? 0 : atol.real();
  const double relative = !rtol.is_none() ? rtol.real()
                          : absolute > 0
                              ? 0
                              : epsilon_of(a.dtype()) * double(std::max(a.size(-1), a.size(-2)));
  const Tensor limit = (values.amax({-1}, true) * Scalar(relative)).clamp(Scalar(absolute));
  return values > limit;
}

// ---- the pseudo-inverse

void pinv_infer(const Call& c, OutputSpecs& out) {
  const Tensor& a = c.tensor(0);
  check_factorizable("linalg.pinv", a);
  check_matrix("linalg.pinv", a);
  if (c.boolean(3)) check_square("linalg.pinv", a);
  out.push_back(
      {with_sizes(batch_sizes(a.sizes()), {a.size(-1), a.size(-2)}), a.dtype(), a.device(), {}});
}
void pinv_lower(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  const PlainCalls guard;
  const Tensor& a = c.tensor(0);
  if (a.numel() == 0) return;  // and so is the result
  Tensor left, values, right;
  if (c.boolean(3)) {
    std::tie(values, left) = linalg::eigh(a);
    right = left.mT();
  } else {
    std::tie(left, values, right) = linalg::svd(a, false);
  }
  const Tensor kept = significant(values.abs(), a, c[1], c[2]);
  const Tensor inverse = arete::where(kept, values.reciprocal(), 0);
  const Tensor result = matmul(right.mT() * inverse.unsqueeze(-2), left.mT());
  p.copy({view_of(out[0]), view_of(result)});
}
double pinv_flops(const Call& c) { return factorization_flops(c) * 22; }
std::vector<Tensor> pinv_reference(const Call& c) {
  // Of full rank: (A^T A)^-1 A^T, or A^T (A A^T)^-1.
  const Tensor& a = c.tensor(0);
  return {map_matrices(a, a.size(-1), a.size(-2), [](const Matrix& m) {
    const Matrix t = transposed(m);
    return m.rows >= m.columns ? product(inverted(product(t, m)), t)
                               : product(t, inverted(product(m, t)));
  })};
}

const OpRecord& linalg_pinv_op =
    define(
        "linalg_pinv(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> "
        "Tensor")
        .doc("The pseudo-inverse, by singular values (hermitian: by eigenvalues).")
        .infer(pinv_infer)
        .lower(pinv_lower)
        .grad(
            [](const GradCall& g) -> TensorList {
              return {pinv_gradient(g.grad(), g.output(), g.input(0))};
            },
            1, 1)
        .autocast(Autocast::f32)
        .flops(pinv_flops)
        .dtypes(kTypes)
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> all{
              {{make_invertible(m, {3, 3}), std::nullopt, std::nullopt, false}},
              {{make_invertible(m, {4, 2}), std::nullopt, 1e-6, false}, "tall"},
              {{make_invertible(m, {2, 2, 3}), 1e-3, std::nullopt, false}, "batch, wide"},
              {{m.make({0, 3}), std::nullopt, std::nullopt, false}, "empty"}};
          // Of which one triangle is read: its gradient holds for symmetric matrices only.
          if (!m.requires_grad)
            all.push_back(
                {{make_symmetric(m, {3, 3}), std::nullopt, std::nullopt, true}, "hermitian"});
          return all;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), std::nullopt, std::nullopt, false},
                   ErrorKind::value,
                   "linalg.pinv: The input tensor A must have at least 2 dimensions."}};
        })
        .reference(pinv_reference);

const OpRecord& linalg_pinv_tensor_op =
    define(
        "linalg_pinv_tensor(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool "
        "hermitian=False) -> Tensor")
        .doc("linalg_pinv with tolerances for each matrix.")
        .surface(Surface::internal)
        .infer(pinv_infer)
        .lower(pinv_lower)
        .grad(
            [](const GradCall& g) -> TensorList {
              TensorList all(g.input_count());
              all[0] = pinv_gradient(g.grad(), g.output(), g.input(0));
              return all;
            },
            1, 1)
        .autocast(Autocast::f32)
        .flops(pinv_flops)
        .dtypes(kTypes)
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto small = [&](IntList sizes) { return m.make(sizes, 1e-6, 1e-5).detach(); };
          return {{{make_invertible(m, {3, 3}), small({}), std::nullopt, false}},
                  {{make_invertible(m, {2, 2, 3}), std::nullopt, small({2}), false}, "batch"},
                  {{make_invertible(m, {2, 3, 2}), small({2}), small({2}), false}, "both"}};
        })
        .reference(pinv_reference);

const OpRecord& pinverse_op = define("pinverse(Tensor self, float rcond=1e-15) -> Tensor")
                                  .doc("The pseudo-inverse: linalg_pinv with a relative tolerance.")
                                  .compose([](const Call& c) -> Results {
                                    return {linalg::pinv(c.tensor(0), std::nullopt, c.real(1))};
                                  })
                                  .dtypes(kTypes)
                                  .samples([](SampleMaker& m) -> std::vector<Sample> {
                                    return {{{make_invertible(m, {3, 2}), 1e-6}}};
                                  })
                                  .no_reference("linalg_pinv under another name");

// ---- least squares

using Driver = prim::LinalgArgs::Driver;
Driver driver_of(std::string_view name) {
  if (name == "gels") return Driver::gels;
  if (name == "gelsy") return Driver::gelsy;
  if (name == "gelsd") return Driver::gelsd;
  ARETE_CHECK(name == "gelss", ValueError("linalg.lstsq",
                                          "torch.linalg.lstsq: parameter `driver` should be one of "
                                          "(gels, gelsy, gelsd, gelss)")
                                   .got(std::string(name)));
  return Driver::gelss;
}

const OpRecord& least_squares_op =
    define(
        "_linalg_lstsq(Tensor A, Tensor B, float? rcond=None, str driver=\"gelsy\") -> (Tensor "
        "solution, Tensor residuals, Tensor rank, Tensor singular_values)")
        .doc("Least squares solutions, with all results that some driver has.")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          const std::string name = "linalg.lstsq";
          common_device(c);
          check_factorizable(name, a);
          check_matrix(name, a, "input");
          check_matrix(name, b, "other");
          check_same_dtype(name, a, b);
          driver_of(c[3].string());
          ARETE_CHECK(a.size(-2) == b.size(-2),
                      ValueError(name,
                                 "torch.linalg.lstsq: input.size(-2) should match "
                                 "other.size(-2)")
                          .got(describe(a) + ", " + describe(b)));
          const Shape batch =
              broadcast_shapes(batch_sizes(a.sizes()), batch_sizes(b.sizes()), c.name());
          const int64_t n = a.size(-1), columns = b.size(-1);
          out.push_back({with_sizes(batch, {n, columns}), a.dtype(), a.device(), {}});
          out.push_back({with_sizes(batch, {columns}), a.dtype(), a.device(), {}});
          out.push_back({batch, kInt64, a.device(), {}});
          out.push_back({with_sizes(batch, {std::min(a.size(-2), n)}), a.dtype(), a.device(), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const PlainCalls guard;
          const int64_t m = c.tensor(0).size(-2), n = c.tensor(0).size(-1);
          const int64_t columns = c.tensor(1).size(-1), k = std::min(m, n), rows = std::max(m, n);
          const Shape batch = batch_sizes(out[0].sizes());
          const double rcond = c.has(2) ? c.real(2) : epsilon_of(out[0].dtype()) * double(rows);
          if (k == 0 || columns == 0) {
            for (const Tensor& t : out) p.fill({view_of(t), {}, !is_floating(t.dtype()), 0});
            return;
          }
          const Tensor a = column_major(c.tensor(0), batch, p);
          // B in the first rows of a matrix that holds X afterwards.
          const Tensor b = empty_tensor(matrix_spec(batch, rows, columns, a));
          const Shape b_sizes = with_sizes(batch, {m, columns});
          p.copy({view_of(b, narrow(b.layout(), -2, 0, m)),
                  view_of(c.tensor(1), expand(c.tensor(1).layout(), b_sizes))});
          const Tensor info = empty_info(a);
          p.linalg({.op = Factorization::least_squares,
                    .a = view_of(a),
                    .b = view_of(b),
                    .c = view_of(out[2]),
                    .d = view_of(out[3]),
                    .info = view_of(info),
                    .driver = driver_of(c[3].string()),
                    .rcond = rcond});
          check_info("torch.linalg.lstsq", info, [](int64_t code) {
            return "The least squares solution could not be computed because the input matrix does "
                   "not have full rank (error code: " +
                   std::to_string(code) + ").";
          });
          // What is left below the solution is the residual in an orthogonal basis.
          if (m > n)
            p.copy({view_of(out[1]), view_of(b.narrow(-2, n, m - n).square().sum(-2))});
          else
            p.fill({view_of(out[1]), {}});
          p.copy({view_of(out[0]), view_of(b, narrow(b.layout(), -2, 0, n))});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor a = g.input(0), b = g.input(1), &gx = g.grad(0), &gr = g.grad(1);
              Tensor of_a, of_b;
              if (gx.defined()) {
                const Tensor p = linalg::pinv(a);
                if (g.needs(0)) of_a = pinv_gradient(matmul(gx, b.mT()), p, a);
                if (g.needs(1)) of_b = matmul(p.mT(), gx);
              }
              if (gr.defined()) {
                // |A X - B|^2 where X minimizes it: its change through X is 0.
                const Tensor x = g.output(0);
                const Tensor error = (matmul(a, x) - b) * gr.mul(Scalar(2)).unsqueeze(-2);
                const Tensor through_a = matmul(error, x.mT());
                of_a = of_a.defined() ? of_a + through_a : through_a;
                of_b = of_b.defined() ? of_b - error : error.neg();
              }
              TensorList all(2);
              if (g.needs(0)) all[0] = sum_to_size(of_a, g.input_sizes(0));
              if (g.needs(1)) all[1] = sum_to_size(of_b, g.input_sizes(1));
              return all;
            },
            3, 1)
        .no_grad_outputs(12)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) * 4; })
        .dtypes(kTypes)
        .no_gradient_test()  // of linalg_lstsq
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{make_invertible(m, {4, 2}), m.make({4, 3}), std::nullopt, "gelsd"}},
                  {{make_invertible(m, {2, 3}), m.make({2, 2, 1}), std::nullopt, "gelsy"},
                   "wide, broadcast batch"},
                  {{m.make({3, 0}), m.make({3, 1}), std::nullopt, "gels"}, "empty"}};
        })
        .no_reference("linalg_lstsq has one");

bool is_vector(const Tensor& a, const Tensor& b) {
  const IntList s = a.sizes().first(size_t(a.dim() - 1)), t = b.sizes();
  return s.size() == t.size() && std::equal(s.begin(), s.end(), t.begin());
}

const OpRecord& linalg_lstsq_op =
    define(
        "linalg_lstsq(Tensor self, Tensor b, float? rcond=None, *, str? driver=None) -> (Tensor "
        "solution, Tensor residuals, Tensor rank, Tensor singular_values)")
        .doc(
            "Least squares solution of A X = B; residuals, rank and singular values where the "
            "driver finds them.")
        .compose([](const Call& c) -> Results {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          check_matrix("linalg.lstsq", a, "input");
          const std::string_view driver = c.has(3) ? c[3].string() : "gelsy";
          const bool vector = is_vector(a, b);
          const int64_t m = a.size(-2), n = a.size(-1);
          const Results r =
              call_all(least_squares_op, {a, vector ? b.unsqueeze(-1) : b, c[2], driver});
          const bool by_values = driver == "gelsd" || driver == "gelss";
          bool with_residuals = m > n && driver != "gelsy";
          if (with_residuals && by_values && !a.is_meta())
            with_residuals = (r[2] == n).all().item<bool>();
          const Tensor none = empty({0}, a.options());
          return {vector ? r[0].squeeze(-1) : r[0], with_residuals ? r[1] : none,
                  driver == "gels" ? empty({0}, r[2].options()) : r[2], by_values ? r[3] : none};
        })
        .no_grad_outputs(12)
        .dtypes(kTypes)
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {
              {{make_invertible(m, {4, 2}), m.make({4, 3}), std::nullopt, std::nullopt}},
              {{make_invertible(m, {4, 2}), m.make({4, 3}), std::nullopt, "gels"}, "gels"},
              {{make_invertible(m, {2, 4, 2}), m.make({4, 1}), std::nullopt, "gelsd"},
               "gelsd, batch"},
              {{make_invertible(m, {4, 3}), m.make({4}), std::nullopt, "gelss"}, "gelss, vector"},
              {{make_invertible(m, {2, 3}), m.make({2, 2}), 1e-6, "gelsy"}, "wide"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const Tensor dependent = make_invertible(m, {3, 2});
          dependent.detach().select(1, 1).zero_();
          return {{{m.make({3, 2}), m.make({2, 2}), std::nullopt, std::nullopt},
                   ErrorKind::value,
                   "input.size(-2) should match other.size(-2)"},
                  {{m.make({3, 2}), m.make({3, 2}), std::nullopt, "qr"},
                   ErrorKind::value,
                   "parameter `driver` should be one of (gels, gelsy, gelsd, gelss)"},
                  {{dependent, m.make({3, 2}), std::nullopt, "gels"},
                   ErrorKind::value,
                   "the input matrix does not have full rank"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& a = c.tensor(0);
          const bool vector = is_vector(a, c.tensor(1));
          const Tensor b =
              vector ? from_values(values_of(c.tensor(1)), with_sizes(c.tensor(1).sizes(), {1}))
                     : c.tensor(1);
          const int64_t m = a.size(-2), n = a.size(-1), columns = b.size(-1), k = std::min(m, n);
          const Shape batch = batch_sizes(a.sizes());
          const std::string_view driver = c.has(3) ? c[3].string() : "gelsy";
          const bool by_values = driver == "gelsd" || driver == "gelss";
          std::vector<double> residuals, ranks, values;
          const Tensor x = map_matrices(a, n, columns, [&](const Matrix& f) {
            const Matrix t = transposed(f), right = matrices_of(b)[0];
            const Matrix s = m >= n ? solved(product(t, f), product(t, right))
                                    : product(t, solved(product(f, t), right));
            const Matrix fx = product(f, s);
            for (int64_t j = 0; j < columns; ++j) {
              double sum = 0;
              for (int64_t i = 0; i < m; ++i) sum += std::pow(fx(i, j) - right(i, j), 2);
              residuals.push_back(sum);
            }
            ranks.push_back(double(k));
            for (double v : singular_values(f)) values.push_back(v);
            return s;
          });
          const Tensor none = from_values({}, {0});
          const Shape residual_sizes = with_sizes(batch, {columns});
          return {
              vector ? from_values(values_of(x), batch_sizes(x.sizes(), 1)) : x,
              m > n && driver != "gelsy" ? from_values(residuals, residual_sizes) : none,
              driver == "gels" ? from_values({}, {0}, kInt64) : from_values(ranks, batch, kInt64),
              by_values ? from_values(values, with_sizes(batch, {k})) : none};
        });

// ---- rank and condition

Results matrix_rank(const Call& c) {
  const Tensor a = c.tensor(0).detach();
  check_matrix("torch.linalg.matrix_rank", a, "input");
  if (c.boolean(3)) check_square("linalg.matrix_rank", a);
  if (a.numel() == 0) return {zeros(batch_sizes(a.sizes()), TensorOptions(kInt64, a.device()))};
  const Tensor values = c.boolean(3) ? linalg::eigvalsh(a).abs() : linalg::svdvals(a);
  return {significant(values, a, c[1], c[2]).sum(-1)};
}
Tensor dependent_rows(SampleMaker& m) {
  const Tensor t = m.make({3, 3});
  Tensor row = t.detach().select(0, 2);
  row.copy_(t.detach().select(0, 0).mul(Scalar(2)));
  return t;
}
// atol(i) is the absolute tolerance of matrix i.
template <class F>
std::vector<Tensor> rank_reference(const Call& c, F&& atol) {
  size_t index = 0;
  return {map_matrices_to_numbers(
      c.tensor(0),
      [&](const Matrix& m) {
        const double least = atol(index++);
        if (m.values.empty()) return 0;
        int rank = 0;
        const auto s = singular_values(m);
        for (double v : s) rank += v > std::max(least, 1e-5 * s[0]);
        return rank;
      },
      kInt64)};
}

const OpRecord& linalg_matrix_rank_op =
    define(
        "linalg_matrix_rank(Tensor self, *, float? atol=None, float? rtol=None, bool "
        "hermitian=False) -> Tensor")
        .doc("How many singular values are above a tolerance.")
        .compose(matrix_rank)
        .dtypes(kTypes)
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{make_invertible(m, {3, 3}), std::nullopt, std::nullopt, false}},
                  {{dependent_rows(m), std::nullopt, std::nullopt, false}, "dependent rows"},
                  {{m.make({2, 3, 2}), 100.0, std::nullopt, false}, "all too small"},
                  {{make_symmetric(m, {2, 2}), std::nullopt, 1e-3, true}, "hermitian"},
                  {{m.make({2, 0, 3}), std::nullopt, std::nullopt, false}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), std::nullopt, std::nullopt, false},
                   ErrorKind::value,
                   "torch.linalg.matrix_rank: The input tensor input must have at least 2 "
                   "dimensions."}};
        })
        .reference([](const Call& c) {
          return rank_reference(c, [&](size_t) { return c.has(1) ? c.real(1) : 0; });
        });

const OpRecord& linalg_matrix_rank_tensor_op =
    define(
        "linalg_matrix_rank_tensor(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool "
        "hermitian=False) -> Tensor")
        .doc("linalg_matrix_rank with tolerances for each matrix.")
        .surface(Surface::internal)
        .compose(matrix_rank)
        .dtypes(kTypes)
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const Tensor levels = tensor({1e-3, 100.0}, TensorOptions(m.dtype, m.device));
          const Tensor small = full({}, Scalar(1e-4), TensorOptions(m.dtype, m.device));
          return {{{make_invertible(m, {2, 3, 2}), levels, std::nullopt, false}, "absolute"},
                  {{dependent_rows(m), std::nullopt, small, false}, "relative"},
                  {{make_symmetric(m, {2, 2, 2}), levels, small, true}, "both, hermitian"}};
        })
        .reference([](const Call& c) {
          const std::vector<double> atol = c.has(1) ? values_of(c.tensor(1)) : std::vector{0.0};
          return rank_reference(c, [&](size_t i) { return atol[std::min(i, atol.size() - 1)]; });
        });

// |A| |A^-1|, where that of a singular matrix is infinite.
template <class F>
Tensor condition(const Tensor& a, const std::string& ord, F&& norm) {
  check_square("linalg.cond(ord=" + ord + ")", a);
  const auto [inverse, info] = linalg::inv_ex(a);
  return arete::where(info == 0, norm(a) * norm(inverse), HUGE_VAL);
}

const OpRecord& linalg_cond_op =
    define("linalg_cond(Tensor self, Scalar? p=None) -> Tensor")
        .doc("Condition number in the norm p: None, 2, -2, 1, -1, inf or -inf.")
        .compose([](const Call& c) -> Results {
          const Tensor& a = c.tensor(0);
          check_matrix(public_name(c), a, "input");
          const double p = c.has(1) ? c.real(1) : 2;
          if (a.numel() == 0) return {zeros(batch_sizes(a.sizes()), a.options())};
          if (std::fabs(p) != 2)
            return {condition(a, c.scalar(1).to_string(),
                              [&](const Tensor& t) { return linalg::matrix_norm(t, p); })};
          const Tensor s = linalg::svdvals(a);
          const Tensor largest = s.select(-1, 0), smallest = s.select(-1, s.size(-1) - 1);
          return {p > 0 ? largest / smallest : smallest / largest};
        })
        .dtypes(kTypes)
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{make_invertible(m, {3, 3}), std::nullopt}},
                  {{make_invertible(m, {3, 2}), Scalar(-2)}, "smallest over largest"},
                  {{make_invertible(m, {2, 2, 2}), Scalar(1)}, "1-norm"},
                  {{make_invertible(m, {3, 3}), Scalar(HUGE_VAL)}, "infinity"},
                  {{m.make({2, 0, 0}), std::nullopt}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), Scalar(1)},
                   ErrorKind::value,
                   "linalg.cond(ord=1): A must be batches of square matrices"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const double p = c.has(1) ? c.real(1) : 2;
          const auto sums = [&](Matrix m) {
            if (p != 1) m = transposed(m);
            double most = 0;
            for (int64_t j = 0; j < m.columns; ++j) {
              double s = 0;
              for (int64_t i = 0; i < m.rows; ++i) s += std::fabs(m(i, j));
              most = std::max(most, s);
            }
            return most;
          };
          return {map_matrices_to_numbers(c.tensor(0), [&](const Matrix& m) {
            if (m.values.empty()) return 0.0;
            if (std::fabs(p) != 2) return sums(m) * sums(inverted(m));
            const auto s = singular_values(m);
            return p > 0 ? s.front() / s.back() : s.back() / s.front();
          })};
        });

const OpRecord& linalg_cond_str_op =
    define("linalg_cond_str(Tensor self, str p) -> Tensor")
        .doc("Condition number in the norm \"fro\" or \"nuc\".")
        .compose([](const Call& c) -> Results {
          const Tensor& a = c.tensor(0);
          check_matrix("linalg.cond", a, "input");
          const std::string p(c[1].string());
          ARETE_CHECK(p == "fro" || p == "nuc",
                      ValueError(c.name(), "linalg.cond got an invalid norm type: " + p));
          if (a.numel() == 0) return {zeros(batch_sizes(a.sizes()), a.options())};
          return {condition(a, p, [&](const Tensor& t) { return linalg::matrix_norm(t, p); })};
        })
        .dtypes(kTypes)
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{make_invertible(m, {3, 3}), "fro"}}, {{make_invertible(m, {2, 2, 2}), "nuc"}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 2}), "max"},
                   ErrorKind::value,
                   "linalg.cond got an invalid norm type: max"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const bool nuclear = c[1].string() == "nuc";
          const auto norm = [&](const Matrix& m) {
            double sum = 0;
            for (double v : singular_values(m)) sum += nuclear ? v : v * v;
            return nuclear ? sum : std::sqrt(sum);
          };
          return {map_matrices_to_numbers(
              c.tensor(0), [&](const Matrix& m) { return norm(m) * norm(inverted(m)); })};
        });

}  // namespace
}  // namespace ops

namespace linalg {
Tensor pinv(const Tensor& a, std::optional<double> atol, std::optional<double> rtol,
            bool hermitian) {
  return ops::call(ops::linalg_pinv_op, {a, atol, rtol, hermitian});
}
std::tuple<Tensor, Tensor, Tensor, Tensor> lstsq(const Tensor& a, const Tensor& b,
                                                 std::optional<double> rcond,
                                                 std::optional<std::string_view> driver) {
  const auto r = ops::call_all(ops::linalg_lstsq_op, {a, b, rcond, driver});
  return {r[0], r[1], r[2], r[3]};
}
Tensor matrix_rank(const Tensor& a, std::optional<double> atol, std::optional<double> rtol,
                   bool hermitian) {
  return ops::call(ops::linalg_matrix_rank_op, {a, atol, rtol, hermitian});
}
Tensor cond(const Tensor& a, std::optional<double> p) {
  return ops::call(ops::linalg_cond_op, {a, p});
}
Tensor cond(const Tensor& a, std::string_view p) {
  return ops::call(ops::linalg_cond_str_op, {a, p});
}
}  // namespace linalg

Tensor pinverse(const Tensor& self, double rcond) {
  return ops::call(ops::pinverse_op, {self, rcond});
}

}  // namespace arete

ARETE_FAMILY(linalg_least_squares)
