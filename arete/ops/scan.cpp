// Running sums and products.
#include "arete/ops/autocast.h"
#include "arete/ops/complex.h"
#include "arete/ops/reduce_family.h"
#include "arete/ops/sort.h"

namespace arete::ops {

namespace {

using prim::Monoid;

void infer_scan(const Call& c, OutputSpecs& out) {
  const Tensor& x = c.tensor(0);
  normalize_dim(c.integer(1), int(x.dim()), c.name());
  const DType t = c.has(2) ? c[2].dtype() : is_integral_or_bool(x.dtype()) ? kInt64 : x.dtype();
  out.push_back({Shape(x.sizes()), t, x.device(), {}});
}

void run_scan(const Call& c, const Tensor& out, Monoid monoid, bool reverse, prim::Primitives& p) {
  const Tensor& x = c.tensor(0);
  const Tensor in = x.dtype() == out.dtype() ? x : plain(x, out.dtype());
  if (x.dim() == 0) {
    p.copy({view_of(out), view_of(in)});
    return;
  }
  p.scan({monoid, view_of(in), view_of(out), normalize_dim(c.integer(1), int(x.dim()), c.name()),
          reverse});
}

// The gradient of a running sum is the running sum from the other end, which is its own record.
const OpRecord& reverse_cumsum_op =
    define("reverse_cumsum(Tensor self, int dim) -> Tensor")
        .doc("Running sum from the end.")
        .surface(Surface::internal)
        .infer(infer_scan)
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          run_scan(c, out[0], Monoid::sum, true, p);
        })
        .grad([](const GradCall& g) -> TensorList { return {g.grad().cumsum(g.integer(1))}; });

// The gradient of a running product along the last dimension, from sums: before the first zero of a
// row dy_k / dx_i = y_k / x_i; at it, products with one in its place; after it, nothing.
Tensor cumprod_gradient(const Tensor& x, const Tensor& dy) {
  const Tensor zero = x == 0, seen = zero.cumsum(-1);
  const Tensor before = seen == 0, first = logical_and(zero, seen == 1);
  const Tensor kept = arete::where(before, conj(x.cumprod(-1)) * dy, 0);
  const Tensor quotients =
      call(reverse_cumsum_op, {kept, int64_t(-1)}) / conj(arete::where(zero, 1, x));
  const Tensor others = conj(arete::where(first, 1, x).cumprod(-1));
  const Tensor at_first = arete::where(seen > 0, others * dy, 0).sum(-1, true);
  return arete::where(before, quotients, arete::where(first, at_first, 0));
}

const std::vector<DType> kScanTypes{kFloat32, kFloat64, kBFloat16, kFloat16, kInt32, kInt64};

const OpRecord& cumsum_op =
    define("cumsum(Tensor self, int dim, *, dtype? dtype=None) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Running sum along dim.")
        .infer(infer_scan)
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          run_scan(c, out[0], Monoid::sum, false, p);
        })
        .grad([](const GradCall& g) -> TensorList {
          return {call(reverse_cumsum_op, {g.grad(), g.integer(1)}).to(g.input_dtype(0))};
        })
        .in_place(true)
        .dtypes(kScanTypes);

const OpRecord& cumprod_op =
    define("cumprod(Tensor self, int dim, *, dtype? dtype=None) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Running product along dim.")
        .infer(infer_scan)
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          run_scan(c, out[0], Monoid::prod, false, p);
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              // dy_k / dx_i = product of x_j, j <= k, j != i, for k >= i. Where this gradient will
              // be differentiated, too: rows of products with x_i replaced by one (quadratic).
              const Tensor x = g.input(0).to(g.grad().dtype());
              if (x.dim() == 0 || x.numel() == 0) return {g.grad().to(g.input_dtype(0))};
              const int64_t d = normalize_dim(g.integer(1), int(x.dim()), "cumprod");
              const Tensor rows = x.movedim(d, -1), dy = g.grad().movedim(d, -1);
              if (!is_grad_enabled())
                return {cumprod_gradient(rows, dy).movedim(-1, d).to(g.input_dtype(0))};
              const int64_t n = rows.size(-1);
              Shape square(rows.sizes());
              square.push_back(n);
              const Tensor diagonal = eye(n, TensorOptions(kBool, x.device()));
              // Row i of the matrix: the products for x_i = 1; only k >= i depend on x_i.
              const Tensor products =
                  arete::where(diagonal, 1, rows.unsqueeze(-2).expand(square)).cumprod(-1);
              const Tensor later = ones({n, n}, TensorOptions(kBool, x.device())).triu();
              const Tensor dx = arete::where(later, conj(products) * dy.unsqueeze(-2), 0).sum(-1);
              return {dx.movedim(-1, d).to(g.input_dtype(0))};
            },
            1)
        .in_place(true)
        .dtypes(kScanTypes);

}  // namespace
}  // namespace arete::ops

namespace arete {
Tensor cumsum(const Tensor& self, int64_t dim) {
  return ops::call(ops::cumsum_op, {self, dim, std::nullopt});
}
Tensor cumprod(const Tensor& self, int64_t dim) {
  return ops::call(ops::cumprod_op, {self, dim, std::nullopt});
}
Tensor Tensor::cumsum(int64_t dim) const { return arete::cumsum(*this, dim); }
Tensor Tensor::cumprod(int64_t dim) const { return arete::cumprod(*this, dim); }
}  // namespace arete

ARETE_FAMILY(scan)
