// NumPy's names for joining and cutting along a fixed dimension, and products of sets.
#include <algorithm>

#include "arete/expr/program_cache.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/filling.h"
#include "arete/ops/index.h"
#include "arete/ops/search.h"
#include "arete/ops/shape.h"
#include "arete/ops/triangle_internal.h"
#include "arete/prim/positions.h"

namespace arete {
namespace ops {
namespace {

using List = std::vector<Tensor>;

Results results_of(const std::vector<Tensor>& v) { return Results(v.begin(), v.end()); }

// ---- at least so many dimensions

Tensor raise(const Tensor& x, int64_t rank) {
  if (x.dim() >= rank) return x;
  if (x.dim() == 0) return reshape(x, Shape(size_t(rank), 1));
  if (rank == 2) return unsqueeze(x, 0);
  return x.dim() == 2 ? unsqueeze(x, -1) : unsqueeze(unsqueeze(x, 0), -1);
}
template <int kRank>
Results atleast(const Call& c) {
  return {raise(c.tensor(0), kRank)};
}

const OpRecord& atleast_1d_op =
    define("atleast_1d(Tensor self) -> Tensor").doc("At least one dimension.").compose(atleast<1>);
const OpRecord& atleast_2d_op = define("atleast_2d(Tensor self) -> Tensor")
                                    .doc("At least two dimensions; vectors are rows.")
                                    .compose(atleast<2>);
const OpRecord& atleast_3d_op =
    define("atleast_3d(Tensor self) -> Tensor")
        .doc("At least three dimensions: vectors (1, n, 1), matrices (m, n, 1).")
        .compose(atleast<3>);

// ---- joining

void check_not_empty(const Call& c) {
  ARETE_CHECK(!c.tensors(0).empty(),
              ValueError(c.name(), std::string(c.name()) + " expects a non-empty TensorList"));
}

const OpRecord& dstack_op = define("dstack(Tensor[] tensors) -> Tensor")
                                .doc("Joins along the third dimension.")
                                .compose([](const Call& c) -> Results {
                                  check_not_empty(c);
                                  List parts;
                                  for (const Tensor& x : c.tensors(0)) parts.push_back(raise(x, 3));
                                  return {cat(parts, 2)};
                                });

const OpRecord& column_stack_op =
    define("column_stack(Tensor[] tensors) -> Tensor")
        .doc("Joins along the second dimension; vectors are columns.")
        .compose([](const Call& c) -> Results {
          check_not_empty(c);
          List parts;
          for (const Tensor& x : c.tensors(0))
            parts.push_back(x.dim() <= 1 ? reshape(x, {x.numel(), 1}) : x);
          return {cat(parts, 1)};
        });

const OpRecord& broadcast_tensors_op = define("broadcast_tensors(Tensor[] tensors) -> Tensor[]")
                                           .doc("All expanded to their common shape.")
                                           .compose([](const Call& c) -> Results {
                                             Shape sizes;
                                             for (const Tensor& x : c.tensors(0))
                                               sizes = broadcast_shapes(sizes, x.sizes(), c.name());
                                             Results out;
                                             for (const Tensor& x : c.tensors(0))
                                               out.push_back(expand(x, sizes));
                                             return out;
                                           });

// ---- cutting: hsplit, vsplit, dsplit from one table

struct Cut {
  const char* name;
  int64_t dim, least_rank;
};
constexpr Cut kCuts[] = {{"hsplit", 1, 1}, {"vsplit", 0, 2}, {"dsplit", 2, 3}};
const Cut& cut_of(const Call& c) {
  for (const Cut& cut : kCuts)
    if (std::string_view(c.name()).starts_with(cut.name)) return cut;
  ARETE_BUG("no such split");
}
int64_t cut_dim(const Call& c) { return c.tensor(0).dim() == 1 ? 0 : cut_of(c).dim; }

void check_cut(const Call& c) {
  const Cut& cut = cut_of(c);
  const Tensor& x = c.tensor(0);
  ARETE_CHECK(
      x.dim() >= cut.least_rank,
      ValueError(c.name(), "torch." + std::string(cut.name) + " requires a tensor with at least " +
                               std::to_string(cut.least_rank) + " dimension" +
                               (cut.least_rank > 1 ? "s" : "") + ", but got a tensor with " +
                               std::to_string(x.dim()) + " dimensions!"));
}

Results cut_sections(const Call& c) {
  check_cut(c);
  const Tensor& x = c.tensor(0);
  const int64_t d = cut_dim(c), n = x.size(d), sections = c.integer(1);
  ARETE_CHECK(
      sections > 0 && n % sections == 0,
      ValueError(c.name(),
                 "torch." + std::string(cut_of(c).name) + " attempted to split along dimension " +
                     std::to_string(d) + ", but the size of the dimension " + std::to_string(n) +
                     " is not divisible by the split_size " + std::to_string(sections) + "!"));
  return results_of(tensor_split(x, sections, d));
}
Results cut_indices(const Call& c) {
  check_cut(c);
  return results_of(tensor_split(c.tensor(0), c.ints(1), cut_dim(c)));
}

bool define_cuts() {
  for (const Cut& cut : kCuts) {
    const std::string name = cut.name;
    define(name + "(Tensor self, int sections) -> Tensor[]")
        .doc("Equal pieces along dimension " + std::to_string(cut.dim) +
             (cut.least_rank == 1 ? " (0 for 1-d)." : "."))
        .compose(cut_sections);
    define(name + ".array(Tensor self, int[] indices) -> Tensor[]")
        .doc(name + " with cuts before the indices.")
        .compose(cut_indices);
  }
  return true;
}
const bool defined = define_cuts();

// ---- products of sets

void check_vector(const Call& c, const Tensor& x) {
  ARETE_CHECK(x.dim() == 1,
              ValueError(c.name(), "Expect a 1D vector, but got shape " + to_string(x.sizes())));
}

const OpRecord& cartesian_prod_op =
    define("cartesian_prod(Tensor[] tensors) -> Tensor")
        .doc("All tuples of one element of each vector; one vector stays as it is.")
        .compose([](const Call& c) -> Results {
          ARETE_CHECK(!c.tensors(0).empty(),
                      ValueError(c.name(), "cartesian_prod expects a non-empty TensorList"));
          for (const Tensor& x : c.tensors(0)) check_vector(c, x);
          if (c.tensors(0).size() == 1) return {c.tensors(0)[0]};
          const List grids = meshgrid(List(c.tensors(0).begin(), c.tensors(0).end()));
          return {stack(grids, -1).reshape({-1, int64_t(grids.size())})};
        });

// The number of choices of r out of n, which are those of n + r - 1 if an element may be chosen
// again.
int64_t count_choices(int64_t n, int64_t r) {
  int64_t count = 1;
  for (int64_t k = 1; k <= r; ++k) count = count * (n - r + k) / k;
  return r > n ? 0 : count;
}

// Positions of all choices, (choices, r), in order: every choice of fewer is followed by all
// positions behind its last.
Tensor choices(int64_t n, int64_t r, bool again, Device device) {
  const TensorOptions o(kInt64, device);
  List columns{arange(Scalar(n), o)};
  for (int64_t k = 2; k <= r; ++k) {
    const Tensor first = again ? columns.back() : columns.back().add(Scalar(1));
    const RaggedRows next(first.neg().add(Scalar(n)), count_choices(again ? n + k - 1 : n, k));
    for (Tensor& column : columns) column = column.index_select(0, next.row);
    columns.push_back(next.within.add(first.index_select(0, next.row)));
  }
  return stack(columns, 1);
}

// Of n elements two have the number of an element of a triangle whose first row has so many: with
// an element again as often, the second counts one less.
int64_t pairs_width(int64_t n, bool again) { return n - 1 + int64_t(again); }

const OpRecord& choose_pairs_op =
    define("choose_pairs(Tensor self, bool again) -> Tensor")
        .surface(Surface::internal)
        .doc("combinations of two.")
        .one_by_one("the pairs are those of one list")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          const int64_t width = pairs_width(x.numel(), c.boolean(1));
          out.push_back({{std::max<int64_t>(width * (width + 1) / 2, 0), 2}, x.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          using expr::Value;
          const int64_t count = out[0].size(0);
          if (count == 0) return;
          const Tensor x = c.tensor(0).contiguous();
          const DType t = x.dtype(), number = prim::position_dtype(count);
          const bool again = c.boolean(1);
          static auto& cache = *new expr::ProgramCache;
          const expr::Program& program = cache.get(
              pack_key({int(t), int(number), again}), {t, number}, {expr::Type::i64}, {t, t},
              [&](std::span<const Value> v) {
                const TrianglePlace place(expr::cast(v[1], expr::Type::i64), v[2]);
                const Value second = place.row + place.within;
                return std::vector{expr::load(v[0], place.row),
                                   expr::load(v[0], again ? second : second + 1.0)};
              },
              0b1);
          prim::Positions numbers(p, number, count);
          const Shape sizes{count};
          const Layout first = select(out[0].layout(), 1, 0),
                       second = select(out[0].layout(), 1, 1);
          const prim::View inputs[] = {view_of(x), numbers.along(sizes, 0, 0)},
                           outputs[] = {view_of(out[0], first), view_of(out[0], second)};
          const expr::Literal width{.i = pairs_width(x.numel(), again)};
          p.pointwise({&program, inputs, outputs, {&width, 1}});
        })
        .grad([](const GradCall& g) -> TensorList {
          return {call(*find_record("choose_pairs_backward"),
                       {g.grad(), g.input_sizes(0)[0], g.boolean(1)})};
        });

// Each element is first in a row of the triangle and second in a column.
const OpRecord& choose_pairs_backward_op =
    define("choose_pairs_backward(Tensor grad, int n, bool again) -> Tensor")
        .surface(Surface::internal)
        .doc("Sums of what belongs to each of the elements that pairs were chosen of.")
        .one_by_one("the pairs are those of one list")
        .infer([](const Call& c, OutputSpecs& out) {
          out.push_back({{c.integer(1)}, c.tensor(0).dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          using expr::Value;
          const Tensor g = c.tensor(0).contiguous();
          const int64_t n = c.integer(1);
          const bool again = c.boolean(2);
          if (g.numel() == 0) return p.fill(filling(view_of(out[0]), Scalar(0), c.name()));
          const DType t = g.dtype(), sum = is_floating(t) ? expr::work_dtype(t) : kInt64,
                      number = prim::position_dtype(n);
          static auto &parts = *new expr::ProgramCache, &sums = *new expr::ProgramCache;
          prim::Positions numbers(p, number, n);
          const Shape space{n, n};
          const prim::ScratchView as_first(p, sum, Shape{n, 1}), as_second(p, sum, Shape{1, n});
          prim::View halves[] = {as_first, as_second};
          const prim::View inputs[] = {view_of(g), numbers.along(space, 0, 0),
                                       numbers.along(space, 1, 1)};
          const expr::Literal width{.i = pairs_width(n, again)};
          for (int k = 0; k < 2; ++k) {
            const expr::Program& part = parts.get(
                pack_key({int(t), int(number), again, k}), {t, number, number}, {expr::Type::i64},
                {sum},
                [&](std::span<const Value> v) {
                  const Value i = expr::cast(v[1], expr::Type::i64),
                              j = expr::cast(v[2], expr::Type::i64);
                  const Value within = again ? j - i : j - i - 1.0;
                  const Value at = expr::where(within >= 0.0, before_row(i, v[3]) + within, 0.0);
                  const Value x =
                      expr::cast(expr::load(v[0], at * 2.0 + double(k)), expr::compute_type(sum));
                  return std::vector{expr::where(within >= 0.0, x, 0.0)};
                },
                0b1);
            p.reduce({.monoid = prim::Monoid::sum,
                      .space = space,
                      .reduced = k == 0 ? 0b10u : 0b01u,
                      .inputs = inputs,
                      .out = halves[k],
                      .prologue = &part,
                      .params = {&width, 1}});
          }
          const expr::Program& both =
              sums.get(pack_key({int(t)}), {sum, sum}, {}, {t},
                       [](std::span<const Value> v) { return std::vector{v[0] + v[1]}; });
          const Shape vector{n}, one{1};
          const prim::View result = view_of(out[0]);
          for (prim::View& v : halves) v.sizes = vector, v.strides = one;
          p.pointwise({&both, halves, {&result, 1}, {}});
        })
        .grad([](const GradCall& g) -> TensorList {
          return {call(choose_pairs_op, {g.grad(), g.boolean(2)})};
        });

const OpRecord& combinations_op =
    define("combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor")
        .doc("All choices of r elements of a vector, in order of positions.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          check_vector(c, x);
          const int64_t r = c.integer(1);
          ARETE_CHECK(r >= 0, ValueError(c.name(), "Expect a non-negative number, but got " +
                                                       std::to_string(r)));
          if (r == 0) return {empty({0}, x.options())};
          if (r == 2 && !is_complex(x.dtype()) && x.dtype() != kBool)
            return {call(choose_pairs_op, {x, c.boolean(2)})};
          const Tensor at = choices(x.numel(), r, c.boolean(2), x.device());
          return {index_select(x, 0, at.reshape({-1})).reshape(at.sizes())};
        });

std::vector<Tensor> call_list(const char* name, std::initializer_list<Arg> args) {
  const Results r = call_all(*find_record(name), args);
  return {r.begin(), r.end()};
}

}  // namespace
}  // namespace ops

Tensor atleast_1d(const Tensor& self) { return ops::call(ops::atleast_1d_op, {self}); }
Tensor atleast_2d(const Tensor& self) { return ops::call(ops::atleast_2d_op, {self}); }
Tensor atleast_3d(const Tensor& self) { return ops::call(ops::atleast_3d_op, {self}); }
Tensor dstack(const std::vector<Tensor>& tensors) { return ops::call(ops::dstack_op, {tensors}); }
Tensor column_stack(const std::vector<Tensor>& tensors) {
  return ops::call(ops::column_stack_op, {tensors});
}
std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors) {
  const ops::Results r = ops::call_all(ops::broadcast_tensors_op, {tensors});
  return {r.begin(), r.end()};
}
std::vector<Tensor> hsplit(const Tensor& self, int64_t sections) {
  return ops::call_list("hsplit", {self, sections});
}
std::vector<Tensor> hsplit(const Tensor& self, IntList indices) {
  return ops::call_list("hsplit.array", {self, indices});
}
std::vector<Tensor> vsplit(const Tensor& self, int64_t sections) {
  return ops::call_list("vsplit", {self, sections});
}
std::vector<Tensor> vsplit(const Tensor& self, IntList indices) {
  return ops::call_list("vsplit.array", {self, indices});
}
std::vector<Tensor> dsplit(const Tensor& self, int64_t sections) {
  return ops::call_list("dsplit", {self, sections});
}
std::vector<Tensor> dsplit(const Tensor& self, IntList indices) {
  return ops::call_list("dsplit.array", {self, indices});
}
Tensor cartesian_prod(const std::vector<Tensor>& tensors) {
  return ops::call(ops::cartesian_prod_op, {tensors});
}
Tensor combinations(const Tensor& self, int64_t r, bool with_replacement) {
  return ops::call(ops::combinations_op, {self, r, with_replacement});
}

}  // namespace arete

ARETE_FAMILY(shape_stack)
