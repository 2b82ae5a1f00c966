#include "arete/backend/cpu/interpreter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <optional>

#include "arete/base/error.h"
#include "arete/core/device.h"
#include "arete/expr/value.h"

namespace arete::cpu {
namespace {

using expr::Instruction;
using expr::Op;
using expr::Program;
using expr::Type;
using kernels::Kernel;

/// Numbers from `low` to `high`.
struct Range {
  int64_t low, high;
  bool holds(const Range& r) const { return low <= r.low && r.high <= high; }
};
constexpr Range kAllOfI32{INT32_MIN, INT32_MAX};

Range range_of(DType d) {
  switch (d) {
    case DType::u8:
      return {0, UINT8_MAX};
    case DType::i8:
      return {INT8_MIN, INT8_MAX};
    case DType::i16:
      return {INT16_MIN, INT16_MAX};
    default:
      return kAllOfI32;
  }
}

/// The narrow storage type that all of the program's integers of type i32 come from and go to; i32
/// if there is another or none. What an accumulator takes (`values`) goes nowhere.
DType narrow_storage(const Program& program, bool values) {
  std::optional<DType> found;
  const auto meets = [&](DType d) {
    if (expr::compute_type(d) == Type::i32) found = !found || *found == d ? d : DType::i32;
  };
  for (const Instruction& in : program.code()) {
    if (in.op == Op::input) meets(program.inputs()[size_t(in.index)]);
    if (in.op == Op::round_to) meets(DType(in.index));
  }
  for (const Program::Output& o : program.outputs())
    if (!values || o.dtype != DType::i32) meets(o.dtype);
  return found.value_or(DType::i32);
}

/// The range of an i32 that is made of such operands; nothing if what it is of them depends on more
/// than their last bits, which only operands in `held` are known by.
std::optional<Range> range_of_result(const Instruction& in, const Range& held, const Range& a,
                                     const Range& b, const Range& c) {
  const auto within = [](int64_t low, int64_t high) {
    const Range r{low, high};
    return kAllOfI32.holds(r) ? r : kAllOfI32;
  };
  const bool both_held = held.holds(a) && held.holds(b);
  switch (in.op) {
    case Op::add:
      return within(a.low + b.low, a.high + b.high);
    case Op::sub:
      return within(a.low - b.high, a.high - b.low);
    case Op::mul: {
      const auto [low, high] =
          std::minmax({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
      return within(low, high);
    }
    case Op::neg:
      return within(-a.high, -a.low);
    case Op::bit_not:
      return Range{~a.high, ~a.low};
    case Op::bit_and:
    case Op::bit_or:
    case Op::bit_xor:
      return both_held ? held : kAllOfI32;
    case Op::select:
      return Range{std::min(b.low, c.low), std::max(b.high, c.high)};
    case Op::shl:
      if (held.holds(b)) return kAllOfI32;
      break;
    case Op::shr:
      if (both_held) return held;
      break;
    case Op::abs:
      if (held.holds(a)) return Range{0, std::max(-a.low, a.high)};
      break;
    case Op::sign:
      if (held.holds(a)) return Range{a.low < 0 ? -1 : 0, 1};
      break;
    case Op::min:
      if (both_held) return Range{std::min(a.low, b.low), std::min(a.high, b.high)};
      break;
    case Op::max:
      if (both_held) return Range{std::max(a.low, b.low), std::max(a.high, b.high)};
      break;
    default:
      break;
  }
  return std::nullopt;
}

/// The type to compute the program's integers of type i32 in: Note [Narrow integers].
kernels::KType type_of_integers(const Program& program, const CodeKey& key) {
  const DType storage = narrow_storage(program, key.values);
  // There are no kernels of u16.
  if (storage == DType::i32 || storage == DType::u16) return kernels::t_i32;
  const Range held = range_of(storage);
  const auto code = program.code();
  std::vector<Range> ranges(code.size(), kAllOfI32);  // of those of type i32
  const auto is_held = [&](int i) {
    return code[size_t(i)].type != Type::i32 || held.holds(ranges[size_t(i)]);
  };
  for (size_t i = 0; i < code.size(); ++i) {
    const Instruction& in = code[i];
    if (in.type != Type::i32) {
      for (int o : in.operand)
        if (o >= 0 && !is_held(o)) return kernels::t_i32;
      continue;
    }
    const auto of_operand = [&](int k) {
      return in.operand[size_t(k)] < 0 ? Range{0, 0} : ranges[size_t(in.operand[size_t(k)])];
    };
    switch (in.op) {
      case Op::input:
      case Op::round_to:
        ranges[i] = held;
        break;
      case Op::param:
        if (key.narrow_params) ranges[i] = held;
        break;
      case Op::constant:
        ranges[i] = {in.value.i, in.value.i};
        break;
      case Op::cast:
        if (code[size_t(in.operand[0])].type == Type::boolean) ranges[i] = {0, 1};
        break;
      default: {
        const auto range = range_of_result(in, held, of_operand(0), of_operand(1), of_operand(2));
        if (!range) return kernels::t_i32;
        ranges[i] = *range;
      }
    }
  }
  for (const Program::Output& o : program.outputs())
    if (o.dtype != storage && !is_held(o.value)) return kernels::t_i32;
  return storage == DType::u8   ? kernels::t_u8
         : storage == DType::i8 ? kernels::t_i8
                                : kernels::t_i16;
}

uint64_t cell_bits(Type type, expr::Literal v) {
  switch (type) {
    case Type::boolean:
      return uint64_t(v.i != 0);
    case Type::i32:
      return uint64_t(uint32_t(int32_t(v.i)));
    case Type::i64:
    case Type::u64:
      return uint64_t(v.i);
    case Type::f32:
      return std::bit_cast<uint32_t>(float(v.f));
    case Type::f64:
      return std::bit_cast<uint64_t>(v.f);
  }
  __builtin_unreachable();
}

/// Rough costs in additions of f32.
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

class Compiler {
 public:
  Compiler(const Program& program, const CodeKey& key)
      : program_(program),
        key_(key),
        table_(kernels::table()),
        integers_(type_of_integers(program, key)) {
    code_.n_inputs = int(program.inputs().size());
    code_.n_outputs = int(program.outputs().size());
    code_.n_slots = code_.n_inputs + code_.n_outputs;
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
  struct Value {
    bool uniform;
    int size;                         // bytes of an element
    int slot;                         // -1: not placed yet
    int defined = -1, last_use = -1;  // in steps of the body
    bool result = false;              // needed after the body
    bool moved = false;               // its slot may point elsewhere: never another's
  };
  struct Factors {
    int value, factor;
    bool numbers_only = false, squares = false, opposites = false;
    DType halves = DType::f32;
  };
  /// A selection of an element of a table, or 0 where a place is negative: instructions.
  struct Guarded {
    int selection, table, begin, place, other;  // `place` + `other`: what decides
  };
  using Operands = std::array<int, 4>;
  struct Step {
    Kernel kernel;
    kernels::ChooseKernel choose;
    int out;
    Operands in{-1, -1, -1, -1};
    int number = 0;
    Code::Step::Kind kind = Code::Step::kernel;
    bool wanted = true;
    int most_moved = 0;
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

  int add_value(bool uniform, int size, int slot = -1) {
    values_.push_back({uniform, size, slot});
    return int(values_.size()) - 1;
  }
  int add_cell(int size) {
    const int slot = code_.n_slots++;
    code_.cells.push_back({uint16_t(slot), -1, false, Type::i64, 0});
    return add_value(true, size, slot);
  }

  void emit(Kernel kernel, int out, std::array<int, 3> in) {
    ARETE_ASSERT(kernel != nullptr);
    std::vector<Step>& steps = values_[size_t(out)].uniform ? once_ : body_;
    if (!values_[size_t(out)].uniform) values_[size_t(out)].defined = int(body_.size());
    steps.push_back({kernel, nullptr, out, {in[0], in[1], in[2], -1}});
  }
  void emit_arm(Code::Step::Kind kind, Kernel kernel, int out, int a, int b, bool wanted) {
    Step s{kernel, nullptr, out, {a, b, -1, -1}};
    s.kind = kind;
    s.wanted = wanted;
    if (out >= 0) values_[size_t(out)].defined = int(body_.size());
    body_.push_back(s);
  }
  /// A new value computed by `kernel`; uniform if all operands are.
  int compute(Kernel kernel, int size, std::array<int, 3> in) {
    bool uniform = true;
    for (int v : in) uniform &= v < 0 || values_[size_t(v)].uniform;
    const int out = uniform ? add_cell(size) : add_value(false, size);
    emit(kernel, out, in);
    return out;
  }
  bool uniform(int value) const { return values_[size_t(value)].uniform; }

  void count_uses() {
    const auto code = program_.code();
    uses_.assign(code.size(), 0);
    for (const Instruction& in : code)
      for (int o : in.operand)
        if (o >= 0) ++uses_[size_t(o)];
    for (const Program::Output& o : program_.outputs()) uses_[size_t(o.value)] += 2;
  }

  void translate() {
    const auto code = program_.code();
    value_of_.assign(code.size(), -1);
    delayed_.assign(code.size(), false);
    translate_those_of(-1);
  }
  /// Instructions of an arm but not of one in it; -1: of none.
  void translate_those_of(int arm) {
    const auto code = program_.code();
    for (size_t i = 0; i < code.size(); ++i)
      if (arm_of_[i] == arm) value_of_[i] = translate(code[i], i);
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
      if (code[i].op != Op::select || uniform[size_t(code[i].operand[0])]) continue;
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
          if (uses_here[size_t(v)] < uses_[size_t(v)] || expr::arity_of(code[size_t(v)].op) == 0) {
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
      if (select.op != Op::select || !expr::is_float(select.type)) continue;
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
    if (key_.values) leave_to_accumulation();
    // All reads come before: an output may be in the place of any input.
    for (const Late& l : late) emit(l.kernel, l.slot_value, {l.value, -1, -1});
    if (late.size() == 1 && !key_.values && arms_.empty()) join_half_arithmetic();
  }

  /// Where the last step stores halves which the one before computes of halves or numbers: one step
  /// on halves as they are stored.
  void join_half_arithmetic() {
    if (body_.size() < 3) return;
    const Step last = body_.back(), middle = body_[body_.size() - 2];
    const auto variant = half_arithmetic(last, middle);
    if (!variant) return;
    const auto [kernel, d] = *variant;
    std::array<int, 3> in{middle.in[0], middle.in[1], -1};
    for (int& v : in) {
      if (v < 0 || uniform(v)) continue;
      const auto load = std::ranges::find(body_, v, &Step::out);
      if (load == body_.end() || load->kernel != table_.load[int(d)]) return;
      v = load->in[0];
    }
    // Nothing but the loads, which nobody else needs then.
    const size_t loads = size_t(in[0] != middle.in[0]) +
                         size_t(in[1] != middle.in[1] && middle.in[1] != middle.in[0]);
    if (body_.size() != loads + 2) return;
    body_.clear();
    emit(kernel, last.out, in);
  }
  /// The kernel on halves for `arithmetic` and a step that stores what it gives, and their dtype.
  std::optional<std::pair<Kernel, DType>> half_arithmetic(const Step& store,
                                                          const Step& arithmetic) const {
    if (store.in[0] != arithmetic.out || arithmetic.kind != Code::Step::kernel) return std::nullopt;
    for (DType d : {DType::f16, DType::bf16})
      for (Op op : {Op::add, Op::sub, Op::mul, Op::div, Op::min, Op::max})
        for (int v = 0; v < kernels::kNumVariants; ++v)
          if (store.kernel == table_.store[int(d)] && table_.half_binary[int(op)][int(d)][v] &&
              arithmetic.kernel == table_.binary[int(op)][int(Type::f32)][v])
            return std::pair(table_.half_binary[int(op)][int(d)][v], d);
    return std::nullopt;
  }

  /// Leaves products, squares of differences, selections of what is not NaN, opposites, and
  /// conversions of halves, that are results only to who accumulates them.
  void leave_to_accumulation() {
    for (Factors& r : results_) {
      auto step = step_for_result(r);
      if (key_.monoid == kernels::m_min && step != body_.end() && is_opposite(*step)) {
        r.opposites = true;
        r.value = step->in[0];
        body_.erase(step);
        values_[size_t(r.value)].result = true;
        step = step_for_result(r);
      }
      if (step == body_.end() || key_.monoid == kernels::kNumKMonoids) continue;
      for (DType d : {DType::f16, DType::bf16})
        if (step->kernel == table_.load[int(d)] && table_.half_rows[key_.monoid][int(d)])
          r.halves = d;
      if (r.halves != DType::f32) {
        r.value = step->in[0];
        body_.erase(step);
        continue;
      }
      if (key_.monoid != kernels::m_sum) continue;
      bool is_product = false, is_number = false;
      for (Type t : {Type::f32, Type::f64}) {
        is_product |= step->kernel == table_.binary[int(Op::mul)][int(t)][kernels::vv];
        is_number |= step->choose == table_.choose[kernels::compare_eq][int(t)][8];
      }
      const auto [a, b, c, d] = step->in;
      is_product &= step->kind == Code::Step::kernel;
      is_number &= step->kind == Code::Step::choose && a == b && a == c && is_zero(d);
      if (!is_product && !is_number) continue;
      r = {a, is_product ? b : -1, is_number};
      body_.erase(step);
      if (is_product && a == b) leave_difference(r);
      values_[size_t(r.value)].result = true;
      if (is_product) values_[size_t(r.factor)].result = true;
    }
  }
  /// The step that makes what only this result is; the end if there is none.
  std::vector<Step>::iterator step_for_result(const Factors& r) {
    const auto reads = [&](const Step& s) { return std::ranges::count(s.in, r.value) > 0; };
    if (std::ranges::any_of(body_, reads) ||
        std::ranges::count(results_, r.value, &Factors::value) > 1)
      return body_.end();
    return std::ranges::find(body_, r.value, &Step::out);
  }
  bool is_opposite(const Step& s) const {
    if (s.kind != Code::Step::kernel) return false;
    for (int t = 0; t < kernels::kNumKTypes; ++t) {
      const Op op = t == kernels::t_f32 || t == kernels::t_f64 ? Op::neg : Op::bit_not;
      if (table_.opposite_rows[t] && s.kernel == table_.unary[int(op)][t]) return true;
    }
    return false;
  }
  /// Of a square: of a difference that nobody else reads.
  void leave_difference(Factors& r) {
    const auto step = std::ranges::find(body_, r.value, &Step::out);
    if (step == body_.end() || step->kind != Code::Step::kernel) return;
    const auto reads = [&](const Step& s) { return std::ranges::count(s.in, r.value) > 0; };
    const bool is_difference = std::ranges::any_of(std::array{Type::f32, Type::f64}, [&](Type t) {
      return step->kernel == table_.binary[int(Op::sub)][int(t)][kernels::vv];
    });
    if (!is_difference || std::ranges::any_of(body_, reads) ||
        std::ranges::any_of(results_, [&](const Factors& other) {
          return &other != &r && (other.value == r.value || other.factor == r.value);
        }))
      return;
    r.value = step->in[0], r.factor = step->in[1], r.squares = true;
    body_.erase(step);
  }
  bool is_zero(int value) const {
    return uniform(value) && std::ranges::any_of(code_.cells, [&](const Code::Cell& cell) {
             return cell.slot == values_[size_t(value)].slot && cell.param < 0 && cell.bits == 0 &&
                    std::ranges::find(once_, value, &Step::out) == once_.end();
           });
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
      code_.results.push_back(
          {slot(results_[k].value), results_[k].factor < 0 ? Code::kNone : slot(results_[k].factor),
           results_[k].squares, results_[k].numbers_only, results_[k].opposites, results_[k].halves,
           kernel_type(expr::compute_type(program_.outputs()[k].dtype))});
  }

  const Program& program_;
  const CodeKey key_;
  const kernels::KernelTable& table_;
  const kernels::KType integers_;  // of type i32
  Code code_;
  std::vector<Value> values_;
  std::vector<int> raw_, value_of_, uses_;
  std::vector<Factors> results_;
  std::vector<bool> delayed_, in_register_;
  std::vector<Guarded> guarded_;
  std::vector<bool> absorbed_;  // instructions that only a guarded selection needs
  std::vector<Arm> arms_;
  std::vector<int> arm_of_;                  // per instruction; -1: of none
  std::vector<std::pair<int, bool>> known_;  // conditions of the arms around, and what they are
  std::vector<std::pair<int, int>> kept_;    // values and the steps that they are needed until
  std::vector<Step> once_, body_;
};

/// All code of one program; a list that only grows.
class CompiledProgram final : public expr::Compiled {
 public:
  ~CompiledProgram() override {
    for (Node* n = head_.load(); n;) delete std::exchange(n, n->next);
  }

  const Code& find(const Program& program, const CodeKey& key) {
    Node* const first = head_.load(std::memory_order_acquire);
    for (Node* n = first; n; n = n->next)
      if (n->key == key) return n->code;
    std::lock_guard lock(mutex_);
    for (Node* n = head_.load(std::memory_order_relaxed); n != first; n = n->next)
      if (n->key == key) return n->code;
    Node* n =
        new Node{key, Compiler(program, key).compile(), head_.load(std::memory_order_relaxed)};
    head_.store(n, std::memory_order_release);
    return n->code;
  }

 private:
  struct Node {
    CodeKey key;
    Code code;
    Node* next;
  };
  std::atomic<Node*> head_{nullptr};
  std::mutex mutex_;
};

}  // namespace

const Code& code_for(const Program& program, const CodeKey& key) {
  expr::Compiled* form = program.compiled(int(DeviceType::cpu));
  if (!form) [[unlikely]]
    form = program.install(int(DeviceType::cpu), std::make_unique<CompiledProgram>());
  return static_cast<CompiledProgram*>(form)->find(program, key);
}

bool has_narrow_params(const Program& program, std::span<const expr::Literal> params) {
  bool any = false;
  for (Type t : program.params()) any |= t == Type::i32;
  if (!any) return false;
  const DType storage = narrow_storage(program, false);
  if (storage == DType::i32) return false;
  const Range held = range_of(storage);
  for (size_t k = 0; k < params.size(); ++k)
    if (program.params()[k] == Type::i32 &&
        (program.has_in_memory(k) || !held.holds({params[k].i, params[k].i})))
      return false;
  return true;
}

Frame::Frame(const Code& code, std::span<const expr::Literal> params, std::byte* registers)
    : code_(code), registers_(registers) {
  slots_.resize(size_t(code.n_slots), nullptr);
  cells_.resize(code.cells.size(), 0);
  for (size_t k = 0; k < code.cells.size(); ++k) {
    const Code::Cell& cell = code.cells[k];
    if (cell.param < 0) {
      cells_[k] = cell.bits;
    } else {
      const expr::Literal p = params[size_t(cell.param)];
      cells_[k] =
          cell_bits(cell.type, cell.in_memory ? *reinterpret_cast<const expr::Literal*>(p.i) : p);
    }
    slots_[cell.slot] = &cells_[k];
  }
  for (const Code::Register& r : code.registers) slots_[r.slot] = registers + r.offset;
}

const Code::Step* Frame::run_arm(const Code::Step* s, int64_t& n) {
  if (s->kind == Code::Step::enter) {
    const int64_t ones = kernels::table().count(slots_[s->a], n),
                  count = s->wanted ? ones : n - ones;
    if (count == 0) {
      // What nobody chooses is read all the same: not from where another tile had it.
      const Code::Step* const leave = s + s->number;
      slots_[leave->out] = registers_ + code_.registers[leave->number].offset;
      return leave;
    }
    outer_[size_t(depth_++)] = n;
    if (count * 256 <= n * s->most_moved) n = count;
    return s;
  }
  const int64_t outer = outer_[size_t(depth_ - 1)];
  const bool all = n == outer;
  void* const own = registers_ + code_.registers[s->number].offset;
  slots_[s->out] = all ? slots_[s->a] : own;
  if (!all) s->run(own, slots_[s->a], slots_[s->b], nullptr, outer);
  if (s->kind == Code::Step::leave) {
    n = outer;
    --depth_;
  }
  return s;
}

}  // namespace arete::cpu
