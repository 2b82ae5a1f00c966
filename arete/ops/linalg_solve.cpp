// Systems of equations.
#include <algorithm>
#include <numeric>

#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/matmul.h"
#include "arete/ops/over.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {
namespace ops {
namespace {

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

// ---- triangular

// The triangle of A that is read.
Tensor triangle(Tensor x, bool upper, bool unit) {
  return call_over(std::move(x), upper ? "triu" : "tril", {unit ? (upper ? 1 : -1) : 0});
}

const OpRecord& linalg_solve_triangular_op =
    define(
        "linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool "
        "unitriangular=False) -> Tensor")
        .doc("X with A X = B or X A = B for triangular A.")
        .batched(vmaps::leading)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          const Shape sizes = solution_sizes(c, public_name(c), a, b, c.boolean(3));
          out.push_back(matrix_spec(batch_sizes(sizes), b.size(-2), b.size(-1), b));
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          Tensor a = c.tensor(0);
          drop_repeats(a);
          const Shape own = batch_sizes(a.sizes());
          const bool left = c.boolean(3);
          if (SharedSides::are_in(out[0], own, left)) {
            const SharedSides x(own, c.tensor(1), out[0], left, p);
            const TriangularFactor factor(a.view(with_sizes(x.batch(), {a.size(-2), a.size(-1)})),
                                          x.batch(), c.boolean(2), p);
            factor.solve(x.columns(), p, !left, true, c.boolean(4));
            return x.finish(p);
          }
          p.copy({view_of(out[0]),
                  view_of(c.tensor(1), expand(c.tensor(1).layout(), out[0].sizes()))});
          const TriangularFactor factor(a, batch_sizes(out[0].sizes()), c.boolean(2), p);
          factor.solve(out[0], p, false, left, c.boolean(4));
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const bool upper = g.boolean(2), left = g.boolean(3), unit = g.boolean(4);
              const Tensor x = g.output();
              const Tensor gb =
                  linalg::solve_triangular(adjoint(g.input(0)), g.grad(), !upper, left, unit);
              TensorList all(2);
              if (g.needs(0)) {
                Tensor ga = sum_of_products(left ? gb : adjoint(x), left ? adjoint(x) : gb,
                                            g.input_sizes(0));
                all[0] = triangle(call_over(std::move(ga), "neg"), upper, unit);
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
        .dtypes(kMatrixTypes);

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
        .dtypes(kMatrixTypes);

// ---- any square matrix

// Like solve, for matrices only.
const OpRecord& solve_matrices_op =
    define(
        "_linalg_solve_ex(Tensor A, Tensor B, bool left=True) -> (Tensor result, Tensor LU, Tensor "
        "pivots, Tensor info)")
        .doc("X with A X = B or X A = B, the factors of A, and an error number for each matrix.")
        .batched(vmaps::leading)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          const bool left = c.boolean(2);
          const Shape sizes = solution_sizes(c, "linalg.solve", a, b, left);
          const Shape batch = batch_sizes(sizes);
          if (left)
            out.push_back(matrix_spec(batch, b.size(-2), b.size(-1), b));
          else
            out.push_back({sizes, b.dtype()});
          const Shape own = batch_sizes(a.sizes());
          out.push_back(matrix_spec(own, a.size(-1), a.size(-1), a));
          out.push_back({with_sizes(own, {a.size(-1)}), kInt32});
          out.push_back({own, kInt32});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          Tensor a = c.tensor(0), lu = out[1], pivots = out[2], info = out[3];
          drop_repeats(a);
          const Shape own = batch_sizes(a.sizes());
          const bool repeated = !std::ranges::equal(own, info.sizes());
          if (repeated) {
            lu = empty_tensor(matrix_spec(own, a.size(-2), a.size(-1), a));
            pivots = empty_tensor(with_sizes(own, {a.size(-1)}), kInt32, a.device());
            info = empty_info(a);
          }
          p.copy({view_of(lu), view_of(a)});
          p.linalg({.op = Factorization::lu,
                    .a = view_of(lu),
                    .b = view_of(pivots),
                    .info = view_of(info)});
          if (repeated) {
            const Tensor* made[] = {&lu, &pivots, &info};
            for (size_t i = 0; i < 3; ++i)
              p.copy({view_of(out[i + 1]),
                      view_of(*made[i], expand(made[i]->layout(), out[i + 1].sizes()))});
          }
          solve_by_factors(lu, pivots, c.tensor(1), out[0], c.boolean(2), false, p);
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const bool left = g.boolean(2);
              const Tensor x = g.output();
              // A gradient that is to be differentiated needs A itself, else its factors will do.
              const Tensor gb =
                  modes().grad_enabled
                      ? std::get<0>(linalg::solve_ex(adjoint(g.input(0)), g.grad(), left))
                      : lu_solution(g.output(1), g.output(2), g.grad(), left, true);
              TensorList all(2);
              if (g.needs(0))
                all[0] = sum_of_products(left ? gb : adjoint(x), left ? adjoint(x) : gb,
                                         g.input_sizes(0))
                             .neg();
              if (g.needs(1)) all[1] = sum_to_size(gb, g.input_sizes(1));
              return all;
            },
            1, 1 | 2 | 4)
        .no_grad_outputs(2 | 4 | 8)
        .autocast(Autocast::f32)
        .flops([](const Call& c) {
          const double n = double(c.tensor(0).size(-1));
          return factorization_flops(c) * 2 / 3 + 2 * n * double(c.tensor(1).numel());
        })
        .dtypes(kMatrixTypes);

Results solve_any(const Call& c, bool left) {
  const Tensor &a = c.tensor(0), &b = c.tensor(1);
  const std::string name = "linalg.solve";
  check_square(name, a);
  const bool vector = b.dim() == 1 || has_vectors(a, b);
  const auto r = call_all(solve_matrices_op, {a, vector ? b.unsqueeze(-1) : b, left});
  return {vector ? r[0].squeeze(-1) : r[0], r[3]};
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
        .dtypes(kMatrixTypes);

const OpRecord& linalg_solve_op =
    define("linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor")
        .doc("X with A X = B or X A = B.")
        .compose([](const Call& c) -> Results {
          Results r = solve_any(c, c.boolean(2));
          check_info("torch." + public_name(c), r[1], singular_solve_text);
          return {r[0]};
        })
        .autocast(Autocast::f32)
        .dtypes(kMatrixTypes);

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
        .dtypes(kFactorizableTypes);

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
