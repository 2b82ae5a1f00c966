// Samples, references and errors of the records in ops/linalg_lu.cpp.
#include <algorithm>

#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/samples/linalg_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

// Doolittle's elimination as it stands in books; eliminate() exchanges rows.
void eliminate_in_order(Matrix& m) {
  for (int64_t k = 0; k < std::min(m.rows, m.columns); ++k) {
    for (int64_t i = k + 1; i < m.rows; ++i) {
      m(i, k) /= m(k, k);
      for (int64_t j = k + 1; j < m.columns; ++j) m(i, j) -= m(i, k) * m(k, j);
    }
  }
}

// The factors: L with ones on its diagonal, U with what is on and above it.
Matrix lower_of(const Matrix& f) {
  Matrix l(f.rows, std::min(f.rows, f.columns));
  for (int64_t i = 0; i < l.rows; ++i)
    for (int64_t j = 0; j < l.columns; ++j) l(i, j) = i > j ? f(i, j) : double(i == j);
  return l;
}
Matrix upper_of(const Matrix& f) {
  Matrix u(std::min(f.rows, f.columns), f.columns);
  for (int64_t i = 0; i < u.rows; ++i)
    for (int64_t j = i; j < u.columns; ++j) u(i, j) = f(i, j);
  return u;
}

std::vector<Tensor> factor_reference(const Call& c) {
  const Tensor& a = c.tensor(0);
  const int64_t k = std::min(a.size(-1), a.size(-2));
  std::vector<double> pivots;
  const Tensor lu = map_matrices(a, a.size(-2), a.size(-1), [&](Matrix m) {
    if (c.boolean(1)) {
      for (int64_t p : eliminate(m)) pivots.push_back(double(p + 1));
    } else {
      eliminate_in_order(m);
      for (int64_t p = 0; p < k; ++p) pivots.push_back(double(p + 1));
    }
    return m;
  });
  const Shape batch = batch_sizes(a.sizes());
  return {lu, from_values(pivots, with_sizes(batch, {k}), kInt64)};
}

const Attached linalg_lu_factor_ex_op =
    attach("linalg_lu_factor_ex")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 3}), true, false}},
                  {{make_invertible(m, {2, 2, 2}), true, true}, "batch"},
                  {{m.make({2, 4}), true, false}, "wide"},
                  {{m.make_strided({4, 2}), true, false}, "tall, strided"},
                  {{make_invertible(m, {2, 3, 3}), false, false}, "without exchanges"},
                  {{make_invertible(m, {2, 4}), false, true}, "wide, without exchanges"},
                  {{make_invertible(m, {4, 2}), false, false}, "tall, without exchanges"},
                  {{make_invertible(m, {35, 40}).detach(), false, false},
                   "more than a panel, without exchanges"},
                  {{make_invertible(m, {3, 5, 7}), true, true}, "batch, wide"},
                  {{make_invertible(m, {3, 7, 5}), true, true}, "batch, tall"},
                  {{make_invertible(m, {2, 40, 70}).detach(), true, false}, "large batch, wide"},
                  {{make_invertible(m, {2, 70, 40}).detach(), true, false}, "large batch, tall"},
                  {{m.make({0, 2, 3}), true, false}, "empty batch"},
                  {{m.make({2, 0, 3}), true, false}, "empty matrices"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), true, false},
                   ErrorKind::value,
                   "linalg.lu_factor_ex: The input tensor A must have at least 2 dimensions."},
                  {{m.make({3, 3}, 0, 0), true, true}, ErrorKind::value, "U[1,1] is zero"},
                  {{m.make({3, 3}, 0, 0), false, true}, ErrorKind::value, "U[1,1] is zero"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          auto r = factor_reference(c);
          const Shape batch = batch_sizes(c.tensor(0).sizes());
          r.push_back(build_tensor(
              batch, [](const Shape&) { return 0; }, kInt64));
          return r;
        });
const Attached linalg_lu_factor_op =
    attach("linalg_lu_factor")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 3}), true}},
                  {{m.make({2, 4, 2}), true}, "batch, tall"},
                  {{make_invertible(m, {3, 3}), false}, "without exchanges"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {
              {{m.make({2, 2}, 0, 0), true},
               ErrorKind::value,
               "torch.linalg.lu_factor: U[1,1] is zero and using it on lu_solve would result in a "
               "division by zero."}};
        })
        .reference(factor_reference);
const Attached lu_permutation_op =
    attach("lu_permutation")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const TensorOptions o(kInt32, m.device);
          return {{{tensor({2, 3, 3}, o), 3}},
                  {{tensor({{2, 2}, {4, 3}}, o), 4}, "batch, tall"},
                  {{(m.make_index({3, 37}, 40) + 1).to(kInt32), 40}, "many"},
                  {{zeros({2, 0}, o), 2}, "nothing"},
                  {{zeros({0, 2}, o), 2}, "no matrices"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const TensorOptions o(kInt32, m.device);
          std::vector<ErrorSample> errors{
              {{m.make_index({2}, 2), 2}, ErrorKind::type, "LU_pivots is expected to be"}};
          if (m.device.is_cpu())  // others do not wait for what pivots are
            errors.push_back(
                {{tensor({0, 1}, o), 2},
                 ErrorKind::value,
                 "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."});
          return errors;
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const std::vector<double> v = values_of(c.tensor(0));
          const int64_t k = c.tensor(0).size(-1), n = c.integer(1);
          const Shape batch = batch_sizes(c.tensor(0).sizes(), 1);
          std::vector<double> all;
          for (int64_t b = 0; b < numel_of(batch); ++b) {
            std::vector<int64_t> order(static_cast<size_t>(n), 0);
            apply_exchanges(v.data() + b * k, k, order.data(), n);
            all.insert(all.end(), order.begin(), order.end());
          }
          return {from_values(all, with_sizes(batch, {n}), kInt64)};
        });
const Attached lu_unpack_op =
    attach("lu_unpack")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const TensorOptions o(kInt32, m.device);
          return {{{m.make({3, 3}), tensor({2, 3, 3}, o), true, true}},
                  {{m.make({2, 4, 2}), tensor({{2, 2}, {4, 3}}, o), true, true}, "batch, tall"},
                  {{m.make({2, 3}), tensor({2, 2}, o), true, false}, "wide, data only"},
                  {{m.make({2, 3}), tensor({2, 2}, o), false, true}, "pivots only"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3, 3}), m.make_index({3}, 3), true, true},
                   ErrorKind::type,
                   "LU_pivots is expected to be a contiguous tensor of torch.int32 dtype"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &lu = c.tensor(0), &pivots = c.tensor(1);
          const int64_t m = lu.size(-2), n = lu.size(-1), k = std::min(m, n);
          const Shape batch = batch_sizes(lu.sizes());
          const std::vector<double> v = values_of(pivots);
          const Tensor none = from_numbers({}, {0}, lu.dtype());
          Tensor p = none, l = none, u = none;
          if (c.boolean(3)) {
            std::vector<Matrix> all;
            for (int64_t b = 0; b < numel_of(batch); ++b) {
              std::vector<int64_t> order(static_cast<size_t>(m), 0);
              apply_exchanges(v.data() + b * k, k, order.data(), m);
              all.emplace_back(m, m);
              for (int64_t i = 0; i < m; ++i) all.back()(order[size_t(i)], i) = 1;
            }
            p = from_matrices(all, batch, m, m, lu.dtype());
          }
          if (c.boolean(2)) {
            l = map_matrices(lu, m, k, lower_of);
            u = map_matrices(lu, k, n, upper_of);
          }
          return {p, l, u};
        });
const Attached linalg_lu_op =
    attach("linalg_lu")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 3}), true}},
                  {{m.make({2, 4, 2}), true}, "batch, tall"},
                  {{m.make({2, 4}), true}, "wide"},
                  {{make_invertible(m, {3, 3}), false}, "without exchanges"},
                  {{m.make({0, 2, 3}), true}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), true}, ErrorKind::value, "linalg.lu: The input tensor A must"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& a = c.tensor(0);
          const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
          const Shape batch = batch_sizes(a.sizes());
          std::vector<Matrix> ps, ls, us;
          for (Matrix f : matrices_of(a)) {
            Matrix p = identity_matrix(m);
            if (c.boolean(1)) {
              const std::vector<int64_t> pivots = eliminate(f);
              for (int64_t i = k; i-- > 0;)
                for (int64_t j = 0; j < m; ++j) std::swap(p(i, j), p(pivots[size_t(i)], j));
            } else {
              eliminate_in_order(f);
            }
            ps.push_back(p);
            ls.push_back(lower_of(f));
            us.push_back(upper_of(f));
          }
          const DType t = a.dtype();
          return {c.boolean(1) ? from_matrices(ps, batch, m, m, t) : from_numbers({}, {0}, t),
                  from_matrices(ls, batch, m, k, t), from_matrices(us, batch, k, n, t)};
        });

std::vector<Tensor> lu_solve_reference(const Tensor& lu, const Tensor& pivots, const Tensor& b,
                                       bool left, bool of_adjoint) {
  const int64_t n = lu.size(-1);
  const std::vector<double> v = values_of(pivots);
  std::vector<Matrix> matrices;
  for (const Matrix& f : matrices_of(lu)) {
    Matrix a = product(lower_of(f), upper_of(f));
    for (int64_t i = n; i-- > 0;)
      for (int64_t j = 0; j < n; ++j)
        std::swap(a(i, j), a(int64_t(v[matrices.size() * size_t(n) + size_t(i)]) - 1, j));
    matrices.push_back(of_adjoint ? adjoint(a) : a);
  }
  return {
      map_pairs(matrices, batch_sizes(lu.sizes()), b,
                [&](const Matrix& a, const Matrix& right) { return solved_side(a, right, left); })};
}
// Of two matrices, in columns of memory, with a dimension along which systems share them.
Tensor shared_pivots(const TensorOptions& o) {
  return tensor({{2, 1}, {2, 2}}, o).mT().unsqueeze(1);
}

// Of both operators that have sides and adjoints.
std::vector<Sample> lu_solve_samples(SampleMaker& m) {
  const TensorOptions o(kInt32, m.device);
  const auto pivots = [&] { return tensor({2, 3, 3}, o); };
  std::vector<Sample> samples{
      {{make_invertible(m, {3, 3}), pivots(), m.make({3, 2}), true, false}},
      {{make_invertible(m, {3, 3}), pivots(), m.make({3, 2}), true, true}, "adjoint"},
      {{make_invertible(m, {3, 3}), pivots(), m.make({2, 3}), false, false}, "right"},
      {{make_invertible(m, {2, 2, 2}), tensor({{2, 2}, {1, 2}}, o), m.make({2, 1}), true, false},
       "batch"}};
  for (const bool left : {true, false})
    for (const bool adjoint : {false, true})
      samples.push_back(
          {{make_invertible(m, {2, 1, 2, 2}), shared_pivots(o),
            left ? m.make({2, 3, 2, 4}) : m.make({2, 3, 4, 2}), left, adjoint},
           std::string("shared") + (left ? "" : ", right") + (adjoint ? ", adjoint" : "")});
  return samples;
}

const Attached lu_solution_op =
    attach("lu_solution")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const TensorOptions o(kInt32, m.device);
          const auto many = [&] { return arange(Scalar(1), Scalar(21), o); };
          std::vector<Sample> samples = lu_solve_samples(m);
          const std::vector<Sample> more{
              {{make_invertible(m, {3, 3}), tensor({2, 3, 3}, o), m.make({2, 3}), false, true},
               "right, adjoint"},
              {{make_invertible(m, {20, 20}), many(), m.make_strided({20, 2}), true, true},
               "large"},
              {{make_invertible(m, {1, 2, 2}).detach().expand({3, 2, 2}),
                tensor({2, 2}, o).expand({3, 2}), m.make({3, 2, 4}), true, false},
               "repeated"},
              {{make_invertible(m, {1, 2, 2}).detach().expand({3, 2, 2}),
                tensor({{2, 2}, {1, 2}, {2, 2}}, o), m.make({3, 2, 4}), true, false},
               "repeated, with pivots of their own"},
              {{make_invertible(m, {2, 2}).detach().expand({3, 2, 2, 2}),
                tensor({2, 2}, o).expand({3, 2, 2}), m.make({3, 2, 9, 2}), false, false},
               "repeated, right"},
              {{make_invertible(m, {2, 1, 2, 2}), shared_pivots(o), m.make({3, 1, 2, 2, 9}), true,
                false},
               "shared by batches with many sides"},
              {{make_invertible(m, {2, 2, 2}), tensor({{2, 2}, {1, 2}}, o), m.make({3, 2, 2, 9}),
                true, false},
               "shared from without, many sides"},
              {{m.make({0, 2, 2}), zeros({0, 2}, o), m.make({2, 1}), true, false}, "empty"}};
          samples.insert(samples.end(), more.begin(), more.end());
          return samples;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          if (!m.device.is_cpu()) return {};  // others do not wait for what pivots are
          return {{{m.make({2, 2}), tensor({0, 2}, TensorOptions(kInt32, m.device)), m.make({2, 1}),
                    true, false},
                   ErrorKind::value,
                   "Pivots given to lu_solve must all be greater or equal to 1."}};
        })
        .reference([](const Call& c) {
          // Transposed: the adjoint of the conjugate.
          const Tensor lu = c.boolean(4) ? conj(c.tensor(0)) : c.tensor(0);
          return lu_solve_reference(lu, c.tensor(1), c.tensor(2), c.boolean(3), c.boolean(4));
        });
const Attached linalg_lu_solve_op =
    attach("linalg_lu_solve")
        .samples(lu_solve_samples)
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), tensor({1, 2}, TensorOptions(kInt32, m.device)), m.make({2, 1}),
                    true, false},
                   ErrorKind::value,
                   "torch.linalg.lu_solve: A must be batches of square matrices"},
                  {{m.make({2, 2}).to(kFloat16), tensor({1, 2}, TensorOptions(kInt32, m.device)),
                    m.make({2, 1}).to(kFloat16), true, false},
                   ErrorKind::not_implemented,
                   "linalg.lu_solve: Low precision dtypes not supported"}};
        })
        .reference([](const Call& c) {
          return lu_solve_reference(c.tensor(0), c.tensor(1), c.tensor(2), c.boolean(3),
                                    c.boolean(4));
        });
const Attached lu_solve_op =
    attach("lu_solve")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const TensorOptions o(kInt32, m.device);
          return {{{m.make({3, 2}), make_invertible(m, {3, 3}), tensor({2, 3, 3}, o)}},
                  {{m.make({2, 3, 2, 4}), make_invertible(m, {2, 1, 2, 2}), shared_pivots(o)},
                   "shared"}};
        })
        .reference([](const Call& c) {
          return lu_solve_reference(c.tensor(1), c.tensor(2), c.tensor(0), true, false);
        });

}  // namespace
}  // namespace arete::ops
