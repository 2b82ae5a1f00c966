// Systems of equations.
#include <numeric>

#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/linalg_reference_internal.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

const std::vector<DType> kTypes{kFloat32, kFloat64};

// Sizes of X for A X = B or X A = B. Errors begin with `name`.
Shape solution_sizes(const Call& c, const std::string& name, const Tensor& a, const Tensor& b,
                     bool left) {
  check_factorizable(name, a);
  check_square(name, a);
  check_matrix(name, b, "B");
  check_same_dtype(name, a, b);
  const auto by = [](const Tensor& t) {
    return std::to_string(t.size(-2)) + "x" + std::to_string(t.size(-1));
  };
  ARETE_CHECK(
      a.size(-1) == b.size(left ? -2 : -1),
      ValueError(name, name + ": Incompatible shapes of A and B for the equation " +
                           (left ? "AX = B" : "XA = B") + " (" + by(a) + " and " + by(b) + ")"));
  return with_sizes(broadcast_shapes(batch_sizes(a.sizes()), batch_sizes(b.sizes()), c.name()),
                    {b.size(-2), b.size(-1)});
}

// f(matrix of a, matrix of b) for all pairs of the broadcast batch.
template <class F>
Tensor map_pairs(const Tensor& a, const Tensor& b, F f) {
  const Shape batch = broadcast_shapes(batch_sizes(a.sizes()), batch_sizes(b.sizes()), "");
  const auto part = [](const Tensor& t, const Shape& i) {
    Matrix m(t.size(-2), t.size(-1));
    for (int64_t r = 0; r < m.rows; ++r)
      for (int64_t s = 0; s < m.columns; ++s) m(r, s) = at(t, with_sizes(i, {r, s}));
    return m;
  };
  // A size of 1 would be taken for one to broadcast: at() does, and it is right for both.
  std::vector<Matrix> all;
  for_each_index(batch, [&](const Shape& i) { all.push_back(f(part(a, i), part(b, i))); });
  return from_matrices(all, batch, b.size(-2), b.size(-1));
}
Matrix solved_side(const Matrix& a, const Matrix& b, bool left) {
  return left ? solved(a, b) : transposed(solved(transposed(a), transposed(b)));
}

// ---- triangular

// The triangle of A that is read.
Tensor triangle(const Tensor& x, bool upper, bool unit) {
  return upper ? x.triu(unit ? 1 : 0) : x.tril(unit ? -1 : 0);
}

Matrix triangle_of(const Matrix& a, bool upper, bool unit) {
  Matrix t(a.rows, a.columns);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j)
      t(i, j) = i == j ? (unit ? 1 : a(i, j)) : (i < j) == upper ? a(i, j) : 0;
  return t;
}

const OpRecord& linalg_solve_triangular_op =
    define(
        "linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool "
        "unitriangular=False) -> Tensor")
        .doc("X with A X = B or X A = B for triangular A.")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          common_device(c);
          const Shape sizes = solution_sizes(c, public_name(c), a, b, c.boolean(3));
          out.push_back(matrix_spec(batch_sizes(sizes), b.size(-2), b.size(-1), b));
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Shape batch = batch_sizes(out[0].sizes());
          p.copy({view_of(out[0]),
                  view_of(c.tensor(1), expand(c.tensor(1).layout(), out[0].sizes()))});
          const Tensor a = column_major(c.tensor(0), batch, p), info = empty_info(a);
          p.linalg({.op = Factorization::triangular_solve,
                    .a = view_of(a),
                    .b = view_of(out[0]),
                    .info = view_of(info),
                    .upper = c.boolean(2),
                    .left = c.boolean(3),
                    .unit = c.boolean(4)});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const bool upper = g.boolean(2), left = g.boolean(3), unit = g.boolean(4);
              const Tensor x = g.output();
              const Tensor gb =
                  linalg::solve_triangular(g.input(0).mT(), g.grad(), !upper, left, unit);
              TensorList all(2);
              if (g.needs(0)) {
                const Tensor ga = left ? matmul(gb, x.mT()) : matmul(x.mT(), gb);
                all[0] = sum_to_size(triangle(ga.neg(), upper, unit), g.input_sizes(0));
              }
              if (g.needs(1)) all[1] = sum_to_size(gb, g.input_sizes(1));
              return all;
            },
            1, 1)
        .autocast(Autocast::f32)
        .flops([](const Call& c) {
          const double n = double(c.tensor(0).size(-1));
          return n * double(c.tensor(1).numel());
        })
        .dtypes(kTypes)
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {
              {{make_invertible(m, {3, 3}), m.make({3, 2}), false, true, false}},
              {{make_invertible(m, {3, 3}), m.make({2, 3}), true, false, false}, "right"},
              {{m.make({3, 3}, -1, 1), m.make_strided({3, 2}), true, true, true}, "unit"},
              {{m.make({2, 2}, -1, 1), m.make({3, 2}), false, false, true}, "unit, right"},
              {{make_invertible(m, {2, 1, 2, 2}), m.make({3, 2, 1}), true, true, false},
               "broadcast batch"},
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

const OpRecord& triangular_solve_op =
    define(
        "triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool "
        "unitriangular=False) -> (Tensor solution, Tensor cloned_coefficient)")
        .doc("X with A X = B (self) for triangular A, and a copy of A.")
        .compose([](const Call& c) -> Results {
          const Tensor &b = c.tensor(0), &a = c.tensor(1);
          const bool upper = c.boolean(2), turned = c.boolean(3);
          check_square(c.name(), a);
          const Tensor x =
              linalg::solve_triangular(turned ? a.mT() : a, b, upper != turned, true, c.boolean(4));
          return {x,
                  a.expand(with_sizes(batch_sizes(x.sizes()), {a.size(-1), a.size(-1)})).clone()};
        })
        .autocast(Autocast::f32)
        .dtypes(kTypes)
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
          const Tensor x = map_pairs(a, b, [&](const Matrix& m, const Matrix& right) {
            const Matrix t = triangle_of(m, c.boolean(2), c.boolean(4));
            return solved(c.boolean(3) ? transposed(t) : t, right);
          });
          return {x, a};
        });

// ---- any square matrix

// Like solve, for matrices only.
const OpRecord& solve_matrices_op =
    define("_linalg_solve_ex(Tensor A, Tensor B, bool left=True) -> (Tensor result, Tensor info)")
        .doc("X with A X = B or X A = B, and an error number for each matrix.")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          const bool left = c.boolean(2);
          common_device(c);
          const Shape sizes = solution_sizes(c, "linalg.solve", a, b, left);
          const Shape batch = batch_sizes(sizes);
          if (left)
            out.push_back(matrix_spec(batch, b.size(-2), b.size(-1), b));
          else
            out.push_back({sizes, b.dtype(), b.device(), {}});
          out.push_back({batch, kInt32, a.device(), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const bool left = c.boolean(2);
          const Shape batch = batch_sizes(out[0].sizes());
          const Tensor a = column_major(c.tensor(0), batch, p), info = empty_info(a);
          const Tensor pivots = empty_tensor(with_sizes(batch, {a.size(-1)}), kInt32, a.device());
          p.copy({view_of(out[0]),
                  view_of(c.tensor(1), expand(c.tensor(1).layout(), out[0].sizes()))});
          p.linalg({.op = Factorization::lu,
                    .a = view_of(a),
                    .b = view_of(pivots),
                    .info = view_of(out[1])});
          // X A = B is A^T X^T = B^T, and a row-major X is a column-major X^T.
          const Layout x = left ? out[0].layout() : transpose(out[0].layout(), -1, -2);
          p.linalg({.op = Factorization::lu_solve,
                    .a = view_of(a),
                    .b = view_of(pivots),
                    .c = view_of(out[0], x),
                    .info = view_of(info),
                    .transposed = !left});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const bool left = g.boolean(2);
              const Tensor x = g.output();
              const Tensor gb = std::get<0>(linalg::solve_ex(g.input(0).mT(), g.grad(), left));
              TensorList all(2);
              if (g.needs(0))
                all[0] = sum_to_size((left ? matmul(gb, x.mT()) : matmul(x.mT(), gb)).neg(),
                                     g.input_sizes(0));
              if (g.needs(1)) all[1] = sum_to_size(gb, g.input_sizes(1));
              return all;
            },
            1, 1)
        .no_grad_outputs(2)
        .autocast(Autocast::f32)
        .flops([](const Call& c) {
          const double n = double(c.tensor(0).size(-1));
          return factorization_flops(c) * 2 / 3 + 2 * n * double(c.tensor(1).numel());
        })
        .dtypes(kTypes)
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{make_invertible(m, {3, 3}), m.make({3, 2}), true}},
                  {{make_invertible(m, {3, 3}), m.make({2, 3}), false}, "right"},
                  {{make_invertible(m, {2, 1, 2, 2}), m.make({3, 2, 1}), true}, "broadcast batch"},
                  {{m.make({0, 0}), m.make({0, 2}), true}, "empty"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor x = map_pairs(c.tensor(0), c.tensor(1), [&](const auto& a, const auto& b) {
            return solved_side(a, b, c.boolean(2));
          });
          return {x, build_tensor(
                         batch_sizes(x.sizes()), [](const Shape&) { return 0; }, kInt64)};
        });

bool is_vector(const Tensor& a, const Tensor& b) {
  if (b.dim() == 1) return true;
  const IntList s = a.sizes().first(size_t(a.dim() - 1)), t = b.sizes();
  return s.size() == t.size() && std::equal(s.begin(), s.end(), t.begin());
}

Results solve_any(const Call& c, bool left) {
  const Tensor &a = c.tensor(0), &b = c.tensor(1);
  const std::string name = "linalg.solve";
  check_square(name, a);
  const bool vector = is_vector(a, b);
  const auto r = call_all(solve_matrices_op, {a, vector ? b.unsqueeze(-1) : b, left});
  return {vector ? r[0].squeeze(-1) : r[0], r[1]};
}

std::vector<Tensor> solve_reference(const Call& c) {
  const Tensor &a = c.tensor(0), &b = c.tensor(1);
  if (!is_vector(a, b))
    return {map_pairs(a, b, [&](const auto& m, const auto& right) {
      return solved_side(m, right, c.boolean(2));
    })};
  const Tensor x = map_pairs(a, from_values(values_of(b), with_sizes(b.sizes(), {1})),
                             [](const auto& m, const auto& right) { return solved(m, right); });
  return {from_values(values_of(x), batch_sizes(x.sizes(), 1))};
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

const OpRecord& linalg_solve_ex_op =
    define(
        "linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> "
        "(Tensor "
        "result, Tensor info)")
        .doc("X with A X = B, and an error number for each matrix.")
        .compose([](const Call& c) -> Results {
          Results r = solve_any(c, c.boolean(2));
          if (c.boolean(3)) check_info("torch." + public_name(c), r[1], singular_solve_text);
          return r;
        })
        .no_grad_outputs(2)
        .autocast(Autocast::f32)
        .dtypes(kTypes)
        .samples([](SampleMaker& m) { return solve_samples(m, {false}); })
        .errors([](SampleMaker& m) { return solve_errors(m, {true}); })
        .reference([](const Call& c) -> std::vector<Tensor> {
          auto r = solve_reference(c);
          Shape batch = batch_sizes(c.tensor(0).sizes());
          if (!is_vector(c.tensor(0), c.tensor(1))) batch = batch_sizes(r[0].sizes());
          r.push_back(build_tensor(
              batch, [](const Shape&) { return 0; }, kInt64));
          return r;
        });

const OpRecord& linalg_solve_op =
    define("linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor")
        .doc("X with A X = B or X A = B.")
        .compose([](const Call& c) -> Results {
          Results r = solve_any(c, c.boolean(2));
          check_info("torch." + public_name(c), r[1], singular_solve_text);
          return {r[0]};
        })
        .autocast(Autocast::f32)
        .dtypes(kTypes)
        .samples([](SampleMaker& m) { return solve_samples(m, {}); })
        .errors([](SampleMaker& m) { return solve_errors(m, {}); })
        .reference(solve_reference);

const OpRecord& linalg_tensorsolve_op =
    define("linalg_tensorsolve(Tensor self, Tensor other, int[]? dims=None) -> Tensor")
        .doc("X with tensordot(A, X, X.dim()) = B.")
        .compose([](const Call& c) -> Results {
          Tensor a = c.tensor(0);
          const Tensor& b = c.tensor(1);
          if (c.has(2) && !c.ints(2).empty()) {
            Shape to(c.ints(2).size(), 0);
            std::iota(to.begin(), to.end(), a.dim() - int64_t(to.size()));
            a = arete::movedim(a, c.ints(2), to);
          }
          const Shape left(a.sizes().subspan(size_t(std::min(b.dim(), a.dim()))));
          const int64_t n = numel_of(left);
          ARETE_CHECK(a.numel() == n * n && b.numel() == n,
                      ValueError(c.name(),
                                 "Expected self to satisfy the requirement "
                                 "prod(self.shape[other.ndim:]) == "
                                 "prod(self.shape[:other.ndim]), but got " +
                                     std::to_string(n) + " != " + std::to_string(b.numel())));
          return {linalg::solve(a.reshape({n, n}), b.reshape({n})).reshape(left)};
        })
        .autocast(Autocast::f32)
        .dtypes(kTypes)
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
}  // namespace ops

namespace linalg {
Tensor solve(const Tensor& a, const Tensor& b, bool left) {
  return ops::call(ops::linalg_solve_op, {a, b, left});
}
std::tuple<Tensor, Tensor> solve_ex(const Tensor& a, const Tensor& b, bool left,
                                    bool check_errors) {
  const auto r = ops::call_all(ops::linalg_solve_ex_op, {a, b, left, check_errors});
  return {r[0], r[1]};
}
Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool left,
                        bool unitriangular) {
  return ops::call(ops::linalg_solve_triangular_op, {a, b, upper, left, unitriangular});
}
Tensor tensorsolve(const Tensor& a, const Tensor& b, IntList dims) {
  return ops::call(ops::linalg_tensorsolve_op, {a, b, dims});
}
}  // namespace linalg

std::tuple<Tensor, Tensor> triangular_solve(const Tensor& self, const Tensor& a, bool upper,
                                            bool transpose, bool unitriangular) {
  const auto r =
      ops::call_all(ops::triangular_solve_op, {self, a, upper, transpose, unitriangular});
  return {r[0], r[1]};
}

}  // namespace arete

ARETE_FAMILY(linalg_solve)
