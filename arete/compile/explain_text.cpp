#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <type_traits>

#include "arete/base/text.h"
#include "arete/compile/explain.h"

namespace arete::compile {
namespace {

// What people read at once.
constexpr size_t kMostBreaks = 12, kMostTraces = 12, kMostSteps = 24, kMostApart = 8;
constexpr size_t kMostPlans = 8, kMostPlansWithSteps = 2;
constexpr size_t kMostKernels = 5, kMostOperators = 6, kMostOperands = 5;

std::string number(double value, const char* unit) {
  char buffer[48];
  std::snprintf(buffer, sizeof(buffer), value != 0 && value < 9.995 ? "%.2f %s" : "%.1f %s", value,
                unit);
  return buffer;
}
std::string bytes_text(size_t bytes) {
  if (bytes < 10'000) return std::to_string(bytes) + " B";
  const double b = double(bytes);
  if (b < 1e6) return number(b / 1e3, "kB");
  return b < 1e9 ? number(b / 1e6, "MB") : number(b / 1e9, "GB");
}
std::string seconds_text(double s) {
  if (s < 1e-3) return number(s * 1e6, "us");
  return s < 1 ? number(s * 1e3, "ms") : number(s, "s");
}
std::string counted(int64_t n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

// The text of a step, of long lists of operands only the first.
std::string step_text(const std::string& text) {
  std::string out;
  size_t operands = 0, left_out = 0;
  const auto end_list = [&] {
    if (left_out) out += ", ... " + std::to_string(left_out) + " more";
    operands = left_out = 0;
  };
  int depth = 0;  // of brackets: sizes have commas, too
  for (size_t k = 0; k < text.size(); ++k) {
    const char c = text[k];
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    const bool ends = depth == 0 && (c == ')' || text.compare(k, 3, " ->") == 0);
    if (ends) end_list();
    if (depth == 0 && c == ',' && ++operands >= kMostOperands) ++left_out;
    if (operands < kMostOperands) out += c;
  }
  return out;
}

std::string operators_text(const std::vector<std::string>& operators) {
  std::string text;
  for (size_t k = 0; k < std::min(operators.size(), kMostOperators); ++k)
    text += (k ? ", " : "") + operators[k];
  if (operators.size() > kMostOperators)
    text += ", and " + std::to_string(operators.size() - kMostOperators) + " more";
  return text;
}

void add_summary(std::string& text, const Explanation& e) {
  const CompileStats& s = e.stats;
  if (!e.name.empty()) text += e.name + ": ";
  text += counted(s.calls, "call") + " ran as " + counted(s.runs, "plan") + " of " +
          std::to_string(s.plans) + ", for " + counted(s.traces, "list") + " of primitive calls\n";
  if (s.runs == 0) return;
  const int64_t calls = std::max<int64_t>(1, s.calls - s.at_once);
  const auto per_call = [&](int64_t n) { return (n + calls / 2) / calls; };
  text += "a call: " + counted(per_call(s.primitive_calls), "primitive call") + " in " +
          counted(per_call(s.steps), "kernel") + ", " +
          bytes_text(size_t(per_call(s.bytes_recorded))) + " moved before, " +
          bytes_text(size_t(per_call(s.bytes_moved))) + " now; the host runs them in " +
          seconds_text(s.launching / double(calls)) + "; planning took " +
          seconds_text(s.planning) + " in all\n";
}

void add_breaks(std::string& text, const Explanation& e) {
  std::string advice;
  for (size_t k = 0; k < std::min(e.breaks.size(), kMostBreaks); ++k) {
    const auto& [look, its_advice] = e.breaks[k];
    text += "break: " + (look.where.empty() ? std::string("a value is looked at") : look.where);
    if (!look.what.empty()) text += " (" + look.what + ")";
    text += ", " + counted(look.count, "time") + ": its calls are made there, " +
            seconds_text(look.making / double(look.count));
    // Less is no wait.
    if (look.waiting / double(look.count) > 5e-6)
      text += ", and the host waits " + seconds_text(look.waiting / double(look.count)) +
              " for the GPU";
    text += " each time\n";
    if (its_advice != advice) text += "  " + its_advice + "\n";
    advice = its_advice;
  }
  if (e.breaks.size() > kMostBreaks)
    text += "  and at " + std::to_string(e.breaks.size() - kMostBreaks) + " other places\n";
}

void add_changes(std::string& text, const Explanation& e) {
  size_t told = 0, others = 0;
  for (const ExplainedTrace& t : e.traces) {
    if (t.changed.empty()) continue;
    if (told == kMostTraces) {
      ++others;
      continue;
    }
    ++told;
    text += "another list: " + std::to_string(t.number) + " is " + std::to_string(t.nearest) +
            " up to call " + std::to_string(t.call) + "; " + t.changed +
            (t.where.empty() ? "" : " at " + t.where) + " (ran " + counted(t.runs, "time") + ")\n";
  }
  if (others) text += "  and " + counted(int64_t(others), "other list") + "\n";
}

void add_steps(std::string& text, const ExplainedPlan& p) {
  // Those that move most, in their order.
  std::vector<size_t> shown(p.steps.size());
  std::iota(shown.begin(), shown.end(), size_t(0));
  std::ranges::stable_sort(shown, std::greater(), [&](size_t s) {
    return p.steps[s].bytes_read + p.steps[s].bytes_written;
  });
  shown.resize(std::min(shown.size(), kMostSteps));
  std::ranges::sort(shown);
  for (const size_t s : shown) {
    const ExplainedStep& step = p.steps[s];
    text += "  " + std::to_string(s) + " " + step_text(step.text);
    if (step.calls.size() > 1) text += "  of " + std::to_string(step.calls.size()) + " calls";
    text += ": " + operators_text(step.operators) + "\n";
  }
  if (p.steps.size() > shown.size())
    text +=
        "  (and " + counted(int64_t(p.steps.size() - shown.size()), "step") + " that move less)\n";
}

// By reason, that through which most goes first.
void add_apart(std::string& text, const ExplainedPlan& p) {
  struct Reason {
    size_t bytes = 0, count = 0;
    const ExplainedApart* largest = nullptr;
  };
  std::map<std::string, Reason> reasons;
  for (const ExplainedApart& a : p.apart) {
    Reason& r = reasons[a.reason];
    r.bytes += a.bytes;
    ++r.count;
    if (!r.largest || r.largest->bytes < a.bytes) r.largest = &a;
  }
  std::vector<std::pair<std::string, Reason>> sorted(reasons.begin(), reasons.end());
  std::ranges::stable_sort(sorted, std::greater(), [](const auto& r) { return r.second.bytes; });
  for (size_t k = 0; k < std::min(sorted.size(), kMostApart); ++k) {
    const auto& [reason, r] = sorted[k];
    text += "  apart: step " + std::to_string(r.largest->later) + " from " +
            std::to_string(r.largest->earlier);
    if (r.count > 1) text += " and " + counted(int64_t(r.count) - 1, "other pair");
    text += ", " + bytes_text(r.bytes) + " between them: " + reason + "\n";
  }
}

void add_plan(std::string& text, const ExplainedTrace& t, const ExplainedPlan& p, bool with_steps) {
  size_t most_live = 0;
  for (const ExplainedStep& s : p.steps)
    most_live = std::max(most_live, s.live_temporaries + s.live_results);
  text += (with_steps ? "\nplan: list " : "plan: list ") + std::to_string(t.number) + ", " +
          counted(p.stats.recorded, "call") + ", " + counted(p.stats.steps, "step") + ", " +
          bytes_text(p.stats.bytes_moved) + " moved of " + bytes_text(p.stats.bytes_recorded) +
          ", arena " + bytes_text(p.stats.arena) + " of " + bytes_text(p.stats.temporaries) +
          (p.stats.recomputed ? ", " + counted(p.stats.recomputed, "step") + " run again" : "") +
          ", at most " + bytes_text(most_live) + " at once, ran " + counted(p.runs, "time") +
          (p.is_graph ? ", one graph" : ", no graph: " + p.why_no_graph) + "\n";
  if (!with_steps) return;
  add_steps(text, p);
  if (p.left_out)
    text += "  left out: " + counted(p.left_out, "call") +
            " whose results nobody reads, or that copy\n";
  add_apart(text, p);
  std::vector<ExplainedKernel> kernels = p.kernels;
  std::ranges::stable_sort(kernels, std::greater(), &ExplainedKernel::seconds);
  double seconds = 0;
  for (const ExplainedKernel& k : kernels) seconds += k.seconds;
  if (kernels.empty()) return;
  text += "  compiled: " + counted(int64_t(kernels.size()), "kernel") + " in " +
          seconds_text(seconds) + ", longest ";
  for (size_t k = 0; k < std::min(kernels.size(), kMostKernels); ++k)
    text += (k ? ", " : "") + kernels[k].name + " " + seconds_text(kernels[k].seconds);
  text += "\n";
}

}  // namespace

std::string to_text(const Explanation& e) {
  std::string text;
  add_summary(text, e);
  if (!e.skipping.empty()) text += e.skipping + "\n";
  if (e.stats.at_once > 0)
    text += "at once: " + counted(e.stats.at_once, "call") +
            ", whose plans save less than it costs on a CPU to put calls off\n";
  add_breaks(text, e);
  add_changes(text, e);
  // Those that the most bytes went through.
  std::vector<std::pair<const ExplainedTrace*, const ExplainedPlan*>> plans;
  for (const ExplainedTrace& t : e.traces)
    for (const ExplainedPlan& p : t.plans) plans.push_back({&t, &p});
  const auto importance = [](const auto& plan) {
    return double(plan.second->runs) *
           (double(plan.second->stats.bytes_moved) + 1e3 * plan.second->stats.steps);
  };
  std::ranges::stable_sort(plans, std::greater(), importance);
  for (size_t k = 0; k < std::min(plans.size(), kMostPlans); ++k) {
    if (k == kMostPlansWithSteps) text += "\n";
    add_plan(text, *plans[k].first, *plans[k].second, k < kMostPlansWithSteps);
  }
  if (plans.size() > kMostPlans)
    text += "and " + counted(int64_t(plans.size() - kMostPlans), "plan") + " that did less\n";
  return text;
}

// ---- JSON

namespace {

// Values of one object or list, in order.
class Json {
 public:
  explicit Json(std::string& out, char open) : out_(out), close_(open == '{' ? '}' : ']') {
    out_ += open;
  }
  ~Json() { out_ += close_; }
  Json(const Json&) = delete;
  Json& operator=(const Json&) = delete;

  std::string& next(const char* key = nullptr) {
    if (!is_first_) out_ += ',';
    is_first_ = false;
    if (key) out_ += std::string("\"") + key + "\":";
    return out_;
  }
  void add(const char* key, const std::string& text) { next(key) += io::json_string(text); }
  void add(const char* key, const char* text) { next(key) += io::json_string(text); }
  void add(const char* key, bool b) { next(key) += b ? "true" : "false"; }
  void add(const char* key, double x) { next(key) += io::json_number(x); }
  template <class T>
  requires std::is_integral_v<T>
  void add(const char* key, T n) { next(key) += std::to_string(n); }
  template <class T>
  void add(const char* key, const std::vector<T>& list) {
    Json its(next(key), '[');
    for (const T& x : list) its.add(nullptr, x);
  }
  template <class T, class F>
  void add_objects(const char* key, const std::vector<T>& list, F&& f) {
    Json its(next(key), '[');
    for (const T& x : list) {
      Json object(its.next(), '{');
      f(object, x);
    }
  }

 private:
  std::string& out_;
  char close_;
  bool is_first_ = true;
};

void add_plan_object(Json& j, const ExplainedPlan& p) {
  static constexpr const char* kinds[] = {"given", "result", "temporary"};
  j.add("recorded", p.stats.recorded);
  j.add("left_out", p.left_out);
  j.add("bytes_moved", p.stats.bytes_moved);
  j.add("bytes_recorded", p.stats.bytes_recorded);
  j.add("recomputed", p.stats.recomputed);
  j.add("arena", p.stats.arena);
  j.add("temporaries", p.stats.temporaries);
  j.add("given", p.given);
  j.add("runs", p.runs);
  j.add("planning", p.planning);
  j.add("launching", p.launching);
  j.add("is_graph", p.is_graph);
  j.add("why_no_graph", p.why_no_graph);
  j.add_objects("steps", p.steps, [](Json& o, const ExplainedStep& s) {
    o.add("text", s.text);
    o.add("calls", s.calls);
    o.add("operators", s.operators);
    o.add("where", s.where);
    o.add("reads", s.reads);
    o.add("writes", s.writes);
    o.add("bytes_read", s.bytes_read);
    o.add("bytes_written", s.bytes_written);
    o.add("bytes_before", s.bytes_before);
    o.add("live_temporaries", s.live_temporaries);
    o.add("live_results", s.live_results);
  });
  j.add_objects("buffers", p.buffers, [](Json& o, const ExplainedBuffer& b) {
    o.add("text", b.text);
    o.add("kind", kinds[size_t(b.kind)]);
    o.add("bytes", b.bytes);
    o.add("first", b.first);
    o.add("last", b.last);
  });
  j.add_objects("apart", p.apart, [](Json& o, const ExplainedApart& a) {
    o.add("earlier", a.earlier);
    o.add("later", a.later);
    o.add("bytes", a.bytes);
    o.add("reason", a.reason);
  });
  j.add_objects("kernels", p.kernels, [](Json& o, const ExplainedKernel& k) {
    o.add("step", k.step);
    o.add("name", k.name);
    o.add("seconds", k.seconds);
  });
}

void add_function(Json& j, const Explanation& e) {
  j.add("name", e.name);
  j.add("exact", e.exact);
  {
    Json stats(j.next("stats"), '{');
    stats.add("calls", e.stats.calls);
    stats.add("skipped", e.stats.skipped);
    stats.add("at_once", e.stats.at_once);
    stats.add("breaks", e.stats.breaks);
    stats.add("traces", e.stats.traces);
    stats.add("plans", e.stats.plans);
    stats.add("runs", e.stats.runs);
    stats.add("planning", e.stats.planning);
    stats.add("launching", e.stats.launching);
    stats.add("primitive_calls", e.stats.primitive_calls);
    stats.add("steps", e.stats.steps);
    stats.add("bytes_recorded", e.stats.bytes_recorded);
    stats.add("bytes_moved", e.stats.bytes_moved);
  }
  j.add("skipping", e.skipping);
  j.add_objects("breaks", e.breaks, [](Json& o, const ExplainedBreak& b) {
    o.add("where", b.look.where);
    o.add("what", b.look.what);
    o.add("count", b.look.count);
    o.add("making", b.look.making);
    o.add("waiting", b.look.waiting);
    o.add("advice", b.advice);
  });
  j.add_objects("traces", e.traces, [](Json& o, const ExplainedTrace& t) {
    o.add("number", t.number);
    o.add("segment", t.segment);
    o.add("calls", t.calls);
    o.add("runs", t.runs);
    o.add("nearest", t.nearest);
    o.add("call", t.call);
    o.add("changed", t.changed);
    o.add("where", t.where);
    o.add_objects("plans", t.plans, add_plan_object);
  });
}

}  // namespace

std::string to_json(std::span<const Explanation> functions) {
  std::string out;
  {
    Json j(out, '{');
    Json list(j.next("functions"), '[');
    for (const Explanation& e : functions) {
      Json object(list.next(), '{');
      add_function(object, e);
    }
  }
  return out;
}

}  // namespace arete::compile
