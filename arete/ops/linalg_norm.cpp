// Norms of vectors and matrices.
#include <cmath>

#include "arete/ops/autocast.h"
#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/reduce_family.h"

namespace arete {
namespace ops {
namespace {

// The input in the type that argument `i` asks for.
Tensor in_dtype(const Call& c, const std::string& name, size_t i) {
  const Tensor& x = c.tensor(0);
  ARETE_CHECK(
      is_differentiable(x.dtype()),
      TypeError(name, name + ": Expected a floating point or complex tensor as input. Got " +
                          std::string(name_of(x.dtype()))));
  if (!c.has(i) || c[i].dtype() == x.dtype()) return x;
  const DType t = c[i].dtype();
  ARETE_CHECK(is_differentiable(t),
              TypeError(name, name +
                                  ": dtype should be floating point or complex. "
                                  "Got " +
                                  std::string(name_of(t))));
  ARETE_CHECK(
      promote_types(x.dtype(), t) == t,
      TypeError(name, name + ": the dtype of the input (" + std::string(name_of(x.dtype())) +
                          ") should be convertible without narrowing to the specified "
                          "dtype (" +
                          std::string(name_of(t)) + ")"));
  return x.to(t);
}

const OpRecord& linalg_vector_norm_op =
    define(
        "linalg_vector_norm(Tensor self, Scalar ord=2, int[]? dim=None, bool keepdim=False, *, "
        "dtype? dtype=None) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("(sum |x|^ord)^(1/ord).")
        .compose([](const Call& c) -> Results {
          const Tensor x = in_dtype(c, "linalg.vector_norm", 4);
          const IntList dims = c.has(2) ? c.ints(2) : IntList();
          return {x.norm(c.real(1), dims, c.boolean(3))};
        });

// ---- matrices

// The two dims of a matrix norm, not negative.
Shape matrix_dims(const Tensor& x, IntList dims, const std::string& name) {
  check_matrix(name, x);
  ARETE_CHECK(dims.size() == 2,
              ValueError(name, name + ": dim must be a 2-tuple. Got " + to_string(dims)));
  const int64_t rows = normalize_dim(dims[0], int(x.dim()), name.c_str());
  const int64_t columns = normalize_dim(dims[1], int(x.dim()), name.c_str());
  ARETE_CHECK(rows != columns,
              ValueError(name, name + ": dims must be different. Got (" + std::to_string(dims[0]) +
                                   ", " + std::to_string(dims[1]) + ")"));
  return {rows, columns};
}

// `y` has lost `dims` of x: with them as ones, if wanted.
Tensor restored(const Tensor& y, const Tensor& x, const Shape& dims, bool keepdim) {
  const uint32_t bits = 1u << dims[0] | 1u << dims[1];
  return keepdim ? y.reshape(reduced_sizes(x.sizes(), bits, true)) : y;
}

Tensor singular_values_of(const Tensor& x, const Shape& dims) {
  return linalg::svdvals(arete::movedim(x, dims, IntList{-2, -1}));
}

// The largest value over dims; of nothing 0, the norm of an empty matrix.
Tensor largest(const Tensor& y, IntList dims) {
  for (int64_t d : dims)
    if (y.size(d) == 0) return y.sum(dims);
  return y.amax(dims);
}

Tensor matrix_norm_of(const Tensor& x, const Scalar& order, const Shape& dims, bool keepdim) {
  const double ord = order.to_double();
  const double size = std::fabs(ord);
  ARETE_CHECK(size == 1 || size == 2 || std::isinf(ord),
              ValueError("linalg.matrix_norm",
                         "linalg.matrix_norm: Order " + order.to_string() + " not supported."));
  Tensor y;
  if (size == 2) {
    const Tensor s = singular_values_of(x, dims);
    y = ord > 0 ? largest(s, {-1}) : s.amin({-1});
  } else {
    const size_t summed = size == 1 ? 0 : 1;
    const Tensor sums = x.norm(1, {dims[summed]}, true);
    y = ord > 0 ? largest(sums, dims) : sums.amin(dims);
  }
  return restored(y, x, dims, keepdim);
}
Tensor matrix_norm_of(const Tensor& x, std::string_view ord, const Shape& dims, bool keepdim) {
  if (ord == "fro") return x.norm(2, dims, keepdim);
  ARETE_CHECK(ord == "nuc",
              ValueError("linalg.matrix_norm",
                         "linalg.matrix_norm: Order " + std::string(ord) + " not supported."));
  return restored(singular_values_of(x, dims).sum(-1), x, dims, keepdim);
}

const OpRecord& linalg_matrix_norm_op =
    define(
        "linalg_matrix_norm(Tensor self, Scalar ord, int[] dim=[-2,-1], bool keepdim=False, *, "
        "dtype? dtype=None) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Matrix norm 1, -1, 2, -2, inf or -inf.")
        .compose([](const Call& c) -> Results {
          const Tensor x = in_dtype(c, "linalg.matrix_norm", 4);
          const Shape dims = matrix_dims(x, c.ints(2), "linalg.matrix_norm");
          return {matrix_norm_of(x, c.scalar(1), dims, c.boolean(3))};
        })
        .dtypes(kMatrixTypes);

const OpRecord& linalg_matrix_norm_str_op =
    define(
        "linalg_matrix_norm.str_ord(Tensor self, str ord=\"fro\", int[] dim=[-2,-1], bool "
        "keepdim=False, *, dtype? dtype=None) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Matrix norm \"fro\" (all elements) or \"nuc\" (sum of singular values).")
        .compose([](const Call& c) -> Results {
          const Tensor x = in_dtype(c, "linalg.matrix_norm", 4);
          const Shape dims = matrix_dims(x, c.ints(2), "linalg.matrix_norm");
          return {matrix_norm_of(x, c[1].string(), dims, c.boolean(3))};
        })
        .dtypes(kMatrixTypes);

// ---- either

Shape dims_or_all(const Tensor& x, const Call& c, size_t i) {
  if (c.has(i) && !c.ints(i).empty()) return Shape(c.ints(i));
  Shape all;
  for (int64_t d = 0; d < x.dim(); ++d) all.push_back(d);
  return all;
}

const OpRecord& linalg_norm_op =
    define(
        "linalg_norm(Tensor self, Scalar? ord=None, int[]? dim=None, bool keepdim=False, *, dtype? "
        "dtype=None) -> Tensor")
        .doc("A vector norm for one dim, a matrix norm for two; without ord that of all elements.")
        .compose([](const Call& c) -> Results {
          const Tensor x = in_dtype(c, "linalg.norm", 4);
          const IntList given = c.has(2) ? c.ints(2) : IntList();
          if (!c.has(1)) return {x.norm(2, given, c.boolean(3))};
          const Shape dims = dims_or_all(x, c, 2);
          ARETE_CHECK(dims.size() == 1 || dims.size() == 2,
                      ValueError("linalg.norm", c.has(2) ? "linalg.norm: If dim is specified, it "
                                                           "must be of length 1 or 2."
                                                         : "linalg.norm: If dim is not specified "
                                                           "but ord is, the input must be 1D or "
                                                           "2D.")
                          .got(describe(x)));
          if (dims.size() == 1) return {x.norm(c.real(1), dims, c.boolean(3))};
          return {
              matrix_norm_of(x, c.scalar(1), matrix_dims(x, dims, "linalg.norm"), c.boolean(3))};
        })
        .dtypes(kFactorizableTypes);

const OpRecord& linalg_norm_str_op =
    define(
        "linalg_norm.ord_str(Tensor self, str ord, int[]? dim=None, bool keepdim=False, *, dtype? "
        "dtype=None) -> Tensor")
        .doc("The matrix norm \"fro\" or \"nuc\".")
        .compose([](const Call& c) -> Results {
          const Tensor x = in_dtype(c, "linalg.norm", 4);
          const Shape dims = matrix_dims(x, dims_or_all(x, c, 2), "linalg.norm");
          return {matrix_norm_of(x, c[1].string(), dims, c.boolean(3))};
        })
        .dtypes(kMatrixTypes);

}  // namespace
}  // namespace ops

namespace linalg {
Tensor vector_norm(const Tensor& x, double ord, IntList dims, bool keepdim,
                   std::optional<DType> dtype) {
  return ops::call(ops::linalg_vector_norm_op, {x, ord, dims, keepdim, dtype});
}
Tensor matrix_norm(const Tensor& a, double ord, IntList dims, bool keepdim,
                   std::optional<DType> dtype) {
  return ops::call(ops::linalg_matrix_norm_op, {a, ord, dims, keepdim, dtype});
}
Tensor matrix_norm(const Tensor& a, std::string_view ord, IntList dims, bool keepdim,
                   std::optional<DType> dtype) {
  return ops::call(ops::linalg_matrix_norm_str_op, {a, ord, dims, keepdim, dtype});
}
Tensor norm(const Tensor& x, std::optional<double> ord, IntList dims, bool keepdim,
            std::optional<DType> dtype) {
  return ops::call(ops::linalg_norm_op, {x, ord, dims, keepdim, dtype});
}
Tensor norm(const Tensor& x, std::string_view ord, IntList dims, bool keepdim,
            std::optional<DType> dtype) {
  return ops::call(ops::linalg_norm_str_op, {x, ord, dims, keepdim, dtype});
}
}  // namespace linalg

}  // namespace arete

ARETE_FAMILY(linalg_norm)
