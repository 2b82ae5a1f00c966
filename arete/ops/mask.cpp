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
#include "arete/ops/shape.h"
#include "arete/ops/target.h"
#include "arete/ops/vmap.h"
#include "arete/ops/work.h"
#include "arete/prim/positions.h"

namespace arete {
namespace ops {

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

// Where the elements of a mask are that hold: row-major positions (n), or coordinates as rows (n,
// dimensions) or columns (dimensions, n) of a matrix.
enum class Form { positions, rows, columns };
Tensor places_of_true(const Tensor& mask, Form form);

Tensor mask_of(const Tensor& x) { return is_mask(x) ? x : x.ne(Scalar(0)); }

// A record, since masks are index expressions, which are no operators, too: who writes calls down
// sees that the positions depend on the mask.
const OpRecord& flat_nonzero_op =
    define("flat_nonzero(Tensor self) -> Tensor")
        .doc("Row-major positions of the elements that are not zero.")
        .surface(Surface::internal)
        .for_files()
        .compose([](const Call& c) -> Results {
          return {places_of_true(mask_of(c.tensor(0)), Form::positions)};
        })
        .dtypes({kBool, kInt64, kFloat32});

// The data decide the size, so a reference is all there is to compare with.
const OpRecord& nonzero_op =
    define("nonzero(Tensor self) -> Tensor")
        .doc("Positions of the elements that are not zero.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          if (x.dim() == 0)
            return {zeros({flat_nonzero(x).numel(), 0}, TensorOptions(kInt64, x.device()))};
          if (x.dim() == 1) return {flat_nonzero(x).reshape({-1, 1})};
          return {places_of_true(mask_of(x), Form::rows)};
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
          if (x.dim() == 1) return {flat_nonzero(x)};
          const Tensor all = places_of_true(mask_of(x), Form::columns);
          Results r;
          for (int64_t d = 0; d < x.dim(); ++d) r.push_back(all.select(0, d));
          return r;
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

// How many elements of a flat mask hold up to each one, that one included. Numbers of 32 bits take
// half the memory.
class Counts {
 public:
  Counts(prim::Primitives& p, const prim::View& mask, int64_t n)
      : all_(p, n <= INT32_MAX ? kInt32 : kInt64, {n}), last_(all_.view()) {
    p.copy({all_, mask});
    p.scan({prim::Monoid::sum, all_, all_, 0});
    last_.data += (n - 1) * int64_t(size_of(last_.dtype));
    last_.sizes = one_, last_.strides = one_;
  }
  Counts(const Counts&) = delete;
  const prim::View& all() const { return all_.view(); }
  /// Of the last element: how many there are.
  const prim::View& last() const { return last_; }

 private:
  prim::ScratchView all_;
  Shape one_{1};
  prim::View last_;
};

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

Tensor masked_pack(const Tensor& self, const Tensor& mask, int64_t size);

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
          out.push_back({Shape(c.tensor(0).sizes()), c.tensor(0).dtype()});
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
          const Counts counts(p, flat(view_of(mask)), n);
          const prim::ScratchView total(p, kInt64, {1}), found(p, out[0].dtype(), {1});
          // An element that is there for each number that is not too large.
          prim::View all = view_of(source);
          all.sizes = limits, all.strides = none;
          p.copy({total.view(), counts.last()});
          p.gather({all, total.view(), found.view(), 0, "masked_scatter"});
          const prim::View in[] = {flat(view_of(self)), flat(view_of(mask)), counts.all(),
                                   view_of(source)},
                           to = flat(view_of(out[0]));
          const expr::Literal params[] = {{.i = size - 1}};
          p.pointwise({&replace_program(out[0].dtype(), counts.all().dtype), in, {&to, 1}, params});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              TensorList out(3);
              const Tensor mask = g.input(1);
              if (g.needs(0)) out[0] = masked_fill(g.grad(), mask, Scalar(0));
              if (g.needs(2)) out[2] = masked_pack(g.grad(), mask, g.input_sizes(2)[0]);
              return out;
            },
            0b010);

// Inputs: does an element hold, how many do up to it, and its number. Parameter: the last number.
// Result: a place of its own, from the first on for those that hold, from the last on for others.
const expr::Program& pack_program(DType t) {
  static auto& cache = *new expr::ProgramCache;  // used until exit
  return cache.get(uint64_t(t), {kBool, t, t}, {expr::Type::i64}, {kInt64}, [](Values v) {
    const Value count = cast(v[1], expr::Type::i64), number = cast(v[2], expr::Type::i64);
    return std::vector{where(v[0], count - 1.0, v[3] - number + count)};
  });
}

// Inputs: an element of those packed, its number, and how many there are.
const expr::Program& packed_program(DType t, DType numbers) {
  static auto& cache = *new expr::ProgramCache;  // used until exit
  return cache.get(pack_key({int(t), int(numbers)}), {t, numbers, numbers}, {}, {t}, [](Values v) {
    return std::vector{where(v[1] < v[2], v[0], expr::constant_like(v[0], 0))};
  });
}

const OpRecord& masked_pack_op =
    define("masked_pack(Tensor self, Tensor mask, int size) -> Tensor")
        .doc(
            "The elements of self where mask, of its sizes, holds, in order; behind them, up to "
            "`size`, zeros. Nobody waits for their number, which is not more than that.")
        .flops(no_flops)
        .surface(Surface::internal)
        .one_by_one("elements are counted through the whole mask")
        .infer([](const Call& c, OutputSpecs& out) {
          out.push_back({Shape{c.integer(2)}, c.tensor(0).dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const int64_t n = c.tensor(0).numel(), size = out[0].numel(), both = std::min(n, size);
          const auto part = [&](int64_t first, int64_t count) {
            return narrow(out[0].layout(), 0, first, count);
          };
          if (both < size) {
            const Layout behind = part(both, size - both);
            p.fill({.out = view_of(out[0], behind), .value = {.f = 0}});
          }
          if (both == 0) return;
          const Tensor self = plain(c.tensor(0), out[0].dtype()), mask = plain(c.tensor(1), kBool);
          const Shape run{n}, some{both}, one{1};
          const auto flat = [&](prim::View v, const Shape& sizes) {
            v.sizes = sizes, v.strides = one;
            return v;
          };
          const Counts counts(p, flat(view_of(mask), run), n);
          const DType t = counts.all().dtype;
          const prim::Positions numbers(p, t, n);
          const prim::ScratchView places(p, kInt64, run), packed(p, out[0].dtype(), run);
          const prim::View of_places[] = {flat(view_of(mask), run), counts.all(), numbers.all()};
          const expr::Literal last[] = {{.i = n - 1}};
          p.pointwise({&pack_program(t), of_places, {&places.view(), 1}, last});
          prim::ScatterArgs scatter{packed, places, flat(view_of(self), run), 0,
                                    prim::ScatterMode::set};
          scatter.context.deterministic = false;  // each has a place of its own
          p.scatter(scatter);
          const prim::View of_result[] = {flat(packed, some), flat(numbers.all(), some),
                                          counts.last()};
          const Layout front = part(0, both);
          const prim::View to = view_of(out[0], front);
          p.pointwise({&packed_program(out[0].dtype(), t), of_result, {&to, 1}, {}});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              TensorList out(2);
              if (!g.needs(0)) return out;
              const Tensor none = zeros(g.input_sizes(0), g.grad().options());
              out[0] = none.numel() == 0 || g.grad().numel() == 0
                           ? none
                           : call(masked_replace_op, {none, g.input(1), g.grad()});
              return out;
            },
            0b10);

Tensor masked_pack(const Tensor& self, const Tensor& mask, int64_t size) {
  return call(masked_pack_op, {self, mask, size});
}

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

Tensor places_of_true(const Tensor& mask, Form form) {
  ARETE_CHECK(
      !mask.is_meta(),
      DeviceError("nonzero",
                  "the number of elements depends on the data, which meta tensors do not have")
          .got(describe(mask)));
  prim::Primitives& p = target(mask.device());
  const int64_t n = mask.numel(), rank = mask.dim();
  const auto made = [&](int64_t count) {
    const Shape sizes = form == Form::positions ? Shape{count}
                        : form == Form::rows    ? Shape{count, rank}
                                                : Shape{rank, count};
    return empty_tensor(sizes, kInt64, mask.device());
  };
  // As the primitive sees it: the elements last.
  const auto elements_last = [&](const Tensor& t) {
    return form == Form::rows ? transpose(t.layout(), 0, 1) : t.layout();
  };
  // Of a large mask the number first: on a GPU it is better to wait than to take eight times the
  // memory, and on the CPU counting costs less than a copy of the positions.
  const int64_t large = mask.device().is_cpu() ? 1 << 12 : 1 << 20;
  if (n >= large) {
    const NoGradGuard no_grad;
    const int64_t count = count_nonzero(mask).item<int64_t>();
    const Tensor out = made(count);
    const Layout layout = elements_last(out);
    if (count > 0) p.compact({view_of(mask), view_of(out, layout)});
    return out;
  }
  const prim::ScratchView found(p, kInt64, form == Form::positions ? Shape{n} : Shape{rank, n});
  const int64_t count = [&] {
    // On a GPU the host waits for the number.
    std::optional<tracing::HostScope> traced;
    note_host_wait("nonzero", mask.device());
    if (!mask.device().is_cpu())
      traced.emplace(tracing::HostEvent{tracing::HostEvent::Kind::to_host, "nonzero", mask.device(),
                                        sizeof(int64_t), true});
    return p.compact({view_of(mask), found.view()});
  }();
  const Tensor out = made(count);
  const Layout layout = elements_last(out);
  prim::View part = found.view();
  part.sizes = layout.sizes;
  p.copy({view_of(out, layout), part});
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
