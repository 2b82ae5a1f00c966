// Products of tensors, and products with an addend.
#include <algorithm>

#include "arete/core/modes.h"
#include "arete/ops/autocast.h"
#include "arete/ops/linalg.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

// ---- tensors

Shape normalize_each(IntList dims, int64_t rank, const char* name) {
  Shape all;
  for (int64_t d : dims) {
    const int64_t n = normalize_dim(d, int(rank), name);
    ARETE_CHECK(std::find(all.begin(), all.end(), n) == all.end(),
                ValueError(name, "dim " + std::to_string(n) +
                                     " appears multiple times in the list of dims"));
    all.push_back(n);
  }
  return all;
}

const OpRecord& tensordot_op =
    define("tensordot(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::promote))
        .doc("Sums of products over pairs of dimensions.")
        .compose([](const Call& c) -> Results {
          Tensor a = c.tensor(0), b = c.tensor(1);
          Shape da = normalize_each(c.ints(2), a.dim(), c.name());
          Shape db = normalize_each(c.ints(3), b.dim(), c.name());
          ARETE_CHECK(da.size() == db.size(),
                      ValueError(c.name(), "both dimension lists should have same length"));
          int64_t inner = 1;
          for (size_t i = 0; i < da.size(); ++i) {
            const int64_t x = a.size(da[i]), y = b.size(db[i]);
            if (x == 1 && y != 1)
              b = b.sum(db[i], true).to(b.dtype());
            else if (y == 1 && x != 1)
              a = a.sum(da[i], true).to(a.dtype());
            else
              ARETE_CHECK(x == y,
                          ValueError(c.name(),
                                     "contracted dimensions need to match, but "
                                     "first has size " +
                                         std::to_string(x) + " in dim " + std::to_string(da[i]) +
                                         " and second has size " + std::to_string(y) + " in dim " +
                                         std::to_string(db[i])));
            inner *= a.size(da[i]);
          }
          const auto others = [](const Tensor& t, const Shape& dims) {
            Shape rest;
            for (int64_t d = 0; d < t.dim(); ++d)
              if (std::find(dims.begin(), dims.end(), d) == dims.end()) rest.push_back(d);
            return rest;
          };
          const Shape ra = others(a, da), rb = others(b, db);
          // The order of the pairs does not matter: in that of memory they need no copy.
          for (size_t i = 1; i < da.size(); ++i)
            for (size_t k = i; k > 0 && a.stride(da[k - 1]) < a.stride(da[k]); --k) {
              std::swap(da[k - 1], da[k]);
              std::swap(db[k - 1], db[k]);
            }
          Shape pa = ra, pb = db, sizes;
          for (int64_t d : da) pa.push_back(d);
          for (int64_t d : rb) pb.push_back(d);
          int64_t rows = 1, columns = 1;
          for (int64_t d : ra) {
            sizes.push_back(a.size(d));
            rows *= a.size(d);
          }
          for (int64_t d : rb) {
            sizes.push_back(b.size(d));
            columns *= b.size(d);
          }
          // No batch of products, which would be slower; autocast means products, though.
          if (rows == 1 && columns == 1 && !(modes().word & Modes::kAutocast))
            return {
                dot(a.permute(pa).reshape({inner}), b.permute(pb).reshape({inner})).reshape(sizes)};
          return {mm(a.permute(pa).reshape({rows, inner}), b.permute(pb).reshape({inner, columns}))
                      .reshape(sizes)};
        });

const OpRecord& kron_op = define("kron(Tensor self, Tensor other) -> Tensor")
                              .doc("Blocks: every element of self times all of other.")
                              .compose([](const Call& c) -> Results {
                                const Tensor &a = c.tensor(0), &b = c.tensor(1);
                                const size_t rank = size_t(std::max(a.dim(), b.dim()));
                                // Both with `rank` dimensions, those of a before those of b: (a0,
                                // 1, a1, 1) (1, b0, 1, b1).
                                Shape left, right, sizes;
                                for (size_t d = 0; d < rank; ++d) {
                                  const auto size = [&](const Tensor& t) {
                                    const size_t lead = rank - size_t(t.dim());
                                    return d < lead ? int64_t(1) : t.sizes()[d - lead];
                                  };
                                  left.push_back(size(a));
                                  left.push_back(1);
                                  right.push_back(1);
                                  right.push_back(size(b));
                                  sizes.push_back(size(a) * size(b));
                                }
                                return {(a.reshape(left) * b.reshape(right)).reshape(sizes)};
                              })
                              .dtypes(kMultipliedTypes);

const OpRecord& inner_op =
    define("inner(Tensor self, Tensor other) -> Tensor")
        .autocast(Autocast::as_is)
        .doc("Sums of products over the last dimensions of both.")
        .compose([](const Call& c) -> Results {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          if (a.dim() == 0 || b.dim() == 0) return {a * b};
          ARETE_CHECK(a.size(-1) == b.size(-1),
                      ValueError(c.name(),
                                 "inner() the last dimension must match on both input "
                                 "tensors but got shapes " +
                                     to_string(a.sizes()) + " and " + to_string(b.sizes())));
          if (a.dim() == 1 && b.dim() == 1 && a.dtype() == b.dtype() &&
              !(modes().word & Modes::kAutocast))
            return {dot(a, b)};
          return {tensordot(a, b, {-1}, {-1})};
        });

// ---- with an addend: beta * self + alpha * product, where self is not read if beta is 0

Tensor plus(const Tensor& self, const Tensor& product, const Scalar& beta, const Scalar& alpha) {
  if (self.dtype() == kBool && product.dtype() == kBool &&
      !(beta.is_boolean() && alpha.is_boolean()))
    return plus(self, product, beta.to_bool(), alpha.to_bool());  // or, and
  if (beta.to_double() == 1 && self.dtype() != kBool && product.dtype() != kBool)
    return self.expand(product.sizes()).add(product, alpha);
  const Tensor scaled = alpha.to_double() == 1 ? product : product * alpha;
  if (beta.to_double() == 0) {
    expand(self.layout(), product.sizes());  // its errors are ours
    return scaled;
  }
  const Tensor addend = self.expand(product.sizes());
  return (beta.to_double() == 1 ? addend : addend.mul(beta)) + scaled;
}

const OpRecord& addmv_op =
    define("addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::lower))
        .doc("beta * self + alpha * mat @ vec.")
        .compose([](const Call& c) -> Results {
          const Tensor &self = c.tensor(0), &mat = c.tensor(1), &vec = c.tensor(2);
          ARETE_CHECK(
              mat.dim() == 2 && vec.dim() == 1 && self.dim() <= 1,
              ValueError(c.name(),
                         "vector + matrix @ vector expected, got " + std::to_string(self.dim()) +
                             ", " + std::to_string(mat.dim()) + ", " + std::to_string(vec.dim())));
          const std::string length = self.dim() ? std::to_string(self.size(0)) : "";
          ARETE_CHECK(
              mat.size(1) == vec.size(0) && (self.numel() == mat.size(0) || self.numel() == 1),
              ValueError(c.name(), "size mismatch, got input (" + length + "), mat (" +
                                       std::to_string(mat.size(0)) + "x" +
                                       std::to_string(mat.size(1)) + "), vec (" +
                                       std::to_string(vec.size(0)) + ")"));
          const bool whole = is_integral_or_bool(self.dtype()) && is_integral_or_bool(mat.dtype());
          const auto factor = [&](size_t i) {  // of the dtype of what it multiplies
            const Scalar& s = c.scalar(i);
            return whole && !s.is_integral() ? Scalar(int64_t(s.to_double())) : s;
          };
          return {plus(self, mv(mat, vec), factor(3), factor(4))};
        })
        .in_place();

const OpRecord& addr_op =
    define(
        "addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::lower))
        .doc("beta * self + alpha * outer(vec1, vec2).")
        .compose([](const Call& c) -> Results {
          for (size_t i : {1, 2})
            ARETE_CHECK(
                c.tensor(i).dim() == 1,
                ValueError(c.name(), "addr: Expected 1-D argument vec" + std::to_string(i) +
                                         ", but got " + std::to_string(c.tensor(i).dim()) + "-D"));
          const Tensor product = outer(c.tensor(1), c.tensor(2));
          for (size_t i : {3, 4})
            ARETE_CHECK(c.scalar(i).is_integral() || !is_integral_or_bool(promote_types(
                                                         c.tensor(0).dtype(), product.dtype())),
                        ValueError(c.name(), std::string("For integral input tensors, argument ") +
                                                 (i == 3 ? "beta" : "alpha") +
                                                 " must not be a floating point number."));
          return {plus(c.tensor(0), product, c.scalar(3), c.scalar(4))};
        })
        .dtypes(kMultipliedTypes)
        .in_place();

const OpRecord& addbmm_op =
    define(
        "addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> "
        "Tensor")
        .autocast(Autocast::lower)
        .doc("beta * self + alpha * the sum of all batch1[i] @ batch2[i].")
        .compose([](const Call& c) -> Results {
          const Tensor &a = c.tensor(1), &b = c.tensor(2);
          ARETE_CHECK(a.dim() == 3 && b.dim() == 3,
                      ValueError(c.name(), "batch1 must be a 3D tensor, and batch2 too")
                          .got(describe(a) + ", " + describe(b)));
          ARETE_CHECK(
              a.size(0) == b.size(0),
              ValueError(c.name(),
                         "batch1 and batch2 must have same number of batches, "
                         "got " +
                             std::to_string(a.size(0)) + " and " + std::to_string(b.size(0))));
          ARETE_CHECK(
              a.size(2) == b.size(1),
              ValueError(c.name(), "Incompatible matrix sizes for bmm (" +
                                       std::to_string(a.size(1)) + "x" + std::to_string(a.size(2)) +
                                       " and " + std::to_string(b.size(1)) + "x" +
                                       std::to_string(b.size(2)) + ")"));
          // One product over both: the sum over batches is part of the inner dimension.
          const int64_t inner = a.size(0) * a.size(2);
          return {addmm(c.tensor(0), a.transpose(0, 1).reshape({a.size(1), inner}),
                        b.reshape({inner, b.size(2)}), c.scalar(3), c.scalar(4))};
        })
        .in_place();

const OpRecord& trace_op =
    define("trace(Tensor self) -> Tensor")
        .autocast(autocast_on_cpu(Autocast::f32))
        .doc("The sum of a matrix's diagonal.")
        .compose([](const Call& c) -> Results {
          ARETE_CHECK(c.tensor(0).dim() == 2,
                      ValueError(c.name(), "trace: expected a matrix").got(describe(c.tensor(0))));
          return {c.tensor(0).diagonal().sum()};
        })
        .dtypes(kMultipliedTypes);

}  // namespace
}  // namespace ops

Tensor tensordot(const Tensor& self, const Tensor& other, IntList dims_self, IntList dims_other) {
  return ops::call(ops::tensordot_op, {self, other, dims_self, dims_other});
}
Tensor tensordot(const Tensor& self, const Tensor& other, int64_t dims) {
  ARETE_CHECK(dims >= 0, ValueError("tensordot", "tensordot expects dims >= 0, but got dims=" +
                                                     std::to_string(dims)));
  Shape left, right;
  for (int64_t d = 0; d < dims; ++d) {
    left.push_back(d - dims);
    right.push_back(d);
  }
  return tensordot(self, other, left, right);
}
Tensor kron(const Tensor& self, const Tensor& other) {
  return ops::call(ops::kron_op, {self, other});
}
Tensor inner(const Tensor& self, const Tensor& other) {
  return ops::call(ops::inner_op, {self, other});
}
Tensor addmv(const Tensor& self, const Tensor& mat, const Tensor& vec, Scalar beta, Scalar alpha) {
  return ops::call(ops::addmv_op, {self, mat, vec, beta, alpha});
}
Tensor addr(const Tensor& self, const Tensor& vec1, const Tensor& vec2, Scalar beta, Scalar alpha) {
  return ops::call(ops::addr_op, {self, vec1, vec2, beta, alpha});
}
Tensor addbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2, Scalar beta,
              Scalar alpha) {
  return ops::call(ops::addbmm_op, {self, batch1, batch2, beta, alpha});
}
Tensor trace(const Tensor& self) { return ops::call(ops::trace_op, {self}); }

}  // namespace arete

ARETE_FAMILY(linalg_products)
