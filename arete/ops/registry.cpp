#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

#include "arete/ops/aliases.h"
#include "arete/ops/families.h"
#include "arete/ops/pointwise_call.h"
#include "arete/ops/record.h"

namespace arete::ops {

namespace {
struct Registry {
  std::map<std::string, std::unique_ptr<OpRecord>, std::less<>> records;
};
Registry& registry() {
  static Registry* r = new Registry;  // outlives every static record reference
  return *r;
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

// Splits at commas outside brackets.
std::vector<std::string_view> split_list(std::string_view s) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i <= s.size(); ++i) {
    if (i == s.size() || (s[i] == ',' && depth == 0)) {
      if (const auto part = trim(s.substr(start, i - start)); !part.empty()) parts.push_back(part);
      start = i + 1;
    } else if (s[i] == '[' || s[i] == '(') {
      ++depth;
    } else if (s[i] == ']' || s[i] == ')') {
      --depth;
    }
  }
  return parts;
}

void check(const OpRecord& record, bool holds, const char* what) {
  if (!holds) ARETE_BUG(("the record of " + record.name + ": " + what).c_str());
}
}  // namespace

const char* Call::name() const { return op.name.c_str(); }

Definer define(std::string_view schema) {
  auto record = std::make_unique<OpRecord>();
  record->schema = schema;
  const std::string_view full = trim(schema.substr(0, schema.find('(')));
  const size_t dot = std::min(full.find('.'), full.size());
  record->name = full.substr(0, dot);
  if (dot < full.size()) record->overload = full.substr(dot + 1);
  OpRecord& r = *record;
  const bool added = registry().records.emplace(full, std::move(record)).second;
  if (!added) ARETE_BUG(("two records are called " + std::string(schema)).c_str());
  return Definer(r);
}

std::vector<const OpRecord*> all_records() {
  link_families();
  std::vector<const OpRecord*> all;
  for (const auto& [name, record] : registry().records) all.push_back(record.get());
  return all;
}

const OpRecord* find_record(std::string_view name) {
  link_families();
  auto it = registry().records.find(name);
  if (it == registry().records.end()) {
    const auto aliases = all_aliases();
    const auto alias =
        std::lower_bound(aliases.begin(), aliases.end(), name,
                         [](const Alias& a, std::string_view wanted) { return a.name < wanted; });
    if (alias != aliases.end() && alias->name == name) it = registry().records.find(alias->record);
  }
  return it == registry().records.end() ? nullptr : it->second.get();
}

std::optional<Schema> parse_schema(std::string_view text) {
  Schema schema;
  const size_t open = text.find('('), arrow = std::min(text.find("->"), text.size());
  const size_t close = text.rfind(')', arrow);
  if (open == text.npos || close == text.npos || close < open) return std::nullopt;
  bool keyword_only = false;
  for (std::string_view part : split_list(text.substr(open + 1, close - open - 1))) {
    if (part == "*") {
      keyword_only = true;
      continue;
    }
    SchemaArg arg;
    arg.keyword_only = keyword_only;
    if (const auto eq = part.find('='); eq != part.npos) {
      arg.default_text = trim(part.substr(eq + 1));
      part = trim(part.substr(0, eq));
    }
    const auto space = part.rfind(' ');
    if (space == part.npos) return std::nullopt;
    arg.type = trim(part.substr(0, space));
    arg.name = part.substr(space + 1);
    schema.args.push_back(std::move(arg));
  }
  if (arrow == text.size()) return schema;
  std::string_view returns = trim(text.substr(arrow + 2));
  if (returns.starts_with('(') && returns.ends_with(')'))
    returns = returns.substr(1, returns.size() - 2);
  for (std::string_view part : split_list(returns)) schema.returns.emplace_back(part);
  return schema;
}

const Schema& schema_of(const OpRecord& op) {
  static std::mutex mutex;
  static std::unordered_map<const OpRecord*, std::unique_ptr<Schema>> parsed;
  const std::lock_guard lock(mutex);
  auto& slot = parsed[&op];
  if (!slot) {
    std::optional<Schema> schema = parse_schema(op.schema);
    if (!schema || op.schema.find("->") == std::string::npos)
      ARETE_BUG(("malformed schema: " + op.schema).c_str());
    slot = std::make_unique<Schema>(*std::move(schema));
  }
  return *slot;
}

Definer& Definer::doc(std::string_view text) {
  r_.doc = text;
  return *this;
}
Definer& Definer::dtypes(std::vector<DType> d) {
  r_.dtypes = std::move(d);
  return *this;
}
Definer& Definer::gradient(expr::Definition d) {
  check(r_, r_.pointwise != nullptr, "gradient() is for pointwise records, after pointwise()");
  r_.pointwise->gradient = std::move(d);
  return *this;
}
Definer& Definer::complex(ComplexForm f) {
  check(r_, r_.pointwise != nullptr, "complex(form) is for pointwise records, after pointwise()");
  r_.pointwise->complex = std::move(f);
  return *this;
}
Definer::operator const OpRecord&() const {
  const int kinds = bool(r_.pointwise) + (r_.view || r_.views) + bool(r_.compose) + bool(r_.infer);
  check(r_, kinds == 1, "it is one of pointwise, view, composition, or has infer()");
  check(r_, !r_.lower || r_.infer, "lower() is for records with infer()");
  check(r_, !r_.compose_complex || r_.infer, "complex(function) is for records with infer()");
  check(r_, !r_.batching.rule || ((r_.view || r_.infer) && !r_.batching.one_by_one),
        "batched() is for views and with infer(), and one_by_one() for others than those");
  check(r_, !r_.batching.one_by_one || r_.infer || r_.compose,
        "one_by_one() is for compositions and records with infer()");
  check(r_, !r_.grad || !(r_.pointwise || r_.compose), "grad() is for views and with infer()");
  return r_;
}
Definer& Definer::pointwise(PointwiseDef d) {
  r_.pointwise = std::make_shared<PointwiseDef>(std::move(d));
  r_.pointwise->cache = make_pointwise_cache();
  return *this;
}

Definer& Definer::unary(expr::Value (*f)(expr::Value), PointwiseDef::Result result) {
  PointwiseDef d;
  d.n_inputs = 1;
  d.result = result;
  d.definition = [f](std::span<const expr::Value> v) { return std::vector{f(v[0])}; };
  return pointwise(std::move(d)).in_place();
}

Definer& Definer::binary(expr::Value (*f)(expr::Value, expr::Value), PointwiseDef::Result result) {
  PointwiseDef d;
  d.n_inputs = 2;
  d.result = result;
  d.definition = [f](std::span<const expr::Value> v) { return std::vector{f(v[0], v[1])}; };
  return pointwise(std::move(d)).in_place();
}

}  // namespace arete::ops
