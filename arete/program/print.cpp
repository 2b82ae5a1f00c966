// Programs for people.
#include <charconv>
#include <cmath>

#include "arete/base/text.h"
#include "arete/program/body_internal.h"

namespace arete::program {

namespace {

using Kind = ops::Arg::Kind;

std::string type_text(const TensorType& t, const Body& body) {
  std::string s = std::string(name_of(t.dtype)) + "[";
  for (size_t d = 0; d < t.sizes.size(); ++d)
    s += (d ? ", " : "") + text_of(t.sizes[d], body.symbols);
  return s + "]";
}

std::string type_text(const Tensor& t) {
  return std::string(name_of(t.dtype())) + io::shape_text(t.sizes());
}

std::string number_text(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char buffer[40];
  std::string s(buffer, std::to_chars(buffer, buffer + sizeof buffer, v).ptr);
  return s.find_first_of(".e") == std::string::npos ? s + ".0" : s;
}

template <class List, class F>
std::string list_text(const List& list, F&& f) {
  std::string s = "[";
  for (size_t i = 0; i < list.size(); ++i) s += (i ? ", " : "") + f(list[i]);
  return s + "]";
}

std::string argument_text(const Argument& a, const Body& body) {
  const auto value = [&](int v) { return body.name_of(v); };
  const auto extent = [&](const Extent& e) { return text_of(e, body.symbols); };
  switch (a.kind) {
    case Kind::tensor:
      return value(a.values[0]);
    case Kind::tensors:
      return list_text(a.values, value);
    case Kind::ints:
      if (!a.extents.empty()) return list_text(a.extents, extent);
      return list_text(a.value.ints, [](int64_t v) { return std::to_string(v); });
    case Kind::reals:
      return list_text(a.value.reals, number_text);
    case Kind::boolean:
      return a.value.scalar.to_bool() ? "True" : "False";
    case Kind::integer:
    case Kind::real:
    case Kind::scalar:
      if (!a.extents.empty()) return extent(a.extents[0]);
      if (a.value.scalar.is_floating()) return number_text(a.value.scalar.to_double());
      if (a.value.scalar.is_boolean()) return a.value.scalar.to_bool() ? "True" : "False";
      return a.value.scalar.to_string();
    case Kind::string:
      return io::quote_text(a.value.text);
    case Kind::dtype:
      return std::string(name_of(a.value.dtype));
    case Kind::device:
      return a.value.device.to_string();
    case Kind::program:
      return std::to_string(a.program->code().size()) + " instructions";
    default:
      return "None";
  }
}

// Arguments that are what they are by default are left out.
std::string arguments_text(const RecordedCall& c, const Body& body) {
  std::vector<std::string> texts;
  for (const Argument& a : c.args) texts.push_back(argument_text(a, body));
  const ops::Schema* const schema = c.op ? &ops::schema_of(*c.op) : nullptr;
  const auto name = [&](size_t i) {
    return schema && i < schema->args.size() ? schema->args[i].name : "";
  };
  const auto is_default = [&](size_t i) {
    if (!schema || i >= schema->args.size() || schema->args[i].default_text.empty()) return false;
    const std::string& d = schema->args[i].default_text;
    return texts[i] == d || (c.args[i].kind == Kind::none) || texts[i] == d + ".0" ||
           (c.args[i].kind == Kind::ints && !c.args[i].value.ints.empty() &&
            std::string_view(texts[i]).substr(1).starts_with(d + "]"));
  };
  std::string s;
  bool by_name = false;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (is_default(i)) {
      by_name = true;
      continue;
    }
    s += (s.empty() ? "" : ", ") + (by_name ? name(i) + "=" : "") + texts[i];
  }
  return s;
}

std::string modes_text(const RecordedCall& c) {
  std::string s;
  const auto add = [&s](const std::string& what) { s += (s.empty() ? "" : ", ") + what; };
  if (c.no_grad) add("no_grad");
  if (!c.function.empty()) add("in " + c.function);
  if (c.autocast && c.autocast->cpu) add("autocast " + std::string(name_of(*c.autocast->cpu)));
  if (c.autocast && c.autocast->cuda)
    add("autocast cuda " + std::string(name_of(*c.autocast->cuda)));
  if (!c.place.empty()) add(c.place);
  return s.empty() ? "" : "  # " + s;
}

}  // namespace

std::string Program::to_string() const {
  const Body& b = *body_;
  std::string s = "program(";
  for (size_t i = 0; i < b.inputs.size(); ++i)
    s += (i ? ", %" : "%") + b.inputs[i].name + ": " + type_text(b.inputs[i].type, b);
  s += "):\n";
  for (const State& c : b.constants) {
    static constexpr const char* kKinds[] = {"parameter", "buffer", "constant"};
    s += "  %" + c.name + ": " + type_text(c.tensor) + " = " + kKinds[int(c.kind)] + "\n";
  }
  std::string indent = "  ";
  for (const RecordedCall& c : b.calls) {
    if (c.form == Form::join || c.form == Form::repeat || c.form == Form::otherwise)
      indent.resize(indent.size() - 2);
    s += indent;
    if (c.form == Form::branch || c.form == Form::otherwise || c.form == Form::loop) indent += "  ";
    for (size_t r = 0; r < c.results.size(); ++r)
      s += (r ? ", " : "") + b.name_of(c.first_result + int(r)) + ": " + type_text(c.results[r], b);
    if (!c.results.empty()) s += " = ";
    s += c.name();
    if (c.form == Form::in_place) s += "_";
    s += "(" + arguments_text(c, b);
    for (size_t k = 0; k < c.outs.size(); ++k)
      s += std::string(k || !c.args.empty() ? ", " : "") + "out=" + b.name_of(c.outs[k]);
    s += ")" + modes_text(c) + "\n";
  }
  s += "  return ";
  if (b.outputs.size() != 1) s += "(";
  for (size_t k = 0; k < b.outputs.size(); ++k) s += (k ? ", " : "") + b.name_of(b.outputs[k]);
  if (b.outputs.size() != 1) s += ")";
  return s + "\n";
}

}  // namespace arete::program
