#include "arete/compile/trace_internal.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "arete/core/modes.h"
#include "arete/prim/compiled_kernels.h"

namespace arete::compile {

using prim::Access;
using prim::RecordedCall;
using prim::View;

std::unique_ptr<RecordedCall> Trace::call_on(size_t k, UsedBuffers memory,
                                             std::span<const uint64_t> numbers) const {
  std::unique_ptr<RecordedCall> call = calls[k]->clone();
  size_t operand = 0;
  call->for_each_operand([&](View& v, Access) {
    const Operand& its = operands[k][operand++];
    v.storage = nullptr;
    if (its.buffer < 0) return;
    const UsedBuffer& buffer = memory[size_t(its.buffer)];
    v.storage = buffer.storage;
    v.data = buffer.base() + its.offset;
  });
  size_t number = k == 0 ? 0 : number_ends[k - 1];
  call->for_each_number(
      [&](void* place) { std::memcpy(place, &numbers[number++], sizeof(uint64_t)); });
  return call;
}

TracePlan& Trace::plan_for(UsedBuffers memory, const std::vector<bool>& temporary,
                           std::span<const uint64_t> numbers, const PlanOptions& options) {
  for (const auto& plan : plans_)
    if (plan->temporary() == temporary) return *plan;
  std::vector<std::unique_ptr<RecordedCall>> mine;
  for (size_t k = 0; k < calls.size(); ++k) mine.push_back(call_on(k, memory, numbers));
  // Who holds results differs seldom, but it may, again and again.
  constexpr size_t kMostPlans = 8;
  if (plans_.size() == kMostPlans) plans_.erase(plans_.begin());
  return *plans_.emplace_back(
      std::make_unique<TracePlan>(std::move(mine), memory, temporary, options));
}

TracePlan::TracePlan(std::vector<std::unique_ptr<RecordedCall>> calls, UsedBuffers memory,
                     const std::vector<bool>& temporary, const PlanOptions& options)
    : temporary_(temporary) {
  std::unordered_map<const Storage*, int> buffers;
  std::vector<UsedMemory> used;
  for (size_t b = 0; b < memory.size(); ++b) {
    buffers[memory[b].storage] = int(b);
    used.push_back({StoragePtr(const_cast<Storage*>(memory[b].storage)), temporary[b]});
  }
  // Numbers stand for themselves while the plan is made: it moves them, and works with none.
  size_t count = 0;
  for (const auto& call : calls)
    call->for_each_number([&](void* place) {
      std::memcpy(place, &count, sizeof(count));
      ++count;
    });
  plan_ = std::make_unique<Plan>(std::move(calls), std::move(used), options);
  for (size_t a = 0; a < plan_->arenas().size(); ++a) buffers[plan_->arenas()[a].get()] = ~int(a);

  std::vector<bool> is_used(temporary_.size());
  plan_->for_each_step([&](RecordedCall& call) {
    GraphStep& its = steps_.emplace_back(GraphStep{&call, {}, {}});
    call.for_each_operand([&](View& v, Access) {
      const auto found = buffers.find(v.storage);
      its.buffers.push_back(-1);
      if (!v.storage || found == buffers.end()) return;
      const int b = found->second;
      its.buffers.back() = b;
      const std::byte* const base = b < 0 ? v.storage->data() : memory[size_t(b)].base();
      addresses_.push_back({&v, b, v.data - base});
      if (b >= 0) is_used[size_t(b)] = true;
      v.storage = nullptr;
    });
    call.for_each_number([&](void* place) {
      size_t from = 0;
      std::memcpy(&from, place, sizeof(from));
      numbers_.push_back({place, from});
      its.numbers.push_back(from);
    });
  });
  for (size_t b = 0; b < is_used.size(); ++b)
    if (is_used[b]) used_.push_back(int(b));
  graph_ = std::make_unique<DeviceGraph>(steps_, plan_->stats().bytes_moved);
}

// Gives the steps their addresses and numbers; the memory of the arenas.
std::vector<StoragePtr> TracePlan::prepare(UsedBuffers memory, std::span<const uint64_t> numbers) {
  std::vector<StoragePtr> arenas;
  for (const StoragePtr& arena : plan_->arenas())
    arenas.push_back(prim::backend_for(arena->device()).new_storage(arena->bytes()));
  for (const Address& a : addresses_) {
    const UsedBuffer at =
        a.buffer < 0 ? UsedBuffer{arenas[size_t(~a.buffer)].get()} : memory[size_t(a.buffer)];
    a.view->data = at.base() + a.offset;
    a.view->storage = at.storage;
  }
  for (const Number& n : numbers_) std::memcpy(n.place, &numbers[n.from], sizeof(uint64_t));
  return arenas;
}

// The first time it is noted what is compiled for them.
void TracePlan::run_steps(size_t& done) {
  const bool is_first = account.runs == 0;
  plan_->for_each_step([&](const RecordedCall& call) {
    const size_t known = is_first ? prim::count_compiled_kernels() : 0;
    call.run_once();
    if (is_first && prim::count_compiled_kernels() > known)
      for (prim::CompiledKernel& k : prim::compiled_kernels(known))
        account.kernels.push_back({done, std::move(k.name), k.seconds});
    ++done;
  });
}

void TracePlan::run(UsedBuffers memory, std::span<const uint64_t> numbers, std::vector<int>& lost) {
  if (graph_->run(memory, numbers)) return;
  if (graph_->is_due()) {
    graph_->capture(steps_, memory, numbers, prepare(memory, numbers));
    if (graph_->run(memory, numbers)) return;
  }
  const std::vector<StoragePtr> arenas = prepare(memory, numbers);
  const auto lose = [&](const View& v, Access access) {
    for (const int b : used_)
      if (access != Access::read && memory[size_t(b)].storage == v.storage) lost.push_back(b);
  };
  size_t done = 0, step = 0;
  try {
    run_steps(done);
  } catch (...) {
    plan_->for_each_step([&](RecordedCall& call) {
      if (step++ >= done) call.for_each_operand(lose);
    });
    throw;
  }
}

}  // namespace arete::compile
