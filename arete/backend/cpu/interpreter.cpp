#include "arete/backend/cpu/interpreter.h"

#include <bit>
#include <mutex>
#include <utility>

#include "arete/backend/cpu/compile_block.h"
#include "arete/core/device.h"

namespace arete::cpu {
namespace {

using expr::Program;
using expr::Type;

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
    Node* n = new Node{key, compile_block(program, key), head_.load(std::memory_order_relaxed)};
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

const Code& code_for(const Program& program, const CodeKey& key) {
  expr::Compiled* form = program.compiled(int(DeviceType::cpu));
  if (!form) [[unlikely]]
    form = program.install(int(DeviceType::cpu), std::make_unique<CompiledProgram>());
  return static_cast<CompiledProgram*>(form)->find(program, key);
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
