// Expressions of a kernel's source. See Note [Lanes].
#pragma once

#include <cstdlib>

#include "arete/device/lane_builder_internal.h"

namespace arete::lanes {

class Expressions : public Builder {
 public:
  using Builder::Builder;

 protected:
  virtual Node* user_call(const Function& f) = 0;

  // ---- expressions
  Node* rvalue(Value v) {
    if (v.node) return v.node;
    if (v.symbol) fail("an array is used by its elements");
    fail("a value is expected");
  }
  Node* expression() override {
    Node* n = assignment();
    while (accept(",")) {
      Node* second = assignment();
      Node* both = node(Op::comma, second->type, n, second);
      both->base = second->base;
      n = both;
    }
    return n;
  }

  bool is_variable(const Node* n) const {
    return n->op == Op::variable && !constant_bits_.contains(n->slot) && !fixed_.contains(n->slot);
  }
  // to = value, for a variable or a place in memory.
  Node* set(Node* to, Node* value) {
    if (to->op == Op::load) {
      Node* n = node(Op::store, to->type, to->a, convert(value, to->type));
      n->stored = to->stored;
      n->checked = to->checked;
      return n;
    }
    if (!is_variable(to)) fail("this cannot be assigned to");
    return assigned(to, convert(value, to->type));
  }
  // to op= value; the address is computed once. `post`: its value is what was there before.
  Node* changed(Node* to, const std::string& op, Node* value, bool post = false) {
    if (to->op != Op::load) return set(to, binary(op, to, value));
    Node* const address = variable(to->a->type, new_slot());
    address->base = to->a->base;
    address->checked = to->checked;
    Node* const place = load(address);
    if (!post) {
      Node* const stored = set(place, binary(op, place, value));
      return node(Op::comma, stored->type, assigned(address, to->a), stored);
    }
    Node* const old = variable(place->type, new_slot());
    Node* all = node(Op::comma, old->type, assigned(address, to->a), assigned(old, place));
    all = node(Op::comma, old->type, all, set(place, binary(op, old, value)));
    return node(Op::comma, old->type, all, old);
  }

  Node* assignment() {
    Node* left = conditional();
    static const char* const ops[] = {"+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="};
    if (accept("=")) return set(left, assignment());
    for (const char* op : ops)
      if (accept(op)) return changed(left, std::string(op, std::strlen(op) - 1), assignment());
    return left;
  }

  Node* conditional() {
    Node* c = binary_level(0);
    if (!accept("?")) return c;
    Node* a = assignment();
    take(":");
    Node* b = assignment();
    c = truth(c);
    Type t = a->type;
    if (!a->type.is_memory() || !b->type.is_memory()) {
      t = plain(a->type.num == b->type.num ? a->type.num : common(a->type.num, b->type.num));
      a = convert(a, t);
      b = convert(b, t);
    }
    alignas(8) std::byte bits[8];
    if (constant_value(c, bits)) return bits[0] != std::byte(0) ? a : b;
    Node* n = node(Op::select, t, c, a, b);
    n->base = a->base == b->base ? a->base : -1;
    return n;
  }

  Node* binary_level(size_t level) {
    static const std::vector<std::vector<const char*>> levels = {{"||"},
                                                                 {"&&"},
                                                                 {"|"},
                                                                 {"^"},
                                                                 {"&"},
                                                                 {"==", "!="},
                                                                 {"<", "<=", ">", ">="},
                                                                 {"<<", ">>"},
                                                                 {"+", "-"},
                                                                 {"*", "/", "%"}};
    if (level == levels.size()) return unary();
    Node* left = binary_level(level + 1);
    for (;;) {
      const char* op = nullptr;
      for (const char* o : levels[level])
        if (peek(o)) op = o;
      if (!op) return left;
      ++at_;
      left = binary(op, left, binary_level(level + 1));
    }
  }

  Node* binary(const std::string& op, Node* a, Node* b) {
    if (op == "&&" || op == "||")
      return node(op == "&&" ? Op::both : Op::either, plain(Num::boolean), truth(a), truth(b));
    const bool compares =
        op == "<" || op == "<=" || op == ">" || op == ">=" || op == "==" || op == "!=";
    if (a->type.is_memory() || b->type.is_memory()) {
      if (compares && a->type.is_memory() && b->type.is_memory())
        return map2(operation(op, Reg::i64), plain(Num::boolean), a, b);
      if (op == "-" && a->type.is_memory() && b->type.is_memory())
        return binary("/", map2(operation("-", Reg::i64), plain(Num::i64), a, b),
                      int_constant(a->type.step()));
      if (op == "+" && b->type.is_memory()) std::swap(a, b);
      if ((op != "+" && op != "-") || b->type.is_memory()) fail("pointers have no '" + op + "'");
      return shifted(a, b, op == "-");
    }
    if (a->type.num == Num::none || b->type.num == Num::none)
      fail("a value is expected, and this has none");
    Num t = common(a->type.num, b->type.num);
    if (op == "<<" || op == ">>") t = promoted(a->type.num);
    const Map2 f = operation(op, reg_of(t));
    if (!f) fail("'" + op + "' is for integers");
    return map2(f, plain(compares ? Num::boolean : t), convert(a, plain(t)), convert(b, plain(t)));
  }

  Node* unary() {
    if (accept("+")) return unary();
    for (const char* op : {"-", "~", "!"}) {
      if (!accept(op)) continue;
      Node* a = unary();
      if (op[0] == '!') {
        a = truth(a);
        return map1(negation("!", Reg::i32), plain(Num::boolean), a);
      }
      const Type t = plain(promoted(a->type.num));
      const Map1 f = a->type.is_memory() ? nullptr : negation(op, t.reg());
      if (!f) fail(std::string("'") + op + "' is not for this");
      return map1(f, t, convert(a, t));
    }
    for (const char* op : {"++", "--"})
      if (accept(op)) return changed(unary(), op[0] == '+' ? "+" : "-", int_constant(1));
    if (accept("*")) {
      Node* a = unary();
      if (!a->type.is_memory()) fail("only a pointer has something behind it");
      return a->type.pointer ? load(a) : element(a, int_constant(0), "an array");
    }
    if (accept("&")) {
      Node* a = unary();
      if (a->type.is_memory()) return a;
      if (a->op != Op::load) unknown("the address of a variable");
      Node* address = a->a;
      if (a->checked && address->op != Op::variable) address->checked = false;
      return address;
    }
    if (peek("(") && is_type(at_ + 1)) {
      ++at_;
      const Type t = type();
      take(")");
      return cast(unary(), t);
    }
    return postfix();
  }
  Node* cast(Node* n, const Type& t) {
    if (!t.is_memory()) {
      if (n->type.is_memory()) unknown("a pointer as a number");
      return convert(n, t);
    }
    if (!n->type.is_memory()) unknown("a number as a pointer");
    Node* r = node(n->op, t);
    const int line = r->line;
    *r = *n;
    r->type = t;
    r->line = line;
    return r;
  }

  Node* postfix() {
    Value v = primary();
    for (;;) {
      if (accept("[")) {
        if (v.symbol && v.symbol->what == Symbol::array) {
          const std::string name = last_name_;
          Value i = peek("]") ? Value{} : bracket();
          take("]");
          std::vector<Node*> indices = i.is_vector ? i.vector : std::vector{rvalue(i)};
          if (!i.is_vector && indices[0]->type.dims.size() == 1) {
            Node* const list = indices[0];
            indices.clear();
            for (int d = 0; d < list->type.dims[0]; ++d)
              indices.push_back(element(list, int_constant(d), "an index"));
          }
          v = {array_element(*v.symbol, indices, name)};
        } else if (v.is_vector) {
          Node* i = expression();
          take("]");
          v = {pick(v.vector, i)};
        } else {
          const std::string name = last_name_;
          Node* i = expression();
          take("]");
          v = {element(rvalue(v), i, name)};
        }
      } else if (v.symbol && peek("(") && v.symbol->what == Symbol::array) {
        const Symbol* s = v.symbol;
        const std::string name = last_name_;
        v = {array_element(*s, arguments(), name)};
      } else if (accept(".")) {
        v = member(v, name_());
      } else if (accept("++") || accept("--")) {
        const std::string op = tokens_[at_ - 1].string.substr(0, 1);
        Node* n = rvalue(v);
        if (n->op == Op::load) {
          v = {changed(n, op, int_constant(1), true)};
        } else {
          Node* s = set(n, binary(op, n, int_constant(1)));
          s->op = Op::post;
          v = {s};
        }
      } else if (peek("->")) {
        unknown("'->'");
      } else {
        return rvalue(v);
      }
    }
  }
  // What stands in brackets behind an array: an index, or several as a vector.
  Value bracket() {
    const size_t before = at_;
    if (accept("{")) {
      Value v;
      v.is_vector = true;
      while (!accept("}")) {
        v.vector.push_back(assignment());
        accept(",");
      }
      return v;
    }
    // "_ind.get()" and vectors by name have no value of their own.
    if (now().kind == Token::name) {
      const Symbol* s = find(now().string);
      if (s && (s->what == Symbol::indexer || s->what == Symbol::vector)) {
        Value v = primary();
        while (accept(".")) v = member(v, name_());
        if (v.is_vector && peek("]")) return v;
        at_ = before;
      }
    }
    return {expression()};
  }
  Node* pick(const std::vector<Node*>& parts, Node* i) {
    alignas(8) std::byte bits[8];
    Node* const index = convert(i, plain(Num::i64));
    if (constant_value(index, bits)) {
      int64_t k;
      std::memcpy(&k, bits, 8);
      if (k < 0 || k >= int64_t(parts.size())) fail("there is no dimension " + std::to_string(k));
      return parts[size_t(k)];
    }
    if (parts.empty()) fail("there are no dimensions");
    Node* r = convert(parts.back(), plain(Num::i64));
    for (size_t k = parts.size() - 1; k-- > 0;)
      r = node(Op::select, plain(Num::i64), binary("==", index, int_constant(int64_t(k))),
               convert(parts[k], plain(Num::i64)), r);
    return r;
  }
  Value member(const Value& v, const std::string& name) {
    const auto vector = [](const std::vector<Node*>& parts) {
      Value r;
      r.vector = parts;
      r.is_vector = true;
      return r;
    };
    if (v.symbol) {
      const Symbol& s = *v.symbol;
      if (s.what == Symbol::record) {
        for (size_t i = 0; i < s.parts.size(); ++i)
          if (s.layout->members[i].name == name) return {s.parts[i]};
        fail("the struct has no member '" + name + "'");
      }
      if (name == "ndim") return {int_constant(int64_t(s.shape.size()))};
      if (name == "size" || name == "shape" || name == "strides" || name == "get" ||
          name == "data") {
        take("(");
        take(")");
        if (name == "size") return {s.size};
        if (name == "shape") return vector(s.shape);
        if (name == "strides" && s.what == Symbol::array) return vector(s.strides);
        if (name == "get" && s.what == Symbol::indexer) return vector(s.parts);
        if (name == "data" && s.what == Symbol::array) return {s.pointer};
      }
      if (name == "set" && s.what == Symbol::indexer) return {set_indexer(s)};
    }
    fail("there is no member '" + name + "'");
  }
  Node* set_indexer(const Symbol& s) {
    take("(");
    Node* i = convert(assignment(), plain(Num::i64));
    take(")");
    Node* const rest = variable(plain(Num::i64), new_slot());
    Node* all = assigned(rest, i);
    for (size_t d = s.parts.size(); d-- > 0;) {
      Node* const part = d == 0 ? rest : convert(binary("%", rest, s.shape[d]), plain(Num::i64));
      all = node(Op::comma, all->type, all, assigned(s.parts[d], part));
      if (d > 0)
        all = node(Op::comma, all->type, all,
                   assigned(rest, convert(binary("/", rest, s.shape[d]), plain(Num::i64))));
    }
    all = node(Op::comma, plain(Num::none), all, all->b);
    return all;
  }

  Node* number(const Token& t) {
    std::string s = t.string;
    const bool hex = s.starts_with("0x") || s.starts_with("0X");
    const bool floating = !hex && s.find_first_of(".eEfF") != std::string::npos;
    if (floating) {
      const bool single = s.back() == 'f' || s.back() == 'F';
      const double v = std::strtod(s.c_str(), nullptr);
      return single ? constant(Num::f32, std::strtof(s.c_str(), nullptr)) : constant(Num::f64, v);
    }
    bool is_unsigned = false, is_long = false;
    while (!s.empty() && std::strchr("uUlL", s.back())) {
      is_unsigned = is_unsigned || s.back() == 'u' || s.back() == 'U';
      is_long = is_long || s.back() == 'l' || s.back() == 'L';
      s.pop_back();
    }
    if (s.empty() ||
        s.find_first_not_of(hex ? "0123456789abcdefABCDEFxX" : "0123456789") != std::string::npos)
      fail("cannot read the number " + t.string);
    const uint64_t v = std::strtoull(s.c_str(), nullptr, hex ? 16 : s[0] == '0' ? 8 : 10);
    if (is_unsigned)
      return is_long || v > 0xffffffffu ? constant(Num::u64, v) : constant(Num::u32, uint32_t(v));
    if (is_long || v > 0x7fffffffu) {
      if (hex && !is_long && v <= 0xffffffffu) return constant(Num::u32, uint32_t(v));
      return constant(v > uint64_t(std::numeric_limits<int64_t>::max()) ? Num::u64 : Num::i64, v);
    }
    return constant(Num::i32, int32_t(v));
  }

  Value primary() {
    if (accept("(")) {
      Node* n = expression();
      take(")");
      return {n};
    }
    const Token t = now();
    if (t.kind == Token::end) fail("expected a value, found the end");
    ++at_;
    if (t.kind == Token::number) return {number(t)};
    if (t.kind != Token::name) {
      --at_;
      fail("unexpected '" + t.string + "'");
    }
    if ((t.is("std") || t.is("thrust") || t.is("cuda")) && accept("::")) return primary();
    if (t.is("static_cast") || t.is("reinterpret_cast") || t.is("const_cast")) {
      take("<");
      const Type to = type();
      take(">");
      take("(");
      Node* n = expression();
      take(")");
      return {cast(n, to)};
    }
    if (t.is("sizeof")) {
      take("(");
      const Type of = is_type(at_) ? type() : expression()->type;
      take(")");
      int64_t bytes = of.pointer ? 8 : of.step();
      if (!of.dims.empty()) bytes *= of.dims[0];
      return {constant(Num::u64, bytes)};
    }
    if (const Symbol* s = find(t.string)) {
      last_name_ = t.string;
      if (s->what == Symbol::array || s->what == Symbol::indexer || s->what == Symbol::record)
        return {nullptr, s};
      if (s->what == Symbol::vector) return {nullptr, nullptr, s->parts, true};
      return {s->node};
    }
    for (const auto& [name, what] :
         {std::pair("threadIdx", Preset::thread), std::pair("blockIdx", Preset::block_index),
          std::pair("blockDim", Preset::block_dim), std::pair("gridDim", Preset::grid_dim)})
      if (t.is(name)) {
        take(".");
        const std::string axis = name_();
        if (axis != "x" && axis != "y" && axis != "z") fail("there is no axis '" + axis + "'");
        return {special(what, axis[0] - 'x')};
      }
    if (is_type(at_ - 1)) {  // float(x)
      --at_;
      const Type to = type();
      if (peek("{")) unknown("'" + t.string + "{...}'");
      take("(");
      Node* n = peek(")") ? int_constant(0) : assignment();
      take(")");
      return {cast(n, to)};
    }
    if (functions_.contains(t.string)) return {user_call(functions_.at(t.string))};
    if (peek("(") || peek("<")) return {builtin_call(t.string)};
    if (Node* n = named_constant(t.string)) return {n};
    --at_;
    fail("unknown name '" + t.string + "'");
  }

  Node* special(Preset::What what, int axis) {
    auto& slot = specials_[std::pair(int(what), axis)];
    if (slot == 0) {
      slot = new_slot() + 1;
      fixed_.insert(slot - 1);
      p_->presets.push_back({what, slot - 1, Reg::u32, axis});
    }
    return variable(plain(Num::u32), slot - 1);
  }

  Node* named_constant(const std::string& s) {
    if (s == "true" || s == "false") return constant(Num::boolean, int32_t(s == "true"));
    if (s == "warpSize") return int_constant(32);
    static const std::map<std::string, double> doubles = {
        {"M_PI", 3.14159265358979323846},
        {"M_E", 2.71828182845904523536},
        {"M_SQRT2", 1.41421356237309504880},
        {"M_PI_2", 1.57079632679489661923},
        {"M_LN2", 0.69314718055994530942},
        {"DBL_MAX", std::numeric_limits<double>::max()},
        {"DBL_MIN", std::numeric_limits<double>::min()},
        {"DBL_EPSILON", std::numeric_limits<double>::epsilon()}};
    static const std::map<std::string, float> floats = {
        {"INFINITY", std::numeric_limits<float>::infinity()},
        {"NAN", std::numeric_limits<float>::quiet_NaN()},
        {"FLT_MAX", std::numeric_limits<float>::max()},
        {"FLT_MIN", std::numeric_limits<float>::min()},
        {"FLT_EPSILON", std::numeric_limits<float>::epsilon()}};
    if (const auto d = doubles.find(s); d != doubles.end()) return constant(Num::f64, d->second);
    if (const auto f = floats.find(s); f != floats.end()) return constant(Num::f32, f->second);
    if (s == "INT_MAX") return int_constant(std::numeric_limits<int32_t>::max());
    if (s == "INT_MIN") return int_constant(std::numeric_limits<int32_t>::min());
    if (s == "LLONG_MAX") return constant(Num::i64, std::numeric_limits<int64_t>::max());
    if (s == "LLONG_MIN") return constant(Num::i64, std::numeric_limits<int64_t>::min());
    if (s == "UINT_MAX") return constant(Num::u32, std::numeric_limits<uint32_t>::max());
    return nullptr;
  }

  // `arrays`: where those that are structs or arrays of the CArray kind go; their nodes are null.
  std::vector<Node*> arguments(std::map<size_t, Symbol>* arrays = nullptr) {
    take("(");
    std::vector<Node*> r;
    while (!accept(")")) {
      if (!r.empty()) take(",");
      const Symbol* s = arrays && now().kind == Token::name ? find(now().string) : nullptr;
      if (s && (s->what == Symbol::array || s->what == Symbol::record) &&
          (peek(",", 1) || peek(")", 1))) {
        (*arrays)[r.size()] = *s;
        r.push_back(nullptr);
        ++at_;
        continue;
      }
      r.push_back(assignment());
    }
    return r;
  }
  // ---- calls
  Node* builtin_call(const std::string& full) {
    if (peek("<")) unknown("the template '" + full + "'");
    const size_t place = at_;
    std::vector<Node*> args = arguments();
    const auto want = [&](size_t n) {
      if (args.size() != n) {
        at_ = place;
        fail(full + "() takes " + std::to_string(n) + " arguments, not " +
             std::to_string(args.size()));
      }
    };
    if (full == "__syncthreads") {
      p_->shares = true;
      want(0);
      return node(Op::fence, {});
    }
    if (full == "__syncwarp" || full.starts_with("__threadfence")) {
      p_->shares = true;
      return node(Op::fence, {});
    }
    if (full == "assert") {
      want(1);
      unknown("assert()");
    }
    if (full == "__ldg" || full == "__ldcg") {
      want(1);
      return load(args[0]);
    }
    if (full.starts_with("atomic")) return atomic_call(full, args, want);
    static const std::map<std::string, Warp> warps = {
        {"__shfl_sync", Warp::shfl},      {"__shfl_up_sync", Warp::up},
        {"__shfl_down_sync", Warp::down}, {"__shfl_xor_sync", Warp::exchange},
        {"__ballot_sync", Warp::ballot},  {"__any_sync", Warp::any},
        {"__all_sync", Warp::all},        {"__activemask", Warp::active}};
    if (const auto w = warps.find(full); w != warps.end()) {
      p_->shares = true;
      Node* n = nullptr;
      if (full.starts_with("__shfl")) {
        if (args.size() == 3) args.push_back(int_constant(32));
        want(4);
        const Type t = plain(promoted(args[1]->type.num));
        n = node(Op::warp, t, convert(args[1], t), convert(args[2], plain(Num::i32)),
                 convert(args[3], plain(Num::i32)));
      } else if (w->second == Warp::active) {
        want(0);
        n = node(Op::warp, plain(Num::u32));
      } else {
        want(2);
        n = node(Op::warp, plain(w->second == Warp::ballot ? Num::u32 : Num::i32), truth(args[1]));
      }
      n->warp = w->second;
      return n;
    }
    return math_call(full, args);
  }

  template <class Want>
  Node* atomic_call(const std::string& full, const std::vector<Node*>& args, Want&& want) {
    static const std::map<std::string, Atomic> table = {
        {"Add", Atomic::add},   {"Sub", Atomic::sub}, {"Min", Atomic::min},  {"Max", Atomic::max},
        {"Exch", Atomic::exch}, {"CAS", Atomic::cas}, {"And", Atomic::and_}, {"Or", Atomic::or_},
        {"Xor", Atomic::xor_},  {"Inc", Atomic::inc}, {"Dec", Atomic::dec}};
    std::string name = full.substr(6);
    if (const size_t at = name.find('_'); at != std::string::npos)
      name = name.substr(0, at);  // atomicAdd_block
    const auto found = table.find(name);
    if (found == table.end()) fail("unknown function " + full + "()");
    want(found->second == Atomic::cas ? 3 : 2);
    if (!args[0]->type.is_memory()) fail(full + "() takes the address of what it changes");
    const Type t = plain(args[0]->type.num);
    if (bytes_of(t.num) < 4) unknown(full + "() of " + name_of(t.num));
    const bool bits = found->second >= Atomic::and_;
    if (bits && (t.num == Num::f32 || t.num == Num::f64)) fail(full + "() is for integers");
    Node* n = node(Op::atomic, t, args[0], convert(args[1], t),
                   args.size() == 3 ? convert(args[2], t) : nullptr);
    n->atomic = found->second;
    n->checked = args[0]->checked;
    return n;
  }

  Node* math_call(const std::string& full, std::vector<Node*>& args) {
    static const std::map<std::string, std::string> others = {{"fabs", "abs"},
                                                              {"llabs", "abs"},
                                                              {"labs", "abs"},
                                                              {"__expf", "exp"},
                                                              {"__logf", "log"},
                                                              {"__sinf", "sin"},
                                                              {"__cosf", "cos"},
                                                              {"__powf", "pow"},
                                                              {"__log2f", "log2"},
                                                              {"__log10f", "log10"},
                                                              {"__fdividef", "fdividef"},
                                                              {"__frcp_rn", "rcp"},
                                                              {"__fsqrt_rn", "sqrt"},
                                                              {"__saturatef", "saturate"},
                                                              {"__tanf", "tan"},
                                                              {"fmaf", "fma"},
                                                              {"__fmaf_rn", "fma"},
                                                              {"max", "max"},
                                                              {"min", "min"}};
    for (Node* a : args)
      if (a->type.is_memory() || a->type.num == Num::none)
        fail("unknown function " + full + "() of these arguments");
    std::string name = full;
    bool single = false;
    if (const auto o = others.find(name); o != others.end()) {
      name = o->second;
      single = full.starts_with("__") || full == "fmaf";
    }
    Num t = Num::i32;
    for (const Node* a : args) t = common(t, a->type.num);
    static const std::map<std::string, Num> bits = {
        {"__float_as_int", Num::f32}, {"__int_as_float", Num::i32}, {"__popc", Num::u32},
        {"__popcll", Num::u64},       {"__clz", Num::u32},          {"__clzll", Num::u64},
        {"__ffs", Num::u32},          {"__ffsll", Num::u64},        {"__brev", Num::u32}};
    if (const auto b = bits.find(name); b != bits.end() && args.size() == 1) {
      const Num result = name == "__int_as_float" ? Num::f32
                         : name == "__brev"       ? Num::u32
                                                  : Num::i32;
      return map1(function1(name, reg_of(b->second)), plain(result),
                  convert(args[0], plain(b->second)));
    }
    if ((name == "__mul24" || name == "__umul24") && args.size() == 2) {
      // The lower 32 bits of the product of the lower 24 bits of both.
      const Type type = plain(name == "__mul24" ? Num::i32 : Num::u32);
      Node* low[2];
      for (int i = 0; i < 2; ++i) {
        Node* const up = map2(operation("<<", type.reg()), type, convert(args[i], type),
                              constant(Num::i32, int32_t(8)));
        low[i] = map2(operation(">>", type.reg()), type, up, constant(Num::i32, int32_t(8)));
      }
      return map2(operation("*", type.reg()), type, low[0], low[1]);
    }
    if (name == "__float_as_uint" && args.size() == 1) {
      Node* n = map1(function1("__float_as_int", Reg::f32), plain(Num::i32),
                     convert(args[0], plain(Num::f32)));
      return convert(n, plain(Num::u32));
    }
    if (name == "__uint_as_float" && args.size() == 1)
      return map1(function1("__int_as_float", Reg::i32), plain(Num::f32),
                  convert(args[0], plain(Num::i32)));
    if ((name == "abs" || name == "min" || name == "max") && full != "fabs" && !single) {
      // These are for integers, too.
    } else if (reg_of(t) != Reg::f32 && reg_of(t) != Reg::f64) {
      t = Num::f64;
    }
    if (single) t = Num::f32;
    const auto look = [&](const std::string& n) -> Node* {
      const Type type = plain(t);
      std::vector<Node*> c;
      for (Node* a : args) c.push_back(convert(a, type));
      if (args.size() == 1)
        if (const Map1 f = function1(n, type.reg())) {
          const bool asks = n == "isnan" || n == "isinf" || n == "isfinite" || n == "signbit";
          return map1(f, plain(asks ? Num::boolean : t), c[0]);
        }
      if (args.size() == 2)
        if (const Map2 f = function2(n, type.reg())) return map2(f, type, c[0], c[1]);
      if (args.size() == 3)
        if (const Map3 f = function3(n, type.reg())) {
          Node* r = node(Op::map3, type, c[0], c[1], c[2]);
          r->map3 = f;
          return r;
        }
      return nullptr;
    };
    if (Node* n = look(name)) return n;
    if (name.ends_with('f')) {  // sqrtf
      t = Num::f32;
      std::string plain_name = name.substr(0, name.size() - 1);
      if (plain_name == "fabs") plain_name = "abs";
      if (Node* n = look(plain_name)) return n;
    }
    fail("unknown function " + full + "() with " + std::to_string(args.size()) + " arguments");
  }
};

}  // namespace arete::lanes
