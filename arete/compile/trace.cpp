#include "arete/compile/trace_internal.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <unordered_map>

#include "arete/base/error.h"
#include "arete/compile/arena_internal.h"
#include "arete/compile/stand_in_internal.h"
#include "arete/compile/under_way_internal.h"
#include "arete/core/modes.h"
#include "arete/prim/compiled_kernels.h"

namespace arete::compile {

// Bytes.
static constexpr size_t kLargeArena = size_t{64} << 20;

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

// Note [Pinned plans]
// Layers one after the other have one trace, and so have weights that come after others: what a
// plan would pin may differ each time, so few are pinned. One that has not run for long gives way
// to memory that is used now; twice as long the next time, since those of many layers would take
// turns forever.
bool Trace::may_pin_more() const {
  constexpr auto kMostPinned = 2;
  return std::ranges::count_if(plans_, [](const auto& p) { return p->is_pinned(); }) < kMostPinned;
}

void Trace::let_pins_go(UsedBuffers memory, const std::vector<bool>& temporary) {
  ++runs_;
  if (may_pin_more()) return;
  const TracePlan* const known = plan_of(memory, temporary);
  if (known && !known->lacks_pins) return;
  const auto old = std::ranges::find_if(
      plans_, [&](const auto& p) { return p->is_pinned() && runs_ - p->last_run > patience_; });
  if (old == plans_.end()) return;
  plans_.erase(old);
  std::erase_if(plans_, [&](const auto& p) { return p.get() == known; });
  patience_ *= 2;
}

TracePlan* Trace::plan_of(UsedBuffers memory, const std::vector<bool>& temporary) const {
  for (const auto& plan : plans_)
    if (plan->temporary() == temporary && plan->fits(memory)) return plan.get();
  return nullptr;
}

TracePlan& Trace::plan_for(UsedBuffers memory, const std::vector<bool>& temporary,
                           std::span<const uint64_t> numbers, const PlanOptions& options,
                           const std::function<bool(const PlanStats&)>& is_worth_it) {
  if (TracePlan* const known = plan_of(memory, temporary)) {
    known->last_run = runs_;
    return *known;
  }
  const auto make = [&](const PlanOptions& how) {
    std::vector<std::unique_ptr<RecordedCall>> mine;
    for (size_t k = 0; k < calls.size(); ++k) mine.push_back(call_on(k, memory, numbers));
    return std::make_unique<TracePlan>(std::move(mine), memory, temporary, how);
  };
  constexpr size_t kMostPlans = 8;  // who holds results differs seldom, but it may, again and again
  PlanOptions its = options;
  // A small product leaves nothing of a CPU idle.
  its.may_pin &= std::ranges::none_of(calls, [](const auto& c) {
    return c->primitive() == prim::Primitive::gemm && c->device().is_cpu();
  });
  const bool lacks_pins = its.may_pin && !may_pin_more();
  its.may_pin &= !lacks_pins;
  std::unique_ptr<TracePlan> made = make(its);
  if (!its.exact && !is_worth_it(made->plan().stats())) {
    its.exact = true;
    made = make(its);
  }
  made->lacks_pins = lacks_pins && !its.exact;
  made->last_run = runs_;
  if (plans_.size() == kMostPlans)
    plans_.erase(std::ranges::min_element(plans_, {}, [](const auto& p) { return p->last_run; }));
  return *plans_.emplace_back(std::move(made));
}

TracePlan::TracePlan(std::vector<std::unique_ptr<RecordedCall>> calls, UsedBuffers memory,
                     const std::vector<bool>& temporary, const PlanOptions& options)
    : temporary_(temporary), is_exact_(options.exact) {
  std::unordered_map<const Storage*, int> buffers;
  std::vector<UsedMemory> used;
  for (size_t b = 0; b < memory.size(); ++b) {
    buffers[memory[b].storage] = int(b);
    used.push_back({StoragePtr(const_cast<Storage*>(memory[b].storage)), temporary[b]});
  }
  const std::vector<bool> zeros = zero_fills(calls);  // whenever these calls come: Note [Traces]
  // Numbers stand for themselves while the plan is made: it moves them, and works with none.
  size_t count = 0;
  for (const auto& call : calls)
    call->for_each_number([&](void* place) {
      std::memcpy(place, &count, sizeof(count));
      ++count;
    });
  plan_ = std::make_unique<Plan>(std::move(calls), std::move(used), options, zeros);
  for (size_t a = 0; a < plan_->arenas().size(); ++a) buffers[plan_->arenas()[a].get()] = ~int(a);

  std::vector<bool> is_used(temporary_.size());
  plan_->for_each_step([&](RecordedCall& call) {
    GraphStep& its = steps_.emplace_back(GraphStep{.call = &call, .buffers = {}, .numbers = {}});
    call.for_each_operand([&](View& v, Access access) {
      const auto found = buffers.find(v.storage);
      if (!v.storage || found == buffers.end()) return;
      const int b = found->second;
      const std::byte* const base = b < 0 ? v.storage->data() : memory[size_t(b)].base();
      addresses_.push_back({&v, b, v.data - base, access});
      if (b >= 0) is_used[size_t(b)] = true;
    });
    call.for_each_number([&](void* place) {
      size_t from = 0;
      std::memcpy(&from, place, sizeof(from));
      numbers_.push_back({place, from});
      its.numbers.push_back(from);
    });
    address_ends_.push_back(addresses_.size());
  });
  for (const Storage* const s : plan_->pinned()) {
    const int b = buffers.at(s);
    pins_.push_back({b, memory[size_t(b)].base()});
  }
  for (size_t b = 0; b < is_used.size(); ++b)
    if (is_used[b]) used_.push_back(int(b));
  find_pieces();
  share_results(memory);
  size_t next = 0;
  for (GraphStep& step : steps_)
    const_cast<RecordedCall*>(step.call)->for_each_operand([&](View& v, Access) {
      const bool has_address = next < addresses_.size() && addresses_[next].view == &v;
      step.buffers.push_back(has_address ? addresses_[next++].buffer : -1);
    });
  find_waits();
  find_last_uses();
  for (const Address& a : addresses_) a.view->storage = nullptr;
  graph_ = std::make_unique<DeviceGraph>(steps_, plan_->stats().bytes_moved);
}

// Each effect is waited for by the first step that uses its memory, also where that has become the
// memory of another temporary.
void TracePlan::find_waits() {
  std::vector<std::vector<Use>> uses(steps_.size());
  std::vector<size_t> under_way;
  for (size_t k = 0, a = 0; k < steps_.size(); ++k) {
    for (; a < address_ends_[k]; ++a) {
      const Address& its = addresses_[a];
      const auto [first, last] = extent_of(*its.view);
      const int64_t origin = reinterpret_cast<intptr_t>(its.view->data) - its.offset;
      uses[k].push_back({its.buffer, first - origin, last - origin, its.access});
    }
    std::erase_if(under_way, [&](size_t e) {
      const bool waits = std::ranges::any_of(uses[k], [&](const Use& u) {
        return std::ranges::any_of(
            uses[e], [&](const Use& of) { return u.buffer == of.buffer && collide(u, of); });
      });
      if (waits) steps_[k].waits.push_back(e);
      if (waits && e + 1 == k) steps_[e].is_awaited = true;
      return waits;
    });
    if (is_effect(*steps_[k].call)) under_way.push_back(k);
  }
  // The arena ends with the run.
  for (const size_t e : under_way)
    if (std::ranges::any_of(uses[e], [](const Use& u) { return u.buffer < 0; }))
      last_waits_.push_back(e);
  // At the end of the run the host waits.
  if (!under_way.empty() && under_way.back() + 1 == steps_.size())
    steps_.back().is_awaited = steps_.back().call->device().is_cpu();
}

// Of buffers that no effect uses, which may be under way for longer than its step.
void TracePlan::find_last_uses() {
  last_uses_.resize(steps_.size());
  std::vector<bool> is_seen(temporary_.size());
  for (const Pin& p : pins_) is_seen[size_t(p.buffer)] = true;  // read by views of others, too
  for (const GraphStep& step : steps_)
    for (const int b : step.buffers)
      if (b >= 0 && is_effect(*step.call)) is_seen[size_t(b)] = true;
  for (size_t k = steps_.size(); k-- > 0;)
    for (const int b : steps_[k].buffers) {
      if (b < 0 || is_seen[size_t(b)]) continue;
      is_seen[size_t(b)] = true;
      last_uses_[k].push_back(b);
    }
}

void TracePlan::find_pieces() {
  const std::vector<Plan::Placement>& placements = plan_->placements();
  begins_.resize(steps_.size());
  ends_.resize(steps_.size());
  for (size_t p = 0; p < placements.size(); ++p) {
    begins_[placements[p].first].push_back(int(p));
    ends_[placements[p].last].push_back(int(p));
  }
  std::vector<int> alive;
  for (size_t k = 0, a = 0; k < steps_.size(); ++k) {
    alive.insert(alive.end(), begins_[k].begin(), begins_[k].end());
    for (; a < address_ends_[k]; ++a) {
      Address& address = addresses_[a];
      if (address.buffer >= 0) continue;
      for (const int p : alive) {
        const Plan::Placement& its = placements[size_t(p)];
        if (its.arena != size_t(~address.buffer) || size_t(address.offset) < its.offset ||
            size_t(address.offset) >= its.offset + its.bytes)
          continue;
        address.piece = p;
        address.in_piece = address.offset - int64_t(its.offset);
        break;
      }
      ARETE_ASSERT(address.piece >= 0);
    }
    std::erase_if(alive, [&](int p) { return placements[size_t(p)].last == k; });
  }
}

// Note [Memory of plans]
// Eager code has memory for a result, and for what it made it of, where it needs it. A plan has an
// arena for its temporaries, and results that are made at the end are there from the beginning: so
// temporaries that are gone by then lie in them. Where the memory of such a result is not new, an
// error would show: that takes another plan. In large plans that are no graph each temporary, and
// each result, gets memory where it is needed, and what nobody wants any more, such as what a
// forward pass saved for this backward pass, is given back where it was used last.
void TracePlan::share_results(UsedBuffers memory) {
  for (const StoragePtr& arena : plan_->arenas()) arena_bytes_.push_back(arena->bytes());
  struct Result {
    int buffer;
    size_t bytes, step;
  };
  std::vector<Result> results;
  std::vector<bool> is_seen(memory.size());
  for (size_t k = 0, a = 0; k < steps_.size(); ++k) {
    const size_t first = a;
    for (; a < address_ends_[k]; ++a) {
      const int b = addresses_[a].buffer;
      if (b < 0 || is_seen[size_t(b)]) continue;
      is_seen[size_t(b)] = true;
      if (!memory[size_t(b)].is_new || temporary_[size_t(b)]) continue;
      // All that the step does with it is to write it, from its beginning on.
      size_t bytes = 0;
      for (size_t o = first; o < address_ends_[k]; ++o) {
        const Address& its = addresses_[o];
        if (its.buffer != b) continue;
        const auto [begin, end] = extent_of(*its.view);
        if (its.access != Access::write || its.offset != 0 ||
            end - begin != its.view->numel() * int64_t(size_of(its.view->dtype)) ||
            begin != reinterpret_cast<intptr_t>(its.view->data)) {
          bytes = 0;
          break;
        }
        bytes = size_t(end - begin);
      }
      if (bytes > 0) results.push_back({b, bytes, k});
    }
  }
  if (results.empty()) return;
  const std::vector<Plan::Placement>& placements = plan_->placements();
  std::vector<Arena::Spot> spots(placements.size());
  std::vector<int> rooms(placements.size(), Arena::kOwn);  // as buffers
  for (size_t arena = 0; arena < arena_bytes_.size(); ++arena) {
    Arena now;
    std::vector<int> buffers;  // by room
    for (const Result& r : results)
      if (memory[size_t(r.buffer)].storage->device() == plan_->arenas()[arena]->device()) {
        now.add_room(r.bytes, r.step);
        buffers.push_back(r.buffer);
      }
    std::vector<size_t> pieces;
    for (size_t p = 0; p < placements.size(); ++p)
      if (placements[p].arena == arena) {
        now.add(placements[p].bytes, placements[p].first, placements[p].last);
        pieces.push_back(p);
      }
    now.arrange();
    arena_bytes_[arena] = now.bytes();
    for (size_t n = 0; n < pieces.size(); ++n) {
      spots[pieces[n]] = now.spot(n);
      if (const int room = now.spot(n).room; room >= 0) rooms[pieces[n]] = buffers[size_t(room)];
    }
  }
  for (Address& a : addresses_) {
    if (a.piece < 0) continue;
    a.offset = int64_t(spots[size_t(a.piece)].offset) + a.in_piece;
    if (const int b = rooms[size_t(a.piece)]; b >= 0) a.buffer = b;
  }
  for (const int b : rooms)
    if (b >= 0 && std::ranges::find(hosts_, b) == hosts_.end()) hosts_.push_back(b);
}

bool TracePlan::fits(UsedBuffers memory) const {
  return std::ranges::all_of(hosts_, [&](int b) { return memory[size_t(b)].is_new; }) &&
         std::ranges::all_of(
             pins_, [&](const Pin& p) { return memory[size_t(p.buffer)].base() == p.base; });
}

std::vector<StoragePtr> TracePlan::make_arenas() {
  std::vector<StoragePtr> arenas = graph_->arenas();
  if (!arenas.empty()) return arenas;
  for (size_t a = 0; a < arena_bytes_.size(); ++a)
    arenas.push_back(prim::backend_for(plan_->arenas()[a]->device()).new_storage(arena_bytes_[a]));
  return arenas;
}

void TracePlan::set_address(const Address& a, UsedBuffers memory,
                            std::span<const StoragePtr> arenas, bool in_pieces) {
  const bool is_piece = in_pieces && a.piece >= 0;
  const UsedBuffer at = is_piece       ? UsedBuffer{arenas[size_t(a.piece)].get()}
                        : a.buffer < 0 ? UsedBuffer{arenas[size_t(~a.buffer)].get()}
                                       : memory[size_t(a.buffer)];
  a.view->data = at.base() + (is_piece ? a.in_piece : a.offset);
  a.view->storage = at.storage;
}

// Before the first run: the kernels of all steps, which threads compile side by side.
void TracePlan::compile_ahead() {
  std::vector<std::pair<size_t, const RecordedCall*>> calls;
  size_t step = 0;
  plan_->for_each_step([&](const RecordedCall& call) {
    using enum prim::Primitive;
    const prim::Primitive its = call.primitive();
    const bool is_compiled = its == pointwise || its == reduce || its == multi_pointwise ||
                             its == multi_reduce || its == fused;
    if (is_compiled && prim::heeds_rehearsals(call.device().type)) calls.emplace_back(step, &call);
    ++step;
  });
  if (calls.size() < 2) return;
  std::atomic<size_t> next{0};
  std::mutex mutex;
  const auto work = [&] {
    const prim::Rehearsal rehearsal;
    for (size_t k = next++; k < calls.size(); k = next++) {
      const size_t known = prim::compiled_kernels().size();
      try {
        calls[k].second->run_once();
      } catch (...) {  // the run that follows says it
      }
      const auto& compiled = prim::compiled_kernels();
      const std::lock_guard lock(mutex);
      for (size_t c = known; c < compiled.size(); ++c)
        account.kernels.push_back({calls[k].first, compiled[c].name, compiled[c].seconds});
    }
  };
  std::vector<std::jthread> threads;
  const size_t most = std::max(1u, std::thread::hardware_concurrency());
  while (threads.size() < std::min(most, calls.size())) threads.emplace_back(work);
}

void TracePlan::set_numbers(std::span<const uint64_t> numbers) {
  for (const Number& n : numbers_) std::memcpy(n.place, &numbers[n.from], sizeof(uint64_t));
}

// Where it is not one yet it may become one.
bool TracePlan::run_graph(UsedBuffers memory, std::span<const uint64_t> numbers,
                          const Provide& provide) {
  // Before another result takes it.
  const auto is_promise = [&](int b) { return is_stand_in(memory[size_t(b)].storage->data()); };
  for (const int b : used_)
    if (std::byte* const place = is_promise(b) ? graph_->place_of(b) : nullptr) provide(b, place);
  for (const int b : used_)
    if (is_promise(b)) provide(b, nullptr);
  if (graph_->run(memory, numbers)) return true;
  if (!graph_->is_due()) return false;
  set_numbers(numbers);
  std::vector<StoragePtr> arenas = make_arenas();
  for (const Address& a : addresses_) set_address(a, memory, arenas, false);
  graph_->capture(steps_, memory, numbers, std::move(arenas));
  return graph_->run(memory, numbers);
}

// The first time it is noted what is compiled for them.
void TracePlan::run_steps(UsedBuffers memory, std::span<const uint64_t> numbers,
                          const Provide& provide, const std::function<void(int)>& release,
                          bool in_pieces, size_t& done) {
  set_numbers(numbers);
  const bool is_first = account.runs == 0;
  if (is_first) compile_ahead();
  std::vector<StoragePtr> arenas;
  if (in_pieces)
    arenas.resize(plan_->placements().size());
  else
    arenas = make_arenas();
  UnderWay under_way;
  plan_->for_each_step([&](const RecordedCall& call) {
    for (const size_t step : steps_[done].waits) under_way.wait_for(step);
    const size_t known = prim::compiled_kernels().size();
    if (in_pieces)
      for (const int p : begins_[done]) {
        const Plan::Placement& its = plan_->placements()[size_t(p)];
        prim::Backend& backend = prim::backend_for(plan_->arenas()[its.arena]->device());
        arenas[size_t(p)] = backend.new_storage(its.bytes);
      }
    for (size_t a = done == 0 ? 0 : address_ends_[done - 1]; a < address_ends_[done]; ++a) {
      const Address& its = addresses_[a];
      if (in_pieces && its.piece < 0 && is_stand_in(memory[size_t(its.buffer)].storage->data()))
        provide(its.buffer, nullptr);
      set_address(its, memory, arenas, in_pieces);
    }
    under_way.make(done, call, steps_[done].is_awaited);
    if (in_pieces)
      for (const int p : ends_[done]) arenas[size_t(p)].reset();
    for (const int b : last_uses_[done])
      if (memory[size_t(b)].is_last) release(b);
    const auto& compiled = prim::compiled_kernels();
    for (size_t k = known; is_first && k < compiled.size(); ++k)
      account.kernels.push_back({done, compiled[k].name, compiled[k].seconds});
    ++done;
  });
  for (const size_t step : last_waits_) under_way.wait_for(step);
  under_way.finish();
}

void TracePlan::run(UsedBuffers memory, std::span<const uint64_t> numbers, const Provide& provide,
                    const std::function<void(int)>& release, std::vector<int>& lost) {
  size_t bytes = plan_->stats().arena;
  for (const UsedBuffer& b : memory)
    if (b.is_last) bytes += b.storage->bytes();
  const bool in_pieces = !graph_->may_run() && bytes >= kLargeArena;
  size_t done = 0;
  try {
    if (in_pieces || !run_graph(memory, numbers, provide))
      run_steps(memory, numbers, provide, release, in_pieces, done);
  } catch (...) {
    for (size_t a = done == 0 ? 0 : address_ends_[done - 1]; a < addresses_.size(); ++a)
      if (addresses_[a].buffer >= 0 && addresses_[a].access != Access::read)
        lost.push_back(addresses_[a].buffer);
    throw;
  }
}

}  // namespace arete::compile
