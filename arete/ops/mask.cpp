// Masks, and the positions of elements that are not zero.
#include <algorithm>
#include <vector>

#include "arete/core/modes.h"
#include "arete/core/sync_debug.h"
#include "arete/core/tracing.h"
#include "arete/expr/program_cache.h"
#include "arete/ops/complex_form.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/index_util.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/search.h"
#include "arete/ops/shape.h"
#include "arete/ops/target.h"
#include "arete/ops/vmap.h"
#include "arete/ops/work.h"

namespace arete {
namespace ops {

namespace {

// Inputs: positions in a row-major tensor. Parameters: its sizes, the last first. Results: the
// coordinates, the last first.
const expr::Program& coordinates_program(size_t rank) {
  static auto& cache = *new expr::ProgramCache;  // used until exit
  return cache.get(rank, {kInt64}, std::vector<expr::Type>(rank, expr::Type::i64),
                   std::vector<DType>(rank, kInt64), [&](std::span<const expr::Value> v) {
                     std::vector<expr::Value> all;
                     expr::Value rest = v[0];
                     for (size_t d = 0; d + 1 < rank; ++d) {
                       const expr::Value next = expr::floor_div(rest, v[1 + d]);
                       all.push_back(rest - next * v[1 + d]);
                       rest = next;
                     }
                     all.push_back(rest);
                     return all;
                   });
}

// Column d of `out` (positions, dimensions) is where coordinates along dimension d go.
void write_coordinates(const Tensor& flat, IntList sizes, std::span<const prim::View> out) {
  if (flat.numel() == 0) return;
  SmallVector<expr::Literal, 8> params;
  SmallVector<prim::View, 8> results;
  for (size_t d = sizes.size(); d-- > 0;) {
    params.push_back({.i = std::max<int64_t>(sizes[d], 1)});
    results.push_back(out[d]);
  }
  const prim::View in = view_of(flat);
  target(flat.device())
      .pointwise({&coordinates_program(sizes.size()),
                  {&in, 1},
                  {results.data(), results.size()},
                  {params.data(), params.size()}});
}

}  // namespace

std::vector<Tensor> coordinates(const Tensor& flat, IntList sizes) {
  if (sizes.size() == 1) return {flat};
  std::vector<Tensor> all;
  std::vector<prim::View> views;
  for (size_t d = 0; d < sizes.size(); ++d) {
    all.push_back(empty_tensor({flat.numel()}, kInt64, flat.device()));
    views.push_back(view_of(all.back()));
  }
  if (!sizes.empty()) write_coordinates(flat, sizes, views);
  return all;
}

namespace {

using expr::Value;
using Values = std::span<const Value>;

PointwiseDef masked_fill_definition() {
  PointwiseDef d;
  d.n_inputs = 2;
  d.n_params = 1;
  d.definition = [](std::span<const Value> v) { return std::vector{where(v[1], v[2], v[0])}; };
  d.non_differentiable = 2;
  return d;
}

const OpRecord& masked_fill_op =
    define("masked_fill(Tensor self, Tensor mask, Scalar value) -> Tensor")
        .doc("self with a number where mask holds.")
        .pointwise(masked_fill_definition())
        .complex({[](Values v) {
                    return std::vector{where(v[2], v[3], v[0]), where(v[2], v[4], v[1])};
                  },
                  {},
                  0b01})
        .refuses([](const Call& c) {
          const DType mask = c[1].kind() == Arg::Kind::tensor ? c.tensor(1).dtype() : kBool;
          ARETE_CHECK(
              mask == kBool,
              TypeError(c.name(),
                        "masked_fill_ only supports boolean masks, but got mask with dtype " +
                            std::string(name_of(mask)))
                  .argument("mask"));
        })
        .truncates()
        .in_place();

void check_mask(const char* op, const Tensor& mask) {
  ARETE_CHECK(mask.dtype() == kBool,
              TypeError(op, std::string(op) + ": expected BoolTensor for mask")
                  .argument("mask")
                  .got(describe(mask)));
}

Tensor positions_of_true(const Tensor& mask);

// A record, since masks are index expressions, which are no operators, too: who writes calls down
// sees that the positions depend on the mask.
const OpRecord& flat_nonzero_op =
    define("flat_nonzero(Tensor self) -> Tensor")
        .doc("Row-major positions of the elements that are not zero.")
        .surface(Surface::internal)
        .for_files()
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          return {positions_of_true(is_mask(x) ? x : x.ne(Scalar(0)))};
        })
        .dtypes({kBool, kInt64, kFloat32});

// The data decide the size, so a reference is all there is to compare with.
const OpRecord& nonzero_op =
    define("nonzero(Tensor self) -> Tensor")
        .doc("Positions of the elements that are not zero.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const Tensor flat = flat_nonzero(x);
          if (x.dim() == 0) return {zeros({flat.numel(), 0}, TensorOptions(kInt64, x.device()))};
          if (x.dim() == 1) return {flat.reshape({-1, 1})};
          const Tensor all = empty_tensor({flat.numel(), x.dim()}, kInt64, x.device());
          std::vector<Layout> columns;
          std::vector<prim::View> views;
          columns.reserve(size_t(x.dim()));
          for (int64_t d = 0; d < x.dim(); ++d)
            views.push_back(view_of(all, columns.emplace_back(select(all.layout(), 1, d))));
          write_coordinates(flat, x.sizes(), views);
          return {all};
        })
        .dtypes({kBool, kInt64, kFloat32});

const OpRecord& nonzero_static_op =
    define("nonzero_static(Tensor self, *, int size, int fill_value=-1) -> Tensor")
        .doc(
            "nonzero with exactly `size` rows: further positions are dropped, missing ones are "
            "fill_value.")
        .one_by_one("it looks where the elements are")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int64_t size = c.integer(1);
          ARETE_CHECK(size >= 0,
                      ValueError(c.name(), "nonzero_static: 'size' must be an non-negative integer")
                          .argument("size")
                          .got(std::to_string(size)));
          if (x.is_meta() || x.dim() == 0 || size == 0)
            return {empty_tensor({size, x.dim()}, kInt64, x.device())};
          // Few are usually found in the first rows, long before all have been counted.
          const bool is_large = x.numel() >= int64_t{1} << 20 && size < x.numel() / 64;
          const int64_t rows =
              is_large ? std::max<int64_t>(8 * size, 1 << 16) / (x.numel() / x.size(0)) + 1 : 0;
          if (is_large && rows < x.size(0) / 8) {
            const Tensor found = nonzero(x.narrow(0, 0, rows));
            if (found.size(0) >= size) return {found.narrow(0, 0, size)};
          }
          const Tensor found = nonzero(x);
          const int64_t n = found.size(0);
          if (n >= size) return {found.narrow(0, 0, size)};
          const Tensor rest = full({size - n, x.dim()}, Scalar(c.integer(2)), found.options());
          return {cat({found, rest}, 0)};
        })
        .dtypes({kBool, kInt64, kFloat32});

const OpRecord& nonzero_numpy_op =
    define("nonzero_numpy(Tensor self) -> Tensor[]")
        .face("where.condition(Tensor condition)")
        .doc(
            "Positions of the elements that are not zero, one 1-d tensor for each dimension: "
            "nonzero(as_tuple=True) and where(condition).")
        .compose([](const Call& c) -> Results {
          const Tensor x = c.tensor(0).dim() == 0 ? c.tensor(0).reshape({1}) : c.tensor(0);
          const std::vector<Tensor> all = coordinates(flat_nonzero(x), x.sizes());
          return Results(all.begin(), all.end());
        })
        .dtypes({kBool, kInt64, kFloat32});

const OpRecord& masked_select_op =
    define("masked_select(Tensor self, Tensor mask) -> Tensor")
        .doc("The elements where mask holds.")
        .compose([](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &mask = c.tensor(1);
          check_mask(c.name(), mask);
          const Shape sizes = broadcast_shapes(x.sizes(), mask.sizes(), c.name());
          return {ordered_select(x.expand(sizes).reshape({-1}), 0, flat_nonzero(mask.expand(sizes)),
                                 true)};
        });

// Inputs: an element, whether it is replaced, how many are up to here, and what by (a table).
// Parameter: the last position of the table.
const expr::Program& replace_program(DType t, DType places) {
  static auto& cache = *new expr::ProgramCache;  // used until exit
  return cache.get(
      pack_key({int(t), int(places)}), {t, kBool, places, t}, {expr::Type::i64}, {t},
      [](Values v) {
        const Value place = cast(v[2], expr::Type::i64) - 1.0;
        const Value from = max(min(place, v[4]), expr::constant_like(place, 0));
        return std::vector{where(v[1], expr::load(v[3], from), v[0])};
      },
      0b1000);
}

const OpRecord& masked_replace_op =
    define("masked_replace(Tensor self, Tensor mask, Tensor source) -> Tensor")
        .indexed({2})
        .doc(
            "self with the elements of source (1-d, not empty), in order, where mask, of its "
            "sizes, "
            "holds. Nobody waits for their number: too few elements are found as indices out of "
            "range are.")
        .flops(no_flops)
        .surface(Surface::internal)
        .one_by_one("the elements of the source are counted through the whole mask")
        .infer([](const Call& c, OutputSpecs& out) {
          ARETE_CHECK(c.tensor(2).dim() == 1 && c.tensor(2).numel() > 0,
                      ValueError(c.name(), "expected elements in one dimension")
                          .got(describe(c.tensor(2))));
          out.push_back({Shape(c.tensor(0).sizes()), c.tensor(0).dtype(), common_device(c), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const int64_t n = out[0].numel(), size = c.tensor(2).numel();
          if (n == 0) return;
          const Tensor self = plain(c.tensor(0), out[0].dtype()), mask = plain(c.tensor(1), kBool),
                       source = plain(c.tensor(2), out[0].dtype());
          const Shape run{n}, one{1}, none{0}, limits{size + 1};
          const auto flat = [&](prim::View v) {
            v.sizes = run, v.strides = one;
            return v;
          };
          // Numbers of 32 bits take half the memory.
          const prim::ScratchView counted(p, n <= INT32_MAX ? kInt32 : kInt64, {n}),
              total(p, kInt64, {1}), found(p, out[0].dtype(), {1});
          p.copy({counted.view(), flat(view_of(mask))});
          p.scan({prim::Monoid::sum, counted.view(), counted.view(), 0});
          // An element that is there for each number that is not too large.
          prim::View last = counted.view(), all = view_of(source);
          last.data += (n - 1) * int64_t(size_of(last.dtype));
          last.sizes = one, last.strides = one;
          all.sizes = limits, all.strides = none;
          p.copy({total.view(), last});
          p.gather({all, total.view(), found.view(), 0, "masked_scatter"});
          const prim::View in[] = {flat(view_of(self)), flat(view_of(mask)), counted.view(),
                                   view_of(source)},
                           to = flat(view_of(out[0]));
          const expr::Literal params[] = {{.i = size - 1}};
          p.pointwise({&replace_program(out[0].dtype(), last.dtype), in, {&to, 1}, params});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              TensorList out(3);
              const Tensor mask = g.input(1);
              if (g.needs(0)) out[0] = masked_fill(g.grad(), mask, Scalar(0));
              if (g.needs(2)) {
                // Nobody waits for the number of elements that were used. Each looks for its place,
                // as places that added up theirs would all meet at one where the mask is sparse.
                const int64_t n = g.input_sizes(2)[0], places = g.grad().numel();
                if (places == 0) {
                  out[2] = zeros({n}, g.grad().options());
                  return out;
                }
                const Tensor numbers = arange(1, n + 1, {kInt64, mask.device()});
                const Tensor at = searchsorted(mask.reshape({-1}).cumsum(0), numbers);
                const Tensor found =
                    g.grad().reshape({-1}).gather(0, at.clamp(Scalar(0), Scalar(places - 1)));
                out[2] = masked_fill(found, at.ge(Scalar(places)), Scalar(0));
              }
              return out;
            },
            0b010);

const OpRecord& masked_scatter_op =
    define("masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor")
        .doc("self with the elements of source, in order, where mask holds.")
        .compose([](const Call& c) -> Results {
          const Tensor& source = c.tensor(2);
          check_mask(c.name(), c.tensor(1));
          check_same_dtype(c, c.tensor(0), source);
          const Shape sizes = broadcast_shapes(c.tensor(0).sizes(), c.tensor(1).sizes(), c.name());
          const Tensor x = c.tensor(0).expand(sizes);
          const bool counts = x.device().is_cpu() && !is_batched(c.tensor(1));
          if (!counts && source.numel() > 0 && (x.is_meta() || !is_complex(x.dtype())))
            return {call(masked_replace_op, {x, c.tensor(1).expand(sizes), source.reshape({-1})})};
          const Tensor flat = flat_nonzero(c.tensor(1).expand(sizes));
          ARETE_CHECK(source.numel() >= flat.numel(),
                      ValueError(c.name(),
                                 "masked_scatter: expected self and source to have same "
                                 "dtypes and source enough elements for the mask")
                          .argument("source")
                          .expected("at least " + std::to_string(flat.numel()) + " elements")
                          .got(std::to_string(source.numel())));
          const Tensor values = source.reshape({-1}).narrow(0, 0, flat.numel());
          return {index_copy(x.reshape({-1}), 0, flat, values).reshape(x.sizes())};
        })
        .in_place();

Tensor positions_of_true(const Tensor& mask) {
  ARETE_CHECK(
      !mask.is_meta(),
      DeviceError("nonzero",
                  "the number of elements depends on the data, which meta tensors do not have")
          .got(describe(mask)));
  prim::Primitives& p = target(mask.device());
  const int64_t n = mask.numel();
  // Of a large mask the number first: on a GPU it is better to wait twice than to take eight times
  // the memory, and on the CPU counting costs less than a copy of the positions.
  const int64_t large = mask.device().is_cpu() ? 1 << 12 : 1 << 20;
  if (n >= large) {
    const NoGradGuard no_grad;
    const int64_t count = count_nonzero(mask).item<int64_t>();
    const Tensor out = empty_tensor({count}, kInt64, mask.device());
    if (count > 0) p.compact({view_of(mask), view_of(out)});
    return out;
  }
  const prim::ScratchView found(p, kInt64, {n});
  const int64_t count = [&] {
    // On a GPU the host waits for the number.
    std::optional<tracing::HostScope> traced;
    note_host_wait("nonzero", mask.device());
    if (!mask.device().is_cpu())
      traced.emplace(tracing::HostEvent{tracing::HostEvent::Kind::to_host, "nonzero", mask.device(),
                                        sizeof(int64_t), true});
    return p.compact({view_of(mask), found.view()});
  }();
  const Tensor out = empty_tensor({count}, kInt64, mask.device());
  prim::View part = found.view();
  const Shape length{count};
  part.sizes = length;
  p.copy({view_of(out), part});
  return out;
}

}  // namespace

Tensor flat_nonzero(const Tensor& self) { return call(flat_nonzero_op, {self}); }

}  // namespace ops

Tensor masked_fill(const Tensor& self, const Tensor& mask, Scalar value) {
  return ops::call(ops::masked_fill_op, {self, mask, value});
}
Tensor Tensor::masked_fill(const Tensor& mask, Scalar value) const {
  return arete::masked_fill(*this, mask, value);
}
Tensor& Tensor::masked_fill_(const Tensor& mask, Scalar value) {
  return ops::call_in_place(*this, ops::masked_fill_op, {*this, mask, value});
}
Tensor masked_select(const Tensor& self, const Tensor& mask) {
  return ops::call(ops::masked_select_op, {self, mask});
}
Tensor Tensor::masked_select(const Tensor& mask) const { return arete::masked_select(*this, mask); }
Tensor masked_scatter(const Tensor& self, const Tensor& mask, const Tensor& source) {
  return ops::call(ops::masked_scatter_op, {self, mask, source});
}
Tensor nonzero(const Tensor& self) { return ops::call(ops::nonzero_op, {self}); }
Tensor Tensor::nonzero() const { return arete::nonzero(*this); }
std::vector<Tensor> nonzero_tuple(const Tensor& self) {
  const ops::Results r = ops::call_all(ops::nonzero_numpy_op, {self});
  return {r.begin(), r.end()};
}
Tensor nonzero_static(const Tensor& self, int64_t size, int64_t fill_value) {
  return ops::call(ops::nonzero_static_op, {self, size, fill_value});
}

}  // namespace arete

ARETE_FAMILY(mask)
