// Products and powers of vectors, and torch.linalg's names for what stands elsewhere.
#include "arete/expr/program_cache.h"
#include "arete/ops/autocast.h"
#include "arete/ops/complex.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/filling.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {
namespace ops {
namespace {

// ---- cross products

// Three results from six factors, all of them strided views, in one kernel.
const OpRecord& cross_along_op =
    define("cross_along(Tensor self, Tensor other, int dim) -> Tensor")
        .doc("Cross products along dim, a dimension of size 3 of both.")
        .surface(Surface::internal)
        .infer([](const Call& c, OutputSpecs& out) {
          out.push_back({broadcast_shapes(c.tensor(0).sizes(), c.tensor(1).sizes(), "linalg.cross"),
                         c.tensor(0).dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          using expr::Value;
          static auto& cache = *new expr::ProgramCache;
          const DType t = out[0].dtype();
          const size_t d = size_t(c.integer(2));
          Shape part(out[0].sizes());
          part.erase(part.begin() + d);
          std::vector<Layout> layouts;  // of the factors' components, then of the result's
          for (const Tensor* x : {&c.tensor(0), &c.tensor(1), &out[0]})
            for (int64_t k = 0; k < 3; ++k) {
              Layout l = expand(x->layout(), out[0].sizes());
              l.offset += k * l.strides[d];
              l.sizes.erase(l.sizes.begin() + d);
              l.strides.erase(l.strides.begin() + d);
              layouts.push_back(std::move(l));
            }
          SmallVector<prim::View, 9> views;
          for (size_t k = 0; k < 9; ++k)
            views.push_back(view_of(k < 3   ? c.tensor(0)
                                    : k < 6 ? c.tensor(1)
                                            : out[0],
                                    layouts[k]));
          p.pointwise({&cache.get(uint64_t(t), {t, t, t, t, t, t}, {}, {t, t, t},
                                  [](std::span<const Value> v) {
                                    const auto turned = [&](size_t i, size_t j) {
                                      return v[i] * v[3 + j] - v[j] * v[3 + i];
                                    };
                                    return std::vector{turned(1, 2), turned(2, 0), turned(0, 1)};
                                  }),
                       std::span(views.data(), 6),
                       std::span(views.data() + 6, 3),
                       {}});
        })
        .complex([](const Call& c) -> Results {
          const auto turned = [&](size_t i, int64_t by) {
            return roll(c.tensor(i), {-by}, {c.integer(2)});
          };
          return {turned(0, 1) * turned(1, 2) - turned(0, 2) * turned(1, 1)};
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const auto part = [&](size_t of, const Tensor& x, const Tensor& y) {
                if (!g.needs(of)) return Tensor();
                return sum_to_size(call(cross_along_op, {x, y, g.arg(2)}), g.input_sizes(of));
              };
              return {part(0, g.input(1), g.grad()), part(1, g.grad(), g.input(0))};
            },
            0b11)
        .dtypes(kMultipliedTypes);

Tensor cross_of(const Tensor& x, const Tensor& y, int64_t dim, const std::string& name) {
  ARETE_CHECK(x.dim() == y.dim(),
              ValueError(name, name + ": inputs must have the same number of dimensions.")
                  .got(describe(x) + ", " + describe(y)));
  ARETE_CHECK(x.size(dim) == 3 && y.size(dim) == 3,
              ValueError(name, name + ": inputs dimension " + std::to_string(dim) +
                                   " must have length 3. Got " + std::to_string(x.size(dim)) +
                                   " and " + std::to_string(y.size(dim))));
  const DType t = promote_types(x.dtype(), y.dtype());
  ARETE_CHECK(t != kBool, NotImplementedError(name, "\"cross\" not implemented for 'Bool'"));
  return call(cross_along_op,
              {x.to(t), y.to(t), int64_t(normalize_dim(dim, int(x.dim()), name.c_str()))});
}

const OpRecord& linalg_cross_op =
    define("linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor")
        .doc("Cross products of vectors of three along dim.")
        .compose([](const Call& c) -> Results {
          return {cross_of(c.tensor(0), c.tensor(1), c.integer(2), "linalg.cross")};
        })
        .dtypes(kMultipliedTypes);

int64_t first_of_three(IntList sizes) {
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] == 3) return int64_t(d);
  throw ValueError("cross", "no dimension of size 3 in input").got(to_string(sizes));
}

const OpRecord& cross_op =
    define("cross(Tensor self, Tensor other, int? dim=None) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::promote))
        .doc("Cross products along dim, by default along the first dimension of size 3.")
        .compose([](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &y = c.tensor(1);
          const int64_t dim = c.has(2)
                                  ? c.integer(2)
                                  : first_of_three(broadcast_shapes(x.sizes(), y.sizes(), "cross"));
          return {cross_of(x, y, dim, "linalg.cross")};
        })
        .dtypes(kMultipliedTypes);

// ---- powers as columns

// x^0 ... x^(n-1) along a new last dimension, as running products: exact for whole numbers.
const OpRecord& powers_op =
    define("powers(Tensor x, int n) -> Tensor")
        .surface(Surface::internal)
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Powers 0 to n - 1 of all elements along a new last dimension.")
        .batched(vmaps::elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          const DType t = is_integral_or_bool(x.dtype()) ? kInt64 : x.dtype();
          out.push_back({with_sizes(x.sizes(), {c.integer(1)}), t});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor x = plain(c.tensor(0), out[0].dtype());
          const int64_t n = c.integer(1);
          if (out[0].numel() == 0) return;
          p.fill(filling(view_of(out[0], narrow(out[0].layout(), -1, 0, 1)), Scalar(1), c.name()));
          if (n == 1) return;
          const Layout rest = narrow(out[0].layout(), -1, 1, n - 1);
          const Layout repeated = expand(unsqueeze(x.layout(), -1), rest.sizes);
          p.scan({.monoid = prim::Monoid::prod,
                  .in = view_of(x, repeated),
                  .out = view_of(out[0], rest),
                  .dim = int(x.dim())});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const int64_t n = g.integer(1);
              if (n < 2) return {zeros(g.input_sizes(0), g.grad().options())};
              // Exponents are exact.
              const DType t = g.grad().dtype();
              const DType wide = is_complex(t)                     ? real_of(t)
                                 : t == kFloat16 || t == kBFloat16 ? kFloat32
                                                                   : t;
              const Tensor exponents =
                  arange(Scalar(1), Scalar(n), TensorOptions(wide, g.grad().device()));
              return {(g.grad().narrow(-1, 1, n - 1) *
                       (conj(g.output()).narrow(-1, 0, n - 1) * exponents))
                          .sum(-1)
                          .to(t)};
            },
            0, 1)
        .dtypes(kMultipliedTypes);
Tensor powers(const Tensor& x, int64_t n) { return call(powers_op, {x, n}); }

const OpRecord& linalg_vander_op =
    define("linalg_vander(Tensor x, *, int? N=None) -> Tensor")
        .doc("Powers 0 to N - 1 of all elements along a new dimension.")
        .compose([](const Call& c) -> Results {
          const Tensor x = atleast_1d(c.tensor(0));
          const int64_t n = c.has(1) ? c.integer(1) : x.size(-1);
          ARETE_CHECK(n > 1,
                      ValueError(c.name(), "N must be greater than 1.").got(std::to_string(n)));
          return {powers(x, n)};
        })
        .dtypes(kMultipliedTypes);

const OpRecord& vander_op =
    define("vander(Tensor x, int? N=None, bool increasing=False) -> Tensor")
        .doc("Powers of a vector as columns, the highest first unless increasing.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(x.dim() == 1,
                      ValueError(c.name(), "x must be a one-dimensional tensor.").got(describe(x)));
          const int64_t n = c.has(1) ? c.integer(1) : x.size(0);
          ARETE_CHECK(n >= 0,
                      ValueError(c.name(), "N must be non-negative.").got(std::to_string(n)));
          const Tensor y = powers(x, n);
          return {c.boolean(2) ? y : flip(y, {-1})};
        })
        .dtypes(kMultipliedTypes);

// ---- vectors

const OpRecord& linalg_vecdot_op =
    define("linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor")
        .autocast(Autocast::lower)
        .doc("Sums of products along dim.")
        .compose([](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &y = c.tensor(1);
          ARETE_CHECK(x.dtype() == y.dtype(),
                      TypeError(c.name(),
                                "linalg.vecdot: Expected x and y to have the same dtype, "
                                "but found x of type " +
                                    std::string(name_of(x.dtype())) + " and y of type " +
                                    std::string(name_of(y.dtype())) + " instead"));
          return {(conj(x) * y).sum(c.integer(2))};
        });

const OpRecord& linalg_diagonal_op =
    define("linalg_diagonal(Tensor A, *, int offset=0, int dim1=-2, int dim2=-1) -> Tensor")
        .doc("The diagonals of matrices: a view.")
        .compose([](const Call& c) -> Results {
          return {c.tensor(0).diagonal(c.integer(1), c.integer(2), c.integer(3))};
        });

const OpRecord& linalg_matmul_op =
    define("linalg_matmul(Tensor self, Tensor other) -> Tensor")
        .doc("matmul.")
        .compose([](const Call& c) -> Results { return {matmul(c.tensor(0), c.tensor(1))}; });

const OpRecord& vdot_op =
    define("vdot(Tensor self, Tensor other) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::promote))
        .doc("The dot product of the conjugate of self and other.")
        .compose([](const Call& c) -> Results { return {dot(conj(c.tensor(0)), c.tensor(1))}; });

const OpRecord& ger_op =
    define("ger(Tensor self, Tensor vec2) -> Tensor")
        .doc("outer.")
        .compose([](const Call& c) -> Results { return {outer(c.tensor(0), c.tensor(1))}; });

}  // namespace
}  // namespace ops

namespace linalg {
Tensor cross(const Tensor& x, const Tensor& y, int64_t dim) {
  return ops::call(ops::linalg_cross_op, {x, y, dim});
}
Tensor vecdot(const Tensor& x, const Tensor& y, int64_t dim) {
  return ops::call(ops::linalg_vecdot_op, {x, y, dim});
}
Tensor vander(const Tensor& x, std::optional<int64_t> n) {
  return ops::call(ops::linalg_vander_op, {x, n});
}
Tensor diagonal(const Tensor& a, int64_t offset, int64_t dim1, int64_t dim2) {
  return ops::call(ops::linalg_diagonal_op, {a, offset, dim1, dim2});
}
Tensor matmul(const Tensor& a, const Tensor& b) { return ops::call(ops::linalg_matmul_op, {a, b}); }
}  // namespace linalg

Tensor cross(const Tensor& self, const Tensor& other, std::optional<int64_t> dim) {
  return ops::call(ops::cross_op, {self, other, dim});
}
Tensor vander(const Tensor& x, std::optional<int64_t> n, bool increasing) {
  return ops::call(ops::vander_op, {x, n, increasing});
}
Tensor vdot(const Tensor& self, const Tensor& other) {
  return ops::call(ops::vdot_op, {self, other});
}
Tensor ger(const Tensor& self, const Tensor& vec2) { return ops::call(ops::ger_op, {self, vec2}); }

}  // namespace arete

ARETE_FAMILY(linalg_vectors)
