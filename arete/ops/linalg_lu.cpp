// LU factors with partial pivoting.
#include <algorithm>
#include <array>
#include <optional>

#include "arete/core/host_access.h"
#include "arete/expr/value.h"
#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/index_util.h"
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

// Overwrites `lu` with its factors without exchanges, panel by panel: what is left of a panel is
// eliminated column by column, and what is right of it by products.
void factor_without_pivots(const Tensor& lu) {
  constexpr int64_t kPanel = 32;
  const int64_t m = lu.size(-2), n = lu.size(-1), k = std::min(m, n);
  for (int64_t j = 0; j < k; j += kPanel) {
    const int64_t width = std::min(kPanel, k - j), rows = m - j;
    const Tensor panel = lu.narrow(-2, j, rows).narrow(-1, j, width);
    for (int64_t i = 0; i < width && i + 1 < rows; ++i) {
      const Tensor row = panel.select(-2, i), below = panel.narrow(-2, i + 1, rows - i - 1);
      Tensor column = below.select(-1, i);
      column.div_(row.narrow(-1, i, 1));
      if (i + 1 < width)
        below.narrow(-1, i + 1, width - i - 1)
            .sub_(column.unsqueeze(-1) * row.narrow(-1, i + 1, width - i - 1).unsqueeze(-2));
    }
    const int64_t next = j + width;
    if (next >= n) continue;
    const Tensor right = lu.narrow(-1, next, n - next);
    Tensor top = right.narrow(-2, j, width);
    top.copy_(linalg::solve_triangular(panel.narrow(-2, 0, width), top, false, true, true));
    if (next < m)
      right.narrow(-2, next, m - next).sub_(matmul(panel.narrow(-2, width, rows - width), top));
  }
}

// The first zero on the diagonal of U, from 1, or 0.
Tensor first_zero_pivot(const Tensor& lu) {
  const Tensor zero = lu.diagonal(0, -2, -1) == 0;
  if (zero.size(-1) == 0) return zeros(batch_sizes(lu.sizes()), TensorOptions(kInt32, lu.device()));
  return (zero.to(kInt32).argmax(-1) + 1) * zero.any({-1});
}

// Unit lower and upper triangular factors, the thin ones.
Tensor lower_factor(const Tensor& lu) {
  const int64_t k = std::min(lu.size(-1), lu.size(-2));
  const Tensor lower = lu.narrow(-1, 0, k).tril(-1);
  // Beside its history: these elements have no gradient.
  lower.detach().diagonal(0, -2, -1).fill_(Scalar(1));
  return lower;
}
Tensor upper_factor(const Tensor& lu) {
  return lu.narrow(-2, 0, std::min(lu.size(-1), lu.size(-2))).triu();
}

Tensor permutation_matrix(const Tensor& pivots, int64_t n, DType dtype);

// With P^T A = [A1 A2; A3 ...] = L U: of the leading square block the gradient is
// L^-H [tril(L^H gL, -1) + triu(gU U^H)] U^-H, where the blocks beside it and below it, which
// depend on L (wide) or U (tall) as well, add to the inner parts.
Tensor lu_gradient(const Tensor& grad, const Tensor& lu, const Tensor& pivots) {
  const int64_t m = lu.size(-2), n = lu.size(-1), k = std::min(m, n);
  const Tensor square = lu.narrow(-2, 0, k).narrow(-1, 0, k);
  const Tensor g = grad.narrow(-2, 0, k).narrow(-1, 0, k);
  // L^H and U^H are triangles of it. What is used up makes room for the next.
  const Tensor both = adjoint(square);
  Tensor inner = matmul(adjoint(lower_factor(square)), g.tril(-1)), rest;
  if (n > m) {
    const Tensor u2 = lu.narrow(-1, k, n - k), gu2 = grad.narrow(-1, k, n - k);
    inner = call_over(std::move(inner), "sub", {matmul(gu2, adjoint(u2)), Scalar(1)});
    rest = linalg::solve_triangular(both, gu2, true, true, true);
  }
  inner = call_over(std::move(inner), "tril", {-1});
  Tensor upper = matmul(g.triu(), adjoint(square.triu()));
  if (m > n) {
    const Tensor l2 = lu.narrow(-2, k, m - k), gl2 = grad.narrow(-2, k, m - k);
    upper = call_over(std::move(upper), "sub", {matmul(adjoint(l2), gl2), Scalar(1)});
    rest = linalg::solve_triangular(both, gl2, false, false);
  }
  inner = call_over(std::move(inner), "add", {call_over(std::move(upper), "triu", {0}), Scalar(1)});
  inner = linalg::solve_triangular(both, inner, false, false);
  Tensor ga = linalg::solve_triangular(both, inner, true, true, true);
  inner = Tensor();
  if (rest.defined()) ga = cat({ga, rest}, n > m ? -1 : -2);
  rest = Tensor();
  return matmul(permutation_matrix(pivots, m, lu.dtype()), ga);
}

std::string zero_in_u_text(int64_t info) {
  const std::string k = std::to_string(info);
  return "U[" + k + "," + k +
         "] is zero and using it on lu_solve would result in a division by zero. If you still want "
         "to perform the factorization, consider calling linalg.lu(A, pivot) or "
         "linalg.lu_factor_ex(A, pivot)";
}

const OpRecord& linalg_lu_factor_ex_op =
    define(
        "linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, "
        "Tensor pivots, Tensor info)")
        .doc(
            "Both LU factors in one matrix, row exchanges, and where U has a zero on its diagonal.")
        .batched(vmaps::leading)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& a = c.tensor(0);
          check_factorizable(public_name(c), a);
          check_matrix(public_name(c), a);
          const Shape batch = batch_sizes(a.sizes());
          const int64_t m = a.size(-2), n = a.size(-1);
          out.push_back(matrix_spec(batch, m, n, a));
          out.push_back({with_sizes(batch, {std::min(m, n)}), kInt32});
          out.push_back({batch, kInt32});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& a = c.tensor(0);
          p.copy({view_of(out[0]), view_of(a)});
          if (c.boolean(1)) {
            p.linalg({.op = Factorization::lu,
                      .a = view_of(out[0]),
                      .b = view_of(out[1]),
                      .info = view_of(out[2])});
          } else {
            const PlainCalls guard;
            factor_without_pivots(out[0]);
            const Tensor order =
                arange(Scalar(1), Scalar(out[1].size(-1) + 1), TensorOptions(kInt32, a.device()));
            p.copy({view_of(out[1]), view_of(order, expand(order.layout(), out[1].sizes()))});
            p.copy({view_of(out[2]), view_of(first_zero_pivot(out[0]))});
          }
          if (c.boolean(2)) check_info(public_name(c), out[2], zero_in_u_text);
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              return {lu_gradient(g.grad(), g.output(0), g.output(1))};
            },
            0, 3)
        .no_grad_outputs(6)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) * 2 / 3; })
        .dtypes(kMatrixTypes);

const OpRecord& linalg_lu_factor_op =
    define("linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)")
        .doc("Both LU factors in one matrix, and the row exchanges.")
        .compose([](const Call& c) -> Results {
          check_matrix(public_name(c), c.tensor(0));
          const Results r = call_all(linalg_lu_factor_ex_op, {c.tensor(0), c.boolean(1), false});
          check_info("torch.linalg.lu_factor", r[2], zero_in_u_text);
          return {r[0], r[1]};
        })
        .no_grad_outputs(2)
        .autocast(Autocast::f32)
        .dtypes(kMatrixTypes);

// ---- permutations

// Where the row that ends up at a position comes from, by the exchanges from the last to the first:
// positions are rows of the recurrence, which wait for no others. A step is kExchanges of them,
// whose pivots are read at once, ahead of it; beyond the last there are exchanges of a row with
// itself.
constexpr int kExchanges = 16;
const expr::Program& origin_program() {
  static const auto& program = *new expr::ProgramPtr(expr::trace(
      [](std::span<const expr::Value> v) {
        using expr::Type;
        const expr::Value step = v[2], row = v[3], n = v[5], count = v[6];
        const expr::Value first = step * double(kExchanges), matrix = floor_div(row, n);
        // Rows count from `first` on, so that the exchanged ones are constants.
        const expr::Value state = expr::where(first + double(kExchanges) >= count, row - matrix * n,
                                              expr::load(v[0], v[1]));
        expr::Value at = cast(state - first, Type::i32);
        const expr::Value pivots = matrix * count + first,
                          last = cast(count - first, Type::i32) - 1.0, size = cast(n, Type::i32),
                          begin = cast(first, Type::i32) + 1.0;
        for (int k = kExchanges - 1; k >= 0; --k) {
          const expr::Value place = cast(expr::min(last, double(k)), Type::i64);
          const expr::Value given = expr::load(v[4], pivots + place);
          const expr::Value pivot = expr::where(last < double(k), double(k),
                                                expr::max(expr::min(given, size), 1.0) - begin);
          at = expr::where(at == double(k), pivot, expr::where(at == pivot, double(k), at));
        }
        return std::vector{cast(at, Type::i64) + first};
      },
      std::array{kInt64, kInt64, kInt64, kInt64, kInt32},
      std::array{expr::Type::i64, expr::Type::i64}, std::array{kInt64}, 0b10001));
  return *program;
}

void order_on_device(const Tensor& pivots, const Tensor& out, prim::Primitives& p) {
  const int64_t k = pivots.size(-1), n = out.size(-1);
  if (out.numel() == 0) return;
  if (k == 0) {
    const prim::ScratchView unchanged(p, kInt64, Shape{n});
    p.iota({.out = unchanged, .istart = 0, .istep = 1});
    return p.copy({view_of(out), unchanged});
  }
  const prim::ScratchView dense(p, kInt32, pivots.sizes());
  p.copy({dense, view_of(pivots)});
  const prim::View exchanges = dense;
  const Shape sizes{1, out.numel(), 1}, strides{0, 1, 1};
  prim::View order = view_of(out);
  order.sizes = sizes, order.strides = strides;
  const expr::Literal numbers[] = {{.i = n}, {.i = k}};
  p.recurrence({.program = &origin_program(),
                .steps = (k + kExchanges - 1) / kExchanges,
                .rows = out.numel(),
                .states = 1,
                .inputs = {&exchanges, 1},
                .out = order,
                .reverse = true,
                .params = numbers});
}

const OpRecord& lu_permutation_op =
    define("lu_permutation(Tensor LU_pivots, int n) -> Tensor")
        .surface(Surface::internal)
        .doc("The order of n rows after the exchanges of an LU factorization.")
        .batched(vmaps::leading_of_rows)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& pivots = c.tensor(0);
          ARETE_CHECK(pivots.dtype() == kInt32,
                      TypeError(c.name(),
                                "LU_pivots is expected to be a contiguous tensor of "
                                "torch.int32 dtype. Note: this function is intended to "
                                "be used with the output produced by linalg.lu_factor")
                          .got(describe(pivots)));
          ARETE_CHECK(
              pivots.dim() >= 1 && pivots.size(-1) <= c.integer(1),
              ValueError(c.name(), "LU_pivots does not fit the matrix")
                  .got(describe(pivots) + " for " + std::to_string(c.integer(1)) + " rows"));
          out.push_back({with_sizes(batch_sizes(pivots.sizes(), 1), {c.integer(1)}), kInt64});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& pivots = c.tensor(0);
          // The host exchanges two rows, and looks at the pivots, in no time; a device is not to
          // wait for it.
          if (!pivots.device().is_cpu()) return order_on_device(pivots, out[0], p);
          const int64_t k = pivots.size(-1), n = c.integer(1);
          const int64_t count = numel_of(batch_sizes(pivots.sizes(), 1));
          std::vector<int32_t> exchanges(static_cast<size_t>(count * k), 0);
          read_to_host(pivots, pivots.layout(), exchanges.data());
          for (int32_t e : exchanges)
            ARETE_CHECK(e >= 1 && e <= n,
                        ValueError(c.name(),
                                   "pivots passed to lu_unpack must be between 1 and "
                                   "LU.size(-2) inclusive. Did you properly pass the "
                                   "result of lu_factor?")
                            .got(std::to_string(e)));
          std::vector<int64_t> orders(static_cast<size_t>(count * n), 0);
          for (int64_t b = 0; b < count; ++b)
            apply_exchanges(exchanges.data() + b * k, k, orders.data() + b * n, n);
          write_from_host(out[0], orders.data());
        })
        .dtypes({kInt32});

// P with P^T A having the rows in their new order.
Tensor permutation_matrix(const Tensor& pivots, int64_t n, DType dtype) {
  const Tensor order = call(lu_permutation_op, {pivots, n});
  Tensor p = zeros(with_sizes(batch_sizes(order.sizes(), 1), {n, n}),
                   TensorOptions(dtype, pivots.device()));
  return p.scatter_(-2, order.unsqueeze(-2), Scalar(1));
}

const OpRecord& lu_unpack_op =
    define(
        "lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool "
        "unpack_pivots=True) -> (Tensor P, Tensor L, Tensor U)")
        .doc("P, L and U of the result of an LU factorization; parts not wanted are empty.")
        .compose([](const Call& c) -> Results {
          const Tensor& lu = c.tensor(0);
          check_matrix(c.name(), lu, "LU_data");
          const Tensor none = empty({0}, lu.options());
          return {c.boolean(3) ? permutation_matrix(c.tensor(1), lu.size(-2), lu.dtype()) : none,
                  c.boolean(2) ? lower_factor(lu) : none, c.boolean(2) ? upper_factor(lu) : none};
        })
        .dtypes(kMatrixTypes);

const OpRecord& linalg_lu_op =
    define("linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)")
        .doc("P, L, U with A = P L U.")
        .compose([](const Call& c) -> Results {
          check_matrix(public_name(c), c.tensor(0));
          const bool pivot = c.boolean(1);  // without it there is no P
          const Results r = call_all(linalg_lu_factor_ex_op, {c.tensor(0), pivot, false});
          const auto [p, l, u] = lu_unpack(r[0], r[1], true, pivot);
          return {p, l, u};
        })
        .autocast(Autocast::f32)
        .dtypes(kMatrixTypes);

// ---- solving with the factors

Tensor solve_with_factors(const Tensor& lu, const Tensor& pivots, const Tensor& b,
                          bool of_adjoint) {
  const Tensor p = permutation_matrix(pivots, lu.size(-2), lu.dtype());
  if (!of_adjoint) {
    const Tensor y = linalg::solve_triangular(lu, matmul(p.mT(), b), false, true, true);
    return linalg::solve_triangular(lu, y, true);
  }
  const Tensor turned = adjoint(lu), y = linalg::solve_triangular(turned, b, false);
  return matmul(p, linalg::solve_triangular(turned, y, true, true, true));
}

// As LAPACK computes it, without a gradient.
const OpRecord& lu_solution_op =
    define(
        "lu_solution(Tensor LU, Tensor pivots, Tensor B, bool left=True, bool transposed=False) -> "
        "Tensor")
        .surface(Surface::internal)
        .doc("linalg_lu_solve of factors without history.")
        .batched(vmaps::leading_with_vectors)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &lu = c.tensor(0), &b = c.tensor(2);
          const Shape batch =
              broadcast_shapes(batch_sizes(lu.sizes()), batch_sizes(b.sizes()), c.name());
          if (c.boolean(3))
            out.push_back(matrix_spec(batch, b.size(-2), b.size(-1), b));
          else
            out.push_back({with_sizes(batch, {b.size(-2), b.size(-1)}), b.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          solve_by_factors(c.tensor(0), c.tensor(1), c.tensor(2), out[0], c.boolean(3),
                           c.boolean(4), p);
        })
        .dtypes(kMatrixTypes);

Results lu_solve_with(const Call& c, const Tensor& lu, const Tensor& pivots, const Tensor& b,
                      bool left, bool of_adjoint) {
  const FullPrecision guard;
  check_factorizable(public_name(c), lu);
  check_square("torch.linalg.lu_solve", lu, "A");
  check_matrix(public_name(c), b, "B");
  check_same_dtype(public_name(c), lu, b);
  const bool recorded = will_record(lu) || will_record(b);
  if (!recorded && lu.device() == pivots.device() && pivots.dtype() == kInt32 &&
      std::ranges::equal(pivots.sizes(), lu.sizes().first(size_t(lu.dim() - 1))) &&
      lu.size(-1) == b.size(left ? -2 : -1)) {
    // Only the host looks at the pivots before it exchanges rows by them.
    Tensor factors = lu, within = pivots;
    if (!lu.device().is_cpu()) {
      drop_repeats(factors, &within);
      within = within.clamp(Scalar(1), Scalar(lu.size(-1))).expand(pivots.sizes());
    }
    return {lu_solution(lu, within, b, left, of_adjoint)};
  }
  if (left) return {solve_with_factors(lu, pivots, b, of_adjoint)};
  return {adjoint(solve_with_factors(lu, pivots, adjoint(b), !of_adjoint))};
}

const OpRecord& linalg_lu_solve_op =
    define(
        "linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool "
        "adjoint=False) -> Tensor")
        .doc("X with A X = B from the LU factors of A.")
        .compose([](const Call& c) {
          return lu_solve_with(c, c.tensor(0), c.tensor(1), c.tensor(2), c.boolean(3),
                               c.boolean(4));
        })
        .autocast(Autocast::f32)
        .dtypes(kMatrixTypes);

const OpRecord& lu_solve_op =
    define("lu_solve(Tensor self, Tensor LU_data, Tensor LU_pivots) -> Tensor")
        .doc("X with A X = B (self) from the LU factors of A.")
        .compose([](const Call& c) {
          return lu_solve_with(c, c.tensor(1), c.tensor(2), c.tensor(0), true, false);
        })
        .autocast(Autocast::f32)
        .dtypes(kMatrixTypes);

}  // namespace

void solve_by_factors(Tensor lu, Tensor pivots, const Tensor& b, const Tensor& out, bool left,
                      bool transposed, prim::Primitives& p) {
  if (out.numel() == 0) return;
  drop_repeats(lu, &pivots);
  const Shape whole = batch_sizes(out.sizes()), own = batch_sizes(lu.sizes());
  std::optional<SharedSides> shared;
  if (SharedSides::are_in(out, own, left)) {
    shared.emplace(own, b, out, left, p);
  } else {
    p.copy({view_of(out), view_of(b, expand(b.layout(), out.sizes()))});
  }
  const Shape& batch = shared ? shared->batch() : whole;
  const Shape of_lu = with_sizes(batch, {lu.size(-2), lu.size(-1)});
  const Shape of_pivots = with_sizes(batch, {pivots.size(-1)});
  lu = shared ? lu.view(of_lu) : lu.expand(of_lu);
  if (!lu.mT().is_contiguous()) lu = column_major(lu, batch, p);
  pivots = shared ? pivots.view(of_pivots) : pivots.expand(of_pivots);
  const DenseView dense(p, pivots, kInt32);
  // X A = B is A^T X^T = B^T, and a row-major X is a column-major X^T.
  const Tensor x = shared ? shared->columns() : left ? out : out.mT();
  const Tensor info = empty_info(x);
  p.linalg({.op = Factorization::lu_solve,
            .a = view_of(lu),
            .b = dense.view(),
            .c = view_of(x),
            .info = view_of(info),
            .transposed = transposed == left});
  if (shared) shared->finish(p);
}

Tensor lu_solution(const Tensor& lu, const Tensor& pivots, const Tensor& b, bool left,
                   bool of_adjoint) {
  const Tensor factors = of_adjoint && is_complex(lu.dtype()) ? conj(lu) : lu;
  return call(lu_solution_op, {factors, pivots, b, left, of_adjoint});
}

}  // namespace ops

namespace linalg {
std::tuple<Tensor, Tensor, Tensor> lu(const Tensor& a) {
  const auto r = ops::call_all(ops::linalg_lu_op, {a, true});
  return {r[0], r[1], r[2]};
}
std::tuple<Tensor, Tensor> lu_factor(const Tensor& a) {
  const auto r = ops::call_all(ops::linalg_lu_factor_op, {a, true});
  return {r[0], r[1]};
}
std::tuple<Tensor, Tensor, Tensor> lu_factor_ex(const Tensor& a, bool check_errors) {
  const auto r = ops::call_all(ops::linalg_lu_factor_ex_op, {a, true, check_errors});
  return {r[0], r[1], r[2]};
}
Tensor lu_solve(const Tensor& lu, const Tensor& pivots, const Tensor& b, bool left, bool adjoint) {
  return ops::call(ops::linalg_lu_solve_op, {lu, pivots, b, left, adjoint});
}
}  // namespace linalg

std::tuple<Tensor, Tensor, Tensor> lu_unpack(const Tensor& lu, const Tensor& pivots,
                                             bool unpack_data, bool unpack_pivots) {
  const auto r = ops::call_all(ops::lu_unpack_op, {lu, pivots, unpack_data, unpack_pivots});
  return {r[0], r[1], r[2]};
}
Tensor lu_solve(const Tensor& self, const Tensor& lu, const Tensor& pivots) {
  return ops::call(ops::lu_solve_op, {self, lu, pivots});
}

}  // namespace arete

ARETE_FAMILY(linalg_lu)
