// Factors of symmetric indefinite matrices, A = P L D L^T P^T, by the pivoting of Bunch and Kaufman
// ("Some stable methods for calculating inertia and solving symmetric linear systems", 1977), as
// LAPACK's sytf2 and sytrs lay them out. Every pivot depends on the one before: it runs on the
// host.
#include <algorithm>
#include <cmath>
#include <utility>

#include "arete/base/thread_pool.h"
#include "arete/core/host_access.h"
#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {
namespace ops {
namespace {

// A row-major matrix in host memory.
template <class T>
struct Rows {
  T* data;
  int64_t columns;
  T& operator()(int64_t i, int64_t j) const { return data[i * columns + j]; }
};

// Which of the rows `from` to n has the largest element of column k.
template <class T>
int64_t largest_below(const Rows<T>& a, int64_t from, int64_t n, int64_t k) {
  int64_t best = from;
  for (int64_t i = from + 1; i < n; ++i)
    if (std::fabs(a(i, k)) > std::fabs(a(best, k))) best = i;
  return best;
}

struct Pivot {
  int64_t with;
  int64_t size;  // 1, or 2: a block of two on the diagonal
};

// The pivot of step k, so that no element grows by more than a factor.
template <class T>
Pivot choose_pivot(const Rows<T>& a, int64_t n, int64_t k) {
  const T growth = T((1 + std::sqrt(17.0)) / 8);
  const T own = std::fabs(a(k, k));
  if (k + 1 == n) return {k, 1};
  const int64_t row = largest_below(a, k + 1, n, k);
  const T column_size = std::fabs(a(row, k));
  if (own >= growth * column_size) return {k, 1};
  T row_size = 0;
  for (int64_t j = k; j < row; ++j) row_size = std::max(row_size, std::fabs(a(row, j)));
  for (int64_t i = row + 1; i < n; ++i) row_size = std::max(row_size, std::fabs(a(i, row)));
  if (own >= growth * column_size * (column_size / row_size)) return {k, 1};
  return {row, std::fabs(a(row, row)) >= growth * row_size ? 1 : 2};
}

// Exchanges rows and columns p and q > p of what is left, of which the lower triangle is kept.
template <class T>
void exchange(const Rows<T>& a, int64_t n, int64_t p, int64_t q) {
  for (int64_t i = q + 1; i < n; ++i) std::swap(a(i, p), a(i, q));
  for (int64_t i = p + 1; i < q; ++i) std::swap(a(i, p), a(q, i));
  std::swap(a(p, p), a(q, q));
}

// Overwrites the lower triangle of a with L and D. `info` is the first zero pivot, or 0. `columns`
// has room for 2 n numbers.
template <class T>
void factor(const Rows<T>& a, int64_t n, int32_t* pivots, int32_t& info, T* columns) {
  info = 0;
  for (int64_t k = 0; k < n;) {
    Pivot p = choose_pivot(a, n, k);
    const bool nothing = a(k, k) == 0 && (k + 1 == n || a(largest_below(a, k + 1, n, k), k) == 0);
    if (nothing || std::isnan(a(k, k))) {
      if (info == 0) info = int32_t(k + 1);
      pivots[k] = int32_t(k + 1);
      ++k;
      continue;
    }
    const int64_t last = k + p.size - 1;
    if (p.with != last) {
      exchange(a, n, last, p.with);
      if (p.size == 2) std::swap(a(k + 1, k), a(p.with, k));
    }
    // The new columns are kept side by side, so that what is left changes row by row.
    T* const w0 = columns;
    T* const w1 = columns + n;
    if (p.size == 1) {
      const T scale = 1 / a(k, k);
      for (int64_t i = k + 1; i < n; ++i) {
        const T x = a(i, k);
        w0[i] = scale * x;
        a(i, k) = w0[i];
        for (int64_t j = k + 1; j <= i; ++j) a(i, j) -= x * w0[j];
      }
      pivots[k] = int32_t(p.with + 1);
    } else {
      const T off = a(k + 1, k), d11 = a(k + 1, k + 1) / off, d22 = a(k, k) / off;
      const T scale = 1 / ((d11 * d22 - 1) * off);
      for (int64_t i = k + 2; i < n; ++i) {
        const T x = a(i, k), y = a(i, k + 1);
        w0[i] = scale * (d11 * x - y);
        w1[i] = scale * (d22 * y - x);
        a(i, k) = w0[i];
        a(i, k + 1) = w1[i];
        for (int64_t j = k + 2; j <= i; ++j) a(i, j) -= x * w0[j] + y * w1[j];
      }
      pivots[k] = pivots[k + 1] = -int32_t(p.with + 1);
    }
    k += p.size;
  }
}

// What a step of the factorization exchanged and divided by.
struct Step {
  int64_t first, size;  // of its pivot
  int64_t row, with;    // exchanged
};
// Calls f(step) for each step, backwards if asked.
template <class F>
void for_steps(const int32_t* pivots, int64_t n, bool backwards, const F& f) {
  for (int64_t k = backwards ? n - 1 : 0; backwards ? k >= 0 : k < n;) {
    const int64_t size = pivots[k] > 0 ? 1 : 2, first = backwards ? k + 1 - size : k;
    f(Step{first, size, first + size - 1, std::abs(int64_t(pivots[k])) - 1});
    k += backwards ? -size : size;
  }
}

// Leaves L alone in a, whose rows each step exchanged as far as they were done, and so with P A P^T
// = L D L^T; `off` gets what D has below its diagonal.
template <class T>
void unfold(const Rows<T>& a, int64_t n, const int32_t* pivots, T* off) {
  for_steps(pivots, n, false, [&](const Step& s) {
    if (s.row != s.with) std::swap_ranges(&a(s.row, 0), &a(s.row, 0) + s.first, &a(s.with, 0));
    if (s.size == 2) off[s.first] = std::exchange(a(s.row, s.first), T(0));
  });
}

// A column of the right side becomes D^-1 of it.
template <class T>
void divide(const Rows<T>& a, int64_t n, const int32_t* pivots, const T* off, T* b) {
  for_steps(pivots, n, false, [&](const Step& s) {
    const int64_t k = s.first;
    if (s.size == 1) {
      b[k] /= a(k, k);
      return;
    }
    const T d11 = a(k, k) / off[k], d22 = a(k + 1, k + 1) / off[k];
    const T determinant = d11 * d22 - 1, b0 = b[k] / off[k], b1 = b[k + 1] / off[k];
    b[k] = (d22 * b0 - b1) / determinant;
    b[k + 1] = (d11 * b1 - b0) / determinant;
  });
}

// f(first, last) in parallel over matrices that take some `work` each.
template <class F>
void for_matrices(int64_t count, int64_t work, const F& f) {
  parallel_for(0, count, grain_for(4.0 * double(work + 100)), f);
}

template <class T>
std::vector<T> on_host(const Tensor& t, IntList batch) {
  Shape sizes(batch);
  for (int64_t s : t.sizes().subspan(t.sizes().size() - (t.dtype() == kInt32 ? 1 : 2)))
    sizes.push_back(s);
  std::vector<T> values(size_t(numel_of(sizes)));
  read_to_host(t, expand(t.layout(), sizes), values.data());
  return values;
}

template <class T>
void run_factor(const Tensor& a, std::span<const Tensor> out) {
  const Shape batch = batch_sizes(a.sizes());
  const int64_t n = a.size(-1), count = numel_of(batch);
  std::vector<T> values = on_host<T>(a, batch);
  std::vector<int32_t> pivots(size_t(count * n)), info(size_t(count), 0);
  for_matrices(count, n * n * n, [&](int64_t first, int64_t last) {
    std::vector<T> columns(size_t(2 * n));
    for (int64_t i = first; i < last; ++i) {
      const Rows<T> m{values.data() + i * n * n, n};
      for (int64_t r = 0; r < n; ++r) std::fill(&m(r, 0) + r + 1, &m(r, 0) + n, T(0));
      factor(m, n, pivots.data() + i * n, info[size_t(i)], columns.data());
    }
  });
  write_from_host(out[0], values.data());
  write_from_host(out[1], pivots.data());
  write_from_host(out[2], info.data());
}

template <class T>
void run_solve(const Tensor& ld, const Tensor& pivots, const Tensor& b, const Tensor& out,
               prim::Primitives& p) {
  const Shape batch = batch_sizes(out.sizes());
  const int64_t n = ld.size(-1), columns = b.size(-1), count = numel_of(batch);
  std::vector<T> a = on_host<T>(ld, batch), x = on_host<T>(b.mT(), batch);  // x: columns
  const std::vector<int32_t> exchanges = on_host<int32_t>(pivots, batch);
  for (int64_t i = 0; i < count * n; ++i) {  // blocks of two have the same negative number twice
    const int32_t e = exchanges[size_t(i)];
    const bool block = e < 0;
    ARETE_CHECK(e != 0 && std::abs(int64_t(e)) <= n &&
                    (!block || ((i + 1) % n != 0 && exchanges[size_t(i + 1)] == e)),
                ValueError("linalg.ldl_solve", "pivots are not those of ldl_factor")
                    .got(std::to_string(e)));
    i += block;
  }
  if (out.numel() == 0) return;
  std::vector<T> off(size_t(count * n));
  // f(L and D, exchanges, what D has beside its diagonal, number of the matrix) for each matrix.
  const auto for_each = [&](const auto& f) {
    for_matrices(count, n * (n + columns), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i)
        f(Rows<T>{a.data() + i * n * n, n}, exchanges.data() + i * n, off.data() + i * n, i);
    });
  };
  const auto for_columns = [&](int64_t matrix, const auto& f) {
    for (int64_t c = 0; c < columns; ++c) f(x.data() + (matrix * columns + c) * n);
  };
  for_each([&](const Rows<T>& m, const int32_t* e, T* o, int64_t matrix) {
    unfold(m, n, e, o);
    for_columns(matrix, [&](T* y) {
      for_steps(e, n, false, [&](const Step& s) { std::swap(y[s.row], y[s.with]); });
    });
  });
  const Tensor l = empty_tensor(with_sizes(batch, {n, n}), ld.dtype(), out.device());
  write_from_host(l, a.data());
  const TriangularFactor factor(l, batch, false, p);
  const Tensor turned = out.mT();  // as x
  const auto solve = [&](bool adjoint) {
    write_from_host(turned, x.data());
    factor.solve(out, p, adjoint, true, true);
    read_to_host(turned, turned.layout(), x.data());
  };
  solve(false);
  for_each([&](const Rows<T>& m, const int32_t* e, T* o, int64_t matrix) {
    for_columns(matrix, [&](T* y) { divide(m, n, e, o, y); });
  });
  solve(true);
  for_each([&](const Rows<T>&, const int32_t* e, T*, int64_t matrix) {
    for_columns(matrix, [&](T* y) {
      for_steps(e, n, true, [&](const Step& s) { std::swap(y[s.row], y[s.with]); });
    });
  });
  write_from_host(turned, x.data());
}

void check_real(const std::string& name, const Tensor& t) {
  ARETE_CHECK(!is_complex(t.dtype()),
              NotImplementedError(name, name + ": complex numbers are not supported"));
}

std::string zero_in_d_text(int64_t info) {
  const std::string k = std::to_string(info);
  return "D[" + k + "," + k +
         "] is zero and using it on ldl_solve would result in a division by zero.";
}

const OpRecord& linalg_ldl_factor_ex_op =
    define(
        "linalg_ldl_factor_ex(Tensor self, *, bool hermitian=False, bool check_errors=False) -> "
        "(Tensor LD, Tensor pivots, Tensor info)")
        .doc("L and D of symmetric matrices in one, exchanges, and where D has a zero.")
        .batched(vmaps::leading)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& a = c.tensor(0);
          check_real("torch." + public_name(c), a);
          check_factorizable("torch." + public_name(c), a);
          check_square("torch." + public_name(c), a);
          const Shape batch = batch_sizes(a.sizes());
          out.push_back({Shape(a.sizes()), a.dtype()});
          out.push_back({with_sizes(batch, {a.size(-1)}), kInt32});
          out.push_back({batch, kInt32});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives&) {
          (out[0].dtype() == kFloat64 ? run_factor<double> : run_factor<float>)(c.tensor(0), out);
          if (c.boolean(2)) check_info("torch." + public_name(c), out[2], zero_in_d_text);
        })
        .no_grad_outputs(7)
        .autocast(Autocast::f32)
        .flops([](const Call& c) { return factorization_flops(c) / 3; })
        .dtypes(kFactorizableTypes);

const OpRecord& linalg_ldl_factor_op =
    define("linalg_ldl_factor(Tensor self, *, bool hermitian=False) -> (Tensor LD, Tensor pivots)")
        .doc("L and D of symmetric matrices in one, and the exchanges of rows and columns.")
        .compose([](const Call& c) -> Results {
          const Results r = call_all(linalg_ldl_factor_ex_op, {c.tensor(0), c.boolean(1), false});
          check_info("torch.linalg.ldl_factor", r[2], zero_in_d_text);
          return {r[0], r[1]};
        })
        .dtypes(kFactorizableTypes);

const OpRecord& linalg_ldl_solve_op =
    define(
        "linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> Tensor")
        .doc("X with A X = B from the results of ldl_factor.")
        .batched(vmaps::leading_with_vectors)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &ld = c.tensor(0), &pivots = c.tensor(1), &b = c.tensor(2);
          const std::string name = "torch." + public_name(c);
          check_real(name, ld);
          check_factorizable(name, ld);
          check_square(name, ld, "LD");
          check_matrix(name, b, "B");
          check_same_dtype(name, ld, b);
          ARETE_CHECK(pivots.dtype() == kInt32,
                      TypeError(name, name + ": Expected pivots to be integers. Got " +
                                          std::string(name_of(pivots.dtype()))));
          const IntList rows = ld.sizes().first(ld.sizes().size() - 1);
          ARETE_CHECK(std::ranges::equal(pivots.sizes(), rows),
                      ValueError(name, name +
                                           ": Expected LD.shape[:-1] and pivots.shape to be the "
                                           "same, but got pivots with shape " +
                                           to_string(pivots.sizes()) + " instead"));
          ARETE_CHECK(ld.size(-1) == b.size(-2),
                      ValueError(name, "Incompatible matrix sizes for " + name +
                                           ": each A matrix is " + std::to_string(ld.size(-1)) +
                                           " by " + std::to_string(ld.size(-1)) +
                                           " but each b matrix is " + std::to_string(b.size(-2)) +
                                           " by " + std::to_string(b.size(-1))));
          const Shape batch =
              broadcast_shapes(batch_sizes(ld.sizes()), batch_sizes(b.sizes()), c.name());
          out.push_back(matrix_spec(batch, b.size(-2), b.size(-1), b));
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          (out[0].dtype() == kFloat64
               ? run_solve<double>
               : run_solve<float>)(c.tensor(0), c.tensor(1), c.tensor(2), out[0], p);
        })
        .no_grad_outputs(1)
        .autocast(Autocast::f32)
        .dtypes(kFactorizableTypes);

}  // namespace
}  // namespace ops

namespace linalg {
std::tuple<Tensor, Tensor> ldl_factor(const Tensor& a, bool hermitian) {
  const auto r = ops::call_all(ops::linalg_ldl_factor_op, {a, hermitian});
  return {r[0], r[1]};
}
std::tuple<Tensor, Tensor, Tensor> ldl_factor_ex(const Tensor& a, bool hermitian,
                                                 bool check_errors) {
  const auto r = ops::call_all(ops::linalg_ldl_factor_ex_op, {a, hermitian, check_errors});
  return {r[0], r[1], r[2]};
}
Tensor ldl_solve(const Tensor& ld, const Tensor& pivots, const Tensor& b, bool hermitian) {
  return ops::call(ops::linalg_ldl_solve_op, {ld, pivots, b, hermitian});
}
}  // namespace linalg

}  // namespace arete

ARETE_FAMILY(linalg_ldl)
