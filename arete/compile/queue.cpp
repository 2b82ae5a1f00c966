#include "arete/compile/queue_internal.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <deque>

#include "arete/base/error.h"
#include "arete/compile/stand_in_internal.h"
#include "arete/core/modes.h"
#include "arete/prim/device_memory.h"

namespace arete::compile {

using prim::Access;
using prim::Primitive;
using prim::View;

// Note [Traces]
// What a call is, but for its memory and its numbers, is put into words: primitive, device,
// context, dtypes, sizes and strides of its operands, programs (which are interned, so that their
// addresses do), and its plain fields; also whether what memory is filled with is zero. Memory has
// the number of the buffer, in the order in which calls name them, and the place in it. Equal words
// are equal plans. While the calls that come are those of a trace that is known they are compared
// with it and not kept; at the first that differs the ones before are taken from the trace.

static double seconds_since(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

// The words of a call.
struct Queue::Words {
  Queue& queue;
  bool may_put_off = true;  // no operand is memory that others see at once

  void add(uint64_t word) { queue.words_.add(word); }
  template <class T>
  void add_field(const T& field) {
    if constexpr (std::is_same_v<T, prim::Window>) {
      add(uint64_t(field.spatial));
      for (const auto* list : {&field.kernel, &field.stride, &field.padding, &field.dilation})
        for (const int64_t x : *list) add(uint64_t(x));
    } else {
      static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
      uint64_t word = 0;
      std::memcpy(&word, &field, sizeof(T));
      add(word);
    }
  }
  void add_context(const prim::Context& c) {
    add(uint64_t(c.deterministic) | uint64_t(c.library_deterministic) << 1 |
        uint64_t(c.convolution_tf32) << 2 | uint64_t(c.precision) << 8);
  }

  void operator()(IntList list) {
    add(list.size());
    for (const int64_t x : list) add(uint64_t(x));
  }
  void operator()(const View& v, Access access) {
    if (!v) return add(~uint64_t{0});
    add(uint64_t(v.dtype) | uint64_t(access) << 8);
    (*this)(v.sizes);
    (*this)(v.strides);
    const Place place = queue.place_of(v);
    if (!place.storage || v.numel() == 0) {
      queue.operands_.push_back({-1, 0});
      return add(v.numel() == 0 ? 0 : std::bit_cast<uint64_t>(v.data));
    }
    if (place.storage->is_exported() || place.storage->is_shared()) may_put_off = false;
    const size_t before = queue.used_.size();
    const int number = queue.number_of(place);
    const int64_t offset = place.offset - queue.used_[size_t(number)].origin;
    add(uint64_t(number));
    add(uint64_t(offset));
    if (size_t(number) == before) {
      const Device device = place.storage->device();
      add(place.storage->bytes());
      add(uint64_t(device.type) << 8 | uint64_t(uint8_t(device.index)));
    }
    place.storage->put_off(&queue, access != Access::read);
    queue.operands_.push_back({number, offset});
  }
  void operator()(std::span<const View> views, Access access) {
    add(views.size());
    for (const View& v : views) (*this)(v, access);
  }
  void operator()(const expr::Program* program, auto&, std::span<const prim::Slot> slots) {
    add(std::bit_cast<uint64_t>(program));
    (*this)(slots);
  }
  void operator()(const prim::FusedSpec* spec, auto&, std::span<const prim::Slot> slots) {
    add(uint64_t(spec->n_inputs) << 32 | uint64_t(spec->n_outputs));
    for (const prim::FusedStage& s : spec->stages) {
      add(std::bit_cast<uint64_t>(s.program.get()));
      add(uint64_t(s.kind) | uint64_t(s.monoid) << 8 | uint64_t(s.first_output) << 32);
      add(s.inputs.size());
      for (const int k : s.inputs) add(uint64_t(int64_t(k)));
    }
    (*this)(slots);
  }
  void operator()(std::span<const prim::Slot> slots) {
    add(slots.size());
    for (const prim::Slot& s : slots) {
      add(uint64_t(s.number));
      (*this)(s.value, Access::read);
    }
  }
};

// What takes the calls of a device.
class Queue::Target final : public prim::Forwarding<prim::Primitives, Target> {
 public:
  Target(Queue& queue, Device device) : queue_(queue), device_(device) {}
  Device device() const override { return device_; }
  template <Primitive P, class Args>
  prim::ResultOf<P> pass(const Args& args) {
    return queue_.add<P>(device_, args);
  }
  StoragePtr new_storage(size_t bytes) override { return queue_.promise(device_, bytes); }
  void* scratch(size_t bytes) override { return queue_.scratch(device_, bytes); }
  void release_scratch(void* p, size_t) noexcept override { queue_.release_scratch(p); }

 private:
  Queue& queue_;
  Device device_;
};

// Note [Queues are not freed]
// A thread that looks at memory may have found its promiser just before the calls were made by
// another one, and still ask it: it finds the memory settled, but must find the queue alive. So
// queues are kept for the next function.
namespace {
struct Pool {
  std::mutex mutex;
  std::vector<Queue*> free;
};
Pool& pool() {
  static auto* const p = new Pool;
  return *p;
}
}  // namespace

Queue& Queue::take(Program& program, bool may_break, int segment) {
  Queue* queue = nullptr;
  {
    const std::lock_guard lock(pool().mutex);
    if (!pool().free.empty()) {
      queue = pool().free.back();
      pool().free.pop_back();
    }
  }
  if (!queue) queue = new Queue;
  const std::lock_guard lock(queue->mutex_);
  queue->program_ = &program;
  queue->may_break_ = may_break;
  queue->has_made_calls_ = queue->looks_ = false;
  queue->segment_ = segment;
  return *queue;
}

void Queue::give_back() noexcept {
  {
    const std::lock_guard lock(mutex_);
    program_ = nullptr;
    settled_.clear();
    done_.clear();
    last_break_.reset();
  }
  const std::lock_guard lock(pool().mutex);
  pool().free.push_back(this);
}

Queue::Queue() = default;
Queue::~Queue() = default;

prim::Primitives& Queue::on(Device device) {
  const std::lock_guard lock(mutex_);
  const Device its = prim::backend_for(device).device();
  for (const auto& target : targets_)
    if (target->device() == its) return *target;
  return *targets_.emplace_back(std::make_unique<Target>(*this, its));
}

StoragePtr Queue::promise(Device device, size_t bytes) {
  if (bytes == 0) return prim::backend_for(device).new_storage(0);
  const std::lock_guard lock(mutex_);
  StoragePtr memory = Storage::promise(device, bytes, stand_in(bytes));
  hold_promise(memory);
  return memory;
}

void Queue::hold_promise(StoragePtr memory) {
  memory->put_off(this, true);
  known_.set(memory.get(), Numbers::kUnused);
  held_.push_back(std::move(memory));
}

void* Queue::scratch(Device device, size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  StoragePtr memory = promise(device, bytes);
  std::byte* const address = memory->data();
  scratch_.push_back({std::move(memory), address});
  return address;
}

void Queue::release_scratch(void* address) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(scratch_, [&](const Scratch& s) { return s.address == address; });
}

// Views keep the address that they were made with, also if the memory was provided since.
Queue::Place Queue::place_of(const View& v) const {
  if (!v.storage) {
    for (const Scratch& s : scratch_)
      if (v.data >= s.address && v.data < s.address + s.storage->bytes())
        return {s.storage.get(), v.data - s.address};
    return {};
  }
  const std::byte* from = v.storage->data();
  if (is_stand_in(v.data) && !is_stand_in(from)) {
    const auto found = std::ranges::find(settled_.rbegin(), settled_.rend(), v.storage,
                                         [](const auto& s) { return s.first; });
    ARETE_ASSERT(found != settled_.rend());
    from = found->second;
  }
  return {v.storage, v.data - from};
}

int Queue::number_of(const Place& place) {
  const Storage* const storage = place.storage;
  int number = known_.find(storage);
  if (number >= 0) return number;
  if (number == Numbers::kNone) held_.push_back(StoragePtr(const_cast<Storage*>(storage)));
  number = int(used_.size());
  known_.set(storage, number);
  // Promised memory is used from its beginning on.
  used_.push_back({storage, is_stand_in(storage->data()) ? 0 : place.offset});
  return number;
}

template <Primitive P, class Args>
prim::ResultOf<P> Queue::add(Device device, const Args& args) {
  const std::lock_guard lock(mutex_);
  if constexpr (P == Primitive::compact) {
    check_may_break("compact");
    break_here("compact");
    const auto begun = std::chrono::steady_clock::now();
    const int64_t count = run_now(device, args);
    if (!device.is_cpu()) waited(seconds_since(begun));
    return count;
  } else {
    // Calls of one stream are in order; what orders streams is not put off.
    prim::StreamHandle const stream = prim::backend_for(device).current_stream();
    const auto [its, is_first] = streams_.insert({{int(device.type), device.index}, stream});
    if (!is_first && its->second != stream) {
      flush();
      streams_[{int(device.type), device.index}] = stream;
    }
    words_.clear();
    operands_.clear();
    Words words{*this};
    words.add(uint64_t(P) | uint64_t(device.type) << 16 | uint64_t(uint8_t(device.index)) << 24);
    words.add_context(args.context);
    Args::describe(args, words);
    prim::plain_fields(args, [&](const auto& field) { words.add_field(field); });
    if constexpr (P == Primitive::fill) words.add(is_zero(args));
    // A graph takes what is called now.
    if (!words.may_put_off || prim::backend_for(device).is_capturing()) {
      if (count_ > 0)
        break_here("memory that others see");
      else
        flush();
      run_now(device, args);
      return;
    }
    prim::number_fields(args, [&](const auto& number) {
      uint64_t word;
      std::memcpy(&word, &number, sizeof(word));
      numbers_.push_back(word);
    });
    prim::for_each_program(args, [&](const auto* program, const auto& params, const auto&) {
      for (size_t k = 0; k < prim::params_of(program).size(); ++k)
        numbers_.push_back(std::bit_cast<uint64_t>(params[k]));
    });
    last_break_.reset();
    if (recording_ || !follows(count_)) record(device, args);
    // A function without an end shall not have a plan without one.
    constexpr size_t kMostCalls = 8192;
    if (++count_ == kMostCalls) flush();
  }
}

// Whether the call with words_ is call k of a trace that the calls before are from.
bool Queue::follows(size_t k) {
  const Program::Words words = words_;
  const auto is_next = [&](const Trace& t) {
    if (k >= t.ends.size()) return false;
    const size_t first = k == 0 ? 0 : t.ends[k - 1];
    return t.ends[k] - first == words.size() &&
           std::memcmp(&t.words[first], words.data(), words.size_bytes()) == 0;
  };
  if (following_ && is_next(*following_)) return true;
  Program::Words before;
  if (following_ && k > 0) before = {following_->words.data(), following_->ends[k - 1]};
  if (auto other = program_->find(before, k, words)) {
    following_ = std::move(other);
    return true;
  }
  return false;
}

// The first `calls` calls are written down, if they have not been.
void Queue::start_recording(size_t calls) {
  if (recording_) return;
  recording_ = std::make_shared<Trace>();
  recording_->segment = segment_;
  if (calls == 0) return;
  Trace& t = *recording_;
  const Trace& from = *following_;
  t.words.assign(from.words.begin(), from.words.begin() + std::ptrdiff_t(from.ends[calls - 1]));
  t.ends.assign(from.ends.begin(), from.ends.begin() + std::ptrdiff_t(calls));
  t.operands.assign(from.operands.begin(), from.operands.begin() + std::ptrdiff_t(calls));
  t.number_ends.assign(from.number_ends.begin(), from.number_ends.begin() + std::ptrdiff_t(calls));
  t.origins.assign(from.origins.begin(), from.origins.begin() + std::ptrdiff_t(calls));
  for (size_t k = 0; k < calls; ++k) t.calls.push_back(from.calls[k]->clone());
  following_ = nullptr;
}

template <class Args>
void Queue::record(Device device, const Args& args) {
  start_recording(count_);
  Args named = args;
  named.context.stream = prim::backend_for(device).current_stream();
  Trace& t = *recording_;
  t.calls.push_back(prim::as_recorded(device, named));
  t.operands.push_back(operands_);
  t.origins.push_back({modes().current_op, program_->place_now()});
  const Program::Words words = words_;
  t.words.insert(t.words.end(), words.begin(), words.end());
  t.ends.push_back(t.words.size());
  t.number_ends.push_back(numbers_.size());
}

// At once, after all that was put off.
template <class Args>
int64_t Queue::run_now(Device device, const Args& args) {
  has_made_calls_ = true;
  const ModesGuard guard;
  modes().word &= ~uint32_t(Modes::kPutOff);
  const std::unique_ptr<prim::RecordedCall> call = prim::as_recorded(device, args);
  call->for_each_operand([&](View& v, Access) {
    const Place place = place_of(v);
    if (!place.storage) return;
    provide(place.storage);
    v.storage = place.storage;
    v.data = place.storage->data() + place.offset;
  });
  return call->run_once();
}

void Queue::provide(const Storage* storage) {
  if (!is_stand_in(storage->data())) return;
  prim::Backend& backend = prim::backend_for(storage->device());
  provide(storage, backend.allocate(storage->bytes()));
}

void Queue::provide(const Storage* storage, void* memory) {
  std::byte* const before = storage->data();
  const_cast<Storage*>(storage)->provide(memory, &prim::backend_for(storage->device()));
  settled_.push_back({storage, before});
  if (known_.find(storage) == Numbers::kUnused) storage->forget_promise(this);
}

// If nobody has that memory.
void Queue::provide_at(const Storage* storage, void* wish) {
  prim::DeviceMemory* const memory = prim::find_device_memory();
  if (!memory || !storage->device().is_cuda() || storage->bytes() == 0) return;
  if (void* const its = memory->allocate_at(storage->device().index, wish, storage->bytes()))
    provide(storage, its);
}

// Memory that only this object has (`mine`, of held_), and no call that is still to be made uses.
// It is none of another language's, which would not be given up under the lock: calls on what
// somebody else has the address of are not put off.
void Queue::release(int buffer, StoragePtr& mine) {
  ARETE_ASSERT(mine && mine.get() == used_[size_t(buffer)].storage);
  known_.set(mine.get(), Numbers::kNone);
  mine->forget_promise(this);
  used_[size_t(buffer)].storage = nullptr;
  mine = nullptr;
}

std::optional<PutOffCalls> Queue::calls_so_far() const {
  if (has_made_calls_ || recording_ || (count_ > 0 && !following_)) return {};
  PutOffCalls so_far{.trace = following_, .calls = count_, .numbers = numbers_, .looks = looks_};
  for (const UsedBuffer& b : used_)
    so_far.memory.push_back({b.storage, b.origin, b.storage->bytes(), b.storage->device(),
                             is_stand_in(b.storage->data()), false, b.storage->use_count() > 1});
  for (size_t k = 0; k < count_; ++k) {
    const Primitive p = following_->calls[k]->primitive();
    so_far.draws |= p == Primitive::random || p == Primitive::dropout;
    size_t operand = 0;
    following_->calls[k]->for_each_operand([&](View&, Access access) {
      const int b = following_->operands[k][operand++].buffer;
      if (b >= 0 && access != Access::read) so_far.memory[size_t(b)].is_written = true;
    });
  }
  return so_far;
}

void Queue::put_off_again(const PutOffCalls& calls, std::span<const StoragePtr> memory,
                          std::span<const int64_t> origins) {
  const std::lock_guard lock(mutex_);
  ARETE_ASSERT(count_ == 0 && used_.empty());
  held_.reserve(held_.size() + memory.size());
  used_.reserve(memory.size());
  again_ = &calls;
  for (size_t b = 0; b < memory.size(); ++b) {
    const PutOffCalls::Memory& its = calls.memory[b];
    if (b == 0 || its.device != calls.memory[b - 1].device)
      streams_.insert({{int(its.device.type), its.device.index},
                       prim::backend_for(its.device).current_stream()});
    const Storage* const storage = memory[b].get();
    if (!storage) {
      if (!temporaries_) temporaries_ = promise(its.device, its.bytes).get();
      used_.push_back({temporaries_, origins[b]});
      continue;
    }
    if (!its.is_new) held_.push_back(memory[b]);  // a promise is held already
    known_.set(storage, int(b));
    used_.push_back({storage, origins[b]});
    storage->put_off(this, its.is_written);
  }
  numbers_.assign(calls.numbers.begin(), calls.numbers.end());
  following_ = calls.trace;
  count_ = calls.calls;
}

void Queue::part_temporaries() {
  for (size_t b = 0; b < again_->memory.size(); ++b)
    if (used_[b].storage == temporaries_)
      used_[b].storage = promise(again_->memory[b].device, again_->memory[b].bytes).get();
  temporaries_ = nullptr;
}

void Queue::make_calls() {
  std::vector<StoragePtr> done;  // given up without the lock: memory may be another language's
  const std::lock_guard lock(mutex_);
  flush();
  done.swap(done_);
}

void Queue::settle(const Storage& memory) {
  std::vector<StoragePtr> done;
  const std::lock_guard lock(mutex_);
  if (memory.promiser() != this) return;                                  // meanwhile
  if (known_.find(&memory) == Numbers::kUnused) return provide(&memory);  // no call is concerned
  const char* const what = modes().current_op;
  if (modes().word & Modes::kPutOff && modes().capture == this)
    check_may_break(what ? what : "a look at memory");
  const char* const maker = maker_of(memory);
  break_here(maker ? maker : what);
  done.swap(done_);
}

void Queue::check_may_break(const char* what) const {
  if (may_break_) return;
  const std::string place = current_place();
  throw ValueError("compile",
                   "a value is read before the function has ended, which fullgraph=True does not "
                   "allow" +
                       (place.empty() ? "" : " (" + place + ")"))
      .got(what)
      .hint(
          "keep the value in a tensor, or leave fullgraph out: then the function runs as several "
          "plans");
}

void Queue::make_calls_for(const char* what) {
  std::vector<StoragePtr> done;
  const std::lock_guard lock(mutex_);
  if (count_ == 0) return;  // nothing comes before it
  check_may_break(what);
  break_here(what);
  done.swap(done_);
}

bool Queue::take(Device device, const prim::EffectArgs& effect) {
  const std::lock_guard lock(mutex_);
  add<prim::kEffect>(device, effect);
  if (count_ == 0) return true;  // it was made at once
  for (const View& v : effect.out)
    if (v.storage && !has_effect_on(*v.storage)) affected_.push_back(v.storage);
  return true;
}

bool Queue::has_effect_on(const Storage& memory) const {
  return std::ranges::find(affected_, &memory) != affected_.end();
}

void Queue::promise(Storage& memory) {
  const std::lock_guard lock(mutex_);
  memory.provide(stand_in(memory.bytes()), nullptr);
  hold_promise(StoragePtr(&memory));
}

bool Queue::let_go(Storage& memory) {
  const std::lock_guard lock(mutex_);
  if (memory.promiser() != this || !is_stand_in(memory.data())) return false;
  if (const int number = known_.find(&memory); number >= 0) {
    const StoragePtr own = Storage::promise(memory.device(), memory.bytes(), memory.data());
    hold_promise(own);
    known_.set(own.get(), number);
    used_[size_t(number)].storage = own.get();
  }
  known_.set(&memory, Numbers::kNone);
  memory.forget_promise(this);
  memory.provide(nullptr, nullptr);
  const auto mine = std::ranges::find(held_, &memory, [](const StoragePtr& s) { return s.get(); });
  ARETE_ASSERT(mine != held_.end());
  held_.erase(mine);
  return true;
}

size_t Queue::handles_of(const Storage& memory) const {
  const auto is_its = [&](const StoragePtr& s) { return s.get() == &memory; };
  return size_t(std::ranges::count_if(held_, is_its) + std::ranges::count_if(done_, is_its));
}

// The operator whose call, of those put off, writes the memory last.
const char* Queue::maker_of(const Storage& memory) const {
  const int number = known_.find(&memory);
  const Trace* const t = recording_ ? recording_.get() : following_.get();
  if (number < 0 || !t) return nullptr;
  for (size_t k = count_; k-- > 0;) {
    bool writes = false;
    size_t operand = 0;
    t->calls[k]->for_each_operand([&](View&, Access access) {
      writes |= t->operands[k][operand++].buffer == number && access != Access::read;
    });
    if (writes) return t->origins[k].op;
  }
  return nullptr;
}

void Queue::break_here(const char* what) {
  last_break_ = program_->note_break(what);
  const auto begun = std::chrono::steady_clock::now();
  flush();
  program_->add_to_break(*last_break_, seconds_since(begun), 0);
  if (segment_ != Trace::kPass) ++segment_;
}

void Queue::waited(double seconds) noexcept {
  const std::lock_guard lock(mutex_);
  if (last_break_) program_->add_to_break(*last_break_, 0, seconds);
}

void Queue::flush() {
  try {
    run();
  } catch (...) {
    give_up();
    throw;
  }
  clear();
}

void Queue::run() {
  has_made_calls_ = true;
  const ModesGuard guard;
  modes().word &= ~uint32_t(Modes::kPutOff);
  // Whichever thread it is.
  std::deque<prim::StreamScope> on_their_streams;
  for (const auto& [device, stream] : streams_)
    on_their_streams.emplace_back(
        prim::backend_for(Device(DeviceType(device.first), device.second)), stream);
  // What only this object has is not there after it.
  const auto is_wanted = [](const Storage& s) {
    return !is_stand_in(s.data()) || s.use_count() > 1;
  };
  const auto provide_wanted = [&] {
    for (const StoragePtr& s : held_)
      if (s && is_wanted(*s)) provide(s.get());
  };
  settled_before_ = settled_.size();
  if (count_ > 0) {
    std::vector<bool> temporary;
    for (UsedBuffer& b : used_) {
      b.is_new = is_stand_in(b.storage->data());
      b.is_last = !b.is_new && b.storage->use_count() == 1;
      temporary.push_back(!is_wanted(*b.storage));
    }
    if (!recording_ && following_->calls.size() != count_) {
      const Program::Words words{following_->words.data(), following_->ends[count_ - 1]};
      if (auto known = program_->find(words, count_, {}))
        following_ = std::move(known);
      else
        start_recording(count_);
    }
    const std::shared_ptr<Trace> trace = recording_ ? recording_ : following_;
    const std::lock_guard lock(trace->mutex);
    trace->let_pins_go(used_, temporary);
    if (temporaries_)
      if (const TracePlan* known = trace->plan_of(used_, temporary);
          !known || !known->has_all_in_arena())
        part_temporaries();
    const auto begun = std::chrono::steady_clock::now();
    const bool on_cpu = std::ranges::all_of(
        streams_, [](const auto& s) { return s.first.first == int(DeviceType::cpu); });
    TracePlan& plan = trace->plan_for(
        used_, temporary, numbers_,
        {.exact = program_->is_exact(),
         .band = program_->options().band,
         .memory_budget = program_->options().memory_budget},
        [&](const PlanStats& stats) { return !on_cpu || program_->is_worth_it(stats); });
    const double planned = seconds_since(begun);
    if (recording_) program_->add(trace);
    // Of what no call uses; of the others the plan sees to it.
    for (const StoragePtr& s : held_)
      if (is_wanted(*s) && known_.find(s.get()) == Numbers::kUnused) provide(s.get());
    std::vector<size_t> places(used_.size());  // in held_
    for (size_t h = 0; h < held_.size(); ++h)
      if (const int b = known_.find(held_[h].get()); b >= 0) places[size_t(b)] = h;
    plan.run(
        used_, numbers_,
        [&](int b, void* wish) {
          const Storage* const storage = used_[size_t(b)].storage;
          wish ? provide_at(storage, wish) : provide(storage);
        },
        [&](int b) { release(b, held_[places[size_t(b)]]); }, lost_);
    provide_wanted();
    const double launched = seconds_since(begun) - planned;
    plan.account.runs += 1;
    plan.account.planning += planned;
    plan.account.launching += launched;
    program_->note_run(plan, planned, launched, trace == recording_, on_cpu);
  } else {
    provide_wanted();
  }
}

namespace {
// Who owes memory that he could not make.
class Bankrupt final : public Promiser {
 public:
  void settle(const Storage&) override {
    throw ValueError("compile",
                     "the value was to be computed by a compiled function, which ended with an "
                     "error before it was");
  }
};
}  // namespace

void Queue::give_up() noexcept {
  static auto* const nobody = new Bankrupt;
  for (const StoragePtr& s : held_)
    if (s && is_stand_in(s->data())) s->put_off(nobody, true);
  for (const int b : lost_) {
    const Storage* const lost = used_[size_t(b)].storage;
    if (std::any_of(settled_.begin() + std::ptrdiff_t(settled_before_), settled_.end(),
                    [&](const auto& s) { return s.first == lost; }))
      lost->put_off(nobody, true);
  }
  clear();
}

void Queue::clear() noexcept {
  for (StoragePtr& s : held_) {
    if (!s) continue;
    s->forget_promise(this);
    done_.push_back(std::move(s));
  }
  held_.clear();
  lost_.clear();
  affected_.clear();
  again_ = nullptr;
  temporaries_ = nullptr;
  known_.clear();
  used_.clear();
  numbers_.clear();
  streams_.clear();
  count_ = 0;
  following_ = recording_ = nullptr;
}

}  // namespace arete::compile
