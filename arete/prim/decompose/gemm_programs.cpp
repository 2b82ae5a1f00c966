// Matrix products whose operands and result go through programs.
#include <algorithm>
#include <optional>

#include "arete/base/error.h"
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

// Products of so few vectors with a matrix are bound by reading the matrix: as many times as there
// are vectors, but without writing what its program makes of it.
constexpr int64_t kFewVectors = 4;

bool has_few_vectors(const GemmArgs& g) {
  const size_t r = g.out.sizes.size();
  return std::min(g.out.sizes[r - 2], g.out.sizes[r - 1]) <= kFewVectors;
}

size_t number_of_inputs(const GemmArgs& g) {
  return 2 + g.a_program.inputs.size() + g.b_program.inputs.size() + g.result_program.inputs.size();
}

bool is_fused(const GemmArgs& g) {
  return has_few_vectors(g) && is_floating(g.a_dtype()) && g.a.sizes.back() > 0 &&
         g.out.rank() < kMaxRank && number_of_inputs(g) + 1 <= size_t(LoopNest::kMaxOperands);
}

// One operand's elements in a program under construction.
Value operand(Builder& b, const ElementProgram& p, DType dtype) {
  if (!p) return b.input(dtype);
  const std::vector<Value> inputs = b.inputs_of(*p.program);
  return b.inline_program(*p.program, inputs, b.params_of(*p.program))[0];
}

// A row is the inner dimension: the sum of products, and what the result's program makes of it.
std::unique_ptr<FusedSpec> make_spec(const GemmArgs& g) {
  auto spec = std::make_unique<FusedSpec>();
  spec->n_inputs = int(number_of_inputs(g));
  spec->n_outputs = 1;
  const DType row = expr::work_dtype(g.a_dtype());
  const expr::Type work = expr::work_type(g.a_dtype());
  int next = 0;
  {
    Builder b;
    FusedStage s{Kind::reduce, nullptr, {}};
    const Value left = operand(b, g.a_program, g.a.dtype),
                right = operand(b, g.b_program, g.b.dtype);
    const Value product = b.cast(left, work) * b.cast(right, work);
    s.program = b.build({&product, 1}, {&row, 1});
    while (next < int(s.program->inputs().size())) s.inputs.push_back(next++);
    spec->stages.push_back(std::move(s));
  }
  Builder b;
  // The parameters of a call are shared: those of the operands' programs come first.
  for (const ElementProgram* p : {&g.a_program, &g.b_program})
    if (*p) b.params_of(*p->program);
  FusedStage s{Kind::store_row, nullptr, {~0}};
  Value result = b.input(row);
  if (const expr::Program* program = g.result_program.program) {
    std::vector<Value> inputs{b.round_to(result, g.product_dtype())};
    for (const DType t : program->inputs().subspan(1)) {
      inputs.push_back(b.input(t));
      s.inputs.push_back(next++);
    }
    result = b.inline_program(*program, inputs, b.params_of(*program))[0];
  }
  s.program = b.build({&result, 1}, {&g.out.dtype, 1});
  spec->stages.push_back(std::move(s));
  return spec;
}

const FusedSpec& spec_of(const GemmArgs& g) {
  static auto& cache = *new KeyedCache<FusedSpec, Hash128, Hash128Hasher>;  // used until exit
  std::array<Hash128, 4> key{};
  size_t next = 0;
  for (const ElementProgram* p : {&g.a_program, &g.b_program, &g.result_program})
    key[next++] = *p ? p->program->hash() : Hash128{};
  key[3].low = pack_key({int(g.a.dtype), int(g.b.dtype), int(g.out.dtype)});
  return cache.get(hash_bytes(key.data(), sizeof key), [&] { return make_spec(g); });
}

// Views of the space (batch, row, column, k) of a product.
class SpaceViews {
 public:
  explicit SpaceViews(size_t rank) : rank_(rank) {}
  // `v`, of the product's rank or less, with another dimension at `place`, counted from the end.
  // swapped: the last two dimensions change places before.
  void add(const View& v, size_t place, bool swapped = false) {
    Layout l = layout_of(v);
    while (l.sizes.size() < rank_) {
      l.sizes.insert(l.sizes.begin(), 1);
      l.strides.insert(l.strides.begin(), 0);
    }
    if (swapped) {
      std::swap(l.sizes[rank_ - 1], l.sizes[rank_ - 2]);
      std::swap(l.strides[rank_ - 1], l.strides[rank_ - 2]);
    }
    l.sizes.insert(l.sizes.end() - ptrdiff_t(place), 1);
    l.strides.insert(l.strides.end() - ptrdiff_t(place), 0);
    layouts_.push_back(std::make_unique<LayoutView>(v, std::move(l)));
    views_.push_back(*layouts_.back());
  }
  std::span<const View> all() const { return {views_.data(), views_.size()}; }

 private:
  size_t rank_;
  SmallVector<std::unique_ptr<LayoutView>, 8> layouts_;
  SmallVector<View, 8> views_;
};

void run_fused(Primitives& p, const GemmArgs& g) {
  const size_t rank = g.out.sizes.size();
  Shape space(g.out.sizes);
  space.push_back(g.a.sizes.back());
  SpaceViews inputs(rank), outputs(rank);
  inputs.add(g.a, 1);
  for (const View& v : g.a_program.inputs) inputs.add(v, 1);
  inputs.add(g.b, 2, true);
  for (const View& v : g.b_program.inputs) inputs.add(v, 2, true);
  for (const View& v : g.result_program.inputs) inputs.add(v, 0);
  outputs.add(g.out, 0);

  SmallVector<expr::Literal, 8> params;
  std::vector<Slot> slots;
  for (const ElementProgram* e : {&g.a_program, &g.b_program, &g.result_program}) {
    for (const Slot& s : e->slots) slots.push_back({s.number + int(params.size()), s.value});
    params.append(e->params.begin(), e->params.end());
  }
  p.fused({.spec = &spec_of(g),
           .space = space,
           .outer_rank = int(rank),
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
