#include <algorithm>
#include <map>
#include <memory>
#include <variant>

#include "arete/nn/layer_internal.h"
#include "arete/nn/layer_record_internal.h"
#include "arete/ops/schema_values.h"

namespace arete::nn {

namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

void spread(size_t count, Option& v) {
  const auto fill = [&]<class T>(const std::vector<T>* list) {
    if (list && count > 1 && list->size() == 1)
      v = Option(Option::Value(std::vector<T>(count, list->front())));
  };
  const Option::Value value = *v;
  fill(std::get_if<std::vector<int64_t>>(&value));
  fill(std::get_if<std::vector<double>>(&value));
}

// As Python prints it; `alone`: one number of a list stands for itself.
std::string option_text(const Option& v, bool quoted, bool alone) {
  return std::visit(Overloaded{
                        [](std::monostate) -> std::string { return "None"; },
                        [](bool b) -> std::string { return nn::text_of(b); },
                        [](int64_t i) { return nn::text_of(i); },
                        [](double d) { return nn::text_of(d); },
                        [&](const std::string& s) { return quoted ? "'" + s + "'" : s; },
                        [&](const std::vector<int64_t>& l) {
                          return alone && l.size() == 1 ? nn::text_of(l[0]) : tuple_text(l);
                        },
                        [](const std::vector<double>& l) {
                          std::string text;
                          for (double d : l) text += (text.empty() ? "" : ", ") + nn::text_of(d);
                          return l.size() == 1 ? text : "(" + text + ")";
                        },
                        [](const Tensor& t) { return nn::text_of(t.sizes()); },
                    },
                    *v);
}

// Options whose default is another one, and one number for several.
std::vector<Option> completed(const LayerRecord& r, std::vector<Option> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t k = 0; !values[i].has_value() && k < i; ++k)
      if (r.options[k].name == r.options[i].default_text) values[i] = values[k];
    spread(r.numbers(i), values[i]);
  }
  return values;
}

std::vector<Option> with_defaults(const LayerRecord& r, const OptionList& given) {
  std::vector<Option> values = r.defaults;
  for (const auto& [name, value] : given.entries()) values[r.option(name)] = value;
  return completed(r, std::move(values));
}

}  // namespace

LayerOptions::LayerOptions(const LayerRecord& layer, const OptionList& given)
    : layer_(&layer), values_(with_defaults(layer, given)) {}
LayerOptions::LayerOptions(const LayerRecord& layer, std::vector<Option> all)
    : layer_(&layer), values_(completed(layer, std::move(all))) {}
const Option& LayerOptions::operator[](std::string_view name) const {
  return values_[layer_->option(name)];
}

size_t LayerRecord::option(std::string_view wanted) const {
  for (size_t i = 0; i < options.size(); ++i)
    if (options[i].name == wanted) return i;
  ARETE_BUG((name + " has no option " + std::string(wanted)).c_str());
}

size_t LayerRecord::numbers(size_t i) const {
  const std::string& type = options[i].type;
  const size_t open = type.find('[');
  return open == std::string::npos || type[open + 1] == ']' ? 0 : std::stoul(type.substr(open + 1));
}

std::string LayerRecord::repr(const std::vector<Option>& values) const {
  std::string result;
  for (const Shown& s : text) {
    const bool alone = numbers(s.option) == 0;
    const std::string value = option_text(values[s.option], s.quoted, alone);
    if (s.unless_default) {
      Option usual = defaults[s.option];
      spread(numbers(s.option), usual);
      if (value == option_text(usual, s.quoted, alone)) continue;
    }
    result += (result.empty() ? "" : ", ") + (s.named ? options[s.option].name + "=" : "") + value;
  }
  return result;
}

// ---- reading a line of the table

namespace {

std::string_view trim(std::string_view s) {
  while (s.starts_with(' ')) s.remove_prefix(1);
  while (s.ends_with(' ')) s.remove_suffix(1);
  return s;
}

std::vector<std::string_view> parts_of(std::string_view s) {
  std::vector<std::string_view> parts;
  for (; !s.empty(); s.remove_prefix(std::min(s.size(), s.find(',') + 1))) {
    parts.push_back(trim(s.substr(0, s.find(','))));
    if (s.find(',') == std::string_view::npos) break;
  }
  return parts;
}

// A default as written, for a type as written.
Option value_of(std::string_view type, std::string_view text) {
  if (text.empty() || text == "None") return {};
  if (type.ends_with('?')) type.remove_suffix(1);
  const ops::OwnedArg v = ops::default_of(ops::kind_of(type), text);
  using Kind = ops::Arg::Kind;
  switch (v.kind) {
    case Kind::boolean:
      return v.scalar.to_bool();
    case Kind::integer:
      return v.scalar.to_int64();
    case Kind::real:
    case Kind::scalar:
      return v.scalar.to_double();
    case Kind::ints:
      return v.ints;
    case Kind::string:
      return std::string_view(v.text);
    default:
      return {};
  }
}

}  // namespace

void LayerRecord::read_options() {
  // Schemas of operators are of the same form, and are remembered by their record.
  static std::vector<std::unique_ptr<ops::OpRecord>> parsed;
  parsed.push_back(std::make_unique<ops::OpRecord>());
  parsed.back()->schema = schema + " -> Tensor";
  name = schema.substr(0, schema.find('('));
  options = ops::schema_of(*parsed.back()).args;
  for (const ops::SchemaArg& a : options) {
    const bool is_other = std::ranges::any_of(
        options, [&](const ops::SchemaArg& b) { return b.name == a.default_text; });
    defaults.push_back(is_other ? Option() : value_of(a.type, a.default_text));
  }
}

void LayerRecord::read_text() {
  for (std::string_view part : parts_of(shown)) {
    Shown s{0, !part.starts_with('='), part.starts_with('\''), part.ends_with('?')};
    if (!s.named || s.quoted) part.remove_prefix(1);
    if (s.unless_default || s.quoted) part.remove_suffix(1);
    s.option = option(part);
    text.push_back(s);
  }
}

void LayerRecord::read_call() {
  if (call.empty()) return;
  const size_t open = std::min(call.find('('), call.size());
  op = ops::find_record(call.substr(0, open));
  if (!op) ARETE_BUG(("there is no operator " + call).c_str());
  std::map<std::string, std::string, std::less<>> said;
  if (open < call.size())
    for (std::string_view part :
         parts_of(std::string_view(call).substr(open + 1, call.size() - open - 2)))
      said.emplace(part.substr(0, part.find('=')), part.substr(part.find('=') + 1));
  const auto find = [&](std::string_view wanted) {
    for (size_t i = 0; i < options.size(); ++i)
      if (options[i].name == wanted) return int(i);
    return -1;
  };
  size_t inputs = 0;
  for (const ops::SchemaArg& a : ops::schema_of(*op).args) {
    const auto value = said.find(a.name);
    const std::string& from = value == said.end() ? a.name : value->second;
    const int taken = find(from);
    if (a.is_tensor())
      sources.push_back({Source::input, inputs++});
    else if (taken >= 0)
      sources.push_back({Source::option, size_t(taken)});
    else if (a.name == "training")
      sources.push_back({Source::training});
    else
      sources.push_back(
          {Source::literal, 0, value_of(a.type, value == said.end() ? a.default_text : from)});
    if (value != said.end()) said.erase(value);
  }
  if (!said.empty()) ARETE_BUG((call + ": there is no argument " + said.begin()->first).c_str());
  if (op->has_in_place) inplace = find("inplace");
}

void LayerRecord::read() {
  read_options();
  read_text();
  read_call();
}

}  // namespace arete::nn
