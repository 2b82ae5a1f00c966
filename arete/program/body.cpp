#include <algorithm>

#include "arete/base/error.h"
#include "arete/base/text.h"
#include "arete/nn/rnn_internal.h"
#include "arete/ops/schema_values.h"
#include "arete/program/body_internal.h"

namespace arete::program {

namespace {

// The innermost region in which a call lies, behind its first mark; without one, `end` is 0.
struct Region {
  size_t begin = 0, end = 0;
};

std::vector<Region> regions_of(std::vector<RecordedCall>& calls) {
  std::vector<Region> of(calls.size());
  std::vector<std::pair<size_t, size_t>> open;  // the first mark and the latest one
  const auto leave = [&](size_t end) {
    for (size_t k = end; k > open.back().first; --k)
      if (!of[k].end) of[k] = {open.back().first, end};
    open.pop_back();
  };
  for (size_t k = 0; k < calls.size(); ++k) {
    const Form form = calls[k].form;
    if (!is_mark(form)) continue;
    if (form == Form::branch || form == Form::loop) {
      open.emplace_back(k, k);
      continue;
    }
    calls[open.back().second].next_mark = k;
    open.back().second = k;
    if (form == Form::join || form == Form::repeat) leave(k);
  }
  return of;
}

}  // namespace

bool Scopes::mark(Form form, int next, size_t count) {
  constexpr size_t kMaxDepth = 64;
  if (form == Form::branch || form == Form::loop) {
    if (open_.size() == kMaxDepth) return false;
    open_.push_back({form, next, count});
    return true;
  }
  // Each of the others follows the one before it.
  if (open_.empty() || int(open_.back().last) + 1 != int(form)) return false;
  Open& o = open_.back();
  if ((form == Form::join || form == Form::repeat) && o.count != count) return false;
  if (form == Form::otherwise) o.count = count;
  o.last = form;
  // With the parts inside of it, which lie behind its first value.
  while (!gone_.empty() && gone_.back().first >= o.first) gone_.pop_back();
  if (!gone_.empty() && gone_.back().second == o.first)
    gone_.back().second = next;
  else if (o.first < next)
    gone_.emplace_back(o.first, next);
  o.first = next;
  if (form == Form::join || form == Form::repeat) open_.pop_back();
  return true;
}

bool Scopes::holds(int value) const {
  const auto after = std::ranges::upper_bound(gone_, value, {}, &std::pair<int, int>::first);
  return after == gone_.begin() || value >= std::prev(after)->second;
}

std::string_view name_of(Form form) {
  static constexpr std::string_view kNames[] = {
      "call", "in_place", "out", "detach", "branch", "otherwise", "join", "loop", "test", "repeat"};
  return kNames[int(form)];
}

std::string RecordedCall::name() const { return op ? op->full_name() : std::string(name_of(form)); }

int64_t value_of(const Extent& e, std::span<const int64_t> sizes) {
  int64_t sum = e.constant;
  bool fits = true;
  for (const Term& t : e.terms) {
    int64_t product = t.factor;
    for (const int s : {t.a, t.b})
      if (s >= 0) fits = fits && !__builtin_mul_overflow(product, sizes[size_t(s)], &product);
    fits = fits && !__builtin_add_overflow(sum, product, &sum);
  }
  ARETE_CHECK(fits,
              ValueError("program", "an integer that the sizes decide has more than 64 bits"));
  return sum;
}

std::string text_of(const Extent& e, const std::vector<SizeInfo>& symbols) {
  if (!e.is_known) return "?";
  std::string s;
  const auto add = [&s](int64_t n, const std::string& what) {
    const bool negative = n < 0;
    const std::string number = std::to_string(n);
    const std::string absolute = negative ? number.substr(1) : number;
    if (!s.empty())
      s += negative ? " - " : " + ";
    else if (negative)
      s += "-";
    if (what.empty())
      s += absolute;
    else
      s += absolute == "1" ? what : absolute + "*" + what;
  };
  for (const Term& t : e.terms) {
    std::string what = symbols[size_t(t.a)].name;
    if (t.b >= 0) what += "*" + symbols[size_t(t.b)].name;
    add(t.factor, what);
  }
  if (e.constant || e.terms.empty()) add(e.constant, "");
  return s;
}

int Body::n_results() const {
  int n = 0;
  for (const RecordedCall& c : calls) n += int(c.results.size());
  return n;
}

int Body::n_values() const { return int(inputs.size() + constants.size()) + n_results(); }

void Body::finish() {
  int next = int(inputs.size() + constants.size());
  const int first = next;
  for (RecordedCall& c : calls) {
    c.first_result = next;
    next += int(c.results.size());
    c.last_uses.clear();
  }
  const std::vector<Region> regions = regions_of(calls);
  std::vector<size_t> made_by(size_t(next), 0);
  for (size_t k = 0; k < calls.size(); ++k)
    for (size_t r = 0; r < calls[k].results.size(); ++r)
      made_by[size_t(calls[k].first_result) + r] = k;
  std::vector<char> seen(size_t(next), 0);
  for (const int v : outputs) seen[size_t(v)] = 1;
  for (size_t k = calls.size(); k-- > 0;) {
    RecordedCall& c = calls[k];
    const auto use = [&](int v) {
      if (v < first || seen[size_t(v)]) return;
      seen[size_t(v)] = 1;
      // What was there before a loop or a branch is there until its end.
      size_t last = k;
      for (size_t r = k; regions[r].end && regions[r].begin >= made_by[size_t(v)];) {
        last = regions[r].end;
        r = regions[r].begin;
      }
      calls[last].last_uses.push_back(v);
    };
    for_each_value(std::as_const(c), use);
    for (size_t r = 0; r < c.results.size(); ++r) use(c.first_result + int(r));
  }
}

std::string Body::name_of(int value) const {
  if (value < 0) return "None";
  size_t v = size_t(value);
  if (v < inputs.size()) return "%" + inputs[v].name;
  v -= inputs.size();
  if (v < constants.size()) return "%" + constants[v].name;
  return "%" + std::to_string(v - constants.size());
}

std::string call_text(const Body& body, size_t call) {
  const RecordedCall& c = body.calls[call];
  return "call " + std::to_string(call + 1) + " (" + c.name() +
         (c.place.empty() ? "" : ", " + c.place) + ")";
}

const ops::OpRecord* find_callable(std::string_view name) {
  const ops::OpRecord& direction = nn::direction_record();
  return name == direction.name ? &direction : ops::find_record(name);
}

bool is_for_files(const ops::OpRecord& op) { return ops::may_be_named(op) || takes_program(op); }

bool takes_program(const ops::OpRecord& op) {
  return op.apply && op.schema == op.name + "(Program program, Tensor[] inputs) -> Tensor[]";
}

}  // namespace arete::program
