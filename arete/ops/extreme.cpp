// Extreme values, their positions, and vector norms.
#include <cmath>

#include "arete/ops/autocast.h"
#include "arete/ops/reduce_family.h"

namespace arete::ops {

namespace {

using expr::Value;
using prim::Monoid;

void check_not_empty(const Call& c, IntList sizes, uint32_t dims) {
  for (size_t d = 0; d < sizes.size(); ++d)
    ARETE_CHECK(!(dims >> d & 1) || sizes[d] > 0,
                ValueError(c.name(), std::string(c.name()) +
                                         "(): Expected reduction dim to be specified for "
                                         "input.numel() == 0. Specify the reduction dim with the "
                                         "'dim' argument.")
                    .argument("dim " + std::to_string(d))
                    .got(describe(c.tensor(0))));
}

void infer_extreme(const Call& c, OutputSpecs& out) {
  const Tensor& x = c.tensor(0);
  const uint32_t dims = reduced_dims(c, 1);
  check_not_empty(c, x.sizes(), dims);
  out.push_back({reduced_sizes(x.sizes(), dims, c.boolean(2)), x.dtype(), x.device(), {}});
}

template <Monoid kMonoid>
void lower_extreme(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  const Tensor& x = c.tensor(0);
  const uint32_t dims = reduced_dims(c, 1);
  const prim::View in = view_of(x);
  // The larger of two booleans is their disjunction.
  const Monoid m = x.dtype() != kBool       ? kMonoid
                   : kMonoid == Monoid::max ? Monoid::any
                                            : Monoid::all;
  p.reduce({m,
            x.sizes(),
            dims,
            {&in, 1},
            view_of(out[0], keepdim_layout(out[0], x.sizes(), dims)),
            nullptr,
            {},
            nullptr,
            {}});
}

// The gradient is shared evenly among equal extreme values.
TensorList grad_extreme(const GradCall& g) {
  const Tensor x = g.input(0);
  const uint32_t dims = dims_of_grad(g, 1);
  const Tensor y = with_dims(g.output().detach(), x.sizes(), dims);
  const Tensor dy = with_dims(g.grad(), x.sizes(), dims);
  Shape list;
  for (int d = 0; d < int(x.dim()); ++d)
    if (dims >> d & 1) list.push_back(d);
  const Tensor hit = ((x.detach() == y) | (x.detach().isnan() & y.isnan())).to(x.dtype());
  const Tensor count = list.empty() ? hit : hit.sum(list, true);
  return {hit * (dy / count)};
}

const std::vector<DType> kReal{kFloat32, kFloat64, kBFloat16, kFloat16, kInt32, kInt64};

const OpRecord& amax_op =
    define("amax(Tensor input, int[]? dim=None, bool keepdim=False) -> Tensor")
        .doc("The largest values; NaN wins.")
        .infer(infer_extreme)
        .lower(lower_extreme<Monoid::max>)
        .grad(grad_extreme, 1, 1)
        .dtypes(kReal);

const OpRecord& amin_op =
    define("amin(Tensor input, int[]? dim=None, bool keepdim=False) -> Tensor")
        .doc("The smallest values; NaN wins.")
        .infer(infer_extreme)
        .lower(lower_extreme<Monoid::min>)
        .grad(grad_extreme, 1, 1)
        .dtypes(kReal);

// ---- values and positions along one dimension

void infer_with_index(const Call& c, OutputSpecs& out) {
  const Tensor& x = c.tensor(0);
  const int d = normalize_dim(c.integer(1), int(x.dim()), c.name());
  const uint32_t dims = x.dim() ? 1u << d : 0;
  check_not_empty(c, x.sizes(), dims);
  const Shape s = reduced_sizes(x.sizes(), dims, c.boolean(2));
  out.push_back({s, x.dtype(), x.device(), {}});
  out.push_back({s, kInt64, x.device(), {}});
}

// Arguments of the primitive for a reduction along dimension d; 0-d tensors are rows of one.
prim::ArgReduceArgs positions(const Tensor& x, int d, const Tensor& index, const Tensor* values,
                              bool largest, Layout (&layouts)[3]) {
  if (x.dim() == 0) {
    layouts[0] = unsqueeze(x.layout(), 0);
    layouts[1] = unsqueeze(index.layout(), 0);
    if (values) layouts[2] = unsqueeze(values->layout(), 0);
    d = 0;
  } else {
    layouts[0] = x.layout();
    layouts[1] = keepdim_layout(index, x.sizes(), 1u << d);
    if (values) layouts[2] = keepdim_layout(*values, x.sizes(), 1u << d);
  }
  return {view_of(x, layouts[0]), view_of(index, layouts[1]),
          values ? view_of(*values, layouts[2]) : prim::View{}, d, largest};
}

template <bool kLargest>
void lower_with_index(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  const Tensor& x = c.tensor(0);
  Layout layouts[3];
  p.arg_reduce(positions(x, normalize_dim(c.integer(1), int(x.dim()), c.name()), out[1], &out[0],
                         kLargest, layouts));
}

TensorList grad_with_index(const GradCall& g) {
  const IntList sizes = g.input_sizes(0);
  if (sizes.empty()) return {g.grad()};
  const int64_t d = normalize_dim(g.integer(1), int(sizes.size()), "max");
  Tensor index = g.output(1), dy = g.grad();
  if (!g.boolean(2)) {
    index = index.unsqueeze(d);
    dy = dy.unsqueeze(d);
  }
  return {zeros(sizes, dy.options()).scatter(d, index, dy)};
}

const OpRecord& max_dim_op =
    define("max.dim(Tensor input, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)")
        .doc("The largest values along dim and their first positions.")
        .infer(infer_with_index)
        .lower(lower_with_index<true>)
        .grad(grad_with_index, 0, 2)
        .no_grad_outputs(2);

const OpRecord& min_dim_op =
    define("min.dim(Tensor input, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)")
        .doc("The smallest values along dim and their first positions.")
        .infer(infer_with_index)
        .lower(lower_with_index<false>)
        .grad(grad_with_index, 0, 2)
        .no_grad_outputs(2);

// ---- positions only

void infer_position(const Call& c, OutputSpecs& out) {
  const Tensor& x = c.tensor(0);
  uint32_t dims = (1u << x.dim()) - 1;
  if (c.has(1)) {
    const int d = normalize_dim(c.integer(1), int(x.dim()), c.name());
    dims = x.dim() ? 1u << d : 0;
  }
  check_not_empty(c, x.sizes(), dims);
  out.push_back({reduced_sizes(x.sizes(), dims, c.boolean(2)), kInt64, x.device(), {}});
}

template <bool kLargest>
void lower_position(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  const Tensor& x = c.tensor(0);
  if (c.has(1)) {
    Layout layouts[3];
    p.arg_reduce(positions(x, normalize_dim(c.integer(1), int(x.dim()), c.name()), out[0], nullptr,
                           kLargest, layouts));
    return;
  }
  const Tensor dense = plain(x, x.dtype());
  Layout flat({x.numel()}), one({1});
  flat.offset = dense.storage_offset();
  one.offset = out[0].storage_offset();
  p.arg_reduce({view_of(dense, flat), view_of(out[0], one), prim::View{}, 0, kLargest});
}

const OpRecord& argmax_op =
    define("argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor")
        .doc("The first position of the largest value.")
        .infer(infer_position)
        .lower(lower_position<true>)
        .dtypes(kReal);

const OpRecord& argmin_op =
    define("argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor")
        .doc("The first position of the smallest value.")
        .infer(infer_position)
        .lower(lower_position<false>)
        .dtypes(kReal);

// ---- norms

// Programs of the general norm, by dtype: |x|^p in the type sums are kept in, and the root. Of a
// difference x is one input minus another plus a second parameter.
struct NormPrograms {
  expr::ProgramPtr power, root;
};

NormPrograms norm_programs(DType t, double p, bool difference = false) {
  const expr::Type compute = expr::compute_type(t);
  const DType wide = expr::storage_type(compute);
  expr::Builder in, out;
  Value x = in.cast(in.input(t), compute);
  if (difference) x = x - in.cast(in.input(t), compute);
  const Value exponent = in.param(compute);
  if (difference) x = x + in.param(compute);
  const Value a = abs(x);
  const Value power = p == 1 || std::isinf(p) ? a
                      : p == 2                ? a * a
                      : p == 0                ? where(a == 0.0, 0.0, in.constant(compute, 1.0))
                                              : pow(a, exponent);
  const Value sum = out.input(wide), q = out.param(compute);
  const Value root = p == 2 ? sqrt(sum) : p == 1 || p == 0 || std::isinf(p) ? sum : pow(sum, q);
  return {in.build({&power, 1}, {&wide, 1}), out.build({&root, 1}, {&t, 1})};
}

void reduce_norm(prim::Primitives& prims, IntList space, uint32_t dims,
                 std::span<const prim::View> inputs, const Tensor& out, double p,
                 std::span<const expr::Literal> params) {
  const NormPrograms programs = norm_programs(out.dtype(), p, inputs.size() > 1);
  const Monoid monoid = std::isinf(p) ? (p > 0 ? Monoid::max : Monoid::min) : Monoid::sum;
  const expr::Literal root{.f = 1 / p};
  prims.reduce({monoid,
                space,
                dims,
                inputs,
                view_of(out, keepdim_layout(out, space, dims)),
                programs.power.get(),
                params,
                programs.root.get(),
                {&root, 1}});
}

// The gradient of x, given that of its norm y over `dims`, which both have with size 1.
Tensor norm_gradient(const Tensor& x, const Tensor& y, const Tensor& dy, double p, uint32_t dims) {
  if (p == 0) return zeros(x.sizes(), x.options());
  if (p == 1) return dy * x.sign();
  if (std::isinf(p)) {
    Shape list;
    for (int d = 0; d < int(x.dim()); ++d)
      if (dims >> d & 1) list.push_back(d);
    const Tensor hit = x.abs() == y;  // none where the norm is NaN
    const Tensor hits = hit.to(x.dtype());
    const Tensor count = list.empty() ? hits : hits.sum(list, true);
    return arete::where(hit, x.sign() * (dy / count), 0);
  }
  // At the origin the subgradient 0 is chosen.
  const Tensor zero = y == 0;
  const Tensor safe = arete::where(zero, 1, y);
  const Tensor scale = arete::where(zero, 0, dy * (p == 2 ? safe.reciprocal() : safe.pow(1 - p)));
  if (p == 2) return x * scale;
  // So it is for elements that are zero: below p = 1 their slopes are infinite.
  const Tensor none = x == 0;
  const Tensor size = p < 1 ? arete::where(none, 1, x.abs()) : x.abs();
  return x.sign() * size.pow(p - 1) * scale;
}

const OpRecord& norm_op =
    define("norm(Tensor self, float p=2, int[]? dim=None, bool keepdim=False) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("(sum |x|^p)^(1/p).")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(
              is_floating(x.dtype()),
              TypeError("norm", "norm: Expected a floating point or complex tensor as input. Got " +
                                    std::string(name_of(x.dtype()))));
          const uint32_t dims = reduced_dims(c, 2);
          if (std::isinf(c.real(1)) || c.real(1) < 0) check_not_empty(c, x.sizes(), dims);
          out.push_back({reduced_sizes(x.sizes(), dims, c.boolean(3)), x.dtype(), x.device(), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& prims) {
          const Tensor& x = c.tensor(0);
          const uint32_t dims = reduced_dims(c, 2);
          const double p = c.real(1);
          const prim::View in = view_of(x);
          const expr::Literal power{.f = p};
          reduce_norm(prims, x.sizes(), dims, {&in, 1}, out[0], p, {&power, 1});
        })
        .complex([](const Call& c) -> Results { return {again(c, c.tensor(0).abs())}; })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor x = g.input(0);
              const uint32_t dims = dims_of_grad(g, 2);
              const Tensor y = with_dims(g.output(), x.sizes(), dims);
              const Tensor dy = with_dims(g.grad(), x.sizes(), dims);
              return {norm_gradient(x, y, dy, g.real(1), dims)};
            },
            1, 1);

// In one pass, without the differences in memory.
const OpRecord& norm_of_difference_op =
    define("norm_of_difference(Tensor self, Tensor other, float p, float eps) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("p-norm of self - other + eps along the last dimension; the two broadcast.")
        .surface(Surface::internal)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          ARETE_CHECK(is_floating(a.dtype()) && a.dtype() == b.dtype(),
                      TypeError(c.name(), "expected floating point tensors of one dtype")
                          .got(describe(a) + " and " + describe(b)));
          const Shape full = broadcast_shapes(a.sizes(), b.sizes(), c.name());
          const uint32_t last = 1u << (full.size() - 1);
          if (std::isinf(c.real(2))) check_not_empty(c, full, last);
          out.push_back({reduced_sizes(full, last, false), a.dtype(), common_device(c), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& prims) {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          const Shape full = broadcast_shapes(a.sizes(), b.sizes(), c.name());
          const Layout of_a = expand(a.layout(), full), of_b = expand(b.layout(), full);
          const prim::View in[] = {view_of(a, of_a), view_of(b, of_b)};
          const expr::Literal params[] = {{.f = c.real(2)}, {.f = c.real(3)}};
          reduce_norm(prims, full, 1u << (full.size() - 1), in, out[0], c.real(2), params);
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor a = g.input(0), b = g.input(1);
              const Tensor d = g.real(3) == 0 ? a.sub(b) : a.sub(b).add(Scalar(g.real(3)));
              const Tensor slope =
                  norm_gradient(d, g.output().unsqueeze(-1), g.grad().unsqueeze(-1), g.real(2),
                                1u << (d.dim() - 1));
              return {g.needs(0) ? sum_to_size(slope, a.sizes()) : Tensor(),
                      g.needs(1) ? sum_to_size(slope, b.sizes()).neg() : Tensor()};
            },
            0b11, 1);

}  // namespace

Tensor norm_of_difference(const Tensor& a, const Tensor& b, double p, double eps) {
  const DType common = promote_types(a.dtype(), b.dtype());
  const DType t = is_floating(common) || is_complex(common) || eps == 0 ? common : default_dtype();
  // Half types round the difference, of which the gradient at an infinite p must find the largest.
  if (!is_floating(t) || is_reduced_float(t) || a.dim() == 0 || b.dim() == 0)
    return a.sub(b).add(Scalar(eps)).norm(p, {-1});
  return call(norm_of_difference_op, {a.to(t), b.to(t), p, eps});
}

}  // namespace arete::ops

namespace arete {

Tensor amin(const Tensor& self, IntList dims, bool keepdim) {
  return ops::call(ops::amin_op, {self, dims, keepdim});
}
Tensor amax(const Tensor& self, IntList dims, bool keepdim) {
  return ops::call(ops::amax_op, {self, dims, keepdim});
}
Tensor min(const Tensor& self) { return amin(self); }
Tensor max(const Tensor& self) { return amax(self); }
std::tuple<Tensor, Tensor> min(const Tensor& self, int64_t dim, bool keepdim) {
  auto r = ops::call_all(ops::min_dim_op, {self, dim, keepdim});
  return {r[0], r[1]};
}
std::tuple<Tensor, Tensor> max(const Tensor& self, int64_t dim, bool keepdim) {
  auto r = ops::call_all(ops::max_dim_op, {self, dim, keepdim});
  return {r[0], r[1]};
}
Tensor argmin(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  return ops::call(ops::argmin_op, {self, dim, keepdim});
}
Tensor argmax(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  return ops::call(ops::argmax_op, {self, dim, keepdim});
}
Tensor norm(const Tensor& self, double p, IntList dims, bool keepdim) {
  return ops::call(ops::norm_op, {self, p, dims, keepdim});
}

Tensor Tensor::amin(IntList dims, bool keepdim) const { return arete::amin(*this, dims, keepdim); }
Tensor Tensor::amax(IntList dims, bool keepdim) const { return arete::amax(*this, dims, keepdim); }
Tensor Tensor::min() const { return arete::min(*this); }
Tensor Tensor::max() const { return arete::max(*this); }
std::tuple<Tensor, Tensor> Tensor::min(int64_t dim, bool keepdim) const {
  return arete::min(*this, dim, keepdim);
}
std::tuple<Tensor, Tensor> Tensor::max(int64_t dim, bool keepdim) const {
  return arete::max(*this, dim, keepdim);
}
Tensor Tensor::argmin(std::optional<int64_t> dim, bool keepdim) const {
  return arete::argmin(*this, dim, keepdim);
}
Tensor Tensor::argmax(std::optional<int64_t> dim, bool keepdim) const {
  return arete::argmax(*this, dim, keepdim);
}
Tensor Tensor::norm(double p, IntList dims, bool keepdim) const {
  return arete::norm(*this, p, dims, keepdim);
}

}  // namespace arete

ARETE_FAMILY(extreme)
