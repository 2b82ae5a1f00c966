// scatter_reduce and index_reduce.
#include <algorithm>
#include <cmath>
#include <optional>

#include "arete/core/tracing.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/index_util.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap.h"
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
            0b111, 1)
        .in_place();

// ---- scatter_reduce, index_reduce

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

/// Where values meet: index and src have one shape. slices: the same index for all elements of a
/// slice, of size 1 along the other dimensions; absent if there is none. It is what is counted.
struct Meeting {
  int64_t dim;
  Tensor index, src, slices;
};

// The result; in place: self, which is changed step by step and has no history.
Tensor reduce_into(Tensor self, const Meeting& at, std::string_view reduce, bool include_self,
                   bool in_place) {
  static const OpRecord &set = *find_record("scatter.value"), &add = *find_record("scatter_add"),
                        &div = *find_record("div"), &floor_divide = *find_record("floor_divide");
  const auto step = [&](const OpRecord& op, std::initializer_list<Arg> args) {
    if (in_place)
      call_in_place(self, op, args);
    else
      self = call(op, args);
  };
  if (!include_self)
    step(set, {self, at.dim, at.index, neutral(reduce, self.dtype()), std::nullopt});
  if (reduce == "sum" || reduce == "mean") {
    step(add, {self, at.dim, at.index, at.src});
    if (reduce == "sum") return self;
    const Tensor& of = at.slices.defined() ? at.slices : at.index;
    Shape sizes((at.slices.defined() ? at.slices : self).sizes());
    sizes[size_t(at.dim)] = self.size(at.dim);
    Tensor count = ones(sizes, self.options());
    if (!include_self) count.scatter_(at.dim, of, Scalar(0));
    count.scatter_add_(at.dim, of, ones(of.sizes(), self.options()));
    // Where nothing meets, and where whole numbers have wrapped around to 0.
    if (!include_self || is_integral_or_bool(self.dtype()))
      count.add_(count.eq(Scalar(0)).to(self.dtype()));
    step(is_floating(self.dtype()) ? div : floor_divide, {self, count});
    return self;
  }
  const ScatterMode mode = reduce == "prod"   ? ScatterMode::mul
                           : reduce == "amin" ? ScatterMode::min
                                              : ScatterMode::max;
  step(scatter_combine_op, {self, at.dim, at.index, at.src, int64_t(mode)});
  return self;
}

// What is changed in place is not read at the same time.
Tensor apart(const Tensor& t, const Tensor& self) {
  return t.storage() == self.storage() ? t.clone() : t;
}

// Absent: nothing meets.
std::optional<Meeting> meeting_of_scatter(const Call& c) {
  const std::string_view reduce = c[4].string();
  ARETE_CHECK(reduce == "sum" || reduce == "prod" || reduce == "mean" || reduce == "amax" ||
                  reduce == "amin",
              ValueError(c.name(), "reduce argument must be either sum, prod, mean, amax or amin")
                  .argument("reduce")
                  .got(reduce));
  common_device(c);
  OutputSpecs checked;
  scatter_infer(c, checked);
  // 0-d tensors count as 1-d ones of one element.
  const Tensor index = at_least_1d(c.tensor(2));
  if (index.numel() == 0) return std::nullopt;
  Tensor src = at_least_1d(c.tensor(3));  // the part that the index covers
  for (int64_t d = 0; d < src.dim(); ++d)
    if (index.size(d) < src.size(d)) src = src.narrow(d, 0, index.size(d));
  return Meeting{dim_argument(c), index, src, {}};
}

Meeting meeting_of_slices(const Call& c) {
  const std::string_view reduce = c[4].string();
  ARETE_CHECK(reduce == "prod" || reduce == "mean" || reduce == "amax" || reduce == "amin",
              ValueError(c.name(),
                         "index_reduce(): Expected reduce to be one of prod, mean, amax or amin "
                         "but got " +
                             std::string(reduce) + ".")
                  .argument("reduce"));
  const int64_t dim = dim_argument(c);
  common_device(c);
  OutputSpecs checked;
  slices_infer(c, checked);
  const Tensor src = at_least_1d(c.tensor(3));
  Shape one(size_t(src.dim()), 1);
  one[size_t(dim)] = c.tensor(2).numel();
  const Tensor slices = c.tensor(2).reshape(one);
  return {dim, slices.expand(src.sizes()), src, slices};
}

// (self, dim, index, src, reduce, include_self)
Tensor combined(const Call& c, const Meeting& at) {
  return reduce_into(at_least_1d(c.tensor(0)), at, c[4].string(), c.boolean(5), false)
      .reshape(c.tensor(0).sizes());
}
void reduce_in_place(Tensor& self, const Call& c, Meeting at) {
  const bool recorded = will_record(self) || will_record(at.src);
  if (recorded || !tracing::is_plain()) {
    // Gradients need what self was.
    const Tensor before = recorded ? self.clone() : self, index = apart(c.tensor(2), self),
                 src = apart(c.tensor(3), self);
    self.copy_(call(c.op, {before, c[1], index, src, c[4], c[5]}));
    return;
  }
  at.index = apart(at.index, self), at.src = apart(at.src, self);
  if (at.slices.defined()) at.slices = apart(at.slices, self);
  // The steps are one write of self's.
  reduce_into(at_least_1d(self.variable_data()), at, c[4].string(), c.boolean(5), true);
  self.bump_version();
}

const OpRecord& scatter_reduce_op =
    define(
        "scatter_reduce(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool "
        "include_self=True) -> Tensor")
        .doc(
            "self with values met at given positions along a dimension reduced: sum, prod, mean, "
            "amax or amin, with self's own value if include_self.")
        .compose([](const Call& c) -> Results {
          const std::optional<Meeting> at = meeting_of_scatter(c);
          return {at ? combined(c, *at) : c.tensor(0).clone()};
        })
        .in_place([](Tensor& self, const Call& c) {
          if (const std::optional<Meeting> at = meeting_of_scatter(c))
            reduce_in_place(self, c, *at);
          else
            self.bump_version();
        });

const OpRecord& index_reduce_op =
    define(
        "index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool "
        "include_self=True) -> Tensor")
        .doc(
            "self with slices met at given positions of a dimension reduced: prod, mean, amax or "
            "amin, with self's own slice if include_self.")
        .compose([](const Call& c) -> Results { return {combined(c, meeting_of_slices(c))}; })
        .in_place(
            [](Tensor& self, const Call& c) { reduce_in_place(self, c, meeting_of_slices(c)); });

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
