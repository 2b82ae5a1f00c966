#include <algorithm>

#include "arete/base/error.h"
#include "arete/compile/fuse_internal.h"
#include "arete/expr/value.h"
#include "arete/prim/loop_nest.h"

namespace arete::compile {
namespace {

using expr::Builder;
using expr::ProgramPtr;
using expr::Value;
using prim::Access;
using prim::Primitive;
using prim::View;

// More instructions in one program do not fit the registers and caches that it runs in.
constexpr size_t kMostInstructions = 256;
// Which parameters are in memory is a word of bits.
constexpr size_t kMostParams = 64;

/// `from` as an operand of `sizes`, to which it broadcasts.
Place place_of(const View& from, IntList sizes, Access access, Buffers& buffers) {
  Place place{from.data, from.dtype, Layout(from.sizes, from.strides), from.storage, {}};
  if (!sizes.empty() || !from.sizes.empty()) place.layout = expand(place.layout, sizes);
  std::vector<Use> uses;
  buffers.add_use(uses, from, access);
  place.use = uses.empty() ? Use{-1, 0, 0, access} : uses[0];
  return place;
}

std::vector<Place> inputs_of(std::span<const View> views, uint32_t tables, IntList space,
                             Buffers& buffers) {
  std::vector<Place> places;
  for (size_t i = 0; i < views.size(); ++i) {
    const bool is_table = tables >> i & 1;
    places.push_back(place_of(views[i], is_table ? views[i].sizes : space, Access::read, buffers));
    places.back().is_table = is_table;
  }
  return places;
}

ProgramPtr conversion(DType from, DType to) {
  Builder b;
  const Value value = b.input(from);
  return b.build({&value, 1}, {&to, 1});
}

std::optional<ElementCall> element_call(const prim::PointwiseArgs& a, Buffers& buffers) {
  if (a.outputs[0].numel() == 0) return std::nullopt;
  ElementCall e{.program = a.program->shared_from_this(),
                .params = a.params,
                .slots = a.slots,
                .space = Shape(a.outputs[0].sizes),
                .context = a.context};
  e.inputs = inputs_of(a.inputs, a.program->tables(), e.space, buffers);
  for (const View& v : a.outputs) e.outputs.push_back(place_of(v, e.space, Access::write, buffers));
  return e;
}

std::optional<ElementCall> element_call(const prim::CopyArgs& a, Buffers& buffers) {
  if (a.out.numel() == 0 || is_complex(a.in.dtype) || is_complex(a.out.dtype)) return std::nullopt;
  ElementCall e{.program = conversion(a.in.dtype, a.out.dtype),
                .space = Shape(a.out.sizes),
                .context = a.context};
  e.inputs.push_back(place_of(a.in, e.space, Access::read, buffers));
  e.outputs.push_back(place_of(a.out, e.space, Access::write, buffers));
  return e;
}

std::optional<ElementCall> element_call(const prim::FillArgs& a, Buffers& buffers) {
  // Only numbers that a program has in the same form. It takes them as a parameter: a constant
  // would be worked with here already, and not by the functions that work with elements.
  const bool same = a.value_is_integer ? a.out.dtype == kInt64
                                       : a.out.dtype == kFloat32 || a.out.dtype == kFloat64;
  if (a.out.numel() == 0 || !same) return std::nullopt;
  Builder b;
  const Value value = b.param(expr::compute_type(a.out.dtype));
  ElementCall e{.program = b.build({&value, 1}, {&a.out.dtype, 1}),
                .params = {&a.value, 1},
                .space = Shape(a.out.sizes),
                .context = a.context};
  e.outputs.push_back(place_of(a.out, e.space, Access::write, buffers));
  return e;
}

std::optional<ElementCall> element_call(const prim::ReduceArgs& a, Buffers& buffers) {
  ElementCall e{.params = a.params,
                .slots = a.slots,
                .space = Shape(a.space),
                .context = a.context,
                .reduce = &a};
  if (numel_of(e.space) == 0 || is_complex(a.inputs[0].dtype)) return std::nullopt;
  e.program = a.prologue ? a.prologue->shared_from_this()
                         : conversion(a.inputs[0].dtype, a.inputs[0].dtype);
  e.inputs = inputs_of(a.inputs, e.program->tables(), e.space, buffers);
  buffers.add_use(e.results, a.out, Access::write);
  return e;
}

std::optional<ElementCall> any_element_call(const prim::RecordedCall& call, Buffers& buffers) {
  switch (call.primitive()) {
    case Primitive::pointwise:
      return element_call(*static_cast<const prim::PointwiseArgs*>(call.args()), buffers);
    case Primitive::fill:
      return element_call(*static_cast<const prim::FillArgs*>(call.args()), buffers);
    case Primitive::copy:
      return element_call(*static_cast<const prim::CopyArgs*>(call.args()), buffers);
    case Primitive::reduce:
      return element_call(*static_cast<const prim::ReduceArgs*>(call.args()), buffers);
    default:
      return std::nullopt;
  }
}

/// The call as one of element by element, if it is one.
std::optional<ElementCall> element_call(const prim::RecordedCall& call, Buffers& buffers) {
  std::optional<ElementCall> e = any_element_call(call, buffers);
  if (!e) return std::nullopt;
  const auto add_numbers = [&](std::span<const prim::Slot> slots) {
    for (const prim::Slot& s : slots) buffers.add_use(e->numbers, s.value, Access::read);
  };
  add_numbers(e->slots);
  if (e->reduce) add_numbers(e->reduce->epilogue_slots);
  return e;
}

/// Whether the call may be an error because of values: it stays, even if nobody reads its results.
bool may_refuse(Primitive p) {
  switch (p) {
    case Primitive::gather:
    case Primitive::scatter:
    case Primitive::compact:
    case Primitive::take_rows:
    case Primitive::add_rows:
    case Primitive::linalg:
      return true;
    default:
      return false;
  }
}

/// Sums of floats are rounded in an order, and of zeros and NaN the first or the last wins.
bool depends_on_order(const ElementCall& e) { return is_floating(e.program->outputs()[0].dtype); }

/// All of them, call by call, what a call reads before what it writes.
std::vector<const Place*> operands_of(const std::vector<ElementCall>& calls) {
  std::vector<const Place*> all;
  for (const ElementCall& e : calls)
    for (const auto* list : {&e.inputs, &e.outputs})
      for (const Place& p : *list) all.push_back(&p);
  return all;
}

/// The calls over a space of other sizes, if all their views can be seen so.
bool see_as(const std::vector<ElementCall>& calls, IntList sizes, std::vector<ElementCall>& seen) {
  seen.clear();
  for (const ElementCall& e : calls) {
    if (e.reduce || numel_of(e.space) != numel_of(sizes)) return seen.clear(), false;
    ElementCall& copy = seen.emplace_back(e);
    copy.space = Shape(sizes);
    for (std::vector<Place>* places : {&copy.inputs, &copy.outputs})
      for (Place& p : *places) {
        if (p.is_table) continue;
        std::optional<Layout> layout = arete::view(p.layout, sizes);
        if (!layout) return seen.clear(), false;
        p.layout = *std::move(layout);
      }
  }
  return true;
}

bool same_context(const prim::Context& a, const prim::Context& b) {
  return a.stream == b.stream && a.deterministic == b.deterministic &&
         a.library_deterministic == b.library_deterministic && a.precision == b.precision &&
         a.convolution_tf32 == b.convolution_tf32;
}

}  // namespace

bool Place::operator==(const Place& o) const {
  if (data != o.data || dtype != o.dtype || is_table != o.is_table ||
      layout.sizes != o.layout.sizes)
    return false;
  for (int d = 0; d < layout.rank(); ++d)
    if (layout.sizes[size_t(d)] != 1 && layout.strides[size_t(d)] != o.layout.strides[size_t(d)])
      return false;
  return true;
}

Group::Group(std::unique_ptr<prim::RecordedCall> call, Buffers& buffers, const PlanOptions& options)
    : exact_(options.exact) {
  call->for_each_operand([&](View& view, Access access) { buffers.add_use(uses_, view, access); });
  for (const Use& u : uses_)
    if (u.access != Access::write && readers(u.buffer) == 0) read_.push_back(u.buffer);
  if (auto e = element_call(*call, buffers)) elements_.push_back(*std::move(e));
  calls_.push_back(std::move(call));
}

// Of GPUs errors are found later in any case.
bool Group::may_refuse() const {
  return call().device().is_cpu() && compile::may_refuse(call().primitive());
}

bool Group::take(Group& next, const std::function<bool(const Use&)>& is_read_elsewhere) {
  if (elements_.empty() || next.elements_.empty() || elements_.back().reduce ||
      call().device() != next.call().device() ||
      !same_context(elements_[0].context, next.elements_[0].context))
    return false;
  // Of another shape, the one or the other is seen in the other's.
  std::vector<ElementCall> seen_mine, seen_its;
  if (const Shape& my = elements_[0].space, &its = next.elements_[0].space; my != its)
    if (!see_as(next.elements_, my, seen_its) && !see_as(elements_, its, seen_mine)) return false;
  std::vector<ElementCall>& first = seen_mine.empty() ? elements_ : seen_mine;
  std::vector<ElementCall>& second = seen_its.empty() ? next.elements_ : seen_its;

  // What one element's calls do must not matter to another's: memory that both use is used at the
  // same positions.
  const std::vector<const Place*> mine = operands_of(first), its = operands_of(second);
  bool connected = false;
  for (const Place* q : mine)
    for (const Place* p : its) {
      const bool same = *p == *q;
      if (collide(p->use, q->use) && (!same || p->is_table)) return false;
      connected |= same && p->use.buffer >= 0;
    }
  if (!connected) return false;
  if (second.back().reduce) {
    // A kernel that reduces stores nothing else, and its result lies in no operand. The order in
    // which it reduces depends on what memory and which program the elements come from.
    if (exact_ && depends_on_order(second.back())) return false;
    for (const Use& u : second.back().results)
      if (std::ranges::any_of(uses_, [&](const Use& v) { return collide(u, v); })) return false;
    for (const Place* q : mine)
      if (q->use.access != Access::read && is_read_elsewhere(q->use)) return false;
  }
  size_t instructions = 0, params = 0;
  for (const auto* list : {&first, &second})
    for (const ElementCall& e : *list) {
      instructions += e.program->code().size();
      params += e.program->params().size();
      // Parameters are read before anything is written.
      const std::vector<const Place*>& others = list == &first ? its : mine;
      for (const Use& u : e.numbers)
        if (std::ranges::any_of(others, [&](const Place* p) { return collide(u, p->use); }))
          return false;
    }
  if (instructions > kMostInstructions || params > kMostParams) return false;
  // The operands that the kernel would have: what is made and used in it is none.
  std::vector<const Place*> operands, made;
  const auto has = [](const std::vector<const Place*>& list, const Place* p) {
    return std::ranges::any_of(list, [p](const Place* q) { return *q == *p; });
  };
  for (const auto* list : {&mine, &its})
    for (const Place* p : *list) {
      const bool writes = p->use.access != Access::read;
      if ((writes ? is_read_elsewhere(p->use) : !has(made, p)) && !has(operands, p))
        operands.push_back(p);
      if (writes) made.push_back(p);
    }
  if (operands.size() + 1 > prim::LoopNest::kMaxOperands) return false;
  // Reductions read something.
  if (second.back().reduce && operands.empty()) return false;

  if (!seen_mine.empty()) elements_ = std::move(seen_mine);
  std::ranges::move(second, std::back_inserter(elements_));
  std::ranges::move(next.calls_, std::back_inserter(calls_));
  uses_.insert(uses_.end(), next.uses_.begin(), next.uses_.end());
  read_.insert(read_.end(), next.read_.begin(), next.read_.end());
  return true;
}

namespace {

// Several element calls as one program, and what it is called with.
struct Joined {
  ProgramPtr program;
  std::vector<const Place*> inputs, outputs;
  std::vector<expr::Literal> params;
  std::vector<prim::Slot> slots;
};

/// Of the inputs only those with `is_used` are read (empty: all).
Joined join(const std::vector<ElementCall>& calls, const std::function<bool(const Use&)>& is_needed,
            const std::vector<bool>& is_used, bool exact) {
  using Known = std::pair<const Place*, Value>;
  const auto find = [](std::vector<Known>& list, const Place& place) {
    return std::ranges::find_if(list, [&](const Known& k) { return *k.first == place; });
  };
  Joined joined;
  Builder b;
  std::vector<Known> read, stored;
  const auto value_at = [&](const Place& place) {
    if (const auto known = find(stored, place); known != stored.end()) return known->second;
    if (const auto known = find(read, place); known != read.end()) return known->second;
    const bool used = is_used.empty() || is_used[read.size()] || place.is_table;
    const Value value = !used            ? b.constant(expr::compute_type(place.dtype), 0)
                        : place.is_table ? b.table(place.dtype)
                                         : b.input(place.dtype);
    if (used) joined.inputs.push_back(&place);
    read.push_back({&place, value});
    return value;
  };
  std::optional<Value> reduced;
  for (const ElementCall& e : calls) {
    std::vector<Value> inputs;
    for (const Place& p : e.inputs) inputs.push_back(value_at(p));
    const std::vector<Value> params = b.params_of(*e.program);
    for (const prim::Slot& s : e.slots)
      joined.slots.push_back({s.number + int(joined.params.size()), s.value});
    joined.params.insert(joined.params.end(), e.params.begin(),
                         e.params.begin() + std::ptrdiff_t(params.size()));
    if (e.reduce) {
      // Reductions take a value before it is rounded.
      reduced = b.inline_code(*e.program, inputs, params)[size_t(e.program->outputs()[0].value)];
      continue;
    }
    const std::vector<Value> code = b.inline_code(*e.program, inputs, params);
    for (size_t k = 0; k < e.outputs.size(); ++k) {
      const expr::Program::Output& out = e.program->outputs()[k];
      // A float that nobody stored on the way is not rounded unless that is asked for.
      Value value = code[size_t(out.value)];
      if (exact)
        value = b.stored(value, out.dtype);
      else if (is_floating(out.dtype))
        value = b.cast(value, expr::compute_type(out.dtype));
      else
        value = b.round_to(value, out.dtype);
      if (const auto known = find(stored, e.outputs[k]); known != stored.end())
        known->second = value;
      else
        stored.push_back({&e.outputs[k], value});
    }
  }
  std::vector<Value> values;
  std::vector<DType> dtypes;
  if (reduced) {
    values.push_back(*reduced);
    dtypes.push_back(calls.back().program->outputs()[0].dtype);
  } else {
    for (const auto& [place, value] : stored) {
      if (!is_needed(place->use)) continue;
      joined.outputs.push_back(place);
      values.push_back(value);
      dtypes.push_back(place->dtype);
    }
  }
  joined.program = b.build(values, dtypes);
  return joined;
}

std::vector<bool> used_inputs(const expr::Program& program) {
  std::vector<bool> used(program.inputs().size());
  for (const expr::Instruction& in : program.code())
    if (in.op == expr::Op::input) used[size_t(in.index)] = true;
  return used;
}

std::vector<View> views_of(const std::vector<const Place*>& places) {
  std::vector<View> views;
  for (const Place* p : places) views.push_back(p->view());
  return views;
}

}  // namespace

std::unique_ptr<prim::RecordedCall> Group::build(const std::function<bool(const Use&)>& is_needed) {
  const auto writes = [&](const Use& u) { return u.access != Access::read && is_needed(u); };
  if (std::ranges::none_of(uses_, writes) && !compile::may_refuse(call().primitive()))
    return nullptr;
  const bool all = std::ranges::all_of(
      uses_, [&](const Use& u) { return u.access == Access::read || is_needed(u); });
  if (elements_.empty() || (elements_.size() == 1 && all)) return std::move(calls_[0]);

  Joined joined = join(elements_, is_needed, {}, exact_);
  if (const std::vector<bool> used = used_inputs(*joined.program); std::ranges::count(used, false))
    joined = join(elements_, is_needed, used, exact_);
  const std::vector<View> inputs = views_of(joined.inputs), outputs = views_of(joined.outputs);
  const ElementCall& last = elements_.back();
  if (last.reduce) {
    prim::ReduceArgs reduce = *last.reduce;
    reduce.prologue = joined.program.get();
    reduce.inputs = inputs;
    reduce.params = joined.params;
    reduce.slots = joined.slots;
    return prim::as_recorded(call().device(), reduce);
  }
  return prim::as_recorded(call().device(), prim::PointwiseArgs{.program = joined.program.get(),
                                                                .inputs = inputs,
                                                                .outputs = outputs,
                                                                .params = joined.params,
                                                                .slots = joined.slots,
                                                                .context = last.context});
}

}  // namespace arete::compile
