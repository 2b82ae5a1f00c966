#include "arete/backend/cpu/compile_block.h"

#include <algorithm>
#include <array>

#include "arete/backend/cpu/block_steps.h"
#include "arete/backend/cpu/narrow_integers.h"
#include "arete/base/error.h"
#include "arete/expr/value.h"

namespace arete::cpu {
namespace {

using expr::Instruction;
using expr::Op;
using expr::Program;
using expr::Type;
using kernels::Kernel;

/// Makes the steps of a program.
class Compiler : BlockSteps {
 public:
  Compiler(const Program& program, const CodeKey& key)
      : program_(program), key_(key), integers_(type_of_integers(program, key)) {
    code_.n_inputs = int(program.inputs().size());
    code_.n_outputs = int(program.outputs().size());
    code_.n_slots = code_.n_inputs + code_.n_outputs;
    if (key.given >= 0) code_.given = uint16_t(code_.n_slots++);
  }

  Code compile() {
    for (int k = 0; k < code_.n_inputs; ++k) {
      // A table is one address, whatever it is read at.
      const bool uniform = program_.is_table(size_t(k)) ||
                           (size_t(k) < CodeKey::kMaxUniform && (key_.uniform >> k) & 1);
      raw_.push_back(add_value(uniform, int(size_of(program_.inputs()[k])), k));
    }
    count_uses();
    find_arms();
    find_guarded();
    translate();
    write_outputs();
    allocate_registers();
    return std::move(code_);
  }

 private:
  /// A selection of an element of a table, or 0 where a place is negative: instructions.
  struct Guarded {
    int selection, table, begin, place, other;  // `place` + `other`: what decides
  };
  /// What one arm of a selection needs alone: Note [Work for one arm].
  struct Arm {
    int selection;         // the instruction
    bool wanted;           // the first arm
    std::vector<int> all;  // instructions, with those of arms in it
    int most_moved = 0;    // as of a step of `enter`
    int depth = 0;         // levels of arms in it
  };

  /// The type that values of type `t` have here.
  kernels::KType kernel_type(Type t) const {
    return t == Type::i32 ? integers_ : kernels::KType(t);
  }
  int size_of_type(Type t) const { return int(size_of(storage_type(kernel_type(t)))); }
  bool is_own_storage(DType d) const {
    const Type t = expr::compute_type(d);
    return expr::storage_type(t) == d || (t == Type::i32 && integers_ != kernels::t_i32);
  }

  void emit_arm(Code::Step::Kind kind, Kernel kernel, int out, int a, int b, bool wanted) {
    Step s{kernel, nullptr, out, {a, b, -1, -1}};
    s.kind = kind;
    s.wanted = wanted;
    if (out >= 0) values_[size_t(out)].defined = int(body_.size());
    body_.push_back(s);
  }
  void count_uses() {
    const auto code = program_.code();
    uses_.assign(code.size(), 0);
    for (const Program::Output& o : program_.outputs()) uses_[size_t(o.value)] += 2;
    for (size_t i = code.size(); i-- > 0;)
      if (is_computed(i))
        for (int o : code[i].operand)
          if (o >= 0) ++uses_[size_t(o)];
  }

  /// Not given, nor what only that is computed from.
  bool is_computed(size_t i) const { return uses_[i] > 0 && int(i) != key_.given; }

  void translate() {
    const auto code = program_.code();
    value_of_.assign(code.size(), -1);
    delayed_.assign(code.size(), false);
    if (key_.given >= 0)
      value_of_[size_t(key_.given)] =
          add_value(false, size_of_type(code[size_t(key_.given)].type), code_.given);
    translate_those_of(-1);
  }
  /// Instructions of an arm but not of one in it; -1: of none.
  void translate_those_of(int arm) {
    const auto code = program_.code();
    for (size_t i = 0; i < code.size(); ++i)
      if (arm_of_[i] == arm && is_computed(i)) value_of_[i] = translate(code[i], i);
  }

  void find_arms() {
    const auto code = program_.code();
    arm_of_.assign(code.size(), -1);
    std::vector<bool> uniform(code.size(), true);
    for (size_t i = 0; i < code.size(); ++i) {
      if (code[i].op == Op::input) uniform[i] = this->uniform(raw_[size_t(code[i].index)]);
      for (int o : code[i].operand)
        if (o >= 0 && !uniform[size_t(o)]) uniform[i] = false;
    }
    for (size_t i = 0; i < code.size(); ++i) {
      if (code[i].op != Op::select || uniform[size_t(code[i].operand[0])] || !is_computed(i))
        continue;
      for (int side = 1; side <= 2; ++side) {
        const int value = code[i].operand[size_t(side)];
        if (uses_[size_t(value)] != 1 || uniform[size_t(value)]) continue;
        Arm arm{int(i), side == 1, {}};
        double cost = 0;
        int border = 0;
        bool loads = false;
        std::vector<int> uses_here(size_t(value) + 1, 0);
        uses_here[size_t(value)] = 1;
        for (int v = value; v >= 0; --v) {
          if (uses_here[size_t(v)] == 0) continue;
          if (v == code[i].operand[0]) continue;  // known in the arm
          if (uses_here[size_t(v)] < uses_[size_t(v)] || v == key_.given ||
              expr::arity_of(code[size_t(v)].op) == 0) {
            border += !uniform[size_t(v)];
            continue;
          }
          arm.all.push_back(v);
          loads |= code[size_t(v)].op == Op::load;
          if (!uniform[size_t(v)]) cost += cost_of(code[size_t(v)].op);
          for (int o : code[size_t(v)].operand)
            if (o >= 0) ++uses_here[size_t(o)];
        }
        // Where the arm runs on all elements, positions may be none of those that do not choose it.
        if (cost < 8 || loads) continue;
        // Each value from outside, and the result, are moved for about three additions.
        const double share = 1 - 3 * (border + 1) / cost;
        arm.most_moved = share > 0 ? int(256 * share) : 0;
        for (const Arm& inner : arms_)
          if (std::find(arm.all.begin(), arm.all.end(), inner.selection) != arm.all.end())
            arm.depth = std::max(arm.depth, inner.depth + 1);
        if (arm.depth >= Code::kMaxDepth) continue;
        for (int v : arm.all)
          if (arm_of_[size_t(v)] < 0) arm_of_[size_t(v)] = int(arms_.size());
        arms_.push_back(std::move(arm));
      }
    }
  }

  // select(p >= 0, load(table, begin + max(p, 0)), 0), p = place + other: one step instead of
  // seven, what sampling does for each element around a position.
  void find_guarded() {
    const auto code = program_.code();
    absorbed_.assign(code.size(), false);
    if (integers_ != kernels::t_i32) return;
    std::vector<bool> parts(code.size(), false);
    std::vector<int> taken(code.size(), 0);  // uses by what is one step
    const auto is_zero = [&](int i) {
      const Instruction& in = code[size_t(i)];
      return in.op == Op::constant && in.value.i == 0;  // and no negative zero
    };
    for (size_t i = 0; i < code.size(); ++i) {
      const Instruction& select = code[i];
      if (select.op != Op::select || !expr::is_float(select.type) || !is_computed(i)) continue;
      const auto [test_at, load_at, zero] = select.operand;
      const Instruction &test = code[size_t(test_at)], &load = code[size_t(load_at)];
      if (test.op != Op::ge || load.op != Op::load || load.type != select.type) continue;
      const int p = test.operand[0], wide_at = load.operand[1];
      const Instruction &place = code[size_t(p)], &wide = code[size_t(wide_at)];
      if (!is_zero(zero) || !is_zero(test.operand[1])) continue;
      if (place.op != Op::add || place.type != Type::i32) continue;
      if (wide.op != Op::cast) continue;
      const int sum_at = wide.operand[0];
      const Instruction& sum = code[size_t(sum_at)];
      if (sum.op != Op::add || sum.type != Type::i32) continue;
      const bool turned = code[size_t(sum.operand[0])].op == Op::max;
      const int limit_at = sum.operand[turned ? 0 : 1];
      const Instruction& limit = code[size_t(limit_at)];
      if (limit.op != Op::max || limit.operand[0] != p || !is_zero(limit.operand[1])) continue;
      if (uses_[size_t(load_at)] != 1) continue;
      guarded_.push_back({int(i), load.operand[0], sum.operand[turned ? 1 : 0], place.operand[0],
                          place.operand[1]});
      for (int k : {test_at, load_at, wide_at, sum_at, limit_at, p}) {
        ARETE_ASSERT(arm_of_[size_t(k)] < 0);  // an arm of all uses has the load: it is none
        parts[size_t(k)] = true;
      }
      for (int k : {test_at, load_at}) ++taken[size_t(k)];
    }
    // Several selections share parts: those stay that something else uses, too.
    for (size_t i = code.size(); i-- > 0;) {
      absorbed_[i] = parts[i] && taken[i] == uses_[i];
      if (!absorbed_[i]) continue;
      for (int o : code[i].operand)
        if (o >= 0) ++taken[size_t(o)];
    }
  }
  /// What find_guarded() found of a selection; -1 if nothing, or if it is one value.
  int guarded(size_t position) {
    const auto its = std::ranges::find(guarded_, int(position), &Guarded::selection);
    if (its == guarded_.end()) return -1;
    const auto value = [&](int i) {
      if (value_of_[size_t(i)] < 0) value_of_[size_t(i)] = simple(program_.code()[size_t(i)]);
      return value_of_[size_t(i)];
    };
    const Operands v{value(its->table), value(its->begin), value(its->place), value(its->other)};
    int scalars = 0;
    for (int k = 0; k < 3; ++k) scalars |= int(uniform(v[size_t(k) + 1])) << k;
    const size_t input = size_t(program_.code()[size_t(its->table)].index);
    const kernels::ChooseKernel kernel = table_.look_up_if[int(program_.inputs()[input])][scalars];
    if (scalars == 7 || !kernel) return -1;
    const int out = add_value(false, size_of_type(program_.code()[position].type));
    values_[size_t(out)].defined = int(body_.size());
    body_.push_back({nullptr, kernel, out, v, 0, Code::Step::choose});
    code_.cost += 3;
    return out;
  }

  /// A selection with an arm of its own steps; -1 if it has none.
  int by_arms(const Instruction& in, size_t position) {
    std::array<int, 4> v{-1, -1, -1, -1};
    const size_t first_kept = kept_.size();
    bool any = false;
    for (size_t k = 0; k < arms_.size(); ++k) {
      if (arms_[k].selection != int(position)) continue;
      v[0] = operand(in, 0);
      v[arms_[k].wanted ? 1 : 2] = run_arm(in, int(k), v[0]);
      any = true;
    }
    if (!any) return -1;
    int mask = 0;
    for (int k = 0; k < 3; ++k) {
      if (v[size_t(k)] < 0) v[size_t(k)] = operand(in, k);
      mask |= int(uniform(v[size_t(k)])) << k;
    }
    const int size = size_of_type(in.type);
    for (size_t k = first_kept; k < kept_.size(); ++k) kept_[k].second = int(body_.size());
    code_.cost += 1;
    return compute(table_.select[size][mask], size, {v[0], v[1], v[2]});
  }

  /// The value of an arm with anything in the places of elements that do not choose it.
  int run_arm(const Instruction& in, int k, int condition) {
    const auto code = program_.code();
    const Arm& arm = arms_[size_t(k)];
    const size_t enter = body_.size();
    emit_arm(Code::Step::enter, nullptr, -1, condition, -1, arm.wanted);
    std::vector<std::pair<int, int>> outside;  // instructions and their values
    for (int i : arm.all)
      for (int o : code[size_t(i)].operand) {
        if (o < 0 || std::find(arm.all.begin(), arm.all.end(), o) != arm.all.end()) continue;
        if (o == in.operand[0]) continue;
        int& value = value_of_[size_t(o)];
        if (uniform(value) || std::any_of(outside.begin(), outside.end(),
                                          [&](const auto& other) { return other.first == o; }))
          continue;
        const int size = values_[size_t(value)].size, moved = add_value(false, size);
        emit_arm(Code::Step::compress, table_.compress[size][arm.wanted], moved, value, condition,
                 arm.wanted);
        values_[size_t(moved)].moved = true;
        kept_.push_back({value, 0});
        outside.push_back({o, value});
        value = moved;
      }
    // In its arm a condition is known.
    known_.push_back({in.operand[0], arm.wanted});
    int& known = value_of_[size_t(in.operand[0])];
    known = add_cell(1);
    code_.cells.back().type = Type::boolean;
    code_.cells.back().bits = arm.wanted;
    translate_those_of(k);
    const int result = operand(in, arm.wanted ? 1 : 2);
    known = condition;
    known_.pop_back();
    for (const auto& [o, value] : outside) value_of_[size_t(o)] = value;
    if (uniform(result)) {  // known conditions can leave a number of the arm
      body_.resize(enter);
      return result;
    }
    const int size = values_[size_t(result)].size, out = add_value(false, size);
    emit_arm(Code::Step::leave, table_.expand[size][arm.wanted], out, result, condition,
             arm.wanted);
    values_[size_t(out)].moved = true;
    values_[size_t(result)].result = true;  // what `out` may point to
    body_[enter].number = int(body_.size() - 1 - enter);
    body_[enter].most_moved = arm.most_moved;
    return out;
  }

  int operand(const Instruction& in, int k) {
    const int i = in.operand[size_t(k)];
    // An instruction that its only use could not do on the way.
    if (value_of_[size_t(i)] < 0) value_of_[size_t(i)] = simple(program_.code()[size_t(i)]);
    return value_of_[size_t(i)];
  }

  int translate(const Instruction& in, size_t position) {
    if (absorbed_[position]) return delay(position);
    switch (in.op) {
      case Op::input: {
        const int raw = raw_[size_t(in.index)];
        code_.reads |= uint32_t(1) << (in.index & 31);
        const DType storage = program_.inputs()[size_t(in.index)];
        if (is_own_storage(storage) || program_.is_table(size_t(in.index))) return raw;
        code_.cost += uniform(raw) ? 0 : 1;
        return compute(table_.load[int(storage)], size_of_type(in.type), {raw, -1, -1});
      }
      case Op::param:
      case Op::constant: {
        const int v = add_cell(size_of_type(in.type));
        Code::Cell& cell = code_.cells.back();
        cell.type = in.type;
        if (in.op == Op::param) {
          cell.param = int16_t(in.index);
          cell.in_memory = program_.has_in_memory(size_t(in.index));
        } else {
          cell.bits = cell_bits(in.type, in.value);
        }
        return v;
      }
      case Op::min:
      case Op::max:
        if (const int v = limits(in); v >= 0) return v;
        if (uses_[position] == 1) return delay(position);
        break;
      case Op::eq:
      case Op::ne:
      case Op::lt:
      case Op::le:
      case Op::gt:
      case Op::ge:
      case Op::is_nan:
        if (uses_[position] == 1) return delay(position);
        break;
      case Op::select:
        for (const auto& [condition, is_true] : known_)
          if (condition == in.operand[0]) return operand(in, is_true ? 1 : 2);
        if (const int v = guarded(position); v >= 0) return v;
        if (const int v = by_arms(in, position); v >= 0) return v;
        if (const int v = choice(in); v >= 0) return v;
        break;
      default:
        break;
    }
    return simple(in);
  }

  /// Leaves an instruction to its only use, which may do its work as well.
  int delay(size_t position) {
    delayed_[position] = true;
    return -1;
  }
  bool is_delayed(int value) const {
    return delayed_[size_t(value)] && value_of_[size_t(value)] < 0;
  }

  /// max(min(a, b), c) or min(max(a, b), c) of a value and two scalars as one step.
  int limits(const Instruction& in) {
    if (!is_delayed(in.operand[0])) return -1;
    const Instruction& inner = program_.code()[size_t(in.operand[0])];
    if (inner.op != (in.op == Op::max ? Op::min : Op::max)) return -1;
    const int a = operand(inner, 0), b = operand(inner, 1), c = operand(in, 1);
    const kernels::Triple limits =
        in.op == Op::max ? kernels::triple_min_max : kernels::triple_max_min;
    const Kernel kernel = table_.triple[limits][kernel_type(in.type)][6];
    if (uniform(a) || !uniform(b) || !uniform(c) || !kernel) return -1;
    code_.cost += 1;
    return compute(kernel, size_of_type(in.type), {a, b, c});
  }

  /// A selection by a comparison of values of its own size, which is done on the way.
  int choice(const Instruction& in) {
    if (!is_delayed(in.operand[0])) return -1;
    const Instruction& test = program_.code()[size_t(in.operand[0])];
    const bool nan = test.op == Op::is_nan, turned = test.op == Op::gt || test.op == Op::ge;
    int a = operand(test, 0), b = nan ? a : operand(test, 1);
    const Type type = program_.code()[size_t(test.operand[0])].type;
    const int size = size_of_type(in.type);
    if (size_of_type(type) != size || (uniform(a) && uniform(b))) return -1;
    const kernels::Comparison comparison = test.op == Op::eq          ? kernels::compare_eq
                                           : test.op == Op::ne || nan ? kernels::compare_ne
                                           : test.op == Op::lt || test.op == Op::gt
                                               ? kernels::compare_lt
                                               : kernels::compare_le;
    const kernels::ChooseKernel* const kernels = table_.choose[comparison][kernel_type(type)];
    if (!kernels[0]) return -1;
    if (turned) std::swap(a, b);
    const int c = operand(in, 1), d = operand(in, 2);
    const int out = add_value(false, size);
    values_[size_t(out)].defined = int(body_.size());
    const int scalars =
        int(uniform(a)) | int(uniform(b)) << 1 | int(uniform(c)) << 2 | int(uniform(d)) << 3;
    body_.push_back({nullptr, kernels[scalars], out, {a, b, c, d}, 0, Code::Step::choose});
    code_.cost += 2;
    return out;
  }

  int simple(const Instruction& in) {
    const auto code = program_.code();
    const int size = size_of_type(in.type);
    const int n = expr::arity_of(in.op);
    std::array<int, 3> v{-1, -1, -1};
    for (int k = 0; k < n; ++k) v[size_t(k)] = operand(in, k);
    const Type type = code[size_t(in.operand[0])].type;
    switch (in.op) {
      case Op::cast:
        if (type == in.type) return v[0];
        code_.cost += 1;
        return compute(table_.cast[kernel_type(type)][kernel_type(in.type)], size, v);
      case Op::round_to:
        if (is_own_storage(DType(in.index))) return v[0];
        code_.cost += 2;
        return compute(table_.round_to[in.index], size, v);
      case Op::load: {
        const size_t input = size_t(code[size_t(in.operand[0])].index);
        code_.cost += uniform(v[1]) ? 0 : 2;
        return compute(table_.look_up[int(program_.inputs()[input])], size, v);
      }
      case Op::select:
      case Op::mul_add:
      case Op::mul_sub:
      case Op::sub_mul: {
        int mask = 0;
        for (int k = 0; k < 3; ++k) mask |= int(uniform(v[size_t(k)])) << k;
        code_.cost += 1;
        const Kernel* const kernels = in.op == Op::select
                                          ? table_.select[size]
                                          : table_.triple[kernels::triple_mul_add + int(in.op) -
                                                          int(Op::mul_add)][kernel_type(type)];
        return compute(kernels[mask == 7 ? 0 : mask], size, v);
      }
      default:
        break;
    }
    if (in.op == Op::polynomial) {  // what it is of is a third operand
      v[2] = add_cell(8);
      code_.cells.back().bits = uint64_t(in.index);
    }
    bool all_uniform = true;
    for (int k = 0; k < n; ++k) all_uniform &= uniform(v[size_t(k)]);
    if (!all_uniform) code_.cost += cost_of(in.op) * std::max(1, size / 4);
    if (n == 1) return compute(table_.unary[int(in.op)][kernel_type(type)], size, v);
    const int variant = all_uniform || uniform(v[0]) == uniform(v[1]) ? kernels::vv
                        : uniform(v[1])                               ? kernels::vs
                                                                      : kernels::sv;
    return compute(table_.binary[int(in.op)][kernel_type(type)][variant], size, v);
  }

  /// The value of output `k` as the computation type of its storage type.
  int output_value(int k) {
    const Program::Output& o = program_.outputs()[size_t(k)];
    const Type from = program_.code()[size_t(o.value)].type, to = expr::compute_type(o.dtype);
    const int v = value_of_[size_t(o.value)];
    return from == to ? v
                      : compute(table_.cast[kernel_type(from)][kernel_type(to)], size_of_type(to),
                                {v, -1, -1});
  }

  void write_outputs() {
    struct Late {
      Kernel kernel;
      int slot_value, value;
    };
    std::vector<Late> late;
    for (int k = 0; k < code_.n_outputs; ++k) {
      const DType dtype = program_.outputs()[size_t(k)].dtype;
      int v = output_value(k);
      const bool own = is_own_storage(dtype);
      if (key_.values) {
        if (!own) v = compute(table_.round_to[int(dtype)], values_[size_t(v)].size, {v, -1, -1});
        if (uniform(v)) {
          const int size = values_[size_t(v)].size;
          const int out = add_value(false, size);
          emit(table_.splat[size], out, {v, -1, -1});
          v = out;
        }
        values_[size_t(v)].result = true;
        results_.push_back({v, -1});
        continue;
      }
      const int slot = code_.n_inputs + k;
      const int size = int(size_of(dtype));
      if (!own) code_.cost += 1;
      if (uniform(v)) {
        if (!own) v = compute(table_.store[int(dtype)], size, {v, -1, -1});
        late.push_back({table_.splat[size], add_value(false, size, slot), v});
      } else if (!own) {
        late.push_back({table_.store[int(dtype)], add_value(false, size, slot), v});
      } else if (values_[size_t(v)].slot < 0 && alias_safe(k, v)) {
        values_[size_t(v)].slot = slot;  // computed where it belongs
      } else {
        // An input that another output overwrites must be saved first.
        if (overwritten(v)) v = compute(copy_kernel(size), size, {v, -1, -1});
        late.push_back({copy_kernel(size), add_value(false, size, slot), v});
      }
    }
    if (key_.values) leave_to_accumulation(key_.monoid);
    // All reads come before: an output may be in the place of any input.
    for (const Late& l : late) emit(l.kernel, l.slot_value, {l.value, -1, -1});
    if (!arms_.empty()) return;
    if (late.size() == 1 && !key_.values) join_half_arithmetic();
    if (key_.fixed != 0) put_first(raw_, key_.fixed);
    join_arithmetic();
  }

  template <int kSize>
  static void copy_block(void* out, const void* a, const void*, const void*, int64_t n) {
    if (out != a) __builtin_memcpy(out, a, size_t(n) * kSize);
  }
  static Kernel copy_kernel(int size) {
    return size == 1   ? copy_block<1>
           : size == 2 ? copy_block<2>
           : size == 4 ? copy_block<4>
                       : copy_block<8>;
  }

  bool overwritten(int value) const {
    if (code_.n_outputs > CodeKey::kMaxAliased) return true;  // not known
    for (int k = 0; k < code_.n_outputs; ++k)
      if (const int input = key_.alias_of(k); input != 31 && raw_[size_t(input)] == value)
        return true;
    return false;
  }

  /// Whether writing output k when its value is computed spoils no later read.
  bool alias_safe(int k, int value) const {
    const int input = key_.alias_of(k);
    if (k >= CodeKey::kMaxAliased) return false;  // not known
    if (input == 31) return true;
    const int raw = raw_[size_t(input)];
    for (size_t s = size_t(values_[size_t(value)].defined) + 1; s < body_.size(); ++s)
      for (int v : body_[s].in)
        if (v == raw) return false;
    // Other outputs that are copies of the input read it at the end.
    for (const Program::Output& o : program_.outputs())
      if (value_of_[size_t(o.value)] == raw) return false;
    return true;
  }

  void allocate_registers() {
    for (size_t s = 0; s < body_.size(); ++s)
      for (int v : body_[s].in)
        if (v >= 0) values_[size_t(v)].last_use = int(s);
    for (const auto& [v, until] : kept_)
      values_[size_t(v)].last_use = std::max(values_[size_t(v)].last_use, until);
    struct Free {
      int size;
      int slot;
    };
    std::vector<Free> free;
    std::vector<Free> registers;  // all
    auto release = [&](int v, int s) {
      const Value& value = values_[size_t(v)];
      if (value.uniform || value.result || value.moved || value.last_use > s ||
          !in_register_[size_t(v)])
        return;
      in_register_[size_t(v)] = false;
      free.push_back({value.size, value.slot});
    };
    auto place = [&](int v) {
      Value& value = values_[size_t(v)];
      if (value.slot >= 0) return;
      in_register_[size_t(v)] = true;
      for (size_t f = 0; f < free.size(); ++f) {
        if (value.moved || free[f].size != value.size) continue;
        value.slot = free[f].slot;
        free.erase(free.begin() + int64_t(f));
        return;
      }
      value.slot = code_.n_slots++;
      registers.push_back({value.size, value.slot});
    };
    in_register_.assign(values_.size(), false);
    for (size_t s = 0; s < body_.size(); ++s) {
      const Step& step = body_[s];
      if (step.out < 0) continue;
      const int size = values_[size_t(step.out)].size;
      // A kernel may work in place if the sizes are equal.
      for (int v : step.in)
        if (v >= 0 && values_[size_t(v)].size == size) release(v, int(s));
      place(step.out);
      for (int v : step.in)
        if (v >= 0) release(v, int(s));
      for (const auto& [v, until] : kept_)
        if (until == int(s)) release(v, int(s));
    }
    size_t bytes = 0;
    for (const Free& r : registers) bytes += size_t(r.size);
    if (bytes > 0) {
      constexpr size_t kBudget = 24 << 10;  // leaves room for inputs and outputs in L1
      // Twice the block where all of them fit in easily: half as many steps to start.
      constexpr size_t kEasily = 32 << 10;
      size_t all = bytes;
      for (int v : raw_)
        if (!uniform(v)) all += size_t(values_[size_t(v)].size);
      for (const Program::Output& o : program_.outputs()) all += size_of(o.dtype);
      code_.block = all * 2048 <= kEasily ? 2048 : 1024;
      while (code_.block > 256 && bytes * size_t(code_.block) > kBudget) code_.block /= 2;
    }
    for (const Free& r : registers) {
      code_.registers.push_back({uint16_t(r.slot), uint32_t(code_.register_bytes)});
      code_.register_bytes += size_t(code_.block) * size_t(r.size);
    }
    ARETE_ASSERT(code_.n_slots < Code::kNone && body_.size() < Code::kNone);
    auto slot = [&](int v) { return uint16_t(v < 0 ? 0 : values_[size_t(v)].slot); };
    auto copy = [&](const std::vector<Step>& from, std::vector<Code::Step>& to) {
      for (const Step& s : from)
        to.push_back({s.kernel, s.choose, slot(s.out), slot(s.in[0]), slot(s.in[1]), slot(s.in[2]),
                      slot(s.in[3]), uint16_t(s.number), s.kind, s.wanted, uint16_t(s.most_moved)});
    };
    copy(once_, code_.once);
    copy(body_, code_.body);
    for (Code::Step& s : code_.body)
      if (s.kind == Code::Step::compress || s.kind == Code::Step::leave)
        for (size_t r = 0; r < code_.registers.size(); ++r)
          if (code_.registers[r].slot == s.out) s.number = uint16_t(r);
    for (size_t k = 0; k < results_.size(); ++k)
      code_.results.push_back({slot(results_[k].value),
                               results_[k].factor < 0 ? Code::kNone : slot(results_[k].factor),
                               results_[k].squares, results_[k].from_number,
                               results_[k].numbers_only, results_[k].opposites, results_[k].halves,
                               kernel_type(expr::compute_type(program_.outputs()[k].dtype))});
  }

  const Program& program_;
  const CodeKey key_;
  const kernels::KType integers_;  // of type i32
  std::vector<int> raw_, value_of_, uses_;
  std::vector<bool> delayed_, in_register_;
  std::vector<Guarded> guarded_;
  std::vector<bool> absorbed_;  // instructions that only a guarded selection needs
  std::vector<Arm> arms_;
  std::vector<int> arm_of_;                  // per instruction; -1: of none
  std::vector<std::pair<int, bool>> known_;  // conditions of the arms around, and what they are
  std::vector<std::pair<int, int>> kept_;    // values and the steps that they are needed until
};

}  // namespace

double cost_of(Op op) {
  switch (op) {
    case Op::digamma:
      return 190;
    case Op::lgamma:
    case Op::gcd:
      return 90;
    case Op::asinh:
    case Op::acosh:
    case Op::pow:
      return 45;
    case Op::atanh:
    case Op::erfinv:
    case Op::atan2:
      return 28;
    case Op::polynomial:
      return 20;
    case Op::floor_div:
    case Op::fmod:
    case Op::remainder:
      return 5;
    case Op::sqrt:
    case Op::rsqrt:
    case Op::reciprocal:
    case Op::div:
      return 2;
    default:
      return op >= Op::exp && op <= Op::sigmoid ? 8 : 1;
  }
}

Code compile_block(const Program& program, const CodeKey& key) {
  return Compiler(program, key).compile();
}

}  // namespace arete::cpu
