// Views with one result. The joining and splitting ones are in shape_split.cpp.
#include "arete/ops/shape.h"

#include <algorithm>

#include "arete/core/history.h"
#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/in_place.h"
#include "arete/ops/nn.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {
namespace ops {

// ---- for batches (Note [Batching rules])

namespace vmaps {
namespace {

// Sizes of the result, which may leave one open, with the batch in front.
Results view_rule(const Rewriting& r) {
  Changed call(r);
  call.set(1, with_front(r.batch, r.call.op.view(r.call).sizes));
  return call.run();
}
Results expand_rule(const Rewriting& r) {
  Changed call(r);
  const Shape sizes = r.call.op.view(r.call).sizes;
  call.set(0, raised(r.at(0), int64_t(sizes.size())));
  call.set(1, with_front(r.batch, sizes));
  return call.run();
}
Results permute_rule(const Rewriting& r) {
  Changed call(r);
  Shape dims{0};
  for (int64_t d : r.call.ints(1))
    dims.push_back(normalize_dim(d, int(rank_of(r.at(0))), r.call.name()) + 1);
  call.set(1, std::move(dims));
  return call.run();
}
// An empty list names no dimension here.
Results squeeze_rule(const Rewriting& r) {
  if (r.call.has(1) && r.call.ints(1).empty()) return {r.at(0).physical};
  return by_dimensions(r);
}
// The new dimension may stand behind the last one.
Results unsqueeze_rule(const Rewriting& r) {
  Changed call(r);
  const int rank = int(rank_of(r.at(0))) + 1;
  call.set(1, int64_t(normalize_dim(r.call.integer(1), rank, r.call.name()) + 1));
  return call.run();
}
Results as_strided_rule(const Rewriting& r) {
  Changed call(r);
  const int64_t step = r.at(0).physical.stride(0);
  call.set(1, with_front(r.batch, r.call.ints(1)));
  call.set(2, with_front(step, r.call.ints(2)));
  if (!r.call.ints(4).empty()) call.set(4, with_front(step, r.call.ints(4)));
  return call.run();
}

}  // namespace
}  // namespace vmaps

namespace {

const Layout& layout_of(const Call& c) { return c.tensor(0).layout(); }

// Gradient of a view that shows no element twice: back into zeros of the input's sizes. `l` is the
// view of a row-major input.
TensorList into_zeros(const GradCall& g, const Layout& l) {
  return {embed_window(g.grad(), g.input_sizes(0), l.strides, l.offset)};
}
TensorList reshape_grad(const GradCall& g) { return {reshape(g.grad(), g.input_sizes(0))}; }

const OpRecord& view_op =
    define("view(Tensor self, int[] size) -> Tensor")
        .doc("Other sizes for the same memory.")
        .batched(vmaps::view_rule)
        .view([](const Call& c) {
          const std::optional<Layout> l = arete::view(layout_of(c), c.ints(1));
          ARETE_CHECK(l, ValueError(c.name(),
                                    "view size is not compatible with input tensor's size "
                                    "and stride (at least one dimension spans across two "
                                    "contiguous subspaces). Use .reshape(...) instead.")
                             .got("size " + to_string(c.ints(1)) + " for " + describe(c.tensor(0)) +
                                  " with strides " + to_string(c.tensor(0).strides())));
          return *l;
        })
        .grad(reshape_grad);

// Sizes, strides and offset count elements: those of the other size.
Layout layout_in(const Call& c) {
  const Tensor& x = c.tensor(0);
  const DType to = c[1].dtype();
  Layout l = x.layout();
  const int64_t from_size = int64_t(size_of(x.dtype())), to_size = int64_t(size_of(to));
  if (from_size == to_size) return l;
  const auto check = [&](bool good, const std::string& what, const std::string& got) {
    ARETE_CHECK(good, ValueError(c.name(), what + " to view " + std::string(name_of(x.dtype())) +
                                               " as " + std::string(name_of(to)) +
                                               " (different element sizes)" + got));
  };
  check(!l.sizes.empty(), "self.dim() cannot be 0", "");
  const auto got = [](int64_t v) { return ", but got " + std::to_string(v); };
  check(l.strides.back() == 1, "self.stride(-1) must be 1", got(l.strides.back()));
  if (to_size < from_size) {
    const int64_t parts = from_size / to_size;
    l.sizes.back() *= parts;
    for (size_t d = 0; d + 1 < l.strides.size(); ++d) l.strides[d] *= parts;
    l.offset *= parts;
    return l;
  }
  const int64_t parts = to_size / from_size;
  const std::string by = " must be divisible by " + std::to_string(parts);
  check(l.sizes.back() % parts == 0, "self.size(-1)" + by, got(l.sizes.back()));
  check(l.offset % parts == 0, "self.storage_offset()" + by, got(l.offset));
  l.sizes.back() /= parts;
  for (size_t d = 0; d + 1 < l.strides.size(); ++d) {
    check(l.strides[d] % parts == 0, "self.stride(" + std::to_string(d) + ")" + by,
          got(l.strides[d]));
    l.strides[d] /= parts;
  }
  l.offset /= parts;
  return l;
}

const OpRecord& view_dtype_op = define("view.dtype(Tensor self, dtype dtype) -> Tensor")
                                    .doc("The same memory read as another type, without history.")
                                    .dtypes({kInt32})
                                    .compose([](const Call& c) -> Results {
                                      const Tensor& x = c.tensor(0);
                                      return {Tensor(x.impl()->alias(layout_in(c), c[1].dtype()))};
                                    });

const OpRecord& reshape_op = define("reshape(Tensor self, int[] shape) -> Tensor")
                                 .doc("Other sizes: a view if possible, else a copy.")
                                 .compose([](const Call& c) -> Results {
                                   const Tensor& x = c.tensor(0);
                                   if (arete::view(x.layout(), c.ints(1)))
                                     return {arete::view(x, c.ints(1))};
                                   return {arete::view(x.contiguous(), c.ints(1))};
                                 });

const OpRecord& permute_op =
    define("permute(Tensor input, int[] dims) -> Tensor")
        .doc("Dimensions in another order.")
        .batched(vmaps::permute_rule)
        .view([](const Call& c) { return arete::permute(layout_of(c), c.ints(1)); })
        .grad([](const GradCall& g) -> TensorList {
          const int rank = int(g.ints(1).size());
          Shape inverse(size_t(rank), 0);
          for (int d = 0; d < rank; ++d) inverse[normalize_dim(g.ints(1)[d], rank, "permute")] = d;
          return {permute(g.grad(), inverse)};
        });

const OpRecord& transpose_op =
    define("transpose(Tensor self, int dim0, int dim1) -> Tensor")
        .doc("Two dimensions swapped.")
        .view([](const Call& c) {
          return arete::transpose(layout_of(c), c.integer(1), c.integer(2));
        })
        .grad([](const GradCall& g) -> TensorList {
          return {transpose(g.grad(), g.integer(1), g.integer(2))};
        });

const OpRecord& squeeze_op =
    define("squeeze(Tensor self, int[]? dim=None) -> Tensor")
        .face("squeeze.dims(Tensor self, int[] dim)")
        .doc("Without dimensions of size 1.")
        .batched(vmaps::squeeze_rule)
        .view([](const Call& c) {
          return c.has(1) ? arete::squeeze(layout_of(c), c.ints(1)) : arete::squeeze(layout_of(c));
        })
        .grad(reshape_grad);

const OpRecord& unsqueeze_op =
    define("unsqueeze(Tensor self, int dim) -> Tensor")
        .doc("A new dimension of size 1.")
        .batched(vmaps::unsqueeze_rule)
        .view([](const Call& c) { return arete::unsqueeze(layout_of(c), c.integer(1)); })
        .grad(reshape_grad);

const OpRecord& expand_op =
    define("expand(Tensor self, int[] size) -> Tensor")
        .doc("Dimensions of size 1 repeated without copying.")
        .batched(vmaps::expand_rule)
        .view([](const Call& c) { return arete::expand(layout_of(c), c.ints(1)); })
        .grad([](const GradCall& g) -> TensorList {
          return {sum_to_size(g.grad(), g.input_sizes(0))};
        });

const OpRecord& select_op =
    define("select(Tensor self, int dim, int index) -> Tensor")
        .doc("One index of a dimension.")
        .view([](const Call& c) { return arete::select(layout_of(c), c.integer(1), c.integer(2)); })
        .grad([](const GradCall& g) {
          return into_zeros(g, arete::select(Layout(g.input_sizes(0)), g.integer(1), g.integer(2)));
        });

std::optional<int64_t> optional_int(const Arg& a) {
  if (a.is_none()) return std::nullopt;
  return a.integer();
}

const OpRecord& slice_op =
    define("slice(Tensor self, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor")
        .doc("Python's start:end:step along a dimension.")
        .view([](const Call& c) {
          return arete::slice(layout_of(c), c.integer(1), optional_int(c[2]), optional_int(c[3]),
                              c.integer(4));
        })
        .grad([](const GradCall& g) {
          return into_zeros(
              g, arete::slice(Layout(g.input_sizes(0)), g.integer(1), optional_int(g.arg(2)),
                              optional_int(g.arg(3)), g.integer(4)));
        });

const OpRecord& narrow_op =
    define("narrow(Tensor self, int dim, int start, int length) -> Tensor")
        .doc("Elements start to start + length of a dimension.")
        .view([](const Call& c) {
          return arete::narrow(layout_of(c), c.integer(1), c.integer(2), c.integer(3));
        })
        .grad([](const GradCall& g) {
          return into_zeros(
              g, arete::narrow(Layout(g.input_sizes(0)), g.integer(1), g.integer(2), g.integer(3)));
        });

const OpRecord& diagonal_op =
    define("diagonal(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor")
        .doc("The diagonal of two dimensions as the last one.")
        .view([](const Call& c) {
          return arete::diagonal(layout_of(c), c.integer(1), c.integer(2), c.integer(3));
        })
        .grad([](const GradCall& g) {
          return into_zeros(g, arete::diagonal(Layout(g.input_sizes(0)), g.integer(1), g.integer(2),
                                               g.integer(3)));
        });

const OpRecord& unfold_op =
    define("unfold(Tensor self, int dimension, int size, int step) -> Tensor")
        .doc("Windows along a dimension, their elements in a new last one.")
        .view([](const Call& c) {
          return arete::unfold(layout_of(c), c.integer(1), c.integer(2), c.integer(3));
        })
        .grad([](const GradCall& g) -> TensorList {
          const Tensor grad = g.grad();
          const IntList sizes = g.input_sizes(0);
          const int64_t size = g.integer(2), step = g.integer(3);
          if (sizes.empty() || grad.numel() == 0)
            return into_zeros(g, arete::unfold(Layout(sizes), g.integer(1), size, step));
          // Images whose rows are the dimension, and whose columns all that is behind it.
          const auto dim = size_t(normalize_dim(g.integer(1), int(sizes.size()), "unfold"));
          const int64_t images = numel_of(sizes.first(dim)), rows = sizes[dim],
                        columns = numel_of(sizes.subspan(dim + 1));
          const Tensor windows = grad.movedim(-1, int64_t(dim)).reshape({images, size, -1});
          return {fold(windows, {rows, columns}, {size, 1}, 1, 0, {step, 1}).reshape(sizes)};
        });

// self_stride and self_offset repeat where self lies in its storage, because the gradient is found
// there; empty means row-major.
const OpRecord& as_strided_window_op =
    define(
        "as_strided_window(Tensor self, int[] size, int[] stride, int storage_offset=0, int[] "
        "self_stride=[], int self_offset=0) -> Tensor")
        .surface(Surface::internal)
        .doc("as_strided with where self lies in its storage, which its gradient needs.")
        .storage_offsets(0b101000)
        .batched(vmaps::as_strided_rule)
        .view([](const Call& c) {
          const Tensor& x = c.tensor(0);
          return arete::as_strided(c.ints(1), c.ints(2), c.integer(3),
                                   int64_t(x.storage()->bytes() / x.element_size()));
        })
        .grad([](const GradCall& g) -> TensorList {
          Layout in(g.input_sizes(0));
          if (!g.ints(4).empty()) in = Layout(g.input_sizes(0), g.ints(4), g.integer(5));
          const Layout out(g.ints(1), g.ints(2), g.integer(3));
          // Through the storage: gradients meet where elements are shared.
          const int64_t total = std::max(in.end(), out.end());
          Tensor flat = embed_window(g.grad(), {total}, out.strides, out.offset);
          if (in.may_overlap()) {
            const Tensor shown = ones(in.sizes, g.grad().options());
            flat = flat.div(embed_window(shown, {total}, in.strides, in.offset).clamp(Scalar(1)));
          }
          return {as_strided(flat, in.sizes, in.strides, in.offset)};
        });

const OpRecord& as_strided_op =
    define("as_strided(Tensor self, int[] size, int[] stride, int? storage_offset=None) -> Tensor")
        .doc("Any window on self's storage; without an offset it begins where self does.")
        .storage_offsets(0b1000)
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int64_t offset = c.has(3) ? c.integer(3) : x.storage_offset();
          return {call(as_strided_window_op,
                       {x, c.ints(1), c.ints(2), offset, x.strides(), x.storage_offset()})};
        });

}  // namespace

Tensor& become(Tensor& self, const Tensor& view) {
  check_inference(self, "");
  ARETE_CHECK(!(self.requires_grad() && self.is_leaf()) || !is_grad_enabled(),
              AutogradError("",
                            "a leaf Variable that requires grad is being used in an in-place "
                            "operation.")
                  .hint("use the form without the underscore"));
  self.bump_version();  // what was saved before had another shape
  if (const IntrusivePtr<Node> node = view.grad_fn()) {
    const uint32_t slot = gradient_edge(view).slot;
    set_history(self, node, slot);
  }
  self.impl()->layout = view.layout();
  return self;
}
}  // namespace ops

Tensor view(const Tensor& self, IntList sizes) { return ops::call(ops::view_op, {self, sizes}); }
Tensor view_dtype(const Tensor& self, DType dtype) {
  return ops::call(ops::view_dtype_op, {self, dtype});
}
Tensor reshape(const Tensor& self, IntList sizes) {
  return ops::call(ops::reshape_op, {self, sizes});
}
Tensor permute(const Tensor& self, IntList dims) {
  return ops::call(ops::permute_op, {self, dims});
}
Tensor transpose(const Tensor& self, int64_t a, int64_t b) {
  return ops::call(ops::transpose_op, {self, a, b});
}
Tensor squeeze(const Tensor& self) { return ops::call(ops::squeeze_op, {self, std::nullopt}); }
Tensor squeeze(const Tensor& self, int64_t dim) { return squeeze(self, IntList(&dim, 1)); }
Tensor squeeze(const Tensor& self, IntList dims) {
  return ops::call(ops::squeeze_op, {self, dims});
}
Tensor unsqueeze(const Tensor& self, int64_t dim) {
  return ops::call(ops::unsqueeze_op, {self, dim});
}
Tensor expand(const Tensor& self, IntList sizes) {
  return ops::call(ops::expand_op, {self, sizes});
}
Tensor narrow(const Tensor& self, int64_t dim, int64_t start, int64_t length) {
  return ops::call(ops::narrow_op, {self, dim, start, length});
}
Tensor select(const Tensor& self, int64_t dim, int64_t index) {
  return ops::call(ops::select_op, {self, dim, index});
}
Tensor slice(const Tensor& self, int64_t dim, std::optional<int64_t> start,
             std::optional<int64_t> stop, int64_t step) {
  return ops::call(ops::slice_op, {self, dim, start, stop, step});
}
Tensor as_strided(const Tensor& self, IntList sizes, IntList strides, int64_t offset) {
  return ops::call(ops::as_strided_op, {self, sizes, strides, offset});
}
Tensor diagonal(const Tensor& self, int64_t offset, int64_t dim1, int64_t dim2) {
  return ops::call(ops::diagonal_op, {self, offset, dim1, dim2});
}
Tensor unfold(const Tensor& self, int64_t dim, int64_t size, int64_t step) {
  return ops::call(ops::unfold_op, {self, dim, size, step});
}

Tensor Tensor::view(IntList sizes) const { return arete::view(*this, sizes); }
Tensor Tensor::reshape(IntList sizes) const { return arete::reshape(*this, sizes); }
Tensor Tensor::permute(IntList dims) const { return arete::permute(*this, dims); }
Tensor Tensor::transpose(int64_t a, int64_t b) const { return arete::transpose(*this, a, b); }
Tensor Tensor::squeeze() const { return arete::squeeze(*this); }
Tensor Tensor::squeeze(int64_t dim) const { return arete::squeeze(*this, dim); }
Tensor Tensor::squeeze(IntList dims) const { return arete::squeeze(*this, dims); }
Tensor Tensor::unsqueeze(int64_t dim) const { return arete::unsqueeze(*this, dim); }
Tensor Tensor::expand(IntList sizes) const { return arete::expand(*this, sizes); }
Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length) const {
  return arete::narrow(*this, dim, start, length);
}
Tensor Tensor::select(int64_t dim, int64_t index) const { return arete::select(*this, dim, index); }
Tensor Tensor::slice(int64_t dim, std::optional<int64_t> start, std::optional<int64_t> stop,
                     int64_t step) const {
  return arete::slice(*this, dim, start, stop, step);
}
Tensor Tensor::as_strided(IntList sizes, IntList strides, int64_t offset) const {
  return arete::as_strided(*this, sizes, strides, offset);
}
Tensor Tensor::diagonal(int64_t offset, int64_t dim1, int64_t dim2) const {
  return arete::diagonal(*this, offset, dim1, dim2);
}
Tensor Tensor::unfold(int64_t dim, int64_t size, int64_t step) const {
  return arete::unfold(*this, dim, size, step);
}
Tensor& Tensor::squeeze_(int64_t dim) { return ops::become(*this, squeeze(dim)); }
Tensor& Tensor::unsqueeze_(int64_t dim) { return ops::become(*this, unsqueeze(dim)); }
Tensor& Tensor::transpose_(int64_t a, int64_t b) { return ops::become(*this, transpose(a, b)); }
Tensor& Tensor::t_() { return ops::become(*this, t()); }

}  // namespace arete

ARETE_FAMILY(shape)
