// program.json: Note [Files of programs] in json_read.cpp.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "arete/base/error.h"
#include "arete/core/complex.h"
#include "arete/program/body_internal.h"

namespace arete::program {

namespace {

using nlohmann::ordered_json;
using Kind = ops::Arg::Kind;

// JSON has no words for some numbers.
ordered_json number(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  return v;
}

ordered_json extent(const Extent& e) {
  if (!e.is_known) return nullptr;
  if (e.terms.empty()) return e.constant;
  ordered_json sum = ordered_json::array();
  for (const Term& t : e.terms) {
    ordered_json term{t.factor, t.a};
    if (t.b >= 0) term.push_back(t.b);
    sum.push_back(std::move(term));
  }
  if (e.constant) sum.push_back(ordered_json::array({e.constant}));
  return sum;
}

ordered_json extents(const std::vector<Extent>& list) {
  ordered_json all = ordered_json::array();
  for (const Extent& e : list) all.push_back(extent(e));
  return all;
}

ordered_json type(const TensorType& t) {
  return {{"dtype", name_of(t.dtype)}, {"shape", extents(t.sizes)}};
}

ordered_json value(int v) { return v == kUndefined ? ordered_json(nullptr) : ordered_json(v); }

ordered_json values(const std::vector<int>& list) {
  ordered_json all = ordered_json::array();
  for (const int v : list) all.push_back(value(v));
  return all;
}

ordered_json scalar(const Scalar& s, const std::vector<Extent>& e) {
  switch (s.kind()) {
    case Scalar::Kind::boolean:
      return {{"bool", s.to_bool()}};
    case Scalar::Kind::integer:
      return {{"int", e.empty() ? ordered_json(s.to_int64()) : extent(e[0])}};
    case Scalar::Kind::floating:
      return {{"float", e.empty() ? number(s.to_double()) : extent(e[0])}};
    case Scalar::Kind::complex:
      break;
  }
  const std::complex<double> c = to_complex(s);
  return {{"complex", {number(c.real()), number(c.imag())}}};
}

ordered_json literal(const expr::Literal& v, expr::Type t) {
  return expr::is_float(t) ? number(v.f) : ordered_json(v.i);
}

ordered_json expression(const expr::Program& p, const std::vector<expr::Literal>& params) {
  static constexpr const char* kTypes[] = {"bool", "i32", "i64", "u64", "f32", "f64"};
  ordered_json inputs = ordered_json::array(), types = ordered_json::array(),
               code = ordered_json::array(), outputs = ordered_json::array(),
               given = ordered_json::array();
  for (const DType t : p.inputs()) inputs.push_back(name_of(t));
  for (const expr::Type t : p.params()) types.push_back(kTypes[int(t)]);
  for (const expr::Instruction& in : p.code()) {
    ordered_json line{expr::name_of(in.op), kTypes[int(in.type)]};
    for (const int32_t o : in.operand)
      if (o >= 0) line.push_back(o);
    if (in.op == expr::Op::input || in.op == expr::Op::param || in.op == expr::Op::polynomial)
      line.push_back(in.index);
    if (in.op == expr::Op::round_to) line.push_back(name_of(DType(in.index)));
    if (in.op == expr::Op::constant) line.push_back(literal(in.value, in.type));
    code.push_back(std::move(line));
  }
  for (const expr::Program::Output& o : p.outputs())
    outputs.push_back(ordered_json::array({o.value, name_of(o.dtype)}));
  for (size_t k = 0; k < params.size(); ++k) given.push_back(literal(params[k], p.params()[k]));
  return {{"inputs", inputs},
          {"params", types},
          {"code", code},
          {"outputs", outputs},
          {"given", given}};
}

ordered_json argument(const Argument& a) {
  switch (a.kind) {
    case Kind::tensor:
      return {{"tensor", value(a.values[0])}};
    case Kind::tensors:
      return {{"tensors", values(a.values)}};
    case Kind::boolean:
      return {{"bool", a.value.scalar.to_bool()}};
    case Kind::integer:
      return {{"int",
               a.extents.empty() ? ordered_json(a.value.scalar.to_int64()) : extent(a.extents[0])}};
    case Kind::real:
      return {
          {"float", a.extents.empty() ? number(a.value.scalar.to_double()) : extent(a.extents[0])}};
    case Kind::scalar:
      return {{"scalar", scalar(a.value.scalar, a.extents)}};
    case Kind::ints:
      return {{"ints", a.extents.empty() ? ordered_json(a.value.ints) : extents(a.extents)}};
    case Kind::reals: {
      ordered_json list = ordered_json::array();
      for (const double v : a.value.reals) list.push_back(number(v));
      return {{"floats", list}};
    }
    case Kind::string:
      return {{"str", a.value.text}};
    case Kind::dtype:
      return {{"dtype", name_of(a.value.dtype)}};
    case Kind::device:
      return {{"device", a.value.device.to_string()}};
    case Kind::program:
      return {{"program", expression(*a.program, a.params)}};
    default:
      return nullptr;
  }
}

ordered_json call(const RecordedCall& c, std::map<std::string, int>& places) {
  ordered_json j;
  if (c.op) j["op"] = c.op->full_name();
  if (c.form != Form::call) j["form"] = name_of(c.form);
  ordered_json args = ordered_json::array(), results = ordered_json::array();
  for (const Argument& a : c.args) args.push_back(argument(a));
  j["args"] = std::move(args);
  if (!c.outs.empty()) j["outs"] = values(c.outs);
  for (const TensorType& t : c.results) results.push_back(type(t));
  if (!c.results.empty()) j["results"] = std::move(results);
  if (c.no_grad) j["no_grad"] = true;
  if (c.requires_grad) j["requires_grad"] = true;
  if (!c.function.empty()) j["function"] = c.function;
  if (c.autocast) {
    ordered_json region = ordered_json::object();
    if (c.autocast->cpu) region["cpu"] = name_of(*c.autocast->cpu);
    if (c.autocast->cuda) region["cuda"] = name_of(*c.autocast->cuda);
    j["autocast"] = std::move(region);
  }
  if (!c.place.empty()) j["place"] = places.try_emplace(c.place, int(places.size())).first->second;
  return j;
}

}  // namespace

std::vector<std::string> weight_names(const Body& body) {
  std::vector<std::string> names;
  for (const State& s : body.constants) names.push_back(s.name);
  return names;
}

std::string write_json(const Body& body, bool for_file) {
  static constexpr const char* kKinds[] = {"parameter", "buffer", "constant"};
  const bool has_marks =
      std::ranges::any_of(body.calls, [](const RecordedCall& c) { return is_mark(c.form); });
  ordered_json j{{"format", has_marks ? 2 : 1}, {"device", body.device.to_string()}};
  ordered_json symbols = ordered_json::array(), inputs = ordered_json::array(),
               constants = ordered_json::array(), names = ordered_json::array(),
               schemas = ordered_json::object(), calls = ordered_json::array(),
               lines = ordered_json::array();
  for (const SizeInfo& s : body.symbols) {
    symbols.push_back({{"name", s.name}, {"min", s.min}});
    if (s.max != std::numeric_limits<int64_t>::max()) symbols.back()["max"] = s.max;
  }
  for (const Input& i : body.inputs) {
    inputs.push_back(type(i.type));
    inputs.back()["name"] = i.name;
  }
  for (const State& s : body.constants) {
    constants.push_back({{"name", s.name}, {"kind", kKinds[int(s.kind)]}});
    if (s.tensor.requires_grad()) constants.back()["requires_grad"] = true;
    if (!s.persistent) constants.back()["persistent"] = false;
  }
  for (const auto& [name, k] : body.more_names) names.push_back(ordered_json::array({name, k}));
  std::map<std::string, int> places;
  for (const RecordedCall& c : body.calls) {
    calls.push_back(call(c, places));
    if (!c.op) continue;
    ARETE_CHECK(!for_file || is_for_files(*c.op),
                NotImplementedError("save", "'" + c.op->full_name() +
                                                "' is a part of other operators, which files "
                                                "cannot call")
                    .hint(c.place.empty() ? "a backward pass, perhaps?" : "at " + c.place));
    schemas[c.op->full_name()] = c.op->schema;
  }
  std::vector<std::string> texts(places.size());
  for (const auto& [text, number] : places) texts[size_t(number)] = text;
  for (const std::string& text : texts) lines.push_back(text);
  j["symbols"] = std::move(symbols);
  j["inputs"] = std::move(inputs);
  j["constants"] = std::move(constants);
  j["more_names"] = std::move(names);
  j["written"] = body.written;
  j["schemas"] = std::move(schemas);
  j["calls"] = std::move(calls);
  j["outputs"] = body.outputs;
  j["places"] = std::move(lines);
  j["metadata"] = body.metadata;
  // Broken UTF-8 (of a file's name) is replaced.
  return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace arete::program
