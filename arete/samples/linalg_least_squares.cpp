// Samples, references and errors of the records in ops/linalg_least_squares.cpp.
#include <algorithm>
#include <cmath>
#include <complex>

#include "arete/ops/complex_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/samples/linalg_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

std::vector<Tensor> pinv_reference(const Call& c) {
  // Of full rank: (A^T A)^-1 A^T, or A^T (A A^T)^-1.
  const Tensor& a = c.tensor(0);
  return {map_matrices(a, a.size(-1), a.size(-2), [](const Matrix& m) {
    const Matrix t = adjoint(m);
    return m.rows >= m.columns ? product(inverted(product(t, m)), t)
                               : product(t, inverted(product(m, t)));
  })};
}

const Attached linalg_pinv_op =
    attach("linalg_pinv")
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
const Attached linalg_pinv_tensor_op =
    attach("linalg_pinv_tensor")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto small = [&](IntList sizes) { return m.make(sizes, 1e-6, 1e-5).detach(); };
          return {{{make_invertible(m, {3, 3}), small({}), std::nullopt, false}},
                  {{make_invertible(m, {2, 2, 3}), std::nullopt, small({2}), false}, "batch"},
                  {{make_invertible(m, {2, 3, 2}), small({2}), small({2}), false}, "both"}};
        })
        .reference(pinv_reference);
const Attached pinverse_op = attach("pinverse")
                                 .samples([](SampleMaker& m) -> std::vector<Sample> {
                                   return {{{make_invertible(m, {3, 2}), 1e-6}}};
                                 })
                                 .no_reference("linalg_pinv under another name");
const Attached least_squares_op =
    attach("_linalg_lstsq")
        .no_gradient_test()  // of linalg_lstsq
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{make_invertible(m, {4, 2}), m.make({4, 3}), std::nullopt, "gelsd"}},
                  {{make_invertible(m, {2, 3}), m.make({2, 2, 1}), std::nullopt, "gelsy"},
                   "wide, broadcast batch"},
                  {{m.make({3, 0}), m.make({3, 1}), std::nullopt, "gels"}, "empty"}};
        })
        .no_reference("linalg_lstsq has one");
const Attached linalg_lstsq_op =
    attach("linalg_lstsq")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {
              {{make_invertible(m, {4, 2}), m.make({4, 3}), std::nullopt, std::nullopt}},
              {{make_invertible(m, {4, 2}), m.make({4, 3}), std::nullopt, "gels"}, "gels"},
              {{make_invertible(m, {2, 3, 3}), m.make({3, 2}), std::nullopt, "gels"},
               "gels, square"},
              {{make_invertible(m, {2, 2, 4}), m.make({2, 3}), std::nullopt, "gels"}, "gels, wide"},
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
          const bool vector =
              Shape(a.sizes().first(size_t(a.dim() - 1))) == Shape(c.tensor(1).sizes());
          const Tensor b = vector ? c.tensor(1).unsqueeze(-1) : c.tensor(1);
          const int64_t m = a.size(-2), n = a.size(-1), columns = b.size(-1), k = std::min(m, n);
          const Shape batch = batch_sizes(a.sizes());
          const std::string_view driver = c.has(3) ? c[3].string() : "gelsy";
          const bool by_values = driver == "gelsd" || driver == "gelss";
          std::vector<double> residuals, ranks, values;
          const Tensor x = map_matrices(a, n, columns, [&](const Matrix& f) {
            const Matrix t = adjoint(f), right = matrices_of(b)[0];
            const Matrix s = m >= n ? solved(product(t, f), product(t, right))
                                    : product(t, solved(product(f, t), right));
            const Matrix fx = product(f, s);
            for (int64_t j = 0; j < columns; ++j) {
              double sum = 0;
              for (int64_t i = 0; i < m; ++i) sum += std::norm(fx(i, j) - right(i, j));
              residuals.push_back(sum);
            }
            ranks.push_back(double(k));
            for (double v : singular_values(f)) values.push_back(v);
            return s;
          });
          const Tensor none = from_values({}, {0});
          const Shape residual_sizes = with_sizes(batch, {columns});
          return {
              vector ? x.squeeze(-1) : x,
              m > n && driver != "gelsy" ? from_values(residuals, residual_sizes) : none,
              driver == "gels" ? from_values({}, {0}, kInt64) : from_values(ranks, batch, kInt64),
              by_values ? from_values(values, with_sizes(batch, {k})) : none};
        });

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

const Attached linalg_matrix_rank_op =
    attach("linalg_matrix_rank")
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
const Attached linalg_matrix_rank_tensor_op =
    attach("linalg_matrix_rank_tensor")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const TensorOptions real(real_of(m.dtype), m.device);
          const Tensor levels = tensor({1e-3, 100.0}, real), small = full({}, Scalar(1e-4), real);
          return {{{make_invertible(m, {2, 3, 2}), levels, std::nullopt, false}, "absolute"},
                  {{dependent_rows(m), std::nullopt, small, false}, "relative"},
                  {{make_symmetric(m, {2, 2, 2}), levels, small, true}, "both, hermitian"}};
        })
        .reference([](const Call& c) {
          const std::vector<double> atol = c.has(1) ? values_of(c.tensor(1)) : std::vector{0.0};
          return rank_reference(c, [&](size_t i) { return atol[std::min(i, atol.size() - 1)]; });
        });
const Attached linalg_cond_op =
    attach("linalg_cond")
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
            if (p != 1) m = adjoint(m);
            double most = 0;
            for (int64_t j = 0; j < m.columns; ++j) {
              double s = 0;
              for (int64_t i = 0; i < m.rows; ++i) s += std::abs(m(i, j));
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
const Attached linalg_cond_str_op =
    attach("linalg_cond.p_str")
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
}  // namespace arete::ops
