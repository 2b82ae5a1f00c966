#include "arete/compile/explain.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>

#include "arete/compile/plan_notes_internal.h"
#include "arete/compile/queue_internal.h"

namespace arete::compile {
namespace {

using prim::Access;
using prim::RecordedCall;
using prim::View;

size_t extent_bytes(const View& v) { return size_t(v.numel()) * size_of(v.dtype); }
std::string text_of(const View& v) {
  return std::string(arete::name_of(v.dtype)) + arete::to_string(v.sizes);
}
// Operands of a call can be looked at only as if they were to be changed.
template <class F>
void look_at_operands(const RecordedCall& call, F&& f) {
  const_cast<RecordedCall&>(call).for_each_operand([&](View& v, Access access) { f(v, access); });
}
size_t traffic_of(const RecordedCall& call) {
  size_t bytes = 0;
  look_at_operands(call, [&](const View& v, Access) { bytes += extent_bytes(v); });
  return bytes;
}
std::string name_of_call(const Trace& t, size_t k) {
  const char* const op = t.origins[k].op;
  return op ? op : prim::name_of(t.calls[k]->primitive());
}

// ---- why steps are apart

std::string sentence(const WhyNot& why, const RecordedCall& earlier, const RecordedCall& later,
                     bool exact) {
  const std::string n = std::to_string(why.number);
  const auto alone = [](const RecordedCall& call) {
    return std::string(prim::name_of(call.primitive())) +
           " is a kernel that takes in no calls around it";
  };
  switch (why.reason) {
    case WhyNot::kind:
      return alone(later);
    case WhyNot::earlier_kind:
      return alone(earlier);
    case WhyNot::reduces:
      return "what follows a reduction is not computed in its kernel";
    case WhyNot::device:
      return "they run on different devices";
    case WhyNot::context:
      return "they run with different settings of precision or determinism, or on other streams";
    case WhyNot::shape:
      return "their shapes differ, and neither can be seen as the other";
    case WhyNot::places:
      return "elements of the one are needed at other positions of the other";
    case WhyNot::unconnected:
      return "they use other elements, or other views, of the memory";
    case WhyNot::rounding:
      return exact ? "a sum of floats would be added in another order, which exact does not allow"
                   : "a sum of floats would be added in another order";
    case WhyNot::kept:
      return "a kernel that reduces stores nothing else, and what it would take in is read by "
             "another step or kept";
    case WhyNot::numbers:
      return "the one writes a number that the other reads as a parameter";
    case WhyNot::instructions:
      return "together they have " + n + " instructions, more than fit one kernel";
    case WhyNot::params:
      return "together they have " + n + " parameters, more than fit one kernel";
    case WhyNot::operands:
      return "together they have " + n + " operands, more than fit one kernel";
    case WhyNot::nothing_read:
      return "nothing would be left to read";
    case WhyNot::order:
      return "a step between them uses the same memory, so that they cannot stand side by side";
    case WhyNot::streams:
      return "the calls were made on several streams, and stay as they are";
    case WhyNot::unseen:
      return "too many steps were between them, or a copy that was left out later";
    case WhyNot::none:
      break;
  }
  return "";
}

// Of the kernels that are put together for what they read.
bool works_by_element(const RecordedCall& call) {
  using enum prim::Primitive;
  const prim::Primitive p = call.primitive();
  return p == pointwise || p == copy || p == fill || p == reduce;
}

// Steps that could have been one: the later one reads what the earlier one made, or both read one
// memory element by element and nothing writes to it in between.
void find_apart(const PlanNotes& notes, const Plan& plan, bool exact, ExplainedPlan& p) {
  std::vector<const RecordedCall*> calls;
  const_cast<Plan&>(plan).for_each_step([&](RecordedCall& call) { calls.push_back(&call); });
  std::unordered_map<int, int> step_of_call;
  for (size_t s = 0; s < p.steps.size(); ++s)
    for (const int c : p.steps[s].calls) step_of_call[c] = int(s);
  std::map<std::pair<int, int>, WhyNot> known;
  for (const PlanNotes::Apart& a : notes.apart) {
    const auto x = step_of_call.find(a.earlier), y = step_of_call.find(a.later);
    if (x != step_of_call.end() && y != step_of_call.end()) known[{x->second, y->second}] = a.why;
  }
  std::vector<int> writer(notes.memory.size(), -1), reader(notes.memory.size(), -1);
  for (int s = 0; s < int(p.steps.size()); ++s) {
    // Of each earlier step what this one shares with it, in bytes as this one uses them.
    std::map<int, size_t> made, read;
    size_t operand = 0;
    look_at_operands(*calls[size_t(s)], [&](const View& v, Access access) {
      const int b = notes.buffers[size_t(s)][operand++];
      if (b < 0 || access == Access::write) return;
      if (const int w = writer[size_t(b)]; w >= 0)
        made[w] += extent_bytes(v);
      else if (const int r = reader[size_t(b)]; r >= 0)
        read[r] += extent_bytes(v);
    });
    for (const auto* list : {&made, &read})
      for (const auto& [other, bytes] : *list) {
        if (list == &read && made.contains(other)) continue;
        const RecordedCall &mine = *calls[size_t(s)], &its = *calls[size_t(other)];
        const auto found = known.find({other, s});
        const bool by_element = works_by_element(mine) && works_by_element(its);
        if (list == &read && (!by_element || found == known.end())) continue;
        WhyNot why{notes.several_streams    ? WhyNot::streams
                   : !works_by_element(its) ? WhyNot::earlier_kind
                   : !by_element            ? WhyNot::kind
                                            : WhyNot::unseen};
        if (found != known.end()) why = found->second;
        p.apart.push_back({other, s, bytes, sentence(why, its, mine, exact)});
      }
    operand = 0;
    look_at_operands(*calls[size_t(s)], [&](const View&, Access access) {
      const int b = notes.buffers[size_t(s)][operand++];
      if (b < 0) return;
      if (access != Access::write) reader[size_t(b)] = s;
      if (access != Access::read) writer[size_t(b)] = s, reader[size_t(b)] = -1;
    });
  }
}

// ---- plans

void add_unique(std::vector<int>& list, int value) {
  if (std::ranges::find(list, value) == list.end()) list.push_back(value);
}

ExplainedPlan plan_of(const Trace& t, const TracePlan& from, const std::vector<std::string>& places,
                      bool exact) {
  const Plan& plan = from.plan();
  const PlanNotes& notes = plan.notes();
  ExplainedPlan p;
  p.stats = plan.stats();
  p.runs = from.account.runs;
  p.planning = from.account.planning;
  p.launching = from.account.launching;
  p.is_graph = from.is_graph();
  if (!p.is_graph) p.why_no_graph = from.why_no_graph();
  for (const StepKernel& k : from.account.kernels)
    p.kernels.push_back({int(k.step), k.name, k.seconds});

  std::vector<int> number(notes.memory.size(), -1);  // in p.buffers
  const_cast<Plan&>(plan).for_each_step([&](RecordedCall& call) {
    const int s = int(p.steps.size());
    ExplainedStep step{.text = call.to_string(), .calls = plan.calls_of(size_t(s))};
    for (const int c : step.calls) {
      step.operators.push_back(name_of_call(t, size_t(c)));
      step.bytes_before += traffic_of(*t.calls[size_t(c)]);
    }
    if (!step.calls.empty()) step.where = places[size_t(t.origins[size_t(step.calls[0])].place)];
    size_t operand = 0;
    look_at_operands(call, [&](const View& v, Access access) {
      if (access != Access::write) step.bytes_read += extent_bytes(v);
      if (access != Access::read) step.bytes_written += extent_bytes(v);
      const int b = notes.buffers[size_t(s)][operand++];
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
  size_t done = 0;
  for (const ExplainedStep& s : p.steps) done += s.calls.size();
  p.left_out = p.stats.recorded - int(done);
  for (const ExplainedBuffer& b : p.buffers) {
    using Kind = ExplainedBuffer::Kind;
    if (b.kind == Kind::given) p.given += b.bytes;
    const int last = b.kind == Kind::result ? int(p.steps.size()) - 1 : b.last;
    for (int s = b.first; s <= last && b.kind != Kind::given; ++s)
      (b.kind == Kind::result ? p.steps[size_t(s)].live_results
                              : p.steps[size_t(s)].live_temporaries) += b.bytes;
  }
  find_apart(notes, plan, exact, p);
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
  for (Break& b : program.breaks()) e.breaks.push_back({b, advice_for(b.what)});
  const std::vector<std::shared_ptr<Trace>> traces = program.traces();
  const std::vector<std::string> places = program.places();
  for (size_t k = 0; k < traces.size(); ++k) {
    const Trace& t = *traces[k];
    ExplainedTrace its{.number = int(k) + 1, .segment = t.segment, .calls = int(t.calls.size())};
    add_change(traces, k, places, its);
    const std::lock_guard lock(traces[k]->mutex);
    for (const auto& p : t.plans()) {
      its.plans.push_back(plan_of(t, *p, places, e.exact));
      its.runs += p->account.runs;
    }
    e.traces.push_back(std::move(its));
  }
  return e;
}

std::string explain(const Program& program) { return to_text(explanation_of(program)); }

}  // namespace arete::compile
