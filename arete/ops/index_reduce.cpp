// scatter_reduce, and gather in other forms.
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/index_util.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

using prim::ScatterMode;

// What meets at a place is combined; (self, dim, index, src, mode) with ScatterMode's number.

std::vector<Tensor> combine_reference(const Call& c) {
  const Tensor &self = c.tensor(0), &index = c.tensor(2);
  const int dim = normalize_dim(c.integer(1), int(self.dim()), "scatter_reduce");
  const int64_t n = self.dim() ? self.size(dim) : 1;
  std::vector<double> v = values_of(self);
  for_each_index(index.sizes(), [&](const Shape& i) {
    const Shape to = at_dim(i, dim, wrapped(at(index, i), n));
    double& old = v[size_t(flat_position(self.sizes(), to))];
    const double s = at(c.tensor(3), i);
    switch (ScatterMode(c.integer(4))) {
      case ScatterMode::mul:
        old *= s;
        break;
      case ScatterMode::min:
        old = std::min(old, s);
        break;
      default:
        old = std::max(old, s);
        break;
    }
  });
  return {from_values(v, self.sizes())};
}

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
  TensorList r(3);
  if (g.needs(0)) {
    const Tensor others = where(zeros_met.gt(Scalar(0)), Scalar(0), rest.div(safe_self));
    r[0] = g.grad().mul(others);
  }
  if (g.needs(2)) {
    const Tensor left = gather(total, dim, index).sub(src_zero.to(self.dtype()));
    const Tensor others =
        where(left.gt(Scalar(0)), Scalar(0), gather(rest, dim, index).div(safe_src));
    r[2] = gather(g.grad(), dim, index).mul(others);
  }
  return r;
}

const OpRecord& scatter_combine_op =
    define("scatter_combine(Tensor self, int dim, Tensor index, Tensor src, int mode) -> Tensor")
        .doc("self with values multiplied in, or minima or maxima taken, at given positions.")
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
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          std::vector<Sample> all;
          for (ScatterMode mode : {ScatterMode::mul, ScatterMode::min, ScatterMode::max}) {
            const auto one = [&](IntList s) { return m.make_distinct(s, 0.25); };
            all.push_back(
                {{one({4, 3}), 0, m.make_index({2, 3}, 4), m.make({2, 3}), int(mode)}, "rows"});
            all.push_back(
                {{m.make_strided({2, 3}), -1, m.make_index({2, 4}, 3), one({2, 4}), int(mode)},
                 "repeated"});
          }
          return all;
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3, 2}), 0, m.make_index({2}, 3), m.make({2}), int(ScatterMode::mul)},
                   ErrorKind::value,
                   "Index tensor must have the same number of dimensions as self tensor"}};
        })
        .reference(combine_reference);

}  // namespace
}  // namespace ops

Tensor scatter_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                      std::string_view reduce, bool include_self) {
  using prim::ScatterMode;
  const bool sum = reduce == "sum", mean = reduce == "mean", prod = reduce == "prod",
             amin = reduce == "amin", amax = reduce == "amax";
  ARETE_CHECK(
      sum || mean || prod || amin || amax,
      ValueError("scatter_reduce", "reduce argument must be either sum, prod, mean, amax or amin")
          .argument("reduce")
          .got(reduce));
  Tensor values = src;  // the part that the index covers
  if (index.dim() == src.dim())
    for (int64_t d = 0; d < src.dim(); ++d)
      if (index.size(d) < src.size(d)) values = values.narrow(d, 0, index.size(d));
  Tensor start = self;
  if (!include_self) {
    const DType t = self.dtype();
    const bool exact = is_integral_or_bool(t);
    const Scalar lowest = t == kInt64 ? Scalar(INT64_MIN)
                          : exact     ? Scalar(int64_t(lowest_of(t)))
                                      : Scalar(-INFINITY);
    const Scalar highest = t == kInt64 ? Scalar(INT64_MAX)
                           : exact     ? Scalar(int64_t(max_of(t)))
                                       : Scalar(INFINITY);
    start = scatter(self, dim, index,
                    prod   ? Scalar(1)
                    : amin ? highest
                    : amax ? lowest
                           : Scalar(0));
  }
  if (sum) return scatter_add(start, dim, index, values);
  if (mean) {
    const Tensor one = ones_like(self);
    const Tensor before = include_self ? one : scatter(one, dim, index, Scalar(0));
    const Tensor count =
        scatter_add(before, dim, index, ones_like(values)).clamp(Scalar(1), std::nullopt);
    const Tensor total = scatter_add(start, dim, index, values);
    return is_floating(self.dtype()) ? total.div(count) : total.floor_divide(count);
  }
  const ScatterMode mode = prod ? ScatterMode::mul : amin ? ScatterMode::min : ScatterMode::max;
  return ops::call(ops::scatter_combine_op, {start, dim, index, values, int64_t(mode)});
}

Tensor take_along_dim(const Tensor& self, const Tensor& index, std::optional<int64_t> dim) {
  if (!dim) return gather(self.reshape({-1}), 0, index.reshape({-1}));
  ARETE_CHECK(self.dim() == index.dim(),
              ValueError("take_along_dim",
                         "torch.take_along_dim(): input and indices should have the same number of "
                         "dimensions")
                  .got(to_string(self.sizes()) + " and " + to_string(index.sizes())));
  const int d = normalize_dim(*dim, int(self.dim()), "take_along_dim");
  Shape a(self.sizes()), b(index.sizes());
  if (a.empty()) return gather(self, 0, index);
  const int64_t n = a[size_t(d)], k = b[size_t(d)];
  a[size_t(d)] = b[size_t(d)] = 1;
  Shape from = broadcast_shapes(a, b, "take_along_dim"), to = from;
  from[size_t(d)] = n;
  to[size_t(d)] = k;
  return gather(self.expand(from), d, index.expand(to));
}
Tensor Tensor::take_along_dim(const Tensor& index, std::optional<int64_t> dim) const {
  return arete::take_along_dim(*this, index, dim);
}
Tensor take(const Tensor& self, const Tensor& index) {
  return index_select(self.reshape({-1}), 0, index.reshape({-1})).reshape(index.sizes());
}

}  // namespace arete

ARETE_FAMILY(index_reduce)
