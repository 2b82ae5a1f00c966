#include "arete/backend/cpu/interpreter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>

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

int size_of_type(Type t) { return int(size_of(expr::storage_type(t))); }

bool is_own_storage(DType d) { return expr::storage_type(expr::compute_type(d)) == d; }

uint64_t cell_bits(Type type, expr::Literal v) {
  switch (type) {
    case Type::boolean:
      return uint64_t(v.i != 0);
    case Type::i32:
      return uint64_t(uint32_t(int32_t(v.i)));
    case Type::i64:
      return uint64_t(v.i);
    case Type::f32:
      return std::bit_cast<uint32_t>(float(v.f));
    case Type::f64:
      return std::bit_cast<uint64_t>(v.f);
  }
  __builtin_unreachable();
}

/// Rough costs in additions.
double cost_of(Op op) {
  if (op >= Op::exp && op <= Op::sigmoid) return op >= Op::erfinv && op <= Op::digamma ? 60 : 8;
  switch (op) {
    case Op::pow:
      return 20;
    case Op::atan2:
      return 15;
    case Op::floor_div:
    case Op::fmod:
    case Op::remainder:
      return 5;
    case Op::gcd:
      return 15;
    case Op::sqrt:
    case Op::rsqrt:
    case Op::reciprocal:
    case Op::div:
      return 2;
    default:
      return 1;
  }
}

class Compiler {
 public:
  Compiler(const Program& program, const CodeKey& key)
      : program_(program), key_(key), table_(kernels::table()) {
    code_.n_inputs = int(program.inputs().size());
    code_.n_outputs = int(program.outputs().size());
    code_.n_slots = code_.n_inputs + code_.n_outputs;
  }

  Code compile() {
    for (int k = 0; k < code_.n_inputs; ++k) {
      // A table is one address, whatever it is read at.
      const bool uniform = program_.is_table(size_t(k)) || (k < 32 && (key_.uniform >> k) & 1);
      raw_.push_back(add_value(uniform, int(size_of(program_.inputs()[k])), k));
    }
    count_uses();
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
  };
  struct Factors {
    int value, factor;
  };
  using Operands = std::array<int, 4>;
  struct Step {
    Kernel kernel;
    kernels::ChooseKernel choose;
    int out;
    Operands in{-1, -1, -1, -1};
    int scalars = 0;
  };

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
    for (size_t i = 0; i < code.size(); ++i) value_of_[i] = translate(code[i], i);
  }

  int operand(const Instruction& in, int k) {
    const int i = in.operand[size_t(k)];
    // An instruction that its only use could not do on the way.
    if (value_of_[size_t(i)] < 0) value_of_[size_t(i)] = simple(program_.code()[size_t(i)]);
    return value_of_[size_t(i)];
  }

  int translate(const Instruction& in, size_t position) {
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
      case Op::mul:
        if (expr::is_float(in.type) && uses_[position] == 1) return delay(position);
        break;
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
        if (const int v = choice(in); v >= 0) return v;
        break;
      case Op::add:
      case Op::sub:
        if (expr::is_float(in.type))
          if (const int v = fused_pair(in); v >= 0) return v;
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
    const kernels::Pair pair = in.op == Op::max ? kernels::pair_min_max : kernels::pair_max_min;
    const Kernel kernel = table_.pair[pair][int(in.type)][6];
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
    const kernels::ChooseKernel kernel = table_.choose[comparison][int(type)];
    if (!kernel) return -1;
    if (turned) std::swap(a, b);
    const int c = operand(in, 1), d = operand(in, 2);
    const int out = add_value(false, size);
    values_[size_t(out)].defined = int(body_.size());
    const int scalars =
        int(uniform(a)) | int(uniform(b)) << 1 | int(uniform(c)) << 2 | int(uniform(d)) << 3;
    body_.push_back({nullptr, kernel, out, {a, b, c, d}, scalars});
    code_.cost += 2;
    return out;
  }

  /// a * b + c and its like as one step, if the product is used here only and is no scalar.
  int fused_pair(const Instruction& in) {
    for (int side = 0; side < 2; ++side) {
      const int product = in.operand[size_t(side)], other = in.operand[size_t(1 - side)];
      if (!is_delayed(product)) continue;
      const Instruction& mul = program_.code()[size_t(product)];
      if (mul.op != Op::mul) continue;
      const int a = operand(mul, 0), b = operand(mul, 1);
      if (uniform(a) && uniform(b)) continue;
      const int c = operand(in, 1 - side);
      (void)other;
      const kernels::Pair pair = in.op == Op::add ? kernels::pair_mul_add
                                 : side == 0      ? kernels::pair_mul_sub
                                                  : kernels::pair_sub_mul;
      const int mask = int(uniform(a)) | int(uniform(b)) << 1 | int(uniform(c)) << 2;
      code_.cost += 1;
      return compute(table_.pair[pair][int(in.type)][mask], size_of_type(in.type), {a, b, c});
    }
    return -1;
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
        return compute(table_.cast[int(type)][int(in.type)], size, v);
      case Op::round_to:
        if (is_own_storage(DType(in.index))) return v[0];
        code_.cost += 2;
        return compute(table_.round_to[in.index], size, v);
      case Op::load: {
        const size_t input = size_t(code[size_t(in.operand[0])].index);
        code_.cost += uniform(v[1]) ? 0 : 2;
        return compute(table_.look_up[int(program_.inputs()[input])], size, v);
      }
      case Op::select: {
        int mask = 0;
        for (int k = 0; k < 3; ++k) mask |= int(uniform(v[size_t(k)])) << k;
        code_.cost += 1;
        return compute(table_.select[size][mask == 7 ? 0 : mask], size, v);
      }
      default:
        break;
    }
    bool all_uniform = true;
    for (int k = 0; k < n; ++k) all_uniform &= uniform(v[size_t(k)]);
    if (!all_uniform) code_.cost += cost_of(in.op);
    if (n == 1) return compute(table_.unary[int(in.op)][int(type)], size, v);
    const int variant = all_uniform || uniform(v[0]) == uniform(v[1]) ? kernels::vv
                        : uniform(v[1])                               ? kernels::vs
                                                                      : kernels::sv;
    return compute(table_.binary[int(in.op)][int(type)][variant], size, v);
  }

  /// The value of output `k` as the computation type of its storage type.
  int output_value(int k) {
    const Program::Output& o = program_.outputs()[size_t(k)];
    const Type from = program_.code()[size_t(o.value)].type, to = expr::compute_type(o.dtype);
    const int v = value_of_[size_t(o.value)];
    return from == to ? v : compute(table_.cast[int(from)][int(to)], size_of_type(to), {v, -1, -1});
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
    if (key_.products) split_products();
    // All reads come before: an output may be in the place of any input.
    for (const Late& l : late) emit(l.kernel, l.slot_value, {l.value, -1, -1});
  }

  /// Leaves products that are results only to who adds them up.
  void split_products() {
    for (Factors& r : results_) {
      const auto step = std::ranges::find(body_, r.value, &Step::out);
      if (step == body_.end()) continue;
      const auto reads = [&](const Step& s) { return std::ranges::count(s.in, r.value) > 0; };
      bool is_product = false;
      for (Type t : {Type::f32, Type::f64})
        is_product |= step->kernel == table_.binary[int(Op::mul)][int(t)][kernels::vv];
      const int a = step->in[0], b = step->in[1];
      if (!is_product || std::ranges::any_of(body_, reads) ||
          std::ranges::count(results_, r.value, &Factors::value) > 1)
        continue;
      body_.erase(step);
      r = {a, b};
      values_[size_t(a)].result = values_[size_t(b)].result = true;
    }
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
    struct Free {
      int size;
      int slot;
    };
    std::vector<Free> free;
    std::vector<Free> registers;  // all
    auto release = [&](int v, int s) {
      const Value& value = values_[size_t(v)];
      if (value.uniform || value.result || value.last_use > s || !in_register_[size_t(v)]) return;
      in_register_[size_t(v)] = false;
      free.push_back({value.size, value.slot});
    };
    auto place = [&](int v) {
      Value& value = values_[size_t(v)];
      if (value.slot >= 0) return;
      in_register_[size_t(v)] = true;
      for (size_t f = 0; f < free.size(); ++f) {
        if (free[f].size != value.size) continue;
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
      const int size = values_[size_t(step.out)].size;
      // A kernel may work in place if the sizes are equal.
      for (int v : step.in)
        if (v >= 0 && values_[size_t(v)].size == size) release(v, int(s));
      place(step.out);
      for (int v : step.in)
        if (v >= 0) release(v, int(s));
    }
    size_t bytes = 0;
    for (const Free& r : registers) bytes += size_t(r.size);
    if (bytes > 0) {
      constexpr size_t kBudget = 24 << 10;  // leaves room for inputs and outputs in L1
      code_.block = 1024;
      while (code_.block > 256 && bytes * size_t(code_.block) > kBudget) code_.block /= 2;
    }
    for (const Free& r : registers) {
      code_.registers.push_back({uint16_t(r.slot), uint32_t(code_.register_bytes)});
      code_.register_bytes += size_t(code_.block) * size_t(r.size);
    }
    ARETE_ASSERT(code_.n_slots < Code::kNone);
    auto slot = [&](int v) { return uint16_t(v < 0 ? 0 : values_[size_t(v)].slot); };
    auto copy = [&](const std::vector<Step>& from, std::vector<Code::Step>& to) {
      for (const Step& s : from)
        to.push_back({s.kernel, s.choose, slot(s.out), slot(s.in[0]), slot(s.in[1]), slot(s.in[2]),
                      slot(s.in[3]), uint16_t(s.scalars)});
    };
    copy(once_, code_.once);
    copy(body_, code_.body);
    for (size_t k = 0; k < results_.size(); ++k)
      code_.results.push_back({slot(results_[k].value),
                               results_[k].factor < 0 ? Code::kNone : slot(results_[k].factor),
                               expr::compute_type(program_.outputs()[k].dtype)});
  }

  const Program& program_;
  const CodeKey key_;
  const kernels::KernelTable& table_;
  Code code_;
  std::vector<Value> values_;
  std::vector<int> raw_, value_of_, uses_;
  std::vector<Factors> results_;
  std::vector<bool> delayed_, in_register_;
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

Frame::Frame(const Code& code, std::span<const expr::Literal> params, std::byte* registers)
    : code_(code) {
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

const expr::ProgramPtr& conversion(DType from, DType to) {
  static std::array<std::array<std::atomic<const expr::ProgramPtr*>, kNumDTypes>, kNumDTypes> all;
  std::atomic<const expr::ProgramPtr*>& entry = all[size_t(from)][size_t(to)];
  const expr::ProgramPtr* program = entry.load(std::memory_order_acquire);
  if (!program) {
    expr::Builder builder;
    const expr::Value x = builder.input(from);
    const expr::Value y = builder.cast(x, expr::compute_type(to));
    // Kept for the process: there are no more than pairs of types.
    const expr::ProgramPtr* made = new expr::ProgramPtr(
        builder.build(std::span<const expr::Value>(&y, 1), std::span<const DType>(&to, 1)));
    if (entry.compare_exchange_strong(program, made, std::memory_order_acq_rel)) {
      program = made;
    } else {
      delete made;
    }
  }
  return *program;
}

}  // namespace arete::cpu
