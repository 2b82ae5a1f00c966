// Variances and standard deviations, alone and with means.
#include "arete/ops/moments.h"

#include <algorithm>

#include "arete/base/warn.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/reduce_family.h"
#include "arete/prim/loop_nest.h"

namespace arete {
namespace ops {

using prim::Monoid;

namespace {

using expr::Value;
using Values = FusedBuilder::Values;

Value middle(Value a, Value b, Value c) { return max(min(a, b), min(max(a, b), c)); }

Moments two_pass(FusedBuilder& b) {
  const int sum = b.reduce(Monoid::sum, {0}, [](Values v) { return std::vector{v[0]}; });
  const int mean = b.row({sum}, [](Values v) { return std::vector{v[0] * v[1]}; });
  const int squares =
      b.reduce(Monoid::sum, {0, mean}, [](Values v) { return std::vector{square(v[0] - v[1])}; });
  return {mean, b.row({squares}, [](Values v) { return std::vector{v[0] * v[1]}; })};
}

Moments one_pass(FusedBuilder& b, int pivots) {
  const int pivot = b.row({pivots, pivots + 1, pivots + 2},
                          [](Values v) { return std::vector{middle(v[0], v[1], v[2])}; });
  const int sums = b.reduce(Monoid::sum, {0, pivot}, [](Values v) {
    const Value d = v[0] - v[1];
    return std::vector{d, square(d)};
  });
  const int mean = b.row({pivot, sums, sums - 1}, [](Values v) {
    const Value d = v[1] * v[3];
    return std::vector{v[0] + d, max(v[2] * v[3] - square(d), 0.0)};
  });
  return {mean, mean - 1};
}

}  // namespace

Moments add_moments(FusedBuilder& b, int pivots) {
  return pivots < 0 ? two_pass(b) : one_pass(b, pivots);
}

void append_pivots(SmallVector<prim::View, 9>& inputs, int outer_rank, Shape& one_of_row) {
  const IntList space = inputs[0].sizes;
  one_of_row = Shape(space);
  for (size_t d = size_t(outer_rank); d < space.size(); ++d) one_of_row[d] = 1;
  for (int64_t quarter = 1; quarter < 4; ++quarter) {
    prim::View v = inputs[0];
    for (size_t d = size_t(outer_rank); d < space.size(); ++d)
      v.data += space[d] * quarter / 4 * v.strides[d] * int64_t(size_of(v.dtype));
    v.sizes = one_of_row;
    inputs.push_back(v);
  }
}

namespace {

// Where var and std have their arguments, and var_mean and std_mean theirs: (self, dims, ...).
struct Place {
  bool root, with_mean;
  size_t keepdim() const { return with_mean ? 3 : 2; }
  size_t correction() const { return with_mean ? 2 : 3; }
};

// A GPU's threads hold columns of up to 256 elements; longer ones are read once.
int64_t one_pass_from(const prim::ReducedLast& order, Device device) {
  const prim::View& x = order.views()[0];
  bool columns = device.is_cuda();
  for (size_t d = size_t(order.kept()); d < order.space().size(); ++d)
    columns &= order.space()[d] == 1 || x.strides[d] != 1;
  return columns ? 257 : kOnePass;
}

double divisor(int64_t n, double correction) { return std::max(0.0, double(n) - correction); }

// Inputs: x [, pivots]; outputs: variance or deviation [, mean]. Parameters: 1 / n and
// n / (n - correction) of the n elements of a row.
const prim::FusedSpec& moments_spec(DType t, Place place, bool pivots) {
  static SpecCache cache;
  return cache.get(pack_key({int(t), place.root, place.with_mean, pivots}), [&] {
    FusedBuilder b(std::vector<DType>(pivots ? 4 : 1, t),
                   std::vector<DType>(place.with_mean + 1, t), {work_type(t), work_type(t)});
    const Moments m = add_moments(b, pivots ? 1 : -1);
    b.store_row({m.variance, m.mean}, 0, place.with_mean + 1, [&](Values v) {
      const Value variance = v[0] * v[3];
      std::vector<Value> out{place.root ? sqrt(variance) : variance};
      if (place.with_mean) out.push_back(v[1]);
      return out;
    });
    return b.finish();
  });
}

template <bool kRoot, bool kMean>
void moments_infer(const Call& c, OutputSpecs& out) {
  const Tensor& x = c.tensor(0);
  ARETE_CHECK(is_floating(x.dtype()),
              TypeError(c.name(),
                        std::string(c.name()) + ": only support floating point and complex dtypes")
                  .got(name_of(x.dtype())));
  constexpr Place place{kRoot, kMean};
  const Shape sizes = reduced_sizes(x.sizes(), reduced_dims(c, 1), c.boolean(place.keepdim()));
  if (numel_of(sizes) > 0 &&
      c.real(place.correction()) * double(numel_of(sizes)) >= double(x.numel()))
    warn(std::string(c.name()) +
         "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction "
         "factor (input numel divided by output numel).");
  for (int i = 0; i <= int(kMean); ++i) out.push_back({sizes, x.dtype()});
}

template <bool kRoot, bool kMean>
void moments_lower(const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
  constexpr Place place{kRoot, kMean};
  if (out[0].numel() == 0) return;
  const Tensor x = call.tensor(0).dim() ? call.tensor(0) : call.tensor(0).reshape({1});
  const uint32_t mask = call.tensor(0).dim() ? reduced_dims(call, 1) : 1;
  const Layout layouts[2] = {keepdim_layout(out[0], x.sizes(), mask),
                             keepdim_layout(out[kMean], x.sizes(), mask)};
  const prim::View views[] = {view_of(x), view_of(out[0], layouts[0]),
                              view_of(out[kMean], layouts[1])};
  const prim::ReducedLast order(x.sizes(), mask, std::span(views, kMean ? 3 : 2));
  const double n = double(reduced_count(x.sizes(), mask));
  SmallVector<prim::View, 9> inputs{order.views()[0]};
  Shape one_of_row;
  const bool pivots = n >= double(one_pass_from(order, x.device()));
  if (pivots) append_pivots(inputs, order.kept(), one_of_row);
  expr::Literal params[2];
  params[0].f = 1 / n;
  params[1].f = n / divisor(int64_t(n), call.real(place.correction()));
  p.fused({&moments_spec(x.dtype(), place, pivots),
           order.space(),
           order.kept(),
           {inputs.data(), inputs.size()},
           order.views().subspan(1),
           params});
}

// (x - mean) * scale, where scale is a gradient of each result divided as needed. As in PyTorch
// the divisor is not kept from falling below 0 here.
Tensor var_spread(const GradCall& g, const Tensor& mean, const Tensor& scale, double correction) {
  const IntList sizes = g.input_sizes(0);
  const uint32_t mask = dims_of_grad(g, 1);
  const double n = double(reduced_count(sizes, mask)) - correction;
  return g.input(0)
      .sub(with_dims(mean, sizes, mask))
      .mul(with_dims(scale, sizes, mask).mul(Scalar(1.0 / n)));
}

Tensor scale_of_std(const Tensor& y, const Tensor& grad) {
  const Tensor flat = y.eq(Scalar(0));
  return where(flat, Scalar(0), grad.div(where(flat, Scalar(1), y)));
}

template <bool kRoot>
TensorList moment_grad(const GradCall& g) {
  const Tensor center = mean(g.input(0), g.arg(1).is_none() ? IntList() : g.ints(1), true);
  const Tensor scale = kRoot ? scale_of_std(g.output(), g.grad()) : g.grad().mul(Scalar(2));
  return {var_spread(g, center, scale, g.real(3))};
}

template <bool kRoot>
TensorList moments_grad(const GradCall& g) {
  const double n = double(reduced_count(g.input_sizes(0), dims_of_grad(g, 1)));
  Tensor r;
  if (g.grad(1).defined()) r = spread(g, g.grad(1).mul(Scalar(1 / n)));
  if (g.grad(0).defined()) {
    const Tensor scale = kRoot ? scale_of_std(g.output(0), g.grad(0)) : g.grad(0).mul(Scalar(2));
    const Tensor s = var_spread(g, g.output(1), scale, g.real(2));
    r = r.defined() ? s.add(r) : s;
  }
  return {r};
}

// E|x - mean|^2 of complex numbers: the sum of the parts' variances.
Tensor complex_variance(const Call& c, const OpRecord& var) {
  const Call of_parts(var, c.args());
  const Results parts = parts_of(c.tensor(0));
  return again(of_parts, parts[0]) + again(of_parts, parts[1]);
}

const OpRecord& var_op =
    define("var(Tensor self, int[]? dim=None, *, bool keepdim=False, float correction=1) -> Tensor")
        .face("var(Tensor input, int[]? dim=None, *, float? correction=None, bool keepdim=False)")
        .face("var.dim(Tensor input, int[]? dim, bool unbiased=True, bool keepdim=False)")
        .face("var.unbiased(Tensor input, bool unbiased=True)")
        .converts_out()
        .doc("Variance over dimensions.")
        .infer(moments_infer<false, false>)
        .lower(moments_lower<false, false>)
        .complex([](const Call& c) -> Results { return {complex_variance(c, c.op)}; })
        .grad(moment_grad<false>, 1);

const OpRecord& std_op =
    define("std(Tensor self, int[]? dim=None, *, bool keepdim=False, float correction=1) -> Tensor")
        .face("std(Tensor input, int[]? dim=None, *, float? correction=None, bool keepdim=False)")
        .face("std.dim(Tensor input, int[]? dim, bool unbiased=True, bool keepdim=False)")
        .face("std.unbiased(Tensor input, bool unbiased=True)")
        .converts_out()
        .doc("Standard deviation over dimensions.")
        .infer(moments_infer<true, false>)
        .lower(moments_lower<true, false>)
        .complex([](const Call& c) -> Results { return {complex_variance(c, var_op).sqrt()}; })
        .grad(moment_grad<true>, 1, 1);

// (self, dims, correction, keepdim) of complex numbers.
template <bool kRoot>
Results complex_moments(const Call& c) {
  return {call(kRoot ? std_op : var_op, {c[0], c[1], c[3], c[2]}),
          mean(c.tensor(0), c.has(1) ? c.ints(1) : IntList(), c.boolean(3))};
}

const OpRecord& var_mean_op =
    define(
        "var_mean(Tensor self, int[]? dim=None, *, float correction=1, bool keepdim=False) -> "
        "(Tensor var, Tensor mean)")
        .face(
            "var_mean(Tensor input, int[]? dim=None, *, float? correction=None, bool "
            "keepdim=False)")
        .face("var_mean.dim(Tensor input, int[]? dim, bool unbiased=True, bool keepdim=False)")
        .face("var_mean.unbiased(Tensor input, bool unbiased=True)")
        .doc("Variance and mean over dimensions.")
        .infer(moments_infer<false, true>)
        .lower(moments_lower<false, true>)
        .complex(complex_moments<false>)
        .grad(moments_grad<false>, 1, 2);

const OpRecord& std_mean_op =
    define(
        "std_mean(Tensor self, int[]? dim=None, *, float correction=1, bool keepdim=False) -> "
        "(Tensor std, Tensor mean)")
        .face(
            "std_mean(Tensor input, int[]? dim=None, *, float? correction=None, bool "
            "keepdim=False)")
        .face("std_mean.dim(Tensor input, int[]? dim, bool unbiased=True, bool keepdim=False)")
        .face("std_mean.unbiased(Tensor input, bool unbiased=True)")
        .doc("Standard deviation and mean over dimensions.")
        .infer(moments_infer<true, true>)
        .lower(moments_lower<true, true>)
        .complex(complex_moments<true>)
        .grad(moments_grad<true>, 1, 3);

}  // namespace
}  // namespace ops

Tensor var(const Tensor& self, IntList dims, double correction, bool keepdim) {
  return ops::call(ops::var_op, {self, dims, keepdim, correction});
}
Tensor std(const Tensor& self, IntList dims, double correction, bool keepdim) {
  return ops::call(ops::std_op, {self, dims, keepdim, correction});
}
Tensor Tensor::var(IntList dims, double correction, bool keepdim) const {
  return arete::var(*this, dims, correction, keepdim);
}
Tensor Tensor::std(IntList dims, double correction, bool keepdim) const {
  return ops::call(ops::std_op, {*this, dims, keepdim, correction});
}
std::tuple<Tensor, Tensor> var_mean(const Tensor& self, IntList dims, double correction,
                                    bool keepdim) {
  const auto r = ops::call_all(ops::var_mean_op, {self, dims, correction, keepdim});
  return {r[0], r[1]};
}
std::tuple<Tensor, Tensor> std_mean(const Tensor& self, IntList dims, double correction,
                                    bool keepdim) {
  const auto r = ops::call_all(ops::std_mean_op, {self, dims, correction, keepdim});
  return {r[0], r[1]};
}

}  // namespace arete

ARETE_FAMILY(moments)
