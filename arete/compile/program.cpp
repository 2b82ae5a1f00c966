// Programs: the traces of a function, and the front door.
#include <algorithm>

#include "arete/compile/queue_internal.h"
#include "arete/core/modes.h"

namespace arete::compile {

std::shared_ptr<Trace> Program::find(Words before, size_t calls, Words next) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<Trace>* found = nullptr;
  const auto equal = [](const uint64_t* at, Words words) {
    return std::equal(words.begin(), words.end(), at);
  };
  for (const auto& t : traces_) {
    if (next.empty() ? t->ends.size() != calls : t->ends.size() <= calls) continue;
    const size_t first = calls == 0 ? 0 : t->ends[calls - 1];
    if (first != before.size() || !equal(t->words.data(), before)) continue;
    if (!next.empty() &&
        (t->ends[calls] - first != next.size() || !equal(t->words.data() + first, next)))
      continue;
    if (!found || (*found)->last_used < t->last_used) found = &t;
  }
  if (!found) return nullptr;
  (*found)->last_used = ++time_;
  return *found;
}

void Program::add(const std::shared_ptr<Trace>& trace) {
  constexpr size_t kMostTraces = 64;
  const std::lock_guard lock(mutex_);
  ++totals_.traces;
  trace->last_used = ++time_;
  if (traces_.size() == kMostTraces)
    traces_.erase(
        std::ranges::min_element(traces_, {}, [](const auto& t) { return t->last_used; }));
  traces_.push_back(trace);
}

namespace {
std::atomic<std::string (*)()> place_source{nullptr};
}

std::string current_place() {
  auto* const source = place_source.load();
  return source ? source() : "";
}

Program::BreakKey Program::note_break(const char* what) {
  BreakKey key{current_place(), what ? what : ""};
  const std::lock_guard lock(mutex_);
  Break& its = breaks_[key];
  its.where = key.first;
  its.what = key.second;
  ++its.count;
  return key;
}

void Program::add_to_break(const BreakKey& key, double making, double waiting) {
  const std::lock_guard lock(mutex_);
  const auto its = breaks_.find(key);
  if (its == breaks_.end()) return;
  its->second.making += making;
  its->second.waiting += waiting;
}

void Program::note_skipping(std::string text) {
  const std::lock_guard lock(mutex_);
  skipping_ = std::move(text);
}

std::string Program::skipping() const {
  const std::lock_guard lock(mutex_);
  return skipping_;
}

int Program::place_now() {
  std::string place = current_place();
  const std::lock_guard lock(mutex_);
  const auto [its, is_new] = place_numbers_.try_emplace(std::move(place), int(places_.size()));
  if (is_new) places_.push_back(its->first);
  return its->second;
}

std::vector<std::string> Program::places() const {
  const std::lock_guard lock(mutex_);
  return places_;
}

// Microseconds that a run of the plan saves. A byte that nobody moves is one of a cache; of what
// the calls take in all, which their bytes tell roughly, some part does not matter.
static double gain_of(const PlanStats& plan, bool is_new) {
  constexpr double kCallPutOff = 0.5, kRun = 3, kCallWrittenDown = 5, kCallSaved = 0.3,
                   kByteSaved = 2e-5, kByteAtAll = 2e-6;
  return kCallSaved * (plan.recorded - plan.steps) +
         kByteSaved * (double(plan.bytes_recorded) - double(plan.bytes_moved)) +
         kByteAtAll * double(plan.bytes_recorded) - kRun -
         plan.recorded * (is_new ? kCallWrittenDown : kCallPutOff);
}

static bool always_puts_off(const CompileOptions& options) {
  return options.fullgraph || options.memory_budget < 1;
}

bool Program::is_exact() const {
  const std::lock_guard lock(mutex_);
  return options_.exact || totals_.at_once > 0;
}

bool Program::is_worth_it(const PlanStats& plan) const {
  return always_puts_off(options_) || gain_of(plan, false) >= 0;
}

bool Program::puts_off() {
  constexpr int kWindow = 16, kAtOnce = 64;
  const std::lock_guard lock(mutex_);
  if (skipped_ > 0) return true;  // a call that does not run is made of calls that are put off
  if (window_left_ == 0 && at_once_left_ == 0) {
    const bool pays =
        gain_ >= 0 || !is_warm_ || !on_cpu_ || !has_eager_bits_ || always_puts_off(options_);
    is_warm_ = totals_.runs > 0;
    gain_ = 0;
    window_left_ = pays ? kWindow : 1;
    at_once_left_ = pays ? 0 : kAtOnce;
  }
  if (at_once_left_ > 0) {
    --at_once_left_;
    ++totals_.at_once;
    return false;
  }
  --window_left_;
  return true;
}

void Program::note_run(const TracePlan& ran, double planning, double launching, bool is_new,
                       bool on_cpu) {
  const PlanStats& plan = ran.plan().stats();
  const std::lock_guard lock(mutex_);
  gain_ += gain_of(plan, is_new);
  on_cpu_ = on_cpu_ && on_cpu;
  has_eager_bits_ = has_eager_bits_ && ran.is_exact();
  ++totals_.runs;
  totals_.planning += planning;
  totals_.launching += launching;
  totals_.primitive_calls += plan.recorded;
  totals_.steps += plan.steps;
  totals_.bytes_recorded += int64_t(plan.bytes_recorded);
  totals_.bytes_moved += int64_t(plan.bytes_moved);
}

void Program::reset() {
  const std::lock_guard lock(mutex_);
  traces_.clear();
  breaks_.clear();
  calls_ = skipped_ = 0;
  skipping_.clear();
  totals_ = {};
  gain_ = 0;
  window_left_ = at_once_left_ = 0;
  is_warm_ = false;
  on_cpu_ = has_eager_bits_ = true;
}

// Who runs a plan has its trace's lock and asks for the program's, so nobody takes them the other
// way round.
std::vector<std::shared_ptr<Trace>> Program::traces() const {
  const std::lock_guard lock(mutex_);
  return traces_;
}

CompileStats Program::stats() const {
  CompileStats s;
  {
    const std::lock_guard lock(mutex_);
    s = totals_;
    s.calls = calls_;
    s.skipped = skipped_;
    for (const auto& [key, its] : breaks_) s.breaks += its.count;
  }
  for (const auto& t : traces()) {
    const std::lock_guard its(t->mutex);
    s.plans += int64_t(t->plans().size());
  }
  return s;
}

std::vector<Break> Program::breaks() const {
  const std::lock_guard lock(mutex_);
  std::vector<Break> all;
  for (const auto& [key, its] : breaks_) all.push_back(its);
  std::ranges::sort(all, std::greater(), &Break::count);
  return all;
}

// ---- front door

struct PutOff::State {
  State(Program& program, bool may_break, int segment)
      : queue(Queue::take(program, may_break, segment)) {
    modes().capture = &queue;
    modes().word |= Modes::kPutOff;
  }
  // What else the function changed stays so, as gradients that it switched off.
  ~State() {
    modes().capture = nullptr;
    modes().word &= ~uint32_t(Modes::kPutOff);
    queue.give_back();
  }
  Queue& queue;
};

// Inside another one its calls are the other's, also where those are made at once, and those that a
// recorder takes are recorded.
static bool may_begin() { return !(modes().word & Modes::kCapture) && !modes().capture; }

PutOff::PutOff(Program& program) {
  if (may_begin() && program.puts_off())
    state_ = std::make_unique<State>(program, !program.options().fullgraph, 0);
}
PutOff::PutOff(Program& program, bool may_break, int segment) {
  if (may_begin()) state_ = std::make_unique<State>(program, may_break, segment);
}

PutOff::~PutOff() {
  if (!state_) return;
  try {
    state_->queue.make_calls();
  } catch (...) {
    // The error that ends the function is the one to be told.
  }
}

void PutOff::finish() {
  if (state_) state_->queue.make_calls();
}

void Program::keep(const std::function<void()>& pass) {
  PutOff put_off(*this, true, Trace::kPass);
  pass();
  put_off.finish();
}

MadeAtOnce::MadeAtOnce() : was_put_off_(modes().word & Modes::kPutOff) {
  prim::make_calls_of_thread();
  modes().word &= ~uint32_t(Modes::kPutOff);
}
MadeAtOnce::~MadeAtOnce() {
  if (was_put_off_) modes().word |= Modes::kPutOff;
}

namespace {
Queue* queue_of_thread() {
  return modes().word & Modes::kPutOff ? static_cast<Queue*>(modes().capture) : nullptr;
}
}  // namespace

std::shared_ptr<Program> make_program(const CompileOptions& options) {
  return std::make_shared<Program>(options);
}
void graph_break() {
  if (Queue* const queue = queue_of_thread()) queue->make_calls_for("graph_break");
}

std::optional<PutOffCalls> calls_put_off() {
  const Queue* const queue = queue_of_thread();
  return queue ? queue->calls_so_far() : std::nullopt;
}
size_t count_put_off() {
  const Queue* const queue = queue_of_thread();
  return queue ? queue->count() : 0;
}
void put_off_again(const PutOffCalls& calls, std::span<const StoragePtr> memory,
                   std::span<const int64_t> origins) {
  Queue* const queue = queue_of_thread();
  ARETE_ASSERT(queue);
  queue->put_off_again(calls, memory, origins);
}
StoragePtr new_promise(size_t bytes, Device device) {
  Queue* const queue = queue_of_thread();
  ARETE_ASSERT(queue);
  return queue->promise(device, bytes);
}

void note_call(Program& program) { program.note_call(); }
void note_skipped(Program& program) {
  program.note_call();
  program.note_skipped();
}
void note_skipping(Program& program, std::string text) { program.note_skipping(std::move(text)); }
CompileStats stats_of(const Program& program) { return program.stats(); }
std::vector<Break> breaks_of(const Program& program) { return program.breaks(); }
void reset(Program& program) { program.reset(); }
void set_place_source(std::string (*source)()) noexcept { place_source = source; }

}  // namespace arete::compile
