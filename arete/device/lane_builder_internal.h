// What a kernel's tree is built with while its words are read: types, names, nodes, memory. See
// Note [Lanes].
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "arete/base/error.h"
#include "arete/device/lane_tokens_internal.h"
#include "arete/device/lane_tree_internal.h"

namespace arete::lanes {

/// A struct of numbers, as C lays it out.
struct Record {
  struct Member {
    std::string name;
    Num num;
    int offset;
  };
  std::vector<Member> members{};
  int bytes = 0, align = 1;
  void add(const std::string& name, Num num) {
    const int size = bytes_of(num);
    const int offset = (bytes + size - 1) / size * size;
    members.push_back({name, num, offset});
    bytes = offset + size;
    align = std::max(align, size);
  }
  void close() { bytes = (bytes + align - 1) / align * align; }
};

struct Symbol {
  // reference: `node` is the lvalue; vector: `parts`; array: CArray; indexer: CIndexer; record: a
  // struct, whose members are `parts`.
  enum What { value, reference, vector, array, indexer, record } what = value;
  Type type{};
  Node* node = nullptr;        // the variable, the constant, or the lvalue
  bool fixed = false;          // const
  std::vector<Node*> parts{};  // of a vector; where an indexer is
  Node *pointer = nullptr, *size = nullptr;
  std::vector<Node*> shape{}, strides{};
  bool contiguous = false;
  const Record* layout = nullptr;
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
  const Symbol* symbol = nullptr;  // an array, an indexer or a struct
  std::vector<Node*> vector{};     // shape(), strides(), _ind.get()
  bool is_vector = false;
};

constexpr int kDeepest = 64;

class Builder {
 public:
  Builder(const std::string& source, const std::string& name,
          const std::vector<std::string>& options)
      : p_(std::make_shared<Program>()) {
    p_->name = name;
    tokens_ = tokens_of(name, source, options, p_->lines);
    scopes_.emplace_back();
    types_.emplace_back();
  }
  virtual ~Builder() = default;

 protected:
  virtual Node* expression() = 0;

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
  /// The struct that a word names: one of the source, or float2 and its like.
  const Record* record_at(size_t at) {
    while (is_qualifier(tokens_[at]) || tokens_[at].is("struct")) ++at;
    const std::string& name = tokens_[at].string;
    if (const auto found = records_.find(name); found != records_.end()) return &found->second;
    const int n = name.empty() ? 0 : name.back() - '0';
    if (tokens_[at].kind != Token::name || n < 2 || n > 4) return nullptr;
    const std::string base = name.substr(0, name.size() - 1);
    if (base != "float" && base != "double" && base != "int" && base != "uint") return nullptr;
    Record& r = records_[name];
    for (int i = 0; i < n; ++i)
      r.add(std::string(1, "xyzw"[i]), base == "int" ? Num::i32 : *number_named(base));
    r.close();
    return &r;
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
        } else if (record_at(at_)) {
          unknown("'" + now().string + "' that is no parameter of a kernel or a function");
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
  std::shared_ptr<Program> p_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  std::vector<std::map<std::string, Symbol>> scopes_;
  std::vector<std::map<std::string, Type>> types_;
  size_t scopes_from_ = 0, types_from_ = 0;  // the first that the function at hand sees
  std::map<std::string, Function> functions_;
  std::map<std::string, Record> records_;
  std::map<std::pair<Num, int64_t>, int> constants_;
  std::map<int, int64_t> constant_bits_;
  std::set<int> fixed_;
  std::map<std::pair<int, int>, int> specials_;
  std::string last_name_;
  int return_slot_ = -1, depth_ = 0, loops_ = 0;
  Type return_type_;
};

}  // namespace arete::lanes
