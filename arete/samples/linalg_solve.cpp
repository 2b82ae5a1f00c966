// Samples, references and errors of the records in ops/linalg_solve.cpp.
#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/shape.h"
#include "arete/samples/linalg_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

Matrix triangle_of(const Matrix& a, bool upper, bool unit) {
  Matrix t(a.rows, a.columns);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j)
      t(i, j) = i == j ? (unit ? 1 : a(i, j)) : (i < j) == upper ? a(i, j) : 0;
  return t;
}

const Attached linalg_solve_triangular_op =
    attach("linalg_solve_triangular")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {
              {{make_invertible(m, {3, 3}), m.make({3, 2}), false, true, false}},
              {{make_invertible(m, {3, 3}), m.make({2, 3}), true, false, false}, "right"},
              {{m.make({3, 3}, -1, 1), m.make_strided({3, 2}), true, true, true}, "unit"},
              {{m.make({2, 2}, -1, 1), m.make({3, 2}), false, false, true}, "unit, right"},
              {{make_invertible(m, {2, 1, 2, 2}), m.make({3, 2, 1}), true, true, false},
               "broadcast batch"},
              {{make_invertible(m, {2, 1, 2, 2}), m.make({2, 3, 4, 2}), false, false, false},
               "shared, right"},
              {{make_invertible(m, {3, 3}), m.make({2, 1, 3, 2}), false, true, true},
               "shared by all"},
              {{make_invertible(m, {2, 2, 2}), m.make({3, 2, 2, 9}), false, true, false},
               "shared, many sides"},
              {{make_invertible(m, {2, 2, 2}), m.make({3, 2, 9, 2}), false, false, false},
               "shared, many sides, right"},
              {{make_invertible(m, {2, 2}).detach().expand({3, 2, 2}), m.make({3, 2, 2}), true,
                true, false},
               "repeated"},
              {{make_invertible(m, {2, 1, 2, 2}).detach().expand({2, 3, 2, 2}), m.make({4, 2}),
                true, false, false},
               "repeated, right"},
              {{make_invertible(m, {1, 2, 2}), m.make({2, 2}), false, true, false}, "batch of 1"},
              {{m.make({0, 3, 3}), m.make({3, 2}), false, true, false}, "empty batch"},
              {{m.make({0, 0}), m.make({0, 2}), false, true, false}, "empty matrices"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({2, 3}), true, true, false},
                   ErrorKind::value,
                   "linalg.solve_triangular: A must be batches of square matrices"},
                  {{m.make({2, 2}), m.make({3, 2}), true, true, false},
                   ErrorKind::value,
                   "linalg.solve_triangular: Incompatible shapes of A and B for the equation AX = "
                   "B (2x2 and 3x2)"},
                  {{m.make({2, 2}), m.make({2}), true, true, false},
                   ErrorKind::value,
                   "The input tensor B must have at least 2 dimensions."},
                  {{m.make({2, 2}), m.make({2, 2}).to(kFloat64), true, true, false},
                   ErrorKind::type,
                   "Expected A and B to have the same dtype"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {map_pairs(c.tensor(0), c.tensor(1), [&](const Matrix& a, const Matrix& b) {
            return solved_side(triangle_of(a, c.boolean(2), c.boolean(4)), b, c.boolean(3));
          })};
        });
const Attached triangular_solve_op =
    attach("triangular_solve")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {
              {{m.make({3, 2}), make_invertible(m, {3, 3}), true, false, false}},
              {{m.make({3, 2}), make_invertible(m, {2, 3, 3}), false, true, false}, "transposed"},
              {{m.make({2, 2}), m.make({2, 2}, -1, 1), true, true, true}, "unit"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 2}), m.make({2, 3}), true, false, false},
                   ErrorKind::value,
                   "triangular_solve: A must be batches of square matrices"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &b = c.tensor(0), &a = c.tensor(1);
          // Transposed: the adjoint of the conjugate.
          const bool turned = c.boolean(3);
          const Tensor of = turned ? conj(a) : a;
          const Tensor x = map_pairs(of, b, [&](const Matrix& m, const Matrix& right) {
            const Matrix t = triangle_of(m, c.boolean(2), c.boolean(4));
            return solved(turned ? adjoint(t) : t, right);
          });
          return {x, a};
        });
const Attached solve_matrices_op =
    attach("_linalg_solve_ex")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {
              {{make_invertible(m, {3, 3}), m.make({3, 2}), true}},
              {{make_invertible(m, {3, 3}), m.make({2, 3}), false}, "right"},
              {{make_invertible(m, {2, 1, 2, 2}), m.make({3, 2, 1}), true}, "broadcast batch"},
              {{make_invertible(m, {2, 1, 2, 2}), m.make({2, 3, 4, 2}), false}, "shared, right"},
              {{make_invertible(m, {2, 2}).detach().expand({3, 2, 2}), m.make({3, 2, 4}), true},
               "repeated"},
              {{make_invertible(m, {2, 1, 2, 2}).detach().expand({2, 3, 2, 2}), m.make({4, 2}),
                false},
               "repeated, right"},
              {{m.make({0, 0}), m.make({0, 2}), true}, "empty"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor x = map_pairs(c.tensor(0), c.tensor(1), [&](const auto& a, const auto& b) {
            return solved_side(a, b, c.boolean(2));
          });
          const Tensor& a = c.tensor(0);
          const Shape batch = batch_sizes(a.sizes());
          std::vector<double> pivots;
          const Tensor lu = map_matrices(a, a.size(-2), a.size(-1), [&](Matrix m) {
            for (int64_t p : eliminate(m)) pivots.push_back(double(p + 1));
            return m;
          });
          return {x, lu, from_values(pivots, with_sizes(batch, {a.size(-1)}), kInt64),
                  build_tensor(
                      batch, [](const Shape&) { return 0; }, kInt64)};
        });

// Is b one right-hand side for each matrix?
bool is_vector(const Tensor& a, const Tensor& b) {
  return b.dim() == 1 || Shape(a.sizes().first(size_t(a.dim() - 1))) == Shape(b.sizes());
}

std::vector<Tensor> solve_reference(const Call& c) {
  const Tensor &a = c.tensor(0), &b = c.tensor(1);
  if (!is_vector(a, b))
    return {map_pairs(a, b, [&](const auto& m, const auto& right) {
      return solved_side(m, right, c.boolean(2));
    })};
  const Tensor x = map_pairs(a, b.unsqueeze(-1),
                             [](const auto& m, const auto& right) { return solved(m, right); });
  return {x.squeeze(-1)};
}

std::vector<Sample> solve_samples(SampleMaker& m, std::vector<OwnedArg> more) {
  std::vector<Sample> all{{{make_invertible(m, {3, 3}), m.make({3, 2}), true}},
                          {{make_invertible(m, {3, 3}), m.make({3}), true}, "vector"},
                          {{make_invertible(m, {2, 3, 3}), m.make({2, 3}), true}, "vectors"},
                          {{make_invertible(m, {2, 2}), m.make_strided({3, 2}), false}, "right"},
                          {{make_invertible(m, {2, 1, 2, 2}), m.make({3, 2, 2}), true}, "batch"},
                          {{m.make({0, 2, 2}), m.make({2, 1}), true}, "empty batch"},
                          {{m.make({0, 0}), m.make({0, 2}), true}, "empty matrices"}};
  for (Sample& s : all) s.args.insert(s.args.end(), more.begin(), more.end());
  return all;
}

std::vector<ErrorSample> solve_errors(SampleMaker& m, std::vector<OwnedArg> more) {
  std::vector<ErrorSample> all{
      {{m.make({2, 2}, 0, 0), m.make({2}), true},
       ErrorKind::value,
       "The solver failed because the input matrix is singular."},
      {{stack({make_invertible(m, {2, 2}), zeros({2, 2}, TensorOptions(m.dtype, m.device))}),
        m.make({2, 1}), true},
       ErrorKind::value,
       "(Batch element 1): The solver failed because the input matrix is singular."},
      {{m.make({2, 2}), m.make({3, 1}), true},
       ErrorKind::value,
       "linalg.solve: Incompatible shapes of A and B for the equation AX = B (2x2 and 3x1)"},
      {{m.make({2, 2}).to(kBFloat16), m.make({2, 1}).to(kBFloat16), true},
       ErrorKind::not_implemented,
       "Low precision dtypes not supported"}};
  for (ErrorSample& s : all) s.args.insert(s.args.end(), more.begin(), more.end());
  return all;
}

const Attached linalg_solve_ex_op =
    attach("linalg_solve_ex")
        .samples([](SampleMaker& m) { return solve_samples(m, {false}); })
        .errors([](SampleMaker& m) { return solve_errors(m, {true}); })
        .reference([](const Call& c) -> std::vector<Tensor> {
          auto r = solve_reference(c);
          r.push_back(build_tensor(
              batch_sizes(c.tensor(0).sizes()), [](const Shape&) { return 0; }, kInt64));
          return r;
        });
const Attached linalg_solve_op = attach("linalg_solve")
                                     .samples([](SampleMaker& m) { return solve_samples(m, {}); })
                                     .errors([](SampleMaker& m) { return solve_errors(m, {}); })
                                     .reference(solve_reference);
const Attached linalg_tensorsolve_op =
    attach("linalg_tensorsolve")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto make = [&](IntList s, int64_t n) {
            return make_invertible(m, {n, n}).detach().reshape(s).requires_grad_(m.requires_grad);
          };
          return {{{make({2, 3, 6}, 6), m.make({2, 3}), std::nullopt}},
                  {{make({4, 2, 2}, 4), m.make({4}), std::nullopt}},
                  {{make({2, 2, 4}, 4).detach().movedim(0, 2).requires_grad_(m.requires_grad),
                    m.make({2, 2}),
                    {1}},
                   "dims"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make({2}), std::nullopt},
                   ErrorKind::value,
                   "Expected self to satisfy the requirement"}};
        })
        .no_reference("linalg_solve of a reshaped matrix");

}  // namespace
}  // namespace arete::ops
