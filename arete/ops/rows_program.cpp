#include <algorithm>
#include <bit>
#include <map>
#include <optional>

#include "arete/base/error.h"
#include "arete/ops/rows.h"

namespace arete::ops {

using expr::Builder;
using expr::Instruction;
using expr::Op;
using expr::ProgramPtr;
using expr::Type;
using expr::Value;
using prim::FusedStage;
using prim::Monoid;
using Kind = FusedStage::Kind;

Value Rows::reduce(Monoid monoid, Value v, bool has_gradient) {
  const Type type = monoid == Monoid::all || monoid == Monoid::any      ? Type::boolean
                    : expr::is_float(v.type()) || v.type() == Type::u64 ? v.type()
                                                                        : Type::i64;
  const Value body = cast(v, type);
  for (const Reduction& r : reductions_)
    if (r.monoid == monoid && r.has_gradient == has_gradient && r.body.id() == body.id())
      return r.value;
  const Value value = body.builder()->input(expr::storage_type(type));
  reductions_.push_back({monoid, has_gradient, body, value});
  return value;
}

Value Rows::mean(Value v) {
  const Value total = sum(expr::to_float(v));
  return total / cast(length_, total.type());
}

// Arranges the parts of a program of rows as stages of a kernel.
class RowProgram::Planner {
 public:
  explicit Planner(RowProgram& p) : p_(p), code_(p.program_->code()) { find_levels(); }

  void plan() {
    const auto outputs = p_.program_->outputs();
    const size_t n_outputs = p_.n_outputs();
    p_.spec_.n_inputs = int(p_.n_inputs_);
    p_.spec_.n_outputs = int(n_outputs);
    for (size_t k = 0; k < n_outputs; ++k) {
      const size_t value = size_t(outputs[k].value);
      p_.is_row_.push_back(!has_elements_[value] && level_[value] > 0);
    }
    int deepest = -1;
    for (size_t k = 0; k < n_rows(); ++k) {
      const Monoid m = p_.reductions_[k].monoid;
      p_.needs_elements_ |= m == Monoid::min || m == Monoid::max;
      deepest = std::max(deepest, level_[body(k)]);
    }
    for (int level = 0; level <= deepest; ++level) {
      add_reductions(level);
      add_row_values(level + 1);
    }
    // Neighbours among the outputs go together.
    for (size_t first = 0, last; first < n_outputs; first = last) {
      std::vector<size_t> values;
      for (last = first; last < n_outputs && p_.is_row_[last] == p_.is_row_[first]; ++last)
        values.push_back(size_t(outputs[last].value));
      FusedStage s = stage(p_.is_row_[first] ? Kind::store_row : Kind::store, values,
                           dtypes_of(outputs.subspan(first, last - first)));
      s.first_output = int(first);
      p_.spec_.stages.push_back(std::move(s));
    }
  }

 private:
  size_t n_rows() const { return p_.reductions_.size(); }
  size_t body(size_t k) const { return size_t(p_.program_->outputs()[p_.n_outputs() + k].value); }
  static std::vector<DType> dtypes_of(std::span<const expr::Program::Output> outputs) {
    std::vector<DType> all;
    for (const auto& o : outputs) all.push_back(o.dtype);
    return all;
  }
  bool is_element_input(size_t i) const {
    return code_[i].op == Op::input && size_t(code_[i].index) < p_.n_inputs_;
  }
  bool is_row_input(size_t i) const { return code_[i].op == Op::input && !is_element_input(i); }

  // The level of a value is the number of reductions that it waits for one after the other.
  void find_levels() {
    const size_t n = code_.size();
    level_.assign(n, 0);
    has_elements_.assign(n, 0);
    std::vector<std::optional<int>> level_of_row(n_rows());
    // A reduction's body may stand behind the input that its value is: twice through the rows in
    // order is enough, since bodies read earlier rows only.
    for (size_t k = 0; k <= n_rows(); ++k) {
      for (size_t i = 0; i < n; ++i) {
        has_elements_[i] = is_element_input(i);
        level_[i] = 0;
        if (is_row_input(i)) {
          const size_t row = size_t(code_[i].index) - p_.n_inputs_;
          level_[i] = level_of_row[row].value_or(0);
        }
        for (const int32_t o : code_[i].operand)
          if (o >= 0) {
            has_elements_[i] |= has_elements_[size_t(o)];
            level_[i] = std::max(level_[i], level_[size_t(o)]);
          }
      }
      if (k < n_rows()) level_of_row[k] = level_[body(k)] + 1;
    }
  }

  // A stage that computes `values`, from elements and what rows have by now.
  FusedStage stage(Kind kind, const std::vector<size_t>& values, const std::vector<DType>& dtypes) {
    std::vector<char> live(code_.size());
    for (const size_t v : values) live[v] = 1;
    for (size_t i = code_.size(); i-- > 0;)
      if (live[i] && !row_of_.contains(i))
        for (const int32_t o : code_[i].operand)
          if (o >= 0) live[size_t(o)] = 1;

    FusedStage s{};
    s.kind = kind;
    Builder b;
    const auto input_types = p_.program_->inputs();
    std::vector<Value> inputs(input_types.size()), loads(code_.size());
    for (size_t i = 0; i < code_.size(); ++i) {
      if (!live[i]) continue;
      if (const auto row = row_of_.find(i); row != row_of_.end()) {
        loads[i] = b.input(expr::storage_type(code_[i].type));
        s.inputs.push_back(~row->second);
      } else if (is_element_input(i)) {
        inputs[size_t(code_[i].index)] = b.input(input_types[size_t(code_[i].index)]);
        s.inputs.push_back(code_[i].index);
      }
    }
    // Something must say that there are elements.
    const bool over_elements = kind == Kind::reduce || kind == Kind::store;
    if (over_elements && std::ranges::none_of(s.inputs, [](int i) { return i >= 0; })) {
      b.input(input_types[0]);
      s.inputs.push_back(0);
    }
    const std::vector<Value> all =
        b.inline_code(*p_.program_, inputs, b.params_of(*p_.program_), live, loads);
    std::vector<Value> results;
    for (const size_t v : values) results.push_back(all[v]);
    s.program = b.build(results, dtypes);
    return s;
  }

  void new_rows(FusedStage&& s, const std::vector<size_t>& values) {
    for (const size_t v : values) row_of_[v] = rows_++;
    p_.spec_.stages.push_back(std::move(s));
  }

  void add_reductions(int level) {
    for (const Monoid m :
         {Monoid::sum, Monoid::prod, Monoid::min, Monoid::max, Monoid::all, Monoid::any}) {
      std::vector<size_t> bodies, values;
      std::vector<DType> dtypes;
      for (size_t k = 0; k < n_rows(); ++k) {
        if (p_.reductions_[k].monoid != m || level_[body(k)] != level) continue;
        for (size_t i = 0; i < code_.size(); ++i)
          if (is_row_input(i) && size_t(code_[i].index) == p_.n_inputs_ + k) {
            bodies.push_back(body(k));
            values.push_back(i);
            dtypes.push_back(p_.program_->inputs()[p_.n_inputs_ + k]);
          }
      }
      if (bodies.empty()) continue;
      FusedStage s = stage(Kind::reduce, bodies, dtypes);
      s.monoid = m;
      new_rows(std::move(s), values);
    }
  }

  // Arithmetic on rows' values alone that elements need, once for a row. Row values are f32, f64,
  // i64, u64 or boolean.
  void add_row_values(int level) {
    std::vector<size_t> values;
    std::vector<DType> dtypes;
    const auto is_row_value = [&](size_t i) {
      return !has_elements_[i] && level_[i] == level && expr::arity_of(code_[i].op) > 0 &&
             code_[i].type != Type::i32;
    };
    std::vector<char> wanted(code_.size());
    for (size_t i = 0; i < code_.size(); ++i)
      if (has_elements_[i])
        for (const int32_t o : code_[i].operand)
          if (o >= 0) wanted[size_t(o)] = 1;
    for (size_t k = 0; k < n_rows(); ++k) wanted[body(k)] = 1;
    for (size_t i = 0; i < code_.size(); ++i)
      if (wanted[i] && is_row_value(i)) {
        values.push_back(i);
        dtypes.push_back(expr::storage_type(code_[i].type));
      }
    if (!values.empty()) new_rows(stage(Kind::row, values, dtypes), values);
  }

  RowProgram& p_;
  std::span<const Instruction> code_;
  std::vector<int> level_;
  std::vector<char> has_elements_;
  std::map<size_t, int> row_of_;  // instructions whose values rows have
  int rows_ = 0;
};

// Leaves out the reductions that no result depends on.
void RowProgram::drop_unneeded() {
  const auto code = program_->code();
  const auto outputs = program_->outputs();
  const size_t n_out = n_outputs(), n_rows = reductions_.size();
  std::vector<char> needed(n_rows), seen(code.size());
  std::vector<size_t> todo;
  for (size_t k = 0; k < n_out; ++k) todo.push_back(size_t(outputs[k].value));
  while (!todo.empty()) {
    const size_t i = todo.back();
    todo.pop_back();
    if (seen[i]++) continue;
    for (const int32_t o : code[i].operand)
      if (o >= 0) todo.push_back(size_t(o));
    if (code[i].op != Op::input || size_t(code[i].index) < n_inputs_) continue;
    const size_t row = size_t(code[i].index) - n_inputs_;
    needed[row] = 1;
    todo.push_back(size_t(outputs[n_out + row].value));
  }
  if (std::ranges::find(needed, 0) == needed.end()) return;

  Builder b;
  std::vector<Value> inputs, results;
  std::vector<DType> dtypes;
  std::vector<Reduction> kept;
  const auto types = program_->inputs();
  for (size_t i = 0; i < types.size(); ++i)
    inputs.push_back(i < n_inputs_ || needed[i - n_inputs_] ? b.input(types[i]) : Value());
  const std::vector<Value> all = b.inline_code(*program_, inputs, b.params_of(*program_), seen);
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (k >= n_out && !needed[k - n_out]) continue;
    results.push_back(all[size_t(outputs[k].value)]);
    dtypes.push_back(outputs[k].dtype);
    if (k >= n_out) kept.push_back(reductions_[k - n_out]);
  }
  program_ = b.build(results, dtypes);
  reductions_ = std::move(kept);
}

RowProgramPtr RowProgram::trace(const Definition& definition, std::span<const DType> inputs,
                                std::span<const Type> params, const std::vector<DType>& outputs) {
  ARETE_CHECK(!inputs.empty(), ValueError("", "a program of rows needs an input"));
  Builder b;
  std::vector<Value> values;
  for (const DType t : inputs) values.push_back(b.input(t));
  for (const Type t : params) values.push_back(b.param(t));
  Rows rows(b.param(Type::f64));
  std::vector<Value> results = definition(rows, values);
  ARETE_CHECK(results.size() == outputs.size() && !results.empty(),
              ValueError("", "a program of rows needs a dtype for each of its results")
                  .expected(std::to_string(results.size()))
                  .got(std::to_string(outputs.size())));
  std::vector<DType> dtypes = outputs;
  std::shared_ptr<RowProgram> p(new RowProgram);
  p->n_inputs_ = inputs.size();
  for (const Rows::Reduction& r : rows.reductions_) {
    p->reductions_.push_back({r.monoid, r.has_gradient});
    results.push_back(r.body);
    dtypes.push_back(expr::storage_type(r.body.type()));
  }
  p->program_ = b.build(results, dtypes);
  p->drop_unneeded();

  // Equal ones share what was made of them. Who runs programs of passing definitions keeps them.
  using Key = std::pair<const expr::Program*, std::vector<int>>;
  static auto* const mutex = new std::mutex;
  static auto* const living = new std::map<Key, std::weak_ptr<const RowProgram>>;
  Key key{p->program_.get(), {int(p->n_inputs_)}};
  for (const Reduction& r : p->reductions_)
    key.second.push_back(int(r.monoid) * 2 + r.has_gradient);
  const std::lock_guard lock(*mutex);
  std::weak_ptr<const RowProgram>& known = (*living)[key];
  if (RowProgramPtr same = known.lock()) return same;
  Planner(*p).plan();
  known = p;
  if (living->size() > 1024)
    std::erase_if(*living, [](const auto& entry) { return entry.second.expired(); });
  return p;
}

// The gradients of the wanted inputs. `values`: inputs, gradients of floating outputs, parameters.
std::vector<Value> RowProgram::pull_back(Rows& rows, std::span<const Value> values,
                                         uint32_t wanted) const {
  Builder& b = *values[0].builder();
  const auto outputs = program_->outputs();
  const size_t n_out = n_outputs(), n_rows = reductions_.size();
  std::vector<Value> inputs(values.begin(), values.begin() + int(n_inputs_));
  size_t next = n_inputs_;
  std::vector<Value> given(n_out);  // gradients of results
  for (size_t k = 0; k < n_out; ++k)
    if (is_floating(outputs[k].dtype)) given[k] = values[next++];
  std::vector<Value> params(values.begin() + int(next), values.end());
  params.push_back(rows.length());
  const auto zero_of = [&](size_t output) {
    return b.constant(expr::compute_type(outputs[output].dtype), 0.0);
  };

  // Forward again: what is reduced, and the rows' values. Those that come later do not matter yet.
  for (size_t k = 0; k < n_rows; ++k) inputs.push_back(zero_of(n_out + k));
  std::vector<Value> forward;
  for (size_t k = 0; k < n_rows; ++k) {
    forward = b.inline_code(*program_, inputs, params);
    inputs[n_inputs_ + k] =
        rows.reduce(reductions_[k].monoid, forward[size_t(outputs[n_out + k].value)],
                    reductions_[k].has_gradient);
  }
  forward = b.inline_code(*program_, inputs, params);

  // The derivative of the ordinary program. What results that are rows' values pull is one value
  // for a row; all else is to be summed over the elements.
  ARETE_CHECK(n_inputs_ + n_rows <= 32,
              NotImplementedError("", "a derivative of such order reduces too many values of a row")
                  .got(std::to_string(n_rows) + " reductions"));
  const uint32_t of_rows = ((uint32_t{1} << n_rows) - 1) << n_inputs_;
  const expr::Derivative& d = program_->derivative(wanted | of_rows);
  std::vector<Value> reduced(n_rows);  // gradients of what is reduced
  const auto pull = [&](bool of_row_results) {
    std::vector<Value> in;
    for (const expr::DerivativeInput& from : d.inputs) {
      const size_t k = size_t(from.index);
      if (from.from == expr::DerivativeInput::From::input)
        in.push_back(inputs[k]);
      else if (from.from == expr::DerivativeInput::From::output)
        in.push_back(forward[size_t(outputs[k].value)]);
      else if (k < n_out)
        in.push_back(bool(is_row_[k]) == of_row_results ? given[k] : zero_of(k));
      else
        in.push_back(reduced[k - n_out].builder() && !of_row_results ? reduced[k - n_out]
                                                                     : zero_of(k));
    }
    return b.inline_program(*d.program, in, params);
  };
  const size_t first_row = size_t(std::popcount(wanted));
  for (size_t k = n_rows; k-- > 0;) {
    if (!reductions_[k].has_gradient || !is_floating(outputs[n_out + k].dtype)) continue;
    const Value elements = pull(false)[first_row + k], row = pull(true)[first_row + k];
    const bool none_of_elements = b.is_number(elements, 0), none_of_row = b.is_number(row, 0);
    if (none_of_elements && none_of_row) continue;
    const Value total = none_of_elements ? row
                        : none_of_row    ? rows.sum(elements)
                                         : rows.sum(elements) + row;
    const Value body = forward[size_t(outputs[n_out + k].value)], value = inputs[n_inputs_ + k];
    switch (reductions_[k].monoid) {
      case Monoid::sum:
        reduced[k] = total;
        break;
      case Monoid::min:
      case Monoid::max: {
        const Value one = constant_like(body, 1), none = constant_like(body, 0);
        const Value equals = rows.reduce(Monoid::sum, where(body == value, one, none), false);
        reduced[k] = where(body == value, total / equals, none);
        break;
      }
      default:
        throw NotImplementedError("", "the product of a row has no gradient")
            .hint("exp(sum(log(x))) has one");
    }
  }
  std::vector<Value> results = pull(false);
  results.resize(first_row);
  return results;
}

RowProgram::Derivative RowProgram::differentiate(uint32_t wanted) const {
  using From = expr::DerivativeInput::From;
  std::vector<expr::DerivativeInput> sources;
  std::vector<DType> types(inputs().begin(), inputs().end()), results;
  for (size_t i = 0; i < n_inputs_; ++i) {
    sources.push_back({From::input, int(i)});
    if (wanted >> i & 1) results.push_back(types[i]);
  }
  for (size_t k = 0; k < n_outputs(); ++k)
    if (is_floating(output(k))) {
      sources.push_back({From::grad, int(k)});
      types.push_back(output(k));
    }
  // Once with all of them, and again with those alone that it reads.
  std::vector<char> kept(sources.size(), 1);
  for (;;) {
    Derivative d;
    std::vector<DType> in;
    for (size_t i = 0; i < sources.size(); ++i)
      if (kept[i]) {
        in.push_back(types[i]);
        d.inputs.push_back(sources[i]);
      }
    d.program = trace(
        [&](Rows& rows, std::span<const Value> v) {
          std::vector<Value> all;
          size_t next = 0;
          for (size_t i = 0; i < sources.size(); ++i)
            all.push_back(kept[i] ? v[next++]
                                  : v[0].builder()->constant(expr::compute_type(types[i]), 0.0));
          all.insert(all.end(), v.begin() + int(next), v.end());
          return pull_back(rows, all, wanted);
        },
        in, params(), results);
    std::vector<char> read(in.size());
    for (const FusedStage& s : d.program->spec().stages)
      for (const Instruction& i : s.program->code())
        if (i.op == Op::input && s.inputs[size_t(i.index)] >= 0)
          read[size_t(s.inputs[size_t(i.index)])] = 1;
    if (std::ranges::find(read, 0) == read.end()) return d;
    // One must stay, to have the sizes.
    if (std::ranges::find(read, 1) == read.end()) {
      if (read.size() == 1) return d;
      read.back() = 1;
    }
    size_t next = 0;
    for (char& k : kept)
      if (k) k = read[next++];
  }
}

const RowProgram::Derivative& RowProgram::derivative(uint32_t wanted) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [mask, d] : derivatives_)
    if (mask == wanted) return *d;
  derivatives_.emplace_back(wanted, std::make_unique<Derivative>(differentiate(wanted)));
  return *derivatives_.back().second;
}

}  // namespace arete::ops
