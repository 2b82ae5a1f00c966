// Matrix products whose operands and result go through programs.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "arete/base/error.h"
#include "arete/base/hash.h"
#include "arete/base/keyed_cache.h"
#include "arete/expr/program_cache.h"
#include "arete/prim/decompose/gemm_internal.h"
#include "arete/prim/decompose/layout_view_internal.h"
#include "arete/prim/loop_nest.h"

namespace arete::prim {
namespace {

using expr::Builder;
using expr::Value;
using Kind = FusedStage::Kind;

// Products of so few vectors with a matrix are bound by reading the matrix, which one kernel does
// once for all of them, without writing what its program makes of it.
constexpr int64_t kFewVectors = 4;

// The operand that is few vectors, and the one that is the matrix.
struct Sides {
  bool turned;  // the second operand has the vectors: its columns
  int64_t vectors;
  const View &few, &many;
  const ElementProgram &few_program, &many_program;
};

Sides sides_of(const GemmArgs& g) {
  const size_t r = g.out.sizes.size();
  const int64_t m = g.out.sizes[r - 2], n = g.out.sizes[r - 1];
  if (n < m) return {true, n, g.b, g.a, g.b_program, g.a_program};
  return {false, m, g.a, g.b, g.a_program, g.b_program};
}

bool is_fused(const GemmArgs& g) {
  const Sides s = sides_of(g);
  if (s.vectors == 0 || s.vectors > kFewVectors || !is_floating(g.a_dtype()) ||
      g.a.sizes.back() == 0)
    return false;
  // Of each vector: itself, what its program and that of the result read, what is written.
  const size_t of_each = 2 + s.few_program.inputs.size() + g.result_program.inputs.size();
  return size_t(s.vectors) * of_each + 1 + s.many_program.inputs.size() <=
         size_t(LoopNest::kMaxOperands);
}

// One operand's elements in a program under construction. `params`: those of its program.
Value operand(Builder& b, const ElementProgram& p, DType dtype, std::span<const Value> params) {
  if (!p) return b.input(dtype);
  const std::vector<Value> inputs = b.inputs_of(*p.program);
  return b.inline_program(*p.program, inputs, params)[0];
}
std::vector<Value> params_of(Builder& b, const ElementProgram& p) {
  return p ? b.params_of(*p.program) : std::vector<Value>();
}

// A row is the inner dimension: the sums of products with each vector, and what the result's
// program makes of them.
std::unique_ptr<FusedSpec> make_spec(const GemmArgs& g) {
  const Sides sides = sides_of(g);
  auto spec = std::make_unique<FusedSpec>();
  spec->n_outputs = int(sides.vectors);
  const expr::Type work = expr::work_type(g.a_dtype());
  const std::vector<DType> rows(size_t(sides.vectors), expr::work_dtype(g.a_dtype()));
  {
    Builder b;
    const std::vector<Value> of_few = params_of(b, sides.few_program),
                             of_many = params_of(b, sides.many_program);
    std::vector<Value> products;
    for (int64_t i = 0; i < sides.vectors; ++i)
      products.push_back(b.cast(operand(b, sides.few_program, sides.few.dtype, of_few), work));
    const Value matrix = b.cast(operand(b, sides.many_program, sides.many.dtype, of_many), work);
    for (Value& v : products) v = v * matrix;
    FusedStage s{Kind::reduce, b.build(products, rows), {}};
    for (size_t i = 0; i < s.program->inputs().size(); ++i) s.inputs.push_back(spec->n_inputs++);
    spec->stages.push_back(std::move(s));
  }
  Builder b;
  // The parameters of a call are shared: those of the operands' programs come first.
  params_of(b, sides.few_program);
  params_of(b, sides.many_program);
  const std::vector<Value> of_result = params_of(b, g.result_program);
  FusedStage s{Kind::store_row, nullptr, {}};
  std::vector<Value> results;
  for (int i = 0; i < int(sides.vectors); ++i) {
    Value v = b.input(rows[0]);
    s.inputs.push_back(~i);
    if (const expr::Program* program = g.result_program.program) {
      std::vector<Value> inputs{b.round_to(v, g.product_dtype())};
      for (const DType t : program->inputs().subspan(1)) {
        inputs.push_back(b.input(t));
        s.inputs.push_back(spec->n_inputs++);
      }
      v = b.inline_program(*program, inputs, of_result)[0];
    }
    results.push_back(v);
  }
  s.program = b.build(results, std::vector<DType>(results.size(), g.out.dtype));
  spec->stages.push_back(std::move(s));
  return spec;
}

const FusedSpec& spec_of(const GemmArgs& g) {
  static auto& cache = *new KeyedCache<FusedSpec, Hash128, Hash128Hasher>;  // used until exit
  const Sides sides = sides_of(g);
  std::array<Hash128, 4> key{};
  size_t next = 0;
  for (const ElementProgram* p : {&sides.few_program, &sides.many_program, &g.result_program})
    key[next++] = *p ? p->program->hash() : Hash128{};
  key[3].low =
      pack_key({int(sides.few.dtype), int(sides.many.dtype), int(g.out.dtype), int(sides.vectors)});
  return cache.get(hash_bytes(key.data(), sizeof key), [&] { return make_spec(g); });
}

// Views of the space (batch, row of the matrix, k) of a product.
class SpaceViews {
 public:
  explicit SpaceViews(size_t rank) : rank_(rank) {}
  /// `v`, of the product's rank or less. swapped: with the last two dimensions exchanged.
  void add(const View& v, bool swapped) { add(v, layout(v), swapped); }
  /// Its part for number i along dimension `dim` of the product's, with that dimension kept.
  void add_part(const View& v, size_t dim, int64_t i, bool swapped) {
    Layout l = layout(v);
    if (l.sizes[dim] != 1) l.offset += i * l.strides[dim];
    l.sizes[dim] = 1;
    add(v, std::move(l), swapped);
  }
  std::span<const View> all() const { return {views_.data(), views_.size()}; }

 private:
  Layout layout(const View& v) const {
    Layout l = layout_of(v);
    while (l.sizes.size() < rank_) {
      l.sizes.insert(l.sizes.begin(), 1);
      l.strides.insert(l.strides.begin(), 0);
    }
    return l;
  }
  void add(const View& v, Layout l, bool swapped) {
    if (swapped) {
      std::swap(l.sizes[rank_ - 1], l.sizes[rank_ - 2]);
      std::swap(l.strides[rank_ - 1], l.strides[rank_ - 2]);
    }
    layouts_.push_back(std::make_unique<LayoutView>(v, std::move(l)));
    views_.push_back(*layouts_.back());
  }

  size_t rank_;
  SmallVector<std::unique_ptr<LayoutView>, 8> layouts_;
  SmallVector<View, 8> views_;
};

void run_fused(Primitives& p, const GemmArgs& g) {
  const Sides s = sides_of(g);
  const size_t rank = g.out.sizes.size();
  // The vectors are rows of the first operand or columns of the second, and so of the result.
  const size_t vector_dim = s.turned ? rank - 1 : rank - 2;
  Shape space(g.out.sizes);
  space[rank - 2] = g.out.sizes[s.turned ? rank - 2 : rank - 1];
  space[rank - 1] = g.a.sizes.back();
  SpaceViews inputs(rank), outputs(rank);
  for (int64_t i = 0; i < s.vectors; ++i) {
    inputs.add_part(s.few, vector_dim, i, s.turned);
    for (const View& v : s.few_program.inputs) inputs.add_part(v, vector_dim, i, s.turned);
  }
  inputs.add(s.many, !s.turned);
  for (const View& v : s.many_program.inputs) inputs.add(v, !s.turned);
  for (int64_t i = 0; i < s.vectors; ++i) {
    for (const View& v : g.result_program.inputs) inputs.add_part(v, vector_dim, i, !s.turned);
    outputs.add_part(g.out, vector_dim, i, !s.turned);
  }

  SmallVector<expr::Literal, 8> params;
  std::vector<Slot> slots;
  for (const ElementProgram* e : {&s.few_program, &s.many_program, &g.result_program}) {
    for (const Slot& slot : e->slots)
      slots.push_back({slot.number + int(params.size()), slot.value});
    params.append(e->params.begin(), e->params.end());
  }
  p.fused({.spec = &spec_of(g),
           .space = space,
           .outer_rank = int(rank) - 1,
           .inputs = inputs.all(),
           .outputs = outputs.all(),
           .params = {params.data(), params.size()},
           .slots = slots});
}

// What a program makes of an operand, in memory that runs as the operand's does.
class Applied {
 public:
  Applied(Primitives& p, const View& in, const ElementProgram& e) {
    const size_t r = in.sizes.size();
    const bool swapped = std::abs(in.strides[r - 2]) < std::abs(in.strides[r - 1]);
    Shape sizes(in.sizes);
    if (swapped) std::swap(sizes[r - 1], sizes[r - 2]);
    memory_.emplace(p, e.program->outputs()[0].dtype, sizes);
    Layout l = layout_of(*memory_);
    if (swapped) {
      std::swap(l.sizes[r - 1], l.sizes[r - 2]);
      std::swap(l.strides[r - 1], l.strides[r - 2]);
    }
    view_.emplace(*memory_, std::move(l));
    SmallVector<View, 8> inputs{in};
    inputs.append(e.inputs.begin(), e.inputs.end());
    p.pointwise({.program = e.program,
                 .inputs = {inputs.data(), inputs.size()},
                 .outputs = {&view_->view(), 1},
                 .params = e.params,
                 .slots = e.slots});
  }
  const View& view() const { return *view_; }

 private:
  std::optional<ScratchView> memory_;
  std::optional<LayoutView> view_;
};

}  // namespace

bool is_finished_in_place(const GemmArgs& g) {
  return !g.a_program && !g.b_program && g.product_dtype() == g.out.dtype && !is_fused(g);
}

void gemm_with_programs(Primitives& p, const GemmArgs& g) {
  if (is_fused(g)) return run_fused(p, g);
  GemmArgs inner;
  inner.a = g.a, inner.b = g.b, inner.out = g.out;
  inner.context = g.context;
  std::optional<Applied> a, b;
  if (g.a_program) inner.a = a.emplace(p, g.a, g.a_program).view();
  if (g.b_program) inner.b = b.emplace(p, g.b, g.b_program).view();
  std::optional<ScratchView> product;
  if (g.product_dtype() != g.out.dtype)
    inner.out = product.emplace(p, g.product_dtype(), g.out.sizes);
  p.gemm(inner);
  if (g.result_program) finish_gemm(p, inner.out, g);
}

}  // namespace arete::prim
