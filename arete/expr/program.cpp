#include "arete/expr/program.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <mutex>
#include <unordered_map>

#include "arete/base/error.h"
#include "arete/expr/builder_impl.h"
#include "arete/expr/derivative.h"

namespace arete::expr {

namespace {

// Programs that are alive, by hash. Never destroyed: programs in static variables may outlive any
// other order of destruction.
struct Interned {
  std::mutex mutex;
  std::unordered_multimap<Hash128, std::weak_ptr<const Program>, Hash128Hasher> programs;
};
Interned& interned() {
  static Interned* table = new Interned;
  return *table;
}

void append_bytes(std::string& key, const auto& v) {
  key.append(reinterpret_cast<const char*>(&v), sizeof v);
}

const char* name_of(Type t) {
  constexpr const char* kNames[] = {"bool", "i32", "i64", "u64", "f32", "f64"};
  return kNames[int(t)];
}

std::string number_text(const Instruction& in) {
  if (in.type == Type::boolean) return in.value.i ? "true" : "false";
  if (in.type == Type::u64) return std::to_string(uint64_t(in.value.i));
  if (!is_float(in.type)) return std::to_string(in.value.i);
  if (std::isnan(in.value.f)) return "nan";
  char buffer[40];
  // The shortest text that reads back as the same number of its type.
  const auto end = in.type == Type::f32
                       ? std::to_chars(buffer, buffer + sizeof buffer, float(in.value.f)).ptr
                       : std::to_chars(buffer, buffer + sizeof buffer, in.value.f).ptr;
  return std::string(buffer, end);
}

}  // namespace

ProgramPtr Program::intern(std::shared_ptr<Program> program) {
  std::string key;
  auto count = [&key](size_t n) { append_bytes(key, uint32_t(n)); };
  count(program->inputs_.size());
  for (DType t : program->inputs_) append_bytes(key, t);
  count(program->params_.size());
  for (Type t : program->params_) append_bytes(key, t);
  append_bytes(key, program->params_in_memory_);
  append_bytes(key, program->tables_);
  count(program->outputs_.size());
  for (const Output& o : program->outputs_) {
    append_bytes(key, o.value);
    append_bytes(key, o.dtype);
  }
  count(program->code_.size());
  for (const Instruction& in : program->code_) {
    append_bytes(key, in.op);
    append_bytes(key, in.type);
    append_bytes(key, in.operand);
    append_bytes(key, in.index);
    append_bytes(key, in.value.i);
  }
  program->hash_ = hash_bytes(key);

  Interned& table = interned();
  // Declared before the lock: what is released here may run ~Program, which takes the lock.
  std::vector<ProgramPtr> others;
  const std::lock_guard lock(table.mutex);
  const auto [first, last] = table.programs.equal_range(program->hash_);
  for (auto it = first; it != last; ++it) {
    others.push_back(it->second.lock());
    if (others.back() && others.back()->same_as(*program)) return others.back();
  }
  table.programs.emplace(program->hash_, program);
  return program;
}

bool Program::same_as(const Program& o) const {
  auto same_output = [](const Output& a, const Output& b) {
    return a.value == b.value && a.dtype == b.dtype;
  };
  return inputs_ == o.inputs_ && params_ == o.params_ && params_in_memory_ == o.params_in_memory_ &&
         tables_ == o.tables_ &&
         std::equal(outputs_.begin(), outputs_.end(), o.outputs_.begin(), o.outputs_.end(),
                    same_output) &&
         std::equal(code_.begin(), code_.end(), o.code_.begin(), o.code_.end(), InstructionEqual());
}

// Derivatives are computed on demand and stay with the program. A program can be its own
// derivative (y = 2 x), directly or around a corner; such a ring of small programs stays alive.
struct Program::Derivatives {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::unique_ptr<Derivative>> by_masks;  // wanted, needed
};

const Derivative& Program::derivative(uint32_t wanted, uint32_t needed) const {
  ARETE_CHECK(inputs_.size() >= 32 || wanted >> inputs_.size() == 0,
              IndexError("derivative", "the program has no such input")
                  .expected("bits below " + std::to_string(inputs_.size()))
                  .got(std::to_string(wanted)));
  ARETE_CHECK(tables_ == 0, NotImplementedError("derivative", "loads from tables have none"));
  Derivatives* cache = derivatives_.load(std::memory_order_acquire);
  if (!cache) {
    auto fresh = std::make_unique<Derivatives>();
    if (derivatives_.compare_exchange_strong(cache, fresh.get(), std::memory_order_acq_rel))
      cache = fresh.release();
  }
  const Derivative* const whole = needed == wanted ? nullptr : &derivative(wanted);
  const std::lock_guard lock(cache->mutex);
  auto& slot = cache->by_masks[uint64_t{wanted} << 32 | needed];
  if (slot) return *slot;
  if (whole) {
    uint32_t outputs = 0;
    for (int i = 0, k = 0; i < 32; ++i)
      if (wanted >> i & 1) outputs |= (needed >> i & 1) << k++;
    slot = std::make_unique<Derivative>(with_outputs(*whole, outputs));
  } else {
    slot = std::make_unique<Derivative>(differentiate(*this, wanted));
  }
  return *slot;
}

Compiled* Program::install(int backend, std::unique_ptr<Compiled> form) const {
  Compiled* present = nullptr;
  if (compiled_[size_t(backend)].compare_exchange_strong(present, form.get(),
                                                         std::memory_order_acq_rel))
    return form.release();
  return present;
}

Program::~Program() {
  for (auto& slot : compiled_) delete slot.load(std::memory_order_acquire);
  delete derivatives_.load(std::memory_order_acquire);
  Interned& table = interned();
  const std::lock_guard lock(table.mutex);
  const auto [first, last] = table.programs.equal_range(hash_);
  for (auto it = first; it != last;) it = it->second.expired() ? table.programs.erase(it) : ++it;
}

int Program::flops() const {
  int count = 0;
  for (const Instruction& in : code_)
    if (arity_of(in.op) > 0 && in.op != Op::cast && in.op != Op::round_to && in.op != Op::load)
      count += in.op >= Op::mul_add && in.op <= Op::sub_mul ? 2 : 1;
  return count;
}

std::string Program::text() const {
  std::string s;
  for (size_t i = 0; i < code_.size(); ++i) {
    const Instruction& in = code_[i];
    s += "%" + std::to_string(i) + ":" + name_of(in.type) + " = " + expr::name_of(in.op);
    for (int32_t o : in.operand)
      if (o >= 0) s += " %" + std::to_string(o);
    if (in.op == Op::input || in.op == Op::param) s += " " + std::to_string(in.index);
    if (in.op == Op::param && has_in_memory(size_t(in.index))) s += " in memory";
    if (in.op == Op::input && is_table(size_t(in.index))) s += " table";
    if (in.op == Op::input) s += " " + std::string(arete::name_of(inputs_[size_t(in.index)]));
    if (in.op == Op::round_to) s += " " + std::string(arete::name_of(DType(in.index)));
    if (in.op == Op::constant) s += " " + number_text(in);
    s += "\n";
  }
  s += "return";
  for (const Output& o : outputs_)
    s += " %" + std::to_string(o.value) + ":" + std::string(arete::name_of(o.dtype));
  s += "\n";
  return s;
}

}  // namespace arete::expr
