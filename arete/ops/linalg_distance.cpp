// Distances of many points, norms as limits, and covariance.
#include <algorithm>
#include <cmath>

#include "arete/ops/autocast.h"
#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/rows.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {
namespace {

// The elements of a dense tensor as they lie in memory.
Tensor in_memory_order(const Tensor& t) {
  if (t.is_contiguous()) return t.reshape({-1});
  return t.permute(memory_order(t.strides())).reshape({-1});
}

const OpRecord& dist_op =
    define("dist(Tensor self, Tensor other, Scalar p=2) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("p-norm of all elements of self - other.")
        .compose([](const Call& c) -> Results {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          // In one pass, where elements stand at one place of both.
          if (a.layout().is_dense() && std::ranges::equal(a.sizes(), b.sizes()) &&
              std::ranges::equal(a.strides(), b.strides()))
            return {norm_of_difference(in_memory_order(a), in_memory_order(b), c.real(2), 0)};
          return {a.sub(b).norm(c.real(2))};
        });

// A slice scaled down to a p-norm of at most a limit: the last parameter; before it, where p is
// neither 1, 2 nor infinite, p.
const RowProgramPtr& renorm_program(DType t, double p) {
  static auto* const cache = new RowProgramCache;
  const expr::Type work = expr::work_type(t);
  const int kind = p == 1 ? 1 : p == 2 ? 2 : std::isinf(p) ? 3 : 0;
  return cache->get(
      pack_key({int(t), kind}), {t}, kind == 0 ? std::vector{work, work} : std::vector{work}, {t},
      [=](Rows& rows, std::span<const expr::Value> v) {
        const expr::Value x = v[0], limit = v.back(), size = abs(x);
        expr::Value length;
        if (kind == 1) {
          length = rows.sum(size);
        } else if (kind == 3) {
          length = rows.max(size);
        } else {
          // Roots and powers of 0 have no slope here.
          const auto away = [](const expr::Value& a) { return where(a == 0, 1.0, a); };
          const expr::Value sum =
              rows.sum(kind == 2 ? x * x : where(x == 0, 0.0, pow(away(size), v[1])));
          length = where(sum == 0, 0.0, kind == 2 ? sqrt(away(sum)) : pow(away(sum), 1.0 / v[1]));
        }
        // As PyTorch, with what keeps a length of 0 from dividing.
        return std::vector{x * where(length > limit, limit / (length + 1e-7), 1.0)};
      });
}

const OpRecord& renorm_op =
    define("renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("The slices along dim, each scaled down to a p-norm of at most maxnorm.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const double p = c.real(1), limit = c.real(3);
          ARETE_CHECK(p > 0, ValueError(c.name(), "renorm: non-positive-norm not supported"));
          ARETE_CHECK(limit >= 0,
                      ValueError(c.name(), "renorm: expected maxnorm to be >= 0 but got " +
                                               Scalar(limit).to_string()));
          ARETE_CHECK(x.dim() > 1, ValueError(c.name(),
                                              "renorm: input needs at least 2 "
                                              "dimensions, got " +
                                                  std::to_string(x.dim()) + " dimensions"));
          const int64_t dim = normalize_dim(c.integer(2), int(x.dim()), c.name());
          Shape others;
          for (int64_t d = 0; d < x.dim(); ++d)
            if (d != dim) others.push_back(d);
          if (is_floating(x.dtype()) && x.numel() > 0) {
            SmallVector<Scalar, 2> params{Scalar(limit)};
            if (p != 1 && p != 2 && !std::isinf(p)) params.insert(params.begin(), Scalar(p));
            return {apply_rows(renorm_program(x.dtype(), p), {&x, 1},
                               {params.data(), params.size()}, others, c.name())[0]};
          }
          const Tensor lengths = x.norm(p, others, true);
          // As PyTorch, with what keeps a length of 0 from dividing.
          const Tensor factors = Scalar(limit) / (lengths + Scalar(1e-7));
          return {x * arete::where(lengths > Scalar(limit), factors, 1)};
        })
        .in_place();

// ---- all distances of two sets of points

// |a - b|^2 = |a|^2 - 2 a b + |b|^2: one matrix product, but differences of near points cancel. At
// distance 0 the gradient is 0.
PointwiseDef product_distance_definition() {
  PointwiseDef d;
  d.n_inputs = 3;
  d.definition = [](std::span<const expr::Value> v) {
    const expr::Value square = v[1] + v[2] - v[0] * 2.0, none = square <= 0;  // NaN stays
    return std::vector{where(none, 0.0, sqrt(where(none, 1.0, square)))};
  };
  return d;
}

const OpRecord& product_distance_op =
    define("product_distance(Tensor product, Tensor left, Tensor right) -> Tensor")
        .doc("Distances from products of vectors and the squares of their lengths.")
        .surface(Surface::internal)
        .pointwise(product_distance_definition());

Tensor distances_by_product(const Tensor& a, const Tensor& b) {
  return call(product_distance_op,
              {matmul(a, b.mT()), a.square().sum(-1, true), b.square().sum(-1, true).mT()});
}

const OpRecord& cdist_op =
    define(
        "cdist(Tensor x1, Tensor x2, float p=2.0, str "
        "compute_mode=\"use_mm_for_euclid_dist_if_necessary\") -> Tensor")
        .autocast(Autocast::f32)
        .doc("p-norm distances of all rows of x1 to all rows of x2.")
        .compose([](const Call& c) -> Results {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          const FullPrecision guard;
          const double p = c.real(2);
          const std::string_view mode = c[3].string();
          for (const Tensor* t : {&a, &b})
            ARETE_CHECK(t->dim() >= 2, ValueError(c.name(),
                                                  "cdist only supports at least 2D "
                                                  "tensors, " +
                                                      std::string(t == &a ? "X1" : "X2") +
                                                      " got: " + std::to_string(t->dim()) + "D"));
          ARETE_CHECK(a.size(-1) == b.size(-1),
                      ValueError(c.name(), "X1 and X2 must have the same number of columns. X1: " +
                                               std::to_string(a.size(-1)) +
                                               " X2: " + std::to_string(b.size(-1))));
          ARETE_CHECK(p >= 0, ValueError(c.name(), "cdist only supports non-negative p values"));
          const bool always = mode == "use_mm_for_euclid_dist";
          const bool never = mode == "donot_use_mm_for_euclid_dist";
          ARETE_CHECK(
              always || never || mode == "use_mm_for_euclid_dist_if_necessary",
              ValueError(c.name(), std::string(mode) + " is not a valid value for compute_mode"));
          constexpr int64_t kMany = 25;  // rows, from which on the product is worth its rounding
          if (p == 2 && !never && (always || a.size(-2) > kMany || b.size(-2) > kMany))
            return {distances_by_product(a, b)};
          // Points without coordinates have no largest difference, and are not apart either.
          return {norm_of_difference(a.unsqueeze(-2), b.unsqueeze(-3), a.size(-1) > 0 ? p : 1)};
        })
        .dtypes({kFloat32, kFloat64});

const OpRecord& pdist_op =
    define("pdist(Tensor self, float p=2.0) -> Tensor")
        .functional()
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("p-norm distances of all pairs of rows.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(x.dim() == 2, ValueError(c.name(), "pdist only supports 2D tensors, got: " +
                                                             std::to_string(x.dim()) + "D"));
          ARETE_CHECK(c.real(1) >= 0,
                      ValueError(c.name(), "pdist only supports non-negative p values"));
          return {pair_norms(x, c.real(1))};
        })
        .dtypes({kFloat32, kFloat64});

// ---- covariance

// Rows without their means.
Tensor less_mean(const Tensor& x) {
  static auto* const cache = new RowProgramCache;
  const int64_t dims[] = {1};
  return apply_rows(cache->get(pack_key({int(x.dtype())}), {x.dtype()}, {}, {x.dtype()},
                               [](Rows& rows, std::span<const expr::Value> v) {
                                 return std::vector{v[0] - rows.mean(v[0])};
                               }),
                    {&x, 1}, {}, dims, "cov")[0];
}

const OpRecord& cov_op =
    define(
        "cov(Tensor self, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None) -> "
        "Tensor")
        .doc("Covariance of variables (rows) over observations (columns).")
        .compose([](const Call& c) -> Results {
          ARETE_CHECK(c.tensor(0).dim() <= 2,
                      ValueError(c.name(),
                                 "cov(): expected input to have two or fewer dimensions "
                                 "but got an input with " +
                                     std::to_string(c.tensor(0).dim()) + " dimensions"));
          ARETE_CHECK(c.tensor(0).dtype() != kBool,
                      TypeError(c.name(), "cov(): bool dtype is not supported for input"));
          Tensor x = is_integral_or_bool(c.tensor(0).dtype()) ? c.tensor(0).to(default_dtype())
                                                              : c.tensor(0);
          if (c.has(3)) x = x.to(promote_types(x.dtype(), c.tensor(3).dtype()));
          if (x.dim() < 2) x = x.reshape({1, -1});
          const int64_t n = x.size(1);
          Tensor weights;
          for (size_t i : {2, 3}) {
            if (!c.has(i)) continue;
            const Tensor& w = c.tensor(i);
            const char* name = i == 2 ? "fweights" : "aweights";
            ARETE_CHECK(w.dim() <= 1 && w.numel() == n,
                        ValueError(c.name(), std::string("cov(): expected ") + name +
                                                 " to have the same numel as there are "
                                                 "observations in the input")
                            .got(describe(w)));
            ARETE_CHECK(i == 2 ? is_integer(w.dtype()) : is_floating(w.dtype()),
                        TypeError(c.name(), std::string("cov(): expected ") + name +
                                                (i == 2 ? " to have integral dtype"
                                                        : " to have floating point dtype"))
                            .got(std::string(name_of(w.dtype()))));
            ARETE_CHECK(
                w.is_meta() || w.numel() == 0 || all_values(w).min().item<double>() >= 0,
                ValueError(c.name(), std::string("cov(): ") + name + " cannot be negative"));
            const Tensor converted = w.to(x.dtype()).reshape({n});
            weights = weights.defined() ? weights * converted : converted;
          }
          const double correction = double(c.integer(1));
          if (!weights.defined()) {
            const double degrees = std::max(double(n) - correction, 0.0);
            const Tensor centered = is_complex(x.dtype()) ? x - x.mean(1, true) : less_mean(x);
            const Tensor other = conj(centered).t();
            return {(degrees > 0 ? matmul_scaled(centered, other, 1 / degrees)
                                 : mm(centered, other) / Scalar(degrees))
                        .squeeze()};
          }
          const Tensor total = weights.sum();
          const Tensor centered = x - (x * weights).sum(1, true) / total;
          Tensor degrees = total - Scalar(correction);
          if (c.has(3))
            degrees = total - (weights * c.tensor(3).to(x.dtype()).reshape({n})).sum() *
                                  Scalar(correction) / total;
          return {(mm(centered, conj(centered * weights).t()) / real(degrees).clamp(Scalar(0)))
                      .squeeze()};
        })
        .dtypes({kFloat32, kFloat64});

const OpRecord& corrcoef_op =
    define("corrcoef(Tensor self) -> Tensor")
        .doc("Correlation coefficients of variables (rows) over observations (columns).")
        .compose([](const Call& c) -> Results {
          ARETE_CHECK(c.tensor(0).dim() <= 2,
                      ValueError(c.name(),
                                 "corrcoef(): expected input to have two or fewer "
                                 "dimensions but got an input with " +
                                     std::to_string(c.tensor(0).dim()) + " dimensions"));
          const Tensor covariance = cov(c.tensor(0));
          if (covariance.dim() == 0) return {covariance / covariance};
          const Tensor deviation = real(covariance.diagonal()).sqrt();
          const Tensor r = covariance / deviation.unsqueeze(-1) / deviation.unsqueeze(-2);
          const auto bounded = [](const Tensor& t) { return t.clamp(Scalar(-1), Scalar(1)); };
          return {is_complex(r.dtype()) ? complex(bounded(real(r)), bounded(imag(r))) : bounded(r)};
        })
        .dtypes({kFloat32, kFloat64});

}  // namespace
}  // namespace ops

Tensor dist(const Tensor& self, const Tensor& other, double p) {
  return ops::call(ops::dist_op, {self, other, p});
}
Tensor renorm(const Tensor& self, double p, int64_t dim, double maxnorm) {
  return ops::call(ops::renorm_op, {self, p, dim, maxnorm});
}
Tensor cdist(const Tensor& x1, const Tensor& x2, double p, std::string_view compute_mode) {
  return ops::call(ops::cdist_op, {x1, x2, p, compute_mode});
}
Tensor pdist(const Tensor& self, double p) { return ops::call(ops::pdist_op, {self, p}); }
Tensor cov(const Tensor& self, int64_t correction, const Tensor& fweights, const Tensor& aweights) {
  return ops::call(ops::cov_op, {self, correction, fweights, aweights});
}
Tensor corrcoef(const Tensor& self) { return ops::call(ops::corrcoef_op, {self}); }

}  // namespace arete

ARETE_FAMILY(linalg_distance)
