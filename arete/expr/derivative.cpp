// Note [Masked adjoints]
// The gradient of select(c, f(x), h(x)) must not see the branch that was not taken: masking the
// incoming gradient and multiplying on gives 0 * inf = NaN where f'(x) is infinite. So an adjoint
// is a value together with an optional mask, meaning select(mask, value, 0); the rules are linear,
// so they work on the value and hand the mask on, and the mask is applied at the very end. Two
// adjoints with opposite masks merge into one select.
#include "arete/expr/derivative.h"

#include <algorithm>
#include <numbers>
#include <optional>

#include "arete/base/error.h"
#include "arete/expr/orthogonal.h"
#include "arete/expr/special.h"
#include "arete/expr/value.h"

namespace arete::expr {

namespace {

struct Mask {
  Value condition;
  bool polarity = true;  // false: where the condition does not hold
};

struct Adjoint {
  Value value;
  std::optional<Mask> mask;
};

class Reverse {
 public:
  // `forward`: the values of the program's instructions; `wanted`: as in Program::derivative.
  Reverse(Builder& builder, const Program& program, std::vector<Value> forward, uint32_t wanted)
      : builder_(builder), program_(program), forward_(std::move(forward)) {
    const auto code = program.code();
    active_.resize(code.size());
    adjoints_.resize(code.size());
    for (size_t i = 0; i < code.size(); ++i) active_[i] = is_active(code[i], wanted);
  }

  void add(int32_t position, const Adjoint& contribution) {
    if (position < 0 || !active_[size_t(position)]) return;
    auto& slot = adjoints_[size_t(position)];
    slot = slot ? merged(*slot, contribution) : contribution;
  }

  void run() {
    const auto code = program_.code();
    for (size_t i = code.size(); i-- > 0;)
      if (adjoints_[i]) propagate(code[i], forward_[i], *adjoints_[i]);
  }

  // The adjoint of an instruction, zero if nothing arrived.
  Value result(size_t position) {
    return adjoints_[position] ? materialized(*adjoints_[position])
                               : builder_.constant(program_.code()[position].type, 0.0);
  }

 private:
  bool is_active(const Instruction& in, uint32_t wanted) const {
    if (!is_float(in.type)) return false;
    switch (in.op) {
      case Op::input:
        return in.index < 32 && (wanted >> in.index & 1);
      case Op::param:
      case Op::constant:
      case Op::sign:
      case Op::floor:
      case Op::ceil:
      case Op::trunc:
      case Op::round:
      case Op::floor_div:
        return false;
      default:
        break;
    }
    for (int32_t o : in.operand)
      if (o >= 0 && active_[size_t(o)]) return true;
    return false;
  }

  Value zero_like(Value v) { return builder_.constant(v.type(), 0.0); }

  Value materialized(const Adjoint& a) {
    if (!a.mask) return a.value;
    const Value zero = zero_like(a.value);
    return a.mask->polarity ? where(a.mask->condition, a.value, zero)
                            : where(a.mask->condition, zero, a.value);
  }

  Adjoint merged(const Adjoint& a, const Adjoint& b) {
    if (!a.mask && !b.mask) return {a.value + b.value, {}};
    if (a.mask && b.mask && a.mask->condition.id() == b.mask->condition.id()) {
      if (a.mask->polarity == b.mask->polarity) return {a.value + b.value, a.mask};
      return {a.mask->polarity ? where(a.mask->condition, a.value, b.value)
                               : where(a.mask->condition, b.value, a.value),
              {}};
    }
    return {materialized(a) + materialized(b), {}};
  }

  // `a` where `condition` is `polarity`; nothing if that is nowhere.
  std::optional<Adjoint> masked(const Adjoint& a, Value condition, bool polarity) {
    if (!a.mask) return Adjoint{a.value, Mask{condition, polarity}};
    if (a.mask->condition.id() == condition.id())
      return a.mask->polarity == polarity ? std::optional(a) : std::nullopt;
    const Value outer = a.mask->polarity ? a.mask->condition : !a.mask->condition;
    const Value inner = polarity ? condition : !condition;
    return Adjoint{a.value, Mask{outer & inner, true}};
  }

  void add_masked(int32_t position, const Adjoint& a, Value condition, bool polarity) {
    if (const auto m = masked(a, condition, polarity)) add(position, *m);
  }

  bool wants(int32_t position) const { return active_[size_t(position)]; }

  [[noreturn]] static void no_derivative(const char* op, const char* hint) {
    throw NotImplementedError(op, std::string("the derivative for '") + op + "' is not implemented")
        .hint(hint);
  }

  // Hands the adjoint `adj` of `in`, whose value is `y`, on to the operands.
  void propagate(const Instruction& in, Value y, const Adjoint& adj) {
    if (arity_of(in.op) == 1) {
      const Value a = forward_[size_t(in.operand[0])];
      if (wants(in.operand[0])) add(in.operand[0], {unary(in, a, y, adj.value), adj.mask});
    } else if (in.op == Op::select) {
      const Value condition = forward_[size_t(in.operand[0])];
      add_masked(in.operand[1], adj, condition, true);
      add_masked(in.operand[2], adj, condition, false);
    } else if (arity_of(in.op) == 3) {
      contracted(in, adj);
    } else if (arity_of(in.op) == 2) {
      binary(in, y, adj);
    }
  }

  Value unary(const Instruction& in, Value a, Value y, Value g) {
    constexpr double kLn2 = std::numbers::ln2, kLn10 = std::numbers::ln10;
    const double half_sqrt_pi = 0.5 / std::numbers::inv_sqrtpi;
    switch (in.op) {
      case Op::neg:
        return -g;
      case Op::abs:
        return g * sign(a);
      case Op::sqrt:
        return g / (y * 2);
      case Op::rsqrt:
        return g * (y * y * y) * -0.5;
      case Op::reciprocal:
        return -(g * (y * y));
      case Op::exp:
        return g * y;
      case Op::exp2:
        return g * y * kLn2;
      case Op::expm1:
        return g * (y + 1);
      case Op::log:
        return g / a;
      case Op::log2:
        return g / (a * kLn2);
      case Op::log10:
        return g / (a * kLn10);
      case Op::log1p:
        return g / (a + 1);
      case Op::sin:
        return g * cos(a);
      case Op::cos:
        return -(g * sin(a));
      case Op::tan:
        return g * (y * y + 1);
      // 1 - a^2 as a product keeps its digits near 1.
      case Op::asin:
        return g * rsqrt((1 - a) * (a + 1));
      case Op::acos:
        return -(g * rsqrt((1 - a) * (a + 1)));
      case Op::atan:
        return g / (a * a + 1);
      case Op::sinh:
        return g * cosh(a);
      case Op::cosh:
        return g * sinh(a);
      case Op::tanh:
        return g * (1 - y * y);
      case Op::asinh:
        return g * rsqrt(a * a + 1);
      case Op::acosh:
        return g * (rsqrt(a - 1) * rsqrt(a + 1));
      case Op::atanh:
        return g / ((1 - a) * (a + 1));
      case Op::erf:
        return g * exp(-(a * a)) * (1 / half_sqrt_pi);
      case Op::erfc:
        return g * exp(-(a * a)) * (-1 / half_sqrt_pi);
      case Op::erfinv:
        return g * exp(y * y) * half_sqrt_pi;
      case Op::lgamma:
        return g * digamma(a);
      case Op::sigmoid:
        return g * (y * (1 - y));
      case Op::cast:
        return cast(g, a.type());
      case Op::round_to:
        return g;
      case Op::digamma:
        return g * polygamma(1, a);
      default:
        ARETE_BUG("an operation without a differentiation rule");
    }
  }

  void contracted(const Instruction& in, const Adjoint& adj) {
    const Value minus = -adj.value;
    const Value of_product = in.op == Op::sub_mul ? minus : adj.value;
    for (int k = 0; k < 2; ++k)
      if (const int32_t factor = in.operand[size_t(k)]; wants(factor))
        add(factor, {of_product * forward_[size_t(in.operand[size_t(1 - k)])], adj.mask});
    add(in.operand[2], {in.op == Op::mul_sub ? minus : adj.value, adj.mask});
  }

  void binary(const Instruction& in, Value y, const Adjoint& adj) {
    const int32_t pa = in.operand[0], pb = in.operand[1];
    const Value a = forward_[size_t(pa)], b = forward_[size_t(pb)], g = adj.value;
    auto give = [&](int32_t to, auto&& value) {
      if (wants(to)) add(to, {value(), adj.mask});
    };
    switch (in.op) {
      case Op::add:
        add(pa, adj);
        add(pb, adj);
        break;
      case Op::sub:
        add(pa, adj);
        give(pb, [&] { return -g; });
        break;
      case Op::mul:
        give(pa, [&] { return g * b; });
        give(pb, [&] { return g * a; });
        break;
      case Op::div:
        give(pa, [&] { return g / b; });
        give(pb, [&] { return -(g / b * y); });
        break;
      case Op::fmod:
        add(pa, adj);
        give(pb, [&] { return -(g * trunc(a / b)); });
        break;
      case Op::remainder:
        add(pa, adj);
        give(pb, [&] { return -(g * floor_div(a, b)); });
        break;
      case Op::pow:
        // A factor that is zero wins over an infinite power or logarithm.
        if (wants(pa)) add_masked(pa, {g * (b * pow(a, b - 1)), adj.mask}, b == 0, false);
        if (wants(pb)) add_masked(pb, {g * (y * log(a)), adj.mask}, (a == 0) & (b >= 0), false);
        break;
      case Op::atan2: {
        // Scaled by the larger magnitude, so that the sum of squares neither overflows nor
        // vanishes.
        const Value scale = max(abs(a), abs(b));
        const Value u = a / scale, v = b / scale;
        const Value factor = g / (scale * (u * u + v * v));
        give(pa, [&] { return factor * v; });
        give(pb, [&] { return -(factor * u); });
        break;
      }
      case Op::copysign:
        if (wants(pa))
          add_masked(pa, {g * (copysign(1.0, a) * copysign(1.0, b)), adj.mask}, a == 0, false);
        break;
      case Op::min:
      case Op::max: {
        // Halves at ties; where one is NaN both get the gradient, as in PyTorch.
        auto share = [&] { return where(a == b, g * 0.5, g); };
        const bool is_min = in.op == Op::min;
        if (wants(pa)) add_masked(pa, {share(), adj.mask}, is_min ? a > b : a < b, false);
        if (wants(pb)) add_masked(pb, {share(), adj.mask}, is_min ? b > a : b < a, false);
        break;
      }
      case Op::polynomial:
        give(pa, [&] {
          return g * builder_.polynomial(a, b, family_of(in.index), order_of(in.index) + 1);
        });
        break;
      case Op::nextafter:
        no_derivative("nextafter", "");
      default:
        ARETE_BUG("an operation without a differentiation rule");
    }
  }

  Builder& builder_;
  const Program& program_;
  std::vector<Value> forward_;
  std::vector<char> active_;
  std::vector<std::optional<Adjoint>> adjoints_;
};

// Which instructions the first `outputs` outputs need; stops at instructions with stop[i] set.
std::vector<char> live_code(const Program& p, size_t outputs, const std::vector<char>& stop) {
  const auto code = p.code();
  std::vector<char> live(code.size());
  for (size_t k = 0; k < outputs; ++k) live[size_t(p.outputs()[k].value)] = 1;
  for (size_t i = code.size(); i-- > 0;)
    if (live[i] && !stop[i])
      for (int32_t o : code[i].operand)
        if (o >= 0) live[size_t(o)] = 1;
  return live;
}

// How many inputs that come from the original's inputs are needed.
int count_forward_inputs(const Program& p, const std::vector<char>& live, size_t forward_inputs) {
  int count = 0;
  for (size_t i = 0; i < live.size(); ++i)
    count += live[i] && p.code()[i].op == Op::input && size_t(p.code()[i].index) < forward_inputs;
  return count;
}

// Copies what the first `outputs` outputs of `p` need into a new program. `sources` describes p's
// inputs; instruction i with saved[i] >= 0 is read from output saved[i] of the original, whose
// storage types are `saved_types`. Inputs that are not needed disappear.
Derivative extract(const Program& p, size_t outputs, const std::vector<DerivativeInput>& sources,
                   const std::vector<int>& saved, std::span<const Program::Output> originals) {
  const auto code = p.code();
  std::vector<char> stop(code.size());
  for (size_t i = 0; i < code.size(); ++i) stop[i] = saved[i] >= 0;
  const std::vector<char> live = live_code(p, outputs, stop);

  Derivative d;
  Builder b;
  std::vector<Value> inputs(p.inputs().size()), loads(code.size());
  std::vector<char> needed(p.inputs().size());
  for (size_t i = 0; i < code.size(); ++i)
    if (live[i] && code[i].op == Op::input) needed[size_t(code[i].index)] = 1;
  // The order: inputs, saved outputs, gradients.
  auto add_input = [&](size_t i) {
    inputs[i] = b.input(p.inputs()[i]);
    d.inputs.push_back(sources[i]);
  };
  for (size_t i = 0; i < inputs.size(); ++i)
    if (needed[i] && sources[i].from != DerivativeInput::From::grad) add_input(i);
  for (size_t i = 0; i < code.size(); ++i)
    if (live[i] && stop[i]) {
      loads[i] = b.input(originals[size_t(saved[i])].dtype);
      d.inputs.push_back({DerivativeInput::From::output, saved[i]});
    }
  for (size_t i = 0; i < inputs.size(); ++i)
    if (needed[i] && sources[i].from == DerivativeInput::From::grad) add_input(i);
  const std::vector<Value> params = b.params_of(p);

  const std::vector<Value> values = b.inline_code(p, inputs, params, live, loads);
  std::vector<Value> results;
  std::vector<DType> dtypes;
  for (size_t k = 0; k < outputs; ++k) {
    results.push_back(values[size_t(p.outputs()[k].value)]);
    dtypes.push_back(p.outputs()[k].dtype);
  }
  d.program = b.build(results, dtypes);
  return d;
}

// Simplification can make inputs dead, and may go on without them.
Derivative without_dead_inputs(Derivative d) {
  for (;;) {
    const std::vector<int> none(d.program->code().size(), -1);
    std::vector<char> used(d.inputs.size());
    for (const Instruction& in : d.program->code())
      if (in.op == Op::input) used[size_t(in.index)] = 1;
    if (std::find(used.begin(), used.end(), 0) == used.end()) return d;
    d = extract(*d.program, d.program->outputs().size(), std::vector<DerivativeInput>(d.inputs),
                none, {});
  }
}

}  // namespace

Derivative differentiate(const Program& program, uint32_t wanted) {
  using From = DerivativeInput::From;
  Builder b;
  std::vector<Value> inputs;
  std::vector<DerivativeInput> sources;
  for (size_t i = 0; i < program.inputs().size(); ++i) {
    inputs.push_back(b.input(program.inputs()[i]));
    sources.push_back({From::input, int(i)});
  }
  const std::vector<Value> params = b.params_of(program);
  const std::vector<Value> forward = b.inline_code(program, inputs, params);

  Reverse reverse(b, program, forward, wanted);
  const auto outputs = program.outputs();
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!is_floating(outputs[k].dtype)) continue;
    const Value g = b.input(outputs[k].dtype);
    sources.push_back({From::grad, int(k)});
    reverse.add(outputs[k].value, {g, {}});
  }
  reverse.run();

  std::vector<Value> results;
  std::vector<DType> dtypes;
  for (size_t i = 0; i < program.inputs().size(); ++i) {
    if (i >= 32 || !(wanted >> i & 1)) continue;
    // An input that the code never reads has no instruction.
    Value result = b.constant(compute_type(program.inputs()[i]), 0.0);
    for (size_t j = 0; j < program.code().size(); ++j) {
      const Instruction& in = program.code()[j];
      if (in.op == Op::input && size_t(in.index) == i) result = reverse.result(j);
    }
    results.push_back(result);
    dtypes.push_back(program.inputs()[i]);
  }
  const size_t count = results.size();

  // Outputs that are kept as exactly as they are computed, behind the adjoints, to find them again.
  std::vector<int> candidates;
  for (size_t k = 0; k < outputs.size(); ++k) {
    const DType t = outputs[k].dtype;
    const Op op = program.code()[size_t(outputs[k].value)].op;
    if (!is_floating(t) || storage_type(compute_type(t)) != t || arity_of(op) == 0) continue;
    candidates.push_back(int(k));
    results.push_back(forward[size_t(outputs[k].value)]);
    dtypes.push_back(t);
  }
  const ProgramPtr all = b.build(results, dtypes);

  // A saved output is read where that makes an input dead: an array less to keep and to read.
  // Reading it only to save arithmetic would cost an array more.
  std::vector<int> saved(all->code().size(), -1);
  std::vector<char> stop(all->code().size());
  for (size_t c = 0; c < candidates.size(); ++c) {
    const size_t position = size_t(all->outputs()[count + c].value);
    if (arity_of(all->code()[position].op) == 0 || stop[position]) continue;
    const std::vector<char> before = live_code(*all, count, stop);
    if (!before[position]) continue;
    stop[position] = 1;
    const std::vector<char> after = live_code(*all, count, stop);
    const size_t n = program.inputs().size();
    if (count_forward_inputs(*all, after, n) < count_forward_inputs(*all, before, n))
      saved[position] = candidates[c];
    else
      stop[position] = 0;
  }
  return without_dead_inputs(extract(*all, count, sources, saved, outputs));
}

Derivative with_outputs(const Derivative& derivative, uint32_t outputs) {
  const Program& p = *derivative.program;
  Builder b;
  std::vector<Value> inputs, results;
  std::vector<DType> dtypes;
  for (DType t : p.inputs()) inputs.push_back(b.input(t));
  const std::vector<Value> values = b.inline_code(p, inputs, b.params_of(p));
  for (size_t k = 0; k < p.outputs().size(); ++k) {
    if (!(outputs >> k & 1)) continue;
    results.push_back(values[size_t(p.outputs()[k].value)]);
    dtypes.push_back(p.outputs()[k].dtype);
  }
  return without_dead_inputs({b.build(results, dtypes), derivative.inputs});
}

}  // namespace arete::expr
