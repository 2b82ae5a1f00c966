// scatter_reduce and index_reduce.
#include <cmath>

#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/index_util.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/work.h"

namespace arete {
namespace ops {
namespace {

using prim::ScatterMode;

// What meets at a place is combined; (self, dim, index, src, mode) with ScatterMode's number.

// Equal extrema share the gradient.
TensorList extreme_grad(const GradCall& g) {
  const Tensor self = g.input(0), index = g.input(1), src = g.input(2), y = g.output().detach();
  const int64_t dim = g.integer(1);
  const Tensor from_self = self.detach().eq(y).to(y.dtype());
  const Tensor from_src = gather(y, dim, index).eq(src.detach()).to(y.dtype());
  const Tensor share = g.grad().div(scatter_add(from_self, dim, index, from_src));
  return {share.mul(from_self), Tensor(), gather(share, dim, index).mul(from_src)};
}

// The product of the others: with a zero, the product in which that zero counts as 1.
TensorList product_grad(const GradCall& g) {
  const Tensor self = g.input(0), index = g.input(1), src = g.input(2);
  const int64_t dim = g.integer(1), mode = g.integer(4);
  const OpRecord& op = *find_record("scatter_combine");
  const Tensor self_zero = self.eq(Scalar(0)), src_zero = src.eq(Scalar(0));
  // Zeros that meet at each place, self's own apart.
  const Tensor zeros_met = scatter_add(zeros_like(self), dim, index, src_zero.to(self.dtype()));
  const Tensor safe_self = where(self_zero, Scalar(1), self);
  const Tensor safe_src = where(src_zero, Scalar(1), src);
  // All factors but the zeros.
  const Tensor rest = call(op, {safe_self, dim, index, safe_src, mode});
  const Tensor total = zeros_met.add(self_zero.to(self.dtype()));
  // A single zero among the others counts with its value, so that it has a second derivative.
  const Tensor zero_src = where(src_zero, src, Scalar(0));
  const Tensor met = scatter_add(zeros_like(self), dim, index, zero_src);
  const auto product = [](const Tensor& others, const Tensor& zeros, const Tensor& zero) {
    return where(zeros.eq(Scalar(0)), others,
                 where(zeros.eq(Scalar(1)), zero.mul(others), Scalar(0)));
  };
  TensorList r(3);
  if (g.needs(0)) r[0] = g.grad().mul(product(rest.div(safe_self), zeros_met, met));
  if (g.needs(2)) {
    const Tensor zeros = gather(total, dim, index).sub(src_zero.to(self.dtype()));
    const Tensor zero =
        gather(met.add(where(self_zero, self, Scalar(0))), dim, index).sub(zero_src);
    r[2] = gather(g.grad(), dim, index)
               .mul(product(gather(rest, dim, index).div(safe_src), zeros, zero));
  }
  return r;
}

const OpRecord& scatter_combine_op =
    define("scatter_combine(Tensor self, int dim, Tensor index, Tensor src, int mode) -> Tensor")
        .doc("self with values multiplied in, or minima or maxima taken, at given positions.")
        .flops([](const Call& c) { return double(c.tensor(2).numel()); })
        .surface(Surface::internal)
        .infer([](const Call& c, OutputSpecs& out) {
          scatter_infer(c, out);
          const IntList part = c.tensor(2).sizes(), src = c.tensor(3).sizes();
          ARETE_CHECK(std::equal(part.begin(), part.end(), src.begin(), src.end()),
                      ValueError(c.name(), "index and src must have the same sizes")
                          .got(to_string(part) + " and " + to_string(src)));
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const IndexView index(p, c.tensor(2));
          start_from_self(c, out[0], p);
          p.scatter({view_of(out[0]), index.view(), view_of(c.tensor(3)), dim_argument(c),
                     ScatterMode(c.integer(4)), "scatter_reduce"});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              return ScatterMode(g.integer(4)) == ScatterMode::mul ? product_grad(g)
                                                                   : extreme_grad(g);
            },
            0b111, 1);

// ---- scatter_reduce, index_reduce: (self, dim, index, src, reduce, include_self)

// What is no value of its own where self does not count.
Scalar neutral(std::string_view reduce, DType t) {
  if (reduce == "prod") return Scalar(1);
  const bool low = reduce == "amax";
  if (!low && reduce != "amin") return Scalar(0);
  if (t == kInt64) return Scalar(low ? INT64_MIN : INT64_MAX);
  if (t == kBool) return Scalar(int64_t(!low));
  if (is_integral_or_bool(t)) return Scalar(int64_t(low ? lowest_of(t) : max_of(t)));
  return Scalar(low ? -INFINITY : INFINITY);
}

// index and src have one shape. slices: the same index for all elements of a slice, of size 1 along
// the other dimensions; absent if there is none. It is what is counted.
Tensor reduce_into(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                   std::string_view reduce, bool include_self, const Tensor& slices = {}) {
  Tensor start = self;
  if (!include_self) start = scatter(self, dim, index, neutral(reduce, self.dtype()));
  if (reduce == "sum") return scatter_add(start, dim, index, src);
  if (reduce == "mean") {
    const Tensor& of = slices.defined() ? slices : index;
    Shape sizes((slices.defined() ? slices : self).sizes());
    sizes[size_t(dim)] = self.size(dim);
    const Tensor one = ones(sizes, self.options());
    const Tensor before = include_self ? one : scatter(one, dim, of, Scalar(0));
    const Tensor count = scatter_add(before, dim, of, ones(of.sizes(), self.options()))
                             .clamp(Scalar(1), std::nullopt);
    const Tensor total = scatter_add(start, dim, index, src);
    return is_floating(self.dtype()) ? total.div(count) : total.floor_divide(count);
  }
  const ScatterMode mode = reduce == "prod"   ? ScatterMode::mul
                           : reduce == "amin" ? ScatterMode::min
                                              : ScatterMode::max;
  return call(scatter_combine_op, {start, dim, index, src, int64_t(mode)});
}

const OpRecord& scatter_reduce_op =
    define(
        "scatter_reduce(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool "
        "include_self=True) -> Tensor")
        .doc(
            "self with values met at given positions along a dimension reduced: sum, prod, mean, "
            "amax or amin, with self's own value if include_self.")
        .compose([](const Call& c) -> Results {
          const std::string_view reduce = c[4].string();
          ARETE_CHECK(
              reduce == "sum" || reduce == "prod" || reduce == "mean" || reduce == "amax" ||
                  reduce == "amin",
              ValueError(c.name(), "reduce argument must be either sum, prod, mean, amax or amin")
                  .argument("reduce")
                  .got(reduce));
          common_device(c);
          OutputSpecs checked;
          scatter_infer(c, checked);
          // 0-d tensors count as 1-d ones of one element.
          const Tensor self = at_least_1d(c.tensor(0)), index = at_least_1d(c.tensor(2));
          if (index.numel() == 0) return {c.tensor(0).clone()};
          Tensor src = at_least_1d(c.tensor(3));  // the part that the index covers
          for (int64_t d = 0; d < src.dim(); ++d)
            if (index.size(d) < src.size(d)) src = src.narrow(d, 0, index.size(d));
          const int64_t dim = dim_argument(c);
          return {reduce_into(self, dim, index, src, reduce, c.boolean(5))
                      .reshape(c.tensor(0).sizes())};
        })
        .in_place();

const OpRecord& index_reduce_op =
    define(
        "index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool "
        "include_self=True) -> Tensor")
        .doc(
            "self with slices met at given positions of a dimension reduced: prod, mean, amax or "
            "amin, with self's own slice if include_self.")
        .compose([](const Call& c) -> Results {
          const std::string_view reduce = c[4].string();
          ARETE_CHECK(
              reduce == "prod" || reduce == "mean" || reduce == "amax" || reduce == "amin",
              ValueError(c.name(),
                         "index_reduce(): Expected reduce to be one of prod, mean, amax or amin "
                         "but got " +
                             std::string(reduce) + ".")
                  .argument("reduce"));
          const int64_t dim = dim_argument(c);
          common_device(c);
          OutputSpecs checked;
          slices_infer(c, checked);
          const Tensor self = at_least_1d(c.tensor(0)), src = at_least_1d(c.tensor(3));
          Shape one(size_t(self.dim()), 1);
          one[size_t(dim)] = c.tensor(2).numel();
          const Tensor slices = c.tensor(2).reshape(one), index = slices.expand(src.sizes());
          return {reduce_into(self, dim, index, src, reduce, c.boolean(5), slices)
                      .reshape(c.tensor(0).sizes())};
        })
        .in_place();

}  // namespace
}  // namespace ops

Tensor scatter_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                      std::string_view reduce, bool include_self) {
  return ops::call(ops::scatter_reduce_op, {self, dim, index, src, reduce, include_self});
}
Tensor index_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                    std::string_view reduce, bool include_self) {
  return ops::call(ops::index_reduce_op, {self, dim, index, source, reduce, include_self});
}

}  // namespace arete

ARETE_FAMILY(index_reduce)
