#include "operator_names.h"

#include <algorithm>
#include <map>

namespace arete::python {

using ops::OpRecord;
using ops::SchemaArg;
using ops::Surface;

namespace {

// The overloads of a name by their own names: the one without a name comes first.
using Overloads = std::map<std::string, Shown, std::less<>>;
using Names = std::map<std::string, Overloads, std::less<>>;

struct Table {
  Names functions;   // of arete, and methods of tensors
  Names in_place;    // what faces say of forms in place
  Names functional;  // of nn.functional
};

/// "max" and "dim" of "max.dim(Tensor input, ...)".
std::pair<std::string, std::string> parts_of(std::string_view signature) {
  const std::string_view full = signature.substr(0, signature.find('('));
  const size_t dot = std::min(full.find('.'), full.size());
  return {std::string(full.substr(0, dot)),
          std::string(full.substr(std::min(dot + 1, full.size())))};
}

std::string text_of(const SchemaArg& a) {
  return a.type + " " + a.name + (a.default_text.empty() ? "" : "=" + a.default_text);
}

/// The arguments that nn.functional has: `input` for self, no generator, and besides `inplace`,
/// `return_indices` and the older words for `reduction` where the record has what they ask for.
std::string functional_signature(const OpRecord& record, bool in_place) {
  std::vector<std::string> before, after;
  bool keyword_only = false;
  for (const SchemaArg& a : ops::schema_of(record).args) {
    if (a.type.starts_with("Generator")) continue;
    if (a.name == "reduction") {
      before.push_back("bool? size_average=None");
      before.push_back("bool? reduce=None");
    }
    // Private ones are the last.
    std::vector<std::string>& list = a.name.starts_with('_') ? after : before;
    if (a.keyword_only && !keyword_only) list.push_back("*");
    keyword_only = keyword_only || a.keyword_only;
    list.push_back(&a == &ops::schema_of(record).args[0] && a.name == "self" ? "Tensor input"
                                                                             : text_of(a));
  }
  if (record.has_in_place && !in_place) before.push_back("bool inplace=False");
  if (record.name.ends_with("_with_indices") || ops::find_record(record.name + "_with_indices"))
    before.push_back("bool return_indices=False");
  before.insert(before.end(), after.begin(), after.end());
  std::string text = record.name + "(";
  for (const std::string& part : before) text += (text.ends_with('(') ? "" : ", ") + part;
  return text + ")";
}

void add_functional(const OpRecord& r, std::string_view shown, Names& names) {
  if (shown.find('(') != std::string_view::npos) {
    const auto [name, overload] = parts_of(shown);
    names[name].emplace(overload, Shown{&r, std::string(shown)});
    return;
  }
  const std::string name = shown.empty() ? r.name : std::string(shown);
  names[name].emplace(r.overload, Shown{&r, functional_signature(r, name.ends_with('_'))});
}

const Table& table() {
  static const Table* const made = [] {
    auto* t = new Table;
    for (const OpRecord* r : ops::all_records()) {
      for (const std::string_view face : r->faces) {
        const auto [name, overload] = parts_of(face);
        Names& names = name.ends_with('_') ? t->in_place : t->functions;
        names[name].emplace(overload, Shown{r, std::string(face)});
      }
      if (r->surface == Surface::method || r->surface == Surface::function)
        t->functions[r->name].emplace(r->overload, Shown{r, ""});
      for (const std::string_view shown : r->functional) add_functional(*r, shown, t->functional);
      if (r->surface == Surface::functional && r->functional.empty())
        add_functional(*r, "", t->functional);
    }
    return t;
  }();
  return *made;
}

std::vector<Shown> values(const Names& names, std::string_view name) {
  std::vector<Shown> all;
  if (const auto it = names.find(name); it != names.end())
    for (const auto& [overload, shown] : it->second) all.push_back(shown);
  return all;
}

bool takes_self(const OpRecord& r) {
  const std::vector<SchemaArg>& args = ops::schema_of(r).args;
  return !args.empty() && args[0].type == "Tensor" &&
         (args[0].name == "self" || args[0].name == "input");
}

}  // namespace

std::vector<Shown> overloads_of(std::string_view name, bool in_place) {
  if (in_place) {
    if (!name.ends_with('_')) return {};
    std::vector<Shown> all = values(table().in_place, name);
    const auto is_said = [&all](const OpRecord* r) {
      return std::any_of(all.begin(), all.end(), [r](const Shown& s) { return s.record == r; });
    };
    for (Shown& s : overloads_of(name.substr(0, name.size() - 1), false))
      if (s.record->has_in_place && !is_said(s.record)) all.push_back(std::move(s));
    return all;
  }
  std::vector<Shown> all = values(table().functions, name);
  if (!all.empty()) return all;
  const OpRecord* const record = ops::find_record(name);
  if (!record) return {};
  if (record->full_name() != name) return overloads_of(record->name, false);  // an alias
  return {{record, ""}};
}

std::vector<Shown> functional_overloads(std::string_view name) {
  return values(table().functional, name);
}

std::vector<PublicName> public_names() {
  std::vector<PublicName> all;
  for (const auto& [name, overloads] : table().functions) {
    const OpRecord& first = *overloads.begin()->second.record;
    const bool method = first.surface == Surface::method && takes_self(first);
    all.push_back({name, false, true, method});
    if (method && !overloads_of(name + "_", true).empty())
      all.push_back({name + "_", true, true, true});
  }
  for (const auto& [name, overloads] : table().in_place)
    if (const auto it = table().functions.find(name.substr(0, name.size() - 1));
        it == table().functions.end() || !takes_self(*it->second.begin()->second.record))
      all.push_back({name, true, false, true});
  return all;
}

std::vector<std::string> functional_names() {
  std::vector<std::string> all;
  for (const auto& [name, overloads] : table().functional) all.push_back(name);
  return all;
}

}  // namespace arete::python
