// Note [Files of programs]
// A saved program is a zip archive of two stored entries: program.json, and weights.safetensors,
// which has the constants under their names. The text is an object:
//   format      1, or 2 with marks (Note [Control flow in programs]); later ones are refused
//   device      on which it was recorded
//   symbols     the dynamic sizes: name, min, max
//   inputs      name, dtype, shape
//   constants   name, kind (parameter, buffer, constant), requires_grad, persistent
//   more_names  [name, constant] of constants with several
//   written     constants that the calls write into
//   schemas     of the operators that are called, as they were when the program was saved:
//               arguments are found by their names, those that are new have their defaults
//   calls       op, form, args, outs, results, and the modes they are made under
//   outputs     values
//   places      lines of the program that was recorded
//   metadata    texts of whoever saved it
// Values are numbered: inputs, constants, results in the order of calls. An integer may be a sum of
// terms [factor, size] or [factor, size, size] and a constant [number].
// A file may be hostile. What is read is checked to be of the kind that the operator's schema says,
// values exist before they are used, and sizes are limited; the rest is what any call checks.
#include <algorithm>
#include <complex>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "arete/base/text.h"
#include "arete/expr/assemble.h"
#include "arete/ops/call.h"
#include "arete/ops/schema_values.h"
#include "arete/program/body_internal.h"

namespace arete::program {

namespace {

using nlohmann::json;
using Kind = ops::Arg::Kind;

constexpr size_t kMaxDepth = 16;  // of the text
constexpr size_t kMaxInstructions = 10'000, kMaxProgramInputs = 32;
constexpr size_t kMaxSymbols = 64;

// Operators of files that are forms of others today, of the same names of arguments.
constexpr std::pair<std::string_view, std::string_view> kFormerNames[] = {{"clamp_min", "clamp"},
                                                                          {"clamp_max", "clamp"}};

class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  Body read(std::string_view text) {
    const json root = parse(text);
    const int64_t format = integer(member(root, "format"), "format");
    ARETE_CHECK(format == 1 || format == 2,
                IoError("load", file_ + ": this program has format " + std::to_string(format))
                    .expected("format 1 or 2")
                    .hint(format > 2 ? "it was saved by a newer Arete" : ""));
    Body b;
    b.device = device(member(root, "device"), "device");
    symbols(b, member(root, "symbols"));
    inputs(b, member(root, "inputs"));
    constants(b, member(root, "constants"));
    for (const json& j : array(member(root, "more_names"), "more_names")) {
      check(j.is_array() && j.size() == 2, "more_names");
      const int64_t k = integer(j[1], "more_names");
      check(k >= 0 && size_t(k) < b.constants.size(), "more_names");
      b.more_names.emplace_back(name(j[0], "more_names"), int(k));
    }
    for (const json& j : array(member(root, "written"), "written")) {
      const int64_t k = integer(j, "written");
      check(k >= 0 && size_t(k) < b.constants.size(), "written");
      b.written.push_back(int(k));
    }
    for (const json& j : array(member(root, "places"), "places"))
      places_.push_back(string(j, "places"));
    schemas(member(root, "schemas"));
    n_values_ = b.inputs.size() + b.constants.size();
    for (const json& j : array(member(root, "calls"), "calls")) b.calls.push_back(call(b, j));
    check(scopes_.are_closed(), "calls");
    for (const json& j : array(member(root, "outputs"), "outputs"))
      b.outputs.push_back(value(j, "outputs"));
    const json& metadata = member(root, "metadata");
    check(metadata.is_object(), "metadata");
    for (const auto& [key, v] : metadata.items()) b.metadata[key] = string(v, "metadata");
    b.finish();
    return b;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw IoError("load", file_ + ": " + what + " is no part of a saved program" + where_)
        .hint("the file is damaged, or was made by another program");
  }
  void check(bool holds, const std::string& what) const {
    if (!holds) fail("'" + what + "'");
  }

  json parse(std::string_view text) const {
    bool too_deep = false;
    const json j = json::parse(
        text.begin(), text.end(),
        [&](int depth, json::parse_event_t, json&) {
          if (depth > int(kMaxDepth)) too_deep = true;
          return !too_deep;
        },
        false);
    ARETE_CHECK(!too_deep && !j.is_discarded() && j.is_object(),
                IoError("load", file_ + ": its program.json is not valid JSON"));
    return j;
  }

  const json& member(const json& j, const char* key) const {
    const auto found = j.is_object() ? j.find(key) : j.end();
    if (!j.is_object() || found == j.end()) fail(std::string("what has no '") + key + "'");
    return *found;
  }
  static const json* optional(const json& j, const char* key) {
    const auto found = j.find(key);
    return found == j.end() ? nullptr : &*found;
  }
  const json& array(const json& j, const std::string& what) const {
    check(j.is_array(), what);
    return j;
  }
  int64_t integer(const json& j, const std::string& what) const {
    check(j.is_number_integer() &&
              !(j.is_number_unsigned() && j.get<uint64_t>() > uint64_t(INT64_MAX)),
          what);
    return j.get<int64_t>();
  }
  bool boolean(const json& j, const std::string& what) const {
    check(j.is_boolean(), what);
    return j.get<bool>();
  }
  double real(const json& j, const std::string& what) const {
    if (j.is_number()) return j.get<double>();
    check(j.is_string(), what);
    const std::string& s = j.get_ref<const std::string&>();
    if (s == "nan") return std::numeric_limits<double>::quiet_NaN();
    check(s == "inf" || s == "-inf", what);
    return s == "inf" ? std::numeric_limits<double>::infinity()
                      : -std::numeric_limits<double>::infinity();
  }
  std::string string(const json& j, const std::string& what) const {
    check(j.is_string(), what);
    return j.get<std::string>();
  }
  // What people read.
  std::string name(const json& j, const std::string& what) const {
    std::string s = string(j, what);
    check(!s.empty() && s.size() <= 1000, what);
    return s;
  }
  DType dtype(const json& j, const std::string& what) const {
    const std::string s = string(j, what);
    for (int t = 0; t < kNumDTypes; ++t)
      if (name_of(DType(t)) == s) return DType(t);
    fail("the dtype " + io::quote_text(s, 40));
  }
  Device device(const json& j, const std::string& what) const {
    const std::string s = string(j, what);
    try {
      return Device(s).resolved();
    } catch (const Error&) {
      fail("the device " + io::quote_text(s, 40));
    }
  }

  void symbols(Body& b, const json& list) {
    check(array(list, "symbols").size() <= kMaxSymbols, "symbols");
    for (const json& j : list) {
      SizeInfo s{name(member(j, "name"), "symbols")};
      s.min = integer(member(j, "min"), "symbols");
      if (const json* max = optional(j, "max")) s.max = integer(*max, "symbols");
      check(s.min >= 0 && s.min <= s.max, "symbols");
      b.symbols.push_back(std::move(s));
    }
    n_symbols_ = b.symbols.size();
  }

  Extent extent(const json& j, const std::string& what) const {
    if (j.is_number()) return integer(j, what);
    Extent e;
    for (const json& t : array(j, what)) {
      check(t.is_array() && t.size() >= 1 && t.size() <= 3, what);
      const int64_t factor = integer(t[0], what);
      int size[2] = {-1, -1};
      for (size_t i = 1; i < t.size(); ++i) {
        const int64_t s = integer(t[i], what);
        check(s >= 0 && size_t(s) < n_symbols_, what);
        size[i - 1] = int(s);
      }
      if (t.size() == 1)
        e.constant = factor;
      else
        e.terms.push_back({factor, size[0], size[1]});
    }
    check(e.terms.size() <= kMaxSymbols * kMaxSymbols, what);
    return e;
  }

  TensorType type(const json& j) const {
    TensorType t{dtype(member(j, "dtype"), "dtype"), {}};
    const json& shape = array(member(j, "shape"), "shape");
    check(shape.size() <= 64, "shape");
    for (const json& e : shape)
      t.sizes.push_back(e.is_null() ? Extent::unknown() : extent(e, "shape"));
    return t;
  }

  void inputs(Body& b, const json& list) {
    std::vector<bool> is_given(n_symbols_);
    for (const json& j : array(list, "inputs")) {
      b.inputs.push_back({name(member(j, "name"), "inputs"), type(j)});
      // A size of an input is a number, or such that one of the dynamic sizes follows from it.
      for (const Extent& e : b.inputs.back().type.sizes) {
        if (e.is_constant()) continue;
        check(e.is_known && e.terms.size() == 1 && e.terms[0].factor > 0 && e.terms[0].b < 0,
              "shape");
        is_given[size_t(e.terms[0].a)] = true;
      }
    }
    check(std::ranges::all_of(is_given, [](bool given) { return given; }), "symbols");
  }

  void constants(Body& b, const json& list) {
    std::set<std::string> names;
    for (const json& j : array(list, "constants")) {
      State s;
      s.name = name(member(j, "name"), "constants");
      check(names.insert(s.name).second, s.name);
      const std::string kind = string(member(j, "kind"), "kind");
      check(kind == "parameter" || kind == "buffer" || kind == "constant", kind);
      s.kind = kind == "parameter" ? StateKind::parameter
               : kind == "buffer"  ? StateKind::buffer
                                   : StateKind::constant;
      if (const json* p = optional(j, "persistent")) s.persistent = boolean(*p, "persistent");
      const json* const r = optional(j, "requires_grad");
      b.wants_gradient.push_back(r && boolean(*r, "requires_grad"));
      b.constants.push_back(std::move(s));
    }
  }

  // The positions that arguments of the saved schema have in today's.
  struct Operator {
    const ops::OpRecord* op;
    std::vector<int> position;
  };
  void schemas(const json& all) {
    check(all.is_object(), "schemas");
    for (const auto& [full_name, j] : all.items()) {
      const std::string schema = string(j, "schemas");
      where_ = ", of the operator " + io::quote_text(full_name, 60);
      const auto former =
          std::ranges::find(kFormerNames, full_name, [](const auto& names) { return names.first; });
      const bool is_former = former != std::end(kFormerNames);
      Operator o{ops::find_record(is_former ? former->second : full_name), {}};
      if (!o.op) o.op = find_callable(full_name);
      if (!o.op && schema == full_name + "(Program program, Tensor[] inputs) -> Tensor[]") {
        check(full_name.size() <= 200, "schemas");
        o.op = &ops::program_record(full_name);
      }
      if (!o.op)
        throw IoError("load", file_ + ": there is no operator " + io::quote_text(full_name, 60))
            .hint("the program was saved by another version of Arete");
      ARETE_CHECK(is_for_files(*o.op),
                  IoError("load", file_ + ": files may not call the operator " +
                                      io::quote_text(full_name, 60)));
      const std::vector<ops::SchemaArg>& now = ops::schema_of(*o.op).args;
      const std::optional<ops::Schema> saved =
          schema.size() < 10'000 ? ops::parse_schema(schema) : std::nullopt;
      check(saved && !saved->returns.empty(), "schemas");
      for (const ops::SchemaArg& argument : saved->args) {
        const auto found = std::ranges::find(now, argument.name, &ops::SchemaArg::name);
        o.position.push_back(found == now.end() ? -1 : int(found - now.begin()));
      }
      operators_[full_name] = std::move(o);
    }
    where_.clear();
  }

  int value(const json& j, const std::string& what) const {
    const int64_t v = integer(j, what);
    check(v >= 0 && size_t(v) < n_values_ && scopes_.holds(int(v)), what);
    return int(v);
  }

  RecordedCall call(const Body&, const json& j) {
    RecordedCall c;
    where_ = ", in call " + std::to_string(++call_);
    const json* const form = optional(j, "form");
    const std::string f = form ? string(*form, "form") : "call";
    int number = 0;
    while (number < kNumForms && f != name_of(Form(number))) ++number;
    check(number < kNumForms, f);
    c.form = Form(number);
    const json& args = array(member(j, "args"), "args");
    if (c.form == Form::detach || c.form == Form::branch || c.form == Form::test) {
      check(args.size() == 1, "args");
      c.args.push_back(
          {.kind = Kind::tensor, .values = {value(member(args[0], "tensor"), "tensor")}});
    } else if (is_mark(c.form)) {
      check(args.size() == 1, "args");
      Argument& list = c.args.emplace_back(Argument{.kind = Kind::tensors});
      for (const json& v : array(member(args[0], "tensors"), "tensors"))
        list.values.push_back(value(v, "tensors"));
    } else {
      const std::string op = string(member(j, "op"), "op");
      const auto found = operators_.find(op);
      check(found != operators_.end(), op);
      where_ += ", " + io::quote_text(op, 60);
      c.op = found->second.op;
      arguments(c, args, found->second);
    }
    if (const json* outs = optional(j, "outs"))
      for (const json& v : array(*outs, "outs")) c.outs.push_back(value(v, "outs"));
    check(c.outs.empty() == (c.form != Form::out), "outs");
    if (const json* results = optional(j, "results"))
      for (const json& r : array(*results, "results")) c.results.push_back(type(r));
    check(c.form != Form::in_place && c.form != Form::out ? true : c.results.empty(), "results");
    check(c.form != Form::detach || c.results.size() == 1, "results");
    if (is_mark(c.form)) {
      const size_t n = c.args[0].values.size();
      check(c.results.size() == (c.form == Form::join || c.form == Form::loop ? n : 0), "results");
      // The values that a loop carries are there behind it, too.
      const size_t next = n_values_ + (c.form == Form::loop ? n : 0);
      check(scopes_.mark(c.form, int(next), n), f);
    }
    c.first_result = int(n_values_);
    n_values_ += c.results.size();
    check(n_values_ < size_t(std::numeric_limits<int>::max()), "results");
    if (const json* v = optional(j, "no_grad")) c.no_grad = boolean(*v, "no_grad");
    if (const json* v = optional(j, "requires_grad"))
      c.requires_grad = boolean(*v, "requires_grad");
    if (const json* v = optional(j, "function")) c.function = name(*v, "function");
    if (const json* v = optional(j, "autocast")) c.autocast = region(*v);
    if (const json* v = optional(j, "place")) {
      const int64_t p = integer(*v, "place");
      check(p >= 0 && size_t(p) < places_.size(), "place");
      c.place = places_[size_t(p)];
    }
    where_.clear();
    return c;
  }

  AutocastOf region(const json& j) const {
    check(j.is_object(), "autocast");
    AutocastOf a;
    const auto get = [&](const char* key, std::optional<DType>& out) {
      const json* const v = optional(j, key);
      if (!v) return;
      out = dtype(*v, "autocast");
      check(*out == kFloat16 || *out == kBFloat16, "autocast");
    };
    get("cpu", a.cpu);
    get("cuda", a.cuda);
    return a;
  }

  void arguments(RecordedCall& c, const json& args, const Operator& o) {
    const std::vector<ops::SchemaArg>& schema = ops::schema_of(*c.op).args;
    check(args.size() <= o.position.size(), "args");
    c.args.resize(schema.size());
    std::vector<bool> is_given(schema.size());
    for (size_t i = 0; i < args.size(); ++i) {
      const int at = o.position[i];
      if (at < 0) {
        // An argument of before, which has no meaning any more, may say nothing.
        ARETE_CHECK(args[i].is_null(),
                    IoError("load", file_ + ": today's operator has no argument " +
                                        std::to_string(i + 1) + " of the saved one" + where_));
        continue;
      }
      check(!is_given[size_t(at)], "args");
      is_given[size_t(at)] = true;
      c.args[size_t(at)] = argument(args[i], schema[size_t(at)], *c.op, size_t(at));
    }
    for (size_t k = 0; k < schema.size(); ++k) {
      if (is_given[k]) continue;
      const bool optional = schema[k].type.ends_with('?') || !schema[k].default_text.empty();
      check(optional, schema[k].name);
      const std::string_view type(schema[k].type);
      if (schema[k].default_text.empty() || schema[k].default_text == "None") continue;
      const Kind kind = ops::kind_of(type.substr(0, type.size() - type.ends_with('?')));
      c.args[k] = {.kind = kind, .value = ops::default_of(kind, schema[k].default_text)};
    }
    bool any = false;
    for (const Argument& a : c.args) any = any || a.kind == Kind::tensor;
    check(any || !(c.op->pointwise || c.op->takes_numbers), "args");
    if (c.form == Form::in_place)
      check(c.op->has_in_place && !c.args.empty() && c.args[0].kind == Kind::tensor, "form");
  }

  Argument argument(const json& j, const ops::SchemaArg& s, const ops::OpRecord& op,
                    size_t position) const {
    Argument a;
    std::string_view type(s.type);
    const bool is_optional = type.ends_with('?');
    if (is_optional) type.remove_suffix(1);
    if (j.is_null()) {
      check(is_optional || !s.default_text.empty(), s.name);
      return a;
    }
    check(j.is_object() && j.size() == 1, s.name);
    const std::string& key = j.begin().key();
    const json& v = j.begin().value();
    const auto number = [&](Kind kind) {
      a.kind = kind;
      if (!v.is_array()) return true;
      a.extents.push_back(extent(v, s.name));
      return false;
    };
    if (key == "tensor") {
      a.kind = Kind::tensor;
      a.values.push_back(value(v, s.name));
    } else if (key == "tensors") {
      a.kind = Kind::tensors;
      for (const json& t : array(v, s.name))
        a.values.push_back(op.takes_gaps && t.is_null() ? kUndefined : value(t, s.name));
    } else if (key == "bool") {
      a.kind = Kind::boolean;
      a.value = boolean(v, s.name);
    } else if (key == "int") {
      if (number(Kind::integer)) a.value = integer(v, s.name);
    } else if (key == "float") {
      if (number(Kind::real)) a.value = real(v, s.name);
    } else if (key == "scalar") {
      scalar(v, s.name, a);
    } else if (key == "ints") {
      a.kind = Kind::ints;
      std::vector<Extent> list;
      for (const json& e : array(v, s.name)) list.push_back(extent(e, s.name));
      if (std::ranges::all_of(list, [](const Extent& e) { return e.is_constant(); })) {
        std::vector<int64_t> ints;
        for (const Extent& e : list) ints.push_back(e.constant);
        a.value = std::move(ints);
      } else {
        a.value = std::vector<int64_t>(list.size());
        a.extents = std::move(list);
      }
    } else if (key == "floats") {
      a.kind = Kind::reals;
      std::vector<double> list;
      for (const json& e : array(v, s.name)) list.push_back(real(e, s.name));
      a.value = std::move(list);
    } else if (key == "str") {
      a.kind = Kind::string;
      a.value = string(v, s.name).c_str();
    } else if (key == "dtype") {
      a.kind = Kind::dtype;
      a.value = dtype(v, s.name);
    } else if (key == "device") {
      a.kind = Kind::device;
      a.value = device(v, s.name);
    } else if (key == "program") {
      expression(v, s.name, a);
    } else {
      fail(io::quote_text(key, 40));
    }
    check(ops::takes(op, position, type, a.kind), s.name);
    return a;
  }

  void scalar(const json& j, const std::string& what, Argument& a) const {
    check(j.is_object() && j.size() == 1, what);
    const std::string& key = j.begin().key();
    const json& v = j.begin().value();
    a.kind = Kind::scalar;
    if (key == "bool") {
      a.value = Scalar(boolean(v, what));
    } else if (key == "int" || key == "float") {
      const bool is_int = key == "int";
      if (v.is_array()) {
        a.extents.push_back(extent(v, what));
        a.value = is_int ? Scalar(int64_t(0)) : Scalar(0.0);
      } else {
        a.value = is_int ? Scalar(integer(v, what)) : Scalar(real(v, what));
      }
    } else {
      check(key == "complex" && v.is_array() && v.size() == 2, what);
      a.value = Scalar(std::complex<double>(real(v[0], what), real(v[1], what)));
    }
  }

  expr::Type computation_type(const json& j, const std::string& what) const {
    static constexpr const char* kTypes[] = {"bool", "i32", "i64", "u64", "f32", "f64"};
    const std::string s = string(j, what);
    for (int t = 0; t < expr::kNumTypes; ++t)
      if (s == kTypes[t]) return expr::Type(t);
    fail(io::quote_text(s, 40));
  }
  expr::Literal literal(const json& j, expr::Type t, const std::string& what) const {
    expr::Literal l{};
    if (expr::is_float(t))
      l.f = real(j, what);
    else
      l.i = integer(j, what);
    return l;
  }

  void expression(const json& j, const std::string& what, Argument& a) const {
    using expr::Op;
    std::vector<DType> inputs;
    std::vector<expr::Type> params;
    std::vector<expr::Instruction> code;
    std::vector<expr::Program::Output> outputs;
    for (const json& t : array(member(j, "inputs"), what)) inputs.push_back(dtype(t, what));
    for (const json& t : array(member(j, "params"), what))
      params.push_back(computation_type(t, what));
    const json& lines = array(member(j, "code"), what);
    check(lines.size() <= kMaxInstructions && inputs.size() <= kMaxProgramInputs &&
              params.size() <= kMaxProgramInputs,
          what);
    for (const json& line : lines) {
      check(line.is_array() && line.size() >= 2, what);
      const std::string op = string(line[0], what);
      int found = 0;
      while (found < expr::kNumOps && op != expr::name_of(Op(found))) ++found;
      check(found < expr::kNumOps, op);
      expr::Instruction in{Op(found), computation_type(line[1], what), {-1, -1, -1}, 0, {}};
      const size_t arity = size_t(expr::arity_of(in.op));
      const bool more = in.op == Op::input || in.op == Op::param || in.op == Op::polynomial ||
                        in.op == Op::round_to || in.op == Op::constant;
      check(line.size() == 2 + arity + more, op);
      const auto small = [&](const json& n) {
        const int64_t i = integer(n, op);
        check(i >= 0 && i <= std::numeric_limits<int32_t>::max(), op);
        return int32_t(i);
      };
      for (size_t k = 0; k < arity; ++k) in.operand[k] = small(line[2 + k]);
      const json& last = line[line.size() - 1];
      if (in.op == Op::constant)
        in.value = literal(last, in.type, op);
      else if (in.op == Op::round_to)
        in.index = int32_t(dtype(last, op));
      else if (more)
        in.index = small(last);
      code.push_back(in);
    }
    for (const json& o : array(member(j, "outputs"), what)) {
      check(o.is_array() && o.size() == 2, what);
      const int64_t v = integer(o[0], what);
      check(v >= 0 && size_t(v) < code.size(), what);
      outputs.push_back({int32_t(v), dtype(o[1], what)});
    }
    check(outputs.size() <= kMaxProgramInputs, what);
    const json& given = array(member(j, "given"), what);
    check(given.size() == params.size(), what);
    for (size_t k = 0; k < params.size(); ++k)
      a.params.push_back(literal(given[k], params[k], what));
    a.kind = Kind::program;
    try {
      a.program = expr::assemble(inputs, params, code, outputs);
    } catch (const Error& e) {
      fail(std::string("a kernel (") + e.what() + ")");
    }
  }

  const std::string file_;
  std::string where_;
  std::map<std::string, Operator> operators_;
  std::vector<std::string> places_;
  Scopes scopes_;
  size_t n_values_ = 0, n_symbols_ = 0, call_ = 0;
};

}  // namespace

Body read_json(std::string_view text, const std::string& file_name) {
  return Reader(file_name).read(text);
}

}  // namespace arete::program
