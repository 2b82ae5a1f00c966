// Rows of tables by index: embeddings and sums of them (declared in nn.h).
#include <algorithm>
#include <cmath>

#include "arete/base/warn.h"
#include "arete/core/modes.h"
#include "arete/expr/program_cache.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/nn.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/search.h"
#include "arete/ops/shape.h"
#include "arete/ops/sparse.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/ops/work.h"
#include "arete/prim/positions.h"

namespace arete {
namespace ops {

// ---- for batches (Note [Batching rules])

namespace vmaps {
namespace {
Results embedding_rows_rule(const Rewriting& r) {
  if (!r.is_mapped(1)) return Changed(r).run();
  const Tensor weight = r.whole(1),
               index = r.whole(0).to(kInt64).reshape({r.batch, r.call.tensor(0).numel()});
  const Tensor rows = weight.gather(1, spread_index(index, weight.sizes(), 1));
  const int64_t padding = r.call.integer(2);
  if (padding < 0 || !will_record(weight)) return {rows};
  return {where(index.eq(Scalar(padding)).unsqueeze(-1), rows.detach(), rows)};
}
Results embedding_backward_rule(const Rewriting& r) {
  const int64_t rows = r.call.integer(2), padding = r.call.integer(3);
  const int64_t count = r.call.tensor(1).numel();
  const Tensor index = r.whole(1).to(kInt64).reshape({r.batch, count}),
               g = r.whole(0).reshape({r.batch, count, r.call.tensor(0).size(-1)});
  const Tensor none = zeros({r.batch, rows, g.size(2)}, g.options());
  const Tensor made = none.scatter_add(1, spread_index(index, none.sizes(), 1), g);
  if (padding < 0) return {made};
  const Tensor row = arange(rows, TensorOptions(kInt64, made.device())).unsqueeze(-1);
  return {made.masked_fill(row.eq(Scalar(padding)), Scalar(0))};
}
}  // namespace
}  // namespace vmaps
namespace {

// ---- rows ----

// padding: -1 for none
Tensor embedding_rows(const Tensor& index, const Tensor& weight, int64_t padding,
                      bool sparse = false);
Tensor embedding_backward(const Tensor& grad, const Tensor& index, int64_t rows, int64_t padding);

void check_index(const char* op, const Tensor& index) {
  ARETE_CHECK(
      index.dtype() == kInt64 || index.dtype() == kInt32,
      TypeError(
          op,
          "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
          "Long, Int; but got " +
              std::string(name_of(index.dtype())) + " instead"));
}

const OpRecord& embedding_rows_op =
    define("embedding_rows(Tensor input, Tensor weight, int padding_idx, bool sparse) -> Tensor")
        .indexed({1})
        .doc(
            "Rows of weight at the given indices; the row padding_idx (-1: none) has no gradient. "
            "With `sparse` the gradient is a sparse tensor of the rows that were taken.")
        .flops(no_flops)
        .surface(Surface::internal)
        .batched(vmaps::embedding_rows_rule)
        .infer([](const Call& call, OutputSpecs& out) {
          const Tensor &index = call.tensor(0), &w = call.tensor(1);
          ARETE_CHECK(w.dim() == 2,
                      ValueError(call.name(), "'weight' must be 2-D").got(describe(w)));
          check_index(call.name(), index);
          Shape sizes(index.sizes());
          sizes.push_back(w.sizes()[1]);
          out.push_back({std::move(sizes), w.dtype()});
        })
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor &index = call.tensor(0), &w = call.tensor(1);
          const Tensor i = plain(index, kInt64);
          const Layout flat(IntList{i.numel()}, IntList{1}, i.storage_offset());
          Layout rows(IntList{i.numel(), w.sizes()[1]});
          rows.offset = out[0].storage_offset();
          if (out[0].numel() == 0) return;
          p.take_rows({view_of(w), view_of(i, flat), view_of(out[0], rows), "embedding"});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              TensorList out(2);
              if (!g.needs(1)) return out;
              const IntList sizes = g.input_sizes(1);
              const Tensor index = g.input(0);
              out[1] = g.boolean(3)
                           ? rows_gradient(index, g.grad().reshape({index.numel(), sizes[1]}),
                                           sizes[0], g.integer(2))
                           : embedding_backward(g.grad(), index, sizes[0], g.integer(2));
              return out;
            },
            1);

const OpRecord& embedding_backward_op =
    define(
        "embedding_backward(Tensor grad, Tensor indices, int num_weights, int padding_idx) -> "
        "Tensor")
        .doc("Adds each gradient to the row it came from; the padding row stays 0.")
        .flops([](const Call& c) { return double(c.tensor(0).numel()); })
        .surface(Surface::internal)
        .batched(vmaps::embedding_backward_rule)
        .infer([](const Call& call, OutputSpecs& out) {
          const Tensor &g = call.tensor(0), &index = call.tensor(1);
          check_index(call.name(), index);
          ARETE_CHECK(g.dim() == index.dim() + 1,
                      ValueError(call.name(), "grad must have one dimension more than indices")
                          .got(describe(g) + ", " + describe(index)));
          out.push_back({Shape{call.integer(2), g.sizes().back()}, g.dtype()});
        })
        .lower([](const Call& call, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor i = plain(call.tensor(1), kInt64);
          const Tensor g = plain(call.tensor(0), out[0].dtype());
          expr::Literal zero;
          zero.f = 0;
          p.fill({view_of(out[0]), zero});
          if (g.numel() == 0) return;
          const Layout flat(IntList{i.numel()}, IntList{1}, i.storage_offset());
          const Layout rows(IntList{i.numel(), out[0].sizes()[1]}, IntList{out[0].sizes()[1], 1},
                            g.storage_offset());
          p.add_rows({view_of(out[0]), view_of(i, flat), view_of(g, rows), "embedding"});
          const int64_t padding = call.integer(3);
          if (padding < 0) return;
          const Layout row = narrow(out[0].layout(), 0, padding, 1);
          p.fill({view_of(out[0], row), zero});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor index = g.input(1);
              Tensor h = embedding_rows(index, g.grad(), -1);
              if (g.integer(3) >= 0)
                h = where(ne(index, Scalar(g.integer(3))).unsqueeze(-1), h, Scalar(0.0));
              return {h, Tensor()};
            },
            0b10);

Tensor embedding_rows(const Tensor& index, const Tensor& weight, int64_t padding, bool sparse) {
  return call(embedding_rows_op, {index, weight, padding, sparse});
}
Tensor embedding_backward(const Tensor& grad, const Tensor& index, int64_t rows, int64_t padding) {
  return call(embedding_backward_op, {grad, index, rows, padding});
}

// ---- sums of rows ----

// Note [Routed rows]
// Entry i takes row source[i] of a table to row target[i] of a result. What is left out of either
// counts nothing: entries from row `no_source` are not added, row `no_target` stays 0 (-1: none).
// embedding_bag_sums() adds the rows up, row_dots() is its gradient in the factors, and each is
// made of the two in turn.
struct Routes {
  Tensor source, target;
  int64_t no_source = -1, no_target = -1;
  Routes reversed() const { return {target, source, no_target, no_source}; }
};

Tensor route_rows(const Tensor& src, const Routes& r, const Tensor& factors, int64_t rows);
Tensor row_dots(const Tensor& a, const Tensor& b, const Routes& r);

const OpRecord& route_rows_op =
    define(
        "embedding_bag_sums(Tensor src, Tensor source, Tensor target, Tensor? factors, int rows, "
        "int no_source, int no_target) -> Tensor")
        .indexed({0})
        .doc("Row target[i] of the result is the sum of factors[i] * src[source[i]].")
        .flops([](const Call& c) {
          return double(c.tensor(1).numel()) * double(c.tensor(0).size(1)) * (c.has(3) ? 2 : 1);
        })
        .surface(Surface::internal)
        .one_by_one("rows are places of one table")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& src = c.tensor(0);
          out.push_back({Shape{c.integer(4), src.size(1)}, src.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& src = c.tensor(0);
          const Tensor from = plain(c.tensor(1), kInt64), to = plain(c.tensor(2), kInt64);
          p.fill({.out = view_of(out[0]), .value = {.f = 0}});
          if (from.numel() == 0 || out[0].numel() == 0) return;
          const Tensor factors = c.has(3) ? plain(c.tensor(3), src.dtype()) : Tensor();
          p.add_rows({.out = view_of(out[0]),
                      .index = view_of(to),
                      .src = view_of(src),
                      .op = "embedding_bag",
                      .source = view_of(from),
                      .factors = factors.defined() ? view_of(factors) : prim::View(),
                      .left_out = c.integer(5)});
          const int64_t none = c.integer(6);
          if (none < 0) return;
          const Layout row = narrow(out[0].layout(), 0, none, 1);
          p.fill({.out = view_of(out[0], row), .value = {.f = 0}});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              TensorList out(4);
              const Routes back =
                  Routes{g.input(1), g.input(2), g.integer(5), g.integer(6)}.reversed();
              const Tensor factors = g.has_input(3) ? g.input(3) : Tensor();
              if (g.needs(0)) out[0] = route_rows(g.grad(), back, factors, g.input_sizes(0)[0]);
              if (g.has_input(3) && g.needs(3)) out[3] = row_dots(g.grad(), g.input(0), back);
              return out;
            },
            0b1111);

// Inputs: two tables, the row of each that an entry is of, and the number of an element in its row.
// Parameters: of each table its rows, then the row that is left out of it, and the width.
const expr::Program& dots_program(DType dtype) {
  using expr::Type;
  using expr::Value;
  static auto& cache = *new expr::ProgramCache;  // used until exit
  return cache.get(
      uint64_t(dtype), {dtype, dtype, kInt64, kInt64, kInt64}, std::vector<Type>(5, Type::i64),
      {expr::work_dtype(dtype)},
      [](std::span<const Value> v) {
        Value product, counts;
        for (size_t k = 0; k < 2; ++k) {
          const Value rows = v[5 + k];
          const Value row = where(v[2 + k] < 0.0, v[2 + k] + rows, v[2 + k]);
          // What is out of range was reported when it was looked up.
          const Value safe = min(max(row, expr::constant_like(row, 0)), rows - 1.0);
          const Value x = expr::load(v[k], safe * v[9] + v[4]), there = row != v[7 + k];
          product = k ? product * x : x;
          counts = k ? counts & there : there;
        }
        return std::vector{where(counts, product, 0.0)};
      },
      0b11);
}

const OpRecord& row_dots_op =
    define(
        "row_dots(Tensor a, Tensor b, Tensor rows_a, Tensor rows_b, int no_a, int no_b) -> Tensor")
        .indexed({0, 1})
        .doc(
            "Inner products of rows of two tables: number i is that of a[rows_a[i]], b[rows_b[i]].")
        .flops([](const Call& c) {
          return 2 * double(c.tensor(2).numel()) * double(c.tensor(0).size(1));
        })
        .surface(Surface::internal)
        .one_by_one("rows are places of one table")
        .infer([](const Call& c, OutputSpecs& out) {
          out.push_back({Shape{c.tensor(2).numel()}, c.tensor(0).dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const DType dtype = out[0].dtype();
          const Tensor a = plain(c.tensor(0), dtype), b = plain(c.tensor(1), dtype),
                       rows_a = plain(c.tensor(2), kInt64), rows_b = plain(c.tensor(3), kInt64);
          const int64_t n = rows_a.numel(), width = a.size(1);
          if (n == 0) return;
          if (width == 0) {
            p.fill({.out = view_of(out[0]), .value = {.f = 0}});
            return;
          }
          prim::Positions columns(p, kInt64, width);
          const Layout of_a = unsqueeze(rows_a.layout(), -1), of_b = unsqueeze(rows_b.layout(), -1),
                       of_out = unsqueeze(out[0].layout(), -1);
          const prim::View inputs[] = {view_of(a), view_of(b), view_of(rows_a, of_a),
                                       view_of(rows_b, of_b),
                                       columns.along(IntList{n, width}, 1, 1)};
          const expr::Literal params[] = {{.i = a.size(0)},
                                          {.i = b.size(0)},
                                          {.i = c.integer(4)},
                                          {.i = c.integer(5)},
                                          {.i = width}};
          p.reduce({.monoid = prim::Monoid::sum,
                    .space = Shape{n, width},
                    .reduced = 0b10,
                    .inputs = inputs,
                    .out = view_of(out[0], of_out),
                    .prologue = &dots_program(dtype),
                    .params = params});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              TensorList out(4);
              const Routes to_b{g.input(2), g.input(3), g.integer(4), g.integer(5)};
              if (g.needs(0))
                out[0] = route_rows(g.input(1), to_b.reversed(), g.grad(), g.input_sizes(0)[0]);
              if (g.needs(1)) out[1] = route_rows(g.input(0), to_b, g.grad(), g.input_sizes(1)[0]);
              return out;
            },
            0b1111);

Tensor route_rows(const Tensor& src, const Routes& r, const Tensor& factors, int64_t rows) {
  return call(route_rows_op, {src, r.source, r.target, factors, rows, r.no_source, r.no_target});
}
Tensor row_dots(const Tensor& a, const Tensor& b, const Routes& r) {
  return call(row_dots_op, {a, b, r.source, r.target, r.no_source, r.no_target});
}

// ---- what users call ----

// padding_idx counted from the start; -1 for none.
int64_t padding_row(const char* op, const Tensor& weight, std::optional<int64_t> padding) {
  if (!padding) return -1;
  const int64_t rows = weight.dim() ? weight.size(0) : 0;
  ARETE_CHECK(*padding >= -rows && *padding < rows,
              ValueError(op, "Padding_idx must be within num_embeddings")
                  .argument("padding_idx")
                  .expected("[-" + std::to_string(rows) + ", " + std::to_string(rows) + ")")
                  .got(std::to_string(*padding)));
  return *padding < 0 ? *padding + rows : *padding;
}
std::optional<int64_t> optional_int(const Call& c, size_t i) {
  return c.has(i) ? std::optional(c.integer(i)) : std::nullopt;
}

// The rows in use are scaled down, in place, where their norm is above the limit.
void limit_norms(const Tensor& index, const Tensor& weight, double max_norm, double p) {
  if (weight.is_meta() || index.numel() == 0) return;
  const NoGradGuard no_grad;
  const Tensor norms = weight.norm(p, {1}, true);
  const Tensor used = zeros_to_copy({weight.size(0)}, TensorOptions(kBool, weight.device()))
                          .scatter(0, index.to(kInt64).flatten(), Scalar(true));
  const Tensor factors = norms.add(Scalar(1e-7)).reciprocal().mul(Scalar(max_norm));
  const Tensor too_long = gt(norms, Scalar(max_norm)).logical_and(used.unsqueeze(1));
  Tensor target = weight;
  target.mul_(where(too_long, factors, Scalar(1.0)));
}

// The same rows; a row that was looked up n times gets 1 / n of its gradient.
Tensor scaled_by_frequency(const Tensor& rows, const Tensor& index, int64_t n_rows) {
  const Tensor flat = index.to(kInt64).flatten();
  const Tensor counts = bincount(flat, {}, n_rows);
  const Tensor share =
      counts.index_select(0, flat).to(rows.dtype()).reciprocal().view(index.sizes()).unsqueeze(-1);
  const Tensor fixed = rows.detach();
  return fixed.add(rows.sub(fixed).mul(share));
}

// Sparse gradients have one value for each index, whose number in all is not known to it.
void check_sparse(const Call& c, size_t sparse, size_t by_frequency) {
  ARETE_CHECK(!c.boolean(sparse) || !c.boolean(by_frequency) || !modes().grad_enabled ||
                  !c.tensor(1).requires_grad(),
              NotImplementedError(c.name(),
                                  "embedding_backward: scale_grad_by_freq not supported with "
                                  "sparse gradients"));
}

const OpRecord& embedding_op =
    define(
        "embedding(Tensor input, Tensor weight, int? padding_idx=None, float? max_norm=None, float "
        "norm_type=2.0, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor")
        .functional()
        .doc(
            "Rows of weight at the given indices. max_norm limits their norms in place; with "
            "sparse "
            "the gradient of weight is a sparse tensor of the rows that were taken.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          const Tensor &index = c.tensor(0), &weight = c.tensor(1);
          const int64_t padding = padding_row(c.name(), weight, optional_int(c, 2));
          if (c.has(3)) {
            check_index(c.name(), index);
            limit_norms(index, weight, c.real(3), c.real(4));
          }
          check_sparse(c, 6, 5);
          const Tensor rows = embedding_rows(index, weight, padding, c.boolean(6));
          if (!c.boolean(5) || index.is_meta()) return {rows};
          return {scaled_by_frequency(rows, index, weight.size(0))};
        });

// Offsets are looked at where that waits for nothing.
bool can_look(const Tensor& offsets) {
  return offsets.device().is_cpu() && !(modes().word & Modes::kCapture);
}
bool can_read(const Tensor& offsets) { return can_look(offsets) && !is_batched(offsets); }
// 1-d offsets, of int32 or int64, in memory.
class Offsets {
 public:
  explicit Offsets(const Tensor& t)
      : narrow_(t.dtype() == kInt32 ? t.data<int32_t>() : nullptr),
        wide_(narrow_ ? nullptr : t.data<int64_t>()),
        stride_(t.stride(0)) {}
  int64_t operator[](int64_t i) const {
    return narrow_ ? narrow_[i * stride_] : wide_[i * stride_];
  }

 private:
  const int32_t* narrow_;
  const int64_t* wide_;
  int64_t stride_;
};

// The bag of each of n indices: how many bags but for the first begin at or before it. There is one
// bag at least.
Tensor bags_of(const Tensor& offsets, int64_t n) {
  if (can_read(offsets)) {
    const Tensor all = empty({n}, TensorOptions(kInt64));
    const Offsets begins(offsets);
    int64_t* const to = all.data<int64_t>();
    for (int64_t i = 0, bag = 0, bags = offsets.numel(); bag < bags; ++bag) {
      const int64_t end = bag + 1 < bags ? std::min(begins[bag + 1], n) : n;
      for (; i < end; ++i) to[i] = bag;
    }
    return all;
  }
  return places_of_numbers(offsets.narrow(0, 1, offsets.numel() - 1).detach(), n);
}

// Where bags begin (a table), and the number of a bag. Parameters: bags and entries.
const expr::Program& bag_sizes_program(DType t) {
  using expr::Type;
  static auto& cache = *new expr::ProgramCache;  // used until exit
  return cache.get(
      uint64_t(t), {t, kInt64}, {Type::i64, Type::i64}, {t},
      [](std::span<const expr::Value> v) {
        const expr::Value next = v[1] + 1.0, last = v[2] - 1.0;
        const auto begin = [&](const expr::Value& i) {
          return cast(expr::load(v[0], expr::min(i, last)), Type::i64);
        };
        return std::vector{expr::where(next > last, v[3], begin(next)) - begin(v[1])};
      },
      0b1);
}

const OpRecord& bag_sizes_op =
    define("bag_sizes(Tensor begins, int entries) -> Tensor")
        .indexed({0})
        .doc("How many of the entries are in each bag, of which the last ends with them.")
        .flops(no_flops)
        .surface(Surface::internal)
        .one_by_one("the last bag ends where the entries of one element do")
        .infer([](const Call& c, OutputSpecs& out) {
          ARETE_CHECK(
              c.tensor(0).dim() == 1 && is_integer(c.tensor(0).dtype()),
              TypeError(c.name(), "expected integers of one dimension").got(describe(c.tensor(0))));
          out.push_back({c.tensor(0).sizes(), c.tensor(0).dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const int64_t bags = out[0].numel();
          if (bags == 0) return;
          const Tensor begins = plain(c.tensor(0), out[0].dtype());
          const prim::Positions numbers(p, kInt64, bags);
          const prim::View inputs[] = {view_of(begins), numbers.all()}, to = view_of(out[0]);
          const expr::Literal params[] = {{.i = bags}, {.i = c.integer(1)}};
          p.pointwise({&bag_sizes_program(begins.dtype()), inputs, {&to, 1}, params});
        });

void check_offsets(const char* op, const Tensor& offsets, int64_t n) {
  const Offsets begins(offsets);
  const int64_t first = begins[0], last = begins[offsets.numel() - 1];
  ARETE_CHECK(first == 0, ValueError(op,
                                     "offsets[0] has to be 0, i.e., the first sequence in the "
                                     "mini-batch has to start from position 0. However, got " +
                                         std::to_string(first)));
  ARETE_CHECK(last <= n, ValueError(op, "offsets[-1] can not be greater than input's length " +
                                            std::to_string(n) + " but got offsets[-1] of " +
                                            std::to_string(last)));
  for (int64_t i = 1; i < offsets.numel(); ++i)
    ARETE_CHECK(begins[i - 1] <= begins[i],
                ValueError(op, "offsets have to ascend, but offsets[" + std::to_string(i - 1) +
                                   "] is " + std::to_string(begins[i - 1]) + " and offsets[" +
                                   std::to_string(i) + "] is " + std::to_string(begins[i])));
}

void check_bags(const Call& c) {
  const Tensor &index = c.tensor(0), &weight = c.tensor(1);
  const char* op = c.name();
  check_index(op, index);
  ARETE_CHECK(weight.dim() == 2,
              ValueError(op, "weight has to be a 2D Tensor, but got Tensor of dimension " +
                                 std::to_string(weight.dim())));
  if (index.dim() == 2) {
    ARETE_CHECK(!c.has(2), ValueError(op,
                                      "if input is 2D, then offsets has to be None, as input is "
                                      "treated is a mini-batch of fixed length sequences."));
  } else {
    ARETE_CHECK(index.dim() == 1,
                ValueError(op, "input has to be 1D or 2D Tensor, but got Tensor of dimension " +
                                   std::to_string(index.dim())));
    ARETE_CHECK(c.has(2), ValueError(op, "offsets has to be a 1D Tensor but got None"));
    const DType offsets = c.tensor(2).dtype();
    ARETE_CHECK(c.tensor(2).dim() == 1 && (offsets == kInt32 || offsets == kInt64),
                ValueError(op, "offsets has to be a 1D Tensor")
                    .expected("int32 or int64")
                    .got(describe(c.tensor(2))));
    ARETE_CHECK(!c.boolean(9) || c.tensor(2).numel() > 0,
                ValueError(op, "include_last_offset: number of offset should be at least 1"));
    if (const int64_t n = c.tensor(2).numel(); n > 0 && can_look(c.tensor(2))) {
      const Tensor all = all_values(c.tensor(2)).reshape({-1, n});  // of a batch, of all elements
      for (int64_t i = 0; i < all.size(0); ++i) check_offsets(op, all.select(0, i), index.numel());
    }
  }
  const std::string_view mode = c[6].string();
  ARETE_CHECK(mode == "sum" || mode == "mean" || mode == "max",
              ValueError(op, "mode has to be one of sum, mean or max").got(std::string(mode)));
  ARETE_CHECK(mode != "max" || !c.boolean(5),
              ValueError(op, "max mode does not support scaling the gradient by the frequency"));
  ARETE_CHECK(mode != "max" || !c.boolean(7),
              ValueError(op, "max mode does not support sparse weights"));
  check_sparse(c, 7, 5);
  if (!c.has(8)) return;
  ARETE_CHECK(mode == "sum", NotImplementedError(
                                 op,
                                 "embedding_bag: per_sample_weights was not None. "
                                 "per_sample_weights is only supported for mode='sum' (got mode='" +
                                     std::string(mode) + "')."));
  ARETE_CHECK(
      c.tensor(8).layout().sizes == index.layout().sizes,
      ValueError(op, "embedding_bag: If per_sample_weights (" + to_string(c.tensor(8).sizes()) +
                         ") is not None, then it must have the same shape as the input (" +
                         to_string(index.sizes()) + ")"));
}

// What there is to know of bags besides the entries: where they begin, or that each is a row of an
// index of two dimensions.
struct Bags {
  Tensor begins;  // int64, one at least; undefined: rows
  int64_t bags, entries;
  // The bag of each entry.
  Tensor numbers(Device device) const {
    if (begins.defined()) return bags_of(begins, entries);
    const int64_t run = bags ? entries / bags : 0;
    return arange(Scalar(bags), TensorOptions(kInt64, device))
        .unsqueeze(1)
        .expand({bags, run})
        .reshape({entries});
  }
  // How many entries of each bag that count (bags, 1), or one number for all.
  Tensor counts(const Tensor& index, int64_t padding) const {
    const TensorOptions ints(kInt64, index.device());
    if (padding >= 0)
      return zeros({bags}, ints)
          .scatter_add(0, numbers(index.device()), ne(index, Scalar(padding)).to(kInt64))
          .unsqueeze(1);
    if (!begins.defined()) return full({1, 1}, Scalar(bags ? entries / bags : 0), ints);
    return call(bag_sizes_op, {begins, entries}).unsqueeze(1);
  }
  // What the entries' bags have of such numbers; `numbers`: those of the bags.
  Tensor of_entries(const Tensor& each, const Tensor& numbers) const {
    if (each.numel() == 1) return each.view({1}).expand({entries}).contiguous();
    return each.view({-1}).index_select(0, numbers);
  }
};

const OpRecord& embedding_bag_rows_op =
    define(
        "embedding_bag_rows(Tensor weight, Tensor index, Tensor? begins, Tensor? factors, int "
        "bags, int padding, bool mean, bool sparse) -> Tensor")
        .indexed({0})
        .doc(
            "Sums or means of rows of weight, times factors, over bags that begin at positions of "
            "the index, or that each have as many of them; the row `padding` (-1: none) counts "
            "nothing. With `sparse` the gradient of weight is a sparse tensor.")
        .flops([](const Call& c) {
          return double(c.tensor(1).numel()) * double(c.tensor(0).size(1)) * (c.has(3) ? 2 : 1);
        })
        .surface(Surface::internal)
        .one_by_one("bags begin at places of one list of entries")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& weight = c.tensor(0);
          out.push_back({Shape{c.integer(4), weight.size(1)}, weight.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const Tensor &weight = c.tensor(0), index = plain(c.tensor(1), kInt64);
          const Tensor begins = c.has(2) ? plain(c.tensor(2), kInt64) : Tensor();
          const Tensor factors = c.has(3) ? plain(c.tensor(3), weight.dtype()) : Tensor();
          p.add_rows({.out = view_of(out[0]),
                      .index = {},
                      .src = view_of(weight),
                      .op = "embedding_bag",
                      .source = view_of(index),
                      .factors = factors.defined() ? view_of(factors) : prim::View(),
                      .left_out = c.integer(5),
                      .begins = begins.defined() ? view_of(begins) : prim::View(),
                      .run = index.numel() / c.integer(4),
                      .what = c.boolean(6) ? prim::AddRowsArgs::Runs::mean
                                           : prim::AddRowsArgs::Runs::sum});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              TensorList out(4);
              const Tensor index = g.input(1);
              const Bags bags{g.has_input(2) ? g.input(2) : Tensor(), g.integer(4), index.numel()};
              const int64_t padding = g.integer(5);
              const Tensor numbers = bags.numbers(index.device());
              const Routes back = Routes{index, numbers, padding, -1}.reversed();
              Tensor grad = g.grad(), factors = g.has_input(3) ? g.input(3) : Tensor();
              if (g.boolean(6)) {
                const Tensor counts = bags.counts(index, padding).clamp(Scalar(1));
                // A share for each entry, where that is less memory than the gradient once more.
                // Half types round quotients, not their shares of one.
                if (!factors.defined() && index.numel() < grad.numel() &&
                    grad.dtype() == expr::work_dtype(grad.dtype()))
                  factors = bags.of_entries(counts.to(grad.dtype()).reciprocal(), numbers);
                else
                  grad = grad.div(counts);
              }
              const int64_t rows = g.input_sizes(0)[0];
              if (g.needs(0) && g.boolean(7)) {
                Tensor values = grad.index_select(0, numbers);
                if (factors.defined()) values = values.mul(factors.unsqueeze(1));
                out[0] = rows_gradient(index, values, rows, padding);
              } else if (g.needs(0)) {
                out[0] = route_rows(grad, back, factors, rows);
              }
              if (g.has_input(3) && g.needs(3)) out[3] = row_dots(grad, g.input(0), back);
              return out;
            },
            0b1111);

Results bag_maxima(const Tensor& weight, const Tensor& index, const Tensor& begins, int64_t bags,
                   int64_t padding, bool rows);

const OpRecord& embedding_bag_maxima_op =
    define(
        "embedding_bag_maxima(Tensor weight, Tensor index, Tensor? begins, int bags, int padding, "
        "bool rows) -> (Tensor, Tensor)")
        .indexed({0})
        .doc(
            "Maxima of rows of weight over bags as in embedding_bag_rows, 0 of nothing, and of "
            "which row each is (-1: of none), the first of equal ones; without `rows` an empty "
            "tensor instead.")
        .flops(
            [](const Call& c) { return double(c.tensor(1).numel()) * double(c.tensor(0).size(1)); })
        .surface(Surface::internal)
        .one_by_one("bags begin at places of one list of entries")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& weight = c.tensor(0);
          ARETE_CHECK(is_floating(weight.dtype()),
                      TypeError("embedding_bag", "maxima are of rows of floating numbers")
                          .got(describe(weight)));
          const Shape sizes{c.integer(3), weight.size(1)};
          out.push_back({sizes, weight.dtype()});
          out.push_back({c.boolean(5) ? sizes : Shape{0}, kInt64});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const Tensor &weight = c.tensor(0), index = plain(c.tensor(1), kInt64);
          const Tensor begins = c.has(2) ? plain(c.tensor(2), kInt64) : Tensor();
          p.add_rows({.out = view_of(out[0]),
                      .index = {},
                      .src = view_of(weight),
                      .op = "embedding_bag",
                      .source = view_of(index),
                      .left_out = c.integer(4),
                      .begins = begins.defined() ? view_of(begins) : prim::View(),
                      .run = index.numel() / c.integer(3),
                      .what = prim::AddRowsArgs::Runs::max,
                      .top = c.boolean(5) ? view_of(out[1]) : prim::View()});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor index = g.input(1), begins = g.has_input(2) ? g.input(2) : Tensor();
              const IntList sizes = g.input_sizes(0);
              Tensor grad = g.grad();
              const Tensor into = zeros_to_copy(sizes, grad.options());
              if (index.numel() == 0) return {into};
              const int64_t bags = g.integer(3), padding = g.integer(4);
              const Tensor rows = g.boolean(5) ? g.output(1)
                                               : bag_maxima(g.input(0).detach(), index, begins,
                                                            bags, padding, true)[1];
              // Row -1 is the last one, to which bags of nothing add nothing.
              if (begins.defined() || padding >= 0)
                grad = where(lt(rows, Scalar(0)), Scalar(0.0), grad);
              return {scatter_add(into, 0, rows, grad)};
            },
            0b111, 0b10)
        .no_grad_outputs(0b10);

Results bag_maxima(const Tensor& weight, const Tensor& index, const Tensor& begins, int64_t bags,
                   int64_t padding, bool rows) {
  return call_all(embedding_bag_maxima_op, {weight, index, begins, bags, padding, rows});
}

// Whether entries lie behind the last of offsets that say where the last bag ends, or may do so.
bool may_end_before(const Tensor& offsets, int64_t n) {
  const int64_t given = offsets.numel();
  if (!can_look(offsets)) return true;
  const Tensor ends = all_values(offsets).reshape({-1, given}).select(1, given - 1);
  return ends.ne(Scalar(n)).any().item<bool>();
}

Tensor bag_embeddings(const Call& c) {
  if (c.tensor(1).dtype() == kInt64 && c.tensor(0).is_floating_point()) {
    warn(
        "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, "
        "input, ...)` is deprecated, and should now be `embedding_bag(input, weight, ...)`.");
    std::vector<Arg> args(c.args().begin(), c.args().end());
    std::swap(args[0], args[1]);
    return bag_embeddings(Call(c.op, args));
  }
  check_bags(c);
  const Tensor& weight = c.tensor(1);
  const bool rows_are_bags = c.tensor(0).dim() == 2;
  const Tensor index = c.tensor(0).flatten();
  const int64_t n = index.numel(), width = weight.size(1);
  const int64_t padding = padding_row(c.name(), weight, optional_int(c, 10));
  const bool has_end = !rows_are_bags && c.boolean(9);
  if (has_end && c.tensor(2).numel() > 1 && may_end_before(c.tensor(2), n)) {
    // What lies behind the last bag is one more, which nobody sees.
    std::vector<Arg> args(c.args().begin(), c.args().end());
    args[9] = false;
    const Tensor all = bag_embeddings(Call(c.op, args));
    return all.narrow(0, 0, all.size(0) - 1);
  }
  const int64_t bags = rows_are_bags ? c.tensor(0).size(0) : c.tensor(2).numel() - int(has_end);
  const Bags in_bags{
      rows_are_bags || bags <= 0 ? Tensor() : c.tensor(2).narrow(0, 0, bags).to(kInt64), bags, n};
  if (c.has(3)) limit_norms(index, weight, c.real(3), c.real(4));
  const std::string_view mode = c[6].string();
  // Weights of another dtype, and complex numbers, take operators.
  const bool routed =
      !is_complex(weight.dtype()) && (!c.has(8) || c.tensor(8).dtype() == weight.dtype());
  if (mode == "max" && bags > 0)
    return bag_maxima(weight, index, in_bags.begins, bags, padding, will_record(weight))[0];
  if (mode != "max" && !c.boolean(5) && bags > 0 && routed)
    return call(embedding_bag_rows_op,
                {weight, index, in_bags.begins, c.has(8) ? c.tensor(8).flatten() : Tensor(), bags,
                 padding, mode == "mean", c.boolean(7)});
  Tensor rows = embedding_rows(index, weight, padding, c.boolean(7));
  if (c.boolean(5) && !index.is_meta()) rows = scaled_by_frequency(rows, index, weight.size(0));
  const TensorOptions o = rows.options();
  if (bags == 0) return zeros({bags, width}, o);
  const Tensor bag = in_bags.numbers(index.device());
  if (padding >= 0) rows = where(ne(index, Scalar(padding)).unsqueeze(1), rows, Scalar(0.0));
  if (c.has(8)) rows = rows.mul(c.tensor(8).flatten().unsqueeze(1));
  const Tensor sums = index_add(zeros_to_copy({bags, width}, rows.options()), 0, bag, rows);
  return mode == "sum" ? sums
                       : sums.div(in_bags.counts(index, padding).clamp(Scalar(1)).to(rows.dtype()));
}

const OpRecord& embedding_bag_op =
    define(
        "embedding_bag(Tensor input, Tensor weight, Tensor? offsets=None, float? max_norm=None, "
        "float norm_type=2.0, bool scale_grad_by_freq=False, str mode=\"mean\", bool sparse=False, "
        "Tensor? per_sample_weights=None, bool include_last_offset=False, int? padding_idx=None) "
        "-> Tensor")
        .functional()
        .doc("Sums, means or maxima of rows of weight over bags of indices.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results { return {bag_embeddings(c)}; });

}  // namespace
}  // namespace ops

Tensor embedding(const Tensor& input, const Tensor& weight, std::optional<int64_t> padding_idx) {
  return ops::embedding_rows(input, weight, ops::padding_row("embedding", weight, padding_idx));
}
Tensor embedding_bag(const Tensor& input, const Tensor& weight, const Tensor& offsets,
                     std::string_view mode, const Tensor& per_sample_weights,
                     bool include_last_offset, std::optional<int64_t> padding_idx) {
  return ops::call(ops::embedding_bag_op,
                   {input, weight, offsets, std::nullopt, 2.0, false, mode, false,
                    per_sample_weights, include_last_offset, padding_idx});
}

}  // namespace arete

ARETE_FAMILY(embedding)
