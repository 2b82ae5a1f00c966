// From a kernel's source to its tree: see Note [Lanes].
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "arete/base/error.h"
#include "arete/device/lane_tokens.h"
#include "arete/device/lane_tree.h"

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

struct Symbol {
  // reference: `node` is the lvalue; vector: `parts`; array: CArray; indexer: CIndexer.
  enum What { value, reference, vector, array, indexer } what = value;
  Type type;
  Node* node = nullptr;      // the variable, the constant, or the lvalue
  bool fixed = false;        // const
  std::vector<Node*> parts;  // of a vector; where an indexer is
  Node *pointer = nullptr, *size = nullptr;
  std::vector<Node*> shape, strides;
  bool contiguous = false;
};

struct Function {
  std::string name;
  std::vector<std::string> templates;
  size_t type = 0, parameters = 0, body = 0;  // places of their first tokens
  bool kernel = false, is_void = false;
};

// What an expression is while it is being read: a node, or something that only members or calls
// make one of.
struct Value {
  Node* node = nullptr;
  const Symbol* symbol = nullptr;  // an array or an indexer
  std::vector<Node*> vector;       // shape(), strides(), _ind.get()
  bool is_vector = false;
};

constexpr int kDeepest = 64;

class Parser {
 public:
  Parser(const std::string& source, const std::string& name,
         const std::vector<std::string>& options)
      : p_(std::make_shared<Program>()) {
    p_->name = name;
    tokens_ = tokens_of(name, source, options, p_->lines);
    scopes_.emplace_back();
    types_.emplace_back();
  }

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
  // ---- words
  const Token& now() const { return tokens_[at_]; }
  bool peek(const char* s, size_t ahead = 0) const {
    return at_ + ahead < tokens_.size() && tokens_[at_ + ahead].is(s);
  }
  bool accept(const char* s) {
    if (!peek(s)) return false;
    ++at_;
    return true;
  }
  void take(const char* s) {
    if (!accept(s))
      fail(std::string("expected '") + s + "'" +
           (now().kind == Token::end ? ", found the end" : ", found '" + now().string + "'"));
  }
  std::string name_() {
    if (now().kind != Token::name) fail("expected a name, found '" + now().string + "'");
    return tokens_[at_++].string;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw ValueError(p_->name, at_line(p_->lines, now().line, what));
  }
  [[noreturn]] void unknown(const std::string& what) const {
    throw NotImplementedError(p_->name,
                              at_line(p_->lines, now().line, what + " cannot run on the CPU"))
        .hint("a GPU compiles the whole of CUDA C++");
  }
  void skip_group(const char* open, const char* close) {
    take(open);
    for (int depth = 1; depth > 0; ++at_) {
      if (now().kind == Token::end) fail(std::string("'") + open + "' without '" + close + "'");
      if (peek(open)) ++depth;
      if (peek(close)) --depth;
    }
  }

  // ---- the whole text
  void top_level() {
    while (now().kind != Token::end) {
      if (accept(";") || accept("}")) continue;
      if (peek("using") || peek("typedef")) {
        alias();
        continue;
      }
      if (peek("struct") || peek("class") || peek("enum") || peek("union"))
        unknown("'" + now().string + "'");
      Function f;
      if (accept("template")) {
        take("<");
        while (!accept(">")) {
          while (now().kind == Token::name && tokens_[at_ + 1].kind == Token::name) ++at_;
          f.templates.push_back(name_());
          accept(",");
        }
      }
      bool constant = false;
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
        if (peek("__constant__") || peek("__device__") || peek("const") || peek("constexpr"))
          constant = constant || !peek("__device__");
        if (peek(";") || peek("=") || peek("{") || peek("[")) break;
      }
      if (peek("{") && group == 0) {  // extern "C" {
        ++at_;
        continue;
      }
      if (group != 0 && (peek("{") || peek(";"))) {
        f.name = tokens_[group - 1].string;
        f.parameters = group;
        f.body = at_;
        f.type = begin;
        for (size_t i = begin; i < group; ++i) f.is_void = f.is_void || tokens_[i].is("void");
        if (accept(";")) continue;  // a declaration only
        functions_[f.name] = f;
        skip_group("{", "}");
        continue;
      }
      at_ = begin;
      while (peek("static") || peek("__device__") || peek("__constant__") || peek("extern") ||
             now().kind == Token::text)
        ++at_;
      global(constant);
    }
  }

  void alias() {
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

  void global(bool) {
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
      auto data = std::make_shared<std::vector<std::byte>>(size_t(count * bytes_of(mine.num)));
      if (int64_t(values.size()) > count) fail("more values than " + name + " has elements");
      for (size_t i = 0; i < values.size(); ++i) put(*data, i, mine.num, values[i]);
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

  // ---- types
  static std::optional<Num> number_named(const std::string& s) {
    static const std::map<std::string, Num> table = {
        {"void", Num::none},    {"bool", Num::boolean},  {"float", Num::f32},
        {"double", Num::f64},   {"half", Num::f16},      {"__half", Num::f16},
        {"float16", Num::f16},  {"bfloat16", Num::bf16}, {"__nv_bfloat16", Num::bf16},
        {"float32", Num::f32},  {"float64", Num::f64},   {"int8", Num::i8},
        {"int16", Num::i16},    {"int32", Num::i32},     {"int64", Num::i64},
        {"uint8", Num::u8},     {"uint16", Num::u16},    {"uint32", Num::u32},
        {"uint64", Num::u64},   {"int8_t", Num::i8},     {"int16_t", Num::i16},
        {"int32_t", Num::i32},  {"int64_t", Num::i64},   {"uint8_t", Num::u8},
        {"uint16_t", Num::u16}, {"uint32_t", Num::u32},  {"uint64_t", Num::u64},
        {"size_t", Num::u64},   {"ptrdiff_t", Num::i64}, {"ssize_t", Num::i64},
        {"uint", Num::u32},     {"uchar", Num::u8},      {"ushort", Num::u16},
        {"intptr_t", Num::i64}, {"uintptr_t", Num::u64}};
    const auto found = table.find(s);
    return found == table.end() ? std::nullopt : std::optional(found->second);
  }
  const Type* named_type(const std::string& s) const {
    for (size_t i = types_.size(); i-- > 0;) {
      if (i > 0 && i < types_from_) continue;
      const auto found = types_[i].find(s);
      if (found != types_[i].end()) return &found->second;
    }
    return nullptr;
  }
  static bool is_qualifier(const Token& t) {
    for (const char* q : {"const", "volatile", "static", "constexpr", "register", "__restrict__",
                          "inline", "__device__", "__forceinline__", "__noinline__", "__host__",
                          "restrict", "typename", "__inline__"})
      if (t.is(q)) return true;
    return false;
  }
  bool is_type(size_t at) const {
    while (at < tokens_.size() && is_qualifier(tokens_[at])) ++at;
    if (tokens_[at].kind != Token::name) return false;
    const std::string& s = tokens_[at].string;
    if (s == "std" && tokens_[at + 1].is("::")) return is_type(at + 2);
    if (find(s)) return false;
    return s == "unsigned" || s == "signed" || s == "char" || s == "short" || s == "int" ||
           s == "long" || s == "auto" || number_named(s) || named_type(s);
  }
  // A type up to its stars; `auto` is a type without a number.
  Type type(bool* fixed = nullptr) {
    Type t;
    bool is_unsigned = false, is_signed = false, seen = false;
    int longs = 0;
    std::string word;
    for (;;) {
      if (peek("const") || peek("constexpr"))
        if (fixed) *fixed = true;
      if (is_qualifier(now())) {
        ++at_;
        continue;
      }
      if (peek("std") && peek("::", 1)) {
        at_ += 2;
        continue;
      }
      if (accept("unsigned")) {
        is_unsigned = seen = true;
      } else if (accept("signed")) {
        is_signed = seen = true;
      } else if (accept("long")) {
        ++longs;
        seen = true;
      } else if (peek("int") || peek("char") || peek("short")) {
        if (word.empty() || word == "int") word = now().string;
        seen = true;
        ++at_;
      } else if (peek("double") && longs > 0) {
        unknown("'long double'");
      } else if (!seen && accept("auto")) {
        seen = true;
        word = "auto";
      } else if (!seen && now().kind == Token::name) {
        if (const Type* known = named_type(now().string)) {
          t = *known;
        } else if (const std::optional<Num> n = number_named(now().string)) {
          t.num = *n;
        } else if (peek("complex") || now().string.starts_with("complex")) {
          unknown("a kernel of complex numbers");
        } else {
          fail("unknown type '" + now().string + "'");
        }
        ++at_;
        seen = true;
        word = "known";
      } else {
        break;
      }
    }
    if (!seen) fail("expected a type, found '" + now().string + "'");
    if (word != "known" && word != "auto") {
      if (word == "char")
        t.num = is_unsigned ? Num::u8 : Num::i8;
      else if (word == "short")
        t.num = is_unsigned ? Num::u16 : Num::i16;
      else if (longs > 0)
        t.num = is_unsigned ? Num::u64 : Num::i64;
      else
        t.num = is_unsigned ? Num::u32 : Num::i32;
    }
    (void)is_signed;
    while (peek("*")) {
      if (t.pointer) unknown("a pointer to pointers");
      t.pointer = true;
      if (fixed) *fixed = false;
      ++at_;
      while (is_qualifier(now())) ++at_;
    }
    return t;
  }
  Type parameter_type() {
    const Type t = type();
    if (peek("&")) unknown("a kernel's reference parameter");
    if (t.num == Num::none && !peek(")")) unknown("a parameter of this type");
    return t;
  }
  void bind_template(const std::string& name, const std::string& text) {
    Lines lines;
    std::vector<Token> saved = tokens_of(p_->name, text, {}, lines);
    std::swap(saved, tokens_);
    const size_t at = std::exchange(at_, 0);
    if (is_type(0)) {
      types_.back()[name] = type();
    } else {
      declare(name, {Symbol::value, {}, expression(), true});
      scopes_.back()[name].type = scopes_.back()[name].node->type;
    }
    at_ = at;
    std::swap(saved, tokens_);
  }
  // "[3][4]"; true where the first is left open.
  bool dimensions(Type& t) {
    bool open = false;
    while (accept("[")) {
      if (t.pointer) unknown("an array of pointers");
      if (accept("]")) {
        open = true;
        t.dims.push_back(0);
        continue;
      }
      const int64_t d = whole(expression());
      if (d <= 0 || d > (int64_t(1) << 24)) fail("an array of " + std::to_string(d) + " elements");
      t.dims.push_back(int(d));
      take("]");
    }
    return open;
  }
  int64_t whole(Node* n) {
    Type t;
    t.num = Num::i64;
    alignas(8) std::byte bits[8];
    if (!constant_value(convert(n, t), bits))
      fail("a number that is known before the kernel runs is expected");
    int64_t v;
    std::memcpy(&v, bits, 8);
    return v;
  }

  // ---- names
  const Symbol* find(const std::string& s) const {
    for (size_t i = scopes_.size(); i-- > 0;) {
      if (i > 0 && i < scopes_from_) continue;  // those of the caller
      const auto found = scopes_[i].find(s);
      if (found != scopes_[i].end()) return &found->second;
    }
    return nullptr;
  }
  void declare(const std::string& name, Symbol s) { scopes_.back()[name] = std::move(s); }
  // Whether a pointer of this name is set to something else after it is declared.
  bool changes(const std::string& name) const {
    int sets = 0, declared = 0;
    for (size_t i = 1; i + 1 < tokens_.size(); ++i) {
      if (!tokens_[i].is(name.c_str()) || !tokens_[i + 1].is("=")) continue;
      ++sets;
      declared += tokens_[i - 1].is("*") && tokens_[i - 2].kind == Token::name;
    }
    return sets > declared || declared > 1;
  }

  // ---- nodes
  Node* node(Op op, Type type, Node* a = nullptr, Node* b = nullptr, Node* c = nullptr) {
    Node& n = p_->nodes.emplace_back();
    if (op != Op::variable) p_->work += int64_t(1) << (4 * std::min(loops_, 4));
    n.op = op;
    n.type = std::move(type);
    n.line = tokens_[at_ > 0 ? at_ - 1 : 0].line;
    n.a = a;
    n.b = b;
    n.c = c;
    return &n;
  }
  int new_slot() { return p_->slots++; }
  Node* variable(const Type& type, int slot) {
    Node* n = node(Op::variable, type);
    n->slot = slot;
    return n;
  }
  static Type plain(Num n) {
    Type t;
    t.num = n;
    return t;
  }
  template <class T>
  Node* constant(Num num, T value) {
    int64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    const auto key = std::pair(num, bits);
    auto found = constants_.find(key);
    if (found == constants_.end()) {
      const int slot = new_slot();
      p_->presets.push_back({Preset::constant, slot, reg_of(num), bits});
      constant_bits_[slot] = bits;
      found = constants_.emplace(key, slot).first;
    }
    return variable(plain(num), found->second);
  }
  Node* int_constant(int64_t v) {
    return v >= std::numeric_limits<int32_t>::min() && v <= std::numeric_limits<int32_t>::max()
               ? constant(Num::i32, int32_t(v))
               : constant(Num::i64, v);
  }
  // The value of a node that depends on nothing; `to` has 8 bytes.
  bool constant_value(const Node* n, std::byte* to) const {
    alignas(8) std::byte a[8], b[8];
    if (n->op == Op::variable) {
      const auto found = constant_bits_.find(n->slot);
      if (found == constant_bits_.end()) return false;
      std::memcpy(to, &found->second, 8);
      return true;
    }
    if (n->op == Op::map1 && constant_value(n->a, a)) {
      n->map1(to, a, 1);
      return true;
    }
    if (n->op == Op::map2 && constant_value(n->a, a) && constant_value(n->b, b)) {
      n->map2(to, a, b, 1);
      return true;
    }
    return false;
  }
  Node* folded(Node* n) {
    alignas(8) std::byte bits[8] = {};
    if (n->type.is_memory() || !constant_value(n, bits)) return n;
    int64_t v = 0;
    std::memcpy(&v, bits,
                n->type.reg() == Reg::i32 || n->type.reg() == Reg::u32 || n->type.reg() == Reg::f32
                    ? 4
                    : 8);
    return constant(n->type.num, v);
  }
  Node* map1(Map1 f, Type type, Node* a) {
    Node* n = node(Op::map1, std::move(type), a);
    n->map1 = f;
    return folded(n);
  }
  Node* map2(Map2 f, Type type, Node* a, Node* b) {
    Node* n = node(Op::map2, std::move(type), a, b);
    n->map2 = f;
    return folded(n);
  }
  Node* convert(Node* n, const Type& to) {
    if (to.is_memory()) {
      if (n->type.is_memory()) return n;
      fail("a number where a pointer is expected");
    }
    if (n->type.is_memory()) fail("a pointer where a number is expected");
    if (n->type.num == Num::none) fail("a value is expected, and this has none");
    if (n->type.num == to.num) return n;
    if (to.num == Num::boolean) return truth(n);
    const Reg from = n->type.reg(), reg = to.reg();
    Node* r = n;
    if (from != reg) r = map1(conversion(from, reg), plain(Num(reg_number(reg))), n);
    if (const Map1 narrow = narrowing(to.num)) return map1(narrow, to, r);
    if (r->type.num == to.num) return r;
    Node* named = node(r->op, to);  // the same under a wider type's name
    *named = *r;
    named->type = to;
    return named;
  }
  static Num reg_number(Reg r) {
    static const Num table[] = {Num::i32, Num::u32, Num::i64, Num::u64, Num::f32, Num::f64};
    return table[int(r)];
  }
  Node* truth(Node* n) {
    if (n->type.num == Num::boolean && !n->type.is_memory()) return n;
    if (n->type.is_memory())
      return map2(operation("!=", Reg::i64), plain(Num::boolean), n, zero(Num::i64));
    return map2(operation("!=", n->type.reg()), plain(Num::boolean), n,
                zero(reg_number(n->type.reg())));
  }
  Node* zero(Num n) { return constant(n, int64_t(0)); }
  static Num promoted(Num n) { return reg_number(reg_of(n)); }
  static Num common(Num a, Num b) { return Num(std::max(int(promoted(a)), int(promoted(b)))); }

  // ---- memory
  Node* memory_node(Memory m, Type type) {
    const int index = int(p_->memory.size());
    p_->memory.push_back(std::move(m));
    const int slot = new_slot();
    p_->presets.push_back({Preset::memory, slot, Reg::i64, index});
    Node* n = variable(type, slot);
    n->base = index;
    return n;
  }
  const std::string* keep(const std::string& s) { return &p_->names.emplace_back(s); }
  Node* load(Node* address) {
    Node* n = node(Op::load, plain(address->type.num), address);
    n->stored = address->type.num;
    n->checked = address->checked;
    return n;
  }
  // base[i] of a pointer or an array.
  Node* element(Node* base, Node* i, const std::string& name) {
    if (!base->type.is_memory()) fail("only arrays and pointers have elements");
    if (i->type.reg() == Reg::f32 || i->type.reg() == Reg::f64 || i->type.is_memory())
      fail("an index must be an integer");
    Node* n = node(Op::index, base->type, base, convert(i, plain(Num::i64)));
    n->imm = base->type.step();
    n->base = base->base;
    n->name = keep(name);
    if (!base->type.dims.empty()) {
      n->limit = base->type.dims[0];
      n->checked = n->limit > 0 && base->type.dims.size() == 1;
      n->type.dims.erase(n->type.dims.begin());
      if (n->type.dims.empty()) n->type.pointer = true;
    } else {
      return load(n);
    }
    return base->type.dims.size() == 1 ? load(n) : n;
  }
  Node* shifted(Node* base, Node* i, bool back) {
    Node* by = convert(i, plain(Num::i64));
    if (back) by = map1(negation("-", Reg::i64), plain(Num::i64), by);
    Node* n = node(Op::index, decayed(base->type), base, by);
    n->imm = base->type.step();
    n->base = base->base;
    return n;
  }
  static Type decayed(Type t) {
    if (t.dims.size() == 1) {
      t.dims.clear();
      t.pointer = true;
    }
    return t;
  }

  // ---- CArray
  // An element of an array by its index in C order, or by one index for each dimension.
  Node* array_element(const Symbol& s, const std::vector<Node*>& indices, const std::string& name) {
    const auto bounded = [&](Node* i, Node* limit, const std::string& what) {
      if (i->type.reg() == Reg::f32 || i->type.reg() == Reg::f64 || i->type.is_memory())
        fail("an index must be an integer");
      Node* n = node(Op::bounded, plain(Num::i64), convert(i, plain(Num::i64)),
                     convert(limit, plain(Num::i64)));
      n->name = keep(what);
      return n;
    };
    const auto l = [&](const char* op, Node* a, Node* b) {
      return map2(operation(op, Reg::i64), plain(Num::i64), convert(a, plain(Num::i64)),
                  convert(b, plain(Num::i64)));
    };
    const size_t nd = s.strides.size();
    Node* offset = nullptr;
    Node* before = nullptr;
    if (indices.size() == 1 && (s.contiguous || nd == 1)) {
      offset = l("*", bounded(indices[0], s.size, name),
                 s.contiguous ? int_constant(bytes_of(s.type.num)) : s.strides[0]);
    } else if (indices.size() == 1 && nd == 0) {
      offset = l("*", bounded(indices[0], s.size, name), int_constant(0));
    } else if (indices.size() == 1) {
      Node* const rest = variable(plain(Num::i64), new_slot());
      before = assigned(rest, bounded(indices[0], s.size, name));
      for (size_t d = nd; d-- > 0;) {
        Node* const part = l("*", d == 0 ? rest : l("%", rest, s.shape[d]), s.strides[d]);
        // The parts are sums of what `rest` is at their time, so each is put down before it goes
        // on.
        Node* const kept = variable(plain(Num::i64), new_slot());
        before = node(Op::comma, before->type, before, assigned(kept, part));
        if (d > 0)
          before = node(Op::comma, before->type, before, assigned(rest, l("/", rest, s.shape[d])));
        offset = offset ? l("+", offset, kept) : kept;
      }
    } else {
      if (indices.size() != nd)
        fail(name + " has " + std::to_string(nd) + " dimensions, and " +
             std::to_string(indices.size()) + " indices are given");
      for (size_t d = 0; d < nd; ++d) {
        Node* const part = l(
            "*", bounded(indices[d], s.shape[d], "dimension " + std::to_string(d) + " of " + name),
            s.strides[d]);
        offset = offset ? l("+", offset, part) : part;
      }
    }
    Node* n = node(Op::index, s.pointer->type, s.pointer, offset);
    n->imm = 1;
    n->base = s.pointer->base;
    if (before) {
      Node* both = node(Op::comma, n->type, before, n);
      both->base = n->base;
      n = both;
    }
    n->checked = true;
    return load(n);
  }
  Node* assigned(Node* to, Node* value) {
    Node* n = node(Op::assign, to->type, nullptr, value);
    n->slot = to->slot;
    return n;
  }

  // ---- expressions
  Node* rvalue(Value v) {
    if (v.node) return v.node;
    if (v.symbol) fail("an array is used by its elements");
    fail("a value is expected");
  }
  Node* expression() {
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
  // to op= value; the address is computed once.
  Node* changed(Node* to, const std::string& op, Node* value) {
    if (to->op != Op::load) return set(to, binary(op, to, value));
    Node* const address = variable(to->a->type, new_slot());
    address->base = to->a->base;
    address->checked = to->checked;
    Node* const place = load(address);
    Node* const stored = set(place, binary(op, place, value));
    return node(Op::comma, stored->type, assigned(address, to->a), stored);
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
        if (n->op == Op::load) {  // the value before is asked for seldom: x[i]++ as a statement
          if (!peek(";") && !peek(")")) unknown("the value of an element's " + op + op);
          v = {changed(n, op, int_constant(1))};
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
      if (s->what == Symbol::array || s->what == Symbol::indexer) return {nullptr, s};
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

  // `arrays`: where those that are arrays of the CArray kind go; their nodes are null.
  std::vector<Node*> arguments(std::map<size_t, Symbol>* arrays = nullptr) {
    take("(");
    std::vector<Node*> r;
    while (!accept(")")) {
      if (!r.empty()) take(",");
      const Symbol* s = arrays && now().kind == Token::name ? find(now().string) : nullptr;
      if (s && s->what == Symbol::array && (peek(",", 1) || peek(")", 1))) {
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

  // A function of the source is put in the place of its call.
  Node* user_call(const Function& f) {
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
    if (peek("goto") || peek("asm") || peek("struct") || peek("try") || peek("printf"))
      unknown("'" + now().string + "'");
    if (peek("CArray") || peek("CIndexer")) return array_declaration();
    if (peek("extern") || peek("__shared__") || peek("alignas") || peek("__align__") ||
        is_type(at_))
      if (!(is_type(at_) && peek("(", 1))) return declaration();
    Node* n = expression();
    take(";");
    return say(n);
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
        if (otherwise) last_default_ = at_;
      } else {
        if (!part) fail("a statement before the first case");
        part->list.push_back(statement());
      }
      if (last_default_ && peek("case")) unknown("a case behind the default");
    }
    last_default_ = 0;
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
          declare(name, {Symbol::value, to->type, to, true});
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
    Node* const address = memory_node(
        {shared ? Memory::shared : Memory::local, name, mine.num, (bytes + 7) / 8 * 8}, mine);
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

  std::shared_ptr<Program> p_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  std::vector<std::map<std::string, Symbol>> scopes_;
  std::vector<std::map<std::string, Type>> types_;
  size_t scopes_from_ = 0, types_from_ = 0;  // the first that the function at hand sees
  std::map<std::string, Function> functions_;
  std::map<std::pair<Num, int64_t>, int> constants_;
  std::map<int, int64_t> constant_bits_;
  std::set<int> fixed_;
  std::map<std::pair<int, int>, int> specials_;
  std::string last_name_;
  int return_slot_ = -1, depth_ = 0, loops_ = 0;
  Type return_type_;
  size_t last_default_ = 0;
};

}  // namespace

ProgramPtr read(const std::string& source, const std::string& name,
                const std::vector<std::string>& options) {
  static std::mutex mutex;
  static auto* const programs = new std::map<std::string, ProgramPtr>;
  std::string key = name;
  for (const std::string& o : options) key += '\n' + o;
  key += '\n' + source;
  const std::lock_guard lock(mutex);
  ProgramPtr& p = (*programs)[key];
  if (!p) p = Parser(source, name, options).program();
  return p;
}

}  // namespace arete::lanes
