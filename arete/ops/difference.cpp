// Differences, derivatives and integrals along a dimension.
#include <algorithm>

#include "arete/ops/creation.h"
#include "arete/ops/numeric.h"
#include "arete/ops/pointwise_family.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/sort.h"

namespace arete {
namespace ops {
namespace {

int checked_dim(const Call& c, const Tensor& x, int64_t dim) {
  return normalize_dim(dim, int(x.dim()), c.name());
}

// ---- diff

const OpRecord& diff_op =
    define(
        "diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> "
        "Tensor")
        .doc("The n-th differences of neighbours along dim.")
        .compose([](const Call& c) -> Results {
          Tensor x = c.tensor(0);
          ARETE_CHECK(x.dim() > 0,
                      ValueError(c.name(), "diff expects input to be at least one-dimensional"));
          const int64_t n = c.integer(1);
          ARETE_CHECK(n >= 0, ValueError(c.name(),
                                         "order must be non-negative but got " + std::to_string(n))
                                  .argument("n"));
          const int d = checked_dim(c, x, c.integer(2));
          // The ends belong to the differences: without any, they are left out.
          if (n == 0) return {x.clone()};
          std::vector<Tensor> parts{x};
          if (c.has(3)) parts.insert(parts.begin(), c.tensor(3));
          if (c.has(4)) parts.push_back(c.tensor(4));
          for (const Tensor& p : parts)
            ARETE_CHECK(p.dim() == x.dim(),
                        ValueError(c.name(),
                                   "diff expects prepend or append to be the same dimension as "
                                   "input"));
          if (parts.size() > 1) x = cat(parts, d);
          for (int64_t k = 0; k < n; ++k) {
            const int64_t left = std::max<int64_t>(x.size(d) - 1, 0);
            if (left == 0) return {x.narrow(d, 0, 0)};
            const Tensor later = x.narrow(d, 1, left), sooner = x.narrow(d, 0, left);
            x = x.dtype() == kBool ? later.logical_xor(sooner) : later.sub(sooner);
          }
          return {x};
        });

// ---- gradient

std::vector<int64_t> gradient_dims(const Call& c, size_t arg) {
  const Tensor& x = c.tensor(0);
  std::vector<int64_t> dims;
  if (c.has(arg)) {
    normalize_dims(c.ints(arg), int(x.dim()), c.name(), false);  // each once
    for (int64_t d : c.ints(arg)) dims.push_back(normalize_dim(d, int(x.dim()), c.name()));
  } else {
    for (int64_t d = 0; d < x.dim(); ++d) dims.push_back(d);
  }
  return dims;
}

void check_gradient(const Call& c, const std::vector<int64_t>& dims, int64_t edge_order) {
  ARETE_CHECK(edge_order == 1 || edge_order == 2,
              ValueError(c.name(), "torch.gradient only supports edge_order=1 and edge_order=2.")
                  .argument("edge_order")
                  .got(std::to_string(edge_order)));
  for (int64_t d : dims)
    ARETE_CHECK(c.tensor(0).size(d) >= edge_order + 1,
                ValueError(c.name(),
                           "torch.gradient expected each dimension size to be at least "
                           "edge_order+1")
                    .got(describe(c.tensor(0))));
}

// (f(x + h) - f(x - h)) / 2h, and one-sided at the ends.
Tensor even_gradient(const Tensor& x, int64_t d, const Tensor& h, int64_t edge_order) {
  const int64_t n = x.size(d);
  const auto part = [&](int64_t from, int64_t count) { return x.narrow(d, from, count); };
  Tensor first = part(1, 1).sub(part(0, 1)), last = part(n - 1, 1).sub(part(n - 2, 1));
  if (edge_order == 2) {
    first = part(0, 1).mul(-1.5).add(part(1, 1).mul(2.0)).sub(part(2, 1).mul(0.5));
    last = part(n - 1, 1).mul(1.5).sub(part(n - 2, 1).mul(2.0)).add(part(n - 3, 1).mul(0.5));
  }
  const Tensor middle = part(2, n - 2).sub(part(0, n - 2)).mul(0.5);
  return cat({first, middle, last}, d).div(h);
}

// The derivative of the parabola through three neighbours, whose distances are a and b: weights of
// the left, middle and right value for a point at the left end, in the middle, at the right end.
Tensor parabola(const Tensor& left, const Tensor& middle, const Tensor& right, const Tensor& a,
                const Tensor& b, int place) {
  const Tensor slope1 = middle.sub(left).div(a), slope2 = right.sub(middle).div(b);
  const Tensor bend = slope2.sub(slope1).div(a.add(b));
  if (place < 0) return slope1.sub(bend.mul(a));
  return place == 0 ? slope1.add(bend.mul(a)) : slope2.add(bend.mul(b));
}

Tensor uneven_gradient(const Tensor& x, int64_t d, const Tensor& coordinates, int64_t edge_order) {
  const int64_t n = x.size(d);
  Shape along(size_t(x.dim()), 1);
  along[size_t(d)] = n - 1;
  const Tensor h = diff(coordinates).reshape(along);
  const auto part = [&](int64_t from, int64_t count) { return x.narrow(d, from, count); };
  const auto step = [&](int64_t from, int64_t count) { return h.narrow(d, from, count); };
  Tensor first = part(1, 1).sub(part(0, 1)).div(step(0, 1));
  Tensor last = part(n - 1, 1).sub(part(n - 2, 1)).div(step(n - 2, 1));
  if (edge_order == 2) {
    first = parabola(part(0, 1), part(1, 1), part(2, 1), step(0, 1), step(1, 1), -1);
    last =
        parabola(part(n - 3, 1), part(n - 2, 1), part(n - 1, 1), step(n - 3, 1), step(n - 2, 1), 1);
  }
  const Tensor middle =
      parabola(part(0, n - 2), part(1, n - 2), part(2, n - 2), step(0, n - 2), step(1, n - 2), 0);
  return cat({first, middle, last}, d);
}

// What is differentiated: floats, complex ones for complex steps.
Tensor floating(const Tensor& x, bool complex) {
  if (complex && !is_complex(x.dtype()))
    return x.to(x.dtype() == kFloat64 ? kComplex128 : kComplex64);
  return is_integral_or_bool(x.dtype()) ? x.to(default_dtype()) : x;
}

const OpRecord& gradient_op =
    define(
        "gradient(Tensor self, *, Scalar? spacing=None, int[]? dim=None, int edge_order=1) -> "
        "Tensor[]")
        .doc("Derivatives along dimensions by central differences of equal steps.")
        .compose([](const Call& c) -> Results {
          const Tensor x = floating(c.tensor(0), c.has(1) && c.scalar(1).is_complex());
          const std::vector<int64_t> dims = gradient_dims(c, 2);
          check_gradient(c, dims, c.integer(3));
          const Tensor h =
              full({}, c.has(1) ? c.scalar(1) : Scalar(1.0), TensorOptions(x.dtype(), x.device()));
          Results out;
          for (int64_t d : dims) out.push_back(even_gradient(x, d, h, c.integer(3)));
          return out;
        });

const OpRecord& gradient_coordinates_op =
    define(
        "gradient.tensorarray(Tensor self, *, Tensor[] spacing, int[]? dim=None, int "
        "edge_order=1) -> Tensor[]")
        .doc("Derivatives along dimensions, given their coordinates (1-d) or steps (0-d).")
        .compose([](const Call& c) -> Results {
          const std::vector<int64_t> dims = gradient_dims(c, 2);
          check_gradient(c, dims, c.integer(3));
          ARETE_CHECK(c.tensors(1).size() == dims.size(),
                      ValueError(c.name(),
                                 "torch.gradient expected spacing to be unspecified, a scalar, or "
                                 "a list of one value for each dim")
                          .expected(std::to_string(dims.size()))
                          .got(std::to_string(c.tensors(1).size())));
          Results out;
          for (size_t k = 0; k < dims.size(); ++k) {
            const Tensor& t = c.tensors(1)[k];
            const Tensor x = floating(c.tensor(0), is_complex(t.dtype()));
            ARETE_CHECK(t.dim() == 0 || (t.dim() == 1 && t.numel() == x.size(dims[k])),
                        ValueError(c.name(),
                                   "torch.gradient expected each element of spacing to have one "
                                   "value or one for each element along its dimension")
                            .got(describe(t)));
            out.push_back(t.dim() == 0 ? even_gradient(x, dims[k], t, c.integer(3))
                                       : uneven_gradient(x, dims[k], t, c.integer(3)));
          }
          return out;
        });

// ---- trapezoidal rule: (y, x or none, dx, dim)

const OpRecord& trapezoid_area_op = []() -> const OpRecord& {
  PointwiseDef d;
  d.n_inputs = 4;
  d.definition = [](std::span<const expr::Value> v) {
    return std::vector{(v[0] + v[1]) * ((v[3] - v[2]) * 0.5)};
  };
  d.result = PointwiseDef::Result::floating;
  return define("trapezoid_area(Tensor y0, Tensor y1, Tensor x0, Tensor x1) -> Tensor")
      .surface(Surface::internal)
      .doc("(y0 + y1) * (x1 - x0) / 2.")
      .pointwise(std::move(d));
}();

// The areas between neighbours along dim d.
Tensor trapezoids(const Call& c, int d) {
  const Tensor& y = c.tensor(0);
  const int64_t n = std::max<int64_t>(y.size(d) - 1, 0), from = std::min<int64_t>(1, y.size(d));
  const Tensor y0 = y.narrow(d, 0, n), y1 = y.narrow(d, from, n);
  if (!c.has(1)) return y0.add(y1).mul(Scalar(0.5 * c.scalar(2).to_double()));
  Tensor x = c.tensor(1);
  if (x.dim() == 1) {
    ARETE_CHECK(x.numel() == y.size(d),
                ValueError(c.name(), std::string(c.name()) +
                                         ": There must be one `x` value for each sample point"));
    Shape along(size_t(y.dim()), 1);
    along[size_t(d)] = y.size(d);
    x = x.reshape(along);
  } else {
    Shape sizes(x.sizes());
    while (int64_t(sizes.size()) < y.dim()) sizes.insert(sizes.begin(), 1);
    x = x.reshape(sizes);
    ARETE_CHECK(x.size(d) == y.size(d),
                ValueError(c.name(), std::string(c.name()) +
                                         ": There must be one `x` value for each sample point"));
  }
  // Differences of integers are exact in integers only.
  if (is_floating(x.dtype()) && is_floating(y.dtype()))
    return call(trapezoid_area_op, {y0, y1, x.narrow(d, 0, n), x.narrow(d, from, n)});
  return y0.add(y1).mul(diff(x, 1, d)).mul(Scalar(0.5));
}

const OpRecord& trapezoid_op =
    define("trapezoid(Tensor y, Tensor? x=None, *, Scalar dx=1, int dim=-1) -> Tensor")
        .doc("The integral along dim by the trapezoidal rule.")
        .compose([](const Call& c) -> Results {
          const Tensor& y = c.tensor(0);
          const int d = checked_dim(c, y, c.integer(3));
          if (c.has(1) || y.size(d) == 0 || y.dtype() == kBool)
            return {trapezoids(c, d).sum(int64_t(d))};
          // Of even steps: all values but half of the first and last.
          const Tensor ends = y.select(d, 0).add(y.select(d, -1)).mul(Scalar(0.5));
          return {y.sum(int64_t(d)).sub(ends).mul(c.scalar(2))};
        });

const OpRecord& cumulative_trapezoid_op =
    define("cumulative_trapezoid(Tensor y, Tensor? x=None, *, Scalar dx=1, int dim=-1) -> Tensor")
        .doc("The integral along dim up to each point but the first.")
        .compose([](const Call& c) -> Results {
          const int d = checked_dim(c, c.tensor(0), c.integer(3));
          return {trapezoids(c, d).cumsum(d)};
        });

}  // namespace
}  // namespace ops

Tensor diff(const Tensor& self, int64_t n, int64_t dim, const Tensor& prepend,
            const Tensor& append) {
  return ops::call(ops::diff_op, {self, n, dim, prepend, append});
}
std::vector<Tensor> gradient(const Tensor& self, Scalar spacing,
                             std::optional<std::vector<int64_t>> dims, int64_t edge_order) {
  const std::optional<IntList> list = dims ? std::optional(IntList(*dims)) : std::nullopt;
  const auto r = ops::call_all(ops::gradient_op, {self, spacing, list, edge_order});
  return {r.begin(), r.end()};
}
std::vector<Tensor> gradient(const Tensor& self, const std::vector<Tensor>& spacing,
                             std::optional<std::vector<int64_t>> dims, int64_t edge_order) {
  const std::optional<IntList> list = dims ? std::optional(IntList(*dims)) : std::nullopt;
  const auto r = ops::call_all(ops::gradient_coordinates_op, {self, spacing, list, edge_order});
  return {r.begin(), r.end()};
}
Tensor trapezoid(const Tensor& y, Scalar dx, int64_t dim) {
  return ops::call(ops::trapezoid_op, {y, std::nullopt, dx, dim});
}
Tensor trapezoid(const Tensor& y, const Tensor& x, int64_t dim) {
  return ops::call(ops::trapezoid_op, {y, x, 1, dim});
}
Tensor cumulative_trapezoid(const Tensor& y, Scalar dx, int64_t dim) {
  return ops::call(ops::cumulative_trapezoid_op, {y, std::nullopt, dx, dim});
}
Tensor cumulative_trapezoid(const Tensor& y, const Tensor& x, int64_t dim) {
  return ops::call(ops::cumulative_trapezoid_op, {y, x, 1, dim});
}

}  // namespace arete

ARETE_FAMILY(difference)
