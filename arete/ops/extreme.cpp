// Extreme values and their positions.
#include <optional>

#include "arete/ops/fused_builder.h"
#include "arete/ops/index.h"
#include "arete/ops/reduce_family.h"
#include "arete/prim/loop_nest.h"

namespace arete::ops {

TensorList grad_of_picked(const GradCall& g, int64_t dim, bool keepdim) {
  const IntList sizes = g.input_sizes(0);
  if (sizes.empty()) return {g.grad()};
  const int64_t d = normalize_dim(dim, int(sizes.size()), "max");
  Tensor index = g.output(1), dy = g.grad();
  if (!keepdim) {
    index = index.unsqueeze(d);
    dy = dy.unsqueeze(d);
  }
  return {zeros_to_copy(sizes, dy.options()).scatter(d, index, dy)};
}

namespace {

using expr::Value;
using prim::Monoid;

void infer_extreme(const Call& c, OutputSpecs& out) {
  const Tensor& x = c.tensor(0);
  const uint32_t dims = reduced_dims(c, 1);
  check_not_empty(c, x.sizes(), dims, c.has(1) && !c.ints(1).empty());
  out.push_back({reduced_sizes(x.sizes(), dims, c.boolean(2)), x.dtype()});
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

// The gradient `grad` of the extremes `out` over `dims` is shared evenly among equal ones.
Tensor extreme_share(const Tensor& x, uint32_t dims, const Tensor& out, const Tensor& grad) {
  const Tensor y = with_dims(out.detach(), x.sizes(), dims);
  const Tensor dy = with_dims(grad, x.sizes(), dims);
  Shape list;
  for (int d = 0; d < int(x.dim()); ++d)
    if (dims >> d & 1) list.push_back(d);
  const Tensor hit = ((x.detach() == y) | (x.detach().isnan() & y.isnan())).to(x.dtype());
  const Tensor count = list.empty() ? hit : hit.sum(list, true);
  return hit * (dy / count);
}

TensorList grad_extreme(const GradCall& g) {
  return {extreme_share(g.input(0), dims_of_grad(g, 1), g.output(), g.grad())};
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

// ---- both extremes

uint32_t aminmax_dims(IntList sizes, std::optional<int64_t> dim) {
  if (!dim) return (1u << sizes.size()) - 1;
  const int d = normalize_dim(*dim, int(sizes.size()), "aminmax");
  return sizes.empty() ? 0 : 1u << d;
}
std::optional<int64_t> aminmax_dim(const Call& c) {
  return c.has(1) ? std::optional(c.integer(1)) : std::nullopt;
}

void infer_aminmax(const Call& c, OutputSpecs& out) {
  const Tensor& x = c.tensor(0);
  const uint32_t dims = aminmax_dims(x.sizes(), aminmax_dim(c));
  ARETE_CHECK(c.has(1) || x.numel() > 0,
              ValueError(c.name(),
                         "aminmax(): cannot compute aminmax over an empty dimension as "
                         "the operation has no identity."));
  for (size_t d = 0; d < x.sizes().size(); ++d)
    ARETE_CHECK(!(dims >> d & 1) || x.sizes()[d] > 0,
                IndexError(c.name(), "aminmax: Expected reduction dim " +
                                         std::to_string(c.integer(1)) + " to have non-zero size."));
  for (int i = 0; i < 2; ++i)
    out.push_back({reduced_sizes(x.sizes(), dims, c.boolean(2)), x.dtype()});
}

// Both in one pass, as one kind of reduction: the largest is the smallest in the reverse order.
const prim::FusedSpec& aminmax_spec(DType t) {
  static SpecCache cache;
  return cache.get(pack_key({int(t)}), [&] {
    const auto reversed = [&](const Value& v) {
      return is_floating(t) ? -v : ~v;  // the smallest integer has no opposite
    };
    FusedBuilder b({t}, {t, t});
    const int low =
        b.reduce(t == kBool ? Monoid::all : Monoid::min, {0}, [&](FusedBuilder::Values v) {
          return std::vector{v[0], reversed(v[0])};
        });
    b.store_row({low, low - 1}, 0, 2, [&](FusedBuilder::Values v) {
      return std::vector{v[0], reversed(v[1])};
    });
    return b.finish();
  });
}

void lower_aminmax(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  if (out[0].numel() == 0) return;
  const Tensor x = c.tensor(0).dim() ? c.tensor(0) : c.tensor(0).reshape({1});
  const uint32_t dims = c.tensor(0).dim() ? aminmax_dims(x.sizes(), aminmax_dim(c)) : 1;
  const Layout layouts[2] = {keepdim_layout(out[0], x.sizes(), dims),
                             keepdim_layout(out[1], x.sizes(), dims)};
  const prim::View views[] = {view_of(x), view_of(out[0], layouts[0]), view_of(out[1], layouts[1])};
  const prim::ReducedLast order(x.sizes(), dims, views);
  p.fused({&aminmax_spec(x.dtype()),
           order.space(),
           order.kept(),
           order.views().first(1),
           order.views().subspan(1),
           {}});
}

TensorList grad_aminmax(const GradCall& g) {
  const Tensor x = g.input(0);
  const uint32_t dims =
      aminmax_dims(x.sizes(), g.arg(1).is_none() ? std::nullopt : std::optional(g.integer(1)));
  Tensor r;
  for (size_t i = 0; i < 2; ++i) {
    if (!g.grad(i).defined()) continue;
    const Tensor share = extreme_share(x, dims, g.output(i), g.grad(i));
    r = r.defined() ? r + share : share;
  }
  return {r};
}

const OpRecord& aminmax_op =
    define("aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)")
        .doc("Smallest and largest value, of everything or along dim; NaN wins.")
        .infer(infer_aminmax)
        .lower(lower_aminmax)
        .grad(grad_aminmax, 1, 3)
        .dtypes(kReal);

// ---- values and positions along one dimension

void infer_with_index(const Call& c, OutputSpecs& out) {
  const Tensor& x = c.tensor(0);
  const int d = normalize_dim(c.integer(1), int(x.dim()), c.name());
  const uint32_t dims = x.dim() ? 1u << d : 0;
  check_not_empty(c, x.sizes(), dims, true);
  const Shape s = reduced_sizes(x.sizes(), dims, c.boolean(2));
  out.push_back({s, x.dtype()});
  out.push_back({s, kInt64});
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
  return grad_of_picked(g, g.integer(1), g.boolean(2));
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
  ARETE_CHECK(
      c.has(1) || x.numel() > 0,
      IndexError(c.name(), std::string(c.name()) + "(): Expected reduction dim to be specified for "
                                                   "input.numel() == 0."));
  check_not_empty(c, x.sizes(), dims, true);
  out.push_back({reduced_sizes(x.sizes(), dims, c.boolean(2)), kInt64});
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

}  // namespace
}  // namespace arete::ops

namespace arete {

Tensor amin(const Tensor& self, IntList dims, bool keepdim) {
  return ops::call(ops::amin_op, {self, dims, keepdim});
}
Tensor amax(const Tensor& self, IntList dims, bool keepdim) {
  return ops::call(ops::amax_op, {self, dims, keepdim});
}
std::tuple<Tensor, Tensor> aminmax(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  const auto r = ops::call_all(ops::aminmax_op, {self, dim, keepdim});
  return {r[0], r[1]};
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

}  // namespace arete

ARETE_FAMILY(extreme)
