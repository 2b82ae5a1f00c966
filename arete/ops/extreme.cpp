// Extreme values and their positions.
#include "arete/ops/index.h"
#include "arete/ops/reduce_family.h"

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

}  // namespace
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
