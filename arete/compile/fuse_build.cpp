// Stages put together, as one call: Note [Stages of a group].
#include <algorithm>
#include <deque>
#include <optional>

#include "arete/compile/fuse_internal.h"
#include "arete/expr/value.h"
#include "arete/prim/recorder.h"

namespace arete::compile {
namespace {

using expr::Builder;
using expr::ProgramPtr;
using expr::Value;
using prim::FusedStage;
using prim::View;
using Kind = Stage::Kind;

/// Where a value comes from: an output of a stage, or what a place held before.
struct Source {
  int stage = -1;
  int number = 0;  // of the output, or of the input of all
};

/// The stages with where everything comes from.
struct Graph {
  explicit Graph(const StagedCall& staged, const std::function<bool(const Use&)>& is_needed)
      : stages(staged.stages) {
    for (size_t s = 0; s < stages.size(); ++s) {
      std::vector<Source>& its = sources.emplace_back();
      for (const Place& p : stages[s].inputs) its.push_back(source_of(p, s));
      for (const prim::Slot& slot : stages[s].slots)
        slots.push_back({slot.number + int(params.size()), slot.value});
      const auto given = stages[s].params.first(stages[s].program->params().size());
      params.insert(params.end(), given.begin(), given.end());
    }
    // What is stored: the last value of each place that is needed.
    is_used.resize(stages.size());
    for (size_t s = stages.size(); s-- > 0;) {
      for (size_t k = 0; k < stages[s].outputs.size(); ++k) {
        const Place& p = stages[s].outputs[k];
        const bool is_last = std::none_of(
            stages.begin() + std::ptrdiff_t(s) + 1, stages.end(),
            [&](const Stage& later) { return std::ranges::count(later.outputs, p) > 0; });
        if (p.use.buffer < 0 || !is_last || !is_needed(p.use)) continue;
        stored.insert(stored.begin(), {int(s), int(k)});
        is_used[s] = true;
      }
      if (is_used[s])
        for (const Source& from : sources[s])
          if (from.stage >= 0) is_used[size_t(from.stage)] = true;
    }
  }
  const Place& place(const Source& from) const {
    return stages[size_t(from.stage)].outputs[size_t(from.number)];
  }

  const std::vector<Stage>& stages;
  std::vector<std::vector<Source>> sources;  // of each stage's inputs
  std::vector<const Place*> inputs;          // of all
  std::vector<expr::Literal> params;
  std::vector<prim::Slot> slots;
  std::vector<Source> stored;
  std::vector<bool> is_used;  // of each stage

 private:
  Source source_of(const Place& p, size_t before) {
    for (size_t s = before; s-- > 0;)
      for (size_t k = 0; k < stages[s].outputs.size(); ++k)
        if (stages[s].outputs[k] == p) return {int(s), int(k)};
    const auto known = std::ranges::find_if(inputs, [&](const Place* q) { return *q == p; });
    if (known == inputs.end()) inputs.push_back(&p);
    return {-1, int(std::ranges::find_if(inputs, [&](const Place* q) { return *q == p; }) -
                    inputs.begin())};
  }
};

/// Of each stage the row value that its first output is, if it is one.
using RowValues = std::vector<std::optional<int>>;

DType row_dtype(DType dtype) {
  const expr::Type type = expr::compute_type(dtype);
  return type == expr::Type::i32 ? kInt64 : expr::storage_type(type);
}

/// Writes one program.
class Writer {
 public:
  /// `left_out`: inputs that do not matter, by the order in which they are met.
  Writer(const Graph& graph, const RowValues& rows, bool exact, std::vector<bool> left_out)
      : graph_(graph), rows_(rows), exact_(exact), left_out_(std::move(left_out)) {
    for (const Stage& s : graph.stages) params_.push_back(b_.params_of(*s.program));
    values_.resize(graph.stages.size());
  }
  Builder& builder() { return b_; }
  /// What each of the program's inputs is: an input of all, or a row value (~).
  const std::vector<int>& reads() const { return reads_; }

  Value value(const Source& from) {
    if (from.stage < 0) {
      const Place& p = *graph_.inputs[size_t(from.number)];
      return input(from.number, p.dtype, p.is_table, inputs_);
    }
    const Stage& s = graph_.stages[size_t(from.stage)];
    if (const std::optional<int> row = rows_[size_t(from.stage)]) {
      const DType dtype = graph_.place(from).dtype;
      return b_.cast(input(~(*row + from.number), row_dtype(dtype), false, inputs_),
                     expr::compute_type(dtype));
    }
    std::vector<Value>& mine = values_[size_t(from.stage)];
    if (mine.empty()) {
      const std::vector<Value> code = code_of(from.stage);
      for (const expr::Program::Output& out : s.program->outputs()) {
        // A float that nobody stored on the way is not rounded unless that is asked for.
        const Value v = code[size_t(out.value)];
        mine.push_back(exact_                   ? b_.stored(v, out.dtype)
                       : is_floating(out.dtype) ? b_.cast(v, expr::compute_type(out.dtype))
                                                : b_.round_to(v, out.dtype));
      }
    }
    return mine[size_t(from.number)];
  }
  /// The value of an output of a stage before it is rounded: what reductions take.
  Value unrounded(const Source& from) {
    const expr::Program& program = *graph_.stages[size_t(from.stage)].program;
    return code_of(from.stage)[size_t(program.outputs()[size_t(from.number)].value)];
  }

 private:
  std::vector<Value> code_of(int stage) {
    const Stage& s = graph_.stages[size_t(stage)];
    std::vector<Value> inputs;
    for (size_t i = 0; i < s.inputs.size(); ++i) {
      // A program takes what was stored, in its own dtype.
      const Value v = value(graph_.sources[size_t(stage)][i]);
      inputs.push_back(
          s.inputs[i].is_table ? v : b_.cast(v, expr::compute_type(s.program->inputs()[i])));
    }
    return b_.inline_code(*s.program, inputs, params_[size_t(stage)]);
  }
  using Known = std::vector<std::pair<int, Value>>;
  Value input(int number, DType dtype, bool is_table, Known& known) {
    const auto found = std::ranges::find(known, number, &Known::value_type::first);
    if (found != known.end()) return found->second;
    const bool is_left_out = known.size() < left_out_.size() && left_out_[known.size()];
    const Value v = is_left_out ? b_.constant(expr::compute_type(dtype), 0)
                    : is_table  ? b_.table(dtype)
                                : b_.input(dtype);
    if (!is_left_out) reads_.push_back(number);
    known.push_back({number, v});
    return v;
  }

  const Graph& graph_;
  const RowValues& rows_;
  const bool exact_;
  const std::vector<bool> left_out_;
  Builder b_;
  std::vector<std::vector<Value>> params_, values_;
  Known inputs_;
  std::vector<int> reads_;
};

struct Written {
  ProgramPtr program;
  std::vector<int> reads;
};

/// The program whose outputs `make(writer)` gives, in these dtypes; it reads only what matters, and
/// something in any case if it is `reduced`.
Written write(const Graph& graph, const RowValues& rows, bool exact,
              const std::vector<DType>& dtypes, bool reduced,
              const std::function<std::vector<Value>(Writer&)>& make) {
  std::vector<bool> left_out;
  for (;;) {
    Writer w(graph, rows, exact, left_out);
    const std::vector<Value> values = make(w);
    Written written{w.builder().build(values, dtypes), w.reads()};
    const expr::Program& program = *written.program;
    std::vector<bool> used(program.inputs().size());
    for (const expr::Instruction& in : program.code())
      if (in.op == expr::Op::input) used[size_t(in.index)] = true;
    if (reduced && !used.empty() && std::ranges::count(used, true) == 0) used[0] = true;
    bool all = true;
    for (size_t i = 0; i < used.size(); ++i) {
      used[i] = used[i] || program.is_table(i);
      all = all && used[i];
    }
    if (all || !left_out.empty()) return written;
    used.flip();
    left_out = std::move(used);
  }
}

/// Writes a fused call, stage by stage.
class RowsWriter {
 public:
  RowsWriter(const StagedCall& staged, const Graph& graph)
      : staged_(staged), graph_(graph), rows_(graph.stages.size()) {
    for (int d = 0; d < int(staged.space.size()); ++d)
      if (!(staged.reduced >> d & 1)) order_.push_back(d);
    kept_ = int(order_.size());
    for (int d = 0; d < int(staged.space.size()); ++d)
      if (staged.reduced >> d & 1) order_.push_back(d);
  }

  std::unique_ptr<prim::RecordedCall> write(Device device) {
    levels();
    const int most = *std::ranges::max_element(levels_);
    for (int level = 0; level <= most; ++level) {
      for (size_t s = 0; s < graph_.stages.size(); ++s)
        if (is(s, Kind::reduce, level) && !rows_[s]) reduce(graph_.stages[s].monoid, level);
      for (size_t s = 0; s < graph_.stages.size(); ++s)
        if (is(s, Kind::rows, level) && is_read_by_elements(int(s))) row(int(s));
    }
    for (size_t s = 0; s < graph_.stages.size(); ++s)
      if (graph_.is_used[s] && graph_.stages[s].kind == Kind::columns)
        store(FusedStage::Kind::reduce_columns, int(s));
    // What is there already is read before it is written over.
    store(FusedStage::Kind::store, -1);
    store(FusedStage::Kind::store_row, -1);
    return as_call(device);
  }

 private:
  bool is(size_t s, Kind kind, int level) const {
    return graph_.is_used[s] && graph_.stages[s].kind == kind && levels_[s] == level;
  }
  void levels() {
    for (size_t s = 0; s < graph_.stages.size(); ++s) {
      int level = 0;
      for (const Source& from : graph_.sources[s])
        if (from.stage >= 0) level = std::max(level, levels_[size_t(from.stage)]);
      levels_.push_back(level + (graph_.stages[s].kind == Kind::reduce));
    }
  }
  bool is_read_by_elements(int stage) const {
    for (size_t s = 0; s < graph_.stages.size(); ++s)
      if (graph_.is_used[s] && graph_.stages[s].kind != Kind::rows)
        for (const Source& from : graph_.sources[s])
          if (from.stage == stage) return true;
    return false;
  }

  FusedStage& add(FusedStage::Kind kind, Written written) {
    FusedStage& stage = spec_.stages.emplace_back(FusedStage{kind, std::move(written.program), {}});
    for (const int i : written.reads) stage.inputs.push_back(i < 0 ? i : input(i));
    return stage;
  }
  /// All reductions by one monoid whose operands are known after as many others.
  void reduce(prim::Monoid monoid, int level) {
    std::vector<Source> of;
    std::vector<DType> dtypes;
    for (size_t s = 0; s < graph_.stages.size(); ++s) {
      const Stage& stage = graph_.stages[s];
      if (!is(s, Kind::reduce, level) || stage.monoid != monoid) continue;
      for (size_t k = 0; k < stage.outputs.size(); ++k) {
        of.push_back({int(s), int(k)});
        dtypes.push_back(row_dtype(stage.outputs[k].dtype));  // as which they are read
      }
    }
    add(FusedStage::Kind::reduce,
        compile::write(graph_, rows_, false, dtypes, true,
                       [&](Writer& w) {
                         std::vector<Value> values;
                         for (size_t k = 0; k < of.size(); ++k)
                           values.push_back(
                               w.builder().cast(w.unrounded(of[k]), expr::compute_type(dtypes[k])));
                         return values;
                       }))
        .monoid = monoid;
    for (const Source& o : of)
      if (o.number == 0) rows_[size_t(o.stage)] = count_ + int(&o - of.data());
    count_ += int(of.size());
  }
  void row(int s) {
    const Stage& stage = graph_.stages[size_t(s)];
    std::vector<DType> dtypes;
    for (const Place& p : stage.outputs) dtypes.push_back(row_dtype(p.dtype));
    add(FusedStage::Kind::row, compile::write(graph_, rows_, false, dtypes, true, [&](Writer& w) {
          std::vector<Value> values;
          for (size_t k = 0; k < dtypes.size(); ++k)
            values.push_back(w.builder().cast(w.value({s, int(k)}), expr::compute_type(dtypes[k])));
          return values;
        }));
    rows_[size_t(s)] = count_;
    count_ += int(dtypes.size());
  }
  /// What is to be stored of all stages that work so, or of one.
  void store(FusedStage::Kind kind, int stage) {
    std::vector<Source> of;
    std::vector<DType> dtypes;
    const int first = int(outputs_.size());
    for (const Source& s : graph_.stored) {
      const Kind its = graph_.stages[size_t(s.stage)].kind;
      if (kind == FusedStage::Kind::reduce_columns ? s.stage != stage
          : kind == FusedStage::Kind::store        ? its != Kind::elements
                                                   : its != Kind::rows)
        continue;
      of.push_back(s);
      dtypes.push_back(graph_.place(s).dtype);
      outputs_.push_back({&graph_.place(s), kind});
    }
    if (of.empty()) return;
    const bool columns = kind == FusedStage::Kind::reduce_columns;
    if (columns)
      for (size_t k = 0; k < of.size(); ++k)
        dtypes[k] = graph_.stages[size_t(stage)].program->outputs()[size_t(of[k].number)].dtype;
    FusedStage& added =
        add(kind, compile::write(graph_, rows_, false, dtypes, columns, [&](Writer& w) {
              std::vector<Value> values;
              for (const Source& s : of) values.push_back(columns ? w.unrounded(s) : w.value(s));
              return values;
            }));
    added.first_output = first;
    if (columns) added.monoid = graph_.stages[size_t(stage)].monoid;
  }

  int input(int of_graph) {
    const auto found = std::ranges::find(inputs_, of_graph);
    if (found == inputs_.end()) inputs_.push_back(of_graph);
    return int(std::ranges::find(inputs_, of_graph) - inputs_.begin());
  }
  // With the dimensions of rows behind the others, and of size 1 where `narrow` has a bit.
  View view_of(const Place& p, uint32_t narrow) {
    if (p.is_table) return p.view();
    Layout& layout = layouts_.emplace_back(p.layout);
    for (size_t d = 0; d < order_.size(); ++d) {
      const size_t from = size_t(order_[d]);
      layout.sizes[d] = narrow >> from & 1 ? 1 : p.layout.sizes[from];
      layout.strides[d] = p.layout.strides[from];
    }
    return {p.data, p.dtype, layout.sizes, layout.strides, p.storage};
  }
  std::unique_ptr<prim::RecordedCall> as_call(Device device) {
    std::vector<View> inputs, outputs;
    for (const int i : inputs_) inputs.push_back(view_of(*graph_.inputs[size_t(i)], 0));
    for (const auto& [place, kind] : outputs_)
      outputs.push_back(view_of(*place, kind == FusedStage::Kind::store_row ? staged_.reduced
                                        : kind == FusedStage::Kind::reduce_columns
                                            ? ~staged_.reduced
                                            : 0));
    if (spec_.stages.size() == 1 && spec_.stages[0].kind == FusedStage::Kind::store)
      return prim::as_recorded(device, prim::PointwiseArgs{.program = spec_.stages[0].program.get(),
                                                           .inputs = inputs,
                                                           .outputs = outputs,
                                                           .params = graph_.params,
                                                           .slots = graph_.slots,
                                                           .context = staged_.context});
    spec_.n_inputs = int(inputs.size());
    spec_.n_outputs = int(outputs.size());
    Shape space;
    for (const int d : order_) space.push_back(staged_.space[size_t(d)]);
    return prim::as_recorded(device, prim::FusedArgs{.spec = &spec_,
                                                     .space = space,
                                                     .outer_rank = kept_,
                                                     .inputs = inputs,
                                                     .outputs = outputs,
                                                     .params = graph_.params,
                                                     .slots = graph_.slots,
                                                     .context = staged_.context});
  }

  const StagedCall& staged_;
  const Graph& graph_;
  std::vector<int> order_;  // of dimensions, those of rows behind the others
  int kept_ = 0;
  std::vector<int> levels_;  // of each stage: reductions before its values are known
  RowValues rows_;
  int count_ = 0;  // of row values
  prim::FusedSpec spec_;
  std::vector<int> inputs_;
  std::vector<std::pair<const Place*, FusedStage::Kind>> outputs_;
  std::deque<Layout> layouts_;
};

}  // namespace

std::unique_ptr<prim::RecordedCall> call_of(Device device, const StagedCall& staged,
                                            const std::function<bool(const Use&)>& is_needed,
                                            bool exact) {
  const Graph graph(staged, is_needed);
  if (staged.reduced != 0 && !staged.reduce) return RowsWriter(staged, graph).write(device);

  // Element by element, and perhaps reduced.
  RowValues rows(graph.stages.size());
  const auto is_reduction = [](const Stage& s) { return s.kind == Kind::reduce; };
  const int last = int(std::ranges::find_if(graph.stages, is_reduction) - graph.stages.begin());
  std::vector<DType> dtypes;
  std::vector<View> inputs, outputs;
  if (staged.reduce) {
    dtypes.push_back(graph.stages[size_t(last)].program->outputs()[0].dtype);
  } else {
    for (const Source& s : graph.stored) {
      dtypes.push_back(graph.place(s).dtype);
      outputs.push_back(graph.place(s).view());
    }
  }
  const Written written = write(graph, rows, exact, dtypes, staged.reduce, [&](Writer& w) {
    std::vector<Value> values;
    if (staged.reduce)
      values.push_back(w.unrounded({last, 0}));
    else
      for (const Source& s : graph.stored) values.push_back(w.value(s));
    return values;
  });
  for (const int i : written.reads) inputs.push_back(graph.inputs[size_t(i)]->view());
  if (!staged.reduce)
    return prim::as_recorded(device, prim::PointwiseArgs{.program = written.program.get(),
                                                         .inputs = inputs,
                                                         .outputs = outputs,
                                                         .params = graph.params,
                                                         .slots = graph.slots,
                                                         .context = staged.context});
  prim::ReduceArgs reduce = *staged.reduce;
  reduce.prologue = written.program.get();
  reduce.inputs = inputs;
  reduce.params = graph.params;
  reduce.slots = graph.slots;
  if (last + 2 == int(graph.stages.size())) return prim::as_recorded(device, reduce);
  // Of the results something else is made.
  rows[size_t(last)] = 0;
  const Place& out = graph.place(graph.stored[0]);
  const Written epilogue = write(graph, rows, exact, {out.dtype}, true,
                                 [&](Writer& w) { return std::vector{w.value(graph.stored[0])}; });
  Shape sizes = out.layout.sizes;
  for (int d = 0; d < int(sizes.size()); ++d)
    if (staged.reduced >> d & 1) sizes[size_t(d)] = 1;
  reduce.out = View(out.data, out.dtype, sizes, out.layout.strides, out.storage);
  reduce.epilogue = epilogue.program.get();
  reduce.epilogue_params = graph.params;
  reduce.epilogue_slots = graph.slots;
  return prim::as_recorded(device, reduce);
}

}  // namespace arete::compile
