#include "arete/ops/search.h"

#include <algorithm>
#include <cmath>

#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/sort.h"

namespace arete {
namespace ops {
namespace {

// Binary search for all values at once: each step looks at the middle of what is left.
Tensor insertion_points(const Tensor& sorted, const Tensor& values, bool right) {
  const int64_t n = sorted.size(-1);
  Tensor low = zeros(values.sizes(), TensorOptions(kInt64, values.device()));
  Tensor high = full(values.sizes(), Scalar(n), TensorOptions(kInt64, values.device()));
  for (int64_t left = n; left > 0; left /= 2) {
    const Tensor middle = low.add(high).floor_divide(Scalar(2));
    const Tensor safe = middle.clamp(std::nullopt, Scalar(n - 1));
    const Tensor at = sorted.dim() == 1 ? take(sorted, safe) : gather(sorted, -1, safe);
    // Negated, so that NaN on either side goes on to the right, as in PyTorch.
    const Tensor over = right ? at.gt(values) : at.ge(values);
    const Tensor before = over.logical_not().logical_and(middle.lt(high));
    low = where(before, middle.add(Scalar(1)), low);
    high = where(before, high, middle);
  }
  return low;
}

// A value that may be a number.
Tensor value_tensor(const Arg& a, const Tensor& beside) {
  if (a.kind() == Arg::Kind::tensor) return a.tensor().detach();
  const Scalar s = a.scalar();
  return full({}, s, TensorOptions(result_type({&beside, 1}, {&s, 1}), beside.device()));
}

Tensor index_result(const Tensor& t, bool int32) { return int32 ? t.to(kInt32) : t; }

const OpRecord& searchsorted_op =
    define(
        "searchsorted(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool "
        "right=False, str? side=None, Tensor? sorter=None) -> Tensor")
        .face(
            "searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, "
            "bool right=False, str? side=None, Tensor? sorter=None)")
        .doc("Positions at which values would be inserted in a sorted sequence.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          Tensor sorted = c.tensor(0).detach();
          const Tensor values = value_tensor(c[1], sorted);
          bool right = c.boolean(3);
          if (c.has(4)) {
            const std::string_view side = c[4].string();
            ARETE_CHECK(side == "left" || side == "right",
                        ValueError(c.name(),
                                   "torch.searchsorted(): side can only be 'left' or 'right' but "
                                   "got " +
                                       std::string(side))
                            .argument("side"));
            ARETE_CHECK(!right || side == "right",
                        ValueError(c.name(),
                                   "torch.searchsorted(): side and right can't be set to "
                                   "opposites, got side of left while right was True"));
            right = side == "right";
          }
          bool fits = sorted.dim() == 1 || (sorted.dim() > 1 && sorted.dim() == values.dim());
          for (int64_t d = 0; fits && sorted.dim() > 1 && d + 1 < sorted.dim(); ++d)
            fits = sorted.size(d) == values.size(d);
          ARETE_CHECK(
              fits, ValueError(c.name(),
                               "boundaries tensor should be 1 dimension or the first N-1 "
                               "dimensions of boundaries tensor and input value tensor must match")
                        .got(to_string(sorted.sizes()) + " and " + to_string(values.sizes())));
          if (c.has(5)) {
            const Tensor& sorter = c.tensor(5);
            ARETE_CHECK(sorter.layout().sizes == sorted.layout().sizes && sorter.dtype() == kInt64,
                        ValueError(c.name(),
                                   "torch.searchsorted(): boundary and sorter must have the same "
                                   "size, and sorter must be a tensor of long dtype")
                            .argument("sorter")
                            .got(describe(sorter)));
            sorted = gather(sorted, -1, sorter);
          }
          return {index_result(insertion_points(sorted, values, right), c.boolean(2))};
        });

const OpRecord& bucketize_op =
    define(
        "bucketize(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> "
        "Tensor")
        .face(
            "bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32=False, bool "
            "right=False)")
        .doc("The interval between sorted boundaries in which each value lies.")
        .compose([](const Call& c) -> Results {
          const Tensor sorted = c.tensor(1).detach();
          ARETE_CHECK(sorted.dim() == 1,
                      ValueError(c.name(), "boundaries tensor must be 1 dimension, but got dim(" +
                                               std::to_string(sorted.dim()) + ")")
                          .argument("boundaries"));
          const Tensor values = value_tensor(c[0], sorted);
          return {index_result(insertion_points(sorted, values, c.boolean(3)), c.boolean(2))};
        });

// Found: a value that stands where it would be inserted.
const OpRecord& isin_op =
    define(
        "isin(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool "
        "invert=False) -> Tensor")
        .face(
            "isin.Scalar_Tensor(Scalar elements, Tensor test_elements, *, bool "
            "assume_unique=False, bool invert=False)")
        .face(
            "isin.Tensor_Scalar(Tensor elements, Scalar test_elements, *, bool "
            "assume_unique=False, bool invert=False)")
        .doc("Whether each element is among the test elements.")
        .compose([](const Call& c) -> Results {
          const bool first = c[0].kind() == Arg::Kind::tensor;
          ARETE_CHECK(first || c[1].kind() == Arg::Kind::tensor,
                      TypeError(c.name(), "isin: at least one argument must be a Tensor"));
          const Tensor& beside = first ? c.tensor(0) : c.tensor(1);
          Tensor elements = value_tensor(c[0], beside);
          Tensor test = value_tensor(c[1], beside).reshape({-1});
          const DType t = promote_types(elements.dtype(), test.dtype());
          if (t == kBool) {
            elements = elements.to(kUInt8);
            test = test.to(kUInt8);
          } else {
            elements = elements.to(t);
            test = test.to(t);
          }
          const int64_t n = test.numel();
          Tensor found = zeros(elements.sizes(), TensorOptions(kBool, elements.device()));
          if (n > 0) {
            const Tensor sorted = std::get<0>(sort(test, 0));
            const Tensor at = insertion_points(sorted, elements, false);
            found = take(sorted, at.clamp(std::nullopt, Scalar(n - 1))).eq(elements);
          }
          return {c.boolean(3) ? found.logical_not() : found};
        })
        .dtypes({kFloat32, kFloat64, kInt64, kInt32});

const OpRecord& bincount_op =
    define("bincount(Tensor self, Tensor? weights=None, int minlength=0) -> Tensor")
        .doc("How often each number from 0 on occurs.")
        .compose([](const Call& c) -> Results {
          const Tensor& self = c.tensor(0);
          ARETE_CHECK(
              self.dim() == 1 && is_integer(self.dtype()),
              ValueError(c.name(), "bincount only supports 1-d non-negative integral inputs.")
                  .got(describe(self)));
          ARETE_CHECK(!self.is_meta(),
                      DeviceError(c.name(), "the size of the result depends on the data"));
          ARETE_CHECK(c.integer(2) >= 0,
                      ValueError(c.name(), "minlength should be >= 0").argument("minlength"));
          const bool weighted = c.has(1);
          if (weighted)
            ARETE_CHECK(
                c.tensor(1).dim() == 1 && c.tensor(1).numel() == self.numel(),
                ValueError(c.name(), "weights should be 1-d and have the same length as input")
                    .argument("weights"));
          int64_t n = c.integer(2);
          if (self.numel() > 0) {
            ARETE_CHECK(
                self.min().item<int64_t>() >= 0,
                ValueError(c.name(), "bincount only supports 1-d non-negative integral inputs."));
            n = std::max(n, self.max().item<int64_t>() + 1);
          }
          // As PyTorch: weights of other types than float32 are added up in float64.
          const DType t = !weighted                         ? kInt64
                          : c.tensor(1).dtype() == kFloat32 ? kFloat32
                                                            : kFloat64;
          const TensorOptions o(t, self.device());
          const Tensor add = weighted ? c.tensor(1).to(t) : ones(self.sizes(), o);
          return {index_add(zeros({n}, o), 0, self, add)};
        });

// ---- running extrema: (self, dim) -> (values, indices)

void running_infer(const Call& c, OutputSpecs& out) {
  const Tensor& x = c.tensor(0);
  normalize_dim(c.integer(1), int(x.dim()), c.name());
  ARETE_CHECK(!is_complex(x.dtype()),
              NotImplementedError(c.name(), "complex numbers have no order"));
  out.push_back({Shape(x.sizes()), x.dtype(), x.device(), {}});
  out.push_back({Shape(x.sizes()), kInt64, x.device(), {}});
}

// The position is the running maximum of the positions at which the extremum so far was met. The
// larger of two booleans is their disjunction, which the scan of max gives as well.
template <prim::Monoid monoid>
void running_lower(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  const Tensor& x = c.tensor(0);
  const int dim = normalize_dim(c.integer(1), int(x.dim()), c.name());
  p.scan({monoid, view_of(x), view_of(out[0]), dim});
  const int64_t n = x.dim() ? x.size(dim) : 1;
  const prim::ScratchView positions(p, kInt64, {n});
  prim::IotaArgs iota;
  iota.out = positions.view();
  p.iota(iota);
  Shape strides(size_t(x.dim()), 0);
  if (x.dim()) strides[size_t(dim)] = 1;
  prim::View at = positions.view();
  at.sizes = out[0].layout().sizes;
  at.strides = strides;
  const expr::ProgramPtr met = expr::trace(
      [](std::span<const expr::Value> v) {
        // NaN stays NaN once met: its positions are those of the NaNs.
        expr::Value hit = v[0] == v[1];
        if (v[0].is_floating()) hit = hit | is_nan(v[0]);
        return std::vector{where(hit, v[2], 0.0)};
      },
      std::vector{x.dtype(), x.dtype(), kInt64}, {}, std::vector{kInt64});
  const prim::View in[] = {view_of(x), view_of(out[0]), at};
  const prim::View to = view_of(out[1]);
  p.pointwise({met.get(), in, {&to, 1}, {}});
  p.scan({prim::Monoid::max, to, to, dim});
}

TensorList running_grad(const GradCall& g) {
  const Tensor start = zeros(g.input_sizes(0), g.grad().options());
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

// Each step doubles how many elements the partial results cover, so that every sum is formed from
// two of like size and nothing has to be scaled by a maximum that comes later. Not in half
// precision.
Tensor running_logaddexp(const Tensor& x, int64_t dim) {
  Tensor y = x.dtype() == kFloat64 ? x : x.to(kFloat32);
  const int64_t n = x.dim() ? x.size(dim) : 1;
  for (int64_t step = 1; step < n; step *= 2) {
    const Tensor more = logaddexp(y.narrow(dim, step, n - step), y.narrow(dim, 0, n - step));
    y = cat({y.narrow(dim, 0, step), more}, dim);
  }
  return y;
}
// sum of g[j] exp(x[i] - y[j]) over j >= i, in the same steps. y does not fall, so that no factor
// exceeds 1; where y is -inf nothing has been added yet.
Tensor logcumsumexp_gradient(const Tensor& g, const Tensor& x, const Tensor& y, int64_t dim) {
  const Tensor none = y == Scalar(-HUGE_VAL);
  const Tensor shown = where(none, 0, y);
  Tensor sum = g;
  const int64_t n = x.dim() ? x.size(dim) : 1;
  for (int64_t step = 1; step < n; step *= 2) {
    const int64_t rest = n - step;
    const Tensor decay = (shown.narrow(dim, 0, rest) - shown.narrow(dim, step, rest)).exp();
    const Tensor more = sum.narrow(dim, 0, rest) +
                        where(none.narrow(dim, 0, rest), 0, decay) * sum.narrow(dim, step, rest);
    sum = cat({more, sum.narrow(dim, rest, step)}, dim);
  }
  return where(none, 0, (x - shown).exp() * sum);
}

const OpRecord& logcumsumexp_op =
    define("logcumsumexp(Tensor self, int dim) -> Tensor")
        .doc("log of the running sum of exponentials.")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          normalize_dim(c.integer(1), int(x.dim()), c.name());
          ARETE_CHECK(is_floating(x.dtype()),
                      TypeError(c.name(), "logcumsumexp: expected a floating point input")
                          .got(name_of(x.dtype())));
          out.push_back({Shape(x.sizes()), x.dtype(), x.device(), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const PlainCalls guard;
          const Tensor& x = c.tensor(0);
          p.copy({view_of(out[0]), view_of(running_logaddexp(
                                       x, normalize_dim(c.integer(1), int(x.dim()), c.name())))});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              // A sum of 1e3 is known to 1e-4 in float32, and so would be the exponentials of it.
              const Tensor x = g.input(0).to(kFloat64);
              const int dim = normalize_dim(g.integer(1), int(x.dim()), "logcumsumexp");
              return {
                  logcumsumexp_gradient(g.grad().to(kFloat64), x, running_logaddexp(x, dim), dim)
                      .to(g.input_dtype(0))};
            },
            1);

}  // namespace
}  // namespace ops

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right) {
  return ops::call(ops::searchsorted_op,
                   {sorted, values, false, right, std::nullopt, std::nullopt});
}
Tensor bucketize(const Tensor& values, const Tensor& boundaries, bool right) {
  return ops::call(ops::bucketize_op, {values, boundaries, false, right});
}
Tensor isin(const Tensor& elements, const Tensor& test_elements, bool invert) {
  return ops::call(ops::isin_op, {elements, test_elements, false, invert});
}
Tensor bincount(const Tensor& self, const Tensor& weights, int64_t minlength) {
  return ops::call(ops::bincount_op, {self, weights, minlength});
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

}  // namespace arete

ARETE_FAMILY(search)
