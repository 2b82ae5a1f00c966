// Slices at the positions that a 1-d index names along one dimension: (self, dim, index, source).
#include <algorithm>

#include "arete/expr/program_cache.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/filling.h"
#include "arete/ops/index.h"
#include "arete/ops/index_util.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/ops/window_util.h"
#include "arete/ops/work.h"
#include "arete/prim/positions.h"

namespace arete {
namespace ops {

// ---- for batches (Note [Batching rules])

namespace vmaps {
namespace {
// (self, dim, index [, source or value]); `each` has an index of its own for each element, as
// gather and scatter take it.
using IndexEach = Tensor (*)(const Rewriting&, const Tensor& self, int64_t dim,
                             const Tensor& index);
template <IndexEach each>
Results index_rule(const Rewriting& r) {
  if (rank_of(r.at(0)) == 0) return one_by_one(r);
  const int64_t d = normalize_dim(r.call.integer(1), int(rank_of(r.at(0))), r.call.name()) + 1;
  const bool has_source = r.call.size() > 3 && is_tensor_at(r, 3);
  if (has_source && rank_of(r.at(3)) != rank_of(r.at(0))) return one_by_one(r);
  if (!r.is_mapped(2)) {
    Changed call(r);
    call.set(0, r.whole(0));
    call.set(1, d);
    if (has_source) call.set(3, r.whole(3));
    return call.run();
  }
  const Tensor self = r.whole(0),
               index =
                   spread_index(r.whole(2).to(kInt64).reshape({r.batch, r.call.tensor(2).numel()}),
                                self.sizes(), d);
  return {each(r, self, d, index)};
}
Tensor select_each(const Rewriting&, const Tensor& self, int64_t dim, const Tensor& index) {
  return self.gather(dim, index);
}
Tensor fill_each(const Rewriting& r, const Tensor& self, int64_t dim, const Tensor& index) {
  return self.scatter(dim, index, r.call.scalar(3));
}
Tensor copy_each(const Rewriting& r, const Tensor& self, int64_t dim, const Tensor& index) {
  return self.scatter(dim, index, r.whole(3));
}
Tensor add_each(const Rewriting& r, const Tensor& self, int64_t dim, const Tensor& index) {
  return self.scatter_add(dim, index, scaled(r.whole(3), r.call.scalar(4)));
}
}  // namespace
}  // namespace vmaps

using prim::ScatterMode;

namespace {

void check_slices(const Call& c, int dim) {
  const Tensor &self = c.tensor(0), &index = c.tensor(2);
  check_index_dtype(c, index);
  ARETE_CHECK(index.dim() <= 1,
              IndexError(c.name(), std::string(c.name()) + "(): Index is supposed to be a vector")
                  .argument("index")
                  .got(describe(index)));
  if (c.size() < 4 || c[3].kind() != Arg::Kind::tensor) return;
  const Tensor& src = c.tensor(3);
  check_same_dtype(c, self, src);
  Shape expected(self.sizes());
  if (!expected.empty()) expected[size_t(dim)] = index.numel();
  const bool one = self.dim() <= 1 && src.dim() <= 1 && src.numel() == 1 && index.numel() == 1;
  ARETE_CHECK(one || Shape(src.sizes()) == expected,
              ValueError(c.name(), std::string(c.name()) +
                                       "(): Number of indices should be equal to source.size(dim), "
                                       "and the other sizes to those of self")
                  .argument("source")
                  .expected(to_string(expected))
                  .got(to_string(src.sizes())));
}

// A tensor as rows along its first dimension, if the others are one run.
std::optional<Layout> as_rows(const Layout& l) {
  if (l.rank() == 0) return std::nullopt;
  Layout row = l;
  row.sizes.erase(row.sizes.begin());
  row.strides.erase(row.strides.begin());
  const auto flat = arete::view(row, IntList{row.numel()});
  if (!flat) return std::nullopt;
  return Layout(IntList{l.sizes[0], flat->sizes[0]}, IntList{l.strides[0], flat->strides[0]},
                l.offset);
}

// Rows (the first dimension) of a pair of layouts of one order of the others.
std::optional<std::pair<Layout, Layout>> as_rows(Layout from, Layout to) {
  if (prefers_channels_last(from) && prefers_channels_last(to)) {
    Shape order{0};
    for (int d = 2; d < from.rank(); ++d) order.push_back(d);
    order.push_back(1);
    from = permute(from, order);
    to = permute(to, order);
  }
  const auto a = as_rows(from), b = as_rows(to);
  if (!a || !b) return std::nullopt;
  return std::pair{*a, *b};
}

template <bool ordered>
void select_infer(const Call& c, OutputSpecs& out) {
  const Tensor& self = c.tensor(0);
  const int dim = dim_argument(c);
  check_slices(c, dim);
  Shape sizes(self.sizes());
  if (!sizes.empty())
    sizes[size_t(dim)] = c.tensor(2).numel();
  else
    ARETE_CHECK(c.tensor(2).numel() == 1,
                IndexError(c.name(), "index_select(): Index to scalar can have only 1 value"));
  auto strides = ordered ? strides_like(self, sizes) : std::nullopt;
  out.push_back({std::move(sizes), self.dtype(), std::move(strides)});
}
void select_lower(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  const Tensor& self = c.tensor(0);
  const int dim = dim_argument(c);
  const IndexView index(p, c.tensor(2), true);
  const auto rows = dim == 0 ? as_rows(self.layout(), out[0].layout()) : std::nullopt;
  if (rows) {
    p.take_rows({view_of(self, rows->first), index.view(), view_of(out[0], rows->second)});
    return;
  }
  const SpreadIndex spread(index.view(), self.sizes(), dim);
  prim::View i = spread.view();
  p.gather({view_of(self), i, view_of(out[0]), dim, c.name()});
}
TensorList select_grad(const GradCall& g) {
  return {index_add(zeros_to_copy(g.input_sizes(0), g.grad().options()), g.integer(1), g.input(1),
                    g.grad()),
          Tensor()};
}

const OpRecord& index_select_op =
    define("index_select(Tensor self, int dim, Tensor index) -> Tensor")
        .indexed({0})
        .doc("Slices of self along a dimension.")
        .flops(no_flops)
        .batched(vmaps::index_rule<vmaps::select_each>)
        .infer(select_infer<false>)
        .lower(select_lower)
        .grad(select_grad, 0b10);

const OpRecord& ordered_select_op =
    define("ordered_select(Tensor self, int dim, Tensor index, bool once) -> Tensor")
        .indexed({0})
        .doc("index_select that keeps channels-last order. once: no position is named twice.")
        .surface(Surface::internal)
        .for_files()
        .flops(no_flops)
        .batched(vmaps::index_rule<vmaps::select_each>)
        .infer(select_infer<true>)
        .lower(select_lower)
        .grad(
            [](const GradCall& g) -> TensorList {
              if (!g.boolean(3)) return select_grad(g);
              // Nothing is added up, which would take an order of the positions.
              Tensor r = zeros(g.input_sizes(0), g.grad().options());
              index_copy_into(r, g.integer(1), g.input(1), g.grad());
              return {r, Tensor()};
            },
            0b10);

}  // namespace

Tensor ordered_select(const Tensor& self, int64_t dim, const Tensor& index, bool once) {
  return call(ordered_select_op, {self, dim, index, once});
}

void slices_infer(const Call& c, OutputSpecs& out) {
  check_slices(c, dim_argument(c));
  out.push_back({Shape(c.tensor(0).sizes()), c.tensor(0).dtype()});
}

namespace {

// self with slices replaced, large and not in place, on a device that writes neighbours together:
// in one pass over the result, which looks up what slice there is, if any. False if the layouts do
// not allow it.
bool copy_in_order(const Call& c, const Tensor& out, const prim::View& index, int dim,
                   prim::Primitives& p) {
  constexpr int64_t kLarge = int64_t{1} << 21;
  const Tensor &self = c.tensor(0), &src = c.tensor(3);
  if (c.in_place() || out.device().is_cpu() || out.numel() < kLarge || is_complex(out.dtype()) ||
      !src.is_contiguous() || src.numel() == 0)
    return false;
  const IntList sizes = out.sizes();
  const int64_t n = sizes[size_t(dim)], outer = numel_of(sizes.first(size_t(dim))),
                inner = numel_of(sizes.subspan(size_t(dim) + 1));
  if (std::max(outer, inner) > out.numel() / 64) return false;  // positions would take much room
  const Shape parts{outer, n, inner};
  const auto from = arete::view(self.layout(), parts), to = arete::view(out.layout(), parts);
  if (!from || !to) return false;

  // Which slice is at a position: as with any scatter, some one of several.
  const DType number = prim::position_dtype(std::max({outer, inner, index.numel()}));
  const prim::ScratchView slice(p, kInt64, Shape{n});
  const prim::Positions counted(p, kInt64, index.numel());
  p.fill({.out = slice, .value = {.i = -1}, .value_is_integer = true});
  p.scatter({slice, at_least_1d(index), counted.all(), 0, ScatterMode::set, c.name()});

  using expr::Type;
  using expr::Value;
  static auto& cache = *new expr::ProgramCache;
  const DType t = out.dtype();
  const expr::Program& program = cache.get(
      pack_key({int(t), int(number)}), {t, t, kInt64, number, number}, {Type::i64, Type::i64}, {t},
      [](std::span<const Value> v) {
        const Value at =
            (expr::cast(v[3], Type::i64) * v[5] + v[2]) * v[6] + expr::cast(v[4], Type::i64);
        return std::vector{expr::where(v[2] >= 0.0, expr::load(v[1], expr::max(at, 0.0)), v[0])};
      },
      0b10);
  prim::Positions positions(p, number, std::max(outer, inner));
  const Shape along_n{1, n, 1}, in_slice{0, 1, 0};
  prim::View slices = slice;
  slices.sizes = along_n, slices.strides = in_slice;
  const prim::View inputs[] = {view_of(self, *from), view_of(src), slices,
                               positions.along(parts, 0, 0), positions.along(parts, 2, 2)},
                   result = view_of(out, *to);
  const expr::Literal params[] = {{.i = index.numel()}, {.i = inner}};
  p.pointwise({&program, inputs, {&result, 1}, params});
  return true;
}

template <ScatterMode mode>
void slices_lower(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  const int dim = dim_argument(c);
  const Tensor& src = c.tensor(3);
  const IndexView index(p, c.tensor(2), true);
  if (mode == ScatterMode::set && copy_in_order(c, out[0], index.view(), dim, p)) return;
  start_from_self(c, out[0], p);
  if (mode == ScatterMode::add && dim == 0) {
    const auto to = as_rows(out[0].layout()), from = as_rows(src.layout());
    if (to && from) {
      p.add_rows({view_of(out[0], *to), index.view(), view_of(src, *from), c.name()});
      return;
    }
  }
  const SpreadIndex spread(index.view(), out[0].sizes(), dim);
  p.scatter({at_least_1d(view_of(out[0])), at_least_1d(spread.view()), at_least_1d(view_of(src)),
             dim, mode, c.name()});
}

Tensor slices_of_grad(const GradCall& g) {
  return index_select(g.grad(), g.integer(1), g.input(1)).reshape(g.input_sizes(2));
}

Scalar alpha_of(const Call& c) { return c.has(4) ? c.scalar(4) : Scalar(1); }

// Elements of the slices that are written.
int64_t written(const Call& c) {
  const Tensor &self = c.tensor(0), &index = c.tensor(2);
  if (self.dim() == 0) return index.numel();
  return self.numel() / std::max<int64_t>(self.size(dim_argument(c)), 1) * index.numel();
}

const OpRecord& index_add_op =
    define(
        "index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> "
        "Tensor")
        .indexed({0, true, written})
        .doc("self with alpha times slices added at given positions of a dimension.")
        .flops(
            [](const Call& c) { return double(written(c)) * (alpha_of(c) == Scalar(1) ? 1 : 2); })
        .batched(vmaps::index_rule<vmaps::add_each>)
        .infer([](const Call& c, OutputSpecs& out) {
          slices_infer(c, out);
          check_holds(out[0].dtype, alpha_of(c), c.name());
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Scalar given = alpha_of(c);
          const Scalar alpha = is_integer(out[0].dtype()) ? Scalar(given.to_int64()) : given;
          if (alpha == Scalar(1)) return slices_lower<ScatterMode::add>(c, out, p);
          const PlainCalls guard;
          const Tensor scaled = c.tensor(3).mul(alpha).to(c.tensor(3).dtype());
          const Arg args[] = {c[0], c[1], c[2], scaled};
          slices_lower<ScatterMode::add>(Call(c.op, args, c.in_place()), out, p);
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              TensorList r(3);
              r[0] = g.grad();
              if (g.needs(2)) {
                r[2] = slices_of_grad(g);
                if (g.scalar(4) != Scalar(1)) r[2] = r[2].mul(conjugate(g.scalar(4)));
              }
              return r;
            },
            0b10)
        .in_place();

const OpRecord& index_copy_op =
    define("index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor")
        .indexed({0, true, written})
        .doc("self with slices replaced at given positions of a dimension.")
        .flops(no_flops)
        .batched(vmaps::index_rule<vmaps::copy_each>)
        .infer(slices_infer)
        .lower(slices_lower<ScatterMode::set>)
        .grad(
            [](const GradCall& g) -> TensorList {
              TensorList r(3);
              if (g.needs(0)) r[0] = index_fill(g.grad(), g.integer(1), g.input(1), Scalar(0));
              if (g.needs(2)) r[2] = slices_of_grad(g);
              return r;
            },
            0b10)
        .in_place();

const OpRecord& index_fill_op =
    define("index_fill(Tensor self, int dim, Tensor index, Scalar value) -> Tensor")
        .indexed({0, true, written})
        .doc("self with slices at given positions of a dimension set to a number.")
        .flops(no_flops)
        .batched(vmaps::index_rule<vmaps::fill_each>)
        .infer([](const Call& c, OutputSpecs& out) {
          slices_infer(c, out);
          out[0].strides = strides_like(c.tensor(0));
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const int dim = dim_argument(c);
          const IndexView index(p, c.tensor(2), true);
          const SpreadIndex spread(index.view(), out[0].sizes(), dim);
          const NumberView value(p, out[0].dtype(), spread.view().sizes, c.scalar(3), c.name());
          start_from_self(c, out[0], p);
          p.scatter({at_least_1d(view_of(out[0])), at_least_1d(spread.view()),
                     at_least_1d(value.view()), dim, ScatterMode::set, c.name()});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              return {index_fill(g.grad(), g.integer(1), g.input(1), Scalar(0)), Tensor()};
            },
            0b10)
        .in_place();

}  // namespace

Tensor& index_copy_into(Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  return call_in_place(self, index_copy_op, {self, dim, index, src});
}

}  // namespace ops

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  return ops::call(ops::index_select_op, {self, dim, index});
}
Tensor Tensor::index_select(int64_t dim, const Tensor& index) const {
  return arete::index_select(*this, dim, index);
}
Tensor index_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                 Scalar alpha) {
  return ops::call(ops::index_add_op, {self, dim, index, src, alpha});
}
Tensor Tensor::index_add(int64_t dim, const Tensor& index, const Tensor& src, Scalar alpha) const {
  return arete::index_add(*this, dim, index, src, alpha);
}
Tensor& Tensor::index_add_(int64_t dim, const Tensor& index, const Tensor& src, Scalar alpha) {
  return ops::call_in_place(*this, ops::index_add_op, {*this, dim, index, src, alpha});
}
Tensor index_copy(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  return ops::call(ops::index_copy_op, {self, dim, index, src});
}
Tensor index_fill(const Tensor& self, int64_t dim, const Tensor& index, Scalar value) {
  return ops::call(ops::index_fill_op, {self, dim, index, value});
}

}  // namespace arete

ARETE_FAMILY(index_slices)
