#include "arete/compile/explain.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "arete/compile/graph_internal.h"
#include "arete/compile/plan_notes_internal.h"
#include "arete/compile/queue_internal.h"

namespace arete::compile {
namespace {

using prim::Access;
using prim::RecordedCall;
using prim::View;

std::string text_of(const View& v) {
  return std::string(arete::name_of(v.dtype)) + arete::to_string(v.sizes);
}
// Operands of a call can be looked at only as if they were to be changed.
template <class F>
void look_at_operands(const RecordedCall& call, F&& f) {
  const_cast<RecordedCall&>(call).for_each_operand([&](View& v, Access access) { f(v, access); });
}
std::string name_of_call(const Trace& t, size_t k) {
  const char* const op = t.origins[k].op;
  return op ? op : t.calls[k]->name();
}

// ---- why steps are apart

// Steps that could have been one: the later one reads what the earlier one made, or both read one
// memory and nothing writes to it in between. Of those that never become one with others only the
// first kind.
void find_apart(const PlanNotes& notes, const Plan& plan, ExplainedPlan& p) {
  std::vector<const RecordedCall*> calls;
  plan.for_each_step([&](const RecordedCall& call) { calls.push_back(&call); });
  std::map<std::pair<int, int>, const char*> known;  // of groups
  for (const PlanNotes::Apart& a : notes.apart) known[{a.earlier, a.later}] = a.why;
  const auto is_alone = [&](size_t s) {
    const int group = notes.steps[s].group;
    return group < 0 || notes.is_alone[size_t(group)];
  };
  // Of two steps; empty: it is not known, since other steps were made of them later.
  const auto reason = [&](size_t earlier, size_t later) -> std::string {
    if (notes.several_streams)
      return "the calls were made on several streams, and stay as they are";
    for (const size_t s : {later, earlier})
      if (is_alone(s))
        return std::string(calls[s]->name()) +
               (is_effect(*calls[s]) ? " is done with other processes" : " is a kernel of its own");
    const auto found = known.find({notes.steps[earlier].group, notes.steps[later].group});
    return found == known.end() ? "" : found->second;
  };
  constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> writer(notes.memory.size(), kNone), reader(notes.memory.size(), kNone);
  for (size_t s = 0; s < p.steps.size(); ++s) {
    // Of each earlier step what this one shares with it, in bytes as this one uses them.
    std::map<size_t, size_t> made, read;
    size_t operand = 0;
    look_at_operands(*calls[s], [&](const View& v, Access access) {
      const int b = notes.steps[s].buffers[operand++];
      if (b < 0 || access == Access::write) return;
      if (const size_t w = writer[size_t(b)]; w != kNone)
        made[w] += bytes_of(v);
      else if (const size_t r = reader[size_t(b)]; r != kNone)
        read[r] += bytes_of(v);
    });
    for (const auto* list : {&made, &read})
      for (const auto& [other, bytes] : *list) {
        if (list == &read && (made.contains(other) || is_alone(other) || is_alone(s))) continue;
        std::string why = reason(other, s);
        if (why.empty() && list == &read) continue;
        if (why.empty())
          why = "too many steps were between them, or a copy that was left out later";
        p.apart.push_back({int(other), int(s), bytes, std::move(why)});
      }
    operand = 0;
    look_at_operands(*calls[s], [&](const View&, Access access) {
      const int b = notes.steps[s].buffers[operand++];
      if (b < 0) return;
      if (access != Access::write) reader[size_t(b)] = s;
      if (access != Access::read) writer[size_t(b)] = s, reader[size_t(b)] = kNone;
    });
  }
}

// ---- plans

void add_unique(std::vector<int>& list, int value) {
  if (std::ranges::find(list, value) == list.end()) list.push_back(value);
}

ExplainedPlan plan_of(const Trace& t, const TracePlan& from,
                      const std::vector<std::string>& places) {
  const Plan& plan = from.plan();
  const PlanNotes& notes = plan.notes();
  ExplainedPlan p;
  p.stats = plan.stats();
  p.stats.arena = from.arena();
  p.runs = from.account.runs;
  p.planning = from.account.planning;
  p.launching = from.account.launching;
  p.is_graph = from.is_graph();
  if (!p.is_graph) p.why_no_graph = from.why_no_graph();
  for (const StepKernel& k : from.account.kernels)
    p.kernels.push_back({int(k.step), k.name, k.seconds});

  std::vector<int> number(notes.memory.size(), -1);  // in p.buffers
  plan.for_each_step([&](const RecordedCall& call) {
    const int s = int(p.steps.size());
    ExplainedStep step{.text = call.to_string(), .calls = notes.steps[size_t(s)].calls};
    for (const int c : step.calls) {
      step.operators.push_back(name_of_call(t, size_t(c)));
      step.bytes_before += bytes_of(*t.calls[size_t(c)]);
    }
    if (!step.calls.empty()) step.where = places[size_t(t.origins[size_t(step.calls[0])].place)];
    size_t operand = 0;
    look_at_operands(call, [&](const View& v, Access access) {
      if (access != Access::write) step.bytes_read += bytes_of(v);
      if (access != Access::read) step.bytes_written += bytes_of(v);
      const int b = notes.steps[size_t(s)].buffers[operand++];
      if (b < 0) return;
      int& its = number[size_t(b)];
      if (its < 0) {
        its = int(p.buffers.size());
        const PlanNotes::Memory& memory = notes.memory[size_t(b)];
        using Kind = ExplainedBuffer::Kind;
        const Kind kind = memory.temporary          ? Kind::temporary
                          : access == Access::write ? Kind::result
                                                    : Kind::given;
        p.buffers.push_back({text_of(v), kind, memory.bytes, s, s});
      }
      p.buffers[size_t(its)].last = s;
      if (access != Access::write) add_unique(step.reads, its);
      if (access != Access::read) add_unique(step.writes, its);
    });
    p.steps.push_back(std::move(step));
  });
  p.left_out = notes.left_out;
  for (const ExplainedBuffer& b : p.buffers) {
    using Kind = ExplainedBuffer::Kind;
    if (b.kind == Kind::given) p.given += b.bytes;
    const int last = b.kind == Kind::result ? int(p.steps.size()) - 1 : b.last;
    for (int s = b.first; s <= last && b.kind != Kind::given; ++s)
      (b.kind == Kind::result ? p.steps[size_t(s)].live_results
                              : p.steps[size_t(s)].live_temporaries) += b.bytes;
  }
  find_apart(notes, plan, p);
  return p;
}

// ---- what changed between traces

size_t common_calls(const Trace& a, const Trace& b) {
  const size_t most = std::min(a.ends.size(), b.ends.size());
  size_t k = 0;
  for (; k < most; ++k) {
    const size_t first = k == 0 ? 0 : a.ends[k - 1];
    if (a.ends[k] != b.ends[k] || !std::equal(a.words.begin() + std::ptrdiff_t(first),
                                              a.words.begin() + std::ptrdiff_t(a.ends[k]),
                                              b.words.begin() + std::ptrdiff_t(first)))
      break;
  }
  return k;
}

// What differs between call k of two traces, which are equal up to it.
std::string difference(const Trace& before, const Trace& after, size_t k) {
  if (k == after.calls.size() && k == before.calls.size())
    return "the same calls, which two threads made first at the same time";
  if (k == after.calls.size()) return "it ends where " + name_of_call(before, k) + " followed";
  const std::string name = name_of_call(after, k);
  if (k == before.calls.size()) return name + ": it goes on where the other one ended";
  const std::string was = name_of_call(before, k);
  if (was != name) return name + " came where " + was + " was";
  struct Operand {
    View view;
    Access access;
    compile::Operand at;
  };
  const auto operands = [k](const Trace& t) {
    std::vector<Operand> all;
    look_at_operands(*t.calls[k], [&](const View& v, Access access) {
      all.push_back({v, access, t.operands[k][all.size()]});
    });
    return all;
  };
  const std::vector<Operand> x = operands(before), y = operands(after);
  if (before.calls[k]->primitive() != after.calls[k]->primitive() || x.size() != y.size())
    return name + ": it makes other calls than before";
  const auto role = [&](size_t i) {
    const bool reads = y[i].access == Access::read;
    const auto same = [&](const Operand& o) { return (o.access == Access::read) == reads; };
    const auto upto = y.begin() + std::ptrdiff_t(i);
    const std::string kind = reads ? "input" : "result";
    if (std::ranges::count_if(y, same) == 1) return kind;
    return kind + " " + std::to_string(std::count_if(y.begin(), upto, same) + 1);
  };
  // Inputs first: results follow from them.
  for (const bool reads : {true, false})
    for (size_t i = 0; i < x.size(); ++i) {
      if ((y[i].access == Access::read) != reads) continue;
      if (x[i].view.dtype != y[i].view.dtype ||
          !std::ranges::equal(x[i].view.sizes, y[i].view.sizes))
        return name + ": " + role(i) + " " + text_of(x[i].view) + " became " + text_of(y[i].view);
    }
  for (size_t i = 0; i < x.size(); ++i)
    if (!std::ranges::equal(x[i].view.strides, y[i].view.strides))
      return name + ": " + role(i) + " " + text_of(y[i].view) + " has strides " +
             arete::to_string(y[i].view.strides) + ", not " + arete::to_string(x[i].view.strides);
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i].at.buffer != y[i].at.buffer || x[i].at.offset != y[i].at.offset)
      return name + ": " + role(i) + " " + text_of(y[i].view) +
             " lies in other memory than before: it is, or is no more, one that other calls use";
  return name + ": an argument that is no tensor, the device or a setting changed";
}

void add_change(const std::vector<std::shared_ptr<Trace>>& traces, size_t index,
                const std::vector<std::string>& places, ExplainedTrace& e) {
  const Trace& t = *traces[index];
  size_t most = 0;
  const Trace* nearest = nullptr;
  for (size_t k = 0; k < index; ++k) {
    const size_t common = common_calls(*traces[k], t);
    const bool same_place = traces[k]->segment == t.segment;
    if (common > most || (common == most && same_place && !nearest)) {
      most = common;
      nearest = traces[k].get();
      e.nearest = int(k) + 1;
    }
  }
  if (!nearest) return;
  e.call = int(most);
  e.changed = difference(*nearest, t, most);
  if (most < t.origins.size()) e.where = places[size_t(t.origins[most].place)];
}

// ---- breaks

std::string advice_for(std::string_view what) {
  if (what == "compact")
    return "how many elements there are decides what follows: select with arete.where, which keeps "
           "the shape, or sort the choice out before";
  if (what == "memory that others see")
    return "NumPy or another library has the address of this memory: give it a copy";
  return "keep the test on the device (arete.where), or read the value once in several steps";
}

}  // namespace

Explanation explanation_of(const Program& program) {
  Explanation e;
  e.name = program.options().name;
  e.exact = program.options().exact;
  e.stats = program.stats();
  e.skipping = program.skipping();
  for (Break& b : program.breaks()) e.breaks.push_back({b, advice_for(b.what)});
  const std::vector<std::shared_ptr<Trace>> traces = program.traces();
  const std::vector<std::string> places = program.places();
  for (size_t k = 0; k < traces.size(); ++k) {
    const Trace& t = *traces[k];
    ExplainedTrace its{.number = int(k) + 1, .segment = t.segment, .calls = int(t.calls.size())};
    add_change(traces, k, places, its);
    const std::lock_guard lock(traces[k]->mutex);
    for (const auto& p : t.plans()) {
      its.plans.push_back(plan_of(t, *p, places));
      its.runs += p->account.runs;
    }
    e.traces.push_back(std::move(its));
  }
  return e;
}

std::string explain(const Program& program) { return to_text(explanation_of(program)); }

}  // namespace arete::compile
