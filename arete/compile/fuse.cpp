#include <algorithm>
#include <bit>

#include "arete/base/error.h"
#include "arete/compile/fuse_internal.h"
#include "arete/prim/loop_nest.h"

namespace arete::compile {
namespace {

using prim::Access;
using prim::Primitive;

// More instructions in one program do not fit the registers and caches that it runs in.
constexpr size_t kMostInstructions = 256;
// Which parameters are in memory is a word of bits.
constexpr size_t kMostParams = 64;
// A kernel over rows computes what its reductions read once for each of them, and once more for
// what it stores: so many functions for each element, with all repetitions.
constexpr int kMostFunctions = 12;
// Of few elements that costs less than another kernel.
constexpr int64_t kMostRepeated = 16384;
// Rows that calls are put together for which were none before: enough of them for all threads, and
// none that would better be divided.
constexpr int64_t kManyRows = 64, kLongestRow = 16384;
// Elements of which it costs less to make something again for each than to launch a kernel for it.
constexpr int64_t kSmall = 65536;
// Elements of a row that are seen one by one, where that lets more calls be put together.
constexpr int64_t kFew = 4;

/// Sums of floats are rounded in an order, and of zeros and NaN the first or the last wins.
bool depends_on_order(const StagedCall& s) {
  return std::ranges::any_of(s.stages, [](const Stage& stage) {
    return stage.kind == Stage::Kind::reduce && is_floating(stage.program->outputs()[0].dtype);
  });
}

using Stages = std::vector<Stage>;

/// An operand and the stage that it is of.
struct StageOperand {
  const Place* place;
  const Stage* stage;
  bool is_column() const {
    return stage->kind == Stage::Kind::columns && place->use.access != Access::read;
  }
};

/// All of them, stage by stage, what one reads before what it writes.
std::vector<StageOperand> operands_of(const Stages& stages) {
  std::vector<StageOperand> all;
  for (const Stage& s : stages)
    for (const auto* list : {&s.inputs, &s.outputs})
      for (const Place& p : *list) all.push_back({&p, &s});
  return all;
}

/// The stages over a space of other sizes, of as many elements, if all operands can be seen so.
std::optional<Stages> seen_over(const Stages& stages, IntList sizes) {
  Stages seen;
  for (const Stage& s : stages) {
    Stage& copy = seen.emplace_back(s);
    for (std::vector<Place>* places : {&copy.inputs, &copy.outputs})
      for (Place& p : *places) {
        if (p.is_table) continue;
        std::optional<Layout> layout = arete::view(p.layout, sizes);
        if (!layout) return std::nullopt;
        p.layout = *std::move(layout);
      }
  }
  return seen;
}

Shape row_sizes(const StagedCall& rows) {
  Shape sizes = rows.space;
  for (int d = 0; d < int(sizes.size()); ++d)
    if (rows.reduced >> d & 1) sizes[size_t(d)] = 1;
  return sizes;
}

/// The dimensions of a layout in the order in which they make up those of another one of the same
/// elements, the outer ones first. Empty if they do not.
std::optional<std::vector<int>> order_as(const Layout& of, const Layout& other) {
  std::vector<int> order;
  std::vector<bool> is_taken(of.sizes.size());
  for (size_t d = other.sizes.size(); d-- > 0;) {
    int64_t step = other.strides[d];
    for (int64_t left = other.sizes[d]; left > 1;) {
      size_t k = 0;
      while (k < of.sizes.size() && (is_taken[k] || of.sizes[k] == 1 || of.strides[k] != step)) ++k;
      if (step == 0 || k == of.sizes.size() || left % of.sizes[k] != 0) return std::nullopt;
      is_taken[k] = true;
      order.push_back(int(k));
      step *= of.sizes[k];
      left /= of.sizes[k];
    }
  }
  for (size_t k = 0; k < of.sizes.size(); ++k) {
    if (is_taken[k]) continue;
    if (of.sizes[k] != 1) return std::nullopt;
    order.push_back(int(k));
  }
  std::ranges::reverse(order);
  return order;
}

/// What works element by element with its dimensions in the order of `rows`, which may have another
/// one of them first: that of memory that both use. Memory that one of them writes decides if there
/// is any: it has to be used at the same positions, while what both only read may be read at any.
StagedCall turned_as(const StagedCall& elements, const StagedCall& rows) {
  const auto order_of_both = [&]() -> std::optional<std::vector<int>> {
    for (const bool is_written : {true, false})
      for (const StageOperand& p : operands_of(elements.stages))
        for (const StageOperand& q : operands_of(rows.stages))
          if (p.place->data == q.place->data && p.place->dtype == q.place->dtype &&
              !p.place->is_table && !q.place->is_table &&
              collide(p.place->use, q.place->use) == is_written)
            if (auto order = order_as(p.place->layout, q.place->layout)) return order;
    return std::nullopt;
  };
  StagedCall turned = elements;
  const std::optional<std::vector<int>> order = order_of_both();
  if (!order) return turned;
  const auto turn = [&](Shape& list) {
    Shape its;
    for (const int d : *order) its.push_back(list[size_t(d)]);
    list = its;
  };
  turn(turned.space);
  for (Stage& s : turned.stages)
    for (std::vector<Place>* places : {&s.inputs, &s.outputs})
      for (Place& p : *places)
        if (!p.is_table) turn(p.layout.sizes), turn(p.layout.strides);
  return turned;
}

/// Stages that work element by element, as stages of `rows`: at each element, or once for each row.
std::optional<Stages> seen_in_rows(const StagedCall& elements, const StagedCall& rows) {
  if (numel_of(elements.space) == numel_of(rows.space))
    return seen_over(elements.stages, rows.space);
  const Shape sizes = row_sizes(rows);
  if (numel_of(elements.space) != numel_of(sizes)) return std::nullopt;
  std::optional<Stages> seen = seen_over(elements.stages, sizes);
  if (!seen) return seen;
  for (Stage& s : *seen) {
    s.kind = Stage::Kind::rows;
    for (std::vector<Place>* places : {&s.inputs, &s.outputs})
      for (Place& p : *places)
        if (!p.is_table) p.layout = expand(p.layout, rows.space);
  }
  return seen;
}

/// Whether what is made once for `space`, or for each row of a small one, may be made again at each
/// of its elements.
bool may_be_spread(const StagedCall& few, const Shape& space) {
  const int64_t count = numel_of(few.space), all = numel_of(space);
  if (few.reduced || count >= all) return false;
  if (count == 1) return true;
  const bool is_cheap =
      std::ranges::all_of(few.stages, [](const Stage& s) { return functions_of(*s.program) == 0; });
  if (few.space.size() != space.size() || all > (is_cheap ? kSmall : kSmall / 16)) return false;
  for (size_t d = 0; d < space.size(); ++d)
    if (few.space[d] != space[d] && few.space[d] != 1) return false;
  return true;
}
StagedCall spread_over(const StagedCall& few, const Shape& space) {
  const bool once = numel_of(few.space) == 1;
  StagedCall seen = few;
  seen.space = space;
  for (Stage& s : seen.stages)
    for (std::vector<Place>* places : {&s.inputs, &s.outputs})
      for (Place& p : *places)
        if (!p.is_table)
          p.layout = once ? Layout(space, Shape(space.size(), 0)) : expand(p.layout, space);
  return seen;
}

/// Whether the reduced dimensions are the last ones, but for some of size 1.
bool reduces_last(const StagedCall& s) {
  bool reduced = false;
  for (size_t d = 0; d < s.space.size(); ++d) {
    if (s.space[d] == 1) continue;
    if (reduced && !(s.reduced >> d & 1)) return false;
    reduced = s.reduced >> d & 1;
  }
  return true;
}

/// The stages of `of` over the rows of `rows`, if they are as many and as long.
std::optional<Stages> rows_in_rows(const StagedCall& of, const StagedCall& rows) {
  if (of.space == rows.space && of.reduced == rows.reduced) return of.stages;
  if (numel_of(of.space) != numel_of(rows.space) ||
      numel_of(row_sizes(of)) != numel_of(row_sizes(rows)) || !reduces_last(of) ||
      !reduces_last(rows))
    return std::nullopt;
  return seen_over(of.stages, rows.space);
}

/// What is made of the results of a reduction, one by one: stages of it, if they read nothing else.
std::optional<Stages> seen_behind(const StagedCall& elements, const StagedCall& reduction) {
  if (!reduction.reduce || elements.reduced || elements.stages.size() != 1 ||
      elements.stages[0].outputs.size() != 1 ||
      numel_of(elements.space) != numel_of(row_sizes(reduction)))
    return std::nullopt;
  std::optional<Stages> seen = seen_in_rows(elements, reduction);
  if (seen && std::ranges::any_of((*seen)[0].inputs, [&](const Place& p) {
        return !(p == reduction.stages.back().outputs[0]);
      }))
    return std::nullopt;
  return seen;
}

/// Whether rows of a reduction are such as kernels over rows are good at.
bool has_good_rows(const StagedCall& s) {
  const int64_t rows = numel_of(row_sizes(s)), length = numel_of(s.space) / rows;
  if (rows < kManyRows || length > kLongestRow) return false;
  // The largest operand runs fastest along its rows.
  for (const Stage& stage : s.stages)
    if (stage.kind == Stage::Kind::reduce)
      for (const Place& p : stage.inputs) {
        bool is_whole = !p.is_table, runs = false;
        for (int d = 0; is_whole && d < p.layout.rank(); ++d) {
          if (s.space[size_t(d)] == 1) continue;
          is_whole = p.layout.strides[size_t(d)] != 0;
          runs |= (s.reduced >> d & 1) && p.layout.strides[size_t(d)] == 1;
        }
        if (is_whole) return runs;
      }
  return false;
}

/// The dimension of a few elements that `rows` are, where the next call reduces others, of many
/// rows: -1 if it is not so.
int few_in_rows(const StagedCall& rows, const StagedCall& next) {
  if (!std::has_single_bit(rows.reduced) || next.reduced == 0 || (rows.reduced & next.reduced) ||
      rows.space != next.space)
    return -1;
  const int dim = std::countr_zero(rows.reduced);
  const int64_t few = rows.space[size_t(dim)];
  const int64_t count = numel_of(row_sizes(next)), length = numel_of(next.space) / count;
  return few <= kFew && count / few >= kManyRows && length <= kLongestRow ? dim : -1;
}

struct Depth {
  int reductions = 0;  // that have to follow each other
  bool has_columns = false, columns_need_rows = false;
  bool in_place = false;  // something is written over that was there before
};
Depth depth_of(const Stages& stages) {
  Depth depth;
  struct Made {
    int level = 0;  // reductions before it is known
    bool needs_rows = false;
  };
  std::vector<Made> made;
  std::vector<const Place*> read;  // that was there before
  for (size_t s = 0; s < stages.size(); ++s) {
    Made its;
    for (const Place& p : stages[s].inputs) {
      const Made* from = nullptr;
      for (size_t k = s; k-- > 0 && !from;)
        if (std::ranges::count(stages[k].outputs, p) > 0) from = &made[k];
      if (from)
        its = {std::max(its.level, from->level), its.needs_rows || from->needs_rows};
      else
        read.push_back(&p);
    }
    const Stage::Kind kind = stages[s].kind;
    depth.has_columns |= kind == Stage::Kind::columns;
    depth.columns_need_rows |= kind == Stage::Kind::columns && its.needs_rows;
    its.level += kind == Stage::Kind::reduce;
    its.needs_rows |= kind == Stage::Kind::reduce || kind == Stage::Kind::rows;
    depth.reductions = std::max(depth.reductions, its.level);
    made.push_back(its);
  }
  for (const Stage& s : stages)
    for (const Place& q : s.outputs)
      for (const Place* p : read) depth.in_place |= collide(p->use, q.use);
  return depth;
}

}  // namespace

int functions_of(const expr::Program& program) {
  return int(std::ranges::count_if(program.code(), [](const expr::Instruction& in) {
    return (in.op >= expr::Op::exp && in.op <= expr::Op::sigmoid) || in.op == expr::Op::pow;
  }));
}

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
    : staged_(stages_of(*call, buffers, options)), exact_(options.exact) {
  uses_ = uses_of(*call, buffers);
  for (const Use& u : uses_)
    if (u.access != Access::write && readers(u.buffer) == 0) read_.push_back(u.buffer);
  has_row_call_ = call->primitive() == Primitive::fused;
  calls_.push_back(std::move(call));
}

// Of GPUs errors are found later in any case.
bool Group::may_refuse() const { return compile::may_refuse(call()); }

const char* Group::take(Group& next, const std::function<bool(const Use&)>& is_read_elsewhere) {
  // Row values are nobody's.
  const auto is_wanted = [&](const Use& u) { return u.buffer >= 0 && is_read_elsewhere(u); };
  if (!staged_ || !next.staged_) return "one of them is no call for elements or rows";
  const StagedCall& its = *next.staged_;
  // Few elements that nobody else wants are made again for each element that reads one. (Functions
  // of one element and of many may differ in last bits.)
  std::optional<StagedCall> spread;
  if (!exact_ && may_be_spread(*staged_, its.space) &&
      (numel_of(staged_->space) == 1 || !its.reduced) &&
      std::ranges::none_of(uses_,
                           [&](const Use& u) { return u.access != Access::read && is_wanted(u); }))
    spread = spread_over(*staged_, its.space);
  StagedCall& mine = spread ? *spread : *staged_;
  if (call().device() != next.call().device()) return "they are of different devices";
  if (!same_context(mine.context, its.context))
    return "they are of different streams, or compute with different precision";

  // Over one space, of another shape perhaps: the one or the other is seen in the other's.
  std::optional<Stages> first = mine.stages, second = its.stages;
  bool in_rows = mine.reduced != 0 || its.reduced != 0, seen_as_its = false;
  int few = -1;
  // Reductions are quickest alone, with what makes their elements: Primitive::reduce.
  const bool reduces = its.reduce && !mine.reduced;
  const auto see_as_elements = [&] {
    if (mine.space == its.space) return true;
    if (numel_of(mine.space) != numel_of(its.space)) return false;
    if (!its.reduced && (second = seen_over(its.stages, mine.space))) return true;
    second = its.stages;
    first = seen_over(mine.stages, its.space);
    seen_as_its = first.has_value();
    return seen_as_its;
  };
  const auto stores_too = [&] {
    return std::ranges::any_of(operands_of(*first), [&](const StageOperand& o) {
      return o.place->use.access != Access::read && is_wanted(o.place->use);
    });
  };
  if (reduces && see_as_elements() && !stores_too()) {
    // A kernel that reduces stores nothing else. The order in which it reduces depends on what
    // memory and which program the elements come from.
    if (exact_ && depends_on_order(its)) return "sums of floats are not joined under exact";
    in_rows = false;
  } else if (std::optional<Stages> behind = exact_ ? std::nullopt : seen_behind(its, mine);
             behind && !is_wanted(mine.stages.back().outputs[0].use)) {
    first = mine.stages;
    second = std::move(behind);
    in_rows = false;
  } else if (in_rows) {
    if (exact_) return "what works on rows is not joined under exact";
    few = few_in_rows(mine, its);
    if (few >= 0 && stores_too()) few = -1;
    if (few < 0 && !has_row_call_ && !next.has_row_call_ &&
        !has_good_rows(mine.reduced ? mine : its))
      return "its rows are too few, too long or not in one piece";
    first = mine.reduced ? mine.stages : seen_in_rows(mine, its);
    second = !mine.reduced || few >= 0 ? its.stages
             : its.reduced             ? rows_in_rows(its, mine)
                                       : seen_in_rows(turned_as(its, mine), mine);
    if (!first || !second) return "their shapes do not fit together";
  } else if (!see_as_elements()) {
    return "their shapes do not fit together";
  }

  // What one element's calls do must not matter to another's: memory that both use is used at the
  // same positions. Sums over all rows are there when all is done.
  std::vector<StageOperand> earlier = operands_of(*first), later = operands_of(*second);
  bool connected = false;
  for (const StageOperand& q : earlier)
    for (const StageOperand& p : later) {
      const bool same = *p.place == *q.place;
      if (collide(p.place->use, q.place->use) &&
          (!same || p.place->is_table || p.is_column() || q.is_column()))
        return "they use memory at different positions";
      connected |= same && p.place->use.buffer >= 0;
    }
  if (!connected) return "they have no operand in common";
  // What they use at the same positions, they use so at each of a few, too.
  std::optional<StagedCall> apart;
  if (few >= 0) {
    std::optional<StagedCall> a = one_by_one(mine, few);
    apart = one_by_one(its, few);
    if (!a || !apart) return "their shapes do not fit together";
    first = std::move(a->stages), second = std::move(apart->stages);
    earlier = operands_of(*first), later = operands_of(*second);
  }
  size_t instructions = 0, params = 0;
  int functions = 0;
  for (const auto* list : {&*first, &*second})
    for (const Stage& s : *list) {
      instructions += s.program->code().size();
      params += s.program->params().size();
      functions += s.kind == Stage::Kind::rows ? 0 : functions_of(*s.program);
    }
  // Parameters are read before anything is written.
  const auto writes = [&](const std::vector<Use>& numbers, const std::vector<StageOperand>& by) {
    return std::ranges::any_of(numbers, [&](const Use& u) {
      return std::ranges::any_of(by,
                                 [&](const StageOperand& o) { return collide(u, o.place->use); });
    });
  };
  if (writes(mine.numbers, later) || writes(its.numbers, earlier))
    return "one of them writes a number that the other one computes with";
  if (instructions > kMostInstructions || params > kMostParams)
    return "the kernel would be too long";
  // The operands that the kernel would have: what is made and used in it is none, and what is read
  // and written over are two.
  std::vector<const Place*> read, written, made;
  const auto has = [](const std::vector<const Place*>& list, const Place* p) {
    return std::ranges::any_of(list, [p](const Place* q) { return *q == *p; });
  };
  for (const auto* list : {&earlier, &later})
    for (const StageOperand& o : *list) {
      const bool writes_it = o.place->use.access != Access::read;
      const bool counts = writes_it ? is_wanted(o.place->use) : !has(made, o.place);
      std::vector<const Place*>& list_of = writes_it ? written : read;
      if (counts && o.place->use.buffer >= 0 && !has(list_of, o.place)) list_of.push_back(o.place);
      if (writes_it) made.push_back(o.place);
    }
  if (read.size() + written.size() > size_t(prim::LoopNest::kMaxOperands))
    return "the kernel would have too many operands";
  // Reductions read something.
  if ((mine.reduced || its.reduced) && read.empty()) return "nothing is read";

  seen_as_its = in_rows ? mine.reduced == 0 : seen_as_its;
  Stages all = *std::move(first);
  std::ranges::move(*second, std::back_inserter(all));
  if (in_rows) {
    const Depth depth = depth_of(all);
    if (depth.columns_need_rows) return "a sum over all rows would need what is known of one row";
    if (depth.has_columns && depth.in_place)
      return "a sum over all rows may read what is written over";
    const int repeated = functions * (depth.reductions + 1);
    if (repeated > kMostFunctions && repeated * numel_of(apart         ? apart->space
                                                         : seen_as_its ? its.space
                                                                       : mine.space) >
                                         kMostRepeated)
      return "what reductions read would be computed too often";
  }
  mine.stages = std::move(all);
  if (seen_as_its) mine.space = its.space;
  if (mine.reduced == 0) mine.reduced = its.reduced;
  if (apart) mine.space = apart->space, mine.reduced = apart->reduced;
  mine.reduce = in_rows ? nullptr : its.reduce ? its.reduce : mine.reduce;
  mine.numbers.insert(mine.numbers.end(), its.numbers.begin(), its.numbers.end());
  if (spread) staged_ = std::move(spread);
  has_row_call_ = has_row_call_ || next.has_row_call_;
  std::ranges::move(next.calls_, std::back_inserter(calls_));
  std::ranges::copy(next.numbers, std::back_inserter(numbers));
  uses_.insert(uses_.end(), next.uses_.begin(), next.uses_.end());
  read_.insert(read_.end(), next.read_.begin(), next.read_.end());
  return nullptr;
}

bool Group::may_be_left_out(const std::function<bool(const Use&)>& is_needed) const {
  const auto writes = [&](const Use& u) { return u.access != Access::read && is_needed(u); };
  return std::ranges::none_of(uses_, writes) && !refuses_values(call().primitive());
}

std::unique_ptr<prim::RecordedCall> Group::build(const std::function<bool(const Use&)>& is_needed) {
  if (may_be_left_out(is_needed)) return nullptr;
  const bool all = std::ranges::all_of(
      uses_, [&](const Use& u) { return u.access == Access::read || is_needed(u); });
  if (!staged_ || (calls_.size() == 1 && all)) return std::move(calls_[0]);
  return call_of(call().device(), *staged_, is_needed, exact_);
}

}  // namespace arete::compile
