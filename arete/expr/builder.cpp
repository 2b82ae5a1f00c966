#include <algorithm>
#include <cmath>

#include "arete/base/error.h"
#include "arete/expr/builder_impl.h"
#include "arete/expr/evaluate.h"
#include "arete/expr/orthogonal.h"

namespace arete::expr {

namespace {

// What operands an operation takes and what it gives.
enum class Rule : uint8_t {
  arithmetic,  // any type to the same
  float_keep,  // rounding: floats; integers and booleans stay as they are
  floating,    // floats; others become f32
  float_test,  // boolean result; false for integers
  bits,        // integers and booleans
  shift,       // integers; booleans become i32
  comparison,  // any type to boolean
  other,
};

Rule rule_of(Op op) {
  switch (op) {
    case Op::floor:
    case Op::ceil:
    case Op::trunc:
    case Op::round:
      return Rule::float_keep;
    case Op::is_nan:
    case Op::is_inf:
      return Rule::float_test;
    case Op::bit_not:
    case Op::bit_and:
    case Op::bit_or:
    case Op::bit_xor:
      return Rule::bits;
    case Op::gcd:
    case Op::shl:
    case Op::shr:
      return Rule::shift;
    case Op::neg:
    case Op::abs:
    case Op::sign:
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::div:
    case Op::floor_div:
    case Op::fmod:
    case Op::remainder:
    case Op::pow:
    case Op::min:
    case Op::max:
      return Rule::arithmetic;
    case Op::atan2:
    case Op::copysign:
    case Op::nextafter:
    case Op::mul_add:
    case Op::mul_sub:
    case Op::sub_mul:
      return Rule::floating;
    case Op::select:
      return Rule::other;
    default:
      break;
  }
  if (op >= Op::eq && op <= Op::ge) return Rule::comparison;
  return op >= Op::sqrt && op <= Op::sigmoid ? Rule::floating : Rule::other;
}

const char* type_name(Type t) {
  constexpr const char* kNames[] = {"boolean", "i32", "i64", "u64", "f32", "f64"};
  return kNames[int(t)];
}

// Whether every value of `from` has its own exact image in `to`.
bool is_lossless(Type from, Type to) {
  if (from == to || from == Type::boolean) return true;
  if (from == Type::i32) return to == Type::i64 || to == Type::f64;
  return from == Type::f32 && to == Type::f64;
}

bool is_commutative(Op op) {
  return op == Op::add || op == Op::mul || op == Op::bit_and || op == Op::bit_or ||
         op == Op::bit_xor || op == Op::eq || op == Op::ne ||
         (op >= Op::mul_add && op <= Op::sub_mul);  // the factors
}

}  // namespace

size_t InstructionHash::operator()(const Instruction& in) const {
  uint64_t h = uint64_t(in.op) | uint64_t(in.type) << 8 | uint64_t(uint32_t(in.index)) << 16;
  auto mix = [&h](uint64_t v) {
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    h ^= h >> 29;
  };
  for (int32_t operand : in.operand) mix(uint32_t(operand));
  mix(uint64_t(in.value.i));
  return size_t(h);
}

// ---- Impl ---------------------------------------------------------------------------------------

int32_t Builder::Impl::push(const Instruction& in) {
  const auto [it, added] = known.try_emplace(in, int32_t(code.size()));
  if (added) code.push_back(in);
  return it->second;
}

int32_t Builder::Impl::leaf(Op op, Type type, int32_t index) {
  return push({op, type, {-1, -1, -1}, index, {}});
}

int32_t Builder::Impl::literal(Type type, Literal value) {
  return push({Op::constant, type, {-1, -1, -1}, 0, value});
}

int32_t Builder::Impl::constant(Type type, double value) {
  Literal l;
  l.f = value;
  return literal(type, convert(l, Type::f64, type));
}

int32_t Builder::Impl::constant(Type type, int64_t value) {
  Literal l;
  l.i = value;
  return literal(type, convert(l, Type::i64, type));
}

int32_t Builder::Impl::cast(int32_t a, Type to) {
  const Type from = type(a);
  if (from == to) return a;
  if (is_constant(a)) return literal(to, convert(code[size_t(a)].value, from, to));
  if (op(a) == Op::cast && is_lossless(type(operand(a)), from)) return cast(operand(a), to);
  return push({Op::cast, to, {a, -1, -1}, 0, {}});
}

int32_t Builder::Impl::round_to(int32_t a, DType storage) {
  const Type t = compute_type(storage);
  a = cast(a, t);
  if (storage_type(t) == storage) return a;
  if (is_constant(a)) return literal(t, round_literal(code[size_t(a)].value, storage));
  // Values that come from that storage type are representable in it already.
  if (op(a) == Op::round_to && DType(code[size_t(a)].index) == storage) return a;
  if (op(a) == Op::input && inputs[size_t(code[size_t(a)].index)] == storage) return a;
  return push({Op::round_to, t, {a, -1, -1}, int32_t(storage), {}});
}

int32_t Builder::Impl::polynomial(int32_t x, int32_t degree, int32_t index) {
  const Type t = type(x) == Type::f64 || type(degree) == Type::f64 ? Type::f64 : Type::f32;
  return push({Op::polynomial, t, {cast(x, t), cast(degree, t), -1}, index, {}});
}

std::optional<int32_t> Builder::Impl::emit_boolean(Op op, int32_t a, int32_t b) {
  auto no = [this](int32_t v) { return emit(Op::bit_not, v); };
  switch (op) {
    case Op::abs:
    case Op::sign:
      return a;
    case Op::neg:
      throw TypeError("neg",
                      "Negation, the `-` operator, on a bool tensor is not supported. If you are "
                      "trying to invert a mask, use the `~` or `logical_not()` operator instead.");
    case Op::add:
    case Op::max:
      return emit(Op::bit_or, a, b);
    case Op::mul:
    case Op::min:
      return emit(Op::bit_and, a, b);
    case Op::sub:
    case Op::ne:
      return emit(Op::bit_xor, a, b);
    case Op::eq:
      return no(emit(Op::bit_xor, a, b));
    case Op::lt:
      return emit(Op::bit_and, no(a), b);
    case Op::le:
      return emit(Op::bit_or, no(a), b);
    case Op::gt:
      return emit(Op::bit_and, a, no(b));
    case Op::ge:
      return emit(Op::bit_or, a, no(b));
    default:
      return std::nullopt;
  }
}

int32_t Builder::Impl::emit(Op op, int32_t a, int32_t b, int32_t c) {
  if (op == Op::load) {
    ARETE_CHECK(is_table(a), ValueError("load", "the first operand is no table"));
    ARETE_CHECK(!is_float(type(b)),
                TypeError("load", "positions are integers").got(type_name(type(b))));
    return push({op, type(a), {a, cast(b, Type::i64), -1}, 0, {}});
  }
  const Rule rule = rule_of(op);
  if (op == Op::select) {
    a = cast(a, Type::boolean);
    const Type t = std::max(type(b), type(c));
    return emit_typed(op, t, a, cast(b, t), cast(c, t));
  }
  Type t = b < 0 ? type(a) : std::max(type(a), type(b));
  if (c >= 0) t = std::max(t, type(c));
  switch (rule) {
    case Rule::float_keep:
      if (!is_float(t)) return a;
      break;
    case Rule::float_test:
      if (!is_float(t)) return constant(Type::boolean, int64_t{0});
      break;
    case Rule::floating:
      if (!is_float(t)) t = Type::f32;
      break;
    case Rule::bits:
      ARETE_CHECK(!is_float(t),
                  TypeError(expr::name_of(op), "bitwise operations need integers or booleans")
                      .got(type_name(t)));
      break;
    case Rule::shift:
      ARETE_CHECK(!is_float(t),
                  TypeError(expr::name_of(op), "shifts need integers").got(type_name(t)));
      if (t == Type::boolean) t = Type::i32;
      break;
    case Rule::arithmetic:
    case Rule::comparison:
      if (t == Type::boolean) {
        if (const auto v = emit_boolean(op, a, b)) return *v;
        t = Type::i32;
      }
      break;
    case Rule::other:
      ARETE_BUG("emit of a leaf or a conversion");
  }
  a = cast(a, t);
  if (b >= 0) b = cast(b, t);
  if (c >= 0) c = cast(c, t);
  const bool tests = rule == Rule::comparison || rule == Rule::float_test;
  return emit_typed(op, tests ? Type::boolean : t, a, b, c);
}

int32_t Builder::Impl::emit_typed(Op op, Type result, int32_t a, int32_t b, int32_t c) {
  auto constant_or_absent = [this](int32_t id) { return id < 0 || is_constant(id); };
  if (constant_or_absent(a) && constant_or_absent(b) && constant_or_absent(c)) {
    auto value = [this](int32_t id) { return id < 0 ? Literal{} : code[size_t(id)].value; };
    const Type operand = type(op == Op::select ? b : a);
    return literal(result, apply(op, operand, result, 0, value(a), value(b), value(c)));
  }
  if (const auto v = simplify(op, a, b, c)) return *v;
  // One order for operands that may be exchanged: constants last, then by age.
  if (is_commutative(op) && (is_constant(a) || (!is_constant(b) && b < a))) std::swap(a, b);
  return push({op, result, {a, b, c}, 0, {}});
}

std::optional<int32_t> Builder::Impl::contracted(Op op, int32_t a, int32_t b) {
  if (op != Op::add && op != Op::sub) return std::nullopt;
  const Type t = std::max(type(a), type(b));
  if (!is_float(t)) return std::nullopt;
  if (op == Op::add && b < a) std::swap(a, b);
  struct Side {
    int32_t id;
    bool negative;
  };
  const auto without_sign = [this](int32_t id, bool negative) {
    return this->op(id) == Op::neg ? Side{operand(id), !negative} : Side{id, negative};
  };
  const Side first = without_sign(a, false), second = without_sign(b, op == Op::sub);
  // A product less itself is zero.
  if (first.id == second.id) return std::nullopt;
  const auto with = [&](const Side& product, int32_t other, bool minus) -> std::optional<int32_t> {
    if (this->op(product.id) != Op::mul || type(product.id) != t || (product.negative && minus))
      return std::nullopt;
    return emit(product.negative ? Op::sub_mul
                : minus          ? Op::mul_sub
                                 : Op::mul_add,
                operand(product.id, 0), operand(product.id, 1), other);
  };
  if (const auto v = with(first, b, op == Op::sub)) return v;
  return with(second, a, false);
}

// ---- Builder ------------------------------------------------------------------------------------

Builder::Builder() : impl_(std::make_unique<Impl>()) {}
Builder::~Builder() = default;

Value Builder::input(DType storage) {
  const Type t = compute_type(storage);
  impl_->inputs.push_back(storage);
  return {this, impl_->leaf(Op::input, t, int32_t(impl_->inputs.size()) - 1)};
}

Value Builder::table(DType storage) {
  const Value v = input(storage);
  ARETE_ASSERT(impl_->inputs.size() <= 32);
  impl_->tables |= uint32_t{1} << (impl_->inputs.size() - 1);
  return v;
}

Value Builder::param(Type type, bool in_memory) {
  if (in_memory) {
    ARETE_ASSERT(impl_->params.size() < 64);
    impl_->params_in_memory |= uint64_t{1} << impl_->params.size();
  }
  impl_->params.push_back(type);
  return {this, impl_->leaf(Op::param, type, int32_t(impl_->params.size()) - 1)};
}

std::vector<Value> Builder::inputs_of(const Program& program) {
  std::vector<Value> all;
  for (DType t : program.inputs())
    all.push_back(program.is_table(all.size()) ? table(t) : input(t));
  return all;
}

std::vector<Value> Builder::params_of(const Program& program, uint64_t in_memory) {
  std::vector<Value> all;
  in_memory |= program.params_in_memory();
  for (Type t : program.params())
    all.push_back(param(t, all.size() < 64 && in_memory >> all.size() & 1));
  return all;
}

Value Builder::constant(Type type, double value) { return {this, impl_->constant(type, value)}; }
Value Builder::constant(Type type, int64_t value) { return {this, impl_->constant(type, value)}; }

namespace {
int32_t own_id(const Builder* builder, Value v) {
  ARETE_CHECK(v.builder() == builder && v.id() >= 0,
              ValueError("", "a symbolic scalar is empty or belongs to another builder")
                  .hint("a definition must return values made from its own arguments"));
  return v.id();
}
void check_arity(Op op, int arity) {
  ARETE_CHECK(arity_of(op) == arity && op != Op::cast && op != Op::round_to && op != Op::polynomial,
              ValueError(name_of(op), "emit with a wrong number of operands")
                  .expected(std::to_string(arity_of(op)))
                  .got(std::to_string(arity)));
}
}  // namespace

Value Builder::emit(Op op, Value a) {
  check_arity(op, 1);
  return {this, impl_->emit(op, own_id(this, a))};
}
Value Builder::emit(Op op, Value a, Value b) {
  check_arity(op, 2);
  const int32_t x = own_id(this, a), y = own_id(this, b);
  const std::optional<int32_t> contracted = impl_->contracted(op, x, y);
  return {this, contracted ? *contracted : impl_->emit(op, x, y)};
}
Value Builder::emit(Op op, Value a, Value b, Value c) {
  check_arity(op, 3);
  return {this, impl_->emit(op, own_id(this, a), own_id(this, b), own_id(this, c))};
}
Value Builder::cast(Value a, Type to) { return {this, impl_->cast(own_id(this, a), to)}; }
Value Builder::round_to(Value a, DType storage) {
  return {this, impl_->round_to(own_id(this, a), storage)};
}
Value Builder::polynomial(Value x, Value degree, int family, int order) {
  if (order >= kOrthogonalOrders)
    throw NotImplementedError(
        "polynomial",
        "orthogonal polynomials have " + std::to_string(kOrthogonalOrders - 1) + " derivatives");
  return {this, impl_->polynomial(own_id(this, x), own_id(this, degree),
                                  polynomial_index(family, order))};
}

Type Builder::type_of(int32_t id) const { return impl_->type(id); }
bool Builder::is_number(Value v, double number) const {
  return impl_->is_number(own_id(this, v), number);
}

Value Builder::stored(Value a, DType storage) {
  const int32_t id = impl_->round_to(own_id(this, a), storage);
  if (impl_->op(id) != Op::erf && impl_->op(id) != Op::tanh) return {this, id};
  return {this, impl_->push({Op::round_to, impl_->type(id), {id, -1, -1}, int32_t(storage), {}})};
}

std::vector<Value> Builder::inline_program(const Program& program, std::span<const Value> inputs,
                                           std::span<const Value> params) {
  const std::vector<Value> values = inline_code(program, inputs, params);
  std::vector<Value> out;
  for (const Program::Output& o : program.outputs())
    out.push_back(round_to(values[size_t(o.value)], o.dtype));
  return out;
}

std::vector<Value> Builder::inline_code(const Program& program, std::span<const Value> inputs,
                                        std::span<const Value> params, std::span<const char> live,
                                        std::span<const Value> loads) {
  ARETE_CHECK(inputs.size() == program.inputs().size() && params.size() == program.params().size(),
              ValueError("", "a program is inlined with a wrong number of inputs or parameters"));
  std::vector<Value> values;
  for (size_t i = 0; i < program.code().size(); ++i) {
    const Instruction& in = program.code()[i];
    if (!live.empty() && !live[i]) {
      values.emplace_back();
      continue;
    }
    if (!loads.empty() && loads[i].builder()) {
      values.push_back(loads[i]);
      continue;
    }
    auto operand = [&](int k) {
      return in.operand[k] < 0 ? -1 : own_id(this, values[size_t(in.operand[k])]);
    };
    int32_t id = -1;
    switch (in.op) {
      case Op::input:
        id = impl_->cast(own_id(this, inputs[size_t(in.index)]), in.type);
        break;
      case Op::param:
        id = impl_->cast(own_id(this, params[size_t(in.index)]), in.type);
        break;
      case Op::constant:
        id = impl_->literal(in.type, in.value);
        break;
      case Op::cast:
        id = impl_->cast(operand(0), in.type);
        break;
      case Op::round_to:
        id = stored({this, operand(0)}, DType(in.index)).id();
        break;
      case Op::polynomial:
        id = impl_->polynomial(operand(0), operand(1), in.index);
        break;
      default:
        id = impl_->emit(in.op, operand(0), operand(1), operand(2));
    }
    values.emplace_back(this, id);
  }
  return values;
}

ProgramPtr Builder::build(std::span<const Value> outputs, std::span<const DType> dtypes) {
  ARETE_CHECK(outputs.size() == dtypes.size(),
              ValueError("", "a program needs one storage type for each output")
                  .expected(std::to_string(outputs.size()))
                  .got(std::to_string(dtypes.size())));
  std::vector<int32_t> results;
  for (size_t i = 0; i < outputs.size(); ++i)
    results.push_back(impl_->cast(own_id(this, outputs[i]), compute_type(dtypes[i])));

  // Operands come before their users, so one backward sweep marks what is needed.
  const auto& code = impl_->code;
  std::vector<int32_t> position(code.size(), -1);
  for (int32_t id : results) position[size_t(id)] = 0;
  for (size_t i = code.size(); i-- > 0;)
    if (position[i] >= 0)
      for (int32_t o : code[i].operand)
        if (o >= 0) position[size_t(o)] = 0;

  auto program = std::shared_ptr<Program>(new Program);
  program->inputs_ = impl_->inputs;
  program->params_ = impl_->params;
  program->params_in_memory_ = impl_->params_in_memory;
  program->tables_ = impl_->tables;
  for (size_t i = 0; i < code.size(); ++i) {
    if (position[i] < 0) continue;
    position[i] = int32_t(program->code_.size());
    Instruction in = code[i];
    for (int32_t& o : in.operand)
      if (o >= 0) o = position[size_t(o)];
    program->code_.push_back(in);
    for (int k = 0; k < 3; ++k)
      ARETE_CHECK((in.op == Op::load && k == 0) || code[i].operand[k] < 0 ||
                      !impl_->is_table(code[i].operand[k]),
                  ValueError(name_of(in.op), "a table is read by load() only"));
  }
  for (int32_t id : results)
    ARETE_CHECK(!impl_->is_table(id), ValueError("", "a table is read by load() only"));
  for (size_t i = 0; i < results.size(); ++i)
    program->outputs_.push_back({position[size_t(results[i])], dtypes[i]});
  return Program::intern(std::move(program));
}

}  // namespace arete::expr
