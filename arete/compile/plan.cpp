#include "arete/compile/plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <ranges>
#include <span>
#include <unordered_map>

#include "arete/base/error.h"
#include "arete/compile/arena_internal.h"
#include "arete/compile/fuse_internal.h"
#include "arete/compile/plan_notes_internal.h"
#include "arete/compile/stand_in_internal.h"
#include "arete/core/modes.h"
#include "arete/prim/recorder.h"

namespace arete::compile {
namespace {

using prim::Access;
using prim::View;

// How many kernels back one is looked for that may take a call in.
constexpr size_t kWindow = 64;

// Whether calls of one device were recorded on several streams.
bool has_several_streams(const std::vector<std::unique_ptr<prim::RecordedCall>>& calls) {
  std::map<std::pair<int, int>, prim::StreamHandle> streams;
  for (const auto& call : calls) {
    const Device device = call->device();
    const auto [its, is_new] = streams.insert({{int(device.type), device.index}, call->stream()});
    if (!is_new && its->second != call->stream()) return true;
  }
  return false;
}

bool share_a_buffer(const Group& a, const Group& b) {
  return std::ranges::any_of(a.uses(), [&](const Use& u) {
    return std::ranges::any_of(b.uses(), [&](const Use& v) { return u.buffer == v.buffer; });
  });
}

using Groups = std::vector<std::unique_ptr<Group>>;
// Of groups that use the same memory and stay apart.
struct Refusal {
  const Group *earlier, *later;
  const char* why;
};

/// Whether two groups may change places: one does not need what the other does, and nothing that
/// somebody sees is written before an error that was to come first, or the other way round.
bool may_swap(const Group& a, const Group& b, Buffers& buffers) {
  const auto writes_results = [&](const Group& g) {
    return std::ranges::any_of(g.uses(), [&](const Use& u) {
      return u.access != Access::read && !buffers[u.buffer].temporary;
    });
  };
  return !collide(a.uses(), b.uses()) && !(is_effect(a.call()) && is_effect(b.call())) &&
         !(a.may_refuse() && writes_results(b)) && !(b.may_refuse() && writes_results(a));
}

/// Of the groups behind groups[k] those that are to go before it, so that `next` stands right
/// behind it: what `next` needs, and what else has nothing to do with groups[k]. Empty if that
/// cannot be.
std::vector<const Group*> goes_before(const Groups& groups, size_t k, const Group& next,
                                      Buffers& buffers) {
  const auto may_swap_all = [&](const Group& group, const std::vector<const Group*>& list) {
    return std::ranges::all_of(list, [&](const Group* g) { return may_swap(group, *g, buffers); });
  };
  std::vector<const Group*> before, behind{groups[k].get()};
  for (size_t j = groups.size(); --j > k;) {
    const Group& group = *groups[j];
    if (may_swap(group, next, buffers) && may_swap_all(group, before)) continue;
    if (!may_swap(group, *groups[k], buffers)) return {};
    before.push_back(&group);
  }
  for (size_t j = k + 1; j < groups.size(); ++j) {
    const Group& group = *groups[j];
    if (std::ranges::find(before, &group) != before.end()) continue;
    (may_swap_all(group, behind) ? before : behind).push_back(&group);
  }
  return before;
}

/// Puts a group into an earlier one that can take it, or at the end. Calls that have
/// nothing to do with each other may change places. `readers`: of each buffer.
void add_group(Groups& groups, std::unique_ptr<Group> next, Buffers& buffers,
               const std::vector<int>& readers, std::vector<Refusal>& refusals) {
  bool next_may_move = true;  // to right behind groups[k]
  for (size_t k = groups.size(); k-- > 0 && groups.size() - k <= kWindow;) {
    Group& group = *groups[k];
    const auto from = groups.begin() + std::ptrdiff_t(k);
    const auto is_read_elsewhere = [&](const Use& u) {
      return !buffers[u.buffer].temporary ||
             readers[size_t(u.buffer)] > group.readers(u.buffer) + next->readers(u.buffer);
    };
    if (share_a_buffer(group, *next)) {
      std::vector<const Group*> before;
      bool may_stand_together =
          next_may_move || std::all_of(from + 1, groups.end(),
                                       [&](const auto& g) { return may_swap(*g, group, buffers); });
      if (!may_stand_together && group.staged() && next->staged()) {
        before = goes_before(groups, k, *next, buffers);
        may_stand_together = !before.empty();
      }
      const char* const why = may_stand_together
                                  ? group.take(*next, is_read_elsewhere)
                                  : "steps between them keep them from standing side by side";
      if (!why) {
        if (!before.empty())
          std::stable_partition(from, groups.end(), [&](const auto& g) {
            return std::ranges::find(before, g.get()) != before.end();
          });
        else if (!next_may_move)
          std::rotate(from, from + 1, groups.end());
        return;
      }
      refusals.push_back({&group, next.get(), why});
    }
    next_may_move = next_may_move && may_swap(group, *next, buffers);
  }
  groups.push_back(std::move(next));
}

/// Leaves out the calls whose results nobody reads, and gives how many these were.
int leave_out_unread(Groups& groups, Buffers& buffers) {
  std::vector<Use> later;
  const auto is_needed = [&](const Use& u) {
    return !buffers[u.buffer].temporary ||
           std::ranges::any_of(later, [&](const Use& v) { return collide(u, v); });
  };
  int count = 0;
  for (auto& g : groups | std::views::reverse) {
    if (g->may_be_left_out(is_needed)) {
      count += g->calls();
      g = nullptr;
      continue;
    }
    for (const Use& u : g->uses())
      if (u.access != Access::write) later.push_back(u);
  }
  std::erase(groups, nullptr);
  return count;
}

// Groups that were joined may be joined with others. Gives the refusals of the last round, which
// are those of the groups that there are.
std::vector<Refusal> join_groups(Groups& groups, Buffers& buffers,
                                 const std::vector<int>& readers) {
  std::vector<Refusal> refusals;
  for (size_t before = groups.size() + 1; groups.size() < before;) {
    before = groups.size();
    refusals.clear();
    for (auto& g : std::exchange(groups, {}))
      add_group(groups, std::move(g), buffers, readers, refusals);
  }
  return refusals;
}

void note_refusals(PlanNotes& notes, const Groups& groups, const std::vector<Refusal>& refusals) {
  std::unordered_map<const Group*, int> index;
  for (const auto& g : groups) {
    index[g.get()] = int(index.size());
    notes.is_alone.push_back(!g->staged());
  }
  for (const Refusal& r : refusals)
    notes.apart.push_back({index.at(r.earlier), index.at(r.later), r.why});
}

// Operands of a call that works element by element, and whether it may write output `out` where it
// reads input `in`, by what its arguments say.
struct Elements {
  std::span<const View> inputs, outputs;
  std::function<bool(size_t in, size_t out)> may_be_in_place;
};
Elements elements_of(const prim::RecordedCall& call) {
  using Kind = prim::FusedStage::Kind;
  switch (call.primitive()) {
    case prim::Primitive::pointwise: {
      const auto& args = *static_cast<const prim::PointwiseArgs*>(call.args());
      return {args.inputs, args.outputs,
              [&](size_t in, size_t) { return !args.program->is_table(in); }};
    }
    case prim::Primitive::dropout: {
      const auto& args = *static_cast<const prim::DropoutArgs*>(call.args());
      return {{&args.in, 1}, {&args.out, 1}, [](size_t, size_t) { return true; }};
    }
    case prim::Primitive::fused: {
      const auto& args = *static_cast<const prim::FusedArgs*>(call.args());
      return {args.inputs, args.outputs, [&](size_t in, size_t out) {
                bool may = false;  // a stage stores it, and none after that reads the input
                for (const prim::FusedStage& stage : args.spec->stages) {
                  for (size_t k = 0; k < stage.inputs.size(); ++k)
                    if (stage.inputs[k] == int(in) &&
                        (may || stage.kind == Kind::reduce_columns || stage.program->is_table(k)))
                      return false;
                  const size_t first = size_t(stage.first_output);
                  may |= stage.kind == Kind::store && out >= first &&
                         out < first + stage.program->outputs().size();
                }
                return may;
              }};
    }
    default:
      return {};
  }
}

// Note [In place of an input]
// What a kernel makes element by element may be in place of a temporary that ends with it. Of the
// two buffers the earlier stands for both.
class Places {
 public:
  Places(const Steps& steps, std::vector<Life>& lives, Buffers& buffers)
      : lives_(lives), buffers_(buffers), owners_(lives.size()) {
    std::iota(owners_.begin(), owners_.end(), 0);
    for (size_t k = 0; k < steps.size(); ++k) share(*steps[k], elements_of(*steps[k]), k);
  }
  /// Who stands for each buffer.
  const std::vector<int>& owners() const { return owners_; }

 private:
  // Of one operand of the step.
  bool is_temporary(prim::RecordedCall& step, int b) const {
    if (b < 0 || !buffers_[b].storage || !buffers_[b].temporary) return false;
    int count = 0;
    step.for_each_operand([&](View& v, Access) { count += buffers_.of(v) == b; });
    return count == 1;
  }
  void share(prim::RecordedCall& step, const Elements& its, size_t k) {
    for (size_t o = 0; o < its.outputs.size(); ++o) {
      const int b = buffers_.of(its.outputs[o]);
      // One that nobody reads would leave the input's life as it is, for another result to see.
      if (!is_temporary(step, b) || lives_[size_t(b)].first != k || lives_[size_t(b)].last == k)
        continue;
      for (size_t i = 0; i < its.inputs.size(); ++i) {
        const int from = buffers_.of(its.inputs[i]);
        if (!is_temporary(step, from) || !are_alike(its.inputs[i], its.outputs[o]) ||
            !its.may_be_in_place(i, o))
          continue;
        const int owner = owners_[size_t(from)];
        Life& life = lives_[size_t(owner)];
        if (life.last != k || life.bytes != lives_[size_t(b)].bytes) continue;
        life.last = lives_[size_t(b)].last;
        owners_[size_t(b)] = owner;
        break;
      }
    }
  }
  bool are_alike(const View& a, const View& b) const {
    const auto &of_a = *buffers_[buffers_.of(a)].storage, &of_b = *buffers_[buffers_.of(b)].storage;
    return a.dtype == b.dtype && std::ranges::equal(a.sizes, b.sizes) &&
           std::ranges::equal(a.strides, b.strides) && of_a.device() == of_b.device() &&
           a.data - of_a.data() == b.data - of_b.data();
  }
  std::vector<Life>& lives_;
  Buffers& buffers_;
  std::vector<int> owners_;
};

}  // namespace

Plan::Plan(prim::Recorder& recorder, const PlanOptions& options) {
  Calls calls = recorder.take_calls();
  std::vector<UsedMemory> memory;
  for (auto& [address, m] : recorder.take_memory()) {
    if (!m.used && !m.made) continue;
    // Beside this, only the recorder had it.
    const bool temporary = m.made && m.storage->use_count() == 1;
    memory.push_back({std::move(m.storage), temporary});
  }
  const std::vector<bool> zeros = zero_fills(calls);
  make(std::move(calls), Buffers(std::move(memory)), options, zeros, false);
}

Plan::Plan(Calls calls, std::vector<UsedMemory> memory, const PlanOptions& options,
           const std::vector<bool>& zeros) {
  make(std::move(calls), Buffers(std::move(memory)), options, zeros, true);
}

void Plan::make(Calls calls, Buffers buffers, const PlanOptions& options,
                const std::vector<bool>& zeros, bool promise_arenas) {
  stats_.recorded = int(calls.size());
  const bool several_streams = has_several_streams(calls);

  Groups groups;
  for (auto& call : calls) {
    stats_.bytes_recorded += bytes_of(*call);
    groups.push_back(std::make_unique<Group>(std::move(call), buffers, options));
    groups.back()->numbers = {int(groups.size()) - 1};
  }
  std::vector<std::vector<Use>> uses;
  for (const auto& g : groups) uses.push_back(g->uses());
  // What is promised still the host cannot have written.
  if (!promise_arenas) buffers.look_for_host_writes(uses);
  for (int b = 0; b < buffers.size(); ++b)
    if (buffers[b].storage && buffers[b].temporary)
      stats_.temporaries += buffers[b].storage->bytes();
  notes_ = std::make_unique<PlanNotes>();
  notes_->several_streams = several_streams;
  if (!several_streams) {
    notes_->left_out = leave_out_unread(groups, buffers);
    read_before_casts(groups, buffers, options);
  }
  const std::vector<int> readers = readers_of(groups, buffers);
  std::vector<Refusal> refusals;
  if (!several_streams) refusals = join_groups(groups, buffers, readers);
  note_refusals(*notes_, groups, refusals);

  // From the last step to the first, so that what a step reads is known to those before it.
  std::vector<Use> later;
  const auto is_needed = [&](const Use& u) {
    return several_streams || !buffers[u.buffer].temporary ||
           std::ranges::any_of(later, [&](const Use& v) { return collide(u, v); });
  };
  for (int k = int(groups.size()); k-- > 0;) {
    const auto& g = groups[size_t(k)];
    const int count = g->calls();
    auto call = g->build(is_needed);
    if (!call) {
      notes_->left_out += count;
      continue;
    }
    for (const Use& u : uses_of(*call, buffers))
      if (u.access != Access::write) later.push_back(u);
    steps_.push_back({std::move(call), count, std::move(g->numbers), k});
  }
  std::ranges::reverse(steps_);
  if (!several_streams) {
    const size_t with_copies = steps_.size();
    if (!options.exact) add_up_in_place(buffers, zeros);
    leave_out_copies(buffers, options);
    notes_->left_out += int(with_copies - steps_.size());
    if (!options.exact) {
      end_products(buffers);
      if (options.may_pin) join_siblings(buffers);
      choose_orders(buffers);
      divide_into_bands(buffers, options.band);
    }
    lower_peak(buffers);
    recompute(buffers, options.memory_budget);
    if (!options.exact) note_repetition();
  }
  stats_.steps = int(steps_.size());
  for (const Step& step : steps_) stats_.bytes_moved += bytes_of(*step.call);
  note_steps(buffers);
  place_temporaries(buffers, several_streams, promise_arenas);
}

// Another way to compute a product or a convolution may have other bits, so eager calls do not look
// for it.
void Plan::note_repetition() {
  for (Step& step : steps_) {
    const auto note = [&](auto args) {
      args.context.repeated = true;
      step.call = prim::as_recorded(step.call->device(), args);
    };
    if (step.call->primitive() == prim::Primitive::gemm)
      note(*static_cast<const prim::GemmArgs*>(step.call->args()));
    else if (step.call->primitive() == prim::Primitive::conv)
      note(*static_cast<const prim::ConvArgs*>(step.call->args()));
  }
}

void Plan::note_steps(Buffers& buffers) {
  for (Step& step : steps_) {
    std::ranges::sort(step.numbers);
    PlanNotes::Step its{std::move(step.numbers), {}, step.group};
    step.call->for_each_operand([&](View& v, Access) { its.buffers.push_back(buffers.of(v)); });
    notes_->steps.push_back(std::move(its));
  }
  Steps calls;
  for (const Step& step : steps_) calls.push_back(step.call.get());
  const std::vector<Life> lives = lives_of(calls, buffers);
  for (int b = 0; b < buffers.size(); ++b)
    notes_->memory.push_back(
        {size_t(b) < lives.size() ? lives[size_t(b)].bytes : 0, buffers[b].temporary});
}

void Plan::place_temporaries(Buffers& buffers, bool keep_places, bool promise_arenas) {
  Steps calls;
  for (const Step& step : steps_) calls.push_back(step.call.get());
  std::vector<Life> lives = lives_of(calls, buffers);
  lives.resize(size_t(buffers.size()));
  const std::vector<int> owners = Places(calls, lives, buffers).owners();
  std::vector<size_t> numbers(lives.size());
  std::map<std::pair<int, int>, Arena> arenas;  // of devices
  const auto arena_of = [&](const Storage& s) -> Arena& {
    return arenas[{int(s.device().type), s.device().index}];
  };
  const auto is_placed = [&](int b) {
    return !keep_places && buffers[b].temporary && lives[size_t(b)].is_used();
  };
  for (int b = 0; b < buffers.size(); ++b) {
    const StoragePtr& storage = buffers[b].storage;
    if (!storage) continue;
    if (is_placed(b) && owners[size_t(b)] != b) continue;
    if (is_placed(b))
      numbers[size_t(b)] = arena_of(*storage).add(lives[size_t(b)].bytes, lives[size_t(b)].first,
                                                  lives[size_t(b)].last);
    else if (!promise_arenas && (keep_places || !buffers[b].temporary))
      memory_.push_back(storage);
  }
  for (size_t b = 0; b < owners.size(); ++b) numbers[b] = numbers[size_t(owners[b])];
  std::map<const Arena*, StoragePtr> made;
  for (auto& [device, arena] : arenas) {
    arena.arrange();
    stats_.arena += arena.bytes();
    const Device its{DeviceType(device.first), device.second};
    prim::Backend& backend = prim::backend_for(its);
    // On the stream that uses it: there is one.
    const auto step =
        std::ranges::find(steps_, its, [](const Step& s) { return s.call->device(); });
    const prim::StreamScope scope(backend, step->call->stream());
    made[&arena] = promise_arenas ? Storage::promise(its, arena.bytes(), stand_in(arena.bytes()))
                                  : backend.new_storage(arena.bytes());
    arenas_.push_back(made[&arena]);
  }
  for (int b = 0; b < buffers.size(); ++b) {
    if (!buffers[b].storage || !is_placed(b) || owners[size_t(b)] != b) continue;
    const Storage& storage = *buffers[b].storage;
    const Arena& arena = arena_of(storage);
    const Life& life = lives[size_t(b)];
    const auto its = std::ranges::find(arenas_, made[&arena]);
    placements_.push_back({size_t(its - arenas_.begin()), arena.spot(numbers[size_t(b)]).offset,
                           life.bytes, life.first, life.last});
  }
  for (Step& step : steps_)
    step.call->for_each_operand([&](View& v, Access) {
      const int b = buffers.of(v);
      if (b < 0) v.storage = nullptr;  // no elements
      if (b < 0 || !is_placed(b)) return;
      const Storage& was = *buffers[b].storage;
      const Arena& arena = arena_of(was);
      v.data += made[&arena]->data() + arena.spot(numbers[size_t(b)]).offset - was.data();
      v.storage = made[&arena].get();
    });
}

Plan::~Plan() = default;

static void refuse_capture(const char* what) {
  ARETE_CHECK(!(modes().word & Modes::kCapture),
              ValueError(what, "a plan is neither made nor run while calls are recorded"));
  prim::make_calls_of_thread();
}

void Plan::run() const {
  refuse_capture("Plan::run");
  for (const Step& step : steps_) step.call->run_again();
}

std::string Plan::to_string() const {
  std::string text;
  for (const Step& step : steps_) {
    text += step.call->to_string();
    if (step.calls > 1) text += "  of " + std::to_string(step.calls) + " calls";
    text += "\n";
  }
  return text;
}

std::unique_ptr<Plan> plan(const std::function<void()>& f, const PlanOptions& options) {
  refuse_capture("plan");
  prim::Recorder recorder;
  {
    const ModesGuard guard;
    modes().capture = &recorder;
    modes().word = (modes().word & ~Modes::kPutOff) | Modes::kCapture;
    f();
  }
  return std::make_unique<Plan>(recorder, options);
}

}  // namespace arete::compile
