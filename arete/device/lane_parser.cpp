// From a kernel's source to its tree: see Note [Lanes].
#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "arete/base/error.h"
#include "arete/device/lane_expressions_internal.h"

namespace arete::lanes {

Reg reg_of(Num n) {
  switch (n) {
    case Num::u32:
      return Reg::u32;
    case Num::i64:
      return Reg::i64;
    case Num::u64:
      return Reg::u64;
    case Num::f16:
    case Num::bf16:
    case Num::f32:
      return Reg::f32;
    case Num::f64:
      return Reg::f64;
    default:
      return Reg::i32;
  }
}

int bytes_of(Num n) {
  switch (n) {
    case Num::none:
      return 0;
    case Num::boolean:
    case Num::i8:
    case Num::u8:
      return 1;
    case Num::i16:
    case Num::u16:
    case Num::f16:
    case Num::bf16:
      return 2;
    case Num::i32:
    case Num::u32:
    case Num::f32:
      return 4;
    default:
      return 8;
  }
}

const char* name_of(Num n) {
  static const char* const names[] = {"void",    "bool",     "int8",    "uint8",  "int16",
                                      "uint16",  "int32",    "uint32",  "int64",  "uint64",
                                      "float16", "bfloat16", "float32", "float64"};
  return names[int(n)];
}

int Type::step() const {
  int bytes = bytes_of(num);
  for (size_t i = 1; i < dims.size(); ++i) bytes *= dims[i];
  return bytes;
}

namespace {

// Memory of the variables of a source, which all its functions share.
using Variables = std::map<std::string, std::shared_ptr<std::vector<std::byte>>>;

class Parser : public Expressions {
 public:
  Parser(const std::string& source, const std::string& name,
         const std::vector<std::string>& options, Variables& variables)
      : Expressions(source, name, options), variables_(variables) {}

  ProgramPtr program() {
    top_level();
    std::string name = p_->name;
    std::vector<std::string> given;
    if (const size_t at = name.find('<'); at != std::string::npos) {
      std::string inner = name.substr(at + 1, name.rfind('>') - at - 1) + ",";
      name = name.substr(0, at);
      for (size_t end; (end = inner.find(',')) != std::string::npos; inner.erase(0, end + 1))
        given.push_back(inner.substr(0, end));
    }
    const auto found = functions_.find(name);
    if (found == functions_.end() || !found->second.kernel)
      throw ValueError(p_->name, "the source has no __global__ function of this name");
    const Function& f = found->second;
    if (given.size() != f.templates.size())
      throw ValueError(
          p_->name, "the kernel has " + std::to_string(f.templates.size()) + " template parameters")
          .hint("its name says them: \"" + name + "<float>\"");
    scopes_.emplace_back();
    types_.emplace_back();
    for (size_t i = 0; i < given.size(); ++i) bind_template(f.templates[i], given[i]);
    at_ = f.parameters;
    take("(");
    while (!peek(")")) {
      if (const Record* const record = record_at(at_)) {
        record_parameter(*record);
        if (!accept(",")) break;
        continue;
      }
      const Type t = parameter_type();
      std::string word = tokens_[at_].kind == Token::name ? name_() : "";
      Type type = t;
      if (accept("[")) {
        while (!accept("]")) ++at_;
        type.pointer = true;
      }
      const int index = int(p_->parameters.size());
      p_->parameters.push_back({word, type});
      const int slot = new_slot();
      p_->presets.push_back({Preset::parameter, slot, type.reg(), index});
      Node* v = variable(type, slot);
      if (type.pointer) {
        v->base = int(p_->memory.size());
        p_->memory.push_back({Memory::argument, word, type.num, 0, index, nullptr});
        if (changes(word)) v->base = -1;
      }
      declare(word, {Symbol::value, type, v});
      if (!accept(",")) break;
    }
    at_ = f.body;
    return_slot_ = -1;
    p_->body = statement();
    return p_;
  }

 private:
  // ---- the whole text
  void top_level() {
    while (now().kind != Token::end) {
      if (accept(";") || accept("}")) continue;
      if (peek("using") || peek("typedef")) {
        alias();
        continue;
      }
      if (peek("struct")) {
        record();
        continue;
      }
      if (peek("class") || peek("enum") || peek("union")) unknown("'" + now().string + "'");
      Function f;
      if (accept("template")) {
        take("<");
        while (!accept(">")) {
          while (now().kind == Token::name && tokens_[at_ + 1].kind == Token::name) ++at_;
          f.templates.push_back(name_());
          accept(",");
        }
      }
      const size_t begin = at_;
      size_t group = 0;
      for (;; ++at_) {
        if (now().kind == Token::end) {
          if (at_ != begin) fail("a declaration without an end");
          return;
        }
        if (peek("(")) {
          group = at_;
          skip_group("(", ")");
          --at_;
          continue;
        }
        if (peek("__global__")) f.kernel = true;
        if (peek(";") || peek("=") || peek("{") || peek("[")) break;
      }
      if (peek("{") && group == 0) {  // extern "C" {
        ++at_;
        continue;
      }
      if (group != 0 && (peek("{") || peek(";"))) {
        if (tokens_[group - 1].kind != Token::name) unknown("a specialization of a template");
        f.name = tokens_[group - 1].string;
        f.parameters = group;
        f.body = at_;
        f.type = begin;
        for (size_t i = begin; i < group; ++i) f.is_void = f.is_void || tokens_[i].is("void");
        if (accept(";")) continue;  // a declaration only
        if (!functions_.emplace(f.name, f).second) unknown("an overload of '" + f.name + "'");
        skip_group("{", "}");
        continue;
      }
      at_ = begin;
      while (peek("static") || peek("__device__") || peek("__constant__") || peek("extern") ||
             now().kind == Token::text)
        ++at_;
      global();
    }
  }

  void alias() {
    if (peek("typedef") && peek("struct", 1)) {
      ++at_;
      return record();
    }
    if (accept("typedef")) {
      const Type t = type();
      types_.back()[name_()] = t;
    } else {
      take("using");
      if (accept("namespace")) {
        name_();
      } else {
        const std::string name = name_();
        take("=");
        types_.back()[name] = type();
      }
    }
    take(";");
  }

  // struct Name { float x, y; int n; }; and typedef struct { ... } Name;
  void record() {
    take("struct");
    if (peek("__align__") || peek("alignas")) unknown("a struct's alignment");
    std::string name = peek("{") ? "" : name_();
    Record r;
    take("{");
    while (!accept("}")) {
      const Type t = type();
      if (t.pointer || t.num == Num::none) unknown("a struct's member that is no number");
      do {
        r.add(name_(), t.num);
        if (!peek(",") && !peek(";")) unknown("a struct's member that is no number");
      } while (accept(","));
      take(";");
    }
    if (!peek(";")) name = name_();
    take(";");
    r.close();
    if (!records_.emplace(name, std::move(r)).second) fail("there is a struct '" + name + "'");
  }
  // Each member is a variable of its own.
  void record_parameter(const Record& r) {
    while (is_qualifier(now()) || peek("struct")) ++at_;
    ++at_;
    while (is_qualifier(now())) ++at_;
    if (peek("*") || peek("&")) unknown("a pointer to structs");
    const std::string word = now().kind == Token::name ? name_() : "";
    Symbol s;
    s.what = Symbol::record;
    s.layout = &r;
    const int index = int(p_->parameters.size());
    p_->parameters.push_back({word, {}, r.bytes});
    for (const Record::Member& m : r.members) {
      const int slot = new_slot();
      const Type t = plain(m.num);
      p_->presets.push_back({Preset::parameter, slot, t.reg(), index, m.offset, m.num});
      s.parts.push_back(variable(t, slot));
    }
    declare(word, std::move(s));
  }

  void global() {
    bool fixed = false;
    const Type t = type(&fixed);
    do {
      const std::string name = name_();
      Type mine = t;
      const bool open = dimensions(mine);
      std::vector<Node*> values;
      bool given = false;
      if (accept("=")) {
        given = true;
        if (peek("{"))
          values = initializers();
        else
          values.push_back(expression());
      }
      if (mine.dims.empty() && given && fixed) {
        declare(name, {Symbol::value, mine, convert(values.at(0), mine), true});
        continue;
      }
      if (open) mine.dims[0] = int(values.size());
      int64_t count = 1;
      for (const int d : mine.dims) count *= d;
      if (int64_t(values.size()) > count) fail("more values than " + name + " has elements");
      std::shared_ptr<std::vector<std::byte>>& data = variables_[name];
      if (!data) {  // else another function has read it, and kernels may have changed it
        auto fresh = std::make_shared<std::vector<std::byte>>(size_t(count * bytes_of(mine.num)));
        for (size_t i = 0; i < values.size(); ++i) put(*fresh, i, mine.num, values[i]);
        data = std::move(fresh);
      }
      Type element = mine;
      Node* address =
          memory_node({Memory::global, name, mine.num, int64_t(data->size()), -1, data}, element);
      if (mine.dims.empty()) {
        address->type.pointer = true;
        declare(name, {Symbol::reference, mine, load(address)});
      } else {
        declare(name, {Symbol::value, mine, address});
      }
    } while (accept(","));
    take(";");
  }

  void put(std::vector<std::byte>& data, size_t i, Num num, Node* v) {
    Type t;
    t.num = num;
    Node* const c = convert(v, t);
    alignas(8) std::byte bits[8];
    if (!constant_value(c, bits)) fail("a value that is known before the kernel runs is expected");
    std::byte* const to = data.data() + i * size_t(bytes_of(num));
    float f;
    std::memcpy(&f, bits, sizeof(f));
    if (num == Num::f16) {
      const Half h(f);
      std::memcpy(to, &h, 2);
    } else if (num == Num::bf16) {
      const BFloat16 h(f);
      std::memcpy(to, &h, 2);
    } else {
      std::memcpy(to, bits, size_t(bytes_of(num)));  // little endian
    }
  }
  // A function of the source is put in the place of its call.
  Node* user_call(const Function& f) override {
    if (f.kernel) unknown("a launch of '" + f.name + "'");
    if (++depth_ > kDeepest) unknown("a function that calls itself");
    std::vector<std::string> given;
    std::vector<std::optional<Type>> types(f.templates.size());
    std::vector<Node*> values(f.templates.size());
    if (!f.templates.empty() && accept("<")) {
      for (size_t i = 0; !accept(">"); ++i) {
        if (i >= types.size()) fail("too many template arguments");
        if (is_type(at_))
          types[i] = type();
        else
          values[i] = unary();
        accept(",");
      }
    }
    const int line = now().line;
    std::map<size_t, Symbol> arrays;
    const std::vector<Node*> args = arguments(&arrays);
    const size_t back = at_;
    const size_t scopes_before = std::exchange(scopes_from_, scopes_.size());
    const size_t types_before = std::exchange(types_from_, types_.size());
    scopes_.emplace_back();
    types_.emplace_back();
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i]) types_.back()[f.templates[i]] = *types[i];
      if (values[i]) declare(f.templates[i], {Symbol::value, values[i]->type, values[i], true});
    }
    Statement* const body = new_statement(Do::block);
    at_ = f.parameters;
    take("(");
    size_t k = 0;
    while (!peek(")")) {
      if (peek("void") && peek(")", 1)) {
        ++at_;
        break;
      }
      if (k >= args.size())
        fail(f.name + "() takes more than " + std::to_string(args.size()) + " arguments");
      if (peek("CArray")) {
        const auto given = arrays.find(k++);
        if (given == arrays.end()) fail(f.name + "() takes an array here");
        ++at_;
        skip_group("<", ">");
        accept("&");
        declare(name_(), given->second);
        accept(",");
        continue;
      }
      if (const Record* const record = record_at(at_)) {
        const auto given = arrays.find(k++);
        if (given == arrays.end() || given->second.layout != record)
          fail(f.name + "() takes another struct here");
        while (is_qualifier(now()) || peek("struct")) ++at_;
        ++at_;
        while (is_qualifier(now())) ++at_;
        const bool reference = accept("&");
        const std::string word = name_();
        if (!reference && changes(word)) unknown("a function that changes its own struct");
        declare(word, given->second);
        accept(",");
        continue;
      }
      Node* const a = args[k++];
      if (!a) fail(f.name + "() takes a number here, not an array");
      // The type of a template follows from the argument.
      size_t look = at_;
      while (is_qualifier(tokens_[look])) ++look;
      for (const std::string& t : f.templates)
        if (tokens_[look].is(t.c_str()) && !named_type(t)) types_.back()[t] = plain(a->type.num);
      Type t = type();
      const bool reference = accept("&");
      const std::string word = now().kind == Token::name ? name_() : "";
      if (accept("[")) {
        while (!accept("]")) ++at_;
        t.pointer = true;
      }
      if (reference && (is_variable(a) || a->op == Op::load)) {
        Node* place = a;
        if (a->op == Op::load) {
          Node* const address = variable(a->a->type, new_slot());
          address->base = a->a->base;
          address->checked = a->checked;
          body->list.push_back(say(assigned(address, a->a)));
          place = load(address);
        }
        declare(word, {Symbol::reference, a->type, place});
      } else {
        if (t.pointer && a->type.is_memory()) t = a->type.dims.empty() ? a->type : decayed(a->type);
        Node* const v = variable(t, new_slot());
        if (t.is_memory()) {
          v->base = a->base;
          v->checked = false;
        }
        body->list.push_back(say(assigned(v, convert(a, t))));
        declare(word, {Symbol::value, t, v});
      }
      accept(",");
    }
    if (k != args.size())
      fail(f.name + "() takes " + std::to_string(k) + " arguments, not " +
           std::to_string(args.size()));
    at_ = f.type;
    while (!peek(f.name.c_str()) && !is_type(at_)) ++at_;
    const Type result = f.is_void ? Type{} : type();
    if (result.pointer) unknown("a function that returns a pointer");
    const int slot = f.is_void ? -1 : new_slot();
    const int slot_before = std::exchange(return_slot_, slot);
    const Type type_before = std::exchange(return_type_, result);
    at_ = f.body;
    body->list.push_back(statement());
    return_slot_ = slot_before;
    return_type_ = type_before;
    scopes_.pop_back();
    types_.pop_back();
    scopes_from_ = scopes_before;
    types_from_ = types_before;
    at_ = back;
    --depth_;
    Node* n = node(Op::call, result);
    n->body = body;
    n->slot = slot;
    n->line = line;
    return n;
  }
  // ---- statements
  Statement* new_statement(Do what) {
    Statement& s = p_->statements.emplace_back();
    s.what = what;
    return &s;
  }
  Statement* say(Node* n) {
    Statement* s = new_statement(Do::expression);
    s->value = n;
    return s;
  }

  Statement* statement() {
    if (accept(";")) return new_statement(Do::nothing);
    if (accept("{")) {
      Statement* s = new_statement(Do::block);
      scopes_.emplace_back();
      types_.emplace_back();
      while (!accept("}")) {
        if (now().kind == Token::end) fail("'{' without '}'");
        s->list.push_back(statement());
      }
      scopes_.pop_back();
      types_.pop_back();
      return s;
    }
    if (peek("if")) return branch();
    if (peek("for") || peek("while") || peek("do")) return loop();
    if (peek("switch")) return choice();
    if (accept("break")) {
      take(";");
      return new_statement(Do::leave);
    }
    if (accept("continue")) {
      take(";");
      return new_statement(Do::next);
    }
    if (accept("return")) {
      Statement* s = new_statement(Do::give);
      if (!peek(";")) {
        if (return_slot_ < 0) fail("a function without a result returns none");
        s->value = convert(expression(), return_type_);
        s->slot = return_slot_;
      }
      take(";");
      return s;
    }
    if (peek("using") || peek("typedef")) {
      alias();
      return new_statement(Do::nothing);
    }
    if (peek("goto") || peek("asm") || peek("struct") || peek("try"))
      unknown("'" + now().string + "'");
    if (peek("printf") && peek("(", 1)) return printing();
    if (peek("CArray") || peek("CIndexer")) return array_declaration();
    if (peek("extern") || peek("__shared__") || peek("alignas") || peek("__align__") ||
        is_type(at_))
      if (!(is_type(at_) && peek("(", 1))) return declaration();
    Node* n = expression();
    take(";");
    return say(n);
  }

  // The characters of strings that stand one behind the other.
  std::string characters() {
    if (now().kind != Token::text) unknown("printf() of what is no string in the source");
    std::string r;
    for (; now().kind == Token::text; ++at_) {
      const std::string& t = now().string;
      for (size_t i = 1; i + 1 < t.size(); ++i) {
        if (t[i] != '\\') {
          r += t[i];
          continue;
        }
        static constexpr std::string_view kNames = "ntr0\\\"'?ab", kMeant{"\n\t\r\0\\\"'?\a\b", 10};
        const size_t k = kNames.find(t[++i]);
        if (k == std::string_view::npos) unknown("this escape in a string");
        r += kMeant[k];
      }
    }
    return r;
  }

  // Integers are printed as 64 bits, floating numbers as doubles.
  Statement* printing() {
    take("printf");
    take("(");
    const std::string format = characters();
    Statement* s = new_statement(Do::print);
    Printed piece;
    for (size_t i = 0; i < format.size(); ++i) {
      if (format[i] != '%' || (i + 1 < format.size() && format[i + 1] == '%')) {
        piece.text += format[i];
        i += format[i] == '%';
        continue;
      }
      const size_t end =
          std::min(format.find_first_not_of("0123456789+-# .", i + 1), format.size());
      const size_t kind = std::min(format.find_first_not_of("hlLjzt", end), format.size());
      const std::string length = format.substr(end, kind - end);
      const char letter = kind < format.size() ? format[kind] : ' ';
      const bool real = std::string_view("fFeEgGaA").find(letter) != std::string_view::npos;
      const bool whole = std::string_view("diuxXoc").find(letter) != std::string_view::npos;
      if ((!real && !whole) || (!real && length.starts_with('h')))
        unknown("printf() of '" + format.substr(i, kind + 1 - i) + "'");
      take(",");
      Node* value = assignment();
      if (value->type.is_memory() || (reg_of(value->type.num) >= Reg::f32) != real)
        fail("printf(): '" + format.substr(i, kind + 1 - i) +
             "' is no conversion of this argument");
      const bool is_signed = letter == 'd' || letter == 'i' || letter == 'c';
      const bool is_long = !length.empty() && length[0] != 'h';
      if (!real)
        value = convert(value, plain(is_signed ? is_long ? Num::i64 : Num::i32
                                     : is_long ? Num::u64
                                               : Num::u32));
      piece.value = convert(value, plain(real ? Num::f64 : is_signed ? Num::i64 : Num::u64));
      piece.conversion = format.substr(i, end - i) + (real || letter == 'c' ? "" : "ll") + letter;
      s->printed.push_back(std::exchange(piece, {}));
      i = kind;
    }
    s->printed.push_back(std::move(piece));
    take(")");
    take(";");
    return s;
  }

  Statement* branch() {
    take("if");
    accept("constexpr");
    take("(");
    Node* c = truth(expression());
    take(")");
    Statement* s = new_statement(Do::branch);
    s->value = c;
    s->first = scoped();
    if (accept("else")) s->second = scoped();
    return s;
  }
  Statement* scoped() {
    scopes_.emplace_back();
    types_.emplace_back();
    Statement* s = statement();
    scopes_.pop_back();
    types_.pop_back();
    return s;
  }

  Statement* loop() {
    scopes_.emplace_back();
    types_.emplace_back();
    Statement* all = new_statement(Do::block);
    Statement* s = new_statement(Do::loop);
    ++loops_;
    if (accept("for")) {
      take("(");
      if (!accept(";")) {
        if (is_type(at_)) {
          all->list.push_back(declaration());
        } else {
          all->list.push_back(say(expression()));
          take(";");
        }
      }
      if (!peek(";")) s->value = truth(expression());
      take(";");
      if (!peek(")")) s->second = say(expression());
      take(")");
      s->first = scoped();
    } else if (accept("while")) {
      take("(");
      s->value = truth(expression());
      take(")");
      s->first = scoped();
    } else {
      take("do");
      s->first = scoped();
      take("while");
      take("(");
      s->value = truth(expression());
      take(")");
      take(";");
      s->after = true;
    }
    --loops_;
    all->list.push_back(s);
    scopes_.pop_back();
    types_.pop_back();
    return all;
  }

  // Lanes that have found their case run what stands there and below, until they break.
  Statement* choice() {
    take("switch");
    take("(");
    Node* value = expression();
    take(")");
    const Type t = plain(promoted(value->type.num));
    Node *const what = variable(t, new_slot()), *const found =
                                                    variable(plain(Num::boolean), new_slot());
    Statement* all = new_statement(Do::block);
    all->list = {say(assigned(what, convert(value, t))),
                 say(assigned(found, constant(Num::boolean, int32_t(0))))};
    Statement* s = new_statement(Do::loop);
    s->once = true;
    s->first = new_statement(Do::block);
    take("{");
    scopes_.emplace_back();
    types_.emplace_back();
    Statement* part = nullptr;
    bool had_default = false;
    while (!accept("}")) {
      if (now().kind == Token::end) fail("'{' without '}'");
      const bool otherwise = peek("default");
      if (otherwise || peek("case")) {
        ++at_;
        Node* hit =
            otherwise ? constant(Num::boolean, int32_t(1)) : binary("==", what, conditional());
        take(":");
        s->first->list.push_back(
            say(assigned(found, node(Op::either, plain(Num::boolean), found, hit))));
        Statement* arm = new_statement(Do::branch);
        arm->value = found;
        part = arm->first = new_statement(Do::block);
        s->first->list.push_back(arm);
        had_default = had_default || otherwise;
      } else {
        if (!part) fail("a statement before the first case");
        part->list.push_back(statement());
      }
      if (had_default && peek("case")) unknown("a case behind the default");
    }
    scopes_.pop_back();
    types_.pop_back();
    all->list.push_back(s);
    return all;
  }

  std::vector<Node*> initializers() {
    std::vector<Node*> r;
    take("{");
    while (!accept("}")) {
      if (peek("{")) {
        for (Node* n : initializers()) r.push_back(n);
      } else {
        r.push_back(assignment());
      }
      accept(",");
    }
    return r;
  }

  Statement* declaration() {
    bool shared = false, dynamic = false, fixed = false;
    while (peek("extern") || peek("__shared__") || peek("alignas") || peek("__align__")) {
      dynamic = dynamic || peek("extern");
      shared = shared || peek("__shared__");
      const bool align = peek("alignas") || peek("__align__");
      ++at_;
      if (align) skip_group("(", ")");
    }
    Type t = type(&fixed);
    const bool automatic = t.num == Num::none && !t.pointer;
    Statement* all = new_statement(Do::block);
    do {
      Type mine = t;
      if (accept("*")) mine.pointer = true;
      while (is_qualifier(now())) ++at_;
      const bool reference = accept("&");
      const std::string name = name_();
      const bool open = dimensions(mine);
      if (shared || !mine.dims.empty()) {
        array(all, name, mine, open, shared, dynamic);
        continue;
      }
      if (reference) {
        take("=");
        Node* const to = assignment();
        if (to->op != Op::load && !is_variable(to)) {
          if (!fixed) fail("a reference to what is no place");
          // What has no place gets one: its parts may change while the reference is used.
          Node* const v = variable(mine.pointer || automatic ? to->type : mine, new_slot());
          if (v->type.is_memory()) v->base = to->base;
          all->list.push_back(say(assigned(v, convert(to, v->type))));
          fixed_.insert(v->slot);
          declare(name, {Symbol::value, v->type, v});
          continue;
        }
        if (to->op == Op::load) {
          Node* const address = variable(to->a->type, new_slot());
          address->base = to->a->base;
          address->checked = to->checked;
          all->list.push_back(say(assigned(address, to->a)));
          declare(name, {Symbol::reference, to->type, load(address)});
        } else {
          declare(name, {Symbol::reference, to->type, to});
        }
        continue;
      }
      Node* value = nullptr;
      if (accept("=")) {
        value = assignment();
      } else if (accept("(")) {
        value = expression();
        take(")");
      } else if (peek("{")) {
        const std::vector<Node*> list = initializers();
        value = list.empty() ? int_constant(0) : list[0];
      }
      if (automatic) {
        if (!value) fail("'auto' needs a value");
        mine = decayed(value->type);
        if (mine.num == Num::none) fail("a value is expected, and this has none");
      }
      if (value) {
        if (mine.pointer && value->type.is_memory() && !value->type.dims.empty() &&
            value->type.dims.size() > 1)
          fail("a pointer to rows");
        value =
            mine.pointer && !value->type.is_memory() ? null_pointer(value) : convert(value, mine);
        alignas(8) std::byte bits[8];
        if (fixed && !mine.pointer && constant_value(value, bits)) {
          declare(name, {Symbol::value, mine, value, true});
          continue;
        }
      }
      Node* const v = variable(mine, new_slot());
      if (mine.pointer && value && !changes(name)) v->base = value->base;
      if (value) all->list.push_back(say(assigned(v, value)));
      if (fixed && !mine.pointer) fixed_.insert(v->slot);
      declare(name, {Symbol::value, mine, v});
    } while (accept(","));
    take(";");
    return all;
  }
  Node* null_pointer(Node* v) {
    if (whole(v) != 0) fail("a number where a pointer is expected");
    return zero(Num::i64);
  }

  void array(Statement* all, const std::string& name, Type mine, bool open, bool shared,
             bool dynamic) {
    std::vector<Node*> values;
    bool given = false;
    if (accept("=") || peek("{")) {
      given = true;
      values = initializers();
    }
    if (open && !dynamic) {
      if (values.empty()) fail(name + " has no size");
      mine.dims[0] = int(values.size());
    }
    if (shared) p_->shares = true;
    if (dynamic) {
      Type pointer = plain(mine.num);
      pointer.pointer = true;
      declare(name,
              {Symbol::value, pointer, memory_node({Memory::dynamic, name, mine.num}, pointer)});
      return;
    }
    int64_t bytes = bytes_of(mine.num);
    for (const int d : mine.dims) bytes *= d;
    Node* const address =
        memory_node({shared ? Memory::shared : Memory::local, name, mine.num, bytes}, mine);
    if (mine.dims.empty()) {  // one shared number
      address->type.pointer = true;
      declare(name, {Symbol::reference, mine, load(address)});
      return;
    }
    declare(name, {Symbol::value, mine, address});
    if (!given) return;
    if (shared) fail("a shared array has no initial values");
    const int64_t count = bytes / bytes_of(mine.num);
    if (int64_t(values.size()) > count) fail("more values than " + name + " has elements");
    Node* flat = node(address->op, plain(mine.num));
    *flat = *address;
    flat->type = plain(mine.num);
    flat->type.dims = {int(count)};
    for (int64_t i = 0; i < count; ++i)
      all->list.push_back(
          say(set(element(flat, int_constant(i), name),
                  size_t(i) < values.size() ? values[size_t(i)] : int_constant(0))));
  }

  // CArray<T, ndim, contiguous> x(pointer, size, shape..., strides...); CIndexer<ndim> _ind(size,
  // shape...);
  Statement* array_declaration() {
    const bool indexer = accept("CIndexer");
    if (!indexer) take("CArray");
    Symbol s;
    s.what = indexer ? Symbol::indexer : Symbol::array;
    take("<");
    if (!indexer) {
      s.type = type();
      take(",");
    }
    const int64_t nd = whole(unary());
    if (!indexer) {
      take(",");
      s.contiguous = whole(unary()) != 0;
    }
    take(">");
    const std::string name = name_();
    const std::vector<Node*> args = arguments();
    take(";");
    const size_t given = indexer ? 1 + size_t(nd) : 2 + 2 * size_t(nd);
    if (args.size() != given) fail(name + " takes " + std::to_string(given) + " numbers");
    size_t k = 0;
    if (!indexer) s.pointer = args[k++];
    const auto next = [&] { return convert(args[k++], plain(Num::i64)); };
    s.size = next();
    for (int64_t d = 0; d < nd; ++d) s.shape.push_back(next());
    for (int64_t d = 0; d < nd; ++d) {
      if (indexer)
        s.parts.push_back(variable(plain(Num::i64), new_slot()));
      else
        s.strides.push_back(next());
    }
    declare(name, std::move(s));
    return new_statement(Do::nothing);
  }

  Variables& variables_;
};

struct Sources {
  std::mutex mutex;
  std::map<std::string, ProgramPtr> programs;
  std::map<std::string, Variables> variables;
};
Sources& sources() {
  static auto& all = *new Sources;
  return all;
}

std::string key_of(const std::string& source, const std::vector<std::string>& options) {
  std::string key;
  for (const std::string& o : options) key += o + '\n';
  return key + source;
}

}  // namespace

ProgramPtr read(const std::string& source, const std::string& name,
                const std::vector<std::string>& options) {
  Sources& all = sources();
  const std::string key = key_of(source, options);
  const std::lock_guard lock(all.mutex);
  ProgramPtr& p = all.programs[name + '\n' + key];
  if (!p) p = Parser(source, name, options, all.variables[key]).program();
  return p;
}

std::span<std::byte> variable_of(const std::string& source, const std::string& name,
                                 const std::vector<std::string>& options) {
  Sources& all = sources();
  const std::lock_guard lock(all.mutex);
  const Variables& variables = all.variables[key_of(source, options)];
  const auto found = variables.find(name);
  return found == variables.end() ? std::span<std::byte>() : std::span(*found->second);
}

}  // namespace arete::lanes
