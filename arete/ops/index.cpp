// gather and scatter. Operators with a 1-d index are in index_slices.cpp, masks in mask.cpp, index
// expressions in index_put.cpp.
#include "arete/ops/index.h"

#include <algorithm>

#include "arete/ops/autocast.h"
#include "arete/ops/creation.h"
#include "arete/ops/index_util.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/work.h"

namespace arete {
namespace ops {

using prim::ScatterMode;

void check_index_dtype(const Call& c, const Tensor& index) {
  ARETE_CHECK(
      is_integer(index.dtype()),
      TypeError(c.name(), std::string(c.name()) + "(): Expected dtype int32/int64 for index")
          .argument("index")
          .got(describe(index)));
}

void check_same_dtype(const Call& c, const Tensor& self, const Tensor& src) {
  ARETE_CHECK(self.dtype() == src.dtype(),
              TypeError(c.name(),
                        std::string(c.name()) + "(): Expected self.dtype to be equal to src.dtype")
                  .expected(name_of(self.dtype()))
                  .got(name_of(src.dtype())));
}

namespace {

int64_t rank_of(const Tensor& t) { return std::max<int64_t>(t.dim(), 1); }

void check_not_larger(const Call& c, const Tensor& index, const Tensor& self, int dim,
                      const char* name) {
  bool fits = index.dim() == self.dim() || index.numel() <= self.numel() || dim == 0;
  if (index.dim() == self.dim())
    for (int64_t d = 0; d < self.dim(); ++d) fits &= d == dim || index.size(d) <= self.size(d);
  ARETE_CHECK(fits, ValueError(c.name(),
                               "Expected index " + to_string(index.sizes()) +
                                   " to be no larger than " + name + " " + to_string(self.sizes()) +
                                   (dim >= 0 ? " apart from dimension " + std::to_string(dim)
                                             : std::string())));
}

void check_rank(const Call& c, const Tensor& index, const Tensor& other, const char* name) {
  ARETE_CHECK(
      rank_of(index) == rank_of(other),
      ValueError(c.name(), std::string("Index tensor must have the same number of dimensions as ") +
                               name + " tensor")
          .argument("index")
          .expected(std::to_string(other.dim()) + " dimensions")
          .got(to_string(index.sizes())));
}

// ---- gather: (self, dim, index)

const OpRecord& gather_op =
    define("gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor")
        .indexed({0})
        .doc(
            "Elements at given positions along a dimension. sparse_grad is accepted and has no "
            "effect: there are no sparse gradients.")
        .flops(no_flops)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &self = c.tensor(0), &index = c.tensor(2);
          const int dim = dim_argument(c);
          if (index.numel() > 0) {  // an empty index may have any rank and dtype
            check_index_dtype(c, index);
            check_rank(c, index, self, "input");
            check_not_larger(c, index, self, dim, "self");
          }
          out.push_back({Shape(index.sizes()), self.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const IndexView index(p, c.tensor(2));
          p.gather({at_least_1d(view_of(c.tensor(0))), at_least_1d(index.view()),
                    at_least_1d(view_of(out[0])), dim_argument(c)});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              return {scatter_add(zeros_to_copy(g.input_sizes(0), g.grad().options()), g.integer(1),
                                  g.input(1), g.grad()),
                      Tensor()};
            },
            0b10);

}  // namespace

// ---- scatter: (self, dim, index, src or value)

void scatter_infer(const Call& c, OutputSpecs& out) {
  const Tensor &self = c.tensor(0), &index = c.tensor(2);
  const int dim = dim_argument(c);
  const bool empty = index.numel() == 0;  // of any rank and dtype then
  if (!empty) {
    check_index_dtype(c, index);
    check_rank(c, index, self, "self");
    check_not_larger(c, index, self, dim, "self");
  }
  if (c[3].kind() == Arg::Kind::tensor) {
    if (!empty) {
      check_rank(c, index, c.tensor(3), "src");
      check_not_larger(c, index, c.tensor(3), -1, "src");
    }
    check_same_dtype(c, self, c.tensor(3));
  } else {
    ARETE_CHECK(c.scalar(3).category() <= 2 || is_complex(self.dtype()),
                TypeError(c.name(), "value cannot be converted to type " +
                                        std::string(name_of(self.dtype())) + " without overflow")
                    .argument("value")
                    .got(c.scalar(3).to_string()));
  }
  out.push_back({Shape(self.sizes()), self.dtype()});
}

Tensor covered(const GradCall& g, const Tensor& grad) {
  const IntList part = grad.sizes(), src = g.input_sizes(2);
  if (std::equal(part.begin(), part.end(), src.begin(), src.end())) return grad;
  if (numel_of(part) == 0) return zeros(src, grad.options());
  if (part.size() != src.size()) return covered(g, grad.reshape(Shape(src.size(), 1)));
  return embed_window(grad, src, contiguous_strides(src), 0);
}

namespace {

void scatter_views(const Call& c, const Tensor& out, const prim::View& src, ScatterMode mode,
                   prim::Primitives& p) {
  start_from_self(c, out, p);
  if (c.tensor(2).numel() == 0) return;
  const IndexView index(p, c.tensor(2));
  p.scatter({at_least_1d(view_of(out)), at_least_1d(index.view()), at_least_1d(src),
             dim_argument(c), mode, "scatter"});
}

// What `reduce`, argument 4, asks for.
ScatterMode mode_of(const char* op, const Arg& reduce) {
  if (reduce.is_none()) return ScatterMode::set;
  ARETE_CHECK(reduce.string() == "add" || reduce.string() == "multiply",
              ValueError(op, "reduce argument must be either add or multiply.")
                  .argument("reduce")
                  .got(reduce.string()));
  return reduce.string() == "add" ? ScatterMode::add : ScatterMode::mul;
}
ScatterMode mode_of(const Call& c) { return mode_of(c.name(), c.size() > 4 ? c[4] : Arg()); }

void scatter_mode_infer(const Call& c, OutputSpecs& out) {
  mode_of(c);
  scatter_infer(c, out);
}
// Gradient of self, if it needs one: what was set has none. As in PyTorch, products have no
// gradient here.
Tensor scatter_self_grad(const GradCall& g, const char* op) {
  const ScatterMode mode = mode_of(op, g.arg(4));
  ARETE_CHECK(mode != ScatterMode::mul,
              NotImplementedError(op, std::string("derivative for ") + op +
                                          " with reduce=\"multiply\" is not implemented")
                  .hint("use scatter_reduce with \"prod\""));
  if (!g.needs(0)) return Tensor();
  if (mode == ScatterMode::add) return g.grad();
  return scatter(g.grad(), g.integer(1), g.input(1), Scalar(0));
}

int64_t scattered(const Call& c) { return c.tensor(2).numel(); }
// With "reduce" something is computed at each place.
double scatter_flops(const Call& c) { return c.has(4) ? double(scattered(c)) : 0; }

const OpRecord& scatter_op =
    define("scatter(Tensor self, int dim, Tensor index, Tensor src, *, str? reduce=None) -> Tensor")
        .indexed({0, true, scattered})
        .doc(
            "self with elements at given positions along a dimension replaced, or with "
            "reduce=\"add\""
            " or \"multiply\" changed (multiply has no gradient).")
        .flops(scatter_flops)
        .infer(scatter_mode_infer)
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          scatter_views(c, out[0], view_of(c.tensor(3)), mode_of(c), p);
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              TensorList r(3);
              r[0] = scatter_self_grad(g, "scatter");
              if (g.needs(2)) r[2] = covered(g, gather(g.grad(), g.integer(1), g.input(1)));
              return r;
            },
            0b10)
        .in_place();

const OpRecord& scatter_value_op =
    define(
        "scatter.value(Tensor self, int dim, Tensor index, Scalar value, *, str? reduce=None) -> "
        "Tensor")
        .indexed({0, true, scattered})
        .doc(
            "self with elements at given positions along a dimension set to a number, or with "
            "reduce=\"add\" or \"multiply\" changed by it (multiply has no gradient).")
        .flops(scatter_flops)
        .infer(scatter_mode_infer)
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const NumberView value(p, out[0].dtype(), c.tensor(2).sizes(), c.scalar(3), c.name());
          scatter_views(c, out[0], value.view(), mode_of(c), p);
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              return {scatter_self_grad(g, "scatter"), Tensor()};
            },
            0b10)
        .in_place();

const OpRecord& scatter_add_op =
    define("scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor")
        .indexed({0, true, scattered})
        .autocast(autocast_on_cuda(Autocast::promote))
        .doc("self with values added at given positions along a dimension.")
        .flops([](const Call& c) { return double(scattered(c)); })
        .infer(scatter_infer)
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          scatter_views(c, out[0], view_of(c.tensor(3)), ScatterMode::add, p);
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              TensorList r(3);
              r[0] = g.grad();
              if (g.needs(2)) r[2] = covered(g, gather(g.grad(), g.integer(1), g.input(1)));
              return r;
            },
            0b10)
        .in_place();

}  // namespace
}  // namespace ops

Tensor gather(const Tensor& self, int64_t dim, const Tensor& index) {
  return ops::call(ops::gather_op, {self, dim, index});
}
Tensor Tensor::gather(int64_t dim, const Tensor& index) const {
  return arete::gather(*this, dim, index);
}

Tensor scatter(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  return ops::call(ops::scatter_op, {self, dim, index, src, std::nullopt});
}
Tensor scatter(const Tensor& self, int64_t dim, const Tensor& index, Scalar value) {
  return ops::call(ops::scatter_value_op, {self, dim, index, value, std::nullopt});
}
Tensor scatter_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  return ops::call(ops::scatter_add_op, {self, dim, index, src});
}
Tensor Tensor::scatter(int64_t dim, const Tensor& index, const Tensor& src) const {
  return arete::scatter(*this, dim, index, src);
}
Tensor Tensor::scatter(int64_t dim, const Tensor& index, Scalar value) const {
  return arete::scatter(*this, dim, index, value);
}
Tensor Tensor::scatter_add(int64_t dim, const Tensor& index, const Tensor& src) const {
  return arete::scatter_add(*this, dim, index, src);
}
Tensor& Tensor::scatter_(int64_t dim, const Tensor& index, const Tensor& src) {
  return ops::call_in_place(*this, ops::scatter_op, {*this, dim, index, src, std::nullopt});
}
Tensor& Tensor::scatter_(int64_t dim, const Tensor& index, Scalar value) {
  return ops::call_in_place(*this, ops::scatter_value_op, {*this, dim, index, value, std::nullopt});
}
Tensor& Tensor::scatter_add_(int64_t dim, const Tensor& index, const Tensor& src) {
  return ops::call_in_place(*this, ops::scatter_add_op, {*this, dim, index, src});
}

}  // namespace arete

ARETE_FAMILY(index)
