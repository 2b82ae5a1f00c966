// Sorting and selection.
#include "arete/ops/sort.h"

#include "arete/ops/reduce_family.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/ops/window_util.h"

namespace arete::ops {

// ---- for batches (Note [Batching rules])

namespace vmaps {
namespace {
Results along_first(const Rewriting& r) {
  const Tensor x = r.whole(0);
  if (rank_of(r.at(0)) == 0) return {x.clone()};
  Changed call(r);
  call.set(0, x.movedim(0, 1));
  return {call.run()[0].movedim(1, 0)};
}
}  // namespace
}  // namespace vmaps

namespace {

// A number is in order, and its own only place is the first.
void take_number(const Tensor& x, std::span<const Tensor> out, prim::Primitives& p) {
  p.copy({view_of(out[0]), view_of(x)});
  p.fill({view_of(out[1]), {}, true, 0});
}

const OpRecord& sort_op =
    define(
        "sort(Tensor self, int dim=-1, bool descending=False, *, bool? stable=False) -> (Tensor "
        "values, "
        "Tensor indices)")
        .doc("Sorted values along dim and their former positions; stable.")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          normalize_dim(c.integer(1), int(x.dim()), "sort");
          for (DType t : {x.dtype(), kInt64}) out.push_back({Shape(x.sizes()), t, strides_like(x)});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& x = c.tensor(0);
          if (x.dim() == 0) return take_number(x, out, p);
          p.sort({view_of(x), view_of(out[0]), view_of(out[1]),
                  normalize_dim(c.integer(1), int(x.dim()), "sort"), c.boolean(2)});
        })
        .grad([](const GradCall& g) { return grad_of_picked(g, g.integer(1), true); }, 0, 2)
        .no_grad_outputs(2);

const OpRecord& topk_op =
    define(
        "topk(Tensor self, int k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor "
        "values, Tensor indices)")
        .doc("The k largest (smallest) values along dim and their positions, sorted.")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          const int d = normalize_dim(c.integer(2), int(x.dim()), "topk");
          const int64_t n = x.dim() ? x.sizes()[size_t(d)] : 1;
          ARETE_CHECK(c.integer(1) >= 0 && c.integer(1) <= n,
                      IndexError("topk", "selected index k out of range")
                          .argument("k")
                          .expected("0 to " + std::to_string(n))
                          .got(std::to_string(c.integer(1))));
          Shape s(x.sizes());
          if (x.dim()) s[size_t(d)] = c.integer(1);
          out.push_back({s, x.dtype()});
          out.push_back({s, kInt64});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& x = c.tensor(0);
          if (x.dim() == 0) return take_number(x, out, p);
          p.topk({view_of(x), view_of(out[0]), view_of(out[1]),
                  normalize_dim(c.integer(2), int(x.dim()), "topk"), c.boolean(3)});
        })
        .grad([](const GradCall& g) { return grad_of_picked(g, g.integer(2), true); }, 0, 2)
        .no_grad_outputs(2);

const OpRecord& argsort_op =
    define(
        "argsort(Tensor self, int dim=-1, bool descending=False, *, bool stable=False) -> Tensor")
        .doc("The positions of the sorted values along dim; stable.")
        .compose([](const Call& c) -> Results {
          return {call_all(sort_op, {c.tensor(0).detach(), c[1], c[2], true})[1]};
        });

const OpRecord& sorted_values_op =
    define("sorted_values(Tensor self) -> Tensor")
        .doc("Sorted values along the first dimension, equal ones in any order.")
        .surface(Surface::internal)
        .batched(vmaps::along_first)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          out.push_back({Shape(x.sizes()), x.dtype(), strides_like(x)});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& x = c.tensor(0);
          if (x.dim() == 0) return p.copy({view_of(out[0]), view_of(x)});
          p.sort({view_of(x), view_of(out[0]), {}, 0});
        })
        .no_grad_outputs(1);

const OpRecord& msort_op = define("msort(Tensor self) -> Tensor")
                               .doc("Sorted values along the first dimension.")
                               .compose([](const Call& c) -> Results {
                                 const Tensor& x = c.tensor(0);
                                 if (will_record(x))
                                   return {call_all(sort_op, {x, 0, false, true})[0]};
                                 return {call(sorted_values_op, {x})};
                               });

}  // namespace
}  // namespace arete::ops

namespace arete {

std::tuple<Tensor, Tensor> sort(const Tensor& self, int64_t dim, bool descending, bool stable) {
  auto r = ops::call_all(ops::sort_op, {self, dim, descending, stable});
  return {r[0], r[1]};
}
Tensor argsort(const Tensor& self, int64_t dim, bool descending, bool stable) {
  return ops::call(ops::argsort_op, {self, dim, descending, stable});
}
std::tuple<Tensor, Tensor> topk(const Tensor& self, int64_t k, int64_t dim, bool largest,
                                bool sorted) {
  auto r = ops::call_all(ops::topk_op, {self, k, dim, largest, sorted});
  return {r[0], r[1]};
}

Tensor msort(const Tensor& self) { return ops::call(ops::msort_op, {self}); }

std::tuple<Tensor, Tensor> Tensor::sort(int64_t dim, bool descending, bool stable) const {
  return arete::sort(*this, dim, descending, stable);
}
Tensor Tensor::argsort(int64_t dim, bool descending, bool stable) const {
  return arete::argsort(*this, dim, descending, stable);
}
std::tuple<Tensor, Tensor> Tensor::topk(int64_t k, int64_t dim, bool largest, bool sorted) const {
  return arete::topk(*this, k, dim, largest, sorted);
}

}  // namespace arete

ARETE_FAMILY(sort)
