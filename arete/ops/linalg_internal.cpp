#include "arete/ops/linalg_internal.h"

#include <algorithm>
#include <vector>

#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/over.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/target.h"
#include "arete/ops/vmap.h"

namespace arete::ops {

std::string public_name(const Call& c) {
  const std::string& name = c.op.name;
  return name.starts_with("linalg_") ? "linalg." + name.substr(7) : name;
}

void check_factorizable(const std::string& name, const Tensor& t) {
  if (is_complex(t.dtype())) return;
  ARETE_CHECK(
      is_floating(t.dtype()),
      TypeError(name, name + ": Expected a floating point or complex tensor as input. Got " +
                          std::string(name_of(t.dtype()))));
  ARETE_CHECK(t.dtype() == kFloat32 || t.dtype() == kFloat64,
              NotImplementedError(name, name + ": Low precision dtypes not supported. Got " +
                                            std::string(name_of(t.dtype())))
                  .hint("convert with .to(float32)"));
}

void check_matrix(const std::string& name, const Tensor& t, const char* argument) {
  ARETE_CHECK(t.dim() >= 2, ValueError(name, name + ": The input tensor " + argument +
                                                 " must have at least 2 dimensions.")
                                .got(describe(t)));
}

void check_square(const std::string& name, const Tensor& t, const char* argument) {
  check_matrix(name, t, argument);
  ARETE_CHECK(t.size(-1) == t.size(-2),
              ValueError(name, name + ": " + argument +
                                   " must be batches of square matrices, but they are " +
                                   std::to_string(t.size(-2)) + " by " +
                                   std::to_string(t.size(-1)) + " matrices"));
}

void check_same_dtype(const std::string& name, const Tensor& a, const Tensor& b) {
  ARETE_CHECK(a.dtype() == b.dtype(),
              TypeError(name, name +
                                  ": Expected A and B to have the same dtype, but found A of "
                                  "type " +
                                  std::string(name_of(a.dtype())) + " and B of type " +
                                  std::string(name_of(b.dtype())) + " instead"));
}

Shape with_sizes(IntList batch, std::initializer_list<int64_t> more) {
  Shape s(batch);
  for (int64_t n : more) s.push_back(n);
  return s;
}

void square_with_info(const Call& c, OutputSpecs& out) {
  const Tensor& a = c.tensor(0);
  check_factorizable(public_name(c), a);
  check_square(public_name(c), a);
  const Shape batch = batch_sizes(a.sizes());
  out.push_back(matrix_spec(batch, a.size(-1), a.size(-1), a));
  out.push_back({batch, kInt32});
}

OutputSpec matrix_spec(IntList batch, int64_t rows, int64_t columns, const Tensor& like) {
  const Layout l = transpose(Layout(with_sizes(batch, {columns, rows})), -1, -2);
  return {l.sizes, like.dtype(), l.strides, like.device()};
}

Tensor column_major(const Tensor& t, IntList batch, prim::Primitives& p) {
  const Tensor out = empty_tensor(matrix_spec(batch, t.size(-2), t.size(-1), t));
  p.copy({view_of(out), view_of(t, expand(t.layout(), out.sizes()))});
  return out;
}

TriangularFactor::TriangularFactor(const Tensor& a, IntList batch, bool reads_upper,
                                   prim::Primitives& p)
    : transposed(false) {
  const Shape own = batch_sizes(a.sizes());
  const bool whole = std::equal(own.begin(), own.end(), batch.begin(), batch.end());
  if (whole && a.is_contiguous()) {
    transposed = true;
    matrices = a.mT();
  } else {
    matrices = whole && a.mT().is_contiguous() ? a : column_major(a, batch, p);
  }
  upper = reads_upper != transposed;
}

void TriangularFactor::solve(const Tensor& b, prim::Primitives& p, bool of_transposed, bool left,
                             bool unit) const {
  if (b.numel() == 0) return;
  const Tensor info = empty_info(b);
  p.linalg({.op = Factorization::triangular_solve,
            .a = view_of(matrices),
            .b = view_of(b),
            .info = view_of(info),
            .upper = upper,
            .left = left,
            .unit = unit,
            .transposed = transposed != of_transposed});
}

namespace {
// Numbers of the dimensions of a batch of matrices that are those of `own`, and of those along
// which it is repeated.
struct BatchDims {
  Shape kept, shared;
};
BatchDims dims_of_batch(IntList sizes, IntList own) {
  const int64_t batch = int64_t(sizes.size()) - 2, missing = batch - int64_t(own.size());
  BatchDims dims;
  for (int64_t d = 0; d < batch; ++d) {
    const int64_t its = d < missing ? 1 : own[size_t(d - missing)];
    (its == sizes[size_t(d)] ? dims.kept : dims.shared).push_back(d);
  }
  return dims;
}
}  // namespace

Tensor sum_of_products(const Tensor& a, const Tensor& b, IntList sizes) {
  const auto [kept, shared] = dims_of_batch(a.sizes(), batch_sizes(sizes));
  if (shared.empty()) return sum_to_size(matmul(a, b), sizes);
  const int64_t rows = a.dim() - 2, columns = rows + 1;
  Shape of_a(kept), of_b(kept), batch;
  of_a.push_back(rows);
  of_a.append(shared.begin(), shared.end());
  of_a.push_back(columns);
  of_b.append(shared.begin(), shared.end());
  of_b.push_back(rows);
  of_b.push_back(columns);
  for (int64_t d : kept) batch.push_back(a.size(d));
  int64_t terms = a.size(-1);
  for (int64_t d : shared) terms *= a.size(d);
  return matmul(a.permute(of_a).reshape(with_sizes(batch, {a.size(-2), terms})),
                b.permute(of_b).reshape(with_sizes(batch, {terms, b.size(-1)})))
      .view(sizes);
}

namespace {
// What `out` is where the sides of each A lie side by side, each in a row: (kept..., shared...,
// sides, n), as numbers of its dimensions.
struct SidesOrder {
  Shape dims;
  size_t kept;
  bool shares;
  SidesOrder(const Tensor& out, IntList own, bool left) {
    auto [of_batch, shared] = dims_of_batch(out.sizes(), own);
    kept = of_batch.size();
    shares = !shared.empty();
    dims = of_batch;
    dims.append(shared.begin(), shared.end());
    const int64_t columns = out.dim() - 1, rows = columns - 1;
    dims.push_back(left ? columns : rows);
    dims.push_back(left ? rows : columns);
  }
};
}  // namespace

bool SharedSides::are_in(const Tensor& out, IntList own, bool left) {
  const SidesOrder order(out, own, left);
  if (!order.shares) return false;
  const Layout rows = permute(out.layout(), order.dims);
  const int64_t n = rows.sizes[size_t(rows.rank()) - 1],
                sides = rows.sizes[size_t(rows.rank()) - 2];
  // Rows that lie elsewhere are copied twice more, which many of one matrix are not worth; those
  // across are slow to solve where they lie.
  return rows.is_contiguous() || rows.strides[size_t(rows.rank()) - 1] != 1 || sides <= 2 * n;
}

SharedSides::SharedSides(IntList own, const Tensor& b, const Tensor& out, bool left,
                         prim::Primitives& p) {
  const SidesOrder order(out, own, left);
  out_ = out.permute(order.dims);
  batch_ = Shape(out_.sizes().first(order.kept));
  memory_ =
      out_.is_contiguous() ? out_ : empty_tensor(Shape(out_.sizes()), out.dtype(), out.device());
  p.copy({view_of(memory_), view_of(b, permute(expand(b.layout(), out.sizes()), order.dims))});
  const int64_t n = memory_.size(-1);
  rows_ = memory_.view(with_sizes(batch_, {out.numel() / (numel_of(batch_) * n), n}));
}

void SharedSides::finish(prim::Primitives& p) const {
  if (!out_.is_contiguous()) p.copy({view_of(out_), view_of(memory_)});
}

void drop_repeats(Tensor& matrices, Tensor* vectors) {
  for (int64_t d = 0; d < matrices.dim() - 2; ++d) {
    if (matrices.size(d) < 2 || matrices.stride(d) != 0 || (vectors && vectors->stride(d) != 0))
      continue;
    matrices = matrices.narrow(d, 0, 1);
    if (vectors) *vectors = vectors->narrow(d, 0, 1);
  }
}

void check_info(const std::string& name, const Tensor& batched, std::string (*text)(int64_t),
                const char* not_finite) {
  const Tensor info = all_values(batched);
  if (info.is_meta()) return;
  constexpr int64_t kMany = 1024;  // a device finds sooner that none has failed
  if (info.numel() > kMany && !ne(info, Scalar(0)).any().item<bool>()) return;
  const std::vector<int64_t> values = info.to_vector<int64_t>();
  ARETE_CHECK(!not_finite || std::find(values.begin(), values.end(), -1) == values.end(),
              ValueError(name, not_finite));
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] <= 0) continue;
    const std::string element =
        info.dim() ? "(Batch element " + std::to_string(i) + "): " : std::string();
    throw ValueError(name, name + ": " + element + text(values[i]));
  }
}

std::string not_positive_definite_text(int64_t info) {
  return "The factorization could not be completed because the input is not positive-definite (the "
         "leading minor of order " +
         std::to_string(info) + " is not positive-definite).";
}
std::string singular_inverse_text(int64_t info) {
  return "The diagonal element " + std::to_string(info) +
         " is zero, the inversion could not be completed because the input matrix is singular.";
}
std::string singular_solve_text(int64_t) {
  return "The solver failed because the input matrix is singular.";
}

double factorization_flops(const Call& c) {
  const Tensor& a = c.tensor(0);
  return double(a.numel()) * double(std::min(a.size(-1), a.size(-2)));
}

Tensor identities(IntList batch, int64_t n, const TensorOptions& options) {
  return eye(n, options).expand(with_sizes(batch, {n, n}));
}

Tensor diagonal_matrices(const Tensor& v) { return v.unsqueeze(-1) * eye(v.size(-1), v.options()); }

Tensor adjoint(const Tensor& t) { return is_complex(t.dtype()) ? conj(t).mT() : t.mT(); }

Tensor scale_diagonal(Tensor x, double factor) {
  const Tensor factors = eye(x.size(-2), x.size(-1), x.options()) * Scalar(factor - 1) + Scalar(1);
  return call_over(std::move(x), "mul", {factors});
}

// From dP = -P dA P + P P^H dA^H (I - A P) + (I - P A) dA^H P^H P (Golub and Pereyra).
Tensor pinv_gradient(const Tensor& grad, const Tensor& p, const Tensor& a) {
  const Tensor pt = adjoint(p), gt = adjoint(grad);
  const Tensor gp = matmul(gt, p), pg = matmul(p, gt);
  const Tensor first = matmul(pt, matmul(grad, pt));
  const Tensor second = matmul(gp - matmul(a, matmul(p, gp)), pt);
  const Tensor third = matmul(pt, pg - matmul(matmul(pg, p), a));
  return second + third - first;
}

}  // namespace arete::ops
