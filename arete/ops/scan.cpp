// Running sums, products and extrema.
#include <algorithm>
#include <cmath>
#include <vector>

#include "arete/expr/program_cache.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/reduce_family.h"
#include "arete/ops/search.h"
#include "arete/ops/shape.h"
#include "arete/ops/sort.h"

namespace arete::ops {

namespace {

using prim::Monoid;

void infer_scan(const Call& c, OutputSpecs& out) {
  const Tensor& x = c.tensor(0);
  normalize_dim(c.integer(1), int(x.dim()), c.name());
  const DType t = c.has(2) ? c[2].dtype() : is_integral_or_bool(x.dtype()) ? kInt64 : x.dtype();
  ARETE_CHECK(!c.in_place() || !c.has(2) || t == x.dtype(),
              TypeError(c.name(), "a running result is written over its operand in its dtype")
                  .argument("dtype")
                  .expected(name_of(x.dtype()))
                  .got(name_of(t)));
  out.push_back({Shape(x.sizes()), t});
}

void run_scan(const Call& c, const Tensor& out, Monoid monoid, bool reverse, prim::Primitives& p) {
  const Tensor& x = c.tensor(0);
  const Tensor in = x.dtype() == out.dtype() ? x : plain(x, out.dtype());
  if (x.dim() == 0) {
    if (!c.in_place()) p.copy({view_of(out), view_of(in)});
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

// What comes `distance` after (before) each element along a dimension; at the end 0.
Tensor neighbours(const Tensor& x, int64_t dim, bool after, int64_t distance = 1) {
  const int64_t n = x.size(dim), end = std::min(distance, n);
  const Tensor zeros = zeros_like(x.narrow(dim, 0, end));
  const Tensor rest = x.narrow(dim, after ? end : 0, n - end);
  return after ? cat({rest, zeros}, dim) : cat({zeros, rest}, dim);
}

// Outputs before an element that a result of linear_scan depends on; 0: one, and factors have no
// dimension for it.
int64_t orders(const Tensor& factors, const Tensor& x) {
  return factors.dim() > x.dim() ? factors.size(-1) : 0;
}

// f(k, the factors to the element k + 1 further) for all k, in factors' layout.
template <class F>
Tensor each_order(const Tensor& factors, int64_t orders, F&& f) {
  if (orders == 0) return f(0, factors);
  std::vector<Tensor> all;
  for (int64_t k = 0; k < orders; ++k) all.push_back(f(k, factors.select(-1, k)));
  return stack(all, -1);
}

// y[i] = self[i] + factors[i - 1] y[i - 1], or from the end with i + 1 for i - 1; where factors
// have a dimension more, the sum over k of factors[i - k - 1, k] y[i - k - 1]. The gradient runs
// the other way, past the same factors; complex numbers are conjugated by then.
const OpRecord& linear_scan_op =
    define("linear_scan(Tensor self, Tensor factors, int dim, bool reverse) -> Tensor")
        .doc(
            "Running sum in which each result times its factor is added to the next element, or, "
            "on the CPU, times its up to 32 factors (a last dimension) to as many next elements.")
        .surface(Surface::internal)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(orders(c.tensor(1), x) == 0 || x.device().is_cpu(),
                      NotImplementedError(c.name(), "several factors of an element are for the CPU")
                          .got(x.device().to_string()));
          const Tensor& factors = c.tensor(1);
          if (factors.dim() > x.dim())
            ARETE_CHECK(factors.size(-1) >= 1 && factors.size(-1) <= 32,
                        ValueError(c.name(), "an element has 1 to 32 factors")
                            .got(std::to_string(factors.size(-1))));
          out.push_back({Shape(x.sizes()), x.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& x = c.tensor(0);
          prim::ScanArgs scan{.monoid = Monoid::sum,
                              .in = view_of(x),
                              .out = view_of(out[0]),
                              .dim = normalize_dim(c.integer(2), int(x.dim()), c.name()),
                              .reverse = c.boolean(3)};
          const Tensor& factors = c.tensor(1);
          const Tensor dense =
              orders(factors, x) > 1 && factors.stride(-1) != 1 ? factors.contiguous() : factors;
          scan.factors = view_of(dense);
          p.scan(scan);
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor factors = g.input(1);
              if (g.grad().dim() == 0 || factors.numel() == 0)
                return {g.grad(), zeros_like(factors)};
              const int64_t dim = normalize_dim(g.integer(2), int(g.grad().dim()), "linear_scan");
              const int64_t n = orders(factors, g.grad());
              const bool reverse = g.boolean(3);
              const Tensor back = each_order(factors, n, [&](int64_t k, const Tensor& f) {
                return neighbours(conj(f), dim, reverse, k + 1);
              });
              const Tensor slope = call(linear_scan_op, {g.grad(), back, dim, !reverse});
              if (!g.needs(1)) return {slope, Tensor()};
              const Tensor y = conj(g.output());
              return {slope, each_order(factors, n, [&](int64_t k, const Tensor&) {
                        return neighbours(slope, dim, !reverse, k + 1).mul(y);
                      })};
            },
            0b10, 1)
        .dtypes({kFloat32, kFloat64, kBFloat16, kFloat16});

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
        .in_place()
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
              // dx_i is the product of what precedes x_i, times dy_i + x_(i+1) (dy_(i+1) + ...),
              // which needs no division.
              const Tensor x = g.input(0).to(g.grad().dtype());
              if (x.dim() == 0 || x.numel() == 0) return {g.grad().to(g.input_dtype(0))};
              const int64_t d = normalize_dim(g.integer(1), int(x.dim()), "cumprod");
              const int64_t n = x.size(d);
              const Tensor factors = conj(x);
              Tensor dx = call(linear_scan_op, {g.grad(), factors, d, true});
              if (n == 1) return {dx.to(g.input_dtype(0))};
              const Tensor before = conj(g.output()).narrow(d, 0, n - 1);
              Tensor others = dx.narrow(d, 1, n - 1);
              if (is_grad_enabled())
                dx = cat({dx.narrow(d, 0, 1), others.mul(before)}, d);
              else
                others.mul_(before);
              return {dx.to(g.input_dtype(0))};
            },
            1, 1)
        .in_place()
        .dtypes(kScanTypes);

// ---- running extrema: (self, dim) -> (values, indices)

void running_infer(const Call& c, OutputSpecs& out) {
  const Tensor& x = c.tensor(0);
  normalize_dim(c.integer(1), int(x.dim()), c.name());
  ARETE_CHECK(!is_complex(x.dtype()),
              NotImplementedError(c.name(), "complex numbers have no order"));
  out.push_back({Shape(x.sizes()), x.dtype()});
  out.push_back({Shape(x.sizes()), kInt64});
}

// The larger of two booleans is their disjunction, which the scan of max gives as well.
template <Monoid monoid>
void running_lower(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  const Tensor& x = c.tensor(0);
  prim::ScanArgs scan{.monoid = monoid,
                      .in = view_of(x),
                      .out = view_of(out[0]),
                      .dim = normalize_dim(c.integer(1), int(x.dim()), c.name())};
  scan.indices = view_of(out[1]);
  p.scan(scan);
}

TensorList running_grad(const GradCall& g) {
  const Tensor start = zeros_to_copy(g.input_sizes(0), g.grad().options());
  return {scatter_add(start, g.integer(1), g.output(1), g.grad())};
}

const OpRecord& cummax_op =
    define("cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)")
        .doc("Running maximum and its position.")
        .infer(running_infer)
        .lower(running_lower<prim::Monoid::max>)
        .grad(running_grad, 0, 0b10)
        .no_grad_outputs(0b10);
const OpRecord& cummin_op =
    define("cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)")
        .doc("Running minimum and its position.")
        .infer(running_infer)
        .lower(running_lower<prim::Monoid::min>)
        .grad(running_grad, 0, 0b10)
        .no_grad_outputs(0b10);

// ---- logarithms of running sums of exponentials

void infer_logarithms(const Call& c, OutputSpecs& out, bool wide) {
  const Tensor& x = c.tensor(0);
  normalize_dim(c.integer(1), int(x.dim()), c.name());
  ARETE_CHECK(
      is_floating(x.dtype()),
      TypeError(c.name(), "logcumsumexp: expected a floating point input").got(name_of(x.dtype())));
  out.push_back({Shape(x.sizes()), wide ? kFloat64 : x.dtype()});
}
void lower_logarithms(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  const Tensor& x = c.tensor(0);
  prim::ScanArgs scan{.monoid = Monoid::sum,
                      .in = view_of(x),
                      .out = view_of(out[0]),
                      .dim = normalize_dim(c.integer(1), int(x.dim()), c.name())};
  scan.logarithmic = true;
  p.scan(scan);
}

TensorList logcumsumexp_grad(const GradCall& g);

const OpRecord& wide_logcumsumexp_op =
    define("wide_logcumsumexp(Tensor self, int dim) -> Tensor")
        .doc("log of the running sum of exponentials, in float64.")
        .surface(Surface::internal)
        .infer([](const Call& c, OutputSpecs& out) { infer_logarithms(c, out, true); })
        .lower(lower_logarithms)
        .grad(logcumsumexp_grad, 1);

// With the share w_i = exp(x_i - y_i) of the last element,
//   dx_i = w_i (dy_i + (1 - w_(i+1)) (dy_(i+1) + ...)).
// A sum of 1e3 is known to 1e-4 in float32, and so would be the shares of it, and the factors come
// together in products: hence float64. Where y is -inf nothing has been added yet.
TensorList logcumsumexp_grad(const GradCall& g) {
  const auto share = [](expr::Value x, expr::Value y) {
    return exp(where(y == -HUGE_VAL, -HUGE_VAL, cast(x, expr::Type::f64) - y));
  };
  const Tensor x = g.input(0);
  const int64_t dim = normalize_dim(g.integer(1), int(x.dim()), "logcumsumexp");
  const Tensor ahead[] = {x, call(wide_logcumsumexp_op, {x, dim}), g.grad()};
  static auto& terms_of = *new expr::ProgramCache;
  const expr::Program& terms = terms_of.get(
      pack_key({int(x.dtype()), int(g.grad().dtype())}), {x.dtype(), kFloat64, g.grad().dtype()},
      {}, {kFloat64, kFloat64}, [&](std::span<const expr::Value> v) {
        return std::vector{cast(v[2], expr::Type::f64), 1 - share(v[0], v[1])};
      });
  Results r = apply_program(terms.shared_from_this(), ahead, {}, "logcumsumexp_terms");
  const Tensor sums = call(linear_scan_op, {r[0], r[1], dim, true});
  r.clear();  // before the result is made
  static auto& products = *new expr::ProgramCache;
  const expr::Program& product = products.get(
      pack_key({int(x.dtype()), int(g.input_dtype(0))}), {x.dtype(), kFloat64, kFloat64}, {},
      {g.input_dtype(0)},
      [&](std::span<const expr::Value> v) { return std::vector{share(v[0], v[1]) * v[2]}; });
  const Tensor last[] = {x, ahead[1], sums};
  return {apply_program(product.shared_from_this(), last, {}, "logcumsumexp_product")[0]};
}

const OpRecord& logcumsumexp_op =
    define("logcumsumexp(Tensor self, int dim) -> Tensor")
        .doc("log of the running sum of exponentials.")
        .infer([](const Call& c, OutputSpecs& out) { infer_logarithms(c, out, false); })
        .lower(lower_logarithms)
        .grad(logcumsumexp_grad, 1);

}  // namespace
}  // namespace arete::ops

namespace arete {
Tensor cumsum(const Tensor& self, int64_t dim) {
  return ops::call(ops::cumsum_op, {self, dim, std::nullopt});
}
Tensor cumprod(const Tensor& self, int64_t dim) {
  return ops::call(ops::cumprod_op, {self, dim, std::nullopt});
}
std::tuple<Tensor, Tensor> cummax(const Tensor& self, int64_t dim) {
  const auto r = ops::call_all(ops::cummax_op, {self, dim});
  return {r[0], r[1]};
}
std::tuple<Tensor, Tensor> cummin(const Tensor& self, int64_t dim) {
  const auto r = ops::call_all(ops::cummin_op, {self, dim});
  return {r[0], r[1]};
}
Tensor logcumsumexp(const Tensor& self, int64_t dim) {
  return ops::call(ops::logcumsumexp_op, {self, dim});
}
Tensor Tensor::cumsum(int64_t dim) const { return arete::cumsum(*this, dim); }
Tensor Tensor::cumprod(int64_t dim) const { return arete::cumprod(*this, dim); }
}  // namespace arete

ARETE_FAMILY(scan)
