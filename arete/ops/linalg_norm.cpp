// Norms of vectors and matrices.
#include <cmath>

#include "arete/ops/autocast.h"
#include "arete/ops/creation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/linalg_reference_internal.h"
#include "arete/ops/reduce_family.h"

namespace arete {
namespace ops {
namespace {

const std::vector<DType> kTypes{kFloat32, kFloat64};

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

double norm_of(const std::vector<double>& v, double p) {
  double s = 0, big = 0, small = INFINITY;
  for (double e : v) {
    const double a = std::fabs(e);
    s += p == 0 ? a != 0 : std::pow(a, p);
    big = std::fmax(big, a);
    small = std::fmin(small, a);
  }
  return std::isinf(p) ? (p > 0 ? big : small) : p == 0 ? s : std::pow(s, 1 / p);
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
        })
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> all{
              {{m.make({2, 3}), Scalar(2), std::nullopt, false, std::nullopt}},
              {{m.make({2, 3, 2}), Scalar(1), {0, 2}, true, std::nullopt}, "two dims, keepdim"},
              {{m.make({3, 4}, 0.5, 2), Scalar(2.5), {-1}, false, std::nullopt}, "rows"},
              {{m.make({3, 4}), Scalar(HUGE_VAL), {0}, false, std::nullopt}, "largest"},
              {{m.make({0, 2}), Scalar(2), {0}, false, std::nullopt}, "empty"}};
          if (!m.requires_grad)
            all.push_back({{m.make({4}), Scalar(2), std::nullopt, false, kFloat64}, "dtype"});
          return all;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make_index({3}, 2), Scalar(2), std::nullopt, false, std::nullopt},
                   ErrorKind::type,
                   "linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
                   "int64"},
                  {{m.make({3}), Scalar(2), {1}, false, std::nullopt},
                   ErrorKind::index,
                   "Dimension out of range"},
                  {{m.make({3}), Scalar(2), {0}, false, kInt64},
                   ErrorKind::type,
                   "dtype should be floating point or complex"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {reduce_reference(c, 2, c.boolean(3),
                                   [&](const auto& v) { return norm_of(v, c.real(1)); })};
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

// Of the matrices that `dims` name, by plain loops.
std::vector<Tensor> matrix_reference(const Call& c, IntList dims, bool keepdim,
                                     const std::function<double(const Matrix&)>& f) {
  const Tensor& x = c.tensor(0);
  const Shape d = matrix_dims(x, dims, "");
  Shape kept(x.sizes());
  kept[size_t(d[0])] = kept[size_t(d[1])] = 1;
  std::vector<double> results;
  for_each_index(kept, [&](Shape i) {
    Matrix m(x.size(d[0]), x.size(d[1]));
    for (i[size_t(d[0])] = 0; i[size_t(d[0])] < m.rows; ++i[size_t(d[0])])
      for (i[size_t(d[1])] = 0; i[size_t(d[1])] < m.columns; ++i[size_t(d[1])])
        m(i[size_t(d[0])], i[size_t(d[1])]) = at(x, i);
    results.push_back(f(m));
  });
  return {from_values(results, reduced_sizes(x.sizes(), 1u << d[0] | 1u << d[1], keepdim))};
}
double reference_of(Matrix m, double ord) {
  if (std::fabs(ord) == 2) {
    const auto s = singular_values(m);
    return s.empty() ? 0 : ord > 0 ? s.front() : s.back();
  }
  if (std::isinf(ord)) m = transposed(m);
  double big = 0, small = INFINITY;
  for (int64_t j = 0; j < m.columns; ++j) {
    double s = 0;
    for (int64_t i = 0; i < m.rows; ++i) s += std::fabs(m(i, j));
    big = std::max(big, s);
    small = std::min(small, s);
  }
  return ord > 0 ? big : small;
}
double reference_of(const Matrix& m, std::string_view ord) {
  double s = 0;
  if (ord == "fro")
    for (double v : m.values) s += v * v;
  else
    for (double v : singular_values(m)) s += v;
  return ord == "fro" ? std::sqrt(s) : s;
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
        .dtypes(kTypes)
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> all;
          for (double ord : {1.0, -1.0, 2.0, -2.0, HUGE_VAL, -HUGE_VAL}) {
            all.push_back(
                {{make_invertible(m, {3, 3}), Scalar(ord), {-2, -1}, false, std::nullopt}});
            all.push_back({{make_invertible(m, {2, 3, 2}), Scalar(ord), {2, 1}, true, std::nullopt},
                           "other dims, keepdim"});
          }
          all.push_back(
              {{m.make({2, 3, 4}), Scalar(1), {0, 2}, false, std::nullopt}, "outer dims"});
          for (double ord : {1.0, 2.0, HUGE_VAL})
            for (const Shape& none : {Shape{0, 2}, Shape{2, 0}})
              all.push_back({{m.make(none), Scalar(ord), {-2, -1}, true, std::nullopt}, "empty"});
          return all;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3, 3}), Scalar(3), {-2, -1}, false, std::nullopt},
                   ErrorKind::value,
                   "linalg.matrix_norm: Order 3 not supported."},
                  {{m.make({3}), Scalar(1), {-2, -1}, false, std::nullopt},
                   ErrorKind::value,
                   "linalg.matrix_norm: The input tensor A must have at least 2 dimensions."},
                  {{m.make({3, 3}), Scalar(1), {0}, false, std::nullopt},
                   ErrorKind::value,
                   "dim must be a 2-tuple"},
                  {{m.make({3, 3}), Scalar(1), {1, -1}, false, std::nullopt},
                   ErrorKind::value,
                   "dims must be different. Got (1, -1)"}};
        })
        .reference([](const Call& c) {
          return matrix_reference(c, c.ints(2), c.boolean(3),
                                  [&](const Matrix& m) { return reference_of(m, c.real(1)); });
        });

const OpRecord& linalg_matrix_norm_str_op =
    define(
        "linalg_matrix_norm_str_ord(Tensor self, str ord=\"fro\", int[] dim=[-2,-1], bool "
        "keepdim=False, *, dtype? dtype=None) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Matrix norm \"fro\" (all elements) or \"nuc\" (sum of singular values).")
        .compose([](const Call& c) -> Results {
          const Tensor x = in_dtype(c, "linalg.matrix_norm", 4);
          const Shape dims = matrix_dims(x, c.ints(2), "linalg.matrix_norm");
          return {matrix_norm_of(x, c[1].string(), dims, c.boolean(3))};
        })
        .dtypes(kTypes)
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{make_invertible(m, {3, 3}), "fro", {-2, -1}, false, std::nullopt}},
                  {{make_invertible(m, {3, 2}), "nuc", {-2, -1}, true, std::nullopt}},
                  {{m.make({2, 3, 4}), "fro", {0, 2}, true, std::nullopt}, "outer dims"},
                  {{m.make({2, 3, 4}), "nuc", {2, 0}, true, std::nullopt}, "outer dims, swapped"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3, 3}), "max", {-2, -1}, false, std::nullopt},
                   ErrorKind::value,
                   "linalg.matrix_norm: Order max not supported."}};
        })
        .reference([](const Call& c) {
          return matrix_reference(c, c.ints(2), c.boolean(3),
                                  [&](const Matrix& m) { return reference_of(m, c[1].string()); });
        });

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
        .dtypes(kTypes)
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3, 2}), std::nullopt, std::nullopt, false, std::nullopt}},
                  {{m.make({2, 3}), std::nullopt, {1}, true, std::nullopt}, "rows"},
                  {{m.make({5}), Scalar(3), std::nullopt, false, std::nullopt}, "vector"},
                  {{make_invertible(m, {3, 3}), Scalar(2), std::nullopt, false, std::nullopt},
                   "matrix"},
                  {{m.make({2, 3, 2}), Scalar(1), {2, 0}, true, std::nullopt}, "two dims"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 2, 2}), Scalar(1), std::nullopt, false, std::nullopt},
                   ErrorKind::value,
                   "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D."},
                  {{m.make({2, 2, 2}), Scalar(1), {0, 1, 2}, false, std::nullopt},
                   ErrorKind::value,
                   "linalg.norm: If dim is specified, it must be of length 1 or 2."}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Shape dims = dims_or_all(c.tensor(0), c, 2);
          if (c.has(1) && dims.size() == 2)
            return matrix_reference(c, dims, c.boolean(3),
                                    [&](const Matrix& m) { return reference_of(m, c.real(1)); });
          const double p = c.has(1) ? c.real(1) : 2;
          return {
              reduce_reference(c, 2, c.boolean(3), [&](const auto& v) { return norm_of(v, p); })};
        });

const OpRecord& linalg_norm_str_op =
    define(
        "linalg_norm_ord_str(Tensor self, str ord, int[]? dim=None, bool keepdim=False, *, dtype? "
        "dtype=None) -> Tensor")
        .doc("The matrix norm \"fro\" or \"nuc\".")
        .compose([](const Call& c) -> Results {
          const Tensor x = in_dtype(c, "linalg.norm", 4);
          const Shape dims = matrix_dims(x, dims_or_all(x, c, 2), "linalg.norm");
          return {matrix_norm_of(x, c[1].string(), dims, c.boolean(3))};
        })
        .dtypes(kTypes)
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 2}), "fro", std::nullopt, false, std::nullopt}},
                  {{m.make({2, 3, 2}), "nuc", {0, 1}, true, std::nullopt}, "dims"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), "fro", std::nullopt, false, std::nullopt},
                   ErrorKind::value,
                   "linalg.norm: The input tensor A must have at least 2 dimensions."}};
        })
        .reference([](const Call& c) {
          return matrix_reference(c, dims_or_all(c.tensor(0), c, 2), c.boolean(3),
                                  [&](const Matrix& m) { return reference_of(m, c[1].string()); });
        });

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
